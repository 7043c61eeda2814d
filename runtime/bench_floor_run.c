/* bench_floor_run.c - the floors of running: a backlog drained with a commit for each step, and the
 * pick-up of a task by a process that was woken. Called by bench_work.c. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/bench_crew.h"
#include "runtime/bench_floor_inner.h"
#include "runtime/bench_load.h"
#include "runtime/bench_request.h"
#include "runtime/pgrun.h"

constexpr int CLAIM_ROWS = 50;
constexpr int STEPS = 3;
constexpr int BACKLOG_PER_MS = 12; /* more than can be drained in that time */
constexpr long NOTIFY_US_MAX = 100'000;
constexpr int64_t PICKUP_MS_MAX = 5'000;

static constexpr char CLAIM[] =
    "UPDATE job SET state = 1, lease = now() + interval '30 s' WHERE number IN"
    " (SELECT number FROM job WHERE state = 0 ORDER BY number LIMIT $1 FOR UPDATE SKIP LOCKED)"
    " RETURNING number";
static constexpr char STEP[] = "INSERT INTO point (job, phase, value) VALUES ($1, $2, '{\"n\":1}')";
static constexpr char FINISH[] = "UPDATE job SET state = 2, lease = NULL, result = '" FLOOR_RESULT
				 "' WHERE number = $1 AND state = 1";

static bool prepare_run(struct crew *crew, PGconn *conn)
{
	return crew_prepare(crew, conn, "step", STEP) && crew_prepare(crew, conn, "end", FINISH);
}

/* Every recovery point and the end are commits. False: failed. */
static bool run_task(struct crew *crew, PGconn *conn, const char *number, int steps)
{
	for (int step = 1; step <= steps; step++) {
		char phase[8];
		snprintf(phase, sizeof phase, "%d", step);
		const char *const values[] = { number, phase };
		PGresult *result = crew_exec(crew, conn, "step", 2, values);
		PQclear(result);
		if (!result)
			return false;
	}
	PGresult *result = crew_exec(crew, conn, "end", 1, &number);
	PQclear(result);
	return result != nullptr;
}

static void *drain_body(void *ctx)
{
	struct crew *crew = ctx;
	PGconn *conn = crew_connect(crew, CLAIM);
	bool good = conn && prepare_run(crew, conn);
	char limit[8];
	snprintf(limit, sizeof limit, "%d", CLAIM_ROWS);
	const char *const values[] = { limit };
	while (good && crew_goes(crew)) {
		PGresult *claimed = crew_exec(crew, conn, "act", 1, values);
		int count = claimed ? PQntuples(claimed) : 0;
		for (int i = 0; i < count && good; i++) {
			good = run_task(crew, conn, PQgetvalue(claimed, i, 0), STEPS);
			crew_did(crew, good);
		}
		good = good && count > 0;
		PQclear(claimed);
	}
	PQfinish(conn);
	return nullptr;
}

enum hf_code floor_drain(const struct floor_place *place, const struct floor_run *run,
			 double *ops_per_s, struct hf_err *err)
{
	char *fill = hf_format("INSERT INTO job (tenant, effect, tool, arguments)"
			       " SELECT 't', 'eff-' || md5(i::text), 'report', '" FLOOR_ARGUMENTS
			       "' FROM generate_series(1, %lld) i",
			       (long long)run->ms * BACKLOG_PER_MS);
	enum hf_code code = floor_prepare(place, fill, err);
	free(fill);
	hf_try(code);
	const struct floor_crew parts = { .client = drain_body, .clients = run->connections };
	return floor_measure(place, &parts, run->ms, ops_per_s, err);
}

/* --- pick-up ---------------------------------------------------------------------------------- */

/* Waits a while for one. */
static bool notified(PGconn *conn)
{
	for (int tries = 0; tries < 2; tries++) {
		PQconsumeInput(conn);
		PGnotify *notify = PQnotifies(conn);
		PQfreemem(notify);
		if (notify)
			return true;
		fd_set set;
		FD_ZERO(&set);
		FD_SET(PQsocket(conn), &set);
		struct timeval time = { .tv_usec = NOTIFY_US_MAX };
		if (tries == 0 && select(PQsocket(conn) + 1, &set, nullptr, nullptr, &time) <= 0)
			return false;
	}
	return false;
}

static void *pickup_body(void *ctx)
{
	struct crew *crew = ctx;
	PGconn *conn = crew_connect(crew, CLAIM);
	bool good = conn && prepare_run(crew, conn) &&
		    crew_prepare(crew, conn, "listen", "LISTEN job_made") &&
		    crew_prepare(crew, conn, "tell", "NOTIFY job_done");
	if (good)
		PQclear(crew_exec(crew, conn, "listen", 0, nullptr));
	crew_did(crew, 1); /* listens now */
	const char *const limit[] = { "10" };
	while (good && crew_goes(crew)) {
		if (!notified(conn))
			continue;
		PGresult *claimed = crew_exec(crew, conn, "act", 1, limit);
		int count = claimed ? PQntuples(claimed) : 0;
		for (int i = 0; i < count && good; i++)
			good = run_task(crew, conn, PQgetvalue(claimed, i, 0), 1);
		if (good && count > 0)
			PQclear(crew_exec(crew, conn, "tell", 0, nullptr));
		PQclear(claimed);
	}
	PQfinish(conn);
	return nullptr;
}

static enum hf_code submit_and_see(PGconn *conn, struct hist *hist, struct hf_err *err)
{
	char effect[REQUEST_EFFECT_LEN + 1] = {};
	const char *const values[] = { effect };
	request_effect(effect);
	int64_t start = load_now_ns();
	hf_try(pg_run(conn,
		      "WITH made AS (INSERT INTO job (tenant, effect, tool, arguments) VALUES ('t',"
		      " $1, 'report', '" FLOOR_ARGUMENTS "') ON CONFLICT DO NOTHING"
		      " RETURNING number) SELECT number, pg_notify('job_made', '') FROM made",
		      1, values, nullptr, err));
	while (!notified(conn))
		if (load_now_ns() - start > PICKUP_MS_MAX * 1'000'000)
			return hf_fail(err, HF_TIMEOUT, "a floor: a task was not picked up");
	hf_try(pg_run(conn, "SELECT state, result FROM job WHERE tenant = 't' AND effect = $1", 1,
		      values, nullptr, err));
	hist_add(hist, load_now_ns() - start);
	return HF_OK;
}

enum hf_code floor_pickup(const struct floor_place *place, const struct floor_run *run,
			  struct hist *hist, struct hf_err *err)
{
	hf_try(floor_prepare(place, nullptr, err));
	PGconn *conn = nullptr;
	hf_try(pg_connect(place->dsn, "holdfast bench floor", &conn, err));
	struct crew *crew = crew_new(place->dsn, nullptr);
	crew_add(crew, 1, pickup_body);
	enum hf_code code = pg_run(conn, "LISTEN job_done", 0, nullptr, nullptr, err);
	if (code == HF_OK)
		code = crew_await(crew, place->stopped, err);
	while (code == HF_OK && crew->done == 0 && !crew->failed)
		usleep(1000);
	int64_t end = load_now_ns() + run->ms * 1'000'000;
	while (code == HF_OK && load_now_ns() < end && !crew->failed) {
		code = submit_and_see(conn, hist, err);
		if (code == HF_OK && *place->stopped)
			code = hf_fail(err, HF_CANCELLED, "interrupted");
	}
	PQfinish(conn);
	return crew_end(crew, code, err);
}
