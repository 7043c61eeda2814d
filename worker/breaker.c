/*
 *   closed ──failures──► open ──pause over, a pass──► probing
 *     ▲                   ▲ ▲                           │ │
 *     │                   │ └──says nothing (pause over)┘ │
 *     │                   └──────────failed───────────────┤
 *     └──────────────────────────────worked───────────────┘
 */
#include "worker/breaker.h"

#include "runtime/base.h"
#include "worker/retry.h"

int64_t breaker_wait_ms(const struct breaker *breaker, int64_t now_ms)
{
	if (breaker->state == BREAKER_CLOSED)
		return 0;
	if (breaker->state == BREAKER_OPEN)
		return breaker->until_ms > now_ms ? breaker->until_ms - now_ms : 0;
	return breaker->pause_ms < BREAKER_PROBE_WAIT_MS_MAX ? breaker->pause_ms
							     : BREAKER_PROBE_WAIT_MS_MAX;
}

struct breaker_pass breaker_pass(struct breaker *breaker, int64_t now_ms)
{
	struct breaker_pass pass = { .opening = breaker->opening };
	if (breaker->state == BREAKER_OPEN && breaker_wait_ms(breaker, now_ms) == 0) {
		breaker->state = BREAKER_PROBING;
		pass.probe = true;
	}
	return pass;
}

static void begin_window(struct breaker *breaker, int64_t now_ms)
{
	breaker->window_ms = now_ms;
	breaker->window_calls = 0;
	breaker->window_failed = 0;
}

static enum breaker_change opens(struct breaker *breaker, const struct breaker_limits *limits,
				 enum breaker_change why, int64_t now_ms, int64_t dice)
{
	breaker->state = BREAKER_OPEN;
	breaker->opening++;
	breaker->opens++;
	breaker->pause_ms =
	    retry_delay_ms(limits->pause_ms, limits->pause_ms_max, breaker->opens, dice);
	breaker->until_ms = now_ms + breaker->pause_ms;
	return why;
}

static enum breaker_change probed(struct breaker *breaker, const struct breaker_limits *limits,
				  enum breaker_result result, int64_t now_ms, int64_t dice)
{
	hf_assert(breaker->state == BREAKER_PROBING);
	if (result == BREAKER_FAILED)
		return opens(breaker, limits, BREAKER_OPENS_BY_PROBE, now_ms, dice);
	breaker->state = BREAKER_OPEN; /* whose pause is over: the next is a probe, too */
	if (result == BREAKER_NOTHING)
		return BREAKER_STAYS;
	breaker->state = BREAKER_CLOSED;
	breaker->failures = 0;
	breaker->opens = 0;
	begin_window(breaker, now_ms);
	return BREAKER_CLOSES;
}

static bool share_is_reached(const struct breaker *breaker)
{
	return breaker->window_calls >= BREAKER_WINDOW_CALLS_MIN &&
	       breaker->window_failed * 100 >=
		   breaker->window_calls * BREAKER_WINDOW_FAILED_PERCENT;
}

enum breaker_change breaker_tell(struct breaker *breaker, const struct breaker_limits *limits,
				 struct breaker_pass pass, enum breaker_result result,
				 int64_t now_ms, int64_t dice)
{
	if (pass.probe)
		return probed(breaker, limits, result, now_ms, dice);
	/* It went out before the last opening, or in spite of it: old news. */
	bool old = breaker->state != BREAKER_CLOSED || pass.opening != breaker->opening;
	if (old || result == BREAKER_NOTHING)
		return BREAKER_STAYS;
	if (now_ms - breaker->window_ms >= BREAKER_WINDOW_MS)
		begin_window(breaker, now_ms);
	breaker->window_calls++;
	breaker->window_failed += result == BREAKER_FAILED;
	breaker->failures = result == BREAKER_FAILED ? breaker->failures + 1 : 0;
	if (breaker->failures >= limits->failures)
		return opens(breaker, limits, BREAKER_OPENS_BY_ROW, now_ms, dice);
	if (share_is_reached(breaker))
		return opens(breaker, limits, BREAKER_OPENS_BY_SHARE, now_ms, dice);
	return BREAKER_STAYS;
}
