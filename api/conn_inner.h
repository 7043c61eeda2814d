/* conn_inner.h - one connection and the call that is out with the router: conn.c's machine, of
 * which call.c sees what an answer needs. Nobody else does. */
#pragma once

#include <ev.h>

#include "api/conn.h"
#include "runtime/buf.h"

struct http;

enum conn_state {
	CONN_IDLE,
	CONN_READING,
	CONN_CALLING,
	CONN_STREAMING,
	CONN_WRITING,
	CONN_LINGERING,
	CONN_CLOSED,
};

struct conn {
	enum conn_state state;
	int fd;                   /* -1 once closed */
	struct conn_owner *owner; /* nullptr once closed */
	struct ev_loop *loop;
	void *peer;
	struct http *http;
	struct conn_call *call; /* out with the router, unanswered */
	struct buf in;          /* read, and from `in_taken` on not yet parsed */
	size_t in_taken;
	struct buf out; /* written up to `out_sent` */
	size_t out_sent;
	size_t out_mark; /* out_sent when the write timer started */
	size_t out_due;  /* of `out`, counted in due_ms */
	int64_t due_ms;  /* when all of `out` is to be taken, on the boot clock; 0: it was */
	size_t held;     /* of `out`, counted in the owner's held_bytes */
	size_t lingered_bytes;
	ev_io read_io, write_io;
	ev_timer timer;  /* of the state */
	ev_timer hangup; /* while `in` is full */
	ev_timer resume; /* never started, only fed */
	bool stepping;
	bool end;         /* of the stream: no byte will come any more */
	bool hung_up;     /* the kernel says so, behind bytes that are not read yet */
	bool lost;        /* reset, or not to be written to */
	bool body_seen;   /* the timer is the body's */
	bool timed_out;   /* the timer of the state fired */
	bool answered;    /* the answer of this request is in `out` */
	bool close_after; /* this answer is the last */
	bool drained;     /* what stood in `out` is sent, and whoever streams is not told yet */
};

/* A call and the way back from it; lives in the call's own arena. */
struct conn_call {
	struct call call;
	struct conn *conn;
	bool head;
	bool keep_alive;
	bool chunks;
	bool streaming;
	int64_t start_ms;
};

static inline size_t conn_unsent(const struct conn *conn)
{
	return conn->out.len - conn->out_sent;
}

/* Says how much is held, after `out` changed. */
void conn_hold(struct conn *conn);
/* Lets the machine go on, from the loop. */
void conn_resume(struct conn *conn);
/* `conn->call` was ended, its answer is in `out`. `conn` may be no more. */
void conn_call_over(struct conn *conn);
