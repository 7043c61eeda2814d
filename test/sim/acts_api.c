/* acts_api.c - the API's acts of runtime/store.h, as runtime/store_api.c has them. */
#include "runtime/base.h"
#include "runtime/random.h"
#include "test/sim/fake_store.h"

static void keep_view(struct act *act)
{
	struct slice *const slices[] = { &act->view.message, &act->view.result, &act->view.error,
					 &act->view.effect_id, &act->view.requests };
	for (size_t i = 0; i < countof(slices); i++)
		*slices[i] = act_answer(act, *slices[i]);
}

/* --- accept ----------------------------------------------------------------------------------- */

/* What the store says, at the moment that it says it. */
static void check_still_over(const struct effect *effect, const struct task_view *view)
{
	if (effect && effect->ended && !task_state_is_terminal(view->state))
		broken(effect->number, "was over, and is %s (V6)", task_state_name(view->state));
}

static bool is_parked(const struct task_id *id)
{
	const struct model_task *task = model_look(world.model, id);
	return task && task->state == TASK_PARKED;
}

static void accept_execute(struct act *act)
{
	struct effect *effect = &effects[act->effect];
	bool parked = effect->accepted && is_parked(&effect->task);
	act->view = (struct task_view){};
	act->accepted = model_accept(store_now(), &act->accept, act->random, &act->view);
	keep_view(act);
	count_more(TABLE_PLAIN, PLAIN_TAKEN_UP, 0, parked && act->view.state == TASK_READY);
	if (act->accepted == ACCEPT_SAME)
		check_still_over(effect, &act->view);
	if (act->accepted == ACCEPT_SAME || act->accepted == ACCEPT_NEW)
		told_task(effect, &act->view.id);
	happened("accepted", act->effect, act->accepted, act->accept.number);
}

static void accept_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	enum accept_outcome outcome = act->accepted;
	/* Under our own random bytes: our commit's answer was lost, it is still the first. */
	if (outcome == ACCEPT_SAME && memcmp(act->view.id.bytes + 8, act->random, 16) == 0)
		outcome = ACCEPT_NEW;
	bool seen = code == HF_OK && (outcome == ACCEPT_NEW || outcome == ACCEPT_SAME);
	act->view.effect_id = act->accept.effect_id;
	if (seen && outcome == ACCEPT_NEW)
		store_wake_all(WAKE_WORK);
	act->done.accept_done(act->ctx, code, code == HF_OK ? outcome : ACCEPT_NEW,
			      seen ? &act->view : nullptr, err);
}

void store_accept(struct store *store, const struct accept_call *call,
		  void (*done)(void *ctx, enum hf_code code, enum accept_outcome outcome,
			       const struct task_view *view, const struct hf_err *err),
		  void *ctx)
{
	static const struct act_kind kind = { OP_ACCEPT, LANE_WRITE,     true,
					      false,     accept_execute, accept_tell };
	struct act *act = act_new(store, &kind, ctx);
	act->done.accept_done = done;
	act->accept = *call;
	struct slice *const slices[] = { &act->accept.tool_name, &act->accept.effect_id,
					 &act->accept.arguments, &act->accept.inputs,
					 &act->accept.trace };
	for (size_t i = 0; i < countof(slices); i++)
		*slices[i] = act_keep(act, *slices[i]);
	random_bytes(act->random, sizeof act->random);
	act->effect = effect_of(call->effect_id)->number;
	act_send(act);
}

/* --- poll, cancel ----------------------------------------------------------------------------- */

static void poll_execute(struct act *act)
{
	act->view = (struct task_view){};
	act->found = model_poll(store_now(), act->owner, &act->id, false, &act->view);
	if (act->found && act->view.state == TASK_WAITING) {
		act->found = model_poll(store_now(), act->owner, &act->id, true, &act->view);
		if (act->view.requests.len == 0 && act->view.state == TASK_WAITING)
			act->view.state = TASK_READY;
	}
	keep_view(act);
	if (act->found)
		check_still_over(effect_of(act->view.effect_id), &act->view);
}

static void poll_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	struct hf_err missing = {};
	if (code == HF_OK && !act->found) {
		code = hf_fail(&missing, HF_MISSING, "no such task");
		err = &missing;
	}
	act->done.polled(act->ctx, code, code == HF_OK ? &act->view : nullptr, err);
}

static struct act *task_act(struct store *store, const struct act_kind *kind, int64_t owner,
			    const struct task_id *id, void *ctx)
{
	struct act *act = act_new(store, kind, ctx);
	act->owner = owner;
	act->id = *id;
	return act;
}

void store_poll(struct store *store, int64_t owner, const struct task_id *id,
		void (*done)(void *ctx, enum hf_code code, const struct task_view *view,
			     const struct hf_err *err),
		void *ctx)
{
	static const struct act_kind kind = { OP_POLL, LANE_READ,    true,
					      false,   poll_execute, poll_tell };
	struct act *act = task_act(store, &kind, owner, id, ctx);
	act->done.polled = done;
	act_send(act);
}

