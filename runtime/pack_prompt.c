/* pack_prompt.c - one prompts/NAME.json: {"title", "description", "arguments": [{"name", "title",
 * "description", "required", "complete": ["value", …]}], "messages": [{"role", "content"}], "ask",
 * "ask_otherwise"}. Strings of messages are templates: {/args/NAME}, {/input/KEY/…} of what is
 * asked first (tool_plain.c), and {/minted/effect_id}, a new effect ID in each answer. Where MCP
 * wants base64, "file" may name a file instead. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/content.h"
#include "runtime/pack_inner.h"

constexpr int64_t ARGUMENTS_MAX = 64, MESSAGES_MAX = 64;
constexpr int64_t TEXT_BYTES_MAX = 1 << 20;

/* --- Arguments -------------------------------------------------------------------------------- */

enum { ARG_NAME, ARG_TITLE, ARG_DESCRIPTION, ARG_REQUIRED, ARG_COMPLETE, ARG_COUNT };
static const struct member argument_members[ARG_COUNT] = {
	[ARG_NAME] = { "name", MEMBER_STRING, true, 1, 64 },
	[ARG_TITLE] = { "title", MEMBER_STRING, false, 1, 200 },
	[ARG_DESCRIPTION] = { "description", MEMBER_STRING, false, 1, 4'096 },
	[ARG_REQUIRED] = { "required", MEMBER_BOOLEAN, false, 0, 0 },
	[ARG_COMPLETE] = { "complete", MEMBER_ARRAY, false, 1, PACK_COMPLETE_MAX },
};

static bool argument_named(struct slice arguments, struct slice name)
{
	struct slice argument, value;
	for (size_t at = 0; json_array_next(arguments, &at, &argument);) {
		hf_cleanup(buf) struct buf text = {};
		if (!json_member(argument, "name", &value) || json_type_of(value) != JSON_STRING)
			continue;
		json_string_decode(value, &text);
		if (slice_equal(buf_slice(&text), name))
			return true;
	}
	return false;
}

static enum hf_code argument_read(struct pack_reader *reader, struct slice earlier,
				  struct slice argument, struct buf *published,
				  struct buf *complete)
{
	struct slice values[ARG_COUNT];
	struct tool_parse *parse = &reader->parse;
	hf_try(members_read(parse, argument, argument_members, ARG_COUNT, values));
	hf_cleanup(text) char *name = member_text(values[ARG_NAME]);
	size_t mark = path_down_text(parse, "name");
	if (!name_is_plain(name))
		return tool_bad(parse, "must be of A-Z a-z 0-9 _ . -");
	if (argument_named(earlier, slice_of(name)))
		return tool_bad(parse, "stands twice");
	path_up(parse, mark);

	buf_add_text(published, published->len > 1 ? ",{" : "{");
	for (size_t i = 0; i < ARG_COMPLETE; i++)
		pack_member_add(published, argument_members[i].name, values[i]);
	buf_add_byte(published, '}');
	if (values[ARG_COMPLETE].len > 0) {
		mark = path_down_text(parse, "complete");
		hf_try(pack_values_check(reader, values[ARG_COMPLETE]));
		path_up(parse, mark);
		pack_member_add(complete, name, values[ARG_COMPLETE]);
	}
	return HF_OK;
}

static enum hf_code arguments_read(struct pack_reader *reader, struct slice arguments,
				   struct buf *published, struct buf *complete)
{
	struct slice argument;
	size_t number = 0;
	buf_add_byte(published, '[');
	buf_add_byte(complete, '{');
	for (size_t at = 0; arguments.len && json_array_next(arguments, &at, &argument); number++) {
		size_t mark = path_down_index(&reader->parse, number);
		/* What stands before it, closed as an array. */
		hf_cleanup(buf) struct buf earlier = {};
		buf_add_slice(&earlier, buf_slice(published));
		buf_add_byte(&earlier, ']');
		hf_try(argument_read(reader, buf_slice(&earlier), argument, published, complete));
		path_up(&reader->parse, mark);
	}
	buf_add_byte(published, ']');
	buf_add_byte(complete, '}');
	return HF_OK;
}

/* --- Messages --------------------------------------------------------------------------------- */

struct references {
	struct pack_reader *reader;
	struct slice arguments;
};

/* /input/KEY or /input/KEY/…, of a key that is asked for. */
static bool is_asked(const struct tool_parse *parse, struct slice pointer)
{
	static constexpr char INPUT[] = "/input/";
	size_t start = sizeof INPUT - 1, len = 0;
	if (pointer.len <= start || memcmp(pointer.data, INPUT, start) != 0)
		return false;
	while (start + len < pointer.len && pointer.data[start + len] != '/')
		len++;
	return ask_find(parse->ask, parse->asking, (struct slice){ pointer.data + start, len });
}

static enum hf_code on_reference(void *ctx, struct slice pointer, struct hf_err *)
{
	const struct slice args = slice_of("/args/");
	const struct references *references = ctx;
	hf_try(pack_reference_count(references->reader));
	if (slice_is(pointer, "/minted/effect_id") || is_asked(&references->reader->parse, pointer))
		return HF_OK;
	if (slice_starts(pointer, args) &&
	    argument_named(references->arguments, slice_behind(pointer, args.len)))
		return HF_OK;
	return tool_bad(&references->reader->parse,
			"{%.*s}: a prompt knows /args/NAME of its arguments, /input/KEY of what it "
			"asks, and /minted/effect_id",
			pointer.len < 80 ? (int)pointer.len : 80, pointer.data);
}

static enum hf_code base64_check(struct pack_reader *reader, const char *name, struct slice value)
{
	if (value.len == 0)
		return HF_OK;
	size_t mark = path_down_text(&reader->parse, name);
	hf_cleanup(text) char *text = member_text(value);
	if (!base64_is_valid(slice_of(text)))
		return tool_bad(&reader->parse, "is no base64");
	path_up(&reader->parse, mark);
	return HF_OK;
}

static enum hf_code media_type_check(struct pack_reader *reader, struct slice value)
{
	if (value.len == 0)
		return HF_OK;
	size_t mark = path_down_text(&reader->parse, "mimeType");
	hf_try(pack_media_type_check(reader, value));
	path_up(&reader->parse, mark);
	return HF_OK;
}

static enum hf_code named_file_read(struct pack_reader *reader, struct slice path,
				    struct slice *content)
{
	size_t mark = path_down_text(&reader->parse, "file");
	hf_try(pack_file_read(reader, path, content));
	path_up(&reader->parse, mark);
	return HF_OK;
}

static enum hf_code text_read(struct pack_reader *reader, struct slice content, struct buf *out)
{
	enum { TYPE, TEXT, COUNT };
	static const struct member members[COUNT] = {
		[TYPE] = { "type", MEMBER_STRING, true, 0, 0 },
		[TEXT] = { "text", MEMBER_STRING, true, 1, TEXT_BYTES_MAX },
	};
	struct slice values[COUNT];
	hf_try(members_read(&reader->parse, content, members, COUNT, values));
	buf_add_slice(out, content);
	return HF_OK;
}

static enum hf_code link_read(struct pack_reader *reader, struct slice content, struct buf *out)
{
	enum { TYPE, URI, NAME, TITLE, DESCRIPTION, MIME_TYPE, COUNT };
	static const struct member members[COUNT] = {
		[TYPE] = { "type", MEMBER_STRING, true, 0, 0 },
		[URI] = { "uri", MEMBER_STRING, true, 1, 2'000 },
		[NAME] = { "name", MEMBER_STRING, true, 1, 200 },
		[TITLE] = { "title", MEMBER_STRING, false, 1, 200 },
		[DESCRIPTION] = { "description", MEMBER_STRING, false, 1, 4'096 },
		[MIME_TYPE] = { "mimeType", MEMBER_STRING, false, 1, 127 },
	};
	struct slice values[COUNT];
	hf_try(members_read(&reader->parse, content, members, COUNT, values));
	hf_try(media_type_check(reader, values[MIME_TYPE]));
	buf_add_slice(out, content);
	return HF_OK;
}

/* image and audio */
static enum hf_code media_read(struct pack_reader *reader, struct slice content, struct buf *out)
{
	enum { TYPE, MIME_TYPE, DATA, FILE_, COUNT };
	static const struct member members[COUNT] = {
		[TYPE] = { "type", MEMBER_STRING, true, 0, 0 },
		[MIME_TYPE] = { "mimeType", MEMBER_STRING, true, 1, 127 },
		[DATA] = { "data", MEMBER_STRING, false, 0, 0 },
		[FILE_] = { "file", MEMBER_STRING, false, 1, 1'000 },
	};
	struct slice values[COUNT], bytes;
	hf_try(members_read(&reader->parse, content, members, COUNT, values));
	hf_try(media_type_check(reader, values[MIME_TYPE]));
	if (!values[DATA].len == !values[FILE_].len)
		return tool_bad(&reader->parse, "needs one of \"data\" and \"file\"");
	hf_try(base64_check(reader, "data", values[DATA]));
	if (values[DATA].len > 0) {
		buf_add_slice(out, content);
		return HF_OK;
	}
	hf_try(named_file_read(reader, values[FILE_], &bytes));
	buf_add_byte(out, '{');
	pack_member_add(out, "type", values[TYPE]);
	pack_member_add(out, "mimeType", values[MIME_TYPE]);
	buf_add_text(out, ",\"data\":\"");
	base64_add(bytes, out);
	buf_add_text(out, "\"}");
	return HF_OK;
}

/* A file's text stands in a template now: its braces are plain ones. */
static void add_file(struct slice media_type, struct slice bytes, struct buf *out)
{
	hf_cleanup(buf) struct buf plain = {};
	content_add(media_type, bytes, &plain);
	for (size_t i = 0; i < plain.len; i++) {
		if (plain.data[i] == '{')
			buf_add_byte(out, '{');
		buf_add_byte(out, plain.data[i]);
	}
}

static enum hf_code embedded_read(struct pack_reader *reader, struct slice resource,
				  struct buf *out)
{
	enum { URI, MIME_TYPE, TEXT, BLOB, FILE_, COUNT };
	static const struct member members[COUNT] = {
		[URI] = { "uri", MEMBER_STRING, true, 1, 2'000 },
		[MIME_TYPE] = { "mimeType", MEMBER_STRING, true, 1, 127 },
		[TEXT] = { "text", MEMBER_STRING, false, 0, 0 },
		[BLOB] = { "blob", MEMBER_STRING, false, 0, 0 },
		[FILE_] = { "file", MEMBER_STRING, false, 1, 1'000 },
	};
	struct slice values[COUNT], bytes;
	hf_try(members_read(&reader->parse, resource, members, COUNT, values));
	hf_try(media_type_check(reader, values[MIME_TYPE]));
	if ((values[TEXT].len > 0) + (values[BLOB].len > 0) + (values[FILE_].len > 0) != 1)
		return tool_bad(&reader->parse, "needs one of \"text\", \"blob\" and \"file\"");
	hf_try(base64_check(reader, "blob", values[BLOB]));
	if (values[FILE_].len == 0) {
		buf_add_slice(out, resource);
		return HF_OK;
	}
	hf_try(named_file_read(reader, values[FILE_], &bytes));
	hf_cleanup(text) char *media_type = member_text(values[MIME_TYPE]);
	buf_add_byte(out, '{');
	pack_member_add(out, "uri", values[URI]);
	pack_member_add(out, "mimeType", values[MIME_TYPE]);
	buf_add_byte(out, ',');
	add_file(slice_of(media_type), bytes, out);
	buf_add_byte(out, '}');
	return HF_OK;
}

static enum hf_code resource_read(struct pack_reader *reader, struct slice content, struct buf *out)
{
	enum { TYPE, RESOURCE, COUNT };
	static const struct member members[COUNT] = {
		[TYPE] = { "type", MEMBER_STRING, true, 0, 0 },
		[RESOURCE] = { "resource", MEMBER_OBJECT, true, 0, 0 },
	};
	struct slice values[COUNT];
	hf_try(members_read(&reader->parse, content, members, COUNT, values));
	path_down_text(&reader->parse, "resource");
	buf_add_text(out, "{\"type\":\"resource\",\"resource\":");
	hf_try(embedded_read(reader, values[RESOURCE], out));
	buf_add_byte(out, '}');
	return HF_OK;
}

static enum hf_code content_read(struct pack_reader *reader, struct slice content, struct buf *out)
{
	static const struct {
		const char *type;
		enum hf_code (*read)(struct pack_reader *reader, struct slice content,
				     struct buf *out);
	} kinds[] = {
		{ "text", text_read },          { "image", media_read },
		{ "audio", media_read },        { "resource", resource_read },
		{ "resource_link", link_read },
	};
	struct slice type;
	bool typed = json_member(content, "type", &type);
	for (size_t i = 0; typed && i < countof(kinds); i++)
		if (json_string_is(type, kinds[i].type))
			return kinds[i].read(reader, content, out);
	path_down_text(&reader->parse, "type");
	return tool_bad(
	    &reader->parse,
	    "must be \"text\", \"image\", \"audio\", \"resource\" or \"resource_link\"");
}

static enum hf_code message_read(struct pack_reader *reader, struct slice arguments,
				 struct slice message, struct buf *out)
{
	enum { ROLE, CONTENT, COUNT };
	static const struct member members[COUNT] = {
		[ROLE] = { "role", MEMBER_STRING, true, 0, 0 },
		[CONTENT] = { "content", MEMBER_OBJECT, true, 0, 0 },
	};
	struct slice values[COUNT];
	struct tool_parse *parse = &reader->parse;
	hf_try(members_read(parse, message, members, COUNT, values));
	if (!json_string_is(values[ROLE], "user") && !json_string_is(values[ROLE], "assistant")) {
		path_down_text(parse, "role");
		return tool_bad(parse, "must be \"user\" or \"assistant\"");
	}
	size_t mark = path_down_text(parse, "content");
	struct references references = { reader, arguments };
	hf_try(pack_references_check(reader, values[CONTENT], on_reference, &references));
	buf_add_text(out, "{\"role\":");
	buf_add_slice(out, values[ROLE]);
	buf_add_text(out, ",\"content\":");
	hf_try(content_read(reader, values[CONTENT], out));
	buf_add_byte(out, '}');
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code messages_read(struct pack_reader *reader, struct slice arguments,
				  struct slice messages, struct buf *out)
{
	struct slice message;
	size_t number = 0;
	buf_add_byte(out, '[');
	for (size_t at = 0; json_array_next(messages, &at, &message); number++) {
		size_t mark = path_down_index(&reader->parse, number);
		if (number > 0)
			buf_add_byte(out, ',');
		hf_try(message_read(reader, arguments, message, out));
		path_up(&reader->parse, mark);
	}
	buf_add_byte(out, ']');
	return HF_OK;
}

/* --- The prompt ------------------------------------------------------------------------------- */

/* Its questions name arguments as those of a tool do, whose schema has them as properties. */
static enum hf_code questions_read(struct pack_reader *reader, struct slice arguments,
				   struct slice ask, struct slice otherwise, bool *go_on)
{
	struct slice argument, name;
	struct tool_parse *parse = &reader->parse;
	hf_cleanup(buf) struct buf schema = {};
	buf_add_text(&schema, "{\"properties\":{");
	for (size_t at = 0; json_array_next(arguments, &at, &argument);) {
		bool named = json_member(argument, "name", &name);
		hf_assert(named);
		buf_add_format(&schema, "%s%.*s:{}", schema.data[schema.len - 1] == '{' ? "" : ",",
			       (int)name.len, name.data);
	}
	buf_add_text(&schema, "}}");
	struct tool asker = { .input_schema = buf_slice(&schema) };
	parse->tool = &asker;
	parse->before = true;
	parse->ask = (struct slice){};
	parse->asking = 0;
	enum hf_code code = ask_read(parse, ask, otherwise, go_on);
	parse->tool = nullptr;
	buf_deinit(&asker.remarks);
	return code;
}

enum hf_code pack_prompt_read(struct pack_reader *reader, const char *name, struct slice doc)
{
	enum { TITLE, DESCRIPTION, ARGUMENTS, MESSAGES, ASK, ASK_OTHERWISE, COUNT };
	static const struct member members[COUNT] = {
		[TITLE] = { "title", MEMBER_STRING, false, 1, 200 },
		[DESCRIPTION] = { "description", MEMBER_STRING, false, 1, 4'096 },
		[ARGUMENTS] = { "arguments", MEMBER_ARRAY, false, 0, ARGUMENTS_MAX },
		[MESSAGES] = { "messages", MEMBER_ARRAY, true, 1, MESSAGES_MAX },
		[ASK] = { "ask", MEMBER_ARRAY, false, 0, 0 },
		[ASK_OTHERWISE] = { "ask_otherwise", MEMBER_STRING, false, 0, 0 },
	};
	bool go_on = false;
	struct slice values[COUNT];
	hf_try(members_read(&reader->parse, doc, members, COUNT, values));
	hf_cleanup(buf) struct buf arguments = {}, complete = {}, messages = {};
	reader->references = 0;
	size_t mark = path_down_text(&reader->parse, "arguments");
	hf_try(arguments_read(reader, values[ARGUMENTS], &arguments, &complete));
	path_up(&reader->parse, mark);
	hf_try(questions_read(reader, buf_slice(&arguments), values[ASK], values[ASK_OTHERWISE],
			      &go_on));
	mark = path_down_text(&reader->parse, "messages");
	hf_try(messages_read(reader, buf_slice(&arguments), values[MESSAGES], &messages));
	path_up(&reader->parse, mark);

	struct buf *out = &reader->prompts;
	buf_add_format(out, "%s{\"name\":\"%s\",\"published\":{\"name\":\"%s\"",
		       out->len ? "," : "", name, name);
	pack_member_add(out, "title", values[TITLE]);
	pack_member_add(out, "description", values[DESCRIPTION]);
	if (arguments.len > 2) /* more than "[]" */
		pack_member_add(out, "arguments", buf_slice(&arguments));
	buf_add_byte(out, '}');
	pack_member_add(out, "complete", buf_slice(&complete));
	pack_member_add(out, "messages", buf_slice(&messages));
	pack_member_add(out, "ask", values[ASK]);
	if (go_on)
		pack_member_add(out, "askGoOn", slice_of("true"));
	buf_add_byte(out, '}');
	return HF_OK;
}
