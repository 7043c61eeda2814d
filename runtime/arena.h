/* arena.h - bump allocator of one request or one attempt: many pieces, one free. Memory comes
 * zeroed and aligned for anything. Passing the limit is the caller's to prevent: inputs are
 * bounded before they get here, so going over it is a broken invariant. */
#pragma once

#include <stddef.h>

#include "runtime/slice.h"

struct arena;

[[nodiscard]] struct arena *arena_new(size_t limit_bytes);
struct arena *arena_free(struct arena *arena); /* takes nullptr; returns nullptr */

[[nodiscard]] void *arena_alloc(struct arena *arena, size_t size);
[[nodiscard]] char *arena_strdup(struct arena *arena, const char *text);
[[nodiscard]] char *arena_copy(struct arena *arena, struct slice text); /* terminated */
[[nodiscard]] static inline struct slice arena_slice(struct arena *arena, struct slice text)
{
	return (struct slice){ arena_copy(arena, text), text.len };
}
[[nodiscard]] char *arena_format(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
