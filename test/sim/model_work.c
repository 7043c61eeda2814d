/* model_work.c - the worker's side: work.sql and the intents of unknown.sql. Every write names its
 * claim; under another token it changes nothing. */
#include <stdlib.h>

#include "test/sim/model_inner.h"

constexpr size_t LATER_MAX = 64;   /* tasks of each kind that one claim makes ready */
constexpr int CLAIM_ROUNDS = 8;    /* of a queue, past tasks of paused tenants */
constexpr size_t MARK_BYTES = 8;   /* of a call, that its tokens begin with */
constexpr size_t QUEUES_MAX = 256; /* of one claim */
constexpr size_t CLAIM_BYTES_MAX = 1 << 30;

/* --- beat ------------------------------------------------------------------------------------- */

bool model_beat(struct model *model, const struct uuid *incarnation, bool fresh,
		const struct beat_task *tasks, size_t count)
{
	struct incarnation *row = incarnation_find(model, incarnation);
	if (row)
		row->beat++;
	else if (fresh)
		incarnation_add(model, incarnation);
	else
		return false;
	for (size_t i = 0; i < count; i++) {
		struct model_task *task = task_fence(model, &tasks[i].id, &tasks[i].token);
		if (!task)
			continue;
		task->progress = tasks[i].progress < 0 ? -1 : (double)(float)tasks[i].progress;
		text_drop(&task->message);
		task->message = text_keep(tasks[i].message);
		task->updated_ms = model->now_ms;
	}
	return true;
}

size_t model_wishes(struct model *model, const struct uuid *incarnation, struct beat_wish *wishes,
		    size_t most)
{
	size_t count = 0;
	for (const struct model_task *task = model->running; task; task = task->running_next) {
		enum wish wish = wish_of(task);
		if (wish == WISH_NONE || !uuid_equal(&task->incarnation, incarnation))
			continue;
		if (count++ < most)
			wishes[count - 1] = (struct beat_wish){ task->id, task->token, wish };
	}
	return count;
}

void model_leave(struct model *model, const struct uuid *incarnation)
{
	struct incarnation *row = incarnation_find(model, incarnation);
	if (row)
		incarnation_delete(model, row);
}

int64_t model_beats(const struct model *model, const struct uuid *incarnation)
{
	const struct incarnation *row = incarnation_find(model, incarnation);
	return row ? row->beat : 0;
}

/* --- claim ------------------------------------------------------------------------------------ */

static void make_ready(struct model *model, enum task_state later)
{
	struct heap *heap = &model->later[later];
	for (size_t i = 0; i < LATER_MAX; i++) {
		struct model_task *task = heap_first(heap);
		if (!task || task->due_ms > model->now_ms)
			return;
		task->state = TASK_READY;
		task_place(model, task);
		if (later == TASK_WAITING)
			close_silent(model, task);
	}
}

/* A call whose number was seen gets nothing new. */
static bool call_is_new(struct incarnation *row, const struct uuid *call)
{
	uint64_t bits = 0;
	for (size_t i = MARK_BYTES; i < sizeof call->bytes; i++)
		bits = bits << 8 | call->bytes[i];
	int64_t number = (int64_t)bits;
	if (number < 0)
		return true;
	if (row->has_call && row->call >= number)
		return false;
	row->has_call = true;
	row->call = number;
	return true;
}

/* The first of a queue that is due; nullptr: none. */
static struct model_task *first_due(const struct model *model, const struct heap *queue)
{
	struct model_task *first = heap_first(queue);
	if (!first || first->due_ms > model->now_ms || !model->config.among_equals)
		return first && first->due_ms <= model->now_ms ? first : nullptr;
	for (size_t i = 0; i < queue->count; i++) {
		struct model_task *other = queue->items[i];
		if (other->due_ms == first->due_ms &&
		    model->config.among_equals(model->config.ctx, other, first) < 0)
			first = other;
	}
	return first;
}

