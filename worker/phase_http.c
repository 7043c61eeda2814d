/*
 * The phase kind http: one request to a system downstream, by its effect class.
 *
 *   start ──┬──────────────────────────► preparing* ──► sending* ──┬───────────────► reported
 *           └─► asking* (lookup, unless ─┬─► preparing     │       └─► accepting* ─┐ (verify)
 *               provably the first)      └─► reported      │   looking* ◄──────────┴─► start
 *                                                          │      └─► reported: seen, unverified
 *                                                          └─ stopped: waits for the answer
 *                                                             for up to the grace, then breaks off
 *   * suspended: the artifact, the answer, the store or the grace timer resumes it.
 *
 * What comes back, and what becomes of it:
 *
 *   answer                        pure     keyed                    lookup             unsafe
 *   not sent                      retry    retry                    retry              retry
 *   host or address not allowed   failed   failed                   failed             failed
 *   sent, no answer; 5xx, 408     retry    retry, same key, in the  retry: read back   unknown
 *                                          key's window; else       first
 *                                          unknown
 *   409                           failed   again (in progress)      failed             failed
 *   425, 429                      retry    retry                    retry              retry
 *   2xx                           done     done                     done               done
 *   3xx, other 4xx                failed   failed                   failed             failed
 *
 * A phase that verifies keeps the 2xx in a checkpoint and is done once a look has seen the effect;
 * until then it is unverified, and is never sent again.
 *
 * Retry-After is kept, up to an hour, with every retry and 409, and said in the task's message. A
 * repeat for which its host's budget has nothing left, and anything for a host whose breaker is
 * open, waits and spends no attempt. Before what hangs in the air is called unknown its host is
 * asked at least once, breaker or not.
 *
 * A 2xx happened, whatever its body: JSON is the state as it is, no body is {}, any other body is
 * {"text": …}. A lookup that reads back takes the answer to that as its state.
 */
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/random.h"
#include "runtime/timer.h"
#include "runtime/value.h"
#include "worker/downstream.h"
#include "worker/http_request.h"
#include "worker/phase.h"
#include "worker/run.h"
#include "worker/text.h"
#include "worker/worker.h"

constexpr size_t STATE_TEXT_LEN_MAX = 64 << 10; /* of {"text": …} */
constexpr size_t REFUSAL_LEN_SHOWN = 200;       /* of the body of an answer, in the log */
constexpr int64_t AGAIN_MS = 1'000;             /* after a 409 without Retry-After */
constexpr int64_t AGAIN_SPREAD_MS = 500;        /* chance on top, so that waiters drift apart */

struct http_phase {
	struct run *run;
	const struct phase_spec *spec;
	const struct request_spec *wanted; /* in the making or on its way, as `request` */
	struct http_request request;
	bool asking;      /* reading back, not the request itself */
	bool accepted;    /* a 2xx came that is to be verified; what is asked is whether it shows */
	bool early;       /* asked at a time when "absent" proves nothing */
	int64_t early_ms; /* until it does */
	bool fetching;    /* the artifact is on its way */
	struct downstream_call *call;
	ev_timer grace;
	bool stopping; /* told to stop: what is safe to abandon is */
};

static void http_free(struct http_phase *phase)
{
	hf_assert(!phase->call);
	ev_timer_stop(run_loop(phase->run), &phase->grace);
	http_request_clear(&phase->request);
	free(phase);
}

static void report(struct http_phase *phase, const struct phase_result *result)
{
	struct run *run = phase->run;
	struct phase_result told = *result;
	told.maybe_sent = told.maybe_sent || phase->accepted;
	run_phase_done(run, &told);
	http_free(phase);
}

static void report_text(struct http_phase *phase, enum phase_outcome outcome, const char *text)
{
	report(phase, &(struct phase_result){ .outcome = outcome, .text = text });
}

static bool has_effect(const struct http_phase *phase)
{
	return !phase->asking && phase->spec->effect != EFFECT_PURE;
}

/* --- the request ------------------------------------------------------------------------------ */

static void send_request(struct http_phase *phase);

static void on_artifact(void *ctx, bool found, struct slice media_type, struct slice content)
{
	struct http_phase *phase = ctx;
	phase->fetching = false;
	if (!found) {
		report_text(phase, PHASE_FAILED,
			    "body_artifact names an artifact that this task does not have");
		return;
	}
	if (!http_request_attach(&phase->request, media_type, content))
		report_text(phase, PHASE_FAILED,
			    "the artifact of body_artifact is too large for a body");
	else
		send_request(phase);
}

