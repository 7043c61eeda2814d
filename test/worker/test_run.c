/* test_run.c - the machine of a run, with pretended phases, a pretended store and a pretended
 * worker: what it writes, in which order, and what it never writes. A program of its own, since it
 * stands in for what the worker library has elsewhere. */
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/config.h"
#include "runtime/json.h"
#include "runtime/key.h"
#include "runtime/value.h"
#include "test/test.h"
#include "test/worker/run_rig.h"
#include "worker/phase.h"
#include "worker/run.h"
#include "worker/worker.h"

HF_TEST(run, each_phase_is_committed_before_the_next_and_the_last_with_the_outcome, .init = set_up,
	.fini = tear_down)
{
	begin();
	expect_phase("pure");
	cr_assert(phase.first);
	report_done("{\"p\":1}");
	expect_write("step pure@65535 a1 {\"p\":1}");
	cr_assert_eq(phase.starts, 1, "nothing starts before the commit is answered");
	answer();
	expect_phase("keyed");
	cr_assert(phase.first);
	report_done("{\"k\":12345678901234567890}");
	expect_write("step keyed@131071 a1 key {\"k\":12345678901234567890}");
	answer();
	expect_phase("look");
	report_done("[]");
	expect_write("completed {\"content\":[{\"type\":\"text\",\"text\":\"e-1 n=7\"},"
		     "{\"type\":\"resource_link\",\"uri\":\"http://h/x/report.pdf?a\","
		     "\"name\":\"report.pdf\"}],"
		     "\"structuredContent\":{\"s\":{\"k\":12345678901234567890}},\"isError\":false}"
		     " |  | step look@196607 a1 key []");
	answer_last();
	cr_assert_lt(ended_due_ms, 0);
}

HF_TEST(run, what_stands_is_never_started_again, .init = set_up, .fini = tear_down)
{
	hf_cleanup(buf) struct buf a = {}, b = {}, c = {};
	struct claimed_step steps[] = { step_at(0, &a, "{}"), step_at(1, &b, "{\"k\":1}"),
					step_at(2, &c, "{}") };
	claim_steps(steps, 3);
	claimed_again(3, 0);
	begin();
	expect_write("completed");
	cr_assert_eq(phase.starts, 0);
	answer_last();
}

HF_TEST(run, a_foreign_recovery_point_past_the_claim_is_taken_over, .init = set_up,
	.fini = tear_down)
{
	hf_cleanup(buf) struct buf a = {};
	struct claimed_step steps[] = { step_at(0, &a, "{}") };
	claim_steps(steps, 1);
	begin();
	expect_phase("keyed");
	cr_assert(!phase.first);
	run_lose(run, true);
	turn();
	cr_assert_eq(phase.losses, 1);
	report((struct phase_result){ .outcome = PHASE_LOST });
	expect_end();
}

HF_TEST(run, an_adopted_state_replaces_ours, .init = set_up, .fini = tear_down)
{
	hf_cleanup(buf) struct buf theirs = {};
	to_keyed();
	report_done("{\"k\":\"ours\"}");
	value_from_json(slice_of("{\"k\":\"theirs\"}"), &theirs);
	answer_with(HF_OK, FENCE_ADOPTED, false, buf_slice(&theirs));
	expect_phase("look");
	cr_assert(!phase.first, "nobody knows what the other sent");
	report_done("{}");
	expect_inside("{\"s\":{\"k\":\"theirs\"}}");
	answer_last();
}

HF_TEST(run, a_lost_fence_ends_it_without_another_write, .init = set_up, .fini = tear_down)
{
	begin();
	report_done("{}");
	answer_with(HF_OK, FENCE_LOST, false, (struct slice){});
	expect_end();
	cr_assert_eq(store.writes, 1);
}

