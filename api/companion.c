/* companion.c - see companion.h. Called by tools.c, before it looks into the catalog.
 *
 *    arguments checked ─► owner known* ─► task found* ─┬─► polled* ─► answered
 *               (by effect_id and tool, or not at all) ├─► cancelled* ─► polled*
 *                         task_status, for a while     └─► watched* ─► answered
 *                                                      * waits for the store, or a timer
 *
 * A model sees what went wrong as a tool error, never as an error of the protocol: a conformance
 * suite calls the first tool of the list without arguments and wants an answer. */
#include "api/companion.h"

#include <stdlib.h>

#include <ev.h>

#include "api/answer.h"
#include "api/result.h"
#include "api/watch.h"
#include "runtime/base.h"
#include "runtime/chain.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/schema.h"
#include "runtime/store.h"
#include "runtime/task.h"
#include "runtime/timer.h"
#include "runtime/tool.h"

enum companion { TASK_STATUS, TASK_RESULT, TASK_CANCEL, COMPANIONS };

#define NAMES_A_TASK                                                                           \
	"\"task_id\":{\"type\":\"string\",\"maxLength\":64,"                                   \
	"\"description\":\"The task, as an earlier answer named it (tsk_…).\"},"               \
	"\"effect_id\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":255,"                \
	"\"description\":\"Instead of task_id: the effect_id that the call was made with.\"}," \
	"\"tool\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":64,"                      \
	"\"description\":\"With effect_id: the name of the tool that was called.\"}"
#define OBJECT_OF(properties) \
	"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" properties "}}"
#define HINTS(read_only, destructive)                                      \
	"{\"readOnlyHint\":" read_only ",\"destructiveHint\":" destructive \
	",\"idempotentHint\":true,\"openWorldHint\":false}"

static const struct {
	const char *name, *title, *description, *schema, *annotations;
} tools[COMPANIONS] = {
	[TASK_STATUS] = {
	    "task_status",
	    "Status of earlier work",
	    "Tells how far the work of an earlier tool call has come, after an answer of type "
	    "still_running or a lost answer for example. Name the work by task_id, or by effect_id "
	    "and tool. It waits up to wait_ms for the end before it answers, so call it again only "
	    "when it has answered; no pause is needed in between. Once the status is completed, "
	    "task_result has the result. Starts, repeats and changes nothing.",
	    OBJECT_OF(NAMES_A_TASK
		      ",\"wait_ms\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":20000,"
		      "\"default\":10000,\"description\":\"Milliseconds to wait for the end.\"}"),
	    HINTS("true", "false"),
	},
	[TASK_RESULT] = {
	    "task_result",
	    "Result of earlier work",
	    "Gives the result of an earlier tool call, exactly as that tool would have answered. "
	    "Name the work by task_id, or by effect_id and tool. While the work goes on it says so "
	    "(type still_running) and nothing else; task_status waits for the end. Starts, repeats "
	    "and changes nothing.",
	    OBJECT_OF(NAMES_A_TASK),
	    HINTS("true", "false"),
	},
	[TASK_CANCEL] = {
	    "task_cancel",
	    "Cancel earlier work",
	    "Stops the work of an earlier tool call for good. Name the work by task_id, or by "
	    "effect_id and tool. What has happened already is not undone; the status tells which "
	    "parts were done. Work that is over stays as it is. The effect_id of cancelled work "
	    "cannot be used again.",
	    OBJECT_OF(NAMES_A_TASK),
	    HINTS("false", "true"),
	},
};

struct companions {
	struct schema *schemas[COMPANIONS];
	struct buf json;
	struct asking *waiting;
	bool draining;
};

/* One call, in the request's arena. */
struct asking {
	struct request *request;
	enum companion companion;
	struct task_id id;
	struct slice effect_id, tool; /* empty: named by id */
	int64_t wait_ms;
	/* task_status, while it waits */
	struct asking *next, *previous;
	struct watcher watcher;
	ev_timer timer;
	bool over; /* it has waited enough: the next look is told */
};

static void publish(enum companion companion, struct buf *out)
{
	buf_add_format(out, "{\"name\":\"%s\",\"title\":", tools[companion].name);
	json_string_encode(slice_of(tools[companion].title), out);
	buf_add_text(out, ",\"description\":");
	json_string_encode(slice_of(tools[companion].description), out);
	buf_add_format(out, ",\"inputSchema\":%s,\"annotations\":%s}", tools[companion].schema,
		       tools[companion].annotations);
}

struct companions *companions_new(void)
{
	struct companions *companions = hf_alloc(sizeof *companions);
	for (enum companion i = 0; i < COMPANIONS; i++) {
		hf_assert(tool_name_reserved(slice_of(tools[i].name)));
		bool reads = schema_new(slice_of(tools[i].schema), &companions->schemas[i],
					nullptr) == HF_OK;
		hf_assert(reads);
		if (i > 0)
			buf_add_byte(&companions->json, ',');
		publish(i, &companions->json);
	}
	return companions;
}

