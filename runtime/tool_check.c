/* tool_check.c - what must fit together in tool.json: references between phases, URLs, the schemas
 * and annotations. Called by tool_new through tool_parse.h. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/schema.h"
#include "runtime/template.h"
#include "runtime/tool_parse.h"

constexpr size_t HEADER_ANNOTATIONS_MAX = 32; /* x-mcp-header in one inputSchema */

HF_DEFINE_CLEANUP(schema, struct schema *, schema_free)

/* --- References ------------------------------------------------------------------------------- */

struct references {
	struct tool_parse *parse;
	size_t phase; /* whose states before it may be named */
};

/* Takes the first token off a JSON pointer, unescaped. False: there is none. */
static bool token_take(struct slice *pointer, struct buf *token)
{
	buf_clear(token);
	if (!pointer->len || pointer->data[0] != '/')
		return false;
	buf_add_text(token, "");
	size_t i = 1;
	for (; i < pointer->len && pointer->data[i] != '/'; i++) {
		bool escape = pointer->data[i] == '~' && i + 1 < pointer->len;
		if (escape)
			buf_add_byte(token, pointer->data[++i] == '1' ? '/' : '~');
		else
			buf_add_byte(token, pointer->data[i]);
	}
	*pointer = (struct slice){ pointer->data + i, pointer->len - i };
	return true;
}

static bool is_required(struct slice schema, const char *name)
{
	struct slice required, element;
	size_t at = 0;
	if (!json_member(schema, "required", &required))
		return false;
	while (json_array_next(required, &at, &element))
		if (json_string_is(element, name))
			return true;
	return false;
}

/* Once for each place that takes it. */
static void remark_optional(struct references *refs, struct slice pointer)
{
	struct buf *remarks = &refs->parse->tool->remarks;
	hf_cleanup(text) char *remark =
	    hf_format("  %s takes %.*s, which no \"required\" beside its \"properties\" "
		      "names: a call without it fails there\n",
		      refs->parse->path.data, (int)pointer.len, pointer.data);
	if (!remarks->len || !strstr(remarks->data, remark))
		buf_add_text(remarks, remark);
}

static enum hf_code args_check(struct references *refs, struct slice whole, struct slice rest)
{
	struct slice schema = refs->parse->tool->input_schema, properties;
	hf_cleanup(buf) struct buf token = {};
	bool sure = true;
	/* The caller may have carried it outside of the arguments. */
	if (slice_is(rest, "/effect_id"))
		return tool_bad(refs->parse, "%.*s: name it as /task/effect_id", (int)whole.len,
				whole.data);
	while (json_member(schema, "properties", &properties) && token_take(&rest, &token)) {
		sure = sure && is_required(schema, token.data);
		if (!json_member(properties, token.data, &schema))
			return tool_bad(refs->parse, "%.*s: inputSchema has no property \"%s\"",
					(int)whole.len, whole.data, token.data);
	}
	if (!sure)
		remark_optional(refs, whole);
	return HF_OK;
}

static enum hf_code state_check(struct references *refs, struct slice whole, struct slice rest)
{
	const struct tool *tool = refs->parse->tool;
	hf_cleanup(buf) struct buf token = {};
	if (!token_take(&rest, &token))
		return tool_bad(refs->parse, "/state: name a phase, as in /state/NAME");
	size_t at = 0;
	while (at < tool->phases_count && strcmp(tool->phases[at].name, token.data) != 0)
		at++;
	if (at == tool->phases_count)
		return tool_bad(refs->parse, "%.*s: there is no phase \"%s\"", (int)whole.len,
				whole.data, token.data);
	if (at >= refs->phase && !(at == refs->phase && refs->parse->own_state))
		return tool_bad(refs->parse, "%.*s: phase \"%s\" is not before this one",
				(int)whole.len, whole.data, token.data);
	return HF_OK;
}

bool ask_find(struct slice ask, size_t rounds, struct slice key)
{
	struct slice round, name, request;
	size_t at = 0;
	for (size_t i = 0; ask.len && i < rounds && json_array_next(ask, &at, &round); i++)
		for (size_t inner = 0; json_object_next(round, &inner, &name, &request);)
			if (name.len == key.len + 2 &&
			    memcmp(name.data + 1, key.data, key.len) == 0)
				return true;
	return false;
}

