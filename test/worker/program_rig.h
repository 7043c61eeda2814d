/* program_rig.h - a pretended worker and run around phase_program.c; included by test_program.c
 * alone, which is a program of its own, since other tests stand on the real ones. */
#pragma once

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/value.h"
#include "test/test.h"
#include "worker/host.h"
#include "worker/phase.h"
#include "worker/program.h"
#include "worker/run.h"
#include "worker/rundir.h"
#include "worker/worker.h"

/* What ends at once has ended long before the grace is over, also where the machine stands still;
 * who waits for its end takes the short one. */
constexpr int64_t GRACE_MS = 600;
static int64_t grace_ms = 20'000;

/* --- the pretended worker and run ------------------------------------------------------------- */

struct worker {
	struct host_pool *hosts;
};

struct run {
	struct worker *worker;
	struct tool tool;
	struct phase_spec phase;
	struct claimed_task task;
	int64_t time_ms;
	void *state;
	/* what it was told */
	bool done;
	enum phase_outcome outcome;
	struct buf result, text, answer, progress, artifact, checkpoint;
	int64_t delay_ms;
	bool maybe_sent, has_checkpoint;
	int progress_count;
	bool may_send, unhurried;
	/* a store that is slow, or says no */
	bool hold, refuse;
	void (*held)(void *ctx, bool ok);
	void *held_ctx;
};

struct host_pool *worker_hosts(const struct worker *worker)
{
	return worker->hosts;
}
int64_t run_grace_ms(const struct run *)
{
	return grace_ms;
}
bool run_is_unhurried(const struct run *run)
{
	return run->unhurried;
}
struct ev_loop *run_loop(const struct run *)
{
	return ev_default_loop(0);
}
struct worker *run_worker(const struct run *run)
{
	return run->worker;
}
const struct tool *run_tool(const struct run *run)
{
	return &run->tool;
}
const struct phase_spec *run_phase(const struct run *run)
{
	return &run->phase;
}
const struct claimed_task *run_task(const struct run *run)
{
	return &run->task;
}
int run_phase_number(const struct run *)
{
	return 0;
}
const char *run_task_id(const struct run *)
{
	return "tsk_test";
}
const char *run_tool_folder(const struct run *)
{
	return "/proc/self";
}
const char *run_key(const struct run *)
{
	return "key0";
}
enum hf_code run_derive(const struct run *, uint32_t call, char *text, struct hf_err *)
{
	snprintf(text, DERIVED_KEY_LEN + 1, "key%u", call);
	return HF_OK;
}
const struct trace *run_trace(const struct run *)
{
	static struct trace trace;
	trace = (struct trace){ .state = slice_of("a=1"), .baggage = slice_of("k=v") };
	return &trace;
}
const char *run_traceparent(const struct run *)
{
	return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
}
struct slice run_states_json(struct run *)
{
	return slice_of("{\"collect\":{\"rows\":60}}");
}
int run_attempt(const struct run *)
{
	return 3;
}
int64_t run_time_left_ms(const struct run *run)
{
	return run->time_ms;
}
bool run_may_send(const struct run *run)
{
	return run->may_send;
}
void run_progress(struct run *run, double, struct slice text)
{
	buf_clear(&run->progress);
	buf_add_slice(&run->progress, text);
	run->progress_count++;
}

static void answer_stored(struct run *run, void (*done)(void *ctx, bool ok), void *ctx)
{
	run->held = done;
	run->held_ctx = ctx;
	if (!run->hold)
		done(ctx, !run->refuse);
}

