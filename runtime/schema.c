/* schema.c - compiles a JSON Schema into nodes, refusing every keyword that schema_check.c would
 * not honour: a rule that is silently ignored is worse than none. Size, depth and number of nodes
 * are bounded, since the text is a tool author's. Called by tool_new. */
#include "runtime/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/json_inner.h"
#include "runtime/schema_inner.h"
#include "runtime/utf8.h"

constexpr unsigned SCHEMA_DEPTH_MAX = 32;
constexpr size_t SCHEMA_NODES_MAX = 5000;
constexpr size_t SCHEMA_NAMES_MAX = 1000;    /* properties and required of one node */
constexpr size_t SCHEMA_VALUES_MAX = 10'000; /* of one enum */
constexpr size_t SCHEMA_BYTES_MAX = 1 << 20;
constexpr size_t POINTER_TEXT_MAX = 100;

constexpr size_t SCHEMA_LIST_MAX = 100; /* of one allOf, anyOf or oneOf; and of one $defs */

struct parser {
	struct hf_err *err;
	struct schema_node **nodes; /* all of them, to find where a $ref leads */
	size_t count;
	unsigned aside; /* within how many of the lists, conditions and definitions */
};

/* Where a keyword stands: its node, the node's depth, its path. */
struct keyword {
	struct schema_node *node;
	unsigned depth;
	struct schema_path path;
};

static void add_pointer(const struct schema_path *path, struct buf *out)
{
	if (!path->up)
		return;
	add_pointer(path->up, out);
	hf_cleanup(buf) struct buf scratch = {};
	struct slice name = json_string_view(path->name, &scratch);
	buf_add_byte(out, '/');
	for (size_t i = 0; i < name.len; i++) {
		if (name.data[i] == '~' || name.data[i] == '/')
			buf_add_text(out, name.data[i] == '~' ? "~0" : "~1");
		else
			buf_add_byte(out, name.data[i]);
	}
}

enum hf_code schema_fail(struct hf_err *err, enum hf_code code, const struct schema_path *path,
			 const char *format, ...)
{
	char reason[sizeof err->text];
	va_list args;
	va_start(args, format);
	vsnprintf(reason, sizeof reason, format, args);
	va_end(args);
	hf_cleanup(buf) struct buf text = {};
	add_pointer(path, &text);
	if (text.len > POINTER_TEXT_MAX) {
		text.len = utf8_cut(text.data, POINTER_TEXT_MAX);
		buf_add_text(&text, "…");
	}
	if (text.len > 0)
		buf_add_text(&text, ": ");
	buf_add_text(&text, reason);
	size_t len = text.len;
	if (len >= sizeof err->text)
		len = utf8_cut(text.data, sizeof err->text - 1);
	return hf_fail(err, code, "%.*s", (int)len, text.data);
}

#define refuse(parser, keyword, ...) \
	schema_fail((parser)->err, HF_INVALID, &(keyword)->path, __VA_ARGS__)

static enum hf_code parse_node(struct parser *parser, struct slice text,
			       const struct schema_path *path, unsigned depth,
			       struct schema_node **out);

static enum hf_code want(struct parser *parser, const struct keyword *keyword, struct slice value,
			 enum json_type type)
{
	static const char *const words[] = { "null",     "false",    "true",     "a number",
					     "a string", "an array", "an object" };
	if (json_type_of(value) == type)
		return HF_OK;
	return refuse(parser, keyword, "must be %s", words[type]);
}

static bool type_named(struct slice name, unsigned *bit)
{
	static const char *const names[] = { "null",   "boolean", "integer", "number",
					     "string", "array",   "object" };
	static_assert(countof(names) == SCHEMA_TYPES);
	for (unsigned i = 0; i < countof(names); i++) {
		if (json_string_is(name, names[i])) {
			*bit = 1u << i;
			return true;
		}
	}
	return false;
}

static enum hf_code parse_type(struct parser *parser, struct keyword *keyword, struct slice value)
{
	struct slice name = value;
	size_t at = 0;
	bool many = json_type_of(value) == JSON_ARRAY;
	while (!many || json_array_next(value, &at, &name)) {
		unsigned bit;
		if (!type_named(name, &bit))
			return refuse(parser, keyword, "not a type of JSON Schema");
		if (keyword->node->types & bit)
			return refuse(parser, keyword, "names a type twice");
		keyword->node->types |= bit;
		if (!many)
			break;
	}
	if (!keyword->node->types)
		return refuse(parser, keyword, "names no type");
	return HF_OK;
}

