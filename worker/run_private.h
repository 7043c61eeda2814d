/* run_private.h - inside of a run, shared by run*.c alone. */
#pragma once

#include <ev.h>

#include "runtime/arena.h"
#include "runtime/buf.h"
#include "runtime/key.h"
#include "worker/phase.h"
#include "worker/run.h"

constexpr size_t RUN_KEPT_BYTES_MAX = 64 << 20; /* states and checkpoints, beyond the claim's */
constexpr size_t RUN_CLAIM_BYTES_MAX = 1 << 30; /* of its copy; the store's bound is lower */
constexpr size_t RUN_STATE_JSON_BYTES_MAX = 64 << 20; /* one state as JSON text */
constexpr size_t RUN_RESULT_BYTES_MAX = 1 << 20;      /* of the stored result */
constexpr size_t RUN_NAME_LEN_MAX = 255;              /* of a checkpoint or artifact */
constexpr int64_t RUN_NEVER = INT64_MIN;
static_assert(UNDO_PHASE_FIRST == TOOL_PHASES_MAX + 1);
static_assert(UNDO_PHASE_END == 2 * UNDO_PHASE_FIRST);

enum run_state {
	RUN_DECIDING,
	RUN_INTENDING,
	RUN_WORKING,
	RUN_PAUSED,
	RUN_COMMITTING,
	RUN_FINISHING,
	RUN_RELEASING,
	RUN_ENDED,
};

enum run_loss { LOSS_NONE, LOSS_LEASE, LOSS_CLAIM };

/* What phase_kind.stop was told last. */
/* Each more urgent than the one before. UNHURRIED: parked or paused, where nobody waits for the
 * end, so that what has left is waited for as long as it may take. */
enum run_stop { STOP_NONE, STOP_UNHURRIED, STOP_SOON, STOP_LOST };

struct known_state {
	bool known; /* has its recovery point */
	struct buf msgpack, json;
};

struct checkpoint {
	struct checkpoint *next;
	int phase, n; /* n: its place within the phase, from 1 */
	struct buf name, value;
};

/* A copy of struct phase_result. */
struct kept_result {
	bool here;
	enum phase_outcome outcome;
	struct buf state, text, answer;
	int64_t delay_ms;
	bool maybe_sent, maybe_executed;
};

/* What the store said to the write in flight. */
struct kept_answer {
	bool here;
	enum hf_code code;
	enum fence fence;
	enum wish wish;
	struct buf adopted;
	struct hf_err err;
};

struct run {
	struct worker *worker;
	struct ev_loop *loop;
	const struct tool *tool;
	const char *folder;

	/* The claim. Times are of the boot clock. */
	struct arena *arena;
	struct claimed_task task;
	char id[TASK_ID_TEXT_LEN + 1];
	struct trace trace;              /* of task.trace */
	char trace_id[TRACE_ID_LEN + 1]; /* for the log; empty where there is none */
	struct buf args;                 /* with the effect ID in it */
	int64_t claimed_at, deadline_at;
	struct known_state *states; /* one a phase, none an undo step */
	bool undone[UNDO_PHASE_FIRST];
	int64_t accepted_at; /* the request of the running phase, not its effect; or RUN_NEVER */
	struct checkpoint *checkpoints;
	int points[UNDO_PHASE_END];            /* highest checkpoint number given out, by phase */
	uint32_t generations[TOOL_PHASES_MAX]; /* of keys, by phase */
	size_t kept_bytes;

	/* Where it stands. */
	enum run_state state;
	ev_prepare step; /* never started: only fed, to step outside of everybody's stack */
	ev_timer deadline, pause;
	int phase, attempt;
	bool first;                    /* nobody has started this phase before */
	int64_t first_try_at, sent_at; /* sent_at: RUN_NEVER where no request may have left */
	bool sent_here;                /* in this claim: the store does not know of it yet */
	bool intent;                   /* of an unsafe phase, committed by this claim */
	int settles;                   /* how often it was asked whether it happened */
	bool exhausted;                /* no attempt is left; only settling remains */
	bool apart;                    /* of those with one start left, the one that runs here */

	/* What was wished. */
	bool cancel, back, abandoned;
	bool park;      /* given back because its client hung up; the store parks it */
	bool unhurried; /* back is wished by a park alone */
	enum run_loss lost;

	/* The running phase. */
	const struct phase_spec *spec;
	const struct phase_kind *kind;
	void *kind_state;
	uint64_t serial; /* of phase starts: late answers of an earlier one are dropped */
	bool settling;
	enum run_stop stop;
	int64_t started_at;
	char key[DERIVED_KEY_LEN + 1];
	char traceparent[TRACE_PARENT_LEN + 1]; /* of this attempt */
	struct buf key_json, task_json, states_json;
	struct template_scope scope;
	struct kept_result result;
	size_t sides; /* checkpoints and artifacts on their way */
	struct buf broken;
	enum phase_outcome broken_outcome; /* RETRY or FAILED: stands for the phase's own */

	/* Progress. */
	double progress;
	struct buf message;
	bool progress_changed;