static void claim_one(struct model *model, struct model_task *task, const struct uuid *incarnation,
		      const struct uuid *call)
{
	struct uuid token = *call;
	uint64_t half = model->config.draw(model->config.ctx, &task->id);
	memcpy(token.bytes + MARK_BYTES, &half, sizeof half);
	task_claim(model, task, &token, incarnation);
	task->state = TASK_RUNNING;
	task->attempt++;
	if (task->first_try_ms < 0)
		task->first_try_ms = model->now_ms;
	task->progress = -1;
	text_drop(&task->message);
	task->updated_ms = model->now_ms;
	task_place(model, task);
}

/* Claims up to `most` of a queue; returns how many. Each round takes what is missing, and tasks of
 * paused tenants in it make for another. */
static int claim_queue(struct model *model, struct heap *queue, int most,
		       const struct uuid *incarnation, const struct uuid *call)
{
	int taken = 0;
	for (int round = 0; round < CLAIM_ROUNDS && taken < most; round++) {
		int aside = 0;
		for (int wanted = most - taken; wanted > 0; wanted--) {
			struct model_task *task = first_due(model, queue);
			if (!task)
				break;
			if (set_aside(model, task)) {
				aside++;
				continue;
			}
			claim_one(model, task, incarnation, call);
			taken++;
		}
		if (!aside)
			break;
	}
	return taken;
}

static struct slice given_text(struct model *model, struct slice text)
{
	return text.data ? (struct slice){ arena_copy(model->given, text), text.len } : text;
}

static int step_order(const void *a, const void *b)
{
	const struct claimed_step *left = a, *right = b;
	if (left->place != right->place)
		return left->place < right->place ? -1 : 1;
	if (left->kind != right->kind)
		return left->kind < right->kind ? -1 : 1;
	return slice_compare(left->name, right->name);
}

/* inbox_entry() of input.sql. */
static struct slice inbox_entry(struct model *model, const struct model_task *task,
				const struct model_question *question)
{
	static const char *const hows[] = { "null", "\"answer\"", "\"silence\"" };
	bool at_hand = question->phase == task->phase;
	struct slice null = slice_of("null");
	struct slice request = at_hand && question->request.data ? question->request : null;
	struct slice answer =
	    (at_hand || question->phase < 0) && question->answer.data ? question->answer : null;
	char *text =
	    arena_format(model->given, "{\"phase\":%d,\"how\":%s,\"request\":%.*s,\"answer\":%.*s}",
			 question->phase, hows[question->how], (int)request.len, request.data,
			 (int)answer.len, answer.data);
	return slice_of(text);
}

static void given_steps(struct model *model, const struct model_task *task,
			struct claimed_task *given)
{
	const struct model_tool *tool = tool_of(model, task);
	size_t room = task->steps_count + task->intents_count + task->questions_count +
		      (size_t)tool->phases_count;
	struct claimed_step *steps = arena_alloc(model->given, room * sizeof *steps);
	size_t count = 0;
	for (size_t i = 0; i < task->steps_count; i++) {
		const struct model_step *at = &task->steps[i];
		steps[count++] =
		    (struct claimed_step){ at->kind, at->place, given_text(model, at->name),
					   given_text(model, at->state) };
	}
	for (size_t i = 0; i < task->intents_count; i++) {
		const struct model_intent *at = &task->intents[i];
		if (at->phase == task->phase)
			steps[count++] =
			    (struct claimed_step){ .kind = STEP_INTENT,
						   .place = step_place_recovery(at->phase) - 1,
						   .name = given_text(model, at->name) };
	}
	for (int i = 0; task->generations && i < tool->phases_count; i++) {
		if (task->generations[i] > 0)
			steps[count++] = (struct claimed_step){
				.kind = STEP_GENERATION,
				.place = i * STEP_PLACES_PER_PHASE,
				.name =
				    slice_of(arena_format(model->given, "%d", task->generations[i]))
			};
	}
	for (size_t i = 0; i < task->questions_count; i++)
		steps[count++] =
		    (struct claimed_step){ .kind = STEP_INBOX,
					   .name = given_text(model, task->questions[i].key),
					   .state = inbox_entry(model, task, &task->questions[i]) };
	if (count > task->steps_count)
		qsort(steps, count, sizeof *steps, step_order);
	given->steps = steps;
	given->steps_count = count;
}

