/* tools.c - tools/list and tools/call. Everything that can be refused is refused before the store
 * hears of the call, so that no refusal is ever kept under an effect ID (B034). A call that comes
 * through is one store_accept; its answer is the handle of the task, the same for each repeat.
 *
 *   named ─► tool known ─► effect ID read ─► arguments checked ─► owner known* ─► accepted*
 *              └─ look again* ─┘                                * waits for the store */
#include "api/catalog.h"
#include "api/effect_id.h"
#include "api/headers.h"
#include "api/mcp.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/key.h"
#include "runtime/log.h"
#include "runtime/schema.h"
#include "runtime/store.h"

static constexpr int64_t LIST_CACHE_TTL_MS = 5'000;
/* In flight to the store for one principal in one process; more are told to come back. */
static constexpr unsigned ACCEPTS_PER_PRINCIPAL_MAX = 1'024;

/* --- tools/list ------------------------------------------------------------------------------- */

/* Private: the list may come to depend on who asks, and a shared cache would outlive the change. */
static void reply_list(struct request *request)
{
	hf_cleanup(buf) struct buf result = {};
	buf_add_text(&result, "{\"resultType\":\"complete\",\"tools\":");
	buf_add_slice(&result, catalog_tools_json(request->api->catalog));
	buf_add_format(&result, ",\"ttlMs\":%lld,\"cacheScope\":\"private\",\"_meta\":{",
		       (long long)LIST_CACHE_TTL_MS);
	result_add_server_info(&result);
	buf_add_text(&result, "}}");
	request_reply(request, buf_slice(&result));
}

void mcp_tools_list(struct request *request)
{
	struct slice cursor;
	/* All tools are on one page, so no cursor was ever handed out. */
	if (request->rpc.params.len && json_member(request->rpc.params, "cursor", &cursor)) {
		request_refuse_params(request, "params.cursor is not one of this list",
				      (struct slice){});
		return;
	}
	if (catalog_number(request->api->catalog) == 0)
		api_look_again(request->api, request, reply_list);
	else
		reply_list(request);
}

/* --- tools/call: what a refusal says ---------------------------------------------------------- */

/* What acceptance needs, in the arena: the catalog may be another one by then. */
struct accepting {
	struct accept_call call;
	struct effect_id effect_id;
	int64_t poll_interval_ms;
};

/* {"type": …, "executed": …, NAME: VALUE}, in the arena. `name` nullable. */
static struct slice error_data(struct arena *arena, const char *type, const char *executed,
			       const char *name, struct slice value)
{
	hf_cleanup(buf) struct buf data = {};
	buf_add_format(&data, "{\"type\":\"%s\",\"executed\":\"%s\"", type, executed);
	if (name) {
		buf_add_format(&data, ",\"%s\":", name);
		json_string_encode(value, &data);
	}
	buf_add_byte(&data, '}');
	return (struct slice){ arena_copy(arena, buf_slice(&data)), data.len };
}

static void reply_tool_error(struct request *request, const char *text, struct slice structured)
{
	hf_cleanup(buf) struct buf result = {};
	result_tool_error(text, structured, &result);
	request_reply(request, buf_slice(&result));
}

static void refuse_absent(struct request *request)
{
	struct arena *arena = request->call->arena;
	char minted[EFFECT_ID_MINTED_LEN + 1];
	const char *text = arena_format(
	    arena,
	    "Nothing was run: this tool needs the argument effect_id. Make one up for this piece "
	    "of work: any text of 1 to %zu visible ASCII characters without spaces that was "
	    "never used before, best a UUID such as %s. Keep it, and send the same one whenever "
	    "you repeat this call.",
	    EFFECT_ID_LEN_MAX, effect_id_mint(minted));
	reply_tool_error(request, text,
			 error_data(arena, "effect_id_required", "no", nullptr, (struct slice){}));
}

static void refuse_invalid(struct request *request, enum effect_carrier carrier)
{
	struct arena *arena = request->call->arena;
	struct slice data = error_data(arena, "effect_id_invalid", "no", "carrier",
				       slice_of(effect_carrier_name(carrier)));
	if (carrier != EFFECT_CARRIER_ARGUMENT) {
		request_refuse_params(request,
				      arena_format(arena,
						   "%s must be 1 to %zu visible ASCII characters "
						   "without spaces",
						   effect_carrier_name(carrier), EFFECT_ID_LEN_MAX),
				      data);
		return;
	}
	char minted[EFFECT_ID_MINTED_LEN + 1];
	reply_tool_error(
	    request,
	    arena_format(arena,
			 "Nothing was run: effect_id must be a string of 1 to %zu "
			 "visible ASCII characters without spaces, best a UUID such as "
			 "%s. If this call repeats an earlier one, send the effect_id of "
			 "that one.",
			 EFFECT_ID_LEN_MAX, effect_id_mint(minted)),
	    data);
}

