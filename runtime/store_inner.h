/* store_inner.h - what store.c, store_api.c and store_worker.c share; nobody else includes it. */
#pragma once

#include <ev.h>

#include "runtime/batch.h"
#include "runtime/db.h"
#include "runtime/store.h"

/* Lanes: a read never waits behind a durable commit (rule 10), a beat behind nothing. */
enum lane {
	LANE_WRITE, /* accept, cancel · step, finish, release, artifact_put */
	LANE_READ,  /* poll, catalog, wake-ups · claim, artifact_get, tool files */
	LANE_BEAT,  /* beat, leave, and LISTEN */
	LANES,
};

/* Batched operations; the first five are the API's. */
enum batch_number {
	BATCH_ACCEPT,
	BATCH_POLL,
	BATCH_CANCEL,
	BATCH_ATTACH,
	BATCH_DETACH,
	BATCH_STEP,
	BATCH_FINISH,
	BATCH_RELEASE,
	BATCHES,
};

/* The log's end within a statement that writes, see runtime/lineage.h; null where it does not: what
 * writes nothing waits for nothing, so it proves nothing. */
#define STORE_WAL                                                 \
	"CASE WHEN pg_current_xact_id_if_assigned() IS NOT NULL " \
	"THEN pg_current_wal_insert_lsn() END AS wal"

constexpr int64_t WAKE_EVERY_MS = 5; /* at most one wake-up in that time */
/* A beat waits for no disk. A connection that has gone silent is replaced while the lease of the
 * last acknowledged one still runs, by default settings. */
constexpr int64_t BEAT_ANSWER_MS = 2'500;
constexpr int64_t WAKE_REST_MS = 1'000;   /* from LISTEN to the first of one's own, */
constexpr int64_t WAKE_PROOF_MS = 5'000;  /* which must be heard within this, */
constexpr int64_t WAKE_AGAIN_MS = 30'000; /* or is said once more then */

struct store {
	struct ev_loop *loop;
	enum store_role role;
	struct db *lanes[LANES]; /* nullptr where the role has none */
	struct batch batches[BATCHES];
	/* a wake-up to be sent */
	ev_timer wake_timer;
	bool waking[WAKES];
	int64_t woke_at_ms;
	ev_timer proof_timer;
	char hello[32]; /* that this process waits to hear from itself; or empty */
	bool wakes_come, told_none;
	void (*on_wake)(void *ctx, enum wake wake);
	void *on_wake_ctx;
	void (*refused)(void *ctx, const char *why);
	void *refused_ctx;
	struct uuid beaten; /* the incarnation whose row the store has seen us make */
	bool has_beaten;
	uint64_t claims; /* calls so far: see claim() */
	int64_t beat_ms; /* boot time of sending the last acknowledged beat; 0: none */
};

extern const struct batch_kind batch_accept, batch_poll, batch_cancel, batch_attach, batch_detach;
extern const struct batch_kind batch_step, batch_finish, batch_release;

/* Tells every process, soon and once. */
void store_wake(struct store *store, enum wake wake);

void store_add(struct store *store, enum batch_number number, struct batch_item *item);

/* In a `build` of struct batch_kind: an array parameter, to which `add` appends what `item` has. */
#define batch_column(type, add)                               \
	do {                                                  \
		pgparams_array(params, (type));               \
		for (size_t nth = 0; nth < count; nth++) {    \
			struct batch_item *item = items[nth]; \
			add;                                  \
		}                                             \
	} while (0)

/* The item that a row answers: its first column is the place in the batch, from 1 on. */
struct batch_item *batch_answered(struct batch_item *const *items, size_t count,
				  const PGresult *result, int row);

/* Reads columns state … of a views() row into `view`, starting at `column` of task. */
struct view_columns {
	int task, tool, state, attempt, created, updated, ended, ttl, progress, message, result,
	    error, effect_id, successor; /* -1: not in the result */
};
void store_read_view(const PGresult *result, int row, const struct view_columns *columns,
		     struct task_view *view);
