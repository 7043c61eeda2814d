/* operate.h - the words of an operator's acts: pure, for cmd_operate.c. */
#pragma once

#include <stdint.h>

#include "runtime/slice.h"

/* "90s", "15min", "2h", "7d" in ms. False: anything else, or over AGE_MS_MAX. */
constexpr int64_t AGE_MS_MAX = INT64_C(1'000) * 86'400 * 36'500;
[[nodiscard]] bool age_parse(struct slice text, int64_t *ms);
#define AGE_WANTED "a number with s, min, h or d"

/* Tasks in `state` can be retried, paused, resumed or cancelled (`act`). */
bool operate_fits(const char *act, const char *state);
/* All such states, for a person. */
const char *operate_states(const char *act);

/* What an answer of sql/functions/operate.sql says to a person; `done`: the act was done. `act` is
 * retry, pause, resume, cancel, or all: a whole tool or tenant. */
const char *operate_text(const char *act, const char *answer, bool *done);
