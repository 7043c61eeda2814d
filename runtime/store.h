/* store.h - every durable operation, one function of sql/functions each. All are asynchronous on
 * the loop the store was opened with; `done` is called exactly once, never from inside the call.
 * What arrives while a batch is in flight forms the next batch. A lost answer is resolved here:
 * the same statement is sent again until the store has said what happened, for as long as Postgres
 * is away. The API's operations alone give up, after STORE_GIVE_UP_MS, with HF_BUSY
 * (nothing happened, nor will) or HF_TIMEOUT (it may have).
 * Slices and strings given are copied; those handed to `done` live until it returns. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/err.h"
#include "runtime/id.h"
#include "runtime/key.h"
#include "runtime/slice.h"
#include "runtime/task.h"

struct ev_loop;
struct store;

constexpr int64_t STORE_GIVE_UP_MS = 2'000; /* accept, poll, cancel: then HF_BUSY or HF_TIMEOUT */

/* How an operation that gives nothing back ends. */
typedef void store_done(void *ctx, enum hf_code code, const struct hf_err *err);

enum store_role { STORE_API, STORE_WORKER };

/* Each connection begins with a comparison of the keys file: where the store knows another secret
 * under one of its versions, nothing is ever sent, and `refused` is told, more than once perhaps:
 * the process has to end. Versions that the store does not know are kept, first come, first served.
 */
struct store_keys {
	const struct keyring *keyring;
	void (*refused)(void *ctx, const char *why);
	void *ctx;
};

/* Opens the lanes (connections) in the background and keeps them open; operations may be called
 * at once. `dsn` is a libpq connection string with the role as its user. `wake_dsn`, or nullptr for
 * the same, is that of the lane that listens: a pooler takes a LISTEN and delivers nothing. */
struct store *store_open(struct ev_loop *loop, enum store_role role, const char *dsn,
			 const char *wake_dsn, const struct store_keys *keys);
/* Drops what is in flight; `done` of every pending call is called with HF_CANCELLED. */
void store_close(struct store *store);
/* Every lane is connected and answered lately: what /readyz says. */
bool store_ready(const struct store *store);
/* Sets the gauges of lanes, queues and beats. */
void store_collect(const struct store *store);

/* --- API -------------------------------------------------------------------------------------- */

/* The owner number of a principal, made on first sight; stable for ever, so cache it. */
void store_principal(
    struct store *store, struct slice issuer, struct slice subject, struct slice tenant,
    void (*done)(void *ctx, enum hf_code code, int64_t owner, const struct hf_err *err), void *ctx);

/* The current version of each tool, `doc` is tool.json (read it by tool_new without files); and the
 * prompts and resources of each pack, `doc` as pack.h has it. */
struct store_tool {
	int32_t id;
	struct slice name, version, doc;
};
struct store_pack {
	struct slice name, doc;
};
struct store_catalog {
	int64_t number; /* another one where anything changed */
	const struct store_tool *tools;
	size_t tools_count;
	const struct store_pack *packs;
	size_t packs_count;
};
/* `since` is the number of the last look, 0 for none: where it is still the same, the rest is
 * empty. */
void store_catalog(struct store *store, int64_t since,
		   void (*done)(void *ctx, enum hf_code code, const struct store_catalog *catalog,
				const struct hf_err *err),
		   void *ctx);

/* For who counts what the store holds: called once nothing of an operation is in flight any more,
 * which may be long after `done` was told that it gave up; never before. */
struct store_end {
	void (*ended)(void *ctx);
	void *ctx;
};

/* An artifact of a task of its owner, from the last phase that made one of that name and is done:
 * its bytes are final. Over `bytes_max`: `content` is empty, `size` tells. HF_MISSING: no such
 * task of that owner, or no such artifact (V8). */
struct store_artifact {
	struct slice media_type, content;
	int64_t size;
};
struct artifact_look {
	int64_t owner;
	const struct task_id *id;
	struct slice name;
	size_t bytes_max;
};
void store_artifact_of(struct store *store, const struct artifact_look *look, struct store_end end,
		       void (*done)(void *ctx, enum hf_code code,
				    const struct store_artifact *artifact,
				    const struct hf_err *err),
		       void *ctx);

struct accept_call {
	int64_t owner;
	int32_t tool;
	int64_t result_ttl_ms; /* of the tool */
	struct slice tool_name;
	struct slice effect_id;
	struct slice arguments; /* the client's own bytes; the carried effect ID may be absent */
	/* What was answered before the call is accepted: a JSON object, or empty. */
	struct slice inputs;
	int asks;           /* what the client can be asked: a sum of INPUT_… of input.h */
	struct slice trace; /* traceparent, or empty */
	unsigned char fingerprint[FINGERPRINT_BYTES];
	int key_version;
	/* A plain call: its API's incarnation and its own number there, from 1. Number 0: a client
	 * that declares Tasks, whose task is held for good. */
	struct uuid api;
	int64_t number;
};

