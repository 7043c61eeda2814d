/* test_downstream.c - one request, one send, and the truth about what came of it: against a peer in
 * this process that reads a request, counts it, and plays a script. */
#include <arpa/inet.h>
#include <ev.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "test/test.h"
#include "worker/downstream.h"

/* What the peer does once it has read a whole request. */
enum trick { ANSWER, RESET, CLOSE, SILENT, HALF, FLOOD };

struct peer {
	ev_io listen, io;
	int fd;
	enum trick trick;
	struct slice answer;
	int requests, connections;
	struct buf seen;
};

struct outcome {
	bool done;
	enum downstream_fate fate;
	int status;
	int64_t retry_after_ms;
	struct buf body, reason;
};

static struct ev_loop *loop;
static struct downstream *downstream;
static struct peer peer;
static struct outcome outcome;
static bool allowed = true;
static char url[64];

static void peer_drop(bool reset)
{
	struct linger linger = { .l_onoff = 1 };
	if (reset)
		setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	ev_io_stop(loop, &peer.io);
	close(peer.fd);
	peer.fd = -1;
}

static void peer_send(struct slice bytes)
{
	while (bytes.len > 0) {
		ssize_t sent = send(peer.fd, bytes.data, bytes.len, MSG_NOSIGNAL);
		if (sent <= 0)
			return;
		bytes.data += sent;
		bytes.len -= (size_t)sent;
	}
}

