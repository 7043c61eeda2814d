/* The writes of a run and what their answers mean. Each is fenced by the claim's token; while one
 * is in flight nothing else of the run is. */
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/timer.h"
#include "worker/run_private.h"
#include "worker/text.h"
#include "worker/worker.h"

constexpr int64_t REFUSED_PAUSE_MS = 1'000; /* between two tries of a write that was refused */
constexpr int64_t REFUSED_DELAY_MS = 5'000; /* of a task with a write that is never taken */

/* --- writes ----------------------------------------------------------------------------------- */

static void on_step_written(void *ctx, enum hf_code code, enum fence fence, enum wish wish,
			    struct slice adopted, const struct hf_err *err)
{
	struct run *run = ctx;
	struct kept_answer *answer = &run->answer;
	buf_clear(&answer->adopted);
	if (code == HF_OK && fence == FENCE_ADOPTED)
		buf_add_slice(&answer->adopted, adopted);
	answer->here = true;
	answer->code = code;
	answer->fence = fence;
	answer->wish = wish;
	answer->err = err ? *err : (struct hf_err){ .code = code };
	run_feed(run);
}

static void on_written(void *ctx, enum hf_code code, enum fence fence, const struct hf_err *err)
{
	on_step_written(ctx, code, fence, WISH_NONE, (struct slice){}, err);
}

struct step_write run_step_write(const struct run *run)
{
	bool keyed = run->spec->effect == EFFECT_KEYED || run->spec->effect == EFFECT_LOOKUP;
	return (struct step_write){ .id = run->task.id,
				    .token = run->task.token,
				    .kind = STEP_RECOVERY_POINT,
				    .place = step_place_recovery(run->phase),
				    .phase = run->phase,
				    .name = slice_of(run->spec->name),
				    .derived_key = keyed ? slice_of(run->key) : (struct slice){},
				    .attempt = run->attempt,
				    .took_ms = clock_boot_ms() - run->started_at };
}

static struct step_write recovery_point(const struct run *run)
{
	struct step_write step = run_step_write(run);
	step.state = buf_slice(&run->result.state);
	step.answer = buf_slice(&run->result.answer);
	return step;
}

static void send_finish(struct run *run)
{
	struct step_write last;
	struct outcome_write outcome = { .id = run->task.id,
					 .token = run->task.token,
					 .state = run->outcome,
					 .result = buf_slice(&run->stored_result),
					 .error = buf_slice(&run->stored_error),
					 .message = buf_slice(&run->reason),
					 .attempt = run->attempt };
	if (run->with_last) {
		last = recovery_point(run);
		outcome.last = &last;
	}
	store_finish(worker_store(run->worker), &outcome, on_written, run);
}

static void send_ask(struct run *run)
{
	struct ask_write ask = { .id = run->task.id,
				 .token = run->task.token,
				 .phase = run->phase,
				 .questions = buf_slice(&run->result.state),
				 .wait_ms = run->result.delay_ms,
				 .maybe_sent = run->maybe_sent,
				 .reason = buf_slice(&run->reason) };
	store_ask(worker_store(run->worker), &ask, on_written, run);
}

void run_send_write(struct run *run)
{
	struct store *store = worker_store(run->worker);
	run->answer.here = false;
	if (run->state == RUN_INTENDING) {
		store_intent(store, &run->task.id, &run->task.token, run->phase,
			     slice_of(run->spec->name), on_written, run);
	} else if (run->state == RUN_COMMITTING) {
		struct step_write step = recovery_point(run);
		store_step(store, &step, on_step_written, run);
	} else if (run->state == RUN_FINISHING) {
		send_finish(run);
	} else if (run->how == RELEASE_ASK) {
		hf_assert(run->state == RUN_RELEASING);
		send_ask(run);
	} else {
		hf_assert(run->state == RUN_RELEASING);
		struct release_write release = { .id = run->task.id,
						 .token = run->task.token,
						 .how = run->how,
						 .delay_ms = run->delay_ms,
						 .maybe_sent = run->maybe_sent,
						 .reason = buf_slice(&run->reason) };
		store_release(store, &release, on_written, run);
	}
}

