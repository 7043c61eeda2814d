/* cmd_task.c - `holdfast task`: an administrator's look into the tables, read only, on one plain
 * connection and one snapshot. Postgres builds a JSON object a task; --json prints it as it is,
 * else task_story.c tells it. What it asks stands in sql/admin. */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/id.h"
#include "runtime/json.h"
#include "runtime/operate.h"
#include "runtime/pgrun.h"
#include "runtime/rfc3339.h"
#include "runtime/task.h"
#include "runtime/task_find.h"
#include "runtime/task_story.h"
#include "runtime/task_why.h"
#include "runtime/terminal.h"

constexpr char LIST_LIMIT_DEFAULT[] = "20";
constexpr int64_t LIST_LIMIT_MAX = 1000;
constexpr size_t AGE_TEXT_MAX = 24;

struct options {
	const char *state, *tool, *tenant, *limit; /* each nullable */
	/* Empty where not given; one of the first two at most. */
	char since_time[RFC3339_TEXT_LEN + 1], since_ms[AGE_TEXT_MAX], older_ms[AGE_TEXT_MAX];
	bool json;
	bool why;
	bool act; /* found: somebody has to do something */
};

/* Their parameters stand in their heads. */
static const char story_sql[] = {
#embed "sql/admin/task_show.sql" suffix(, )
	0
};
static const char removed_sql[] = {
#embed "sql/admin/task_removed.sql" suffix(, )
	0
};
static const char list_sql[] = {
#embed "sql/admin/task_list.sql" suffix(, )
	0
};

static void print_story(struct options *options, struct slice story)
{
	if (options->why && task_why_print(stdout, story, &options->act))
		return;
	if (options->json) {
		print_json_line(stdout, story);
		putchar('\n');
	} else {
		task_story_print(story);
	}
}

/* A story that Postgres made, once it passed the scan: stored text that is no JSON must not reach
 * the walk. */
static enum hf_code show_rows(struct options *options, PGresult *rows, int *shown,
			      struct hf_err *err)
{
	for (int i = 0; i < PQntuples(rows); i++) {
		struct slice story = { PQgetvalue(rows, i, 0), (size_t)PQgetlength(rows, i, 0) };
		if (!options->json)
			hf_try(json_scan(story, err));
		if (*shown > 0 && !options->json)
			putchar('\n');
		print_story(options, story);
		++*shown;
	}
	return HF_OK;
}

static enum hf_code show_task(PGconn *conn, struct options *options, const struct task_id *id,
			      int *shown, struct hf_err *err)
{
	hf_cleanup(result) PGresult *rows = nullptr;
	if (options->why) {
		hf_try(task_why_ask(conn, id, &rows, err));
	} else {
		char week[12];
		hf_cleanup(text) char *task = bytea_text(id->bytes, sizeof id->bytes);
		snprintf(week, sizeof week, "%d", task_id_week(id));
		const char *const values[] = { week, task };
		hf_try(pg_run(conn, story_sql, countof(values), values, &rows, err));
	}
	return show_rows(options, rows, shown, err);
}

/* The digest's task, or what its tombstone says. */
static enum hf_code show_effect(PGconn *conn, struct options *options, const char *effect_id,
				const char *digest, const char *task_text, int *shown,
				struct hf_err *err)
{
	struct task_id id;
	int before = *shown;
	if (task_id_parse(slice_of(task_text), &id))
		hf_try(show_task(conn, options, &id, shown, err));
	if (*shown > before)
		return HF_OK;
	const char *const values[] = { digest, effect_id };
	hf_cleanup(result) PGresult *rows = nullptr;
	hf_try(pg_run(conn, removed_sql, countof(values), values, &rows, err));
	return show_rows(options, rows, shown, err);
}

static enum hf_code show_effects(PGconn *conn, struct options *options, const char *effect_id,
				 int *shown, struct hf_err *err)
{
	hf_cleanup(result) PGresult *effects = nullptr;
	hf_try(effects_find(conn, effect_id, &effects, err));
	for (int i = 0; effects && i < PQntuples(effects); i++)
		hf_try(show_effect(conn, options, effect_id, PQgetvalue(effects, i, 0),
				   PQgetvalue(effects, i, 1), shown, err));
	return HF_OK;
}

static enum hf_code show(PGconn *conn, struct options *options, const char *name, int *shown,
			 struct hf_err *err)
{
	struct task_id id;
	if (task_id_parse(slice_of(name), &id))
		hf_try(show_task(conn, options, &id, shown, err));
	/* A caller may have chosen an effect ID that looks like a task's. */
	if (*shown == 0)
		hf_try(show_effects(conn, options, name, shown, err));
	if (*shown > 1 && !options->json)
		printf("\n%d tasks bear this effect ID: it is unique within an owner and a tool.\n",
		       *shown);
	return HF_OK;
}

static const char *given(const char *text)
{
	return *text ? text : nullptr;
}