struct companions *companions_free(struct companions *companions)
{
	if (!companions)
		return nullptr;
	hf_assert(!companions->waiting);
	for (enum companion i = 0; i < COMPANIONS; i++)
		schema_free(companions->schemas[i]);
	buf_deinit(&companions->json);
	free(companions);
	return nullptr;
}

struct slice companions_json(const struct companions *companions)
{
	return buf_slice(&companions->json);
}

static void answer_missing(struct request *request)
{
	answer_tool_error(request,
			  "There is no such task of yours, or its result is no longer kept. Check "
			  "task_id, or effect_id and tool.",
			  answer_data(request->call->arena, "task_not_found", "maybe", nullptr,
				      (struct slice){}));
}

static void answer_failure(struct request *request, enum hf_code code, const struct hf_err *err)
{
	if (code == HF_MISSING)
		answer_missing(request);
	else
		request_unavailable(request, code, err, nullptr);
}

static const char *advice(const struct task_view *view)
{
	switch (view->state) {
	case TASK_COMPLETED:
		return "Get its result with task_result.";
	case TASK_FAILED:
	case TASK_CANCELLED:
		return "It does not run again; new work needs a new effect_id.";
	case TASK_PARKED:
		return "To go on with it, call its tool again with the same arguments and the same "
		       "effect_id.";
	case TASK_UNKNOWN:
		return "Do not start it again under a new effect_id: it might happen twice.";
	case TASK_WAITING:
		return "It stands still until a client that declares the Tasks extension answers "
		       "what "
		       "it asks; do not start it again under a new effect_id.";
	case TASK_PAUSED:
		return "It stands still until an operator resumes it; do not start it again under "
		       "a new effect_id.";
	case TASK_READY:
	case TASK_SCHEDULED:
	case TASK_RUNNING:
	case TASK_UNVERIFIED:
		break;
	}
	return "It goes on in the background; call task_status again to wait for its end.";
}

/* What task_status and task_cancel tell, as text and as data. */
static void answer_status(struct request *request, const struct task_view *view, const char *next)
{
	char id[TASK_ID_TEXT_LEN + 1];
	hf_cleanup(buf) struct buf scratch = {}, text = {}, data = {};
	struct slice message = result_status_message(view, &scratch);
	const char *status = task_state_mcp(view->state);
	buf_add_format(&text, "Status: %s", status);
	if (message.len) {
		buf_add_text(&text, ": ");
		buf_add_slice(&text, message);
	}
	buf_add_format(&text, ". %s", next);

	buf_add_format(&data, "{\"task_id\":\"%s\",\"status\":\"%s\",\"effect_id\":",
		       task_id_format(&view->id, id), status);
	json_string_encode(view->effect_id, &data);
	if (message.len) {
		buf_add_text(&data, ",\"message\":");
		json_string_encode(message, &data);
	}
	if (!task_state_is_terminal(view->state) && view->progress >= 0 && view->progress <= 1)
		buf_add_format(&data, ",\"progress\":%.4f", view->progress);
	buf_add_text(&data, ",\"created_at\":\"");
	result_add_time(view->created_ms, &data);
	buf_add_text(&data, "\",\"updated_at\":\"");
	result_add_time(view->updated_ms, &data);
	buf_add_format(&data, "\",\"finished\":%s}",
		       task_state_is_terminal(view->state) ? "true" : "false");

	hf_cleanup(buf) struct buf result = {};
	result_about(view, false, text.data, buf_slice(&data), &result);
	request_reply(request, buf_slice(&result));
}

static void on_polled(void *ctx, enum hf_code code, const struct task_view *view,
		      const struct hf_err *err)
{
	struct asking *asking = ctx;
	struct request *request = asking->request;
	if (code != HF_OK)
		answer_failure(request, code, err);
	else if (asking->companion == TASK_CANCEL)
		answer_status(request, view,
			      answer_is_due(view->state)
				  ? advice(view)
				  : "The cancel is taken: it stops as soon as what has left is "
				    "answered; call task_status to wait for its end.");
	else if (answer_is_due(view->state))
		answer_outcome(request, EFFECT_CARRIER_ARGUMENT, view, true);
	else
		answer_still_running(request, EFFECT_CARRIER_ARGUMENT, view);
}

static void on_cancelled(void *ctx, enum hf_code code, const struct hf_err *err)
{
	struct asking *asking = ctx;
	struct request *request = asking->request;
	if (code != HF_OK) {
		answer_failure(request, code, err);
		return;
	}
	char id[TASK_ID_TEXT_LEN + 1];
	log_info("cancel asked for", "task_id", task_id_format(&asking->id, id), "owner",
		 LOG_INT(request->principal->owner), nullptr);
	if (request->api->closing) {
		request_unavailable(request, HF_CANCELLED, nullptr, nullptr);
		return;
	}
	store_poll(request->api->store, request->principal->owner, &asking->id, on_polled, asking);
}

static struct request *stop_waiting(struct asking *asking)
{
	struct request *request = asking->request;
	chain_drop(request->api->companions->waiting, asking);
	ev_timer_stop(request->api->loop, &asking->timer);
	watch_remove(&asking->watcher);
	request->call->on_gone = nullptr;
	return request;
}

