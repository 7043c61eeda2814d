/* What the report of a phase comes to: the next phase, another attempt, a wait, or an end.
 *
 * A cancel, a passed deadline and spent attempts end a task only when nothing foreign hangs in the
 * air: an http phase whose earlier request may have taken effect is settled first, which is to say
 * started with run_settling true, paused and started again for SETTLES_MAX times, and then unknown
 * (V7). A keyed program that fails for good ends failed with executed "maybe": its key stands, a
 * successor asks with the same one. */
#include <stdio.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/random.h"
#include "runtime/timer.h"
#include "worker/retry.h"
#include "worker/run_private.h"

constexpr int64_t CRASH_FIRST_MS = 500; /* wait after the first crash of a task */
constexpr int64_t CRASH_MAX_MS = 60'000;
constexpr int SETTLES_MAX = 10;
constexpr int64_t SETTLE_PAUSE_MS_MAX = 10'000;

/* The task goes to another worker, unless a cancel wants its end. */
static bool gives_back(const struct run *run)
{
	return run->back && !run_is_cancelled(run);
}

void run_unknown(struct run *run)
{
#ifdef PLANT_unknown_as_failed
	run_fail(run, "attempts_exhausted", buf_slice(&run->result.text), false);
	return;
#endif
	hf_cleanup(buf) struct buf more = {};
	outcome_unknown(run, &more);
	log_warn("outcome unknown: look for it downstream, then holdfast settle", "task_id",
		 run->id, "trace_id", run_trace_id(run), "phase", run->spec->name, "error",
		 run->result.text.data, "more", more.data + 2, nullptr);
	run_release_because(run, RELEASE_UNKNOWN, 0, more.data);
}

/* A request may have taken effect and no more attempts will be made: ask, don't guess. */
static void settle_later(struct run *run, int64_t delay_ms)
{
	if (++run->settles > SETTLES_MAX) {
		run_unknown(run);
		return;
	}
	run_move(run, RUN_PAUSED);
	timer_set(run->loop, &run->pause,
		  delay_ms < SETTLE_PAUSE_MS_MAX ? delay_ms : SETTLE_PAUSE_MS_MAX);
}

bool run_settles_last(const struct run *run)
{
	return run->settling && run->settles >= SETTLES_MAX;
}

/* It ends, as soon as it is known whether what may have left took effect. */
static void end_settled(struct run *run, int64_t delay_ms)
{
	bool happened = run_may_have_happened(run);
	if (happened && run_asks_downstream(run))
		settle_later(run, delay_ms);
	else
		run_end_by_wish(run, happened);
}

static int64_t backoff(const struct run *run, int attempt)
{
	return retry_delay_ms(run->spec->backoff_first_ms, run->spec->backoff_max_ms, attempt,
			      random_up_to(RETRY_DICE_MAX));
}

static void reported_retry(struct run *run)
{
	struct kept_result *result = &run->result;
	/* What a peer asks for is waited for, with the spread of a first attempt on top. */
	int64_t delay =
	    result->delay_ms > 0 ? result->delay_ms + backoff(run, 1) : backoff(run, run->attempt);
	if (gives_back(run)) {
		run_give_back(run, result->maybe_sent);
		return;
	}
	if (run_is_stopped(run)) {
		end_settled(run, delay);
		return;
	}
	if (!run->exhausted && run->attempt < run->spec->attempts) {
		char more[96];
		snprintf(more, sizeof more, "; attempt %d of %d in %.1f s", run->attempt + 1,
			 run->spec->attempts, (double)delay / 1000);
		run_release_because(run, RELEASE_RETRY, delay, more);
		return;
	}
	run->exhausted = true;
	bool happened = run_may_have_happened(run);
	bool open = happened && run_asks_downstream(run);
	if (open && run->spec->effect == EFFECT_LOOKUP)
		settle_later(run, delay);
	else if (open)
		run_unknown(run);
	else
		run_fail(run, "attempts_exhausted", buf_slice(&result->text), happened);
}

static void reported_again(struct run *run)
{
	if (gives_back(run))
		run_give_back(run, run->result.maybe_sent);
	else if (run_is_stopped(run) || run->exhausted)
		end_settled(run, run->result.delay_ms);
	else
		run_release_because(run, RELEASE_AGAIN, run->result.delay_ms, "");
}

