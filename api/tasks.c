/* tasks.c - tasks/get, tasks/update and tasks/cancel. A task of another owner, an expired one, one
 * that never was and a text that is no task ID get one and the same answer (V8). */
#include "api/answer.h"
#include "api/catalog.h"
#include "api/mcp.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/id.h"
#include "runtime/input.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/store.h"

static void refuse_missing(struct request *request)
{
	request_refuse_params(request, "Task not found or expired",
			      slice_of("{\"type\":\"task_not_found\",\"executed\":\"maybe\"}"));
}

/* Sets request->detail to the ID, or ends the request. */
static bool read_task_id(struct request *request)
{
	struct slice text;
	if (!request_text(request, "taskId", &text))
		return false;
	struct task_id *id = arena_alloc(request->call->arena, sizeof *id);
	if (!task_id_parse(text, id)) {
		refuse_missing(request);
		return false;
	}
	request->detail = id;
	return true;
}

static void reply_failure(struct request *request, enum hf_code code, const struct hf_err *err)
{
	if (code == HF_MISSING)
		refuse_missing(request);
	else
		request_unavailable(request, code, err, nullptr);
}

static void reply_ack(struct request *request)
{
	hf_cleanup(buf) struct buf result = {};
	result_ack(&result);
	request_reply(request, buf_slice(&result));
}

static void on_polled(void *ctx, enum hf_code code, const struct task_view *view,
		      const struct hf_err *err)
{
	struct request *request = ctx;
	if (code != HF_OK) {
		reply_failure(request, code, err);
		return;
	}

	hf_cleanup(buf) struct buf result = {};
	if (result_task(view, catalog_poll_interval_ms(request->api->catalog, view->tool), &result))
		request_reply(request, buf_slice(&result));
	else
		answer_corrupt(request, nullptr);
}

static void poll(struct request *request)
{
	store_poll(request->api->store, request->principal->owner, request->detail, on_polled,
		   request);
}

void mcp_tasks_get(struct request *request)
{
	if (read_task_id(request))
		request_with_owner(request, poll);
}

static void on_answered(void *ctx, enum hf_code code, int taken, const struct hf_err *err)
{
	struct request *request = ctx;
	if (code != HF_OK) {
		reply_failure(request, code, err);
		return;
	}
	char id[TASK_ID_TEXT_LEN + 1];
	log_info("answered", "task_id", task_id_format(request->detail, id), "owner",
		 LOG_INT(request->principal->owner), "taken", LOG_INT(taken), nullptr);
	reply_ack(request);
}

static struct slice responses_of(const struct request *request)
{
	struct slice responses = {};
	json_member(request->rpc.params, "inputResponses", &responses);
	return responses;
}

static void answer(struct request *request)
{
	struct principal *principal = request->principal;
	if (principal->updates >= AUTH_UPDATES_MAX) {
		request_refuse_bound(request, 429, "updates_per_principal",
				     "Nothing was taken: too many answers of this caller at once; "
				     "try again shortly");
		return;
	}
	struct hold *hold = hold_new(principal, &principal->updates, nullptr);
	store_answer(request->api->store, principal->owner, request->detail, responses_of(request),
		     (struct store_end){ hold_free, hold }, on_answered, request);
}

/* Whether an answer fits what was asked is the phase's affair, which asks again where it does not
 * (T6.5); here it is durable before it is acknowledged (T6.2). */
void mcp_tasks_update(struct request *request)
{
	if (!read_task_id(request))
		return;
	struct slice responses = responses_of(request), key, value;
	if (!responses.len || json_type_of(responses) != JSON_OBJECT) {
		request_refuse_params(request, "params.inputResponses must be an object",
				      (struct slice){});
		return;
	}
	for (size_t at = 0; json_object_next(responses, &at, &key, &value);) {
		if (value.len <= INPUT_ANSWER_BYTES_MAX)
			continue;
		request_refuse_params(request, "An answer in params.inputResponses is too large",
				      (struct slice){});
		return;
	}
	request_with_owner(request, answer);
}

static void on_cancelled(void *ctx, enum hf_code code, const struct hf_err *err)
{
	struct request *request = ctx;
	if (code != HF_OK) {
		reply_failure(request, code, err);
		return;
	}
	char id[TASK_ID_TEXT_LEN + 1];
	log_info("cancel asked for", "task_id", task_id_format(request->detail, id), "owner",
		 LOG_INT(request->principal->owner), nullptr);
	reply_ack(request);
}

static void cancel(struct request *request)
{
	store_cancel(request->api->store, request->principal->owner, request->detail, on_cancelled,
		     request);
}

void mcp_tasks_cancel(struct request *request)
{
	if (read_task_id(request))
		request_with_owner(request, cancel);
}
