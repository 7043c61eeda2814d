/* listener.c - see listener.h. Owns the listening socket and the list of live connections.
 * Connections hang in buckets by peer address, so that counting one address is a short walk that
 * stops at its limit. Who is over a limit gets 503 without being read. Out of descriptors, it stops
 * accepting for ACCEPT_PAUSE_S; whoever waits stays in the kernel's queue. */
#include "api/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ev.h>

#include "api/conn.h"
#include "api/http_write.h"
#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/chain.h"
#include "runtime/listen.h"
#include "runtime/log.h"
#include "runtime/metrics.h"

constexpr size_t BUCKETS = 1'024;        /* a power of two */
constexpr int ACCEPTS_PER_TURN_MAX = 64; /* then the others' events have their turn */
constexpr double ACCEPT_PAUSE_S = 0.1;
/* A peer that vanished without a word is found while its call is out: 15 + 3 × 5 s. */
constexpr int KEEPALIVE_IDLE_S = 15;
constexpr int KEEPALIVE_EVERY_S = 5;
constexpr int KEEPALIVE_PROBES = 3;
/* The kernel would grow them to megabytes for who asks and does not read, or is not read. */
constexpr int SOCKET_BUFFER_BYTES = 131'072; /* it takes twice that */

struct peer {
	struct peer *next, *previous; /* in its bucket */
	struct conn *conn;
	struct in6_addr address; /* IPv4 in its mapped form */
};

struct listener {
	struct conn_owner owner;
	int fd; /* -1 once it drains */
	char address[LISTEN_ADDRESS_BYTES_MAX];
	ev_io accept_io;
	ev_timer pause;
	size_t connections;
	struct peer *buckets[BUCKETS];
};

static struct in6_addr address_of(const struct sockaddr_storage *from)
{
	struct in6_addr out = {};
	if (from->ss_family == AF_INET6) {
		struct sockaddr_in6 six;
		memcpy(&six, from, sizeof six);
		return six.sin6_addr;
	}
	struct sockaddr_in four;
	memcpy(&four, from, sizeof four);
	out.s6_addr[10] = out.s6_addr[11] = 0xff;
	memcpy(out.s6_addr + 12, &four.sin_addr, sizeof four.sin_addr);
	return out;
}

static struct peer **bucket_of(struct listener *listener, const struct in6_addr *address)
{
	uint32_t hash = 2'166'136'261;
	for (size_t i = 0; i < sizeof address->s6_addr; i++)
		hash = (hash ^ address->s6_addr[i]) * 16'777'619;
	return &listener->buckets[(hash ^ hash >> 16) & (BUCKETS - 1)];
}

/* Of one address; counts no further than `most`. */
static size_t count_of(const struct peer *bucket, const struct in6_addr *address, size_t most)
{
	size_t count = 0;
	for (const struct peer *peer = bucket; peer && count < most; peer = peer->next)
		count += memcmp(&peer->address, address, sizeof *address) == 0;
	return count;
}

/* The bound that it is over, as metrics name it; nullptr: none. */
static const char *over_what(struct listener *listener, const struct in6_addr *address)
{
	const struct listener_limits *limits = &listener->owner.limits;
	if (listener->connections >= limits->connections_max)
		return "connections";
	size_t most = limits->connections_per_address_max;
	if (most == 0)
		return nullptr;
	bool over = count_of(*bucket_of(listener, address), address, most) >= most;
	return over ? "connections_per_address" : nullptr;
}

static void on_closed(struct conn_owner *owner, void *ctx)
{
	struct listener *listener = container_of(owner, struct listener, owner);
	struct peer *peer = ctx;
	chain_drop(*bucket_of(listener, &peer->address), peer);
	hf_assert(listener->connections > 0);
	listener->connections--;
	free(peer);
}

static void turn_away(int fd)
{
	hf_cleanup(buf) struct buf out = {};
	http_write_refusal(&out, (struct http_refusal){ 503, "too many connections" });
	/* Best effort: an empty socket buffer takes it whole. */
	(void)send(fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	shutdown(fd, SHUT_WR);
	close(fd);
	log_debug("turned a connection away", nullptr);
}

static void take_in(struct listener *listener, int fd, const struct in6_addr *address)
{
	const int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &KEEPALIVE_IDLE_S, sizeof KEEPALIVE_IDLE_S);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &KEEPALIVE_EVERY_S, sizeof KEEPALIVE_EVERY_S);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &KEEPALIVE_PROBES, sizeof KEEPALIVE_PROBES);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &SOCKET_BUFFER_BYTES, sizeof SOCKET_BUFFER_BYTES);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &SOCKET_BUFFER_BYTES, sizeof SOCKET_BUFFER_BYTES);

	struct peer *peer = hf_alloc(sizeof *peer);
	struct peer **bucket = bucket_of(listener, address);
	peer->address = *address;
	chain_add(*bucket, peer);
	listener->connections++;
	peer->conn = conn_open(&listener->owner, fd, peer);
}

