/* tail.h - what a tool process writes to stdout and stderr, of which the end is kept. A flood is
 * slowed down by a full pipe and never costs more than that. Called by host.c. */
#pragma once

#include <ev.h>
#include <stddef.h>

#include "runtime/buf.h"

constexpr size_t TAIL_BYTES = 8 << 10;      /* kept */
constexpr size_t TAIL_FREE_BYTES = 1 << 20; /* then it is read slowly */

struct tail {
	struct ev_loop *loop;
	int fd; /* -1: closed */
	ev_io readable;
	ev_timer pause;
	struct buf kept;
	size_t bytes; /* since tail_clear */
};

/* Takes over `fd`, the non-blocking end of a pipe. */
void tail_start(struct tail *tail, struct ev_loop *loop, int fd);
/* Closes the pipe; what was kept stays until tail_deinit. May be called again. */
void tail_stop(struct tail *tail);
void tail_deinit(struct tail *tail);

/* Forgets what was written. */
void tail_clear(struct tail *tail);
/* Reads what is there to be read and appends what is kept as UTF-8 text without control characters,
 * without white space at the ends. */
void tail_text(struct tail *tail, struct buf *text);