/* The property of that name, made where it is new; nullptr where there are too many. */
static struct schema_property *property_get(struct schema_node *node, struct slice raw)
{
	for (size_t i = 0; i < node->properties_count; i++) {
		if (json_string_is(raw, node->properties[i].name))
			return &node->properties[i];
	}
	if (node->properties_count == SCHEMA_NAMES_MAX)
		return nullptr;
	size_t count = ++node->properties_count;
	node->properties = hf_realloc(node->properties, count * sizeof *node->properties);
	node->properties[count - 1] =
	    (struct schema_property){ .name = json_string_dup(raw), .raw = raw };
	return &node->properties[count - 1];
}

static enum hf_code parse_required(struct parser *parser, struct keyword *keyword,
				   struct slice value)
{
	hf_try(want(parser, keyword, value, JSON_ARRAY));
	size_t at = 0;
	struct slice name;
	while (json_array_next(value, &at, &name)) {
		hf_try(want(parser, keyword, name, JSON_STRING));
		struct schema_property *property = property_get(keyword->node, name);
		if (!property)
			return refuse(parser, keyword, "more than %zu names", SCHEMA_NAMES_MAX);
		if (property->required)
			return refuse(parser, keyword, "names a property twice");
		property->required = true;
	}
	return HF_OK;
}

static enum hf_code parse_properties(struct parser *parser, struct keyword *keyword,
				     struct slice value)
{
	hf_try(want(parser, keyword, value, JSON_OBJECT));
	size_t at = 0;
	struct slice name, text;
	while (json_object_next(value, &at, &name, &text)) {
		struct schema_path path = { .up = &keyword->path, .name = name };
		struct schema_property *property = property_get(keyword->node, name);
		if (!property)
			return refuse(parser, keyword, "more than %zu names", SCHEMA_NAMES_MAX);
		hf_try(parse_node(parser, text, &path, keyword->depth + 1, &property->node));
	}
	return HF_OK;
}

static enum hf_code parse_additional(struct parser *parser, struct keyword *keyword,
				     struct slice value)
{
	return parse_node(parser, value, &keyword->path, keyword->depth + 1,
			  &keyword->node->additional);
}

static int on_compare_forms(const void *a, const void *b)
{
	const struct buf *left = a, *right = b;
	size_t shared = left->len < right->len ? left->len : right->len;
	int order = memcmp(left->data, right->data, shared);
	return order ? order : (left->len > right->len) - (left->len < right->len);
}

static void values_add(struct schema_values *values, struct slice value)
{
	values->forms = hf_realloc(values->forms, (values->count + 1) * sizeof *values->forms);
	struct buf *form = &values->forms[values->count++];
	*form = (struct buf){};
	json_canonical(value, nullptr, form);
}

static enum hf_code parse_enum(struct parser *parser, struct keyword *keyword, struct slice value)
{
	hf_try(want(parser, keyword, value, JSON_ARRAY));
	struct schema_values *values = &keyword->node->one_of;
	size_t at = 0;
	struct slice element;
	while (json_array_next(value, &at, &element)) {
		if (values->count == SCHEMA_VALUES_MAX)
			return refuse(parser, keyword, "more than %zu values", SCHEMA_VALUES_MAX);
		values_add(values, element);
	}
	if (values->count == 0)
		return refuse(parser, keyword, "has no value, so that nothing could be right");
	values->spelt = value;
	qsort(values->forms, values->count, sizeof *values->forms, on_compare_forms);
	return HF_OK;
}

static enum hf_code parse_const(struct parser *, struct keyword *keyword, struct slice value)
{
	values_add(&keyword->node->constant, value);
	keyword->node->constant.spelt = value;
	return HF_OK;
}

static enum hf_code parse_pattern(struct parser *parser, struct keyword *keyword,
				  struct slice value)
{
	hf_try(want(parser, keyword, value, JSON_STRING));
	hf_cleanup(buf) struct buf scratch = {};
	char why[160];
	struct slice text = json_string_view(value, &scratch);
	keyword->node->pattern = schema_pattern_new(text, why, sizeof why);
	if (!keyword->node->pattern)
		return refuse(parser, keyword, "%s", why);
	return HF_OK;
}

