/* acts_worker.c - the worker's acts of runtime/store.h, and those of every process. */
#include "runtime/base.h"
#include "test/sim/fake_store.h"
#include "test/sim/seen.h"

constexpr size_t WISHES_MAX = 256;

static void no_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	act->done.simple(act->ctx, code, err);
}

/* --- beat, leave ------------------------------------------------------------------------------ */

static void beat_execute(struct act *act)
{
	struct model *model = store_now();
	struct beat_wish wishes[WISHES_MAX];
	act->alive = model_beat(model, &act->incarnation, act->fresh, act->beats, act->beats_count);
	reaper_learn(&act->incarnation);
	act->wishes_count = model_wishes(model, &act->incarnation, wishes, WISHES_MAX);
	if (act->wishes_count > WISHES_MAX)
		act->wishes_count = WISHES_MAX;
	if (!act->alive)
		act->wishes_count = 0;
	struct slice bytes = { (const char *)wishes, act->wishes_count * sizeof wishes[0] };
	act->wishes = act->wishes_count ? (void *)(uintptr_t)act_answer(act, bytes).data : nullptr;
}

static void beat_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	if (code == HF_OK) {
		act->store->beaten = act->incarnation;
		act->store->has_beaten = true;
	}
	if (code == HF_OK && !act->alive)
		count(TABLE_ACT, ACT_CLAIM_LOST, act->process->kind);
	act->done.beaten(act->ctx, code, act->alive, act->wishes, act->wishes_count, err);
}

void store_beat(struct store *store, const struct uuid *incarnation, int, int,
		const struct beat_task *tasks, size_t count,
		void (*done)(void *ctx, enum hf_code code, bool alive,
			     const struct beat_wish *wishes, size_t wishes_count,
			     const struct hf_err *err),
		void *ctx)
{
	static const struct act_kind kind = { OP_BEAT, LANE_BEAT,    false,
					      false,   beat_execute, beat_tell };
	struct act *act = act_new(store, &kind, ctx);
	act->done.beaten = done;
	act->incarnation = *incarnation;
	act->fresh = !store->has_beaten || !uuid_equal(&store->beaten, incarnation);
	struct slice bytes = { (const char *)tasks, count * sizeof *tasks };
	act->beats = count ? (void *)(uintptr_t)act_keep(act, bytes).data : nullptr;
	act->beats_count = count;
	for (size_t i = 0; i < count; i++)
		act->beats[i].message = act_keep(act, act->beats[i].message);
	act_send(act);
}

static void leave_execute(struct act *act)
{
	model_leave(store_now(), &act->incarnation);
}

void store_leave(struct store *store, const struct uuid *incarnation,
		 void (*done)(void *ctx, enum hf_code code, const struct hf_err *err), void *ctx)
{
	static const struct act_kind kind = { OP_LEAVE, LANE_BEAT,     true,
					      false,    leave_execute, no_tell };
	struct act *act = act_new(store, &kind, ctx);
	act->done.simple = done;
	act->incarnation = *incarnation;
	act_send(act);
}

/* --- claim ------------------------------------------------------------------------------------ */

static void keep_claim(struct act *act, struct claimed_task *task)
{
	struct slice *const slices[] = { &task->issuer,    &task->subject, &task->tenant,
					 &task->effect_id, &task->trace,   &task->arguments,
					 &task->inputs };
	for (size_t i = 0; i < countof(slices); i++)
		*slices[i] = act_answer(act, *slices[i]);
	if (!task->steps_count)
		return;
	struct slice bytes = { (const char *)task->steps,
			       task->steps_count * sizeof task->steps[0] };
	struct claimed_step *steps = (void *)(uintptr_t)act_answer(act, bytes).data;
	for (size_t i = 0; i < task->steps_count; i++) {
		steps[i].name = act_answer(act, steps[i].name);
		steps[i].state = act_answer(act, steps[i].state);
	}
	task->steps = steps;
}

