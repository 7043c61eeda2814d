/* monitor.c - see monitor.h.
 *
 *   reading* ──whole head, or a fault──► writing* ──all sent──► lingering* ──► closed
 *      └──────── time ──► writing           └─ time, error ──► closed    * suspended
 *
 * Lingering: what the peer still sends is read and dropped, since a close before it would take the
 * answer with it. */
#include "runtime/monitor.h"

#include <errno.h>
#include <ev.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/clock.h"
#include "runtime/id.h"
#include "runtime/listen.h"
#include "runtime/log.h"
#include "runtime/metrics.h"

constexpr double ACCEPT_PAUSE_S = 0.1;
constexpr int64_t LINGER_MS = 1'000;
constexpr size_t LINGER_BYTES_MAX = 64 << 10;
constexpr size_t READ_BYTES = 4'096;

enum visit_state { VISIT_READING, VISIT_WRITING, VISIT_LINGERING };

struct visit {
	struct monitor *monitor;
	struct visit *next; /* newest first */
	enum visit_state state;
	int fd;
	ev_io io;
	ev_timer timer;
	struct buf in, out;
	size_t sent, dropped;
	bool head; /* HEAD: the body stays away */
};

struct monitor {
	struct ev_loop *loop;
	char role;
	struct monitor_hooks hooks;
	int fd;
	bool loopback;
	ev_io io;
	ev_timer pause; /* out of descriptors: nobody is taken in until it is over */
	struct visit *visits;
	size_t count;
	int64_t started_ms;
};

static void visit_close(struct visit *visit)
{
	struct monitor *monitor = visit->monitor;
	struct visit **at = &monitor->visits;
	while (*at != visit)
		at = &(*at)->next;
	*at = visit->next;
	monitor->count--;
	ev_io_stop(monitor->loop, &visit->io);
	ev_timer_stop(monitor->loop, &visit->timer);
	close(visit->fd);
	buf_deinit(&visit->in);
	buf_deinit(&visit->out);
	free(visit);
}

static void visit_for(struct visit *visit, enum visit_state state, int events, int64_t ms)
{
	struct ev_loop *loop = visit->monitor->loop;
	visit->state = state;
	ev_io_stop(loop, &visit->io);
	ev_io_set(&visit->io, visit->fd, events);
	ev_io_start(loop, &visit->io);
	ev_timer_stop(loop, &visit->timer);
	ev_now_update(loop);
	ev_timer_set(&visit->timer, (double)ms / 1000, 0);
	ev_timer_start(loop, &visit->timer);
}

/* --- answers ---------------------------------------------------------------------------------- */

static const char *reason_of(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 408:
		return "Request Timeout";
	case 413:
		return "Content Too Large";
	case 421:
		return "Misdirected Request";
	case 431:
		return "Request Header Fields Too Large";
	case 503:
		return "Service Unavailable";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Bad Request";
	}
}

static void answer(struct visit *visit, int status, const char *type, struct slice body)
{
	struct buf *out = &visit->out;
	buf_add_format(out,
		       "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
		       "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s"
		       "Connection: close\r\n\r\n",
		       status, reason_of(status), type, body.len,
		       status == 405 ? "Allow: GET, HEAD\r\n" : "");
	if (!visit->head)
		buf_add_slice(out, body);
	visit_for(visit, VISIT_WRITING, EV_WRITE, MONITOR_WRITE_MS);
}

static void refuse(struct visit *visit, int status)
{
	answer(visit, status, "text/plain", slice_of(reason_of(status)));
}

static void answer_health(struct visit *visit, const char *not_ready)
{
	hf_cleanup(buf) struct buf body = {};
	buf_add_format(&body, "{\"status\":\"%s\"}", not_ready ? not_ready : "ready");
	answer(visit, not_ready ? 503 : 200, "application/json", buf_slice(&body));
}

static void answer_metrics(struct visit *visit)
{
	const struct monitor *monitor = visit->monitor;
	const struct monitor_hooks *hooks = &monitor->hooks;
	metric_set(METRIC_process_info, HF_VERSION, 1);
	metric_forget(METRIC_incarnation_info);
	char id[UUID_TEXT_LEN + 1];
	const struct uuid *incarnation = hooks->incarnation(hooks->ctx);
	if (incarnation)
		metric_set(METRIC_incarnation_info, uuid_format(incarnation, id), 1);
	metric_set(METRIC_uptime_seconds, nullptr, clock_boot_ms() - monitor->started_ms);
	metric_set(METRIC_ready, nullptr, !hooks->not_ready(hooks->ctx));
	metric_bound("monitor_connections", (int64_t)monitor->count,
		     (int64_t)MONITOR_CONNECTIONS_MAX);
	hooks->collect(hooks->ctx);
	hf_cleanup(buf) struct buf body = {};
	metrics_write(monitor->role, &body);
	answer(visit, 200, "text/plain; version=0.0.4; charset=utf-8", buf_slice(&body));
}

