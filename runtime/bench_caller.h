/* bench_caller.h - what the clients of a load do: call a tool, ask for its task, in the order of
 * the work. */
#pragma once

#include <stdint.h>

#include "runtime/bench_load.h"
#include "runtime/bench_request.h"
#include "runtime/buf.h"

enum caller_act {
	ACT_CALL,   /* call with a fresh effect ID, take the handle */
	ACT_RUN,    /* that, and ask until the result is there */
	ACT_RESULT, /* ask for the result of a finished task, a random one of `tasks` */
	ACT_REPEAT, /* call with the one known effect ID, and ask for the result */
};

struct caller_plan {
	enum caller_act act;
	const char *tool;
	int64_t ask_every_ns; /* ACT_RUN */
	int64_t rest_ns_max;  /* before each operation, by chance up to it; 0: none */
	int64_t rest_ns_min;
	const char *effect; /* ACT_REPEAT */
	struct slice tasks; /* ACT_RESULT: IDs, back to back */
	bool keep_tasks;    /* note them in callers.tasks (ACT_RUN: once finished) */
};

struct callers {
	struct caller_plan plan;
	struct caller *list;
	int count;
	struct buf tasks;  /* IDs, back to back */
	struct buf called; /* int64_t: wall time in us of each one's call */
};

/* For `count` clients of a load. */
void callers_init(struct callers *callers, const struct request_target *target, int count,
		  const struct caller_plan *plan);
void callers_deinit(struct callers *callers);
struct load_work callers_work(struct callers *callers);
/* Gives each client of the load its caller; after load_open, before load_run. */
void callers_join(struct callers *callers, struct load *load);
