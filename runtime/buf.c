#include "runtime/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"

constexpr size_t BUF_FIRST_BYTES = 256;

void *buf_reserve(struct buf *buf, size_t len)
{
	hf_assert(buf);
	if (len > SIZE_MAX / 4 || (buf->max && (len > buf->max || buf->len > buf->max - len))) {
		buf->overflow = true;
		return nullptr;
	}
	size_t need = buf->len + len + 1;
	if (need > buf->room) {
		size_t room = buf->room ? buf->room : BUF_FIRST_BYTES;
		while (room < need)
			room *= 2;
		buf->data = hf_realloc(buf->data, room);
		buf->room = room;
	}
	return buf->data + buf->len;
}

void buf_grew(struct buf *buf, size_t len)
{
	hf_assert(buf->len + len < buf->room);
	buf->len += len;
	buf->data[buf->len] = '\0';
}

void buf_add(struct buf *buf, const void *bytes, size_t len)
{
	hf_assert(bytes || len == 0);
	void *room = buf_reserve(buf, len);
	if (!room)
		return;
	if (len)
		memcpy(room, bytes, len);
	buf_grew(buf, len);
}

void buf_add_text(struct buf *buf, const char *text)
{
	hf_assert(text);
	buf_add(buf, text, strlen(text));
}

void buf_add_slice(struct buf *buf, struct slice slice)
{
	buf_add(buf, slice.data, slice.len);
}

void buf_add_byte(struct buf *buf, char byte)
{
	buf_add(buf, &byte, 1);
}

void buf_add_format(struct buf *buf, const char *format, ...)
{
	char small[512];
	va_list args, again;
	va_start(args, format);
	va_copy(again, args);
	int len = vsnprintf(small, sizeof small, format, args);
	va_end(args);
	hf_assert(len >= 0);
	if ((size_t)len < sizeof small) {
		buf_add(buf, small, (size_t)len);
	} else {
		void *room = buf_reserve(buf, (size_t)len);
		if (room) {
			vsnprintf(room, (size_t)len + 1, format, again);
			buf_grew(buf, (size_t)len);
		}
	}
	va_end(again);
}

void buf_consume(struct buf *buf, size_t len)
{
	hf_assert(len <= buf->len);
	if (len == 0)
		return;
	memmove(buf->data, buf->data + len, buf->len - len + 1);
	buf->len -= len;
}

void buf_clear(struct buf *buf)
{
	buf->len = 0;
	buf->overflow = false;
	if (buf->data)
		buf->data[0] = '\0';
}

struct slice buf_slice(const struct buf *buf)
{
	return (struct slice){ buf->data ? buf->data : "", buf->len };
}

char *buf_take(struct buf *buf)
{
	char *text = buf->data ? buf->data : hf_strdup("");
	*buf = (struct buf){ .max = buf->max };
	return text;
}

void buf_deinit(struct buf *buf)
{
	free(buf->data);
	*buf = (struct buf){};
}
