/* stream.h - a stream socket that carries frames to and from a tool: what came and was not taken
 * yet, and what has not left yet. Whoever owns it says what a readable or writable socket means.
 * Used by host.c and plain.c. */
#pragma once

#include <ev.h>
#include <stddef.h>

#include "runtime/buf.h"
#include "runtime/err.h"
#include "worker/frame.h"

struct stream {
	struct ev_loop *loop;
	int fd; /* -1: closed by us */
	ev_io readable, writable;
	struct buf in, out;
	size_t taken; /* bytes of `in` */
	bool ended;   /* the peer sends no more */
};

/* Takes over `fd`; what is on its way is watched for once a watcher is started. */
void stream_open(struct stream *stream, struct ev_loop *loop, int fd,
		 void (*on_readable)(struct ev_loop *loop, ev_io *io, int events),
		 void (*on_writable)(struct ev_loop *loop, ev_io *io, int events));
/* What came stays readable. May be called again. */
void stream_close(struct stream *stream);
/* Closes it and forgets what came; may be opened again. */
void stream_deinit(struct stream *stream);

/* Reads once. False: nothing came, now or any more. */
bool stream_read(struct stream *stream);
struct slice stream_unread(const struct stream *stream);
/* The next frame of what came, taken where it is whole: it lives until the next stream_read. `used`
 * as frame_next says. */
enum frame_next stream_next(struct stream *stream, struct frame *frame, size_t *used,
			    struct hf_err *err);
/* Sends of `out` what leaves now; the rest is watched for. False: the peer is gone, and so is it.
 */
bool stream_send(struct stream *stream);
