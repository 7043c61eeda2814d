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

/* 300 tasks that failed together, base 1 s. */
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

/* By the defaults of tool.json: the first retry in [0.5, 2] s, none within 100 ms; and over
 * many attempts the spread is the whole ceiling but the floor. */
HF_TEST(retry, full_jitter_starts_at_the_floor)
{
	int64_t least = INT64_MAX, most = 0;
	for (int i = 0; i < 2'000; i++) {
		int64_t wait = retry_delay_ms(500, 60'000, 1, random_up_to(RETRY_DICE_MAX));
		cr_assert_geq(wait, 500);
		cr_assert_leq(wait, 1'000);
		wait = retry_delay_ms(500, 60'000, 7, random_up_to(RETRY_DICE_MAX));
		least = wait < least ? wait : least;
		most = wait > most ? wait : most;
	}
	cr_assert_lt(least, 2'000, "%jd", (intmax_t)least);
	cr_assert_gt(most, 58'000, "%jd", (intmax_t)most);
}

/* Repeats that get through of `asked` a second, each asking again when it was told to, while
 * `firsts` first requests a second go out, over `seconds`. */
static int64_t let_through(int64_t asked, int64_t firsts, int64_t seconds)
{
	struct retry_budget budget;
	int64_t through = 0;
	retry_budget_init(&budget, 5'000);
	for (int64_t ms = 0; ms < seconds * 1'000; ms += 10) {
		for (int64_t i = 0; i < asked / 100; i++)
			through += retry_budget_take(&budget, 5'000 + ms) == 0;
		for (int64_t i = 0; i < firsts / 100; i++)
			retry_budget_earn(&budget);
	}
	return through;
}

HF_TEST(retry, repeats_are_a_bounded_share)
{
	static const struct {
		int64_t asked, firsts, seconds, least, most;
	} cases[] = {
		{ 100, 0, 1, 100, 100 },               /* what was saved up lets a burst through */
		{ 1'000, 0, 1, 500, 551 },             /* but no larger one */
		{ 1'000, 0, 100, 5'300, 5'501 },       /* then the rate, whoever asks */
		{ 1'000, 1'000, 100, 25'000, 25'501 }, /* and a share of the first requests */
		{ 200, 1'000, 100, 20'000, 20'000 },   /* within the share nobody waits */
	};
	for (size_t i = 0; i < countof(cases); i++) {
		int64_t got = let_through(cases[i].asked, cases[i].firsts, cases[i].seconds);
		cr_assert(got >= cases[i].least && got <= cases[i].most, "case %zu: %jd", i,
			  (intmax_t)got);
	}
}

HF_TEST(retry, who_is_sent_away_comes_back_in_turn)
{
	struct retry_budget budget;
	int64_t wait = 0, before = 0;
	retry_budget_init(&budget, 0);
	while (retry_budget_take(&budget, 0) == 0)
		;
	for (int i = 0; i < 2'000; i++, before = wait) {
		wait = retry_budget_take(&budget, 0);
		cr_assert_gt(wait, 0);
		cr_assert_geq(wait, before);
		cr_assert_geq(wait, RETRY_WAIT_MS_MIN);
		cr_assert_leq(wait, RETRY_WAIT_MS_MAX);
	}
	cr_assert_eq(wait, RETRY_WAIT_MS_MAX);
	cr_assert_eq(retry_budget_take(&budget, 20), 0, "a fiftieth of a second saves one");
	cr_assert_gt(retry_budget_take(&budget, 20), 0);
	cr_assert_gt(retry_budget_take(&budget, 10), 0, "a clock that went back gives nothing");
	cr_assert_eq(retry_budget_take(&budget, INT64_MAX), 0);
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
