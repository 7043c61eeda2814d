/* lineage.h - what this process remembers of its store, to notice one that was put in its place: a
 * copy, or an older state after a restore or an asynchronous fail-over. A place in the log is
 * remembered from each waiting commit that was acknowledged (STORE_WAL in runtime/store_inner.h);
 * a server that came up with less of the log has lost what somebody was told to be kept. A
 * fail-over or crash that loses nothing ends past that place, and is nobody's business.
 *
 * Blind spots: a process that was not running before knows nothing; and of each lane the very last
 * commit may be missed, where the tail was cut between its last row and its commit record. */
#pragma once

#include <stdint.h>

struct pg_result; /* libpq's PGresult */

/* What store_now() in sql/functions/restore.sql tells, and the timeline. Texts may be of any
 * length. */
struct lineage {
	const char *system;  /* of this Postgres */
	const char *home;    /* of the one that the store was last at home in */
	const char *held;    /* why it stands still; nullptr: it does not */
	int64_t restored;    /* rises with each `holdfast restored` */
	const char *started; /* of the postmaster */
	unsigned long timeline;
	uint64_t tail; /* where the log ended that it came up with; 0: shut down in order */
	uint64_t wal;  /* where it ends now */
};

enum lineage_verdict {
	LINEAGE_SAME, /* or the first, or restored by an operator's hand: remembered from now on */
	LINEAGE_HELD, /* it stands still until `holdfast restored` has run */
	LINEAGE_REPLACED, /* a primary that another one followed */
	LINEAGE_LOST,     /* something is missing, or it is a copy: ask for `holdfast restored` */
};

constexpr int LINEAGE_TEXT_LEN = 200;
constexpr char LINEAGE_WAITS[] = "restored store: run `holdfast restored`";

/* The one row of store_now(), in text; the strings are those of `result`. */
void lineage_read(const struct pg_result *result, unsigned long timeline, struct lineage *now);

/* `why` gets a text for people where it is not LINEAGE_SAME. */
enum lineage_verdict lineage_check(const struct lineage *now, char why[LINEAGE_TEXT_LEN]);
/* A waiting commit behind this place was acknowledged. */
void lineage_kept(uint64_t wal);
/* True where the store that was met last waits for `holdfast restored`. */
bool lineage_waits(void);
/* The newest timeline that any connection of this process has seen; 0: none. */
unsigned long lineage_timeline(void);
/* As if nothing had been seen. */
void lineage_forget(void);