static void claim_execute(struct act *act)
{
	const struct claimed_task *tasks =
	    model_claim(store_now(), &act->incarnation, act->queues, act->queues_count, act->limit,
			&act->call, &act->tasks_count);
	struct slice bytes = { (const char *)tasks, act->tasks_count * sizeof *tasks };
	act->tasks = act->tasks_count ? (void *)(uintptr_t)act_answer(act, bytes).data : nullptr;
	for (size_t i = 0; i < act->tasks_count; i++) {
		keep_claim(act, &act->tasks[i]);
		happened("claimed", effect_number(&act->tasks[i].id), act->tasks[i].phase,
			 act->tasks[i].attempt);
	}
}

static void claim_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	act->done.claimed(act->ctx, code, act->tasks, act->tasks_count, err);
}

void store_claim(struct store *store, const struct uuid *incarnation, const int32_t *queues,
		 size_t queues_count, int limit,
		 void (*done)(void *ctx, enum hf_code code, const struct claimed_task *tasks,
			      size_t count, const struct hf_err *err),
		 void *ctx)
{
	static const struct act_kind kind = { OP_CLAIM, LANE_READ,     false,
					      false,    claim_execute, claim_tell };
	struct act *act = act_new(store, &kind, ctx);
	act->done.claimed = done;
	act->incarnation = *incarnation;
	hf_assert(queues_count <= countof(act->queues));
	memcpy(act->queues, queues, queues_count * sizeof queues[0]);
	act->queues_count = queues_count;
	act->limit = limit;
	/* As claim_call() of runtime/store_worker.c makes it. */
	act->call = uuid_new();
	uint64_t number = ++store->claims;
	for (size_t i = 0; i < 8; i++)
		act->call.bytes[15 - i] = (unsigned char)(number >> (8 * i));
	act_send(act);
}

/* --- step, finish, release, ask, intent ------------------------------------------------------- */

/* Nothing changes by a write that is fenced out (V4). */
struct before {
	const struct model_task *task;
	int64_t updated_ms;
	size_t steps;
	enum task_state state;
};

static struct before look_before(const struct task_id *id)
{
	const struct model_task *task = model_look(world.model, id);
	if (!task)
		return (struct before){};
	return (struct before){ task, task->updated_ms, task->steps_count, task->state };
}

static void look_moved(enum task_state from, const struct model_task *task)
{
	count(TABLE_STATE, from, task->state);
	if ((uint64_t)task->attempt > tally->most_attempts)
		tally->most_attempts = (uint64_t)task->attempt;
	if ((uint64_t)task->crashes > tally->most_crashes)
		tally->most_crashes = (uint64_t)task->crashes;
}

static void look_after(const struct act *act, const struct before *before)
{
	const struct model_task *task = before->task;
	bool moved = task && task->state != before->state;
	if (moved && act->fence == FENCE_HELD)
		look_moved(before->state, task);
	if (act->copy)
		return;
	count(TABLE_FENCE, act->kind->op, act->fence);
	if (act->fence != FENCE_LOST || !task)
		return;
	if (moved || task->updated_ms != before->updated_ms || task->steps_count != before->steps)
		broken(effect_number(&act->id), "a write that was fenced out changed the task");
}

static void step_execute(struct act *act)
{
	struct before before = look_before(&act->id);
	act->fence = model_step(store_now(), &act->step, &act->wish, &act->adopted);
	act->adopted = act_answer(act, act->adopted);
	look_after(act, &before);
	happened("stepped", effect_number(&act->id), act->step.place, act->fence);
}

static void step_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	act->done.stepped(act->ctx, code, code == HF_OK ? act->fence : FENCE_LOST, act->wish,
			  act->adopted, err);
}

static void keep_step(struct act *act, const struct step_write *step)
{
	act->step = *step;
	act->step.name = act_keep(act, step->name);
	act->step.state = act_keep(act, step->state);
	act->step.derived_key = act_keep(act, step->derived_key);
	act->step.answer = act_keep(act, step->answer);
}