enum accept_outcome {
	ACCEPT_NEW,
	ACCEPT_SAME,     /* a repeat: the view is of the first task */
	ACCEPT_CONFLICT, /* same effect ID, other arguments: nothing ran; no view */
	ACCEPT_EXPIRED,  /* a tombstone: it ran, its result is gone; no view */
	ACCEPT_FULL,     /* it would be new, and its tool's backlog is full: nothing was stored */
};

/* What may be told to the owner of a task. */
struct task_view {
	struct task_id id;
	enum task_state state;
	int32_t tool;
	int attempt;        /* of the current or last phase; 0 before the first claim */
	int64_t created_ms; /* database time */
	int64_t updated_ms;
	int64_t ended_ms; /* 0 while open */
	int64_t result_ttl_ms;
	double progress;      /* 0…1, or negative: none */
	struct slice message; /* for a person; may be empty */
	struct slice result;  /* completed: the stored object {"content": …}; else empty */
	struct slice error;   /* failed: the stored JSON-RPC error object; else empty */
	struct slice effect_id;
	/* store_poll alone, waiting: what it asks, a JSON object key -> request; else empty. */
	struct slice requests;
	/* After an operator's retry, in the failed task's view and the newer one's: the newer. */
	bool has_successor;
	struct task_id successor;
};

/* One shared commit for all accepts that arrived meanwhile; equal keys are folded. ACCEPT_NEW is
 * said after that commit is durable (R1.3, V2). HF_BUSY, HF_LIMIT: say executed "no"; HF_TIMEOUT:
 * "maybe" (a repeat finds it, should the commit have gone through). */
void store_accept(struct store *store, const struct accept_call *call,
		  void (*done)(void *ctx, enum hf_code code, enum accept_outcome outcome,
			       const struct task_view *view, const struct hf_err *err),
		  void *ctx);

/* HF_MISSING: unknown, foreign, expired: one answer (V8). Never waits behind a commit. */
void store_poll(struct store *store, int64_t owner, const struct task_id *id,
		void (*done)(void *ctx, enum hf_code code, const struct task_view *view,
			     const struct hf_err *err),
		void *ctx);

/* The newest task of an effect. HF_MISSING: none was ever accepted for this owner and tool, or it
 * is long forgotten. The task itself may be gone: store_poll tells. */
void store_find(struct store *store, int64_t owner, struct slice tool_name, struct slice effect_id,
		void (*done)(void *ctx, enum hf_code code, const struct task_id *id,
			     const struct hf_err *err),
		void *ctx);

/* Answers of the owner of a task to what it asks: a JSON object key -> answer (scanned). HF_OK once
 * they are durable; whatever is not asked, or answered already, is passed by, and so is all where
 * the task is over. `taken`: how many were new. HF_MISSING as above. */
void store_answer(struct store *store, int64_t owner, const struct task_id *id,
		  struct slice answers, struct store_end end,
		  void (*done)(void *ctx, enum hf_code code, int taken, const struct hf_err *err),
		  void *ctx);

/* The effect ID of a call that carries none (R1.9): `fresh`, or that of the first such call of the
 * same owner, tool and fingerprint, if it was within `window_ms`. A waiting commit. */
void store_intent_window(struct store *store, const struct accept_call *call, struct slice fresh,
			 int64_t window_ms,
			 void (*done)(void *ctx, enum hf_code code, struct slice effect_id,
				      const struct hf_err *err),
			 void *ctx);

/* HF_OK once the wish is durable or the task is terminal; HF_MISSING as above. */
void store_cancel(struct store *store, int64_t owner, const struct task_id *id, store_done *done,
		  void *ctx);

/* A plain call that still waits joins its task again; a parked one is taken up. HF_OK
 * also where it is held or over. */
void store_attach(struct store *store, int64_t owner, const struct task_id *id,
		  const struct uuid *api, int64_t number, store_done *done, void *ctx);

/* A plain call leaves its task. `park`: it hung up, so work stops; else it was answered and work
 * goes on. `ours`: nobody had joined since and no client that declares Tasks holds it; `step` is
 * the phase it stands at, from 1. Never gives up. */
void store_detach(struct store *store, const struct task_id *id, const struct uuid *api,
		  int64_t number, bool park,
		  void (*done)(void *ctx, enum hf_code code, bool ours, int step,
			       const struct hf_err *err),
		  void *ctx);

/* --- Every process ---------------------------------------------------------------------------- */

/* What is asked of whoever runs a task. */
enum wish { WISH_NONE, WISH_PARK, WISH_CANCEL };

