/* Bytes as MCP carries them: when they are text, and their base64. */
#include "runtime/content.h"

#include "runtime/base.h"
#include "test/test.h"

HF_TEST(content, base64_ends_as_its_length_wants)
{
	static const struct {
		const char *bytes, *text;
	} table[] = {
		{ "", "" },        { "f", "Zg==" },        { "fo", "Zm8=" },
		{ "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "\xff\xfe\xfd", "//79" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf out = {};
		buf_add_byte(&out, '>');
		base64_add(slice_of(table[i].bytes), &out);
		cr_assert_str_eq(out.data + 1, table[i].text);
		cr_assert_eq(out.len, 1 + strlen(table[i].text));
		cr_assert(base64_is_valid(slice_of(table[i].text)));
	}
}

HF_TEST(content, what_is_no_base64_is_refused)
{
	static const char *const bad[] = { "A",    "AA",   "AAA",  "A===",  "=",   "====",
					   "AA=A", "AA A", "AA-_", "AAA\n", "{AAA" };
	for (size_t i = 0; i < countof(bad); i++)
		cr_assert(!base64_is_valid(slice_of(bad[i])), "%s", bad[i]);
}

HF_TEST(content, text_is_what_is_called_so_and_reads_as_such)
{
	static const struct {
		const char *media_type;
		struct slice bytes;
		const char *member;
	} table[] = {
		{ "text/plain", { "a\"\n", 3 }, "\"text\":\"a\\\"\\n\"" },
		{ "TEXT/CSV; charset=utf-8", { "a", 1 }, "\"text\":\"a\"" },
		{ "application/json", { "{}", 2 }, "\"text\":\"{}\"" },
		{ "application/problem+json", { "{}", 2 }, "\"text\":\"{}\"" },
		{ "image/svg+xml", { "<a/>", 4 }, "\"text\":\"<a/>\"" },
		{ "text/plain", { "", 0 }, "\"text\":\"\"" },
		{ "text/plain", { "\xff", 1 }, "\"blob\":\"/w==\"" },
		{ "text/plain", { "\0", 1 }, "\"blob\":\"AA==\"" },
		{ "image/png", { "a", 1 }, "\"blob\":\"YQ==\"" },
		{ "text", { "a", 1 }, "\"blob\":\"YQ==\"" },
		{ "", { "", 0 }, "\"blob\":\"\"" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf out = {};
		content_add(slice_of(table[i].media_type), table[i].bytes, &out);
		cr_assert_str_eq(out.data, table[i].member, "row %zu", i);
	}
}

HF_TEST(content, a_media_type_is_two_names_and_a_slash)
{
	static const char *const good[] = { "a/b", "text/plain; charset=utf-8", "x/y+z" };
	static const char *const bad[] = { "",     "a",     "/",    "a/",    "/b",
					   " a/b", "a/b\n", ";a/b", "a/\xc3" };
	for (size_t i = 0; i < countof(good); i++)
		cr_assert(media_type_is_valid(slice_of(good[i])), "%s", good[i]);
	for (size_t i = 0; i < countof(bad); i++)
		cr_assert(!media_type_is_valid(slice_of(bad[i])), "%s", bad[i]);
}
