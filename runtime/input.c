#include "runtime/input.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/json.h"
#include "runtime/utf8.h"

static const struct {
	const char *method, *capability;
} kinds[] = {
	[INPUT_FORM] = { "elicitation/create", "{\"elicitation\":{\"form\":{}}}" },
	[INPUT_URL] = { "elicitation/create", "{\"elicitation\":{\"url\":{}}}" },
	[INPUT_SAMPLING] = { "sampling/createMessage", "{\"sampling\":{}}" },
	[INPUT_ROOTS] = { "roots/list", "{\"roots\":{}}" },
};

bool input_key_ok(struct slice key)
{
	bool ok = key.len > 0 && key.len <= INPUT_KEY_LEN_MAX;
	for (size_t i = 0; ok && i < key.len; i++) {
		char c = key.data[i];
		ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		     c == '_' || c == '.' || c == '-';
	}
	return ok;
}

/* Ends like .2. */
static bool is_numbered(struct slice key)
{
	size_t digits = 0;
	while (digits < key.len && key.data[key.len - 1 - digits] >= '0' &&
	       key.data[key.len - 1 - digits] <= '9')
		digits++;
	return digits > 0 && digits < key.len && key.data[key.len - 1 - digits] == '.';
}

bool input_key_free(struct slice key)
{
	return input_key_ok(key) && key.len <= INPUT_KEY_LEN_MAX - 3 && !is_numbered(key);
}

static bool is_object(struct slice object, const char *name, struct slice *value)
{
	return json_member(object, name, value) && json_type_of(*value) == JSON_OBJECT;
}

int input_declared(struct slice capabilities)
{
	struct slice value, member;
	int declared = 0;
	if (capabilities.len > 0 && is_object(capabilities, "elicitation", &value)) {
		bool url = is_object(value, "url", &member);
		bool form = is_object(value, "form", &member);
		declared |= (url ? INPUT_URL : 0) | (form || !url ? INPUT_FORM : 0);
	}
	if (capabilities.len > 0 && is_object(capabilities, "sampling", &value))
		declared |= INPUT_SAMPLING;
	if (capabilities.len > 0 && is_object(capabilities, "roots", &value))
		declared |= INPUT_ROOTS;
	return declared;
}

const char *input_capability(int kind)
{
	hf_assert(kind > 0 && (size_t)kind < countof(kinds) && kinds[kind].capability);
	return kinds[kind].capability;
}

/* --- requests --------------------------------------------------------------------------------- */

static enum hf_code needs(struct slice params, const char *name, enum json_type type,
			  struct slice *value, struct hf_err *err)
{
	if (!json_member(params, name, value))
		return hf_fail(err, HF_INVALID, "/params: \"%s\" is missing", name);
	if (json_type_of(*value) != type)
		return hf_fail(err, HF_INVALID, "/params/%s: must be %s", name,
			       json_type_name(type));
	return HF_OK;
}

/* A13.8: a flat object of primitives, choices, and lists of choices. */
static enum hf_code form_property_check(struct slice name, struct slice property,
					struct hf_err *err)
{
	static const char *const types[] = { "string", "number", "integer", "boolean", "array" };
	struct slice type, items;
	bool known = false;
	for (size_t i = 0; json_member(property, "type", &type) && i < countof(types); i++)
		known = known || json_string_is(type, types[i]);
	if (!known)
		return hf_fail(err, HF_INVALID,
			       "/params/requestedSchema/properties/%.*s: must have type string, "
			       "number, integer, boolean or array",
			       (int)name.len, name.data);
	if (json_string_is(type, "array") && !is_object(property, "items", &items))
		return hf_fail(err, HF_INVALID,
			       "/params/requestedSchema/properties/%.*s: a list of choices has "
			       "\"items\"",
			       (int)name.len, name.data);
	return HF_OK;
}

static enum hf_code form_check(struct slice params, struct hf_err *err)
{
	struct slice schema, type, properties, name, property;
	hf_try(needs(params, "requestedSchema", JSON_OBJECT, &schema, err));
	if (!json_member(schema, "type", &type) || !json_string_is(type, "object") ||
	    !is_object(schema, "properties", &properties))
		return hf_fail(err, HF_INVALID,
			       "/params/requestedSchema: must have type object and properties");
	for (size_t at = 0; json_object_next(properties, &at, &name, &property);)
		hf_try(form_property_check(name, property, err));
	return HF_OK;
}

static enum hf_code elicitation_check(struct slice params, int *kind, struct hf_err *err)
{
	struct slice value;
	bool url = json_member(params, "mode", &value) && json_string_is(value, "url");
	if (json_member(params, "mode", &value) && !url && !json_string_is(value, "form"))
		return hf_fail(err, HF_INVALID, "/params/mode: must be form or url");
	hf_try(needs(params, "message", JSON_STRING, &value, err));
	*kind = url ? INPUT_URL : INPUT_FORM;
	return url ? needs(params, "url", JSON_STRING, &value, err) : form_check(params, err);
}