HF_TEST(run, a_failed_attempt_is_spent_with_a_wait, .init = set_up, .fini = tear_down)
{
	begin();
	report((struct phase_result){ .outcome = PHASE_RETRY, .text = "503" });
	expect_write("retry pure: 503; attempt 2 of 2 in");
	cr_assert_geq(store.delay_ms, 500);
	cr_assert_leq(store.delay_ms, 1'000);
	answer_last();
	cr_assert_eq(ended_due_ms, store.delay_ms);
}

HF_TEST(run, retry_after_is_a_lower_bound, .init = set_up, .fini = tear_down)
{
	begin();
	report((struct phase_result){ .outcome = PHASE_RETRY, .delay_ms = 2'000 });
	cr_assert_geq(store.delay_ms, 2'500);
	cr_assert_leq(store.delay_ms, 3'000);
	answer_last();
}

HF_TEST(run, spent_attempts_fail_what_has_no_effect, .init = set_up, .fini = tear_down)
{
	task.attempt = 2;
	begin();
	report((struct phase_result){ .outcome = PHASE_RETRY, .text = "503" });
	expect_write("failed {\"code\":-32603,\"message\":\"pure: 503\",\"data\":"
		     "{\"type\":\"attempts_exhausted\",\"phase\":\"pure\","
		     "\"phase_executed\":\"no\",\"executed\":\"no\"}}"
		     " | pure: 503; no phase was done | -");
	answer_last();
}

HF_TEST(run, spent_attempts_of_a_keyed_request_without_an_answer_are_unknown, .init = set_up,
	.fini = tear_down)
{
	claimed_again(1, 950'000);
	task.attempt = 2;
	begin();
	expect_phase("keyed");
	/* This attempt did not leave, but an earlier one may have (V7). */
	report((struct phase_result){ .outcome = PHASE_RETRY, .text = "refused" });
	expect_write("unknown keyed: refused; may have happened");
	answer_last();
	cr_assert_lt(ended_due_ms, 0);
}

HF_TEST(run, spent_attempts_of_a_keyed_request_that_never_left_fail, .init = set_up,
	.fini = tear_down)
{
	claimed_again(1, 0);
	task.attempt = 2;
	begin();
	report((struct phase_result){ .outcome = PHASE_RETRY, .text = "refused" });
	expect_write("failed");
	expect_inside("\"executed\":\"no\"");
	answer_last();
}

HF_TEST(run, spent_attempts_of_a_lookup_are_read_back_first, .init = set_up, .fini = tear_down)
{
	static const bool happened[] = { true, false };
	for (size_t i = 0; i < countof(happened); i++) {
		claimed_again(2, 0);
		task.attempt = 2;
		hf_cleanup(buf) struct buf a = {}, b = {};
		struct claimed_step steps[] = { step_at(0, &a, "{}"), step_at(1, &b, "{}") };
		claim_steps(steps, 2);
		begin();
		expect_phase("look");
		cr_assert(!phase.settling);
		report((struct phase_result){ .outcome = PHASE_RETRY,
					      .text = "no answer",
					      .delay_ms = 1,
					      .maybe_sent = true });
		cr_assert_str_eq(store.what, "");
		wait_ms(1'100);
		expect_phase("look");
		cr_assert(phase.settling);
		if (happened[i]) {
			report_done("{}");
			expect_write("completed");
		} else {
			report((struct phase_result){ .outcome = PHASE_STOPPED, .text = "absent" });
			expect_write("failed");
			expect_inside("\"type\":\"attempts_exhausted\",\"phase\":\"look\"");
			/* The keyed phase before has its recovery point. */
			expect_inside("\"executed\":\"yes\"");
		}
		answer_last();
	}
}

HF_TEST(run, a_crash_spends_no_attempt_and_its_wait_grows_to_a_limit, .init = set_up,
	.fini = tear_down)
{
	for (int crashes = 0; crashes < 3; crashes++) {
		task.crashes = crashes;
		begin();
		report((struct phase_result){ .outcome = PHASE_CRASHED, .text = "signal 6" });
		if (crashes < 2) {
			expect_write("crash pure: signal 6");
			cr_assert_leq(store.delay_ms, 1'000 << crashes);
			cr_assert_geq(store.delay_ms, 500 << crashes);
		} else {
			expect_write("failed");
			expect_inside("program or worker died, 3 times of 3: signal 6");
			expect_inside("\"executed\":\"no\"");
		}
		answer_last();
	}
	task.crashes = 3;
	phase.starts = 0;
	begin();
	expect_write("failed");
	cr_assert_eq(phase.starts, 0);
	answer_last();
}

HF_TEST(run, a_tools_own_error_completes, .init = set_up, .fini = tear_down)
{
	begin();
	report((struct phase_result){ .outcome = PHASE_TOOL_ERROR, .text = "no data\x01 \xff" });
	expect_write("completed {\"content\":[{\"type\":\"text\",\"text\":\"no data? ?\"}],"
		     "\"structuredContent\":{\"type\":\"tool_error\",\"phase\":\"pure\","
		     "\"executed\":\"no\"},\"isError\":true} | ");
	answer_last();
}

HF_TEST(run, a_refusal_says_what_may_have_been_executed, .init = set_up, .fini = tear_down)
{
	static const bool maybe[] = { false, true };
	for (size_t i = 0; i < countof(maybe); i++) {
		to_keyed();
		report((struct phase_result){
		    .outcome = PHASE_FAILED, .text = "422", .maybe_executed = maybe[i] });
		expect_write("failed");
		expect_inside(maybe[i] ? "\"executed\":\"maybe\"" : "\"executed\":\"no\"");
		expect_inside("keyed: 422; done before: pure");
		answer_last();
	}
}

HF_TEST(run, a_cancel_stops_the_phase_and_says_what_ran, .init = set_up, .fini = tear_down)
{
	begin();
	run_wish(run, WISH_CANCEL);
	turn();
	run_wish(run, WISH_CANCEL);
	turn();
	cr_assert_eq(phase.stops, 1);
	cr_assert_eq(phase.losses, 0);
	report((struct phase_result){ .outcome = PHASE_STOPPED });
	expect_write("cancelled  | cancelled; no phase was done | -");
	answer_last();
}

HF_TEST(run, a_cancel_during_the_commit_stops_before_the_next_phase, .init = set_up,
	.fini = tear_down)
{
	begin();
	report_done("{}");
	answer_with(HF_OK, FENCE_HELD, true, (struct slice){});
	expect_write("cancelled  | cancelled; done before: pure | -");
	answer_last();
	cr_assert_eq(phase.starts, 1);
}

HF_TEST(run, a_cancel_settles_what_may_have_been_sent, .init = set_up, .fini = tear_down)
{
	hf_cleanup(buf) struct buf a = {};
	struct claimed_step steps[] = { step_at(0, &a, "{}") };
	claim_steps(steps, 1);
	task.cancel = true;
	claimed_again(1, 950'000);
	begin();
	expect_phase("keyed");
	cr_assert(phase.settling);
	cr_assert_eq(phase.stops, 0);
	report_done("{}");
	expect_write("step keyed");
	answer();
	expect_write("cancelled  | cancelled; done before: pure, keyed | -");
	answer_last();
}

HF_TEST(run, a_cancel_of_what_was_not_sent_is_at_once, .init = set_up, .fini = tear_down)
{
	task.cancel = true;
	claimed_again(1, 0);
	begin();
	expect_write("cancelled");
	answer_last();
	cr_assert_eq(phase.starts, 0);
}

HF_TEST(run, settling_in_vain_ends_unknown, .init = set_up, .fini = tear_down)
{
	task.cancel = true;
	claimed_again(1, 950'000);
	tool->phases[1].backoff_first_ms = tool->phases[1].backoff_max_ms = 1;
	begin();
	for (int i = 0; i < 50 && phase.run; i++) {
		report((struct phase_result){ .outcome = PHASE_RETRY, .maybe_sent = true });
		for (int ms = 0; ms < 2'000 && !phase.run && !store.what[0]; ms++)
			wait_ms(1);
	}
	cr_assert_gt(phase.starts, 2);
	expect_write("unknown sent");
	answer_last();
}

HF_TEST(run, a_cancel_after_the_last_phase_changes_nothing, .init = set_up, .fini = tear_down)
{
	hf_cleanup(buf) struct buf a = {}, b = {};
	struct claimed_step steps[] = { step_at(0, &a, "{}"), step_at(1, &b, "{}") };
	claim_steps(steps, 2);
	claimed_again(2, 0);
	begin();
	run_wish(run, WISH_CANCEL);
	turn();
	report_done("{}");
	expect_write("completed");
	answer_last();
}

HF_TEST(run, a_last_start_is_taken_apart_from_others, .init = set_up, .fini = tear_down)
{
	/* Another runs here: given back, nothing spent. */
	others_have_last_starts = one_of_them_runs = true;
	task.crashes = 2;
	begin();
	expect_write("again waits to run apart");
	cr_assert_geq(store.delay_ms, 2'000);
	answer_last();
	cr_assert_eq(phase.starts, 0);
	/* It is the one: as soon as the others are given back. */
	one_of_them_runs = false;
	begin();
	cr_assert(run_is_apart(run));
	cr_assert_eq(phase.starts, 0);
	others_have_last_starts = false;
	for (int i = 0; i < 1'000 && phase.starts == 0; i++) {
		usleep(1'000);
		turn();
	}
	cr_assert_eq(phase.starts, 1);
	report_done("{}");
	expect_write("step");
	run_lose(run, true);
	answer_last();
	/* Who has two left asks nobody. */
	others_have_last_starts = one_of_them_runs = true;
	task.crashes = 1;
	begin();
	cr_assert_eq(phase.starts, 2);
	lose_claim();
	expect_end();
}

static void expect_stop(const char *write)
{
	turn();
	cr_assert_eq(phase.stops, 1);
	report((struct phase_result){ .outcome = PHASE_STOPPED });
	expect_write(write);
	answer_last();
}

/* The keyed request in flight is answered first. */
static void expect_grace(int64_t grace_ms, const char *write)
{
	turn();
	cr_assert_eq(run_grace_ms(run), grace_ms);
	report_done("{}");
	expect_write("step keyed");
	answer();
	expect_write(write);
	answer_last();
}

HF_TEST(run, a_worker_that_stops_hands_back_and_spends_nothing, .init = set_up, .fini = tear_down)
{
	/* Before the start, in mid-phase, and after a phase that was waited for. */
	run = run_start(nullptr, tool, "/folder", &task);
	run_hand_back(run);
	turn();
	expect_write("back handed back");
	answer_last();
	cr_assert_eq(phase.starts, 0);

	begin();
	run_hand_back(run);
	expect_stop("back handed back");

	to_keyed();
	run_hand_back(run);
	expect_grace(config.drain_ms, "back handed back");
}

/* Nobody waits for the end: what has left may take its whole time. */
HF_TEST(run, a_park_stops_what_is_pure_and_waits_for_what_is_foreign, .init = set_up,
	.fini = tear_down)
{
	begin();
	run_wish(run, WISH_PARK);
	expect_stop("back parked");

	to_keyed();
	run_wish(run, WISH_PARK);
	turn();
	int64_t grace_ms = run_grace_ms(run);
	cr_assert(grace_ms > config.cancel_grace_ms && grace_ms > config.drain_ms, "%lld",
		  (long long)grace_ms);
	report_done("{}");
	expect_write("step keyed");
	answer();
	expect_write("back parked");
	answer_last();
}

HF_TEST(run, a_park_hurries_once_somebody_waits, .init = set_up, .fini = tear_down)
{
	to_keyed();
	run_wish(run, WISH_PARK);
	turn();
	run_wish(run, WISH_CANCEL);
	turn();
	cr_assert_eq(phase.stops, 2);
	cr_assert_eq(run_grace_ms(run), config.cancel_grace_ms);
	report((struct phase_result){ .outcome = PHASE_LOST });

	to_keyed();
	phase.stops = 0;
	run_wish(run, WISH_PARK);
	turn();
	run_hand_back(run);
	turn();
	cr_assert_eq(phase.stops, 2);
	cr_assert_eq(run_grace_ms(run), config.drain_ms);
	report_done("{}");
	expect_write("step keyed");
	answer();
	expect_write("back parked");
	answer_last();
}

HF_TEST(run, what_is_abandoned_at_the_end_is_handed_back_as_sent, .init = set_up, .fini = tear_down)
{
	to_keyed();
	run_abandon(run);
	turn();
	cr_assert_eq(phase.losses, 1);
	report((struct phase_result){ .outcome = PHASE_LOST });
	expect_write("back sent");
	answer_last();
}

HF_TEST(run, a_lost_claim_is_forgotten_and_a_lost_lease_handed_back, .init = set_up,
	.fini = tear_down)
{
	begin();
	run_lose(run, true);
	turn();
	cr_assert_eq(phase.losses, 1);
	report((struct phase_result){ .outcome = PHASE_LOST });
	expect_end();
	cr_assert_eq(store.writes, 0);

	begin();
	run_lose(run, false);
	turn();
	report((struct phase_result){ .outcome = PHASE_LOST });
	expect_write("back");
	answer_last();
}

HF_TEST(run, a_passed_deadline_fails_it, .init = set_up, .fini = tear_down)
{
	task.deadline_ms = task.now_ms + 30;
	begin();
	expect_phase("pure");
	cr_assert_leq(run_time_left_ms(run), 30);
	wait_ms(60);
	cr_assert_eq(phase.stops, 1);
	report((struct phase_result){ .outcome = PHASE_STOPPED });
	expect_write("failed");
	expect_inside("\"type\":\"deadline\"");
	answer_last();
}

static int checkpoint_answers;
static bool checkpoint_ok;

static void on_checkpoint(void *, bool ok)
{
	checkpoint_answers++;
	checkpoint_ok = ok;
}

HF_TEST(run, the_first_checkpoint_of_a_name_wins, .init = set_up, .fini = tear_down)
{
	struct slice value;
	checkpoint_answers = 0;
	struct claimed_step steps[] = { { STEP_CHECKPOINT, step_place_checkpoint(0, 4),
					  slice_of("old"), slice_of("\x01") } };
	claim_steps(steps, 1);
	begin();
	cr_assert(run_recall(run, slice_of("old"), &value));
	cr_assert(slice_is(value, "\x01"));
	run_checkpoint(run, slice_of("old"), slice_of("\x02"), on_checkpoint, nullptr);
	cr_assert_eq(checkpoint_answers, 0, "never from inside");
	turn();
	cr_assert_eq(checkpoint_answers, 1);
	cr_assert(checkpoint_ok);
	cr_assert_eq(store.writes, 0);

	cr_assert(!run_recall(run, slice_of("new"), &value));
	run_checkpoint(run, slice_of("new"), slice_of("\x03"), on_checkpoint, nullptr);
	expect_write("check new@5 a1 3");
	answer();
	cr_assert_eq(checkpoint_answers, 2);
	cr_assert(run_recall(run, slice_of("new"), &value));
	cr_assert(slice_is(value, "\x03"));
	report_done("{}");
	answer();
	cr_assert(!run_recall(run, slice_of("new"), &value), "a checkpoint is its phase's own");
	lose_claim();
}

HF_TEST(run, an_answer_after_the_phase_is_waited_for_and_not_told, .init = set_up,
	.fini = tear_down)
{
	checkpoint_answers = 0;
	begin();
	run_checkpoint(run, slice_of("c"), slice_of("\x01"), on_checkpoint, nullptr);
	report((struct phase_result){ .outcome = PHASE_CRASHED, .text = "signal 9" });
	expect_write("check c");
	answer();
	cr_assert_eq(checkpoint_answers, 0);
	expect_write("crash");
	answer_last();
}

HF_TEST(run, a_fenced_checkpoint_stops_the_phase, .init = set_up, .fini = tear_down)
{
	begin();
	checkpoint_ok = true;
	run_checkpoint(run, slice_of("c"), slice_of("\x01"), on_checkpoint, nullptr);
	answer_with(HF_OK, FENCE_LOST, false, (struct slice){});
	cr_assert(!checkpoint_ok);
	cr_assert_eq(phase.losses, 1);
	report((struct phase_result){ .outcome = PHASE_LOST });
	expect_end();
	cr_assert_eq(store.writes, 1);
}

HF_TEST(run, a_checkpoint_without_a_plain_name_fails_the_task, .init = set_up, .fini = tear_down)
{
	static const char *const names[] = { "", "a\x01", "\xff" };
	for (size_t i = 0; i < countof(names); i++) {
		begin();
		run_checkpoint(run, slice_of(names[i]), slice_of("\x01"), on_checkpoint, nullptr);
		turn();
		report((struct phase_result){ .outcome = PHASE_LOST });
		expect_write("failed");
		expect_inside("the name of a checkpoint");
		answer_last();
	}
}

HF_TEST(run, a_state_without_a_json_form_fails_the_task, .init = set_up, .fini = tear_down)
{
	begin();
	report((struct phase_result){ .outcome = PHASE_DONE, .state = { "\xc4\x01x", 3 } });
	expect_write("failed");
	expect_inside("its state cannot be kept");
	answer_last();
}

HF_TEST(run, a_refused_write_is_tried_again_or_given_up, .init = set_up, .fini = tear_down)
{
	begin();
	report_done("{}");
	answer_with(HF_LIMIT, FENCE_HELD, false, (struct slice){});
	cr_assert_str_eq(store.what, "");
	wait_ms(1'100);
	expect_write("step pure");
	answer_with(HF_INVALID, FENCE_HELD, false, (struct slice){});
	wait_ms(1'100);
	expect_write("crash sent the store refused a write");
	answer_last();
}

HF_TEST(run, keys_are_of_the_place_and_the_call, .init = set_up, .fini = tear_down)
{
	char again[DERIVED_KEY_LEN + 1], second[DERIVED_KEY_LEN + 1];
	to_keyed();
	cr_assert_eq(strlen(run_key(run)), DERIVED_KEY_LEN);
	cr_assert_eq(run_derive(run, 0, again, nullptr), HF_OK);
	cr_assert_eq(run_derive(run, 1, second, nullptr), HF_OK);
	cr_assert_str_eq(run_key(run), again);
	cr_assert_str_neq(run_key(run), second);
	cr_assert(slice_is(run_scope(run)->args, "{\"n\": 7,\"effect_id\":\"e-1\"}"));
	cr_assert(slice_is(run_states_json(run), "{\"pure\":{}}"));
	lose_claim();
}

HF_TEST(run, a_task_whose_key_is_not_here_goes_to_another_worker, .init = set_up, .fini = tear_down)
{
	task.key_version = 9;
	begin();
	expect_phase("pure"); /* needs none */
	report_done("{}");
	answer();
	expect_write("again this worker has no key");
	answer_last();
}

HF_TEST(run, progress_is_told_once_and_of_the_whole_task, .init = set_up, .fini = tear_down)
{
	struct beat_task told;
	begin();
	cr_assert(run_progress_take(run, &told));
	cr_assert(slice_is(told.message, "pure"));
	cr_assert(!run_progress_take(run, &told));
	run_progress(run, 0.5, slice_of("chart 1\x02 of 2"));
	cr_assert(run_progress_take(run, &told));
	cr_assert(slice_is(told.message, "pure: chart 1? of 2"));
	cr_assert(told.progress > 0.16 && told.progress < 0.17, "three phases of equal weight");
	run_progress(run, 0.0 / 0.0, slice_of(""));
	cr_assert(run_progress_take(run, &told));
	cr_assert(told.progress >= 0 && told.progress < 0.01);
	lose_claim();
}

HF_TEST(run, arguments_that_do_not_read_back_fail_the_task, .init = set_up, .fini = tear_down)
{
	task.arguments = slice_of("[");
	begin();
	expect_write("failed");
	expect_inside("\"type\":\"corrupt\"");
	answer_last();
}

HF_TEST(run, a_keyed_phase_past_its_window_is_not_sent_blindly, .init = set_up, .fini = tear_down)
{
	hf_cleanup(buf) struct buf a = {};
	struct claimed_step steps[] = { step_at(0, &a, "{}") };
	claim_steps(steps, 1);
	claimed_again(1, 950'000);
	task.first_try_ms = 1'000'000 - 580'000; /* of 600 s, less a margin of 5 % */
	begin();
	cr_assert_eq(phase.starts, 0);
	expect_write("unknown keyed: the window of its key downstream is over");
	answer_last();
}
