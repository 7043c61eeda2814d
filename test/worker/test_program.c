/* test_program.c - program phases with real processes and a pretended run: what each way of ending
 * comes to, and that nothing is left of it. The tools are this program itself, started with the
 * name of one as its last argument; those in plain mode stand further below. */
#include "test/worker/program_rig.h"

/* --- tests ------------------------------------------------------------------------------------ */

struct ending {
	const char *tool, *args;
	enum effect_class effect;
	int64_t time_ms;
	enum phase_outcome outcome;
	const char *text; /* part of the text */
	bool maybe_sent;
};

static const struct ending endings[] = {
	{ "twice", "{\"n\":4}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "twice", "", EFFECT_KEYED, 0, PHASE_DONE, "", false },
	{ "no", "{\"month\":\"2016-01\"}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "no data for 2016-01",
	  false },
	{ "later", "{}", EFFECT_KEYED, 0, PHASE_RETRY, "not now", true },
	{ "silent", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "forgot the result", false },
	{ "killed", "{}", EFFECT_PURE, 0, PHASE_CRASHED,
	  "render was killed by signal 15 (Terminated). Its last output: about to die", false },
	{ "killed", "{}", EFFECT_KEYED, 0, PHASE_CRASHED, "signal 15", true },
	{ "exit", "{\"n\":3}", EFFECT_PURE, 0, PHASE_TOOL_ERROR,
	  "render failed (exit 3). Its last output: last words", false },
	{ "exit", "{\"n\":75}", EFFECT_PURE, 0, PHASE_RETRY, "asked for a retry (exit 75)", false },
	{ "exit", "{\"n\":0}", EFFECT_PURE, 0, PHASE_CRASHED,
	  "without a result (exit 0). Its last output: last words", false },
	{ "hanging", "{}", EFFECT_PURE, 5'000, PHASE_RETRY, "timed out after 5000 ms. Its last",
	  false },
	{ "hanging", "{}", EFFECT_KEYED, 3'000, PHASE_RETRY, "timed out after 3000 ms", true },
	{ "garbage", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "broke the frame protocol", false },
	{ "unknown_type", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "of a type that is not in it",
	  false },
	{ "cut", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "without a result (exit 0)", false },
	{ "closing", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "closed its frame pipe", false },
	{ "talkative", "{\"n\":4}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "flooding", "{\"n\":4}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "asking_only", "{}", EFFECT_PURE, 300, PHASE_RETRY, "timed out", false },
	{ "not_json", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "has no JSON form", false },
	{ "deep", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "has no JSON form", false },
	{ "not_utf8", "{}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "huge", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "belong into an artifact", false },
	{ "no such tool", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR,
	  "render failed (exit 99); it never spoke on descriptor 3: a program without an SDK needs "
	  "\"mode\": \"plain\"",
	  false },
	{ "no such tool", "{}", EFFECT_UNSAFE, 0, PHASE_TOOL_ERROR, "it never spoke", true },
};

/* `run` was begun for it. */
static void check_ending(struct run *run, const struct ending *ending)
{
	if (ending->time_ms)
		run->time_ms = ending->time_ms;
	finish(run);
	cr_expect_eq(run->outcome, ending->outcome, "%s %s: outcome %d, %s", ending->tool,
		     ending->args, run->outcome, run->text.data);
	cr_expect(strstr(run->text.data, ending->text), "%s: %s", ending->tool, run->text.data);
	cr_expect_eq(run->maybe_sent, ending->maybe_sent, "%s", ending->tool);
	end(run);
}

HF_TEST(program, each_ending_has_its_outcome, .init = set_up, .fini = tear_down)
{
	for (size_t i = 0; i < countof(endings); i++) {
		struct run run;
		begin(&run, endings[i].tool, endings[i].args, endings[i].effect);
		check_ending(&run, &endings[i]);
	}
}

HF_TEST(program, a_question_ends_the_process_until_it_is_answered, .init = set_up,
	.fini = tear_down)
{
	static const char asked[] = "{\"phase\":0,\"how\":null,\"request\":null,\"answer\":null}";
	static const char declined[] =
	    "{\"phase\":0,\"how\":\"answer\",\"request\":{\"method\":\"roots/list\"},"
	    "\"answer\":{\"roots\":[],\"action\":\"was read\"}}";
	static const char silent[] =
	    "{\"phase\":0,\"how\":\"silence\",\"request\":null,\"answer\":null}";
	static const char elsewhere[] =
	    "{\"phase\":1,\"how\":null,\"request\":null,\"answer\":null}";
	static const struct {
		const char *tool, *args, *row;
		enum effect_class effect;
		int asks;
		enum phase_outcome outcome;
		const char *said; /* in the result or the text */
		bool maybe_sent;
	} cases[] = {
		{ "curious", "{\"key\":\"k\",\"ms\":70}", nullptr, EFFECT_PURE, 1, PHASE_ASK,
		  "[{\"key\":\"k\",\"request\":{\"method\":\"elicitation/create\"", false },
		{ "curious", "{\"key\":\"k\",\"ms\":70}", asked, EFFECT_UNSAFE, 1, PHASE_ASK,
		  "asks: Sure?", false },
		{ "curious", "{\"key\":\"k\",\"ms\":70}", nullptr, EFFECT_KEYED, 1, PHASE_ASK,
		  "asks: Sure?", true },
		{ "curious", "{\"key\":\"k\"}", declined, EFFECT_PURE, 1, PHASE_DONE,
		  "{\"action\":\"was read\"}", false },
		{ "curious", "{\"key\":\"k\"}", silent, EFFECT_PURE, 1, PHASE_DONE,
		  "{\"action\":\"none\"}", false },
		{ "curious", "{\"key\":\"k\"}", elsewhere, EFFECT_PURE, 1, PHASE_FAILED,
		  "another phase has used", false },
		{ "curious", "{\"key\":\"k\"}", nullptr, EFFECT_PURE, 2, PHASE_FAILED,
		  "does not declare", false },
		{ "curious", "{\"key\":\"k.2\"}", nullptr, EFFECT_PURE, 1, PHASE_FAILED,
		  "the key of a question", false },
		{ "curious", "{\"key\":\"k\",\"ms\":-1}", nullptr, EFFECT_PURE, 1, PHASE_ASK,
		  "asks", false },
		{ "rude", "{}", nullptr, EFFECT_PURE, 1, PHASE_FAILED, "must be an object", false },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		struct run run;
		struct claimed_step step = { .kind = STEP_INBOX, .name = slice_of("k") };
		begin(&run, cases[i].tool, cases[i].args, cases[i].effect);
		run.task.asks = cases[i].asks;
		if (cases[i].row) {
			step.state = slice_of(cases[i].row);
			run.task.steps = &step;
			run.task.steps_count = 1;
		}
		finish(&run);
		cr_expect_eq(run.outcome, cases[i].outcome, "case %zu: %d, %s", i, run.outcome,
			     run.text.data);
		const char *state = run.result.data ? run.result.data : "";
		cr_expect(strstr(state, cases[i].said) || strstr(run.text.data, cases[i].said),
			  "case %zu: %s, %s", i, state, run.text.data);
		cr_expect_eq(run.maybe_sent, cases[i].maybe_sent, "case %zu", i);
		if (run.outcome == PHASE_ASK)
			cr_expect_eq(run.delay_ms, strstr(cases[i].args, "70") ? 70 : 0, "case %zu",
				     i);
		end(&run);
	}
}

/* A folder can be "executed"; only exec finds out, and that is this machine's fault. */
static void check_missing(struct run *run, char *program)
{
	char *words[] = { program, nullptr };
	run->phase.command = words;
	finish(run);
	cr_expect_eq(run->outcome, strcmp(program, "./cwd") ? PHASE_FAILED : PHASE_CRASHED,
		     "%s: %s", program, run->text.data);
	cr_expect_not(run->maybe_sent, "%s", program);
	end(run);
}

HF_TEST(program, a_program_that_is_not_there_fails_at_once, .init = set_up, .fini = tear_down)
{
	static char missing[][24] = { "./none", "no-such-program-here", "sub/none", "./cwd" };
	for (size_t i = 0; i < countof(missing); i++) {
		struct run run;
		begin(&run, "twice", "{}", EFFECT_PURE);
		check_missing(&run, missing[i]);
	}
}

HF_TEST(program, everything_that_can_be_asked_is_answered, .init = set_up, .fini = tear_down)
{
	static const char want[] =
	    "{\"age\":36,\"before\":false,\"after\":41,\"keys\":[\"key0\",\"key1\"],"
	    "\"rows\":60,\"attempt\":3,\"left\":true}";
	struct run run;
	begin(&run, "steps", "{}", EFFECT_KEYED);
	finish(&run);
	cr_assert_eq(run.outcome, PHASE_DONE, "%s", run.text.data);
	cr_expect_str_eq(run.result.data, want);
	cr_expect_str_eq(run.progress.data, "half of render");
	cr_expect_eq(run.artifact.len, strlen("page.txttext/plain") + 5);

	struct run second;
	begin(&second, "steps", "{}", EFFECT_KEYED);
	second.has_checkpoint = true;
	value_from_json(slice_of("\"first\""), &second.checkpoint);
	finish(&second);
	cr_expect(strstr(second.result.data, "{\"age\":36,\"before\":true,\"after\":\"first\""),
		  "%s", second.result.data);
	end(&run);
	end(&second);
}

HF_TEST(program, a_process_serves_many_runs_and_is_then_replaced, .init = set_up, .fini = tear_down)
{
	int64_t first = 0;
	for (int i = 0; i <= HOST_TASKS_MAX; i++) {
		struct run run;
		begin(&run, "twice", "{\"n\":21}", EFFECT_PURE);
		finish(&run);
		cr_assert_eq(result_int(&run, "twice"), 42);
		if (i == 0)
			first = result_int(&run, "pid");
		cr_assert_eq(result_int(&run, "pid") == first, i < HOST_TASKS_MAX, "run %d", i);
		end(&run);
	}
}

HF_TEST(program, a_second_result_never_answers_the_next_task, .init = set_up, .fini = tear_down)
{
	for (int i = 0; i < 20; i++) {
		char args[32];
		snprintf(args, sizeof args, "{\"n\":%d}", i);
		struct run run;
		begin(&run, "doubled", args, EFFECT_PURE);
		finish(&run);
		/* The process is replaced; where its second word came late, the run is done again.
		 */
		if (run.outcome == PHASE_DONE)
			cr_assert_eq(result_int(&run, "twice"), 2 * i);
		else
			cr_assert_eq(run.outcome, PHASE_CRASHED, "%s", run.text.data);
		end(&run);
	}
}

HF_TEST(program, runs_at_once_have_processes_of_their_own, .init = set_up, .fini = tear_down,
	.timeout = 30)
{
	constexpr int count = 7;
	struct run runs[count];
	for (int i = 0; i < count; i++) {
		begin(&runs[i], "twice", "{\"n\":1}", EFFECT_PURE);
		runs[i].state = phase_program.start(&runs[i]);
	}
	for (int i = 0; i < count; i++)
		finish(&runs[i]);
	for (int i = 0; i < count; i++) {
		for (int other = 0; other < i; other++)
			cr_expect_neq(result_int(&runs[i], "pid"), result_int(&runs[other], "pid"));
		end(&runs[i]);
	}
	/* Some wait for the next runs, the rest are let go. */
	while (host_pool_count(worker.hosts) > HOST_IDLE_MAX)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	for (int i = 0; i < 20; i++) {
		usleep(1'000);
		ev_run(ev_default_loop(0), EVRUN_NOWAIT);
	}
	cr_expect_eq(host_pool_count(worker.hosts), HOST_IDLE_MAX);
	host_pool_kill(worker.hosts);
	until_all_are_gone();
}

static void check_family_is_dead(const struct run *run)
{
	pid_t pids[3];
	cr_assert_eq(sscanf(run->progress.data, "%d %d %d", &pids[0], &pids[1], &pids[2]), 3);
	for (int i = 0; i < 3; i++) {
		cr_expect_eq(kill(pids[i], 0), -1, "member %d of the family lives", i);
		cr_expect_eq(errno, ESRCH);
	}
}

HF_TEST(program, cancel_kills_and_reaps_the_whole_family, .init = set_up, .fini = tear_down)
{
	for (int lost = 0; lost < 2; lost++) {
		struct run run;
		begin(&run, "family", "{}", EFFECT_PURE);
		until_progress(&run);
		phase_program.stop(run.state, lost);
		phase_program.stop(run.state, lost);
		cr_assert_not(run.done, "cancel calls nobody back");
		finish(&run);
		cr_expect_eq(run.outcome, lost ? PHASE_LOST : PHASE_STOPPED, "%s", run.text.data);
		check_family_is_dead(&run);
		end(&run);
	}
	cr_assert_eq(host_pool_count(worker.hosts), 0);
}

HF_TEST(program, a_crash_leaves_nobody_for_the_next_attempt, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "family", "{\"n\":1}", EFFECT_PURE);
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_CRASHED);
	check_family_is_dead(&run);
	end(&run);
}

HF_TEST(program, a_cancelled_keyed_run_may_still_answer, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "patient", "{\"n\":3}", EFFECT_KEYED);
	until_progress(&run);
	phase_program.stop(run.state, false);
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_DONE);
	cr_expect_eq(result_int(&run, "twice"), 6);
	end(&run);
}

static void expect_of_stopped(const char *tool, bool unhurried, enum phase_outcome outcome)
{
	struct run run;
	begin(&run, tool, "{}", EFFECT_KEYED);
	run.unhurried = unhurried;
	until_progress(&run);
	phase_program.stop(run.state, false);
	finish(&run);
	cr_expect_eq(run.outcome, outcome, "%s", run.text.data);
	end(&run);
}

HF_TEST(program, a_keyed_run_that_says_it_stopped_is_cancelled, .init = set_up, .fini = tear_down)
{
	expect_of_stopped("obedient", false, PHASE_STOPPED);
}

HF_TEST(program, an_error_of_one_that_was_not_asked_to_stop_is_its_own, .init = set_up,
	.fini = tear_down)
{
	expect_of_stopped("slow_to_refuse", true, PHASE_TOOL_ERROR);
}

HF_TEST(program, a_keyed_run_that_does_not_heed_a_cancel_is_unknown, .init = set_up,
	.fini = tear_down)
{
	struct run run;
	grace_ms = GRACE_MS;
	begin(&run, "family", "{}", EFFECT_KEYED);
	until_progress(&run);
	int64_t before = clock_boot_ms();
	phase_program.stop(run.state, false);
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_UNKNOWN);
	cr_expect(run.maybe_sent);
	cr_expect_geq(clock_boot_ms() - before, GRACE_MS, "it got its grace");
	check_family_is_dead(&run);
	end(&run);
}

HF_TEST(program, a_lost_claim_gives_no_grace, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "family", "{}", EFFECT_KEYED);
	until_progress(&run);
	phase_program.stop(run.state, false);
	phase_program.stop(run.state, true);
	int64_t before = clock_boot_ms();
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_LOST);
	cr_expect_lt(clock_boot_ms() - before, grace_ms);
	end(&run);
}

