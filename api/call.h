/* call.h - one HTTP request on its way down and its answer on the way up. conn.c makes it, hands
 * it to the router once the body is whole, and waits for its answer, now or later: call_reply once,
 * or call_stream, any number of call_write, and call_end. */
#pragma once

#include <stddef.h>

#include "runtime/arena.h"
#include "runtime/buf.h"
#include "runtime/slice.h"

struct header {
	struct slice name, value; /* as received; the value without the white space around it */
};

struct call {
	struct arena *arena; /* freed by call_reply and call_end */
	struct slice method; /* "POST" */
	struct slice target; /* as received */
	struct slice path;   /* the target up to '?' */
	const struct header *headers;
	size_t headers_count;
	struct slice body;
	void *server;  /* of conn.c's owner: struct api */
	bool gone;     /* the client hung up; the answer will be dropped */
	bool too_slow; /* gone, because it did not take in time what it was sent */
	/* Called once when the client hangs up, or stops reading, before the end of the answer;
	 * nullable, set by whoever waits; never from inside a function of this file. The call must
	 * still be ended by call_reply or call_end (which then only free it). */
	void (*on_gone)(struct call *call);
	/* Called each time that a stream's client has taken all that was written, from a turn of
	 * the loop and never from inside a function of this file; nullable. It may end the call. */
	void (*on_drained)(struct call *call);
	void *on_gone_ctx; /* of both */
};

/* A header by its name (any case); false when absent. Where there are several, `value` is the last
 * and `count` (nullable) says how many: whoever decides by it asks for exactly one. */
bool call_header(const struct call *call, const char *name, struct slice *value, size_t *count);

/* Of what was refused for a moment: in a second. */
constexpr char RETRY_AFTER[] = "Retry-After: 1\r\n";

struct reply {
	int status;
	const char *content_type; /* nullptr: no body */
	struct slice body;        /* copied */
	const char *extra;        /* nullable: further header lines, each ended by \r\n */
};
/* Ends the call: `call` and all of its arena are gone when this returns. May be called from inside
 * the router or on_gone. `reply` may be nullptr when the client is gone: nothing is sent then.
 * Cache-Control: no-store and X-Content-Type-Options: nosniff are in every answer. */
void call_reply(struct call *call, const struct reply *reply);

/* Whether an answer of so many bytes may be held until its client has taken it: false only for
 * large ones, while all that are held are too many. */
bool call_has_room(struct call *call, size_t bytes);

/* An answer of 200 whose length is not known yet: in chunks, or up to the end of the connection
 * where the client knows no chunks. Without a Cache-Control of ours: `extra` brings it. */
struct stream_head {
	const char *content_type;
	const char *extra; /* nullable: further header lines, each ended by \r\n */
};
void call_stream(struct call *call, const struct stream_head *head);
/* `bytes` are copied and sent as soon as the socket takes them; dropped once the client is gone. A
 * client that does not read what it was sent counts as gone. */
void call_write(struct call *call, struct slice bytes);
/* What was written and waits for the client to take it. */
size_t call_unsent(struct call *call);
/* Ends the call like call_reply. */
void call_end(struct call *call);
