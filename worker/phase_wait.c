/* phase_wait.c - the phase kind wait: a time that passes, in the database and in no process. A
 * start before the time gives the task back, due when the time has come, and holds no slot
 * meanwhile; a start after it is done. When the wait began is the first start of the phase, which
 * is durable (design §4, rule 4). Nothing is ever in flight here, so that it reports from its
 * start. */
#include <stdio.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/rfc3339.h"
#include "worker/frame.h"
#include "worker/phase.h"
#include "worker/run.h"

static void report_text(struct run *run, enum phase_outcome outcome, const char *text)
{
	hf_cleanup(buf) struct buf whole = {};
	buf_add_format(&whole, "%s %s", run_phase(run)->name, text);
	run_phase_done(run, &(struct phase_result){ .outcome = outcome, .text = whole.data });
}

static void report_done(struct run *run, int64_t waited_ms)
{
	hf_cleanup(buf) struct buf state = {};
	frame_map(&state, 1);
	frame_text(&state, slice_of("waited_ms"));
	frame_int(&state, waited_ms);
	run_phase_done(run,
		       &(struct phase_result){ .outcome = PHASE_DONE, .state = buf_slice(&state) });
}

static void report_waiting(struct run *run, int64_t left_ms, int64_t until_ms)
{
	char time[RFC3339_TEXT_LEN + 1];
	rfc3339_format(until_ms, time);
	hf_cleanup(buf) struct buf text = {};
	buf_add_format(&text, "%s waits until %s", run_phase(run)->name, time);
	run_phase_done(run, &(struct phase_result){
				.outcome = PHASE_AGAIN, .text = text.data, .delay_ms = left_ms });
}

/* The time that `until` names; false: told to the caller, who gave it. */
static bool read_until(struct run *run, int64_t *until_ms)
{
	struct hf_err err;
	hf_cleanup(buf) struct buf json = {}, text = {};
	if (template_json(run_phase(run)->until, run_scope(run), &json, &err) != HF_OK) {
		hf_cleanup(buf) struct buf why = {};
		buf_add_format(&why, "has no time to wait for: %s", err.text);
		report_text(run, PHASE_TOOL_ERROR, why.data);
		return false;
	}
	if (json_type_of(buf_slice(&json)) == JSON_STRING)
		json_string_decode(buf_slice(&json), &text);
	if (!rfc3339_parse(buf_slice(&text), until_ms)) {
		report_text(run, PHASE_TOOL_ERROR,
			    "has no time to wait for: it is no RFC 3339 time, as "
			    "2015-09-01T12:30:00Z is one");
		return false;
	}
	return true;
}

static void *wait_start(struct run *run)
{
	int64_t now_ms = run_database_ms(run), age_ms = run_first_try_age_ms(run);
	int64_t until_ms = now_ms - age_ms + run_phase(run)->wait_ms;
	if (run_phase(run)->until.len && !read_until(run, &until_ms))
		return nullptr;
	if (until_ms <= now_ms)
		report_done(run, age_ms > 0 ? age_ms : 0);
	else if (until_ms >= run_task(run)->deadline_ms)
		report_text(run, PHASE_TOOL_ERROR, "would wait past the deadline of the task");
	else
		report_waiting(run, until_ms - now_ms, until_ms);
	return nullptr;
}

/* Never called: it has always reported. */
static void wait_cancel(void *, bool)
{
	hf_assert(false);
}

const struct phase_kind phase_wait = { PHASE_WAIT, wait_start, wait_cancel };
