/* buf.h - a growable byte buffer with a maximum; the only place that appends. A zeroed struct buf
 * is an empty buffer with no maximum. The bytes are always followed by a NUL that does not count,
 * so `data` of a non-empty buffer may be read as a C string when the content has no NUL itself. */
#pragma once

#include <stddef.h>

#include "runtime/slice.h"

struct buf {
	char *data; /* nullptr while nothing was appended */
	size_t len;
	size_t room;
	size_t max;    /* 0: none */
	bool overflow; /* an append was refused since the last clear; content is then cut */
};

/* Appends refuse the whole piece once `max` would be passed, and set `overflow`. */
void buf_add(struct buf *buf, const void *bytes, size_t len);
void buf_add_text(struct buf *buf, const char *text);
void buf_add_slice(struct buf *buf, struct slice slice);
void buf_add_byte(struct buf *buf, char byte);
void buf_add_format(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Room for `len` more bytes to be written in place, or nullptr past the maximum; then buf_grew. */
[[nodiscard]] void *buf_reserve(struct buf *buf, size_t len);
void buf_grew(struct buf *buf, size_t len);

/* Drops the first `len` bytes. */
void buf_consume(struct buf *buf, size_t len);
void buf_clear(struct buf *buf);

struct slice buf_slice(const struct buf *buf);

/* The content as a heap string that the caller frees; the buffer is empty afterwards. Never
 * nullptr. */
[[nodiscard]] char *buf_take(struct buf *buf);

void buf_deinit(struct buf *buf);
static inline void hf_cleanup_buf(struct buf *buf)
{
	buf_deinit(buf);
}
