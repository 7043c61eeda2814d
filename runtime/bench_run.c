/* bench_run.c - one run from start to end: folder, cluster, floor, product, floor, figures. The
 * works are a table: what is measured, what it is held against, and its mark. Called by
 * cmd_bench.c. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/bench.h"
#include "runtime/file.h"

constexpr int64_t FLOOR_MS_MIN = 1'000;
constexpr int64_t FLOOR_MS_MAX = 3'000;
constexpr int FLOOR_SETTINGS_MAX = 2;
constexpr int READ_ROWS = 10'000;
/* Autovacuum and the like commit now and then. */
constexpr double COMMITS_BESIDE = 0.1;

enum floor_kind { FLOOR_BATCHED, FLOOR_READ, FLOOR_DRAIN, FLOOR_PICKUP, FLOOR_HTTP };

struct work {
	const char *name;
	enum hf_code (*measure)(struct bench *bench, struct hf_err *err);
	enum floor_kind kind;
	const char *floor;                   /* as it is told */
	int connections[FLOOR_SETTINGS_MAX]; /* the better setting counts; 0: no second */
	double mark;                         /* of the ratio; 0: none */
	int mark_clients;                    /* it is for so many; 0: any */
};

static const struct work works[] = {
	[BENCH_ACCEPT] = { "accept", bench_accept, FLOOR_BATCHED, "batched", { 1, 2 }, 0.25, 64 },
	[BENCH_RUN] = { "run", bench_tasks, FLOOR_DRAIN, "plain", { 16, 32 }, 1.5, 0 },
	[BENCH_POLL] = { "poll", bench_poll, FLOOR_READ, "read", { 1 }, 0.1, 64 },
	[BENCH_REPEAT] = { "repeat", bench_repeat, FLOOR_READ, "read", { 1 }, 0.15, 64 },
	[BENCH_LATENCY] = { "latency", bench_latency, FLOOR_PICKUP, "plain", { 1 }, 0, 0 },
	[BENCH_FRONT] = { "front", bench_front, FLOOR_HTTP, "http", {}, 0, 0 },
};

bool bench_work_parse(const char *name, enum bench_work *work)
{
	for (size_t i = 0; i < countof(works); i++) {
		if (strcmp(works[i].name, name) == 0) {
			*work = (enum bench_work)i;
			return true;
		}
	}
	return false;
}

const char *bench_work_name(enum bench_work work)
{
	return works[work].name;
}

/* --- the floor -------------------------------------------------------------------------------- */

static enum hf_code measure_floor(struct bench *bench, const struct floor_run *run,
				  enum floor_kind kind, double *ops_per_s, struct hf_err *err)
{
	switch (kind) {
	case FLOOR_BATCHED:
		return floor_submit_batched(&bench->floor, run, ops_per_s, err);
	case FLOOR_READ:
		return floor_read(&bench->floor, run, READ_ROWS, ops_per_s, err);
	case FLOOR_DRAIN:
		return floor_drain(&bench->floor, run, ops_per_s, err);
	case FLOOR_PICKUP:
	case FLOOR_HTTP:
		break;
	}
	struct hist *hist = hf_alloc(sizeof *hist);
	enum hf_code code = floor_pickup(&bench->floor, run, hist, err);
	if (code == HF_OK && hist->total > 0)
		*ops_per_s = 1000 / hist_ms(hist, 0.5);
	free(hist);
	return code;
}

int64_t bench_floor_ms(const struct bench *bench)
{
	int64_t ms = bench->options->seconds * 1000 / 2;
	return ms < FLOOR_MS_MIN ? FLOOR_MS_MIN : ms > FLOOR_MS_MAX ? FLOOR_MS_MAX : ms;
}

/* Half a run's worth of each setting, added to `sums`. */
static enum hf_code add_floors(struct bench *bench, const struct work *work,
			       double sums[static FLOOR_SETTINGS_MAX], struct hf_err *err)
{
	for (int i = 0; i < FLOOR_SETTINGS_MAX && work->connections[i] > 0; i++) {
		double ops_per_s = 0;
		const struct floor_run run = { .clients = bench->options->clients,
					       .connections = work->connections[i],
					       .ms = bench_floor_ms(bench) };
		hf_try(measure_floor(bench, &run, work->kind, &ops_per_s, err));
		sums[i] += ops_per_s;
	}
	return HF_OK;
}

/* --- the figures ------------------------------------------------------------------------------ */

