/* cmd_operate.c - `holdfast retry`, `pause`, `resume` and `cancel`: an operator acts on one task,
 * on all tasks of a filter (their count is shown first), or on a whole tool or tenant. Who and why
 * are kept in the audit record. What each act may do stands in sql/functions/operate.sql. */
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
#include "runtime/random.h"
#include "runtime/task_find.h"
#include "runtime/task_why.h"
#include "runtime/terminal.h"

constexpr char BATCH_TASKS[] = "200";     /* of one commit */
constexpr char COUNT_MAX[] = "100001";    /* tasks are counted up to here */
constexpr char TENANT_BATCH[] = "500";    /* tasks of a tenant that a commit makes due again */
constexpr char PAUSE_PAGES[] = "256";     /* of `work`, looked through by one commit */
constexpr size_t RETRY_RANDOM_BYTES = 16; /* of a task ID */

struct options {
	const char *act;
	const char *by, *why, *from, *tool, *tenant, *state, *task;
	int64_t older_ms;
	bool new_key, yes, filtered;
	struct task_id id;
};

static enum hf_code on_older(void *ctx, const char *value, struct hf_err *err)
{
	struct options *options = ctx;
	options->filtered = true;
	return age_parse(slice_of(value), &options->older_ms)
		   ? HF_OK
		   : hf_fail(err, HF_INVALID, AGE_WANTED);
}

static int failed(const struct options *options, const struct hf_err *err)
{
	return command_refused(options->act, err, true);
}

/* --- one task --------------------------------------------------------------------------------- */

/* The number of the phase of that name; HF_MISSING where the task has none. */
static enum hf_code phase_find(PGconn *conn, const struct options *options, const char *week,
			       const char *task, char **number, struct hf_err *err)
{
	const char *const values[] = { week, task, options->from };
	hf_cleanup(result) PGresult *result = nullptr;
	hf_try(pg_run(conn,
		      "SELECT max(p.ord - 1) FILTER (WHERE p.name = $3), v.name, "
		      "string_agg(p.name, ', ' ORDER BY p.ord) "
		      "FROM holdfast.task t JOIN holdfast.tool v ON v.tool = t.tool "
		      "CROSS JOIN LATERAL (SELECT x ->> 'name' AS name, ord FROM "
		      "json_array_elements(v.doc::json -> 'phases') WITH ORDINALITY y (x, ord)) p "
		      "WHERE t.week = $1 AND t.task = $2 GROUP BY v.name",
		      countof(values), values, &result, err));
	if (PQntuples(result) != 1)
		return hf_fail(err, HF_MISSING, "no such task, or its result is no longer kept");
	if (PQgetisnull(result, 0, 0))
		return hf_fail(err, HF_MISSING, "its tool %s has no phase `%s`, but: %s",
			       PQgetvalue(result, 0, 1), options->from, PQgetvalue(result, 0, 2));
	*number = hf_strdup(PQgetvalue(result, 0, 0));
	return HF_OK;
}

/* Behind the answer what it names: the successor, or what is done and stands in the way. */
static const char retry_sql[] =
    "SELECT r.answer, coalesce(holdfast.task_id(r.successor), CASE r.answer WHEN 'done' THEN "
    "(SELECT s.name FROM holdfast.step s "
    " JOIN holdfast.task t ON t.week = s.week AND t.task = s.task "
    " JOIN holdfast.tool v ON v.tool = t.tool "
    " WHERE s.week = $1 AND s.task = $2 AND s.kind = 'recovery_point' "
    " AND s.place / 65536 >= $3 AND NOT holdfast.runs_anew(v.doc, s.place / 65536) "
    " ORDER BY s.place LIMIT 1) END) "
    "FROM holdfast.retry($1, $2, $3, $4, $5, $6, decode($7, 'hex')) r";

static enum hf_code retry(PGconn *conn, const struct options *options, const char *task,
			  PGresult **result, struct hf_err *err)
{
	unsigned char random[RETRY_RANDOM_BYTES];
	char week[16], hex[2 * RETRY_RANDOM_BYTES + 1];
	char *from = nullptr;
	snprintf(week, sizeof week, "%d", task_id_week(&options->id));
	if (options->from)
		hf_try(phase_find(conn, options, week, task, &from, err));
	random_bytes(random, sizeof random);
	const char *const values[] = {
		week,
		task,
		from,
		options->new_key ? "true" : "false",
		options->by,
		options->why,
		hex_format(random, sizeof random, hex),
	};
	enum hf_code code = pg_run(conn, retry_sql, countof(values), values, result, err);
	free(from);
	return code;
}

