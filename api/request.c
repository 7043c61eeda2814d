/* request.c - see request.h. */
#include "api/request.h"

#include "api/sse.h"
#include "runtime/arena.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/store.h"

static void reply_json(struct call *call, int status, struct slice body, const char *extra)
{
	call_reply(call, &(struct reply){
			     .status = status,
			     .content_type = "application/json",
			     .body = body,
			     .extra = extra,
			 });
}

/* `data` (an object, or empty) with the member `executed`. */
static struct slice with_executed(struct arena *arena, struct slice data, const char *executed)
{
	struct slice said;
	data = json_trim(data);
	if (json_member(data, "executed", &said))
		return data;
	hf_cleanup(buf) struct buf text = {};
	buf_add_format(&text, "{\"executed\":\"%s\"", executed);
	if (data.len > 2) { /* more than "{}" */
		buf_add_byte(&text, ',');
		buf_add(&text, data.data + 1, data.len - 1);
	} else {
		buf_add_byte(&text, '}');
	}
	return arena_slice(arena, buf_slice(&text));
}

void call_refuse(struct call *call, struct slice id, const struct refusal *refusal)
{
	hf_cleanup(buf) struct buf body = {};
	rpc_error(id, refusal->code, refusal->message,
		  with_executed(call->arena, refusal->data, "no"), &body);
	reply_json(call, refusal->status, buf_slice(&body), refusal->extra);
}

static struct call *request_end(struct request *request)
{
	auth_release(request->principal);
	request->principal = nullptr;
	return request->call;
}

void request_stream(struct request *request)
{
	hf_assert(!request->streaming);
	request->streaming = true;
	sse_open(request->call);
}

struct slice request_progress_token(const struct request *request)
{
	struct slice token;
	int64_t number;
	if (!json_member(request->top.meta, "progressToken", &token))
		return (struct slice){};
	bool fits = json_type_of(token) == JSON_STRING ||
		    (json_type_of(token) == JSON_NUMBER && json_integer(token, &number));
	return fits ? token : (struct slice){};
}

bool request_text(struct request *request, const char *name, struct slice *out)
{
	struct arena *arena = request->call->arena;
	struct slice value;
	if (json_member(request->rpc.params, name, &value) && json_type_of(value) == JSON_STRING) {
		*out = json_string_copy(value, arena);
		return true;
	}
	request_refuse_params(request, arena_format(arena, "params.%s must be a string", name),
			      (struct slice){});
	return false;
}

void request_notify(struct request *request, struct slice message)
{
	hf_assert(request->streaming);
	hf_cleanup(buf) struct buf event = {};
	sse_event(message, &event);
	call_write(request->call, buf_slice(&event));
}

void request_progress(struct request *request, struct slice members)
{
	hf_cleanup(buf) struct buf message = {};
	buf_add_text(&message, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","
			       "\"params\":{\"progressToken\":");
	buf_add_slice(&message, request_progress_token(request));
	buf_add_byte(&message, ',');
	buf_add_slice(&message, members);
	buf_add_text(&message, "}}");
	request_notify(request, buf_slice(&message));
}

void request_ping(struct request *request)
{
	hf_assert(request->streaming);
	hf_cleanup(buf) struct buf comment = {};
	sse_comment(&comment);
	call_write(request->call, buf_slice(&comment));
}

const char *request_loss(const struct request *request)
{
	if (request->call->too_slow)
		return "deadline";
	return request->streaming ? "stream_closed" : "connection_closed_midcall";
}

static void log_loss(const struct request *request)
{
	log_info("client left before its answer", "method", method_name(request->top.method),
		 "cause", request_loss(request), nullptr);
}

/* The one message that answers; a stream has said its status already. */
static void answer(struct request *request, int status, struct slice message, const char *extra)
{
	if (request->call->gone)
		log_loss(request);
	if (!request->streaming) {
		reply_json(request_end(request), status, message, extra);
		return;
	}
	request_notify(request, message);
	call_end(request_end(request));
}

/* What could not be held is told later: an outcome is in the store. */
static bool has_room(struct request *request, size_t bytes)
{
	if (call_has_room(request->call, bytes))
		return true;
	metric_add(METRIC_bound_refused_total, "answer_bytes", 1);
	request_refuse(request, &(struct refusal){
				    .status = 503,
				    .code = RPC_INTERNAL,
				    .message = "The answer is large, and too many large ones "
					       "wait for their readers; send the same again "
					       "shortly",
				    .extra = RETRY_AFTER,
				});
	return false;
}

