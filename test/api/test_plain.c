/* What plain clients see that needs no store: the framing of events, and the companions as they are
 * listed. How calls wait, park and are taken up again is test/system/test_plain.py's. */
#include <string.h>

#include "api/companion.h"
#include "api/http_write.h"
#include "api/sse.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/schema.h"
#include "runtime/tool.h"
#include "test/test.h"

HF_TEST(sse, an_event_is_one_line_without_an_id)
{
	static const struct {
		const char *message, *event;
	} table[] = {
		{ "{\"a\":1}", "event: message\r\ndata: {\"a\":1}\r\n\r\n" },
		{ "{\"a\":\n\r\n \"b\\nc\"}",
		  "event: message\r\ndata: {\"a\":    \"b\\nc\"}\r\n\r\n" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf out = {};
		sse_event(slice_of(table[i].message), &out);
		cr_assert_str_eq(out.data, table[i].event);
	}
	hf_cleanup(buf) struct buf out = {};
	sse_comment(&out);
	sse_event(slice_of("{}"), &out);
	cr_assert_str_eq(out.data, ": ping\r\n\r\nevent: message\r\ndata: {}\r\n\r\n");
}

HF_TEST(sse, an_empty_chunk_is_none)
{
	hf_cleanup(buf) struct buf out = {};
	http_write_chunk(&out, slice_of(""));
	http_write_chunk(&out, slice_of("0123456789abcdef!"));
	http_write_last_chunk(&out);
	cr_assert_str_eq(out.data, "11\r\n0123456789abcdef!\r\n0\r\n\r\n");
}

static void list_of(const struct companions *companions, struct buf *out)
{
	buf_add_byte(out, '[');
	buf_add_slice(out, companions_json(companions));
	buf_add_byte(out, ']');
	cr_assert_eq(json_scan(buf_slice(out), nullptr), HF_OK, "%s", out->data);
}

HF_TEST(companion, each_is_listed_with_what_a_client_needs)
{
	static const struct {
		const char *name, *read_only, *destructive;
	} expected[] = {
		{ "task_status", "true", "false" },
		{ "task_result", "true", "false" },
		{ "task_cancel", "false", "true" },
	};
	struct companions *companions = companions_new();
	hf_cleanup(buf) struct buf list = {};
	list_of(companions, &list);
	struct slice tool, value;
	size_t at = 0, count = 0;
	for (; json_array_next(buf_slice(&list), &at, &tool); count++) {
		cr_assert_lt(count, countof(expected));
		cr_assert(json_member(tool, "name", &value));
		cr_assert(json_string_is(value, expected[count].name));
		cr_assert(tool_name_reserved(slice_of(expected[count].name)));
		cr_assert(json_pointer(tool, slice_of("/annotations/readOnlyHint"), &value));
		cr_assert(slice_is(value, expected[count].read_only));
		cr_assert(json_pointer(tool, slice_of("/annotations/destructiveHint"), &value));
		cr_assert(slice_is(value, expected[count].destructive));
		cr_assert(json_member(tool, "description", &value));
		cr_assert(json_pointer(tool, slice_of("/inputSchema/type"), &value));
		cr_assert(json_string_is(value, "object"));
		cr_assert(!json_pointer(tool, slice_of("/inputSchema/required"), &value));
	}
	cr_assert_eq(count, countof(expected));
	companions_free(companions);
}

HF_TEST(companion, the_wait_that_is_published_is_the_wait_that_is_kept)
{
	static const struct {
		const char *member;
		int64_t ms;
	} table[] = {
		{ "/0/inputSchema/properties/wait_ms/maximum", COMPANION_WAIT_MS_MAX },
		{ "/0/inputSchema/properties/wait_ms/default", COMPANION_WAIT_MS },
	};
	struct companions *companions = companions_new();
	hf_cleanup(buf) struct buf list = {};
	list_of(companions, &list);
	for (size_t i = 0; i < countof(table); i++) {
		struct slice wait;
		int64_t ms = 0;
		cr_assert(json_pointer(buf_slice(&list), slice_of(table[i].member), &wait));
		cr_assert(json_integer(wait, &ms));
		cr_assert_eq(ms, table[i].ms, "%s", table[i].member);
	}
	companions_free(companions);
}
