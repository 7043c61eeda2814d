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
 * never freed under a caller. What the report of a phase comes to is run_report.c's.
 *
 * The two places where a crash may fall: after the effect and before committing is answered, which
 * the derived key, the read-back or the same transaction make harmless; and after it, where the
 * next claim finds the recovery point. What says that a phase may have been sent was durable before
 * deciding: with the claim for the first, with the recovery point before for all others.
 *
 * An unsafe phase is preceded by an intent of its own commit. Where one stands, or the answer to it
 * is lost, the phase is unknown: it is not started again before a person has settled it.
 *
 * A cancelled task whose committed phases have undo steps is released to them: they are phases
 * after all others, in reverse order, which neither cancel nor deadline stops.
 */
#include "worker/run.h"

#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/timer.h"
#include "worker/run_private.h"
#include "worker/text.h"
#include "worker/worker.h"

constexpr int64_t COPY_DELAY_MS = 5'000;   /* until somebody has confirmed it */
constexpr int64_t NO_KEY_DELAY_MS = 5'000; /* for another worker to take it */

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

/* Wishes that end the forward way; undo steps run whatever is wished. */
bool run_is_cancelled(const struct run *run)
{
	return run->cancel && !run_undoing(run);
}

bool run_is_stopped(const struct run *run)
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
	run_unknown(run);
	return true;
}

static void start_phase(struct run *run, bool settling)
{
	struct hf_err err = {};
	bool foreign = effect_is_foreign(run->spec->effect);
	bool sends = !(settling && run->spec->effect == EFFECT_UNSAFE);
	if (foreign && sends && run->task.copy) {
		run_release(run, RELEASE_AGAIN, COPY_DELAY_MS, false,
			    "a copy: nothing foreign runs before `holdfast restored --confirm`");
		return;
	}
	if (start_is_blind(run, settling))
		return;
	if (run_scope_set(run, &err) != HF_OK && foreign) {
		log_error("no key for this task, which goes to another worker", "task_id", run->id,
			  "error", err.text, nullptr);
		run_release(run, RELEASE_AGAIN, NO_KEY_DELAY_MS, false,
			    "this worker has no key of the task's version");
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
	bool stops = worn || run_is_stopped(run) || run->exhausted;
	bool asked = run_asks_downstream(run) || run->spec->effect == EFFECT_UNSAFE;
	bool settles = stops && asked && run_may_have_happened(run);
	if (worn && !settles) {
		run_fail_worn(run, run->task.crashes, run_may_have_happened(run));
		return;
	}
	run->exhausted = run->exhausted || worn;
	if (stops && !settles)
		run_end_by_wish(run, run_may_have_happened(run));
	else if (settles || !run_waits_apart(run))
		start_phase(run, settles);
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
	run_sent_tail(run);
	run_move(run, RUN_DECIDING);
}

static enum run_stop wanted_stop(const struct run *run)
{
	if (run->lost != LOSS_NONE || run->abandoned || run->broken.len > 0)
		return STOP_LOST;
	if (!run->settling && run_is_stopped(run))
		return STOP_SOON;
	if (run->back)
		return run->unhurried ? STOP_UNHURRIED : STOP_SOON;
	return STOP_NONE;
}

/* False: suspended. */
static bool work(struct run *run)
{
	if (!run->result.here && wanted_stop(run) > run->stop) {
		run->stop = wanted_stop(run);
		if (run->kind_state)
			run->kind->stop(run->kind_state, run->stop == STOP_LOST);
	}
	if (!run->result.here || run->sides > 0)
		return false;
	run->kind_state = nullptr;
	run_reported(run);
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
		timer_set(run->loop, timer, run->deadline_at - clock_boot_ms());
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
	timer_set(run->loop, &run->deadline, run->deadline_at - clock_boot_ms());
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
	if (wish == WISH_PARK && !run->back)
		run->unhurried = true;
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
	run->unhurried = false;
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

int64_t run_grace_ms(const struct run *run)
{
	const struct config *config = worker_config(run->worker);
	if (run_is_unhurried(run))
		return run_time_left_ms(run);
	return run->back && !run_is_cancelled(run) ? config->drain_ms : config->cancel_grace_ms;
}

bool run_is_unhurried(const struct run *run)
{
	return run->stop == STOP_UNHURRIED;
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