static void refuse_ambiguous(struct request *request, enum effect_carrier carrier)
{
	struct slice data = error_data(request->call->arena, "effect_id_ambiguous", "no", "carrier",
				       slice_of(effect_carrier_name(carrier)));
	request_refuse_params(request, "Two effect IDs that differ came with this call", data);
}

/* As a tool error where a model chose the ID, else as an error of the protocol (design §2). */
static void refuse_effect(struct request *request, enum rpc_code code, const char *type,
			  const char *executed, const char *text)
{
	const struct accepting *accepting = request->detail;
	struct slice id = accepting->effect_id.text;
	struct slice data = error_data(request->call->arena, type, executed, "idempotencyKey", id);
	if (accepting->effect_id.carrier == EFFECT_CARRIER_ARGUMENT)
		reply_tool_error(request, text, data);
	else
		request_refuse(request,
			       &(struct refusal){
				   .status = 200, .code = code, .message = text, .data = data });
}

static void refuse_arguments(struct request *request, const char *fault)
{
	struct arena *arena = request->call->arena;
	reply_tool_error(request,
			 arena_format(arena,
				      "Nothing was run: the arguments do not fit the tool's "
				      "inputSchema: %s. Correct them and call again; the same "
				      "effect_id may be used.",
				      fault),
			 error_data(arena, "invalid_arguments", "no", "reason", slice_of(fault)));
}

/* --- tools/call: acceptance ------------------------------------------------------------------- */

static void reply_handle(struct request *request, bool replayed, const struct task_view *view)
{
	const struct accepting *accepting = request->detail;
	char id[TASK_ID_TEXT_LEN + 1];
	log_info(replayed ? "call repeated" : "call accepted", "task_id",
		 task_id_format(&view->id, id), "tool", accepting->call.tool_name.data, "owner",
		 LOG_INT(accepting->call.owner), nullptr);

	hf_cleanup(buf) struct buf result = {};
	result_handle(view, replayed, accepting->poll_interval_ms, &result);
	request_reply(request, buf_slice(&result));
}

static void on_accepted(void *ctx, enum hf_code code, enum accept_outcome outcome,
			const struct task_view *view, const struct hf_err *err)
{
	struct request *request = ctx;
	hf_assert(request->principal->accepts > 0);
	request->principal->accepts--;

	if (code != HF_OK) {
		bool surely_not = code == HF_BUSY || code == HF_LIMIT || code == HF_INVALID;
		request_unavailable(request, code, err, surely_not ? "no" : "maybe");
		return;
	}
	switch (outcome) {
	case ACCEPT_NEW:
	case ACCEPT_SAME:
		reply_handle(request, outcome == ACCEPT_SAME, view);
		return;
	case ACCEPT_CONFLICT:
		refuse_effect(
		    request, RPC_CONFLICT, "idempotency_key_conflict", "no",
		    "This effect_id was used before with other arguments, so nothing was "
		    "run now. To get the earlier work's result send exactly its arguments; "
		    "for new work make up a new effect_id.");
		return;
	case ACCEPT_EXPIRED:
		refuse_effect(request, RPC_EXPIRED, "effect_expired", "yes",
			      "The work of this effect_id ran earlier and its result is no longer "
			      "kept. It does not run again. For new work make up a new effect_id.");
		return;
	}
}

static void accept(struct request *request)
{
	struct accepting *accepting = request->detail;
	if (request->principal->accepts >= ACCEPTS_PER_PRINCIPAL_MAX) {
		request_refuse(request, &(struct refusal){
					    .status = 429,
					    .code = RPC_INTERNAL,
					    .message = "Too many calls at once; try again shortly",
					    .data = slice_of("{\"executed\":\"no\"}"),
					    .extra = "Retry-After: 1\r\n",
					});
		return;
	}
	request->principal->accepts++;
	accepting->call.owner = request->principal->owner;
	store_accept(request->api->store, &accepting->call, on_accepted, request);
}

/* --- tools/call: checks ----------------------------------------------------------------------- */

/* False: the request was ended. */
static bool check_arguments(struct request *request, const struct catalog_entry *entry,
			    struct slice arguments, const struct effect_id *effect_id)
{
	hf_cleanup(buf) struct buf merged = {};
	if (entry->names_effect_id)
		effect_id_merge(arguments, effect_id->text, &merged);
	else
		buf_add_slice(&merged, arguments);

