/* bench_work.c - accept, run, poll, repeat and latency as the common workload has them. Nothing but
 * HTTP goes to the product; the database is only asked what it cost and when tasks began. Called by
 * bench_run.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/bench.h"
#include "runtime/bench_caller.h"
#include "runtime/bench_wal.h"
#include "runtime/id.h"
#include "runtime/pgrun.h"

constexpr int64_t WARM_UP_MS = 1'000;
constexpr int64_t READY_MS_MAX = 30'000;
constexpr int POLLED_TASKS = 1'000;
constexpr int POLLED_CLIENTS = 64;
constexpr int64_t ASK_MS = 2;         /* between two looks of one who waits for a result */
constexpr int CLIENTS_PER_ASK_MS = 4; /* many who wait look less often, or the looks are the load */
constexpr int64_t LATENCY_REST_MS_MIN = 20; /* and a random part, so as to meet no poll's phase */
constexpr int64_t LATENCY_REST_MS_MAX = 270;
constexpr int64_t NS_PER_MS = 1'000'000;

enum hf_code bench_measure(struct bench *bench, struct load *load, int64_t most_ms,
			   struct hf_err *err)
{
	int64_t wanted_ms = bench->options->seconds * 1000;
	const struct load_span warm_up = { WARM_UP_MS, WARM_UP_MS, 0 };
	const struct load_span span = { wanted_ms, most_ms > wanted_ms ? most_ms : wanted_ms,
					BENCH_OPERATIONS_MIN };
	struct report *report = bench->report;
	struct wal_mark mark;
	struct wal_cost cost;
	struct load_stats *stats = hf_alloc(sizeof *stats);
	enum hf_code code = load_run(load, &warm_up, nullptr, err);
	if (code == HF_OK)
		code = wal_mark_take(bench->server.db, &mark, err);
	if (code == HF_OK)
		code = load_run(load, &span, stats, err);
	if (code == HF_OK)
		code = wal_cost_since(bench->server.db, &mark, &cost, err);
	if (code == HF_OK && stats->operations > 0) {
		double operations = (double)stats->operations;
		bool enough = stats->operations >= BENCH_OPERATIONS_MIN;
		report->operations = operations;
		report->ops_per_s = operations / ((double)stats->ns / 1e9);
		report->p50_ms = hist_ms(&stats->hist, 0.5);
		report->p99_ms = hist_ms(&stats->hist, 0.99);
		report->durable_commits_per_op = cost.durable_commits / operations;
		report->wal_bytes_per_op = enough ? cost.bytes / operations : (double)NAN;
		report->wal_fpi_bytes_per_op = enough ? cost.fpi_bytes / operations : (double)NAN;
	}
	free(stats);
	return code;
}

/* Clients by the plan, measured. */
static enum hf_code measure_callers(struct bench *bench, struct callers *callers, int64_t most_ms,
				    struct hf_err *err)
{
	struct load *load = nullptr;
	const struct load_work work = callers_work(callers);
	hf_try(load_open(bench->server.port, callers->count, &work, bench->stopped, &load, err));
	callers_join(callers, load);
	enum hf_code code = bench_measure(bench, load, most_ms, err);
	load_close(load);
	return code;
}

static enum hf_code measure_plan(struct bench *bench, const struct caller_plan *plan,
				 struct hf_err *err)
{
	struct callers callers;
	struct request_target target = server_target(&bench->server);
	callers_init(&callers, &target, bench->options->clients, plan);
	enum hf_code code = measure_callers(bench, &callers, BENCH_MS_MAX, err);
	callers_deinit(&callers);
	return code;
}