static void give(struct model *model, const struct model_task *task, struct claimed_task *given)
{
	const struct owner *owner = &model->owners[task->owner - 1];
	*given = (struct claimed_task){
		.id = task->id,
		.token = task->token,
		.tool = task->tool,
		.phase = task->phase,
		.attempt = task->attempt,
		.crashes = task->crashes,
		.cancel = task->cancel,
		.now_ms = model->now_ms,
		.deadline_ms = task->deadline_ms,
		.first_try_ms = task->first_try_ms,
		.sent_ms = task->sent_ms < 0 ? 0 : task->sent_ms,
		.owner = task->owner,
		.issuer = given_text(model, owner->issuer),
		.subject = given_text(model, owner->subject),
		.tenant = given_text(model, owner->tenant),
		.effect_id = given_text(model, task->effect_id),
		.trace = given_text(model, task->trace),
		.arguments = given_text(model, task->arguments),
		.inputs = given_text(model, task->inputs),
		.asks = task->asks,
		.key_version = task->key_version,
		.cluster = model->config.cluster,
	};
	given_steps(model, task, given);
}

static bool is_held_by(const struct model_task *task, const struct uuid *incarnation,
		       const struct uuid *call)
{
	return uuid_equal(&task->incarnation, incarnation) &&
	       memcmp(task->token.bytes, call->bytes, MARK_BYTES) == 0;
}

static size_t held_count(const struct model *model, const struct uuid *incarnation,
			 const struct uuid *call)
{
	size_t count = 0;
	for (const struct model_task *task = model->running; task; task = task->running_next)
		count += is_held_by(task, incarnation, call);
	return count;
}

/* What this call holds: those that it claimed now are the first of the list of the running. */
static const struct claimed_task *given_tasks(struct model *model, const struct uuid *incarnation,
					      const struct uuid *call, size_t *count)
{
	size_t at = *count = held_count(model, incarnation, call);
	if (at == 0)
		return nullptr;
	model->given = arena_new(CLAIM_BYTES_MAX);
	struct claimed_task *tasks = arena_alloc(model->given, at * sizeof *tasks);
	for (const struct model_task *task = model->running; task; task = task->running_next) {
		if (is_held_by(task, incarnation, call))
			give(model, task, &tasks[--at]);
	}
	return tasks;
}

/* Equal shares of `most`, in the order of the queues, then what is left of it to those that gave
 * all of theirs. Returns how many are claimed. */
static int claim_shares(struct model *model, int32_t *turn, size_t turn_count, int most,
			const struct uuid *incarnation, const struct uuid *call)
{
	int taken = 0;
	while (turn_count > 0 && taken < most) {
		size_t again = 0;
		for (size_t i = 0; i < turn_count; i++) {
			int waiting = (int)(turn_count - i);
			int share = (most - taken + waiting - 1) / waiting;
			if (share == 0)
				break;
			int32_t queue = turn[i];
			if ((size_t)queue >= model->tools_room || !model->tools[queue])
				continue;
			int got =
			    claim_queue(model, &model->queues[queue], share, incarnation, call);
			taken += got;
			if (got == share)
				turn[again++] = queue;
		}
		turn_count = again;
	}
	return taken;
}

