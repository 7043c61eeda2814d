/* retry.h - how long to wait before the next attempt, and how many of them a host gets. Time and
 * chance are arguments. */
#pragma once

#include <stdint.h>

#include "runtime/slice.h"

constexpr int64_t RETRY_DICE_MAX = 1'000'000;
constexpr int64_t RETRY_AFTER_MS_MAX = 3'600'000; /* a peer cannot ask for more than an hour */

/* The longest wait after failed attempt `attempt` (from 1): first_ms doubled with each attempt,
 * never over max_ms. */
int64_t retry_ceiling_ms(int64_t first_ms, int64_t max_ms, int attempt);

/* The wait itself, by `dice`, a uniform number in [0, RETRY_DICE_MAX]: full jitter between a floor,
 * min(first_ms, max_ms), and the ceiling. Full jitter from 0 would let a share of the retries
 * follow at once (with 1 s, one in ten within 100 ms), which a downstream that has just said "no"
 * must not see. The floor takes from the spread only what the first wait is; the spread, at least
 * first_ms wide, keeps tasks that failed together apart. */
int64_t retry_delay_ms(int64_t first_ms, int64_t max_ms, int attempt, int64_t dice);

/* How many repeats one downstream host may get from this process: a share of the first requests,
 * and a rate on top, so that a host that is seldom asked is not starved. While a host is down its
 * repeats stay at that rate, however many tasks wait for it. */
constexpr int RETRY_SHARE_PERCENT = 20;    /* of the first requests */
constexpr int64_t RETRY_RATE_PER_S = 50;   /* besides that share */
constexpr int64_t RETRY_SAVED_MAX = 500;   /* repeats that may be saved up */
constexpr int64_t RETRY_WAIT_MS_MIN = 100; /* of one for which nothing is left */
constexpr int64_t RETRY_WAIT_MS_MAX = 10'000;

struct retry_budget {
	int64_t saved;       /* thousandths of a repeat */
	int64_t at_ms;       /* saved was right then */
	int64_t promised_ms; /* the last that was sent away comes back then */
};

void retry_budget_init(struct retry_budget *budget, int64_t now_ms);
/* A first request goes out. */
void retry_budget_earn(struct retry_budget *budget);
/* 0: a repeat may go out, and is paid for. Else how long to wait before asking again: who is sent
 * away is told to come back one after the other, at the rate. */
int64_t retry_budget_take(struct retry_budget *budget, int64_t now_ms);

/* How many repeats are saved up. */
int64_t retry_budget_left(const struct retry_budget *budget, int64_t now_ms);

/* The value of a Retry-After header, in seconds or as one of the three HTTP dates. A date that is
 * past gives 0, more than RETRY_AFTER_MS_MAX gives that. False for anything else (negative, junk):
 * then the header says nothing. */
[[nodiscard]] bool retry_after_parse(struct slice value, int64_t now_s, int64_t *delay_ms);
