/* breaker.h - whether one downstream host is asked at all. Closed, all requests go out. After so
 * many failures in a row, or a share of failures among many, it opens: nothing goes out until a
 * pause is over; then one request, the probe, may. Its success closes the breaker, its failure
 * opens it for a longer pause. What was already on its way when it opened is neither touched nor
 * counted. Time, chance and results are arguments. */
#pragma once

#include <stdint.h>

constexpr int64_t BREAKER_WINDOW_MS = 10'000; /* the share is of the requests of this time */
constexpr int BREAKER_WINDOW_CALLS_MIN = 50;  /* of fewer a share says nothing */
constexpr int BREAKER_WINDOW_FAILED_PERCENT = 70;
constexpr int64_t BREAKER_PROBE_WAIT_MS_MAX = 2'000; /* of those who come while a probe is out */

struct breaker_limits {
	int failures;                   /* in a row */
	int64_t pause_ms, pause_ms_max; /* the shortest, and the longest after failed probes */
};

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_PROBING };

struct breaker {
	enum breaker_state state;
	int failures;      /* in a row */
	int opens;         /* since it was last closed */
	uint64_t opening;  /* number of the last one */
	int64_t until_ms;  /* OPEN: a probe may go then */
	int64_t pause_ms;  /* the last */
	int64_t window_ms; /* began then */
	int window_calls, window_failed;
};

/* What a request went out with: its result is told with it. */
struct breaker_pass {
	uint64_t opening;
	bool probe;
};

enum breaker_result {
	BREAKER_WORKED,  /* the host gave an answer of its own, whatever it said */
	BREAKER_FAILED,  /* it was not reached, did not answer, or says itself that it cannot */
	BREAKER_NOTHING, /* the request came to an end that says nothing about the host */
};

enum breaker_change {
	BREAKER_STAYS,
	BREAKER_OPENS_BY_ROW,
	BREAKER_OPENS_BY_SHARE,
	BREAKER_OPENS_BY_PROBE,
	BREAKER_CLOSES,
};

/* 0: a request may go out. Else how long to wait before asking again. */
int64_t breaker_wait_ms(const struct breaker *breaker, int64_t now_ms);
/* A request goes out. One that does though breaker_wait_ms said no is no probe. */
struct breaker_pass breaker_pass(struct breaker *breaker, int64_t now_ms);
/* To be called once for each pass. `dice` as in retry.h. */
enum breaker_change breaker_tell(struct breaker *breaker, const struct breaker_limits *limits,
				 struct breaker_pass pass, enum breaker_result result,
				 int64_t now_ms, int64_t dice);