const struct claimed_task *model_claim(struct model *model, const struct uuid *incarnation,
				       const int32_t *queues, size_t queues_count, int most,
				       const struct uuid *call, size_t *count)
{
	*count = 0;
	model->given = arena_free(model->given);
	make_ready(model, TASK_SCHEDULED);
	make_ready(model, TASK_UNVERIFIED);
	make_ready(model, TASK_WAITING);
	struct incarnation *row = incarnation_find(model, incarnation);
	if (!row)
		return nullptr;
	bool is_new = call_is_new(row, call);
	if (is_new && held_count(model, incarnation, call) == 0) {
		int32_t turn[QUEUES_MAX];
		size_t turn_count = 0;
		hf_assert(queues_count <= QUEUES_MAX);
		for (size_t i = 0; i < queues_count; i++) {
			bool known =
			    (size_t)queues[i] < model->tools_room && model->tools[queues[i]];
			if (!known ||
			    !is_paused(model, false, slice_of(model->tools[queues[i]]->name)))
				turn[turn_count++] = queues[i];
		}
		if (!claim_shares(model, turn, turn_count, most, incarnation, call))
			return nullptr;
	}
	return given_tasks(model, incarnation, call, count);
}

struct arena *model_claim_take(struct model *model)
{
	struct arena *given = model->given;
	model->given = nullptr;
	return given;
}

/* --- step ------------------------------------------------------------------------------------- */

int next_undo(const struct model *model, const struct model_task *task, int after)
{
	const struct model_tool *tool = tool_of(model, task);
	int next = UNDO_PHASE_END;
	for (size_t i = 0; i < tool->undos_count; i++) {
		int undo = undo_phase(tool->undos[i]);
		if (undo > after && undo < next &&
		    step_find(task, step_place_recovery(tool->undos[i])))
			next = undo;
	}
	return next;
}

int generation_of(const struct model *model, const struct model_task *task, int32_t place)
{
	int phase = place / STEP_PLACES_PER_PHASE;
	return task->generations && phase < tool_of(model, task)->phases_count
		   ? task->generations[phase]
		   : 0;
}

/* Who committed a place first keeps it. */
static void write_step(struct model *model, struct model_task *task, const struct step_write *write,
		       enum step_kind kind, int attempt)
{
	struct model_step *step = step_add(task, write->place);
	if (!step)
		return;
	step->kind = kind;
	step->attempt = attempt;
	step->generation = generation_of(model, task, write->place);
	step->name = text_keep_empty(write->name);
	step->state = text_keep_empty(write->state);
	step->derived_key = text_keep(write->derived_key);
	step->answer = text_keep(write->answer);
	step->has_token = true;
	step->token = task->token;
	step->started_ms = model->now_ms - write->took_ms;
	step->at_ms = model->now_ms;
}

enum fence model_step(struct model *model, const struct step_write *write, enum wish *wish,
		      struct slice *adopted)
{
	struct model_task *task = task_fence(model, &write->id, &write->token);
	if (task)
		write_step(model, task, write, write->kind, write->attempt);
	if (task && write->kind == STEP_RECOVERY_POINT && task->phase == write->phase) {
		task->attempt = 1;
		task->phase = task->phase < UNDO_PHASE_FIRST ? task->phase + 1
							     : next_undo(model, task, task->phase);
		task->first_try_ms = task->updated_ms = model->now_ms;
		task->sent_ms = -1;
		task->progress = -1;
		text_drop(&task->message);
	}
	*wish = task ? wish_of(task) : WISH_NONE;
	const struct model_task *any = task_find(model, &write->id);
	const struct model_step *stands = any ? step_find(any, write->place) : nullptr;
	bool ours = stands && stands->has_token && uuid_equal(&stands->token, &write->token);
	*adopted = stands && !ours ? stands->state : (struct slice){};
	if (!task)
		return FENCE_LOST;
	return ours ? FENCE_HELD : FENCE_ADOPTED;
}

enum model_sql model_sql_check(struct model *model, const struct task_id *id,
			       const struct uuid *token, int32_t place, enum wish *wish,
			       struct slice *state)
{
	const struct model_task *any = task_find(model, id);
	const struct model_task *task = task_fence(model, id, token);
	const struct model_step *stands = any ? step_find(any, place) : nullptr;
	*wish = task ? wish_of(task) : WISH_NONE;
	*state = stands ? stands->state : (struct slice){};
	if (stands && stands->has_token && uuid_equal(&stands->token, token))
		return MODEL_SQL_DONE;
	if (!task)
		return MODEL_SQL_LOST;
	return stands ? MODEL_SQL_ADOPTED : MODEL_SQL_HELD;
}

