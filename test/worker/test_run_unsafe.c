/* test_run_unsafe.c - the machine of a run where a phase is unsafe, asks somebody, or is undone. */
#include <string.h>

#include "runtime/base.h"
#include "test/test.h"
#include "test/worker/run_rig.h"
#include "worker/phase.h"
#include "worker/run.h"
#include "worker/worker.h"

HF_TEST(run, an_unsafe_phase_starts_behind_its_intent, .init = set_up_unsafe, .fini = tear_down)
{
	begin();
	expect_write("intent 0 pay");
	cr_assert_eq(phase.starts, 0, "nothing starts before the intent is durable");
	answer();
	expect_phase("pay");
	report_done("{}");
	expect_write("step pay@65535 a1 {}");
	answer();
	expect_write("intent 1 run");
	answer();
	expect_phase("run");
	report_done("{}");
	expect_write("completed");
	answer_last();
}

HF_TEST(run, an_intent_that_is_fenced_out_starts_nothing, .init = set_up_unsafe, .fini = tear_down)
{
	begin();
	answer_with(HF_OK, FENCE_LOST, false, (struct slice){});
	cr_assert_eq(phase.starts, 0);
	expect_end();
}

HF_TEST(run, a_cancel_behind_the_intent_sends_nothing, .init = set_up_unsafe, .fini = tear_down)
{
	begin();
	run_wish(run, WISH_CANCEL);
	answer();
	cr_assert_eq(phase.starts, 0);
	expect_write("cancelled");
	answer_last();
}

HF_TEST(run, what_is_unsafe_and_unanswered_is_unknown_whatever_is_left, .init = set_up_unsafe,
	.fini = tear_down)
{
	static const enum phase_outcome outcomes[] = { PHASE_RETRY, PHASE_AGAIN, PHASE_CRASHED,
						       PHASE_STOPPED };
	for (size_t i = 0; i < countof(outcomes); i++) {
		begin();
		answer();
		report((struct phase_result){
		    .outcome = outcomes[i], .text = "timed out", .maybe_sent = true });
		expect_write("unknown sent pay: timed out; may have happened");
		answer_last();
	}
}

HF_TEST(run, what_is_unsafe_and_never_left_is_tried_again, .init = set_up_unsafe, .fini = tear_down)
{
	begin();
	answer();
	report((struct phase_result){ .outcome = PHASE_RETRY, .text = "no connection" });
	expect_write("retry pay: no connection");
	answer_last();
}