/* Where that is not the current one: the version that it goes on with. Before the answer, whose
 * last word scripts take. */
static void tell_version(PGconn *conn, const struct options *options, const char *task)
{
	char week[16];
	snprintf(week, sizeof week, "%d", task_id_week(&options->id));
	const char *const values[] = { week, task };
	hf_cleanup(result) PGresult *result = nullptr;
	if (pg_run(conn,
		   "SELECT v.name, left(v.version, 12), left(c.version, 12) "
		   "FROM holdfast.task t JOIN holdfast.tool v ON v.tool = t.tool "
		   "JOIN holdfast.tool c ON c.name = v.name AND c.current AND c.tool <> v.tool "
		   "WHERE t.week = $1 AND t.task = $2",
		   countof(values), values, &result, nullptr) != HF_OK ||
	    PQntuples(result) != 1)
		return;
	printf("it runs version %s of %s, which it was accepted with; the current one, %s, wants a "
	       "call with a new effect ID\n",
	       PQgetvalue(result, 0, 1), PQgetvalue(result, 0, 0), PQgetvalue(result, 0, 2));
}

/* What `task why` says, where the act was refused because the task has ended. False: it has not, or
 * there is none. */
static bool tell_ended(PGconn *conn, const struct options *options, const char *answer)
{
	bool retries = strcmp(options->act, "retry") == 0;
	return strcmp(answer, retries ? "undone" : "missing") == 0 &&
	       task_why_tell(conn, &options->id);
}

static int act_on_task(PGconn *conn, struct options *options)
{
	struct hf_err err = {};
	if (task_find(conn, options->task, &options->id, &err) != HF_OK)
		return command_refused(options->act, &err, false);
	hf_cleanup(text) char *task = bytea_text(options->id.bytes, TASK_ID_BYTES);
	hf_cleanup(result) PGresult *result = nullptr;
	enum hf_code code;
	if (strcmp(options->act, "retry") == 0) {
		code = retry(conn, options, task, &result, &err);
	} else {
		const char *const values[] = { task, options->by, options->why };
		hf_cleanup(buf) struct buf sql = {};
		buf_add_format(&sql, "SELECT holdfast.%s_task($1, $2, $3), NULL", options->act);
		code = pg_run(conn, sql.data, countof(values), values, &result, &err);
	}
	if (code != HF_OK)
		return failed(options, &err);
	bool done;
	const char *answer = PQgetvalue(result, 0, 0);
	const char *text = operate_text(options->act, answer, &done);
	if (done && strcmp(options->act, "retry") == 0)
		tell_version(conn, options, task);
	if (!done && tell_ended(conn, options, answer))
		return EXIT_FAILED;
	FILE *out = done ? stdout : stderr;
	fprintf(out, "%s%s%s\n", text, PQgetisnull(result, 0, 1) ? "" : " ",
		PQgetvalue(result, 0, 1));
	return done ? EXIT_DONE : EXIT_FAILED;
}

/* --- a filter --------------------------------------------------------------------------------- */

struct tally {
	char answer[16];
	long long number;
};

static void tally_add(struct tally *tallies, size_t max, const PGresult *result)
{
	for (int row = 0; row < PQntuples(result); row++) {
		const char *answer = PQgetvalue(result, row, 0);
		size_t i = 0;
		while (i + 1 < max && tallies[i].number && strcmp(tallies[i].answer, answer) != 0)
			i++;
		snprintf(tallies[i].answer, sizeof tallies[i].answer, "%s", answer);
		tallies[i].number += atoll(PQgetvalue(result, row, 1));
	}
}

/* One batch behind `after`, and its last task to go on from; `more` false: there was none. */
static enum hf_code batch(PGconn *conn, const struct options *options, const char *most,
			  struct buf *after, bool *more, struct tally *tallies, size_t max,
			  struct hf_err *err)
{
	char older[24];
	snprintf(older, sizeof older, "%lld", (long long)options->older_ms);
	const char *const filter[] = { options->state, options->tool, options->tenant,
				       older,          after->data,   most };
	hf_cleanup(result) PGresult *picked = nullptr;
	hf_try(pg_run(conn,
		      "SELECT coalesce(array_agg(p), '{}'), max(encode(p, 'hex')) "
		      "FROM holdfast.pick($1, $2, $3, $4, $5, $6) p",
		      countof(filter), filter, &picked, err));
	*more = !PQgetisnull(picked, 0, 1);
	if (!*more)
		return HF_OK;
	buf_clear(after);
	buf_add_format(after, "\\x%s", PQgetvalue(picked, 0, 1));
	const char *const values[] = { options->act, PQgetvalue(picked, 0, 0), options->by,
				       options->why };
	hf_cleanup(result) PGresult *result = nullptr;
	hf_try(pg_run(conn, "SELECT * FROM holdfast.operate($1, $2, $3, $4)", countof(values),
		      values, &result, err));
	tally_add(tallies, max, result);
	return HF_OK;
}