HF_TEST(program, nothing_keyed_starts_on_a_stale_lease, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "twice", "{\"n\":1}", EFFECT_KEYED);
	run.may_send = false;
	run.state = phase_program.start(&run);
	for (int i = 0; i < 3; i++)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	cr_assert_eq(host_pool_count(worker.hosts), 0);
	run.may_send = true;
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_DONE);

	struct run stopped;
	begin(&stopped, "twice", "{}", EFFECT_KEYED);
	stopped.may_send = false;
	stopped.state = phase_program.start(&stopped);
	phase_program.stop(stopped.state, false);
	finish(&stopped);
	cr_expect_eq(stopped.outcome, PHASE_STOPPED, "it never ran");
	cr_expect_not(stopped.maybe_sent);
	end(&run);
	end(&stopped);
}

HF_TEST(program, closing_the_pool_ends_hosts_in_use_and_calls_nobody, .init = set_up,
	.fini = tear_down)
{
	struct host_pool *kept = worker.hosts;
	struct hf_err err;
	struct run run;
	cr_assert_eq(host_pool_open(ev_default_loop(0), state_dir, &worker.hosts, &err), HF_OK);
	begin(&run, "family", "{}", EFFECT_PURE);
	until_progress(&run);
	host_pool_close(worker.hosts);
	cr_expect_not(run.done);
	check_family_is_dead(&run);
	struct program *program = run.state;
	program->host = nullptr; /* which it must not touch any more */
	phase_program.stop(program, true);
	finish(&run);
	worker.hosts = kept;
	end(&run);
}

