/* answer.c - see answer.h. */
#include "api/answer.h"

#include "api/result.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/metrics.h"
#include "runtime/task.h"

/* A queue is not emptied in a moment. */
static constexpr char RETRY_AFTER_QUEUE[] = "Retry-After: 5\r\n";

struct slice answer_data(struct arena *arena, const char *type, const char *executed,
			 const char *name, struct slice value)
{
	hf_cleanup(buf) struct buf data = {};
	buf_add_format(&data, "{\"type\":\"%s\",\"executed\":\"%s\"", type, executed);
	if (name) {
		buf_add_format(&data, ",\"%s\":", name);
		json_string_encode(value, &data);
	}
	buf_add_byte(&data, '}');
	return arena_slice(arena, buf_slice(&data));
}

void answer_tool_error(struct request *request, const char *text, struct slice structured)
{
	hf_cleanup(buf) struct buf result = {};
	result_about(nullptr, true, text, structured, &result);
	request_reply(request, buf_slice(&result));
}

void answer_bad_arguments(struct request *request, const char *fault, const char *advice)
{
	metric_add(METRIC_calls_refused_total, "invalid_arguments", 1);
	struct arena *arena = request->call->arena;
	answer_tool_error(
	    request,
	    arena_format(arena,
			 "Nothing was run: the arguments do not fit the tool's inputSchema: %s.%s",
			 fault, advice ? advice : ""),
	    answer_data(arena, "invalid_arguments", "no", "reason", slice_of(fault)));
}

/* `view`: of the task that a result names in its _meta; nullptr where there is none. */
static void refuse(struct request *request, enum effect_carrier carrier, enum rpc_code code,
		   const struct task_view *view, const char *text, struct slice data)
{
	if (carrier == EFFECT_CARRIER_ARGUMENT) {
		hf_cleanup(buf) struct buf result = {};
		result_about(view, true, text, data, &result);
		request_reply(request, buf_slice(&result));
		return;
	}
	request_refuse(request, &(struct refusal){
				    .status = 200, .code = code, .message = text, .data = data });
}

void answer_expired(struct request *request, const struct effect_id *effect_id)
{
	refuse(request, effect_id->carrier, RPC_EXPIRED, nullptr,
	       "The work of this effect_id ran earlier and its result is no longer "
	       "kept. It does not run again. For new work make up a new effect_id.",
	       answer_data(request->call->arena, "effect_expired", "yes", "idempotencyKey",
			   effect_id->text));
}

/* The same whatever carried the effect ID, since nothing was stored under it: the client is to
 * wait, not the model. */
static void answer_backlog_full(struct request *request)
{
	metric_add(METRIC_calls_refused_total, "backlog_full", 1);
	request_refuse(request,
		       &(struct refusal){
			   .status = 429,
			   .code = RPC_INTERNAL,
			   .message = "Too many calls of this tool wait already; nothing was "
				      "run. Try again later with the same effect_id",
			   .data = answer_data(request->call->arena, "backlog_full", "no", nullptr,
					       (struct slice){}),
			   .extra = RETRY_AFTER_QUEUE,
		       });
}

void answer_not_accepted(struct request *request, const struct effect_id *effect_id,
			 enum hf_code code, enum accept_outcome outcome, const struct hf_err *err)
{
	if (code != HF_OK) {
		bool surely_not = code == HF_BUSY || code == HF_LIMIT || code == HF_INVALID;
		request_unavailable(request, code, err, surely_not ? "no" : "maybe");
		return;
	}
	if (outcome == ACCEPT_EXPIRED) {
		answer_expired(request, effect_id);
		return;
	}
	if (outcome == ACCEPT_FULL) {
		answer_backlog_full(request);
		return;
	}
	hf_assert(outcome == ACCEPT_CONFLICT);
	refuse(request, effect_id->carrier, RPC_CONFLICT, nullptr,
	       "This effect_id was used before with other arguments, so nothing was "
	       "run now. To get the earlier work's result send exactly its arguments; "
	       "for new work make up a new effect_id.",
	       answer_data(request->call->arena, "idempotency_key_conflict", "no", "idempotencyKey",
			   effect_id->text));
}

static const char *told(struct request *request, const struct task_view *view)
{
	hf_cleanup(buf) struct buf scratch = {};
	return arena_copy(request->call->arena, result_status_message(view, &scratch));
}

/* What became of it is told between the two halves of the text. */
static void refuse_told(struct request *request, enum effect_carrier carrier, enum rpc_code code,
			const struct task_view *view, const char *before, const char *behind,
			struct slice data)
{
	refuse(request, carrier, code, view,
	       arena_format(request->call->arena, "%s%s%s", before, told(request, view), behind),
	       data);
}

static void answer_failed(struct request *request, enum effect_carrier carrier,
			  const struct task_view *view)
{
	struct arena *arena = request->call->arena;
	struct slice error = json_trim(view->error), data;
	if (carrier != EFFECT_CARRIER_ARGUMENT) {
		request_error(request, error);
		return;
	}
	if (!json_member(error, "data", &data) || json_type_of(data) != JSON_OBJECT)
		data = answer_data(arena, "failed", "maybe", "idempotencyKey", view->effect_id);
	refuse_told(request, carrier, RPC_INTERNAL, view, "This work failed: ",
		    ". Its effect_id gives this answer again; to try once more make up a new "
		    "effect_id.",
		    data);
}

