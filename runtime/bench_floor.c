/* bench_floor.c - see bench_floor.h: batched submit and read. The drain and the pick-up are
 * in bench_floor_run.c. Called by bench_work.c. */
#include "runtime/bench_floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/bench_crew.h"
#include "runtime/bench_floor_inner.h"
#include "runtime/bench_request.h"
#include "runtime/buf.h"
#include "runtime/pgrun.h"
#include "runtime/random.h"

static constexpr char DATABASE[] = "floor";

static constexpr char SCHEMA[] =
    "CREATE TABLE job (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " tenant text NOT NULL, effect text NOT NULL, tool text NOT NULL, arguments jsonb NOT NULL,"
    " state smallint NOT NULL DEFAULT 0, lease timestamptz, result jsonb,"
    " made timestamptz NOT NULL DEFAULT now(), UNIQUE (tenant, effect)) WITH (fillfactor = 70);"
    "CREATE INDEX job_open ON job (number) WHERE state = 0;"
    "CREATE TABLE point (job bigint NOT NULL, phase smallint NOT NULL, value jsonb NOT NULL,"
    " made timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, phase));";

static constexpr char INSERT_MANY[] =
    "INSERT INTO job (tenant, effect, tool, arguments) SELECT 't', e, 'report', a"
    " FROM unnest($1::text[], $2::jsonb[]) u (e, a) ON CONFLICT DO NOTHING"
    " RETURNING number, effect";
static constexpr char READ_ONE[] =
    "SELECT number, state, result FROM job WHERE tenant = 't' AND effect = $1";

enum hf_code floor_open(struct floor_place *place, const struct cluster *cluster,
			const volatile sig_atomic_t *stopped, struct hf_err *err)
{
	*place = (struct floor_place){ .dsn = cluster_dsn(cluster, DATABASE), .stopped = stopped };
	return cluster_new_database(cluster, DATABASE, err);
}

void floor_close(struct floor_place *place)
{
	free(place->dsn);
	*place = (struct floor_place){};
}

enum hf_code floor_prepare(const struct floor_place *place, const char *fill, struct hf_err *err)
{
	PGconn *conn = nullptr;
	hf_try(pg_connect(place->dsn, "holdfast bench floor", &conn, err));
	const char *const steps[] = { "SET client_min_messages = warning",
				      "DROP TABLE IF EXISTS job, point",
				      SCHEMA,
				      fill,
				      "ANALYZE",
				      "CHECKPOINT" };
	enum hf_code code = HF_OK;
	for (size_t i = 0; i < countof(steps) && code == HF_OK; i++)
		if (steps[i])
			code = pg_run(conn, steps[i], 0, nullptr, nullptr, err);
	PQfinish(conn);
	return code;
}

/* --- read ------------------------------------------------------------------------------------- */

struct reading {
	int rows;
};

static void *read_body(void *ctx)
{
	struct crew *crew = ctx;
	const struct reading *reading = crew->ctx;
	PGconn *conn = crew_connect(crew, READ_ONE);
	uint32_t at;
	random_bytes(&at, sizeof at);
	char effect[32];
	const char *const values[] = { effect };
	while (conn && crew_goes(crew)) {
		at = at * 1'664'525 + 1'013'904'223;
		snprintf(effect, sizeof effect, "eff-%u", (at >> 8) % (unsigned)reading->rows);
		PQclear(crew_exec(crew, conn, "act", 1, values));
		crew_did(crew, 1);
	}
	PQfinish(conn);
	return nullptr;
}

enum hf_code floor_measure(const struct floor_place *place, const struct floor_crew *parts,
			   int64_t ms, double *ops_per_s, struct hf_err *err)
{
	struct crew *crew = crew_new(place->dsn, parts->ctx);
	if (parts->servers > 0)
		crew_add(crew, parts->servers, parts->server);
	crew_add(crew, parts->clients, parts->client);
	enum hf_code code = crew_measure(crew, ms, place->stopped, ops_per_s, err);
	return crew_end(crew, code, err);
}

enum hf_code floor_read(const struct floor_place *place, const struct floor_run *run, int rows,
			double *ops_per_s, struct hf_err *err)
{
	char *fill = hf_format("INSERT INTO job (tenant, effect, tool, arguments, state, result)"
			       " SELECT 't', 'eff-' || i, 'report', '" FLOOR_ARGUMENTS "', 2,"
			       " '" FLOOR_RESULT "' FROM generate_series(0, %d) i",
			       rows - 1);
	enum hf_code code = floor_prepare(place, fill, err);
	free(fill);
	hf_try(code);
	struct reading reading = { rows };
	const struct floor_crew parts = { .ctx = &reading,
					  .client = read_body,
					  .clients = run->clients };
	return floor_measure(place, &parts, run->ms, ops_per_s, err);
}

/* --- batched submit --------------------------------------------------------------------------- */

/* One client's call. */
struct waiter {
	struct waiter *next;
	char effect[REQUEST_EFFECT_LEN + 1]; /* terminated: made zeroed */
	bool done;
	pthread_cond_t answered;
};