struct beat_task {
	struct task_id id;
	struct uuid token;
	double progress;
	struct slice message;
};
struct beat_wish {
	struct task_id id;
	struct uuid token;
	enum wish wish;
};
/* One beat, carrying progress; not a waiting commit. `alive` false: the store has declared this
 * incarnation dead, its claims and attachments are others' now. `wishes` lists claims of which
 * something is asked. An API beats too, without tasks. */
void store_beat(struct store *store, const struct uuid *incarnation, int capacity, int running,
		const struct beat_task *tasks, size_t count,
		void (*done)(void *ctx, enum hf_code code, bool alive,
			     const struct beat_wish *wishes, size_t wishes_count,
			     const struct hf_err *err),
		void *ctx);
/* Takes the incarnation's row away, once it holds no claim. */
void store_leave(struct store *store, const struct uuid *incarnation, store_done *done, void *ctx);

/* --- Worker ----------------------------------------------------------------------------------- */

/* The last three come with a claim alone. STEP_INTENT: "about to send", by an earlier claim of this
 * phase. STEP_INBOX: what the task asked, or was answered before it asked: `name` is the key,
 * `state` JSON text {"phase": …, "how": …, "request": …, "answer": …}, see input.sql.
 * STEP_GENERATION: the name is the generation of the phase's key, where it is not 0. */
enum step_kind : unsigned char {
	STEP_RECOVERY_POINT,
	STEP_CHECKPOINT,
	STEP_OUTCOME,
	STEP_INTENT,
	STEP_INBOX,
	STEP_GENERATION,
};

/* The undo step of phase p is a phase of its own, with a number after all others: they run in
 * reverse, by the same rules, and end at recovery points as well. */
constexpr int UNDO_PHASE_FIRST = 64, UNDO_PHASE_END = 128;
static inline int undo_phase(int phase) /* and back */
{
	return UNDO_PHASE_END - 1 - phase;
}

constexpr int32_t STEP_PLACES_PER_PHASE = 65'536;
constexpr int32_t STEP_PLACE_OUTCOME = INT32_MAX;
/* Place of a recovery point of phase p, and of its nth checkpoint (from 1). */
static inline int32_t step_place_recovery(int phase)
{
	return phase * STEP_PLACES_PER_PHASE + STEP_PLACES_PER_PHASE - 1;
}
static inline int32_t step_place_checkpoint(int phase, int n)
{
	return phase * STEP_PLACES_PER_PHASE + n;
}
/* The checkpoint of an http phase that its request was accepted. settle() knows this place. */
constexpr int STEP_ACCEPTED = STEP_PLACES_PER_PHASE - 3;

struct claimed_step {
	enum step_kind kind;
	int32_t place;
	struct slice name;
	struct slice state; /* msgpack */
};

/* The phases of a task that are still to come may have run between these times, before a restore
 * took what is known of it. */
struct lost_tail {
	int64_t from_ms, to_ms; /* to_ms: the last possible send; 0: there is none */
	bool is_new;            /* not this task may have, but one of which it may be the repeat */
};

struct claimed_task {
	struct task_id id;
	struct uuid token;
	int32_t tool;
	int phase, attempt, crashes; /* attempt counts this claim: 1 for a first */
	bool cancel;                 /* a cancel was asked for before the claim */
	int64_t now_ms;              /* database time at the claim; the next three relate to it */
	int64_t deadline_ms;
	int64_t first_try_ms; /* of this phase; equal to now_ms when this is provably the first */
	int64_t sent_ms;      /* last possible earlier send of this phase; 0: none */
	int64_t owner;
	struct slice issuer, subject, tenant, effect_id, trace, arguments;
	struct slice inputs; /* what was answered before the acceptance, JSON; or empty */
	int asks;            /* what the caller can be asked: a sum of INPUT_… of input.h */
	struct lost_tail tail;
	bool copy; /* of a store, not confirmed by an operator: nothing foreign may run */
	int key_version;
	struct uuid cluster;
	const struct claimed_step *steps; /* in place order */
	size_t steps_count;
};

/* Up to `limit` tasks of these queues (tool versions), due now. A waiting commit: "this phase may
 * have been sent" is durable before done is called (rule 4). Zero tasks is HF_OK. */
void store_claim(struct store *store, const struct uuid *incarnation, const int32_t *queues,
		 size_t queues_count, int limit,
		 void (*done)(void *ctx, enum hf_code code, const struct claimed_task *tasks,
			      size_t count, const struct hf_err *err),
		 void *ctx);

