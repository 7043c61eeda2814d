/* sqlphase.h - runs the SQL of a tool in the recovery point's own transaction (rule 7), on a small
 * pool of its own whose login may execute only the check and the fence:
 *   BEGIN; check; SET LOCAL ROLE holdfast_tool_NAME; the statement;      first flight
 *   RESET ROLE; fence with the step; COMMIT                              second flight */
#pragma once

#include <stdint.h>

#include "runtime/store.h"

struct sqlphase_pool;

struct sqlphase_pool *sqlphase_open(struct ev_loop *loop, const char *dsn, int connections);
void sqlphase_close(struct sqlphase_pool *pool);
/* Sets its gauges. */
void sqlphase_collect(const struct sqlphase_pool *pool);

enum sqlphase_outcome {
	SQLPHASE_DONE,    /* committed; `state` is the JSON text that the statement returned */
	SQLPHASE_ADOPTED, /* its recovery point stood already; `state` is msgpack of it */
	SQLPHASE_LOST,    /* fenced out; nothing was committed */
	SQLPHASE_RETRY,   /* rolled back for what passes (pgfail.h), again and again */
	SQLPHASE_REFUSED, /* rolled back: the statement itself is at fault; `text` says how */
};

struct sqlphase_call {
	struct step_write step; /* state is empty: it comes from the statement */
	const char *tool_name;
	const char *sql;
	struct slice args_json, states_json;
	int64_t timeout_ms;
};
/* Copies what it is given; `done` is called once, never from inside. */
struct sqlphase *sqlphase_start(struct sqlphase_pool *pool, const struct sqlphase_call *call,
				void (*done)(void *ctx, enum sqlphase_outcome outcome,
					     enum wish wish, struct slice state, const char *text),
				void *ctx);
/* Rolls back if COMMIT was not sent yet; `done` still comes. */
void sqlphase_cancel(struct sqlphase *phase);
