/* Trace context: what has the form is kept and handed on, the rest never was. */
#include "runtime/trace.h"

#include <string.h>

#include "runtime/base.h"
#include "test/test.h"

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "00-" TRACE "-b7ad6b7169203331-01"

struct text {
	const char *text;
	bool fits;
};

static void check(const struct text *table, size_t count, bool (*valid)(struct slice text))
{
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(valid(slice_of(table[i].text)), table[i].fits, "%s", table[i].text);
}

HF_TEST(trace, only_a_whole_traceparent_counts)
{
	static const struct text table[] = {
		{ PARENT, true },
		{ "01-" TRACE "-b7ad6b7169203331-01", false },
		{ "00-" TRACE "-B7AD6B7169203331-01", false },
		{ "00-" TRACE "-0000000000000000-01", false },
		{ "00-00000000000000000000000000000000-b7ad6b7169203331-01", false },
		{ "00-" TRACE "-b7ad6b7169203331-0", false },
		{ PARENT "-x", false },
		{ " " PARENT, false },
		{ "", false },
	};
	check(table, countof(table), trace_parent_valid);
}

HF_TEST(trace, only_a_well_formed_tracestate_counts)
{
	static const struct text table[] = {
		{ "congo=t61rcWkgMzE", true },
		{ "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE", true },
		{ "fw529a3039@dt=FfAAA;x", true },
		{ "a=1,,b=2", true },
		{ "a=1,a=2", false },
		{ "A=1", false },
		{ "a", false },
		{ "a=", false },
		{ "=1", false },
		{ "a=b=c", false },
		{ "a=1\r\nx: y", false },
		{ "a=\x80", false },
		{ "", false },
		{ ",", false },
	};
	check(table, countof(table), trace_state_valid);

	hf_cleanup(buf) struct buf many = {};
	for (int i = 0; i < 33; i++)
		buf_add_format(&many, "%sk%d=1", i ? "," : "", i);
	cr_assert_not(trace_state_valid(buf_slice(&many)));
	buf_clear(&many);
	buf_add_text(&many, "a=");
	for (int i = 0; i < 256; i++)
		buf_add_byte(&many, 'v');
	cr_assert(trace_state_valid(buf_slice(&many)));
	buf_add_byte(&many, 'v');
	cr_assert_not(trace_state_valid(buf_slice(&many)));
}

HF_TEST(trace, only_well_formed_baggage_counts)
{
	static const struct text table[] = {
		{ "userId=alice", true },
		{ "userId = alice , serverNode=DF%2028,isProduction=false", true },
		{ "k=v;p1;p2=x, k2=", true },
		{ "k", false },
		{ "k v=1", false },
		{ "k=v w", false },
		{ "k=\"v\"", false },
		{ "k=v\n", false },
		{ "k=\xc3\xa9", false },
		{ "", false },
		{ "a=1,,b=2", false },
	};
	check(table, countof(table), trace_baggage_valid);
	hf_cleanup(buf) struct buf large = {};
	buf_add_text(&large, "k=");
	for (size_t i = 0; i < TRACE_BAGGAGE_LEN_MAX; i++)
		buf_add_byte(&large, 'v');
	cr_assert_not(trace_baggage_valid(buf_slice(&large)));
}

HF_TEST(trace, what_is_valid_is_stored_and_read_again)
{
	static const struct {
		const char *parent, *state, *baggage, *stored;
	} table[] = {
		{ PARENT, "", "", PARENT },
		{ PARENT, "a=1", "", PARENT "\na=1" },
		{ PARENT, "a=1", "k=v", PARENT "\na=1\nk=v" },
		{ PARENT, "", "k=v", PARENT "\n\nk=v" },
		{ PARENT, "A=1", "k", PARENT },
		{ "00-x", "a=1", "", "" },
		{ "", "a=1", "k=v", "\n\nk=v" },
		{ "", "", "", "" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf stored = {};
		buf_add_text(&stored, "");
		const struct trace trace = { slice_of(table[i].parent), slice_of(table[i].state),
					     slice_of(table[i].baggage) };
		trace_pack(&trace, &stored);
		cr_assert(slice_is(buf_slice(&stored), table[i].stored), "row %zu: %s", i,
			  stored.data);
		struct trace read = trace_unpack(buf_slice(&stored));
		hf_cleanup(buf) struct buf again = {};
		buf_add_text(&again, "");
		trace_pack(&read, &again);
		cr_assert(slice_is(buf_slice(&again), table[i].stored), "row %zu", i);
	}
}

HF_TEST(trace, each_attempt_is_a_new_span_of_the_same_trace)
{
	const struct trace trace = { .parent = slice_of(PARENT) };
	cr_assert(slice_is(trace_id(&trace), TRACE));
	char one[TRACE_PARENT_LEN + 1], two[TRACE_PARENT_LEN + 1];
	trace_span(&trace, one);
	trace_span(&trace, two);
	cr_assert(trace_parent_valid(slice_of(one)));
	cr_assert_str_neq(one, two);
	cr_assert_str_neq(one, PARENT);
	cr_assert_eq(strncmp(one, "00-" TRACE "-", 36), 0);
	cr_assert_str_eq(one + 52, "-01");

	const struct trace none = {};
	trace_span(&none, one);
	cr_assert_str_eq(one, "");
	cr_assert_eq(trace_id(&none).len, 0);
}
