#include "runtime/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"

constexpr size_t ARENA_ALIGN = alignof(max_align_t);

struct chunk {
	struct chunk *next;
	size_t size;
	size_t used;
	alignas(ARENA_ALIGN) unsigned char bytes[];
};

struct arena {
	struct chunk *head;
	size_t limit;
	size_t used;
};

struct arena *arena_new(size_t limit_bytes)
{
	hf_assert(limit_bytes > 0);
	struct arena *arena = hf_alloc(sizeof *arena);
	arena->limit = limit_bytes;
	return arena;
}

struct arena *arena_free(struct arena *arena)
{
	if (!arena)
		return nullptr;
	for (struct chunk *chunk = arena->head, *next; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	free(arena);
	return nullptr;
}

/* Under ASan each piece is a chunk of its own, so that overruns between pieces are seen. */
static size_t chunk_room(size_t padded)
{
#if __has_feature(address_sanitizer)
	constexpr size_t CHUNK_BYTES = 0;
#else
	constexpr size_t CHUNK_BYTES = 16'384;
#endif
	return padded > CHUNK_BYTES ? padded : CHUNK_BYTES;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	hf_assert(arena);
	hf_assert(size <= arena->limit);
	size_t padded = ((size ? size : 1) + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
	hf_assert(padded <= arena->limit - arena->used);

	struct chunk *chunk = arena->head;
	if (!chunk || chunk->size - chunk->used < padded) {
		size_t room = chunk_room(padded);
		chunk = hf_alloc(sizeof *chunk + room);
		chunk->size = room;
		chunk->next = arena->head;
		arena->head = chunk;
	}
	void *out = chunk->bytes + chunk->used;
	chunk->used += padded;
	arena->used += padded;
	return out;
}

char *arena_strdup(struct arena *arena, const char *text)
{
	hf_assert(text);
	return arena_copy(arena, slice_of(text));
}

char *arena_copy(struct arena *arena, struct slice text)
{
	char *copy = arena_alloc(arena, text.len + 1);
	if (text.len)
		memcpy(copy, text.data, text.len);
	return copy;
}

char *arena_format(struct arena *arena, const char *format, ...)
{
	va_list args, again;
	va_start(args, format);
	va_copy(again, args);
	int len = vsnprintf(nullptr, 0, format, args);
	va_end(args);
	hf_assert(len >= 0);
	char *text = arena_alloc(arena, (size_t)len + 1);
	vsnprintf(text, (size_t)len + 1, format, again);
	va_end(again);
	return text;
}