void run_intend(struct run *run)
{
	run_move(run, RUN_INTENDING);
	run_send_write(run);
}

void run_release(struct run *run, enum release how, int64_t delay_ms, bool maybe_sent,
		 const char *reason)
{
	run_move(run, RUN_RELEASING);
	buf_clear(&run->reason);
	buf_add_text(&run->reason, reason);
	run->how = how;
	/* Due by the deadline at the latest, so that it is seen to pass. */
	int64_t left = run_undoing(run) ? delay_ms : run->deadline_at - clock_boot_ms();
	run->delay_ms = delay_ms < left ? delay_ms : left;
	if (run->delay_ms < 0)
		run->delay_ms = 0;
	/* What left earlier in this claim counts as well: the store does not know of it yet. */
	run->maybe_sent = maybe_sent || run->sent_here;
	if (how != RELEASE_UNKNOWN && how != RELEASE_ASK)
		run->due_ms = run->delay_ms;
	run_send_write(run);
}

void run_release_because(struct run *run, enum release how, int64_t delay_ms, const char *more)
{
	hf_cleanup(buf) struct buf whole = {}, reason = {};
	outcome_name(run, buf_slice(&run->result.text), &whole);
	text_clean(buf_slice(&whole), TEXT_REASON_LEN_MAX, &reason);
	buf_add_text(&reason, more);
	run_release(run, how, delay_ms, run->result.maybe_sent, reason.data);
}

void run_give_back(struct run *run, bool maybe_sent)
{
	run_release(run, RELEASE_BACK, 0, maybe_sent,
		    run->park ? "parked: its client hung up" : "handed back by its worker");
}

void run_finish(struct run *run, enum task_state outcome, bool with_last)
{
	run_move(run, RUN_FINISHING);
	run->outcome = outcome;
	run->with_last = with_last;
	run_send_write(run);
}

void run_fail(struct run *run, const char *type, struct slice text, bool maybe_now)
{
	buf_clear(&run->stored_error);
	buf_clear(&run->reason);
	outcome_error(run, type, text, maybe_now, &run->stored_error);
	hf_cleanup(buf) struct buf whole = {};
	outcome_name(run, text, &whole);
	outcome_message(run, buf_slice(&whole), maybe_now, &run->reason);
	metric_add(METRIC_tasks_failed_total, type, 1);
	log_warn("task failed", "task_id", run->id, "trace_id", run_trace_id(run), "tool",
		 run->tool->name, "type", type, "error", run->reason.data, nullptr);
	run_finish(run, TASK_FAILED, false);
}

void run_finish_cancelled(struct run *run, bool maybe_now)
{
	buf_clear(&run->reason);
	outcome_message(run, slice_of("cancelled"), maybe_now, &run->reason);
	run_finish(run, TASK_CANCELLED, false);
}

void run_finish_completed(struct run *run, bool with_last)
{
	struct hf_err err = {};
	buf_clear(&run->stored_result);
	buf_clear(&run->reason);
	if (outcome_result(run, &run->stored_result, &err) != HF_OK) {
		buf_clear(&run->stored_result);
		metric_add(METRIC_tasks_failed_total, "result", 1);
		outcome_error(run, "result", slice_of(err.text), false, &run->stored_error);
		outcome_message(run, slice_of(err.text), false, &run->reason);
		run_finish(run, TASK_FAILED, with_last);
		return;
	}
	run_finish(run, TASK_COMPLETED, with_last);
}

void run_end_by_wish(struct run *run, bool maybe_now)
{
	if (run_is_cancelled(run) && run_has_undo(run)) {
		hf_cleanup(buf) struct buf reason = {};
		outcome_message(run, slice_of("cancelled"), maybe_now, &reason);
		run_release(run, RELEASE_UNDO, 0, false, reason.data);
	} else if (run_is_cancelled(run))
		run_finish_cancelled(run, maybe_now);
	else if (run_deadline_passed(run))
		run_fail(run, "deadline", slice_of("deadline exceeded"), maybe_now);
	else
		run_fail(run, "attempts_exhausted", buf_slice(&run->result.text), maybe_now);
}

