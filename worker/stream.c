/* stream.c - buffers grow with what comes and are given back when empty: a large frame is rare. */
#include "worker/stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base.h"

constexpr size_t READ_BYTES = 64 << 10;       /* of one read */
constexpr size_t BUFFER_KEPT_BYTES = 1 << 20; /* a larger buffer is freed when empty */

void stream_open(struct stream *stream, struct ev_loop *loop, int fd,
		 void (*on_readable)(struct ev_loop *loop, ev_io *io, int events),
		 void (*on_writable)(struct ev_loop *loop, ev_io *io, int events))
{
	*stream = (struct stream){ .loop = loop, .fd = fd };
	ev_io_init(&stream->readable, on_readable, fd, EV_READ);
	ev_io_init(&stream->writable, on_writable, fd, EV_WRITE);
}

void stream_close(struct stream *stream)
{
	if (stream->fd < 0)
		return;
	ev_io_stop(stream->loop, &stream->readable);
	ev_io_stop(stream->loop, &stream->writable);
	close(stream->fd);
	stream->fd = -1;
}

void stream_deinit(struct stream *stream)
{
	stream_close(stream);
	buf_deinit(&stream->in);
	buf_deinit(&stream->out);
	*stream = (struct stream){ .fd = -1 };
}

static void shrink(struct buf *buf)
{
	if (buf->len == 0 && buf->room > BUFFER_KEPT_BYTES)
		buf_deinit(buf);
}

bool stream_read(struct stream *stream)
{
	if (stream->fd < 0 || stream->ended)
		return false;
	buf_consume(&stream->in, stream->taken);
	stream->taken = 0;
	shrink(&stream->in);
	void *room = buf_reserve(&stream->in, READ_BYTES);
	hf_assert(room);
	ssize_t got = recv(stream->fd, room, READ_BYTES, MSG_DONTWAIT);
	if (got > 0)
		buf_grew(&stream->in, (size_t)got);
	stream->ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
	if (stream->ended)
		ev_io_stop(stream->loop, &stream->readable);
	return got > 0;
}

struct slice stream_unread(const struct stream *stream)
{
	struct slice all = buf_slice(&stream->in);
	return (struct slice){ all.data + stream->taken, all.len - stream->taken };
}

enum frame_next stream_next(struct stream *stream, struct frame *frame, size_t *used,
			    struct hf_err *err)
{
	enum frame_next next = frame_next(stream_unread(stream), frame, used, err);
	if (next == FRAME_WHOLE)
		stream->taken += *used;
	return next;
}

bool stream_send(struct stream *stream)
{
	while (stream->out.len) {
		ssize_t sent = send(stream->fd, stream->out.data, stream->out.len,
				    MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno == EAGAIN) {
			ev_io_start(stream->loop, &stream->writable);
			return true;
		}
		if (sent < 0 && errno != EINTR) {
			buf_clear(&stream->out);
			ev_io_stop(stream->loop, &stream->writable);
			return false;
		}
		buf_consume(&stream->out, sent < 0 ? 0 : (size_t)sent);
	}
	ev_io_stop(stream->loop, &stream->writable);
	shrink(&stream->out);
	return true;
}
