#include "test/worker/run_rig.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/json.h"
#include "runtime/key.h"
#include "runtime/log.h"
#include "runtime/value.h"
#include "test/test.h"
#include "worker/phase.h"
#include "worker/run.h"
#include "worker/worker.h"

/* --- the worker --------------------------------------------------------------------------------
 */

static struct ev_loop *loop;
static struct keyring *keyring;
struct config config = { .drain_ms = 700, .cancel_grace_ms = 900 };
int ended;
int64_t ended_due_ms;

struct ev_loop *worker_loop(const struct worker *)
{
	return loop;
}

const struct config *worker_config(const struct worker *)
{
	return &config;
}

struct store *worker_store(const struct worker *)
{
	return nullptr;
}

const struct keyring *worker_keyring(const struct worker *)
{
	return keyring;
}

struct slice worker_conf(const struct worker *)
{
	return slice_of("{\"base\":\"http://downstream\"}");
}

bool worker_may_send(const struct worker *)
{
	return true;
}

bool others_have_last_starts, one_of_them_runs;

bool worker_has_last_starts(const struct worker *, const struct run *, bool *taken)
{
	*taken = one_of_them_runs;
	return others_have_last_starts;
}

void worker_run_ended(struct worker *, struct run *over, int64_t due_ms)
{
	ended++;
	ended_due_ms = due_ms;
	run_free(over);
}

/* --- the store: notes each write, and answers when told to -------------------------------------
 */

struct pretended_store store;

static void note(const char *what, void *ctx)
{
	cr_assert_str_eq(store.what, "", "a second write beside: %s", store.what);
	snprintf(store.what, sizeof store.what, "%s", what);
	store.ctx = ctx;
	store.writes++;
}

static char *json_of(struct slice msgpack)
{
	struct buf json = {};
	cr_assert_eq(value_to_json(msgpack, &json, nullptr), HF_OK);
	return buf_take(&json);
}

static char *step_text(const struct step_write *step)
{
	char *json = json_of(step->state);
	char *text =
	    hf_format("%s %.*s@%d a%d%s %s", step->kind == STEP_CHECKPOINT ? "check" : "step",
		      (int)step->name.len, step->name.data, step->place, step->attempt,
		      step->derived_key.len == DERIVED_KEY_LEN ? " key" : "", json);
	free(json);
	return text;
}

void store_step(struct store *, const struct step_write *step,
		void (*done)(void *ctx, enum hf_code code, enum fence fence, enum wish wish,
			     struct slice adopted_state, const struct hf_err *err),
		void *ctx)
{
	char *text = step_text(step);
	note(text, ctx);
	free(text);
	store.step_done = done;
}

void store_finish(struct store *, const struct outcome_write *outcome,
		  void (*done)(void *ctx, enum hf_code code, enum fence fence,
			       const struct hf_err *err),
		  void *ctx)
{
	char *last = outcome->last ? step_text(outcome->last) : hf_strdup("-");
	struct slice body = outcome->result.len ? outcome->result : outcome->error;
	if (body.len > 0)
		cr_assert_eq(json_scan(body, nullptr), HF_OK, "%.*s", (int)body.len, body.data);
	char *text =
	    hf_format("%s %.*s | %.*s | %s", task_state_name(outcome->state), (int)body.len,
		      body.data, (int)outcome->message.len, outcome->message.data, last);
	note(text, ctx);
	free(text);
	free(last);
	store.done = done;
}

void store_release(struct store *, const struct release_write *release,
		   void (*done)(void *ctx, enum hf_code code, enum fence fence,
				const struct hf_err *err),
		   void *ctx)
{
	static const char *const names[] = { "retry",   "again",      "back", "crash",
					     "unknown", "unverified", "undo" };
	char *text = hf_format("%s%s %.*s", names[release->how], release->maybe_sent ? " sent" : "",
			       (int)release->reason.len, release->reason.data);
	note(text, ctx);
	free(text);
	store.delay_ms = release->delay_ms;
	store.done = done;
}

void store_ask(struct store *, const struct ask_write *ask,
	       void (*done)(void *ctx, enum hf_code code, enum fence fence,
			    const struct hf_err *err),
	       void *ctx)
{
	char *text = hf_format("ask%s %d %.*s for %lld | %.*s", ask->maybe_sent ? " sent" : "",
			       ask->phase, (int)ask->questions.len, ask->questions.data,
			       (long long)ask->wait_ms, (int)ask->reason.len, ask->reason.data);
	note(text, ctx);
	free(text);
	store.done = done;
}

