/* prompts.c - prompts/list and prompts/get. A prompt is text of a pack with the caller's arguments
 * put in, so it is answered from memory. An effect ID that it mints is new in each answer: whoever
 * follows the prompt sends it with the call, and again with each repeat. */
#include "api/prompts.h"

#include "api/effect_id.h"
#include "api/mcp.h"
#include "api/refresh.h"
#include "api/result.h"
#include "api/rounds.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/template.h"

static void list_prompts(struct request *request)
{
	list_reply(request, &request->api->packs->prompts);
}

void mcp_prompts_list(struct request *request)
{
	list_begin(request, list_prompts);
}

static bool is_true(struct slice object, const char *name)
{
	struct slice value;
	return json_member(object, name, &value) && json_type_of(value) == JSON_TRUE;
}

/* One that is declared, as a member of what /args leads to; "" where it may be left out and is. */
static enum hf_code add_argument(struct slice declared, struct slice arguments, struct buf *out,
				 struct hf_err *err)
{
	struct slice raw_name, value;
	hf_cleanup(buf) struct buf name = {};
	bool named = json_member(declared, "name", &raw_name);
	hf_assert(named);
	json_string_decode(raw_name, &name);
	bool given = json_member(arguments, name.data, &value);
	if (!given && is_true(declared, "required"))
		return hf_fail(err, HF_INVALID, "params.arguments needs \"%.64s\"", name.data);
	if (given && json_type_of(value) != JSON_STRING)
		return hf_fail(err, HF_INVALID, "params.arguments.%.64s must be a string",
			       name.data);
	buf_add_slice(out, raw_name);
	buf_add_byte(out, ':');
	buf_add_slice(out, given ? value : slice_of("\"\""));
	return HF_OK;
}

static enum hf_code add_arguments(const struct prompt *prompt, struct slice arguments,
				  struct buf *out, struct hf_err *err)
{
	struct slice declared = {}, argument;
	if (arguments.len > PROMPT_ARGUMENTS_BYTES_MAX)
		return hf_fail(err, HF_LIMIT, "params.arguments has over %zu bytes",
			       PROMPT_ARGUMENTS_BYTES_MAX);
	buf_add_byte(out, '{');
	json_member(prompt->item.published, "arguments", &declared);
	for (size_t at = 0; json_array_next(declared, &at, &argument);) {
		if (out->len > 1)
			buf_add_byte(out, ',');
		hf_try(add_argument(argument, arguments, out, err));
	}
	buf_add_byte(out, '}');
	return HF_OK;
}

enum hf_code prompt_result(const struct prompt *prompt, struct slice arguments, struct slice inputs,
			   struct buf *out, struct hf_err *err)
{
	char effect_id[EFFECT_ID_MINTED_LEN + 1];
	hf_cleanup(buf) struct buf args = {}, minted = {}, messages = {};
	hf_try(add_arguments(prompt, arguments, &args, err));
	buf_add_format(&minted, "{\"effect_id\":\"%s\"}", effect_id_mint(effect_id));
	const struct template_scope scope = {
		.args = buf_slice(&args),
		.input = inputs,
		.minted = buf_slice(&minted),
	};
	messages.max = PROMPT_BYTES_MAX;
	hf_try(template_json(prompt->messages, &scope, &messages, err));
	if (messages.overflow)
		return hf_fail(err, HF_LIMIT, "with these arguments the prompt has over %zu bytes",
			       PROMPT_BYTES_MAX);

	struct slice description;
	buf_add_text(out, "{\"resultType\":\"complete\"");
	if (json_member(prompt->item.published, "description", &description)) {
		buf_add_text(out, ",\"description\":");
		buf_add_slice(out, description);
	}
	buf_add_text(out, ",\"messages\":");
	buf_add_slice(out, buf_slice(&messages));
	result_end(out);
	return HF_OK;
}

static void refuse(struct request *request, const struct hf_err *err)
{
	request_refuse_params(request, arena_strdup(request->call->arena, err->text),
			      (struct slice){});
}

/* False: the request was ended. */
static bool ask_first(struct request *request, const struct prompt *prompt, struct slice arguments,
		      struct slice *inputs)
{
	struct hf_err err = {};
	struct rounds_answers answers;
	hf_cleanup(buf) struct buf args = {};
	if (add_arguments(prompt, arguments, &args, &err) != HF_OK) {
		refuse(request, &err);
		return false;
	}
	const struct rounds rounds = {
		.ask = prompt->ask,
		.go_on = prompt->ask_go_on,
		.name = prompt->item.key,
		.arguments = buf_slice(&args),
	};
	if (!rounds_climb(request, &rounds, &answers))
		return false;
	*inputs = answers.inputs;
	return true;
}

static void get_prompt(struct request *request, const struct prompt *prompt, struct slice arguments)
{
	struct hf_err err = {};
	struct slice inputs = {};
	hf_cleanup(buf) struct buf result = {};
	if (prompt->ask.len && !ask_first(request, prompt, arguments, &inputs))
		return;
	if (prompt_result(prompt, arguments, inputs, &result, &err) == HF_OK)
		request_reply(request, buf_slice(&result));
	else
		refuse(request, &err);
}

void mcp_prompts_get(struct request *request)
{
	struct slice name, arguments = {};
	if (!request_text(request, "name", &name))
		return;
	if (json_member(request->rpc.params, "arguments", &arguments) &&
	    json_type_of(arguments) != JSON_OBJECT) {
		request_refuse_params(request, "params.arguments must be an object",
				      (struct slice){});
		return;
	}
	const struct prompt *prompt = packs_prompt(request->api->packs, name);
	if (prompt)
		get_prompt(request, prompt, arguments);
	else if (!request->looked_again)
		refresh_look_again(request, mcp_prompts_get);
	else
		request_refuse_params(request, "Unknown prompt; prompts/list has those there are",
				      (struct slice){});
}
