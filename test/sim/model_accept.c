/* model_accept.c - what callers do and may see: accept.sql, and the parts of base.sql and
 * unknown.sql that it stands on. */
#include <stdlib.h>

#include "test/sim/model_inner.h"

constexpr int64_t WINDOW_LEAP_MS = 60'000; /* an opening that far ahead was left by a leapt clock */

/* --- base.sql, unknown.sql -------------------------------------------------------------------- */

enum wish wish_of(const struct model_task *task)
{
	if (task->cancel)
		return WISH_CANCEL;
	return task->park ? WISH_PARK : WISH_NONE;
}

void end_task(struct model *model, struct model_task *task, enum task_state state,
	      struct slice error, struct slice message, int attempt)
{
	struct model_step *outcome = step_add(task, STEP_PLACE_OUTCOME);
	hf_assert(outcome);
	outcome->kind = STEP_OUTCOME;
	outcome->name = text_keep_empty(slice_of(task_state_name(state)));
	text_set(&outcome->error, error);
	text_set(&outcome->message, message);
	outcome->attempt = attempt;
	outcome->at_ms = model->now_ms;
	task_unclaim(model, task);
	task_attach(model, task, nullptr, 0);
	heap_take(&model->deadlines, task);
	task->open = false;
	task->state = state;
	model->open--;
	task_place(model, task);
}

struct slice phases_done(const struct model_task *task)
{
	struct buf text = {};
	for (size_t i = 0; i < task->steps_count; i++) {
		if (task->steps[i].kind != STEP_RECOVERY_POINT)
			continue;
		buf_add_text(&text, text.len ? ", " : "done before: ");
		buf_add_slice(&text, task->steps[i].name);
	}
	if (!text.len)
		buf_add_text(&text, "no phase was done");
	size_t len = text.len;
	return (struct slice){ buf_take(&text), len };
}

static bool undo_waits(const struct model *model, const struct model_task *task)
{
	const struct model_tool *tool = tool_of(model, task);
	for (size_t i = 0; i < task->steps_count; i++) {
		for (size_t j = 0; j < tool->undos_count; j++) {
			if (task->steps[i].kind == STEP_RECOVERY_POINT &&
			    task->steps[i].place / STEP_PLACES_PER_PHASE == tool->undos[j])
				return true;
		}
	}
	return false;
}

bool stop_task(struct model *model, struct model_task *task, const char *why)
{
	if (task->sent_ms < 0 && task->phase < UNDO_PHASE_FIRST && !undo_waits(model, task)) {
		struct slice done = phases_done(task);
		struct slice message = text_format("%s; %s", why, done.data);
		end_task(model, task, TASK_CANCELLED, (struct slice){}, message, task->attempt);
		text_drop(&done);
		text_drop(&message);
		return false;
	}
	task->cancel = true;
	task->park = false;
	task->pause = nullptr;
	task->state = TASK_READY;
	task->due_ms = task->updated_ms = model->now_ms;
	task_place(model, task);
	return true;
}

/* --- views ------------------------------------------------------------------------------------ */

bool is_paused(const struct model *model, bool tenant, struct slice name)
{
	for (size_t i = 0; i < model->pauses_count; i++) {
		if (model->pauses[i].tenant == tenant && slice_equal(model->pauses[i].name, name))
			return true;
	}
	return false;
}

const char *pause_word(const struct model *model, const struct model_task *task)
{
	if (!model->pauses_count)
		return nullptr;
	if (is_paused(model, true, model->owners[task->owner - 1].tenant))
		return "all work of this tenant";
	return is_paused(model, false, slice_of(tool_of(model, task)->name))
		   ? "all work of this tool"
		   : nullptr;
}

bool task_view(struct model *model, const struct model_task *task, struct task_view *view)
{
	const struct model_step *outcome =
	    task->open ? nullptr : step_find(task, STEP_PLACE_OUTCOME);
	if (outcome && outcome->at_ms + task->result_ttl_ms <= model->now_ms)
		return false;
	*view = (struct task_view){ .id = task->id,
				    .state = task->state,
				    .tool = task->tool,
				    .attempt = outcome ? outcome->attempt : task->attempt,
				    .created_ms = task->accepted_ms,
				    .updated_ms = outcome ? outcome->at_ms : task->updated_ms,
				    .ended_ms = outcome ? outcome->at_ms : 0,
				    .result_ttl_ms = task->result_ttl_ms,
				    .progress = outcome ? -1 : task->progress,
				    .message = outcome                     ? outcome->message
					       : task->state == TASK_READY ? (struct slice){}
									   : task->message,
				    .effect_id = task->effect_id };
	if (outcome) {
		view->result = outcome->result;
		view->error = outcome->error;
	} else if (task->state == TASK_READY || task->state == TASK_SCHEDULED) {
		const char *word = pause_word(model, task);
		if (word) {
			view->state = TASK_PAUSED;
			view->message = slice_of(word);
		}
	}
	view->has_successor = task->has_successor || task->has_retry_of;
	if (view->has_successor)
		view->successor = task->has_successor ? task->successor : task->id;
	return true;
}