/* --- after a write ---------------------------------------------------------------------------- */

static bool is_passing(enum hf_code code)
{
	return code == HF_BUSY || code == HF_LIMIT || code == HF_TIMEOUT || code == HF_DB ||
	       code == HF_NET;
}

/* The store would not take it. What passes is tried again as it is; what it will never take is
 * given up as a crash, with plain words, so that the crash limit bounds it. */
static void refused(struct run *run)
{
	struct kept_answer *answer = &run->answer;
	log_error("the store refused a write", "task_id", run->id, "code",
		  hf_code_name(answer->code), "error", answer->err.text, "sqlstate",
		  answer->err.sqlstate, nullptr);
	answer->here = false;
	bool intending = run->state == RUN_INTENDING;
	if (!is_passing(answer->code)) {
		if (run->state != RUN_RELEASING)
			run_move(run, RUN_RELEASING);
		run->how = RELEASE_CRASH;
		run->delay_ms = REFUSED_DELAY_MS;
		run->maybe_sent = !intending;
		buf_clear(&run->reason);
		buf_add_format(&run->reason, "the store refused a write (%s)",
			       answer->err.sqlstate[0] ? answer->err.sqlstate
						       : hf_code_name(answer->code));
	}
	timer_set(run->loop, &run->pause, REFUSED_PAUSE_MS);
}

static void committed(struct run *run)
{
	struct hf_err err = {};
	struct kept_answer *answer = &run->answer;
	metric_add(METRIC_fenced_out_total, nullptr, answer->fence == FENCE_LOST);
	if (answer->fence == FENCE_LOST || run->lost == LOSS_CLAIM) {
		run_move(run, RUN_ENDED);
		return;
	}
	run_note_wish(run, answer->wish);
	bool adopted = answer->fence == FENCE_ADOPTED;
	if (run->state == RUN_INTENDING) {
		run->intent = true;
		run_move(run, RUN_DECIDING);
	} else if (adopted &&
		   run_keep_state(run, run->phase, buf_slice(&answer->adopted), &err) != HF_OK)
		run_fail(run, "corrupt", slice_of("a stored state does not read back"), true);
	else
		run_advance(run, !adopted);
}

/* The write that ends the claim was answered. */
static void count_written(const struct run *run)
{
	if (run->answer.fence == FENCE_LOST)
		metric_add(METRIC_fenced_out_total, nullptr, 1);
	else if (run->state == RUN_FINISHING)
		metric_add(METRIC_tasks_ended_total, task_state_name(run->outcome), 1);
}

/* False: suspended. */
bool run_written(struct run *run)
{
	struct kept_answer *answer = &run->answer;
	if (!answer->here) {
		/* Between two tries of a write that was refused nothing is in flight. */
		if (run->lost != LOSS_CLAIM || !ev_is_active(&run->pause))
			return false;
		run_move(run, RUN_ENDED);
	} else if (answer->code == HF_CANCELLED) {
		run_move(run, RUN_ENDED);
	} else if (answer->code != HF_OK) {
		refused(run);
		return false;
	} else if (run->state == RUN_COMMITTING || run->state == RUN_INTENDING) {
		answer->here = false;
		committed(run);
	} else {
		count_written(run);
		if (answer->fence == FENCE_LOST)
			log_warn("fenced out", "task_id", run->id, "trace_id", run_trace_id(run),
				 nullptr);
		else if (run->state == RUN_FINISHING)
			log_info("task ended", "task_id", run->id, "trace_id", run_trace_id(run),
				 "tool", run->tool->name, "state", task_state_name(run->outcome),
				 nullptr);
		run_move(run, RUN_ENDED);
	}
	return true;
}
