/* template.c - fills templates with what arguments and phases hold, and finds their pointers
 * beforehand. Two forms: an object {"$from": "/pointer"} becomes the value itself, {/pointer}
 * within a string becomes text. Values go in as their own bytes, so numbers stay exact. Called by
 * the worker for requests and results, by tool_new through template_walk. */
#include "runtime/template.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/json_inner.h"

constexpr int POINTER_BYTES_SHOWN = 100;
constexpr size_t NAMES_BYTES_SHOWN = 200;

#define SHOWN(pointer)                                                                    \
	((pointer).len > POINTER_BYTES_SHOWN ? POINTER_BYTES_SHOWN : (int)(pointer).len), \
	    (pointer).data

static enum hf_code missing(struct hf_err *err, struct slice pointer, const char *reason)
{
	return hf_fail(err, HF_MISSING, "%.*s: %s", SHOWN(pointer), reason);
}

/* Splits "/first/rest" into "first" and "/rest". */
static bool split(struct slice pointer, struct slice *first, struct slice *rest)
{
	if (pointer.len == 0 || pointer.data[0] != '/')
		return false;
	const char *start = pointer.data + 1;
	const char *slash = memchr(start, '/', pointer.len - 1);
	size_t len = slash ? (size_t)(slash - start) : pointer.len - 1;
	*first = (struct slice){ start, len };
	*rest = (struct slice){ start + len, pointer.len - 1 - len };
	return true;
}

static bool root_named(const struct template_scope *scope, struct slice name, struct slice *json)
{
	const struct {
		const char *name;
		struct slice json;
	} roots[] = {
		{ "args", scope->args }, { "key", scope->key },     { "task", scope->task },
		{ "conf", scope->conf }, { "input", scope->input }, { "minted", scope->minted },
	};
	for (size_t i = 0; i < countof(roots); i++) {
		if (slice_is(name, roots[i].name)) {
			*json = roots[i].json;
			return json->len > 0;
		}
	}
	return false;
}

/* Up to `len_max` bytes of an object's member names, as they are spelt. */
static void add_names(struct slice object, size_t len_max, struct buf *out)
{
	struct slice name, value;
	size_t at = 0, start = out->len;
	while (json_object_next(object, &at, &name, &value)) {
		const char *between = out->len > start ? ", " : "";
		if (out->len - start + name.len > len_max) {
			buf_add_format(out, "%s…", between);
			return;
		}
		buf_add_format(out, "%s%.*s", between, (int)name.len - 2, name.data + 1);
	}
}

/* What is there instead, where the pointer leaves the state: its author is the tool's. */
static enum hf_code missing_in_state(struct hf_err *err, struct slice pointer, struct slice state,
				     struct slice rest)
{
	struct slice token, behind, inner;
	while (split(rest, &token, &behind) &&
	       json_pointer(state, (struct slice){ rest.data, token.len + 1 }, &inner)) {
		state = inner;
		rest = behind;
	}
	struct slice place = { pointer.data, pointer.len - rest.len };
	enum json_type type = json_type_of(state);
	hf_cleanup(buf) struct buf names = {};
	if (type == JSON_OBJECT)
		add_names(state, NAMES_BYTES_SHOWN, &names);
	return hf_fail(err, HF_MISSING, "%.*s: there is no such value; %.*s %s %s", SHOWN(pointer),
		       SHOWN(place), names.len ? "has" : "is",
		       names.len             ? names.data
		       : type == JSON_OBJECT ? "{}"
					     : json_type_name(type));
}

static enum hf_code resolve(const struct template_scope *scope, struct slice pointer,
			    struct slice *value, struct hf_err *err)
{
	struct slice root, rest, json, phase;
	if (!split(pointer, &root, &rest))
		return missing(err, pointer, "a pointer starts with /");
	if (slice_is(root, "state")) {
		if (!split(rest, &phase, &rest))
			return missing(err, pointer, "no phase is named");
		if (!scope->state || !scope->state(scope->state_ctx, phase, &json))
			return missing(err, pointer, "that phase has no recovery point yet");
	} else if (!root_named(scope, root, &json)) {
		return missing(err, pointer, "there is no such root");
	}
	if (json_pointer(json, rest, value))
		return HF_OK;
	if (slice_is(root, "state"))
		return missing_in_state(err, pointer, json, rest);
	return missing(err, pointer, "there is no such value");
}

/* A piece of a text template: literal text, then a pointer (no data: the text ended). */
struct piece {
	struct slice literal;
	struct slice pointer;
};

/* Takes the next piece; false at the end. "{{" yields a literal that ends in one brace. */
static enum hf_code next_piece(struct slice text, size_t *at, struct piece *piece,
			       struct hf_err *err)
{
	size_t start = *at;
	const char *brace = memchr(text.data + start, '{', text.len - start);
	size_t open = brace ? (size_t)(brace - text.data) : text.len;
	piece->literal = (struct slice){ text.data + start, open - start };
	piece->pointer = (struct slice){};
	*at = text.len;
	if (!brace)
		return HF_OK;
	if (open + 1 < text.len && text.data[open + 1] == '{') {
		piece->literal.len++;
		*at = open + 2;
		return HF_OK;
	}
	const char *close = memchr(brace, '}', text.len - open);
	if (!close || brace[1] != '/')
		return hf_fail(err, HF_INVALID,
			       "byte %zu of the text: a brace opens no {/pointer}; write {{ for a "
			       "plain one",
			       open);
	piece->pointer = (struct slice){ brace + 1, (size_t)(close - brace) - 1 };
	*at = (size_t)(close - text.data) + 1;
	return HF_OK;
}

