/* pack.c - see pack.h: the folder as a whole. Prompts are read by pack_prompt.c, resources by
 * pack_resource.c. Called by cmd_tools.c. */
#include "runtime/pack.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/content.h"
#include "runtime/pack_inner.h"
#include "runtime/template.h"

constexpr size_t NAME_LEN_MAX = 128;
constexpr int64_t VALUE_BYTES_MAX = 1'000;

static void hf_cleanup_reader(struct pack_reader *reader)
{
	buf_deinit(&reader->parse.path);
	buf_deinit(&reader->prompts);
	buf_deinit(&reader->resources);
	buf_deinit(&reader->templates);
}

/* --- For prompts and resources ---------------------------------------------------------------- */

enum hf_code pack_doc_read(struct pack_reader *reader, const struct tool_file *file,
			   struct slice *doc)
{
	struct hf_err inner = {};
	reader->parse.file = file->path;
	buf_clear(&reader->parse.path);
	if (file->content.len > PACK_FILE_BYTES_MAX)
		return tool_bad(&reader->parse, "has over %zu bytes", PACK_FILE_BYTES_MAX);
	if (json_scan_written(file->content, &inner) != HF_OK)
		return hf_fail(reader->parse.err, HF_INVALID, "%s:%s", file->path, inner.text);
	*doc = json_trim(file->content);
	return HF_OK;
}

enum hf_code pack_file_read(struct pack_reader *reader, struct slice path, struct slice *content)
{
	bool executable;
	hf_cleanup(text) char *text = member_text(path);
	hf_try(file_read(&reader->parse, text, content, &executable));
	if (content->len > PACK_FILE_BYTES_MAX)
		return tool_bad(&reader->parse, "file %s has over %zu bytes", text,
				PACK_FILE_BYTES_MAX);
	return HF_OK;
}

enum hf_code pack_entry_add(struct pack_reader *reader, enum pack_kind kind, const char *key)
{
	struct pack *pack = reader->pack;
	for (size_t i = 0; i < pack->count; i++)
		if (pack->entries[i].kind == kind && strcmp(pack->entries[i].key, key) == 0)
			return tool_bad(&reader->parse, "stands twice");
	if (pack->count == PACK_ENTRIES_MAX)
		return tool_bad(&reader->parse, "a pack has at most %zu prompts and resources",
				PACK_ENTRIES_MAX);
	pack->entries[pack->count++] = (struct pack_entry){
		.kind = kind,
		.key = hf_strdup(key),
		.file = hf_strdup(reader->parse.file),
	};
	if (kind == PACK_PROMPT)
		pack->prompts++;
	else
		pack->resources++;
	return HF_OK;
}

enum hf_code pack_values_check(struct pack_reader *reader, struct slice values)
{
	struct slice value;
	size_t number = 0;
	for (size_t at = 0; json_array_next(values, &at, &value); number++) {
		size_t mark = path_down_index(&reader->parse, number);
		if (json_type_of(value) != JSON_STRING)
			return tool_bad(&reader->parse, "must be a string");
		if (value.len > VALUE_BYTES_MAX)
			return tool_bad(&reader->parse, "has over %d bytes", (int)VALUE_BYTES_MAX);
		path_up(&reader->parse, mark);
	}
	return HF_OK;
}

enum hf_code pack_reference_count(struct pack_reader *reader)
{
	if (++reader->references <= PACK_REFERENCES_MAX)
		return HF_OK;
	return tool_bad(&reader->parse, "over %zu references stand in it", PACK_REFERENCES_MAX);
}

enum hf_code pack_references_check(struct pack_reader *reader, struct slice value,
				   enum hf_code (*found)(void *ctx, struct slice pointer,
							 struct hf_err *err),
				   void *ctx)
{
	struct hf_err inner = {};
	if (template_walk(value, found, ctx, &inner) == HF_OK)
		return HF_OK;
	return reader->parse.failed ? HF_INVALID : tool_bad(&reader->parse, "%s", inner.text);
}

enum hf_code pack_media_type_check(struct pack_reader *reader, struct slice value)
{
	hf_cleanup(text) char *type = member_text(value);
	if (media_type_is_valid(slice_of(type)))
		return HF_OK;
	return tool_bad(&reader->parse, "is no media type, such as image/png");
}

void pack_member_add(struct buf *out, const char *name, struct slice value)
{
	if (value.len == 0)
		return;
	if (out->len > 0 && out->data[out->len - 1] != '{')
		buf_add_byte(out, ',');
	buf_add_format(out, "\"%s\":", name);
	buf_add_slice(out, value);
}

/* --- The folder ------------------------------------------------------------------------------- */

