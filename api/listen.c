/* listen.c - see listen.h. One machine for each stream:
 *
 *    asking* ──► open* ──► ending* ──► freed       * suspended here
 *      │           └── gone ──────────►┘ ▲
 *      └ gone, or the store is away ─────┘
 *
 * `asking`: each task named is looked at; those that are not its owner's, or not at all, are left
 * out without a word (V8). The states found ride behind the acknowledgement, so nothing that
 * changed before it is lost, and what changes later is seen by the next look. `ending`: a reader
 * that has not taken the last frames yet gets the result when it has.
 *
 * What is told of a task is compared with what was told last, so whatever a client could see of it
 * by tasks/get is a change. Frames are written only while there is room; a task that had none owes
 * its state and is looked at again when the reader has drained the stream. So a slow reader costs a
 * bounded buffer and skips to what is true by then. */
#include "api/listen.h"

#include <stdlib.h>

#include <ev.h>

#include "api/catalog.h"
#include "api/follow.h"
#include "api/headers.h"
#include "api/mcp.h"
#include "api/result.h"
#include "api/sse.h"
#include "api/subscription.h"
#include "runtime/base.h"
#include "runtime/chain.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/task.h"
#include "runtime/timer.h"

enum listen_state { LISTEN_ASKING, LISTEN_OPEN, LISTEN_ENDING };

/* A task of a stream. */
struct followed {
	struct follower follower;
	struct listen *listen;
	bool asked, accepted;
	bool owes; /* there was no room for its state */
	/* told last */
	enum task_state state;
	int64_t told_ms;
	struct buf told; /* params of the notification; empty: none yet */
};

struct listen {
	enum listen_state state;
	struct listens *listens;
	struct listen *next, *previous;
	struct request *request;
	struct subscription *wanted; /* lives in the request */
	struct followed *followed;   /* one for each of wanted->tasks */
	size_t followed_count;
	size_t asking;    /* not looked at yet */
	size_t following; /* not over yet */
	bool owes_tools;
	struct buf held; /* events to be sent behind the acknowledgement */
	ev_timer ping, life;
};

struct listens {
	struct api *api;
	struct listen *first;
	size_t count;
	bool draining;
	ev_timer settle;
};

static struct ev_loop *loop_of(const struct listen *listen)
{
	return listen->listens->api->loop;
}

static void stop_following(struct listen *listen)
{
	for (size_t i = 0; i < listen->followed_count; i++) {
		follow_remove(&listen->followed[i].follower);
		buf_deinit(&listen->followed[i].told);
	}
}

static void listen_free(struct listen *listen)
{
	struct listens *listens = listen->listens;
	hf_assert(!listen->request);
	chain_drop(listens->first, listen);
	listens->count--;
	ev_timer_stop(loop_of(listen), &listen->ping);
	ev_timer_stop(loop_of(listen), &listen->life);
	stop_following(listen);
	buf_deinit(&listen->held);
	free(listen->followed);
	free(listen);
}

/* The request, to be ended by the caller. */
static struct request *request_take(struct listen *listen)
{
	struct request *request = listen->request;
	hf_assert(request->principal->listens > 0);
	request->principal->listens--;
	request->call->on_gone = nullptr;
	request->call->on_drained = nullptr;
	listen->request = nullptr;
	return request;
}

static void on_gone(struct call *call)
{
	struct listen *listen = call->on_gone_ctx;
	request_drop(request_take(listen));
	listen_free(listen);
}

static bool has_room(const struct listen *listen)
{
	size_t unsent =
	    listen->state == LISTEN_ASKING ? listen->held.len : call_unsent(listen->request->call);
	return unsent <= LISTEN_UNSENT_BYTES_MAX;
}

static void send_frame(struct listen *listen, struct slice message)
{
	if (listen->state == LISTEN_ASKING)
		sse_event(message, &listen->held);
	else
		request_notify(listen->request, message);
}

/* Once there is room; `listen` may be no more. */
static void end_if_read(struct listen *listen)
{
	if (!has_room(listen))
		return;
	hf_cleanup(buf) struct buf result = {};
	subscription_end(listen->request->rpc.id, &result);
	request_reply(request_take(listen), buf_slice(&result));
	listen_free(listen);
}

static void end(struct listen *listen)
{
	hf_assert(listen->state == LISTEN_OPEN);
	listen->state = LISTEN_ENDING;
	stop_following(listen);
	end_if_read(listen);
}

static bool is_over(const struct listen *listen)
{
	return listen->listens->draining ||
	       (!listen->wanted->tools_changed && listen->following == 0);
}

static void tell_tools(struct listen *listen)
{
	listen->owes_tools = listen->state != LISTEN_OPEN || !has_room(listen);
	if (listen->owes_tools)
		return;
	hf_cleanup(buf) struct buf message = {};
	subscription_tools_changed(listen->request->rpc.id, &message);
	send_frame(listen, buf_slice(&message));
}

