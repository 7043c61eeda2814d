/* schema_check.c - runs a compiled schema over scanned JSON text. The first thing that is wrong
 * ends the check; its text is for a model, so it says what would be right. Work is bounded: by the
 * value's size, times the depth of the schema, plus the budget of the patterns. Called by the api
 * on each call's arguments, by the worker on structured results. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/json_inner.h"
#include "runtime/schema_inner.h"
#include "runtime/utf8.h"

/* Schemas looked at in one check: so many, and so many for each byte of the value. */
constexpr size_t SCHEMA_STEPS_MAX = 100'000, SCHEMA_STEPS_PER_BYTE = 8;
constexpr unsigned SCHEMA_NESTED_MAX = 200; /* one within the other, by $ref too */
constexpr int SPELT_BYTES_MAX = 120;        /* of the schema's own text, in an error */

struct check {
	struct hf_err *err;
	struct schema_matcher matcher;
	struct buf scratch;
	size_t steps_left;
	unsigned nested;
};

#define wrong(check, path, ...) schema_fail((check)->err, HF_INVALID, (path), __VA_ARGS__)

static int spelt_len(struct slice text)
{
	return (int)(text.len <= (size_t)SPELT_BYTES_MAX ? text.len
							 : utf8_cut(text.data, SPELT_BYTES_MAX));
}

/* The text for %.*s%s; an argument may be evaluated three times. */
#define SPELT(text) spelt_len(text), (text).data, spelt_len(text) < (int)(text).len ? "…" : ""

static unsigned types_of(struct slice value)
{
	switch (json_type_of(value)) {
	case JSON_NULL:
		return 1u << SCHEMA_NULL;
	case JSON_FALSE:
	case JSON_TRUE:
		return 1u << SCHEMA_BOOLEAN;
	case JSON_NUMBER:
		return 1u << SCHEMA_NUMBER | (unsigned)json_number_whole(value) << SCHEMA_INTEGER;
	case JSON_STRING:
		return 1u << SCHEMA_STRING;
	case JSON_ARRAY:
		return 1u << SCHEMA_ARRAY;
	default:
		return 1u << SCHEMA_OBJECT;
	}
}

static void name_types(unsigned types, struct buf *out)
{
	static const char *const words[] = { "null",     "a boolean", "an integer", "a number",
					     "a string", "an array",  "an object" };
	static_assert(countof(words) == SCHEMA_TYPES);
	for (size_t i = 0; i < countof(words); i++) {
		if (!(types & 1u << i))
			continue;
		if (out->len > 0)
			buf_add_text(out, " or ");
		buf_add_text(out, words[i]);
	}
}

static enum hf_code check_type(struct check *check, const struct schema_node *node,
			       const struct schema_path *path, struct slice value)
{
	unsigned types = types_of(value);
	if (node->types == 0 || (node->types & types))
		return HF_OK;
	hf_cleanup(buf) struct buf wanted = {}, is = {};
	name_types(node->types, &wanted);
	name_types(types & ~(1u << SCHEMA_INTEGER), &is);
	return wrong(check, path, "must be %s, not %s", wanted.data, is.data);
}

static int on_compare_form(const void *key, const void *element)
{
	const struct slice *form = key;
	const struct buf *value = element;
	size_t shared = form->len < value->len ? form->len : value->len;
	int order = memcmp(form->data, value->data, shared);
	return order ? order : (form->len > value->len) - (form->len < value->len);
}

static bool is_one_of(const struct schema_values *values, struct slice form)
{
	return bsearch(&form, values->forms, values->count, sizeof *values->forms, on_compare_form);
}

static enum hf_code check_values(struct check *check, const struct schema_node *node,
				 const struct schema_path *path, struct slice value)
{
	if (!node->constant.forms && !node->one_of.forms)
		return HF_OK;
	hf_cleanup(buf) struct buf form = {};
	json_canonical(value, nullptr, &form);
	if (node->constant.forms && !is_one_of(&node->constant, buf_slice(&form)))
		return wrong(check, path, "must be %.*s%s", SPELT(node->constant.spelt));
	if (node->one_of.forms && !is_one_of(&node->one_of, buf_slice(&form)))
		return wrong(check, path, "must be one of %.*s%s", SPELT(node->one_of.spelt));
	return HF_OK;
}

static enum hf_code check_number(struct check *check, const struct schema_node *node,
				 const struct schema_path *path, struct slice value)
{
	static const char *const words[] = { "at least", "at most", "more than", "less than" };
	static_assert(countof(words) == SCHEMA_BOUNDS);
	for (size_t i = 0; i < SCHEMA_BOUNDS; i++) {
		struct slice bound = node->bounds[i];
		if (!bound.data)
			continue;
		int order = json_number_compare(value, bound);
		bool right = i == BOUND_MIN    ? order >= 0
			     : i == BOUND_MAX  ? order <= 0
			     : i == BOUND_OVER ? order > 0
					       : order < 0;
		if (!right)
			return wrong(check, path, "must be %s %.*s%s", words[i], SPELT(bound));
	}
	return HF_OK;
}

