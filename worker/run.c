/*
 * One claimed task: the only file that orders effects and commits.
 *
 *                ┌────────────────── next phase ─────────────────┐
 *                ▼                                               │
 *   claim ──► deciding ──► working* ──┬─► committing* ───────────┤
 *               │ ▲ ▲         │       │                          │
 *               │ │ paused* ◄─┘───────┤ (settling: ask again)    │
 *               │ intending* ◄┄┄┄┄┄┄┄┄┤ (unsafe, before it works) │
 *               │                     ├─► finishing* ────────────┼─► ended
 *               └─────────────────────┴─► releasing* ────────────┘
 *
 *   * suspended: an answer, a timer or a wish resumes it.
 *
 * Callbacks and wishes (cancel, hand back, lose) only note what happened and feed the step watcher;
 * run_step, called from the loop alone, decides. So no phase kind is ever re-entered, and a run is
 * never freed under a caller.
 *
 * The two places where a crash may fall: after the effect and before committing is answered, which
 * the derived key, the read-back or the same transaction make harmless; and after it, where the
 * next claim finds the recovery point. What says that a phase may have been sent was durable before
 * deciding: with the claim for the first, with the recovery point before for all others (rule 4).
 *
 * A cancel, a passed deadline and spent attempts end a task only when nothing foreign hangs in the
 * air: an http phase whose earlier request may have taken effect is settled first, which is to say
 * started with run_settling true, paused and started again for SETTLES_MAX times, and then unknown
 * (V7). A keyed program that fails for good ends failed with executed "maybe": its key stands, a
 * successor asks with the same one.
 *
 * An unsafe phase is preceded by an intent of its own commit. Where one stands, or the answer to it
 * is lost, the phase is unknown: it is not started again before a person has settled it.
 *
 * A cancelled task whose committed phases have undo steps is released to them: they are phases
 * after all others, in reverse order, which neither cancel nor deadline stops.
 */
#include "worker/run.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/random.h"
#include "worker/retry.h"
#include "worker/run_private.h"
#include "worker/text.h"
#include "worker/worker.h"

constexpr int64_t CRASH_FIRST_MS = 500; /* wait after the first crash of a task */
constexpr int64_t CRASH_MAX_MS = 60'000;
constexpr int SETTLES_MAX = 10;
constexpr int64_t SETTLE_PAUSE_MS_MAX = 10'000;
constexpr int64_t COPY_DELAY_MS = 5'000;   /* until somebody has confirmed it */
constexpr int64_t NO_KEY_DELAY_MS = 5'000; /* for another worker to take it */
constexpr int64_t KEY_MARGIN_PERCENT = 5;  /* of the key's window, kept unused */

static const struct phase_kind *const kinds[PHASE_TYPES] = {
#define PHASE(id, name, ...) [PHASE_##id] = &phase_##name,
#include "runtime/phases.def"
#undef PHASE
};

#define TO(state) (1U << (state))
static const unsigned edges[] = {
	[RUN_DECIDING] = TO(RUN_INTENDING) | TO(RUN_WORKING) | TO(RUN_PAUSED) | TO(RUN_FINISHING) |
			 TO(RUN_RELEASING) | TO(RUN_ENDED),
	[RUN_INTENDING] = TO(RUN_DECIDING) | TO(RUN_RELEASING) | TO(RUN_ENDED),
	[RUN_WORKING] = TO(RUN_DECIDING) | TO(RUN_PAUSED) | TO(RUN_COMMITTING) | TO(RUN_FINISHING) |
			TO(RUN_RELEASING) | TO(RUN_ENDED),
	[RUN_PAUSED] = TO(RUN_DECIDING),
	[RUN_COMMITTING] = TO(RUN_DECIDING) | TO(RUN_FINISHING) | TO(RUN_RELEASING) | TO(RUN_ENDED),
	[RUN_FINISHING] = TO(RUN_RELEASING) | TO(RUN_ENDED),
	[RUN_RELEASING] = TO(RUN_ENDED),
	[RUN_ENDED] = 0,
};

void run_move(struct run *run, enum run_state to)
{
	hf_assert(edges[run->state] & TO(to));
	run->state = to;
}

void run_feed(struct run *run)
{
	ev_feed_event(run->loop, &run->step, EV_CUSTOM);
}

bool run_deadline_passed(const struct run *run)
{
	return clock_boot_ms() >= run->deadline_at;
}