void store_step(struct store *store, const struct step_write *step,
		void (*done)(void *ctx, enum hf_code code, enum fence fence, enum wish wish,
			     struct slice adopted_state, const struct hf_err *err),
		void *ctx)
{
	static const struct act_kind point = { OP_STEP, LANE_WRITE,   false,
					       true,    step_execute, step_tell };
	static const struct act_kind check = { OP_CHECKPOINT, LANE_WRITE,   false,
					       true,          step_execute, step_tell };
	bool is_point = step->kind == STEP_RECOVERY_POINT;
	struct act *act = act_new(store, is_point ? &point : &check, ctx);
	act->done.stepped = done;
	act->id = step->id;
	keep_step(act, step);
	if (is_point)
		seen_write(ctx);
	act_send(act);
}

/* Of a run, which moves by it. */
static struct act *
fenced_act(struct store *store, const struct act_kind *kind, const struct task_id *id,
	   void (*done)(void *ctx, enum hf_code code, enum fence fence, const struct hf_err *err),
	   void *ctx)
{
	struct act *act = act_new(store, kind, ctx);
	act->done.fenced = done;
	act->id = *id;
	seen_write(ctx);
	return act;
}

static void fenced_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	if (code == HF_OK && act->fence == FENCE_HELD) {
		if (act->kind->op == OP_FINISH)
			store_wake_all(WAKE_ENDED);
		if ((act->kind->op == OP_RELEASE && act->release.how == RELEASE_BACK) || act->ready)
			store_wake_all(WAKE_WORK);
	}
	act->done.fenced(act->ctx, code, code == HF_OK ? act->fence : FENCE_LOST, err);
}

static void finish_execute(struct act *act)
{
	struct before before = look_before(&act->id);
	act->outcome.last = act->has_step ? &act->step : nullptr;
	act->fence = model_finish(store_now(), &act->outcome);
	look_after(act, &before);
	happened("finished", effect_number(&act->id), act->outcome.state, act->fence);
}

void store_finish(struct store *store, const struct outcome_write *outcome,
		  void (*done)(void *ctx, enum hf_code code, enum fence fence,
			       const struct hf_err *err),
		  void *ctx)
{
	static const struct act_kind kind = { OP_FINISH, LANE_WRITE,     false,
					      true,      finish_execute, fenced_tell };
	struct act *act = fenced_act(store, &kind, &outcome->id, done, ctx);
	act->outcome = *outcome;
	act->outcome.result = act_keep(act, outcome->result);
	act->outcome.error = act_keep(act, outcome->error);
	act->outcome.message = act_keep(act, outcome->message);
	act->has_step = outcome->last != nullptr;
	if (act->has_step)
		keep_step(act, outcome->last);
	act_send(act);
}

/* No attempt follows one that was the last (V10). */
static void check_attempts(const struct act *act)
{
	const struct model_task *task = model_look(world.model, &act->id);
	const struct effect *effect = effect_of(task->effect_id);
	if (act->release.how != RELEASE_RETRY || task->phase >= UNDO_PHASE_FIRST)
		return;
	if (task->attempt >= effect->tool->phases[task->phase].attempts)
		broken(effect->number, "is to be tried once more after attempt %d (V10)",
		       task->attempt);
}

static void release_execute(struct act *act)
{
	struct before before = look_before(&act->id);
	act->fence = model_release(store_now(), &act->release);
	look_after(act, &before);
	if (act->fence == FENCE_HELD) {
		check_attempts(act);
		count(TABLE_RELEASE, act->release.how, before.task->state);
	}
	happened("released", effect_number(&act->id), act->release.how, act->fence);
}

void store_release(struct store *store, const struct release_write *release,
		   void (*done)(void *ctx, enum hf_code code, enum fence fence,
				const struct hf_err *err),
		   void *ctx)
{
	static const struct act_kind kind = { OP_RELEASE, LANE_WRITE,      false,
					      true,       release_execute, fenced_tell };
	struct act *act = fenced_act(store, &kind, &release->id, done, ctx);
	act->release = *release;
	act->release.reason = act_keep(act, release->reason);
	act_send(act);
}

