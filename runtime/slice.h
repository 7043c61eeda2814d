/* slice.h - a pointer and a length that own nothing. Text in a slice is not terminated. */
#pragma once

#include <stddef.h>
#include <string.h>
#include <strings.h>

struct slice {
	const char *data;
	size_t len;
};

static inline struct slice slice_of(const char *text)
{
	return (struct slice){ text, text ? strlen(text) : 0 };
}

static inline bool slice_equal(struct slice a, struct slice b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool slice_is(struct slice a, const char *text)
{
	return slice_equal(a, slice_of(text));
}

static inline bool slice_is_any_case(struct slice a, const char *text)
{
	return a.len == strlen(text) && strncasecmp(a.data, text, a.len) == 0;
}

/* What stands behind its first `len` bytes. */
static inline struct slice slice_behind(struct slice text, size_t len)
{
	return (struct slice){ text.data + len, text.len - len };
}

static inline bool slice_starts(struct slice text, struct slice start)
{
	return text.len >= start.len && slice_equal((struct slice){ text.data, start.len }, start);
}

/* Without spaces and tabs at both ends. */
static inline struct slice slice_trim(struct slice text)
{
	while (text.len && (text.data[0] == ' ' || text.data[0] == '\t'))
		text = slice_behind(text, 1);
	while (text.len && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
		text.len--;
	return text;
}