/* --- requests --------------------------------------------------------------------------------- */

/* Of a Host header; a port may follow. */
static bool is_this_machine(struct slice host)
{
	static const char *const names[] = { "localhost", "[::1]" };
	size_t len = host.len;
	while (len > 0 && host.data[len - 1] >= '0' && host.data[len - 1] <= '9')
		len--;
	if (len > 0 && host.data[len - 1] == ':')
		host.len = len - 1;
	for (size_t i = 0; i < countof(names); i++)
		if (slice_is_any_case(host, names[i]))
			return true;
	bool numbers = host.len > 4 && memcmp(host.data, "127.", 4) == 0;
	for (size_t i = 0; i < host.len; i++)
		numbers = numbers && strchr("0123456789.", host.data[i]);
	return numbers;
}

/* The next line without its end; false at the blank one. The whole ends with one. */
static bool next_line(struct slice *rest, struct slice *line)
{
	const char *end = memmem(rest->data, rest->len, "\r\n", 2);
	hf_assert(end);
	*line = (struct slice){ rest->data, (size_t)(end - rest->data) };
	*rest = (struct slice){ end + 2, rest->len - line->len - 2 };
	return line->len > 0;
}

static bool is_name(struct slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		char byte = name.data[i];
		bool word = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
			    (byte >= 'a' && byte <= 'z') ||
			    (byte && strchr("!#$%&'*+-.^_`|~", byte));
		if (!word)
			return false;
	}
	return name.len > 0;
}

/* 0, or the status that refuses it. `hosts` counts. */
static int check_header(const struct visit *visit, struct slice line, int *hosts)
{
	const char *colon = memchr(line.data, ':', line.len);
	if (!colon)
		return 400;
	struct slice name = { line.data, (size_t)(colon - line.data) };
	struct slice value = slice_trim(slice_behind(line, name.len + 1));
	if (!is_name(name))
		return 400;
	if (slice_is_any_case(name, "transfer-encoding"))
		return 413;
	if (slice_is_any_case(name, "content-length") && !slice_is(value, "0"))
		return 413;
	if (!slice_is_any_case(name, "host"))
		return 0;
	if (++*hosts > 1)
		return 400;
	return visit->monitor->loopback && !is_this_machine(value) ? 421 : 0;
}

static bool is_text(struct slice head)
{
	for (size_t i = 0; i < head.len; i++) {
		unsigned char byte = (unsigned char)head.data[i];
		bool end = (byte == '\r' && i + 1 < head.len && head.data[i + 1] == '\n') ||
			   (byte == '\n' && i > 0 && head.data[i - 1] == '\r');
		if ((byte < 0x20 && byte != '\t' && !end) || byte == 0x7f)
			return false;
	}
	return true;
}

/* "GET /metrics HTTP/1.1" in three; false where it is not of that form. */
static bool cut_line(struct slice line, struct slice *method, struct slice *path,
		     struct slice *version)
{
	const char *first = memchr(line.data, ' ', line.len);
	const char *last = memrchr(line.data, ' ', line.len);
	if (!first || first == last || first == line.data)
		return false;
	*method = (struct slice){ line.data, (size_t)(first - line.data) };
	*path = (struct slice){ first + 1, (size_t)(last - first - 1) };
	*version = (struct slice){ last + 1, line.len - method->len - path->len - 2 };
	if (memchr(path->data, ' ', path->len) || path->len == 0 || !is_name(*method))
		return false;
	const char *query = memchr(path->data, '?', path->len);
	if (query)
		path->len = (size_t)(query - path->data);
	return true;
}

static void serve(struct visit *visit, struct slice method, struct slice path)
{
	const struct monitor_hooks *hooks = &visit->monitor->hooks;
	visit->head = slice_is(method, "HEAD");
	if (!visit->head && !slice_is(method, "GET"))
		refuse(visit, 405);
	else if (slice_is(path, "/metrics"))
		answer_metrics(visit);
	else if (slice_is(path, "/healthz"))
		answer(visit, 200, "application/json", slice_of("{\"status\":\"ok\"}"));
	else if (slice_is(path, "/readyz"))
		answer_health(visit, hooks->not_ready(hooks->ctx));
	else
		refuse(visit, 404);
}

static void take_head(struct visit *visit, struct slice head)
{
	struct slice line, method, path, version, rest = head;
	if (!is_text(head) || !next_line(&rest, &line) ||
	    !cut_line(line, &method, &path, &version)) {
		refuse(visit, 400);
		return;
	}
	bool newer = slice_is(version, "HTTP/1.1");
	if (!newer && !slice_is(version, "HTTP/1.0")) {
		refuse(visit, 505);
		return;
	}
	int hosts = 0, status = 0;
	while (status == 0 && next_line(&rest, &line))
		status = check_header(visit, line, &hosts);
	if (status == 0 && newer && hosts == 0)
		status = 400;
	if (status)
		refuse(visit, status);
	else
		serve(visit, method, path);
}