static void cancel_execute(struct act *act)
{
	struct model_cancelled cancelled = model_cancel(store_now(), act->owner, &act->id);
	act->found = cancelled.found;
	act->flagged = cancelled.flagged;
	happened("cancel", effect_number(&act->id), act->found, act->flagged);
}

static void cancel_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	if (code == HF_OK && act->flagged)
		store_wake_all(WAKE_WISH);
	if (code == HF_OK && !act->found)
		code = HF_MISSING;
	act->done.simple(act->ctx, code, err);
}

void store_cancel(struct store *store, int64_t owner, const struct task_id *id,
		  void (*done)(void *ctx, enum hf_code code, const struct hf_err *err), void *ctx)
{
	static const struct act_kind kind = { OP_CANCEL, LANE_WRITE,     true,
					      false,     cancel_execute, cancel_tell };
	struct act *act = task_act(store, &kind, owner, id, ctx);
	act->done.simple = done;
	act_send(act);
}

/* --- attach, detach --------------------------------------------------------------------------- */

static void attach_execute(struct act *act)
{
	bool parked = is_parked(&act->id);
	act->found =
	    model_attach(store_now(), act->owner, &act->id, &act->incarnation, act->number);
	count_more(TABLE_PLAIN, PLAIN_TAKEN_UP, 1, parked && !is_parked(&act->id));
	happened("attached", effect_number(&act->id), act->number, act->found);
}

static void attach_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	if (code == HF_OK)
		store_wake_all(WAKE_WORK);
	act->done.simple(act->ctx, code, err);
}

void store_attach(struct store *store, int64_t owner, const struct task_id *id,
		  const struct uuid *api, int64_t number,
		  void (*done)(void *ctx, enum hf_code code, const struct hf_err *err), void *ctx)
{
	static const struct act_kind kind = { OP_ATTACH, LANE_WRITE,     true,
					      false,     attach_execute, attach_tell };
	struct act *act = task_act(store, &kind, owner, id, ctx);
	act->done.simple = done;
	act->incarnation = *api;
	act->number = number;
	act_send(act);
}

static void detach_execute(struct act *act)
{
	struct model_detached detached =
	    model_detach(store_now(), &act->id, &act->incarnation, act->number, act->park);
	act->ours = detached.ours;
	act->running = detached.running;
	act->step_number = detached.phase;
	int effect = effect_number(&act->id);
	if (act->ours && act->park && !effects[effect].hung_up)
		broken(effect, "is parked, and nobody hung up");
	happened("detached", effect_number(&act->id), act->park, act->ours);
}

static void detach_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	if (code == HF_OK && act->running)
		store_wake_all(WAKE_WISH);
	if (code == HF_OK && act->ours && act->park)
		count(TABLE_PLAIN, PLAIN_PARKS, 0);
	act->done.detached(act->ctx, code, code == HF_OK && act->ours, act->step_number, err);
}

void store_detach(struct store *store, const struct task_id *id, const struct uuid *api,
		  int64_t number, bool park,
		  void (*done)(void *ctx, enum hf_code code, bool ours, int step,
			       const struct hf_err *err),
		  void *ctx)
{
	static const struct act_kind kind = { OP_DETACH, LANE_WRITE,     false,
					      false,     detach_execute, detach_tell };
	struct act *act = task_act(store, &kind, 0, id, ctx);
	act->done.detached = done;
	act->incarnation = *api;
	act->number = number;
	act->park = park;
	act_send(act);
}

/* --- answer ----------------------------------------------------------------------------------- */

static void answer_execute(struct act *act)
{
	struct model_answered answered = model_answer(store_now(), act->owner, &act->id, act->text);
	act->found = answered.known;
	act->ready = answered.woken;
	act->taken = answered.taken;
	happened("answered", effect_number(&act->id), act->found, act->taken);
}

static void answer_tell(struct act *act, enum hf_code code, const struct hf_err *err)
{
	if (code == HF_OK && act->ready)
		store_wake_all(WAKE_WORK);
	if (code == HF_OK && !act->found)
		code = HF_MISSING;
	act->done.answered(act->ctx, code, act->taken, err);
}

void store_answer(struct store *store, int64_t owner, const struct task_id *id,
		  struct slice answers, struct store_end,
		  void (*done)(void *ctx, enum hf_code code, int taken, const struct hf_err *err),
		  void *ctx)
{
	static const struct act_kind kind = { OP_ANSWER, LANE_WRITE,     true,
					      false,     answer_execute, answer_tell };
	struct act *act = task_act(store, &kind, owner, id, ctx);
	act->done.answered = done;
	act->text = act_keep(act, answers);
	act_send(act);
}
