/* conn.h - one connection: reads, parses, gives one call at a time to the router, writes the
 * answer. The listener makes it from an accepted socket and hears of its end. */
#pragma once

#include "api/listener.h"

struct conn;

/* What all connections of a listener share; outlives them. */
struct conn_owner {
	struct ev_loop *loop;
	struct listener_limits limits;
	void (*route)(struct call *call);
	void *server;
	size_t held_bytes; /* of answers, until their peers have taken all of them */
	bool closing;      /* each answer closes its connection */
	bool draining;     /* and so does an idle moment */
	/* The socket is closed and `conn` no longer the owner's; `peer` as given to conn_open. */
	void (*on_closed)(struct conn_owner *owner, void *peer);
};

/* Takes the non-blocking `fd`. Never calls on_closed before it returned. */
struct conn *conn_open(struct conn_owner *owner, int fd, void *peer);
/* Closes it when nothing of a request has come; else `owner->draining` ends it after its answer. */
void conn_drain(struct conn *conn);
/* At once, without a word. A call that is pending is gone; the machine lives until call_reply. */
void conn_close(struct conn *conn);