enum hf_code input_request_check(struct slice request, int *kind, struct hf_err *err)
{
	struct slice method, params = {}, name, value;
	if (json_type_of(request) != JSON_OBJECT || !json_member(request, "method", &method))
		return hf_fail(err, HF_INVALID, ": must be an object with \"method\"");
	for (size_t at = 0; json_object_next(request, &at, &name, &value);)
		if (!json_string_is(name, "method") && !json_string_is(name, "params"))
			return hf_fail(err, HF_INVALID, "/%.*s: unknown member", (int)name.len,
				       name.data);
	bool has_params = json_member(request, "params", &params);
	if (has_params && json_type_of(params) != JSON_OBJECT)
		return hf_fail(err, HF_INVALID, "/params: must be an object");
	if (json_string_is(method, kinds[INPUT_ROOTS].method)) {
		*kind = INPUT_ROOTS;
		return HF_OK;
	}
	if (json_string_is(method, kinds[INPUT_SAMPLING].method)) {
		*kind = INPUT_SAMPLING;
		hf_try(needs(params, "messages", JSON_ARRAY, &value, err));
		return needs(params, "maxTokens", JSON_NUMBER, &value, err);
	}
	if (json_string_is(method, kinds[INPUT_FORM].method))
		return elicitation_check(params, kind, err);
	return hf_fail(err, HF_INVALID,
		       "/method: must be elicitation/create, sampling/createMessage or roots/list");
}

/* --- answers ---------------------------------------------------------------------------------- */

/* A value in the form that it is compared in, made once however many choices there are. */
struct said {
	enum json_type type;
	struct slice value;
	struct buf text; /* a string's characters; canonical where it is a list or an object */
};

static void said_set(struct said *said, struct slice value)
{
	said->type = json_type_of(value);
	said->value = value;
	buf_clear(&said->text);
	if (said->type == JSON_STRING)
		json_string_decode(value, &said->text);
	else if (said->type == JSON_ARRAY || said->type == JSON_OBJECT)
		json_canonical(value, nullptr, &said->text);
}

static inline void hf_cleanup_said(struct said *said)
{
	buf_deinit(&said->text);
}

static bool is_const(struct slice choice, const struct said *said)
{
	if (json_type_of(choice) != said->type)
		return false;
	if (said->type == JSON_STRING)
		return json_string_is(choice, said->text.data ? said->text.data : "");
	if (said->type == JSON_NUMBER)
		return json_number_compare(choice, said->value) == 0;
	if (said->type != JSON_ARRAY && said->type != JSON_OBJECT)
		return true;
	hf_cleanup(buf) struct buf text = {};
	json_canonical(choice, nullptr, &text);
	return slice_equal(buf_slice(&text), buf_slice(&said->text));
}

static const char *const choice_lists[] = { "enum", "oneOf", "anyOf" };

/* `enum`, or `oneOf`/`anyOf` of {const}; a schema without a choice allows anything. */
static bool is_chosen(struct slice schema, const struct said *said)
{
	struct slice choices, choice, constant;
	bool free = true;
	for (size_t i = 0; i < countof(choice_lists); i++) {
		if (!json_member(schema, choice_lists[i], &choices))
			continue;
		free = false;
		for (size_t at = 0; json_array_next(choices, &at, &choice);) {
			constant = choice;
			if (i > 0 && !json_member(choice, "const", &constant))
				continue;
			if (is_const(constant, said))
				return true;
		}
	}
	return free;
}

/* How many choices a schema has; -1: it leaves the choice free. */
static int64_t choices_count(struct slice schema)
{
	struct slice choices, choice;
	int64_t count = -1;
	for (size_t i = 0; i < countof(choice_lists); i++) {
		if (!json_member(schema, choice_lists[i], &choices))
			continue;
		count += count < 0;
		for (size_t at = 0; json_array_next(choices, &at, &choice);)
			count++;
	}
	return count;
}

/* A bound of the schema, where it has one: does `size` keep it? */
static bool keeps(struct slice schema, const char *least, const char *most, int64_t size)
{
	struct slice bound;
	int64_t n;
	if (json_member(schema, least, &bound) && json_integer(bound, &n) && size < n)
		return false;
	return !(json_member(schema, most, &bound) && json_integer(bound, &n) && size > n);
}

static bool number_fits(struct slice schema, struct slice value)
{
	struct slice bound;
	if (json_member(schema, "minimum", &bound) && json_number_compare(value, bound) < 0)
		return false;
	return !(json_member(schema, "maximum", &bound) && json_number_compare(value, bound) > 0);
}

