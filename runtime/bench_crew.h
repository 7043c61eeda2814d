/* bench_crew.h - threads that each have a connection and repeat one act until they are told to
 * stop; for the floors alone. */
#pragma once

#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include "runtime/err.h"

constexpr int CREW_MAX = 1'200;

struct crew {
	const char *dsn;
	void *ctx; /* the floor's own */
	/* private */
	atomic_bool stop;
	atomic_int ready, ended;
	atomic_long done;
	pthread_mutex_t mutex; /* of err */
	struct hf_err err;     /* the first failure */
	atomic_bool failed;
	pthread_t threads[CREW_MAX];
	int count;
};

struct crew *crew_new(const char *dsn, void *ctx);

/* Starts `count` threads of `body`, which calls crew_connect or crew_ready once, then repeats its
 * act while crew_goes, and crew_did after each. It returns where it cannot go on. */
void crew_add(struct crew *crew, int count, void *(*body)(void *crew));
/* All are ready: from then on acts are counted for `ms`. *per_s gets their rate. Ends early where
 * every thread has ended by itself. */
enum hf_code crew_measure(struct crew *crew, int64_t ms, const volatile sig_atomic_t *stopped,
			  double *per_s, struct hf_err *err);
/* Waits until all are ready. */
enum hf_code crew_await(struct crew *crew, const volatile sig_atomic_t *stopped,
			struct hf_err *err);
/* Stops, joins and frees. `code`, and `err` as it is, where that is a failure; else the first
 * failure of a thread. */
enum hf_code crew_end(struct crew *crew, enum hf_code code, struct hf_err *err);

/* For bodies. `sql` is prepared as "act" (nullable). nullptr: failed and told. */
PGconn *crew_connect(struct crew *crew, const char *sql);
bool crew_prepare(struct crew *crew, PGconn *conn, const char *name, const char *sql);
void crew_ready(struct crew *crew);
bool crew_goes(struct crew *crew);
void crew_did(struct crew *crew, long acts);
/* A prepared statement; nullptr: failed and told. */
PGresult *crew_exec(struct crew *crew, PGconn *conn, const char *name, int count,
		    const char *const *values);
