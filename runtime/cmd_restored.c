/* cmd_restored.c - `holdfast restored`: an operator says that the store was put back to an earlier
 * state, and since when something may be missing. Who and why are kept in the audit record. What is
 * done to which task stands in sql/functions/restore.sql; here it is done batch by batch:
 *
 *   begin (nothing is accepted or claimed, every claim is void) ──► a lease (who held one of before
 *   sends no more) ──► each open task ──► end (it goes on)
 *
 * Cut off anywhere, the store stands still until it is run again. */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/pgrun.h"
#include "runtime/rfc3339.h"

constexpr char BATCH_TASKS[] = "200"; /* of one commit */

struct options {
	const char *since, *by, *why;
	bool copy, yes, confirm, intact;
	int64_t lease_ms;
};

static enum hf_code on_since(void *ctx, const char *value, struct hf_err *err)
{
	struct options *options = ctx;
	int64_t ms;
	options->since = value;
	if (!rfc3339_parse(slice_of(value), &ms))
		return hf_fail(err, HF_INVALID, "a time, as 2026-07-28T11:00:00Z");
	if (ms > clock_wall_ms())
		return hf_fail(err, HF_INVALID, "it lies in the future");
	return HF_OK;
}

static int failed(const struct hf_err *err)
{
	return command_refused("restored", err, true);
}

/* One text of one row, as a copy. */
static enum hf_code ask(PGconn *conn, const char *sql, int count, const char *const *values,
			char **out, struct hf_err *err)
{
	hf_cleanup(result) PGresult *result = nullptr;
	hf_try(pg_run(conn, sql, count, values, &result, err));
	*out = PQgetisnull(result, 0, 0) ? nullptr : hf_strdup(PQgetvalue(result, 0, 0));
	return HF_OK;
}

/* --- what it would do ------------------------------------------------------------------------- */

static const char *treatment(const char *class, bool copy)
{
	static const struct {
		const char *class, *text, *copy;
	} rows[] = {
		{ "unsafe", "become unknown, to be settled", nullptr },
		{ "lookup", "are looked for before they are sent", nullptr },
		{ "keyed", "go on with the same keys", "become unknown when they are confirmed" },
	};
	for (size_t i = 0; i < countof(rows); i++)
		if (strcmp(rows[i].class, class) == 0)
			return copy && rows[i].copy ? rows[i].copy : rows[i].text;
	return "go on";
}

static int show(PGconn *conn, const struct options *options)
{
	struct hf_err err = {};
	hf_cleanup(result) PGresult *result = nullptr;
	if (pg_run(conn, "SELECT * FROM holdfast.restore_counts()", 0, nullptr, &result, &err) !=
	    HF_OK)
		return failed(&err);
	long long claimed = 0;
	for (int row = 0; row < PQntuples(result); row++) {
		const char *class = PQgetvalue(result, row, 0);
		claimed += atoll(PQgetvalue(result, row, 2));
		printf("%s open tasks are at %s phases: they %s\n", PQgetvalue(result, row, 1),
		       class, treatment(class, options->copy));
	}
	printf("%lld of them are claimed: those claims are void\n", claimed);
	if (!options->yes)
		puts("nothing was done; --yes does it");
	return EXIT_DONE;
}

/* --- doing it --------------------------------------------------------------------------------- */

static enum hf_code each_task(PGconn *conn, struct hf_err *err)
{
	char *after = hf_strdup("\\x");
	enum hf_code code = HF_OK;
	while (after && code == HF_OK) {
		const char *const values[] = { after, BATCH_TASKS };
		char *last = nullptr;
		code = ask(conn, "SELECT holdfast.restore_tasks($1, $2)", countof(values), values,
			   &last, err);
		free(after);
		after = last;
	}
	free(after);
	return code;
}

