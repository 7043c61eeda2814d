/* model_operate.c - what operators do: operate.sql, and settle() of unknown.sql. */
#include <stdlib.h>

#include "runtime/json.h"
#include "test/sim/model_inner.h"

static bool pause_is(const struct model_task *task, const char *pause)
{
	return task->pause && strcmp(task->pause, pause) == 0;
}

/* --- settle ----------------------------------------------------------------------------------- */

static void settled_note(struct model *model, struct model_task *task, const char *verdict,
			 const struct model_act *act)
{
	struct slice text = text_format("%s by %.*s: %.*s", verdict, (int)act->by.len, act->by.data,
					(int)act->why.len, act->why.data);
	event_add(model, task, "settled", text);
	text_drop(&text);
}

static void settle_fail(struct model *model, struct model_task *task, const struct model_act *act)
{
	struct slice said =
	    text_format("settled as failed: %.*s", (int)act->why.len, act->why.data);
	struct buf error = {};
	buf_add_text(&error, "{\"code\" : 1500, \"message\" : ");
	json_string_encode(said, &error);
	buf_add_text(&error,
		     ", \"data\" : {\"type\" : \"outcome_unknown\", \"executed\" : \"maybe\"}}");
	struct slice message = text_format("settled as failed by %.*s: %.*s", (int)act->by.len,
					   act->by.data, (int)act->why.len, act->why.data);
	end_task(model, task, TASK_FAILED, buf_slice(&error), message, task->attempt);
	buf_deinit(&error);
	text_drop(&said);
	text_drop(&message);
}

static void settle_done(struct model *model, struct model_task *task,
			const struct model_verdict *verdict, const struct model_act *act)
{
	struct model_step *step = step_add(task, step_place_recovery(task->phase));
	hf_assert(step);
	step->kind = STEP_RECOVERY_POINT;
	step->name = text_keep_empty(verdict->name);
	step->state = text_keep_empty(verdict->state);
	step->answer = text_format("settled by %.*s", (int)act->by.len, act->by.data);
	step->attempt = task->attempt;
	step->generation = generation_of(model, task, step->place);
	step->at_ms = model->now_ms;
}

/* When its request may have left stays told. */
static void intent_settle(struct model *model, struct model_task *task)
{
	int64_t sent = intent_since(task);
	if (sent < 0)
		return;
	event_add(model, task, "intent", (struct slice){});
	task->events[task->events_count - 1].at_ms = sent;
	intents_drop(task, task->phase, nullptr);
}

/* The time that it stood unknown. */
static void deadline_give_back(struct model *model, struct model_task *task)
{
	size_t i = task->events_count;
	while (i > 0 && strcmp(task->events[i - 1].kind, "unknown") != 0)
		i--;
	if (i == 0)
		return;
	int64_t given = task->deadline_ms + model->now_ms - task->events[i - 1].at_ms;
	int64_t most = model->now_ms + tool_of(model, task)->deadline_ms;
	given = given < most ? given : most;
	if (given <= task->deadline_ms)
		return;
	task->deadline_ms = given;
	heap_take(&model->deadlines, task);
	heap_put(model, &model->deadlines, task, given);
}

const char *model_settle(struct model *model, const struct task_id *id,
			 const struct model_verdict *verdict, const struct model_act *act)
{
	struct model_task *task = task_open(model, id);
	if (!task)
		return "missing";
	if (task->state != TASK_UNKNOWN)
		return "not_unknown";
	bool absent = strcmp(verdict->verdict, "absent") == 0;
	bool done = strcmp(verdict->verdict, "done") == 0;
	int64_t sent = task->sent_ms < 0 ? task->updated_ms : task->sent_ms;
	if (absent && !verdict->force && model->now_ms < sent + verdict->visible_within_ms)
		return "too_early";
	settled_note(model, task, verdict->verdict, act);
	if (strcmp(verdict->verdict, "fail") == 0) {
		settle_fail(model, task, act);
		return "settled";
	}
	if (done)
		settle_done(model, task, verdict, act);
	intent_settle(model, task);
	if (absent)
		step_delete(task, task->phase * STEP_PLACES_PER_PHASE + STEP_ACCEPTED);
	deadline_give_back(model, task);
	task->due_ms = task->updated_ms = model->now_ms;
	text_drop(&task->message);
	task->progress = -1;
	if (done)
		task->phase = task->phase < UNDO_PHASE_FIRST ? task->phase + 1
							     : next_undo(model, task, task->phase);
	bool stays = pause_is(task, "task") && !task->cancel && task->phase < UNDO_PHASE_FIRST;
	task->state = stays ? TASK_PAUSED : TASK_READY;
	task->pause = stays ? "task" : nullptr;
	task->attempt = task->crashes = 0;
	task->first_try_ms = task->sent_ms = -1;
	task_place(model, task);
	return "settled";
}

