/*
 * When a request may go: turns, the budget of repeats, the breaker, time.
 *
 *   start ──┬─► waiting* ──► running* ──► done
 *           │      └─► done (no turn in time)
 *           └─► settled* ──► done (refused before the wire)
 *
 *   * suspended: a turn, the answer or the call's own timer resumes it.
 *
 * Only waiting calls are in their host's list; only running ones are known to curl, and each tells
 * the host's breaker how it ended. A host that nothing is asked of stays remembered for its budget
 * of repeats and its breaker.
 */
#include "worker/downstream.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/clock.h"
#include "runtime/metrics.h"
#include "runtime/timer.h"
#include "worker/breaker.h"
#include "worker/curl_loop.h"
#include "worker/egress.h"
#include "worker/remote.h"
#include "worker/retry.h"
#include "worker/transfer.h"

struct downstream {
	struct ev_loop *loop;
	struct curl_loop *curl;
	struct egress *egress; /* nullptr: nobody is allowed */
	struct downstream_call *calls;
	struct remotes remotes;
	bool closing;
};

enum call_state { CALL_WAITING, CALL_RUNNING, CALL_SETTLED };

struct downstream_call {
	struct downstream *downstream;
	struct downstream_call *prev, *next;
	enum call_state state;
	ev_timer timer;
	struct transfer transfer;
	struct remote *host;            /* nullptr: settled */
	struct downstream_call *behind; /* in the host's list */
	enum downstream_fate fate;      /* of a settled one */
	int64_t began_at, give_up_at, slow_ms;
	int64_t passed; /* bytes, when they were last looked at, if they were `watched` then */
	bool watched;
	bool repeat, insists;
	struct breaker_pass pass; /* of a running one */
	bool told;                /* the breaker knows how it ended */
	bool hurried;             /* it had less than DOWNSTREAM_FAIR_MS left when its turn came */
	void (*done)(void *ctx, const struct downstream_answer *answer);
	void *ctx;
};

static void call_timer(struct downstream_call *call, int64_t ms)
{
	timer_set(call->downstream->loop, &call->timer, ms);
}

/* --- hosts and turns ------------------------------------------------------------------------- */

static bool has_turn(const struct remote *host, const struct downstream_call *call)
{
	return host->running < DOWNSTREAM_CALLS_PER_HOST_MAX &&
	       (!call->repeat || host->repeats < DOWNSTREAM_REPEATS_PER_HOST_MAX);
}

static void leave_list(struct downstream_call *call)
{
	struct remote *host = call->host;
	struct downstream_call **at = &host->waiting;
	while (*at != call)
		at = &(*at)->behind;
	*at = call->behind;
	if (host->waiting_end == &call->behind)
		host->waiting_end = at;
	call->behind = nullptr;
}

static void call_run(struct downstream_call *call)
{
	int64_t left = call->give_up_at - clock_boot_ms();
	int64_t timeout_ms = left > 0 ? left : 1;
	call->hurried = timeout_ms < DOWNSTREAM_FAIR_MS;
	transfer_set_times(&call->transfer, timeout_ms);
	call->state = CALL_RUNNING;
	call->host->running++;
	call->host->repeats += call->repeat;
	call->pass = breaker_pass(&call->host->breaker, clock_boot_ms());
	call_timer(call, call->slow_ms);
	curl_loop_add(call->downstream->curl, call->transfer.easy);
}

/* Ends without a word on the wire, once the loop is there. */
static void settle(struct downstream_call *call, enum downstream_fate fate, const char *text)
{
	call->state = CALL_SETTLED;
	call->fate = fate;
	call->host = nullptr; /* which may be forgotten now */
	transfer_say(&call->transfer, text);
	call_timer(call, 0);
}

/* --- the breaker ----------------------------------------------------------------------------- */

/* True: settled, since its host is not asked now. */
static bool breaker_refuses(struct downstream_call *call)
{
	hf_cleanup(buf) struct buf text = {};
	int64_t wait_ms = call->insists ? 0 : remote_wait_ms(call->host, &text);
	if (wait_ms == 0)
		return false;
	settle(call, DOWNSTREAM_BREAKER, text.data);
	call->transfer.retry_after_ms = wait_ms;
	return true;
}

