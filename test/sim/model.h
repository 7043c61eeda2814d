/* model.h - the store in memory: what the functions of sql/functions decide, one C function for
 * each, at once and without a thread or a lock. One item where SQL takes an array: a batch there is
 * its items in the order of their tasks. The differential run holds each of them against Postgres.
 *
 * Not in it: limits of tools (limits.sql) and lost tails (restore.sql); where a tool has no limit
 * and the store was never restored, these change nothing.
 *
 * Time is `now_ms`, which the caller sets. Nothing is random but what the caller hands in. Slices
 * given are copied; an empty one is NULL where store.h says "or empty". What is given back lives
 * until the next call that changes the model; a claim, whole, until the next claim. */
#pragma once

#include "runtime/store.h"

/* --- What is stored: to be read, never written by others -------------------------------------- */

struct arena;
struct heap;

/* A place in an ordered heap. */
struct model_spot {
	int64_t key;
	uint64_t order; /* among equal keys, first in first out */
	size_t at;      /* 1 + index, 0: in none */
};

struct model_step {
	int32_t place;
	enum step_kind kind; /* recovery point, checkpoint, outcome */
	int attempt, generation;
	struct slice name;
	struct slice state, result, error, message, derived_key, answer; /* data nullptr: NULL */
	bool has_token;
	struct uuid token;
	int64_t started_ms, at_ms; /* started: -1 for NULL */
	bool has_origin;
	struct task_id origin;
};

struct model_event {
	const char *kind; /* static */
	int phase, attempt;
	struct slice text; /* data nullptr: NULL */
	int64_t at_ms;
};

struct model_intent {
	int phase;
	struct uuid token;
	struct slice name;
	int64_t at_ms;
};

enum model_how { MODEL_OPEN, MODEL_ANSWERED, MODEL_SILENCE };
struct model_question {
	struct slice key;
	int phase;                  /* -1: answered before it was asked */
	struct slice request;       /* data nullptr: NULL; so is the answer */
	int64_t asked_ms, until_ms; /* -1: NULL */
	enum model_how how;
	struct slice answer;
	int64_t answered_ms;
};

struct model_artifact {
	int phase;
	struct slice name, media_type, content;
	int64_t at_ms;
};

/* The rows of one task: task; while `open` also work; step, event, intent, inbox, artifact. */
struct model_task {
	struct task_id id;
	int32_t week, tool;
	int64_t owner;
	struct slice effect_id, arguments, inputs, trace;
	unsigned char digest[EFFECT_DIGEST_BYTES], fingerprint[FINGERPRINT_BYTES];
	int asks, key_version;
	int64_t accepted_ms, deadline_ms, result_ttl_ms;
	bool has_successor, has_retry_of;
	struct task_id successor, retry_of;
	int *generations; /* one a phase of the tool; nullptr: all 0 */
	int64_t tried_ms; /* -1: NULL */

	bool open;
	enum task_state state; /* terminal where not open */
	int64_t due_ms, updated_ms;
	bool has_token; /* is running */
	struct uuid token, incarnation;
	int phase, attempt, crashes;
	int64_t first_try_ms, sent_ms; /* -1: NULL */
	bool cancel, park, held, has_attached;
	struct uuid attached;
	int64_t attached_no;
	const char *pause; /* nullptr, "task", "tenant" */
	double progress;   /* negative: NULL */
	struct slice message;

	struct model_step *steps; /* in place order */
	struct model_event *events;
	struct model_intent *intents;     /* in order of (phase, token) */
	struct model_question *questions; /* in key order */
	struct model_artifact *artifacts;
	size_t steps_count, events_count, intents_count, questions_count, artifacts_count;

	/* the model's own */
	struct model_task *bucket_next;
	struct heap *heap;               /* that `due` is in */
	struct model_spot due, deadline; /* due: by state; once over, of the sweep */
	struct model_task *running_next, *running_prev, *attached_next, *attached_prev;
};

struct model_effect {
	unsigned char digest[EFFECT_DIGEST_BYTES], fingerprint[FINGERPRINT_BYTES];
	struct task_id task;
	int32_t tool;
	int64_t accepted_ms, tombstone_ms; /* -1: NULL */
	struct model_effect *bucket_next;
};

/* --- The model -------------------------------------------------------------------------------- */

