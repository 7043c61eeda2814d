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
	const struct store_tool bad = { 1, slice_of("bad"), slice_of("v"), slice_of("{") };
	struct catalog *catalog = catalog_new();
	cr_assert_eq(catalog_number(catalog), 0);
	catalog_replace(catalog, 5, &bad, 1);
	cr_assert_eq(catalog_number(catalog), 5);
	cr_assert_eq(catalog_list(catalog)->count, 0);
	cr_assert_null(catalog_find(catalog, slice_of("bad")));
	cr_assert_eq(catalog_poll_interval_ms(catalog, 1), 1'000);
	catalog_free(catalog);
}

#define TOOL(named)                                                                           \
	"{\"name\":\"" named "\",\"description\":\"d\",\"inputSchema\":{\"type\":\"object\"," \
	"\"required\":[\"effect_id\"],\"properties\":{\"effect_id\":{\"type\":\"string\"}}}," \
	"\"phases\":[{\"name\":\"w\",\"kind\":\"wait\",\"ms\":1}],\"result\":{\"text\":\"t\"}}"

/* The names on one page, each ended by a blank. */
static void names_on(struct slice page, struct buf *out)
{
	hf_cleanup(buf) struct buf array = {};
	buf_add_byte(&array, '[');
	buf_add_slice(&array, page);
	buf_add_byte(&array, ']');
	cr_assert_eq(json_scan(buf_slice(&array), nullptr), HF_OK, "%s", array.data);
	struct slice tool, named;
	for (size_t at = 0; json_array_next(buf_slice(&array), &at, &tool);) {
		cr_assert(json_member(tool, "name", &named));
		json_string_decode(named, out);
		buf_add_byte(out, ' ');
	}
}

HF_TEST(catalog, pages_go_on_behind_a_name_whatever_became_of_it)
{
	static const char *const docs[] = { TOOL("b"), TOOL("ab"), TOOL("a"), TOOL("B") };
	struct store_tool tools[countof(docs)];
	for (int32_t i = 0; i < (int32_t)countof(docs); i++)
		tools[i] = (struct store_tool){ i, slice_of(""), slice_of("v"), slice_of(docs[i]) };
	static const struct {
		const char *after;
		size_t most;
		const char *names, *last;
	} table[] = {
		{ "", 9, "B a ab b ", "" }, { "", 4, "B a ab b ", "" }, { "", 3, "B a ab ", "ab" },
		{ "", 1, "B ", "B" },       { "B", 1, "a ", "a" },      { "a", 1, "ab ", "ab" },
		{ "ab", 1, "b ", "" },      { "b", 1, "", "" },         { "aa", 2, "ab b ", "" },
		{ "A", 2, "B a ", "a" },    { "zz", 2, "", "" },
	};
	struct catalog *catalog = catalog_new();
	catalog_replace(catalog, 1, tools, countof(tools));
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf page = {}, names = {};
		struct slice last;
		buf_add_text(&names, "");
		list_page(catalog_list(catalog), slice_of(table[i].after), table[i].most, &page,
			  &last);
		names_on(buf_slice(&page), &names);
		cr_assert(slice_is(buf_slice(&names), table[i].names), "row %zu: %s", i,
			  names.data);
		cr_assert(slice_is(last, table[i].last), "row %zu", i);
	}
	cr_assert_not_null(catalog_find(catalog, slice_of("ab")));
	catalog_free(catalog);
}

HF_TEST(catalog, what_stands_in_front_is_on_the_first_page_and_in_no_count)
{
	static const struct {
		const char *after;
		size_t items, most;
		const char *page;
	} table[] = {
		{ "", 2, 1, "0,1" }, { "", 2, 2, "0,1,2" }, { "a", 2, 2, "2" },
		{ "", 0, 2, "0" },   { "b", 2, 2, "" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		struct list_item items[] = { { slice_of("a"), slice_of("1") },
					     { slice_of("b"), slice_of("2") } };
		const struct list list = { "t", items, sizeof *items, table[i].items,
					   slice_of("0") };
		hf_cleanup(buf) struct buf page = {};
		struct slice last;
		list_page(&list, slice_of(table[i].after), table[i].most, &page, &last);
		cr_assert(slice_is(buf_slice(&page), table[i].page), "row %zu: %s", i, page.data);
		cr_assert(slice_is(last, i == 0 ? "a" : ""), "row %zu", i);
	}
}

HF_TEST(catalog, what_a_tool_does_for_clients_without_effect_ids_is_said)
{
	static char fallback[] = "claudecode/toolUseId";
	hf_cleanup(buf) struct buf out = {};
	struct tool tool = tool_of(EFFECT_ID_REQUIRED, nullptr);
	catalog_publish(&tool, &out);
	cr_assert(strstr(out.data, "\"_meta\":{\"dev.holdfast/effects\":{\"effectId\":\"required\","
				   "\"retentionMs\":604800000,\"tombstoneMs\":0}}"));
	cr_assert_eq(strstr(out.data, "without effect_id"), nullptr);
	buf_clear(&out);
	tool.effect_id_fallback = fallback;
	tool.intent_window_ms = 90'000;
	catalog_publish(&tool, &out);
	cr_assert(
	    strstr(out.data, "\"fallback\":\"claudecode/toolUseId\",\"intentWindowMs\":90000}}"));
	cr_assert(strstr(out.data, "for 90 seconds from that first call"), "%s", out.data);
}