/* --- pause, resume, cancel -------------------------------------------------------------------- */

static void operated_note(struct model *model, struct model_task *task, const char *kind,
			  const char *what, const struct model_act *act)
{
	struct slice text = text_format("%sby %.*s: %.*s", what, (int)act->by.len, act->by.data,
					(int)act->why.len, act->why.data);
	event_add(model, task, kind, text);
	text_drop(&text);
}

const char *model_pause_task(struct model *model, const struct task_id *id,
			     const struct model_act *act)
{
	struct model_task *task = task_open(model, id);
	if (!task)
		return "missing";
	if (task->cancel || task->phase >= UNDO_PHASE_FIRST)
		return "ending";
	if (task->state == TASK_UNKNOWN)
		return "unknown";
	if (pause_is(task, "task") && (task->state == TASK_PAUSED || task->park))
		return task->state == TASK_PAUSED ? "paused" : "asked";
	operated_note(model, task, "paused", "", act);
	task->pause = "task";
	task->updated_ms = model->now_ms;
	task->park = task->state == TASK_RUNNING;
	if (task->state == TASK_RUNNING)
		return "asked";
	task->state = TASK_PAUSED;
	text_drop(&task->message);
	task_place(model, task);
	return "paused";
}

const char *model_resume_task(struct model *model, const struct task_id *id,
			      const struct model_act *act)
{
	struct model_task *task = task_open(model, id);
	if (!task)
		return "missing";
	if (!task->pause ||
	    (!task->park && task->state != TASK_PAUSED && task->state != TASK_UNKNOWN))
		return "not_paused";
	if (pause_is(task, "tenant"))
		return "tenant";
	operated_note(model, task, "resumed", "", act);
	task->pause = nullptr;
	task->park = false;
	task->updated_ms = model->now_ms;
	if (task->state == TASK_PAUSED) {
		task->state = TASK_READY;
		task->due_ms = model->now_ms;
		text_drop(&task->message);
		task_place(model, task);
	}
	return task->state == TASK_UNKNOWN ? "unknown" : "resumed";
}

const char *model_cancel_task(struct model *model, const struct task_id *id,
			      const struct model_act *act)
{
	struct model_task *task = task_open(model, id);
	if (!task)
		return "missing";
	operated_note(model, task, "operator", "cancel ", act);
	return cancel_task(model, task).flagged ? "asked" : "cancelled";
}

static size_t pause_at(const struct model *model, const char *kind, const char *name)
{
	size_t i = 0;
	while (i < model->pauses_count &&
	       (model->pauses[i].tenant != (strcmp(kind, "tenant") == 0) ||
		!slice_is(model->pauses[i].name, name)))
		i++;
	return i;
}

static bool has_tool(const struct model *model, const char *name)
{
	for (size_t i = 0; i < model->tools_room; i++) {
		if (model->tools[i] && strcmp(model->tools[i]->name, name) == 0)
			return true;
	}
	return false;
}

const char *model_pause_all(struct model *model, const char *kind, const char *name)
{
	bool tenant = strcmp(kind, "tenant") == 0;
	if (!tenant && !has_tool(model, name))
		return "missing";
	size_t at = pause_at(model, kind, name);
	if (at < model->pauses_count)
		return "already";
	hf_assert(at < MODEL_PAUSES_MAX);
	model->pauses[at].tenant = tenant;
	model->pauses[at].name = text_keep_empty(slice_of(name));
	model->pauses_count++;
	return "paused";
}