/* Nothing more will come of waiting. */
static bool is_settled(enum task_state state)
{
	return answer_is_due(state) || state == TASK_PARKED || state == TASK_PAUSED ||
	       state == TASK_WAITING;
}

static void on_seen(void *ctx, enum hf_code code, const struct task_view *view,
		    const struct hf_err *err)
{
	struct asking *asking = ctx;
	if (code == HF_OK && (asking->over || is_settled(view->state)))
		answer_status(stop_waiting(asking), view, advice(view));
	else if (code == HF_MISSING || (code != HF_OK && asking->over))
		answer_failure(stop_waiting(asking), code, err);
}

static void look_once_more(struct asking *asking)
{
	asking->over = true;
	watch_remove(&asking->watcher);
	watch_add(asking->request->api->watch, &asking->watcher, 0);
}

static void on_waited(struct ev_loop *, ev_timer *timer, int)
{
	look_once_more(container_of(timer, struct asking, timer));
}

static void on_gone(struct call *call)
{
	request_drop(stop_waiting(call->on_gone_ctx));
}

static void wait_for_end(struct asking *asking)
{
	struct request *request = asking->request;
	struct companions *companions = request->api->companions;
	if (request->call->gone) {
		request_drop(request);
		return;
	}
	asking->over = asking->wait_ms == 0 || companions->draining;
	chain_add(companions->waiting, asking);
	request->call->on_gone = on_gone;
	request->call->on_gone_ctx = asking;

	asking->watcher = (struct watcher){
		.owner = request->principal->owner,
		.id = asking->id,
		.seen = on_seen,
		.ctx = asking,
	};
	watch_add(request->api->watch, &asking->watcher, 0);
	ev_init(&asking->timer, on_waited);
	if (!asking->over)
		timer_set(request->api->loop, &asking->timer, asking->wait_ms);
}

void companions_drain(struct companions *companions)
{
	companions->draining = true;
	for (struct asking *at = companions->waiting; at; at = at->next)
		look_once_more(at);
}

static void act(struct asking *asking)
{
	struct request *request = asking->request;
	switch (asking->companion) {
	case TASK_STATUS:
		wait_for_end(asking);
		return;
	case TASK_CANCEL:
		store_cancel(request->api->store, request->principal->owner, &asking->id,
			     on_cancelled, asking);
		return;
	case TASK_RESULT:
	case COMPANIONS:
		break;
	}
	store_poll(request->api->store, request->principal->owner, &asking->id, on_polled, asking);
}

static void on_found(void *ctx, enum hf_code code, const struct task_id *id,
		     const struct hf_err *err)
{
	struct asking *asking = ctx;
	if (code != HF_OK) {
		answer_failure(asking->request, code, err);
		return;
	}
	asking->id = *id;
	act(asking);
}

static void find(struct request *request)
{
	struct asking *asking = request->detail;
	if (asking->effect_id.len)
		store_find(request->api->store, request->principal->owner, asking->tool,
			   asking->effect_id, on_found, asking);
	else
		act(asking);
}

/* In the arena; empty where it is absent. */
static struct slice text_argument(struct request *request, struct slice arguments, const char *name)
{
	struct slice value;
	bool there = json_member(arguments, name, &value);
	return there ? json_string_copy(value, request->call->arena) : (struct slice){};
}

/* False: the request was ended. */
static bool read_arguments(struct asking *asking, struct slice arguments)
{
	struct request *request = asking->request;
	struct slice task = text_argument(request, arguments, "task_id"), wait;
	asking->wait_ms = COMPANION_WAIT_MS;
	if (json_member(arguments, "wait_ms", &wait)) {
		bool fits = json_integer(wait, &asking->wait_ms);
		hf_assert(fits);
	}
	if (task.len) {
		if (task_id_parse(task, &asking->id))
			return true;
		answer_missing(request);
		return false;
	}
	asking->effect_id = text_argument(request, arguments, "effect_id");
	asking->tool = text_argument(request, arguments, "tool");
	if (asking->effect_id.len && asking->tool.len)
		return true;
	answer_tool_error(request,
			  "Which task? Give task_id as an earlier answer named it, or effect_id "
			  "and tool: the effect_id of the earlier call and the tool's name.",
			  answer_data(request->call->arena, "task_id_required", "no", nullptr,
				      (struct slice){}));
	return false;
}

static enum companion companion_of(struct slice name)
{
	enum companion companion = 0;
	while (companion < COMPANIONS && !slice_is(name, tools[companion].name))
		companion++;
	hf_assert(companion < COMPANIONS);
	return companion;
}

void companion_call(struct request *request, struct slice name, struct slice arguments)
{
	struct arena *arena = request->call->arena;
	struct asking *asking = arena_alloc(arena, sizeof *asking);
	asking->request = request;
	asking->companion = companion_of(name);
	struct hf_err err = {};
	if (schema_check(request->api->companions->schemas[asking->companion], arguments, &err) !=
	    HF_OK) {
		answer_bad_arguments(request, arena_strdup(arena, err.text), nullptr);
		return;
	}
	if (!read_arguments(asking, arguments))
		return;
	request->detail = asking;
	request_with_owner(request, find);
}
