/* clients.c - who calls: agents that hold an effect ID and want its outcome. Some declare Tasks and
 * poll, some call plainly and wait, hang up and come back or never do; a few cancel, repeat what
 * others call, or use an effect ID again with other arguments. What they are told must agree, with
 * each other and to the end. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/json.h"
#include "test/sim/front.h"
#include "test/sim/model.h"
#include "test/sim/sim.h"

constexpr int64_t PATIENCE_US = 6'000 * MS; /* for an answer of an API */

struct effect *effects;
int effects_count;
static struct agent *agents;
static int agents_left;

struct agent {
	struct agent *next;
	bool is_done;
	struct event event, impatience, hang_up, cancel;
	struct effect *effect;
	bool plain, conflicts, answers, vanishes, by_argument;
	bool has_task;
	unsigned serial; /* of what it asked last: an older answer is nobody's */
	struct caller *caller;
};

/* The way back from a store: it outlives the patience of an agent. */
struct wanted {
	struct agent *agent;
	unsigned serial;
};

struct effect *effect_of(struct slice id)
{
	int number = 0;
	for (size_t i = 1; i < id.len; i++)
		number = 10 * number + id.data[i] - '0';
	return id.len > 1 && id.data[0] == 'e' && number < effects_count ? &effects[number]
									 : nullptr;
}

/* --- what they are told ----------------------------------------------------------------------- */

static uint64_t hash(uint64_t seed, struct slice bytes)
{
	for (size_t i = 0; i < bytes.len; i++)
		seed = (seed ^ (unsigned char)bytes.data[i]) * 0x100000001b3U;
	return seed;
}

void told_task(struct effect *effect, const struct task_id *id)
{
	if (effect->accepted && !task_id_equal(&effect->task, id))
		broken(effect->number, "two tasks of one effect ID (V1)");
	effect->accepted = true;
	effect->task = *id;
}

/* Acceptance tells no outcomes. */
static void told_acceptance(struct effect *effect, const struct task_view *view)
{
	told_task(effect, &view->id);
	if (effect->ended && task_state_is_terminal(view->state) && effect->state != view->state)
		broken(effect->number, "was %s, and is %s (V6)", task_state_name(effect->state),
		       task_state_name(view->state));
}

void told_view(struct effect *effect, const struct task_view *view)
{
	told_task(effect, &view->id);
	if (!task_state_is_terminal(view->state))
		return; /* on its way it may have been overtaken by the end */
	uint64_t outcome = hash(hash(view->state, view->result), view->error);
	if (effect->ended && (effect->state != view->state || effect->outcome != outcome))
		broken(effect->number, "the outcome changed (V6)");
	effect->ended = true;
	effect->state = view->state;
	effect->outcome = outcome;
}

/* --- agents ----------------------------------------------------------------------------------- */

static void done(struct agent *agent)
{
	event_drop(&agent->event);
	event_drop(&agent->impatience);
	event_drop(&agent->hang_up);
	agent->serial++;
	agents_left--;
	agent->is_done = true;
	happened("agent done", agent->effect->number, agent->plain, 0);
}

static void again_in(struct agent *agent, int64_t low_ms, int64_t high_ms)
{
	agent->serial++;
	event_drop(&agent->impatience);
	event_set(&agent->event, now_us + dice_between(low_ms * MS, high_ms * MS));
}

static void on_impatience(struct event *event)
{
	again_in(container_of(event, struct agent, impatience), 10, 500);
}

static struct wanted *want(struct agent *agent)
{
	struct wanted *wanted = hf_alloc(sizeof *wanted);
	*wanted = (struct wanted){ agent, ++agent->serial };
	event_set(&agent->impatience, now_us + PATIENCE_US);
	return wanted;
}

/* False: it is no longer waited for. */
static bool is_wanted(struct wanted *wanted)
{
	struct agent *agent = wanted->agent;
	bool is = wanted->serial == agent->serial;
	free(wanted);
	if (is)
		event_drop(&agent->impatience);
	return is;
}

