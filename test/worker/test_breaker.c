/* test_breaker.c - when a host is not asked, who may probe, and what counts. */
#include "runtime/base.h"
#include "test/test.h"
#include "worker/breaker.h"
#include "worker/retry.h"

static const struct breaker_limits limits = { 5, 1'000, 30'000 };

static enum breaker_change tell(struct breaker *breaker, enum breaker_result result, int64_t now_ms)
{
	cr_assert_eq(breaker_wait_ms(breaker, now_ms), 0);
	struct breaker_pass pass = breaker_pass(breaker, now_ms);
	return breaker_tell(breaker, &limits, pass, result, now_ms, 0);
}

static void open(struct breaker *breaker, int64_t now_ms)
{
	for (int i = 1; i < limits.failures; i++)
		cr_assert_eq(tell(breaker, BREAKER_FAILED, now_ms), BREAKER_STAYS);
	cr_assert_eq(tell(breaker, BREAKER_FAILED, now_ms), BREAKER_OPENS_BY_ROW);
}

HF_TEST(breaker, failures_in_a_row_open_it_and_one_success_begins_the_row_anew)
{
	struct breaker breaker = {};
	for (int i = 0; i < 3 * limits.failures; i++) {
		bool success = i % limits.failures == limits.failures - 1;
		cr_assert_eq(tell(&breaker, success ? BREAKER_WORKED : BREAKER_FAILED, i),
			     BREAKER_STAYS);
	}
	open(&breaker, 100);
	cr_assert_eq(breaker_wait_ms(&breaker, 100), 1'000);
	cr_assert_eq(breaker_wait_ms(&breaker, 1'099), 1);
	cr_assert_eq(breaker_wait_ms(&breaker, 1'100), 0);
}

HF_TEST(breaker, what_says_nothing_counts_for_nothing)
{
	struct breaker breaker = {};
	for (int i = 0; i < 1'000; i++)
		cr_assert_eq(tell(&breaker, BREAKER_NOTHING, i), BREAKER_STAYS);
	for (int i = 1; i < limits.failures; i++) {
		cr_assert_eq(tell(&breaker, BREAKER_FAILED, 1'000), BREAKER_STAYS);
		cr_assert_eq(tell(&breaker, BREAKER_NOTHING, 1'000), BREAKER_STAYS);
	}
	cr_assert_eq(tell(&breaker, BREAKER_FAILED, 1'000), BREAKER_OPENS_BY_ROW);
}

HF_TEST(breaker, a_share_of_many_opens_it_and_is_of_one_window)
{
	struct breaker breaker = {};
	enum breaker_change change = BREAKER_STAYS;
	int calls = 0;
	/* Three of four fail. */
	for (; change == BREAKER_STAYS && calls < 1'000; calls++)
		change = tell(&breaker, calls % 4 ? BREAKER_FAILED : BREAKER_WORKED, calls);
	cr_assert_eq(change, BREAKER_OPENS_BY_SHARE);
	cr_assert_eq(calls, BREAKER_WINDOW_CALLS_MIN);
	/* As many, so slowly that no window sees enough of them. */
	breaker = (struct breaker){};
	for (int64_t i = 0; i < 1'000; i++)
		cr_assert_eq(tell(&breaker, i % 4 ? BREAKER_FAILED : BREAKER_WORKED, 1'000 * i),
			     BREAKER_STAYS);
	/* Half of them is a poor host, not one that is down. */
	breaker = (struct breaker){};
	for (int i = 0; i < 1'000; i++)
		cr_assert_eq(tell(&breaker, i % 2 ? BREAKER_FAILED : BREAKER_WORKED, i),
			     BREAKER_STAYS);
}

HF_TEST(breaker, one_probe_goes_and_who_comes_meanwhile_waits)
{
	struct breaker breaker = {};
	open(&breaker, 0);
	struct breaker_pass probe = breaker_pass(&breaker, 1'000);
	cr_assert(probe.probe);
	cr_assert_eq(breaker_wait_ms(&breaker, 1'000), 1'000);
	cr_assert_eq(breaker_wait_ms(&breaker, 90'000), 1'000);
	cr_assert_eq(breaker_tell(&breaker, &limits, probe, BREAKER_WORKED, 90'000, 0),
		     BREAKER_CLOSES);
	cr_assert_eq(breaker_wait_ms(&breaker, 90'000), 0);
	cr_assert_not(breaker_pass(&breaker, 90'000).probe);
	open(&breaker, 90'000); /* the row and the pauses begin anew */
	cr_assert_eq(breaker_wait_ms(&breaker, 90'000), 1'000);
}

HF_TEST(breaker, a_probe_that_says_nothing_leaves_its_place_to_the_next)
{
	struct breaker breaker = {};
	open(&breaker, 0);
	cr_assert_eq(tell(&breaker, BREAKER_NOTHING, 1'000), BREAKER_STAYS);
	cr_assert_eq(breaker_wait_ms(&breaker, 1'000), 0);
	cr_assert_eq(tell(&breaker, BREAKER_WORKED, 1'000), BREAKER_CLOSES);
}

HF_TEST(breaker, failed_probes_make_the_pause_longer_up_to_the_cap)
{
	static const int64_t dice[] = { 0, RETRY_DICE_MAX / 2, RETRY_DICE_MAX };
	for (size_t i = 0; i < countof(dice); i++) {
		struct breaker breaker = {};
		int64_t now_ms = 0, before = 0;
		open(&breaker, now_ms);
		for (int probes = 0; probes < 200; probes++) {
			now_ms += breaker_wait_ms(&breaker, now_ms);
			struct breaker_pass probe = breaker_pass(&breaker, now_ms);
			cr_assert(probe.probe);
			cr_assert_eq(breaker_tell(&breaker, &limits, probe, BREAKER_FAILED, now_ms,
						  dice[i]),
				     BREAKER_OPENS_BY_PROBE);
			int64_t wait_ms = breaker_wait_ms(&breaker, now_ms);
			cr_assert_geq(wait_ms, before);
			cr_assert_geq(wait_ms, limits.pause_ms);
			cr_assert_leq(wait_ms, limits.pause_ms_max);
			before = wait_ms;
		}
		cr_assert_eq(before == limits.pause_ms_max, dice[i] == RETRY_DICE_MAX);
	}
}

HF_TEST(breaker, what_left_before_it_opened_is_old_news_then_and_ever_after)
{
	struct breaker breaker = {};
	struct breaker_pass old = breaker_pass(&breaker, 0);
	open(&breaker, 0);
	cr_assert_eq(breaker_tell(&breaker, &limits, old, BREAKER_WORKED, 500, 0), BREAKER_STAYS);
	cr_assert_eq(breaker_wait_ms(&breaker, 500), 500);
	cr_assert_eq(tell(&breaker, BREAKER_WORKED, 1'000), BREAKER_CLOSES);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(breaker_tell(&breaker, &limits, old, BREAKER_FAILED, 1'000 + i, 0),
			     BREAKER_STAYS);
	/* One that goes out in spite of it decides nothing. */
	open(&breaker, 2'000);
	struct breaker_pass insisting = breaker_pass(&breaker, 2'000);
	cr_assert_not(insisting.probe);
	cr_assert_eq(breaker_tell(&breaker, &limits, insisting, BREAKER_WORKED, 2'000, 0),
		     BREAKER_STAYS);
	cr_assert_eq(breaker_wait_ms(&breaker, 2'000), 1'000);
}