static enum breaker_result result_of(const struct downstream_call *call,
				     const struct downstream_answer *answer, CURLcode code)
{
	constexpr int TIMEOUT = 408, TOO_MANY = 429;
	bool ours = code == CURLE_OPERATION_TIMEDOUT && !call->transfer.slow && call->hurried;
	switch (answer->fate) {
	case DOWNSTREAM_NOT_SENT:
	case DOWNSTREAM_NO_ANSWER:
		return ours ? BREAKER_NOTHING : BREAKER_FAILED;
	case DOWNSTREAM_ANSWERED:
	case DOWNSTREAM_UNREADABLE:
		return answer->status >= 500 || answer->status == TIMEOUT ||
			       answer->status == TOO_MANY
			   ? BREAKER_FAILED
			   : BREAKER_WORKED;
	case DOWNSTREAM_NO_BUDGET:
	case DOWNSTREAM_BREAKER:
	case DOWNSTREAM_WITHHELD:
	case DOWNSTREAM_BAD_URL:
	case DOWNSTREAM_DENIED:
		break;
	}
	return BREAKER_NOTHING;
}

/* In order, but a first request may pass repeats that are not let through. */
static void give_turns(struct remote *host)
{
	for (struct downstream_call *call = host->waiting, *behind; call; call = behind) {
		behind = call->behind;
		bool refused = !call->insists && breaker_wait_ms(&host->breaker, clock_boot_ms());
		if (!refused && !has_turn(host, call))
			continue;
		leave_list(call);
		if (!breaker_refuses(call))
			call_run(call);
	}
}

/* --- the end of a call ----------------------------------------------------------------------- */

static bool call_free(struct downstream_call *call)
{
	bool sent = call->transfer.sent;
	struct remote *host = call->host;
	struct downstream *downstream = call->downstream;
	ev_timer_stop(downstream->loop, &call->timer);
	if (call->state == CALL_WAITING)
		leave_list(call);
	if (call->state == CALL_RUNNING) {
		curl_loop_remove(downstream->curl, call->transfer.easy);
		if (!call->told)
			remote_tell(&downstream->remotes, host, call->pass, BREAKER_NOTHING, "");
		host->running--;
		host->repeats -= call->repeat;
	}
	transfer_deinit(&call->transfer);
	*(call->prev ? &call->prev->next : &downstream->calls) = call->next;
	if (call->next)
		call->next->prev = call->prev;
	free(call);
	if (host && !downstream->closing)
		give_turns(host);
	return sent;
}

static const char *const fate_names[] = {
	[DOWNSTREAM_NOT_SENT] = "not_sent",   [DOWNSTREAM_NO_BUDGET] = "no_budget",
	[DOWNSTREAM_BREAKER] = "breaker",     [DOWNSTREAM_WITHHELD] = "withheld",
	[DOWNSTREAM_BAD_URL] = "bad_url",     [DOWNSTREAM_DENIED] = "denied",
	[DOWNSTREAM_NO_ANSWER] = "no_answer", [DOWNSTREAM_UNREADABLE] = "unreadable",
	[DOWNSTREAM_ANSWERED] = "answered",
};

static void count_end(const struct downstream_call *call, enum downstream_fate fate)
{
	metric_add(METRIC_downstream_calls_total, fate_names[fate], 1);
	metric_add(METRIC_downstream_seconds_total, nullptr, clock_boot_ms() - call->began_at);
}

static void finish(struct downstream_call *call, CURLcode code)
{
	struct downstream_answer answer = transfer_answer(&call->transfer, code);
	count_end(call, answer.fate);
	if (answer.fate == DOWNSTREAM_ANSWERED)
		metric_add(METRIC_downstream_answers_total, metric_status(answer.status), 1);
	remote_tell(&call->downstream->remotes, call->host, call->pass,
		    result_of(call, &answer, code), answer.reason);
	call->told = true;
	call->done(call->ctx, &answer);
	call_free(call);
}

static void on_transferred(void *call, CURLcode code)
{
	finish(call, code);
}

static void tell_settled(struct downstream_call *call)
{
	count_end(call, call->fate);
	call->done(call->ctx,
		   &(struct downstream_answer){ .fate = call->fate,
						.reason = call->transfer.reason,
						.retry_after_ms = call->transfer.retry_after_ms });
	call_free(call);
}

/* curl's own low-speed limit would take an answer that lets wait for a drip. */
static void look_for_drips(struct downstream_call *call)
{
	bool watched;
	int64_t passed = transfer_passed(&call->transfer, &watched);
	bool slow = watched && call->watched && passed - call->passed < DOWNSTREAM_SLOW_BYTES;
	call->watched = watched;
	call->passed = passed;
	call->transfer.slow = slow;
	if (slow)
		finish(call, CURLE_OPERATION_TIMEDOUT);
	else
		call_timer(call, call->slow_ms);
}

static void on_call_time(struct ev_loop *, ev_timer *timer, int)
{
	struct downstream_call *call = container_of(timer, struct downstream_call, timer);
	switch (call->state) {
	case CALL_WAITING:
		metric_add(METRIC_bound_refused_total, "calls_per_host", 1);
		leave_list(call);
		settle(call, DOWNSTREAM_NOT_SENT, "no turn in time: its host has its most calls");
		break;
	case CALL_RUNNING:
		look_for_drips(call);
		break;
	case CALL_SETTLED:
		tell_settled(call);
		break;
	}
}