HF_TEST(program, an_end_waits_for_what_is_being_stored, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "storing", "{}", EFFECT_PURE);
	run.hold = true;
	run.state = phase_program.start(&run);
	while (!run.held)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	phase_program.stop(run.state, false);
	until_all_are_gone();
	cr_assert_not(run.done, "the checkpoint is still on its way");
	run.held(run.held_ctx, true);
	cr_assert(run.done);
	cr_expect_eq(run.outcome, PHASE_STOPPED);
	end(&run);
}

HF_TEST(program, a_checkpoint_that_the_fence_refuses_ends_the_run, .init = set_up,
	.fini = tear_down)
{
	struct run run;
	begin(&run, "storing", "{}", EFFECT_PURE);
	run.refuse = true;
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_LOST);
	end(&run);
}

HF_TEST(program, the_environment_is_only_what_is_named, .init = set_up, .fini = tear_down)
{
	static const char *const want[] = { "\"PATH=/usr/local/bin:/usr/bin:/bin\"",
					    "\"HOME=",
					    "\"TMPDIR=",
					    "\"LANG=C.UTF-8\"",
					    "\"HOLDFAST_TOOL_DIR=",
					    "\"HOLDFAST_RUN_DIR=",
					    "\"HOLDFAST_RIG=rig\"" };
	struct run run;
	begin(&run, "environment", "{}", EFFECT_PURE);
	finish(&run);
	struct slice value;
	size_t at = 0, count = 0;
	while (json_array_next(buf_slice(&run.result), &at, &value))
		count++;
	cr_expect_eq(count, countof(want), "%s", run.result.data);
	for (size_t i = 0; i < countof(want); i++)
		cr_expect(strstr(run.result.data, want[i]), "%s", want[i]);
	end(&run);
}

