/* listener.h - accepts connections, within limits, and runs one conn.c machine each. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "runtime/err.h"

struct ev_loop;
struct listener;

constexpr size_t LISTENER_WRITE_BYTES_PER_S = 65'536;     /* slower readers are cut off */
constexpr size_t LISTENER_HELD_BYTES_MAX = 268'435'456;   /* of answers not taken yet, in sum */
constexpr size_t LISTENER_LARGE_ANSWER_BYTES = 1'048'576; /* smaller ones are held all the same */

struct listener_limits {
	size_t connections_max;
	size_t connections_per_address_max; /* 0: none of its own */
	size_t header_bytes_max;
	size_t body_bytes_max;
	int64_t header_timeout_ms; /* first byte of a request to the end of its headers */
	int64_t body_timeout_ms;   /* end of headers to the end of the body */
	int64_t idle_timeout_ms;   /* between requests */
	int64_t write_timeout_ms;  /* a peer that does not read its answer */
	size_t write_bytes_per_s;  /* and beyond that, how slowly one may read; 0: ever so slowly */
	size_t held_bytes_max;     /* call_has_room; 0: no bound */
};

/* Listens on "host:port" or "[v6]:port" with SO_REUSEPORT. `route` is called for each request
 * that is whole and well-framed; everything else is answered by conn.c. Port 0 takes a free one. */
enum hf_code listener_open(struct ev_loop *loop, const char *address,
			   const struct listener_limits *limits, void (*route)(struct call *call),
			   void *server, struct listener **out, struct hf_err *err);
/* "127.0.0.1:8080": where it really listens. */
const char *listener_address(const struct listener *listener);
/* From now on each answer says `Connection: close`, and new connections are taken as before. */
void listener_part(struct listener *listener);
/* Stops accepting; idle connections close, busy ones answer with `Connection: close` first. */
void listener_drain(struct listener *listener);
/* Sets its gauges. */
void listener_collect(const struct listener *listener);
size_t listener_connections(const struct listener *listener);
/* At once: calls that are out are gone (on_gone) and still need their call_reply. Never from inside
 * the router or on_gone. Takes nullptr. */
void listener_close(struct listener *listener);
