/* downstream.h - HTTP requests to the systems behind the tools: libcurl's multi interface on libev.
 * One call is one request on the wire, at most: a fresh connection each, no redirect followed, no
 * proxy or credential taken from the environment, nothing sent again by itself. What came of it is
 * told apart as far as a sender can know (design §4, effect classes). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/slice.h"

struct downstream;
struct downstream_call;
struct ev_loop;

constexpr size_t DOWNSTREAM_ANSWER_BYTES_MAX = 4 << 20;
constexpr size_t DOWNSTREAM_HEADER_BYTES_MAX = 256 << 10;
constexpr int64_t DOWNSTREAM_CONNECT_MS_MAX = 10'000;

struct downstream *downstream_open(struct ev_loop *loop);
/* Aborts what is left; `done` of it is not called. Takes nullptr. */
void downstream_close(struct downstream *downstream);

struct downstream_request {
	const char *method, *url;
	const char *const *headers; /* "Name: value", nullptr-terminated */
	struct slice body;          /* borrowed until `done` or downstream_cancel */
	bool has_body;
	int64_t timeout_ms; /* from now to the end of the answer */
	/* Asked once, connected and after the TLS handshake, right before the first byte leaves. */
	bool (*may_send)(void *ctx);
};

enum downstream_fate {
	DOWNSTREAM_NOT_SENT,  /* no byte of the request left: refused, DNS, TLS, time-out on the way
			       */
	DOWNSTREAM_BAD_URL,   /* nor ever will: no http or https URL */
	DOWNSTREAM_WITHHELD,  /* may_send said no; no byte left either */
	DOWNSTREAM_NO_ANSWER, /* it may have left, and no whole answer came */
	DOWNSTREAM_TOO_LARGE, /* answered with `status`; the rest is over the bound and was dropped
			       */
	DOWNSTREAM_ANSWERED,  /* status, reason and body are whole */
};

struct downstream_answer {
	enum downstream_fate fate;
	int status;             /* 0: none */
	const char *reason;     /* "201 Created", or why there is no answer; clean text */
	struct slice body;      /* ANSWERED */
	int64_t retry_after_ms; /* negative: not said */
};

/* `done` is called once, never from inside; the answer lives until it returns, the call is gone
 * then. */
struct downstream_call *
downstream_start(struct downstream *downstream, const struct downstream_request *request,
		 void (*done)(void *ctx, const struct downstream_answer *answer), void *ctx);
/* A byte of the request may have left. */
bool downstream_sent(const struct downstream_call *call);
/* Breaks it off; `done` is not called. True: a byte of the request may have left. */
bool downstream_cancel(struct downstream_call *call);
