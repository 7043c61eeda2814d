/* tail.c - the end of a tool's output. */
#include "worker/tail.h"

#include <unistd.h>

#include "runtime/base.h"
#include "worker/text.h"

constexpr size_t READ_BYTES = 16 << 10;
constexpr int READS_MAX = 16;    /* of one tail_text */
constexpr double PAUSE_S = 0.01; /* between two reads of a talkative tool */

/* Reads once; false when there is nothing more for now. */
static bool read_some(struct tail *tail)
{
	if (tail->fd < 0)
		return false;
	void *room = buf_reserve(&tail->kept, READ_BYTES);
	hf_assert(room);
	ssize_t got = read(tail->fd, room, READ_BYTES);
	if (got < 0)
		return false;
	if (got == 0) {
		ev_io_stop(tail->loop, &tail->readable);
		return false;
	}
	buf_grew(&tail->kept, (size_t)got);
	tail->bytes += (size_t)got;
	if (tail->kept.len > TAIL_BYTES)
		buf_consume(&tail->kept, tail->kept.len - TAIL_BYTES);
	return true;
}

static void on_readable(struct ev_loop *loop, ev_io *io, int)
{
	struct tail *tail = container_of(io, struct tail, readable);
	read_some(tail);
	if (tail->bytes > TAIL_FREE_BYTES && ev_is_active(io)) {
		ev_io_stop(loop, io);
		ev_timer_set(&tail->pause, PAUSE_S, 0.);
		ev_timer_start(loop, &tail->pause);
	}
}

static void on_pause(struct ev_loop *loop, ev_timer *timer, int)
{
	struct tail *tail = container_of(timer, struct tail, pause);
	ev_io_start(loop, &tail->readable);
}

void tail_start(struct tail *tail, struct ev_loop *loop, int fd)
{
	tail->loop = loop;
	tail->fd = fd;
	ev_io_init(&tail->readable, on_readable, fd, EV_READ);
	ev_timer_init(&tail->pause, on_pause, PAUSE_S, 0.);
	ev_io_start(loop, &tail->readable);
}

void tail_stop(struct tail *tail)
{
	if (!tail->loop)
		return;
	ev_io_stop(tail->loop, &tail->readable);
	ev_timer_stop(tail->loop, &tail->pause);
	if (tail->fd >= 0)
		close(tail->fd);
	tail->fd = -1;
}

void tail_deinit(struct tail *tail)
{
	tail_stop(tail);
	buf_deinit(&tail->kept);
}

void tail_clear(struct tail *tail)
{
	buf_clear(&tail->kept);
	tail->bytes = 0;
}

void tail_text(struct tail *tail, struct buf *text)
{
	for (int i = 0; i < READS_MAX && read_some(tail); i++)
		continue;
	struct slice kept = buf_slice(&tail->kept);
	/* It may start in the middle of a character. */
	for (; kept.len && ((unsigned char)*kept.data & 0xc0) == 0x80; kept.data++)
		kept.len--;
	text_clean(text_trim(kept), TAIL_BYTES, text);
}