	/* The write in flight. */
	struct kept_answer answer;
	enum release how;
	int64_t delay_ms, due_ms; /* due_ms: what worker_run_ended tells */
	bool maybe_sent, with_last;
	struct buf reason;
	enum task_state outcome;
	struct buf stored_result, stored_error;
};

/* run.c */
void run_feed(struct run *run); /* step soon, from the loop */
void run_move(struct run *run, enum run_state to);
bool run_deadline_passed(const struct run *run);
/* A cancel or the deadline ends the forward way; undo steps run whatever is wished. */
bool run_is_stopped(const struct run *run);
/* The phase has its recovery point. `first`: nobody has started the next one. */
void run_advance(struct run *run, bool first);

/* run_report.c. The phase has reported, and nothing of it is in flight any more. */
void run_reported(struct run *run);
/* Released to whoever settles it, for the reason that the result's text gives. */
void run_unknown(struct run *run);
/* So many crashes are its tool's limit. */
void run_fail_worn(struct run *run, int crashes, bool maybe_now);

/* run_sent.c, of the phase at hand. */
/* Its effect is elsewhere and can be asked about: it is settled, never guessed. */
bool run_asks_downstream(const struct run *run);
/* Something of it may have left, in this attempt or an earlier one. */
bool run_has_traces(const struct run *run);
/* As above, and a program that has its key may have sent by itself. */
bool run_may_have_happened(const struct run *run);
/* When it may have been sent, as the claim tells. */
void run_sent_keep(struct run *run, const struct claimed_task *task);
/* It may have run in a lost tail: it has been tried and sent. */
void run_sent_tail(struct run *run);

/* run_undo.c. The phases after all others, which a cancel begins and nothing stops. */
bool run_undoing(const struct run *run);
/* A committed phase has an undo step that has not run. */
bool run_has_undo(const struct run *run);
/* The phase at hand, past undo steps that need not run; nullptr: over. */
const struct phase_spec *run_spec_find(struct run *run);

/* run_apart.c. True: decided, it is given back or waits for others to be. */
bool run_waits_apart(struct run *run);

/* run_write.c: each moves the run to where its write is in flight. */
void run_send_write(struct run *run); /* again, after a refusal */
void run_release(struct run *run, enum release how, int64_t delay_ms, bool maybe_sent,
		 const char *reason);
/* What is sent names the phase: "about to send". */
void run_intend(struct run *run);
/* As the result's text says, and `more`. */
void run_release_because(struct run *run, enum release how, int64_t delay_ms, const char *more);
void run_give_back(struct run *run, bool maybe_sent);
void run_finish(struct run *run, enum task_state outcome, bool with_last);
void run_fail(struct run *run, const char *type, struct slice text, bool maybe_now);
void run_finish_completed(struct run *run, bool with_last);
void run_finish_cancelled(struct run *run, bool maybe_now);
/* The end by a cancel, the deadline or spent attempts, now that nothing hangs in the air: after a
 * cancel undo steps come before it. */
void run_end_by_wish(struct run *run, bool maybe_now);
/* Takes the answer; false: suspended. */
bool run_written(struct run *run);

/* run_keep.c */
/* HF_INVALID, HF_CORRUPT: what is stored cannot be read; the run goes no further. */
enum hf_code run_keep_claim(struct run *run, const struct claimed_task *task, struct hf_err *err);
/* Keeps the state of a phase in both forms; not yet known to templates. */
enum hf_code run_keep_state(struct run *run, int phase, struct slice msgpack, struct hf_err *err);
struct checkpoint *run_checkpoint_find(struct run *run, struct slice name);
void run_checkpoint_keep(struct run *run, int32_t place, struct slice name, struct slice value);
/* The answer of the request that was accepted, from its checkpoint: into scope. */
enum hf_code run_keep_accepted(struct run *run, struct hf_err *err);
/* Sets up key and scope of run->phase. HF_MISSING: this worker has no such key. */
enum hf_code run_scope_set(struct run *run, struct hf_err *err);
void run_keep_free(struct run *run);

/* run_phase.c */
void run_progress_phase(struct run *run);
/* The phase cannot go on; its own outcome no longer counts. */
void run_break(struct run *run, enum phase_outcome outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For the log: nullptr where the call brought no trace. */
const char *run_trace_id(const struct run *run);

/* run_outcome.c: the words of outcomes. */
/* "phase: text", where the text does not begin with the phase's name by itself. */
void outcome_name(const struct run *run, struct slice text, struct buf *out);
/* HF_MISSING, HF_INVALID, HF_LIMIT: the templates do not fit what the phases gave. */
enum hf_code outcome_result(struct run *run, struct buf *out, struct hf_err *err);
void outcome_tool_error(struct run *run, struct slice text, bool maybe_now, struct buf *out);
void outcome_error(struct run *run, const char *type, struct slice text, bool maybe_now,
		   struct buf *out);
/* What follows the reason of an unknown outcome: with the key to look for, where the phase carries
 * one of itself. */
void outcome_unknown(const struct run *run, struct buf *more);
/* "what: text; done before: collect, render" with " (publish may have happened)" by `maybe_now`. */
void outcome_message(struct run *run, struct slice text, bool maybe_now, struct buf *out);