static void no_more_of(struct followed *followed)
{
	follow_remove(&followed->follower);
	buf_deinit(&followed->told);
	followed->listen->following--;
}

static bool is_too_soon(const struct followed *followed, const struct task_view *view)
{
	return followed->told.len && view->state == followed->state &&
	       clock_boot_ms() - followed->told_ms < LISTEN_TELL_EVERY_MS;
}

/* Tells what is new of it; true when there was room for all that is to be told. */
static bool tell(struct followed *followed, const struct task_view *view)
{
	struct listen *listen = followed->listen;
	const struct catalog *catalog = listen->listens->api->catalog;
	hf_cleanup(buf) struct buf params = {};
	if (!result_task_notice(view, catalog_poll_interval_ms(catalog, view->tool),
				listen->request->rpc.id, &params)) {
		log_error("the stored outcome is no JSON object", "owner",
			  LOG_INT(followed->follower.owner), nullptr);
		return true; /* tasks/get says so */
	}
	if (slice_equal(buf_slice(&params), buf_slice(&followed->told)))
		return true;
	if (!has_room(listen))
		return false;

	hf_cleanup(buf) struct buf message = {};
	subscription_task(buf_slice(&params), &message);
	send_frame(listen, buf_slice(&message));
	followed->state = view->state;
	followed->told_ms = clock_boot_ms();
	buf_deinit(&followed->told);
	followed->told = params;
	params = (struct buf){};
	return true;
}

static void look(struct followed *followed, const struct task_view *view)
{
	if (is_too_soon(followed, view))
		return; /* the next look tells */
	followed->owes = followed->follower.paused = !tell(followed, view);
	if (!followed->owes && task_state_is_terminal(view->state))
		no_more_of(followed);
}

/* All have been looked at. `listen` may be no more. */
static void open_stream(struct listen *listen)
{
	struct subscription *honoured = listen->wanted;
	size_t kept = 0;
	for (size_t i = 0; i < listen->followed_count; i++)
		if (listen->followed[i].accepted)
			honoured->tasks[kept++] = honoured->tasks[i];
	honoured->tasks_count = kept;

	hf_cleanup(buf) struct buf ack = {};
	subscription_ack(listen->request->rpc.id, honoured, &ack);
	listen->state = LISTEN_OPEN;
	request_stream(listen->request);
	request_notify(listen->request, buf_slice(&ack));
	if (listen->held.len)
		call_write(listen->request->call, buf_slice(&listen->held));
	buf_deinit(&listen->held);
	timer_set(loop_of(listen), &listen->life, listen->listens->api->config->listen_ms);
	ev_timer_again(loop_of(listen), &listen->ping);
	if (listen->owes_tools)
		tell_tools(listen);
	if (is_over(listen))
		end(listen);
}

static void on_seen(void *ctx, enum hf_code code, const struct task_view *view,
		    const struct hf_err *err)
{
	struct followed *followed = ctx;
	struct listen *listen = followed->listen;
	bool first = !followed->asked;
	if (code != HF_OK && code != HF_MISSING) {
		if (first) { /* nothing was said yet */
			request_unavailable(request_take(listen), code, err, "no");
			listen_free(listen);
		}
		return;
	}
	followed->asked = true;
	followed->accepted = followed->accepted || code == HF_OK;
	if (code == HF_MISSING)
		no_more_of(followed);
	else
		look(followed, view);

	if (first && --listen->asking == 0)
		open_stream(listen);
	else if (listen->state == LISTEN_OPEN && is_over(listen))
		end(listen);
}

/* The reader has taken all of it. */
static void on_drained(struct call *call)
{
	struct listen *listen = call->on_gone_ctx;
	if (listen->state == LISTEN_ENDING) {
		end_if_read(listen);
		return;
	}
	if (listen->owes_tools)
		tell_tools(listen);
	unsigned looks = 0;
	for (size_t i = 0; i < listen->followed_count && looks < LISTEN_CATCH_UP_MAX; i++) {
		struct followed *at = &listen->followed[i];
		if (!at->owes)
			continue;
		at->owes = false;
		follow_again(&at->follower);
		looks++;
	}
}

static void on_ping(struct ev_loop *, ev_timer *timer, int)
{
	struct listen *listen = container_of(timer, struct listen, ping);
	if (call_unsent(listen->request->call) == 0)
		request_ping(listen->request);
}

static void on_life(struct ev_loop *, ev_timer *timer, int)
{
	struct listen *listen = container_of(timer, struct listen, life);
	if (listen->state == LISTEN_OPEN)
		end(listen);
}

