/* bench_caller.c - see bench_caller.h. The steps of a caller; the plan says which there are:
 *
 *     rest* ──► call ──► ask ──completed──► (again)
 *                         │ ▲
 *                       open │
 *                         ▼  │
 *                        pause*                 * waits for time
 *
 * Called by bench_work.c and bench_drain.c. */
#include "runtime/bench_caller.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base.h"
#include "runtime/id.h"
#include "runtime/random.h"

enum step { STEP_REST, STEP_CALL, STEP_PAUSE, STEP_ASK };

struct caller {
	enum step step;
	struct request call, get;
	uint64_t random;
	int64_t called_us;
};

static uint64_t next_random(struct caller *caller)
{
	caller->random ^= caller->random << 13;
	caller->random ^= caller->random >> 7;
	caller->random ^= caller->random << 17;
	return caller->random;
}

static enum step first_step(const struct caller_plan *plan)
{
	if (plan->rest_ns_max > 0)
		return STEP_REST;
	return plan->act == ACT_RESULT ? STEP_ASK : STEP_CALL;
}

static struct slice ask_for_result(const struct callers *callers, struct caller *caller)
{
	struct slice tasks = callers->plan.tasks;
	if (callers->plan.act == ACT_RESULT) {
		size_t which = next_random(caller) % (tasks.len / TASK_ID_TEXT_LEN);
		request_fill(&caller->get, tasks.data + which * TASK_ID_TEXT_LEN);
	}
	return request_slice(&caller->get);
}

static struct slice call(const struct callers *callers, struct caller *caller)
{
	struct timespec time;
	char effect[REQUEST_EFFECT_LEN];
	if (callers->plan.act != ACT_REPEAT) {
		request_effect(effect);
		request_fill(&caller->call, effect);
	}
	if (callers->plan.keep_tasks) {
		clock_gettime(CLOCK_REALTIME, &time);
		caller->called_us = (int64_t)time.tv_sec * 1'000'000 + time.tv_nsec / 1000;
	}
	return request_slice(&caller->call);
}

static struct slice on_ask(void *ctx, struct load_client *client, int64_t *wait_ns)
{
	const struct callers *callers = ctx;
	const struct caller_plan *plan = &callers->plan;
	struct caller *caller = client->own;
	switch (caller->step) {
	case STEP_REST:
		caller->step = STEP_CALL;
		*wait_ns = plan->rest_ns_min +
			   (int64_t)(next_random(caller) %
				     (uint64_t)(plan->rest_ns_max - plan->rest_ns_min + 1));
		return (struct slice){};
	case STEP_CALL:
		return call(callers, caller);
	case STEP_PAUSE:
		caller->step = STEP_ASK;
		*wait_ns = plan->ask_every_ns;
		return (struct slice){};
	case STEP_ASK:
		break;
	}
	return ask_for_result(callers, caller);
}

static bool holds(struct slice body, const char *text)
{
	return memmem(body.data, body.len, text, strlen(text)) != nullptr;
}

static void keep(struct callers *callers, const struct caller *caller)
{
	if (!callers->plan.keep_tasks)
		return;
	buf_add(&callers->tasks, caller->get.bytes.data + caller->get.places[0], TASK_ID_TEXT_LEN);
	buf_add(&callers->called, &caller->called_us, sizeof caller->called_us);
}

static enum heard heard_handle(struct callers *callers, struct caller *caller, struct slice body)
{
	static const char id[] = "\"taskId\":\"";
	bool repeat = callers->plan.act == ACT_REPEAT;
	const char *at = memmem(body.data, body.len, id, sizeof id - 1);
	if (!at || (size_t)(body.data + body.len - at) < sizeof id + TASK_ID_TEXT_LEN ||
	    !holds(body, repeat ? "\"replayed\":true" : "\"replayed\":false"))
		return HEARD_WRONG;
	if (repeat && !holds(body, "\"status\":\"completed\""))
		return HEARD_WRONG;
	if (callers->plan.act == ACT_CALL)
		return HEARD_DONE;
	request_fill(&caller->get, at + sizeof id - 1);
	caller->step = repeat ? STEP_ASK : STEP_PAUSE;
	return HEARD_MORE;
}

static enum heard heard_task(struct callers *callers, struct caller *caller, struct slice body)
{
	if (holds(body, "\"status\":\"completed\"") && holds(body, "\"rows\":1234")) {
		keep(callers, caller);
		caller->step = first_step(&callers->plan);
		return HEARD_DONE;
	}
	if (callers->plan.act != ACT_RUN || !holds(body, "\"status\":\"working\""))
		return HEARD_WRONG;
	caller->step = STEP_PAUSE;
	return HEARD_MORE;
}

static enum heard on_hear(void *ctx, struct load_client *client, int status, struct slice body)
{
	struct callers *callers = ctx;
	struct caller *caller = client->own;
	if (status != 200)
		return HEARD_WRONG;
	return caller->step == STEP_CALL ? heard_handle(callers, caller, body)
					 : heard_task(callers, caller, body);
}

void callers_init(struct callers *callers, const struct request_target *target, int count,
		  const struct caller_plan *plan)
{
	hf_assert(plan->act != ACT_RESULT || plan->tasks.len >= TASK_ID_TEXT_LEN);
	*callers = (struct callers){ .plan = *plan, .count = count };
	callers->list = hf_alloc((size_t)count * sizeof *callers->list);
	for (int i = 0; i < count; i++) {
		struct caller *caller = &callers->list[i];
		caller->step = first_step(plan);
		random_bytes(&caller->random, sizeof caller->random);
		caller->random |= 1;
		request_init_get(&caller->get, target);
		if (plan->tool)
			request_init_call(&caller->call, target, plan->tool);
		if (plan->effect)
			request_fill(&caller->call, plan->effect);
	}
}

void callers_deinit(struct callers *callers)
{
	for (int i = 0; i < callers->count; i++) {
		request_deinit(&callers->list[i].call);
		request_deinit(&callers->list[i].get);
	}
	free(callers->list);
	buf_deinit(&callers->tasks);
	buf_deinit(&callers->called);
	*callers = (struct callers){};
}

struct load_work callers_work(struct callers *callers)
{
	return (struct load_work){ .ask = on_ask, .hear = on_hear, .ctx = callers };
}

void callers_join(struct callers *callers, struct load *load)
{
	for (int i = 0; i < callers->count; i++)
		load_client_at(load, i)->own = &callers->list[i];
}