static enum hf_code parse_bound(struct parser *parser, struct keyword *keyword, struct slice value)
{
	static const char *const names[] = { "minimum", "maximum", "exclusiveMinimum",
					     "exclusiveMaximum" };
	static_assert(countof(names) == SCHEMA_BOUNDS);
	hf_try(want(parser, keyword, value, JSON_NUMBER));
	for (size_t i = 0; i < countof(names); i++) {
		if (json_string_is(keyword->path.name, names[i]))
			keyword->node->bounds[i] = value;
	}
	return HF_OK;
}

static enum hf_code parse_length(struct parser *parser, struct keyword *keyword, struct slice value)
{
	int64_t length;
	if (!json_integer(value, &length) || length < 0)
		return refuse(parser, keyword, "must be an integer of 0 or more");
	if (json_string_is(keyword->path.name, "minLength"))
		keyword->node->length_min = length;
	else
		keyword->node->length_max = length;
	return HF_OK;
}

static enum hf_code parse_text(struct parser *parser, struct keyword *keyword, struct slice value)
{
	return want(parser, keyword, value, JSON_STRING);
}

/* --- Schemas beside the schema ---------------------------------------------------------------- */

static enum hf_code parse_aside(struct parser *parser, const struct keyword *keyword,
				struct slice text, const struct schema_path *path,
				struct schema_node **out)
{
	parser->aside++;
	enum hf_code code = parse_node(parser, text, path, keyword->depth + 1, out);
	parser->aside--;
	return code;
}

static struct schema_node **nodes_add(struct schema_nodes *list)
{
	list->nodes = hf_realloc(list->nodes, (list->count + 1) * sizeof *list->nodes);
	list->nodes[list->count] = nullptr;
	return &list->nodes[list->count++];
}

static enum hf_code parse_list(struct parser *parser, struct keyword *keyword, struct slice value)
{
	static const char *const names[] = { "allOf", "anyOf", "oneOf" };
	hf_try(want(parser, keyword, value, JSON_ARRAY));
	size_t which = 0, at = 0;
	while (which < countof(names) && !json_string_is(keyword->path.name, names[which]))
		which++;
	hf_assert(which < countof(names));
	struct schema_nodes *list = &keyword->node->lists[which];
	for (struct slice text; json_array_next(value, &at, &text);) {
		if (list->count == SCHEMA_LIST_MAX)
			return refuse(parser, keyword, "more than %zu schemas", SCHEMA_LIST_MAX);
		hf_try(parse_aside(parser, keyword, text, &keyword->path, nodes_add(list)));
	}
	return list->count ? HF_OK : refuse(parser, keyword, "has no schema");
}

static enum hf_code parse_not(struct parser *parser, struct keyword *keyword, struct slice value)
{
	return parse_aside(parser, keyword, value, &keyword->path,
			   nodes_add(&keyword->node->lists[LIST_NOT]));
}

static enum hf_code parse_condition(struct parser *parser, struct keyword *keyword,
				    struct slice value)
{
	struct schema_node **out =
	    json_string_is(keyword->path.name, "if")     ? &keyword->node->condition
	    : json_string_is(keyword->path.name, "then") ? &keyword->node->then
							 : &keyword->node->otherwise;
	return parse_aside(parser, keyword, value, &keyword->path, out);
}

static enum hf_code parse_definitions(struct parser *parser, struct keyword *keyword,
				      struct slice value)
{
	hf_try(want(parser, keyword, value, JSON_OBJECT));
	size_t at = 0;
	for (struct slice name, text; json_object_next(value, &at, &name, &text);) {
		struct schema_path path = { .up = &keyword->path, .name = name };
		if (keyword->node->definitions.count == SCHEMA_LIST_MAX)
			return refuse(parser, keyword, "more than %zu schemas", SCHEMA_LIST_MAX);
		hf_try(parse_aside(parser, keyword, text, &path,
				   nodes_add(&keyword->node->definitions)));
	}
	return HF_OK;
}

static enum hf_code parse_anchor(struct parser *parser, struct keyword *keyword, struct slice value)
{
	hf_try(want(parser, keyword, value, JSON_STRING));
	keyword->node->anchor = value;
	return HF_OK;
}