/* --- connections ------------------------------------------------------------------------------ */

static void on_readable(struct visit *visit)
{
	ssize_t got = recv(visit->fd, buf_reserve(&visit->in, READ_BYTES), READ_BYTES, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		visit_close(visit);
		return;
	}
	buf_grew(&visit->in, (size_t)got);
	if (visit->state == VISIT_LINGERING) {
		visit->dropped += (size_t)got;
		buf_clear(&visit->in);
		if (visit->dropped > LINGER_BYTES_MAX)
			visit_close(visit);
		return;
	}
	struct slice all = buf_slice(&visit->in);
	const char *end = memmem(all.data, all.len, "\r\n\r\n", 4);
	size_t len = end ? (size_t)(end - all.data) + 4 : all.len;
	if (len > MONITOR_HEAD_BYTES_MAX)
		refuse(visit, 431);
	else if (end)
		take_head(visit, (struct slice){ all.data, len });
}

static void on_writable(struct visit *visit)
{
	struct slice all = buf_slice(&visit->out);
	ssize_t sent = send(visit->fd, all.data + visit->sent, all.len - visit->sent, MSG_NOSIGNAL);
	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (sent < 0) {
		visit_close(visit);
		return;
	}
	visit->sent += (size_t)sent;
	if (visit->sent < all.len)
		return;
	shutdown(visit->fd, SHUT_WR);
	buf_clear(&visit->in);
	visit_for(visit, VISIT_LINGERING, EV_READ, LINGER_MS);
}

static void on_io(struct ev_loop *, ev_io *io, int)
{
	struct visit *visit = container_of(io, struct visit, io);
	if (visit->state == VISIT_WRITING)
		on_writable(visit);
	else
		on_readable(visit);
}

static void on_time(struct ev_loop *, ev_timer *timer, int)
{
	struct visit *visit = container_of(timer, struct visit, timer);
	if (visit->state == VISIT_READING)
		refuse(visit, 408);
	else
		visit_close(visit);
}

static void make_room(struct monitor *monitor)
{
	struct visit *oldest = monitor->visits;
	while (oldest->next)
		oldest = oldest->next;
	visit_close(oldest);
	metric_add(METRIC_bound_refused_total, "monitor_connections", 1);
}

static void on_acceptable(struct ev_loop *, ev_io *io, int)
{
	struct monitor *monitor = container_of(io, struct monitor, io);
	int fd = accept4(monitor->fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
		ev_io_stop(monitor->loop, &monitor->io);
		ev_timer_again(monitor->loop, &monitor->pause);
	}
	if (fd < 0)
		return;
	if (monitor->count >= MONITOR_CONNECTIONS_MAX)
		make_room(monitor);
	struct visit *visit = hf_alloc(sizeof *visit);
	visit->monitor = monitor;
	visit->next = monitor->visits;
	visit->fd = fd;
	monitor->visits = visit;
	monitor->count++;
	ev_init(&visit->io, on_io);
	ev_init(&visit->timer, on_time);
	visit_for(visit, VISIT_READING, EV_READ, MONITOR_HEAD_MS);
}

static void on_pause_over(struct ev_loop *loop, ev_timer *timer, int)
{
	struct monitor *monitor = container_of(timer, struct monitor, pause);
	ev_timer_stop(loop, timer);
	ev_io_start(loop, &monitor->io);
}

enum hf_code monitor_open(struct ev_loop *loop, const char *address, char role,
			  const struct monitor_hooks *hooks, struct monitor **out,
			  struct hf_err *err)
{
	*out = nullptr;
	if (!address)
		return HF_OK;
	int fd = -1;
	if (listen_at(address, false, &fd, err) != HF_OK)
		return hf_wrap(err, "metrics_listen");
	struct monitor *monitor = hf_alloc(sizeof *monitor);
	monitor->loop = loop;
	monitor->role = role;
	monitor->hooks = *hooks;
	monitor->fd = fd;
	monitor->loopback = listen_is_loopback(fd);
	monitor->started_ms = clock_boot_ms();
	ev_io_init(&monitor->io, on_acceptable, fd, EV_READ);
	ev_io_start(loop, &monitor->io);
	ev_timer_init(&monitor->pause, on_pause_over, 0, ACCEPT_PAUSE_S);
	char name[LISTEN_ADDRESS_BYTES_MAX];
	listen_name(fd, name);
	log_info("metrics at", "address", name, nullptr);
	*out = monitor;
	return HF_OK;
}

struct monitor *monitor_close(struct monitor *monitor)
{
	if (!monitor)
		return nullptr;
	while (monitor->visits)
		visit_close(monitor->visits);
	ev_io_stop(monitor->loop, &monitor->io);
	ev_timer_stop(monitor->loop, &monitor->pause);
	close(monitor->fd);
	free(monitor);
	return nullptr;
}
