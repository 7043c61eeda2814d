/* URI templates of level 1: which are taken, and what they find in a URI. */
#include "runtime/uri_template.h"

#include <string.h>

#include "runtime/base.h"
#include "test/test.h"

HF_TEST(uri_template, only_level_1_with_text_between_the_variables_is_taken)
{
	static const struct {
		const char *template;
		bool good;
	} table[] = {
		{ "a://{b}", true },
		{ "a+1.x:{b}", true },
		{ "test://template/{id}/data", true },
		{ "a://{b}/{c}.{d_1}", true },
		{ "a://{a}-{b}-{c}-{d}-{e}-{f}-{g}-{h}", true },
		{ "a://{a}-{b}-{c}-{d}-{e}-{f}-{g}-{h}-{i}", false },
		{ "", false },
		{ "a://b", false },
		{ "a//{b}", false },
		{ "{a}:b", false },
		{ "1:{b}", false },
		{ "a://{}", false },
		{ "a://{b", false },
		{ "a://b}", false },
		{ "a://}{b}", false },
		{ "a://{b}}", false },
		{ "a://{{b}}", false },
		{ "a://{b}{c}", false },
		{ "a://{b}/{b}", false },
		{ "a://{+b}", false },
		{ "a://{b*}", false },
		{ "a://{b,c}", false },
		{ "a://{b:3}", false },
		{ "a:// {b}", false },
		{ "a://\"{b}", false },
	};
	for (size_t i = 0; i < countof(table); i++) {
		struct hf_err err = {};
		enum hf_code code = uri_template_check(slice_of(table[i].template), &err);
		cr_assert_eq(code, table[i].good ? HF_OK : HF_INVALID, "%s: %s", table[i].template,
			     err.text);
		cr_assert_eq(err.text[0] == '\0', table[i].good, "%s", table[i].template);
	}
}

HF_TEST(uri_template, a_uri_is_what_may_stand_in_one)
{
	char longest[URI_LEN_MAX + 2];
	memset(longest, 'a', sizeof longest);
	longest[1] = ':';
	cr_assert_eq(uri_check((struct slice){ longest, URI_LEN_MAX }, nullptr), HF_OK);
	cr_assert_eq(uri_check((struct slice){ longest, URI_LEN_MAX + 1 }, nullptr), HF_INVALID);
	cr_assert_eq(uri_check(slice_of("a:b%20c?d#e"), nullptr), HF_OK);
	static const char *const bad[] = {
		"", ":", "a", "a b:", "a:b c", "a:{b}", "a:\\", "a:\xc3"
	};
	for (size_t i = 0; i < countof(bad); i++)
		cr_assert_eq(uri_check(slice_of(bad[i]), nullptr), HF_INVALID, "%s", bad[i]);
}

HF_TEST(uri_template, variables_are_found_and_decoded)
{
	static const struct {
		const char *template, *uri, *values; /* nullptr: no match */
	} table[] = {
		{ "t://{id}/data", "t://123/data", "{\"id\":\"123\"}" },
		{ "t://{id}/data", "t://a%2Fb%20c/data", "{\"id\":\"a/b c\"}" },
		{ "t://{id}/data", "t://%22%5c/data", "{\"id\":\"\\\"\\\\\"}" },
		{ "t://{id}/data", "t://%e2%82%ac/data", "{\"id\":\"\xe2\x82\xac\"}" },
		{ "t://{id}/data", "t:///data", nullptr },
		{ "t://{id}/data", "t://a/b/data", nullptr },
		{ "t://{id}/data", "t://a/data/", nullptr },
		{ "t://{id}/data", "T://a/data", nullptr },
		{ "t://{id}/data", "t://a/dat", nullptr },
		{ "t://{id}/data", "t://", nullptr },
		{ "t://{id}/data", "t://%/data", nullptr },
		{ "t://{id}/data", "t://%4/data", nullptr },
		{ "t://{id}/data", "t://%g0/data", nullptr },
		{ "t://{id}/data", "t://%00/data", nullptr },
		{ "t://{id}/data", "t://%ff/data", nullptr },
		{ "t://{id}/data", "t://{id}/data", nullptr },
		{ "t://{id}/data", "t://a?b/data", nullptr },
		{ "t://{id}", "t://x", "{\"id\":\"x\"}" },
		{ "t://{id}", "t://x%", nullptr },
		{ "t://{id}", "t://x%2", nullptr },
		/* to the first occurrence, but the last to the end */
		{ "t:{a}.{b}", "t:x.y.z", "{\"a\":\"x\",\"b\":\"y.z\"}" },
		{ "t:{a}-x", "t:p-x-x", "{\"a\":\"p-x\"}" },
		{ "t:{a}.{b}", "t:x", nullptr },
		{ "t:{a}.{b}", "t:.x", nullptr },
		{ "t:{a}.{b}", "t:x.", nullptr },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf values = {};
		buf_add_text(&values, "before");
		bool matched = uri_template_match(slice_of(table[i].template),
						  slice_of(table[i].uri), &values);
		cr_assert_eq(matched, table[i].values != nullptr, "%s", table[i].uri);
		cr_assert_str_eq(values.data + strlen("before"), matched ? table[i].values : "",
				 "%s", table[i].uri);
	}
}

/* A client chooses the URI: it must not cost more than its length. */
HF_TEST(uri_template, a_hostile_uri_takes_no_time, .timeout = 10)
{
	char uri[URI_LEN_MAX];
	memset(uri, '-', sizeof uri);
	memcpy(uri, "t:", 2);
	uri[sizeof uri - 1] = '/';
	for (int i = 0; i < 2'000; i++) {
		hf_cleanup(buf) struct buf values = {};
		cr_assert(!uri_template_match(slice_of("t:{a}-{b}-{c}-{d}-{e}-{f}-{g}-{h}!"),
					      (struct slice){ uri, sizeof uri }, &values));
	}
}
