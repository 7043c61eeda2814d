/* uri_template.c - see uri_template.h. Templates are checked by `tools check`; URIs come from
 * clients, so matching takes time in proportion to their length. */
#include "runtime/uri_template.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/id.h"
#include "runtime/json.h"
#include "runtime/utf8.h"

static bool is_letter(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

/* "scheme:", literally. */
static bool has_scheme(struct slice uri)
{
	if (uri.len == 0 || !is_letter(uri.data[0]))
		return false;
	size_t at = 1;
	while (at < uri.len && (is_letter(uri.data[at]) || is_digit(uri.data[at]) ||
				uri.data[at] == '+' || uri.data[at] == '-' || uri.data[at] == '.'))
		at++;
	return at < uri.len && uri.data[at] == ':';
}

static enum hf_code characters_check(struct slice uri, bool braces, struct hf_err *err)
{
	if (uri.len > URI_LEN_MAX)
		return hf_fail(err, HF_INVALID, "has over %zu characters", URI_LEN_MAX);
	if (!has_scheme(uri))
		return hf_fail(err, HF_INVALID, "begins with no scheme and colon");
	for (size_t i = 0; i < uri.len; i++) {
		char byte = uri.data[i];
		bool brace = byte == '{' || byte == '}';
		if (byte <= ' ' || byte > '~' || strchr("\"<>\\^`|", byte) || (brace && !braces))
			return hf_fail(err, HF_INVALID, "byte %zu may not stand in a URI as it is",
				       i);
	}
	return HF_OK;
}

enum hf_code uri_check(struct slice uri, struct hf_err *err)
{
	return characters_check(uri, false, err);
}

/* --- Templates -------------------------------------------------------------------------------- */

bool uri_template_next(struct slice template, size_t *at, struct slice *name)
{
	const char *open =
	    *at < template.len ? memchr(template.data + *at, '{', template.len - *at) : nullptr;
	if (!open)
		return false;
	const char *end = template.data + template.len;
	const char *close = memchr(open, '}', (size_t)(end - open));
	if (!close)
		return false;
	*name = (struct slice){ open + 1, (size_t)(close - open) - 1 };
	*at = (size_t)(close - template.data) + 1;
	return true;
}

static enum hf_code variable_check(struct slice template, size_t after, struct slice name,
				   struct hf_err *err)
{
	int shown = (int)(name.len < URI_VARIABLE_LEN_MAX ? name.len : URI_VARIABLE_LEN_MAX);
	bool fits = name.len > 0 && name.len <= URI_VARIABLE_LEN_MAX;
	for (size_t i = 0; fits && i < name.len; i++)
		fits = is_letter(name.data[i]) || is_digit(name.data[i]) || name.data[i] == '_';
	if (!fits)
		return hf_fail(err, HF_INVALID,
			       "{%.*s}: a variable is a name of A-Z a-z 0-9 _ (RFC 6570, level 1)",
			       shown, name.data);
	if (after < template.len && template.data[after] == '{')
		return hf_fail(err, HF_INVALID,
			       "{%.*s}: nothing stands between it and the next variable", shown,
			       name.data);
	struct slice earlier;
	size_t before = (size_t)(name.data - template.data) - 1;
	for (size_t at = 0; uri_template_next(template, &at, &earlier) && at <= before;)
		if (slice_equal(earlier, name))
			return hf_fail(err, HF_INVALID, "{%.*s}: stands twice", shown, name.data);
	return HF_OK;
}

enum hf_code uri_template_check(struct slice template, struct hf_err *err)
{
	hf_try(characters_check(template, true, err));
	size_t count = 0, at = 0, literal = 0;
	for (struct slice name; uri_template_next(template, &at, &name); count++) {
		if (count == URI_VARIABLES_MAX)
			return hf_fail(err, HF_INVALID, "has over %zu variables",
				       URI_VARIABLES_MAX);
		size_t len = (size_t)(name.data - template.data) - 1 - literal;
		if (memchr(template.data + literal, '}', len))
			return hf_fail(err, HF_INVALID, "a brace closes nothing");
		hf_try(variable_check(template, at, name, err));
		literal = at;
	}
	if (count == 0)
		return hf_fail(err, HF_INVALID, "has no {variable}; a single resource has a uri");
	for (; literal < template.len; literal++)
		if (template.data[literal] == '{' || template.data[literal] == '}')
			return hf_fail(err, HF_INVALID, "a brace has no other");
	return HF_OK;
}

/* --- Matching --------------------------------------------------------------------------------- */

/* Percent-decoded, where it is a value of a variable. */
static bool decode(struct slice raw, struct buf *out)
{
	if (raw.len == 0)
		return false;
	for (size_t i = 0; i < raw.len; i++) {
		unsigned char byte = (unsigned char)raw.data[i];
		if (byte == '/' || byte == '?' || byte == '#')
			return false;
		if (byte == '%') {
			if (i + 2 >= raw.len ||
			    !hex_parse((struct slice){ raw.data + i + 1, 2 }, &byte, 1))
				return false;
			i += 2;
		}
		buf_add_byte(out, (char)byte);
	}
	return utf8_is_text(buf_slice(out));
}

/* How much of `uri` the variable takes whose literal text behind it is `literal`. */
static bool find_end(struct slice uri, struct slice literal, bool last, size_t *len)
{
	if (last) {
		if (uri.len < literal.len)
			return false;
		*len = uri.len - literal.len;
		return slice_starts(slice_behind(uri, *len), literal);
	}
	const char *found = memmem(uri.data, uri.len, literal.data, literal.len);
	if (found)
		*len = (size_t)(found - uri.data);
	return found;
}

static bool match(struct slice template, struct slice uri, struct buf *values)
{
	struct slice name, next_name = {};
	size_t at = 0;
	if (!uri_template_next(template, &at, &name))
		return slice_equal(template, uri);
	struct slice head = { template.data, (size_t)(name.data - template.data) - 1 };
	if (!slice_starts(uri, head))
		return false;
	uri = slice_behind(uri, head.len);

	buf_add_byte(values, '{');
	for (bool more = true; more; name = next_name) {
		size_t after = at, len = 0;
		more = uri_template_next(template, &at, &next_name);
		size_t end = more ? (size_t)(next_name.data - template.data) - 1 : template.len;
		struct slice literal = { template.data + after, end - after };
		hf_cleanup(buf) struct buf value = {};
		if (!find_end(uri, literal, !more, &len) ||
		    !decode((struct slice){ uri.data, len }, &value))
			return false;
		json_string_encode(name, values);
		buf_add_byte(values, ':');
		json_string_encode(buf_slice(&value), values);
		buf_add_byte(values, more ? ',' : '}');
		uri = slice_behind(uri, len + literal.len);
	}
	return true;
}

bool uri_template_match(struct slice template, struct slice uri, struct buf *values)
{
	size_t start = values->len;
	bool matched = uri_check(uri, nullptr) == HF_OK && match(template, uri, values);
	if (!matched && values->len > start) {
		values->len = start;
		values->data[start] = '\0';
	}
	return matched;
}
