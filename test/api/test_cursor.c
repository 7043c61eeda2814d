/* Cursors: what was written is read, and nothing else is. */
#include "api/cursor.h"

#include <string.h>

#include "runtime/base.h"
#include "test/test.h"

HF_TEST(cursor, what_was_written_is_read)
{
	static const char *const names[] = { "a", "build_report", "caf\xc3\xa9/{x}", "" };
	for (size_t i = 0; i < countof(names); i++) {
		hf_cleanup(buf) struct buf text = {}, name = {};
		buf_add_text(&name, "");
		cursor_write(slice_of(names[i]), &text);
		cr_assert_eq(cursor_read(buf_slice(&text), &name, nullptr), HF_OK);
		cr_assert(slice_is(buf_slice(&name), names[i]));
	}
	char longest[CURSOR_NAME_LEN_MAX + 1];
	memset(longest, 'x', CURSOR_NAME_LEN_MAX);
	longest[CURSOR_NAME_LEN_MAX] = '\0';
	hf_cleanup(buf) struct buf text = {}, name = {};
	cursor_write(slice_of(longest), &text);
	cr_assert_eq(cursor_read(buf_slice(&text), &name, nullptr), HF_OK);
	cr_assert(slice_is(buf_slice(&name), longest));
}

HF_TEST(cursor, what_no_list_gave_is_refused)
{
	static const char *const others[] = { "", "0", "zz", "build_report", "01", "ff00", "\xff" };
	struct hf_err err;
	for (size_t i = 0; i < countof(others); i++) {
		hf_cleanup(buf) struct buf name = {};
		cr_assert_eq(cursor_read(slice_of(others[i]), &name, &err), HF_INVALID, "%s",
			     others[i]);
		cr_assert_eq(name.len, 0);
	}

	hf_cleanup(buf) struct buf good = {};
	cursor_write(slice_of("report"), &good);
	for (size_t at = 0; at < good.len; at++) {
		hf_cleanup(buf) struct buf bad = {}, name = {};
		buf_add_slice(&bad, buf_slice(&good));
		bad.data[at] = bad.data[at] == '0' ? '1' : '0';
		cr_assert_eq(cursor_read(buf_slice(&bad), &name, &err), HF_INVALID, "at %zu", at);
		struct slice cut = { good.data, at };
		cr_assert_eq(cursor_read(cut, &name, &err), HF_INVALID, "cut at %zu", at);
	}
}
