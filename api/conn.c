/* conn.c - see conn.h.
 *
 *      ┌──────────────── keep-alive ────────────────┐
 *      ▼                                            │
 *    idle* ──► reading* ──► calling* ──► writing* ──┴──► lingering* ──► closed
 *      │           │          └─► streaming* ─▲  ▲                       ▲
 *      │           └── refused ──────────────────┘                       │
 *      └── end of stream, time-out, drain ───────────────────────────────┘
 *                                             * suspended here; any state may go to closed
 *
 * One call at a time: requests that come meanwhile wait in `in`, up to IN_BYTES_MAX, then the
 * socket is no longer read. The end of the stream is watched in every state, by reading while there
 * is room and by asking the kernel (POLLRDHUP) every HANGUP_POLL_S while there is none. A client
 * that closes its side before the answer is gone, as is one that resets. One that fills the
 * kernel's buffers too and then leaves cannot be told from one that waits: its end stands behind
 * its bytes, and is seen once the call is answered.
 *
 * Whoever takes too little in write_timeout_ms is cut off, and who takes less than
 * write_bytes_per_s of all that was queued, a little at a time. What is queued is bounded in sum as
 * well.
 *
 * A stream is cut as soon as its client is gone: what was not sent yet is dropped, and the socket
 * is closed. One that leaves too much unread (call.c), or takes nothing for write_timeout_ms, is
 * gone too.
 *
 * Callbacks note what happened and call conn_step. The router and on_gone run inside of it and may
 * call call_reply at any time, also at once: it and its like only queue bytes and feed `resume`, so
 * no request is routed inside of another's call_reply, and nobody hears of on_gone inside of them.
 * A closed connection that has a call out lives until that call's answer; nothing else keeps one.
 */
#include "api/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ev.h>

#include "api/conn_inner.h"
#include "api/http.h"
#include "api/http_write.h"
#include "runtime/arena.h"
#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/timer.h"

constexpr size_t READ_BYTES = 16'384;
constexpr size_t IN_BYTES_MAX = 65'536;
/* The body limit bounds a call, not this: room for what is made of a body, more often than it is
 * copied. */
constexpr size_t CALL_ARENA_BYTES_MAX = 67'108'864;
constexpr size_t CALL_ARENA_BODIES_MAX = 16;
constexpr size_t WRITE_PROGRESS_BYTES = 16'384; /* in write_timeout_ms, or the peer is stuck */
constexpr double HANGUP_POLL_S = 0.2;
constexpr int64_t LINGER_MS = 2'000;
constexpr size_t LINGER_BYTES_MAX = 8'388'608;

/* Where each state may go, as bits; to closed always. */
static const unsigned EDGES[] = {
	[CONN_IDLE] = 1u << CONN_READING | 1u << CONN_CALLING | 1u << CONN_WRITING,
	[CONN_READING] = 1u << CONN_CALLING | 1u << CONN_WRITING | 1u << CONN_IDLE,
	[CONN_CALLING] = 1u << CONN_STREAMING | 1u << CONN_WRITING,
	[CONN_STREAMING] = 1u << CONN_WRITING,
	[CONN_WRITING] = 1u << CONN_IDLE | 1u << CONN_LINGERING,
	[CONN_LINGERING] = 0,
	[CONN_CLOSED] = 0,
};

static void conn_step(struct conn *conn);

static size_t unparsed(const struct conn *conn)
{
	return conn->in.len - conn->in_taken;
}

/* For the state; 0 or less: none. */
static void state_timer(struct conn *conn, int64_t after_ms)
{
	conn->timed_out = false;
	if (after_ms > 0)
		timer_set(conn->loop, &conn->timer, after_ms);
	else
		ev_timer_stop(conn->loop, &conn->timer);
}

