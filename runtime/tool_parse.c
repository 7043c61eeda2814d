/* tool_parse.c - the reader of tool.json: members by table, paths for error texts, names. */
#include "runtime/tool_parse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"

constexpr size_t PATH_NAME_BYTES_MAX = 64; /* of a member name in an error text */

static enum hf_code bad(struct tool_parse *parse, const char *between, const char *reason)
{
	hf_assert(!parse->failed);
	parse->failed = true;
	return hf_fail(parse->err, HF_INVALID, "%s#%s%s%s", parse->file ? parse->file : "tool.json",
		       parse->path.len ? parse->path.data : "", between, reason);
}

enum hf_code tool_bad(struct tool_parse *parse, const char *format, ...)
{
	char reason[sizeof parse->err->text];
	va_list args;
	va_start(args, format);
	vsnprintf(reason, sizeof reason, format, args);
	va_end(args);
	return bad(parse, ": ", reason);
}

enum hf_code tool_bad_within(struct tool_parse *parse, const char *text)
{
	return bad(parse, "", text);
}

size_t path_down(struct tool_parse *parse, struct slice name)
{
	size_t mark = parse->path.len;
	buf_add_byte(&parse->path, '/');
	for (size_t i = 0; i < name.len && i < PATH_NAME_BYTES_MAX; i++) {
		unsigned char byte = (unsigned char)name.data[i];
		if (byte == '~' || byte == '/')
			buf_add_text(&parse->path, byte == '~' ? "~0" : "~1");
		else
			buf_add_byte(&parse->path, byte < ' ' || byte == 0x7f ? '?' : (char)byte);
	}
	return mark;
}

size_t path_down_text(struct tool_parse *parse, const char *name)
{
	return path_down(parse, slice_of(name));
}

size_t path_down_index(struct tool_parse *parse, size_t index)
{
	size_t mark = parse->path.len;
	buf_add_format(&parse->path, "/%zu", index);
	return mark;
}

void path_up(struct tool_parse *parse, size_t mark)
{
	hf_assert(mark <= parse->path.len);
	parse->path.len = mark;
	parse->path.data[mark] = '\0';
}

int64_t member_integer(struct slice value, int64_t otherwise)
{
	int64_t number = otherwise;
	bool readable = !value.len || json_integer(value, &number);
	hf_assert(readable);
	return number;
}

enum hf_code member_word(struct tool_parse *parse, const char *name, struct slice value,
			 const char *const *words, int count, int *which)
{
	*which = 0;
	hf_cleanup(buf) struct buf known = {};
	for (int i = 0; i < count; i++) {
		if (value.len && json_string_is(value, words[i]))
			*which = i;
		buf_add_format(&known, "%s\"%s\"",
			       i == 0          ? ""
			       : i + 1 < count ? ", "
					       : " or ",
			       words[i]);
	}
	if (!value.len || json_string_is(value, words[*which]))
		return HF_OK;
	path_down_text(parse, name);
	return tool_bad(parse, "must be %s", known.data);
}

char *member_text(struct slice value)
{
	return value.len ? json_string_dup(value) : nullptr;
}

size_t array_count(struct slice array)
{
	size_t count = 0, at = 0;
	struct slice element;
	while (json_array_next(array, &at, &element))
		count++;
	return count;
}

static enum hf_code size_check(struct tool_parse *parse, const struct member *member, size_t size,
			       const char *unit)
{
	if (member->max == 0 || ((int64_t)size >= member->min && (int64_t)size <= member->max))
		return HF_OK;
	return tool_bad(parse, "must have %" PRId64 " to %" PRId64 " %s, has %zu", member->min,
			member->max, unit, size);
}

static enum hf_code string_check(struct tool_parse *parse, const struct member *member,
				 struct slice value)
{
	hf_cleanup(buf) struct buf text = {};
	json_string_decode(value, &text);
	return size_check(parse, member, text.len, "bytes");
}

static enum hf_code integer_check(struct tool_parse *parse, const struct member *member,
				  struct slice value)
{
	int64_t number;
	if (!json_integer(value, &number))
		return tool_bad(parse, "must be an integer");
	if (number < member->min || number > member->max)
		return tool_bad(parse, "must be %" PRId64 " to %" PRId64, member->min, member->max);
	return HF_OK;
}