static int act_on_all(PGconn *conn, const struct options *options)
{
	struct hf_err err = {};
	struct tally tallies[24] = {};
	hf_cleanup(buf) struct buf after = {};
	buf_add_text(&after, "\\x");
	/* A retry locks effects: one a commit holds up nobody else's calls. */
	const char *most = strcmp(options->act, "retry") == 0 ? "1" : BATCH_TASKS;
	enum hf_code code = HF_OK;
	for (bool more = true; more && code == HF_OK;)
		code = batch(conn, options, most, &after, &more, tallies, countof(tallies), &err);
	bool all = true;
	for (size_t i = 0; i < countof(tallies) && tallies[i].number; i++) {
		bool done;
		const char *text = operate_text(options->act, tallies[i].answer, &done);
		printf("%lld: %s\n", tallies[i].number, text);
		all = all && done;
	}
	if (code != HF_OK)
		return failed(options, &err);
	return all ? EXIT_DONE : EXIT_FAILED;
}

static int count_all(PGconn *conn, const struct options *options)
{
	struct hf_err err = {};
	char older[24];
	snprintf(older, sizeof older, "%lld", (long long)options->older_ms);
	const char *const values[] = { options->state, options->tool, options->tenant, older,
				       COUNT_MAX };
	hf_cleanup(result) PGresult *result = nullptr;
	if (pg_run(conn, "SELECT count(*) FROM holdfast.pick($1, $2, $3, $4, '\\x', $5)",
		   countof(values), values, &result, &err) != HF_OK)
		return failed(options, &err);
	const char *count = PQgetvalue(result, 0, 0);
	bool over = strcmp(count, COUNT_MAX) == 0;
	printf("%s%s %s %s\n", over ? "at least " : "", count,
	       strcmp(count, "1") == 0 ? "task is" : "tasks are", options->state);
	if (!options->yes) {
		puts("nothing was done; --yes does it");
		return EXIT_DONE;
	}
	return strcmp(count, "0") == 0 ? EXIT_DONE : act_on_all(conn, options);
}

/* --- a whole tool or tenant ------------------------------------------------------------------- */

static enum hf_code set_aside(PGconn *conn, struct hf_err *err)
{
	hf_cleanup(buf) struct buf page = {};
	buf_add_text(&page, "0");
	do {
		const char *const values[] = { page.data, PAUSE_PAGES };
		hf_cleanup(result) PGresult *result = nullptr;
		hf_try(pg_run(conn, "SELECT holdfast.pause_pages($1, $2)", countof(values), values,
			      &result, err));
		buf_clear(&page);
		buf_add_text(&page, PQgetvalue(result, 0, 0));
	} while (strcmp(page.data, "0") != 0);
	return HF_OK;
}

static enum hf_code take_up(PGconn *conn, const char *tenant, struct hf_err *err)
{
	for (bool more = true; more;) {
		const char *const values[] = { tenant, TENANT_BATCH };
		hf_cleanup(result) PGresult *result = nullptr;
		hf_try(pg_run(conn, "SELECT holdfast.resume_tenant($1, $2)", countof(values),
			      values, &result, err));
		more = strcmp(PQgetvalue(result, 0, 0), "0") != 0;
	}
	return HF_OK;
}

static int act_on_whole(PGconn *conn, const struct options *options)
{
	struct hf_err err = {};
	bool pauses = strcmp(options->act, "pause") == 0;
	const char *const values[] = { options->tool ? "tool" : "tenant",
				       options->tool ? options->tool : options->tenant, options->by,
				       options->why };
	hf_cleanup(buf) struct buf sql = {};
	buf_add_format(&sql, "SELECT holdfast.%s_all($1, $2, $3, $4)", options->act);
	hf_cleanup(result) PGresult *result = nullptr;
	enum hf_code code = pg_run(conn, sql.data, countof(values), values, &result, &err);
	/* Also where there was nothing to do: an earlier run may have been cut off. */
	if (code == HF_OK && options->tenant)
		code = pauses ? set_aside(conn, &err) : take_up(conn, options->tenant, &err);
	if (code != HF_OK)
		return failed(options, &err);
	bool done;
	const char *text = operate_text("all", PQgetvalue(result, 0, 0), &done);
	fprintf(done ? stdout : stderr, "%s\n", text);
	return done ? EXIT_DONE : EXIT_FAILED;
}