const char *model_resume_all(struct model *model, const char *kind, const char *name)
{
	size_t at = pause_at(model, kind, name);
	if (at == model->pauses_count)
		return "not_paused";
	text_drop(&model->pauses[at].name);
	model->pauses[at] = model->pauses[--model->pauses_count];
	return "resumed";
}

bool set_aside(struct model *model, struct model_task *task)
{
	if (!model->pauses_count || !is_paused(model, true, model->owners[task->owner - 1].tenant))
		return false;
	task->state = TASK_PAUSED;
	task->pause = "tenant";
	text_set(&task->message, slice_of("all work of this tenant"));
	task->updated_ms = model->now_ms;
	task_place(model, task);
	return true;
}

void model_pause_pages(struct model *model)
{
	for (size_t i = 0; i < model->tools_room; i++) {
		struct heap *queue = &model->queues[i];
		for (size_t at = 0; at < queue->count;)
			/* One that leaves moves others: from the beginning. */
			at = set_aside(model, queue->items[at]) ? 0 : at + 1;
	}
}

int model_resume_tenant(struct model *model, const char *tenant, int most)
{
	if (is_paused(model, true, slice_of(tenant)))
		return 0;
	struct heap *paused = &model->later[TASK_PAUSED];
	int n = 0;
	for (size_t at = 0; at < paused->count && n < most;) {
		struct model_task *task = paused->items[at];
		if (!pause_is(task, "tenant") ||
		    !slice_is(model->owners[task->owner - 1].tenant, tenant)) {
			at++;
			continue;
		}
		task->state = TASK_READY;
		task->pause = nullptr;
		text_drop(&task->message);
		task->updated_ms = model->now_ms;
		task_place(model, task);
		n++;
		at = 0;
	}
	return n;
}

/* --- retry ------------------------------------------------------------------------------------ */

static const char *retry_open(struct model *model, struct model_task *task,
			      const struct model_retry *retry, const struct model_act *act)
{
	if (retry->new_key)
		return "not_refused";
	if (task->state != TASK_SCHEDULED && task->state != TASK_PAUSED &&
	    task->state != TASK_UNVERIFIED)
		return task_state_name(task->state);
	if (task->state == TASK_PAUSED && pause_is(task, "tenant"))
		return "tenant";
	if (retry->from_phase >= 0 && retry->from_phase != task->phase)
		return "place";
	operated_note(model, task, "retried", "", act);
	task->state = TASK_READY;
	task->due_ms = task->updated_ms = model->now_ms;
	task->pause = nullptr;
	text_drop(&task->message);
	task_place(model, task);
	return "due";
}

static const char *effect_of(const struct model_tool *tool, int phase)
{
	return phase < tool->phases_count ? tool->phases[phase].effect : "unsafe";
}

static bool is_quiet(const char *effect)
{
	return strcmp(effect, "pure") == 0 || strcmp(effect, "local") == 0;
}

/* Where and how it failed. */
struct failure {
	int at;       /* the phase */
	int begins;   /* the successor */
	bool maybe;   /* V7 */
	bool refused; /* "phase_failed" */
};

static struct failure failure_of(const struct model *model, const struct model_task *task,
				 const struct model_step *outcome, int from_phase)
{
	struct failure failure = {};
	for (size_t i = 0; i < task->steps_count; i++)
		failure.at += task->steps[i].kind == STEP_RECOVERY_POINT;
	failure.begins = from_phase >= 0 ? from_phase : failure.at;
	struct slice data, type = {}, executed = {};
	if (outcome->error.data && json_member(outcome->error, "data", &data)) {
		json_member(data, "type", &type);
		json_member(data, "phase_executed", &executed);
	}
	failure.refused = type.data && json_string_is(type, "phase_failed");
	bool no = executed.data ? json_string_is(executed, "no")
				: type.data && json_string_is(type, "deadline");
	const struct model_tool *tool = tool_of(model, task);
	failure.maybe =
	    failure.at < tool->phases_count && !is_quiet(effect_of(tool, failure.at)) && !no;
	return failure;
}

