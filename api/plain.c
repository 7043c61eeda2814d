/* plain.c - see plain.h. One machine for each plain call:
 *
 *    accepting* ──► waiting* ──► streaming* ──► leaving* ──► freed
 *        │             │  no stream is opened ──► ▲
 *        └ refused     └── within a second ───────┤ answered | window over | gone
 *          or gone ──────────────────────────────►┘          * suspended here
 *
 * The request is there up to the answer and no longer; `leaving` only tells the store that nobody
 * waits here any more. A call that is gone while its accept is out leaves as soon as the task is
 * known. A call that answers with an outcome has nothing to leave: the attachment went with the
 * task.
 *
 * Of several open calls for one task only the last that was attached counts in the store. So who
 * leaves names an heir, an open call of this process, and where the attachment was still the
 * leaver's own, the heir is attached in its place. Whoever has an attachment on its way, its own or
 * as an heir, is `busy` and leaves only when that has arrived: it would else stay behind.
 *
 * Another process's client may park the task that is waited for here, since that process cannot
 * know. The next look sees it parked, and attaching takes it up again. */
#include "api/plain.h"

#include <stdlib.h>
#include <string.h>

#include <ev.h>

#include "api/answer.h"
#include "api/auth.h"
#include "api/headers.h"
#include "api/presence.h"
#include "api/result.h"
#include "api/watch.h"
#include "runtime/base.h"
#include "runtime/chain.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/timer.h"

enum plain_state { PLAIN_ACCEPTING, PLAIN_WAITING, PLAIN_STREAMING, PLAIN_LEAVING };

/* Where each state may go, as bits. */
static const unsigned EDGES[] = {
	[PLAIN_ACCEPTING] = 1u << PLAIN_WAITING,
	[PLAIN_WAITING] = 1u << PLAIN_STREAMING | 1u << PLAIN_LEAVING,
	[PLAIN_STREAMING] = 1u << PLAIN_LEAVING,
	[PLAIN_LEAVING] = 0,
};

struct plain {
	enum plain_state state;
	struct plains *plains;
	struct plain *next, *previous;
	struct request *request;           /* nullptr once it was answered or dropped */
	const struct accepting *accepting; /* lives in the request */
	char *tool;                        /* name, for the log */
	enum disconnect on_disconnect;
	int64_t started_ms, window_ms;
	ev_timer turn; /* waiting: a stream is due; streaming: a comment is */
	ev_timer window;
	/* in the store */
	struct uuid api; /* the incarnation it was last attached under */
	int64_t number;
	unsigned busy;      /* attachments under way */
	bool adrift;        /* the last attachment failed: to be tried again */
	bool park;          /* leaving: its client hung up */
	const char *loss;   /* leaving: how it was lost */
	struct plain *heir; /* leaving: who was chosen */
	/* of the task */
	struct watcher watcher;
	bool replayed;
	enum task_state task_state;
	int attempt;
	struct buf message; /* as the last look found it */
	/* told on the stream */
	double progress;
	struct buf told;
	int64_t told_ms;
};

struct plains {
	struct api *api;
	struct plain *first;
	size_t count;
	int64_t numbers;
	bool draining;
};

static void depart(struct plain *plain);

static void plain_move(struct plain *plain, enum plain_state state)
{
	hf_assert(EDGES[plain->state] & 1u << state);
	plain->state = state;
}

static struct ev_loop *loop_of(const struct plain *plain)
{
	return plain->plains->api->loop;
}

static void timers_stop(struct plain *plain)
{
	ev_timer_stop(loop_of(plain), &plain->turn);
	ev_timer_stop(loop_of(plain), &plain->window);
}

static void plain_free(struct plain *plain)
{
	struct plains *plains = plain->plains;
	hf_assert(!plain->request);
	hf_assert(!plain->busy);
	chain_drop(plains->first, plain);
	plains->count--;
	timers_stop(plain);
	watch_remove(&plain->watcher);
	buf_deinit(&plain->message);
	buf_deinit(&plain->told);
	free(plain->tool);
	free(plain);
}

/* The request, to be ended by the caller: nobody waits any more. */
static struct request *request_take(struct plain *plain)
{
	struct request *request = plain->request;
	hf_assert(request);
	hf_assert(request->principal->plains > 0);
	request->principal->plains--;
	request->call->on_gone = nullptr;
	plain->request = nullptr;
	timers_stop(plain);
	watch_remove(&plain->watcher);
	return request;
}

static bool is_open(const struct plain *plain)
{
	return plain->state == PLAIN_WAITING || plain->state == PLAIN_STREAMING;
}

static void unbusy(struct plain *plain)
{
	hf_assert(plain->busy > 0);
	plain->busy--;
	if (plain->busy == 0 && plain->state == PLAIN_LEAVING)
		depart(plain);
}