void run_fail_worn(struct run *run, int crashes, bool maybe_now)
{
	hf_cleanup(buf) struct buf text = {};
	buf_add_format(&text, "program or worker died, %d times of %d", crashes,
		       run->tool->crash_limit);
	if (run->result.text.len > 0)
		buf_add_format(&text, ": %s", run->result.text.data);
	run_fail(run, "crash_limit", buf_slice(&text), maybe_now);
}

static void reported_crash(struct run *run)
{
	bool happened = run->result.maybe_sent || run_may_have_happened(run);
	int crashes = run->task.crashes + 1;
	if (run_is_stopped(run)) {
		run_end_by_wish(run, happened);
	} else if (crashes >= run->tool->crash_limit) {
		run_fail_worn(run, crashes, happened);
	} else {
		/* The floor grows, too: each wait is at least as long as the longest before it. */
		int64_t least = retry_ceiling_ms(CRASH_FIRST_MS, CRASH_MAX_MS, crashes - 1);
		int64_t delay =
		    retry_delay_ms(least, CRASH_MAX_MS, 1, random_up_to(RETRY_DICE_MAX));
		run->result.maybe_sent = happened;
		run_release_because(run, RELEASE_CRASH, delay, "");
	}
}

static void reported_stopped(struct run *run)
{
	/* A lookup that settled and was not interrupted has proved that nothing happened. */
	bool absent = run->settling && run->spec->effect == EFFECT_LOOKUP && run->stop == STOP_NONE;
	bool stops = run_is_stopped(run) || run->exhausted;
	bool traces = run_has_traces(run);
	if (absent && stops)
		run_end_by_wish(run, false);
	else if (gives_back(run))
		run_give_back(run, run->result.maybe_sent);
	else if (stops && traces && run_asks_downstream(run))
		settle_later(run, 0);
	else if (stops)
		run_end_by_wish(run, traces);
	else
		reported_retry(run);
}

static void reported_lost(struct run *run)
{
	bool ours = run->lost == LOSS_LEASE || (run->lost == LOSS_NONE && run->abandoned);
	bool maybe = run_asks_downstream(run) && run->spec->effect != EFFECT_UNSAFE;
	if (ours)
		run_give_back(run, run->result.maybe_sent || maybe);
	else
		run_move(run, RUN_ENDED);
}

static void reported_unverified(struct run *run)
{
	if (gives_back(run))
		run_give_back(run, true);
	else if (run_is_stopped(run))
		settle_later(run, 0);
	else
		run_release_because(run, RELEASE_UNVERIFIED, run->result.delay_ms, "");
}

/* Its caller is asked: nobody runs the task meanwhile. */
static void reported_ask(struct run *run)
{
	bool happened = run_may_have_happened(run);
	if (run_undoing(run))
		run_fail(run, "phase_failed", slice_of("an undo step has nobody to ask"), happened);
	else if (run_is_stopped(run))
		run_end_by_wish(run, happened);
	else
		run_release_because(run, RELEASE_ASK, 0, "");
}

static void reported_done(struct run *run, bool committed)
{
	struct hf_err err = {};
	bool last = run->phase + 1 == (int)run->tool->phases_count;
	bool undoes = run->cancel && run->spec->undo;
	if (run_keep_state(run, run->phase, buf_slice(&run->result.state), &err) != HF_OK) {
		hf_cleanup(buf) struct buf text = {};
		buf_add_format(&text, "its state cannot be kept: %s", err.text);
		bool effect = run->spec->effect != EFFECT_PURE;
		run_fail(run, "phase_failed", buf_slice(&text), effect);
	} else if (committed) {
		run_advance(run, true);
	} else if (last && !undoes) {
		run->states[run->phase].known = true;
		run_finish_completed(run, true);
	} else {
		run_move(run, RUN_COMMITTING);
		run_send_write(run);
	}
}

static void reported_tool_error(struct run *run)
{
	buf_clear(&run->stored_result);
	buf_clear(&run->reason);
	bool happened = run->result.maybe_sent || run_may_have_happened(run);
	if (run_undoing(run)) { /* what a cancel asked for was not done: no result of the tool */
		run_fail(run, "phase_failed", buf_slice(&run->result.text), happened);
		return;
	}
	outcome_tool_error(run, buf_slice(&run->result.text), happened, &run->stored_result);
	outcome_message(run, slice_of("the tool reported an error"), happened, &run->reason);
	run_finish(run, TASK_COMPLETED, false);
}