HF_TEST(program, each_run_finds_an_empty_folder_and_four_descriptors, .init = set_up,
	.fini = tear_down)
{
	for (int i = 0; i < 3; i++) {
		struct run run;
		begin(&run, "files", "{}", EFFECT_PURE);
		finish(&run);
		cr_expect_str_eq(run.result.data, "{\"fresh\":true,\"open\":4,\"leader\":true}");
		end(&run);
	}
}

HF_TEST(program, what_a_killed_worker_left_is_removed_by_the_next, .init = set_up,
	.fini = tear_down)
{
	/* A worker in another process: it is killed while its tool's family runs. */
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	pid_t other = fork();
	if (other == 0) {
		ev_loop_fork(ev_default_loop(0));
		struct hf_err err;
		struct run run;
		cr_assert_eq(host_pool_open(ev_default_loop(0), state_dir, &worker.hosts, &err),
			     HF_OK);
		begin(&run, "family", "{}", EFFECT_PURE);
		until_progress(&run);
		ssize_t sent = write(ends[1], run.progress.data, run.progress.len + 1);
		(void)sent;
		kill(getpid(), SIGKILL);
	}
	struct run run = {};
	char text[64] = {};
	cr_assert(read(ends[0], text, sizeof text - 1) > 0);
	buf_add_text(&run.progress, text);
	cr_assert_eq(waitpid(other, nullptr, 0), other);

	struct host_pool *next;
	struct hf_err err;
	cr_assert_eq(host_pool_open(ev_default_loop(0), state_dir, &next, &err), HF_OK);
	/* This process is their subreaper by chance, so it has to reap them. */
	for (int i = 0; i < 400 && waitpid(-1, nullptr, WNOHANG) >= 0; i++)
		usleep(5'000);
	check_family_is_dead(&run);
	host_pool_close(next);
	end(&run);
}

/* --- plain mode ------------------------------------------------------------------------------- */

static const struct ending plain_endings[] = {
	{ "printing", "\" {\"n\": [1, \"x\"]}\n\"", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "printing", "\"\n\"", EFFECT_KEYED, 0, PHASE_DONE, "", false },
	{ "printing", "\"done!\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR,
	  "render exited with 0, but its stdout is not one JSON value (byte 0: a value was due); "
	  "stdout is the result alone, logs go to stderr. Its stdout began: \"done!\". Its stderr "
	  "is "
	  "empty",
	  false },
	{ "printing", "\" a\x01\xff \"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "began: \"a??\"",
	  false },
	{ "printing", "\"{} {}\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "is not one JSON value",
	  false },
	{ "printing", "\"{\"a\":1,\"a\":2}\"", EFFECT_KEYED, 0, PHASE_TOOL_ERROR,
	  "is not one JSON value", true },
	{ "exit", "75", EFFECT_KEYED, 0, PHASE_RETRY, "asked for a retry (exit 75)", true },
	{ "exit", "3", EFFECT_PURE, 0, PHASE_TOOL_ERROR,
	  "render failed (exit 3). Its stdout began: \"{}\". Its last output: last words", false },
	{ "exit", "127", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "render failed (exit 127)", false },
	{ "killed", "{}", EFFECT_PURE, 0, PHASE_CRASHED, "killed by signal 9", false },
	{ "hanging", "{}", EFFECT_PURE, 5'000, PHASE_RETRY, "timed out after 5000 ms. Its last",
	  false },
	{ "flooding", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "wrote over 1048576 bytes", false },
	{ "leaving", "{}", EFFECT_PURE, 0, PHASE_DONE, "", false },
	{ "leaving", "\"folder\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "left odd, which is no file",
	  false },
	{ "leaving", "\"link\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "left odd, which is no file",
	  false },
	{ "leaving", "\"fifo\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "left odd, which is no file",
	  false },
	{ "leaving", "\"many\"", EFFECT_PURE, 0, PHASE_TOOL_ERROR, "left more than 64 artifacts",
	  false },
	{ "no such tool", "{}", EFFECT_PURE, 0, PHASE_TOOL_ERROR,
	  "render failed (exit 99). Its stderr is empty", false },
};

HF_TEST(plain, each_ending_has_its_outcome, .init = set_up, .fini = tear_down)
{
	for (size_t i = 0; i < countof(plain_endings); i++) {
		const struct ending *ending = &plain_endings[i];
		struct run run;
		begin_plain(&run, ending->tool, ending->args, ending->effect);
		check_ending(&run, ending);
	}
	struct run run;
	begin_plain(&run, "printing", "\"\n\"", EFFECT_PURE);
	finish(&run);
	cr_expect_str_eq(run.result.data, "{}");
	end(&run);
	/* No process is kept for another run. */
	until_all_are_gone();
}

HF_TEST(plain, a_program_that_cannot_be_started_is_no_word_of_the_tool, .init = set_up,
	.fini = tear_down)
{
	static char missing[][8] = { "./none", "./cwd" };
	for (size_t i = 0; i < countof(missing); i++) {
		struct run run;
		begin_plain(&run, "exit", "0", EFFECT_UNSAFE);
		check_missing(&run, missing[i]);
	}
}

HF_TEST(plain, it_never_gets_the_process_of_another_run, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin(&run, "twice", "{}", EFFECT_PURE);
	finish(&run);
	cr_assert_eq(host_pool_count(worker.hosts), 1, "one waits");
	end(&run);
	/* The same command in plain mode: it finds no frames there, and ends. */
	begin(&run, "twice", "{}", EFFECT_PURE);
	run.phase.plain = true;
	run.time_ms = 5'000;
	finish(&run);
	cr_expect_neq(run.outcome, PHASE_RETRY, "%s", run.text.data);
	end(&run);
}

HF_TEST(plain, it_finds_its_arguments_states_and_place, .init = set_up, .fini = tear_down)
{
	static const char want[] =
	    "{\"args\":{\"month\":1},\"state\":{\"collect\":{\"rows\":60}},"
	    "\"input\":{\"who\":{\"age\":36}},\"TASK\":\"tsk_test\","
	    "\"TOOL\":\"sample\",\"PHASE\":\"render\",\"ATTEMPT\":\"3\",\"EFFECT_ID\":\"e-1\","
	    "\"KEY\":\"key0\",\"RIG\":\"rig\",\"timely\":1,\"fresh\":1,\"open\":3,\"secret\":0,"
	    "\"path\":1}";
	for (int i = 0; i < 2; i++) {
		struct run run;
		begin_plain(&run, "environment", "{\"month\":1}", EFFECT_PURE);
		finish(&run);
		cr_assert_eq(run.outcome, PHASE_DONE, "%s", run.text.data);
		cr_expect_str_eq(run.result.data, want);
		end(&run);
	}
}

HF_TEST(plain, steps_are_served_one_by_one_whoever_asks, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin_plain(&run, "steps", "{}", EFFECT_PURE);
	finish(&run);
	cr_assert_eq(run.outcome, PHASE_DONE, "%s", run.text.data);
	cr_expect_str_eq(run.result.data, "[\"nil\",\"ok\",\"one\",\"one\",\"one\",\"\",\"\",\"\","
					  "\"\",\"one\"]");
	end(&run);
	begin_plain(&run, "crowd", "{}", EFFECT_PURE);
	finish(&run);
	cr_expect_str_eq(run.result.data, "24");
	end(&run);
}

HF_TEST(plain, what_it_leaves_is_stored_by_name_if_it_ends_well, .init = set_up, .fini = tear_down)
{
	struct run run;
	begin_plain(&run, "leaving", "{}", EFFECT_PURE);
	finish(&run);
	cr_expect_str_eq(run.artifact.data,
			 "a.txttext/plain; charset=utf-8firstb.PDFapplication/pdfsecond");
	end(&run);
	begin_plain(&run, "leaving", "\"fail\"", EFFECT_PURE);
	finish(&run);
	cr_expect_eq(run.artifact.len, 0);
	end(&run);
	begin_plain(&run, "leaving", "{}", EFFECT_PURE);
	run.refuse = true;
	finish(&run);
	cr_expect_eq(run.outcome, PHASE_LOST);
	end(&run);
}

HF_TEST(plain, a_cancel_ends_pure_work_at_once_and_keyed_work_after_its_grace, .init = set_up,
	.fini = tear_down)
{
	for (int keyed = 0; keyed < 2; keyed++) {
		struct run run;
		grace_ms = keyed ? GRACE_MS : grace_ms;
		begin_plain(&run, "hanging", "{}", keyed ? EFFECT_KEYED : EFFECT_PURE);
		run.state = phase_program.start(&run);
		while (!host_pool_count(worker.hosts))
			ev_run(ev_default_loop(0), EVRUN_ONCE);
		int64_t before = clock_boot_ms();
		phase_program.stop(run.state, false);
		finish(&run);
		cr_expect_eq(run.outcome, keyed ? PHASE_UNKNOWN : PHASE_STOPPED, "%s",
			     run.text.data);
		cr_expect_eq(clock_boot_ms() - before >= grace_ms, keyed);
		end(&run);
	}
}
