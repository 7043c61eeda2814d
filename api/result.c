/* result.c - see result.h. The stored part of a result is spliced in byte for byte, so that a
 * repeat is answered with the very same bytes. */
#include "api/result.h"

#include <time.h>

#include "api/ladder.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/task.h"

void result_add_server_info(struct buf *out)
{
	buf_add_text(out, "\"io.modelcontextprotocol/serverInfo\":{\"name\":\"holdfast\","
			  "\"version\":\"" HF_VERSION "\"}");
}

void result_end(struct buf *out)
{
	buf_add_text(out, ",\"_meta\":{");
	result_add_server_info(out);
	buf_add_text(out, "}}");
}

void result_ack(struct buf *out)
{
	buf_add_text(out, "{\"resultType\":\"complete\"");
	result_end(out);
}

void result_add_time(int64_t ms, struct buf *out)
{
	int64_t fraction = ms % 1'000;
	if (fraction < 0)
		fraction += 1'000;
	time_t seconds = (time_t)((ms - fraction) / 1'000);
	struct tm parts = {};
	char text[32] = "1970-01-01T00:00:00";
	if (gmtime_r(&seconds, &parts))
		strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
	buf_add_format(out, "%s.%03dZ", text, (int)fraction);
}

static struct slice reason_or(const char *text, const struct task_view *view, struct buf *scratch)
{
	buf_add_text(scratch, text);
	if (view->message.len) {
		buf_add_text(scratch, ": ");
		buf_add_slice(scratch, view->message);
	}
	return buf_slice(scratch);
}

/* Failed, and an operator made a newer task of it. */
static bool is_succeeded(const struct task_view *view)
{
	return view->has_successor && !task_id_equal(&view->successor, &view->id);
}

static struct slice succeeded(const struct task_view *view, struct buf *scratch)
{
	char id[TASK_ID_TEXT_LEN + 1];
	buf_add_slice(scratch, view->message.len ? view->message : slice_of("failed"));
	buf_add_format(scratch, "; an operator retried it as %s",
		       task_id_format(&view->successor, id));
	return buf_slice(scratch);
}

struct slice result_status_message(const struct task_view *view, struct buf *scratch)
{
	struct slice text;
	switch (view->state) {
	case TASK_READY:
		/* The store has a word only for who waits for its turn at a limit. */
		if (view->message.len)
			return view->message;
		return slice_of(view->attempt > 0 ? "waiting for a worker to go on" : "queued");
	case TASK_RUNNING:
		return view->message.len ? view->message : slice_of("running");
	case TASK_SCHEDULED:
		return reason_or("waiting for the next attempt", view, scratch);
	case TASK_WAITING:
		return reason_or("waiting for input", view, scratch);
	case TASK_PAUSED:
		return reason_or("paused by an operator", view, scratch);
	case TASK_PARKED:
		return slice_of("parked until it is called again");
	case TASK_UNVERIFIED:
		return reason_or("accepted downstream, not seen there yet", view, scratch);
	case TASK_UNKNOWN:
		return reason_or("it cannot be told whether the last step happened; it waits to be "
				 "settled by an operator",
				 view, scratch);
	case TASK_FAILED:
		if (is_succeeded(view))
			return succeeded(view, scratch);
		if (!view->message.len && view->error.len &&
		    json_member(view->error, "message", &text) &&
		    json_type_of(text) == JSON_STRING) {
			json_string_decode(text, scratch);
			return buf_slice(scratch);
		}
		return view->message.len ? view->message : slice_of("failed");
	case TASK_CANCELLED:
		return view->message.len ? view->message : slice_of("cancelled");
	case TASK_COMPLETED:
		break;
	}
	return view->message;
}

static void add_effect(const struct task_view *view, const bool *replayed, struct buf *out)
{
	char id[TASK_ID_TEXT_LEN + 1];
	buf_add_text(out, "\"dev.holdfast/effect\":{\"effectId\":");
	json_string_encode(view->effect_id, out);
	buf_add_format(out, ",\"taskId\":\"%s\"", task_id_format(&view->id, id));
	if (replayed)
		buf_add_text(out, *replayed ? ",\"replayed\":true" : ",\"replayed\":false");
	buf_add_format(out, ",\"attempt\":%d", view->attempt);
	if (view->has_successor)
		buf_add_format(out, ",\"successor\":\"%s\"", task_id_format(&view->successor, id));
	buf_add_byte(out, '}');
}

static void add_meta_members(const struct task_view *view, const bool *replayed, struct buf *out)
{
	result_add_server_info(out);
	buf_add_byte(out, ',');
	add_effect(view, replayed, out);
	if (!task_state_is_terminal(view->state) && view->progress >= 0 && view->progress <= 1)
		buf_add_format(out, ",\"dev.holdfast/progress\":%.4f", view->progress);
}

static void add_meta(const struct task_view *view, const bool *replayed, struct buf *out)
{
	buf_add_text(out, ",\"_meta\":{");
	add_meta_members(view, replayed, out);
	buf_add_byte(out, '}');
}

/* The members of Task, in the order of T3. The time to live ends with the retention of the result,
 * so it is unlimited while the task may still run (B019). */
static void add_task(const struct task_view *view, int64_t poll_interval_ms, struct buf *out)
{
	hf_cleanup(buf) struct buf scratch = {};
	char id[TASK_ID_TEXT_LEN + 1];
	buf_add_format(out, ",\"taskId\":\"%s\",\"status\":\"%s\"", task_id_format(&view->id, id),
		       task_state_mcp(view->state));

	struct slice message = result_status_message(view, &scratch);
	if (message.len) {
		buf_add_text(out, ",\"statusMessage\":");
		json_string_encode(message, out);
	}

	int64_t updated_ms =
	    view->updated_ms > view->created_ms ? view->updated_ms : view->created_ms;
	buf_add_text(out, ",\"createdAt\":\"");
	result_add_time(view->created_ms, out);
	buf_add_text(out, "\",\"lastUpdatedAt\":\"");
	result_add_time(updated_ms, out);

	if (task_state_is_terminal(view->state)) {
		int64_t ttl_ms = view->ended_ms - view->created_ms + view->result_ttl_ms;
		buf_add_format(out, "\",\"ttlMs\":%lld", (long long)(ttl_ms > 0 ? ttl_ms : 1));
	} else {
		buf_add_text(out, "\",\"ttlMs\":null");
	}
	buf_add_format(out, ",\"pollIntervalMs\":%lld", (long long)poll_interval_ms);
}

void result_handle(const struct task_view *view, bool replayed, int64_t poll_interval_ms,
		   struct buf *out)
{
	hf_assert(poll_interval_ms > 0);

	buf_add_text(out, "{\"resultType\":\"task\"");
	add_task(view, poll_interval_ms, out);
	add_meta(view, &replayed, out);
	buf_add_byte(out, '}');
}

static bool is_object(struct slice text)
{
	return text.len >= 2 && text.data[0] == '{' && text.data[text.len - 1] == '}';
}

/* The stored object with resultType in front and _meta behind. It is {"content": …} by the store's
 * contract, never empty and without a _meta, so it needs no reading. */
static bool add_stored_result(const struct task_view *view, const bool *replayed, struct buf *out)
{
	struct slice stored = json_trim(view->result);
	if (!is_object(stored) || stored.len == 2)
		return false;

	buf_add_text(out, "{\"resultType\":\"complete\",");
	buf_add(out, stored.data + 1, stored.len - 2);
	add_meta(view, replayed, out);
	buf_add_byte(out, '}');
	return true;
}

/* DetailedTask but for its _meta, each member behind a comma. */
static bool add_detailed_task(const struct task_view *view, int64_t poll_interval_ms,
			      struct buf *out)
{
	hf_assert(poll_interval_ms > 0);

	add_task(view, poll_interval_ms, out);
	if (view->state == TASK_COMPLETED) {
		buf_add_text(out, ",\"result\":");
		if (!add_stored_result(view, nullptr, out))
			return false;
	}
	if (view->state == TASK_FAILED) {
		struct slice error = json_trim(view->error);
		if (!is_object(error))
			return false;
		buf_add_text(out, ",\"error\":");
		buf_add_slice(out, error);
	}
	if (view->state == TASK_WAITING) {
		buf_add_text(out, ",\"inputRequests\":");
		buf_add_slice(out, view->requests.len ? view->requests : slice_of("{}"));
	}
	return true;
}

bool result_task(const struct task_view *view, int64_t poll_interval_ms, struct buf *out)
{
	buf_add_text(out, "{\"resultType\":\"complete\"");
	if (!add_detailed_task(view, poll_interval_ms, out))
		return false;
	add_meta(view, nullptr, out);
	buf_add_byte(out, '}');
	return true;
}

bool result_task_notice(const struct task_view *view, int64_t poll_interval_ms,
			struct slice subscription, struct buf *out)
{
	buf_add_text(out, "{\"_meta\":{\"" MCP_SUBSCRIPTION "\":");
	buf_add_slice(out, subscription);
	buf_add_byte(out, ',');
	add_meta_members(view, nullptr, out);
	buf_add_byte(out, '}');
	if (!add_detailed_task(view, poll_interval_ms, out))
		return false;
	buf_add_byte(out, '}');
	return true;
}

bool result_call(const struct task_view *view, bool replayed, struct buf *out)
{
	return add_stored_result(view, &replayed, out);
}

void result_about(const struct task_view *view, bool is_error, const char *text,
		  struct slice structured, struct buf *out)
{
	hf_assert(!structured.len || is_object(structured));

	buf_add_text(out, "{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\"text\":");
	json_string_encode(slice_of(text), out);
	buf_add_text(out, "}]");
	if (structured.len) {
		buf_add_text(out, ",\"structuredContent\":");
		buf_add_slice(out, structured);
	}
	buf_add_text(out, is_error ? ",\"isError\":true" : ",\"isError\":false");
	if (!view) {
		result_end(out);
		return;
	}
	add_meta(view, nullptr, out);
	buf_add_byte(out, '}');
}
