/* tools.c - tools/list and tools/call. Everything that can be refused is refused before the store
 * hears of the call, so that no refusal is ever kept under an effect ID (B034). A call that comes
 * through is one store_accept. To a client that declares Tasks its answer is the handle of the
 * task, the same for each repeat; to any other plain.c gives the result.
 *
 *   named ─► tool known ─► effect ID read ─► arguments checked ─► owner known* ─► accepted*
 *              └─ look again* ─┘                                    └─ known effect?* ─► asked
 *                                                                 * waits for the store
 *
 * A tool that asks first (rounds.h) asks nobody whose effect is known: a repeat is a repeat. */
#include "api/accepting.h"

#include "api/answer.h"
#include "api/auth.h"
#include "api/call_trace.h"
#include "api/catalog.h"
#include "api/companion.h"
#include "api/intent_window.h"
#include "api/list.h"
#include "api/mcp.h"
#include "api/param_headers.h"
#include "api/plain.h"
#include "api/plain_tool.h"
#include "api/refresh.h"
#include "api/result.h"
#include "api/rounds.h"
#include "runtime/base.h"
#include "runtime/config.h"
#include "runtime/json.h"
#include "runtime/key.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/schema.h"
#include "runtime/store.h"
#include "runtime/utf8.h"

constexpr size_t UNKNOWN_NAME_BYTES_MAX = 128; /* a longer one is not repeated in its refusal */

/* The companions first: a conformance suite calls the first tool without arguments and wants an
 * answer at once (A22). */
static void list_tools(struct request *request)
{
	struct list list = *catalog_list(request->api->catalog);
	list.front = companions_json(request->api->companions);
	list_reply(request, &list);
}

void mcp_tools_list(struct request *request)
{
	list_begin(request, list_tools);
}

static void refuse_absent(struct request *request)
{
	metric_add(METRIC_calls_refused_total, "effect_id_required", 1);
	struct arena *arena = request->call->arena;
	char minted[EFFECT_ID_MINTED_LEN + 1];
	const char *text = arena_format(
	    arena,
	    "Nothing was run: this tool needs the argument effect_id. Make one up for this piece "
	    "of work: any text of 1 to %zu visible ASCII characters without spaces that was "
	    "never used before, best a UUID such as %s. Keep it, and send the same one whenever "
	    "you repeat this call.",
	    EFFECT_ID_LEN_MAX, effect_id_mint(minted));
	answer_tool_error(request, text,
			  answer_data(arena, "effect_id_required", "no", nullptr,
				      (struct slice){}));
}

