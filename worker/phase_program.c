/* phase_program.c - one program phase: a tool process gets a `run`, is served until it answers with
 * `result` or `error`, or until it has to be ended.
 *
 *   STARTING ──host, run sent──▶ SERVING ⇄ STORING       STORING: a checkpoint or artifact is on
 *      │                          │   │                  its way to Postgres; no frame is taken
 *      │ no program     answered  │   │ exit, garbage, hang, cancel
 *      ▼                          ▼   ▼
 *    ENDED ◀── host given back ───┘  ENDING ──gone, nothing in flight──▶ ENDED
 *
 * In plain mode the process gets its arguments on stdin, SERVING serves its steps, and an exit with
 * 0 goes on to LEAVING ⇄ STORING, which stores what it left, a file at a time, and then ENDED.
 *
 * Suspended in STARTING (may_send, a free process), SERVING (on_change, time), STORING (done),
 * ENDING (on_change, done). What did not end by an answer is reported only when nothing of the
 * process is left: its next attempt never meets it. */
#include <ev.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/timer.h"
#include "runtime/value.h"
#include "worker/host.h"
#include "worker/last_words.h"
#include "worker/program.h"
#include "worker/run.h"
#include "worker/say.h"
#include "worker/texts.h"
#include "worker/worker.h"

constexpr int64_t SEND_POLL_MS = 50;       /* between two looks at the lease */
constexpr int64_t CLOSED_GRACE_MS = 2'000; /* from the end of its frames to its exit */
constexpr int64_t NO_PROCESS_DELAY_MS = 1'000;
constexpr int EXIT_RETRY = 75;     /* EX_TEMPFAIL */
constexpr int EXIT_NO_START = 126; /* and 127: of this machine, not of this call */

enum next { NEXT_WAIT, NEXT_STAGE, NEXT_REPORT };

static void program_step(struct program *program);

/* --- the end ---------------------------------------------------------------------------------- */

static const char *program_name(const struct program *program)
{
	return run_phase(program->run)->name;
}

[[gnu::format(printf, 3, 0)]] static void
end_with(struct program *program, enum phase_outcome outcome, const char *format, va_list args)
{
	hf_assert(program->stage != STAGE_ENDING);
	program->stage = STAGE_ENDING;
	program->outcome = outcome;
	char text[512];
	vsnprintf(text, sizeof text, format, args);
	buf_add_format(&program->text, "%s %s", program_name(program), text);
	if (program->host)
		host_kill(program->host);
}

void program_end(struct program *program, enum phase_outcome outcome, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	end_with(program, outcome, format, args);
	va_end(args);
}

void program_fail(struct program *program, enum phase_outcome outcome, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	end_with(program, outcome, format, args);
	va_end(args);
	if (program->host)
		last_words_add(program->host, &program->text);
}

static void stop_timers(struct program *program)
{
	ev_timer_stop(run_loop(program->run), &program->wait);
	ev_timer_stop(run_loop(program->run), &program->limit);
}

/* False where it provably was not started. One that never said "ready" may have acted all the same:
 * a script that lacks its "mode": "plain". */
static bool has_begun(const struct program *program)
{
	bool known = program->plain && program->exited && program->host;
	return program->run_sent && !(known && !host_ready(program->host));
}

/* What a stopped program comes to, when it did not answer by itself. */
static void stopped_outcome(struct program *program, bool begun)
{
	if (program->lost) {
		program->outcome = PHASE_LOST;
	} else if (program->outcome == PHASE_STOPPED && program->stage == STAGE_ENDING &&
		   program->foreign && begun) {
		program->outcome = PHASE_UNKNOWN;
		buf_add_text(&program->text, "; its call may have been made");
	} else if ((program->outcome == PHASE_TOOL_ERROR || program->outcome == PHASE_FAILED) &&
		   program->stage == STAGE_ENDING && !program->exited && begun &&
		   run_phase(program->run)->effect == EFFECT_UNSAFE) {
		/* We ended it; it had not said how its work went. */
		program->outcome = PHASE_UNKNOWN;
		buf_add_text(&program->text, "; its call may have been made");
	}
}