struct counter {
	pthread_mutex_t mutex;
	pthread_cond_t filled;
	struct waiter *waiting; /* the calls that no connection has taken yet */
	struct waiter *waiters; /* of all clients; outlives the threads */
	int clients, clients_begun, clients_ended;
	bool broken; /* a connection failed: nobody waits any more */
};

static void *client_body(void *ctx)
{
	struct crew *crew = ctx;
	struct counter *counter = crew->ctx;
	pthread_mutex_lock(&counter->mutex);
	struct waiter *me = &counter->waiters[counter->clients_begun++];
	pthread_mutex_unlock(&counter->mutex);
	crew_ready(crew);
	while (crew_goes(crew)) {
		request_effect(me->effect);
		pthread_mutex_lock(&counter->mutex);
		me->done = false;
		me->next = counter->waiting;
		counter->waiting = me;
		pthread_cond_signal(&counter->filled);
		while (!me->done && !counter->broken)
			pthread_cond_wait(&me->answered, &counter->mutex);
		pthread_mutex_unlock(&counter->mutex);
		crew_did(crew, me->done);
	}
	pthread_mutex_lock(&counter->mutex);
	counter->clients_ended++;
	pthread_cond_broadcast(&counter->filled);
	pthread_mutex_unlock(&counter->mutex);
	return nullptr;
}

/* All calls that wait; nullptr once no client is left. */
static struct waiter *take_all(struct counter *counter)
{
	pthread_mutex_lock(&counter->mutex);
	while (!counter->waiting && counter->clients_ended < counter->clients && !counter->broken)
		pthread_cond_wait(&counter->filled, &counter->mutex);
	struct waiter *taken = counter->broken ? nullptr : counter->waiting;
	if (taken)
		counter->waiting = nullptr;
	pthread_mutex_unlock(&counter->mutex);
	return taken;
}

static void answer_all(struct counter *counter, struct waiter *taken, bool good)
{
	pthread_mutex_lock(&counter->mutex);
	for (struct waiter *waiter = taken, *next; waiter; waiter = next) {
		next = waiter->next;
		waiter->done = good;
		pthread_cond_signal(&waiter->answered);
	}
	if (!good) {
		counter->broken = true;
		for (int i = 0; i < counter->clients; i++)
			pthread_cond_signal(&counter->waiters[i].answered);
		pthread_cond_broadcast(&counter->filled);
	}
	pthread_mutex_unlock(&counter->mutex);
}

static void *batcher_body(void *ctx)
{
	static constexpr char arguments[] = "\"{" FLOOR_ARGUMENTS_QUOTED "}\"";
	struct crew *crew = ctx;
	struct counter *counter = crew->ctx;
	PGconn *conn = crew_connect(crew, INSERT_MANY);
	hf_cleanup(buf) struct buf effects = {};
	hf_cleanup(buf) struct buf all = {};
	bool good = conn != nullptr;
	if (!good)
		answer_all(counter, nullptr, false);
	for (struct waiter *taken; good && (taken = take_all(counter));) {
		buf_clear(&effects);
		buf_clear(&all);
		for (const struct waiter *waiter = taken; waiter; waiter = waiter->next) {
			buf_add_text(&effects, waiter == taken ? "{" : ",");
			buf_add_text(&effects, waiter->effect);
			buf_add_text(&all, waiter == taken ? "{" : ",");
			buf_add_text(&all, arguments);
		}
		buf_add_text(&effects, "}");
		buf_add_text(&all, "}");
		const char *const values[] = { effects.data, all.data };
		PGresult *result = crew_exec(crew, conn, "act", 2, values);
		good = result != nullptr;
		PQclear(result);
		answer_all(counter, taken, good);
	}
	PQfinish(conn);
	return nullptr;
}

enum hf_code floor_submit_batched(const struct floor_place *place, const struct floor_run *run,
				  double *ops_per_s, struct hf_err *err)
{
	hf_try(floor_prepare(place, nullptr, err));
	struct counter counter = { .clients = run->clients };
	counter.waiters = hf_alloc((size_t)run->clients * sizeof *counter.waiters);
	pthread_mutex_init(&counter.mutex, nullptr);
	pthread_cond_init(&counter.filled, nullptr);
	for (int i = 0; i < run->clients; i++)
		pthread_cond_init(&counter.waiters[i].answered, nullptr);
	const struct floor_crew parts = { .ctx = &counter,
					  .server = batcher_body,
					  .servers = run->connections,
					  .client = client_body,
					  .clients = run->clients };
	enum hf_code code = floor_measure(place, &parts, run->ms, ops_per_s, err);
	for (int i = 0; i < run->clients; i++)
		pthread_cond_destroy(&counter.waiters[i].answered);
	pthread_cond_destroy(&counter.filled);
	pthread_mutex_destroy(&counter.mutex);
	free(counter.waiters);
	return code;
}
