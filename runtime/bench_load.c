/* bench_load.c - see bench_load.h. The state of a client:
 *
 *     asked ──request sent──► answer awaited* ──heard──► asked
 *       └──── to wait* ──time──┘                         * suspended: epoll resumes
 *
 * Called by bench_work.c and bench_front.c. */
#include "runtime/bench_load.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base.h"

constexpr size_t READ_BYTES = 16'384;
constexpr size_t ANSWER_BYTES_MAX = 4 << 20;
constexpr int EVENTS_MAX = 256;
constexpr int64_t TURN_NS_MAX = 50'000'000; /* between two looks at `stopped` */
constexpr int64_t SILENCE_NS_MAX = 30'000'000'000;
constexpr time_t ONCE_S_MAX = 30;
constexpr int WRONG_CHARS_SHOWN = 100;

struct load {
	struct load_work work;
	const volatile sig_atomic_t *stopped;
	int epoll;
	int count, waiting;
	struct load_client *clients;
	struct load_stats *stats; /* of the run */
	bool begun;
	int64_t heard_ns; /* the last answer */
};

int64_t load_now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

static enum hf_code dial(int port, int *out, struct hf_err *err)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		enum hf_code code = hf_fail(err, HF_NET, "127.0.0.1:%d: %s", port, strerror(errno));
		if (fd >= 0)
			close(fd);
		return code;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	*out = fd;
	return HF_OK;
}

enum hf_code load_open(int port, int count, const struct load_work *work,
		       const volatile sig_atomic_t *stopped, struct load **out, struct hf_err *err)
{
	hf_assert(count > 0);
	struct load *load = hf_alloc(sizeof *load);
	*load = (struct load){ .work = *work, .stopped = stopped, .count = count };
	load->clients = hf_alloc((size_t)count * sizeof *load->clients);
	for (int i = 0; i < count; i++)
		load->clients[i] = (struct load_client){ .index = i, .fd = -1 };
	load->epoll = epoll_create1(EPOLL_CLOEXEC);
	hf_assert(load->epoll >= 0);
	for (int i = 0; i < count; i++) {
		struct load_client *client = &load->clients[i];
		client->in.max = ANSWER_BYTES_MAX;
		enum hf_code code = dial(port, &client->fd, err);
		if (code != HF_OK) {
			load_close(load);
			return code;
		}
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = client };
		epoll_ctl(load->epoll, EPOLL_CTL_ADD, client->fd, &event);
	}
	*out = load;
	return HF_OK;
}

struct load *load_close(struct load *load)
{
	if (!load)
		return nullptr;
	for (int i = 0; i < load->count; i++) {
		if (load->clients[i].fd >= 0)
			close(load->clients[i].fd);
		buf_deinit(&load->clients[i].in);
	}
	close(load->epoll);
	free(load->clients);
	free(load);
	return nullptr;
}

struct load_client *load_client_at(struct load *load, int index)
{
	hf_assert(index >= 0);
	hf_assert(index < load->count);
	return &load->clients[index];
}

/* A request is a few hundred bytes and the connection has nothing else to send, so a full socket
 * buffer is a server that reads nothing: the blocking send waits for it. */
