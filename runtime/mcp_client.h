/* mcp_client.h - a blocking client of one MCP endpoint, revision 2026-07-28, that declares the
 * Tasks extension. For commands only: it blocks, and it is the program's, not the library's. */
#pragma once

#include <signal.h>
#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

struct mcp_client;

/* HF_INVALID: `url` is no http or https address, or `token` (nullable) no header value. A path in
 * `url` is taken as it is; without one it is /mcp. Once *stop is set (by a signal handler), a
 * request in flight ends with HF_CANCELLED. */
enum hf_code mcp_client_open(const char *url, const char *token, const volatile sig_atomic_t *stop,
			     struct mcp_client **out, struct hf_err *err);
struct mcp_client *mcp_client_close(struct mcp_client *client); /* takes nullptr */

/* Zeroed before first use; may be used again. */
struct mcp_answer {
	struct buf body;
	struct slice result; /* an object, or empty; into body */
	struct slice error;  /* a JSON-RPC error, or empty; into body */
	int64_t retry_after_ms;
	bool maybe_taken; /* of a request that failed: it may have reached who acts on it */
};
void mcp_answer_deinit(struct mcp_answer *answer);
static inline void hf_cleanup_mcp_answer(struct mcp_answer *answer)
{
	mcp_answer_deinit(answer);
}

/* One request, sent once. `name` is what Mcp-Name says. `params` and `meta` (may be empty) are
 * members without braces or outer commas. HF_OK: result or error is there. HF_NET (no connection,
 * or the answer is lost) and HF_BUSY (refused for now) are worth asking again; the error may be
 * there with HF_BUSY. HF_DENIED, HF_INVALID: not worth it. */
enum hf_code mcp_request(struct mcp_client *client, const char *method, const char *name,
			 struct slice params, struct slice meta, struct mcp_answer *answer,
			 struct hf_err *err);
