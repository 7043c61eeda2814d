/* model_maintain.c - the dead, deadlines, retention: maintain.sql. */
#include <stdlib.h>

#include "test/sim/model_inner.h"

constexpr int64_t DAY_MS = 24LL * 60 * 60 * 1000;
constexpr int64_t LEASE_LEAP = 10; /* times its length: left by a clock that leapt */

bool model_lease_take(struct model *model, const char *name, const struct uuid *incarnation,
		      int64_t ttl_ms)
{
	size_t i = 0;
	while (i < MODEL_LEASES_MAX && model->leases[i].name &&
	       strcmp(model->leases[i].name, name) != 0)
		i++;
	hf_assert(i < MODEL_LEASES_MAX);
	int64_t now = model->now_ms, until = model->leases[i].until_ms;
	if (model->leases[i].name && !uuid_equal(&model->leases[i].incarnation, incarnation) &&
	    until >= now && until <= now + LEASE_LEAP * ttl_ms)
		return false;
	model->leases[i].name = name;
	model->leases[i].incarnation = *incarnation;
	model->leases[i].until_ms = now + ttl_ms;
	return true;
}

bool model_declare_dead(struct model *model, const struct uuid *incarnation, int64_t beat)
{
	struct incarnation *row = incarnation_find(model, incarnation);
	if (!row || row->beat != beat)
		return false;
	incarnation_delete(model, row);
	return true;
}

int model_reclaim(struct model *model, int most)
{
	int n = 0;
	for (struct model_task *task = model->running, *next; task && n < most; task = next) {
		next = task->running_next;
		if (incarnation_find(model, &task->incarnation))
			continue;
		n++;
		event_add(model, task, "crash", slice_of("worker died"));
		task_unclaim(model, task);
		task->state = TASK_READY;
		task->due_ms = task->sent_ms = task->updated_ms = model->now_ms;
		task->attempt = task->attempt > 0 ? task->attempt - 1 : 0;
		task->crashes++;
		task->progress = -1;
		text_set(&task->message,
			 slice_of(intent_since(task) < 0
				      ? "its worker died; goes on elsewhere"
				      : "its worker died; its request may have left"));
		task_place(model, task);
	}
	return n;
}

static void end_late(struct model *model, struct model_task *task)
{
	bool untouched = task->phase == 0 && task->attempt == 0 && task->crashes == 0;
	struct slice error = text_format(
	    "{\"code\":-32603,\"message\":\"deadline exceeded\",\"data\":{\"type\":\"deadline\","
	    "\"executed\":\"%s\"}}",
	    untouched ? "no" : "maybe");
	struct slice done = phases_done(task);
	struct slice message = text_format("deadline exceeded; %s", done.data);
	end_task(model, task, TASK_FAILED, error, message, task->attempt);
	text_drop(&error);
	text_drop(&done);
	text_drop(&message);
}

static bool is_late(const struct model *model, const struct model_task *task)
{
	return task->deadline_ms < model->now_ms && task->state != TASK_RUNNING &&
	       task->state != TASK_UNKNOWN && !task->cancel &&
	       (task->sent_ms < 0 || task->state != TASK_READY);
}

int model_expire_deadlines(struct model *model, int most)
{
	struct heap *heap = &model->deadlines;
	struct model_task **kept = nullptr;
	size_t kept_count = 0, kept_room = 0;
	int n = 0;
	for (struct model_task *task; n < most && (task = heap_first(heap)) != nullptr &&
				      task->deadline_ms < model->now_ms;) {
		bool late = is_late(model, task);
		n += late;
		if (late && task->sent_ms < 0) {
			end_late(model, task);
			continue;
		}
		if (late) {
			task->state = TASK_READY;
			task->due_ms = model->now_ms;
			task_place(model, task);
		}
		heap_take(heap, task); /* those behind it are to be seen */
		if (kept_count == kept_room) {
			kept_room = 2 * kept_room + 16;
			kept = hf_realloc((void *)kept, kept_room * sizeof *kept);
		}
		kept[kept_count++] = task;
	}
	for (size_t i = 0; i < kept_count; i++)
		heap_put(model, heap, kept[i], kept[i]->deadline_ms);
	free((void *)kept);
	return n;
}

int model_park_orphans(struct model *model, int most)
{
	int n = 0, seen = 0;
	for (struct model_task *task = model->attached, *next; task && seen < most; task = next) {
		next = task->attached_next;
		if (incarnation_find(model, &task->attached))
			continue;
		seen++;
		struct uuid api = task->attached;
		n += model_detach(model, &task->id, &api, task->attached_no, true).ours;
	}
	return n;
}

int model_expire_parked(struct model *model, int most)
{
	int n = 0;
	for (struct model_task *task; n < most && (task = heap_first(&model->later[TASK_PARKED])) &&
				      task->due_ms < model->now_ms;
	     n++)
		stop_task(model, task, "its client hung up and nobody took it up again");
	return n;
}

static void sweep_one(struct model *model, struct model_task *task)
{
	struct model_effect *effect = effect_find(model, task->digest);
	if (effect && task_id_equal(&effect->task, &task->id))
		effect->tombstone_ms = step_find(task, STEP_PLACE_OUTCOME)->at_ms +
				       tool_of(model, task)->tombstone_ttl_ms;
	task_free(model, task);
}

int model_sweep(struct model *model, int32_t week, int most)
{
	struct model_task *others = nullptr; /* chained by what only running tasks use */
	int n = 0;
	for (struct model_task *task;
	     n < most && (task = heap_first(&model->ended)) && task->due.key < model->now_ms;) {
		if (week < 0 || task->week == week) {
			sweep_one(model, task);
			n++;
			continue;
		}
		heap_take(&model->ended, task);
		task->running_next = others;
		others = task;
	}
	for (; others; others = others->running_next)
		heap_put(model, &model->ended, others,
			 step_find(others, STEP_PLACE_OUTCOME)->at_ms + others->result_ttl_ms);
	return n;
}

void model_sweep_tombstones(struct model *model)
{
	for (size_t i = 0; i <= model->effects.mask; i++) {
		for (struct model_effect *at = model->effects.heads[i], *next; at; at = next) {
			next = at->bucket_next;
			if (at->tombstone_ms >= 0 && at->tombstone_ms < model->now_ms)
				effect_delete(model, at);
		}
	}
}

int model_sweep_windows(struct model *model, int most)
{
	int n = 0;
	for (size_t i = 0; i <= model->windows.mask; i++) {
		for (struct window *at = model->windows.heads[i], *next; at && n < most;
		     at = next) {
			next = at->next;
			if (at->opened_ms >= model->now_ms - DAY_MS)
				continue;
			window_delete(model, at);
			n++;
		}
	}
	return n;
}