static enum hf_code input_check(struct references *refs, struct slice whole, struct slice rest)
{
	hf_cleanup(buf) struct buf token = {};
	if (!token_take(&rest, &token))
		return tool_bad(refs->parse, "/input: name a key of \"ask\", as in /input/KEY");
	if (ask_find(refs->parse->ask, refs->parse->asking, buf_slice(&token)))
		return HF_OK;
	return tool_bad(refs->parse, "%.*s: no round of \"ask\" before this asks for \"%s\"",
			(int)whole.len, whole.data, token.data);
}

static enum hf_code task_check(struct references *refs, struct slice whole, struct slice rest)
{
	static const char *const members[] = { "", "/id", "/tool", "/effect_id", "/attempt" };
	for (size_t i = 0; i < countof(members); i++)
		if (slice_is(rest, members[i]))
			return HF_OK;
	return tool_bad(refs->parse, "%.*s: /task has id, tool, effect_id and attempt",
			(int)whole.len, whole.data);
}

static enum hf_code on_reference(void *ctx, struct slice pointer, struct hf_err *)
{
	struct references *refs = ctx;
	hf_cleanup(buf) struct buf root = {};
	struct slice rest = pointer;
	bool rooted = token_take(&rest, &root);
	if (rooted && strcmp(root.data, "args") == 0)
		return args_check(refs, pointer, rest);
	if (rooted && strcmp(root.data, "input") == 0)
		return input_check(refs, pointer, rest);
	if (refs->parse->before)
		return tool_bad(refs->parse, "\"%.*s\": here only /args and /input can be named",
				pointer.len < 100 ? (int)pointer.len : 100, pointer.data);
	if (rooted && strcmp(root.data, "state") == 0)
		return state_check(refs, pointer, rest);
	if (rooted && strcmp(root.data, "task") == 0)
		return task_check(refs, pointer, rest);
	if (rooted && strcmp(root.data, "conf") == 0) {
		if (rest.len > 1)
			return HF_OK;
		return tool_bad(refs->parse, "/conf: name a setting, as in /conf/NAME");
	}
	if (rooted && strcmp(root.data, "key") == 0) {
		if (rest.len)
			return tool_bad(refs->parse, "%.*s: /key is a string", (int)pointer.len,
					pointer.data);
		refs->parse->key_named = true;
		if (refs->phase < refs->parse->tool->phases_count)
			return HF_OK;
		return tool_bad(refs->parse, "/key: a phase has a key, the result has none");
	}
	return tool_bad(refs->parse,
			"\"%.*s\" begins with none of /args, /state, /input, /key, /task, /conf",
			pointer.len < 100 ? (int)pointer.len : 100, pointer.data);
}

enum hf_code references_check(struct tool_parse *parse, struct slice value, size_t phase)
{
	hf_assert(phase <= parse->tool->phases_count);
	struct references refs = { .parse = parse, .phase = phase };
	struct hf_err inner = {};
	enum hf_code code = template_walk(value, on_reference, &refs, &inner);
	if (code == HF_OK || parse->failed)
		return code;
	return tool_bad(parse, "%s", inner.text);
}

/* --- URLs ------------------------------------------------------------------------------------- */

/* The reference at `text`, which is at a '{': its length with both braces, or 0. */
static size_t reference_len(const char *text)
{
	size_t len = strcspn(text, "}");
	return text[len] == '}' && text[1] != '{' ? len + 1 : 0;
}

static bool is_conf(const char *text)
{
	return strncmp(text, "{/conf/", 7) == 0 && reference_len(text);
}