enum model_sql model_sql_fence(struct model *model, const struct step_write *step, enum wish *wish)
{
	const struct model_task *any = task_find(model, &step->id);
	if (any && step_find(any, step->place))
		return MODEL_SQL_ADOPTED;
	struct slice adopted;
	return model_step(model, step, wish, &adopted) == FENCE_LOST ? MODEL_SQL_LOST
								     : MODEL_SQL_HELD;
}

/* --- finish, release -------------------------------------------------------------------------- */

/* What hung in the air when the undo steps began: "; … may have taken effect" at the end of the
 * last event of that kind. */
static struct slice undo_hangs(const struct model_task *task)
{
	static const char tail[] = " may have taken effect";
	constexpr size_t TAIL = sizeof tail - 1;
	for (size_t i = task->events_count; i-- > 0;) {
		struct slice text = task->events[i].text;
		if (strcmp(task->events[i].kind, "undo") != 0)
			continue;
		if (text.len < TAIL || memcmp(text.data + text.len - TAIL, tail, TAIL) != 0)
			return (struct slice){};
		size_t at = text.len - TAIL;
		while (at > 0 && text.data[at - 1] != ';')
			at--;
		/* "; " and one character at least */
		if (at == 0 || at + 2 > text.len - TAIL || text.data[at] != ' ')
			return (struct slice){};
		return (struct slice){ text.data + at - 1, text.len - at + 1 };
	}
	return (struct slice){};
}

enum fence model_finish(struct model *model, const struct outcome_write *write)
{
	struct model_task *task = task_fence(model, &write->id, &write->token);
	if (!task) {
		const struct model_task *any = task_find(model, &write->id);
		const struct model_step *outcome =
		    any ? step_find(any, STEP_PLACE_OUTCOME) : nullptr;
		return outcome && outcome->has_token && uuid_equal(&outcome->token, &write->token)
			   ? FENCE_HELD
			   : FENCE_LOST;
	}
	if (write->last)
		write_step(model, task, write->last, STEP_RECOVERY_POINT, write->attempt);
	struct slice hangs = write->state == TASK_COMPLETED ? (struct slice){} : undo_hangs(task);
	struct slice message = {};
	if (write->message.len)
		message = text_format("%.*s%.*s", (int)write->message.len, write->message.data,
				      (int)hangs.len, hangs.data ? hangs.data : "");
	struct slice error = write->error.len ? write->error : (struct slice){};
	end_task(model, task, write->state, error, message, write->attempt);
	struct model_step *outcome = step_find(task, STEP_PLACE_OUTCOME);
	outcome->result = text_keep(write->result);
	outcome->has_token = true;
	outcome->token = write->token;
	text_drop(&message);
	return FENCE_HELD;
}

bool becomes_paused(const struct model_task *task)
{
	return task->park && task->pause && !task->cancel && task->phase < UNDO_PHASE_FIRST;
}

static enum task_state released_state(const struct model_task *task,
				      const struct release_write *write)
{
	if (write->how == RELEASE_UNKNOWN)
		return TASK_UNKNOWN;
	if (task->cancel && task->phase < UNDO_PHASE_FIRST)
		return TASK_READY;
	if (task->park && task->phase < UNDO_PHASE_FIRST)
		return task->pause ? TASK_PAUSED : TASK_PARKED;
	if (write->how == RELEASE_UNVERIFIED)
		return TASK_UNVERIFIED;
	return write->delay_ms > 0 ? TASK_SCHEDULED : TASK_READY;
}

static int64_t released_due(const struct model *model, const struct model_task *task,
			    const struct release_write *write)
{
	if (task->phase < UNDO_PHASE_FIRST && task->cancel)
		return model->now_ms;
	if (task->phase < UNDO_PHASE_FIRST && task->park)
		return model->now_ms + tool_of(model, task)->park_ttl_ms;
	return model->now_ms + write->delay_ms;
}

