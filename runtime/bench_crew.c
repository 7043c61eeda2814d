/* bench_crew.c - see bench_crew.h. Called by bench_floor.c and bench_floor_run.c. */
#include "runtime/bench_crew.h"

#include <stdlib.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/bench_load.h"
#include "runtime/pgrun.h"

constexpr size_t STACK_BYTES = 262'144;
constexpr useconds_t LOOK_US = 2'000;

struct crew *crew_new(const char *dsn, void *ctx)
{
	struct crew *crew = hf_alloc(sizeof *crew);
	crew->dsn = dsn;
	crew->ctx = ctx;
	pthread_mutex_init(&crew->mutex, nullptr);
	return crew;
}

static void fail(struct crew *crew, enum hf_code code, const struct hf_err *why)
{
	pthread_mutex_lock(&crew->mutex);
	if (!crew->failed) {
		crew->err = *why;
		crew->err.code = code;
	}
	pthread_mutex_unlock(&crew->mutex);
	crew->failed = true;
}

void crew_add(struct crew *crew, int count, void *(*body)(void *crew))
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	for (int i = 0; i < count; i++) {
		hf_assert(crew->count < CREW_MAX);
		if (pthread_create(&crew->threads[crew->count], &attributes, body, crew) == 0) {
			crew->count++;
			continue;
		}
		struct hf_err err = {};
		fail(crew, hf_fail(&err, HF_SYSTEM, "no thread for a floor"), &err);
	}
	pthread_attr_destroy(&attributes);
}

enum hf_code crew_await(struct crew *crew, const volatile sig_atomic_t *stopped, struct hf_err *err)
{
	while (crew->ready < crew->count && !crew->failed) {
		if (*stopped)
			return hf_fail(err, HF_CANCELLED, "interrupted");
		usleep(LOOK_US);
	}
	return HF_OK;
}

enum hf_code crew_measure(struct crew *crew, int64_t ms, const volatile sig_atomic_t *stopped,
			  double *per_s, struct hf_err *err)
{
	hf_try(crew_await(crew, stopped, err));
	long before = crew->done;
	int64_t start = load_now_ns(), now = start;
	while (now - start < ms * 1'000'000 && !crew->failed && crew->ended < crew->count) {
		if (*stopped)
			return hf_fail(err, HF_CANCELLED, "interrupted");
		usleep(LOOK_US);
		now = load_now_ns();
	}
	*per_s = (double)(crew->done - before) / ((double)(now - start) / 1e9);
	return HF_OK;
}

enum hf_code crew_end(struct crew *crew, enum hf_code code, struct hf_err *err)
{
	crew->stop = true;
	for (int i = 0; i < crew->count; i++)
		pthread_join(crew->threads[i], nullptr);
	if (code == HF_OK && crew->failed) {
		*err = crew->err;
		code = crew->err.code;
	}
	pthread_mutex_destroy(&crew->mutex);
	free(crew);
	return code;
}

/* --- for bodies ------------------------------------------------------------------------------- */

bool crew_prepare(struct crew *crew, PGconn *conn, const char *name, const char *sql)
{
	PGresult *result = PQprepare(conn, name, sql, 0, nullptr);
	bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	struct hf_err err = {};
	if (!good)
		fail(crew, hf_fail(&err, HF_DB, "a floor: %s", PQerrorMessage(conn)), &err);
	return good;
}

PGconn *crew_connect(struct crew *crew, const char *sql)
{
	PGconn *conn = nullptr;
	struct hf_err err = {};
	enum hf_code code = pg_connect(crew->dsn, "holdfast bench floor", &conn, &err);
	if (code != HF_OK)
		fail(crew, code, &err);
	if (conn && sql && !crew_prepare(crew, conn, "act", sql)) {
		PQfinish(conn);
		conn = nullptr;
	}
	if (conn)
		crew_ready(crew);
	return conn;
}

void crew_ready(struct crew *crew)
{
	crew->ready++;
}

bool crew_goes(struct crew *crew)
{
	bool goes = !atomic_load_explicit(&crew->stop, memory_order_relaxed) &&
		    !atomic_load_explicit(&crew->failed, memory_order_relaxed);
	if (!goes)
		crew->ended++;
	return goes;
}

void crew_did(struct crew *crew, long acts)
{
	atomic_fetch_add_explicit(&crew->done, acts, memory_order_relaxed);
}

PGresult *crew_exec(struct crew *crew, PGconn *conn, const char *name, int count,
		    const char *const *values)
{
	PGresult *result = PQexecPrepared(conn, name, count, values, nullptr, nullptr, 0);
	ExecStatusType status = PQresultStatus(result);
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return result;
	PQclear(result);
	struct hf_err err = {};
	fail(crew, hf_fail(&err, HF_DB, "a floor: %s", PQerrorMessage(conn)), &err);
	return nullptr;
}