static void add_percent(struct slice text, struct buf *out)
{
	static const char hex[] = "0123456789ABCDEF", plain[] = "-._~";
	for (size_t i = 0; i < text.len; i++) {
		unsigned char byte = (unsigned char)text.data[i];
		unsigned char lower = byte | 0x20;
		bool unreserved = (byte >= '0' && byte <= '9') || (lower >= 'a' && lower <= 'z') ||
				  (byte && strchr(plain, byte));
		if (unreserved) {
			buf_add_byte(out, (char)byte);
			continue;
		}
		char escape[] = { '%', hex[byte >> 4], hex[byte & 15] };
		buf_add(out, escape, sizeof escape);
	}
}

static bool from_conf(struct slice pointer)
{
	return pointer.len >= 6 && memcmp(pointer.data, "/conf/", 6) == 0;
}

static enum hf_code add_reference(struct slice pointer, bool url,
				  const struct template_scope *scope, struct buf *out,
				  struct hf_err *err)
{
	struct slice value;
	hf_try(resolve(scope, pointer, &value, err));
	enum json_type type = json_type_of(value);
	if (type == JSON_NULL || type == JSON_ARRAY || type == JSON_OBJECT)
		return hf_fail(err, HF_INVALID, "%.*s: %s cannot stand in a text", SHOWN(pointer),
			       json_type_name(type));
	hf_cleanup(buf) struct buf scratch = {};
	struct slice text = type == JSON_STRING ? json_string_view(value, &scratch) : value;
	if (url && !from_conf(pointer))
		add_percent(text, out);
	else
		buf_add_slice(out, text);
	return HF_OK;
}

/* A value such as ".." would climb out of the folder that the tool's author wrote, and no
 * percent-encoding hides a dot from whoever normalises the path. */
static bool has_dot_segment(struct slice url)
{
	size_t start = 0;
	for (size_t i = 0; i <= url.len; i++) {
		char byte = i < url.len ? url.data[i] : '\0';
		bool ends = i == url.len || byte == '?' || byte == '#';
		if (!ends && byte != '/')
			continue;
		struct slice segment = { url.data + start, i - start };
		if (slice_is(segment, ".") || slice_is(segment, ".."))
			return true;
		if (ends)
			return false;
		start = i + 1;
	}
	return false;
}

enum hf_code template_text(struct slice text, bool url, const struct template_scope *scope,
			   struct buf *out, struct hf_err *err)
{
	hf_assert(scope && out);
	size_t start = out->len, at = 0;
	while (at < text.len && !out->overflow) { /* what is too large takes no more time */
		struct piece piece;
		hf_try(next_piece(text, &at, &piece, err));
		buf_add_slice(out, piece.literal);
		if (piece.pointer.data)
			hf_try(add_reference(piece.pointer, url, scope, out, err));
	}
	if (url && out->len > start &&
	    has_dot_segment((struct slice){ out->data + start, out->len - start }))
		return hf_fail(err, HF_INVALID, "the URL has a segment of dots");
	return HF_OK;
}

/* The pointer of {"$from": …}, raw, where `object` is one; empty where it is a plain object. */
static enum hf_code from_of(struct slice object, struct slice *raw, struct hf_err *err)
{
	struct slice name, value, from;
	size_t at = 0;
	*raw = (struct slice){};
	if (!json_member(object, "$from", &from))
		return HF_OK;
	if (json_type_of(from) != JSON_STRING)
		return hf_fail(err, HF_INVALID, "\"$from\" must be a string");
	while (json_object_next(object, &at, &name, &value)) {
		if (!json_string_is(name, "$from"))
			return hf_fail(err, HF_INVALID, "\"$from\" must stand alone in its object");
	}
	*raw = from;
	return HF_OK;
}

static unsigned depth_of(struct slice value)
{
	unsigned depth = 0, most = 0;
	for (size_t at = 0; at < value.len;) {
		char byte = value.data[at];
		if (byte == '"') {
			at = json_string_end(value, at);
			continue;
		}
		if (byte == '{' || byte == '[')
			depth++;
		else if (byte == '}' || byte == ']')
			depth--;
		most = depth > most ? depth : most;
		at++;
	}
	return most;
}

struct filler {
	const struct template_scope *scope;
	struct buf *out;
	struct hf_err *err;
};

static enum hf_code fill(struct filler *filler, struct slice json, unsigned depth);

