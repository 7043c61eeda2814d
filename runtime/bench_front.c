/* bench_front.c - how many requests a second the API's front answers without its store: tools/list,
 * held against an answer of the same bytes from the smallest responder there is. Server on the
 * first CPU, clients on the second, where there are two. Called by bench_run.c. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/bench.h"
#include "runtime/bench_request.h"

constexpr int SERVER_CPU = 0;
constexpr int CLIENTS_CPU = 1;
constexpr int EVENTS_MAX = 256;
constexpr size_t REQUEST_BYTES_MAX = 4'096;

/* --- the responder ---------------------------------------------------------------------------- */

struct responder {
	int fd;              /* listens */
	size_t request_len;  /* of every request */
	struct slice answer; /* whole */
};

/* Requests are all of one length, and a client sends one at a time. */
static void respond(int fd, const struct responder *responder)
{
	char request[REQUEST_BYTES_MAX];
	ssize_t got = recv(fd, request, sizeof request, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got != (ssize_t)responder->request_len) {
		close(fd);
		return;
	}
	ssize_t sent = send(fd, responder->answer.data, responder->answer.len, MSG_NOSIGNAL);
	if (sent != (ssize_t)responder->answer.len)
		close(fd);
}

static void run_responder(const void *ctx)
{
	const struct responder *responder = ctx;
	struct epoll_event events[EVENTS_MAX];
	struct epoll_event event = { .events = EPOLLIN, .data.fd = responder->fd };
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(epoll, EPOLL_CTL_ADD, responder->fd, &event);
	for (;;) {
		int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
		for (int i = 0; i < count; i++) {
			if (events[i].data.fd != responder->fd) {
				respond(events[i].data.fd, responder);
				continue;
			}
			const int on = 1;
			event.data.fd = accept4(responder->fd, nullptr, nullptr, SOCK_CLOEXEC);
			setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
			epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
		}
	}
}

/* --- clients ---------------------------------------------------------------------------------- */

static struct slice on_ask(void *ctx, struct load_client *, int64_t *)
{
	return *(const struct slice *)ctx;
}

static enum heard on_hear(void *, struct load_client *, int status, struct slice body)
{
	return status == 200 && body.len > 0 ? HEARD_DONE : HEARD_WRONG;
}

static enum hf_code open_clients(struct bench *bench, int port, struct slice *request,
				 struct load **load, struct hf_err *err)
{
	const struct load_work work = { .ask = on_ask, .hear = on_hear, .ctx = request };
	return load_open(port, bench->options->clients, &work, bench->stopped, load, err);
}

static enum hf_code measure_floor(struct bench *bench, const struct responder *responder, int port,
				  double *ops_per_s, struct hf_err *err)
{
	char *bytes = hf_alloc(responder->request_len);
	struct slice request = { bytes, responder->request_len };
	memset(bytes, 'x', responder->request_len);
	int64_t ms = bench_floor_ms(bench);
	const struct load_span span = { ms, ms, 0 };
	struct child child = {};
	struct load *load = nullptr;
	struct load_stats *stats = hf_alloc(sizeof *stats);
	enum hf_code code = child_start(&child, bench->dir,
					&(struct child_spec){ .name = "responder",
							      .run = run_responder,
							      .ctx = responder,
							      .cpu = SERVER_CPU },
					err);
	if (code == HF_OK)
		code = open_clients(bench, port, &request, &load, err);
	if (code == HF_OK)
		code = load_run(load, &span, stats, err);
	if (code == HF_OK)
		*ops_per_s += (double)stats->operations / ((double)stats->ns / 1e9);
	load_close(load);
	child_stop(&child, SIGTERM, 1'000);
	free(stats);
	free(bytes);
	return code;
}

/* The responder's answer: head and body as long as the API's. */
static void make_answer(struct slice body, struct buf *answer)
{
	buf_add_format(answer,
		       "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		       "Content-Length: %zu\r\nCache-Control: no-store\r\n"
		       "X-Content-Type-Options: nosniff\r\n\r\n",
		       body.len);
	buf_add_slice(answer, body);
}

static enum hf_code measure(struct bench *bench, struct slice *request, struct hf_err *err)
{
	hf_cleanup(buf) struct buf body = {};
	hf_cleanup(buf) struct buf answer = {};
	int status = 0, port = 0;
	struct responder responder = { .request_len = request->len };
	hf_assert(request->len <= REQUEST_BYTES_MAX);
	hf_try(load_once(bench->server.port, *request, &status, &body, err));
	make_answer(buf_slice(&body), &answer);
	responder.answer = buf_slice(&answer);
	hf_try(server_listen(&responder.fd, &port, err));
	double floors = 0;
	struct load *load = nullptr;
	enum hf_code code = measure_floor(bench, &responder, port, &floors, err);
	if (code == HF_OK)
		code = open_clients(bench, bench->server.port, request, &load, err);
	if (code == HF_OK)
		code = bench_measure(bench, load, BENCH_MS_MAX, err);
	load_close(load);
	if (code == HF_OK)
		code = measure_floor(bench, &responder, port, &floors, err);
	close(responder.fd);
	bench->report->floor_ops_per_s = floors / 2;
	return code;
}

enum hf_code bench_front(struct bench *bench, struct hf_err *err)
{
	hf_try(server_start_api(&bench->server, SERVER_CPU, err));
	cpu_set_t before, mine;
	sched_getaffinity(0, sizeof before, &before);
	CPU_ZERO(&mine);
	CPU_SET(CLIENTS_CPU, &mine);
	/* Fails where there is no second one: then they share. */
	(void)sched_setaffinity(0, sizeof mine, &mine);
	struct request request;
	struct request_target target = server_target(&bench->server);
	request_init(&request, &target, "tools/list", nullptr, "", 0);
	struct slice bytes = request_slice(&request);
	enum hf_code code = measure(bench, &bytes, err);
	request_deinit(&request);
	(void)sched_setaffinity(0, sizeof before, &before);
	return code;
}
