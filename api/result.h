/* result.h - the MCP results that carry tasks, from what the store says of them. Pure functions:
 * JSON text out of a view. Every result holds serverInfo in its _meta. */
#pragma once

#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/slice.h"
#include "runtime/store.h"

/* "io.modelcontextprotocol/serverInfo": {…}, a member without a comma. */
void result_add_server_info(struct buf *out);
/* What ends a result that says nothing else in its _meta: ,"_meta":{serverInfo}}. */
void result_end(struct buf *out);
/* {"resultType":"complete","_meta":{serverInfo}}. */
void result_ack(struct buf *out);

/* CreateTaskResult (T3): the same handle for a first call and for its repeats. */
void result_handle(const struct task_view *view, bool replayed, int64_t poll_interval_ms,
		   struct buf *out);
/* GetTaskResult (T5). False: the stored outcome cannot be sent; `out` is to be dropped. */
[[nodiscard]] bool result_task(const struct task_view *view, int64_t poll_interval_ms,
			       struct buf *out);
/* The same as params of a notification of `subscription`, the raw id of a listen (T10.2). */
[[nodiscard]] bool result_task_notice(const struct task_view *view, int64_t poll_interval_ms,
				      struct slice subscription, struct buf *out);

/* CallToolResult of a completed task: its stored part byte for byte. False as above. */
[[nodiscard]] bool result_call(const struct task_view *view, bool replayed, struct buf *out);

/* A CallToolResult made here, which a model can act on; about a task, or nullptr. `structured`: one
 * JSON object, or empty. */
void result_about(const struct task_view *view, bool is_error, const char *text,
		  struct slice structured, struct buf *out);

/* What a person is told of the task; in `scratch` where it had to be made. Empty: nothing. */
struct slice result_status_message(const struct task_view *view, struct buf *scratch);
/* RFC 3339 in UTC with milliseconds, without quotes. */
void result_add_time(int64_t ms, struct buf *out);
