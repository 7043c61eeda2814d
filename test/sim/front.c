/* front.c - see front.h. What api/mcp.c, api/conn.c and api/serve.c do around the decisions of a
 * plain call is done here in a few lines: requests end, clients hang up, a process drains and
 * closes. */
#include "test/sim/front.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/accepting.h"
#include "api/headers.h"
#include "api/mcp.h"
#include "api/plain.h"
#include "api/presence.h"
#include "api/watch.h"
#include "runtime/base.h"
#include "runtime/config.h"
#include "runtime/input.h"
#include "runtime/json.h"

constexpr int64_t DRAIN_LOOK_US = 50 * MS, DRAIN_US = 4'000 * MS;
constexpr size_t ARENA_BYTES = 1 << 20;

struct front {
	struct api api;
	struct process *process;
	struct caller *first;
	struct event drain;
	int64_t drain_until_us;
	bool leaving;
};

struct caller {
	struct caller *next, *previous;
	struct front *front;
	struct call call;
	struct request request;
	struct accepting accepting;
	struct principal principal;
	struct plain_request asked;
	bool gone;
};

static struct config config = { .ping_ms = 15'000 };

/* Of a call that nobody may write to. */
static const struct caller *caller_of(const struct call *call)
{
	return call->server;
}

/* --- requests: api/mcp.h
 * -------------------------------------------------------------------------- */

static void end(struct request *request, enum front_end how, int code, struct slice text)
{
	struct caller *caller = container_of(request, struct caller, request);
	*(caller->previous ? &caller->previous->next : &caller->front->first) = caller->next;
	if (caller->next)
		caller->next->previous = caller->previous;
	char *kept = hf_strndup(text.len ? text.data : "", text.len);
	struct plain_request asked = caller->asked;
	bool told = !caller->gone;
	arena_free(caller->call.arena);
	free(caller);
	if (told)
		as_process(nullptr, asked.ended(asked.ctx, how, code, kept));
	free(kept);
}

void request_reply(struct request *request, struct slice result)
{
	end(request, FRONT_RESULT, 0, result);
}

void request_refuse(struct request *request, const struct refusal *refusal)
{
	end(request, refusal->status == 200 ? FRONT_ERROR : FRONT_REFUSED, refusal->code,
	    refusal->data);
}

void request_refuse_bound(struct request *request, int, const char *, const char *)
{
	end(request, FRONT_REFUSED, RPC_INTERNAL, (struct slice){});
}

void request_error(struct request *request, struct slice error)
{
	end(request, FRONT_ERROR, 0, error);
}

void request_unavailable(struct request *request, enum hf_code, const struct hf_err *, const char *)
{
	end(request, FRONT_REFUSED, 0, (struct slice){});
}

void request_drop(struct request *request)
{
	end(request, FRONT_LOST, 0, (struct slice){});
}

void request_stream(struct request *request)
{
	request->streaming = true;
	count(TABLE_PLAIN, PLAIN_STREAMS, 0);
}

void request_progress(struct request *, struct slice)
{
}

void request_ping(struct request *)
{
}

struct slice request_progress_token(const struct request *request)
{
	const struct caller *caller = caller_of(request->call);
	return slice_of(caller->asked.events ? "7" : "");
}

const char *request_loss(const struct request *)
{
	return "connection_closed_midcall";
}

bool header_accepts_events(const struct call *call)
{
	return caller_of(call)->asked.events;
}

/* --- callers
 * ----------------------------------------------------------------------------------------- */

struct accept_call front_accept_call(const struct effect *effect, bool by_argument)
{
	static char text[2][64];
	snprintf(text[0], sizeof text[0], "e%d", effect->number);
	snprintf(text[1], sizeof text[1], by_argument ? "{\"effect_id\":\"%s\"}" : "{}", text[0]);
	struct accept_call call = { .owner = effect->owner,
				    .tool = effect->tool->id,
				    .result_ttl_ms = effect->tool->result_ttl_ms,
				    .tool_name = slice_of(effect->tool->name),
				    .effect_id = slice_of(text[0]),
				    .arguments = slice_of(text[1]),
				    .asks = INPUT_FORM,
				    .key_version = 1 };
	memcpy(call.fingerprint, effect->fingerprint, FINGERPRINT_BYTES);
	return call;
}

struct caller *front_call(struct process *process, const struct plain_request *asked)
{
	struct front *front = process->front;
	struct caller *caller = hf_alloc(sizeof *caller);
	struct arena *arena = arena_new(ARENA_BYTES);
	caller->front = front;
	caller->asked = *asked;
	caller->call.arena = arena;
	caller->call.server = caller;
	caller->request = (struct request){ .call = &caller->call,
					    .api = &front->api,
					    .principal = &caller->principal };
	struct accepting *accepting = &caller->accepting;
	accepting->call = front_accept_call(asked->effect, asked->by_argument);
	const char *id = arena_copy(arena, accepting->call.effect_id);
	accepting->effect_id =
	    (struct effect_id){ .text = slice_of(id),
				.carrier = asked->by_argument ? EFFECT_CARRIER_ARGUMENT
							      : EFFECT_CARRIER_PARAM };
	accepting->answer_window_ms = asked->effect->tool->answer_window_ms;
	accepting->on_disconnect = asked->effect->tool->on_disconnect;
	caller->next = front->first;
	if (caller->next)
		caller->next->previous = caller;
	front->first = caller;
	as_process(process, plain_call(&caller->request, accepting));
	return caller;
}

void front_hang_up(struct caller *caller)
{
	caller->gone = true;
	caller->call.gone = true;
	if (caller->call.on_gone)
		as_process(caller->front->process, caller->call.on_gone(&caller->call));
}

struct process *front_draw(void)
{
	for (int tries = 0; tries < 4; tries++) {
		struct process *process =
		    world.processes[dice_between(0, world.processes_count - 1)];
		if (process->kind == PROCESS_API && process->alive && !process->draining &&
		    now_us >= process->go_on_us)
			return process;
	}
	return nullptr;
}

/* --- the process
 * --------------------------------------------------------------------------------------- */

static size_t on_open(void *ctx)
{
	struct front *front = ctx;
	return plains_count(front->api.plains);
}

static void on_reborn(void *ctx)
{
	struct front *front = ctx;
	count(TABLE_PLAIN, PLAIN_REATTACHED, 0);
	plains_reattach(front->api.plains);
}

static void on_wake(void *ctx, enum wake wake)
{
	struct front *front = ctx;
	if (wake == WAKE_ENDED)
		watch_hint(front->api.watch);
}

static void open_front(struct process *process)
{
	struct front *front = hf_alloc(sizeof *front);
	process->front = front;
	front->process = process;
	front->api.config = &config;
	front->api.loop = process->loop;
	front->api.store = store_open(process->loop, STORE_API, "", nullptr, nullptr);
	const struct presence_hooks hooks = { on_open, on_reborn, front };
	front->api.presence = presence_open(process->loop, front->api.store, world.beat_ms, &hooks);
	front->api.watch = watch_new(process->loop, front->api.store);
	front->api.plains = plains_new(&front->api);
	store_on_wake(front->api.store, on_wake, front);
}

void api_begin(int number)
{
	struct process *process = process_new(PROCESS_API, number);
	as_process(process, open_front(process));
}

/* What its clients see of a process that is no more. */
void api_died(struct process *process)
{
	struct front *front = process->front;
	process->front = nullptr;
	if (front)
		event_drop(&front->drain);
	while (front && front->first)
		end(&front->first->request, FRONT_LOST, 0, (struct slice){});
}

/* As api_close: what waits for the store is told, then the connections are closed. */
static void close_front(struct front *front)
{
	front->api.closing = true;
	store_close(front->api.store);
	for (struct caller *at; (at = front->first);) {
		at->call.gone = true;
		hf_assert(at->call.on_gone);
		at->call.on_gone(&at->call);
	}
	front->api.presence = presence_close(front->api.presence);
	front->api.plains = plains_free(front->api.plains);
	front->api.watch = watch_free(front->api.watch);
	event_drop(&front->drain);
	process_ended(front->process);
}

static void on_left(void *ctx)
{
	struct front *front = ctx;
	front->drain_until_us = now_us;
}

static void on_drain(struct event *event)
{
	struct front *front = container_of(event, struct front, drain);
	if (now_us >= front->drain_until_us) {
		close_front(front);
		return;
	}
	if (!front->first && plains_count(front->api.plains) == 0 && !front->leaving) {
		front->leaving = true;
		presence_leave(front->api.presence, on_left, front);
	}
	event_set(event, now_us + DRAIN_LOOK_US);
}

void api_drain(struct process *process)
{
	struct front *front = process->front;
	front->api.draining = true;
	front->drain_until_us = now_us + DRAIN_US;
	count(TABLE_PLAIN, PLAIN_DRAINED, 0);
	plains_drain(front->api.plains);
	front->drain = (struct event){ .process = process, .fire = on_drain };
	event_set(&front->drain, now_us + DRAIN_LOOK_US);
}
