/* bench_wal.h - what a stretch of work cost the disk, read from the write-ahead log itself. */
#pragma once

#include <libpq-fe.h>
#include <stdint.h>

#include "runtime/err.h"

struct wal_mark {
	char lsn[32];          /* pg_current_wal_insert_lsn() */
	int64_t async_commits; /* so far, of functions that do not wait for the disk */
};

struct wal_cost {
	double bytes, fpi_bytes; /* fpi: full-page images, a part of bytes */
	double durable_commits;
};

enum hf_code wal_mark_take(PGconn *db, struct wal_mark *mark, struct hf_err *err);
/* Between a mark and now. Durable commits are the COMMIT records of the log, less the calls of
 * functions named *_async (rule 5: those and no others switch synchronous_commit off, and each call
 * is a transaction of its own). Postgres publishes call counts within a second, so with hundreds of
 * asynchronous commits a second the figure is right to about as many commits. */
enum hf_code wal_cost_since(PGconn *db, const struct wal_mark *mark, struct wal_cost *cost,
			    struct hf_err *err);
