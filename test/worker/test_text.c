/* test_text.c - foreign text becomes well-formed, bounded UTF-8. */
#include "runtime/base.h"
#include "test/test.h"
#include "worker/text.h"

static void check(struct slice text, size_t max, const char *want)
{
	hf_cleanup(buf) struct buf out = {};
	text_clean(text, max, &out);
	cr_assert_str_eq(out.data ? out.data : "", want);
}

HF_TEST(text, what_is_no_text_becomes_question_marks)
{
	check(slice_of("plain\tand\nlines"), 100, "plain\tand\nlines");
	check(slice_of("ä€😀"), 100, "ä€😀");
	check((struct slice){ "a\0b", 3 }, 100, "a?b");
	check(slice_of("\x1b[31m"), 100, "?[31m");
	check(slice_of("\xff\xc0\xaf"), 100, "???");           /* never, overlong */
	check(slice_of("\xed\xa0\x80"), 100, "???");           /* a surrogate */
	check(slice_of("\xf4\x90\x80\x80"), 100, "????");      /* past the end */
	check(slice_of("\xe0\x80\xaf\xe2\x82"), 100, "?????"); /* overlong, cut short */
	check((struct slice){ nullptr, 0 }, 100, "");
}

HF_TEST(text, a_cut_is_marked_and_keeps_characters_whole)
{
	check(slice_of("12345678"), 8, "12345678");
	check(slice_of("123456789"), 8, "12345…");
	check(slice_of("€€€€"), 8, "€…");
	for (size_t max = 4; max < 40; max++) {
		hf_cleanup(buf) struct buf out = {};
		text_clean(slice_of("aä€😀aä€😀aä€😀"), max, &out);
		cr_assert_leq(out.len, max);
	}
}

HF_TEST(text, white_space_goes_at_the_ends_alone)
{
	cr_assert(slice_is(text_trim(slice_of(" \t\r\na b\r\n")), "a b"));
	cr_assert(slice_is(text_trim(slice_of("a")), "a"));
	cr_assert_eq(text_trim(slice_of(" \n ")).len, 0);
	cr_assert_eq(text_trim((struct slice){}).len, 0);
}