static enum hf_code list(PGconn *conn, const struct options *options, struct hf_err *err)
{
	const char *const values[] = {
		options->state,
		options->tool,
		options->tenant,
		given(options->since_time),
		given(options->since_ms),
		given(options->older_ms),
		options->limit ? options->limit : LIST_LIMIT_DEFAULT,
	};
	hf_cleanup(result) PGresult *rows = nullptr;
	hf_try(pg_run(conn, list_sql, countof(values), values, &rows, err));
	if (!options->json)
		task_row_heading();
	for (int i = 0; i < PQntuples(rows); i++) {
		struct slice row = { PQgetvalue(rows, i, 0), (size_t)PQgetlength(rows, i, 0) };
		if (options->json) {
			print_json_line(stdout, row);
			putchar('\n');
		} else {
			hf_try(json_scan(row, err));
			task_row_print(row);
		}
	}
	return HF_OK;
}

static enum hf_code on_since(void *ctx, const char *value, struct hf_err *err)
{
	struct options *options = ctx;
	int64_t ms;
	options->since_time[0] = options->since_ms[0] = '\0';
	if (age_parse(slice_of(value), &ms))
		snprintf(options->since_ms, AGE_TEXT_MAX, "%lld", (long long)ms);
	else if (rfc3339_parse(slice_of(value), &ms))
		rfc3339_format(ms, options->since_time);
	else
		return hf_fail(err, HF_INVALID, AGE_WANTED ", or a time as 2026-07-28T11:00:00Z");
	return HF_OK;
}

static enum hf_code on_older(void *ctx, const char *value, struct hf_err *err)
{
	struct options *options = ctx;
	int64_t ms;
	if (!age_parse(slice_of(value), &ms))
		return hf_fail(err, HF_INVALID, AGE_WANTED);
	snprintf(options->older_ms, AGE_TEXT_MAX, "%lld", (long long)ms);
	return HF_OK;
}

static enum hf_code on_state(void *ctx, const char *value, struct hf_err *err)
{
	struct options *options = ctx;
	enum task_state state;
	options->state = value;
	return task_state_parse(slice_of(value), &state)
		   ? HF_OK
		   : hf_fail(err, HF_INVALID,
			     "`%s` is none of ready, scheduled, running, waiting, "
			     "paused, parked, unverified, unknown, completed, failed and cancelled",
			     value);
}

static enum hf_code on_limit(void *ctx, const char *value, struct hf_err *err)
{
	struct options *options = ctx;
	char *end = nullptr;
	long long limit = strtoll(value, &end, 10);
	options->limit = value;
	return *end || limit < 1 || limit > LIST_LIMIT_MAX
		   ? hf_fail(err, HF_INVALID, "a number from 1 to %lld", (long long)LIST_LIMIT_MAX)
		   : HF_OK;
}

/* `name` is nullptr for the list. */
static int look(const char *dsn, struct options *options, const char *name)
{
	struct hf_err err = {};
	hf_cleanup(conn) PGconn *conn = nullptr;
	int exit = command_connect("task", dsn, true, &conn);
	if (exit != EXIT_DONE)
		return exit;
	int shown = 0;
	enum hf_code code =
	    pg_run(conn, "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY", 0, nullptr,
		   nullptr, &err);
	if (code == HF_OK)
		code = name ? show(conn, options, name, &shown, &err) : list(conn, options, &err);
	if (code != HF_OK)
		return command_refused("task", &err, false);
	if (name && shown == 0) {
		fprintf(
		    stderr,
		    "holdfast task: no task has the ID or the effect ID `%s`, or it is no longer "
		    "kept; `holdfast task list` shows the newest\n",
		    name);
		return EXIT_FAILED;
	}
	return options->act ? EXIT_ACT : EXIT_DONE;
}

/* nullptr: it is clear what is wanted. */
static const char *wrong(const struct options *options, bool shows, const char *act, int arguments)
{
	bool filtered = options->state || options->tool || options->tenant || options->limit ||
			*options->since_time || *options->since_ms || *options->older_ms;
	if (!shows && strcmp(act, "list") != 0)
		return "give one of show, why and list";
	if (arguments != (shows ? 2 : 1))
		return shows ? "give one task ID or effect ID" : "list takes no argument";
	if (options->why && options->json)
		return "--json belongs to show and list";
	return shows && filtered ? "filters and --limit belong to list" : nullptr;
}

int cmd_task(int argc, char **argv)
{
	struct options options = {};
	const struct own_flag own[] = {
		{ "json", .on = &options.json },
		{ "state", .take = on_state, .ctx = &options },
		{ "tool", .text = &options.tool },
		{ "tenant", .text = &options.tenant },
		{ "since", .take = on_since, .ctx = &options },
		{ "older-than", .take = on_older, .ctx = &options },
		{ "limit", .take = on_limit, .ctx = &options },
		{},
	};
	hf_cleanup(config) struct config config;
	int code = command_load("task", 'k', argc, argv, own, &config);
	if (code != EXIT_DONE)
		return code;
	const char *act = config.arguments_count > 0 ? config.arguments[0] : "";
	options.why = strcmp(act, "why") == 0;
	bool shows = options.why || strcmp(act, "show") == 0;
	const char *text = wrong(&options, shows, act, config.arguments_count);
	return text ? command_usage("task", text)
		    : look(config.dsn, &options, shows ? config.arguments[1] : nullptr);
}