void store_intent(struct store *, const struct task_id *, const struct uuid *, int number,
		  struct slice name,
		  void (*done)(void *ctx, enum hf_code code, enum fence fence,
			       const struct hf_err *err),
		  void *ctx)
{
	char *text = hf_format("intent %d %.*s", number, (int)name.len, name.data);
	note(text, ctx);
	free(text);
	store.done = done;
}

void store_artifact_put(struct store *, const struct task_id *, const struct uuid *, int number,
			struct slice name, struct slice media_type, struct slice content,
			void (*done)(void *ctx, enum hf_code code, enum fence fence,
				     const struct hf_err *err),
			void *ctx)
{
	char *text =
	    hf_format("artifact %d %.*s %.*s %.*s", number, (int)name.len, name.data,
		      (int)media_type.len, media_type.data, (int)content.len, content.data);
	note(text, ctx);
	free(text);
	store.done = done;
}

void store_artifact_get(struct store *, const struct task_id *, int, struct slice,
			void (*done)(void *ctx, enum hf_code code, struct slice media_type,
				     struct slice content, const struct hf_err *err),
			void *ctx)
{
	note("get", ctx);
	store.got = done;
}

/* --- the phases: started, they wait for what the test reports -----------------------------------
 */

struct pretended_phase phase;

static void *start(struct run *starting)
{
	phase.run = starting;
	phase.starts++;
	phase.settling = run_settling(starting);
	phase.first = run_is_first(starting);
	snprintf(phase.name, sizeof phase.name, "%s", run_phase(starting)->name);
	return &phase;
}

static void stop(void *, bool lost)
{
	lost ? phase.losses++ : phase.stops++;
}

const struct phase_kind phase_http = { start, stop };
const struct phase_kind phase_sql = { start, stop };
const struct phase_kind phase_program = { start, stop };

/* --- helpers ------------------------------------------------------------------------------------
 */

#define REQUEST "\"request\":{\"method\":\"POST\",\"url\":\"http://h/\",\"json\":{}}"
static const char TOOL[] =
    "{\"name\":\"t\",\"description\":\"d\",\"crash_limit\":3,"
    "\"inputSchema\":{\"type\":\"object\",\"required\":[\"effect_id\"],"
    "\"properties\":{\"effect_id\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}},"
    "\"phases\":["
    "{\"name\":\"pure\",\"kind\":\"http\",\"effect\":\"pure\",\"attempts\":2," REQUEST "},"
    "{\"name\":\"keyed\",\"kind\":\"http\",\"effect\":\"keyed\",\"key_header\":\"K\","
    "\"key_ttl_ms\":600000,\"attempts\":2," REQUEST "},"
    "{\"name\":\"look\",\"kind\":\"http\",\"effect\":\"lookup\",\"visible_within_ms\":10,"
    "\"attempts\":2,\"reconcile\":{\"request\":{\"method\":\"GET\",\"url\":\"http://h/\"},"
    "\"done_when\":\"/a\",\"absent_when_empty\":\"/b\"}," REQUEST "}],"
    "\"result\":{\"text\":\"{/task/effect_id} n={/args/n}\","
    "\"structured\":{\"s\":{\"$from\":\"/state/keyed\"}},"
    "\"links\":[\"http://h/x/report.pdf?a\"]}}";

/* Two unsafe phases, the first with an undo step, the second to be verified. */
static const char UNSAFE[] =
    "{\"name\":\"t\",\"description\":\"d\",\"crash_limit\":3,"
    "\"inputSchema\":{\"type\":\"object\",\"required\":[\"effect_id\"],"
    "\"properties\":{\"effect_id\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}},"
    "\"phases\":["
    "{\"name\":\"pay\",\"kind\":\"http\",\"attempts\":2," REQUEST ","
    "\"undo\":{\"kind\":\"http\",\"effect\":\"keyed\",\"key_header\":\"K\",\"key_ttl_ms\":60000,"
    "\"attempts\":2," REQUEST "}},"
    "{\"name\":\"run\",\"kind\":\"program\",\"command\":[\"x\"]}],"
    "\"result\":{\"text\":\"done\"}}";

struct tool *tool;
struct claimed_task task;
struct run *run;

