/* phase.h - what a phase kind is to a run, and what a run offers it. A kind's start ends by calling
 * run_phase_done exactly once, later or from inside; it gets the derived key, it never makes one.
 */
#pragma once

#include <stdint.h>

#include "runtime/slice.h"
#include "runtime/store.h"
#include "runtime/template.h"
#include "runtime/tool.h"
#include "runtime/trace.h"

struct ev_loop;
struct run;
struct worker;

/* What it does may happen outside of Postgres and this machine: nobody can take it back or run it
 * again unasked. */
static inline bool effect_is_foreign(enum effect_class effect)
{
	return effect != EFFECT_PURE && effect != EFFECT_LOCAL;
}

enum phase_outcome {
	PHASE_DONE,      /* `state` is the phase's state; commit the recovery point */
	PHASE_COMMITTED, /* as DONE, but the phase committed its recovery point itself (sql) */
	PHASE_RETRY,     /* this attempt failed for a passing reason */
	PHASE_AGAIN, /* ask again after delay_ms; no attempt spent (409, reading back too early) */
	PHASE_CRASHED,    /* the tool's process died or broke the protocol: infrastructure */
	PHASE_TOOL_ERROR, /* the tool says no: completed with isError, `text` for the model */
	PHASE_FAILED,     /* cannot go on: failed */
	PHASE_UNKNOWN,    /* may have happened, nobody can tell */
	PHASE_UNVERIFIED, /* accepted downstream, not yet seen; look again after delay_ms */
	PHASE_ASK, /* asks its caller: `state` is the questions (ask.h), delay_ms how long an answer
		    * is waited for, 0: until the deadline */
	PHASE_STOPPED, /* stopped because phase_kind.stop was called; nothing is in flight */
	PHASE_LOST,    /* the fence said no: forget the run */
};

struct phase_result {
	enum phase_outcome outcome;
	struct slice state; /* DONE, COMMITTED: msgpack; ASK: JSON text */
	const char *text;   /* what happened, for a person; nullable where DONE */
	const char *answer; /* short: "201 Created", "exit 0"; nullable */
	int64_t delay_ms; /* RETRY: at least this (Retry-After), 0: backoff decides; AGAIN: this */
	bool maybe_sent;  /* a request may have left in this attempt */
	bool maybe_executed; /* FAILED: for the executed field */
};

struct phase_kind {
	/* What is given back comes to stop; nullptr where start has called run_phase_done already.
	 */
	void *(*start)(struct run *run);
	/* Pure and local work at once; a foreign request in flight is waited for, for its grace,
	 * and its answer reported as usual. `lost`: the claim is gone, everything stops at once and
	 * PHASE_LOST is reported. May be called more than once. */
	void (*stop)(void *state, bool lost);
};
#define PHASE(id, name, ...) extern const struct phase_kind phase_##name;
#include "runtime/phases.def"
#undef PHASE

/* --- what a running phase may ask ------------------------------------------------------------- */

struct ev_loop *run_loop(const struct run *run);
struct worker *run_worker(const struct run *run);
const struct tool *run_tool(const struct run *run);
const struct phase_spec *run_phase(const struct run *run);
int run_phase_number(const struct run *run);
const struct claimed_task *run_task(const struct run *run); /* steps: as of the claim */
const char *run_task_id(const struct run *run);             /* text form */
/* The tool's folder on this machine, with the files of this version. */
const char *run_tool_folder(const struct run *run);
/* The phase's own derived key (call 0), or that of a further call of it. 52 characters. */
const char *run_key(const struct run *run);
/* The trace context that the call came with, and the traceparent of this attempt's own span in it;
 * "" where it came with none. */
const struct trace *run_trace(const struct run *run);
const char *run_traceparent(const struct run *run);
enum hf_code run_derive(const struct run *run, uint32_t call, char *text, struct hf_err *err);
/* Roots of templates; /task/attempt is this attempt. Valid while the phase runs. */
const struct template_scope *run_scope(const struct run *run);
/* All states so far as one JSON object {phase: state}. Valid while the phase runs. */
struct slice run_states_json(struct run *run);
/* What a tool is told of as its attempt, from 1: starts that ended in a crash count as well. */
int run_attempt(const struct run *run);
/* The database's time, in ms since 1970: as of the claim, and the boot clock since. */
int64_t run_database_ms(const struct run *run);
/* ms until the earlier of the phase's time-out and the task's deadline. */
int64_t run_time_left_ms(const struct run *run);
/* V4: true while the local lease has more than its margin left. To be asked right before the
 * first byte of a downstream request leaves. */
bool run_may_send(const struct run *run);

/* Newest wins; sent with the next beat. */
void run_progress(struct run *run, double fraction, struct slice text);

/* Durable checkpoint inside a program phase: first write per name wins. `done` comes with ok false
 * when the claim is lost (the phase is then stopped with `lost`). */
void run_checkpoint(struct run *run, struct slice name, struct slice value_msgpack,
		    void (*done)(void *ctx, bool ok), void *ctx);
/* The value of a checkpoint of this phase, from this or an earlier attempt; false: none. */
bool run_recall(struct run *run, struct slice name, struct slice *value_msgpack);
/* The checkpoint of an http phase that its request was accepted, with the answer, which is then in
 * scope as the state of the phase itself. */
void run_accept(struct run *run, struct slice state_json, void (*done)(void *ctx, bool ok),
		void *ctx);
/* In this or an earlier attempt: how long ago, and the answer (msgpack). False: it was not. */
bool run_accepted(const struct run *run, int64_t *age_ms, struct slice *state_msgpack);
void run_artifact_put(struct run *run, struct slice name, struct slice media_type,
		      struct slice content, void (*done)(void *ctx, bool ok), void *ctx);
/* HF_MISSING through `found` false. */
void run_artifact_get(struct run *run, struct slice name,
		      void (*done)(void *ctx, bool found, struct slice media_type,
				   struct slice content),
		      void *ctx);

void run_phase_done(struct run *run, const struct phase_result *result);
