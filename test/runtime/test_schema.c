/* test_schema.c - which schemas are refused and where, which values pass, what a model is told, and
 * that neither careless patterns nor big values make a check long. */
#include "runtime/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/json.h"
#include "test/test.h"

static struct schema *compile(const char *text)
{
	struct schema *schema = nullptr;
	struct hf_err err = {};
	cr_assert_eq(json_scan(slice_of(text), &err), HF_OK, "%s: %s", text, err.text);
	cr_assert_eq(schema_new(slice_of(text), &schema, &err), HF_OK, "%s: %s", text, err.text);
	return schema;
}

HF_TEST(schema, what_is_not_supported_is_refused_with_its_pointer)
{
	static const struct {
		const char *text, *wanted;
	} rows[] = {
		{ "[]", "the schema must be an object" },
		{ "true", "the schema must be an object" },
		{ "{\"type\":\"strin\"}", "/type: not a type of JSON Schema" },
		{ "{\"type\":[]}", "/type: names no type" },
		{ "{\"type\":[\"null\",\"null\"]}", "/type: names a type twice" },
		{ "{\"type\":3}", "/type: not a type of JSON Schema" },
		{ "{\"items\":{}}", "/items: this keyword is not supported" },
		{ "{\"properties\":{\"a\":{\"format\":\"date\"}}}",
		  "/properties/a/format: this keyword is not supported" },
		{ "{\"properties\":{\"a/b~c\":{\"$id\":\"#\"}}}",
		  "/properties/a~1b~0c/$id: this keyword is not supported" },
		{ "{\"$ref\":\"other.json\"}",
		  "/$ref: only within the schema, as in \"#/$defs/NAME\" or \"#ANCHOR\"" },
		{ "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"b\":{}}}",
		  "$ref #/$defs/a leads to no schema" },
		{ "{\"$ref\":\"#a\"}", "$ref #a leads to no schema" },
		{ "{\"$ref\":\"#/title\",\"title\":\"a\"}", "$ref #/title leads to no schema" },
		{ "{\"additionalProperties\":{\"allOf\":[]}}",
		  "/additionalProperties/allOf: has no schema" },
		{ "{\"anyOf\":{}}", "/anyOf: must be an array" },
		{ "{\"not\":1}", "/not: a schema must be an object, true or false" },
		{ "{\"if\":{\"items\":{}}}", "/if/items: this keyword is not supported" },
		{ "{\"$defs\":{\"a\":{\"x-mcp-header\":\"A\"}}}",
		  "/$defs/a/x-mcp-header: stands only where properties alone lead to it" },
		{ "{\"additionalProperties\":1}",
		  "/additionalProperties: a schema must be an object, true or false" },
		{ "{\"properties\":[]}", "/properties: must be an object" },
		{ "{\"properties\":{\"a\":null}}",
		  "/properties/a: a schema must be an object, true or false" },
		{ "{\"required\":\"a\"}", "/required: must be an array" },
		{ "{\"required\":[1]}", "/required: must be a string" },
		{ "{\"required\":[\"a\",\"\\u0061\"]}", "/required: names a property twice" },
		{ "{\"enum\":{}}", "/enum: must be an array" },
		{ "{\"enum\":[]}", "/enum: has no value, so that nothing could be right" },
		{ "{\"pattern\":1}", "/pattern: must be a string" },
		{ "{\"pattern\":\"a(b\"}", "/pattern: at byte 3: missing closing parenthesis" },
		{ "{\"properties\":{\"m\":{\"pattern\":\"[z-a]\"}}}",
		  "/properties/m/pattern: at byte 3: range out of order in character class" },
		{ "{\"minLength\":-1}", "/minLength: must be an integer of 0 or more" },
		{ "{\"maxLength\":1.5}", "/maxLength: must be an integer of 0 or more" },
		{ "{\"maxLength\":\"1\"}", "/maxLength: must be an integer of 0 or more" },
		{ "{\"minimum\":\"0\"}", "/minimum: must be a number" },
		{ "{\"exclusiveMaximum\":true}", "/exclusiveMaximum: must be a number" },
		{ "{\"title\":1}", "/title: must be a string" },
		{ "{\"examples\":1}", "/examples: must be an array" },
		{ "{\"x-mcp-header\":1}", "/x-mcp-header: must be a string" },
		{ "{\"$schema\":\"http://json-schema.org/draft-07/schema#\"}",
		  "/$schema: only https://json-schema.org/draft/2020-12/schema" },
		{ "{\"Type\":\"object\"}", "/Type: this keyword is not supported" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		struct schema *schema = nullptr;
		struct hf_err err = {};
		cr_expect_eq(json_scan(slice_of(rows[i].text), nullptr), HF_OK);
		cr_expect_eq(schema_new(slice_of(rows[i].text), &schema, &err), HF_INVALID, "%s",
			     rows[i].text);
		cr_expect_str_eq(err.text, rows[i].wanted);
		cr_expect_null(schema);
	}
	cr_expect_null(schema_free(nullptr));
}

HF_TEST(schema, depth_names_and_patterns_are_bounded)
{
	static const struct {
		const char *open, *close;
		size_t times;
	} rows[] = {
		{ "{\"additionalProperties\":", "}", 33 },
		{ "{\"properties\":{\"a\":", "}}", 25 },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		for (size_t times = rows[i].times - 1; times <= rows[i].times; times++) {
			hf_cleanup(buf) struct buf text = {};
			for (size_t n = 0; n < times; n++)
				buf_add_text(&text, rows[i].open);
			buf_add_text(&text, "true");
			for (size_t n = 0; n < times; n++)
				buf_add_text(&text, rows[i].close);
			struct schema *schema = nullptr;
			enum hf_code code = schema_new(buf_slice(&text), &schema, nullptr);
			bool deep = i == 0 && times == rows[i].times;
			cr_expect_eq(code, deep ? HF_INVALID : HF_OK, "%zu", times);
			schema_free(schema);
		}
	}
	hf_cleanup(buf) struct buf many = {}, pattern = {};
	buf_add_text(&many, "{\"required\":[\"0\"");
	for (size_t n = 1; n <= 1000; n++)
		buf_add_format(&many, ",\"%zu\"", n);
	buf_add_text(&many, "]}");
	buf_add_text(&pattern, "{\"pattern\":\"");
	for (size_t n = 0; n <= 2000; n++)
		buf_add_byte(&pattern, 'x');
	buf_add_text(&pattern, "\"}");
	struct schema *schema = nullptr;
	cr_expect_eq(schema_new(buf_slice(&many), &schema, nullptr), HF_INVALID);
	cr_expect_eq(schema_new(buf_slice(&pattern), &schema, nullptr), HF_INVALID);
}

/* wanted: nullptr where the value passes */
static const struct {
	const char *schema, *value, *wanted;
} checks[] = {
	{ "{}", "[1,\"x\",null]", nullptr },
	{ " { } ", " 1 ", nullptr },
	{ "{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[1],\"$comment\":"
	  "\"c\","
	  "\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"x-mcp-header\":\"H\"}",
	  "1", nullptr },
	/* type */
	{ "{\"type\":\"object\"}", "{}", nullptr },
	{ "{\"type\":\"object\"}", "[]", "must be an object, not an array" },
	{ "{\"type\":\"array\"}", "{}", "must be an array, not an object" },
	{ "{\"type\":\"null\"}", "null", nullptr },
	{ "{\"type\":\"null\"}", "0", "must be null, not a number" },
	{ "{\"type\":\"boolean\"}", "false", nullptr },
	{ "{\"type\":\"boolean\"}", "\"true\"", "must be a boolean, not a string" },
	{ "{\"type\":\"integer\"}", "1.0", nullptr },
	{ "{\"type\":\"integer\"}", "1e400", nullptr },
	{ "{\"type\":\"integer\"}", "10e-1", nullptr },
	{ "{\"type\":\"integer\"}", "1.5", "must be an integer, not a number" },
	{ "{\"type\":\"integer\"}", "\"1\"", "must be an integer, not a string" },
	{ "{\"type\":\"number\"}", "1", nullptr },
	{ "{\"type\":[\"string\",\"null\"]}", "null", nullptr },
	{ "{\"type\":[\"string\",\"null\"]}", "1", "must be null or a string, not a number" },
	/* numbers, exactly */
	{ "{\"minimum\":1}", "1.0", nullptr },
	{ "{\"minimum\":1}", "0.99999999999999999999", "must be at least 1" },
	{ "{\"maximum\":9007199254740992}", "9007199254740993",
	  "must be at most 9007199254740992" },
	{ "{\"exclusiveMinimum\":0}", "1e-999", nullptr },
	{ "{\"exclusiveMinimum\":0}", "-0", "must be more than 0" },
	{ "{\"exclusiveMaximum\":1e3}", "1000", "must be less than 1e3" },
	{ "{\"minimum\":5}", "\"1\"", nullptr },
	/* lengths, in code points */
	{ "{\"minLength\":1}", "\"\"", "must have at least 1 characters, has 0" },
	{ "{\"maxLength\":2}", "\"\\ud83d\\ude00\xc3\xa9\"", nullptr },
	{ "{\"maxLength\":2.0}", "\"abc\"", "must have at most 2 characters, has 3" },
	{ "{\"maxLength\":1}", "[1,2,3]", nullptr },
	/* const and enum, by value */
	{ "{\"const\":{\"a\":[1.0,\"x\"],\"b\":null}}", "{\"b\":null,\"a\":[1,\"\\u0078\"]}",
	  nullptr },
	{ "{\"const\":\"x\"}", "\"y\"", "must be \"x\"" },
	{ "{\"const\":null}", "false", "must be null" },
	{ "{\"enum\":[\"metric\",\"us\",3,0]}", "3.0", nullptr },
	{ "{\"enum\":[\"metric\",\"us\",3,0]}", "-0", nullptr },
	{ "{\"enum\":[\"metric\",\"us\"]}", "\"US\"", "must be one of [\"metric\",\"us\"]" },
	{ "{\"enum\":[1]}", "\"1\"", "must be one of [1]" },
	{ "{\"enum\":[true]}", "1", "must be one of [true]" },
	/* patterns as ECMA-262 means them */
	{ "{\"pattern\":\"^[0-9]{4}-[0-9]{2}$\"}", "\"2014-07\"", nullptr },
	{ "{\"pattern\":\"^[0-9]{4}-[0-9]{2}$\"}", "\"2014-7\"",
	  "does not match ^[0-9]{4}-[0-9]{2}$" },
	{ "{\"pattern\":\"^[0-9]{4}-[0-9]{2}$\"}", "\"2014-07\\n\"",
	  "does not match ^[0-9]{4}-[0-9]{2}$" },
	{ "{\"pattern\":\"es\"}", "\"Test\"", nullptr },
	{ "{\"pattern\":\"^.$\"}", "\"\\ud83d\\ude00\"", nullptr },
	{ "{\"pattern\":\"^\\\\d$\"}", "\"\\u0665\"", "does not match ^\\d$" },
	{ "{\"pattern\":\"^\\\\u00e9\\\\u{1F600}$\"}", "\"\xc3\xa9\xf0\x9f\x98\x80\"", nullptr },
	{ "{\"pattern\":\"^a\\\\/b$\"}", "\"a/b\"", nullptr },
	{ "{\"pattern\":\"x\"}", "1", nullptr },
	{ "{\"pattern\":\"\"}", "\"\"", nullptr },
	{ "{\"pattern\":\"^(?:a|b)*$\"}", "\"abab\"", nullptr },
	/* schemas of schemas */
	{ "{\"allOf\":[{\"minimum\":1},{\"maximum\":3}]}", "2", nullptr },
	{ "{\"allOf\":[{\"minimum\":1},{\"maximum\":3}]}", "4", "must be at most 3" },
	{ "{\"anyOf\":[{\"type\":\"null\"},{\"minimum\":3}]}", "3", nullptr },
	{ "{\"anyOf\":[{\"type\":\"null\"},{\"minimum\":3}]}", "2",
	  "fits none of the 2 schemas of anyOf" },
	{ "{\"anyOf\":[{\"required\":[\"a\"]}]}", "{}", "/a: is required" },
	{ "{\"oneOf\":[{\"minimum\":1},{\"maximum\":3}]}", "4", nullptr },
	{ "{\"oneOf\":[{\"minimum\":1},{\"maximum\":3}]}", "2",
	  "must fit one of the 2 schemas of oneOf, fits 2" },
	{ "{\"not\":{\"type\":\"null\"}}", "null", "fits what is not allowed" },
	{ "{\"not\":{\"type\":\"null\"}}", "1", nullptr },
	{ "{\"if\":{\"minimum\":5},\"then\":{\"maximum\":7},\"else\":{\"minimum\":2}}", "6",
	  nullptr },
	{ "{\"if\":{\"minimum\":5},\"then\":{\"maximum\":7},\"else\":{\"minimum\":2}}", "8",
	  "must be at most 7" },
	{ "{\"if\":{\"minimum\":5},\"then\":{\"maximum\":7},\"else\":{\"minimum\":2}}", "1",
	  "must be at least 2" },
	{ "{\"then\":false,\"else\":false}", "1", nullptr },
	{ "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/t\"}},\"$defs\":{\"t\":{\"type\":\"null\"}}}",
	  "{\"a\":1}", "/a: must be null, not a number" },
	{ "{\"properties\":{\"a\":{\"$ref\":\"#T\"}},"
	  "\"$defs\":{\"t\":{\"$anchor\":\"T\",\"type\":\"null\"}}}",
	  "{\"a\":1}", "/a: must be null, not a number" },
	{ "{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"additionalProperties\":false}",
	  "{\"a\":{\"a\":{\"b\":1}}}", "/a/a/b: is not allowed; known are a" },
	{ "{\"$defs\":{\"t\":false}}", "1", nullptr },
	/* objects */
	{ "{\"properties\":{\"a\":{\"type\":\"string\"}}}", "{\"a\":1}",
	  "/a: must be a string, not a number" },
	{ "{\"properties\":{\"a\":{\"type\":\"string\"}}}", "{\"\\u0061\":1}",
	  "/a: must be a string, not a number" },
	{ "{\"properties\":{\"\\u0061\":{\"type\":\"string\"}}}", "{\"A\":1}", nullptr },
	{ "{\"properties\":{\"a\":{}}}", "[]", nullptr },
	{ "{\"properties\":{\"a\":false,\"b\":true}}", "{\"b\":1}", nullptr },
	{ "{\"properties\":{\"a\":false,\"b\":true}}", "{\"a\":1}", "/a: is not allowed" },
	{ "{\"required\":[\"a\"]}", "{}", "/a: is required" },
	{ "{\"required\":[\"\\\"a\"]}", "{}", "/\"a: is required" },
	{ "{\"required\":[\"a\"]}", "{\"a\":null}", nullptr },
	{ "{\"required\":[\"a\"]}", "1", nullptr },
	{ "{\"required\":[\"\"],\"properties\":{\"\":{\"type\":\"null\"}}}", "{\"\":null}",
	  nullptr },
	{ "{\"additionalProperties\":false}", "{\"x\":1}", "/x: is not allowed" },
	{ "{\"additionalProperties\":false,\"properties\":{\"month\":{},\"b\":false,\"ab\":{}}}",
	  "{\"mnth\":1}", "/mnth: is not allowed; known are ab, month" },
	{ "{\"additionalProperties\":{\"type\":\"integer\"},\"properties\":{\"s\":{}}}",
	  "{\"s\":\"x\",\"n\":1}", nullptr },
	{ "{\"additionalProperties\":{\"type\":\"integer\"},\"required\":[\"n\"]}", "{\"n\":\"1\"}",
	  "/n: must be an integer, not a string" },
	{ "{\"properties\":{\"a\":{\"properties\":{\"b/c\":{\"required\":[\"d\"]}}}}}",
	  "{\"a\":{\"b/c\":{\"e\":1}}}", "/a/b~1c/d: is required" },
	{ "{\"type\":\"object\",\"required\":[\"month\",\"effect_id\"],"
	  "\"additionalProperties\":false,\"properties\":{\"month\":{\"type\":\"string\","
	  "\"pattern\":\"^[0-9]{4}-[0-9]{2}$\"},\"effect_id\":{\"type\":\"string\","
	  "\"minLength\":1,\"maxLength\":255}}}",
	  "{\"effect_id\":\"e-1\",\"month\":\"July\"}",
	  "/month: does not match ^[0-9]{4}-[0-9]{2}$" },
};

HF_TEST(schema, values_pass_or_a_model_learns_why_not)
{
	for (size_t i = 0; i < countof(checks); i++) {
		struct schema *schema = compile(checks[i].schema);
		struct hf_err err = {};
		cr_assert_eq(json_scan(slice_of(checks[i].value), nullptr), HF_OK);
		enum hf_code code = schema_check(schema, slice_of(checks[i].value), &err);
		cr_expect_eq(code, checks[i].wanted ? HF_INVALID : HF_OK, "%s for %s: %s",
			     checks[i].value, checks[i].schema, err.text);
		cr_expect_str_eq(err.text, checks[i].wanted ? checks[i].wanted : "");
		schema = schema_free(schema);
	}
}

HF_TEST(schema, references_in_circles_end)
{
	static const char *const texts[] = {
		"{\"$ref\":\"#\"}",
		"{\"not\":{\"$ref\":\"#\"}}",
		"{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}",
		"{\"allOf\":[{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"$ref\":\"#\"}}}",
	};
	for (size_t i = 0; i < countof(texts); i++) {
		struct schema *schema = compile(texts[i]);
		cr_expect_eq(schema_check(schema, slice_of("1"), nullptr), HF_LIMIT, "%s",
			     texts[i]);
		schema_free(schema);
	}
	/* Each step asks twice for the next: 2^20 of them. */
	hf_cleanup(buf) struct buf text = {};
	buf_add_text(&text, "{\"$ref\":\"#/$defs/0\",\"$defs\":{\"20\":{}");
	for (int n = 0; n < 20; n++)
		buf_add_format(
		    &text,
		    ",\"%d\":{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]}", n,
		    n + 1, n + 1);
	buf_add_text(&text, "}}");
	struct schema *schema = compile(text.data);
	cr_expect_eq(schema_check(schema, slice_of("1"), nullptr), HF_LIMIT);
	schema_free(schema);
}

HF_TEST(schema, long_names_and_texts_are_cut_between_characters)
{
	/* Every offset of a three-byte character against the places where texts are cut. */
	hf_cleanup(buf) struct buf schema_text = {};
	buf_add_text(&schema_text, "{\"additionalProperties\":{\"additionalProperties\":"
				   "{\"pattern\":\"^a");
	for (size_t i = 0; i < 100; i++)
		buf_add_text(&schema_text, "\xe2\x82\xac");
	buf_add_text(&schema_text, "\"}}}");
	struct schema *schema = compile(schema_text.data);
	for (size_t shift = 0; shift < 9; shift++) {
		hf_cleanup(buf) struct buf value = {}, text = {};
		buf_add_format(&value, "{\"%.*s", (int)shift, "aaaaaaaaa");
		for (size_t i = 0; i < (shift < 3 ? 3000 : shift < 6 ? 31 : 1); i++)
			buf_add_text(&value, "\xe2\x82\xac");
		buf_add_text(&value, "\":{\"\":\"x\"}}");
		struct hf_err err = {};
		cr_expect_eq(schema_check(schema, buf_slice(&value), &err), HF_INVALID);
		cr_expect_not_null(strstr(err.text, ": does not match ^a\xe2\x82\xac"));
		json_string_encode(slice_of(err.text), &text);
		cr_expect_null(strstr(text.data, "\xef\xbf\xbd"), "%s", text.data);
	}
	schema_free(schema);
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Patterns that are exponential or quadratic, and honest ones that must not be refused. */
HF_TEST(schema, a_pattern_costs_no_more_than_its_budget)
{
	static const struct {
		const char *pattern, *unit, *end;
		size_t times;
		enum hf_code wanted;
	} rows[] = {
		{ "^(a+)+$", "a", "b", 40, HF_LIMIT },
		{ "^(a|a)*$", "a", "b", 5000, HF_LIMIT },
		{ "[0-9]+[xy]", "7", "", 4 << 20, HF_LIMIT },
		{ "(x+x+)+[yz]", "x", "", 3000, HF_LIMIT },
		{ "^(?:a|b)*?c$", "a", "b", 1 << 20, HF_LIMIT },
		{ "(?R)?a", "b", "", 10, HF_INVALID },
		{ "^[A-Za-z0-9+/]*={0,2}$", "QUJD", "==", 1 << 20, HF_OK },
		{ "^[^\\n]*$", "line ", "", 1 << 19, HF_OK },
		{ "needle", "hay ", "needle", 1 << 20, HF_OK },
		{ "^(?:[a-z]{3} )*$", "abc ", "", 10'000, HF_OK },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf value = {}, schema_text = {};
		buf_add_text(&schema_text, "{\"pattern\":");
		json_string_encode(slice_of(rows[i].pattern), &schema_text);
		buf_add_byte(&schema_text, '}');
		struct schema *schema = compile(schema_text.data);
		buf_add_byte(&value, '"');
		for (size_t n = 0; n < rows[i].times; n++)
			buf_add_text(&value, rows[i].unit);
		buf_add_text(&value, rows[i].end);
		buf_add_byte(&value, '"');
		struct hf_err err = {};
		double start = seconds();
		enum hf_code code = schema_check(schema, buf_slice(&value), &err);
		double took = seconds() - start;
		if (getenv("HOLDFAST_TIMES"))
			fprintf(stderr, "%-28s %.3f s %s\n", rows[i].pattern, took, err.text);
		cr_expect_eq(code, rows[i].wanted, "%s: %s", rows[i].pattern, err.text);
		cr_expect_lt(took, 2.0, "%s", rows[i].pattern);
		schema_free(schema);
	}
}

HF_TEST(schema, many_members_share_one_budget_and_stay_quick)
{
	static const struct {
		const char *schema, *value;
		enum hf_code wanted;
	} rows[] = {
		{ "{\"additionalProperties\":{\"pattern\":\"^[0-9]{4}-[0-9]{2}$\"}}", "2014-07",
		  HF_OK },
		{ "{\"additionalProperties\":{\"pattern\":\"^(a+)+$\"}}", "aaaaaaaaaaaaaaaaaa",
		  HF_OK },
		{ "{\"additionalProperties\":{\"enum\":[\"a\",\"b\",\"c\",\"2014-07\"]}}",
		  "2014-07", HF_OK },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf value = {};
		buf_add_byte(&value, '{');
		for (size_t n = 0; value.len < (4 << 20) - 100; n++)
			buf_add_format(&value, "%s\"%zu\":\"%s\"", n ? "," : "", n, rows[i].value);
		buf_add_byte(&value, '}');
		struct schema *schema = compile(rows[i].schema);
		struct hf_err err = {};
		double start = seconds();
		enum hf_code code = schema_check(schema, buf_slice(&value), &err);
		double took = seconds() - start;
		if (getenv("HOLDFAST_TIMES"))
			fprintf(stderr, "row %zu: %.3f s %s\n", i, took, err.text);
		cr_expect_eq(code, rows[i].wanted, "row %zu: %s", i, err.text);
		cr_expect_lt(took, 3.0, "row %zu", i);
		schema_free(schema);
	}
}