static void on_attached(void *ctx, enum hf_code code, const struct hf_err *err)
{
	struct plain *plain = ctx;
	if (code != HF_OK && code != HF_CANCELLED)
		log_warn("not attached", "number", LOG_INT(plain->number), "error",
			 err ? err->text : nullptr, nullptr);
	/* Under the last incarnation it counts no more. */
	const struct uuid *incarnation = presence_incarnation(plain->plains->api->presence);
	plain->adrift = code != HF_OK || !incarnation || !uuid_equal(incarnation, &plain->api);
	unbusy(plain);
}

/* The caller has counted it as busy. */
static void attach_now(struct plain *plain)
{
	struct api *api = plain->plains->api;
	const struct uuid *incarnation = presence_incarnation(api->presence);
	if (incarnation)
		plain->api = *incarnation;
	store_attach(api->store, plain->watcher.owner, &plain->watcher.id, &plain->api,
		     plain->number, on_attached, plain);
}

static void attach(struct plain *plain)
{
	if (plain->busy)
		return;
	plain->busy++;
	attach_now(plain);
}

static struct plain *find_heir(const struct plain *leaver)
{
	for (struct plain *at = leaver->plains->first; at; at = at->next)
		if (at != leaver && is_open(at) &&
		    task_id_equal(&at->watcher.id, &leaver->watcher.id))
			return at;
	return nullptr;
}

static void log_gone(const struct plain *plain, int step)
{
	char id[TASK_ID_TEXT_LEN + 1];
	bool parks = plain->on_disconnect == DISCONNECT_PARK;
	const char *how = strcmp(plain->loss, "deadline") == 0        ? "client too slow"
			  : strcmp(plain->loss, "stream_closed") == 0 ? "stream closed"
								      : "connection closed";
	char *msg = parks ? hf_format("%s cancelled at step %d (%s)", plain->tool, step, how)
			  : hf_format("%s goes on (%s)", plain->tool, how);
	log_info(msg, "task_id", task_id_format(&plain->watcher.id, id), "step", LOG_INT(step),
		 "cause", plain->loss, nullptr);
	free(msg);
}

static void on_detached(void *ctx, enum hf_code code, bool ours, int step, const struct hf_err *err)
{
	struct plain *plain = ctx;
	struct plain *heir = plain->heir;
	if (code != HF_OK && code != HF_CANCELLED)
		log_warn("not detached", "number", LOG_INT(plain->number), "error",
			 err ? err->text : nullptr, nullptr);
	bool inherits = heir && code == HF_OK && ours && !plain->plains->api->closing;
	if (code == HF_OK && ours && plain->park && !heir) {
		metric_add(METRIC_parked_total, nullptr, plain->on_disconnect == DISCONNECT_PARK);
		log_gone(plain, step);
	}
	plain_free(plain);
	if (inherits)
		attach_now(heir);
	else if (heir)
		unbusy(heir);
}

/* Tells the store; the last of a call. */
static void depart(struct plain *plain)
{
	hf_assert(plain->state == PLAIN_LEAVING);
	struct api *api = plain->plains->api;
	if (api->closing) {
		plain_free(plain);
		return;
	}
	plain->heir = find_heir(plain);
	if (plain->heir)
		plain->heir->busy++;
	bool park = plain->park && !plain->heir && plain->on_disconnect == DISCONNECT_PARK;
	store_detach(api->store, &plain->watcher.id, &plain->api, plain->number, park, on_detached,
		     plain);
}

/* The request was ended; `gone`: by its client. */
static void leave(struct plain *plain, bool gone)
{
	plain_move(plain, PLAIN_LEAVING);
	plain->park = gone;
	if (!plain->busy)
		depart(plain);
}

static void on_gone(struct call *call)
{
	struct plain *plain = call->on_gone_ctx;
	if (plain->state == PLAIN_ACCEPTING)
		return; /* the task is not known yet */
	metric_add(METRIC_plain_calls_total, "gone", 1);
	plain->loss = request_loss(plain->request);
	request_drop(request_take(plain));
	leave(plain, true);
}

/* Acceptance tells that a task is over, its outcome is looked up: where that does not come in the
 * window, as when the store goes away between the two, the task is told as open, and the next call
 * tells how it ended. `cause`: the end of its window, or of this process. */
static void answer_window_over(struct plain *plain, const char *cause)
{
	const struct task_view view = {
		.id = plain->watcher.id,
		.state = answer_is_due(plain->task_state) ? TASK_RUNNING : plain->task_state,
		.attempt = plain->attempt,
		.progress = -1,
		.message = buf_slice(&plain->message),
		.effect_id = plain->accepting->effect_id.text,
	};
	enum effect_carrier carrier = plain->accepting->effect_id.carrier;
	metric_add(METRIC_plain_calls_total, "window", 1);
	char id[TASK_ID_TEXT_LEN + 1];
	log_info("answered while it runs", "task_id", task_id_format(&view.id, id), "trace_id",
		 plain->accepting->trace_id, "cause", cause, nullptr);
	answer_still_running(request_take(plain), carrier, &view);
	leave(plain, false);
}