enum hf_code url_check(struct tool_parse *parse, const char *url)
{
	for (const char *at = url; *at; at++)
		if (*at <= ' ' || *at >= 0x7f)
			return tool_bad(parse, "holds a space or a byte that is not ASCII");
	if (strchr(url, '#'))
		return tool_bad(parse, "a fragment (#) is never sent");
	const char *host = url;
	if (strncmp(url, "http://", 7) == 0)
		host = url + 7;
	else if (strncmp(url, "https://", 8) == 0)
		host = url + 8;
	else if (!is_conf(url))
		return tool_bad(parse, "must begin with http://, https:// or {/conf/NAME}");
	if (*host == '\0' || *host == '/' || *host == '?')
		return tool_bad(parse, "has no host");
	while (*host && *host != '/' && *host != '?') {
		if (*host == '@' || *host == '\\')
			return tool_bad(parse, "no user and no backslash before the path");
		if (*host == '{' && !is_conf(host))
			return tool_bad(parse, "the host may only come from /conf");
		host += *host == '{' ? reference_len(host) : 1;
	}
	return HF_OK;
}

enum hf_code pointer_check(struct tool_parse *parse, const char *pointer)
{
	if (pointer[0] != '/')
		return tool_bad(parse, "must be a JSON pointer that begins with /");
	for (const char *at = pointer; *at; at++)
		if (*at == '~' && at[1] != '0' && at[1] != '1')
			return tool_bad(parse, "in a JSON pointer ~ is followed by 0 or 1");
	return HF_OK;
}

/* --- Schemas ---------------------------------------------------------------------------------- */

struct annotated {
	char *names[HEADER_ANNOTATIONS_MAX];
	size_t count;
};

static void hf_cleanup_annotated(struct annotated *annotated)
{
	for (size_t i = 0; i < annotated->count; i++)
		free(annotated->names[i]);
}

/* A bad x-mcp-header makes clients drop the whole tool (A4.2). */
static enum hf_code header_check(struct tool_parse *parse, struct slice property,
				 struct slice value, struct annotated *seen)
{
	path_down_text(parse, "x-mcp-header");
	char *name = json_string_dup(value);
	if (!name || seen->count == HEADER_ANNOTATIONS_MAX) {
		free(name);
		return tool_bad(parse, "must be a string, and at most %zu stand in a schema",
				HEADER_ANNOTATIONS_MAX);
	}
	seen->names[seen->count++] = name;
	if (!name_is_token(name))
		return tool_bad(parse, "must be a header token");
	for (size_t i = 0; i + 1 < seen->count; i++)
		if (strcasecmp(seen->names[i], name) == 0)
			return tool_bad(parse, "\"%.64s\" stands twice", name);
	struct slice type;
	bool typed = json_member(property, "type", &type);
	if (!typed || (!json_string_is(type, "string") && !json_string_is(type, "integer") &&
		       !json_string_is(type, "boolean")))
		return tool_bad(parse, "goes with type string, integer or boolean only");
	return HF_OK;
}

/* schema_new bounds the depth. */
static enum hf_code headers_check(struct tool_parse *parse, struct slice schema,
				  struct annotated *seen)
{
	struct slice properties, name, property, value;
	if (!json_member(schema, "properties", &properties))
		return HF_OK;
	size_t mark = path_down_text(parse, "properties"), at = 0;
	while (json_object_next(properties, &at, &name, &property)) {
		hf_cleanup(buf) struct buf text = {};
		json_string_decode(name, &text);
		size_t inner = path_down(parse, buf_slice(&text));
		if (json_member(property, "x-mcp-header", &value)) {
			hf_try(header_check(parse, property, value, seen));
			path_up(parse, inner);
			path_down(parse, buf_slice(&text));
		}
		hf_try(headers_check(parse, property, seen));
		path_up(parse, inner);
	}
	path_up(parse, mark);
	return HF_OK;
}

/* How often the annotation stands anywhere in a schema, as a keyword. */
static size_t annotations_in(struct slice schema)
{
	static const char *const data[] = { "default", "const", "enum", "examples" };
	struct slice name, value, inner;
	size_t count = 0;
	if (json_type_of(schema) == JSON_ARRAY)
		for (size_t at = 0; json_array_next(schema, &at, &value);)
			count += annotations_in(value);
	if (json_type_of(schema) != JSON_OBJECT)
		return count;
	for (size_t at = 0; json_object_next(schema, &at, &name, &value);) {
		bool skip = false;
		for (size_t i = 0; i < countof(data); i++)
			skip = skip || json_string_is(name, data[i]);
		count += json_string_is(name, "x-mcp-header");
		if (json_string_is(name, "properties"))
			for (size_t each = 0; json_object_next(value, &each, &name, &inner);)
				count += annotations_in(inner);
		else if (!skip)
			count += annotations_in(value);
	}
	return count;
}