static enum hf_code parse_ref(struct parser *parser, struct keyword *keyword, struct slice value)
{
	hf_try(want(parser, keyword, value, JSON_STRING));
	if (value.len < 3 || value.data[1] != '#')
		return refuse(parser, keyword,
			      "only within the schema, as in \"#/$defs/NAME\" or \"#ANCHOR\"");
	keyword->node->ref = value;
	return HF_OK;
}

/* A mark for clients counts only where a chain of `properties` leads to it (A4.2). */
static enum hf_code parse_mark(struct parser *parser, struct keyword *keyword, struct slice value)
{
	if (parser->aside)
		return refuse(parser, keyword, "stands only where properties alone lead to it");
	return want(parser, keyword, value, JSON_STRING);
}

static struct schema_node *find_referred(const struct parser *parser, struct slice schema,
					 struct slice reference)
{
	struct slice at;
	bool pointer = reference.len == 0 || reference.data[0] == '/';
	if (pointer && !json_pointer(schema, reference, &at))
		return nullptr;
	for (size_t i = 0; i < parser->count; i++) {
		struct schema_node *node = parser->nodes[i];
		hf_cleanup(buf) struct buf scratch = {};
		if (pointer ? node->text.data == at.data
			    : node->anchor.data &&
				  slice_equal(json_string_view(node->anchor, &scratch), reference))
			return node;
	}
	return nullptr;
}

static enum hf_code resolve(struct parser *parser, struct slice schema)
{
	for (size_t i = 0; i < parser->count; i++) {
		struct schema_node *node = parser->nodes[i];
		if (!node->ref.data)
			continue;
		hf_cleanup(buf) struct buf scratch = {};
		struct slice text = json_string_view(node->ref, &scratch);
		node->referred =
		    find_referred(parser, schema, (struct slice){ text.data + 1, text.len - 1 });
		if (!node->referred)
			return hf_fail(parser->err, HF_INVALID, "$ref %.*s leads to no schema",
				       text.len < 100 ? (int)text.len : 100, text.data);
	}
	return HF_OK;
}

/* --- Keywords --------------------------------------------------------------------------------- */

static enum hf_code parse_examples(struct parser *parser, struct keyword *keyword,
				   struct slice value)
{
	return want(parser, keyword, value, JSON_ARRAY);
}

static enum hf_code parse_any(struct parser *, struct keyword *, struct slice)
{
	return HF_OK;
}

static enum hf_code parse_dialect(struct parser *parser, struct keyword *keyword,
				  struct slice value)
{
	if (json_string_is(value, "https://json-schema.org/draft/2020-12/schema") ||
	    json_string_is(value, "https://json-schema.org/draft/2020-12/schema#"))
		return HF_OK;
	return refuse(parser, keyword, "only https://json-schema.org/draft/2020-12/schema");
}

static const struct {
	const char *name;
	enum hf_code (*parse)(struct parser *parser, struct keyword *keyword, struct slice value);
} keywords[] = {
	{ "type", parse_type },
	{ "properties", parse_properties },
	{ "required", parse_required },
	{ "additionalProperties", parse_additional },
	{ "enum", parse_enum },
	{ "const", parse_const },
	{ "pattern", parse_pattern },
	{ "minLength", parse_length },
	{ "maxLength", parse_length },
	{ "minimum", parse_bound },
	{ "maximum", parse_bound },
	{ "exclusiveMinimum", parse_bound },
	{ "exclusiveMaximum", parse_bound },
	{ "title", parse_text },
	{ "description", parse_text },
	{ "$comment", parse_text },
	{ "x-mcp-header", parse_mark },
	{ "allOf", parse_list },
	{ "anyOf", parse_list },
	{ "oneOf", parse_list },
	{ "not", parse_not },
	{ "if", parse_condition },
	{ "then", parse_condition },
	{ "else", parse_condition },
	{ "$defs", parse_definitions },
	{ "$anchor", parse_anchor },
	{ "$ref", parse_ref },
	{ "default", parse_any },
	{ "examples", parse_examples },
	{ "$schema", parse_dialect },
};

static int on_compare_properties(const void *a, const void *b)
{
	return strcmp(((const struct schema_property *)a)->name,
		      ((const struct schema_property *)b)->name);
}

static enum hf_code parse_keyword(struct parser *parser, struct keyword *keyword,
				  struct slice value)
{
	for (size_t i = 0; i < countof(keywords); i++) {
		if (json_string_is(keyword->path.name, keywords[i].name))
			return keywords[i].parse(parser, keyword, value);
	}
	return refuse(parser, keyword, "this keyword is not supported");
}