static enum hf_code value_check(struct tool_parse *parse, const struct member *member,
				struct slice value)
{
	enum json_type type = json_type_of(value);
	switch (member->type) {
	case MEMBER_ANY:
		return HF_OK;
	case MEMBER_STRING:
		if (type == JSON_STRING)
			return string_check(parse, member, value);
		return tool_bad(parse, "must be a string, is %s", json_type_name(type));
	case MEMBER_INTEGER:
		if (type == JSON_NUMBER)
			return integer_check(parse, member, value);
		return tool_bad(parse, "must be an integer, is %s", json_type_name(type));
	case MEMBER_BOOLEAN:
		if (type == JSON_TRUE || type == JSON_FALSE)
			return HF_OK;
		return tool_bad(parse, "must be true or false, is %s", json_type_name(type));
	case MEMBER_ARRAY:
		if (type == JSON_ARRAY)
			return size_check(parse, member, array_count(value), "elements");
		return tool_bad(parse, "must be an array, is %s", json_type_name(type));
	case MEMBER_OBJECT:
		if (type == JSON_OBJECT)
			return HF_OK;
		return tool_bad(parse, "must be an object, is %s", json_type_name(type));
	}
	return tool_bad(parse, "has no type to be checked by");
}

static enum hf_code unknown_member(struct tool_parse *parse, const struct buf *name,
				   const struct member *members, size_t count)
{
	path_down(parse, buf_slice(name));
	hf_cleanup(buf) struct buf known = {};
	for (size_t i = 0; i < count; i++)
		buf_add_format(&known, "%s%s", i ? ", " : "", members[i].name);
	return tool_bad(parse, "unknown member; known here: %s", known.data);
}

enum hf_code members_read(struct tool_parse *parse, struct slice object,
			  const struct member *members, size_t count, struct slice *values)
{
	hf_assert(count > 0);
	if (json_type_of(object) != JSON_OBJECT)
		return tool_bad(parse, "must be an object, is %s",
				json_type_name(json_type_of(object)));
	for (size_t i = 0; i < count; i++)
		values[i] = (struct slice){};
	size_t at = 0;
	struct slice raw_name, value;
	while (json_object_next(object, &at, &raw_name, &value)) {
		size_t i = 0;
		while (i < count && !json_string_is(raw_name, members[i].name))
			i++;
		if (i == count) {
			hf_cleanup(buf) struct buf name = {};
			json_string_decode(raw_name, &name);
			return unknown_member(parse, &name, members, count);
		}
		size_t mark = path_down_text(parse, members[i].name);
		hf_try(value_check(parse, &members[i], value));
		path_up(parse, mark);
		values[i] = value;
	}
	for (size_t i = 0; i < count; i++)
		if (members[i].required && !values[i].len)
			return tool_bad(parse, "member \"%s\" is missing", members[i].name);
	return HF_OK;
}

static bool all_of(const char *text, const char *allowed)
{
	return *text && text[strspn(text, allowed)] == '\0';
}

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

bool name_is_plain(const char *name)
{
	return all_of(name, LOWER UPPER DIGITS "_.-");
}

bool name_is_sql(const char *name)
{
	return all_of(name, LOWER DIGITS "_") && !strchr(DIGITS, name[0]);
}

bool name_is_token(const char *name)
{
	return all_of(name, LOWER UPPER DIGITS "!#$%&'*+-.^_`|~");
}

bool path_is_safe(const char *path)
{
	if (!all_of(path, LOWER UPPER DIGITS "_.-+@ /"))
		return false;
	while (true) {
		size_t len = strcspn(path, "/");
		bool dots = len <= 2 && strspn(path, ".") >= len;
		if (len > 255 || dots) /* an empty name counts as dots */
			return false;
		if (path[len] == '\0')
			return true;
		path += len + 1;
	}
}

enum hf_code file_read(struct tool_parse *parse, const char *path, struct slice *content,
		       bool *executable)
{
	*content = (struct slice){};
	*executable = true;
	if (!path_is_safe(path))
		return tool_bad(parse, "\"%.100s\" is not a path inside the tool's folder", path);
	if (!parse->files)
		return HF_OK;
	struct hf_err inner = {};
	enum hf_code code =
	    parse->files->read(parse->files->ctx, path, content, executable, &inner);
	if (code == HF_MISSING)
		return tool_bad(parse, "file %s is not in the tool's folder", path);
	if (code != HF_OK)
		return tool_bad(parse, "file %s: %s", path, inner.text);
	return HF_OK;
}