static enum hf_code send_all(int fd, struct slice request, struct hf_err *err)
{
	while (request.len > 0) {
		ssize_t sent = send(fd, request.data, request.len, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return hf_fail(err, HF_NET, "send: %s", strerror(errno));
		request.data += sent;
		request.len -= (size_t)sent;
	}
	return HF_OK;
}

static enum hf_code go_on(struct load *load, struct load_client *client, int64_t now,
			  struct hf_err *err)
{
	int64_t wait_ns = 0;
	struct slice request = load->work.ask(load->work.ctx, client, &wait_ns);
	if (request.len == 0) {
		hf_assert(wait_ns > 0);
		client->waits = true;
		client->wake_ns = now + wait_ns;
		load->waiting++;
		return HF_OK;
	}
	if (!client->in_operation)
		client->began_ns = now;
	client->in_operation = true;
	return send_all(client->fd, request, err);
}

/* 0: not whole yet; -1: no answer that this program understands. */
static ssize_t read_head(struct slice in, int *status, size_t *body_len)
{
	static const char length[] = "\r\nContent-Length: ";
	const char *end = memmem(in.data, in.len, "\r\n\r\n", 4);
	if (!end)
		return 0;
	size_t head_len = (size_t)(end - in.data) + 4;
	const char *field = memmem(in.data, head_len, length, sizeof length - 1);
	if (!field || memcmp(in.data, "HTTP/1.1 ", 9) != 0)
		return -1;
	*status = atoi(in.data + 9);
	*body_len = (size_t)strtoul(field + sizeof length - 1, nullptr, 10);
	return (ssize_t)head_len;
}

static enum hf_code wrong(int status, struct slice body, struct hf_err *err)
{
	int shown = body.len < WRONG_CHARS_SHOWN ? (int)body.len : WRONG_CHARS_SHOWN;
	return hf_fail(err, HF_CONFLICT, "a wrong answer: HTTP %d %.*s", status, shown, body.data);
}

static enum hf_code hear(struct load *load, struct load_client *client, int64_t now,
			 struct hf_err *err)
{
	int status = 0;
	size_t body_len = 0;
	ssize_t head_len = read_head(buf_slice(&client->in), &status, &body_len);
	if (head_len < 0)
		return wrong(0, buf_slice(&client->in), err);
	if (head_len == 0 || client->in.len < (size_t)head_len + body_len)
		return HF_OK;
	struct slice body = { client->in.data + head_len, body_len };
	enum heard heard = load->work.hear(load->work.ctx, client, status, body);
	if (heard == HEARD_WRONG)
		return wrong(status, body, err);
	buf_clear(&client->in);
	load->heard_ns = now;
	if (heard == HEARD_DONE) {
		client->in_operation = false;
		if (load->stats) {
			load->stats->operations++;
			hist_add(&load->stats->hist, now - client->began_ns);
		}
	}
	return go_on(load, client, now, err);
}

static enum hf_code receive(struct load *load, struct load_client *client, struct hf_err *err)
{
	char *room = buf_reserve(&client->in, READ_BYTES);
	if (!room)
		return hf_fail(err, HF_LIMIT, "an answer of over %zu bytes", ANSWER_BYTES_MAX);
	ssize_t got = recv(client->fd, room, READ_BYTES, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return HF_OK;
	if (got <= 0)
		return hf_fail(err, HF_NET, "the server closed a connection");
	buf_grew(&client->in, (size_t)got);
	return hear(load, client, load_now_ns(), err);
}

/* Those whose time has come; *next gets when the next one's will. */
static enum hf_code wake(struct load *load, int64_t now, int64_t *next, struct hf_err *err)
{
	for (int i = 0; i < load->count && load->waiting > 0; i++) {
		struct load_client *client = &load->clients[i];
		if (client->waits && client->wake_ns <= now) {
			client->waits = false;
			load->waiting--;
			hf_try(go_on(load, client, now, err));
		}
		if (client->waits && client->wake_ns < *next)
			*next = client->wake_ns;
	}
	return HF_OK;
}

static enum hf_code turn(struct load *load, int64_t until, struct hf_err *err)
{
	struct epoll_event events[EVENTS_MAX];
	int64_t now = load_now_ns();
	int64_t next = now + TURN_NS_MAX < until ? now + TURN_NS_MAX : until;
	if (load->waiting > 0)
		hf_try(wake(load, now, &next, err));
	int64_t rest = next > now ? next - now : 0;
	const struct timespec time = { rest / 1'000'000'000, rest % 1'000'000'000 };
	int count = epoll_pwait2(load->epoll, events, EVENTS_MAX, &time, nullptr);
	for (int i = 0; i < count; i++)
		hf_try(receive(load, events[i].data.ptr, err));
	if (load->waiting < load->count && load_now_ns() - load->heard_ns > SILENCE_NS_MAX)
		return hf_fail(err, HF_TIMEOUT, "no answer for %lld s",
			       (long long)(SILENCE_NS_MAX / 1'000'000'000));
	return HF_OK;
}

enum hf_code load_run(struct load *load, const struct load_span *span, struct load_stats *stats,
		      struct hf_err *err)
{
	static struct load_stats unwanted;
	load->stats = stats ? stats : &unwanted;
	*load->stats = (struct load_stats){};
	int64_t start = load->heard_ns = load_now_ns();
	int64_t min_end = start + span->min_ms * 1'000'000;
	int64_t max_end = start + span->max_ms * 1'000'000;
	for (int i = 0; i < load->count && !load->begun; i++)
		hf_try(go_on(load, &load->clients[i], start, err));
	load->begun = true;
	int64_t now = start;
	while (now < max_end && (now < min_end || load->stats->operations < span->min_operations)) {
		if (*load->stopped)
			return hf_fail(err, HF_CANCELLED, "interrupted");
		hf_try(turn(load, now < min_end ? min_end : max_end, err));
		now = load_now_ns();
	}
	load->stats->ns = now - start;
	return HF_OK;
}

enum hf_code load_once(int port, struct slice request, int *status, struct buf *body,
		       struct hf_err *err)
{
	hf_cleanup(buf) struct buf in = { .max = ANSWER_BYTES_MAX };
	const struct timeval limit = { .tv_sec = ONCE_S_MAX };
	int fd = -1;
	hf_try(dial(port, &fd, err));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	enum hf_code code = send_all(fd, request, err);
	size_t body_len = 0;
	ssize_t head_len = 0;
	while (code == HF_OK && (head_len == 0 || in.len < (size_t)head_len + body_len)) {
		char *room = buf_reserve(&in, READ_BYTES);
		ssize_t got = room ? recv(fd, room, READ_BYTES, 0) : 0;
		buf_grew(&in, got > 0 ? (size_t)got : 0);
		if (got > 0)
			head_len = read_head(buf_slice(&in), status, &body_len);
		if (got <= 0 || head_len < 0)
			code = hf_fail(err, HF_NET, "127.0.0.1:%d gives no answer", port);
	}
	close(fd);
	hf_try(code);
	buf_clear(body);
	buf_add(body, in.data + head_len, body_len);
	return HF_OK;
}
