/* phase_wait.c - the phase kind wait: a time that passes, in the database and in no process. A
 * start before the time gives the task back, due when the time has come, and holds no slot
 * meanwhile; a start after it is done. When the wait began is the first start of the phase, which
 * is durable. With "input" it is answers that are waited for: each start looks
 * at what came, and asks for what is open. Nothing is ever in flight here, so that it reports from
 * its start. */
#include <stdio.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/rfc3339.h"
#include "runtime/value.h"
#include "worker/ask.h"
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

/* --- input --------------------------------------------------------------------------------------
 */

struct asking {
	struct buf questions; /* still open */
	struct buf reason;    /* of the first of them */
	struct buf state;     /* the answers */
	size_t open;
};

static void hf_cleanup_asking(struct asking *asking)
{
	buf_deinit(&asking->questions);
	buf_deinit(&asking->reason);
	buf_deinit(&asking->state);
}

/* The request as it would be sent, on one line. */
static enum hf_code render(struct run *run, struct slice wanted, struct buf *request,
			   struct hf_err *err)
{
	hf_cleanup(buf) struct buf json = {}, packed = {};
	hf_try(template_json(wanted, run_scope(run), &json, err));
	value_from_json(buf_slice(&json), &packed);
	return value_to_json(buf_slice(&packed), request, err);
}

/* HF_TIMEOUT, HF_DENIED: there will be no answer, and the phase cannot go on without. */
static enum hf_code look_at_one(struct run *run, struct slice key, struct slice wanted,
				struct asking *asking, struct hf_err *err)
{
	enum ask_state state;
	struct slice answer = {};
	hf_cleanup(buf) struct buf request = {};
	bool go_on = run_phase(run)->input_go_on;
	hf_try(render(run, wanted, &request, err));
	hf_try(ask_look(run, key, buf_slice(&request), &state, &answer, &asking->questions, err));
	if (state == ASK_UNDECLARED && !go_on)
		return HF_DENIED;
	if (state == ASK_SILENT && !go_on)
		return hf_fail(err, HF_TIMEOUT, "got no answer to %.*s within %.1f s", (int)key.len,
			       key.data, (double)run_phase(run)->wait_ms / 1000);
	if (state == ASK_OPEN && asking->open++ == 0)
		ask_text(buf_slice(&request), &asking->reason);
	frame_text(&asking->state, key);
	if (state == ASK_ANSWERED)
		value_from_json(answer, &asking->state);
	else
		frame_nil(&asking->state);
	return HF_OK;
}

static uint32_t count_of(struct slice object)
{
	uint32_t count = 0;
	struct slice name, value;
	for (size_t at = 0; json_object_next(object, &at, &name, &value);)
		count++;
	return count;
}

static void input_start(struct run *run)
{
	hf_cleanup(asking) struct asking asking = {};
	struct slice name, wanted, requests = run_phase(run)->input;
	frame_map(&asking.state, count_of(requests));
	for (size_t at = 0; json_object_next(requests, &at, &name, &wanted);) {
		hf_cleanup(buf) struct buf key = {};
		struct hf_err err = {};
		json_string_decode(name, &key);
		if (look_at_one(run, buf_slice(&key), wanted, &asking, &err) != HF_OK) {
			report_text(run, PHASE_FAILED, err.text);
			return;
		}
	}
	if (asking.open == 0) {
		run_phase_done(run, &(struct phase_result){ .outcome = PHASE_DONE,
							    .state = buf_slice(&asking.state) });
		return;
	}
	ask_close(&asking.questions);
	run_phase_done(run, &(struct phase_result){ .outcome = PHASE_ASK,
						    .state = buf_slice(&asking.questions),
						    .text = asking.reason.data,
						    .delay_ms = run_phase(run)->wait_ms });
}

static void *wait_start(struct run *run)
{
	if (run_phase(run)->input.len) {
		input_start(run);
		return nullptr;
	}
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
static void wait_stop(void *, bool)
{
	hf_assert(false);
}

const struct phase_kind phase_wait = { wait_start, wait_stop };