/* --- the commands ----------------------------------------------------------------------------- */

/* Whether it is clear which tasks are meant. */
static enum hf_code check_which(const struct options *options, bool pauses, struct hf_err *err)
{
	const char *act = options->act, *states = operate_states(act);
	bool named = options->tool || options->tenant;
	if (options->task && (options->filtered || named))
		return hf_fail(err, HF_INVALID, "give one task, or a filter, not both");
	if (!options->task && !options->filtered && !named)
		return hf_fail(err, HF_INVALID,
			       "give a task ID or effect ID, %sor a filter with --state",
			       pauses ? "--tool, --tenant, " : "");
	if (options->filtered && !options->state)
		return hf_fail(err, HF_INVALID, "a filter needs --state: one of %s", states);
	if (options->filtered && !operate_fits(act, options->state))
		return hf_fail(err, HF_INVALID,
			       "%s does nothing to tasks that are `%s`, but to: %s", act,
			       options->state, states);
	if (!options->filtered && !options->task && options->tool && options->tenant)
		return hf_fail(err, HF_INVALID, "give one tool or one tenant");
	return HF_OK;
}

static enum hf_code check(struct options *options, struct hf_err *err)
{
	bool pauses = strcmp(options->act, "pause") == 0 || strcmp(options->act, "resume") == 0;
	bool named = options->tool || options->tenant;
	options->filtered = options->filtered || options->state || (named && !pauses);
	if (options->filtered && !options->state && strcmp(options->act, "retry") == 0)
		options->state = "failed";
	hf_try(check_which(options, pauses, err));
	if ((options->from || options->new_key) && !options->task)
		return hf_fail(err, HF_INVALID, "--from and --new-key are for one task");
	bool counts = options->filtered && !options->yes;
	if (!counts && (!options->by || !options->why))
		return hf_fail(err, HF_INVALID, COMMAND_WHO_AND_WHY);
	return HF_OK;
}

static int run(const char *dsn, struct options *options)
{
	struct hf_err err = {};
	hf_cleanup(conn) PGconn *conn = nullptr;
	int code = command_connect(options->act, dsn, false, &conn);
	if (code != EXIT_DONE)
		return code;
	if (options->task)
		code = act_on_task(conn, options);
	else if (options->filtered)
		code = count_all(conn, options);
	else
		code = act_on_whole(conn, options);
	/* Hints alone: what polling finds later anyway. */
	(void)!pg_run(conn, "SELECT holdfast.wake_async('work'), holdfast.wake_async('wish')", 0,
		      nullptr, nullptr, &err);
	return code;
}

static int operate(const char *act, int argc, char **argv)
{
	struct options options = { .act = act };
	const struct own_flag own[] = {
		{ "by", .text = &options.by },
		{ "why", .text = &options.why },
		{ "task", .text = &options.task },
		{ "tool", .text = &options.tool },
		{ "tenant", .text = &options.tenant },
		{ "state", .text = &options.state },
		{ "older-than", .take = on_older, .ctx = &options },
		{ "yes", .on = &options.yes },
		/* The others have no more. */
		{ strcmp(act, "retry") == 0 ? "from" : nullptr, .text = &options.from },
		{ "new-key", .on = &options.new_key },
		{},
	};
	hf_cleanup(config) struct config config;
	struct hf_err err = {};
	int code = command_load(act, 'k', argc, argv, own, &config);
	if (code != EXIT_DONE)
		return code;
	if (config.arguments_count > 1 || (config.arguments_count == 1 && options.task))
		return command_usage(act, "one task at a time; for more there are filters");
	if (config.arguments_count == 1)
		options.task = config.arguments[0];
	return check(&options, &err) == HF_OK ? run(config.dsn, &options)
					      : command_usage(act, err.text);
}

int cmd_retry(int argc, char **argv)
{
	return operate("retry", argc, argv);
}

int cmd_pause(int argc, char **argv)
{
	return operate("pause", argc, argv);
}

int cmd_resume(int argc, char **argv)
{
	return operate("resume", argc, argv);
}

int cmd_cancel(int argc, char **argv)
{
	return operate("cancel", argc, argv);
}