static void refuse_invalid(struct request *request, enum effect_carrier carrier)
{
	metric_add(METRIC_calls_refused_total, "effect_id_invalid", 1);
	struct arena *arena = request->call->arena;
	struct slice data = answer_data(arena, "effect_id_invalid", "no", "carrier",
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
	answer_tool_error(
	    request,
	    arena_format(arena,
			 "Nothing was run: effect_id must be a string of 1 to %zu "
			 "visible ASCII characters without spaces, best a UUID such as "
			 "%s. If this call repeats an earlier one, send the effect_id of "
			 "that one.",
			 EFFECT_ID_LEN_MAX, effect_id_mint(minted)),
	    data);
}

static void refuse_ambiguous(struct request *request, const struct effect_id *found)
{
	metric_add(METRIC_calls_refused_total, "effect_id_ambiguous", 1);
	struct arena *arena = request->call->arena;
	const char *carrier = effect_carrier_name(found->carrier);
	const char *text = arena_format(
	    arena,
	    "Nothing was run: two effect IDs that differ came with this call, in %s and in %s; "
	    "send one",
	    effect_carrier_name(found->first), carrier);
	request_refuse_params(request, text,
			      answer_data(arena, "effect_id_ambiguous", "no", "carrier",
					  slice_of(carrier)));
}

static void reply_handle(struct request *request, bool replayed, const struct task_view *view)
{
	const struct accepting *accepting = request->detail;
	char id[TASK_ID_TEXT_LEN + 1];
	log_info(replayed ? "call repeated" : "call accepted", "task_id",
		 task_id_format(&view->id, id), "trace_id", accepting->trace_id, "tool",
		 accepting->call.tool_name.data, "owner", LOG_INT(accepting->call.owner), nullptr);

	hf_cleanup(buf) struct buf result = {};
	result_handle(view, replayed, accepting->poll_interval_ms, &result);
	request_reply(request, buf_slice(&result));
}

static void on_accepted(void *ctx, enum hf_code code, enum accept_outcome outcome,
			const struct task_view *view, const struct hf_err *err)
{
	struct request *request = ctx;
	const struct accepting *accepting = request->detail;
	hf_assert(request->principal->accepts > 0);
	request->principal->accepts--;

	if (code == HF_OK && view)
		reply_handle(request, outcome == ACCEPT_SAME, view);
	else
		answer_not_accepted(request, &accepting->effect_id, code, outcome, err);
}

static void accept(struct request *request)
{
	struct accepting *accepting = request->detail;
	if (request->principal->accepts >= AUTH_ACCEPTS_MAX) {
		metric_add(METRIC_calls_refused_total, "busy_owner", 1);
		request_refuse_bound(request, 429, "accepts_per_principal",
				     "Nothing was run: too many calls of this caller at once; try "
				     "again shortly");
		return;
	}
	accepting->call.owner = request->principal->owner;
	if (accepting->intent_window_ms > 0) {
		intent_window_ask(request, accepting, accept);
		return;
	}
	if (!request->top.declares_tasks) {
		plain_call(request, accepting);
		return;
	}
	request->principal->accepts++;
	store_accept(request->api->store, &accepting->call, on_accepted, request);
}

/* A call without effect ID takes its own from its rounds, so that their last, sent twice, is one
 * task. */
static void ask_first(struct request *request)
{
	struct accepting *accepting = request->detail;
	struct rounds_answers answers;
	const struct rounds rounds = {
		.ask = accepting->ask,
		.go_on = accepting->ask_go_on,
		.name = accepting->call.tool_name,
		.arguments = accepting->call.arguments,
		.effect_id = accepting->minted ? (struct slice){} : accepting->effect_id.text,
	};
	if (!rounds_climb(request, &rounds, &answers))
		return;
	accepting->call.inputs = answers.inputs;
	if (accepting->minted) {
		char text[UUID_TEXT_LEN + 1];
		accepting->effect_id.text =
		    slice_of(arena_strdup(request->call->arena, uuid_format(&answers.nonce, text)));
		accepting->call.effect_id = accepting->effect_id.text;
	}
	accept(request);
}

static void on_kept(void *ctx, enum hf_code code, const struct task_view *,
		    const struct hf_err *err)
{
	struct request *request = ctx;
	if (code == HF_OK)
		accept(request);
	else if (code == HF_MISSING) /* a tombstone, perhaps an old one: it may be accepted anew */
		ask_first(request);
	else
		request_unavailable(request, code, err, "no");
}

static void on_known(void *ctx, enum hf_code code, const struct task_id *id,
		     const struct hf_err *err)
{
	struct request *request = ctx;
	if (code == HF_OK)
		store_poll(request->api->store, request->principal->owner, id, on_kept, request);
	else if (code == HF_MISSING)
		ask_first(request);
	else
		request_unavailable(request, code, err, "no");
}

static void ask_unless_known(struct request *request)
{
	struct accepting *accepting = request->detail;
	if (accepting->minted || rounds_began(request))
		ask_first(request);
	else
		store_find(request->api->store, request->principal->owner,
			   accepting->call.tool_name, accepting->effect_id.text, on_known, request);
}

static void refuse_nul(struct request *request)
{
	metric_add(METRIC_calls_refused_total, "nul_in_string", 1);
	request_refuse_params(request, "Strings must not hold NUL (U+0000)",
			      answer_data(request->call->arena, "nul_in_string", "no", nullptr,
					  (struct slice){}));
}

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
	answer_bad_arguments(request, arena_strdup(request->call->arena, err.text),
			     " Correct them and call again; the same effect_id may be used.");
	return false;
}

static enum effect_answer read_effect_id(struct request *request, const struct tool *tool,
					 struct slice arguments, struct effect_id *out)
{
	struct arena *arena = request->call->arena;
	struct slice params = request->rpc.params;
	enum effect_answer answer = effect_id_read(request->call, params, arguments, arena, out);
	if (answer != EFFECT_ABSENT || !tool->effect_id_fallback)
		return answer;
	return effect_id_read_fallback(params, tool->effect_id_fallback, arena, out);
}

