/* bench_request.h - whole HTTP requests to the MCP endpoint, made once: what differs from call to
 * call is written into its places, all of one length. */
#pragma once

#include "runtime/buf.h"
#include "runtime/slice.h"

constexpr size_t REQUEST_PLACES_MAX = 4;
/* What an effect ID of the bench looks like: "eff-" and 32 hexadecimal digits. */
constexpr size_t REQUEST_EFFECT_LEN = 36;

struct request {
	struct buf bytes;
	size_t places[REQUEST_PLACES_MAX];
	size_t places_count;
	size_t place_len;
};

struct request_target {
	int port;
	const char *token;
};

/* POST of a method; `name` (nullable) is what Mcp-Name says; `params` are members without braces or
 * outer commas (may be empty). Each run of exactly `place_len` bytes '@' becomes a place. */
void request_init(struct request *request, const struct request_target *target, const char *method,
		  const char *name, const char *params, size_t place_len);
/* tools/call of the bench's own tools, with the arguments of the common workload. */
void request_init_call(struct request *request, const struct request_target *target,
		       const char *tool);
/* tasks/get. */
void request_init_get(struct request *request, const struct request_target *target);
void request_deinit(struct request *request);

/* `text` has place_len bytes. */
void request_fill(struct request *request, const char *text);
struct slice request_slice(const struct request *request);

/* A fresh effect ID; `text` is not terminated. Unique for this thread and, by its random seed, for
 * every other. */
void request_effect(char text[static REQUEST_EFFECT_LEN]);
