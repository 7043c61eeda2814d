/* task_story.c - prints what happened to a task, in order, from the JSON that Postgres built of
 * its rows. Everything in it that a caller, a tool or a downstream wrote is cleaned and cut;
 * --json has the whole. */
#include "runtime/task_story.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/json.h"
#include "runtime/terminal.h"

constexpr size_t STORY_TEXT_COLUMNS = 400;
constexpr size_t STORY_VERSION_COLUMNS = 12;
constexpr size_t STORY_NAME_COLUMNS = 16;
constexpr int STORY_INDENT = 13;

/* False where the member is absent or null. */
static bool get(struct slice object, const char *name, struct slice *value)
{
	return json_member(object, name, value) && json_type_of(*value) != JSON_NULL;
}

static int64_t get_int(struct slice object, const char *name)
{
	struct slice value;
	int64_t number = 0;
	if (!get(object, name, &value) || json_type_of(value) != JSON_NUMBER ||
	    !json_integer(value, &number))
		return 0;
	return number;
}

static bool is_true(struct slice object, const char *name)
{
	struct slice value;
	return json_member(object, name, &value) && json_type_of(value) == JSON_TRUE;
}

/* Behind the state: a tool that said no has `completed` all the same. */
static const char *ended_with_error(struct slice task)
{
	return is_true(task, "is_error") ? " (error)" : "";
}

/* A string's text, any other value's spelling. */
static void print_value(struct slice value, size_t columns)
{
	if (json_type_of(value) != JSON_STRING) {
		print_cut(stdout, value, columns);
		return;
	}
	hf_cleanup(buf) struct buf text = {};
	json_string_decode(value, &text);
	print_cut(stdout, buf_slice(&text), columns);
}

static void print_member(struct slice object, const char *name, size_t columns)
{
	struct slice value;
	if (get(object, name, &value))
		print_value(value, columns);
}

static void print_padded(struct slice object, const char *name, size_t columns)
{
	struct slice value;
	hf_cleanup(buf) struct buf text = {};
	if (get(object, name, &value) && json_type_of(value) == JSON_STRING)
		json_string_decode(value, &text);
	if (strcmp(name, "state") == 0)
		buf_add_text(&text, ended_with_error(object));
	print_cut(stdout, buf_slice(&text), columns);
	for (size_t i = text.len; i < columns + 1; i++)
		putchar(' ');
}

/* A line of its head, where the member is there. */
static void print_line(struct slice story, const char *label, const char *name)
{
	struct slice value;
	if (!get(story, name, &value))
		return;
	printf("\n%-10s ", label);
	print_value(value, STORY_TEXT_COLUMNS);
}

static void print_head(struct slice story)
{
	printf("task       ");
	print_member(story, "task_id", STORY_TEXT_COLUMNS);
	print_line(story, "tool", "tool");
	printf(", version ");
	print_member(story, "version", STORY_VERSION_COLUMNS);
	print_line(story, "effect ID", "effect_id");
	struct slice owner;
	if (get(story, "owner", &owner)) {
		print_line(owner, "owner", "subject");
		printf(", tenant ");
		print_member(owner, "tenant", STORY_TEXT_COLUMNS);
		printf(", issuer ");
		print_member(owner, "issuer", STORY_TEXT_COLUMNS);
		printf(" (number %" PRId64 ")", get_int(owner, "number"));
	}
	print_line(story, "state", "state");
	printf("%s", ended_with_error(story));
	print_line(story, "accepted", "accepted");
	print_line(story, "deadline", "deadline");
	print_line(story, "retry of", "retry_of");
	print_line(story, "retried as", "successor");
	print_line(story, "arguments", "arguments");
	putchar('\n');
}

static void print_detail(struct slice object, const char *name, const char *label)
{
	struct slice value;
	if (!get(object, name, &value))
		return;
	printf("%*s%-8s ", STORY_INDENT, "", label);
	print_value(value, STORY_TEXT_COLUMNS);
	putchar('\n');
}

/* The text blocks of a stored result, or its structured part where it has none. */
static void print_result(struct slice result)
{
	struct slice content, block, text;
	size_t at = 0, shown = 0;
	if (json_member(result, "content", &content) && json_type_of(content) == JSON_ARRAY) {
		while (json_array_next(content, &at, &block)) {
			if (!json_member(block, "text", &text))
				continue;
			printf("%*s%-8s ", STORY_INDENT, "", shown++ ? "" : "result");
			print_value(text, STORY_TEXT_COLUMNS);
			putchar('\n');
		}
	}
	if (shown == 0)
		print_detail(result, "structuredContent", "result");
}

static void print_attempt(struct slice entry)
{
	struct slice took;
	if (get_int(entry, "attempt") > 0)
		printf(", attempt %" PRId64, get_int(entry, "attempt"));
	if (get(entry, "took_ms", &took)) {
		char span[SPAN_TEXT_LEN_MAX + 1];
		printf(", took %s", span_format(get_int(entry, "took_ms"), span));
	}
	if (get_int(entry, "generation") > 0)
		printf(", key generation %" PRId64, get_int(entry, "generation"));
}

/* What was asked and answered, under which key. */
static void print_asking(struct slice entry)
{
	putchar(' ');
	print_member(entry, "name", STORY_TEXT_COLUMNS);
	putchar('\n');
	print_detail(entry, "request", "asks");
	print_detail(entry, "told", "answer");
}