static void prepare(struct http_phase *phase, const struct request_spec *wanted, bool asking)
{
	struct hf_err err = {};
	hf_cleanup(buf) struct buf artifact = {};
	http_request_clear(&phase->request);
	phase->wanted = wanted;
	phase->asking = asking;
	if (http_request_fill(&phase->request, wanted, phase->run, &artifact, &err) != HF_OK) {
		/* A read-back that cannot even be asked leaves what happened open. */
		bool open = asking && run_sent_age_ms(phase->run) >= 0;
		report_text(phase, open ? PHASE_UNKNOWN : PHASE_FAILED, err.text);
	} else if (artifact.len > 0) {
		phase->fetching = true;
		run_artifact_get(phase->run, buf_slice(&artifact), on_artifact, phase);
	} else {
		send_request(phase);
	}
}

/* --- the answer ----------------------------------------------------------------------------- */

enum { SEE_OTHER = 303, REQUEST_TIMEOUT = 408, CONFLICT = 409, TOO_EARLY = 425, TOO_MANY = 429 };

static bool is_success(const struct downstream_answer *answer)
{
	return answer->status >= 200 && answer->status < 300;
}

/* Nobody can tell whether the request was taken. */
static bool is_ambiguous(const struct downstream_answer *answer)
{
	return answer->status >= 500 || answer->status == REQUEST_TIMEOUT;
}

/* It was not taken, and may be later. */
static bool is_put_off(const struct downstream_answer *answer)
{
	return answer->status == TOO_EARLY || answer->status == TOO_MANY;
}

/* What the phase's state is, as JSON. */
static void state_json(const struct downstream_answer *answer, struct buf *out)
{
	struct hf_err err = {};
	struct slice body = json_trim(answer->body);
	if (body.len == 0) {
		buf_add_text(out, "{}");
	} else if (json_scan(body, &err) == HF_OK) {
		buf_add_slice(out, body);
	} else {
		hf_cleanup(buf) struct buf text = {};
		text_clean(answer->body, STATE_TEXT_LEN_MAX, &text);
		buf_add_text(out, "{\"text\":");
		json_string_encode(buf_slice(&text), out);
		buf_add_byte(out, '}');
	}
}

static void done_with(struct http_phase *phase, const struct downstream_answer *answer)
{
	hf_cleanup(buf) struct buf state = {}, json = {};
	state_json(answer, &json);
	value_from_json(buf_slice(&json), &state);
	report(phase, &(struct phase_result){ .outcome = PHASE_DONE,
					      .state = buf_slice(&state),
					      .answer = answer->reason });
}