static void on_window(struct ev_loop *, ev_timer *timer, int)
{
	answer_window_over(container_of(timer, struct plain, window), "deadline");
}

static void answer_view(struct plain *plain, const struct task_view *view)
{
	enum effect_carrier carrier = plain->accepting->effect_id.carrier;
	metric_add(METRIC_plain_calls_total, "outcome", 1);
	answer_outcome(request_take(plain), carrier, view, plain->replayed);
	if (task_state_is_terminal(view->state) && !plain->busy) {
		plain_free(plain);
		return;
	}
	leave(plain, false);
}

static void answer_forgotten(struct plain *plain)
{
	const struct effect_id effect_id = plain->accepting->effect_id;
	metric_add(METRIC_plain_calls_total, "outcome", 1);
	answer_expired(request_take(plain), &effect_id);
	leave(plain, false);
}

constexpr double PROGRESS_MAX = 0.99;           /* only the answer is the end */
constexpr double PROGRESS_STEP = 0.01;          /* of what is left, where only the text is new */
constexpr double PROGRESS_STEP_MIN = 0.000'001; /* what is printed has to rise */

/* It has to rise with each notification; a task's own fraction begins anew with each phase. */
static bool progress_rises(struct plain *plain, const struct task_view *view, bool news)
{
	double at = view->progress > 0 && view->progress <= 1 ? view->progress * PROGRESS_MAX : 0;
	if (at <= plain->progress && !news)
		return false;
	if (at <= plain->progress)
		at = plain->progress + (1 - plain->progress) * PROGRESS_STEP;
	if (at - plain->progress < PROGRESS_STEP_MIN)
		return false;
	plain->progress = at;
	return true;
}

static void tell_progress(struct plain *plain, const struct task_view *view)
{
	if (plain->state != PLAIN_STREAMING || !request_progress_token(plain->request).len)
		return;
	int64_t now_ms = clock_boot_ms();
	if (now_ms - plain->told_ms < PLAIN_PROGRESS_EVERY_MS)
		return; /* the next look tells */
	hf_cleanup(buf) struct buf scratch = {};
	struct slice message = result_status_message(view, &scratch);
	if (!progress_rises(plain, view, !slice_equal(message, buf_slice(&plain->told))))
		return;
	plain->told_ms = now_ms;
	buf_clear(&plain->told);
	buf_add_slice(&plain->told, message);

	hf_cleanup(buf) struct buf members = {};
	buf_add_format(&members, "\"progress\":%.7f,\"total\":1,\"message\":", plain->progress);
	json_string_encode(message, &members);
	request_progress(plain->request, buf_slice(&members));
}

static void on_turn(struct ev_loop *, ev_timer *timer, int)
{
	struct plain *plain = container_of(timer, struct plain, turn);
	if (plain->state == PLAIN_WAITING) {
		plain_move(plain, PLAIN_STREAMING);
		request_stream(plain->request);
	}
	request_ping(plain->request);
	timer_set(loop_of(plain), &plain->turn, plain->request->api->config->ping_ms);
}

static void remember(struct plain *plain, const struct task_view *view)
{
	plain->task_state = view->state;
	plain->attempt = view->attempt;
	buf_clear(&plain->message);
	buf_add_slice(&plain->message, view->message);
}

static void on_seen(void *ctx, enum hf_code code, const struct task_view *view,
		    const struct hf_err *)
{
	struct plain *plain = ctx;
	if (code == HF_MISSING) {
		answer_forgotten(plain);
		return;
	}
	if (code != HF_OK)
		return; /* the window bounds how long the store may be away */
	if (answer_is_due(view->state)) {
		answer_view(plain, view);
		return;
	}
	remember(plain, view);
	if (plain->plains->draining) {
		answer_window_over(plain, "draining");
		return;
	}
	if (view->state == TASK_PARKED || plain->adrift)
		attach(plain);
	tell_progress(plain, view);
}

