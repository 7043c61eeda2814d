/* json.c - walking scanned JSON text by spans, and strings in and out. Nothing here allocates a
 * tree: a value is its bytes. Reads only text that json_scan accepted; anything else fails an
 * assertion. Called from everywhere that reads JSON. */
#include "runtime/json.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json_inner.h"
#include "runtime/utf8.h"

static bool is_space(char byte)
{
	return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

size_t json_space_end(struct slice text, size_t at)
{
	while (at < text.len && is_space(text.data[at]))
		at++;
	return at;
}

size_t json_string_end(struct slice text, size_t at)
{
	hf_assert(at < text.len && text.data[at] == '"');
	for (at++; at < text.len && text.data[at] != '"'; at++) {
		if (text.data[at] == '\\')
			at++;
	}
	hf_assert(at < text.len);
	return at + 1;
}

static size_t scalar_end(struct slice text, size_t at)
{
	size_t start = at;
	while (at < text.len && !is_space(text.data[at]) && text.data[at] != ',' &&
	       text.data[at] != ']' && text.data[at] != '}')
		at++;
	hf_assert(at > start);
	return at;
}

static size_t container_end(struct slice text, size_t at)
{
	unsigned depth = 0;
	while (at < text.len) {
		char byte = text.data[at];
		if (byte == '"') {
			at = json_string_end(text, at);
			continue;
		}
		at++;
		if (byte == '{' || byte == '[')
			depth++;
		else if ((byte == '}' || byte == ']') && --depth == 0)
			break;
	}
	hf_assert(depth == 0);
	return at;
}

size_t json_value_end(struct slice text, size_t at)
{
	hf_assert(at < text.len);
	switch (text.data[at]) {
	case '"':
		return json_string_end(text, at);
	case '{':
	case '[':
		return container_end(text, at);
	default:
		return scalar_end(text, at);
	}
}

struct slice json_trim(struct slice text)
{
	size_t start = json_space_end(text, 0);
	size_t end = text.len;
	while (end > start && is_space(text.data[end - 1]))
		end--;
	return (struct slice){ text.data + start, end - start };
}

enum json_type json_type_of(struct slice value)
{
	size_t at = json_space_end(value, 0);
	hf_assert(at < value.len);
	switch (value.data[at]) {
	case 'n':
		return JSON_NULL;
	case 'f':
		return JSON_FALSE;
	case 't':
		return JSON_TRUE;
	case '"':
		return JSON_STRING;
	case '[':
		return JSON_ARRAY;
	case '{':
		return JSON_OBJECT;
	default:
		return JSON_NUMBER;
	}
}

const char *json_type_name(enum json_type type)
{
	static const char *const names[] = { "null",   "boolean", "boolean", "number",
					     "string", "array",   "object" };
	hf_assert((size_t)type < countof(names));
	return names[type];
}

/* Moves *at to the start of the next member or element of a container that opens with `open`. */
static bool next_entry(struct slice container, size_t *at, char open)
{
	size_t next = json_space_end(container, *at);
	if (next == container.len)
		return false;
	char byte = container.data[next];
	if (*at == 0 ? byte != open : byte != ',')
		return false;
	next = json_space_end(container, next + 1);
	hf_assert(next < container.len);
	if (container.data[next] == '}' || container.data[next] == ']')
		return false;
	*at = next;
	return true;
}

bool json_object_next(struct slice object, size_t *at, struct slice *name, struct slice *value)
{
	hf_assert(at && name && value);
	size_t start = *at;
	if (!next_entry(object, &start, '{'))
		return false;
	size_t name_end = json_string_end(object, start);
	size_t colon = json_space_end(object, name_end);
	hf_assert(colon < object.len && object.data[colon] == ':');
	size_t value_start = json_space_end(object, colon + 1);
	*at = json_value_end(object, value_start);
	*name = (struct slice){ object.data + start, name_end - start };
	*value = (struct slice){ object.data + value_start, *at - value_start };
	return true;
}

bool json_array_next(struct slice array, size_t *at, struct slice *value)
{
	hf_assert(at && value);
	size_t start = *at;
	if (!next_entry(array, &start, '['))
		return false;
	*at = json_value_end(array, start);
	*value = (struct slice){ array.data + start, *at - start };
	return true;
}

/* Decodes the escape that starts at text[at], a backslash, and moves *at past it (a surrogate pair
 * is one). Returns the number of bytes in `out`. */
static size_t escape_next(struct slice text, size_t *at, char out[static 4])
{
	hf_assert(*at + 1 < text.len);
	hf_assert(text.data[*at] == '\\');
	char kind = text.data[*at + 1];
	if (kind == 'u') {
		uint32_t code = (uint32_t)json_hex4(text, *at + 2);
		*at += 6;
		if (code >= 0xd800 && code <= 0xdbff) {
			code = 0x10000 + ((code & 0x3ff) << 10) +
			       ((uint32_t)json_hex4(text, *at + 2) & 0x3ff);
			*at += 6;
		}
		return utf8_put(code, out);
	}
	static const char kinds[] = "bfnrt", bytes[] = "\b\f\n\r\t";
	const char *known = strchr(kinds, kind);
	out[0] = known ? bytes[known - kinds] : kind;
	*at += 2;
	return 1;
}

/* What stands between the quotes. */
static struct slice inside(struct slice string)
{
	hf_assert(string.len >= 2);
	hf_assert(string.data[0] == '"' && string.data[string.len - 1] == '"');
	return (struct slice){ string.data + 1, string.len - 2 };
}

void json_string_decode(struct slice string, struct buf *out)
{
	struct slice raw = inside(json_trim(string));
	size_t at = 0;
	while (at < raw.len) {
		const char *escape = memchr(raw.data + at, '\\', raw.len - at);
		size_t plain = escape ? (size_t)(escape - raw.data) - at : raw.len - at;
		buf_add(out, raw.data + at, plain);
		at += plain;
		if (!escape)
			break;
		char bytes[4];
		size_t len = escape_next(raw, &at, bytes);
		buf_add(out, bytes, len);
	}
}

struct slice json_string_view(struct slice string, struct buf *scratch)
{
	struct slice raw = inside(string);
	if (raw.len == 0 || !memchr(raw.data, '\\', raw.len))
		return raw;
	size_t start = scratch->len;
	json_string_decode(string, scratch);
	return (struct slice){ scratch->data + start, scratch->len - start };
}

static bool string_equal(struct slice string, struct slice text)
{
	struct slice raw = inside(string);
	size_t at = 0, met = 0;
	while (at < raw.len) {
		char bytes[4] = { raw.data[at] };
		size_t len = 1;
		if (raw.data[at] == '\\')
			len = escape_next(raw, &at, bytes);
		else
			at++;
		if (text.len - met < len || memcmp(text.data + met, bytes, len) != 0)
			return false;
		met += len;
	}
	return met == text.len;
}

bool json_string_is(struct slice string, const char *text)
{
	hf_assert(text);
	string = json_trim(string);
	return json_type_of(string) == JSON_STRING && string_equal(string, slice_of(text));
}

struct slice json_string_copy(struct slice string, struct arena *arena)
{
	hf_cleanup(buf) struct buf text = {};
	json_string_decode(string, &text);
	return arena_slice(arena, buf_slice(&text));
}

char *json_string_dup(struct slice value)
{
	if (json_type_of(value) != JSON_STRING)
		return nullptr;
	struct buf out = {};
	json_string_decode(value, &out);
	return buf_take(&out);
}

static bool member(struct slice object, struct slice wanted, struct slice *value)
{
	size_t at = 0;
	struct slice name, found;
	while (json_object_next(object, &at, &name, &found)) {
		if (string_equal(name, wanted)) {
			*value = found;
			return true;
		}
	}
	return false;
}

bool json_member(struct slice object, const char *name, struct slice *value)
{
	hf_assert(name && value);
	return member(object, slice_of(name), value);
}

bool json_element(struct slice array, size_t index, struct slice *value)
{
	hf_assert(value);
	size_t at = 0;
	struct slice found;
	while (json_array_next(array, &at, &found)) {
		if (index-- == 0) {
			*value = found;
			return true;
		}
	}
	return false;
}

/* A reference token with ~0 and ~1 replaced; false for any other ~. */
static bool token_decode(struct slice token, struct buf *out)
{
	for (size_t i = 0; i < token.len; i++) {
		if (token.data[i] != '~') {
			buf_add_byte(out, token.data[i]);
			continue;
		}
		if (++i == token.len || (token.data[i] != '0' && token.data[i] != '1'))
			return false;
		buf_add_byte(out, token.data[i] == '0' ? '~' : '/');
	}
	return true;
}

static bool token_index(struct slice token, size_t *index)
{
	if (token.len == 0 || token.len > 9 || (token.data[0] == '0' && token.len > 1))
		return false;
	*index = 0;
	for (size_t i = 0; i < token.len; i++) {
		if (token.data[i] < '0' || token.data[i] > '9')
			return false;
		*index = *index * 10 + (size_t)(token.data[i] - '0');
	}
	return true;
}

static bool pointer_step(struct slice *value, struct slice token)
{
	if (json_type_of(*value) == JSON_ARRAY) {
		size_t index;
		return token_index(token, &index) && json_element(*value, index, value);
	}
	hf_cleanup(buf) struct buf name = {};
	return token_decode(token, &name) && member(*value, buf_slice(&name), value);
}

bool json_pointer(struct slice value, struct slice pointer, struct slice *out)
{
	hf_assert(out);
	value = json_trim(value);
	size_t at = 0;
	while (at < pointer.len) {
		if (pointer.data[at] != '/')
			return false;
		size_t start = ++at;
		while (at < pointer.len && pointer.data[at] != '/')
			at++;
		if (!pointer_step(&value, (struct slice){ pointer.data + start, at - start }))
			return false;
	}
	*out = value;
	return true;
}

/* The byte after the backslash for what has a short escape, 'u' for other control characters, 0
 * for what stands as it is. */
static char escape_of(unsigned char byte)
{
	switch (byte) {
	case '"':
	case '\\':
		return (char)byte;
	case '\b':
		return 'b';
	case '\t':
		return 't';
	case '\n':
		return 'n';
	case '\f':
		return 'f';
	case '\r':
		return 'r';
	default:
		return byte < 0x20 ? 'u' : '\0';
	}
}

void json_string_encode(struct slice text, struct buf *out)
{
	static const char hex[] = "0123456789abcdef";
	size_t plain = 0; /* start of what is not yet written */
	buf_add_byte(out, '"');
	for (size_t at = 0; at < text.len;) {
		unsigned char byte = (unsigned char)text.data[at];
		uint32_t code;
		char escape = byte < 0x80 ? escape_of(byte) : '\0';
		size_t len = utf8_next(text.data + at, text.len - at, &code);
		bool foreign = len == 0 || byte == 0;
		if (!escape && !foreign) {
			at += len;
			continue;
		}
		buf_add(out, text.data + plain, at - plain);
		if (foreign)
			buf_add_text(out, "\xef\xbf\xbd");
		else if (escape == 'u')
			buf_add(out,
				(char[]){ '\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15] }, 6);
		else
			buf_add(out, (char[]){ '\\', escape }, 2);
		plain = ++at;
	}
	if (text.len > plain)
		buf_add(out, text.data + plain, text.len - plain);
	buf_add_byte(out, '"');
}