/* What a fenced write came to. */
enum fence {
	FENCE_HELD,    /* written, or had been written by us already */
	FENCE_ADOPTED, /* another claim defined this place first: `state` is its; go on with that */
	FENCE_LOST,    /* the claim is another's, or the task is over: stop, kill, forget */
};
/* How a write under a claim ends that gives nothing back. */
typedef void store_fenced(void *ctx, enum hf_code code, enum fence fence, const struct hf_err *err);

struct step_write {
	struct task_id id;
	struct uuid token;
	enum step_kind kind; /* recovery point or checkpoint */
	int32_t place;
	int phase; /* that it belongs to */
	struct slice name, state;
	struct slice derived_key; /* or empty */
	struct slice answer;      /* or empty */
	int attempt;
	int64_t took_ms; /* of the attempt, measured here */
};
/* A recovery point moves the task to phase + 1 and makes "may have been sent" of that phase
 * durable in the same commit. */
void store_step(struct store *store, const struct step_write *step,
		void (*done)(void *ctx, enum hf_code code, enum fence fence, enum wish wish,
			     struct slice adopted_state, const struct hf_err *err),
		void *ctx);

struct outcome_write {
	struct task_id id;
	struct uuid token;
	enum task_state state; /* terminal */
	struct slice result;   /* completed: the object to store */
	struct slice error;    /* failed: JSON-RPC error object with data.executed */
	struct slice message;  /* or empty */
	int attempt;
	/* The last phase's recovery point in the same commit; nullptr where none was reached. */
	const struct step_write *last;
};
void store_finish(struct store *store, const struct outcome_write *outcome, store_fenced *done,
		  void *ctx);

enum release {
	RELEASE_RETRY,      /* an attempt failed: due after delay_ms, the attempt is spent */
	RELEASE_AGAIN,      /* to be asked again after delay_ms, no attempt is spent */
	RELEASE_BACK,       /* given back at once (shutdown, parking); no attempt is spent */
	RELEASE_CRASH,      /* the tool's process died: crashes + 1, no attempt is spent */
	RELEASE_UNKNOWN,    /* may have happened, nobody can tell: state unknown (V7) */
	RELEASE_UNVERIFIED, /* accepted downstream, not yet seen: looked for after delay_ms */
	RELEASE_UNDO,       /* nothing of its phase is left open: its undo steps are next */
	RELEASE_ASK,        /* store_ask, never store_release */
};
struct release_write {
	struct task_id id;
	struct uuid token;
	enum release how;
	int64_t delay_ms;
	bool maybe_sent;     /* a request may have left in this attempt */
	struct slice reason; /* for a person */
};
void store_release(struct store *store, const struct release_write *release, store_fenced *done,
		   void *ctx);

/* What a phase asks, with which it gives its claim back: the task waits, or is ready at once where
 * nothing is left open (see ask() of input.sql). */
struct ask_write {
	struct task_id id;
	struct uuid token;
	int phase;
	struct slice questions; /* JSON array of {"key", "request"} */
	int64_t wait_ms;        /* from the first asking of each; 0: until the deadline */
	bool maybe_sent;        /* a request may have left in this attempt */
	struct slice reason;    /* for a person */
};
void store_ask(struct store *store, const struct ask_write *ask, store_fenced *done, void *ctx);

/* "About to send" for a phase that is neither keyed nor readable back, durable before `done`. It
 * stands until a release says that nothing left, or a person has settled it. */
void store_intent(struct store *store, const struct task_id *id, const struct uuid *token,
		  int phase, struct slice name, store_fenced *done, void *ctx);

void store_artifact_put(struct store *store, const struct task_id *id, const struct uuid *token,
			int phase, struct slice name, struct slice media_type, struct slice content,
			store_fenced *done, void *ctx);
/* The newest artifact of that name up to `phase`. HF_MISSING: there is none. */
void store_artifact_get(struct store *store, const struct task_id *id, int phase, struct slice name,
			void (*done)(void *ctx, enum hf_code code, struct slice media_type,
				     struct slice content, const struct hf_err *err),
			void *ctx);

/* A version with all its files, to be served by a worker. */
struct store_file {
	struct slice path, content;
	bool executable;
};
void store_tool_files(struct store *store, int32_t tool,
		      void (*done)(void *ctx, enum hf_code code, const struct store_tool *tool,
				   const struct store_file *files, size_t count,
				   const struct hf_err *err),
		      void *ctx);
/* Versions that have open work or are current: what a worker should be able to serve. */
void store_versions(struct store *store,
		    void (*done)(void *ctx, enum hf_code code, const int32_t *tools, size_t count,
				 const struct hf_err *err),
		    void *ctx);

/* A wake-up arrived (a hint): new work, a wish to a worker, or tasks that ended. */
enum wake { WAKE_WORK, WAKE_WISH, WAKE_ENDED, WAKES };
void store_on_wake(struct store *store, void (*wake)(void *ctx, enum wake wake), void *ctx);