void run_timer_set(struct run *run, ev_timer *timer, int64_t ms)
{
	ev_timer_stop(run->loop, timer);
	ev_now_update(run->loop);
	ev_timer_set(timer, (double)(ms > 0 ? ms : 0) / 1000, 0);
	ev_timer_start(run->loop, timer);
}

/* A phase whose effect is elsewhere and can be asked about: it is settled, never guessed. */
static bool is_foreign_request(const struct phase_spec *spec)
{
	return spec->type == PHASE_HTTP && spec->effect != EFFECT_PURE;
}

/* Something outside may have happened in this attempt or an earlier one. */
static bool may_have_happened(const struct run *run)
{
	if (run->spec->effect == EFFECT_PURE || run->spec->effect == EFFECT_LOCAL)
		return false;
	if (run->spec->type == PHASE_PROGRAM && run->spec->effect != EFFECT_UNSAFE)
		return run->result.here || run->sent_at != RUN_NEVER;
	return run->sent_at != RUN_NEVER;
}

bool run_key_is_stale(const struct run *run)
{
	int64_t window = run->spec->key_ttl_ms / 100 * (100 - KEY_MARGIN_PERCENT);
	return run->spec->effect == EFFECT_KEYED && run->sent_at != RUN_NEVER &&
	       clock_boot_ms() - run->first_try_at >= window;
}

/* --- wishes ------------------------------------------------------------------------------------
 */

/* Wishes that end the forward way; undo steps run whatever is wished. */
bool run_is_cancelled(const struct run *run)
{
	return run->cancel && !run_undoing(run);
}

static bool is_stopped(const struct run *run)
{
	return !run_undoing(run) && (run->cancel || run_deadline_passed(run));
}

/* --- deciding ----------------------------------------------------------------------------------
 */

static void result_clear(struct run *run)
{
	buf_clear(&run->result.state);
	buf_clear(&run->result.text);
	buf_clear(&run->result.answer);
	buf_clear(&run->broken);
	run->result.here = false;
	run->result.maybe_sent = false;
	run->result.maybe_executed = false;
}

static void unknown(struct run *run);

/* What may have left is not sent again: un-keyed never, keyed only while its key is known
 * downstream. `settling` has nobody to ask here. True: decided. */
static bool start_is_blind(struct run *run, bool settling)
{
	if (run->accepted_at != RUN_NEVER)
		return false;
	bool unsafe = run->spec->effect == EFFECT_UNSAFE;
	if (run_key_is_stale(run))
		buf_add_text(&run->result.text, "the window of its key downstream is over");
	else if (unsafe && (settling || run->sent_at != RUN_NEVER))
		buf_add_text(&run->result.text, "it was about to be sent, and no answer is known");
	else
		return false;
	unknown(run);
	return true;
}

static void start_phase(struct run *run, bool settling)
{
	struct hf_err err = {};
	bool foreign = run->spec->effect != EFFECT_PURE && run->spec->effect != EFFECT_LOCAL;
	if (foreign && run->task.copy) {
		buf_clear(&run->reason);
		buf_add_text(&run->reason, "a copy: nothing foreign runs before `holdfast restored "
					   "--confirm`");
		run_release(run, RELEASE_AGAIN, COPY_DELAY_MS, false);
		return;
	}
	if (start_is_blind(run, settling))
		return;
	if (run_scope_set(run, &err) != HF_OK && foreign) {
		log_error("no key for this task", "task_id", run->id, "error", err.text, nullptr);
		buf_clear(&run->reason);
		buf_add_text(&run->reason, "this worker has no key of the task's version");
		run_release(run, RELEASE_AGAIN, NO_KEY_DELAY_MS, false);
		return;
	}
	if (run->spec->effect == EFFECT_UNSAFE && !run->intent && run->accepted_at == RUN_NEVER) {
		run_intend(run);
		return;
	}
	run->serial++;
	run->settling = settling;
	run->stop = STOP_NONE;
	run->started_at = clock_boot_ms();
	run_progress_phase(run);
	log_debug("phase starts", "task_id", run->id, "trace_id", run_trace_id(run), "phase",
		  run->spec->name, "attempt", LOG_INT(run_attempt(run)), nullptr);
	run_move(run, RUN_WORKING);
	void *state = run->kind->start(run);
	run->kind_state = run->result.here ? nullptr : state;
}

