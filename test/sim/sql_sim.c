/* sql_sim.c - runtime/sqlphase.h over the model: check, the tool's statement, fence and COMMIT,
 * whose answer may be lost; then all of it is run again, as runtime/sqlphase.c does. */
#include "runtime/sqlphase.h"

#include <stdlib.h>

#include "runtime/arena.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/value.h"
#include "test/sim/fake_store.h"

constexpr int64_t WORK_US_MAX = 60 * MS;
constexpr int RUNS_MAX = 5;

struct sqlphase_pool {
	struct process *process;
};

struct sqlphase {
	struct event event;
	struct sqlphase_pool *pool;
	struct step_write step;
	struct arena *arena;
	int effect, runs;
	bool cancelled, fencing, fate_open;
	struct buf state; /* as it is told: JSON, of an adopted one msgpack */
	struct buf packed;
	enum sqlphase_outcome outcome;
	enum wish wish;
	void (*done)(void *ctx, enum sqlphase_outcome outcome, enum wish wish, struct slice state,
		     const char *text);
	void *ctx;
};

static void phase_free(struct sqlphase *phase);

static void on_tell(struct event *event)
{
	struct sqlphase *phase = container_of(event, struct sqlphase, event);
	phase->done(phase->ctx, phase->outcome, phase->wish, buf_slice(&phase->state),
		    "it is simulated");
	phase_free(phase);
}

static void phase_free(struct sqlphase *phase)
{
	buf_deinit(&phase->state);
	buf_deinit(&phase->packed);
	arena_free(phase->arena);
	free(phase);
}

static void next(struct sqlphase *phase, void (*fire)(struct event *event))
{
	phase->event.fire = fire;
	event_set(&phase->event, now_us + dice_between(200, WORK_US_MAX));
}

static void settle(struct sqlphase *phase, enum sqlphase_outcome outcome)
{
	phase->outcome = outcome;
	next(phase, on_tell);
}

static void on_check(struct event *event);

/* The connection is lost: a COMMIT that left is asked for by running again. */
static void lost(struct sqlphase *phase)
{
	phase->fate_open = phase->fate_open || phase->fencing;
	count(TABLE_LOST, OP_SQL, phase->fencing);
	if (phase->runs >= RUNS_MAX && !phase->fate_open)
		settle(phase, SQLPHASE_RETRY);
	else
		next(phase, on_check);
}

static void on_fence(struct event *event)
{
	struct sqlphase *phase = container_of(event, struct sqlphase, event);
	phase->step.state = buf_slice(&phase->packed);
	enum model_sql said = model_sql_fence(store_now(), &phase->step, &phase->wish);
	count(TABLE_FENCE, OP_SQL,
	      said == MODEL_SQL_HELD   ? FENCE_HELD
	      : said == MODEL_SQL_LOST ? FENCE_LOST
				       : FENCE_ADOPTED);
	happened("sql fence", phase->effect, phase->step.phase, said);
	if (said == MODEL_SQL_HELD)
		ledger_effect(phase->effect, place_of(phase->step.name));
	phase->event.process = phase->pool->process;
	if (!phase->pool->process->alive)
		phase_free(phase);
	else if (in_trouble(300))
		lost(phase);
	else if (said == MODEL_SQL_HELD)
		settle(phase, SQLPHASE_DONE);
	else if (said == MODEL_SQL_LOST)
		settle(phase, SQLPHASE_LOST);
	else
		next(phase, on_check);
}

/* The statement has run. */
static void on_run(struct event *event)
{
	struct sqlphase *phase = container_of(event, struct sqlphase, event);
	if (phase->cancelled) {
		settle(phase, SQLPHASE_RETRY);
	} else if (in_trouble(100)) {
		lost(phase);
	} else if (in_trouble(60)) {
		settle(phase, SQLPHASE_REFUSED);
	} else if (in_trouble(200)) {
		settle(phase, SQLPHASE_RETRY);
	} else {
		buf_add_text(&phase->state, "{\"rows\":1}");
		value_from_json(buf_slice(&phase->state), &phase->packed);
		phase->fencing = true;
		/* Fence and COMMIT leave together, and arrive even if their worker dies now. */
		phase->event.process = dice_hits(5'000) ? nullptr : phase->pool->process;
		next(phase, on_fence);
	}
}

static void on_check(struct event *event)
{
	struct sqlphase *phase = container_of(event, struct sqlphase, event);
	struct slice state = {};
	phase->runs++;
	phase->fencing = false;
	buf_clear(&phase->state);
	buf_clear(&phase->packed);
	if (phase->cancelled && !phase->fate_open) {
		settle(phase, SQLPHASE_RETRY);
		return;
	}
	switch (model_sql_check(store_now(), &phase->step.id, &phase->step.token, phase->step.place,
				&phase->wish, &state)) {
	case MODEL_SQL_LOST:
		settle(phase, SQLPHASE_LOST);
		return;
	case MODEL_SQL_DONE:
	case MODEL_SQL_ADOPTED:
		buf_add_slice(&phase->state, state);
		settle(phase, SQLPHASE_ADOPTED);
		return;
	case MODEL_SQL_HELD:
		phase->fate_open = false;
		next(phase, on_run);
		return;
	}
}

struct sqlphase_pool *sqlphase_open(struct ev_loop *, const char *, int)
{
	struct sqlphase_pool *pool = hf_alloc(sizeof *pool);
	pool->process = running_process;
	return pool;
}

/* What it was at goes on without it. */
void sqlphase_close(struct sqlphase_pool *)
{
}

void sqlphase_collect(const struct sqlphase_pool *)
{
}

struct sqlphase *sqlphase_start(struct sqlphase_pool *pool, const struct sqlphase_call *call,
				void (*done)(void *ctx, enum sqlphase_outcome outcome,
					     enum wish wish, struct slice state, const char *text),
				void *ctx)
{
	struct sqlphase *phase = hf_alloc(sizeof *phase);
	struct slice member;
	hf_cleanup(buf) struct buf effect_id = {};
	if (json_member(call->args_json, "effect_id", &member))
		json_string_decode(member, &effect_id);
	phase->effect = effect_of(buf_slice(&effect_id))->number;
	phase->pool = pool;
	phase->arena = arena_new(1 << 16);
	phase->step = call->step;
	phase->step.name =
	    (struct slice){ arena_copy(phase->arena, call->step.name), call->step.name.len };
	phase->done = done;
	phase->ctx = ctx;
	phase->event.process = pool->process;
	next(phase, on_check);
	return phase;
}

void sqlphase_cancel(struct sqlphase *phase)
{
	phase->cancelled = true;
}