/* The phase that ended the task: it has no recovery point, the outcome alone tells of it. */
static void print_last_phase(struct slice outcome)
{
	static const struct {
		const char *type, *text;
	} ends[] = { { "tool_error", "the tool said no" },
		     { "phase_failed", "failed" },
		     { "attempts_exhausted", "failed" },
		     { "crash_limit", "failed" } };
	char span[SPAN_TEXT_LEN_MAX + 1];
	struct slice end, told, type;
	bool found = (get(outcome, "result", &end) && is_true(end, "isError") &&
		      get(end, "structuredContent", &told)) ||
		     (get(outcome, "error", &end) && get(end, "data", &told));
	for (size_t i = 0; found && get(told, "type", &type) && i < countof(ends); i++) {
		if (!json_string_is(type, ends[i].type))
			continue;
		printf("%*s  ", STORY_INDENT - 2, span_format(get_int(outcome, "after_ms"), span));
		print_padded(told, "phase", STORY_NAME_COLUMNS);
		printf("%s", ends[i].text);
		print_attempt(outcome);
		putchar('\n');
	}
}

static void print_entry(struct slice entry)
{
	char span[SPAN_TEXT_LEN_MAX + 1];
	struct slice what, value;
	if (!get(entry, "what", &what))
		return;
	if (json_string_is(what, "outcome"))
		print_last_phase(entry);
	printf("%*s  ", STORY_INDENT - 2, span_format(get_int(entry, "after_ms"), span));
	if (json_string_is(what, "outcome")) {
		print_member(entry, "name", STORY_TEXT_COLUMNS);
		putchar('\n');
		print_detail(entry, "message", "message");
		print_detail(entry, "error", "error");
		if (get(entry, "result", &value))
			print_result(value);
		return;
	}
	print_padded(entry, "phase", STORY_NAME_COLUMNS);
	if (json_string_is(what, "recovery_point")) {
		printf("done");
	} else {
		print_value(what, STORY_NAME_COLUMNS);
		if (get(entry, "request", &value) || get(entry, "told", &value) ||
		    json_string_is(what, "gets no answer")) {
			print_asking(entry);
			return;
		}
		if (json_string_is(what, "checkpoint")) {
			putchar(' ');
			print_member(entry, "name", STORY_TEXT_COLUMNS);
		}
	}
	print_attempt(entry);
	if (get(entry, "text", &value)) {
		printf(": ");
		print_value(value, STORY_TEXT_COLUMNS);
	}
	putchar('\n');
	print_detail(entry, "origin", "by");
	print_detail(entry, "derived_key", "key");
	print_detail(entry, "answer", "answer");
}

/* What an open task is at. */
static void print_now(struct slice now)
{
	char span[SPAN_TEXT_LEN_MAX + 1];
	struct slice value;
	printf("%*s  ", STORY_INDENT - 2, "now");
	print_padded(now, "phase", STORY_NAME_COLUMNS);
	print_member(now, "state", STORY_NAME_COLUMNS);
	if (get_int(now, "attempt") > 0)
		printf(", attempt %" PRId64, get_int(now, "attempt"));
	if (get_int(now, "crashes") > 0)
		printf(", %" PRId64 " crash%s", get_int(now, "crashes"),
		       get_int(now, "crashes") == 1 ? "" : "es");
	if (get(now, "percent", &value))
		printf(", %" PRId64 " %%", get_int(now, "percent"));
	if (get_int(now, "due_in_ms") > 0)
		printf(", due in %s", span_format(get_int(now, "due_in_ms"), span));
	if (is_true(now, "cancel"))
		printf(", cancel asked for");
	if (get(now, "asks", &value)) {
		printf(", waits for ");
		print_value(value, STORY_TEXT_COLUMNS);
	}
	putchar('\n');
	print_detail(now, "message", "message");
	print_detail(now, "worker", "worker");
}

void task_story_print(struct slice story)
{
	struct slice list, item;
	print_head(story);
	if (get(story, "history", &list)) {
		printf("\n%*s  accepted\n", STORY_INDENT - 2, "0 ms");
		for (size_t at = 0; json_array_next(list, &at, &item);)
			print_entry(item);
	}
	if (get(story, "now", &item))
		print_now(item);
	if (get(story, "to_come", &list)) {
		bool first = true;
		for (size_t at = 0; json_array_next(list, &at, &item); first = false) {
			printf("%*s  ", STORY_INDENT - 2, first ? "to come" : "");
			print_value(item, STORY_TEXT_COLUMNS);
			putchar('\n');
		}
	}
	if (get(story, "tombstone_until", &item)) {
		printf(
		    "\nThe task and its result are removed. The effect ID stays known, so that it\n"
		    "never runs again, until ");
		print_value(item, STORY_TEXT_COLUMNS);
		printf(".\n");
	}
}

void task_row_heading(void)
{
	printf("%-36s  %-17s  %-24s  %-20s  %-20s  %s\n", "TASK", "STATE", "ACCEPTED", "TOOL",
	       "OWNER", "EFFECT ID");
}

void task_row_print(struct slice row)
{
	static const struct {
		const char *name;
		size_t columns;
	} columns[] = { { "task_id", 36 },
			{ "state", 17 },
			{ "accepted", 24 },
			{ "tool", 20 },
			{ "subject", 20 } };
	for (size_t i = 0; i < countof(columns); i++) {
		print_padded(row, columns[i].name, columns[i].columns);
		putchar(' ');
	}
	print_member(row, "effect_id", STORY_TEXT_COLUMNS);
	putchar('\n');
}
