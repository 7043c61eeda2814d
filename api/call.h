/* call.h - one HTTP request on its way down and its answer on the way up. conn.c makes it, hands
 * it to the router once the body is whole, and waits for call_reply: exactly one, now or later. */
#pragma once

#include <stddef.h>

#include "runtime/arena.h"
#include "runtime/buf.h"
#include "runtime/slice.h"

struct header {
	struct slice name, value; /* as received; the value without the white space around it */
};

struct call {
	struct arena *arena; /* freed by call_reply */
	struct slice method; /* "POST" */
	struct slice target; /* as received */
	struct slice path;   /* the target up to '?' */
	const struct header *headers;
	size_t headers_count;
	struct slice body;
	void *server; /* of conn.c's owner: struct api */
	bool gone;    /* the client hung up; the answer will be dropped */
	/* Called when the client hangs up before the answer; nullable, set by whoever waits. The
	 * call must still be answered by call_reply (which then only frees it). */
	void (*on_gone)(struct call *call);
	void *on_gone_ctx;
};

/* A header by its name (any case); false when absent. Where there are several, `value` is the last
 * and `count` (nullable) says how many: whoever decides by it asks for exactly one. */
bool call_header(const struct call *call, const char *name, struct slice *value, size_t *count);

struct reply {
	int status;
	const char *content_type; /* nullptr: no body */
	struct slice body;        /* copied */
	const char *extra;        /* nullable: further header lines, each ended by \r\n */
	bool close;               /* close the connection after this answer */
};
/* Ends the call: `call` and all of its arena are gone when this returns. May be called from inside
 * the router or on_gone. `reply` may be nullptr when the client is gone: nothing is sent then.
 * Cache-Control: no-store and X-Content-Type-Options: nosniff are in every answer. */
void call_reply(struct call *call, const struct reply *reply);
