/* retry.c - integers alone, and no product that could leave int64_t. */
#include "worker/retry.h"

#include <string.h>
#include <time.h>

#include "runtime/base.h"
#include "worker/text.h"

constexpr size_t DATE_LEN_MAX = 40;

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t retry_ceiling_ms(int64_t first_ms, int64_t max_ms, int attempt)
{
	hf_assert(first_ms >= 0);
	hf_assert(max_ms >= 0);
	int64_t ceiling = smaller(first_ms, max_ms);
	for (int i = 0; i < attempt && ceiling > 0 && ceiling < max_ms; i++)
		ceiling = ceiling > max_ms / 2 ? max_ms : ceiling * 2;
	return ceiling;
}

int64_t retry_delay_ms(int64_t first_ms, int64_t max_ms, int attempt, int64_t dice)
{
	hf_assert(dice >= 0);
	hf_assert(dice <= RETRY_DICE_MAX);
	int64_t floor = smaller(first_ms, max_ms);
	int64_t span = retry_ceiling_ms(first_ms, max_ms, attempt < 1 ? 1 : attempt) - floor;
	/* In two parts, so that no product leaves int64_t. */
	int64_t part = span / RETRY_DICE_MAX * dice + span % RETRY_DICE_MAX * dice / RETRY_DICE_MAX;
	return floor + part;
}

/* --- the budget ---------------------------------------------------------------------------------
 */

constexpr int64_t WHOLE = 1'000; /* one repeat, in the unit of retry_budget.saved */

void retry_budget_init(struct retry_budget *budget, int64_t now_ms)
{
	*budget = (struct retry_budget){ .saved = RETRY_SAVED_MAX * WHOLE, .at_ms = now_ms };
}

static void save(struct retry_budget *budget, int64_t more)
{
	budget->saved = smaller(budget->saved + more, RETRY_SAVED_MAX * WHOLE);
}

void retry_budget_earn(struct retry_budget *budget)
{
	save(budget, WHOLE * RETRY_SHARE_PERCENT / 100);
}

static void save_by_time(struct retry_budget *budget, int64_t now_ms)
{
	/* A repeat in 1000 ms is a thousandth in 1 ms. */
	int64_t passed_ms = now_ms - budget->at_ms;
	int64_t full_ms = RETRY_SAVED_MAX * WHOLE / RETRY_RATE_PER_S;
	budget->at_ms = now_ms;
	if (passed_ms > 0)
		save(budget, smaller(passed_ms, full_ms) * RETRY_RATE_PER_S);
}

int64_t retry_budget_left(const struct retry_budget *budget, int64_t now_ms)
{
	struct retry_budget now = *budget;
	save_by_time(&now, now_ms);
	return now.saved / WHOLE;
}

int64_t retry_budget_take(struct retry_budget *budget, int64_t now_ms)
{
	save_by_time(budget, now_ms);
	if (budget->saved >= WHOLE) {
		budget->saved -= WHOLE;
		return 0;
	}
	if (budget->promised_ms < now_ms)
		budget->promised_ms = now_ms;
	budget->promised_ms += 1'000 / RETRY_RATE_PER_S;
	/* Past the longest wait there is no order any more, only the rate. */
	budget->promised_ms =
	    smaller(budget->promised_ms, now_ms + RETRY_WAIT_MS_MAX - RETRY_WAIT_MS_MIN);
	return budget->promised_ms - now_ms + RETRY_WAIT_MS_MIN;
}

/* --- Retry-After --------------------------------------------------------------------------------
 */

static bool seconds_parse(const char *text, int64_t *delay_ms)
{
	int64_t seconds = 0;
	for (const char *at = text; *at; at++) {
		if (*at < '0' || *at > '9')
			return false;
		seconds = smaller(seconds * 10 + (*at - '0'), RETRY_AFTER_MS_MAX / 1000);
	}
	*delay_ms = seconds * 1000;
	return *text != '\0';
}

static bool date_parse(const char *text, int64_t now_s, int64_t *delay_ms)
{
	/* RFC 9110: the one to send, and two that are only to be understood. */
	static const char *const formats[] = { "%a, %d %b %Y %H:%M:%S GMT",
					       "%A, %d-%b-%y %H:%M:%S GMT",
					       "%a %b %e %H:%M:%S %Y" };
	for (size_t i = 0; i < countof(formats); i++) {
		struct tm date = {};
		const char *end = strptime(text, formats[i], &date);
		if (!end || *end)
			continue;
		int64_t wait_s = (int64_t)timegm(&date) - now_s;
		wait_s = smaller(wait_s, RETRY_AFTER_MS_MAX / 1000);
		*delay_ms = wait_s > 0 ? wait_s * 1000 : 0;
		return true;
	}
	return false;
}

bool retry_after_parse(struct slice value, int64_t now_s, int64_t *delay_ms)
{
	char text[DATE_LEN_MAX + 1] = {};
	value = text_trim(value);
	if (value.len == 0 || value.len > DATE_LEN_MAX || memchr(value.data, '\0', value.len))
		return false;
	memcpy(text, value.data, value.len);
	return seconds_parse(text, delay_ms) || date_parse(text, now_s, delay_ms);
}