/* Phase, attempt, crashes, and what says when it may have been sent. */
static void released_place(struct model *model, struct model_task *task,
			   const struct release_write *write)
{
	bool first_unsent = write->how == RELEASE_BACK && !write->maybe_sent &&
			    task->attempt == 1 && task->crashes == 0 && task->sent_ms < 0;
	if (write->how == RELEASE_UNDO) {
		task->phase = next_undo(model, task, UNDO_PHASE_MAX);
		task->attempt = task->crashes = 0;
		task->sent_ms = task->first_try_ms = -1;
		return;
	}
	if (write->how != RELEASE_RETRY && write->how != RELEASE_UNKNOWN)
		task->attempt--;
	if (write->how == RELEASE_CRASH)
		task->crashes++;
	if (write->maybe_sent)
		task->sent_ms = model->now_ms;
	if (first_unsent)
		task->first_try_ms = -1;
}

enum fence model_release(struct model *model, const struct release_write *write)
{
	static const char *const noted[RELEASE_ASK + 1] = {
		[RELEASE_RETRY] = "retry",
		[RELEASE_CRASH] = "crash",
		[RELEASE_UNKNOWN] = "unknown",
		[RELEASE_UNDO] = "undo",
	};
	struct model_task *task = task_fence(model, &write->id, &write->token);
	if (!task)
		return FENCE_LOST;
	struct slice reason = write->reason.len ? write->reason : (struct slice){};
	if (noted[write->how])
		event_add(model, task, noted[write->how], reason);
	if (!write->maybe_sent && write->how != RELEASE_UNKNOWN)
		intents_drop(task, task->phase, &write->token);
	bool paused = becomes_paused(task), unknown = write->how == RELEASE_UNKNOWN;
	task->due_ms = released_due(model, task, write);
	task->state = released_state(task, write);
	task_unclaim(model, task);
	task->progress = -1;
	task->updated_ms = model->now_ms;
	text_set(&task->message, paused && !unknown ? (struct slice){} : reason);
	task->pause = paused ? task->pause : nullptr;
	task->park = false;
	released_place(model, task, write);
	task_place(model, task);
	return FENCE_HELD;
}

/* --- intents, artifacts ----------------------------------------------------------------------- */

enum fence model_intent(struct model *model, const struct task_id *id, const struct uuid *token,
			int phase, struct slice name)
{
	struct model_task *task = task_fence(model, id, token);
	if (!task || task->phase != phase)
		return FENCE_LOST;
	intent_add(task, phase, token, name, model->now_ms);
	return FENCE_HELD;
}

enum fence model_artifact_put(struct model *model, const struct task_id *id,
			      const struct uuid *token, int phase,
			      const struct store_artifact *artifact, struct slice name)
{
	struct model_task *task = task_fence(model, id, token);
	if (!task || task->phase != phase)
		return FENCE_LOST;
	struct model_artifact *row = artifact_find(task, phase, name);
	if (!row)
		row = artifact_add(task, phase, name);
	text_drop(&row->media_type);
	text_drop(&row->content);
	row->media_type = text_keep_empty(artifact->media_type);
	row->content = text_keep_empty(artifact->content);
	row->at_ms = model->now_ms;
	return FENCE_HELD;
}

bool model_artifact_get(struct model *model, const struct task_id *id, int phase, struct slice name,
			struct store_artifact *artifact)
{
	const struct model_task *task = task_find(model, id);
	for (size_t i = task ? task->artifacts_count : 0; i-- > 0;) {
		const struct model_artifact *row = &task->artifacts[i];
		if (row->phase > phase || !slice_equal(row->name, name))
			continue;
		*artifact = (struct store_artifact){ row->media_type, row->content,
						     (int64_t)row->content.len };
		return true;
	}
	return false;
}
