#include "runtime/operate.h"

#include <string.h>

#include "runtime/base.h"
#include "test/test.h"

HF_TEST(operate, an_age_is_a_whole_number_and_a_unit)
{
	static const struct {
		const char *text;
		int64_t ms; /* -1: refused */
	} rows[] = {
		{ "90s", 90'000 },   { "15min", 900'000 },
		{ "2h", 7'200'000 }, { "7d", 604'800'000 },
		{ "0s", 0 },         { "36500d", AGE_MS_MAX },
		{ "36501d", -1 },    { "99999999999999999999999999d", -1 },
		{ "", -1 },          { "7", -1 },
		{ "d", -1 },         { "-1s", -1 },
		{ "1.5h", -1 },      { "1h ", -1 },
		{ "1m", -1 },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		int64_t ms = -1;
		bool read = age_parse(slice_of(rows[i].text), &ms);
		cr_expect(read == (rows[i].ms >= 0), "%s", rows[i].text);
		cr_expect(ms == rows[i].ms, "%s", rows[i].text);
	}
}

HF_TEST(operate, an_act_is_for_states_that_have_a_use_for_it)
{
	static const struct {
		const char *act, *state;
		bool fits;
	} rows[] = {
		{ "retry", "failed", true },     { "retry", "unknown", false },
		{ "retry", "completed", false }, { "pause", "running", true },
		{ "pause", "paused", false },    { "resume", "paused", true },
		{ "resume", "ready", false },    { "cancel", "parked", true },
		{ "cancel", "unknown", true },   { "cancel", "failed", false },
		{ "cancel", "", false },         { "resume", "pause", false },
		{ "pause", "unverified", true }, { "frob", "ready", false },
	};
	for (size_t i = 0; i < countof(rows); i++)
		cr_expect(operate_fits(rows[i].act, rows[i].state) == rows[i].fits, "%s %s",
			  rows[i].act, rows[i].state);
}

HF_TEST(operate, an_answer_means_what_its_act_says)
{
	bool done = false;
	cr_expect(strstr(operate_text("retry", "retried", &done), "successor") && done);
	cr_expect(strstr(operate_text("retry", "missing", &done), "result") && !done);
	cr_expect(strstr(operate_text("pause", "missing", &done), "open task") && !done);
	cr_expect(strstr(operate_text("pause", "asked", &done), "paused") && done);
	cr_expect(strstr(operate_text("cancel", "asked", &done), "ends") && done);
	cr_expect(strstr(operate_text("all", "missing", &done), "tool") && !done);
	done = true;
	cr_expect(strcmp(operate_text("retry", "surprise", &done), "surprise") == 0 && !done);
}