HF_TEST(run, an_intent_of_an_earlier_claim_is_never_followed_by_a_second_send,
	.init = set_up_unsafe, .fini = tear_down)
{
	struct claimed_step steps[] = { { STEP_INTENT, step_place_recovery(0) - 1, slice_of("pay"),
					  slice_of("") } };
	claim_steps(steps, 1);
	claimed_again(0, 950'000);
	begin();
	cr_assert_eq(phase.starts, 0);
	expect_write("unknown");
	answer_last();
	/* Without one the store's guess at a dead worker's send counts for nothing. */
	claim_steps(nullptr, 0);
	begin();
	expect_write("intent 0 pay");
	answer();
	expect_phase("pay");
	report_done("{}");
	run_wish(run, WISH_CANCEL);
	answer_with(HF_OK, FENCE_LOST, false, (struct slice){});
	expect_end();
}

HF_TEST(run, an_unsafe_program_of_an_earlier_claim_is_unknown_whatever_ends_it,
	.init = set_up_unsafe, .fini = tear_down)
{
	struct claimed_step steps[] = { { STEP_INTENT, step_place_recovery(1) - 1, slice_of("run"),
					  slice_of("") } };
	const char *const ends[] = { "deadline", "cancel", "crash limit" };
	int64_t deadline_ms = task.deadline_ms;
	for (int end = 0; end < 3; end++) {
		claim_steps(steps, 1);
		claimed_again(1, 950'000);
		task.deadline_ms = end == 0 ? task.now_ms - 1 : deadline_ms;
		task.cancel = end == 1;
		task.crashes = end == 2 ? tool->crash_limit : 0;
		begin();
		cr_assert_eq(phase.starts, 0, "%s", ends[end]);
		expect_write("unknown");
		answer_last();
	}
}

HF_TEST(run, a_cancel_goes_on_to_the_undo_steps, .init = set_up_unsafe, .fini = tear_down)
{
	begin();
	answer();
	report_done("{}");
	run_wish(run, WISH_CANCEL);
	answer();
	expect_write("undo cancelled; done before: pay");
	answer_last();
}

static struct claimed_step to_undo;

/* A cancelled task whose first phase is to be undone. */
static void claimed_to_undo(struct buf *state)
{
	to_undo = step_at(0, state, "{}");
	claim_steps(&to_undo, 1);
	task.phase = UNDO_PHASE_FIRST;
	task.cancel = true;
}

static void report_asks(bool maybe_sent)
{
	report((struct phase_result){ .outcome = PHASE_ASK,
				      .state = slice_of("[{\"key\":\"k\"}]"),
				      .text = "asks: Sure?",
				      .delay_ms = 70,
				      .maybe_sent = maybe_sent });
}

HF_TEST(run, a_phase_that_asks_gives_its_claim_back_with_the_question, .init = set_up,
	.fini = tear_down)
{
	begin();
	report_asks(false);
	expect_write("ask 0 [{\"key\":\"k\"}] for 70 | pure: asks: Sure?");
	answer_last();

	to_keyed();
	report_asks(true);
	expect_write("ask sent 1 [");
	answer_with(HF_OK, FENCE_LOST, false, (struct slice){});
	expect_end();

	/* A worker that stops asks all the same: nothing is lost, and nobody holds it. */
	begin();
	run_hand_back(run);
	turn();
	report_asks(false);
	expect_write("ask 0 [");
	answer_last();

	/* One that the store will not take is a crash, which the crash limit bounds. */
	begin();
	report_asks(false);
	answer_with(HF_INVALID, FENCE_LOST, false, (struct slice){});
	wait_ms(1'100);
	expect_write("crash");
	answer_last();
}

HF_TEST(run, who_is_stopped_asks_nobody, .init = set_up, .fini = tear_down)
{
	begin();
	run_wish(run, WISH_CANCEL);
	turn();
	report_asks(false);
	expect_write("cancelled");
	answer_last();

	task.deadline_ms = task.now_ms + 20;
	begin();
	wait_ms(40);
	report_asks(false);
	expect_write("failed");
	expect_inside("deadline exceeded");
	answer_last();
}

HF_TEST(run, an_unsafe_program_that_asks_has_sent_nothing, .init = set_up_unsafe, .fini = tear_down)
{
	claimed_again(1, 0);
	begin();
	expect_write("intent 1 run");
	answer();
	report_asks(false);
	expect_write("ask 1 [");
	answer_last();
}

HF_TEST(run, an_undo_step_has_nobody_to_ask, .init = set_up_unsafe, .fini = tear_down)
{
	hf_cleanup(buf) struct buf state = {};
	claimed_to_undo(&state);
	begin();
	report_asks(false);
	expect_write("failed");
	expect_inside("nobody to ask");
	answer_last();
}

HF_TEST(run, undo_steps_run_under_a_cancel_and_past_the_deadline, .init = set_up_unsafe,
	.fini = tear_down)
{
	hf_cleanup(buf) struct buf state = {};
	claimed_to_undo(&state);
	task.deadline_ms = task.now_ms - 1;
	begin();
	expect_phase("undo:pay");
	cr_assert_eq(phase.stops, 0, "neither stops them");
	report((struct phase_result){ .outcome = PHASE_RETRY, .text = "503", .maybe_sent = true });
	expect_write("retry sent undo:pay: 503; attempt 2 of 2");
	answer_last();
	begin();
	report_done("{}");
	expect_write("step undo:pay@8388607 a1 key {}");
	answer();
	expect_write("cancelled  | cancelled; done before: pay; undone: pay");
	answer_last();
}

HF_TEST(run, an_undo_step_that_fails_fails_the_task_and_says_so, .init = set_up_unsafe,
	.fini = tear_down)
{
	hf_cleanup(buf) struct buf state = {};
	claimed_to_undo(&state);
	begin();
	report((struct phase_result){ .outcome = PHASE_FAILED, .text = "refused" });
	expect_write("failed");
	expect_inside("undo:pay: refused");
	expect_inside("\"executed\":\"yes\"");
	expect_inside("done before: pay");
	answer_last();
}

HF_TEST(run, an_undone_phase_is_not_undone_twice, .init = set_up_unsafe, .fini = tear_down)
{
	hf_cleanup(buf) struct buf a = {}, b = {};
	claimed_to_undo(&a);
	struct claimed_step steps[] = { to_undo, step_at(undo_phase(0), &b, "{}") };
	claim_steps(steps, 2);
	begin();
	cr_assert_eq(phase.starts, 0);
	expect_write("cancelled");
	answer_last();
}