static enum hf_code dialect_check(struct tool_parse *parse, struct slice text, struct schema **out)
{
	struct hf_err inner = {};
	enum hf_code code = schema_new(text, out, &inner);
	if (code != HF_OK && inner.text[0] == '/')
		return tool_bad_within(parse, inner.text);
	if (code != HF_OK)
		return tool_bad(parse, "%s", inner.text);
	struct slice type;
	if (!json_member(text, "type", &type) || !json_string_is(type, "object"))
		return tool_bad(parse, "\"type\" must be \"object\"");
	return HF_OK;
}

enum hf_code input_schema_check(struct tool_parse *parse)
{
	struct tool *tool = parse->tool;
	size_t mark = path_down_text(parse, "inputSchema");
	hf_try(dialect_check(parse, tool->input_schema, &tool->input));
	hf_cleanup(annotated) struct annotated seen = {};
	hf_try(headers_check(parse, tool->input_schema, &seen));
	if (annotations_in(tool->input_schema) != seen.count)
		return tool_bad(parse, "x-mcp-header goes with properties that are reached by "
				       "\"properties\" alone");
	struct slice properties = {}, effect_id = {}, type = {};
	bool declared = json_member(tool->input_schema, "properties", &properties) &&
			json_member(properties, "effect_id", &effect_id);
	bool text =
	    declared && json_member(effect_id, "type", &type) && json_string_is(type, "string");
	bool needed = tool->effect_id == EFFECT_ID_REQUIRED;
	if (!text && (needed || (declared && tool->effect_id == EFFECT_ID_OPTIONAL)))
		return tool_bad(parse, "properties must declare \"effect_id\" with type string");
	bool required = is_required(tool->input_schema, "effect_id");
	if (needed && !required)
		return tool_bad(parse, "\"required\" must name \"effect_id\"");
	if (tool->effect_id == EFFECT_ID_OPTIONAL && required)
		return tool_bad(parse, "\"required\" names \"effect_id\", which is optional");
	path_up(parse, mark);
	return HF_OK;
}

/* Clients hold the tool to its outputSchema, so what is plainly missing is said here. */
enum hf_code output_schema_check(struct tool_parse *parse)
{
	const struct tool *tool = parse->tool;
	if (!tool->output_schema.len)
		return HF_OK;
	size_t mark = path_down_text(parse, "outputSchema");
	hf_cleanup(schema) struct schema *schema = nullptr;
	hf_try(dialect_check(parse, tool->output_schema, &schema));
	if (!tool->result_structured.len)
		return tool_bad(parse, "needs result.structured");
	struct slice required = {}, element, value;
	bool literal = json_type_of(tool->result_structured) == JSON_OBJECT &&
		       !json_member(tool->result_structured, "$from", &value);
	bool listed = literal && json_member(tool->output_schema, "required", &required);
	size_t at = 0;
	while (listed && json_array_next(required, &at, &element)) {
		hf_cleanup(buf) struct buf name = {};
		json_string_decode(element, &name);
		if (!json_member(tool->result_structured, name.len ? name.data : "", &value))
			return tool_bad(parse, "requires \"%.64s\", result.structured has none",
					name.len ? name.data : "");
	}
	path_up(parse, mark);
	return HF_OK;
}

enum hf_code annotations_check(struct tool_parse *parse, struct slice annotations)
{
	static const struct member members[] = {
		{ "title", MEMBER_STRING, false, 1, 200 },
		{ "readOnlyHint", MEMBER_BOOLEAN, false, 0, 0 },
		{ "destructiveHint", MEMBER_BOOLEAN, false, 0, 0 },
		{ "idempotentHint", MEMBER_BOOLEAN, false, 0, 0 },
		{ "openWorldHint", MEMBER_BOOLEAN, false, 0, 0 },
	};
	struct slice values[countof(members)];
	size_t mark = path_down_text(parse, "annotations");
	hf_try(members_read(parse, annotations, members, countof(members), values));
	path_up(parse, mark);
	return HF_OK;
}
