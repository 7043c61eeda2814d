/* call_of.h - a request without a connection, for tests of what only reads one. It has an arena of
 * its own: `hf_cleanup(call_of) struct call_of made = {};` */
#pragma once

#include "api/call.h"
#include "runtime/arena.h"

constexpr size_t CALL_OF_HEADERS_MAX = 16;
constexpr size_t CALL_OF_ARENA_BYTES_MAX = 1 << 20;

struct call_of {
	struct call call;
	struct header headers[CALL_OF_HEADERS_MAX];
};

/* `headers`: "Name: value" pieces, each ended by '\n'. */
static inline struct call *call_of_init(struct call_of *out, const char *headers, const char *body)
{
	*out = (struct call_of){ .call = { .arena = arena_new(CALL_OF_ARENA_BYTES_MAX),
					   .method = slice_of("POST"),
					   .target = slice_of("/mcp"),
					   .path = slice_of("/mcp"),
					   .headers = out->headers,
					   .body = slice_of(body) } };
	while (*headers) {
		size_t name_len = strcspn(headers, ":");
		const char *value = headers + name_len + 1;
		value += strspn(value, " ");
		size_t value_len = strcspn(value, "\n");
		out->headers[out->call.headers_count++] = (struct header){
			.name = { headers, name_len },
			.value = { value, value_len },
		};
		headers = value + value_len + 1;
	}
	return &out->call;
}

static inline void hf_cleanup_call_of(struct call_of *made)
{
	arena_free(made->call.arena);
}