static const char *const outcome_names[] = {
	[PHASE_DONE] = "done",
	[PHASE_COMMITTED] = "committed",
	[PHASE_RETRY] = "retry",
	[PHASE_AGAIN] = "again",
	[PHASE_CRASHED] = "crashed",
	[PHASE_TOOL_ERROR] = "tool_error",
	[PHASE_FAILED] = "failed",
	[PHASE_UNKNOWN] = "unknown",
	[PHASE_STOPPED] = "cancelled",
	[PHASE_LOST] = "lost",
	[PHASE_UNVERIFIED] = "unverified",
	[PHASE_ASK] = "asks",
};

/* Sent without a key, and no answer says what became of it. */
static bool is_unanswered(const struct run *run)
{
	return run->spec->effect == EFFECT_UNSAFE && run->result.maybe_sent &&
	       run->accepted_at == RUN_NEVER;
}

/* Unknown, whatever else is wished. */
static bool is_open(const struct run *run)
{
	static const bool answered[] = {
		[PHASE_DONE] = true,    [PHASE_COMMITTED] = true,  [PHASE_TOOL_ERROR] = true,
		[PHASE_FAILED] = true,  [PHASE_UNVERIFIED] = true, [PHASE_LOST] = true,
		[PHASE_UNKNOWN] = true, /* says so itself */
	};
	enum phase_outcome outcome = run->result.outcome;
	return is_unanswered(run) && !((size_t)outcome < countof(answered) && answered[outcome]);
}

static void reported_unknown(struct run *run)
{
	/* The same key is asked with again, by another worker. */
	if (gives_back(run) && run->spec->effect == EFFECT_KEYED)
		run_give_back(run, true);
	else
		run_unknown(run);
}

void run_reported(struct run *run)
{
	struct kept_result *result = &run->result;
	if (run->broken.len > 0 && run->lost != LOSS_CLAIM) {
		/* The phase was stopped by run_break, whose word is the true one. */
		result->outcome = is_unanswered(run) ? PHASE_UNKNOWN : run->broken_outcome;
		buf_clear(&result->text);
		buf_add_slice(&result->text, buf_slice(&run->broken));
	}
	if (result->maybe_sent) {
		run->sent_at = clock_boot_ms();
		run->sent_here = true;
		run->first = false;
	}
	bool done = result->outcome == PHASE_DONE || result->outcome == PHASE_COMMITTED;
	const char *outcome = outcome_names[result->outcome];
	int64_t took_ms = clock_boot_ms() - run->started_at;
	metric_add(METRIC_phases_total, outcome, 1);
	metric_add(METRIC_phase_seconds_total, outcome, took_ms);
	log_write(done ? LOG_DEBUG : LOG_INFO, "phase", "task_id", run->id, "trace_id",
		  run_trace_id(run), "tool", run->tool->name, "phase", run->spec->name, "attempt",
		  LOG_INT(run_attempt(run)), "outcome", outcome, "took_ms", LOG_INT(took_ms),
		  "text", result->text.data, nullptr);
	if (!done && run->lost == LOSS_CLAIM) {
		run_move(run, RUN_ENDED);
		return;
	}
	if (is_open(run)) {
		run_unknown(run);
		return;
	}
	switch (result->outcome) {
	case PHASE_DONE:
	case PHASE_COMMITTED:
		reported_done(run, result->outcome == PHASE_COMMITTED);
		break;
	case PHASE_RETRY:
		reported_retry(run);
		break;
	case PHASE_AGAIN:
		reported_again(run);
		break;
	case PHASE_CRASHED:
		reported_crash(run);
		break;
	case PHASE_TOOL_ERROR:
		reported_tool_error(run);
		break;
	case PHASE_FAILED:
		run_fail(run, "phase_failed", buf_slice(&result->text),
			 result->maybe_executed || run_has_traces(run));
		break;
	case PHASE_UNKNOWN:
		reported_unknown(run);
		break;
	case PHASE_UNVERIFIED:
		reported_unverified(run);
		break;
	case PHASE_ASK:
		reported_ask(run);
		break;
	case PHASE_STOPPED:
		reported_stopped(run);
		break;
	case PHASE_LOST:
		reported_lost(run);
		break;
	}
}
