/* slice.h - a pointer and a length that own nothing. Text in a slice is not terminated. */
#pragma once

#include <stddef.h>
#include <string.h>

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
