/* completion.c - completion/complete: the values that a pack offers for an argument of a prompt or
 * a variable of a URI template, by what was typed so far. */
#include "api/http_text.h"
#include "api/mcp.h"
#include "api/packs.h"
#include "api/refresh.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/uri_template.h"

constexpr int VALUES_MAX = 100; /* of one answer */

static void refuse(struct request *request, const char *message)
{
	request_refuse_params(request, message, (struct slice){});
}

/* A member that is a string, decoded. */
static bool read_text(struct slice object, const char *name, struct buf *out)
{
	struct slice value;
	if (!json_member(object, name, &value) || json_type_of(value) != JSON_STRING)
		return false;
	json_string_decode(value, out);
	return true;
}

/* `values`: an array of strings, or empty: nothing is offered. */
static void reply(struct request *request, struct slice values, struct slice typed)
{
	hf_cleanup(buf) struct buf result = {};
	int total = 0;
	struct slice value;
	buf_add_text(&result, "{\"resultType\":\"complete\",\"completion\":{\"values\":[");
	for (size_t at = 0; json_array_next(values, &at, &value);) {
		hf_cleanup(buf) struct buf text = {};
		json_string_decode(value, &text);
		if (!text_begins_any_case(buf_slice(&text), typed))
			continue;
		if (total < VALUES_MAX) {
			if (total > 0)
				buf_add_byte(&result, ',');
			buf_add_slice(&result, value);
		}
		total++;
	}
	buf_add_format(&result, "],\"total\":%d,\"hasMore\":%s}", total,
		       total > VALUES_MAX ? "true" : "false");
	result_end(&result);
	request_reply(request, buf_slice(&result));
}

static bool has_argument(const struct prompt *prompt, struct slice name)
{
	struct slice arguments = {}, argument;
	json_member(prompt->item.published, "arguments", &arguments);
	for (size_t at = 0; json_array_next(arguments, &at, &argument);) {
		hf_cleanup(buf) struct buf text = {};
		if (read_text(argument, "name", &text) && slice_equal(buf_slice(&text), name))
			return true;
	}
	return false;
}

static bool has_variable(struct slice template, struct slice name)
{
	struct slice variable;
	for (size_t at = 0; uri_template_next(template, &at, &variable);)
		if (slice_equal(variable, name))
			return true;
	return false;
}

/* `ref`: of a prompt, else of a URI template. */
static void complete_ref(struct request *request, bool of_prompt, const struct buf *ref,
			 const struct buf *name, const struct buf *typed)
{
	const struct packs *packs = request->api->packs;
	const struct prompt *prompt = of_prompt ? packs_prompt(packs, buf_slice(ref)) : nullptr;
	const struct resource *template =
	    of_prompt ? nullptr : packs_template(packs, buf_slice(ref));
	if (!prompt && !template && !request->looked_again) {
		refresh_look_again(request, mcp_completion_complete);
	} else if (!prompt && !template) {
		refuse(request, of_prompt ? "Unknown prompt; prompts/list has those there are"
					  : "Unknown resource template; resources/templates/list "
					    "has those there are");
	} else if (!(prompt ? has_argument(prompt, buf_slice(name))
			    : has_variable(template->item.key, buf_slice(name)))) {
		refuse(request, "params.argument.name is none of its arguments");
	} else {
		struct slice values = {};
		json_member(prompt ? prompt->complete : template->complete, name->data, &values);
		reply(request, values, buf_slice(typed));
	}
}

void mcp_completion_complete(struct request *request)
{
	struct slice ref, argument, type;
	hf_cleanup(buf) struct buf name = {}, typed = {}, key = {};
	if (!json_member(request->rpc.params, "ref", &ref) || !json_member(ref, "type", &type)) {
		refuse(request, "params.ref must name a prompt or a resource template");
		return;
	}
	if (!json_member(request->rpc.params, "argument", &argument) ||
	    !read_text(argument, "name", &name) || !read_text(argument, "value", &typed)) {
		refuse(request, "params.argument needs the strings \"name\" and \"value\"");
		return;
	}
	bool prompt = json_string_is(type, "ref/prompt");
	if (!prompt && !json_string_is(type, "ref/resource"))
		refuse(request, "params.ref.type must be \"ref/prompt\" or \"ref/resource\"");
	else if (!read_text(ref, prompt ? "name" : "uri", &key))
		refuse(request, prompt ? "params.ref.name must be a string"
				       : "params.ref.uri must be a string");
	else
		complete_ref(request, prompt, &key, &name, &typed);
}
