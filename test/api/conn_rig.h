/* conn_rig.h - the child that serves and the client that asks it, as the head of test_conn.c says;
 * included there alone. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ev.h>

#include "api/listener.h"
#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/log.h"
#include "test/test.h"

constexpr size_t BIG_BYTES = 12'582'912;
constexpr size_t ENDLESS_BYTES = 65'536;
constexpr int ANSWER_MS_MAX = 20'000;

#define HOST      "Host: a\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

struct later {
	ev_timer timer;
	struct call *call;
};

struct server {
	struct ev_loop *loop;
	struct listener *listener;
	unsigned gone, slow; /* slow: of the streams that are gone */
};

static const struct listener_limits LIMITS = {
	.connections_max = 300,
	.header_bytes_max = 32'768,
	.body_bytes_max = 200'000,
	.header_timeout_ms = 30'000,
	.body_timeout_ms = 30'000,
	.idle_timeout_ms = 30'000,
	.write_timeout_ms = 30'000,
};

static void answer(struct call *call, struct slice body)
{
	call_reply(call,
		   &(struct reply){ .status = 200, .content_type = "text/plain", .body = body });
}

static void answer_number(struct call *call, size_t number)
{
	char text[32];
	snprintf(text, sizeof text, "%zu", number);
	answer(call, slice_of(text));
}

static void on_later(struct ev_loop *, ev_timer *timer, int)
{
	struct later *later = container_of(timer, struct later, timer);
	struct call *call = later->call;
	free(later);
	answer(call, call->body);
}

static void on_gone(struct call *call)
{
	struct server *server = call->server;
	server->gone++;
	call_reply(call, nullptr);
}

static void open_stream(struct call *call, const char *first)
{
	call_stream(call, &(struct stream_head){ .content_type = "text/plain",
						 .extra = "Cache-Control: no-cache\r\n" });
	call_write(call, slice_of(first));
}

static struct later *later_start(struct call *call, double after_s, double every_s,
				 void (*then)(struct ev_loop *, ev_timer *, int))
{
	struct server *server = call->server;
	struct later *later = hf_alloc(sizeof *later);
	later->call = call;
	ev_timer_init(&later->timer, then, after_s, every_s);
	ev_timer_start(server->loop, &later->timer);
	return later;
}

static void on_second_piece(struct ev_loop *, ev_timer *timer, int)
{
	struct later *later = container_of(timer, struct later, timer);
	call_write(later->call, slice_of("two"));
	call_end(later->call);
	free(later);
}

static void on_endless(struct ev_loop *, ev_timer *timer, int)
{
	static char piece[ENDLESS_BYTES];
	struct later *later = container_of(timer, struct later, timer);
	memset(piece, 'e', sizeof piece);
	call_write(later->call, (struct slice){ piece, sizeof piece });
}

static void on_stream_gone(struct call *call)
{
	struct server *server = call->server;
	struct later *later = call->on_gone_ctx;
	server->gone++;
	server->slow += call->too_slow;
	if (later) {
		ev_timer_stop(server->loop, &later->timer);
		free(later);
	}
	call_write(call, slice_of("too late"));
	call_end(call);
}

static void write_lump(struct call *call)
{
	char *lump = hf_alloc(BIG_BYTES);
	memset(lump, 'l', BIG_BYTES);
	call_write(call, (struct slice){ lump, BIG_BYTES });
	free(lump);
}

static void on_patient_end(struct call *call)
{
	cr_assert_eq(call_unsent(call), 0);
	call_end(call);
}

static void on_patient_drained(struct call *call)
{
	cr_assert_eq(call_unsent(call), 0);
	call->on_drained = on_patient_end;
	write_lump(call);
	cr_assert_gt(call_unsent(call), BIG_BYTES);
}

static void on_stream_call(struct call *call)
{
	call->on_gone = on_stream_gone;
	if (slice_is(call->path, "/stream")) {
		open_stream(call, "one ");
		call->on_gone_ctx = later_start(call, 0.02, 0, on_second_piece);
	} else if (slice_is(call->path, "/burst")) {
		open_stream(call, "a");
		call_write(call, slice_of(""));
		call_write(call, slice_of("bc"));
		call_end(call);
	} else if (slice_is(call->path, "/endless")) {
		open_stream(call, "e");
		call->on_gone_ctx = later_start(call, 0.001, 0.001, on_endless);
	} else if (slice_is(call->path, "/lump")) {
		open_stream(call, "");
		write_lump(call);
	} else if (slice_is(call->path, "/patient")) {
		call->on_drained = on_patient_drained;
		open_stream(call, "");
		write_lump(call);
	} else {
		open_stream(call, "quiet");
	}
}

static bool is_stream(struct slice path)
{
	return slice_is(path, "/stream") || slice_is(path, "/burst") ||
	       slice_is(path, "/endless") || slice_is(path, "/quiet") || slice_is(path, "/lump") ||
	       slice_is(path, "/patient");
}

static void on_call(struct call *call)
{
	struct server *server = call->server;
	if (is_stream(call->path)) {
		on_stream_call(call);
		return;
	}
	if (slice_is(call->path, "/now")) {
		answer(call, call->body);
	} else if (slice_is(call->path, "/later")) {
		later_start(call, 0.02, 0, on_later);
	} else if (slice_is(call->path, "/late")) {
		later_start(call, 1.5, 0, on_later);
	} else if (slice_is(call->path, "/hold")) {
		call->on_gone = on_gone;
	} else if (slice_is(call->path, "/gone")) {
		answer_number(call, server->gone);
	} else if (slice_is(call->path, "/slow")) {
		answer_number(call, server->slow);
	} else if (slice_is(call->path, "/live")) {
		answer_number(call, listener_connections(server->listener));
	} else if (slice_is(call->path, "/big")) {
		if (!call_has_room(call, BIG_BYTES)) {
			call_reply(call, &(struct reply){ .status = 503 });
			return;
		}
		char *big = hf_alloc(BIG_BYTES);
		memset(big, 'b', BIG_BYTES);
		answer(call, (struct slice){ big, BIG_BYTES });
		free(big);
	} else if (slice_is(call->path, "/drain")) {
		listener_drain(server->listener);
		answer(call, slice_of(""));
	} else {
		call_reply(call, &(struct reply){ .status = 404 });
	}
}