static void start_waiting(struct plain *plain, const struct task_view *view)
{
	plain_move(plain, PLAIN_WAITING);
	remember(plain, view);
	if (plain->request->call->gone) {
		metric_add(METRIC_plain_calls_total, "gone", 1);
		plain->loss = request_loss(plain->request);
		request_drop(request_take(plain));
		leave(plain, true);
		return;
	}
	struct api *api = plain->plains->api;
	const struct uuid *incarnation = presence_incarnation(api->presence);
	if (incarnation && !uuid_equal(incarnation, &plain->api))
		attach(plain);

	/* Acceptance tells no results: those are looked up. */
	bool over = answer_is_due(view->state);
	plain->watcher.seen = on_seen;
	plain->watcher.ctx = plain;
	watch_add(api->watch, &plain->watcher,
		  over || plain->plains->draining ? 0 : WATCH_FIRST_MS);
	int64_t gone_ms = clock_boot_ms() - plain->started_ms;
	int64_t left_ms = plain->window_ms - gone_ms;
	timer_set(loop_of(plain), &plain->window,
		  over && left_ms < PLAIN_QUICK_MS ? PLAIN_QUICK_MS : left_ms);
	if (header_accepts_events(plain->request->call))
		timer_set(loop_of(plain), &plain->turn, PLAIN_QUICK_MS - gone_ms);
}

static void on_accepted(void *ctx, enum hf_code code, enum accept_outcome outcome,
			const struct task_view *view, const struct hf_err *err)
{
	struct plain *plain = ctx;
	hf_assert(plain->request->principal->accepts > 0);
	plain->request->principal->accepts--;
	if (code != HF_OK || !view) {
		const struct effect_id effect_id = plain->accepting->effect_id;
		metric_add(METRIC_plain_calls_total, "refused", 1);
		answer_not_accepted(request_take(plain), &effect_id, code, outcome, err);
		plain_free(plain);
		return;
	}

	char id[TASK_ID_TEXT_LEN + 1];
	plain->replayed = outcome == ACCEPT_SAME;
	plain->watcher.id = view->id;
	log_info(plain->replayed ? "call repeated" : "call accepted", "task_id",
		 task_id_format(&view->id, id), "trace_id", plain->accepting->trace_id, "tool",
		 plain->tool, "owner", LOG_INT(plain->watcher.owner), nullptr);
	start_waiting(plain, view);
}

void plain_call(struct request *request, const struct accepting *accepting)
{
	struct plains *plains = request->api->plains;
	const struct uuid *incarnation = presence_incarnation(request->api->presence);
	if (request->call->gone) {
		request_drop(request);
		return;
	}
	if (request->principal->plains >= AUTH_PLAINS_MAX) {
		metric_add(METRIC_calls_refused_total, "busy_owner", 1);
		request_refuse_bound(
		    request, 429, "plain_calls_per_principal",
		    "Nothing was run: too many calls of this caller are waited for; "
		    "try again when some are answered");
		return;
	}
	if (!incarnation || request->api->closing) {
		request_unavailable(request, HF_BUSY, nullptr, "no");
		return;
	}

	struct plain *plain = hf_alloc(sizeof *plain);
	plain->plains = plains;
	plain->request = request;
	plain->accepting = accepting;
	plain->tool = hf_strndup(accepting->call.tool_name.data, accepting->call.tool_name.len);
	plain->on_disconnect = accepting->on_disconnect;
	plain->started_ms = clock_boot_ms();
	plain->window_ms = accepting->answer_window_ms;
	plain->api = *incarnation;
	plain->number = ++plains->numbers;
	plain->watcher.owner = accepting->call.owner;
	ev_init(&plain->turn, on_turn);
	ev_init(&plain->window, on_window);
	chain_add(plains->first, plain);
	plains->count++;

	request->principal->plains++;
	request->principal->accepts++;
	request->call->on_gone = on_gone;
	request->call->on_gone_ctx = plain;
	struct accept_call call = accepting->call;
	call.api = plain->api;
	call.number = plain->number;
	store_accept(plains->api->store, &call, on_accepted, plain);
}

struct plains *plains_new(struct api *api)
{
	struct plains *plains = hf_alloc(sizeof *plains);
	plains->api = api;
	return plains;
}

struct plains *plains_free(struct plains *plains)
{
	if (!plains)
		return nullptr;
	hf_assert(plains->count == 0);
	free(plains);
	return nullptr;
}

void plains_reattach(struct plains *plains)
{
	for (struct plain *at = plains->first; at; at = at->next) {
		if (!is_open(at))
			continue;
		at->adrift = true; /* one that is busy is attached at its next look */
		attach(at);
	}
}

void plains_drain(struct plains *plains)
{
	plains->draining = true;
	for (struct plain *at = plains->first, *next; at; at = next) {
		next = at->next;
		if (is_open(at) && !answer_is_due(at->task_state))
			answer_window_over(at, "draining");
	}
}

void plains_collect(const struct plains *plains)
{
	int64_t open = 0, streams = 0;
	for (const struct plain *at = plains->first; at; at = at->next) {
		open += is_open(at);
		streams += at->state == PLAIN_STREAMING;
	}
	metric_set(METRIC_plain_calls_open, nullptr, open);
	metric_set(METRIC_streams_open, nullptr, streams);
}

size_t plains_count(const struct plains *plains)
{
	return plains->count;
}