void request_reply(struct request *request, struct slice result)
{
	if (!has_room(request, result.len))
		return;
	hf_cleanup(buf) struct buf body = {};
	rpc_begin(request->rpc.id, &body);
	buf_add_slice(&body, result);
	rpc_end(&body);
	answer(request, 200, buf_slice(&body), nullptr);
}

void request_refuse(struct request *request, const struct refusal *refusal)
{
	hf_cleanup(buf) struct buf body = {};
	const char *executed = request->past_owner ? "maybe" : "no";
	rpc_error(request->rpc.id, refusal->code, refusal->message,
		  with_executed(request->call->arena, refusal->data, executed), &body);
	answer(request, refusal->status, buf_slice(&body), refusal->extra);
}

void request_acknowledge(struct request *request)
{
	call_reply(request_end(request), &(struct reply){ .status = 202 });
}

void request_error(struct request *request, struct slice error)
{
	if (!has_room(request, error.len))
		return;
	hf_cleanup(buf) struct buf body = {};
	rpc_error_stored(request->rpc.id, error, &body);
	answer(request, 200, buf_slice(&body), nullptr);
}

void request_drop(struct request *request)
{
	hf_assert(request->call->gone);
	log_loss(request);
	bool streaming = request->streaming;
	struct call *call = request_end(request);
	if (streaming)
		call_end(call);
	else
		call_reply(call, nullptr);
}

void request_refuse_params(struct request *request, const char *message, struct slice data)
{
	request_refuse(request, &(struct refusal){
				    .status = 200,
				    .code = RPC_INVALID_PARAMS,
				    .message = message,
				    .data = data,
				});
}

/* Whether the same call may do later. */
static bool is_passing(enum hf_code code)
{
	return code == HF_LIMIT || code == HF_BUSY || code == HF_CANCELLED || code == HF_TIMEOUT ||
	       code == HF_DB || code == HF_NET;
}

void request_unavailable(struct request *request, enum hf_code code, const struct hf_err *err,
			 const char *executed)
{
	hf_assert(code != HF_OK);

	bool passing = is_passing(code);
	if (request->top.method == METHOD_TOOLS_CALL)
		metric_add(METRIC_calls_refused_total, "unavailable", 1);
	log_write(passing ? LOG_WARN : LOG_ERROR, "request not served", "method",
		  method_name(request->top.method), "code", hf_code_name(code), "error",
		  err ? err->text : nullptr, nullptr);
	request_refuse(request,
		       &(struct refusal){
			   .status = passing ? 503 : 200,
			   .code = RPC_INTERNAL,
			   .message = passing ? "The service is busy or its store is away; send "
						"the same again shortly"
					      : "Internal error: this server is at fault, and "
						"its log says why",
			   .data = executed
				       ? slice_of(arena_format(request->call->arena,
							       "{\"executed\":\"%s\"}", executed))
				       : (struct slice){},
			   .extra = passing ? RETRY_AFTER : nullptr,
		       });
}

void request_refuse_bound(struct request *request, int status, const char *bound,
			  const char *message)
{
	hf_assert(status == 429 || status == 503);
	metric_add(METRIC_bound_refused_total, bound, 1);
	request_refuse(request, &(struct refusal){ .status = status,
						   .code = RPC_INTERNAL,
						   .message = message,
						   .data = slice_of("{\"executed\":\"no\"}"),
						   .extra = RETRY_AFTER });
}

static void on_owner(void *ctx, enum hf_code code, int64_t owner, const struct hf_err *err)
{
	struct request *request = ctx;
	if (code != HF_OK) {
		request_unavailable(request, code, err, "no");
		return;
	}
	hf_assert(owner != 0);

	request->principal->owner = owner;
	request->past_owner = true;
	request->go_on(request);
}

void request_with_owner(struct request *request, void (*go_on)(struct request *request))
{
	struct principal *principal = request->principal;
	if (principal->owner != 0) {
		request->past_owner = true;
		go_on(request);
		return;
	}
	request->go_on = go_on;
	store_principal(request->api->store, slice_of(principal->issuer),
			slice_of(principal->subject), slice_of(principal->tenant), on_owner,
			request);
}