static void serve(const struct listener_limits *limits, int address_out)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	log_init(LOG_ERROR, "test");
	struct server server = { .loop = ev_loop_new(EVFLAG_AUTO) };
	struct hf_err err = {};
	if (listener_open(server.loop, "127.0.0.1:0", limits, on_call, &server, &server.listener,
			  &err) != HF_OK)
		_exit(3);
	const char *address = listener_address(server.listener);
	if (write(address_out, address, strlen(address) + 1) < 0)
		_exit(3);
	close(address_out);
	ev_run(server.loop, 0); /* ends when it has drained: no watcher is left */
	bool empty = listener_connections(server.listener) == 0;
	listener_close(server.listener);
	ev_loop_destroy(server.loop);
	_exit(empty ? 0 : 4);
}

static pid_t child;
static struct sockaddr_in server_at;

static void serve_at(const char *address)
{
	cr_assert(strncmp(address, "127.0.0.1:", 10) == 0);
	server_at = (struct sockaddr_in){ .sin_family = AF_INET,
					  .sin_port = htons((uint16_t)atoi(address + 10)),
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static void start_with(const struct listener_limits *limits)
{
	int pair[2];
	cr_assert_eq(pipe(pair), 0);
	child = fork();
	if (child == 0)
		serve(limits, pair[1]);
	close(pair[1]);
	char address[64] = "";
	cr_assert_gt(read(pair[0], address, sizeof address), 0);
	close(pair[0]);
	serve_at(address);
}

static void start(void)
{
	start_with(&LIMITS);
}

static void stop(void)
{
	kill(child, SIGKILL);
	waitpid(child, nullptr, 0);
}

static int dial_with(int receive_bytes)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (receive_bytes)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
	cr_assert_eq(connect(fd, (struct sockaddr *)&server_at, sizeof server_at), 0);
	const struct timeval limit = { .tv_sec = ANSWER_MS_MAX / 1000 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return fd;
}

static int dial(void)
{
	return dial_with(0);
}

/* So that the kernel does not take a whole large answer on our behalf. */
static int dial_narrow(void)
{
	return dial_with(65'536);
}

static void reset(int fd)
{
	const struct linger at_once = { .l_onoff = 1 };
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(fd);
}

static void say(int fd, const char *text)
{
	cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* One answer: its status, its body in `body`. 0 at the end of the stream. */
static int hear(int fd, struct buf *body, bool *closes)
{
	hf_cleanup(buf) struct buf head = {};
	buf_clear(body);
	while (head.len < 4 || memcmp(head.data + head.len - 4, "\r\n\r\n", 4) != 0) {
		char c;
		ssize_t n = recv(fd, &c, 1, 0);
		cr_assert_geq(n, 0, "no answer in time");
		if (n == 0) {
			cr_assert_eq(head.len, 0, "half an answer");
			return 0;
		}
		buf_add_byte(&head, c);
	}
	int status = atoi(head.data + strlen("HTTP/1.1 "));
	const char *length = strstr(head.data, "\r\nContent-Length: ");
	if (closes)
		*closes = strstr(head.data, "\r\nConnection: close\r\n") != nullptr;
	size_t left = length ? (size_t)atol(length + strlen("\r\nContent-Length: ")) : 0;
	while (left > 0) {
		void *room = buf_reserve(body, left);
		ssize_t n = recv(fd, room, left, 0);
		cr_assert_gt(n, 0, "half a body");
		buf_grew(body, (size_t)n);
		left -= (size_t)n;
	}
	return status;
}

static void expect(int fd, int status, const char *body)
{
	hf_cleanup(buf) struct buf got = {};
	cr_assert_eq(hear(fd, &got, nullptr), status);
	if (body)
		cr_assert(slice_is(buf_slice(&got), body), "%s", got.data ? got.data : "");
}

/* A refusal is one answer that announces the end, and then the end. */
static void expect_refused(int fd, int status)
{
	hf_cleanup(buf) struct buf got = {};
	bool closes = false;
	int answered = hear(fd, &got, &closes);
	cr_assert_eq(answered, status, "%d", answered);
	cr_assert(closes);
	cr_assert_eq(hear(fd, &got, nullptr), 0);
	close(fd);
}

static unsigned ask_number(const char *request)
{
	hf_cleanup(buf) struct buf got = {};
	int fd = dial();
	say(fd, request);
	cr_assert_eq(hear(fd, &got, nullptr), 200);
	close(fd);
	return (unsigned)atoi(got.data);
}

static void wait_for_number(const char *request, unsigned number)
{
	for (int i = 0; ask_number(request) != number; i++) {
		cr_assert_lt(i, 2'000, "%s never told %u", request, number);
		poll(nullptr, 0, 10);
	}
}

/* What was said before has been read: the second answer is of a later turn of the loop. */
static void until_read(void)
{
	ask_number(GET("/live"));
	ask_number(GET("/live"));
}

static int64_t now_ms(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000 + at.tv_nsec / 1'000'000;
}
