/* call_show.h - how `holdfast call` shows what it knows: text for a person or one JSON line. Each
 * function prints once, and returns the exit code. */
#pragma once

#include "runtime/slice.h"

struct call_view {
	bool json;
	bool replayed;
	const char *effect_id; /* nullable; borrowed */
	char *task_id;         /* nullable; heap */
	char *status;          /* the last that was heard; nullable; heap */
};
void call_view_deinit(struct call_view *view);

/* The handle of a task that is open; returns `code`. */
int call_show_open(const struct call_view *view, int code);
/* A CallToolResult. */
int call_show_result(const struct call_view *view, struct slice result);
/* A JSON-RPC error, of the call or of the task. */
int call_show_error(const struct call_view *view, struct slice error);
/* A task that ended with neither, as a cancelled one. `task` is what tasks/get said. */
int call_show_ended(const struct call_view *view, struct slice task);
/* No answer that could be understood. */
int call_show_failure(const struct call_view *view, const char *text);