void set_up(void)
{
	char path[] = "/tmp/hf-run-keys-XXXXXX";
	int fd = mkstemp(path);
	static const char line[] =
	    "1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
	cr_assert_eq(write(fd, line, sizeof line - 1), (ssize_t)sizeof line - 1);
	close(fd);
	struct hf_err err = {};
	cr_assert_eq(keyring_load(path, &keyring, &err), HF_OK, "%s", err.text);
	unlink(path);
	cr_assert_eq(tool_new(slice_of(TOOL), nullptr, &tool, &err), HF_OK, "%s", err.text);
	log_init(LOG_ERROR + 1, "test");
	loop = ev_default_loop(0);
	task = (struct claimed_task){ .attempt = 1,
				      .now_ms = 1'000'000,
				      .deadline_ms = 1'600'000,
				      .first_try_ms = 1'000'000,
				      .issuer = slice_of("dev"),
				      .subject = slice_of("s"),
				      .tenant = slice_of("default"),
				      .effect_id = slice_of("e-1"),
				      .arguments = slice_of(" {\"n\": 7} "),
				      .key_version = 1 };
	memset(&store, 0, sizeof store);
	memset(&phase, 0, sizeof phase);
	ended = 0;
}

void set_up_unsafe(void)
{
	struct hf_err err = {};
	set_up();
	tool_free(tool);
	cr_assert_eq(tool_new(slice_of(UNSAFE), nullptr, &tool, &err), HF_OK, "%s", err.text);
}

void tear_down(void)
{
	keyring_free(keyring);
	tool_free(tool);
	ev_loop_destroy(loop);
}

void turn(void)
{
	ev_run(loop, EVRUN_NOWAIT);
}

void wait_ms(int64_t ms)
{
	for (int64_t until = clock_boot_ms() + ms; clock_boot_ms() < until;) {
		turn();
		usleep(1'000);
	}
	/* What fell due while the machine stood still up to here, and what that leads to. */
	for (int i = 0; i < 10; i++)
		turn();
}

void begin(void)
{
	ended = 0;
	run = run_start(nullptr, tool, "/folder", &task);
	turn();
}

void expect_phase(const char *name)
{
	cr_assert(phase.run, "phase %s does not run; write: %s", name, store.what);
	cr_assert_str_eq(phase.name, name);
}

void expect_write(const char *want)
{
	cr_assert(strncmp(store.what, want, strlen(want)) == 0, "\nhave %s\nwant %s", store.what,
		  want);
}

void expect_inside(const char *want)
{
	cr_assert(strstr(store.what, want), "\nhave %s\nwant %s", store.what, want);
}

void answer_with(enum hf_code code, enum fence fence, bool cancelled, struct slice adopted)
{
	cr_assert(store.what[0], "no write waits");
	struct hf_err err = { .code = code };
	store.what[0] = '\0';
	if (store.step_done) {
		typeof(store.step_done) done = store.step_done;
		store.step_done = nullptr;
		done(store.ctx, code, fence, cancelled ? WISH_CANCEL : WISH_NONE, adopted,
		     code == HF_OK ? nullptr : &err);
	} else {
		store.done(store.ctx, code, fence, code == HF_OK ? nullptr : &err);
	}
	turn();
}

void answer(void)
{
	answer_with(HF_OK, FENCE_HELD, false, (struct slice){});
}

void report(struct phase_result result)
{
	cr_assert(phase.run, "no phase runs");
	struct run *reporting = phase.run;
	phase.run = nullptr;
	run_phase_done(reporting, &result);
	turn();
}

void report_done(const char *json)
{
	hf_cleanup(buf) struct buf state = {};
	value_from_json(slice_of(json), &state);
	report((struct phase_result){
	    .outcome = PHASE_DONE, .state = buf_slice(&state), .answer = "200 OK" });
}

void expect_end(void)
{
	cr_assert_eq(ended, 1);
	cr_assert_str_eq(store.what, "");
	cr_assert_null(phase.run);
}

void answer_last(void)
{
	answer();
	expect_end();
}

void lose_claim(void)
{
	run_lose(run, true);
	turn();
	report((struct phase_result){ .outcome = PHASE_LOST });
}

void to_keyed(void)
{
	begin();
	report_done("{}");
	answer();
	expect_phase("keyed");
}

struct claimed_step step_at(int number, struct buf *state, const char *json)
{
	value_from_json(slice_of(json), state);
	return (struct claimed_step){ STEP_RECOVERY_POINT, step_place_recovery(number),
				      slice_of("x"), buf_slice(state) };
}

void claim_steps(const struct claimed_step *steps, size_t count)
{
	task.steps = steps;
	task.steps_count = count;
}

void claimed_again(int number, int64_t sent_ms)
{
	task.phase = number;
	task.first_try_ms = 900'000;
	task.sent_ms = sent_ms;
}