/* Why not; nullptr: it can be. */
static const char *retry_refused(const struct model_tool *tool, const struct failure *failure,
				 bool new_key)
{
	if (failure->begins > failure->at)
		return "ahead";
	for (int phase = failure->begins; phase < failure->at; phase++) {
		if (strcmp(effect_of(tool, phase), "pure") != 0 && !tool->phases[phase].timer)
			return "done";
	}
	if (failure->maybe && failure->begins < failure->at)
		return "maybe";
	if (new_key &&
	    (failure->begins != failure->at || failure->at >= tool->phases_count ||
	     failure->maybe || is_quiet(effect_of(tool, failure->at)) || !failure->refused))
		return "not_refused";
	return nullptr;
}

static void copy_steps(struct model_task *to, const struct model_task *from, int below)
{
	for (size_t i = 0; i < from->steps_count; i++) {
		const struct model_step *old = &from->steps[i];
		if (old->kind == STEP_OUTCOME || old->place / STEP_PLACES_PER_PHASE >= below)
			continue;
		struct model_step *step = step_add(to, old->place);
		hf_assert(step);
		*step = (struct model_step){
			.place = old->place,
			.kind = old->kind,
			.attempt = old->attempt,
			.generation = old->generation,
			.started_ms = old->started_ms,
			.at_ms = old->at_ms,
			.has_origin = true,
			.origin = old->has_origin ? old->origin : from->id,
		};
		text_set(&step->name, old->name);
		text_set(&step->state, old->state);
		text_set(&step->derived_key, old->derived_key);
		text_set(&step->answer, old->answer);
	}
}

static void copy_rest(struct model_task *to, const struct model_task *from, int begins,
		      bool checkpoints)
{
	for (size_t i = 0; i < from->artifacts_count; i++) {
		const struct model_artifact *old = &from->artifacts[i];
		if (old->phase >= begins)
			continue;
		struct model_artifact *artifact = artifact_add(to, old->phase, old->name);
		artifact->media_type = text_keep_empty(old->media_type);
		artifact->content = text_keep_empty(old->content);
		artifact->at_ms = old->at_ms;
	}
	for (size_t i = 0; i < from->questions_count; i++) {
		const struct model_question *old = &from->questions[i];
		if (old->phase >= begins &&
		    !(checkpoints && old->phase == begins && old->how == MODEL_ANSWERED))
			continue;
		struct model_question *question = question_add(to, old->key);
		question->phase = old->phase;
		question->asked_ms = old->asked_ms;
		question->until_ms = old->until_ms;
		question->how = old->how;
		question->answered_ms = old->answered_ms;
		text_set(&question->request, old->request);
		text_set(&question->answer, old->answer);
	}
}

static int *copy_generations(const struct model_tool *tool, const struct model_task *from,
			     int raised)
{
	bool any = raised >= 0;
	int *keys = hf_alloc((size_t)tool->phases_count * sizeof *keys);
	for (int i = 0; i < tool->phases_count; i++) {
		keys[i] = (from->generations ? from->generations[i] : 0) + (i == raised);
		any = any || keys[i] > 0;
	}
	if (any)
		return keys;
	free(keys);
	return nullptr;
}

static struct model_task *successor_add(struct model *model, struct model_task *from,
					const struct model_retry *retry,
					const struct failure *failure)
{
	const struct model_tool *tool = tool_of(model, from);
	struct task_id id;
	task_id_make(model, retry->random, &id);
	struct model_task *to = task_add(model, &id);
	to->owner = from->owner;
	to->tool = from->tool;
	text_set(&to->effect_id, from->effect_id);
	text_set(&to->arguments, from->arguments);
	text_set(&to->inputs, from->inputs);
	text_set(&to->trace, from->trace);
	memcpy(to->digest, from->digest, sizeof to->digest);
	memcpy(to->fingerprint, from->fingerprint, sizeof to->fingerprint);
	to->asks = from->asks;
	to->key_version = from->key_version;
	to->accepted_ms = to->due_ms = to->updated_ms = model->now_ms;
	to->deadline_ms = model->now_ms + tool->deadline_ms;
	to->result_ttl_ms = from->result_ttl_ms;
	to->has_retry_of = from->has_successor = true;
	to->retry_of = from->id;
	from->successor = id;
	to->generations = copy_generations(tool, from, retry->new_key ? failure->begins : -1);
	to->open = to->held = true;
	to->state = TASK_READY;
	to->phase = failure->begins;
	model->open++;
	task_place(model, to);
	heap_put(model, &model->deadlines, to, to->deadline_ms);
	return to;
}