static void judge(const struct bench_options *options, const struct work *work,
		  struct report *report)
{
	report->floor = work->floor;
	report->ratio = report->ops_per_s / report->floor_ops_per_s;
	report->pass = PASS_NO_MARK;
	if (work->mark == 0 || (work->mark_clients && work->mark_clients != options->clients))
		return;
	bool good = report->ratio >= work->mark;
	int len = snprintf(report->mark, sizeof report->mark, "ratio of at least %.2f", work->mark);
	char *more = report->mark + len;
	size_t room = sizeof report->mark - (size_t)len;
	if (options->work == BENCH_RUN && options->clients == 1) {
		int most = 2 + SERVER_TOOL_PHASES_COUNT;
		snprintf(more, room, ", at most %d durable commits", most);
		good = good && report->durable_commits_per_op <= most + COMMITS_BESIDE;
	}
	if (options->work == BENCH_REPEAT) {
		snprintf(more, room, ", below 1 byte of log over %d operations",
			 (int)BENCH_OPERATIONS_MIN);
		good = good && report->wal_bytes_per_op < 1;
	}
	report->pass = good ? PASS_YES : PASS_NO;
}

/* --- the run ---------------------------------------------------------------------------------- */

static enum hf_code make_folders(const char *path, struct hf_err *err)
{
	char *text = hf_strdup(path);
	enum hf_code code = HF_OK;
	for (char *at = text + 1; code == HF_OK; at++) {
		bool last = *at == '\0';
		if (*at != '/' && !last)
			continue;
		*at = '\0';
		code = file_make_folder(text, 0755, err);
		if (last)
			break;
		*at = '/';
	}
	free(text);
	return code;
}

/* One bench at a time; what an earlier one left behind is then nobody's. */
static enum hf_code take_folder(struct bench *bench, struct hf_err *err)
{
	static const char *const below[] = { "run", "log" };
	hf_try(make_folders(bench->options->dir, err));
	bench->dir = realpath(bench->options->dir, nullptr);
	if (!bench->dir)
		return hf_fail(err, HF_SYSTEM, "%s: %s", bench->options->dir, strerror(errno));
	for (size_t i = 0; i < countof(below); i++) {
		char *path = hf_format("%s/%s", bench->dir, below[i]);
		enum hf_code code = file_make_folder(path, 0755, err);
		free(path);
		hf_try(code);
	}
	char *path = hf_format("%s/lock", bench->dir);
	bench->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	free(path);
	if (bench->lock < 0)
		return hf_fail(err, HF_SYSTEM, "%s: %s", bench->dir, strerror(errno));
	if (flock(bench->lock, LOCK_EX | LOCK_NB) != 0)
		return hf_fail(err, HF_BUSY, "another bench runs in %s", bench->dir);
	return HF_OK;
}

static enum hf_code measure(struct bench *bench, const struct work *work, struct hf_err *err)
{
	double floors[FLOOR_SETTINGS_MAX] = {};
	hf_try(cluster_start(&bench->cluster, bench->dir, err));
	hf_try(floor_open(&bench->floor, &bench->cluster, bench->stopped, err));
	hf_try(add_floors(bench, work, floors, err));
	hf_try(server_open(&bench->server, &bench->cluster, err));
	hf_try(work->measure(bench, err));
	hf_try(add_floors(bench, work, floors, err));
	for (int i = 0; i < FLOOR_SETTINGS_MAX; i++)
		if (floors[i] / 2 > bench->report->floor_ops_per_s)
			bench->report->floor_ops_per_s = floors[i] / 2;
	return HF_OK;
}

/* Leaves the cluster as it was made, for the next run. */
static void clean_up(struct bench *bench)
{
	struct hf_err unheard;
	server_close(&bench->server);
	floor_close(&bench->floor);
	if (bench->cluster.postgres.pid) {
		(void)cluster_drop_database(&bench->cluster, "holdfast", &unheard);
		(void)cluster_drop_database(&bench->cluster, "floor", &unheard);
	}
	cluster_stop(&bench->cluster);
	if (bench->lock > 0)
		close(bench->lock);
	free(bench->dir);
}

enum hf_code bench_run(const struct bench_options *options, const volatile sig_atomic_t *stopped,
		       struct report *report, struct hf_err *err)
{
	hf_assert(options->clients > 0);
	hf_assert(options->seconds > 0);
	const struct work *work = &works[options->work];
	struct bench bench = { .options = options, .stopped = stopped, .report = report };
	const double none = (double)NAN;
	*report = (struct report){ .durable_commits_per_op = none,
				   .wal_bytes_per_op = none,
				   .wal_fpi_bytes_per_op = none,
				   .closed_ops_per_s = none,
				   .start_p50_ms = none,
				   .start_p99_ms = none };
	enum hf_code code = take_folder(&bench, err);
	if (code == HF_OK)
		code = measure(&bench, work, err);
	clean_up(&bench);
	if (code == HF_OK)
		judge(options, work, report);
	return code;
}
