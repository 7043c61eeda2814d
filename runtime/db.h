/* db.h - one libpq connection on libev, in pipeline mode, kept open for ever: reconnects by itself
 * with backoff, and sends a call again whose answer was lost (every function of ours may be called
 * twice, rule 11). A call is one statement with its own Sync, so it is one transaction (rule 5);
 * it counts as committed only at that Sync. Each new connection begins with a waiting commit before
 * anything is read from it (rule 13). Where one connection of a process learns that its primary
 * takes no writes any more, or finds a newer one, the others are closed too and look for it. */
#pragma once

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/err.h"
#include "runtime/pgvalue.h"

struct ev_loop;
struct db;

constexpr int64_t DB_ANSWER_MS = 40'000;    /* for the oldest call in flight; then reconnect */
constexpr int64_t DB_SLOW_MS = 5'000;       /* a call in flight for longer: not up, for readiness */
constexpr int64_t DB_BACKOFF_FIRST_MS = 50; /* between tries; doubled, with full jitter */
constexpr int64_t DB_BACKOFF_MAX_MS = 2'000;

struct db_options {
	const char *dsn;
	const char *name;   /* in application_name and logs: "api write" */
	const char *listen; /* channel to listen on, or nullptr */
	int64_t answer_ms;  /* without an answer for so long it is lost; 0: DB_ANSWER_MS */
	void (*notified)(void *ctx, const char *payload);
	void (*connected)(void *ctx); /* after each (re)connect; nullable */
	const char *admission; /* as of struct pgdial_options, and so is the next; nullable */
	void (*refused)(void *ctx, const char *why);
	void *ctx;
};

/* Strings are copied. Starts to connect at once. */
struct db *db_open(struct ev_loop *loop, const struct db_options *options);
/* Calls that are still open get HF_CANCELLED. */
void db_close(struct db *db);
/* Connected, and answering. */
bool db_is_up(const struct db *db);
/* Sets its gauges; its lane is the last word of its name. */
void db_collect(const struct db *db);

/* `result` has its rows in binary. Exactly one call, never from inside db_call:
 * HF_OK with a result; HF_INVALID with the SQLSTATE where Postgres refuses the values
 * (PGFAIL_REFUSED), nothing was committed; after give_up_ms HF_BUSY where nothing was committed nor
 * will be, else HF_TIMEOUT; HF_CANCELLED at db_close. Every other trouble is waited out: reconnect,
 * send again. */
typedef void db_done(void *ctx, enum hf_code code, const PGresult *result,
		     const struct hf_err *err);

/* As db_call, and `ended` is told when nothing of the call is held here any more: behind `done`,
 * and where that was told that it gave up on what is in flight, when the answer has come or the
 * connection is lost. */
void db_call_until(struct db *db, const char *sql, struct pgparams *params, int64_t give_up_ms,
		   db_done *done, void (*ended)(void *ctx), void *ctx);

/* `sql` must live for ever (a literal). Takes the params over and leaves them empty.
 * give_up_ms 0: never. */
void db_call(struct db *db, const char *sql, struct pgparams *params, int64_t give_up_ms,
	     db_done *done, void *ctx);
