/* front.h - an API process: the product's plain.c, presence.c, watch.c and answer.c, with requests
 * that callers of the harness make in place of connections. */
#pragma once

#include "test/sim/sim.h"

/* How a plain call ended, as its client saw it. */
enum front_end {
	FRONT_RESULT,  /* a result; `text` is its JSON */
	FRONT_ERROR,   /* an error of the protocol; `text` its data */
	FRONT_REFUSED, /* not accepted: 429, 503, … */
	FRONT_LOST,    /* the connection broke */
};

struct caller;
struct plain_request {
	struct effect *effect;
	bool by_argument; /* its effect ID is an argument, else params.idempotencyKey */
	bool events;
	void (*ended)(void *ctx, enum front_end how, int code, const char *text);
	void *ctx;
};

void api_begin(int number);
void api_drain(struct process *process);
void api_died(struct process *process);
/* Makes the call at that API; what is given back hangs up. `ended` comes once, unless it hung up.
 */
struct caller *front_call(struct process *process, const struct plain_request *request);
void front_hang_up(struct caller *caller);
/* The effect's call in the store's words, `number` and `api` left to the caller. */
struct accept_call front_accept_call(const struct effect *effect, bool by_argument);
/* One that takes calls, by chance; nullptr: none. */
struct process *front_draw(void);
