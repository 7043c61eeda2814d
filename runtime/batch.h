/* batch.h - natural batching: what arrives while a batch is in flight forms the next one; an idle
 * batcher sends at the end of the loop's turn. One kind of operation each, one flight at a time.
 * A batch that Postgres refuses for its values is halved until the culprit rides alone (rule 10);
 * for a minute after that its source never shares a batch, and batches of its own and of others
 * take turns, so that one who sends poison halves nobody else's. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/db.h"
#include "runtime/slice.h"

constexpr size_t BATCH_ROWS_MAX = 256;       /* of one statement */
constexpr size_t BATCH_BYTES_MAX = 1 << 20;  /* of one statement, past its first row */
constexpr size_t BATCH_ALONE_MAX = 64;       /* sources kept apart; past it the oldest is let in */
constexpr int64_t BATCH_ALONE_MS = 60'000;   /* for so long after its last refusal */
constexpr size_t BATCH_WAITING_MAX = 20'000; /* rows; past it HF_LIMIT at once */

/* Embedded at the head of each operation; lives until deliver or fail. */
struct batch_item {
	struct batch_item *next;
	struct batch_item
	    *folded;  /* items with the same key that ride along, where the kind folds */
	int32_t week; /* a statement is about one week; 0 where it does not matter */
	size_t bytes;
	int64_t source;        /* whose row it is, an owner or a task; 0: nobody's */
	struct slice key;      /* two items of one statement never share it; may be empty */
	int64_t give_up_at_ms; /* boot time; 0: never */
};

struct batch_kind {
	const char *name; /* of the act, in metrics */
	const char *sql;
	bool folds; /* equal keys share a row; else the later one waits for the next batch */
	void (*build)(struct batch_item *const *items, size_t count, struct pgparams *params);
	/* Each item is delivered exactly once and freed by the kind: items[0 … count) in the order
	 * of build, with the rows of the statement. */
	void (*deliver)(struct batch_item *const *items, size_t count, const PGresult *result);
	void (*fail)(struct batch_item *item, enum hf_code code, const struct hf_err *err);
};

/* Whose rows were refused of late. */
struct batch_alone {
	int64_t source, until_ms; /* boot time */
};

struct batch {
	const struct batch_kind *kind;
	struct db *db;
	int64_t give_up_ms; /* of each item; 0: never */
	/* private */
	struct ev_loop *loop;
	struct batch_item *head, **tail;
	struct batch_item *refused; /* past the limit, to be told at the end of the turn */
	size_t waiting;
	size_t rows_limit;
	struct batch_alone alone[BATCH_ALONE_MAX];
	size_t alone_count;
	bool was_alone; /* the last batch: the next is for the others, if any wait */
	struct batch_item **flight;
	size_t flight_count;
	int64_t sent_ms; /* boot time; the flight */
	char bound[32];  /* the name of its queue in metrics */
	struct ev_check *kick;
	struct ev_timer *timer;
};

void batch_init(struct batch *batch, struct ev_loop *loop, struct db *db,
		const struct batch_kind *kind, int64_t give_up_ms);
/* Fails what waits with HF_CANCELLED; what is in flight ends with its db. Before db_close. */
void batch_stop(struct batch *batch);
/* Sets its gauges. */
void batch_collect(const struct batch *batch);
void batch_deinit(struct batch *batch);
/* Never calls back from inside; an item past BATCH_WAITING_MAX fails with HF_LIMIT soon after. */
void batch_add(struct batch *batch, struct batch_item *item);
