/* test_retry.c - waits between attempts: bounds, growth, spread, and what Retry-After may say. */
#include <stdint.h>

#include "runtime/base.h"
#include "runtime/random.h"
#include "test/test.h"
#include "worker/retry.h"

constexpr int64_t NOW_S = 1'800'000'000; /* Fri, 15 Jan 2027 08:00:00 GMT */

HF_TEST(retry, the_ceiling_doubles_up_to_the_cap_and_stays)
{
	static const struct {
		int64_t first, max;
		int attempt;
		int64_t ceiling;
	} cases[] = {
		{ 500, 60'000, 1, 1'000 },
		{ 500, 60'000, 2, 2'000 },
		{ 500, 60'000, 6, 32'000 },
		{ 500, 60'000, 7, 60'000 },
		{ 500, 60'000, 64, 60'000 },
		{ 500, 60'000, 100, 60'000 },
		{ 1, 50, 100, 50 },
		{ 1, INT64_MAX, 100, INT64_MAX },
		{ 3, INT64_MAX, INT32_MAX, INT64_MAX },
		{ 1'000, 10, 1, 10 },
		{ 0, 60'000, 64, 0 },
		{ 500, 0, 3, 0 },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		int64_t got = retry_ceiling_ms(cases[i].first, cases[i].max, cases[i].attempt);
		cr_assert_eq(got, cases[i].ceiling, "case %zu: %jd", i, (intmax_t)got);
	}
}

HF_TEST(retry, the_wait_lies_between_floor_and_ceiling_for_every_attempt)
{
	static const int64_t dice[] = { 0, 1, RETRY_DICE_MAX / 2, RETRY_DICE_MAX };
	static const int64_t maxima[] = { 1, 50, 60'000, INT64_MAX };
	for (int attempt = -1; attempt <= 200; attempt++) {
		for (size_t i = 0; i < countof(dice) * countof(maxima); i++) {
			int64_t max = maxima[i / countof(dice)];
			int64_t wait = retry_delay_ms(1, max, attempt, dice[i % countof(dice)]);
			cr_assert_geq(wait, 1);
			cr_assert_leq(wait, max);
		}
	}
	cr_assert_eq(retry_delay_ms(500, 60'000, 1, 0), 500);
	cr_assert_eq(retry_delay_ms(500, 60'000, 1, RETRY_DICE_MAX), 1'000);
}

HF_TEST(retry, the_median_never_falls)
{
	int64_t before = 0;
	for (int attempt = 1; attempt <= 100; attempt++) {
		int64_t median = retry_delay_ms(1, 50, attempt, RETRY_DICE_MAX / 2);
		cr_assert_geq(median, before);
		before = median;
	}
}

/* B058: 300 tasks that failed together, base 1 s. */
HF_TEST(retry, a_wave_is_spread)
{
	int windows[40] = {};
	for (int i = 0; i < 3'000; i++) {
		int64_t wait = retry_delay_ms(1'000, 60'000, 1, random_up_to(RETRY_DICE_MAX));
		windows[wait / 50]++;
	}
	for (size_t i = 0; i < countof(windows); i++)
		cr_assert_lt(windows[i], 300, "window %zu holds %d of 3000", i, windows[i]);
}

HF_TEST(retry, retry_after_is_read_strictly)
{
	static const struct {
		const char *value;
		int64_t ms; /* negative: says nothing */
	} cases[] = {
		{ "2", 2'000 },
		{ "0", 0 },
		{ " 3 \r\n", 3'000 },
		{ "99999999999999999999", RETRY_AFTER_MS_MAX },
		{ "99999999999999999999999999999999999999999999", -1 },
		{ "-5", -1 },
		{ "120junk", -1 },
		{ "1.5", -1 },
		{ "", -1 },
		{ "soon", -1 },
		{ "Fri, 15 Jan 2027 08:00:03 GMT", 3'000 },
		{ "Friday, 15-Jan-27 08:00:03 GMT", 3'000 },
		{ "Fri Jan 15 08:00:03 2027", 3'000 },
		{ "Wed, 21 Oct 2015 07:28:00 GMT", 0 },
		{ "Sun Nov  6 08:49:37 2044", RETRY_AFTER_MS_MAX },
		{ "Fri, 15 Jan 2027 08:00:03 GMT junk", -1 },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		int64_t got = -1;
		if (!retry_after_parse(slice_of(cases[i].value), NOW_S, &got))
			got = -1;
		cr_assert_eq(got, cases[i].ms, "%s: %jd", cases[i].value, (intmax_t)got);
	}
	int64_t got;
	cr_assert(!retry_after_parse((struct slice){ "1\0002", 3 }, NOW_S, &got));
}
