/* test_wait.c - the phase kind wait on a pretended run: when it is done, and for how long it gives
 * the task back. A program of its own: other tests stand on a real run. */
#include <stdio.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/input.h"
#include "runtime/value.h"
#include "test/test.h"
#include "worker/phase.h"
#include "worker/run.h"

static char name[] = "rest";
constexpr int64_t NOW_MS = 1'441'110'600'000; /* 2015-09-01T12:30:00Z */

struct run {
	struct phase_spec phase;
	struct claimed_task task;
	struct template_scope scope;
	int64_t age_ms;
	int reports;
	enum phase_outcome outcome;
	int64_t delay_ms;
	struct buf state, text;
};

const struct claimed_task *run_task(const struct run *run)
{
	return &run->task;
}
int run_phase_number(const struct run *)
{
	return 2;
}
const struct phase_spec *run_phase(const struct run *run)
{
	return &run->phase;
}
const struct template_scope *run_scope(const struct run *run)
{
	return &run->scope;
}
int64_t run_database_ms(const struct run *)
{
	return NOW_MS;
}
int64_t run_first_try_age_ms(const struct run *run)
{
	return run->age_ms;
}
void run_phase_done(struct run *run, const struct phase_result *result)
{
	struct hf_err err;
	run->reports++;
	run->outcome = result->outcome;
	run->delay_ms = result->delay_ms;
	buf_add_text(&run->text, result->text ? result->text : "");
	if (result->outcome == PHASE_DONE)
		cr_assert_eq(value_to_json(result->state, &run->state, &err), HF_OK);
	else
		buf_add_slice(&run->state, result->state);
}

static void end(struct run *run)
{
	buf_deinit(&run->state);
	buf_deinit(&run->text);
}