static enum hf_code fill_from(struct filler *filler, struct slice raw, unsigned depth)
{
	hf_cleanup(buf) struct buf scratch = {};
	struct slice pointer = json_string_view(raw, &scratch), value = {};
	hf_try(resolve(filler->scope, pointer, &value, filler->err));
	if (depth + depth_of(value) > JSON_DEPTH_MAX)
		return hf_fail(filler->err, HF_LIMIT, "%.*s: nested deeper than %u in here",
			       SHOWN(pointer), JSON_DEPTH_MAX);
	buf_add_slice(filler->out, value);
	return HF_OK;
}

static enum hf_code fill_string(struct filler *filler, struct slice raw)
{
	hf_cleanup(buf) struct buf scratch = {}, filled = {};
	struct slice text = json_string_view(raw, &scratch);
	if (text.len == 0 || !memchr(text.data, '{', text.len)) {
		buf_add_slice(filler->out, raw);
		return HF_OK;
	}
	filled.max = filler->out->max;
	hf_try(template_text(text, false, filler->scope, &filled, filler->err));
	json_string_encode(buf_slice(&filled), filler->out);
	filler->out->overflow |= filled.overflow;
	return HF_OK;
}

static enum hf_code fill_object(struct filler *filler, struct slice object, unsigned depth)
{
	struct slice from, name, value;
	size_t at = 0;
	hf_try(from_of(object, &from, filler->err));
	if (from.data)
		return fill_from(filler, from, depth - 1);
	buf_add_byte(filler->out, '{');
	for (bool first = true; json_object_next(object, &at, &name, &value); first = false) {
		if (!first)
			buf_add_byte(filler->out, ',');
		buf_add_slice(filler->out, name);
		buf_add_byte(filler->out, ':');
		hf_try(fill(filler, value, depth));
	}
	buf_add_byte(filler->out, '}');
	return HF_OK;
}

static enum hf_code fill_array(struct filler *filler, struct slice array, unsigned depth)
{
	struct slice value;
	size_t at = 0;
	buf_add_byte(filler->out, '[');
	for (bool first = true; json_array_next(array, &at, &value); first = false) {
		if (!first)
			buf_add_byte(filler->out, ',');
		hf_try(fill(filler, value, depth));
	}
	buf_add_byte(filler->out, ']');
	return HF_OK;
}

/* `depth` counts the arrays and objects around the value. */
static enum hf_code fill(struct filler *filler, struct slice json, unsigned depth)
{
	hf_assert(depth <= JSON_DEPTH_MAX);
	if (filler->out->overflow)
		return HF_OK;
	switch (json_type_of(json)) {
	case JSON_OBJECT:
		return fill_object(filler, json, depth + 1);
	case JSON_ARRAY:
		return fill_array(filler, json, depth + 1);
	case JSON_STRING:
		return fill_string(filler, json);
	default:
		buf_add_slice(filler->out, json);
		return HF_OK;
	}
}

enum hf_code template_json(struct slice json, const struct template_scope *scope, struct buf *out,
			   struct hf_err *err)
{
	hf_assert(scope && out);
	struct filler filler = { .scope = scope, .out = out, .err = err };
	return fill(&filler, json_trim(json), 0);
}

struct walker {
	enum hf_code (*found)(void *ctx, struct slice pointer, struct hf_err *err);
	void *ctx;
	struct hf_err *err;
};

static enum hf_code walk_string(const struct walker *walker, struct slice raw)
{
	hf_cleanup(buf) struct buf scratch = {};
	struct slice text = json_string_view(raw, &scratch);
	size_t at = 0;
	while (at < text.len) {
		struct piece piece;
		hf_try(next_piece(text, &at, &piece, walker->err));
		if (piece.pointer.data)
			hf_try(walker->found(walker->ctx, piece.pointer, walker->err));
	}
	return HF_OK;
}

static enum hf_code walk_from(const struct walker *walker, struct slice raw)
{
	hf_cleanup(buf) struct buf scratch = {};
	struct slice pointer = json_string_view(raw, &scratch);
	if (pointer.len == 0 || pointer.data[0] != '/')
		return hf_fail(walker->err, HF_INVALID,
			       "\"$from\" must hold a pointer that starts "
			       "with /");
	return walker->found(walker->ctx, pointer, walker->err);
}

static enum hf_code walk(const struct walker *walker, struct slice json)
{
	struct slice from, name, value;
	size_t at = 0;
	switch (json_type_of(json)) {
	case JSON_STRING:
		return walk_string(walker, json);
	case JSON_ARRAY:
		while (json_array_next(json, &at, &value))
			hf_try(walk(walker, value));
		return HF_OK;
	case JSON_OBJECT:
		hf_try(from_of(json, &from, walker->err));
		if (from.data)
			return walk_from(walker, from);
		while (json_object_next(json, &at, &name, &value))
			hf_try(walk(walker, value));
		return HF_OK;
	default:
		return HF_OK;
	}
}

enum hf_code template_walk(struct slice json,
			   enum hf_code (*found)(void *ctx, struct slice pointer,
						 struct hf_err *err),
			   void *ctx, struct hf_err *err)
{
	hf_assert(found);
	struct walker walker = { .found = found, .ctx = ctx, .err = err };
	return walk(&walker, json_trim(json));
}
