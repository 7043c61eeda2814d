/* downstream.h - HTTP requests to the systems behind the tools: libcurl's multi interface on libev.
 * One call is one request on the wire, at most: a fresh connection each, no redirect followed, no
 * proxy or credential taken from the environment, nothing sent again by itself. Only hosts and
 * addresses that egress.h allows are talked to; each host gets a bounded number of requests at a
 * time, and of repeats, and none while its breaker is open (breaker.h). What came of a call is told
 * apart as far as a sender can know. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/err.h"
#include "runtime/slice.h"
#include "worker/breaker.h"

struct downstream;
struct downstream_call;
struct ev_loop;

constexpr size_t DOWNSTREAM_ANSWER_BYTES_MAX = 4 << 20; /* of a body, all codings undone */
constexpr size_t DOWNSTREAM_HEADER_BYTES_MAX = 256 << 10;
constexpr int64_t DOWNSTREAM_CONNECT_MS_MAX = 10'000;
/* While a request is on its way out, and from the first line of its answer to the end, so many
 * bytes must pass in each such time. How long the answer may let wait is timeout_ms's to say. */
constexpr int64_t DOWNSTREAM_SLOW_MS = 30'000;
constexpr int64_t DOWNSTREAM_SLOW_BYTES = 1'024;
constexpr int DOWNSTREAM_CALLS_PER_HOST_MAX = 64;   /* at a time; the rest wait for their turn */
constexpr int DOWNSTREAM_REPEATS_PER_HOST_MAX = 16; /* of them */
constexpr size_t DOWNSTREAM_HOSTS_MAX = 256;        /* remembered while nothing is asked of them */
/* Time-outs of requests that had less time say nothing about their host. */
constexpr int64_t DOWNSTREAM_FAIR_MS = 1'000;

struct downstream *downstream_open(struct ev_loop *loop, const struct breaker_limits *limits);
/* Whom it may talk to, as egress_open takes it; until then nobody. */
enum hf_code downstream_guard(struct downstream *downstream, const char *hosts,
			      const char *addresses, struct slice conf, struct hf_err *err);
/* Abandons what is left. Takes nullptr. */
void downstream_close(struct downstream *downstream);

struct downstream_request {
	const char *method, *url;
	const char *const *headers; /* "Name: value", nullptr-terminated */
	struct slice body;          /* borrowed until `done` or downstream_abandon */
	bool has_body;
	bool repeat;        /* counts against the host's budget of repeats, see retry.h */
	bool insists;       /* goes out though the host's breaker is open */
	int64_t timeout_ms; /* from now to the end of the answer */
	int64_t slow_ms;    /* 0: DOWNSTREAM_SLOW_MS */
	/* Asked once, connected and after the TLS handshake, right before the first byte leaves. */
	bool (*may_send)(void *ctx);
};

enum downstream_fate {
	/* No byte of the request left: refused, DNS, TLS, time-out on the way. */
	DOWNSTREAM_NOT_SENT,
	DOWNSTREAM_NO_BUDGET, /* as above: the host had its share of repeats; retry_after_ms */
	DOWNSTREAM_BREAKER,   /* as above: the host's breaker is open; retry_after_ms */
	DOWNSTREAM_WITHHELD,  /* as above: may_send said no */
	DOWNSTREAM_BAD_URL,   /* nor ever will: no http or https URL */
	DOWNSTREAM_DENIED,    /* nor ever will: host or address is not allowed */
	DOWNSTREAM_NO_ANSWER, /* it may have left, and no whole answer came */
	/* Answered with `status`, but the rest is over the bound, or coded (gzip) although the
	 * request asked for no coding, and was dropped. */
	DOWNSTREAM_UNREADABLE,
	DOWNSTREAM_ANSWERED, /* status, reason and body are whole */
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
/* Sets its gauges. */
void downstream_collect(const struct downstream *downstream);
/* A byte of the request may have left. */
bool downstream_sent(const struct downstream_call *call);
/* Breaks it off; `done` is not called. True: a byte of the request may have left. */
bool downstream_abandon(struct downstream_call *call);