	struct hf_err err = {};
	if (schema_check(entry->tool->input, buf_slice(&merged), &err) == HF_OK)
		return true;
	refuse_arguments(request, arena_strdup(request->call->arena, err.text));
	return false;
}

/* False: the request was ended. */
static bool choose_effect_id(struct request *request, const struct tool *tool,
			     struct slice arguments, struct effect_id *out)
{
	struct arena *arena = request->call->arena;
	switch (effect_id_read(request->call, request->rpc.params, arguments, arena, out)) {
	case EFFECT_FOUND:
		return true;
	case EFFECT_INVALID:
		refuse_invalid(request, out->carrier);
		return false;
	case EFFECT_AMBIGUOUS:
		refuse_ambiguous(request, out->carrier);
		return false;
	case EFFECT_ABSENT:
		break;
	}
	if (tool->effect_id == EFFECT_ID_REQUIRED) {
		refuse_absent(request);
		return false;
	}
	char minted[EFFECT_ID_MINTED_LEN + 1];
	effect_id_mint(minted);
	out->text = (struct slice){ arena_strdup(arena, minted), EFFECT_ID_MINTED_LEN };
	return true;
}

static struct slice trace_of(const struct request *request)
{
	struct slice value;
	if (!json_member(request->top.meta, "traceparent", &value) ||
	    json_type_of(value) != JSON_STRING)
		return (struct slice){};
	hf_cleanup(buf) struct buf text = {};
	json_string_decode(value, &text);
	if (!header_is_traceparent(buf_slice(&text)))
		return (struct slice){};
	return (struct slice){ arena_copy(request->call->arena, buf_slice(&text)), text.len };
}

static void prepare(struct request *request, const struct catalog_entry *entry,
		    struct slice arguments)
{
	struct arena *arena = request->call->arena;
	const struct tool *tool = entry->tool;
	struct accepting *accepting = arena_alloc(arena, sizeof *accepting);
	if (!choose_effect_id(request, tool, arguments, &accepting->effect_id))
		return;
	if (request->rpc.holds_nul) {
		request_refuse_params(request, "Strings must not hold NUL (U+0000)",
				      error_data(arena, "nul_in_string", "no", nullptr,
						 (struct slice){}));
		return;
	}
	if (!check_arguments(request, entry, arguments, &accepting->effect_id))
		return;

	accepting->poll_interval_ms = tool->poll_interval_ms;
	accepting->call = (struct accept_call){
		.tool = tool->id,
		.result_ttl_ms = tool->result_ttl_ms,
		.tool_name = slice_of(arena_strdup(arena, tool->name)),
		.effect_id = accepting->effect_id.text,
		.arguments = arguments,
		.trace = trace_of(request),
		.key_version = request->api->key_version,
	};
	hf_cleanup(buf) struct buf canonical = {};
	json_canonical(arguments, "effect_id", &canonical);
	fingerprint(buf_slice(&canonical), accepting->call.fingerprint);

	request->detail = accepting;
	request_with_owner(request, accept);
}

static void call_tool(struct request *request, const struct catalog_entry *entry)
{
	struct slice arguments;
	if (!request->top.declares_tasks) {
		request_refuse(request, &(struct refusal){
					    .status = 400,
					    .code = RPC_MISSING_CAPABILITY,
					    .message = "Missing required client capability",
					    .data = slice_of(MCP_TASKS_REQUIRED),
					});
		return;
	}
	if (!json_member(request->rpc.params, "arguments", &arguments))
		arguments = slice_of("{}");
	if (json_type_of(arguments) != JSON_OBJECT) {
		request_refuse_params(request, "params.arguments must be an object",
				      (struct slice){});
		return;
	}
	const char *fault = entry->has_param_headers
				? header_params_fault(request->call, entry->tool->input_schema,
						      arguments, request->call->arena)
				: nullptr;
	if (fault) {
		struct refusal refusal;
		refusal_set(&refusal, 400, RPC_HEADER_MISMATCH, fault);
		request_refuse(request, &refusal);
		return;
	}
	prepare(request, entry, arguments);
}

void mcp_tools_call(struct request *request)
{
	struct slice value;
	if (!request->rpc.params.len || !json_member(request->rpc.params, "name", &value) ||
	    json_type_of(value) != JSON_STRING) {
		request_refuse_params(request, "params.name must be a string", (struct slice){});
		return;
	}

	hf_cleanup(buf) struct buf name = {};
	json_string_decode(value, &name);
	const struct catalog_entry *entry = catalog_find(request->api->catalog, buf_slice(&name));
	if (entry)
		call_tool(request, entry);
	else if (!request->looked_again)
		api_look_again(request->api, request, mcp_tools_call);
	else
		request_refuse_params(request, "Unknown tool", (struct slice){});
}
