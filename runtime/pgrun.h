/* pgrun.h - one statement after the other on one connection, in plain sequential code: for commands
 * and maintenance. Both block, unless pg_turn has said what else has to go on meanwhile. */
#pragma once

#include <libpq-fe.h>
#include <stdint.h>

#include "runtime/base.h"
#include "runtime/err.h"

struct ev_loop;

HF_DEFINE_CLEANUP(conn, PGconn *, PQfinish)
HF_DEFINE_CLEANUP(result, PGresult *, PQclear)

constexpr int64_t PG_ANSWER_MS = 60'000; /* where a loop is turned */
constexpr int64_t PG_STOP_MS = 2'000; /* for what is in flight, or yet to be sent, after a stop */

/* Connects to the host that takes writes (pgdial.h), or HF_DB. `name`: application_name. */
enum hf_code pg_connect(const char *dsn, const char *name, PGconn **conn, struct hf_err *err);
/* The same for who only reads: a primary that was told to write nothing will do. */
enum hf_code pg_connect_reading(const char *dsn, const char *name, PGconn **conn,
				struct hf_err *err);

/* One statement without rows, or with: HF_DB with the SQLSTATE on failure. `result` (nullable) is
 * the caller's to PQclear. HF_TIMEOUT: it may have happened, or yet happen, and the connection is
 * of no more use; also where a WARNING came with it (rule 11). */
enum hf_code pg_run(PGconn *conn, const char *sql, int count, const char *const *values,
		    PGresult **result, struct hf_err *err);

/* From now on the two turn `loop` while they wait; what it calls back must not call them. Times are
 * bounded then, and by PG_STOP_MS once *stop is set. */
void pg_turn(struct ev_loop *loop, const bool *stop);
