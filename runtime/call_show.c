/* call_show.c - the output of `holdfast call`. A result in JSON is spliced: its bytes are those
 * that came, so that two calls can be compared byte for byte. */
#include "runtime/call_show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/command.h"
#include "runtime/json.h"
#include "runtime/terminal.h"

void call_view_deinit(struct call_view *view)
{
	free(view->task_id);
	free(view->status);
	*view = (struct call_view){};
}

static void add_text(struct buf *line, const char *text)
{
	if (text)
		json_string_encode(slice_of(text), line);
	else
		buf_add_text(line, "null");
}

/* `name` (nullable) is the member that `value` becomes. */
static void print_line(const struct call_view *view, const char *status, const char *name,
		       struct slice value)
{
	hf_cleanup(buf) struct buf line = {};
	buf_add_text(&line, "{\"task_id\":");
	add_text(&line, view->task_id);
	buf_add_text(&line, ",\"effect_id\":");
	add_text(&line, view->effect_id);
	buf_add_text(&line, ",\"status\":");
	add_text(&line, status);
	buf_add_format(&line, ",\"replayed\":%s", view->replayed ? "true" : "false");
	if (name) {
		buf_add_format(&line, ",\"%s\":", name);
		buf_add_slice(&line, value);
	}
	buf_add_text(&line, "}");
	print_json_line(stdout, buf_slice(&line));
	putchar('\n');
}

/* A string member's text, cleaned; false where there is none. */
static bool print_text(FILE *out, struct slice object, const char *name)
{
	struct slice value;
	if (!json_member(object, name, &value) || json_type_of(value) != JSON_STRING)
		return false;
	hf_cleanup(buf) struct buf text = {};
	json_string_decode(value, &text);
	print_clean(out, buf_slice(&text));
	return true;
}

int call_show_open(const struct call_view *view, int code)
{
	if (view->json) {
		print_line(view, view->status, nullptr, (struct slice){});
		return code;
	}
	/* Without a handle there is nothing that stdout could say. */
	if (!view->task_id)
		return code;
	printf("task       ");
	print_clean(stdout, slice_of(view->task_id));
	printf("\neffect ID  ");
	print_clean(stdout, slice_of(view->effect_id ? view->effect_id : ""));
	printf("\nstatus     ");
	print_clean(stdout, slice_of(view->status ? view->status : "working"));
	putchar('\n');
	return code;
}

/* One content block; false where it has nothing to show. */
static bool print_block(struct slice block)
{
	struct slice type, uri;
	if (json_type_of(block) != JSON_OBJECT || !json_member(block, "type", &type))
		return false;
	if (json_string_is(type, "text")) {
		if (!print_text(stdout, block, "text"))
			return false;
	} else if (json_string_is(type, "resource_link") && json_member(block, "uri", &uri)) {
		printf("link       ");
		print_text(stdout, block, "uri");
	} else {
		printf("[%.*s]", (int)type.len, type.data);
	}
	putchar('\n');
	return true;
}

int call_show_result(const struct call_view *view, struct slice result)
{
	struct slice content, block, value;
	bool failed = json_member(result, "isError", &value) && json_type_of(value) == JSON_TRUE;
	int code = failed ? EXIT_FAILED : EXIT_DONE;
	if (view->json) {
		print_line(view, view->status, "result", result);
		return code;
	}
	if (failed)
		fputs("the tool answers with an error:\n", stderr);
	bool shown = false;
	if (json_member(result, "content", &content) && json_type_of(content) == JSON_ARRAY)
		for (size_t at = 0; json_array_next(content, &at, &block);)
			shown |= print_block(block);
	if (!shown && json_member(result, "structuredContent", &value)) {
		print_json_line(stdout, value);
		putchar('\n');
	}
	return code;
}

/* Then an error is the task's own; else the server refused the request. */
static bool has_failed(const struct call_view *view)
{
	return view->status && strcmp(view->status, "failed") == 0;
}

int call_show_error(const struct call_view *view, struct slice error)
{
	struct slice code, data;
	if (view->json) {
		print_line(view, has_failed(view) ? view->status : "error", "error", error);
		return EXIT_FAILED;
	}
	fputs(has_failed(view) ? "the task failed: "
	      : view->task_id  ? "the task cannot be asked for: "
			       : "the call was refused: ",
	      stderr);
	if (!print_text(stderr, error, "message"))
		fputs("no message", stderr);
	if (json_member(error, "code", &code))
		fprintf(stderr, " (%.*s)", (int)code.len, code.data);
	putc('\n', stderr);
	if (json_member(error, "data", &data)) {
		print_json_line(stderr, data);
		putc('\n', stderr);
	}
	return EXIT_FAILED;
}

int call_show_ended(const struct call_view *view, struct slice task)
{
	if (view->json) {
		print_line(view, view->status, nullptr, (struct slice){});
		return EXIT_FAILED;
	}
	fputs("the task ended: ", stderr);
	print_clean(stderr, slice_of(view->status ? view->status : "unknown"));
	fputs("\n", stderr);
	if (print_text(stderr, task, "statusMessage"))
		putc('\n', stderr);
	return EXIT_FAILED;
}

int call_show_failure(const struct call_view *view, const char *text)
{
	if (view->json) {
		hf_cleanup(buf) struct buf error = {};
		buf_add_text(&error, "{\"message\":");
		json_string_encode(slice_of(text), &error);
		buf_add_byte(&error, '}');
		print_line(view, view->task_id ? view->status : "error", "error",
			   buf_slice(&error));
		return EXIT_FAILED;
	}
	fputs("holdfast call: ", stderr);
	print_clean(stderr, slice_of(text));
	putc('\n', stderr);
	return EXIT_FAILED;
}