static enum hf_code parse_keywords(struct parser *parser, struct slice text,
				   const struct schema_path *path, unsigned depth,
				   struct schema_node *node)
{
	size_t at = 0;
	struct slice name, value;
	while (json_object_next(text, &at, &name, &value)) {
		struct keyword keyword = { .node = node,
					   .depth = depth,
					   .path = { .up = path, .name = name } };
		hf_try(parse_keyword(parser, &keyword, value));
	}
	if (node->properties_count > 0)
		qsort(node->properties, node->properties_count, sizeof *node->properties,
		      on_compare_properties);
	return HF_OK;
}

/* The node is the caller's to free as soon as it stands in *out, also after a failure. */
static enum hf_code parse_node(struct parser *parser, struct slice text,
			       const struct schema_path *path, unsigned depth,
			       struct schema_node **out)
{
	enum json_type type = json_type_of(text);
	if (type != JSON_OBJECT && type != JSON_TRUE && type != JSON_FALSE)
		return schema_fail(parser->err, HF_INVALID, path,
				   "a schema must be an object, true or false");
	if (depth > SCHEMA_DEPTH_MAX)
		return schema_fail(parser->err, HF_INVALID, path, "schemas nested deeper than %u",
				   SCHEMA_DEPTH_MAX);
	if (parser->count == SCHEMA_NODES_MAX)
		return schema_fail(parser->err, HF_INVALID, path, "more than %zu schemas in one",
				   SCHEMA_NODES_MAX);
	struct schema_node *node = hf_alloc(sizeof *node);
	node->text = text;
	node->length_min = node->length_max = -1;
	node->refuses = type == JSON_FALSE;
	*out = node;
	parser->nodes[parser->count++] = node;
	return type == JSON_OBJECT ? parse_keywords(parser, text, path, depth, node) : HF_OK;
}

static void values_deinit(struct schema_values *values)
{
	for (size_t i = 0; i < values->count; i++)
		buf_deinit(&values->forms[i]);
	free(values->forms);
}

static void node_free(struct schema_node *node);

static void nodes_free(struct schema_nodes *list)
{
	for (size_t i = 0; i < list->count; i++)
		node_free(list->nodes[i]);
	free(list->nodes);
}

static void node_free(struct schema_node *node)
{
	if (!node)
		return;
	for (size_t i = 0; i < node->properties_count; i++) {
		free(node->properties[i].name);
		node_free(node->properties[i].node);
	}
	free(node->properties);
	node_free(node->additional);
	node_free(node->condition);
	node_free(node->then);
	node_free(node->otherwise);
	for (size_t i = 0; i < SCHEMA_LISTS; i++)
		nodes_free(&node->lists[i]);
	nodes_free(&node->definitions);
	values_deinit(&node->one_of);
	values_deinit(&node->constant);
	schema_pattern_free(node->pattern);
	free(node);
}

enum hf_code schema_new(struct slice text, struct schema **out, struct hf_err *err)
{
	hf_assert(out);
	struct slice trimmed = json_trim(text);
	struct schema_path root = {};
	if (trimmed.len > SCHEMA_BYTES_MAX)
		return hf_fail(err, HF_INVALID, "a schema of more than %zu bytes",
			       SCHEMA_BYTES_MAX);
	if (json_type_of(trimmed) != JSON_OBJECT)
		return hf_fail(err, HF_INVALID, "the schema must be an object");
	struct parser parser = { .err = err };
	struct schema *schema = hf_alloc(sizeof *schema);
	schema->text = hf_strndup(trimmed.data, trimmed.len);
	struct slice whole = { schema->text, trimmed.len };
	parser.nodes = hf_alloc(SCHEMA_NODES_MAX * sizeof *parser.nodes);
	enum hf_code code = parse_node(&parser, whole, &root, 0, &schema->root);
	if (code == HF_OK)
		code = resolve(&parser, whole);
	free(parser.nodes);
	if (code == HF_OK)
		*out = schema;
	else
		schema_free(schema);
	return code;
}

struct schema *schema_free(struct schema *schema)
{
	if (schema) {
		node_free(schema->root);
		free(schema->text);
		free(schema);
	}
	return nullptr;
}