HF_TEST(wait, a_wait_is_over_when_its_time_has_come)
{
	static const struct {
		int64_t wait_ms, age_ms;
		const char *until, *at; /* a template and the argument that it may name */
		enum phase_outcome outcome;
		int64_t delay_ms;
		const char *said; /* its state or text */
	} cases[] = {
		{ 0, 0, "", "1", PHASE_DONE, 0, "{\"waited_ms\":0}" },
		{ 500, 0, "", "1", PHASE_AGAIN, 500, "rest waits until 2015-09-01T12:30:00.500Z" },
		{ 500, 200, "", "1", PHASE_AGAIN, 300,
		  "rest waits until 2015-09-01T12:30:00.300Z" },
		{ 500, 499, "", "1", PHASE_AGAIN, 1, "rest waits until" },
		{ 500, 500, "", "1", PHASE_DONE, 0, "{\"waited_ms\":500}" },
		{ 500, 9'000, "", "1", PHASE_DONE, 0, "{\"waited_ms\":9000}" },
		{ 60'000, 0, "", "1", PHASE_TOOL_ERROR, 0, "rest would wait past the deadline" },
		{ -1, 0, "\"2015-09-01T12:30:00Z\"", "1", PHASE_DONE, 0, "{\"waited_ms\":0}" },
		{ -1, 70, "\"2014-09-01T12:30:00Z\"", "1", PHASE_DONE, 0, "{\"waited_ms\":70}" },
		{ -1, 70, "\"2015-09-01T14:30:02+02:00\"", "1", PHASE_AGAIN, 2'000,
		  "rest waits until 2015-09-01T12:30:02.000Z" },
		{ -1, 0, "{\"$from\":\"/args/at\"}", "\"2015-09-01T12:30:01Z\"", PHASE_AGAIN, 1'000,
		  "rest waits until" },
		{ -1, 0, "\"{/args/at}-01T00:00:00Z\"", "\"2015-09\"", PHASE_DONE, 0,
		  "{\"waited_ms\":0}" },
		{ -1, 0, "{\"$from\":\"/args/at\"}", "\"soon\"", PHASE_TOOL_ERROR, 0,
		  "rest has no time to wait for: it is no RFC 3339 time" },
		{ -1, 0, "{\"$from\":\"/args/at\"}", "7", PHASE_TOOL_ERROR, 0,
		  "rest has no time to wait for" },
		{ -1, 0, "{\"$from\":\"/args/then\"}", "7", PHASE_TOOL_ERROR, 0,
		  "rest has no time to wait for" },
		{ -1, 0, "\"2015-09-01T12:31:00Z\"", "1", PHASE_TOOL_ERROR, 0,
		  "rest would wait past the deadline" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		hf_cleanup(buf) struct buf args = {};
		buf_add_format(&args, "{\"at\":%s}", cases[i].at);
		struct run run = { .phase = { .name = name,
					      .type = PHASE_WAIT,
					      .wait_ms = cases[i].wait_ms,
					      .until = slice_of(cases[i].until) },
				   .task = { .deadline_ms = NOW_MS + 60'000 },
				   .scope = { .args = buf_slice(&args) },
				   .age_ms = cases[i].age_ms };
		cr_expect_null(phase_wait.start(&run), "case %zu", i);
		cr_expect_eq(run.reports, 1, "case %zu", i);
		cr_expect_eq(run.outcome, cases[i].outcome, "case %zu: %d, %s", i, run.outcome,
			     run.text.data);
		cr_expect_eq(run.delay_ms, cases[i].delay_ms, "case %zu", i);
		const char *said = run.outcome == PHASE_DONE ? run.state.data : run.text.data;
		cr_expect_eq(strncmp(said, cases[i].said, strlen(cases[i].said)), 0, "case %zu: %s",
			     i, said);
		end(&run);
	}
}

#define SCHEMA \
	"\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"boolean\"}}}"
#define FORM(message) \
	"{\"method\":\"elicitation/create\",\"params\":{\"message\":\"" message "\"," SCHEMA "}}"
#define ROW(phase, how, request, answer) \
	"{\"phase\":" phase ",\"how\":" how ",\"request\":" request ",\"answer\":" answer "}"
#define YES   "{\"action\":\"accept\",\"content\":{\"ok\":true}}"
#define BAD   "{\"action\":\"accept\",\"content\":{\"ok\":7}}"
#define GIVEN "\"answer\""

/* Starts a phase that asks one question, with so much in the inbox. */
static void ask_one(struct run *run, const struct claimed_step *steps, size_t count)
{
	*run = (struct run){
		.phase = { .name = name,
			   .type = PHASE_WAIT,
			   .input = slice_of("{\"a\":" FORM("A?") "}") },
		.task = { .asks = INPUT_FORM, .steps = steps, .steps_count = count },
	};
	phase_wait.start(run);
}

/* One row of the inbox, or two. */
struct row {
	const char *key, *text;
};

static const struct {
	struct row rows[2];
	int asks;
	bool go_on;
	enum phase_outcome outcome;
	const char *state, *text; /* how they begin */
} cases[] = {
	{ {},
	  INPUT_FORM,
	  false,
	  PHASE_ASK,
	  "[{\"key\":\"a\",\"request\":" FORM("A 7?") "},{\"key\":\"b\",\"request\":" FORM(
	      "B?") "}]",
	  "asks: A 7?" },
	{ { { "a", ROW("2", GIVEN, FORM("A 7?"), YES) } },
	  INPUT_FORM,
	  false,
	  PHASE_ASK,
	  "[{\"key\":\"b\"",
	  "asks: B?" },
	{ { { "a", ROW("2", "null", FORM("A 7?"), "null") },
	    { "b", ROW("2", GIVEN, FORM("B?"), "{\"action\":\"decline\"}") } },
	  INPUT_FORM,
	  false,
	  PHASE_ASK,
	  "[{\"key\":\"a\"",
	  "asks: A 7?" },
	{ { { "a", ROW("2", GIVEN, FORM("old?"), YES) },
	    { "b", ROW("-1", GIVEN, "null", "{\"action\":\"cancel\"}") } },
	  INPUT_FORM,
	  false,
	  PHASE_DONE,
	  "{\"a\":" YES ",\"b\":{\"action\":\"cancel\"}}",
	  "" },
	/* What does not fit is asked again, under another key. */
	{ { { "a", ROW("2", GIVEN, FORM("A 7?"), BAD) }, { "b", ROW("-1", GIVEN, "null", "7") } },
	  INPUT_FORM,
	  false,
	  PHASE_ASK,
	  "[{\"key\":\"a.2\",\"request\":{",
	  "asks: A 7?" },
	{ { { "a", ROW("2", GIVEN, FORM("A 7?"), BAD) },
	    { "a.2", ROW("2", GIVEN, FORM("A 7?"), YES) } },
	  INPUT_FORM,
	  false,
	  PHASE_ASK,
	  "[{\"key\":\"b\"",
	  "asks: B?" },
	{ { { "a", ROW("2", "\"silence\"", FORM("A 7?"), "null") } },
	  INPUT_FORM,
	  false,
	  PHASE_FAILED,
	  "",
	  "rest got no answer to a within 0.3 s" },
	{ { { "a", ROW("2", "\"silence\"", FORM("A 7?"), "null") },
	    { "b", ROW("2", GIVEN, FORM("B?"), YES) } },
	  INPUT_FORM,
	  true,
	  PHASE_DONE,
	  "{\"a\":null,\"b\":" YES "}",
	  "" },
	{ {},
	  INPUT_URL,
	  false,
	  PHASE_FAILED,
	  "",
	  "rest asks its caller, whose client does not declare that it can be asked so; call from "
	  "one that does, under a new effect ID: "
	  "{\"elicitation\":{\"form\":{}}}" },
	{ {}, 0, true, PHASE_DONE, "{\"a\":null,\"b\":null}", "" },
	{ { { "b", ROW("1", "null", "null", "null") } },
	  INPUT_FORM,
	  false,
	  PHASE_FAILED,
	  "",
	  "rest asks under the key b, which another phase has used" },
};

HF_TEST(wait, input_is_asked_for_until_all_of_it_is_there)
{
	for (size_t i = 0; i < countof(cases); i++) {
		struct claimed_step steps[2] = {};
		size_t count = 0;
		for (; count < 2 && cases[i].rows[count].key; count++)
			steps[count] = (struct claimed_step){
				.kind = STEP_INBOX,
				.name = slice_of(cases[i].rows[count].key),
				.state = slice_of(cases[i].rows[count].text),
			};
		struct run run = {
			.phase = { .name = name,
				   .type = PHASE_WAIT,
				   .wait_ms = 300,
				   .input = slice_of(
				       "{\"a\":" FORM("A {/args/n}?") ",\"b\":" FORM("B?") "}"),
				   .input_go_on = cases[i].go_on },
			.task = { .asks = cases[i].asks, .steps = steps, .steps_count = count },
			.scope = { .args = slice_of("{\"n\":7}") },
		};
		cr_expect_null(phase_wait.start(&run), "case %zu", i);
		cr_assert_eq(run.reports, 1, "case %zu", i);
		cr_expect_eq(run.outcome, cases[i].outcome, "case %zu: %d, %s", i, run.outcome,
			     run.text.data);
		const char *state = run.state.data ? run.state.data : "";
		cr_expect_eq(strncmp(state, cases[i].state, strlen(cases[i].state)), 0,
			     "case %zu: %s", i, state);
		cr_expect_eq(strncmp(run.text.data, cases[i].text, strlen(cases[i].text)), 0,
			     "case %zu: %s", i, run.text.data);
		cr_expect_eq(run.delay_ms, run.outcome == PHASE_ASK ? 300 : 0, "case %zu", i);
		end(&run);
	}
}

HF_TEST(wait, a_question_that_never_gets_its_answer_ends_the_phase)
{
	struct claimed_step steps[INPUT_ASKED_MAX] = {};
	static char keys[INPUT_ASKED_MAX][8];
	for (int n = 0; n < INPUT_ASKED_MAX; n++) {
		snprintf(keys[n], sizeof keys[n], n ? "a.%d" : "a", n + 1);
		steps[n] =
		    (struct claimed_step){ .kind = STEP_INBOX,
					   .name = slice_of(keys[n]),
					   .state = slice_of(ROW("2", GIVEN, FORM("A?"), BAD)) };
	}
	for (size_t count = INPUT_ASKED_MAX - 1; count <= INPUT_ASKED_MAX; count++) {
		struct run run;
		ask_one(&run, steps, count);
		cr_expect_eq(run.outcome, count < INPUT_ASKED_MAX ? PHASE_ASK : PHASE_FAILED);
		cr_expect(strstr(count < INPUT_ASKED_MAX ? run.state.data : run.text.data,
				 count < INPUT_ASKED_MAX ? "\"a.8\"" : "8 times"));
		end(&run);
	}
}

/* A misfit behind which it was asked again is none anew; here it would fit by now. */
HF_TEST(wait, a_misfit_is_found_once)
{
	struct claimed_step steps[] = {
		{ .kind = STEP_INBOX,
		  .name = slice_of("a"),
		  .state = slice_of(ROW("2", GIVEN, FORM("A?"), YES)) },
		{ .kind = STEP_INBOX,
		  .name = slice_of("a.2"),
		  .state = slice_of(ROW("2", "null", FORM("A?"), "null")) },
	};
	struct run run;
	ask_one(&run, steps, countof(steps));
	cr_assert_eq(run.outcome, PHASE_ASK);
	cr_expect(strstr(run.state.data, "\"a.2\""), "%s", run.state.data);
	end(&run);
}

HF_TEST(wait, a_task_asks_so_much_and_no_more)
{
	static struct claimed_step steps[INPUT_KEYS_MAX];
	for (size_t i = 0; i < INPUT_KEYS_MAX; i++)
		steps[i] = (struct claimed_step){ .kind = STEP_INBOX, .name = slice_of("other") };
	for (size_t count = INPUT_KEYS_MAX - 1; count <= INPUT_KEYS_MAX; count++) {
		struct run run;
		ask_one(&run, steps, count);
		cr_expect_eq(run.outcome, count < INPUT_KEYS_MAX ? PHASE_ASK : PHASE_FAILED);
		if (count == INPUT_KEYS_MAX)
			cr_expect(strstr(run.text.data, "256 questions"), "%s", run.text.data);
		end(&run);
	}
}
