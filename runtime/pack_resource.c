/* pack_resource.c - resources/resources.json: {"resources": [{"uri" or "uriTemplate", "name",
 * "title", "description", "mimeType", and its content}]}. The content of a uri is "text", "json" or
 * "file", as it stands; that of a uriTemplate is "text" or "json", in which {/args/NAME} is a
 * variable of the template. "complete": {"NAME": ["value", …]} offers values for it. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/content.h"
#include "runtime/pack_inner.h"
#include "runtime/uri_template.h"

constexpr char RESERVED_SCHEME[] = "holdfast:"; /* the API's own resources */

enum { URI, URI_TEMPLATE, NAME, TITLE, DESCRIPTION, MIME_TYPE, TEXT, JSON, FILE_, COMPLETE, COUNT };
static const struct member members[COUNT] = {
	[URI] = { "uri", MEMBER_STRING, false, 1, URI_LEN_MAX },
	[URI_TEMPLATE] = { "uriTemplate", MEMBER_STRING, false, 1, URI_LEN_MAX },
	[NAME] = { "name", MEMBER_STRING, true, 1, 200 },
	[TITLE] = { "title", MEMBER_STRING, false, 1, 200 },
	[DESCRIPTION] = { "description", MEMBER_STRING, false, 1, 4'096 },
	[MIME_TYPE] = { "mimeType", MEMBER_STRING, false, 1, 127 },
	[TEXT] = { "text", MEMBER_STRING, false, 0, 0 },
	[JSON] = { "json", MEMBER_ANY, false, 0, 0 },
	[FILE_] = { "file", MEMBER_STRING, false, 1, 1'000 },
	[COMPLETE] = { "complete", MEMBER_OBJECT, false, 0, 0 },
};

static bool has_variable(const char *template, struct slice name)
{
	struct slice variable;
	for (size_t at = 0; uri_template_next(slice_of(template), &at, &variable);)
		if (slice_equal(variable, name))
			return true;
	return false;
}

struct references {
	struct pack_reader *reader;
	const char *template;
};

static enum hf_code on_reference(void *ctx, struct slice pointer, struct hf_err *)
{
	const struct slice args = slice_of("/args/");
	const struct references *references = ctx;
	hf_try(pack_reference_count(references->reader));
	if (slice_starts(pointer, args) &&
	    has_variable(references->template, slice_behind(pointer, args.len)))
		return HF_OK;
	return tool_bad(&references->reader->parse,
			"%.*s: is no /args/NAME of a variable of the template",
			pointer.len < 80 ? (int)pointer.len : 80, pointer.data);
}

static enum hf_code complete_check(struct pack_reader *reader, const char *template,
				   struct slice complete)
{
	struct slice raw_name, values;
	size_t mark = path_down_text(&reader->parse, "complete");
	for (size_t at = 0; complete.len && json_object_next(complete, &at, &raw_name, &values);) {
		hf_cleanup(buf) struct buf name = {};
		json_string_decode(raw_name, &name);
		size_t inner = path_down(&reader->parse, buf_slice(&name));
		if (!has_variable(template, buf_slice(&name)))
			return tool_bad(&reader->parse, "is no variable of the template");
		if (json_type_of(values) != JSON_ARRAY ||
		    array_count(values) > (size_t)PACK_COMPLETE_MAX)
			return tool_bad(&reader->parse, "must be an array of at most %d strings",
					(int)PACK_COMPLETE_MAX);
		hf_try(pack_values_check(reader, values));
		path_up(&reader->parse, inner);
	}
	path_up(&reader->parse, mark);
	return HF_OK;
}

/* The media type as a JSON string; what is not said is plain. */
static enum hf_code media_type_read(struct pack_reader *reader, struct slice *values)
{
	if (values[MIME_TYPE].len > 0) {
		size_t mark = path_down_text(&reader->parse, "mimeType");
		hf_try(pack_media_type_check(reader, values[MIME_TYPE]));
		path_up(&reader->parse, mark);
		return HF_OK;
	}
	if (values[FILE_].len > 0)
		return tool_bad(&reader->parse, "a file needs its \"mimeType\"");
	values[MIME_TYPE] =
	    slice_of(values[JSON].len > 0 ? "\"application/json\"" : "\"text/plain\"");
	return HF_OK;
}

static void publish(const struct slice *values, size_t size, bool sized, struct buf *out)
{
	buf_add_text(out, ",\"published\":{");
	for (size_t i = 0; i <= MIME_TYPE; i++)
		pack_member_add(out, members[i].name, values[i]);
	if (sized)
		buf_add_format(out, ",\"size\":%zu", size);
	buf_add_byte(out, '}');
}

/* --- uri -------------------------------------------------------------------------------------- */

static enum hf_code add_plain(struct pack_reader *reader, const struct slice *values,
			      struct buf *out)
{
	struct slice bytes;
	hf_cleanup(buf) struct buf text = {};
	hf_cleanup(text) char *media_type = member_text(values[MIME_TYPE]);
	if (values[FILE_].len > 0) {
		size_t mark = path_down_text(&reader->parse, "file");
		hf_try(pack_file_read(reader, values[FILE_], &bytes));
		path_up(&reader->parse, mark);
	} else {
		if (values[TEXT].len > 0)
			json_string_decode(values[TEXT], &text);
		else
			buf_add_slice(&text, values[JSON]);
		bytes = text.len ? buf_slice(&text) : slice_of("");
	}
	publish(values, bytes.len, true, out);
	buf_add_text(out, ",\"contents\":{");
	pack_member_add(out, "uri", values[URI]);
	pack_member_add(out, "mimeType", values[MIME_TYPE]);
	buf_add_byte(out, ',');
	if (values[FILE_].len > 0) {
		content_add(slice_of(media_type), bytes, out);
	} else { /* it was written as text, whatever the media type */
		buf_add_text(out, "\"text\":");
		json_string_encode(bytes, out);
	}
	buf_add_byte(out, '}');
	return HF_OK;
}

/* Without escapes of the author's: the API looks it up as it stands. */
static void add_key(const char *name, const char *key, struct buf *out)
{
	buf_add_format(out, "%s{\"%s\":", out->len ? "," : "", name);
	json_string_encode(slice_of(key), out);
}

static enum hf_code plain_read(struct pack_reader *reader, const struct slice *values,
			       const char *uri)
{
	if (values[COMPLETE].len > 0)
		return tool_bad(&reader->parse, "\"complete\" goes with \"uriTemplate\"");
	struct buf *out = &reader->resources;
	add_key("uri", uri, out);
	hf_try(add_plain(reader, values, out));
	buf_add_byte(out, '}');
	return HF_OK;
}

/* --- uriTemplate ------------------------------------------------------------------------------ */

static enum hf_code template_read(struct pack_reader *reader, const struct slice *values,
				  const char *template)
{
	if (values[FILE_].len > 0)
		return tool_bad(&reader->parse, "\"file\" goes with \"uri\"");
	bool text = values[TEXT].len > 0;
	reader->references = 0;
	size_t mark = path_down_text(&reader->parse, text ? "text" : "json");
	struct references references = { reader, template };
	hf_try(pack_references_check(reader, text ? values[TEXT] : values[JSON], on_reference,
				     &references));
	path_up(&reader->parse, mark);
	hf_try(complete_check(reader, template, values[COMPLETE]));

	struct buf *out = &reader->templates;
	add_key("uriTemplate", template, out);
	publish(values, 0, false, out);
	pack_member_add(out, "complete", values[COMPLETE].len ? values[COMPLETE] : slice_of("{}"));
	pack_member_add(out, "mimeType", values[MIME_TYPE]);
	pack_member_add(out, "text", values[TEXT]);
	pack_member_add(out, "json", values[JSON]);
	buf_add_byte(out, '}');
	return HF_OK;
}

/* --- The list --------------------------------------------------------------------------------- */

static enum hf_code key_check(struct pack_reader *reader, const struct slice *values, char **key)
{
	struct hf_err inner = {};
	bool templated = values[URI_TEMPLATE].len > 0;
	*key = member_text(templated ? values[URI_TEMPLATE] : values[URI]);
	hf_assert(*key);
	path_down_text(&reader->parse, templated ? "uriTemplate" : "uri");
	enum hf_code code = templated ? uri_template_check(slice_of(*key), &inner)
				      : uri_check(slice_of(*key), &inner);
	if (code != HF_OK)
		return tool_bad(&reader->parse, "%s", inner.text);
	if (strncasecmp(*key, RESERVED_SCHEME, sizeof RESERVED_SCHEME - 1) == 0)
		return tool_bad(&reader->parse, "URIs of scheme holdfast are Holdfast's own");
	return pack_entry_add(reader, PACK_RESOURCE, *key);
}

static enum hf_code one_read(struct pack_reader *reader, struct slice resource)
{
	struct slice values[COUNT];
	struct tool_parse *parse = &reader->parse;
	hf_try(members_read(parse, resource, members, COUNT, values));
	if (!values[URI].len == !values[URI_TEMPLATE].len)
		return tool_bad(parse, "needs one of \"uri\" and \"uriTemplate\"");
	if ((values[TEXT].len > 0) + (values[JSON].len > 0) + (values[FILE_].len > 0) != 1)
		return tool_bad(parse, "needs one of \"text\", \"json\" and \"file\"");
	size_t mark = parse->path.len;
	hf_cleanup(text) char *key = nullptr;
	hf_try(key_check(reader, values, &key));
	path_up(parse, mark);
	hf_try(media_type_read(reader, values));
	return values[URI].len > 0 ? plain_read(reader, values, key)
				   : template_read(reader, values, key);
}

enum hf_code pack_resources_read(struct pack_reader *reader, struct slice doc)
{
	enum { RESOURCES, TOP_COUNT };
	static const struct member top[TOP_COUNT] = {
		[RESOURCES] = { "resources", MEMBER_ARRAY, true, 1, PACK_ENTRIES_MAX },
	};
	struct slice values[TOP_COUNT], resource;
	size_t number = 0;
	hf_try(members_read(&reader->parse, doc, top, TOP_COUNT, values));
	path_down_text(&reader->parse, "resources");
	for (size_t at = 0; json_array_next(values[RESOURCES], &at, &resource); number++) {
		size_t mark = path_down_index(&reader->parse, number);
		hf_try(one_read(reader, resource));
		path_up(&reader->parse, mark);
	}
	return HF_OK;
}
