/* param_headers.c - see param_headers.h. Called by catalog.c, and by tools.c for each call, before
 * anything else of the arguments is looked at (rung 15 of A7). */
#include "api/param_headers.h"

#include <stdlib.h>
#include <string.h>

#include "api/headers.h"
#include "runtime/base.h"
#include "runtime/json.h"

/* One marked property: `path` are the names from the root, each ended by NUL. */
struct param {
	char *header; /* "Mcp-Param-Region" */
	struct buf path;
	size_t depth;
};

struct param_headers {
	struct param *params;
	size_t count;
};

static void add(struct param_headers *headers, struct slice mark, const struct buf *path,
		size_t depth)
{
	size_t count = headers->count + 1;
	headers->params = hf_realloc(headers->params, count * sizeof *headers->params);
	struct param *param = &headers->params[headers->count];
	hf_cleanup(buf) struct buf name = {};
	json_string_decode(mark, &name);
	*param = (struct param){ .header = hf_format("Mcp-Param-%.*s", (int)name.len, name.data),
				 .depth = depth };
	buf_add_slice(&param->path, buf_slice(path));
	headers->count = count;
}

/* Recursion is bounded: the schema was scanned, so it is at most JSON_DEPTH_MAX deep. */
static void walk(struct param_headers *headers, struct slice schema, struct buf *path, size_t depth)
{
	struct slice properties, name, property, mark;
	if (!json_member(schema, "properties", &properties))
		return;

	for (size_t at = 0; json_object_next(properties, &at, &name, &property);) {
		size_t len = path->len;
		json_string_decode(name, path);
		buf_add_byte(path, '\0');
		if (json_member(property, "x-mcp-header", &mark) &&
		    json_type_of(mark) == JSON_STRING)
			add(headers, mark, path, depth + 1);
		walk(headers, property, path, depth + 1);
		path->len = len;
	}
}

struct param_headers *param_headers_new(struct slice input_schema)
{
	struct param_headers *headers = hf_alloc(sizeof *headers);
	hf_cleanup(buf) struct buf path = {};
	walk(headers, input_schema, &path, 0);
	return headers->count ? headers : param_headers_free(headers);
}

struct param_headers *param_headers_free(struct param_headers *headers)
{
	if (!headers)
		return nullptr;
	for (size_t i = 0; i < headers->count; i++) {
		free(headers->params[i].header);
		buf_deinit(&headers->params[i].path);
	}
	free(headers->params);
	free(headers);
	return nullptr;
}

/* -?digits(.0+)?, as a client may spell an integer in a header. */
static bool is_plain_integer(struct slice text)
{
	size_t at = text.len && text.data[0] == '-', digits = 0;
	for (; at < text.len && text.data[at] >= '0' && text.data[at] <= '9'; at++)
		digits++;
	if (digits == 0 || digits > 20 || (digits > 1 && text.data[at - digits] == '0'))
		return false;
	if (at == text.len)
		return true;
	if (text.data[at++] != '.' || at == text.len)
		return false;
	while (at < text.len && text.data[at] == '0')
		at++;
	return at == text.len;
}

static bool says_the_same(struct slice argument, struct slice header)
{
	switch (json_type_of(argument)) {
	case JSON_STRING: {
		hf_cleanup(buf) struct buf text = {};
		json_string_decode(argument, &text);
		return slice_equal(buf_slice(&text), header);
	}
	case JSON_NUMBER:
		return is_plain_integer(header) && json_number_compare(argument, header) == 0;
	case JSON_TRUE:
		return slice_is(header, "true");
	case JSON_FALSE:
		return slice_is(header, "false");
	case JSON_NULL:
	case JSON_ARRAY:
	case JSON_OBJECT:
		break;
	}
	return true; /* no header form: the schema check says what is wrong with it */
}

/* Empty where it, or something on the way to it, is absent or null. */
static struct slice argument_of(const struct param *param, struct slice arguments)
{
	struct slice value = arguments;
	const char *name = param->path.data;
	for (size_t i = 0; i < param->depth; i++, name += strlen(name) + 1)
		if (!json_member(value, name, &value))
			return (struct slice){};
	return value.len && json_type_of(value) != JSON_NULL ? value : (struct slice){};
}

static const char *fault_of(const struct param *param, const struct call *call,
			    struct slice arguments, struct arena *arena)
{
	struct slice argument = argument_of(param, arguments), value, decoded;
	size_t count = 0;
	if (!call_header(call, param->header, &value, &count))
		return argument.len ? "is missing" : nullptr;
	if (count != 1)
		return "stands twice";
	if (!argument.len)
		return "has no argument in the body";
	if (!header_decode(value, arena, &decoded))
		return "cannot be decoded";
	return says_the_same(argument, decoded) ? nullptr : "differs from the body";
}

const char *param_headers_fault(const struct param_headers *headers, const struct call *call,
				struct slice arguments, struct arena *arena)
{
	for (size_t i = 0; headers && i < headers->count; i++) {
		const struct param *param = &headers->params[i];
		const char *fault = fault_of(param, call, arguments, arena);
		if (fault)
			return arena_format(arena, "Header mismatch: %s %s", param->header, fault);
	}
	return nullptr;
}