void answer_corrupt(struct request *request, const char *executed)
{
	struct hf_err corrupt = {};
	enum hf_code code = hf_fail(&corrupt, HF_CORRUPT, "the stored outcome is no JSON object");
	request_unavailable(request, code, &corrupt, executed);
}

bool answer_is_due(enum task_state state)
{
	return task_state_is_terminal(state) || state == TASK_UNKNOWN;
}

void answer_outcome(struct request *request, enum effect_carrier carrier,
		    const struct task_view *view, bool replayed)
{
	hf_assert(answer_is_due(view->state));

	struct arena *arena = request->call->arena;
	hf_cleanup(buf) struct buf result = {};
	switch (view->state) {
	case TASK_COMPLETED:
		if (result_call(view, replayed, &result))
			request_reply(request, buf_slice(&result));
		else
			answer_corrupt(request, "yes");
		return;
	case TASK_FAILED:
		if (json_scan(view->error, nullptr) == HF_OK &&
		    json_type_of(json_trim(view->error)) == JSON_OBJECT)
			answer_failed(request, carrier, view);
		else
			answer_corrupt(request, "yes");
		return;
	case TASK_CANCELLED:
		refuse_told(
		    request, carrier, RPC_CANCELLED, view, "This work was cancelled (",
		    "). Its effect_id stays cancelled; for new work make up a new effect_id.",
		    answer_data(arena, "cancelled", "maybe", "idempotencyKey", view->effect_id));
		return;
	default:
		refuse_told(request, carrier, RPC_OUTCOME_UNKNOWN, view,
			    "Not done, and not surely undone: ",
			    ". Do not call again with a new effect_id, it might happen twice. The "
			    "same effect_id tells the outcome once it is settled.",
			    answer_data(arena, "outcome_unknown", "maybe", "idempotencyKey",
					view->effect_id));
		return;
	}
}

/* One text for a model; what it says to do needs no knowledge of tasks. */
static const char *still_running_text(struct request *request, const struct task_view *view)
{
	char id[TASK_ID_TEXT_LEN + 1];
	struct arena *arena = request->call->arena;
	const char *status = task_state_mcp(view->state), *message = told(request, view);
	task_id_format(&view->id, id);
	if (view->state == TASK_WAITING)
		return arena_format(
		    arena,
		    "Not done yet: the work stands still until somebody answers what it asks "
		    "(status %s: %s); nothing of it is lost. Only a client that declares the Tasks "
		    "extension can answer, for task %s or by calling the same tool with the same "
		    "arguments and the same effect_id. Do not start it again under a new "
		    "effect_id.",
		    status, message, id);
	if (view->state == TASK_PARKED)
		return arena_format(
		    arena,
		    "Not done yet: the work stands still (status %s: %s); nothing of it is lost. "
		    "To go on with it, call the same tool again with the same arguments and the "
		    "same effect_id. Do not start it again under a new effect_id.",
		    status, message);
	return arena_format(
	    arena,
	    "Not done yet: the work goes on in the background (status %s: %s) and nothing of it is "
	    "lost. Do not start it again under a new effect_id. To get its result, call the same "
	    "tool again with the same arguments and the same effect_id, or call task_status with "
	    "task_id %s, which waits for the end, and then task_result.",
	    status, message, id);
}

void answer_still_running(struct request *request, enum effect_carrier carrier,
			  const struct task_view *view)
{
	hf_assert(!task_state_is_terminal(view->state));

	char id[TASK_ID_TEXT_LEN + 1];
	const char *text = still_running_text(request, view);
	hf_cleanup(buf) struct buf data = {};
	if (carrier == EFFECT_CARRIER_PARAM) {
		buf_add_text(&data,
			     "{\"type\":\"idempotency_key_in_progress\",\"idempotencyKey\":");
		json_string_encode(view->effect_id, &data);
		buf_add_format(&data,
			       ",\"retryAfterMs\":%lld,\"taskId\":\"%s\",\"executed\":\"maybe\"}",
			       (long long)ANSWER_RETRY_AFTER_MS, task_id_format(&view->id, id));
		refuse(request, carrier, RPC_IN_PROGRESS, view, text, buf_slice(&data));
		return;
	}
	buf_add_text(&data, "{\"type\":\"still_running\",\"effect_id\":");
	json_string_encode(view->effect_id, &data);
	buf_add_format(&data,
		       ",\"task_id\":\"%s\",\"status\":\"%s\",\"retry_after_ms\":%lld,"
		       "\"executed\":\"maybe\"}",
		       task_id_format(&view->id, id), task_state_mcp(view->state),
		       (long long)ANSWER_RETRY_AFTER_MS);
	hf_cleanup(buf) struct buf result = {};
	result_about(view, true, text, buf_slice(&data), &result);
	request_reply(request, buf_slice(&result));
}