/* All phases have their recovery points. */
static void decide_over(struct run *run)
{
	struct hf_err err = {};
	if (run_undoing(run)) {
		run_finish_cancelled(run, false);
		return;
	}
	/* A cancel that came too late for a last phase that can't be undone: completed anyway. */
	if (run->cancel && run->tool->phases[run->tool->phases_count - 1].undo) {
		run_end_by_wish(run, false);
		return;
	}
	/* Without a phase no key is derived, so this cannot fail. */
	hf_assert(run_scope_set(run, &err) == HF_OK);
	run_finish_completed(run, false);
}

static void decide(struct run *run)
{
	result_clear(run);
	if (run->lost == LOSS_CLAIM) {
		run_move(run, RUN_ENDED);
		return;
	}
	run->spec = run_spec_find(run);
	if (!run->spec) {
		decide_over(run);
		return;
	}
	run->kind = kinds[run->spec->type];
	if (run->back || run->abandoned || run->lost == LOSS_LEASE) {
		run_give_back(run, false);
		return;
	}
	bool worn = run->task.crashes >= run->tool->crash_limit && !run_is_cancelled(run);
	bool stops = worn || is_stopped(run) || run->exhausted;
	bool settles = stops && is_foreign_request(run->spec) && may_have_happened(run);
	if (worn && !settles) {
		run_fail(run, "crash_limit", slice_of("worker died"), may_have_happened(run));
		return;
	}
	run->exhausted = run->exhausted || worn;
	if (stops && !settles)
		run_end_by_wish(run, may_have_happened(run));
	else if (settles || !run_waits_apart(run))
		start_phase(run, settles);
}

/* --- working -----------------------------------------------------------------------------------
 */

static void unknown(struct run *run)
{
#ifdef PLANT_unknown_as_failed
	run_fail(run, "attempts_exhausted", buf_slice(&run->result.text), false);
	return;
#endif
	hf_cleanup(buf) struct buf more = {};
	outcome_unknown(run, &more);
	log_warn("outcome unknown", "task_id", run->id, "trace_id", run_trace_id(run), "phase",
		 run->spec->name, "error", run->result.text.data, "more", more.data + 2, nullptr);
	run_release_because(run, RELEASE_UNKNOWN, 0, more.data);
}

/* A request may have taken effect and no more attempts will be made: ask, don't guess. */
static void settle_later(struct run *run, int64_t delay_ms)
{
	if (++run->settles > SETTLES_MAX) {
		unknown(run);
		return;
	}
	run_move(run, RUN_PAUSED);
	run_timer_set(run, &run->pause,
		      delay_ms < SETTLE_PAUSE_MS_MAX ? delay_ms : SETTLE_PAUSE_MS_MAX);
}

static int64_t backoff(const struct run *run, int attempt)
{
	return retry_delay_ms(run->spec->backoff_first_ms, run->spec->backoff_max_ms, attempt,
			      random_up_to(RETRY_DICE_MAX));
}

