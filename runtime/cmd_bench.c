/* cmd_bench.c - `holdfast bench WORK`: flags in, one line or a short table out. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/bench.h"
#include "runtime/command.h"
#include "runtime/config.h"

constexpr int64_t CLIENTS_MAX = 256; /* each has a connection to Postgres in a floor */
constexpr int64_t SECONDS_MAX = 600;

static volatile sig_atomic_t stopped;

static void on_signal(int)
{
	stopped = 1;
}

static enum hf_code read_number(const char *value, int64_t most, int64_t *out, struct hf_err *err)
{
	char *end = nullptr;
	long long number = strtoll(value, &end, 10);
	if (end == value || *end || number < 1 || number > most)
		return hf_fail(err, HF_INVALID, "`%s` is not a whole number from 1 to %lld", value,
			       (long long)most);
	*out = number;
	return HF_OK;
}

static enum hf_code on_clients(void *ctx, const char *value, struct hf_err *err)
{
	struct bench_options *options = ctx;
	int64_t number = 0;
	hf_try(read_number(value, CLIENTS_MAX, &number, err));
	options->clients = (int)number;
	return HF_OK;
}

static enum hf_code on_seconds(void *ctx, const char *value, struct hf_err *err)
{
	struct bench_options *options = ctx;
	return read_number(value, SECONDS_MAX, &options->seconds, err);
}

static void print_number(const char *name, double value, int decimals)
{
	if (isfinite(value))
		printf(",\"%s\":%.*f", name, decimals, value);
	else
		printf(",\"%s\":null", name);
}

static void print_json(const struct bench_options *options, const struct report *report)
{
	static const char *const words[] = {
		[PASS_NO] = "false", [PASS_YES] = "true", [PASS_NO_MARK] = "null"
	};
	printf("{\"work\":\"%s\",\"clients\":%d", bench_work_name(options->work), options->clients);
	print_number("ops_per_s", report->ops_per_s, 1);
	print_number("p50_ms", report->p50_ms, 3);
	print_number("p99_ms", report->p99_ms, 3);
	printf(",\"floor\":\"%s\"", report->floor);
	print_number("floor_ops_per_s", report->floor_ops_per_s, 1);
	print_number("ratio", report->ratio, 4);
	print_number("durable_commits_per_op", report->durable_commits_per_op, 4);
	print_number("wal_bytes_per_op", report->wal_bytes_per_op, 2);
	print_number("wal_fpi_bytes_per_op", report->wal_fpi_bytes_per_op, 2);
	printf(",\"pass\":%s", words[report->pass]);
	print_number("operations", report->operations, 0);
	if (options->work == BENCH_RUN)
		print_number("closed_ops_per_s", report->closed_ops_per_s, 1);
	if (options->work == BENCH_LATENCY) {
		print_number("start_p50_ms", report->start_p50_ms, 3);
		print_number("start_p99_ms", report->start_p99_ms, 3);
	}
	puts("}");
}

static void print_row(const char *name, double value, int decimals, const char *unit)
{
	if (isfinite(value))
		printf("  %-22s %12.*f %s\n", name, decimals, value, unit);
}

static void print_table(const struct bench_options *options, const struct report *report)
{
	static const char *const words[] = {
		[PASS_NO] = "missed", [PASS_YES] = "kept", [PASS_NO_MARK] = ""
	};
	printf("%s, %d client%s, %.0f operations\n", bench_work_name(options->work),
	       options->clients, options->clients == 1 ? "" : "s", report->operations);
	print_row(options->work == BENCH_RUN ? "drained" : "rate", report->ops_per_s, 1, "/s");
	print_row("closed loop", report->closed_ops_per_s, 1, "/s");
	print_row("p50", report->p50_ms, 3, "ms");
	print_row("p99", report->p99_ms, 3, "ms");
	print_row("start p50", report->start_p50_ms, 3, "ms");
	print_row("start p99", report->start_p99_ms, 3, "ms");
	printf("  %-22s %12.1f /s (%s)\n", "floor", report->floor_ops_per_s, report->floor);
	print_row("ratio", report->ratio, 3, "");
	print_row("durable commits", report->durable_commits_per_op, 3, "per operation");
	print_row("log", report->wal_bytes_per_op, 1, "bytes per operation");
	print_row("  of it page images", report->wal_fpi_bytes_per_op, 1, "bytes");
	if (report->pass != PASS_NO_MARK)
		printf("  mark: %s: %s\n", report->mark, words[report->pass]);
}

int cmd_bench(int argc, char **argv)
{
	struct bench_options options = { .clients = 64, .seconds = 5, .dir = ".holdfast/bench" };
	bool json = false;
	const struct own_flag own[] = { { "clients", .take = on_clients, .ctx = &options },
					{ "seconds", .take = on_seconds, .ctx = &options },
					{ "dir", .text = &options.dir },
					{ "json", .on = &json },
					{} };
	hf_cleanup(config) struct config config;
	int code = command_load("bench", ' ', argc, argv, own, &config);
	if (code != EXIT_DONE)
		return code;
	if (config.arguments_count != 1 || !bench_work_parse(config.arguments[0], &options.work))
		return command_usage("bench",
				     "give one work: accept, run, poll, repeat, latency or front");
	struct report report;
	struct hf_err err = {};
	const struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGINT, &action, nullptr);
	sigaction(SIGTERM, &action, nullptr);
	sigaction(SIGHUP, &action, nullptr);
	signal(SIGPIPE, SIG_IGN);
	if (bench_run(&options, &stopped, &report, &err) != HF_OK)
		return command_failed("bench", err.text);
	(json ? print_json : print_table)(&options, &report);
	return EXIT_DONE;
}