/* Choices of a list: each counts once, so more of them than there are is no selection. What is too
 * long is told before any of it is compared. */
static bool list_fits(struct slice schema, struct slice value)
{
	struct slice items, element, bound;
	int64_t count = 0, most;
	if (!json_member(schema, "items", &items))
		return false;
	int64_t choices = choices_count(items);
	if (!json_member(schema, "maxItems", &bound) || !json_integer(bound, &most))
		most = INT64_MAX;
	if (choices >= 0 && choices < most)
		most = choices;
	for (size_t at = 0; count <= most && json_array_next(value, &at, &element);)
		count++;
	if (count > most || !keeps(schema, "minItems", "maxItems", count))
		return false;
	hf_cleanup(said) struct said said = {};
	for (size_t at = 0; json_array_next(value, &at, &element);) {
		if (json_type_of(element) != JSON_STRING)
			return false;
		if (choices < 0)
			continue;
		said_set(&said, element);
		if (!is_chosen(items, &said))
			return false;
	}
	return true;
}

static bool type_fits(struct slice schema, const struct said *said)
{
	struct slice type;
	enum json_type got = said->type;
	if (!json_member(schema, "type", &type))
		return false;
	if (json_string_is(type, "string"))
		return got == JSON_STRING &&
		       keeps(schema, "minLength", "maxLength", utf8_count(buf_slice(&said->text)));
	if (json_string_is(type, "boolean"))
		return got == JSON_TRUE || got == JSON_FALSE;
	if (json_string_is(type, "array"))
		return got == JSON_ARRAY && list_fits(schema, said->value);
	bool whole = json_string_is(type, "integer");
	return got == JSON_NUMBER && (!whole || json_number_whole(said->value)) &&
	       number_fits(schema, said->value);
}

static bool value_fits(struct slice schema, struct slice value)
{
	hf_cleanup(said) struct said said = {};
	said_set(&said, value);
	return type_fits(schema, &said) && is_chosen(schema, &said);
}

static enum hf_code content_check(struct slice schema, struct slice content, struct hf_err *err)
{
	struct slice properties = {}, required, name, value, property;
	json_member(schema, "properties", &properties);
	for (size_t at = 0; json_object_next(content, &at, &name, &value);) {
		hf_cleanup(buf) struct buf text = {};
		json_string_decode(name, &text);
		bool declared = json_member(properties, text.data ? text.data : "", &property);
		if (!declared || !value_fits(property, value))
			return hf_fail(err, HF_INVALID, "/content/%.64s: %s",
				       text.data ? text.data : "",
				       declared ? "does not fit the form" : "was not asked for");
	}
	if (!json_member(schema, "required", &required))
		return HF_OK;
	for (size_t at = 0; json_array_next(required, &at, &name);) {
		hf_cleanup(buf) struct buf text = {};
		json_string_decode(name, &text);
		if (!json_member(content, text.data ? text.data : "", &value))
			return hf_fail(err, HF_INVALID, "/content: \"%.64s\" is missing",
				       text.data ? text.data : "");
	}
	return HF_OK;
}

static enum hf_code elicited_check(struct slice params, bool form, struct slice answer,
				   struct hf_err *err)
{
	struct slice action = {}, content = {}, schema = {};
	json_member(answer, "action", &action);
	bool accepted = action.len > 0 && json_string_is(action, "accept");
	if (action.len == 0 ||
	    (!accepted && !json_string_is(action, "decline") && !json_string_is(action, "cancel")))
		return hf_fail(err, HF_INVALID, "/action: must be accept, decline or cancel");
	if (!accepted || !form)
		return HF_OK;
	if (!is_object(answer, "content", &content))
		return hf_fail(err, HF_INVALID, "/content: must be an object");
	json_member(params, "requestedSchema", &schema);
	return content_check(schema, content, err);
}

enum hf_code input_answer_check(struct slice request, struct slice answer, struct hf_err *err)
{
	int kind = 0;
	struct slice params = {}, value;
	hf_try(input_request_check(request, &kind, err));
	if (json_type_of(answer) != JSON_OBJECT)
		return hf_fail(err, HF_INVALID, ": must be an object");
	json_member(request, "params", &params);
	if (kind == INPUT_ROOTS)
		return json_member(answer, "roots", &value) && json_type_of(value) == JSON_ARRAY
			   ? HF_OK
			   : hf_fail(err, HF_INVALID, "/roots: must be an array");
	if (kind == INPUT_SAMPLING)
		return json_member(answer, "content", &value)
			   ? HF_OK
			   : hf_fail(err, HF_INVALID, "/content: is missing");
	return elicited_check(params, kind == INPUT_FORM, answer, err);
}