static bool is_out_of_descriptors(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* False when nobody waits, or nobody can be taken in for now. */
static bool accept_one(struct listener *listener)
{
	struct sockaddr_storage from = {};
	socklen_t len = sizeof from;
	int fd =
	    accept4(listener->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0) {
		struct in6_addr address = address_of(&from);
		const char *over = over_what(listener, &address);
		if (over) {
			metric_add(METRIC_bound_refused_total, over, 1);
			turn_away(fd);
		} else {
			take_in(listener, fd, &address);
		}
		return true;
	}
	if (is_out_of_descriptors(errno)) {
		log_warn("accept paused", "error", strerror(errno), nullptr);
		ev_io_stop(listener->owner.loop, &listener->accept_io);
		ev_timer_again(listener->owner.loop, &listener->pause);
		return false;
	}
	/* Anything but "nobody waits" is that one connection's own misfortune. */
	return errno != EAGAIN && errno != EWOULDBLOCK;
}

static void on_acceptable(struct ev_loop *, ev_io *io, int)
{
	for (int i = 0; i < ACCEPTS_PER_TURN_MAX && accept_one(io->data); i++)
		;
}

static void on_pause_over(struct ev_loop *loop, ev_timer *timer, int)
{
	struct listener *listener = timer->data;
	ev_timer_stop(loop, timer);
	ev_io_start(loop, &listener->accept_io);
}

enum hf_code listener_open(struct ev_loop *loop, const char *address,
			   const struct listener_limits *limits, void (*route)(struct call *call),
			   void *server, struct listener **out, struct hf_err *err)
{
	hf_assert(limits->connections_max > 0);
	hf_assert(limits->header_timeout_ms > 0);
	int fd = -1;
	hf_try(listen_at(address, true, &fd, err));

	struct listener *listener = hf_alloc(sizeof *listener);
	listener->owner = (struct conn_owner){
		.loop = loop,
		.limits = *limits,
		.route = route,
		.server = server,
		.on_closed = on_closed,
	};
	listener->fd = fd;
	listen_name(fd, listener->address);
	ev_io_init(&listener->accept_io, on_acceptable, fd, EV_READ);
	ev_timer_init(&listener->pause, on_pause_over, 0, ACCEPT_PAUSE_S);
	listener->accept_io.data = listener->pause.data = listener;
	ev_io_start(loop, &listener->accept_io);
	*out = listener;
	return HF_OK;
}

const char *listener_address(const struct listener *listener)
{
	return listener->address;
}

static void stop_listening(struct listener *listener)
{
	if (listener->fd < 0)
		return;
	ev_io_stop(listener->owner.loop, &listener->accept_io);
	ev_timer_stop(listener->owner.loop, &listener->pause);
	close(listener->fd);
	listener->fd = -1;
}

/* Closing one may close no other, so `next` stays good. */
static void each_conn(struct listener *listener, void (*act)(struct conn *conn))
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct peer *peer = listener->buckets[i], *next; peer; peer = next) {
			next = peer->next;
			act(peer->conn);
		}
}

void listener_part(struct listener *listener)
{
	listener->owner.closing = true;
}

void listener_drain(struct listener *listener)
{
	if (listener->owner.draining)
		return;
	/* Those that the kernel has already welcomed would be reset by the close. */
	for (int i = 0; i < LISTEN_BACKLOG && accept_one(listener); i++)
		;
	stop_listening(listener);
	listener->owner.closing = listener->owner.draining = true;
	each_conn(listener, conn_drain);
}

/* The address with the most: of each bucket the first few are looked at, so that a scrape stays
 * cheap whatever hangs there. */
static size_t fullest_address(const struct listener *listener)
{
	constexpr int LOOKS_MAX = 16;
	size_t fullest = 0;
	for (size_t i = 0; i < BUCKETS; i++) {
		const struct peer *peer = listener->buckets[i];
		for (int looks = 0; peer && looks < LOOKS_MAX; looks++, peer = peer->next) {
			size_t count = count_of(peer, &peer->address, SIZE_MAX);
			fullest = count > fullest ? count : fullest;
		}
	}
	return fullest;
}

void listener_collect(const struct listener *listener)
{
	const struct listener_limits *limits = &listener->owner.limits;
	metric_bound("connections", (int64_t)listener->connections,
		     (int64_t)limits->connections_max);
	metric_bound("answer_bytes", (int64_t)listener->owner.held_bytes,
		     (int64_t)limits->held_bytes_max);
	metric_bound("connections_per_address", (int64_t)fullest_address(listener),
		     (int64_t)limits->connections_per_address_max);
}

size_t listener_connections(const struct listener *listener)
{
	return listener->connections;
}

void listener_close(struct listener *listener)
{
	if (!listener)
		return;
	stop_listening(listener);
	each_conn(listener, conn_close);
	hf_assert(listener->connections == 0);
	free(listener);
}