static void digest_retry(struct run *run)
{
	struct kept_result *result = &run->result;
	bool foreign = is_foreign_request(run->spec);
	bool happened = may_have_happened(run);
	/* What a peer asks for is waited for, with the spread of a first attempt on top. */
	int64_t delay =
	    result->delay_ms > 0 ? result->delay_ms + backoff(run, 1) : backoff(run, run->attempt);
	if (run->back && !run_is_cancelled(run)) {
		run_give_back(run, result->maybe_sent);
		return;
	}
	if (is_stopped(run)) {
		if (foreign && happened)
			settle_later(run, delay);
		else
			run_end_by_wish(run, happened);
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
	if (foreign && happened && run->spec->effect == EFFECT_LOOKUP)
		settle_later(run, delay);
	else if (foreign && happened)
		unknown(run);
	else
		run_fail(run, "attempts_exhausted", buf_slice(&result->text), happened);
}

static void digest_again(struct run *run)
{
	bool stops = is_stopped(run) || run->exhausted;
	if (run->back && !run_is_cancelled(run))
		run_give_back(run, run->result.maybe_sent);
	else if (stops && is_foreign_request(run->spec) && may_have_happened(run))
		settle_later(run, run->result.delay_ms);
	else if (stops)
		run_end_by_wish(run, may_have_happened(run));
	else
		run_release_because(run, RELEASE_AGAIN, run->result.delay_ms, "");
}

static void digest_crash(struct run *run)
{
	bool happened = run->result.maybe_sent || may_have_happened(run);
	int crashes = run->task.crashes + 1;
	if (is_stopped(run)) {
		run_end_by_wish(run, happened);
	} else if (crashes >= run->tool->crash_limit) {
		hf_cleanup(buf) struct buf text = {};
		buf_add_format(&text, "program or worker died, %d times of %d: ", crashes,
			       run->tool->crash_limit);
		buf_add_slice(&text, buf_slice(&run->result.text));
		run_fail(run, "crash_limit", buf_slice(&text), happened);
	} else {
		/* The floor grows, too: each wait is at least as long as the longest before it. */
		int64_t least = retry_ceiling_ms(CRASH_FIRST_MS, CRASH_MAX_MS, crashes - 1);
		int64_t delay =
		    retry_delay_ms(least, CRASH_MAX_MS, 1, random_up_to(RETRY_DICE_MAX));
		run->result.maybe_sent = happened;
		run_release_because(run, RELEASE_CRASH, delay, "");
	}
}

/* A request of this phase may have left, in this attempt or an earlier one. */
static bool has_traces(const struct run *run)
{
	return run->spec->effect != EFFECT_PURE && run->spec->effect != EFFECT_LOCAL &&
	       run->sent_at != RUN_NEVER;
}

static void digest_stopped(struct run *run)
{
	/* A lookup that settled and was not interrupted has proved that nothing happened. */
	bool absent = run->settling && run->spec->effect == EFFECT_LOOKUP && run->stop == STOP_NONE;
	bool stops = is_stopped(run) || run->exhausted;
	bool traces = has_traces(run);
	if (absent && stops)
		run_end_by_wish(run, false);
	else if (run->back && !run_is_cancelled(run))
		run_give_back(run, run->result.maybe_sent);
	else if (stops && traces && is_foreign_request(run->spec))
		settle_later(run, 0);
	else if (stops)
		run_end_by_wish(run, traces);
	else
		digest_retry(run);
}

static void digest_lost(struct run *run)
{
	bool ours = run->lost == LOSS_LEASE || (run->lost == LOSS_NONE && run->abandoned);
	bool maybe = is_foreign_request(run->spec) && run->spec->effect != EFFECT_UNSAFE;
	if (ours)
		run_give_back(run, run->result.maybe_sent || maybe);
	else
		run_move(run, RUN_ENDED);
}

static void digest_unverified(struct run *run)
{
	if (run->back && !run_is_cancelled(run))
		run_give_back(run, true);
	else if (is_stopped(run))
		settle_later(run, 0);
	else
		run_release_because(run, RELEASE_UNVERIFIED, run->result.delay_ms, "");
}

/* Its caller is asked: nobody runs the task meanwhile. */
static void digest_ask(struct run *run)
{
	bool happened = may_have_happened(run);
	if (run_undoing(run))
		run_fail(run, "phase_failed", slice_of("an undo step has nobody to ask"), happened);
	else if (is_stopped(run))
		run_end_by_wish(run, happened);
	else
		run_release_because(run, RELEASE_ASK, 0, "");
}

void run_advance(struct run *run, bool first)
{
	if (run_undoing(run))
		run->undone[undo_phase(run->phase)] = true;
	else
		run->states[run->phase].known = true;
	run->phase++;
	run->intent = false;
	run->accepted_at = RUN_NEVER;
	run->attempt = 1;
	run->first = first;
	run->first_try_at = clock_boot_ms();
	run->sent_at = first ? RUN_NEVER : run->first_try_at;
	run->sent_here = false;
	run->exhausted = false;
	run->settles = 0;
	run_keep_tail(run);
	run_move(run, RUN_DECIDING);
}

static void digest_done(struct run *run, bool committed)
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

static void digest_tool_error(struct run *run)
{
	buf_clear(&run->stored_result);
	buf_clear(&run->reason);
	bool happened = run->result.maybe_sent || may_have_happened(run);
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
	[PHASE_CANCELLED] = "cancelled",
	[PHASE_LOST] = "lost",
	[PHASE_UNVERIFIED] = "unverified",
	[PHASE_ASK] = "asks",
};

/* What was sent without a key and without an answer: unknown, whatever else is wished. */
static bool is_open(const struct run *run)
{
	static const bool answered[] = {
		[PHASE_DONE] = true,    [PHASE_COMMITTED] = true,  [PHASE_TOOL_ERROR] = true,
		[PHASE_FAILED] = true,  [PHASE_UNVERIFIED] = true, [PHASE_LOST] = true,
		[PHASE_UNKNOWN] = true, /* says so itself */
	};
	enum phase_outcome outcome = run->result.outcome;
	return run->spec->effect == EFFECT_UNSAFE && run->result.maybe_sent &&
	       run->accepted_at == RUN_NEVER &&
	       !((size_t)outcome < countof(answered) && answered[outcome]);
}

static void digest_unknown(struct run *run)
{
	/* The same key is asked with again, by another worker. */
	if (run->back && !run_is_cancelled(run) && run->spec->effect == EFFECT_KEYED)
		run_give_back(run, true);
	else
		unknown(run);
}

static void digest(struct run *run)
{
	struct kept_result *result = &run->result;
	if (run->broken.len > 0 && run->lost != LOSS_CLAIM) {
		/* The phase was stopped by run_break, whose word is the true one. */
		bool open = run->spec->effect == EFFECT_UNSAFE && result->maybe_sent &&
			    run->accepted_at == RUN_NEVER;
		result->outcome = open ? PHASE_UNKNOWN : run->broken_outcome;
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
		unknown(run);
		return;
	}
	switch (result->outcome) {
	case PHASE_DONE:
	case PHASE_COMMITTED:
		digest_done(run, result->outcome == PHASE_COMMITTED);
		break;
	case PHASE_RETRY:
		digest_retry(run);
		break;
	case PHASE_AGAIN:
		digest_again(run);
		break;
	case PHASE_CRASHED:
		digest_crash(run);
		break;
	case PHASE_TOOL_ERROR:
		digest_tool_error(run);
		break;
	case PHASE_FAILED:
		run_fail(run, "phase_failed", buf_slice(&result->text),
			 result->maybe_executed || has_traces(run));
		break;
	case PHASE_UNKNOWN:
		digest_unknown(run);
		break;
	case PHASE_UNVERIFIED:
		digest_unverified(run);
		break;
	case PHASE_ASK:
		digest_ask(run);
		break;
	case PHASE_CANCELLED:
		digest_stopped(run);
		break;
	case PHASE_LOST:
		digest_lost(run);
		break;
	}
}

static enum run_stop wanted_stop(const struct run *run)
{
	if (run->lost != LOSS_NONE || run->abandoned || run->broken.len > 0)
		return STOP_LOST;
	if (run->back || (!run->settling && is_stopped(run)))
		return STOP_SOON;
	return STOP_NONE;
}

/* False: suspended. */
static bool work(struct run *run)
{
	if (!run->result.here && wanted_stop(run) > run->stop) {
		run->stop = wanted_stop(run);
		if (run->kind_state)
			run->kind->cancel(run->kind_state, run->stop == STOP_LOST);
	}
	if (!run->result.here || run->sides > 0)
		return false;
	run->kind_state = nullptr;
	digest(run);
	return true;
}

static bool wake_paused(struct run *run)
{
	if (ev_is_active(&run->pause) && !run->back && !run->abandoned && run->lost == LOSS_NONE)
		return false;
	ev_timer_stop(run->loop, &run->pause);
	run_move(run, RUN_DECIDING);
	return true;
}

static void run_step(struct run *run)
{
	for (bool moved = true; moved;) {
		switch (run->state) {
		case RUN_DECIDING:
			decide(run);
			break;
		case RUN_WORKING:
			moved = work(run);
			break;
		case RUN_PAUSED:
			moved = wake_paused(run);
			break;
		case RUN_INTENDING:
		case RUN_COMMITTING:
		case RUN_FINISHING:
		case RUN_RELEASING:
			moved = run_written(run);
			break;
		case RUN_ENDED:
			worker_run_ended(run->worker, run, run->due_ms);
			return;
		}
	}
}

static void on_step(struct ev_loop *, ev_prepare *step, int)
{
	run_step(container_of(step, struct run, step));
}

static void on_deadline(struct ev_loop *, ev_timer *timer, int)
{
	struct run *run = container_of(timer, struct run, deadline);
	if (run_deadline_passed(run))
		run_feed(run);
	else /* libev's clock is not the boot clock */
		run_timer_set(run, timer, run->deadline_at - clock_boot_ms());
}

static void on_pause(struct ev_loop *, ev_timer *timer, int)
{
	struct run *run = container_of(timer, struct run, pause);
	ev_timer_stop(run->loop, timer);
	if (run->state != RUN_PAUSED)
		run_send_write(run);
	run_feed(run);
}

/* --- from outside ------------------------------------------------------------------------------
 */

struct run *run_start(struct worker *worker, const struct tool *tool, const char *folder,
		      const struct claimed_task *task)
{
	struct run *run = hf_alloc(sizeof *run);
	run->worker = worker;
	run->loop = worker_loop(worker);
	run->tool = tool;
	run->folder = folder;
	run->due_ms = -1;
	ev_init(&run->step, on_step);
	ev_init(&run->deadline, on_deadline);
	ev_init(&run->pause, on_pause);
	struct hf_err err = {};
	if (run_keep_claim(run, task, &err) != HF_OK) {
		hf_cleanup(buf) struct buf text = {};
		buf_add_format(&text, "what is stored of the task cannot be read: %s", err.text);
		run_fail(run, "corrupt", buf_slice(&text),
			 run->phase > 0 || run->sent_at != RUN_NEVER);
		return run;
	}
	run_timer_set(run, &run->deadline, run->deadline_at - clock_boot_ms());
	run_feed(run);
	return run;
}

void run_free(struct run *run)
{
	hf_assert(run->sides == 0);
	ev_clear_pending(run->loop, &run->step);
	ev_timer_stop(run->loop, &run->deadline);
	ev_timer_stop(run->loop, &run->pause);
	run_keep_free(run);
	struct buf *bufs[] = { &run->result.state, &run->result.text,   &run->result.answer,
			       &run->broken,       &run->message,       &run->answer.adopted,
			       &run->reason,       &run->stored_result, &run->stored_error };
	for (size_t i = 0; i < countof(bufs); i++)
		buf_deinit(bufs[i]);
	free(run);
}

void run_note_wish(struct run *run, enum wish wish)
{
	run->cancel = run->cancel || wish == WISH_CANCEL;
	run->park = run->park || wish == WISH_PARK;
	run->back = run->back || run->park;
}

void run_wish(struct run *run, enum wish wish)
{
	run_note_wish(run, wish);
	run_feed(run);
}

void run_hand_back(struct run *run)
{
	run->back = true;
	run_feed(run);
}

void run_abandon(struct run *run)
{
	run->back = true;
	run->abandoned = true;
	run_feed(run);
}

void run_lose(struct run *run, bool taken)
{
	if (taken)
		run->lost = LOSS_CLAIM;
	else if (run->lost == LOSS_NONE)
		run->lost = LOSS_LEASE;
	run_feed(run);
}

bool run_owns(const struct run *run, const struct beat_wish *flag)
{
	return task_id_equal(&run->task.id, &flag->id) &&
	       uuid_equal(&run->task.token, &flag->token);
}

bool run_settling(const struct run *run)
{
	return run->settling;
}

bool run_settles_last(const struct run *run)
{
	return run->settling && run->settles >= SETTLES_MAX;
}

bool run_is_first(const struct run *run)
{
	return run->first;
}

int64_t run_first_try_age_ms(const struct run *run)
{
	return clock_boot_ms() - run->first_try_at;
}

int64_t run_sent_age_ms(const struct run *run)
{
	if (run->sent_at == RUN_NEVER)
		return -1;
	int64_t age = clock_boot_ms() - run->sent_at;
	return age > 0 ? age : 0;
}

int64_t run_grace_ms(const struct run *run)
{
	const struct config *config = worker_config(run->worker);
	return run->back && !run->park && !run_is_cancelled(run) ? config->drain_ms
								 : config->cancel_grace_ms;
}

void run_phase_done(struct run *run, const struct phase_result *result)
{
	hf_assert(run->state == RUN_WORKING);
	hf_assert(!run->result.here);
	struct kept_result *kept = &run->result;
	kept->here = true;
	kept->outcome = result->outcome;
	kept->delay_ms = result->delay_ms;
	kept->maybe_sent = result->maybe_sent;
	kept->maybe_executed = result->maybe_executed;
	buf_add_slice(&kept->state, result->state);
	text_clean(slice_of(result->text), TEXT_TOOL_ERROR_LEN_MAX, &kept->text);
	text_clean(slice_of(result->answer), TEXT_PROGRESS_LEN_MAX, &kept->answer);
	run_feed(run);
}
