/* rpc.h - the JSON-RPC envelope, in and out, on the bytes as received: the id is never read as a
 * number, it is sent back as it came. Knows nothing of MCP. */
#pragma once

#include "runtime/arena.h"
#include "runtime/buf.h"
#include "runtime/slice.h"

enum rpc_code {
	RPC_NONE = 0,
#define RPC(name, code, ...) RPC_##name = (code),
#define TYPE(...)
#include "runtime/codes.def"
#undef TYPE
#undef RPC
};

constexpr size_t RPC_ID_BYTES_MAX = 1024; /* it comes back in every answer */

struct rpc {
	struct slice id;     /* raw token; empty where there is none that may be echoed */
	bool notification;   /* no `id` member at all */
	struct slice method; /* decoded, terminated */
	struct slice params; /* raw; empty when absent */
	bool holds_nul;      /* see rpc_read */
};

/* Reads one request or notification. RPC_NONE, or the code of the error and in `reason` a text for
 * a person; `out->id` is then set where it could be read. The spans point into `body` or `arena`.
 *
 * Strings that hold an escaped NUL are well-formed JSON, which json_scan refuses all the same. Such
 * a body is read with U+0001 in its place and `holds_nul` set, so that it can be refused by name
 * and under its own id. Nothing of it may be stored. A member that stands twice in one object is
 * well-formed, too, but two readers could take two different requests out of it:
 * RPC_INVALID_REQUEST without an id. */
enum rpc_code rpc_read(struct slice body, struct arena *arena, struct rpc *out,
		       const char **reason);

/* {"jsonrpc":"2.0","id":ID,"result": … the caller appends the value, then rpc_end. */
void rpc_begin(struct slice id, struct buf *out);
void rpc_end(struct buf *out);
/* A whole error message. `id` empty: left out. `data`: JSON text, or empty. */
void rpc_error(struct slice id, enum rpc_code code, const char *message, struct slice data,
	       struct buf *out);
/* The same with a whole error object, as it was stored. */
void rpc_error_stored(struct slice id, struct slice error, struct buf *out);