/* --- start ----------------------------------------------------------------------------------- */

struct downstream *downstream_open(struct ev_loop *loop, const struct breaker_limits *limits)
{
	struct downstream *downstream = hf_alloc(sizeof *downstream);
	downstream->loop = loop;
	downstream->remotes =
	    (struct remotes){ .count_max = DOWNSTREAM_HOSTS_MAX, .limits = *limits };
	downstream->curl = curl_loop_open(loop, on_transferred);
	return downstream;
}

void downstream_close(struct downstream *downstream)
{
	if (!downstream)
		return;
	downstream->closing = true;
	while (downstream->calls)
		call_free(downstream->calls);
	remotes_deinit(&downstream->remotes);
	downstream->curl = curl_loop_close(downstream->curl);
	egress_free(downstream->egress);
	free(downstream);
}

enum hf_code downstream_guard(struct downstream *downstream, const char *hosts,
			      const char *addresses, struct slice conf, struct hf_err *err)
{
	hf_assert(!downstream->egress);
	return egress_open(hosts, addresses, conf, &downstream->egress, err);
}

/* Finds the host, or settles a call that may not go there. */
static void find_host(struct downstream_call *call, const char *url)
{
	struct hf_err err = {};
	char text[TRANSFER_REASON_LEN_MAX + EGRESS_HOST_LEN_MAX];
	struct transfer *transfer = &call->transfer;
	const struct egress *egress = transfer->egress;
	if (egress_url(url, &transfer->url, &transfer->target, &err) != HF_OK) {
		settle(call, DOWNSTREAM_BAD_URL, err.text);
		return;
	}
	if (!egress || !egress_host_allowed(egress, &transfer->target)) {
		snprintf(text, sizeof text,
			 "host not allowed: %s, port %d (allowed: --allow-hosts or, without it, "
			 "hosts in URLs of --conf-file)",
			 transfer->target.host, transfer->target.port);
		settle(call, DOWNSTREAM_DENIED, text);
		return;
	}
	call->host = remote_get(&call->downstream->remotes, &transfer->target);
	if (breaker_refuses(call))
		return;
	int64_t wait_ms = 0;
	if (call->repeat)
		wait_ms = retry_budget_take(&call->host->budget, clock_boot_ms());
	else
		retry_budget_earn(&call->host->budget);
	if (wait_ms > 0) {
		metric_add(METRIC_bound_refused_total, "retry_budget", 1);
		settle(call, DOWNSTREAM_NO_BUDGET,
		       "waits: its host has had its share of repeats for now");
		call->transfer.retry_after_ms = wait_ms;
	}
}

static void join_list(struct downstream_call *call, int64_t timeout_ms)
{
	*call->host->waiting_end = call;
	call->host->waiting_end = &call->behind;
	call_timer(call, timeout_ms);
	give_turns(call->host);
}

struct downstream_call *
downstream_start(struct downstream *downstream, const struct downstream_request *request,
		 void (*done)(void *ctx, const struct downstream_answer *answer), void *ctx)
{
	hf_assert(request->timeout_ms > 0);
	struct downstream_call *call = hf_alloc(sizeof *call);
	*call = (struct downstream_call){
		.downstream = downstream,
		.next = downstream->calls,
		.transfer = { .egress = downstream->egress, .retry_after_ms = -1, .ctx = ctx },
		.began_at = clock_boot_ms(),
		.give_up_at = clock_boot_ms() + request->timeout_ms,
		.slow_ms = request->slow_ms ? request->slow_ms : DOWNSTREAM_SLOW_MS,
		.repeat = request->repeat,
		.insists = request->insists,
		.done = done,
		.ctx = ctx,
	};
	if (call->next)
		call->next->prev = call;
	downstream->calls = call;
	ev_init(&call->timer, on_call_time);
	find_host(call, request->url);
	if (call->state == CALL_SETTLED)
		return call;
	transfer_prepare(&call->transfer, request, call);
	join_list(call, request->timeout_ms);
	return call;
}

void downstream_collect(const struct downstream *downstream)
{
	int64_t running = 0, waiting = 0;
	for (const struct downstream_call *call = downstream->calls; call; call = call->next) {
		running += call->state == CALL_RUNNING;
		waiting += call->state == CALL_WAITING;
	}
	metric_set(METRIC_downstream_calls_open, "running", running);
	metric_set(METRIC_downstream_calls_open, "waiting", waiting);
	remotes_collect(&downstream->remotes);
}

bool downstream_sent(const struct downstream_call *call)
{
	return call->transfer.sent;
}

bool downstream_abandon(struct downstream_call *call)
{
	return call_free(call);
}
