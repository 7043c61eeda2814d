#include "runtime/operate.h"

#include <string.h>

#include "runtime/base.h"

bool age_parse(struct slice text, int64_t *ms)
{
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = { { "s", 1'000 }, { "min", 60'000 }, { "h", 3'600'000 }, { "d", 86'400'000 } };
	size_t digits = 0;
	int64_t number = 0;
	while (digits < text.len && text.data[digits] >= '0' && text.data[digits] <= '9') {
		if (number > AGE_MS_MAX)
			return false;
		number = number * 10 + (text.data[digits++] - '0');
	}
	struct slice unit = { text.data + digits, text.len - digits };
	for (size_t i = 0; digits > 0 && i < countof(units); i++) {
		if (!slice_is(unit, units[i].name) || number > AGE_MS_MAX / units[i].ms)
			continue;
		*ms = number * units[i].ms;
		return true;
	}
	return false;
}

const char *operate_states(const char *act)
{
	static const char *const states[][2] = {
		{ "retry", "failed, scheduled, paused, unverified" },
		{ "pause", "ready, scheduled, running, waiting, parked, unverified" },
		{ "resume", "paused, unknown" },
		{ "cancel",
		  "ready, scheduled, running, waiting, paused, parked, unverified, unknown" },
	};
	for (size_t i = 0; i < countof(states); i++)
		if (strcmp(states[i][0], act) == 0)
			return states[i][1];
	return "";
}

bool operate_fits(const char *act, const char *state)
{
	size_t len = strlen(state);
	for (const char *at = operate_states(act); *at; at += strspn(at, ", ")) {
		size_t word = strcspn(at, ",");
		if (word == len && memcmp(at, state, len) == 0)
			return true;
		at += word;
	}
	return false;
}

/* An empty act is any. */
static const struct {
	const char *act, *answer;
	bool done;
	const char *text;
} texts[] = {
	{ "retry", "due", true, "due now: it goes on where it stands" },
	{ "retry", "retried", true,
	  "retried; the effect ID answers from now on with the successor" },
	{ "retry", "completed", false, "it is completed: there is nothing to retry" },
	{ "retry", "cancelled", false,
	  "it was cancelled, which is final; a call with another effect ID starts anew" },
	{ "retry", "missing", false, "no such task, or its result is no longer kept" },
	{ "retry", "successor", false, "it was retried already, as" },
	{ "retry", "undone", false,
	  "it was cancelled, and undoing it failed on the way: going on would do what its client "
	  "does not want; `holdfast task why` says what still stands" },
	{ "retry", "ahead", false, "it did not come as far as that phase" },
	{ "retry", "done", false,
	  "a phase in between is done and is not pure, so that its effect would happen again:" },
	{ "retry", "maybe", false,
	  "the phase that failed may have taken effect: retry from there alone, so that it is "
	  "asked "
	  "with the same key" },
	{ "retry", "not_refused", false,
	  "a new key wants a failed task whose last answer was a definitive refusal: under the old "
	  "key it may have happened, or may yet" },
	{ "retry", "place", false,
	  "an open task goes on where it stands; --from is for failed ones" },
	{ "retry", "ready", false,
	  "it is due already; `holdfast task why` says what it waits for" },
	{ "retry", "running", false, "it is running" },
	{ "retry", "waiting", false, "it waits for input: nobody else can answer" },
	{ "retry", "parked", false,
	  "it is parked: its client hung up; the same effect ID takes it up again" },
	{ "retry", "unknown", false,
	  "nobody can tell whether its phase happened: look downstream, then `holdfast settle`" },
	{ "pause", "paused", true, "paused" },
	{ "pause", "asked", true,
	  "asked to stop: what is in flight is finished and committed, then it is paused" },
	{ "pause", "unknown", false, "it is unknown: nothing runs before `holdfast settle`" },
	{ "pause", "ending", false, "a cancel is under way, which nothing stops" },
	{ "resume", "resumed", true, "resumed; due now" },
	{ "resume", "unknown", true, "resumed; it goes on when `holdfast settle` has said how" },
	{ "resume", "not_paused", false, "it is not paused" },
	{ "cancel", "cancelled", true, "cancelled, or being undone" },
	{ "cancel", "asked", true,
	  "asked to stop: what has left is waited for, then it ends and says what was done" },
	{ "all", "paused", true, "paused: nothing more is claimed; calls are still accepted" },
	{ "all", "already", true, "it is paused already" },
	{ "all", "resumed", true, "resumed" },
	{ "all", "not_paused", false, "it is not paused" },
	{ "all", "missing", false, "no such tool" },
	{ "", "tenant", false, "all work of its tenant is paused: resume the tenant" },
	{ "", "missing", false, "no open task of that ID" },
};

const char *operate_text(const char *act, const char *answer, bool *done)
{
	for (size_t i = 0; i < countof(texts); i++) {
		if (*texts[i].act && strcmp(texts[i].act, act) != 0)
			continue;
		if (strcmp(texts[i].answer, answer) == 0) {
			*done = texts[i].done;
			return texts[i].text;
		}
	}
	*done = false;
	return answer;
}