/* What stands open, in the order of asking. */
static struct slice requests_of(struct model *model, const struct model_task *task)
{
	struct buf *text = &model->requests;
	buf_clear(text);
	const struct model_question *last = nullptr;
	for (;;) {
		const struct model_question *next = nullptr;
		for (size_t i = 0; i < task->questions_count; i++) {
			const struct model_question *at = &task->questions[i];
			bool after = !last || at->asked_ms > last->asked_ms ||
				     (at->asked_ms == last->asked_ms && at > last);
			if (at->phase == task->phase && at->how == MODEL_OPEN && after &&
			    (!next || at->asked_ms < next->asked_ms))
				next = at;
		}
		if (!next)
			break;
		buf_add_byte(text, text->len ? ',' : '{');
		buf_add_byte(text, '"');
		buf_add_slice(text, next->key);
		buf_add_text(text, "\":");
		buf_add_slice(text, next->request);
		last = next;
	}
	if (!text->len)
		return (struct slice){};
	buf_add_byte(text, '}');
	return buf_slice(text);
}

bool model_poll(struct model *model, int64_t owner, const struct task_id *id, bool asking,
		struct task_view *view)
{
	const struct model_task *task = task_find(model, id);
	if (!task || task->owner != owner || !task_view(model, task, view))
		return false;
	if (asking && task->open)
		view->requests = requests_of(model, task);
	return true;
}

bool model_find(struct model *model, int64_t owner, struct slice tool_name, struct slice effect_id,
		struct task_id *id)
{
	unsigned char digest[EFFECT_DIGEST_BYTES];
	effect_digest(owner, tool_name, effect_id, digest);
	const struct model_effect *effect = effect_find(model, digest);
	if (effect)
		*id = effect->task;
	return effect != nullptr;
}

bool model_artifact_of(struct model *model, int64_t owner, const struct task_id *id,
		       struct slice name, size_t bytes_max, struct store_artifact *artifact)
{
	struct task_view view;
	const struct model_task *task = task_find(model, id);
	if (!task || task->owner != owner || !task_view(model, task, &view))
		return false;
	for (size_t i = task->artifacts_count; i-- > 0;) {
		const struct model_artifact *at = &task->artifacts[i];
		const struct model_step *step = step_find(task, step_place_recovery(at->phase));
		if (!slice_equal(at->name, name) || !step || step->kind != STEP_RECOVERY_POINT)
			continue;
		*artifact = (struct store_artifact){ .media_type = at->media_type,
						     .size = (int64_t)at->content.len };
		if (at->content.len <= bytes_max)
			artifact->content = at->content;
		return true;
	}
	return false;
}

/* --- accept ----------------------------------------------------------------------------------- */

void task_id_make(const struct model *model, const unsigned char random[16], struct task_id *id)
{
	id->bytes[0] = 1;
	id->bytes[1] = model->config.cluster_number;
	for (size_t i = 0; i < 6; i++)
		id->bytes[2 + i] = (unsigned char)(model->now_ms >> (8 * (5 - i)));
	memcpy(id->bytes + 8, random, 16);
}

static struct model_task *accept_new(struct model *model, const struct accept_call *call,
				     const unsigned char *digest, const struct task_id *id)
{
	struct model_effect *effect = effect_add(model, digest);
	memcpy(effect->fingerprint, call->fingerprint, FINGERPRINT_BYTES);
	effect->task = *id;
	effect->tool = call->tool;
	effect->accepted_ms = model->now_ms;

	struct model_task *task = task_add(model, id);
	task->owner = call->owner;
	task->tool = call->tool;
	task->effect_id = text_keep_empty(call->effect_id);
	task->arguments = text_keep_empty(call->arguments);
	task->inputs = text_keep(call->inputs);
	task->trace = text_keep(call->trace);
	memcpy(task->digest, digest, EFFECT_DIGEST_BYTES);
	memcpy(task->fingerprint, call->fingerprint, FINGERPRINT_BYTES);
	task->asks = call->asks;
	task->key_version = call->key_version;
	task->accepted_ms = model->now_ms;
	const struct model_tool *tool = tool_of(model, task);
	task->deadline_ms = model->now_ms + tool->deadline_ms;
	task->result_ttl_ms = tool->result_ttl_ms;

	task->open = true;
	task->state = TASK_READY;
	task->due_ms = task->updated_ms = model->now_ms;
	task->held = call->number == 0;
	if (call->number)
		task_attach(model, task, &call->api, call->number);
	model->open++;
	task_place(model, task);
	heap_put(model, &model->deadlines, task, task->deadline_ms);
	return task;
}