static void ask_execute(struct act *act)
{
	struct before before = look_before(&act->id);
	act->fence = model_ask(store_now(), &act->ask, &act->ready);
	look_after(act, &before);
	if (act->fence == FENCE_HELD)
		count(TABLE_RELEASE, RELEASE_ASK, before.task->state);
	happened("asked", effect_number(&act->id), act->ask.phase, act->fence);
}

void store_ask(struct store *store, const struct ask_write *ask,
	       void (*done)(void *ctx, enum hf_code code, enum fence fence,
			    const struct hf_err *err),
	       void *ctx)
{
	static const struct act_kind kind = { OP_ASK, LANE_WRITE,  false,
					      true,   ask_execute, fenced_tell };
	struct act *act = fenced_act(store, &kind, &ask->id, done, ctx);
	act->ask = *ask;
	act->ask.questions = act_keep(act, ask->questions);
	act->ask.reason = act_keep(act, ask->reason);
	act_send(act);
}

static void intent_execute(struct act *act)
{
	struct before before = look_before(&act->id);
	act->fence = model_intent(store_now(), &act->id, &act->token, act->phase, act->text);
	look_after(act, &before);
	happened("intended", effect_number(&act->id), act->phase, act->fence);
}

void store_intent(struct store *store, const struct task_id *id, const struct uuid *token,
		  int phase, struct slice name,
		  void (*done)(void *ctx, enum hf_code code, enum fence fence,
			       const struct hf_err *err),
		  void *ctx)
{
	static const struct act_kind kind = { OP_INTENT, LANE_WRITE,     false,
					      true,      intent_execute, fenced_tell };
	struct act *act = fenced_act(store, &kind, id, done, ctx);
	act->token = *token;
	act->phase = phase;
	act->text = act_keep(act, name);
	act_send(act);
}

/* --- artifacts -------------------------------------------------------------------------------- */

static void put_execute(struct act *act)
{
	struct store_artifact artifact = { act->type, act->content, (int64_t)act->content.len };
	act->fence = model_artifact_put(store_now(), &act->id, &act->token, act->phase, &artifact,
					act->text);
	if (!act->copy)
		count(TABLE_FENCE, OP_ARTIFACT, act->fence);
}

void store_artifact_put(struct store *store, const struct task_id *id, const struct uuid *token,
			int phase, struct slice name, struct slice media_type, struct slice content,
			void (*done)(void *ctx, enum hf_code code, enum fence fence,
				     const struct hf_err *err),
			void *ctx)
{
	static const struct act_kind kind = { OP_ARTIFACT, LANE_WRITE,  false,
					      true,        put_execute, fenced_tell };
	struct act *act = act_new(store, &kind, ctx);
	act->done.fenced = done;
	act->id = *id;
	act->token = *token;
	act->phase = phase;
	act->text = act_keep(act, name);
	act->type = act_keep(act, media_type);
	act->content = act_keep(act, content);
	act_send(act);
}

static void get_execute(struct act *act)
{
	act->found =
	    model_artifact_get(store_now(), &act->id, act->phase, act->text, &act->artifact);
	act->artifact.media_type = act_answer(act, act->artifact.media_type);
	act->artifact.content = act_answer(act, act->artifact.content);
}

static void get_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	struct hf_err missing = {};
	if (code == HF_OK && !act->found) {
		code = hf_fail(&missing, HF_MISSING, "no such artifact");
		err = &missing;
	}
	act->done.got(act->ctx, code, act->artifact.media_type, act->artifact.content, err);
}

void store_artifact_get(struct store *store, const struct task_id *id, int phase, struct slice name,
			void (*done)(void *ctx, enum hf_code code, struct slice media_type,
				     struct slice content, const struct hf_err *err),
			void *ctx)
{
	static const struct act_kind kind = { OP_ARTIFACT, LANE_READ,   false,
					      false,       get_execute, get_tell };
	struct act *act = act_new(store, &kind, ctx);
	act->done.got = done;
	act->id = *id;
	act->phase = phase;
	act->text = act_keep(act, name);
	act_send(act);
}