void run_checkpoint(struct run *run, struct slice, struct slice value,
		    void (*done)(void *ctx, bool ok), void *ctx)
{
	if (!run->has_checkpoint)
		buf_add_slice(&run->checkpoint, value);
	run->has_checkpoint = true;
	answer_stored(run, done, ctx);
}
bool run_recall(struct run *run, struct slice name, struct slice *value)
{
	if (!run->has_checkpoint || !slice_is(name, "a"))
		return false;
	*value = buf_slice(&run->checkpoint);
	return true;
}
void run_artifact_put(struct run *run, struct slice name, struct slice media_type,
		      struct slice content, void (*done)(void *ctx, bool ok), void *ctx)
{
	buf_add_slice(&run->artifact, name);
	buf_add_slice(&run->artifact, media_type);
	buf_add_slice(&run->artifact, content);
	answer_stored(run, done, ctx);
}
void run_phase_done(struct run *run, const struct phase_result *result)
{
	cr_assert_not(run->done, "done twice");
	run->done = true;
	run->outcome = result->outcome;
	run->maybe_sent = result->maybe_sent;
	struct hf_err err;
	if (result->outcome == PHASE_DONE)
		cr_assert_eq(value_to_json(result->state, &run->result, &err), HF_OK);
	else
		buf_add_slice(&run->result, result->state);
	run->delay_ms = result->delay_ms;
	buf_add_text(&run->text, result->text ? result->text : "");
	buf_add_text(&run->answer, result->answer ? result->answer : "");
	ev_break(ev_default_loop(0), EVBREAK_ALL);
}

static char state_dir[64];
static struct worker worker;

static void set_up(void)
{
	snprintf(state_dir, sizeof state_dir, "/tmp/hf-test-program-XXXXXX");
	cr_assert(mkdtemp(state_dir));
	struct hf_err err;
	log_init(LOG_ERROR, "test");
	setenv("HOLDFAST_SECRET", "secret", 1);
	setenv("HOLDFAST_RIG", "rig", 1);
	cr_assert_eq(host_pool_open(ev_default_loop(0), state_dir, &worker.hosts, &err), HF_OK,
		     "%s", err.text);
}

static void tear_down(void)
{
	host_pool_close(worker.hosts);
	cr_expect(rundir_clear(state_dir));
	char name[80];
	snprintf(name, sizeof name, "%s/run", state_dir);
	cr_expect_eq(rmdir(name), -1, "cleared already");
	cr_expect_eq(rmdir(state_dir), 0, "the pool left something behind");
	/* Nothing that this process started is left, not even a zombie. */
	cr_expect_eq(waitpid(-1, nullptr, WNOHANG), -1);
	ev_loop_destroy(ev_default_loop(0));
}

static char self[4096];
static char role[] = "test-tool", plain_role[] = "test-plain", tool_label[] = "sample",
	    phase_label[] = "render";
static char passed[] = "HOLDFAST_RIG", not_set[] = "HOLDFAST_NOT_SET";
static char *command[] = { self, role, nullptr, nullptr };

static void begin(struct run *run, const char *tool, const char *args, enum effect_class effect)
{
	static char *env[] = { passed, not_set, nullptr };
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	cr_assert(len > 0);
	self[len] = '\0';
	command[1] = role;
	command[2] = (char *)(uintptr_t)tool;
	*run = (struct run){
		.worker = &worker,
		.tool = { .name = tool_label, .version = "1" },
		.phase = { .name = phase_label, .effect = effect, .command = command, .env = env },
		.task = { .effect_id = slice_of("e-1"),
			  .arguments = slice_of(args),
			  .inputs = slice_of("{\"who\":{\"age\":36}}") },
		.time_ms = 20'000,
		.may_send = true,
	};
}

static void begin_plain(struct run *run, const char *tool, const char *args,
			enum effect_class effect)
{
	begin(run, tool, args, effect);
	run->phase.plain = true;
	command[1] = plain_role;
}

static void end(struct run *run)
{
	buf_deinit(&run->result);
	buf_deinit(&run->text);
	buf_deinit(&run->answer);
	buf_deinit(&run->progress);
	buf_deinit(&run->artifact);
	buf_deinit(&run->checkpoint);
}

static void finish(struct run *run)
{
	if (!run->state)
		run->state = phase_program.start(run);
	while (!run->done)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
}

static void until_all_are_gone(void)
{
	while (host_pool_count(worker.hosts))
		ev_run(ev_default_loop(0), EVRUN_ONCE);
}

/* Until the tool has said something. */
static void until_progress(struct run *run)
{
	run->state = phase_program.start(run);
	while (!run->progress_count && !run->done)
		ev_run(ev_default_loop(0), EVRUN_ONCE);
	cr_assert_not(run->done, "%s", run->text.data);
}

static int64_t result_int(const struct run *run, const char *name)
{
	struct slice value;
	int64_t number = -1;
	if (json_member(buf_slice(&run->result), name, &value))
		json_integer(value, &number);
	return number;
}