/* join_task() for one: api nullptr holds it. */
static void join_task(struct model *model, struct model_task *task, const struct uuid *api,
		      int64_t number)
{
	if (task->held)
		return;
	task->held = !api;
	task_attach(model, task, api, number);
	task->park = task->park && task->pause;
	if (task->state != TASK_PARKED)
		return;
	task->updated_ms = task->due_ms = model->now_ms;
	text_drop(&task->message);
	task->state = TASK_READY;
	task_place(model, task);
}

enum accept_outcome model_accept(struct model *model, const struct accept_call *call,
				 const unsigned char random[16], struct task_view *view)
{
	unsigned char digest[EFFECT_DIGEST_BYTES];
	effect_digest(call->owner, call->tool_name, call->effect_id, digest);
	struct model_effect *effect = effect_find(model, digest);
	if (effect && effect->tombstone_ms >= 0 && effect->tombstone_ms < model->now_ms) {
		effect_delete(model, effect);
		effect = nullptr;
	}
	if (!effect) {
		struct task_id id;
		task_id_make(model, random, &id);
		const struct model_task *task = accept_new(model, call, digest, &id);
		*view = (struct task_view){ .id = id,
					    .state = TASK_READY,
					    .tool = call->tool,
					    .created_ms = model->now_ms,
					    .updated_ms = model->now_ms,
					    .result_ttl_ms = task->result_ttl_ms,
					    .progress = -1 };
		return ACCEPT_NEW;
	}
	if (memcmp(effect->fingerprint, call->fingerprint, FINGERPRINT_BYTES) != 0)
		return ACCEPT_CONFLICT;
	struct model_task *task = task_find(model, &effect->task);
	if (task && task->open)
		join_task(model, task, call->number ? &call->api : nullptr, call->number);
	if (!task || !task_view(model, task, view))
		return ACCEPT_EXPIRED;
	view->result = view->error = view->effect_id = (struct slice){};
	view->has_successor = false;
	return ACCEPT_SAME;
}

struct slice model_intent_window(struct model *model, const unsigned char digest[16],
				 struct slice fresh, int64_t window_ms)
{
	struct window *window = window_find(model, digest);
	int64_t now = model->now_ms;
	if (window && window->opened_ms + window_ms > now &&
	    window->opened_ms <= now + WINDOW_LEAP_MS)
		return window->effect_id;
	if (!window)
		window = window_add(model, digest);
	text_drop(&window->effect_id);
	window->effect_id = text_keep_empty(fresh);
	window->opened_ms = now;
	return window->effect_id;
}

/* --- attach, detach, cancel ------------------------------------------------------------------- */

bool model_attach(struct model *model, int64_t owner, const struct task_id *id,
		  const struct uuid *api, int64_t number)
{
	struct model_task *task = task_open(model, id);
	if (!task || task->owner != owner)
		return false;
	join_task(model, task, api, number);
	return true;
}

struct model_detached model_detach(struct model *model, const struct task_id *id,
				   const struct uuid *api, int64_t number, bool park)
{
	struct model_task *task = task_open(model, id);
	if (!task || !task->has_attached || !uuid_equal(&task->attached, api) ||
	    task->attached_no != number || task->held)
		return (struct model_detached){ .phase = 1 };
	struct model_detached answer = { .ours = true,
					 .phase = task->phase + 1,
					 .running = park && task->state == TASK_RUNNING };
	bool stops = park && !task->cancel &&
		     (task->state == TASK_READY || task->state == TASK_SCHEDULED ||
		      task->state == TASK_WAITING || task->state == TASK_UNVERIFIED);
	task_attach(model, task, nullptr, 0);
	task->park = answer.running || (task->park && task->pause);
	if (park)
		task->updated_ms = model->now_ms;
	if (stops) {
		text_set(&task->message, slice_of("parked: its client hung up"));
		task->due_ms = model->now_ms + tool_of(model, task)->park_ttl_ms;
		task->state = TASK_PARKED;
		task_place(model, task);
	}
	if (park)
		event_add(model, task, "hung_up", (struct slice){});
	return answer;
}

struct model_cancelled cancel_task(struct model *model, struct model_task *task)
{
	struct model_cancelled answer = {};
	if (task->state == TASK_RUNNING || task->state == TASK_UNKNOWN) {
		answer.flagged = true;
		if (!task->cancel) {
			task->cancel = true;
			task->updated_ms = model->now_ms;
			event_add(model, task, "cancel_asked", (struct slice){});
		}
	} else if (!task->cancel && stop_task(model, task, "cancelled")) {
		event_add(model, task, "cancel_asked", (struct slice){});
	}
	struct task_view view;
	answer.found = task_view(model, task, &view);
	return answer;
}

struct model_cancelled model_cancel(struct model *model, int64_t owner, const struct task_id *id)
{
	struct model_task *task = task_find(model, id);
	if (!task || task->owner != owner)
		return (struct model_cancelled){};
	if (task->open)
		return cancel_task(model, task);
	struct task_view view;
	return (struct model_cancelled){ .found = task_view(model, task, &view) };
}