static struct listen *listen_new(struct request *request)
{
	struct listens *listens = request->api->listens;
	struct listen *listen = hf_alloc(sizeof *listen);
	listen->listens = listens;
	listen->request = request;
	listen->wanted = request->detail;
	listen->followed_count = listen->asking = listen->following = listen->wanted->tasks_count;
	listen->followed = hf_alloc((listen->followed_count + 1) * sizeof *listen->followed);
	chain_add(listens->first, listen);
	listens->count++;
	request->principal->listens++;
	request->call->on_gone = on_gone;
	request->call->on_drained = on_drained;
	request->call->on_gone_ctx = listen;

	ev_timer_init(&listen->ping, on_ping, 0, (double)listens->api->config->ping_ms / 1000);
	ev_init(&listen->life, on_life);
	return listen;
}

/* There is no such task, nor a week to look in, of which there are more than anyone should make the
 * store look through. Clocks may differ by less. */
static bool is_of_the_future(const struct task_id *id)
{
	return task_id_ms(id) > clock_wall_ms() + LISTEN_FUTURE_MS;
}

static void start(struct request *request)
{
	const struct api *api = request->api;
	if (request->call->gone) {
		request_drop(request);
		return;
	}
	if (api->closing) {
		request_unavailable(request, HF_BUSY, nullptr, "no");
		return;
	}
	if ((int64_t)request->principal->listens >= api->config->listens_per_owner_max) {
		request_refuse_bound(
		    request, 429, "listens_per_owner",
		    "Too many streams are open for this caller; close one, or try again "
		    "shortly");
		return;
	}
	if ((int64_t)api->listens->count >= api->config->listens_max) {
		request_refuse_bound(request, 503, "listens",
				     "Too many streams are open; try again shortly");
		return;
	}

	struct listen *listen = listen_new(request);
	for (size_t i = 0; i < listen->followed_count; i++) {
		struct followed *followed = &listen->followed[i];
		followed->listen = listen;
		followed->follower.owner = request->principal->owner;
		followed->follower.id = listen->wanted->tasks[i];
		followed->follower.seen = on_seen;
		followed->follower.ctx = followed;
		if (is_of_the_future(&followed->follower.id)) {
			followed->asked = true;
			listen->asking--;
			listen->following--;
			continue;
		}
		follow_add(api->follow, &followed->follower);
	}
	if (listen->asking == 0)
		open_stream(listen);
}

/* False: `refusal` says why not. */
static bool is_fit(const struct request *request, struct refusal *refusal)
{
	if (!header_accepts_events(request->call))
		refusal_set(refusal, 406, RPC_INVALID_REQUEST,
			    "Accept must let text/event-stream in for this method");
	else if (request->call->body.len > LISTEN_BODY_BYTES_MAX)
		refusal_set(refusal, 413, RPC_INVALID_REQUEST,
			    "The body is too large for this method");
	else if (subscription_names_tasks(request->rpc.params) && !request->top.declares_tasks)
		refusal_set_tasks(refusal);
	else
		return true;
	return false;
}

void mcp_listen(struct request *request)
{
	struct call *call = request->call;
	struct refusal refusal;
	if (!is_fit(request, &refusal)) {
		request_refuse(request, &refusal);
		return;
	}
	struct subscription *wanted = arena_alloc(call->arena, sizeof *wanted);
	const char *fault = subscription_read(request->rpc.params, wanted);
	if (fault) {
		request_refuse_params(request, fault, (struct slice){});
		return;
	}
	request->detail = wanted;
	request_with_owner(request, start);
}

static void on_settled(struct ev_loop *, ev_timer *timer, int)
{
	struct listens *listens = container_of(timer, struct listens, settle);
	for (struct listen *at = listens->first; at; at = at->next)
		if (at->wanted->tools_changed)
			tell_tools(at);
}

struct listens *listens_new(struct api *api)
{
	struct listens *listens = hf_alloc(sizeof *listens);
	listens->api = api;
	ev_init(&listens->settle, on_settled);
	return listens;
}

void listens_collect(const struct listens *listens)
{
	metric_bound("listens", (int64_t)listens->count, listens->api->config->listens_max);
}

struct listens *listens_free(struct listens *listens)
{
	if (!listens)
		return nullptr;
	hf_assert(listens->count == 0);
	ev_timer_stop(listens->api->loop, &listens->settle);
	free(listens);
	return nullptr;
}

void listens_tools_changed(struct listens *listens)
{
	timer_set(listens->api->loop, &listens->settle, listens->api->config->listen_settle_ms);
}

void listens_drain(struct listens *listens)
{
	listens->draining = true;
	for (struct listen *at = listens->first, *next; at; at = next) {
		next = at->next;
		if (at->state == LISTEN_OPEN)
			end(at);
	}
}
