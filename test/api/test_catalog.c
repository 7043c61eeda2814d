/* How a tool is published: its own schema byte for byte, and what a repeat does in its text. */
#include "api/catalog.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "test/test.h"

#define SCHEMA "{\"type\":\"object\", \"properties\":{\"n\":{\"maximum\":9007199254740993}}}"

static char name[] = "t", description[] = "Does \"it\".";

static struct tool tool_of(enum effect_id_rule rule, const char *annotations)
{
	return (struct tool){
		.name = name,
		.description = description,
		.effect_id = rule,
		.input_schema = slice_of(SCHEMA),
		.annotations = slice_of(annotations),
		.result_ttl_ms = 604'800'000,
	};
}

HF_TEST(catalog, a_tool_is_published_with_its_own_schema_and_what_a_repeat_does)
{
	hf_cleanup(buf) struct buf out = {};
	struct tool tool = tool_of(EFFECT_ID_REQUIRED, nullptr);
	catalog_publish(&tool, &out);
	cr_assert_eq(json_scan(buf_slice(&out), nullptr), HF_OK, "%s", out.data);
	cr_assert(
	    strstr(out.data, "{\"name\":\"t\",\"description\":\"Does \\\"it\\\".\\n\\nRepeats: "));
	cr_assert(strstr(out.data, "kept for 7 days after"));
	cr_assert(strstr(out.data, "\"inputSchema\":" SCHEMA ","));
	cr_assert_eq(strstr(out.data, "outputSchema"), nullptr);
	cr_assert_eq(strstr(out.data, "title"), nullptr);
}

HF_TEST(catalog, a_tool_that_needs_an_effect_id_is_idempotent_unless_it_says_otherwise)
{
	static const struct {
		enum effect_id_rule rule;
		const char *annotations, *published; /* nullptr: none */
	} table[] = {
		{ EFFECT_ID_REQUIRED, nullptr, "{\"idempotentHint\":true}" },
		{ EFFECT_ID_REQUIRED, "{\"title\":\"x\"}",
		  "{\"idempotentHint\":true,\"title\":\"x\"}" },
		{ EFFECT_ID_REQUIRED, "{\"idempotentHint\":false}", "{\"idempotentHint\":false}" },
		{ EFFECT_ID_OPTIONAL, "{\"title\":\"x\"}", "{\"title\":\"x\"}" },
		{ EFFECT_ID_OPTIONAL, nullptr, nullptr },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf out = {};
		struct tool tool = tool_of(table[i].rule, table[i].annotations);
		catalog_publish(&tool, &out);
		struct slice annotations = {};
		bool found = json_member(buf_slice(&out), "annotations", &annotations);
		cr_assert_eq(found, table[i].published != nullptr, "row %zu", i);
		if (found)
			cr_assert(slice_is(annotations, table[i].published), "row %zu: %.*s", i,
				  (int)annotations.len, annotations.data);
	}
}

HF_TEST(catalog, a_tool_that_does_not_read_is_left_out)
{
	const struct store_tool tools[] = {
		{ .id = 1,
		  .name = slice_of("bad"),
		  .version = slice_of("v"),
		  .doc = slice_of("{") },
	};
	struct catalog *catalog = catalog_new();
	cr_assert_eq(catalog_number(catalog), 0);
	cr_assert(slice_is(catalog_tools_json(catalog), "[]"));
	catalog_replace(catalog, 5, tools, countof(tools));
	cr_assert_eq(catalog_number(catalog), 5);
	cr_assert(slice_is(catalog_tools_json(catalog), "[]"));
	cr_assert_eq(catalog_find(catalog, slice_of("bad")), nullptr);
	cr_assert_eq(catalog_find_version(catalog, 1), nullptr);
	catalog_free(catalog);
}