/* The last thing that is done with a program. */
static void program_report(struct program *program)
{
	bool begun = has_begun(program);
	stop_timers(program);
	/* One whose answer names no run serves no second. */
	if (program->host && !program->names_run)
		host_kill(program->host);
	if (program->host)
		host_put(program->host);
	stopped_outcome(program, begun);
	bool answered = program->outcome == PHASE_DONE;
	bool declined = program->declined && run_phase(program->run)->effect == EFFECT_UNSAFE;
	bool maybe = program->foreign && begun && !answered && !declined;
	struct phase_result result = {
		.outcome = program->outcome,
		.state = buf_slice(&program->state),
		.text = program->text.len ? program->text.data : nullptr,
		.answer = program->answer.len ? program->answer.data : nullptr,
		.delay_ms = program->outcome == PHASE_AGAIN ? NO_PROCESS_DELAY_MS
			    : program->outcome == PHASE_ASK ? program->wait_ms
							    : 0,
		.maybe_sent = maybe,
		.maybe_executed = maybe,
	};
	run_phase_done(program->run, &result);
	buf_deinit(&program->out);
	buf_deinit(&program->state);
	buf_deinit(&program->text);
	buf_deinit(&program->answer);
	free(program);
}

/* --- callbacks: they note what happened ------------------------------------------------------- */

static void on_host_change(void *ctx)
{
	program_step(ctx);
}

static void on_wait(struct ev_loop *, ev_timer *timer, int)
{
	struct program *program = container_of(timer, struct program, wait);
	program->overdue = program->stopping;
	program_step(program);
}

static void on_limit(struct ev_loop *, ev_timer *timer, int)
{
	struct program *program = container_of(timer, struct program, limit);
	program->timed_out = true;
	program_step(program);
}

void program_storing(struct program *program)
{
	program->stage = STAGE_STORING;
	program->storing = true;
}

void program_stored(void *ctx, bool ok)
{
	struct program *program = ctx;
	hf_assert(program->storing);
	program->storing = false;
	program->stored_ok = ok;
	program_step(program);
}

static void wait_ms(struct program *program, int64_t ms)
{
	timer_set(run_loop(program->run), &program->wait, ms);
}

/* --- plain mode ------------------------------------------------------------------------------- */

/* What stdout says, or the end. */
static bool plain_result(struct program *program, struct slice output)
{
	struct hf_err err;
	struct slice json = json_trim(output);
	if (plain_is_over(host_plain(program->host))) {
		program_end(
		    program, PHASE_TOOL_ERROR,
		    "wrote over %zu bytes to stdout; what is large belongs into an artifact",
		    PLAIN_OUTPUT_BYTES_MAX);
		return false;
	}
	if (json.len == 0) {
		frame_map(&program->state, 0);
		return true;
	}
	if (json_scan(json, &err) != HF_OK) {
		program_fail(program, PHASE_TOOL_ERROR,
			     "exited with 0, but its stdout is not one JSON value (%s); stdout is "
			     "the result alone, logs go to stderr",
			     err.text);
		return false;
	}
	value_from_json(json, &program->state);
	if (program->state.len <= PROGRAM_VALUE_BYTES_MAX)
		return true;
	program_end(program, PHASE_TOOL_ERROR, "gave a result of over %zu bytes",
		    PROGRAM_VALUE_BYTES_MAX);
	return false;
}

static void plain_exit(struct program *program)
{
	struct plain *plain = host_plain(program->host);
	if (!plain) {
		program_end(program, PHASE_CRASHED, "was ended by its worker");
	} else if (plain_result(program, plain_output(plain))) {
		program->leaving = true;
		program->stage = STAGE_LEAVING;
	}
}

static enum next step_leaving(struct program *program)
{
	struct plain_artifact artifact = {};
	struct hf_err err;
	struct plain *plain = host_plain(program->host);
	enum hf_code code = plain ? plain_artifact_next(plain, &artifact, &err)
				  : hf_fail(&err, HF_SYSTEM, "was ended by its worker");
	if (code != HF_OK) {
		program_end(program, code == HF_SYSTEM ? PHASE_CRASHED : PHASE_TOOL_ERROR, "%s",
			    err.text);
		return NEXT_STAGE;
	}
	if (!artifact.name) {
		program->outcome = PHASE_DONE;
		return NEXT_REPORT;
	}
	program_storing(program);
	run_artifact_put(program->run, slice_of(artifact.name), slice_of(artifact.media_type),
			 artifact.content, program_stored, program);
	return NEXT_STAGE;
}