static enum hf_code check_length(struct check *check, const struct schema_node *node,
				 const struct schema_path *path, struct slice text)
{
	int64_t length = utf8_count(text);
	if (node->length_min >= 0 && length < node->length_min)
		return wrong(check, path, "must have at least %lld characters, has %lld",
			     (long long)node->length_min, (long long)length);
	if (node->length_max >= 0 && length > node->length_max)
		return wrong(check, path, "must have at most %lld characters, has %lld",
			     (long long)node->length_max, (long long)length);
	return HF_OK;
}

static enum hf_code check_string(struct check *check, const struct schema_node *node,
				 const struct schema_path *path, struct slice value)
{
	if (!node->pattern && node->length_min < 0 && node->length_max < 0)
		return HF_OK;
	buf_clear(&check->scratch);
	struct slice text = json_string_view(value, &check->scratch);
	hf_try(check_length(check, node, path, text));
	if (!node->pattern)
		return HF_OK;
	struct slice pattern = slice_of(schema_pattern_text(node->pattern));
	switch (schema_pattern_match(node->pattern, &check->matcher, text)) {
	case MATCH_YES:
		return HF_OK;
	case MATCH_NO:
		return wrong(check, path, "does not match %.*s%s", SPELT(pattern));
	case MATCH_LIMIT:
		break;
	}
	return schema_fail(check->err, HF_LIMIT, path, "takes too long to match against %.*s%s",
			   SPELT(pattern));
}

static int on_compare_name(const void *key, const void *element)
{
	const struct slice *name = key;
	const char *other = ((const struct schema_property *)element)->name;
	int order = strncmp(name->data, other, name->len);
	return order ? order : other[name->len] ? -1 : 0;
}

static const struct schema_property *property_find(const struct schema_node *node,
						   struct slice name)
{
	if (node->properties_count == 0)
		return nullptr;
	return bsearch(&name, node->properties, node->properties_count, sizeof *node->properties,
		       on_compare_name);
}

static enum hf_code refuse_member(struct check *check, const struct schema_node *node,
				  const struct schema_path *path)
{
	hf_cleanup(buf) struct buf known = { .max = SPELT_BYTES_MAX };
	for (size_t i = 0; i < node->properties_count; i++) {
		if (!node->properties[i].node || node->properties[i].node->refuses)
			continue;
		if (known.len > 0)
			buf_add_text(&known, ", ");
		buf_add_text(&known, node->properties[i].name);
	}
	if (known.len == 0)
		return wrong(check, path, "is not allowed");
	return wrong(check, path, "is not allowed; known are %s%s", known.data,
		     known.overflow ? ", …" : "");
}

static enum hf_code check_node(struct check *check, const struct schema_node *node,
			       const struct schema_path *path, struct slice value);

static enum hf_code check_member(struct check *check, const struct schema_node *node,
				 const struct schema_property *property,
				 const struct schema_path *path, struct slice value)
{
	const struct schema_node *schema =
	    property && property->node ? property->node : node->additional;
	if (!schema)
		return HF_OK;
	if (schema == node->additional && schema->refuses)
		return refuse_member(check, node, path);
	return check_node(check, schema, path, value);
}

static enum hf_code check_missing(struct check *check, const struct schema_node *node,
				  const struct schema_path *path, const bool *seen)
{
	for (size_t i = 0; i < node->properties_count; i++) {
		struct schema_path missing = { .up = path, .name = node->properties[i].raw };
		if (node->properties[i].required && !seen[i])
			return wrong(check, &missing, "is required");
	}
	return HF_OK;
}

static enum hf_code check_members(struct check *check, const struct schema_node *node,
				  const struct schema_path *path, struct slice value, bool *seen)
{
	size_t at = 0;
	struct slice name, inner;
	while (json_object_next(value, &at, &name, &inner)) {
		buf_clear(&check->scratch);
		const struct schema_property *property =
		    property_find(node, json_string_view(name, &check->scratch));
		struct schema_path member = { .up = path, .name = name };
		if (property)
			seen[property - node->properties] = true;
		hf_try(check_member(check, node, property, &member, inner));
	}
	return check_missing(check, node, path, seen);
}

static enum hf_code check_object(struct check *check, const struct schema_node *node,
				 const struct schema_path *path, struct slice value)
{
	if (node->properties_count == 0 && !node->additional)
		return HF_OK;
	bool *seen = hf_alloc(node->properties_count);
	enum hf_code code = check_members(check, node, path, value, seen);
	free(seen);
	return code;
}

