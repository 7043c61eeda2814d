/* model_input.c - what a running task asks of its caller and is told: input.sql. */
#include <stdlib.h>

#include "runtime/json.h"
#include "test/sim/model_inner.h"

bool is_asking(const struct model_task *task, int phase)
{
	for (size_t i = 0; i < task->questions_count; i++) {
		if (task->questions[i].phase == phase && task->questions[i].how == MODEL_OPEN)
			return true;
	}
	return false;
}

void close_silent(struct model *model, struct model_task *task)
{
	for (size_t i = 0; i < task->questions_count; i++) {
		struct model_question *at = &task->questions[i];
		if (at->how != MODEL_OPEN || at->until_ms < 0 || at->until_ms > model->now_ms)
			continue;
		at->how = MODEL_SILENCE;
		at->answered_ms = model->now_ms;
	}
}

/* A question of the phase; one that was asked before stands as it is. */
static void ask_one(struct model *model, struct model_task *task, const struct ask_write *ask,
		    struct slice one)
{
	struct slice name, request = {};
	bool whole = json_member(one, "key", &name);
	hf_assert(whole);
	json_member(one, "request", &request);
	buf_clear(&model->scratch);
	json_string_decode(name, &model->scratch);
	struct slice key = buf_slice(&model->scratch);
	struct model_question *question = question_find(task, key);
	if (question && question->phase >= 0)
		return;
	if (!question)
		question = question_add(task, key);
	question->phase = ask->phase;
	text_set(&question->request, request);
	question->asked_ms = model->now_ms;
	question->until_ms = ask->wait_ms ? model->now_ms + ask->wait_ms : -1;
}

enum fence model_ask(struct model *model, const struct ask_write *ask, bool *ready)
{
	*ready = false;
	struct model_task *task = task_fence(model, &ask->id, &ask->token);
	if (!task || task->phase != ask->phase)
		return FENCE_LOST;
	struct slice one;
	for (size_t at = 0; json_array_next(ask->questions, &at, &one);)
		ask_one(model, task, ask, one);
	close_silent(model, task);
	bool opens = false;
	int64_t due = task->deadline_ms;
	for (size_t i = 0; i < task->questions_count; i++) {
		const struct model_question *at = &task->questions[i];
		if (at->phase != ask->phase || at->how != MODEL_OPEN)
			continue;
		opens = true;
		if (at->until_ms >= 0 && at->until_ms < due)
			due = at->until_ms;
	}
	if (!ask->maybe_sent)
		intents_drop(task, ask->phase, &ask->token);

	bool paused = becomes_paused(task), parks = task->park;
	task_unclaim(model, task);
	task->progress = -1;
	task->updated_ms = model->now_ms;
	text_set(&task->message, paused ? (struct slice){} : ask->reason);
	task->pause = paused ? task->pause : nullptr;
	task->park = false;
	task->attempt--;
	if (ask->maybe_sent)
		task->sent_ms = model->now_ms;
	bool is_due = task->cancel || !opens;
	if (paused)
		task->state = TASK_PAUSED;
	else if (is_due)
		task->state = TASK_READY;
	else
		task->state = parks ? TASK_PARKED : TASK_WAITING;
	if (is_due)
		due = model->now_ms;
	else if (parks)
		due = model->now_ms + tool_of(model, task)->park_ttl_ms;
	task->due_ms = due;
	task_place(model, task);
	*ready = task->state == TASK_READY;
	return FENCE_HELD;
}

static bool is_declared(const struct model_tool *tool, struct slice key)
{
	for (size_t i = 0; i < tool->inputs_count; i++) {
		if (slice_is(key, tool->inputs[i]))
			return true;
	}
	return false;
}

/* Whether it was new. */
static bool answer_one(struct model *model, struct model_task *task, struct slice key,
		       struct slice value)
{
	struct model_question *question = question_find(task, key);
	if (question ? question->how != MODEL_OPEN : !is_declared(tool_of(model, task), key))
		return false;
	if (!question)
		question = question_add(task, key);
	question->how = MODEL_ANSWERED;
	text_set(&question->answer, value);
	question->answered_ms = model->now_ms;
	return true;
}

struct model_answered model_answer(struct model *model, int64_t owner, const struct task_id *id,
				   struct slice answers)
{
	struct model_answered said = {};
	struct model_task *task = task_find(model, id);
	struct task_view view;
	if (!task || task->owner != owner || !task_view(model, task, &view))
		return said;
	said.known = true;
	if (!task->open)
		return said;
	struct slice name, value;
	for (size_t at = 0; json_object_next(answers, &at, &name, &value);) {
		buf_clear(&model->scratch);
		json_string_decode(name, &model->scratch);
		said.taken += answer_one(model, task, buf_slice(&model->scratch), value);
	}
	said.woken = task->state == TASK_WAITING && !is_asking(task, task->phase);
	if (said.woken || said.taken > 0)
		task->updated_ms = model->now_ms;
	if (said.woken) {
		task->state = TASK_READY;
		task->due_ms = model->now_ms;
		text_drop(&task->message);
		task_place(model, task);
	}
	return said;
}

int model_wake_answered(struct model *model)
{
	struct heap *heap = &model->later[TASK_WAITING];
	int woken = 0;
	for (size_t i = 0; i < heap->count;) {
		struct model_task *task = heap->items[i];
		if (is_asking(task, task->phase)) {
			i++;
			continue;
		}
		woken++;
		event_add(model, task, "overlooked",
			  slice_of("all was answered and nobody had told"));
		task->state = TASK_READY;
		task->due_ms = task->updated_ms = model->now_ms;
		text_drop(&task->message);
		task_place(model, task); /* moves others in the heap: from the beginning */
		i = 0;
	}
	return woken;
}
