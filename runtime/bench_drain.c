/* bench_drain.c - a backlog drained, as the common workload has its second work: tasks are put in
 * first, then the workers go, and the time runs to the last one's outcome as the database has it.
 * The worker has long been up and warm, but is stopped (SIGSTOP) while the backlog is made. Called
 * by bench_work.c. */
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/bench.h"
#include "runtime/bench_caller.h"
#include "runtime/clock.h"
#include "runtime/pgrun.h"

constexpr int MAKERS = 64;
constexpr uint64_t BACKLOG_TASKS = 10'000;
constexpr int64_t MAKE_MS_MAX = 60'000;
constexpr int64_t DRAIN_MS_MAX = 60'000;
constexpr useconds_t LOOK_US = 50'000;
constexpr useconds_t SETTLE_US = 300'000;

static enum hf_code ask_number(PGconn *db, const char *sql, double *out, struct hf_err *err)
{
	PGresult *rows = nullptr;
	hf_try(pg_run(db, sql, 0, nullptr, &rows, err));
	*out = PQntuples(rows) ? atof(PQgetvalue(rows, 0, 0)) : 0;
	PQclear(rows);
	return HF_OK;
}

static enum hf_code drain(struct bench *bench, double *ops_per_s, struct hf_err *err)
{
	PGconn *db = bench->server.db;
	double open = 0, left = 0, go = 0, seconds = 0;
	hf_try(pg_run(db, "VACUUM ANALYZE", 0, nullptr, nullptr, err));
	hf_try(pg_run(db, "CHECKPOINT", 0, nullptr, nullptr, err));
	hf_try(ask_number(db, "SELECT count(*) FROM holdfast.work", &open, err));
	hf_try(ask_number(db, "SELECT extract(epoch FROM clock_timestamp())", &go, err));
	kill(bench->server.worker.pid, SIGCONT);
	int64_t end = clock_boot_ms() + DRAIN_MS_MAX;
	do {
		if (*bench->stopped)
			return hf_fail(err, HF_CANCELLED, "interrupted");
		usleep(LOOK_US);
		hf_try(ask_number(db,
				  "SELECT count(*) FROM (SELECT FROM holdfast.work LIMIT 1) one",
				  &left, err));
	} while (left > 0 && clock_boot_ms() < end);
	hf_try(ask_number(db, "SELECT count(*) FROM holdfast.work", &left, err));
	char *sql = hf_format("SELECT extract(epoch FROM max(at)) - %.6f FROM holdfast.step"
			      " WHERE kind = 'outcome'",
			      go);
	enum hf_code code = ask_number(db, sql, &seconds, err);
	free(sql);
	hf_try(code);
	if (seconds <= 0)
		return hf_fail(err, HF_TIMEOUT, "the worker drained nothing");
	*ops_per_s = (open - left) / seconds;
	return HF_OK;
}

enum hf_code bench_drain(struct bench *bench, double *ops_per_s, struct hf_err *err)
{
	usleep(SETTLE_US); /* what the closed loop left in flight ends */
	hf_assert(bench->server.worker.pid > 0);
	kill(bench->server.worker.pid, SIGSTOP);
	const struct load_span span = { 0, MAKE_MS_MAX, BACKLOG_TASKS };
	const struct caller_plan plan = { .act = ACT_CALL, .tool = SERVER_TOOL_PHASES };
	enum hf_code code = bench_make_tasks(bench, &plan, MAKERS, &span, nullptr, err);
	usleep(SETTLE_US); /* what was in flight is accepted too */
	hf_try(code);
	return drain(bench, ops_per_s, err);
}