struct model_phase {
	const char *name;
	const char
	    *effect; /* its class, as phase_effect() of operate.sql tells: "pure", "local", … */
	bool waits;  /* kind "wait" */
	bool timer;  /* of that kind: it asks nobody */
};

/* A version of a tool; strings and arrays are the caller's and stay. */
struct model_tool {
	int32_t tool; /* its number, and that of its queue; 1 or more, without great gaps */
	const char *name;
	int64_t result_ttl_ms, tombstone_ttl_ms, deadline_ms, park_ttl_ms;
	const struct model_phase *phases;
	int phases_count;
	const int *undos; /* phases that a cancel undoes */
	size_t undos_count;
	const char *const *inputs; /* keys that its wait phases declare */
	size_t inputs_count;
};

struct model_config {
	unsigned char cluster_number; /* byte 1 of task IDs */
	struct uuid cluster;          /* its incarnation */
	/* 8 random bytes for the second half of the token of a claim of this task, or for what a
	 * retry needs. */
	uint64_t (*draw)(void *ctx, const struct task_id *id);
	void *ctx;
	/* Nullable: which of two ready tasks that are due at once is claimed first, <0 for a. */
	int (*among_equals)(void *ctx, const struct model_task *a, const struct model_task *b);
};

struct model;
struct model *model_new(const struct model_config *config);
struct model *model_free(struct model *model); /* takes nullptr; returns nullptr */
void model_set_now(struct model *model, int64_t now_ms);
void model_tool_add(struct model *model, const struct model_tool *tool);
/* principal_owner(): the same number for the same principal, from 1. */
int64_t model_owner(struct model *model, struct slice issuer, struct slice subject,
		    struct slice tenant);

/* nullptr: no such rows (any more). */
const struct model_task *model_look(const struct model *model, const struct task_id *id);
const struct model_effect *model_look_effect(const struct model *model,
					     const unsigned char digest[EFFECT_DIGEST_BYTES]);
/* Every task, and every effect, in no order. */
void model_each(const struct model *model, void (*task)(void *ctx, const struct model_task *task),
		void (*effect)(void *ctx, const struct model_effect *effect), void *ctx);
size_t model_open_count(const struct model *model); /* rows of work */

/* --- API (accept.sql, input.sql) -------------------------------------------------------------- */

/* As accept_call() for one call: 'same' under our own random bytes stays ACCEPT_SAME here. The
 * view has no result, error, effect ID, requests or successor. */
enum accept_outcome model_accept(struct model *model, const struct accept_call *call,
				 const unsigned char random[16], struct task_view *view);
/* poll_task(); with `asking` poll_asking(), so with `requests`. False: HF_MISSING. */
bool model_poll(struct model *model, int64_t owner, const struct task_id *id, bool asking,
		struct task_view *view);
bool model_find(struct model *model, int64_t owner, struct slice tool_name, struct slice effect_id,
		struct task_id *id);
/* intent_window() of the digest of owner, tool and fingerprint. */
struct slice model_intent_window(struct model *model, const unsigned char digest[16],
				 struct slice fresh, int64_t window_ms);
struct model_cancelled {
	bool found, flagged; /* flagged: a worker is to be told */
};
struct model_cancelled model_cancel(struct model *model, int64_t owner, const struct task_id *id);
/* False: no open task of that owner. A null `api` (nullptr) holds it. */
bool model_attach(struct model *model, int64_t owner, const struct task_id *id,
		  const struct uuid *api, int64_t number);
struct model_detached {
	bool ours, running; /* running: a worker is to be told */
	int phase;          /* from 1 */
};
struct model_detached model_detach(struct model *model, const struct task_id *id,
				   const struct uuid *api, int64_t number, bool park);
struct model_answered {
	bool known, woken; /* woken: a worker is to be told */
	int taken;
};
/* `answers`: a scanned JSON object. */
struct model_answered model_answer(struct model *model, int64_t owner, const struct task_id *id,
				   struct slice answers);
bool model_artifact_of(struct model *model, int64_t owner, const struct task_id *id,
		       struct slice name, size_t bytes_max, struct store_artifact *artifact);

/* --- Every process (work.sql) ----------------------------------------------------------------- */

/* beat_async(): alive. Its rows are model_wishes(). */
bool model_beat(struct model *model, const struct uuid *incarnation, bool fresh,
		const struct beat_task *tasks, size_t count);