/* The socket takes no more: what was queued since it last did so gets its time. */
static void due_add(struct conn *conn)
{
	const struct listener_limits *limits = &conn->owner->limits;
	if (limits->write_bytes_per_s == 0)
		return;
	if (conn->due_ms == 0)
		conn->due_ms = clock_boot_ms() + limits->write_timeout_ms;
	conn->due_ms +=
	    (int64_t)((conn->out.len - conn->out_due) * 1'000 / limits->write_bytes_per_s);
	conn->out_due = conn->out.len;
}

static void write_timer(struct conn *conn)
{
	int64_t after_ms = conn->owner->limits.write_timeout_ms;
	int64_t left_ms = conn->due_ms ? conn->due_ms - clock_boot_ms() : after_ms;
	left_ms = left_ms > 1 ? left_ms : 1;
	state_timer(conn, left_ms < after_ms ? left_ms : after_ms);
}

static void conn_move(struct conn *conn, enum conn_state state)
{
	hf_assert(state == CONN_CLOSED || (EDGES[conn->state] & 1u << state));
	const struct listener_limits *limits = &conn->owner->limits;
	conn->state = state;
	switch (state) {
	case CONN_IDLE:
		state_timer(conn, limits->idle_timeout_ms);
		break;
	case CONN_READING:
		conn->body_seen = false;
		state_timer(conn, limits->header_timeout_ms);
		break;
	case CONN_WRITING:
		conn->out_mark = conn->out_sent;
		write_timer(conn);
		break;
	case CONN_LINGERING:
		state_timer(conn, LINGER_MS);
		break;
	case CONN_STREAMING: /* flush starts it while there is something to take */
	case CONN_CALLING:
	case CONN_CLOSED:
		state_timer(conn, 0);
		break;
	}
}

/* The client will not read an answer: whoever works on it is told, once. */
static void call_gone(struct conn *conn)
{
	if (!conn->call || conn->call->call.gone)
		return;
	struct call *call = &conn->call->call;
	call->gone = true;
	if (call->on_gone)
		call->on_gone(call); /* may answer: `call` is then no more */
}

/* Lets go of the socket and the owner. With a call out, the machine stays for its answer. */
static void conn_shut(struct conn *conn)
{
	if (conn->state == CONN_CLOSED)
		return;
	if (conn->call && conn->state == CONN_STREAMING && conn->timed_out)
		conn->call->call.too_slow = true;
	conn_move(conn, CONN_CLOSED);
	ev_io_stop(conn->loop, &conn->read_io);
	ev_io_stop(conn->loop, &conn->write_io);
	ev_timer_stop(conn->loop, &conn->hangup);
	ev_clear_pending(conn->loop, &conn->resume);
	close(conn->fd);
	conn->fd = -1;
	struct conn_owner *owner = conn->owner;
	owner->held_bytes -= conn->held;
	conn->held = 0;
	conn->owner = nullptr;
	owner->on_closed(owner, conn->peer);
	call_gone(conn);
}

static void conn_free(struct conn *conn)
{
	hf_assert(conn->state == CONN_CLOSED);
	hf_assert(!conn->call);
	http_free(conn->http);
	buf_deinit(&conn->in);
	buf_deinit(&conn->out);
	free(conn);
}

/* The time that a peer has to take what it is sent starts anew with each good piece it took. */
static void watch_progress(struct conn *conn)
{
	bool writing = conn->state == CONN_WRITING || conn->state == CONN_STREAMING;
	if (!writing || conn->out_sent - conn->out_mark < WRITE_PROGRESS_BYTES)
		return;
	conn->out_mark = conn->out_sent;
	write_timer(conn);
}

/* Writes what the socket takes; false when the peer is lost. */
static bool flush(struct conn *conn)
{
	while (conn_unsent(conn) > 0) {
		ssize_t n = send(conn->fd, conn->out.data + conn->out_sent, conn_unsent(conn),
				 MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			ev_io_start(conn->loop, &conn->write_io);
			due_add(conn);
			if (conn->state == CONN_STREAMING && !ev_is_active(&conn->timer))
				write_timer(conn);
			return true;
		}
		if (n < 0)
			return false;
		conn->out_sent += (size_t)n;
		watch_progress(conn);
	}
	ev_io_stop(conn->loop, &conn->write_io);
	if (conn->state == CONN_STREAMING)
		state_timer(conn, 0);
	conn->drained = conn->drained || conn->out_sent > 0;
	conn->out_sent = conn->out_mark = conn->out_due = 0;
	conn->due_ms = 0;
	if (conn->out.room > READ_BYTES)
		buf_deinit(&conn->out);
	else
		buf_clear(&conn->out);
	conn_hold(conn);
	return true;
}

static bool refuse(struct conn *conn, struct http_refusal refusal)
{
	log_debug("refused a request", "status", LOG_INT(refusal.status), "reason", refusal.text,
		  nullptr);
	http_write_refusal(&conn->out, refusal);
	metric_add(METRIC_http_answers_total, metric_status(refusal.status), 1);
	conn->answered = true;
	conn->close_after = true;
	conn_move(conn, CONN_WRITING);
	return true;
}

/* Hands the whole request to the router, which may answer before it returns. */
static void dispatch(struct conn *conn)
{
	hf_assert(conn->owner);
	const struct http_request *request = http_request_of(conn->http);
	struct arena *arena = arena_new(CALL_ARENA_BYTES_MAX +
					CALL_ARENA_BODIES_MAX * conn->owner->limits.body_bytes_max);
	struct conn_call *out = arena_alloc(arena, sizeof *out);
	*out = (struct conn_call){
		.call = {
			.arena = arena,
			.method = request->method,
			.target = request->target,
			.path = request->path,
			.headers = request->headers,
			.headers_count = request->headers_count,
			.body = request->body,
			.server = conn->owner->server,
		},
		.conn = conn,
		.head = request->head,
		.keep_alive = request->keep_alive,
		.chunks = request->chunks,
		.start_ms = clock_boot_ms(),
	};
	conn->call = out;
	conn->answered = false;
	conn_move(conn, CONN_CALLING);
	conn->owner->route(&out->call);
}

/* The parser is where it was: true when the bytes or the clock have something to say. */
static bool advance_quiet(struct conn *conn)
{
	hf_assert(conn->owner);
	bool partial = conn->state == CONN_READING;
	if (conn->timed_out && partial)
		return refuse(conn, (struct http_refusal){ 408, "request too slow" });
	if (conn->end && partial)
		return refuse(conn, (struct http_refusal){ 400, "request not whole" });
	if (conn->timed_out || conn->end || conn->owner->draining) {
		if (!partial) {
			conn_shut(conn);
			return true;
		}
	}
	return false;
}

static bool advance_reading(struct conn *conn)
{
	hf_assert(conn->owner);
	if (unparsed(conn) == 0)
		return advance_quiet(conn);
	conn->in_taken += http_read(conn->http, conn->in.data + conn->in_taken, unparsed(conn));
	switch (http_stage_of(conn->http)) {
	case HTTP_STAGE_REFUSED:
		return refuse(conn, http_refusal_of(conn->http));
	case HTTP_STAGE_WHOLE:
		dispatch(conn);
		return true;
	case HTTP_STAGE_START: /* a blank line between requests */
		if (conn->state == CONN_READING)
			conn_move(conn, CONN_IDLE);
		return true;
	case HTTP_STAGE_HEAD:
	case HTTP_STAGE_BODY:
		break;
	}
	if (conn->state == CONN_IDLE)
		conn_move(conn, CONN_READING);
	if (http_stage_of(conn->http) == HTTP_STAGE_BODY && !conn->body_seen) {
		conn->body_seen = true;
		state_timer(conn, conn->owner->limits.body_timeout_ms);
		if (http_wants_continue(conn->http) && unparsed(conn) == 0) {
			http_write_continue(&conn->out);
			if (!flush(conn))
				conn_shut(conn);
		}
	}
	return true;
}

static bool advance_calling(struct conn *conn)
{
	if (conn->answered) {
		conn_move(conn, CONN_WRITING);
		return true;
	}
	if (conn->call && conn->call->streaming) {
		conn_move(conn, CONN_STREAMING);
		return true;
	}
	if ((conn->end || conn->hung_up) && conn->call && !conn->call->call.gone) {
		call_gone(conn);
		return true;
	}
	return false;
}

static bool advance_streaming(struct conn *conn)
{
	if (conn->answered) {
		conn_move(conn, CONN_WRITING);
		return true;
	}
	if (conn->end || conn->hung_up || conn->timed_out || !flush(conn)) {
		conn_shut(conn);
		return true;
	}
	if (conn->drained && conn_unsent(conn) == 0) {
		conn->drained = false;
		struct call *call = &conn->call->call;
		if (call->on_drained)
			call->on_drained(call); /* may end it: `call` is then no more */
		return true;
	}
	return false;
}

static bool advance_writing(struct conn *conn)
{
	if (conn->timed_out || !flush(conn)) {
		conn_shut(conn);
		return true;
	}
	if (conn_unsent(conn) > 0)
		return false;
	conn->answered = false;
	if (!conn->close_after) {
		http_next(conn->http);
		conn_move(conn, CONN_IDLE);
	} else if (conn->end) {
		conn_shut(conn);
	} else {
		/* Closing over unread bytes would reset it and take the answer along. */
		shutdown(conn->fd, SHUT_WR);
		conn_move(conn, CONN_LINGERING);
	}
	return true;
}

static bool advance_lingering(struct conn *conn)
{
	conn->lingered_bytes += unparsed(conn);
	conn->in_taken = conn->in.len;
	if (conn->end || conn->timed_out || conn->lingered_bytes > LINGER_BYTES_MAX) {
		conn_shut(conn);
		return true;
	}
	return false;
}

static bool conn_advance(struct conn *conn)
{
	switch (conn->state) {
	case CONN_IDLE:
	case CONN_READING:
		return advance_reading(conn);
	case CONN_CALLING:
		return advance_calling(conn);
	case CONN_STREAMING:
		return advance_streaming(conn);
	case CONN_WRITING:
		return advance_writing(conn);
	case CONN_LINGERING:
		return advance_lingering(conn);
	case CONN_CLOSED:
		return false;
	}
	return false;
}

/* Reads on where there is room; else only asks whether the peer is still there. */
static void watch_input(struct conn *conn)
{
	if (unparsed(conn) == 0) {
		conn->in_taken = 0;
		if (conn->state == CONN_IDLE || conn->in.room > READ_BYTES * 2)
			buf_deinit(&conn->in);
		else
			buf_clear(&conn->in);
	}
	bool full = unparsed(conn) >= IN_BYTES_MAX;
	if (conn->end || full)
		ev_io_stop(conn->loop, &conn->read_io);
	else
		ev_io_start(conn->loop, &conn->read_io);
	if (!conn->end && full)
		ev_timer_again(conn->loop, &conn->hangup);
	else
		ev_timer_stop(conn->loop, &conn->hangup);
}

static void conn_step(struct conn *conn)
{
	hf_assert(!conn->stepping);
	conn->stepping = true;
	if (conn->lost)
		conn_shut(conn);
	while (conn_advance(conn))
		;
	conn->stepping = false;
	if (conn->state != CONN_CLOSED)
		watch_input(conn);
	else if (!conn->call)
		conn_free(conn);
}

static void read_some(struct conn *conn)
{
	buf_consume(&conn->in, conn->in_taken);
	conn->in_taken = 0;
	void *room = buf_reserve(&conn->in, READ_BYTES);
	ssize_t n = recv(conn->fd, room, READ_BYTES, 0);
	if (n > 0)
		buf_grew(&conn->in, (size_t)n);
	else if (n == 0)
		conn->end = true;
	else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		conn->lost = true;
}

static void on_readable(struct ev_loop *, ev_io *io, int)
{
	read_some(io->data);
	conn_step(io->data);
}

static void on_writable(struct ev_loop *, ev_io *io, int)
{
	struct conn *conn = io->data;
	conn->lost = !flush(conn);
	conn_step(conn);
}

static void on_timer(struct ev_loop *, ev_timer *timer, int)
{
	struct conn *conn = timer->data;
	conn->timed_out = true;
	conn_step(conn);
}

static void on_resume(struct ev_loop *, ev_timer *timer, int)
{
	conn_step(timer->data);
}

static void on_hangup_poll(struct ev_loop *, ev_timer *timer, int)
{
	struct conn *conn = timer->data;
	struct pollfd poller = { .fd = conn->fd, .events = POLLRDHUP };
	if (poll(&poller, 1, 0) <= 0)
		return;
	conn->lost = poller.revents & (POLLERR | POLLHUP);
	conn->hung_up = true;
	conn_step(conn);
}

struct conn *conn_open(struct conn_owner *owner, int fd, void *peer)
{
	hf_assert(fd >= 0);
	struct conn *conn = hf_alloc(sizeof *conn);
	conn->fd = fd;
	conn->owner = owner;
	conn->loop = owner->loop;
	conn->peer = peer;
	conn->http = http_new(owner->limits.header_bytes_max, owner->limits.body_bytes_max);
	ev_io_init(&conn->read_io, on_readable, fd, EV_READ);
	ev_io_init(&conn->write_io, on_writable, fd, EV_WRITE);
	ev_timer_init(&conn->timer, on_timer, 0, 0);
	ev_timer_init(&conn->hangup, on_hangup_poll, 0, HANGUP_POLL_S);
	ev_timer_init(&conn->resume, on_resume, 0, 0);
	conn->read_io.data = conn->write_io.data = conn;
	conn->timer.data = conn->hangup.data = conn->resume.data = conn;
	/* A new connection says something within the header time, not within the idle time. */
	state_timer(conn, owner->limits.header_timeout_ms);
	ev_io_start(conn->loop, &conn->read_io);
	return conn;
}

void conn_drain(struct conn *conn)
{
	hf_assert(conn->owner->draining);
	/* What has arrived and was not read yet is a request like any other. */
	if (conn->state != CONN_IDLE)
		return;
	read_some(conn);
	conn_step(conn);
}

void conn_close(struct conn *conn)
{
	hf_assert(!conn->stepping);
	conn->stepping = true;
	conn_shut(conn);
	conn->stepping = false;
	if (!conn->call)
		conn_free(conn);
}

void conn_hold(struct conn *conn)
{
	hf_assert(conn->owner->held_bytes >= conn->held);
	conn->owner->held_bytes += conn->out.len - conn->held;
	conn->held = conn->out.len;
}

void conn_resume(struct conn *conn)
{
	if (!conn->stepping && conn->state != CONN_CLOSED)
		ev_feed_event(conn->loop, &conn->resume, EV_CUSTOM);
}

void conn_call_over(struct conn *conn)
{
	hf_assert(!conn->call);
	if (conn->state == CONN_CLOSED && !conn->stepping)
		conn_free(conn);
	else
		conn_resume(conn);
}
