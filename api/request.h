/* request.h - one request of a client that is known, and the few ways to answer it. It lives in its
 * call's arena; whichever function below says that it ends the request, it and everything in it are
 * gone afterwards. */
#pragma once

#include "api/api.h"
#include "api/auth.h"
#include "api/call.h"
#include "api/ladder.h"
#include "api/rpc.h"
#include "runtime/buf.h"
#include "runtime/err.h"

struct request {
	struct call *call;
	struct api *api;
	struct rpc rpc;
	struct ladder_top top;
	struct principal *principal;
	void *detail; /* of the handler, in the arena */
	/* Set while it waits for an owner number or for the catalog. */
	void (*go_on)(struct request *request);
	struct request *next_waiting;
	bool looked_again; /* the catalog was read since the request arrived */
	bool streaming;    /* request_stream: what follows are events */
	/* Its owner is known, so the store may have been told: what it is refused with from now on
	 * says executed "maybe", unless it says otherwise. */
	bool past_owner;
};

/* Goes on once the principal's owner number is known; otherwise ends the request. */
void request_with_owner(struct request *request, void (*go_on)(struct request *request));

/* What its client wants progress to be told under, raw; empty where it wants none. */
struct slice request_progress_token(const struct request *request);

/* A parameter that has to be a string, decoded in the arena; false: it is none, and the request was
 * ended with -32602. */
[[nodiscard]] bool request_text(struct request *request, const char *name, struct slice *out);

/* From here on the answer is a stream of events, whatever ends it. */
void request_stream(struct request *request);
/* A notification on the stream. */
void request_notify(struct request *request, struct slice message);
/* One of progress, to a client that wants it: `members` are those behind the token, with their
 * names. */
void request_progress(struct request *request, struct slice members);
/* A comment, so that proxies keep it open. */
void request_ping(struct request *request);

/* How the client was lost, for the log: stream_closed, connection_closed_midcall, or deadline where
 * it took too long to read. */
const char *request_loss(const struct request *request);

/* Each ends the request. Every error says in data.executed whether the work may have begun (R3.5):
 * what `data` does not say itself is "no" before the owner is known, "maybe" after. */
void request_reply(struct request *request, struct slice result); /* `result`: JSON, copied */
void request_refuse(struct request *request, const struct refusal *refusal);
/* It was a notification: HTTP 202, no body. */
void request_acknowledge(struct request *request);
/* A stored JSON-RPC error object, under HTTP 200. */
void request_error(struct request *request, struct slice error);
/* The client is gone: nothing is sent. */
void request_drop(struct request *request);
/* JSON-RPC -32602 under HTTP 200. `data`: JSON text, or empty. */
void request_refuse_params(struct request *request, const char *message, struct slice data);
/* A bound is reached, 429 or 503: nothing was done, come again. `bound`: as in metrics. */
void request_refuse_bound(struct request *request, int status, const char *bound,
			  const char *message);
/* The store did not do it. `executed` (nullable): what to say in data. Logged here. */
void request_unavailable(struct request *request, enum hf_code code, const struct hf_err *err,
			 const char *executed);

/* Ends a call that is no request yet. `id` may be empty. */
void call_refuse(struct call *call, struct slice id, const struct refusal *refusal);
