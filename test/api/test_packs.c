/* What packs offer, found and filled in memory. */
#include "api/packs.h"

#include <string.h>

#include "api/prompts.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "test/test.h"

#define MESSAGES(text) "[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"" text "\"}}]"
#define FILLED         MESSAGES("{/args/a}|{/args/b}|{/minted/effect_id}|{/minted/effect_id}")
#define ANSWERED       MESSAGES("{/input/k/x}")

static const char FIRST[] =
    "{\"prompts\":[{\"name\":\"z\",\"complete\":{},\"messages\":" FILLED ",\"published\":"
    "{\"name\":\"z\",\"description\":\"d\","
    "\"arguments\":[{\"name\":\"a\",\"required\":true},{\"name\":\"b\"}]}}],"
    "\"resources\":[{\"uri\":\"a:b\",\"published\":{},\"contents\":{\"uri\":\"a:b\"}}],"
    "\"templates\":[{\"uriTemplate\":\"a:{x}\",\"published\":{},\"complete\":{},"
    "\"mimeType\":\"text/plain\",\"text\":\"{/args/x}\"}]}";
static const char SECOND[] =
    "{\"prompts\":[{\"name\":\"a\",\"published\":{\"name\":\"a\"},\"complete\":{},"
    "\"messages\":" ANSWERED "}],\"resources\":[],\"templates\":[]}";

static struct packs *packs_of(void)
{
	const struct store_pack stored[] = {
		{ slice_of("one"), slice_of(FIRST) },
		{ slice_of("bad"), slice_of("{") },
		{ slice_of("two"), slice_of(SECOND) },
	};
	struct packs *packs = packs_new();
	packs_replace(packs, stored, countof(stored));
	return packs;
}

HF_TEST(packs, are_told_in_order_and_one_that_does_not_read_is_left_out)
{
	struct packs *packs = packs_of();
	const struct prompt *first = packs->prompts.items;
	cr_assert_eq(packs->prompts.count, 2);
	cr_assert(slice_is(first[0].item.key, "a"));
	cr_assert(slice_is(first[1].item.key, "z"));
	cr_assert(slice_is(first[0].item.published, "{\"name\":\"a\"}"));
	cr_assert_eq(packs->resources.count, 1);
	cr_assert_eq(packs->templates.count, 2); /* with Holdfast's own */
	packs_replace(packs, nullptr, 0);
	cr_assert_eq(packs->prompts.count, 0);
	cr_assert_eq(packs->templates.count, 1);
	cr_assert_null(packs_prompt(packs, slice_of("a")));
	packs_free(packs);
}

HF_TEST(packs, a_uri_is_found_by_itself_or_by_its_template)
{
	struct packs *packs = packs_of();
	hf_cleanup(buf) struct buf values = {};
	cr_assert_not_null(packs_resource(packs, slice_of("a:b")));
	cr_assert_null(packs_resource(packs, slice_of("a:c")));
	cr_assert_not_null(packs_template(packs, slice_of("a:{x}")));
	cr_assert_null(packs_template(packs, slice_of("a:{y}")));
	const struct resource *found = packs_template_of(packs, slice_of("a:%41"), &values);
	cr_assert_not_null(found);
	cr_assert(slice_is(found->item.key, "a:{x}"));
	cr_assert_str_eq(values.data, "{\"x\":\"A\"}");
	cr_assert_null(packs_template_of(packs, slice_of("b:c"), &values));
	packs_free(packs);
}

static struct slice text_of(const struct buf *result)
{
	struct slice text;
	cr_assert_eq(json_scan(buf_slice(result), nullptr), HF_OK, "%s", result->data);
	cr_assert(json_pointer(buf_slice(result), slice_of("/messages/0/content/text"), &text));
	return text;
}

HF_TEST(packs, a_prompt_is_filled_with_arguments_and_one_new_effect_id)
{
	struct packs *packs = packs_of();
	const struct prompt *prompt = packs_prompt(packs, slice_of("z"));
	struct hf_err err = {};
	char minted[2][37] = {};
	for (int i = 0; i < 2; i++) {
		hf_cleanup(buf) struct buf result = {};
		cr_assert_eq(prompt_result(prompt, slice_of("{\"a\":\"{/args/b}\",\"c\":5}"),
					   (struct slice){}, &result, &err),
			     HF_OK, "%s", err.text);
		struct slice text = text_of(&result);
		cr_assert_eq(text.len, strlen("\"{/args/b}|||\"") + (size_t)2 * 36);
		cr_assert_eq(memcmp(text.data, "\"{/args/b}||", 12),
			     0); /* put in once, not again */
		memcpy(minted[i], text.data + 12, 36);
		cr_assert_eq(memcmp(text.data + 12, text.data + 12 + 37, 36), 0);
		cr_assert(strstr(result.data, "\"description\":\"d\""));
	}
	cr_assert_str_neq(minted[0], minted[1]);
	packs_free(packs);
}

HF_TEST(packs, arguments_that_do_not_fit_are_refused)
{
	static const struct {
		const char *arguments, *fault;
	} table[] = {
		{ "", "params.arguments needs \"a\"" },
		{ "{}", "params.arguments needs \"a\"" },
		{ "{\"a\":null}", "params.arguments.a must be a string" },
		{ "{\"a\":\"\",\"b\":1}", "params.arguments.b must be a string" },
	};
	struct packs *packs = packs_of();
	const struct prompt *prompt = packs_prompt(packs, slice_of("z"));
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf result = {};
		struct hf_err err = {};
		cr_assert_eq(prompt_result(prompt, slice_of(table[i].arguments), (struct slice){},
					   &result, &err),
			     HF_INVALID);
		cr_assert_str_eq(err.text, table[i].fault);
	}
	packs_free(packs);
}

HF_TEST(packs, a_prompt_sees_what_was_answered)
{
	struct packs *packs = packs_of();
	const struct prompt *prompt = packs_prompt(packs, slice_of("a"));
	hf_cleanup(buf) struct buf result = {};
	struct hf_err err = {};
	cr_assert_eq(prompt_result(prompt, (struct slice){}, slice_of("{\"k\":{\"x\":\"yes\"}}"),
				   &result, &err),
		     HF_OK, "%s", err.text);
	cr_assert(slice_is(text_of(&result), "\"yes\""));
	cr_assert_eq(prompt_result(prompt, (struct slice){}, slice_of("{}"), &result, &err),
		     HF_MISSING);
	packs_free(packs);
}