static void peer_flood(void)
{
	static char filler[65'536];
	memset(filler, 'x', sizeof filler);
	peer_send(slice_of("HTTP/1.1 200 OK\r\n\r\n"));
	/* Stops where the other end does: once nothing more is taken. */
	while (send(peer.fd, filler, sizeof filler, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
		ev_run(loop, EVRUN_NOWAIT);
}

static bool request_is_whole(void)
{
	const char *head = peer.seen.data ? strstr(peer.seen.data, "\r\n\r\n") : nullptr;
	const char *length =
	    peer.seen.data ? strcasestr(peer.seen.data, "content-length:") : nullptr;
	size_t body = length ? strtoul(length + strlen("content-length:"), nullptr, 10) : 0;
	return head && peer.seen.len >= (size_t)(head + 4 - peer.seen.data) + body;
}

static void on_bytes(struct ev_loop *, ev_io *, int)
{
	char *room = buf_reserve(&peer.seen, 4'096);
	ssize_t got = recv(peer.fd, room, 4'096, 0);
	if (got <= 0) {
		peer_drop(false);
		return;
	}
	buf_grew(&peer.seen, (size_t)got);
	if (!request_is_whole())
		return;
	peer.requests++;
	if (peer.trick == ANSWER)
		peer_send(peer.answer);
	if (peer.trick == HALF)
		peer_send(slice_of("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"));
	if (peer.trick == FLOOD) {
		ev_io_stop(loop, &peer.io);
		peer_flood();
	} else if (peer.trick != SILENT) {
		peer_drop(peer.trick == RESET);
	}
}

static void on_connection(struct ev_loop *, ev_io *io, int)
{
	peer.fd = accept4(io->fd, nullptr, nullptr, SOCK_CLOEXEC);
	cr_assert(peer.fd >= 0);
	peer.connections++;
	buf_clear(&peer.seen);
	ev_io_init(&peer.io, on_bytes, peer.fd, EV_READ);
	ev_io_start(loop, &peer.io);
}

static int listen_somewhere(int *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, len), 0);
	cr_assert_eq(listen(fd, 16), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	*port = ntohs(address.sin_port);
	return fd;
}

static void set_up(void)
{
	int port;
	loop = ev_default_loop(0);
	peer = (struct peer){ .fd = -1 };
	ev_io_init(&peer.listen, on_connection, listen_somewhere(&port), EV_READ);
	ev_io_start(loop, &peer.listen);
	ev_unref(loop);
	snprintf(url, sizeof url, "http://127.0.0.1:%d/a?b=c", port);
	downstream = downstream_open(loop);
	allowed = true;
}

static void tear_down(void)
{
	downstream_close(downstream);
	if (peer.fd >= 0)
		peer_drop(false);
	ev_ref(loop);
	ev_io_stop(loop, &peer.listen);
	close(peer.listen.fd);
	buf_deinit(&peer.seen);
	buf_deinit(&outcome.body);
	buf_deinit(&outcome.reason);
	ev_loop_destroy(loop);
}

static bool may_send(void *)
{
	return allowed;
}

static void on_done(void *, const struct downstream_answer *answer)
{
	cr_assert(!outcome.done);
	outcome.done = true;
	outcome.fate = answer->fate;
	outcome.status = answer->status;
	outcome.retry_after_ms = answer->retry_after_ms;
	buf_add_slice(&outcome.body, answer->body);
	buf_add_text(&outcome.reason, answer->reason);
}

static struct downstream_call *begin(const char *method, const char *to, struct slice body,
				     int64_t timeout_ms)
{
	static const char *const headers[] = { "Idempotency-Key: k1", "X-Empty;", nullptr };
	struct downstream_request request = { .method = method,
					      .url = to,
					      .headers = headers,
					      .body = body,
					      .has_body = body.len > 0,
					      .timeout_ms = timeout_ms,
					      .may_send = may_send };
	outcome.done = false;
	buf_clear(&outcome.body);
	buf_clear(&outcome.reason);
	return downstream_start(downstream, &request, on_done, nullptr);
}

static void ask(const char *method, const char *to, struct slice body, int64_t timeout_ms)
{
	begin(method, to, body, timeout_ms);
	cr_assert(!outcome.done, "done must not come from inside");
	while (!outcome.done)
		ev_run(loop, EVRUN_ONCE);
}

HF_TEST(downstream, an_answer_is_taken_as_it_is, .init = set_up, .fini = tear_down)
{
	static const struct {
		const char *answer;
		int status;
		const char *reason, *body;
		int64_t retry_after_ms;
	} cases[] = {
		{ "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", 201, "201 Created", "{}",
		  -1 },
		{ "HTTP/1.1 204 No Content\r\n\r\n", 204, "204 No Content", "", -1 },
		{ "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"
		  "{\"ok\":true}",
		  200, "200 OK", "{\"ok\":true}", -1 },
		{ "HTTP/1.1 429 Too Many\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n", 429,
		  "429 Too Many", "", 2'000 },
		{ "HTTP/1.1 503 X\r\nretry-after: junk\r\nContent-Length: 0\r\n\r\n", 503, "503 X",
		  "", -1 },
		{ "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/steal\r\nContent-Length: "
		  "0\r\n\r\n",
		  307, "307 Moved", "", -1 },
		{ "HTTP/1.1 200 \xff\x1b\r\nTransfer-Encoding: "
		  "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		  200, "200 ??", "abc", -1 },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		peer.trick = ANSWER;
		peer.answer = slice_of(cases[i].answer);
		ask("POST", url, slice_of("{\"n\":1}"), 5'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_ANSWERED, "case %zu: %s", i,
			     outcome.reason.data);
		cr_assert_eq(outcome.status, cases[i].status);
		cr_assert_eq(outcome.retry_after_ms, cases[i].retry_after_ms, "case %zu", i);
		cr_assert_str_eq(outcome.reason.data, cases[i].reason);
		cr_assert_str_eq(outcome.body.data ? outcome.body.data : "", cases[i].body);
		cr_assert_eq(peer.requests, (int)i + 1, "one request, no redirect");
		cr_assert_eq(peer.connections, (int)i + 1);
	}
}

HF_TEST(downstream, the_request_is_what_was_asked_for, .init = set_up, .fini = tear_down)
{
	static const char *const methods[] = { "GET", "POST", "PUT", "PATCH", "DELETE" };
	peer.trick = ANSWER;
	peer.answer = slice_of("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	for (size_t i = 0; i < countof(methods); i++) {
		char line[64];
		ask(methods[i], url, (struct slice){}, 5'000);
		snprintf(line, sizeof line, "%s /a?b=c HTTP/1.1\r\n", methods[i]);
		cr_assert_eq(strncmp(peer.seen.data, line, strlen(line)), 0, "%s", peer.seen.data);
		cr_assert(strstr(peer.seen.data, "\r\nIdempotency-Key: k1\r\n"));
		cr_assert(strstr(peer.seen.data, "\r\nX-Empty:\r\n"));
		cr_assert(!strcasestr(peer.seen.data, "expect:"));
		cr_assert(!strcasestr(peer.seen.data, "content-type:"));
	}
	/* A body over curl's limit for "Expect: 100-continue". */
	constexpr size_t LEN = 2 << 20;
	char *large = hf_alloc(LEN);
	memset(large, 'b', LEN);
	ask("PUT", url, (struct slice){ large, LEN }, 10'000);
	cr_assert_eq(outcome.status, 200);
	cr_assert(!strcasestr(peer.seen.data, "expect:"));
	cr_assert_eq(strlen(strstr(peer.seen.data, "\r\n\r\n") + 4), LEN);
	free(large);
}

HF_TEST(downstream, what_was_sent_without_an_answer_is_sent_once, .init = set_up, .fini = tear_down)
{
	static const enum trick tricks[] = { RESET, CLOSE, SILENT, HALF };
	for (size_t i = 0; i < countof(tricks); i++) {
		peer.trick = tricks[i];
		ask("POST", url, slice_of("{}"), 300);
		cr_assert_eq(outcome.fate, DOWNSTREAM_NO_ANSWER, "trick %zu: %s", i,
			     outcome.reason.data);
		cr_assert_gt(outcome.reason.len, 0);
		cr_assert_eq(peer.requests, (int)i + 1);
		if (peer.fd >= 0)
			peer_drop(false);
	}
}

HF_TEST(downstream, what_never_left_is_known_not_to_have_left, .init = set_up, .fini = tear_down)
{
	int port;
	char closed[64];
	close(listen_somewhere(&port));
	snprintf(closed, sizeof closed, "http://127.0.0.1:%d/", port);
	ask("POST", closed, slice_of("{}"), 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_NOT_SENT, "refused: %s", outcome.reason.data);

	/* A TLS hello that is answered by silence: connected, but not a byte of the request left.
	 */
	peer.trick = SILENT;
	char tls[72];
	snprintf(tls, sizeof tls, "https%s", url + strlen("http"));
	ask("POST", tls, slice_of("{}"), 300);
	cr_assert_eq(outcome.fate, DOWNSTREAM_NOT_SENT, "TLS: %s", outcome.reason.data);
	if (peer.fd >= 0)
		peer_drop(false);

	allowed = false;
	ask("POST", url, slice_of("{}"), 2'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_WITHHELD);
	cr_assert_eq(peer.requests, 0);

	static const char *const bad[] = { "file:///etc/passwd", "gopher://127.0.0.1/", "http://",
					   "" };
	for (size_t i = 0; i < countof(bad); i++) {
		ask("GET", bad[i], (struct slice){}, 2'000);
		cr_assert_eq(outcome.fate, DOWNSTREAM_BAD_URL, "%s: %s", bad[i],
			     outcome.reason.data);
	}
}

HF_TEST(downstream, a_flood_is_cut, .init = set_up, .fini = tear_down)
{
	peer.trick = FLOOD;
	ask("GET", url, (struct slice){}, 10'000);
	cr_assert_eq(outcome.fate, DOWNSTREAM_TOO_LARGE, "%s", outcome.reason.data);
	cr_assert_eq(outcome.status, 200);
	cr_assert_leq(outcome.body.len, DOWNSTREAM_ANSWER_BYTES_MAX);
}

HF_TEST(downstream, breaking_off_says_whether_it_may_have_left, .init = set_up, .fini = tear_down)
{
	peer.trick = SILENT;
	struct downstream_call *call = begin("POST", url, slice_of("{}"), 5'000);
	cr_assert(!downstream_sent(call));
	cr_assert(!downstream_cancel(call), "nothing left yet");

	call = begin("POST", url, slice_of("{}"), 5'000);
	while (peer.requests == 0)
		ev_run(loop, EVRUN_ONCE);
	cr_assert(downstream_sent(call));
	cr_assert(downstream_cancel(call));
	cr_assert(!outcome.done);
}
