/* cmd_settle.c - `holdfast settle`: a person says what became of an unknown task, and is named in
 * the audit record (V7). What it may do stands in sql/functions/unknown.sql. */
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
#include "runtime/pgrun.h"
#include "runtime/store.h"
#include "runtime/task_find.h"
#include "runtime/task_why.h"
#include "runtime/value.h"

struct options {
	const char *task, *verdict, *by, *why, *state;
	bool force;
	struct task_id id;
};

/* Where the task stands: what settle() has to be told of its phase. */
struct place {
	char *phase; /* heap */
	/* Heap, nullable: a place that a later part reads, and --state does not have. */
	char *reads;
	char *waits; /* heap, nullable: what is paused, tool or tenant, so that it waits */
	bool paused; /* stays so */
	bool ends;   /* a cancel was asked for, and whatever is left is not run */
	int64_t visible_within_ms;
};

/* `{}` says that it gave nothing, and --force that whoever settles knows better. */
static bool has(const struct options *options, struct slice pointer)
{
	struct slice state = json_trim(slice_of(options->state ? options->state : "")), value;
	return options->force || slice_is(state, "{}") ||
	       (options->state && json_scan(state, nullptr) == HF_OK &&
		json_pointer(state, pointer, &value));
}

/* The first pointer into that place in these templates that leads nowhere; heap, nullable. */
static char *reads_in(const struct options *options, struct slice text, const char *place)
{
	const char *end = text.data + text.len, *at = text.data;
	size_t skip = strlen(place);
	for (; text.len > 0 && (at = memmem(at, (size_t)(end - at), place, skip)); at++) {
		size_t len = skip;
		while (at + len < end && at[len] != '"' && at[len] != '}')
			len++;
		bool reaches_in = len == skip || at[skip] == '/';
		if (reaches_in && !has(options, (struct slice){ at + skip, len - skip }))
			return hf_format("%.*s", (int)len, at);
	}
	return nullptr;
}

/* As above, in all that may still read the state of phase `number`: later ones, undo steps, the
 * result. */
static char *reads_of(const struct options *options, struct slice doc, int number,
		      const char *phase)
{
	hf_cleanup(text) char *place = hf_format("/state/%s", phase);
	struct slice phases = {}, later, undo, result;
	char *reads = nullptr;
	json_member(doc, "phases", &phases);
	for (size_t i = 0; !reads && json_element(phases, i, &later); i++) {
		if ((int)i > number)
			reads = reads_in(options, later, place);
		else if (json_member(later, "undo", &undo))
			reads = reads_in(options, undo, place);
	}
	if (!reads && json_member(doc, "result", &result))
		reads = reads_in(options, result, place);
	return reads;
}

/* The phase it stands at, out of its own version of tool.json; none of a task that is not open. */
static enum hf_code place_find(PGconn *conn, const struct options *options, struct place *place,
			       struct hf_err *err)
{
	char *task = bytea_text(options->id.bytes, TASK_ID_BYTES);
	const char *const values[] = { task, options->verdict };
	PGresult *result = nullptr;
	enum hf_code code = pg_run(conn,
				   "SELECT w.phase, t.doc, w.state = 'unknown', "
				   "w.pause = 'task' AND NOT w.cancel, w.cancel AND w.phase < 64 "
				   "AND NOT ($2 = 'done' AND w.phase + 1 = t.phases "
				   "AND w.phase <> ALL (t.undos)), "
				   "holdfast.pause_word(w.queue, w.owner) FROM holdfast.work w "
				   "JOIN holdfast.tool t ON t.tool = w.queue WHERE w.task = $1",
				   countof(values), values, &result, err);
	free(task);
	hf_try(code);
	struct slice name = {}, visible = {};
	if (PQntuples(result) == 1) {
		struct slice doc = slice_of(PQgetvalue(result, 0, 1));
		int number = atoi(PQgetvalue(result, 0, 0));
		bool undoing = number >= UNDO_PHASE_FIRST;
		hf_cleanup(buf) struct buf pointer = {};
		buf_add_format(&pointer, "/phases/%d", undoing ? undo_phase(number) : number);
		struct slice phase;
		if (json_pointer(doc, buf_slice(&pointer), &phase)) {
			json_member(phase, "name", &name);
			if (undoing)
				json_member(phase, "undo", &phase);
			json_member(phase, "visible_within_ms", &visible);
		}
		char *text = name.len > 0 ? json_string_dup(name) : nullptr;
		place->phase =
		    text ? hf_format("%s%s", undoing ? "undo:" : "", text) : hf_strdup("its end");
		if (text && !undoing && PQgetvalue(result, 0, 2)[0] == 't')
			place->reads = reads_of(options, doc, number, text);
		free(text);
		place->paused = PQgetvalue(result, 0, 3)[0] == 't';
		place->ends = PQgetvalue(result, 0, 4)[0] == 't';
		if (!PQgetisnull(result, 0, 5))
			place->waits = hf_strdup(PQgetvalue(result, 0, 5));
	}
	if (visible.len > 0 && !json_integer(visible, &place->visible_within_ms))
		place->visible_within_ms = 0;
	PQclear(result);
	return HF_OK;
}