static enum hf_code name_read(struct pack_reader *reader, const char *tool_name)
{
	enum { NAME, COUNT };
	static const struct member members[COUNT] = {
		[NAME] = { "name", MEMBER_STRING, true, 1, 64 },
	};
	const struct tool_file *file = tool_folder_find(reader->folder, "pack.json");
	struct slice doc = {}, values[COUNT];
	if (file)
		hf_try(pack_doc_read(reader, file, &doc));
	if (file && tool_name)
		return tool_bad(&reader->parse, "stands beside tool.json, which names this folder");
	if (!file && !tool_name)
		return hf_fail(reader->parse.err, HF_INVALID,
			       "tool.json: is not there, nor is pack.json");
	if (!file) {
		reader->pack->name = hf_strdup(tool_name);
		return HF_OK;
	}
	hf_try(members_read(&reader->parse, doc, members, COUNT, values));
	reader->pack->name = member_text(values[NAME]);
	path_down_text(&reader->parse, "name");
	if (!name_is_plain(reader->pack->name))
		return tool_bad(&reader->parse, "must be of A-Z a-z 0-9 _ . -");
	return HF_OK;
}

/* "prompts/NAME.json" is prompt NAME; any other file is one that a prompt may name. */
static enum hf_code prompt_file_read(struct pack_reader *reader, const struct tool_file *file)
{
	static constexpr char FOLDER[] = "prompts/", END[] = ".json";
	size_t folder_len = sizeof FOLDER - 1, end_len = sizeof END - 1, len = strlen(file->path);
	if (strncmp(file->path, FOLDER, folder_len) != 0 || strchr(file->path + folder_len, '/') ||
	    len <= folder_len + end_len || strcmp(file->path + len - end_len, END) != 0)
		return HF_OK;
	struct slice doc = {};
	hf_try(pack_doc_read(reader, file, &doc));
	hf_cleanup(text) char *name =
	    hf_strndup(file->path + folder_len, len - folder_len - end_len);
	if (!name_is_plain(name) || strlen(name) > NAME_LEN_MAX)
		return tool_bad(&reader->parse,
				"the file's name is the prompt's: 1 to %zu of A-Z a-z 0-9 _ . -",
				NAME_LEN_MAX);
	hf_try(pack_entry_add(reader, PACK_PROMPT, name));
	return pack_prompt_read(reader, name, doc);
}

static enum hf_code parts_read(struct pack_reader *reader)
{
	for (size_t i = 0; i < reader->folder->count; i++)
		hf_try(prompt_file_read(reader, &reader->folder->files[i]));
	const struct tool_file *resources =
	    tool_folder_find(reader->folder, "resources/resources.json");
	struct slice doc = {};
	if (!resources)
		return HF_OK;
	hf_try(pack_doc_read(reader, resources, &doc));
	return pack_resources_read(reader, doc);
}

static enum hf_code assemble(struct pack_reader *reader)
{
	const struct {
		const char *name;
		const struct buf *elements;
	} parts[] = {
		{ "prompts", &reader->prompts },
		{ "resources", &reader->resources },
		{ "templates", &reader->templates },
	};
	struct buf *doc = &reader->pack->doc;
	doc->max = PACK_DOC_BYTES_MAX;
	for (size_t i = 0; i < countof(parts); i++) {
		buf_add_format(doc, "%s\"%s\":[", i ? "," : "{", parts[i].name);
		buf_add_slice(doc, buf_slice(parts[i].elements));
		buf_add_byte(doc, ']');
	}
	buf_add_byte(doc, '}');
	if (doc->overflow)
		return hf_fail(reader->parse.err, HF_LIMIT,
			       "%s: prompts and resources with their files have over %zu bytes",
			       reader->pack->has_tool ? "tool.json" : "pack.json",
			       PACK_DOC_BYTES_MAX);
	return json_scan(buf_slice(doc), reader->parse.err);
}

enum hf_code pack_new(struct tool_folder *folder, const char *tool_name, struct pack **out,
		      struct hf_err *err)
{
	hf_assert(folder);
	hf_assert(out);
	struct tool_files files = tool_folder_files(folder);
	struct hf_err own = {};
	hf_cleanup(pack) struct pack *pack = hf_alloc(sizeof *pack);
	hf_cleanup(reader) struct pack_reader reader = {
		.folder = folder,
		.parse = { .files = &files, .err = err ? err : &own },
		.pack = pack,
	};
	pack->has_tool = tool_name;
	pack->entries = hf_alloc(PACK_ENTRIES_MAX * sizeof *pack->entries);
	memcpy(pack->version, folder->version, sizeof pack->version);
	hf_try(name_read(&reader, tool_name));
	hf_try(parts_read(&reader));
	hf_try(assemble(&reader));
	*out = pack;
	pack = nullptr;
	return HF_OK;
}

struct pack *pack_free(struct pack *pack)
{
	if (!pack)
		return nullptr;
	for (size_t i = 0; i < pack->count; i++) {
		free(pack->entries[i].key);
		free(pack->entries[i].file);
	}
	free(pack->entries);
	free(pack->name);
	buf_deinit(&pack->doc);
	free(pack);
	return nullptr;
}