/* Whether it fits, without a word of what is wrong. HF_INVALID: it does not. */
static enum hf_code fits(struct check *check, const struct schema_node *node,
			 const struct schema_path *path, struct slice value)
{
	struct hf_err *err = check->err;
	struct hf_err quiet = {};
	check->err = &quiet;
	enum hf_code code = check_node(check, node, path, value);
	check->err = err;
	if (code != HF_OK && code != HF_INVALID && err)
		*err = quiet;
	return code;
}

/* How many of the list fit; for anyOf one is enough. */
static enum hf_code count_fits(struct check *check, const struct schema_nodes *list, bool enough,
			       const struct schema_path *path, struct slice value, size_t *count)
{
	*count = 0;
	for (size_t i = 0; i < list->count && !(enough && *count); i++) {
		enum hf_code code = fits(check, list->nodes[i], path, value);
		if (code != HF_OK && code != HF_INVALID)
			return code;
		*count += code == HF_OK;
	}
	return HF_OK;
}

static enum hf_code check_lists(struct check *check, const struct schema_node *node,
				const struct schema_path *path, struct slice value)
{
	const struct schema_nodes *lists = node->lists;
	size_t count;
	for (size_t i = 0; i < lists[LIST_ALL].count; i++)
		hf_try(check_node(check, lists[LIST_ALL].nodes[i], path, value));
	/* A list of one says more by its own fault. */
	if (lists[LIST_ANY].count == 1)
		hf_try(check_node(check, lists[LIST_ANY].nodes[0], path, value));
	hf_try(count_fits(check, &lists[LIST_ANY], true, path, value, &count));
	if (lists[LIST_ANY].count && count == 0)
		return wrong(check, path, "fits none of the %zu schemas of anyOf",
			     lists[LIST_ANY].count);
	hf_try(count_fits(check, &lists[LIST_ONE], false, path, value, &count));
	if (lists[LIST_ONE].count && count != 1)
		return wrong(check, path, "must fit one of the %zu schemas of oneOf, fits %zu",
			     lists[LIST_ONE].count, count);
	hf_try(count_fits(check, &lists[LIST_NOT], true, path, value, &count));
	return count ? wrong(check, path, "fits what is not allowed") : HF_OK;
}

static enum hf_code check_condition(struct check *check, const struct schema_node *node,
				    const struct schema_path *path, struct slice value)
{
	if (!node->condition)
		return HF_OK;
	enum hf_code code = fits(check, node->condition, path, value);
	if (code != HF_OK && code != HF_INVALID)
		return code;
	const struct schema_node *next = code == HF_OK ? node->then : node->otherwise;
	return next ? check_node(check, next, path, value) : HF_OK;
}

static enum hf_code check_own(struct check *check, const struct schema_node *node,
			      const struct schema_path *path, struct slice value)
{
	hf_try(check_type(check, node, path, value));
	hf_try(check_values(check, node, path, value));
	switch (json_type_of(value)) {
	case JSON_NUMBER:
		return check_number(check, node, path, value);
	case JSON_STRING:
		return check_string(check, node, path, value);
	case JSON_OBJECT:
		return check_object(check, node, path, value);
	default:
		return HF_OK;
	}
}

static enum hf_code check_node(struct check *check, const struct schema_node *node,
			       const struct schema_path *path, struct slice value)
{
	if (node->refuses)
		return wrong(check, path, "is not allowed");
	if (check->nested == SCHEMA_NESTED_MAX || check->steps_left == 0)
		return schema_fail(check->err, HF_LIMIT, path, "takes too long to check");
	check->steps_left--;
	check->nested++;
	enum hf_code code = check_own(check, node, path, value);
	if (code == HF_OK && node->referred)
		code = check_node(check, node->referred, path, value);
	if (code == HF_OK)
		code = check_lists(check, node, path, value);
	if (code == HF_OK)
		code = check_condition(check, node, path, value);
	check->nested--;
	return code;
}

enum hf_code schema_check(const struct schema *schema, struct slice value, struct hf_err *err)
{
	hf_assert(schema);
	struct slice trimmed = json_trim(value);
	struct schema_path root = {};
	struct check check = { .err = err,
			       .steps_left = SCHEMA_STEPS_MAX + SCHEMA_STEPS_PER_BYTE * trimmed.len,
			       .matcher = { .steps = PATTERN_STEPS_MAX + trimmed.len } };
	enum hf_code code = check_node(&check, schema->root, &root, trimmed);
	schema_matcher_deinit(&check.matcher);
	buf_deinit(&check.scratch);
	return code;
}