/* The state of the phase as a bytea literal; "{}" where none was given. */
static enum hf_code state_text(const char *json, char **out, struct hf_err *err)
{
	struct slice text = slice_of(json ? json : "{}");
	if (json_scan(text, err) != HF_OK)
		return hf_wrap(err, "nothing was done: --state must be JSON, as '{\"number\": 8}'");
	hf_cleanup(buf) struct buf state = {};
	value_from_json(json_trim(text), &state);
	*out = bytea_text((const unsigned char *)state.data, state.len);
	return HF_OK;
}

/* What was done, or why not; heap. */
static enum hf_code settle(PGconn *conn, struct options *options, struct place *place,
			   char **answer, struct hf_err *err)
{
	char *state = nullptr;
	hf_try(task_find(conn, options->task, &options->id, err));
	hf_try(place_find(conn, options, place, err));
	if (!place->phase) {
		*answer = hf_strdup("missing");
		return HF_OK;
	}
	enum hf_code code = state_text(options->state, &state, err);
	if (code == HF_OK && place->reads && strcmp(options->verdict, "done") == 0)
		code = hf_fail(err, HF_INVALID,
			       "nothing was done: the tool reads %s%s, so say what phase %s gave, "
			       "with --state '{...}' ('{}': nothing; --force: as it is)",
			       place->reads, options->state ? ", which --state does not have" : "",
			       place->phase);
	if (code == HF_OK) {
		char week[16], visible[24];
		snprintf(week, sizeof week, "%d", task_id_week(&options->id));
		snprintf(visible, sizeof visible, "%lld", (long long)place->visible_within_ms);
		char *task = bytea_text(options->id.bytes, TASK_ID_BYTES);
		const char *const values[] = {
			week,         task,         options->verdict,
			options->by,  options->why, state,
			place->phase, visible,      options->force ? "true" : "false"
		};
		PGresult *result = nullptr;
		code = pg_run(conn, "SELECT holdfast.settle($1, $2, $3, $4, $5, $6, $7, $8, $9)", 9,
			      values, &result, err);
		if (code == HF_OK)
			*answer = hf_strdup(PQgetvalue(result, 0, 0));
		PQclear(result);
		free(task);
	}
	free(state);
	return code;
}

static int refused(PGconn *conn, const struct options *options, const char *text)
{
	int code = command_failed("settle", text);
	task_why_tell(conn, &options->id);
	return code;
}

static int report(PGconn *conn, const struct options *options, const char *answer,
		  const struct place *place)
{
	if (strcmp(answer, "missing") == 0)
		return refused(conn, options, "nothing was done: no open task has that ID");
	if (strcmp(answer, "not_unknown") == 0)
		return refused(conn, options, "nothing was done: the task is not unknown");
	if (strcmp(answer, "too_early") == 0)
		return command_failed("settle", "its effect may still appear: ask downstream once "
						"more, later; --force settles all the same");
	bool done = strcmp(options->verdict, "done") == 0;
	if (strcmp(options->verdict, "fail") == 0) {
		printf("settled: the task has ended failed at phase %s", place->phase);
	} else {
		printf("settled: phase %s is %sdone, and the task ", place->phase,
		       done ? "" : "not ");
		if (place->ends)
			printf("ends cancelled, as was asked for, behind its undo steps, if any");
		else
			printf("%s %s",
			       place->paused ? "is paused again, to be resumed" : "goes on",
			       done ? "behind it" : "there");
		if (place->waits)
			printf("; %s is paused, so it waits for `holdfast resume`", place->waits);
	}
	puts("; an audit record names who and why");
	return EXIT_DONE;
}

static int run(const char *dsn, struct options *options)
{
	struct hf_err err = {};
	struct place place = {};
	hf_cleanup(conn) PGconn *conn = nullptr;
	int code = command_connect("settle", dsn, false, &conn);
	if (code != EXIT_DONE)
		return code;
	hf_cleanup(text) char *answer = nullptr;
	code = settle(conn, options, &place, &answer, &err) == HF_OK
		   ? report(conn, options, answer, &place)
		   : command_refused("settle", &err, true);
	free(place.phase);
	free(place.reads);
	free(place.waits);
	return code;
}

/* nullptr: it is clear what is wanted. */
static const char *wrong(const struct config *config, const struct options *options)
{
	static const char *const verdicts[] = { "done", "absent", "fail" };
	if (config->arguments_count != 2)
		return "give a task ID or effect ID, and what became of it: done, absent or fail";
	size_t i = 0;
	while (i < countof(verdicts) && strcmp(options->verdict, verdicts[i]) != 0)
		i++;
	if (i == countof(verdicts))
		return "what became of it is one of done, absent and fail";
	if (!options->by || !options->why)
		return COMMAND_WHO_AND_WHY;
	if (options->state && strcmp(options->verdict, "done") != 0)
		return "--state belongs to done";
	return nullptr;
}

int cmd_settle(int argc, char **argv)
{
	struct options options = {};
	const struct own_flag own[] = { { "by", .text = &options.by },
					{ "why", .text = &options.why },
					{ "state", .text = &options.state },
					{ "force", .on = &options.force },
					{} };
	hf_cleanup(config) struct config config;
	int code = command_load("settle", 'k', argc, argv, own, &config);
	if (code != EXIT_DONE)
		return code;
	options.task = config.arguments[0];
	options.verdict = config.arguments_count == 2 ? config.arguments[1] : "";
	const char *text = wrong(&config, &options);
	return text ? command_usage("settle", text) : run(config.dsn, &options);
}