static void on_accepted(void *ctx, enum hf_code code, enum accept_outcome outcome,
			const struct task_view *view, const struct hf_err *)
{
	struct agent *agent = ((struct wanted *)ctx)->agent;
	if (code == HF_OK && view)
		told_acceptance(agent->effect, view);
	if (!is_wanted(ctx))
		return;
	if (code != HF_OK) {
		again_in(agent, 100, 1'500);
		return;
	}
	if ((outcome == ACCEPT_CONFLICT) != agent->conflicts || outcome == ACCEPT_EXPIRED)
		broken(agent->effect->number, "its call was answered with %d", outcome);
	agent->has_task = true;
	if (agent->conflicts || agent->vanishes)
		done(agent);
	else
		again_in(agent, 20, 1'000);
}

static void on_answered(void *ctx, enum hf_code code, int, const struct hf_err *)
{
	struct agent *agent = ((struct wanted *)ctx)->agent;
	if (!is_wanted(ctx))
		return;
	count(TABLE_ACT, ACT_ANSWER, code == HF_OK);
	again_in(agent, 100, 1'000);
}

static void answer(struct agent *agent, struct store *store, const struct task_view *view)
{
	hf_cleanup(buf) struct buf answers = {};
	struct slice name, request;
	for (size_t at = 0; json_object_next(view->requests, &at, &name, &request);) {
		buf_add_text(&answers, answers.len ? "," : "{");
		buf_add_slice(&answers, name);
		buf_add_text(&answers, ":{\"action\":\"accept\",\"content\":{}}");
	}
	buf_add_text(&answers, "}");
	store_answer(store, agent->effect->owner, &view->id, buf_slice(&answers),
		     (struct store_end){}, on_answered, want(agent));
}

static void on_polled(void *ctx, enum hf_code code, const struct task_view *view,
		      const struct hf_err *)
{
	struct agent *agent = ((struct wanted *)ctx)->agent;
	if (code == HF_MISSING)
		broken(agent->effect->number, "its handle is known no more (V2)");
	if (code == HF_OK)
		told_view(agent->effect, view);
	if (!is_wanted(ctx))
		return;
	if (code == HF_OK && task_state_is_terminal(view->state))
		done(agent);
	else if (code == HF_OK && view->state == TASK_WAITING && view->requests.len &&
		 agent->answers && running_process->store)
		answer(agent, running_process->store, view);
	else
		again_in(agent, 200, 2'500);
}

static void on_cancelled(void *, enum hf_code, const struct hf_err *)
{
}

static void on_cancel(struct event *event)
{
	struct agent *agent = container_of(event, struct agent, cancel);
	struct process *api = front_draw();
	if (!agent->effect->accepted || !api)
		return;
	count(TABLE_ACT, ACT_CANCEL, 0);
	as_process(api, store_cancel(api->store, agent->effect->owner, &agent->effect->task,
				     on_cancelled, agent));
}

/* --- plain calls ------------------------------------------------------------------------------ */

/* The word that a plain client is told must be the store's. */
static void told_end(const struct agent *agent, enum task_state state)
{
	const struct effect *effect = agent->effect;
	const struct model_task *task =
	    effect->accepted ? model_look(world.model, &effect->task) : nullptr;
	if (task && task->state != state)
		broken(effect->number, "its plain client was told %s, it is %s",
		       task_state_name(state), task_state_name(task->state));
}

/* Whatever names a task names the one of this effect (V1). */
static void told_name(const struct effect *effect, const char *text)
{
	char id[TASK_ID_TEXT_LEN + 1];
	task_id_format(&effect->task, id);
	for (const char *at = text; (at = strstr(at, "tsk_")); at += TASK_ID_TEXT_LEN)
		if (!effect->accepted || strncmp(at, id, TASK_ID_TEXT_LEN) != 0)
			broken(effect->number, "its plain client was told of another task (V1)");
}

static bool says(const char *text, const char *word)
{
	return strstr(text, word) != nullptr;
}

static void on_ended(void *ctx, enum front_end how, int code, const char *text)
{
	struct agent *agent = ctx;
	agent->caller = nullptr;
	event_drop(&agent->hang_up);
	count(TABLE_PLAIN, PLAIN_REPLY, how);
	told_name(agent->effect, text);
	happened("plain call answered", agent->effect->number, how, code);
	if (how == FRONT_LOST || how == FRONT_REFUSED) {
		again_in(agent, 100, 1'500);
	} else if (code == 1425 || says(text, "\"still_running\"")) {
		count(TABLE_PLAIN, PLAIN_WINDOW, 0);
		if (agent->vanishes)
			done(agent);
		else
			again_in(agent, 200, 2'500);
	} else if (code == 1500 || says(text, "\"type\":\"outcome_unknown\"")) {
		again_in(agent, 1'000, 6'000);
	} else if (code == 1409 || code == 1410) {
		broken(agent->effect->number, "its plain call was answered with %d", code);
	} else {
		count(TABLE_PLAIN, PLAIN_OUTCOME, how);
		if (code == 1001 || says(text, "\"type\":\"cancelled\""))
			told_end(agent, TASK_CANCELLED);
		else if (how == FRONT_RESULT && says(text, "\"isError\":false"))
			told_end(agent, TASK_COMPLETED);
		done(agent);
	}
}

static void on_hang_up(struct event *event)
{
	struct agent *agent = container_of(event, struct agent, hang_up);
	struct caller *caller = agent->caller;
	if (!caller)
		return;
	count(TABLE_ACT, ACT_HANG_UP, agent->vanishes);
	happened("hung up", agent->effect->number, agent->vanishes, 0);
	agent->caller = nullptr;
	agent->effect->hung_up = true;
	front_hang_up(caller);
	if (agent->vanishes)
		done(agent);
	else
		again_in(agent, 100, 9'000);
}

static void call_plainly(struct agent *agent, struct process *api)
{
	const struct plain_request request = { .effect = agent->effect,
					       .by_argument = agent->by_argument,
					       .events = dice_hits(5'000),
					       .ended = on_ended,
					       .ctx = agent };
	unsigned serial = ++agent->serial;
	struct caller *caller = front_call(api, &request);
	if (agent->serial != serial)
		return; /* answered already */
	agent->caller = caller;
	if (agent->vanishes || in_trouble(2'500))
		event_set(&agent->hang_up, now_us + dice_between(1 * MS, 4'000 * MS));
}

/* --- what an agent does next ------------------------------------------------------------------ */

static void on_turn(struct event *event)
{
	struct agent *agent = container_of(event, struct agent, event);
	struct process *api = front_draw();
	if (!api || (agent->conflicts && !agent->effect->accepted)) {
		if (agent->conflicts && world.calm)
			done(agent);
		else
			again_in(agent, 50, 800);
		return;
	}
	if (agent->plain) {
		call_plainly(agent, api);
		return;
	}
	if (agent->has_task) {
		as_process(api, store_poll(api->store, agent->effect->owner, &agent->effect->task,
					   on_polled, want(agent)));
		return;
	}
	struct accept_call call = front_accept_call(agent->effect, agent->by_argument);
	if (agent->conflicts)
		call.fingerprint[0] ^= 1;
	as_process(api, store_accept(api->store, &call, on_accepted, want(agent)));
}

static struct agent *agent_begin(struct effect *effect, int64_t at_us)
{
	struct agent *agent = hf_alloc(sizeof *agent);
	agent->effect = effect;
	agent->plain = dice_hits(3'000);
	agent->by_argument = dice_hits(6'000);
	agent->answers = dice_hits(8'000);
	agent->vanishes = dice_hits(600);
	agent->event.fire = on_turn;
	agent->impatience.fire = on_impatience;
	agent->hang_up.fire = on_hang_up;
	agent->cancel.fire = on_cancel;
	agents_left++;
	agent->next = agents;
	agents = agent;
	event_set(&agent->event, at_us);
	if (dice_hits(800))
		event_set(&agent->cancel, at_us + dice_between(0, 8'000 * MS));
	return agent;
}

void clients_begin(int tasks, int64_t spread_us)
{
	static const char *const subjects[] = { "ann", "bob", "cyd" };
	effects = hf_alloc((size_t)tasks * sizeof effects[0]);
	for (int i = 0; i < tasks; i++) {
		struct effect *effect = &effects[effects_count++];
		effect->number = i;
		effect->tool = tool_draw();
		effect->owner =
		    model_owner(world.model, slice_of("sim"),
				slice_of(subjects[dice_between(0, countof(subjects) - 1)]),
				slice_of("t"));
		memset(effect->fingerprint, i & 0xff, FINGERPRINT_BYTES);
		int64_t at_us = dice_between(0, spread_us);
		agent_begin(effect, at_us);
		if (dice_hits(1'500)) {
			agent_begin(effect, at_us + dice_between(0, 15'000 * MS));
			count(TABLE_ACT, ACT_REPEAT, 0);
		}
		if (dice_hits(300)) {
			struct agent *agent =
			    agent_begin(effect, at_us + dice_between(0, 9'000 * MS));
			agent->conflicts = true;
			agent->plain = false;
			count(TABLE_ACT, ACT_CONFLICT, 0);
		}
	}
	tally->tasks += (uint64_t)tasks;
}

bool clients_are_done(void)
{
	return agents_left == 0;
}

void check_clients(void)
{
	for (const struct agent *agent = agents; agent; agent = agent->next)
		if (!agent->is_done)
			broken(agent->effect->number,
			       "its client (%s%s, %s) waits, the task is over",
			       agent->plain ? "plain" : "tasks",
			       agent->conflicts ? ", conflicts" : "",
			       agent->caller ? "calls" : "between two calls");
}
