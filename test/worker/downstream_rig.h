/* downstream_rig.h - a peer that answers as it is told, and a client that asks it; included by
 * test_downstream.c alone. */
#pragma once

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ev.h>
#include <fcntl.h>
#include <netdb.h>
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
#include "worker/retry.h"

/* What the peer does once it has read a whole request. */
enum trick { ANSWER, STAY, RESET, CLOSE, SILENT, HALF, DRIP, FLOOD };

struct peer {
	ev_io listen, io;
	ev_timer drip;
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
static int port_of_peer;
static struct downstream *downstream;
static struct peer peer;
static struct outcome outcome;
static bool allowed = true;
static int64_t slow_ms;
static char url[64];

/* Stands before the C library's, for curl too: names whose owner says what he likes. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
						       const struct addrinfo *hints,
						       struct addrinfo **out)
{
	static const char *const names[][3] = { { "good.example", "127.0.0.1" },
						{ "bad.example", "127.0.0.2" },
						{ "both.example", "127.0.0.2", "127.0.0.1" } };
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
	    (int (*)(const char *, const char *, const struct addrinfo *,
		     struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
	if (name && strcmp(name, "slow.example") == 0)
		sleep(10);
	for (size_t i = 0; name && i < countof(names); i++) {
		if (strcmp(name, names[i][0]) != 0)
			continue;
		int code = real(names[i][1], service, hints, out);
		struct addrinfo **end = out;
		while (code == 0 && *end)
			end = &(*end)->ai_next;
		return code == 0 && names[i][2] ? real(names[i][2], service, hints, end) : code;
	}
	return name && strstr(name, ".example") ? EAI_NONAME : real(name, service, hints, out);
}

static void peer_drop(bool reset)
{
	struct linger linger = { .l_onoff = 1 };
	if (reset)
		setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	ev_io_stop(loop, &peer.io);
	ev_timer_stop(loop, &peer.drip);
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

static void on_drip(struct ev_loop *, ev_timer *, int)
{
	peer_send(slice_of("x"));
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
	if (peer.trick == ANSWER || peer.trick == STAY)
		peer_send(peer.answer);
	if (peer.trick == DRIP) {
		peer_send(slice_of("HTTP/1.1 200 OK\r\n\r\n"));
		ev_timer_init(&peer.drip, on_drip, 0.01, 0.01);
		ev_timer_start(loop, &peer.drip);
	}
	if (peer.trick == HALF)
		peer_send(slice_of("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"));
	if (peer.trick == FLOOD) {
		ev_io_stop(loop, &peer.io);
		peer_flood();
	} else if (peer.trick == STAY) {
		buf_clear(&peer.seen); /* kept alive for another request, should one come */
	} else if (peer.trick != SILENT && peer.trick != DRIP) {
		peer_drop(peer.trick == RESET);
	}
}

static void on_connection(struct ev_loop *, ev_io *io, int)
{
	if (peer.fd >= 0)
		peer_drop(false);
	peer.fd = accept4(io->fd, nullptr, nullptr, SOCK_CLOEXEC);
	cr_assert(peer.fd >= 0);
	peer.connections++;
	buf_clear(&peer.seen);
	ev_io_init(&peer.io, on_bytes, peer.fd, EV_READ);
	ev_io_start(loop, &peer.io);
}

/* So many that the other tests never meet it. */
static struct breaker_limits limits = { 1'000'000, 100, 400 };

static int listen_somewhere(int *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, len), 0);
	cr_assert_eq(listen(fd, 512), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	*port = ntohs(address.sin_port);
	return fd;
}

static void guard(const char *hosts, const char *addresses, const char *conf)
{
	struct hf_err err = {};
	downstream_close(downstream);
	downstream = downstream_open(loop, &limits);
	cr_assert_eq(downstream_guard(downstream, hosts, addresses, slice_of(conf), &err), HF_OK,
		     "%s", err.text);
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
	port_of_peer = port;
	guard("*", "127.0.0.0/8, ::1/128", "{}");
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
					      .slow_ms = slow_ms,
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
