/* retry.h - how long to wait before the next attempt. Pure functions of their arguments. */
#pragma once

#include <stdint.h>

#include "runtime/slice.h"

constexpr int64_t RETRY_DICE_MAX = 1'000'000;
constexpr int64_t RETRY_AFTER_MS_MAX = 3'600'000; /* a peer cannot ask for more than an hour */

/* The longest wait after failed attempt `attempt` (from 1): first_ms doubled with each attempt,
 * never over max_ms. */
int64_t retry_ceiling_ms(int64_t first_ms, int64_t max_ms, int attempt);

/* The wait itself, full jitter above a floor: evenly spread between min(first_ms, max_ms) and the
 * ceiling by `dice`, a uniform number in [0, RETRY_DICE_MAX]. The floor keeps a tool with many
 * attempts from asking at once, the spread keeps tasks that failed together apart. */
int64_t retry_delay_ms(int64_t first_ms, int64_t max_ms, int attempt, int64_t dice);

/* The value of a Retry-After header, in seconds or as one of the three HTTP dates. A date that is
 * past gives 0, more than RETRY_AFTER_MS_MAX gives that. False for anything else (negative, junk):
 * then the header says nothing. */
[[nodiscard]] bool retry_after_parse(struct slice value, int64_t now_s, int64_t *delay_ms);