static int restore(PGconn *conn, const struct options *options)
{
	struct hf_err err = {};
	const char *const values[] = { options->since, options->copy ? "true" : "false",
				       options->by, options->why };
	char *answer = nullptr;
	if (ask(conn, "SELECT holdfast.restore_begin($1, $2, $3, $4)", countof(values), values,
		&answer, &err) != HF_OK)
		return failed(&err);
	bool done = strcmp(answer, "done") == 0;
	free(answer);
	if (done) {
		puts("that has been done already; nothing was done");
		return EXIT_DONE;
	}
	clock_rest_ms(options->lease_ms);
	if (each_task(conn, &err) != HF_OK ||
	    pg_run(conn, "SELECT holdfast.restore_end()", 0, nullptr, nullptr, &err) != HF_OK) {
		failed(&err);
		return command_failed("restored", "the store stands still until this is run again");
	}
	puts(options->copy
		 ? "done: it goes on; nothing foreign runs before `holdfast restored --confirm`"
		 : "done: it goes on; `holdfast task list --state unknown` lists what is to be "
		   "settled");
	return EXIT_DONE;
}

static int one_act(PGconn *conn, const struct options *options)
{
	static const struct {
		const char *answer, *text;
		int code;
	} texts[] = {
		{ "intact", "it goes on as it is", EXIT_DONE },
		{ "confirmed", "confirmed: its tasks go on", EXIT_DONE },
		{ "running", "a restore is under way: run it to its end first", EXIT_FAILED },
		{ "no_copy", "it is no copy that waits for that", EXIT_FAILED },
	};
	struct hf_err err = {};
	const char *const values[] = { options->by, options->why };
	char *answer = nullptr;
	if (ask(conn,
		options->intact ? "SELECT holdfast.restore_intact($1, $2)"
				: "SELECT holdfast.restore_confirm($1, $2)",
		countof(values), values, &answer, &err) != HF_OK)
		return failed(&err);
	int code = EXIT_FAILED;
	for (size_t i = 0; i < countof(texts); i++) {
		if (strcmp(texts[i].answer, answer) != 0)
			continue;
		code = texts[i].code;
		fprintf(code == EXIT_DONE ? stdout : stderr, "%s\n", texts[i].text);
	}
	free(answer);
	return code;
}

static int run(const char *dsn, const struct options *options)
{
	struct hf_err err = {};
	hf_cleanup(conn) PGconn *conn = nullptr;
	int code = command_connect("restored", dsn, false, &conn);
	if (code != EXIT_DONE)
		return code;
	if (options->since)
		code = show(conn, options);
	if (code == EXIT_DONE && options->since && options->yes)
		code = restore(conn, options);
	else if (!options->since)
		code = one_act(conn, options);
	/* A hint alone: what polling finds later anyway. */
	(void)!pg_run(conn, "SELECT holdfast.wake_async('work')", 0, nullptr, nullptr, &err);
	return code;
}

/* nullptr: it is clear what is wanted. */
static const char *wrong(const struct config *config, const struct options *options)
{
	int acts = (options->since != nullptr) + options->confirm + options->intact;
	if (config->arguments_count > 0)
		return COMMAND_FLAGS_ALONE;
	if (acts != 1)
		return "give one of --since TIME, --confirm and --intact";
	if (options->copy && !options->since)
		return "--copy goes with --since";
	bool acting = options->yes || !options->since;
	if (acting && (!options->by || !options->why))
		return COMMAND_WHO_AND_WHY;
	return nullptr;
}

int cmd_restored(int argc, char **argv)
{
	struct options options = {};
	const struct own_flag own[] = { { "since", .take = on_since, .ctx = &options },
					{ "copy", .on = &options.copy },
					{ "confirm", .on = &options.confirm },
					{ "intact", .on = &options.intact },
					{ "yes", .on = &options.yes },
					{ "by", .text = &options.by },
					{ "why", .text = &options.why },
					{} };
	hf_cleanup(config) struct config config;
	int code = command_load("restored", 'k', argc, argv, own, &config);
	if (code != EXIT_DONE)
		return code;
	options.lease_ms = config.lease_ms;
	const char *text = wrong(&config, &options);
	return text ? command_usage("restored", text) : run(config.dsn, &options);
}
