/* call.c - see call.h. An answer is bytes queued on its connection and a word to conn.c's machine,
 * which sends them; nothing here writes to a socket. */
#include "api/call.h"

#include "api/conn_inner.h"
#include "api/http.h"
#include "api/http_write.h"
#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/metrics.h"

constexpr size_t STREAM_UNSENT_BYTES_MAX = 262'144; /* before a further write */
constexpr size_t LOG_PATH_BYTES_MAX = 200;

bool call_header(const struct call *call, const char *name, struct slice *value, size_t *count)
{
	size_t found = 0;
	http_find_header(call->headers, call->headers_count, name, value, &found);
	if (count)
		*count = found;
	return found > 0;
}

static void log_answer(const struct conn_call *out, int status)
{
	metric_add(METRIC_http_answers_total, out->call.gone ? "gone" : metric_status(status), 1);
	struct slice path = out->call.path;
	if (path.len > LOG_PATH_BYTES_MAX)
		path.len = LOG_PATH_BYTES_MAX;
	log_debug("answered", "method", arena_copy(out->call.arena, out->call.method), "path",
		  arena_copy(out->call.arena, path), "status", LOG_INT(status), "ms",
		  LOG_INT(clock_boot_ms() - out->start_ms), "gone", out->call.gone ? "yes" : "no",
		  nullptr);
}

/* Ends the call; `reply` nullptr: nothing, or what was streamed, is all. */
static void finish(struct conn_call *out, int status, const struct reply *reply)
{
	struct conn *conn = out->conn;
	hf_assert(conn->call == out);
	log_answer(out, status);
	if (conn->state != CONN_CLOSED) {
		conn->answered = true;
		conn->close_after = out->call.gone || !out->keep_alive || conn->owner->closing;
		if (reply && !out->call.gone)
			http_write_reply(&conn->out, reply, conn->close_after, out->head);
		else if (out->chunks && !out->head && !out->call.gone)
			http_write_last_chunk(&conn->out);
		conn_hold(conn);
	}
	conn->call = nullptr;
	arena_free(out->call.arena);
	conn_call_over(conn);
}

bool call_has_room(struct call *call, size_t bytes)
{
	const struct conn_call *out = container_of(call, struct conn_call, call);
	const struct conn_owner *owner = out->conn->owner;
	if (!owner || owner->limits.held_bytes_max == 0 || bytes <= LISTENER_LARGE_ANSWER_BYTES)
		return true;
	return owner->held_bytes + bytes <= owner->limits.held_bytes_max;
}

void call_reply(struct call *call, const struct reply *reply)
{
	struct conn_call *out = container_of(call, struct conn_call, call);
	hf_assert(!out->conn->answered);
	hf_assert(!out->streaming);
	hf_assert(reply || call->gone);
	finish(out, reply ? reply->status : 0, reply);
}

void call_stream(struct call *call, const struct stream_head *head)
{
	struct conn_call *out = container_of(call, struct conn_call, call);
	struct conn *conn = out->conn;
	hf_assert(conn->call == out);
	hf_assert(!out->streaming);
	out->streaming = true;
	if (call->gone)
		return;
	/* Decided now, since the head says it; a drain that begins later closes all the same. */
	out->keep_alive = out->keep_alive && out->chunks && !conn->owner->closing;
	http_write_stream(&conn->out, head, !out->keep_alive, out->chunks);
	conn_hold(conn);
	conn_resume(conn);
}

void call_write(struct call *call, struct slice bytes)
{
	struct conn_call *out = container_of(call, struct conn_call, call);
	struct conn *conn = out->conn;
	hf_assert(out->streaming);
	if (call->gone || conn->lost || out->head)
		return;
	if (conn_unsent(conn) > STREAM_UNSENT_BYTES_MAX) {
		conn->lost = true; /* seen by the next step */
		call->too_slow = true;
	} else if (out->chunks) {
		http_write_chunk(&conn->out, bytes);
	} else {
		buf_add_slice(&conn->out, bytes);
	}
	conn_hold(conn);
	conn_resume(conn);
}

size_t call_unsent(struct call *call)
{
	const struct conn_call *out = container_of(call, struct conn_call, call);
	return call->gone ? 0 : conn_unsent(out->conn);
}

void call_end(struct call *call)
{
	struct conn_call *out = container_of(call, struct conn_call, call);
	hf_assert(out->streaming);
	finish(out, 200, nullptr);
}