/* When the phase where it failed was first tried. */
static int64_t first_tried(const struct model_task *task, int phase)
{
	const struct model_step *before =
	    phase > 0 ? step_find(task, step_place_recovery(phase - 1)) : nullptr;
	if (task->tried_ms >= 0)
		return task->tried_ms;
	return before ? before->at_ms : task->accepted_ms;
}

/* What may have been sent goes with it, with the time of its first intent. */
static void successor_sent(struct model *model, const struct model_task *from,
			   struct model_task *to, int64_t first, int64_t sent)
{
	struct uuid token = {};
	for (size_t i = 0; i < sizeof token.bytes; i += sizeof(uint64_t)) {
		uint64_t half = model->config.draw(model->config.ctx, &to->id);
		memcpy(token.bytes + i, &half, sizeof half);
	}
	to->tried_ms = to->first_try_ms = first;
	to->sent_ms = sent;
	int64_t at = -1;
	for (size_t i = 0; i < from->intents_count; i++) {
		const struct model_intent *old = &from->intents[i];
		if (old->phase == to->phase && (at < 0 || old->at_ms < at))
			at = old->at_ms;
	}
	intent_add(to, to->phase, &token, slice_of("before the retry"), at < 0 ? sent : at);
}

static void retried_note(struct model *model, struct model_task *task, int begins, int attempt,
			 const struct model_act *act)
{
	operated_note(model, task, "retried", "", act);
	struct model_event *event = &task->events[task->events_count - 1];
	int last = tool_of(model, task)->phases_count - 1;
	event->phase = begins < last ? begins : last;
	event->attempt = attempt;
}

/* Whether left_standing() of operate.sql is not null. */
static bool undo_begun(const struct model_task *task)
{
	for (size_t i = 0; i < task->events_count; i++) {
		if (strcmp(task->events[i].kind, "undo") == 0)
			return true;
	}
	for (size_t i = 0; i < task->steps_count; i++) {
		if (task->steps[i].kind == STEP_RECOVERY_POINT &&
		    task->steps[i].place >= UNDO_PHASE_FIRST * STEP_PLACES_PER_PHASE)
			return true;
	}
	return false;
}

const char *model_retry(struct model *model, const struct task_id *id,
			const struct model_retry *retry, const struct model_act *act,
			struct task_id *successor)
{
	struct model_task *task = task_find(model, id);
	if (task && task->open)
		return retry_open(model, task, retry, act);
	struct model_effect *effect = task ? effect_find(model, task->digest) : nullptr;
	struct task_view view;
	if (!effect || !task_view(model, task, &view))
		return "missing";
	if (task->state != TASK_FAILED)
		return task_state_name(task->state);
	if (!task_id_equal(&effect->task, id)) {
		*successor = task->has_successor ? task->successor : effect->task;
		return "successor";
	}
	if (undo_begun(task))
		return "undone";
	const struct model_tool *tool = tool_of(model, task);
	const struct model_step *outcome = step_find(task, STEP_PLACE_OUTCOME);
	struct failure failure = failure_of(model, task, outcome, retry->from_phase);
	const char *refused = retry_refused(tool, &failure, retry->new_key);
	if (refused)
		return refused;

	bool waits = failure.begins < tool->phases_count && tool->phases[failure.begins].waits;
	bool checkpoints =
	    (retry->from_phase < 0 || strcmp(effect_of(tool, failure.begins), "pure") != 0) &&
	    !waits;
	struct model_task *to = successor_add(model, task, retry, &failure);
	copy_steps(to, task, failure.begins + checkpoints);
	copy_rest(to, task, failure.begins, checkpoints);
	if (failure.maybe)
		successor_sent(model, task, to, first_tried(task, failure.at), outcome->at_ms);
	effect->task = to->id;
	*successor = to->id;
	retried_note(model, task, failure.begins, outcome->attempt, act);
	return "retried";
}