/* At most `most` of them; returns how many there are. */
size_t model_wishes(struct model *model, const struct uuid *incarnation, struct beat_wish *wishes,
		    size_t most);
void model_leave(struct model *model, const struct uuid *incarnation);
/* The counter of its row; 0: it has none. */
int64_t model_beats(const struct model *model, const struct uuid *incarnation);

/* --- Worker (work.sql, unknown.sql, input.sql) ------------------------------------------------ */

/* The same `call` again gives what it holds already. In the order of claiming. */
const struct claimed_task *model_claim(struct model *model, const struct uuid *incarnation,
				       const int32_t *queues, size_t queues_count, int most,
				       const struct uuid *call, size_t *count);
/* The memory of what the last claim gave, for arena_free: it lives on until then. nullptr: it gave
 * nothing. */
struct arena *model_claim_take(struct model *model);
/* `adopted` (data nullptr: NULL) is the state of whatever stands at the place and is not ours. */
enum fence model_step(struct model *model, const struct step_write *step, enum wish *wish,
		      struct slice *adopted);
enum fence model_finish(struct model *model, const struct outcome_write *outcome);
enum fence model_release(struct model *model, const struct release_write *release);
/* `ready`: a worker is to be told. */
enum fence model_ask(struct model *model, const struct ask_write *ask, bool *ready);
enum fence model_intent(struct model *model, const struct task_id *id, const struct uuid *token,
			int phase, struct slice name);
enum fence model_artifact_put(struct model *model, const struct task_id *id,
			      const struct uuid *token, int phase,
			      const struct store_artifact *artifact, struct slice name);
bool model_artifact_get(struct model *model, const struct task_id *id, int phase, struct slice name,
			struct store_artifact *artifact);
enum model_sql { MODEL_SQL_HELD, MODEL_SQL_DONE, MODEL_SQL_ADOPTED, MODEL_SQL_LOST };
enum model_sql model_sql_check(struct model *model, const struct task_id *id,
			       const struct uuid *token, int32_t place, enum wish *wish,
			       struct slice *state);
/* sql_fence(): HELD; ADOPTED is HF002, also where the point is ours; LOST is HF001. Nothing is
 * written but in HELD. */
enum model_sql model_sql_fence(struct model *model, const struct step_write *step, enum wish *wish);

/* --- Maintenance (maintain.sql, input.sql) ---------------------------------------------------- */

bool model_declare_dead(struct model *model, const struct uuid *incarnation, int64_t beat);
int model_reclaim(struct model *model, int most);
int model_expire_deadlines(struct model *model, int most);
int model_park_orphans(struct model *model, int most);
int model_expire_parked(struct model *model, int most);
int model_wake_answered(struct model *model); /* all pages */
/* Of all weeks where `week` is negative. */
int model_sweep(struct model *model, int32_t week, int most);
void model_sweep_tombstones(struct model *model); /* all pages */
int model_sweep_windows(struct model *model, int most);
bool model_lease_take(struct model *model, const char *name, const struct uuid *incarnation,
		      int64_t ttl_ms);

/* --- Operator (operate.sql, unknown.sql): the words that SQL answers with --------------------- */

/* Named who and why, as everywhere below. */
struct model_act {
	struct slice by, why;
};
struct model_verdict {
	const char *verdict; /* "done", "absent", "fail" */
	struct slice state, name;
	int64_t visible_within_ms;
	bool force;
};
const char *model_settle(struct model *model, const struct task_id *id,
			 const struct model_verdict *verdict, const struct model_act *act);
struct model_retry {
	int from_phase; /* negative: NULL */
	bool new_key;
	unsigned char random[16];
};
/* `successor` only with "retried" and "successor". */
const char *model_retry(struct model *model, const struct task_id *id,
			const struct model_retry *retry, const struct model_act *act,
			struct task_id *successor);
const char *model_pause_task(struct model *model, const struct task_id *id,
			     const struct model_act *act);
const char *model_resume_task(struct model *model, const struct task_id *id,
			      const struct model_act *act);
const char *model_cancel_task(struct model *model, const struct task_id *id,
			      const struct model_act *act);
const char *model_pause_all(struct model *model, const char *kind, const char *name);
const char *model_resume_all(struct model *model, const char *kind, const char *name);
void model_pause_pages(struct model *model); /* all pages */
int model_resume_tenant(struct model *model, const char *tenant, int most);