enum hf_code bench_make_tasks(struct bench *bench, const struct caller_plan *plan, int clients,
			      const struct load_span *span, struct buf *tasks, struct hf_err *err)
{
	struct callers callers;
	struct load *load = nullptr;
	struct request_target target = server_target(&bench->server);
	callers_init(&callers, &target, clients, plan);
	const struct load_work work = callers_work(&callers);
	enum hf_code code =
	    load_open(bench->server.port, clients, &work, bench->stopped, &load, err);
	if (code == HF_OK) {
		callers_join(&callers, load);
		code = load_run(load, span, nullptr, err);
	}
	load_close(load);
	if (code == HF_OK && tasks && callers.tasks.len < span->min_operations * TASK_ID_TEXT_LEN)
		code = hf_fail(err, HF_TIMEOUT, "the worker did not run %llu tasks in %lld s",
			       (unsigned long long)span->min_operations,
			       (long long)span->max_ms / 1000);
	if (tasks)
		buf_add_slice(tasks, buf_slice(&callers.tasks));
	callers_deinit(&callers);
	return code;
}

/* One, run to its end: the worker is warm then. */
static enum hf_code make_one(struct bench *bench, const struct caller_plan *plan,
			     struct hf_err *err)
{
	hf_cleanup(buf) struct buf tasks = {};
	return bench_make_tasks(bench, plan, 1, &(struct load_span){ 0, READY_MS_MAX, 1 }, &tasks,
				err);
}

enum hf_code bench_accept(struct bench *bench, struct hf_err *err)
{
	hf_try(server_start_api(&bench->server, CHILD_ANY_CPU, err));
	return measure_plan(bench,
			    &(struct caller_plan){ .act = ACT_CALL, .tool = SERVER_TOOL_PHASES },
			    err);
}

static int64_t ask_every_ns(int clients)
{
	int64_t ms = clients / CLIENTS_PER_ASK_MS;
	return (ms > ASK_MS ? ms : ASK_MS) * NS_PER_MS;
}

enum hf_code bench_tasks(struct bench *bench, struct hf_err *err)
{
	struct caller_plan plan = { .act = ACT_RUN,
				    .tool = SERVER_TOOL_PHASES,
				    .ask_every_ns = ask_every_ns(bench->options->clients),
				    .keep_tasks = true };
	hf_try(server_start_api(&bench->server, CHILD_ANY_CPU, err));
	hf_try(server_start_worker(&bench->server, err));
	hf_try(make_one(bench, &plan, err));
	plan.keep_tasks = false;
	hf_try(measure_plan(bench, &plan, err));
	bench->report->closed_ops_per_s = bench->report->ops_per_s;
	return bench_drain(bench, &bench->report->ops_per_s, err);
}

enum hf_code bench_poll(struct bench *bench, struct hf_err *err)
{
	hf_cleanup(buf) struct buf tasks = {};
	const struct load_span span = { 0, READY_MS_MAX, POLLED_TASKS };
	const struct caller_plan make = { .act = ACT_RUN,
					  .tool = SERVER_TOOL_PHASES,
					  .ask_every_ns = ask_every_ns(POLLED_CLIENTS),
					  .keep_tasks = true };
	hf_try(server_start_api(&bench->server, CHILD_ANY_CPU, err));
	hf_try(server_start_worker(&bench->server, err));
	hf_try(bench_make_tasks(bench, &make, POLLED_CLIENTS, &span, &tasks, err));
	hf_try(pg_run(bench->server.db, "VACUUM ANALYZE", 0, nullptr, nullptr, err));
	return measure_plan(bench,
			    &(struct caller_plan){ .act = ACT_RESULT, .tasks = buf_slice(&tasks) },
			    err);
}