/* False: the request was ended. */
static bool choose_effect_id(struct request *request, const struct tool *tool,
			     struct slice arguments, struct accepting *accepting)
{
	struct effect_id *out = &accepting->effect_id;
	switch (read_effect_id(request, tool, arguments, out)) {
	case EFFECT_FOUND:
		return true;
	case EFFECT_INVALID:
		refuse_invalid(request, out->carrier);
		return false;
	case EFFECT_AMBIGUOUS:
		refuse_ambiguous(request, out);
		return false;
	case EFFECT_ABSENT:
		break;
	}
	if (tool->effect_id == EFFECT_ID_REQUIRED && tool->intent_window_ms == 0) {
		refuse_absent(request);
		return false;
	}
	char minted[EFFECT_ID_MINTED_LEN + 1];
	accepting->minted = true;
	accepting->intent_window_ms = tool->intent_window_ms;
	out->text = slice_of(arena_strdup(request->call->arena, effect_id_mint(minted)));
	out->carrier = EFFECT_CARRIER_ARGUMENT; /* what there is to say, a model should see */
	return true;
}

static void prepare(struct request *request, const struct catalog_entry *entry,
		    struct slice arguments)
{
	if (entry->tool->effect_id == EFFECT_ID_NONE) {
		if (request->rpc.holds_nul)
			refuse_nul(request);
		else
			plain_tool_call(request, entry->tool, arguments);
		return;
	}
	struct arena *arena = request->call->arena;
	const struct tool *tool = entry->tool;
	struct accepting *accepting = arena_alloc(arena, sizeof *accepting);
	if (!choose_effect_id(request, tool, arguments, accepting))
		return;
	if (request->rpc.holds_nul) {
		refuse_nul(request);
		return;
	}
	if (!check_arguments(request, entry, arguments, &accepting->effect_id))
		return;

	accepting->poll_interval_ms = tool->poll_interval_ms;
	accepting->answer_window_ms = tool->answer_window_ms;
	accepting->on_disconnect = tool->on_disconnect;
	accepting->call = (struct accept_call){
		.tool = tool->id,
		.result_ttl_ms = tool->result_ttl_ms,
		.tool_name = slice_of(arena_strdup(arena, tool->name)),
		.effect_id = accepting->effect_id.text,
		.arguments = arguments,
		.asks = request->top.asks,
		.trace = call_trace(request->top.meta, arena),
		.key_version = request->api->key_version,
	};
	hf_cleanup(buf) struct buf canonical = {};
	json_canonical(arguments, "effect_id", &canonical);
	fingerprint(buf_slice(&canonical), accepting->call.fingerprint);

	accepting->ask = arena_slice(arena, tool->ask);
	accepting->ask_go_on = tool->ask_go_on;
	accepting->trace_id = call_trace_id(accepting->call.trace, arena);
	request->detail = accepting;
	request_with_owner(request, tool->ask.len ? ask_unless_known : accept);
}

static void call_tool(struct request *request, const struct catalog_entry *entry,
		      struct slice arguments)
{
	if (!rounds_requires(request, entry->tool->needs))
		return;
	const char *fault = param_headers_fault(entry->param_headers, request->call, arguments,
						request->call->arena);
	if (fault) {
		struct refusal refusal;
		refusal_set(&refusal, 400, RPC_HEADER_MISMATCH, fault);
		request_refuse(request, &refusal);
		return;
	}
	prepare(request, entry, arguments);
}

static void refuse_unknown(struct request *request, struct slice name)
{
	metric_add(METRIC_calls_refused_total, "unknown_tool", 1);
	const char *text =
	    name.len > UNKNOWN_NAME_BYTES_MAX || !utf8_is_plain(name.data, name.len)
		? "Unknown tool; tools/list has those there are"
		: arena_format(request->call->arena,
			       "Unknown tool \"%.*s\"; tools/list has those there are",
			       (int)name.len, name.data);
	request_refuse_params(request, text, (struct slice){});
}

void mcp_tools_call(struct request *request)
{
	struct slice name, arguments;
	if (!request_text(request, "name", &name))
		return;
	if (!json_member(request->rpc.params, "arguments", &arguments))
		arguments = slice_of("{}");
	if (json_type_of(arguments) != JSON_OBJECT) {
		request_refuse_params(request, "params.arguments must be an object",
				      (struct slice){});
		return;
	}

	bool companion = tool_name_reserved(name);
	const struct catalog_entry *entry =
	    companion ? nullptr : catalog_find(request->api->catalog, name);
	if (companion && request->rpc.holds_nul)
		refuse_nul(request);
	else if (companion)
		companion_call(request, name, arguments);
	else if (entry)
		call_tool(request, entry, arguments);
	else if (!request->looked_again)
		refresh_look_again(request, mcp_tools_call);
	else
		refuse_unknown(request, name);
}