static void fail_by_exit(struct program *program, int code)
{
	bool spoke = program->plain || host_ready(program->host);
	const char *hint = spoke ? ""
				 : "; it never spoke on descriptor 3: a program without an SDK "
				   "needs \"mode\": \"plain\" in tool.json";
	if (code == 0)
		program_fail(program, PHASE_CRASHED, "ended without a result (exit 0)%s", hint);
	else
		program_fail(program, PHASE_TOOL_ERROR, "failed (exit %d)%s", code, hint);
}

/* It is no longer there, and everything it said was heard. */
static void end_by_exit(struct program *program, int status)
{
	buf_add_text(&program->answer, host_exit_text(program->host));
	program->exited = true;
	if (WIFSIGNALED(status))
		program_fail(program, PHASE_CRASHED, "was killed by %s",
			     host_exit_text(program->host));
	else if (WEXITSTATUS(status) >= EXIT_NO_START && !host_ready(program->host))
		program_fail(program, PHASE_CRASHED, "could not be started here");
	else if (WEXITSTATUS(status) == EXIT_RETRY)
		program_fail(program, PHASE_RETRY, "asked for a retry (exit %d)", EXIT_RETRY);
	else if (WEXITSTATUS(status) == 0 && program->plain)
		plain_exit(program);
	else
		fail_by_exit(program, WEXITSTATUS(status));
	program->declined = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_RETRY;
}

/* Its frames ended; as a rule its exit is only a moment away. */
static void wait_for_exit(struct program *program)
{
	if (!program->closed) {
		program->closed = true;
		wait_ms(program, CLOSED_GRACE_MS);
	} else if (!ev_is_active(&program->wait)) {
		program_fail(program, PHASE_CRASHED, "closed its frame pipe and went on");
	}
}

/* --- the machine ------------------------------------------------------------------------------ */

static enum hf_code take_host(struct program *program, struct hf_err *err)
{
	struct run *run = program->run;
	const struct tool *tool = run_tool(run);
	const struct phase_spec *phase = run_phase(run);
	struct host_spec spec = { .tool = tool->name,
				  .version = tool->version,
				  .folder = run_tool_folder(run),
				  .command = phase->command,
				  .env = phase->env };
	struct host_pool *hosts = worker_hosts(run_worker(run));
	if (!program->plain)
		return host_take(hosts, &spec, on_host_change, program, &program->host, err);
	struct slice arguments = run_task(run)->arguments;
	char **vars = say_vars(run);
	struct plain_spec plain = { .input = arguments.len ? arguments : slice_of("{}"),
				    .states = run_states_json(run),
				    .vars = vars };
	spec.plain = &plain;
	enum hf_code code = host_take(hosts, &spec, on_host_change, program, &program->host, err);
	texts_free(vars);
	return code;
}

/* What it does may be done from here on. */
static void begin_serving(struct program *program)
{
	program->run_sent = true;
	program->stage = STAGE_SERVING;
}

static enum next step_starting(struct program *program)
{
	struct run *run = program->run;
	if (program->stopping) {
		program_end(program, PHASE_STOPPED, "was not started");
		return NEXT_STAGE;
	}
	/* V4 */
	if (program->foreign && !run_may_send(run)) {
		wait_ms(program, SEND_POLL_MS);
		return NEXT_WAIT;
	}
	struct hf_err err;
	enum hf_code code = take_host(program, &err);
	if (code != HF_OK)
		program_end(program, code == HF_MISSING ? PHASE_FAILED : PHASE_AGAIN,
			    "cannot start: %s", err.text);
	else if (program->plain || program_say_run(program))
		begin_serving(program);
	return NEXT_STAGE;
}

static enum next step_serving(struct program *program)
{
	struct frame frame;
	struct hf_err err;
	int status = 0;
	/* An answer that does not leave says the same as the exit behind it. */
	if (host_sending(program->host) && !host_exited(program->host, &status))
		return NEXT_WAIT;
	struct plain *plain = host_plain(program->host);
	if (plain && plain_is_over(plain)) {
		plain_result(program, (struct slice){});
		return NEXT_STAGE;
	}
	enum host_read read = host_read(program->host, &frame, &err);
	if (read == HOST_FRAME)
		return program_hear(program, &frame) ? NEXT_REPORT : NEXT_STAGE;
	if (read == HOST_GARBAGE)
		program_garbage(program, err.text);
	else if (host_exited(program->host, &status))
		end_by_exit(program, status);
	else if (read == HOST_CLOSED)
		wait_for_exit(program);
	return program->stage != STAGE_SERVING ? NEXT_STAGE : NEXT_WAIT;
}