/* "503 Busy (Retry-After: 3600 s)" */
static void with_retry_after(const struct downstream_answer *answer, struct buf *out)
{
	buf_add_text(out, answer->reason);
	if (answer->retry_after_ms > 0)
		buf_add_format(out, " (Retry-After: %jd s)",
			       (intmax_t)(answer->retry_after_ms / 1'000));
}

static void retry(struct http_phase *phase, const struct downstream_answer *answer, bool maybe_sent)
{
	/* Broken off by our own hand before anything left, this is a stop and no attempt. */
	bool stopped = phase->stopping && !maybe_sent;
	hf_cleanup(buf) struct buf text = {};
	with_retry_after(answer, &text);
	report(phase, &(struct phase_result){
			  .outcome = stopped ? PHASE_STOPPED : PHASE_RETRY,
			  .text = text.data,
			  .answer = answer->reason,
			  .delay_ms = answer->retry_after_ms > 0 ? answer->retry_after_ms : 0,
			  .maybe_sent = maybe_sent });
}

static void again(struct http_phase *phase, const char *text, int64_t delay_ms, bool maybe_sent)
{
	report(phase, &(struct phase_result){ .outcome = PHASE_AGAIN,
					      .text = text,
					      .delay_ms = delay_ms + random_up_to(AGAIN_SPREAD_MS),
					      .maybe_sent = maybe_sent });
}

static void in_progress(struct http_phase *phase, const struct downstream_answer *answer)
{
	hf_cleanup(buf) struct buf text = {};
	buf_add_text(&text, "still in progress downstream: ");
	with_retry_after(answer, &text);
	again(phase, text.data, answer->retry_after_ms > 0 ? answer->retry_after_ms : AGAIN_MS,
	      true);
}

static void refuse(struct http_phase *phase, const char *text, bool maybe_executed)
{
	/* An earlier request of this phase whose answer was lost may still have been taken. */
	bool earlier = phase->spec->effect != EFFECT_PURE && run_sent_age_ms(phase->run) >= 0;
	bool open = maybe_executed && phase->spec->effect == EFFECT_UNSAFE;
	report(phase, &(struct phase_result){ .outcome = open ? PHASE_UNKNOWN : PHASE_FAILED,
					      .text = text,
					      .answer = text,
					      .maybe_sent = maybe_executed,
					      .maybe_executed = maybe_executed || earlier });
}

/* --- accepted, and not yet seen ------------------------------------------------------------- */

static void look(struct http_phase *phase)
{
	prepare(phase, &phase->spec->verify.request, true);
}

static void on_accepted(void *ctx, bool ok)
{
	struct http_phase *phase = ctx;
	if (!ok)
		return; /* the claim is lost, and stop comes */
	if (phase->stopping)
		report_text(phase, PHASE_STOPPED, "stopped before it was seen");
	else
		look(phase);
}

static void accept(struct http_phase *phase, const struct downstream_answer *answer)
{
	hf_cleanup(buf) struct buf json = {};
	state_json(answer, &json);
	phase->accepted = true;
	run_accept(phase->run, buf_slice(&json), on_accepted, phase);
}

/* The state is the answer that accepted it. */
static void done_unseen(struct http_phase *phase)
{
	struct slice state = {};
	int64_t age_ms;
	bool accepted = run_accepted(phase->run, &age_ms, &state);
	hf_assert(accepted);
	report(phase, &(struct phase_result){ .outcome = PHASE_DONE,
					      .state = state,
					      .answer = "accepted, never seen" });
}

static void not_seen(struct http_phase *phase, const char *reason, int64_t retry_after_ms)
{
	const struct verify_spec *verify = &phase->spec->verify;
	struct slice state = {};
	int64_t age_ms = 0;
	bool accepted = run_accepted(phase->run, &age_ms, &state);
	hf_assert(accepted);
	hf_cleanup(buf) struct buf text = {};
	buf_add_format(&text, "accepted downstream, not yet seen (%s)", reason);
	if (age_ms >= verify->within_ms && verify->go_on) {
		done_unseen(phase);
		return;
	}
	bool late = age_ms >= verify->within_ms;
	int64_t wait_ms = retry_after_ms > verify->every_ms ? retry_after_ms : verify->every_ms;
	report(phase,
	       &(struct phase_result){ .outcome = late ? PHASE_UNKNOWN : PHASE_UNVERIFIED,
				       .text = text.data,
				       .delay_ms = wait_ms + random_up_to(verify->every_ms / 4) });
}

/* Its host is not asked now: this is no look, so nothing follows from it. */
static void not_looked(struct http_phase *phase, const struct downstream_answer *answer)
{
	report(phase, &(struct phase_result){ .outcome = PHASE_UNVERIFIED,
					      .text = answer->reason,
					      .delay_ms = answer->retry_after_ms +
							  random_up_to(AGAIN_SPREAD_MS) });
}

static void looked(struct http_phase *phase, const struct downstream_answer *answer)
{
	struct hf_err err = {};
	struct slice found, body = json_trim(answer->body);
	bool seen = is_success(answer) && body.len > 0 && json_scan(body, &err) == HF_OK &&
		    json_pointer(body, slice_of(phase->spec->verify.done_when), &found);
	if (seen)
		done_with(phase, answer);
	else
		not_seen(phase, answer->reason, answer->retry_after_ms);
}

/* --- what an answer comes to ---------------------------------------------------------------- */

/* Its body says why, but may hold what is no caller's business: to the operator alone. */
static void log_refusal(const struct http_phase *phase, const struct downstream_answer *answer)
{
	hf_cleanup(buf) struct buf body = {};
	text_clean(json_trim(answer->body), REFUSAL_LEN_SHOWN, &body);
	log_info("refused downstream", "task_id", run_task_id(phase->run), "phase",
		 phase->spec->name, "answer", answer->reason, "body", body.len ? body.data : "",
		 nullptr);
}

static void request_answered(struct http_phase *phase, const struct downstream_answer *answer)
{
	bool effect = has_effect(phase);
	int status = answer->status;
	char text[300];
	if (is_success(answer) && phase->spec->verify.request.method) {
		accept(phase, answer);
	} else if (is_success(answer)) {
		done_with(phase, answer);
	} else if (is_ambiguous(answer)) {
		retry(phase, answer, effect);
	} else if (is_put_off(answer)) {
		retry(phase, answer, false);
	} else if (status == CONFLICT && phase->spec->effect == EFFECT_KEYED) {
		in_progress(phase, answer);
	} else if (status >= 300 && status < 400) {
		snprintf(text, sizeof text, "redirect refused: %s", answer->reason);
		refuse(phase, text, effect && status == SEE_OTHER);
	} else {
		log_refusal(phase, answer);
		snprintf(text, sizeof text, "refused downstream: %s", answer->reason);
		refuse(phase, text, false);
	}
}

/* True: the answer has the array at `absent_when_empty`, and it is empty. */
static bool says_absent(const struct phase_spec *spec, struct slice body)
{
	struct slice array, element;
	size_t at = 0;
	return spec->absent_when_empty &&
	       json_pointer(body, slice_of(spec->absent_when_empty), &array) &&
	       json_type_of(array) == JSON_ARRAY && !json_array_next(array, &at, &element);
}

/* Neither found nor proven absent. Where no earlier request can have left nothing is unknown, but
 * nothing is sent before the question could be asked, either. */
static void read_back_in_vain(struct http_phase *phase, const char *text)
{
	bool open = run_sent_age_ms(phase->run) >= 0;
	report_text(phase, open ? PHASE_UNKNOWN : PHASE_RETRY, text);
}

static void asked(struct http_phase *phase, const struct downstream_answer *answer)
{
	struct hf_err err = {};
	struct slice found, body = json_trim(answer->body);
	char text[300];
	if (is_ambiguous(answer) || is_put_off(answer)) {
		retry(phase, answer, false);
		return;
	}
	if (!is_success(answer)) {
		snprintf(text, sizeof text, "reading back was refused: %s", answer->reason);
		read_back_in_vain(phase, text);
	} else if (json_scan(body, &err) != HF_OK) {
		snprintf(text, sizeof text, "reading back gave no JSON: %s", err.text);
		read_back_in_vain(phase, text);
	} else if (json_pointer(body, slice_of(phase->spec->done_when), &found)) {
		done_with(phase, answer);
	} else if (!says_absent(phase->spec, body)) {
		read_back_in_vain(phase,
				  "reading back gave neither a sign of it nor of its absence");
	} else if (phase->early) {
		again(phase, "read back too early to know that it did not happen", phase->early_ms,
		      false);
	} else if (run_settling(phase->run) || phase->stopping) {
		report_text(phase, PHASE_STOPPED, "read back: it did not happen");
	} else {
		prepare(phase, &phase->spec->request, false);
	}
}

static void on_answer(void *ctx, const struct downstream_answer *answer)
{
	struct http_phase *phase = ctx;
	bool effect = has_effect(phase);
	phase->call = nullptr;
	ev_timer_stop(run_loop(phase->run), &phase->grace);
	bool success = is_success(answer);
	if (phase->accepted) {
		if (answer->fate == DOWNSTREAM_ANSWERED)
			looked(phase, answer);
		else if (answer->fate == DOWNSTREAM_BREAKER)
			not_looked(phase, answer);
		else
			not_seen(phase, answer->reason, 0);
		return;
	}
	switch (answer->fate) {
	case DOWNSTREAM_NOT_SENT:
		retry(phase, answer, false);
		return;
	case DOWNSTREAM_WITHHELD:
		/* Stopped, or the lease is about to end: nobody's failure, no attempt. */
		if (phase->stopping)
			report_text(phase, PHASE_STOPPED, "stopped before it was sent");
		else
			again(phase, answer->reason, AGAIN_MS, false);
		return;
	case DOWNSTREAM_NO_BUDGET:
	case DOWNSTREAM_BREAKER:
		if (phase->stopping)
			report_text(phase, PHASE_STOPPED, "stopped before it was sent");
		else
			again(phase, answer->reason, answer->retry_after_ms, false);
		return;
	case DOWNSTREAM_NO_ANSWER:
		retry(phase, answer, effect);
		return;
	case DOWNSTREAM_BAD_URL:
	case DOWNSTREAM_DENIED:
		if (phase->asking)
			read_back_in_vain(phase, answer->reason);
		else
			refuse(phase, answer->reason, false);
		return;
	case DOWNSTREAM_UNREADABLE:
		if (phase->asking && success)
			read_back_in_vain(phase, answer->reason);
		else if (success)
			refuse(phase, answer->reason, effect);
		if (success)
			return;
		break; /* the status says enough */
	case DOWNSTREAM_ANSWERED:
		break;
	}
	if (phase->asking)
		asked(phase, answer);
	else
		request_answered(phase, answer);
}

/* The key's window is looked at again: the request may have waited for its turn. */
static bool may_send(void *ctx)
{
	struct http_phase *phase = ctx;
	bool stale = has_effect(phase) && run_key_is_stale(phase->run);
	return !phase->stopping && !stale && run_may_send(phase->run);
}

/* Another request of this phase went out before, or may have. What reads back is a question, and
 * what settles must be asked. */
static bool is_repeat(const struct http_phase *phase)
{
	bool before = run_attempt(phase->run) > 1 || run_sent_age_ms(phase->run) >= 0;
	return before && !phase->asking && !run_settling(phase->run);
}

static void send_request(struct http_phase *phase)
{
	struct hf_err err = {};
	if (phase->stopping) {
		report_text(phase, PHASE_STOPPED, "stopped before it was sent");
		return;
	}
	bool keyed = !phase->asking && phase->spec->effect == EFFECT_KEYED;
	if (http_request_set_headers(&phase->request, phase->wanted, phase->run,
				     keyed ? phase->spec->key_header : nullptr, &err) != HF_OK) {
		report_text(phase, PHASE_FAILED, err.text);
		return;
	}
	/* Asked in time or not is decided now, before the question leaves. */
	int64_t age = run_sent_age_ms(phase->run);
	phase->early = age >= 0 && age <= phase->spec->visible_within_ms;
	phase->early_ms = phase->early ? phase->spec->visible_within_ms - age + 1 : 0;
	int64_t left = run_time_left_ms(phase->run);
	struct downstream_request request = {
		.method = phase->wanted->method,
		.url = phase->request.url.data,
		.headers = (const char *const *)phase->request.headers,
		.body = buf_slice(&phase->request.body),
		.has_body = phase->request.has_body,
		.repeat = is_repeat(phase),
		.insists = run_settles_last(phase->run),
		.timeout_ms = left > 0 ? left : 1,
		.may_send = may_send,
	};
	phase->call =
	    downstream_start(worker_downstream(run_worker(phase->run)), &request, on_answer, phase);
}

/* --- start and stop ------------------------------------------------------------------------- */

static void on_grace(struct ev_loop *, ev_timer *timer, int)
{
	struct http_phase *phase = container_of(timer, struct http_phase, grace);
	bool sent = downstream_abandon(phase->call);
	phase->call = nullptr;
	ev_timer_stop(run_loop(phase->run), timer);
	retry(phase,
	      &(struct downstream_answer){ .reason = "stopped while its answer was awaited" },
	      sent);
}

static void *start(struct run *run)
{
	struct http_phase *phase = hf_alloc(sizeof *phase);
	phase->run = run;
	phase->spec = run_phase(run);
	ev_init(&phase->grace, on_grace);
	struct slice state = {};
	int64_t age_ms;
	phase->accepted = run_accepted(run, &age_ms, &state);
	if (phase->accepted && run_settling(run)) {
		/* A cancel has to know what there is to undo: it was taken, whether it shows or
		 * not. */
		if (run_is_cancelled(run) || phase->spec->verify.go_on)
			done_unseen(phase);
		else
			report_text(phase, PHASE_UNKNOWN, "accepted downstream, and never seen");
		return nullptr;
	}
	if (phase->accepted) {
		look(phase);
		return phase;
	}
	bool asks = phase->spec->effect == EFFECT_LOOKUP && !run_is_first(run);
	prepare(phase, asks ? &phase->spec->reconcile : &phase->spec->request, asks);
	return phase; /* dropped by run.c where it has reported already */
}

static void abandon(struct http_phase *phase, enum phase_outcome outcome, const char *text)
{
	bool sent = phase->call && downstream_abandon(phase->call) && has_effect(phase);
	phase->call = nullptr;
	report(phase,
	       &(struct phase_result){ .outcome = outcome, .text = text, .maybe_sent = sent });
}

static void stop(void *state, bool lost)
{
	struct http_phase *phase = state;
	phase->stopping = true;
	if (lost) {
		abandon(phase, PHASE_LOST, "the claim was lost");
		return;
	}
	if (!phase->call || !downstream_sent(phase->call) || !has_effect(phase)) {
		abandon(phase, PHASE_STOPPED, "stopped");
		return;
	}
	timer_set(run_loop(phase->run), &phase->grace, run_grace_ms(phase->run));
}

const struct phase_kind phase_http = { start, stop };