/* The one task is run to its end; then the worker goes, so that nobody writes. */
enum hf_code bench_repeat(struct bench *bench, struct hf_err *err)
{
	static const char effect[] = "eff-00000000000000000000000000000001";
	static_assert(sizeof effect - 1 == REQUEST_EFFECT_LEN);
	hf_cleanup(buf) struct buf body = {};
	hf_try(server_start_api(&bench->server, CHILD_ANY_CPU, err));
	hf_try(server_start_worker(&bench->server, err));
	struct request_target target = server_target(&bench->server);
	struct request call;
	request_init_call(&call, &target, SERVER_TOOL_PHASES);
	request_fill(&call, effect);
	int64_t end = load_now_ns() + READY_MS_MAX * NS_PER_MS;
	enum hf_code code = HF_OK;
	bool done = false;
	while (code == HF_OK && !done) {
		int status = 0;
		code = load_once(target.port, request_slice(&call), &status, &body, err);
		done = code == HF_OK && status == 200 &&
		       memmem(body.data, body.len, "\"status\":\"completed\"", 20);
		if (!done)
			usleep(ASK_MS * 1'000);
		if (code == HF_OK && !done && (*bench->stopped || load_now_ns() > end))
			code = hf_fail(err, *bench->stopped ? HF_CANCELLED : HF_TIMEOUT,
				       "the task to be repeated does not end");
	}
	request_deinit(&call);
	hf_try(code);
	server_stop_worker(&bench->server);
	hf_try(pg_run(bench->server.db, "VACUUM ANALYZE", 0, nullptr, nullptr, err));
	return measure_plan(bench,
			    &(struct caller_plan){
				.act = ACT_REPEAT, .tool = SERVER_TOOL_PHASES, .effect = effect },
			    err);
}

/* --- latency ---------------------------------------------------------------------------------- */

/* When the worker began with each task: what its first recovery point says, on the clock of the
 * same machine. */
static enum hf_code read_starts(struct bench *bench, const struct callers *callers,
				struct hist *hist, struct hf_err *err)
{
	size_t count = callers->tasks.len / TASK_ID_TEXT_LEN;
	for (size_t i = 0; i < count; i++) {
		struct task_id id;
		struct slice text = { callers->tasks.data + i * TASK_ID_TEXT_LEN,
				      TASK_ID_TEXT_LEN };
		char hex[2 * TASK_ID_BYTES + 1];
		if (!task_id_parse(text, &id))
			return hf_fail(err, HF_CORRUPT, "the API gave no task ID");
		hex_format(id.bytes, TASK_ID_BYTES, hex);
		const char *const values[] = { hex };
		PGresult *rows = nullptr;
		hf_try(pg_run(bench->server.db,
			      "SELECT (extract(epoch FROM started) * 1000000)::bigint"
			      " FROM holdfast.step WHERE task = decode($1, 'hex')"
			      " AND kind = 'recovery_point'",
			      1, values, &rows, err));
		int64_t called_us;
		memcpy(&called_us, callers->called.data + i * sizeof called_us, sizeof called_us);
		if (PQntuples(rows) == 1)
			hist_add(hist, (atoll(PQgetvalue(rows, 0, 0)) - called_us) * 1000);
		PQclear(rows);
	}
	return HF_OK;
}

enum hf_code bench_latency(struct bench *bench, struct hf_err *err)
{
	struct caller_plan plan = { .act = ACT_RUN,
				    .tool = SERVER_TOOL_STEP,
				    .ask_every_ns = ASK_MS * NS_PER_MS,
				    .keep_tasks = true };
	hf_try(server_start_api(&bench->server, CHILD_ANY_CPU, err));
	hf_try(server_start_worker(&bench->server, err));
	hf_try(make_one(bench, &plan, err));
	plan.rest_ns_min = LATENCY_REST_MS_MIN * NS_PER_MS;
	plan.rest_ns_max = LATENCY_REST_MS_MAX * NS_PER_MS;
	struct callers callers;
	struct request_target target = server_target(&bench->server);
	callers_init(&callers, &target, bench->options->clients, &plan);
	/* It rests most of its time, so it does not go on for the sake of the log's figures. */
	enum hf_code code = measure_callers(bench, &callers, 0, err);
	struct hist *starts = hf_alloc(sizeof *starts);
	if (code == HF_OK)
		code = read_starts(bench, &callers, starts, err);
	struct report *report = bench->report;
	if (code == HF_OK && starts->total > 0) {
		report->start_p50_ms = hist_ms(starts, 0.5);
		report->start_p99_ms = hist_ms(starts, 0.99);
		/* Of one who never rests. */
		report->ops_per_s = 1000 / report->p50_ms;
	}
	free(starts);
	callers_deinit(&callers);
	return code;
}