static enum next step_storing(struct program *program)
{
	if (program->storing)
		return NEXT_WAIT;
	if (program->stored_ok && program->leaving) {
		program->stage = STAGE_LEAVING;
	} else if (program->stored_ok) {
		program->stage = STAGE_SERVING;
		program_say(program, "ok");
	} else {
		/* The fence said no; the cancel that comes with it finds this already ending. */
		program->lost = true;
		program_end(program, PHASE_LOST, "lost its claim");
	}
	return NEXT_STAGE;
}

/* The proof that its next attempt never meets it. */
static void say_gone(const struct program *program)
{
	const char *id = run_task_id(program->run);
	log_info("tool process killed, reaped", "task_id", id, "phase", program_name(program),
		 "after_ms", LOG_INT(host_took_ms(program->host)), nullptr);
}

static enum next step_ending(struct program *program)
{
	bool gone = !program->host || host_gone(program->host);
	if (gone && program->host && !program->exited && !program->storing)
		say_gone(program);
	return gone && !program->storing ? NEXT_REPORT : NEXT_WAIT;
}

/* Wishes from outside come before what the tool does. */
static void heed_wishes(struct program *program)
{
	if (program->stage == STAGE_ENDING)
		return;
	bool wait = program->foreign && program->run_sent && !program->overdue;
	if (program->lost)
		program_end(program, PHASE_LOST, "lost its claim");
	else if (program->stopping && program->host && !wait)
		program_end(program, PHASE_STOPPED, "was stopped");
	else if (program->timed_out)
		program_fail(program, program->stopping ? PHASE_STOPPED : PHASE_RETRY,
			     "timed out after %lld ms", (long long)program->limit_ms);
}

static enum next step_once(struct program *program)
{
	heed_wishes(program);
	switch (program->stage) {
	case STAGE_STARTING:
		return step_starting(program);
	case STAGE_SERVING:
		return step_serving(program);
	case STAGE_STORING:
		return step_storing(program);
	case STAGE_LEAVING:
		return step_leaving(program);
	case STAGE_ENDING:
		return step_ending(program);
	}
	hf_assert(false);
	return NEXT_WAIT;
}

/* What happens while this is on the stack is seen by the next round of its loop. */
static void program_step(struct program *program)
{
	if (program->stepping)
		return;
	program->stepping = true;
	enum next next;
	do {
		next = step_once(program);
	} while (next == NEXT_STAGE);
	program->stepping = false;
	if (next == NEXT_REPORT)
		program_report(program);
}

/* --- the phase kind --------------------------------------------------------------------------- */

static void *program_start(struct run *run)
{
	struct program *program = hf_alloc(sizeof *program);
	program->run = run;
	program->stage = STAGE_STARTING;
	program->foreign = effect_is_foreign(run_phase(run)->effect);
	program->plain = run_phase(run)->plain;
	program->limit_ms = run_time_left_ms(run);
	ev_init(&program->wait, on_wait);
	ev_init(&program->limit, on_limit);
	/* From the loop, so that the end never comes before this start has returned. */
	wait_ms(program, 0);
	timer_set(run_loop(run), &program->limit, program->limit_ms);
	return program;
}

static void program_stop(void *state, bool lost)
{
	struct program *program = state;
	bool wait =
	    !lost && program->foreign && program->run_sent && program->stage != STAGE_ENDING;
	program->lost |= lost;
	program->stopping = true;
	/* Pure work stops from the loop as well: the caller is not called back from here. */
	if (lost || !program->closed)
		wait_ms(program, wait ? run_grace_ms(program->run) : 0);
	if (wait && !program->plain && !program->told && !run_is_unhurried(program->run)) {
		program->told = true;
		program_say(program, "cancel");
	}
}

const struct phase_kind phase_program = { program_start, program_stop };
