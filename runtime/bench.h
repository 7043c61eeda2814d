/* bench.h - one run of `holdfast bench`: what is asked for, what is told, and what the parts of the
 * bench (bench_*.c) share. The product is measured over HTTP as it is; what it is held against is
 * measured on the same cluster in the same run, half of it before and half of it after, so that
 * what else the machine does falls on both. */
#pragma once

#include <math.h>
#include <signal.h>
#include <stdint.h>

#include "runtime/bench_cluster.h"
#include "runtime/bench_floor.h"
#include "runtime/bench_load.h"
#include "runtime/bench_server.h"
#include "runtime/err.h"

struct caller_plan;

enum bench_work { BENCH_ACCEPT, BENCH_RUN, BENCH_POLL, BENCH_REPEAT, BENCH_LATENCY, BENCH_FRONT };

struct bench_options {
	enum bench_work work;
	int clients;
	int64_t seconds;
	const char *dir; /* where the cluster and all else is kept */
};

/* A figure that could not be had is NAN; it is printed as null. */
struct report {
	double ops_per_s, p50_ms, p99_ms;
	const char *floor;
	double floor_ops_per_s, ratio;
	double durable_commits_per_op, wal_bytes_per_op, wal_fpi_bytes_per_op;
	enum { PASS_NO, PASS_YES, PASS_NO_MARK } pass;
	char mark[160]; /* what pass means, for people */
	double operations;
	double closed_ops_per_s; /* run: of the closed loop, ops_per_s being the drain's */
	double start_p50_ms, start_p99_ms; /* latency */
};

struct bench {
	const struct bench_options *options;
	const volatile sig_atomic_t *stopped;
	int lock;  /* of the folder */
	char *dir; /* absolute */
	struct cluster cluster;
	struct floor_place floor;
	struct server server;
	struct report *report;
};

/* Names as on the command line; false: no such work. */
bool bench_work_parse(const char *name, enum bench_work *work);
const char *bench_work_name(enum bench_work work);

/* The whole run. Whatever happens, no process is left when it returns. */
enum hf_code bench_run(const struct bench_options *options, const volatile sig_atomic_t *stopped,
		       struct report *report, struct hf_err *err);

/* --- the works, called by bench_run.c --------------------------------------------------------- */

/* What the product does; fills in its part of the report. */
enum hf_code bench_accept(struct bench *bench, struct hf_err *err);
enum hf_code bench_tasks(struct bench *bench, struct hf_err *err); /* run */
enum hf_code bench_poll(struct bench *bench, struct hf_err *err);
enum hf_code bench_repeat(struct bench *bench, struct hf_err *err);
enum hf_code bench_latency(struct bench *bench, struct hf_err *err);
enum hf_code bench_front(struct bench *bench, struct hf_err *err);

/* Warm-up, then the measured stretch: rates, times and what the log says. `most_ms` is how long it
 * may go on to reach BENCH_OPERATIONS_MIN. */
enum hf_code bench_measure(struct bench *bench, struct load *load, int64_t most_ms,
			   struct hf_err *err);

/* How long one half of a floor is measured. */
int64_t bench_floor_ms(const struct bench *bench);

/* Lets `clients` do what the plan says for a span, before anything is measured. `tasks` (nullable)
 * gets the IDs that the plan keeps: HF_TIMEOUT where those are too few. */
enum hf_code bench_make_tasks(struct bench *bench, const struct caller_plan *plan, int clients,
			      const struct load_span *span, struct buf *tasks, struct hf_err *err);

/* A backlog, made while the worker is held back, and drained: tasks per second. */
enum hf_code bench_drain(struct bench *bench, double *ops_per_s, struct hf_err *err);

constexpr uint64_t BENCH_OPERATIONS_MIN = 10'000; /* below it what the log says is not told */
constexpr int64_t BENCH_MS_MAX = 60'000;          /* of a measured stretch */
