/* test_json.c - the scan against tables of good and bad texts, walking, strings, exact numbers, the
 * canonical form; then random bytes, where UBSan and the assertions are the judges. */
#include "runtime/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/base.h"
#include "test/test.h"

#define TEXT(literal) { literal, sizeof(literal) - 1 }

static const struct slice accepted[] = {
	TEXT("null"),
	TEXT("true"),
	TEXT("false"),
	TEXT(" \t\r\n0 "),
	TEXT("-0"),
	TEXT("-0.0e-0"),
	TEXT("1E+9"),
	TEXT("1.25e-7"),
	TEXT("123456789012345678901234567890"),
	TEXT("1e999999999"),
	TEXT("\"\""),
	TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""),
	TEXT("\"\\u0001\\uABCD\\uabcd\""),
	TEXT("\"\\ud83d\\ude00\""),
	TEXT("\"\\uDBFF\\uDFFF\""),
	TEXT("\"\x7f\""),
	TEXT("\"\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""),
	TEXT("\"\xe2\x80\xa8\xef\xbf\xbf\""),
	TEXT("[]"),
	TEXT("[ ]"),
	TEXT("{ }"),
	TEXT("[1,2 , 3]"),
	TEXT("[[],{},[{}]]"),
	TEXT("{\"a\":1,\"A\":2,\"\":3,\" \":4}"),
	TEXT("{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}"),
	TEXT("[{\"a\":1},{\"a\":1}]"),
	TEXT("{\"\\u0061b\":1,\"a\\u0062c\":2}"),
	TEXT("{\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,\"7\":0,\"8\":0,\"9\":0,\"10\":0}"),
	TEXT("{\"e\xcc\x81\":1,\"\xc3\xa9\":2}"), /* NFD and NFC are two names */
};

static const struct slice refused[] = {
	TEXT(""),
	TEXT(" "),
	TEXT("nul"),
	TEXT("nulll"),
	TEXT("True"),
	TEXT("NaN"),
	TEXT("Infinity"),
	TEXT("-Infinity"),
	TEXT("-"),
	TEXT("+1"),
	TEXT("01"),
	TEXT("-01"),
	TEXT("00"),
	TEXT("1."),
	TEXT(".5"),
	TEXT("-.5"),
	TEXT("1.e1"),
	TEXT("1e"),
	TEXT("1e+"),
	TEXT("1e1.5"),
	TEXT("0x10"),
	TEXT("1_000"),
	TEXT("1 2"),
	TEXT("[1]]"),
	TEXT("{}x"),
	TEXT("null/**/"),
	TEXT("[1,]"),
	TEXT("[,1]"),
	TEXT("[1,,2]"),
	TEXT("[1 2]"),
	TEXT("["),
	TEXT("[1"),
	TEXT("[1,"),
	TEXT("]"),
	TEXT("[}"),
	TEXT("{"),
	TEXT("{\"a\""),
	TEXT("{\"a\":"),
	TEXT("{\"a\":1"),
	TEXT("{\"a\":1,"),
	TEXT("{\"a\":1,}"),
	TEXT("{,}"),
	TEXT("{\"a\" 1}"),
	TEXT("{\"a\",1}"),
	TEXT("{a:1}"),
	TEXT("{'a':1}"),
	TEXT("{1:1}"),
	TEXT("{null:1}"),
	TEXT("{\"a\":1]"),
	TEXT("{\"a\":1 \"b\":2}"),
	TEXT("{\"a\"::1}"),
	TEXT("\""),
	TEXT("\"abc"),
	TEXT("'a'"),
	TEXT("\"\\"),
	TEXT("\"\\\""),
	TEXT("\"\\x41\""),
	TEXT("\"\\a\""),
	TEXT("\"\\U0041\""),
	TEXT("\"\\u\""),
	TEXT("\"\\u12\""),
	TEXT("\"\\u123g\""),
	TEXT("\"\\u 123\""),
	TEXT("\"\\u0000\""),
	TEXT("\"ab\\u0000cd\""),
	TEXT("\"\\ud800\""),
	TEXT("\"\\udc00\""),
	TEXT("\"\\ud800x\""),
	TEXT("\"\\ud800\\n\""),
	TEXT("\"\\ud800\\u0041\""),
	TEXT("\"\\ud800\\ud800\""),
	TEXT("\"\\udc00\\ud800\""),
	TEXT("\"\\udc00\\udc00\""),
	TEXT("\"\\ud800\\udc0"),
	TEXT("\"\x01\""),
	TEXT("\"\n\""),
	TEXT("\"\t\""),
	TEXT("\"\x1f\""),
	TEXT("\"\x80\""),
	TEXT("\"\xc0\xaf\""),
	TEXT("\"\xc1\xbf\""),
	TEXT("\"\xe0\x80\xaf\""),
	TEXT("\"\xe0\x9f\xbf\""),
	TEXT("\"\xed\xa0\x80\""),
	TEXT("\"\xed\xbf\xbf\""),
	TEXT("\"\xf0\x80\x80\xaf\""),
	TEXT("\"\xf0\x8f\xbf\xbf\""),
	TEXT("\"\xf4\x90\x80\x80\""),
	TEXT("\"\xf5\x80\x80\x80\""),
	TEXT("\"\xff\""),
	TEXT("\"\xc3\""),
	TEXT("\"\xe2\x82\""),
	TEXT("\"\xe2\x82"),
	TEXT("\xc3\xa9"),
	TEXT("\xef\xbb\xbf{}"),
	TEXT("\xef\xbb\xbf"),
	TEXT("\xfe\xff\x30"),
	TEXT("\f1"),
	TEXT("\v1"),
	TEXT("\xc2\xa0 1"),
	TEXT("{\"a\":1,\"a\":1}"),
	TEXT("{\"a\":1,\"\\u0061\":1}"),
	TEXT("{\"\\u0061\":1,\"b\":2,\"\\u0061\":1}"),
	TEXT("{\"\":1,\"\":2}"),
	TEXT("{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\ude00\":1}"),
	TEXT("[{\"x\":{\"b\":1,\"c\":[],\"b\":{}}}]"),
	TEXT("{\"a\":{\"b\":1},\"c\":{\"b\":1},\"a\":0}"),
	TEXT("{\"0\":0,\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,\"7\":0,\"8\":0,\"3\":0}"),
	TEXT("\0"),
	TEXT("1\0"),
	TEXT("\"a\0b\""),
	TEXT("[1,\0 2]"),
	TEXT("{\0}"),
	TEXT("{\"a\0\":1}"),
	TEXT("n\0u\0l\0l\0"),
	TEXT("\"\\\0\""),
};

HF_TEST(json, strict_texts_are_accepted)
{
	for (size_t i = 0; i < countof(accepted); i++) {
		struct hf_err err = {};
		enum hf_code code = json_scan(accepted[i], &err);
		cr_expect_eq(code, HF_OK, "%s: %s", accepted[i].data, err.text);
	}
}

HF_TEST(json, anything_else_is_refused)
{
	for (size_t i = 0; i < countof(refused); i++) {
		struct hf_err err = {};
		enum hf_code code = json_scan(refused[i], &err);
		cr_expect_eq(code, HF_INVALID, "row %zu: %s", i, refused[i].data);
		cr_expect(strncmp(err.text, "byte ", 5) == 0, "row %zu: %s", i, err.text);
		unsigned line, column;
		cr_expect_eq(json_scan_written(refused[i], &err), HF_INVALID, "row %zu", i);
		cr_expect_eq(sscanf(err.text, "%u:%u: ", &line, &column), 2, "row %zu: %s", i,
			     err.text);
	}
}

/* A copy on the heap without a byte behind it, so that a sanitizer sees reads past the end. */
static enum hf_code scan_cut(struct slice text, size_t len)
{
	char *copy = hf_alloc(len);
	memcpy(copy, text.data, len);
	enum hf_code code = json_scan((struct slice){ copy, len }, nullptr);
	free(copy);
	return code;
}

HF_TEST(json, no_prefix_of_an_object_is_accepted)
{
	struct slice text =
	    slice_of("{\"a\":[1.5e3,true,null,\"\\ud83d\\ude00\xe2\x82\xac\"],\"b\":{\"c\":-0}}");
	cr_assert_eq(scan_cut(text, text.len), HF_OK);
	for (size_t len = 0; len < text.len; len++)
		cr_expect_eq(scan_cut(text, len), HF_INVALID, "%zu bytes", len);
}

HF_TEST(json, errors_name_the_byte)
{
	static const struct {
		const char *text, *wanted;
	} rows[] = {
		{ "[1,]", "byte 3: a value was due" },
		{ "[1", "byte 2: the text ends where a comma or the end of the array was due" },
		{ "{\"a\":1,\"a\":2}", "byte 7: a member of the same name once more" },
		{ "{\"b\":\"\\ud800\"}", "byte 6: a lone surrogate" },
		{ "\"\\u0000\"", "byte 1: an escaped NUL (\\u0000)" },
		{ "\xef\xbb\xbf{}", "byte 0: a byte order mark" },
		{ "{} {}", "byte 3: the end of the text was due" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		struct hf_err err = {};
		cr_expect_eq(json_scan(slice_of(rows[i].text), &err), HF_INVALID);
		cr_expect_str_eq(err.text, rows[i].wanted);
	}
}

HF_TEST(json, what_is_well_formed_but_refused_can_be_noted)
{
	static const struct {
		const char *text;
		enum hf_code code;
		bool nul, duplicate;
		size_t duplicate_at;
	} rows[] = {
		{ "{\"a\":1,\"b\":{\"a\":1}}", HF_OK, false, false, 0 },
		{ "{\"a\":1,\"\\u0061\":2}", HF_OK, false, true, 7 },
		{ "[{\"b\":1,\"b\":2},{\"c\":1,\"c\":2}]", HF_OK, false, true, 8 },
		{ "[\"\\u0000\"]", HF_OK, true, false, 0 },
		{ "{\"\\u0000\":1,\"\\u0000\":1}", HF_OK, true, true, 12 },
		{ "{\"a\\u0000b\":1,\"a\\u0000c\":1}", HF_OK, true, false, 0 },
		{ "[\"\\u000\"]", HF_INVALID, false, false, 0 },
		{ "{\"a\":1,\"a\":2,}", HF_INVALID, false, false, 0 },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		struct json_quirks quirks;
		cr_expect_eq(json_scan_quirks(slice_of(rows[i].text), &quirks, nullptr),
			     rows[i].code, "%s", rows[i].text);
		cr_expect_eq(quirks.nul, rows[i].nul, "%s", rows[i].text);
		cr_expect_eq(quirks.duplicate, rows[i].duplicate, "%s", rows[i].text);
		cr_expect_eq(quirks.duplicate_at, rows[i].duplicate_at, "%s", rows[i].text);
	}
}

static void add_times(struct buf *buf, const char *piece, size_t times)
{
	for (size_t i = 0; i < times; i++)
		buf_add_text(buf, piece);
}

HF_TEST(json, members_from_outside_have_an_exact_limit)
{
	for (size_t members = JSON_MEMBERS_MAX; members <= JSON_MEMBERS_MAX + 1; members++) {
		hf_cleanup(buf) struct buf text = {};
		buf_add_byte(&text, '[');
		for (size_t i = 0; i < members; i++)
			buf_add_text(&text, i ? ",{\"a\":0}" : "{\"a\":0}");
		buf_add_byte(&text, ']');
		struct json_quirks quirks;
		cr_expect_eq(json_scan_quirks(buf_slice(&text), &quirks, nullptr),
			     members > JSON_MEMBERS_MAX ? HF_LIMIT : HF_OK);
		cr_expect_eq(json_scan(buf_slice(&text), nullptr), HF_OK);
	}
}

HF_TEST(json, depth_and_number_length_have_exact_limits)
{
	static const char *const pairs[][2] = { { "[", "]" }, { "{\"a\":", "}" } };
	for (size_t i = 0; i < countof(pairs); i++) {
		for (size_t depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
			hf_cleanup(buf) struct buf text = {};
			add_times(&text, pairs[i][0], depth);
			buf_add_text(&text, "0");
			add_times(&text, pairs[i][1], depth);
			cr_expect_eq(json_scan(buf_slice(&text), nullptr),
				     depth > JSON_DEPTH_MAX ? HF_LIMIT : HF_OK);
		}
	}
	for (size_t len = JSON_NUMBER_LEN_MAX; len <= JSON_NUMBER_LEN_MAX + 1; len++) {
		hf_cleanup(buf) struct buf text = {};
		add_times(&text, "7", len);
		cr_expect_eq(json_scan(buf_slice(&text), nullptr),
			     len > JSON_NUMBER_LEN_MAX ? HF_LIMIT : HF_OK);
	}
	hf_cleanup(buf) struct buf unclosed = {};
	add_times(&unclosed, "[", 1'000'000);
	cr_expect_eq(json_scan(buf_slice(&unclosed), nullptr), HF_LIMIT);
}

HF_TEST(json, walking_gives_exact_spans)
{
	struct slice text = slice_of(" { \"a\\u0062\" : [ 1 , \"]}\\\"\" , {} ] , \"c\":-1.5 } ");
	cr_assert_eq(json_scan(text, nullptr), HF_OK);
	size_t at = 0;
	struct slice object = json_trim(text), name, value;
	cr_assert(json_object_next(object, &at, &name, &value));
	cr_expect(slice_is(name, "\"a\\u0062\""));
	cr_expect(slice_is(value, "[ 1 , \"]}\\\"\" , {} ]"));
	size_t inner = 0;
	struct slice element;
	static const char *const elements[] = { "1", "\"]}\\\"\"", "{}" };
	for (size_t i = 0; i < countof(elements); i++) {
		cr_assert(json_array_next(value, &inner, &element));
		cr_expect(slice_is(element, elements[i]));
	}
	cr_expect_not(json_array_next(value, &inner, &element));
	cr_assert(json_object_next(object, &at, &name, &value));
	cr_expect(slice_is(value, "-1.5"));
	cr_expect_not(json_object_next(object, &at, &name, &value));
	at = 0;
	cr_expect_not(json_object_next(slice_of("[1]"), &at, &name, &value));
	cr_expect_not(json_array_next(slice_of("{\"a\":1}"), &at, &value));
	cr_expect_not(json_array_next(slice_of("[ ]"), &at, &value));
}

HF_TEST(json, members_are_found_by_their_unescaped_name)
{
	struct slice object = slice_of("{\"A\":1,\"\\u0061\":2,\"ab\":3,\"\\ud83d\\ude00\":4}"),
		     value;
	cr_assert(json_member(object, "a", &value));
	cr_expect(slice_is(value, "2"));
	cr_assert(json_member(object, "A", &value));
	cr_expect(slice_is(value, "1"));
	cr_assert(json_member(object, "\xf0\x9f\x98\x80", &value));
	cr_expect(slice_is(value, "4"));
	cr_expect_not(json_member(object, "abc", &value));
	cr_expect_not(json_member(object, "", &value));
	cr_expect_not(json_member(slice_of("[1]"), "a", &value));
	cr_expect_not(json_member(slice_of("\"a\""), "a", &value));
	cr_expect_not(json_element(slice_of("[1,2]"), 2, &value));
	cr_assert(json_element(slice_of("[1,2]"), 1, &value));
	cr_expect(slice_is(value, "2"));
}

HF_TEST(json, pointers_follow_rfc_6901)
{
	struct slice text = slice_of("{\"foo\":[\"bar\",{\"x\":1}],\"\":0,\"a/b\":1,\"m~n\":8,"
				     "\"~1\":9,\" \":7,\"k\\\"l\":6}");
	static const struct {
		const char *pointer, *wanted; /* nullptr: absent */
	} rows[] = {
		{ "/foo", "[\"bar\",{\"x\":1}]" },
		{ "/foo/0", "\"bar\"" },
		{ "/foo/1/x", "1" },
		{ "/", "0" },
		{ "/a~1b", "1" },
		{ "/m~0n", "8" },
		{ "/~01", "9" },
		{ "/ ", "7" },
		{ "/k\"l", "6" },
		{ "/foo/2", nullptr },
		{ "/foo/-", nullptr },
		{ "/foo/00", nullptr },
		{ "/foo/01", nullptr },
		{ "/foo/+0", nullptr },
		{ "/foo/", nullptr },
		{ "/foo/18446744073709551616", nullptr },
		{ "/foo/0/x", nullptr },
		{ "/m~n", nullptr },
		{ "/m~2n", nullptr },
		{ "/m~", nullptr },
		{ "foo", nullptr },
		{ "/nope", nullptr },
	};
	struct slice value;
	for (size_t i = 0; i < countof(rows); i++) {
		bool found = json_pointer(text, slice_of(rows[i].pointer), &value);
		cr_expect_eq(found, rows[i].wanted != nullptr, "%s", rows[i].pointer);
		if (found && rows[i].wanted)
			cr_expect(slice_is(value, rows[i].wanted), "%s", rows[i].pointer);
	}
	cr_assert(json_pointer(text, slice_of(""), &value));
	cr_expect(slice_equal(value, text));
}

HF_TEST(json, a_string_decodes_and_encodes_to_its_shortest_spelling)
{
	static const struct {
		const char *json, *text, *again;
	} rows[] = {
		{ "\"\"", "", "\"\"" },
		{ "\"a\\/b\"", "a/b", "\"a/b\"" },
		{ "\"\\b\\f\\n\\r\\t\\\"\\\\\"", "\b\f\n\r\t\"\\", "\"\\b\\f\\n\\r\\t\\\"\\\\\"" },
		{ "\"\\u001F\\u001f\"", "\x1f\x1f", "\"\\u001f\\u001f\"" },
		{ "\"\\u00e9\\u20AC\"", "\xc3\xa9\xe2\x82\xac", "\"\xc3\xa9\xe2\x82\xac\"" },
		{ "\"x\\uD83D\\uDE00y\"", "x\xf0\x9f\x98\x80y", "\"x\xf0\x9f\x98\x80y\"" },
		{ "\"\\u007f\"", "\x7f", "\"\x7f\"" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf again = {};
		char *text = json_string_dup(slice_of(rows[i].json));
		cr_expect_str_eq(text, rows[i].text);
		json_string_encode(slice_of(text), &again);
		cr_expect(slice_is(buf_slice(&again), rows[i].again), "%s", rows[i].json);
		cr_expect(json_string_is(slice_of(rows[i].json), rows[i].text));
		free(text);
	}
	cr_expect_null(json_string_dup(slice_of("1")));
	cr_expect_not(json_string_is(slice_of("true"), "true"));
	cr_expect_not(json_string_is(slice_of("\"ab\""), "a"));
	cr_expect_not(json_string_is(slice_of("\"a\""), "ab"));
}

static double encode_s(char byte)
{
	constexpr size_t BYTES = 4'000'000;
	hf_cleanup(buf) struct buf text = {}, json = {};
	memset(buf_reserve(&text, BYTES), byte, BYTES);
	buf_grew(&text, BYTES);
	memset(buf_reserve(&json, 6 * BYTES + 2), 0,
	       6 * BYTES + 2); /* the kernel's work, not ours */
	clock_t start = clock();
	json_string_encode(buf_slice(&text), &json);
	return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* An artifact may be nothing but control characters, which are as quick as those with a letter. */
HF_TEST(json, control_characters_are_encoded_in_no_time)
{
	double least = 1e9, most = 1e9;
	for (int i = 0; i < 20; i++) { /* the best of them, since others use the machine */
		double quotes = encode_s('"'), controls = encode_s('\x01');
		least = quotes < least ? quotes : least;
		most = controls < most ? controls : most;
	}
	cr_expect_lt(most, 1.7 * least, "%.3f s, quotes %.3f s", most, least);
}

HF_TEST(json, what_is_encoded_always_scans)
{
	static const struct slice rows[] = {
		TEXT("a\0b"),
		TEXT("\xff\xfe"),
		TEXT("cut \xe2\x82"),
		TEXT("\xed\xa0\x80"),
		TEXT("\xc0\x80 latin \xe9"),
		TEXT("\x7f\x80"),
	};
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf json = {};
		json_string_encode(rows[i], &json);
		cr_expect_eq(json_scan(buf_slice(&json), nullptr), HF_OK, "row %zu", i);
	}
	hf_cleanup(buf) struct buf json = {};
	json_string_encode(rows[0], &json);
	cr_expect(slice_is(buf_slice(&json), "\"a\xef\xbf\xbd"
					     "b\""));
}

HF_TEST(json, integers_are_read_in_any_spelling)
{
	static const struct {
		const char *number;
		bool fits;
		int64_t value;
	} rows[] = {
		{ "0", true, 0 },
		{ "-0", true, 0 },
		{ "-0.000e99999999999999999999", true, 0 },
		{ "1", true, 1 },
		{ "1.0", true, 1 },
		{ "10e-1", true, 1 },
		{ "0.001e3", true, 1 },
		{ "1e3", true, 1000 },
		{ "9007199254740993", true, 9007199254740993 },
		{ "9223372036854775807", true, INT64_MAX },
		{ "-9223372036854775808", true, INT64_MIN },
		{ "922337203685477580.7e1", true, INT64_MAX },
		{ "9223372036854775808", false, 0 },
		{ "-9223372036854775809", false, 0 },
		{ "1e18", true, 1'000'000'000'000'000'000 },
		{ "1e19", false, 0 },
		{ "1e999999999999999999999999", false, 0 },
		{ "1e-999999999999999999999999", false, 0 },
		{ "1.5", false, 0 },
		{ "1e-1", false, 0 },
		{ "true", false, 0 },
		{ "\"1\"", false, 0 },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		int64_t value = 0;
		cr_expect_eq(json_integer(slice_of(rows[i].number), &value), rows[i].fits, "%s",
			     rows[i].number);
		cr_expect_eq(value, rows[i].value, "%s", rows[i].number);
	}
	cr_expect(json_number_whole(slice_of("1e400")));
	cr_expect(json_number_whole(slice_of("12.50e1")));
	cr_expect_not(json_number_whole(slice_of("12.55e1")));
}

/* In growing order; the rows of one group are equal. */
static const struct {
	int group;
	const char *number, *canonical;
} numbers[] = {
	{ 0, "-1e1000000000000000000000", "-1e+1000000000000000000000" },
	{ 1, "-1e999999999", "-1e+999999999" },
	{ 2, "-9007199254740993", "-9007199254740993" },
	{ 3, "-9007199254740992", "-9007199254740992" },
	{ 4, "-2", "-2" },
	{ 5, "-1.5", "-1.5" },
	{ 5, "-15e-1", "-1.5" },
	{ 6, "-1e-1000000000000000000000", "-1e-1000000000000000000000" },
	{ 7, "0", "0" },
	{ 7, "-0", "0" },
	{ 7, "0.0", "0" },
	{ 7, "-0e999999999999999999999999999", "0" },
	{ 8, "1e-1000000000000000000000", "1e-1000000000000000000000" },
	{ 9, "1e-999999999999999999999", "1e-999999999999999999999" },
	{ 9, "0.01e-999999999999999999997", "1e-999999999999999999999" },
	{ 10, "5e-324", "5e-324" },
	{ 11, "0.0000001", "1e-7" },
	{ 11, "1e-7", "1e-7" },
	{ 12, "0.00000123", "0.00000123" },
	{ 13, "0.1", "0.1" },
	{ 13, "100000e-6", "0.1" },
	{ 14, "1", "1" },
	{ 14, "1.0", "1" },
	{ 14, "1e0", "1" },
	{ 14, "1E-0", "1" },
	{ 14, "10e-1", "1" },
	{ 14, "0.001e+3", "1" },
	{ 15, "1.0000000000000000000000000000001", "1.0000000000000000000000000000001" },
	{ 16, "100", "100" },
	{ 16, "1e2", "100" },
	{ 17, "9007199254740992", "9007199254740992" },
	{ 18, "9007199254740993", "9007199254740993" },
	{ 18, "9.007199254740993e15", "9007199254740993" },
	{ 19, "100000000000000000000", "100000000000000000000" },
	{ 19, "1e20", "100000000000000000000" },
	{ 20, "123456789012345678901", "123456789012345678901" },
	{ 21, "1e21", "1e+21" },
	{ 21, "1000000000000000000000", "1e+21" },
	{ 22, "1234567890123456789012", "1.234567890123456789012e+21" },
	{ 23, "1e999999999", "1e+999999999" },
	{ 23, "1000e999999996", "1e+999999999" },
	{ 24, "1e999999999999999998", "1e+999999999999999998" },
	{ 24, "0.1e999999999999999999", "1e+999999999999999998" },
	{ 24, "0.00001e1000000000000000003", "1e+999999999999999998" },
	{ 25, "1e999999999999999999", "1e+999999999999999999" },
	{ 25, "10e999999999999999998", "1e+999999999999999999" },
	{ 25, "0.1e1000000000000000000", "1e+999999999999999999" },
	{ 26, "1e1000000000000000000", "1e+1000000000000000000" },
	{ 26, "1000000e999999999999999994", "1e+1000000000000000000" },
	{ 27, "1e99999999999999999999", "1e+99999999999999999999" },
	{ 28, "1e100000000000000000000", "1e+100000000000000000000" },
	{ 28, "10e+00099999999999999999999", "1e+100000000000000000000" },
	{ 29, "2e100000000000000000000", "2e+100000000000000000000" },
};

HF_TEST(json, numbers_compare_by_exact_value)
{
	for (size_t i = 0; i < countof(numbers); i++) {
		for (size_t j = 0; j < countof(numbers); j++) {
			int order = json_number_compare(slice_of(numbers[i].number),
							slice_of(numbers[j].number));
			int wanted = numbers[i].group - numbers[j].group;
			cr_expect_eq((order > 0) - (order < 0), (wanted > 0) - (wanted < 0),
				     "%s and %s: %d", numbers[i].number, numbers[j].number, order);
		}
	}
}

HF_TEST(json, equal_numbers_have_one_canonical_spelling)
{
	for (size_t i = 0; i < countof(numbers); i++) {
		hf_cleanup(buf) struct buf out = {};
		cr_assert_eq(json_scan(slice_of(numbers[i].number), nullptr), HF_OK);
		json_number_canonical(slice_of(numbers[i].number), &out);
		cr_expect_str_eq(out.data, numbers[i].canonical);
	}
}

HF_TEST(json, the_longest_number_is_exact)
{
	hf_cleanup(buf) struct buf nines = {}, rounded = {}, out = {};
	buf_add_text(&nines, "1e");
	add_times(&nines, "9", JSON_NUMBER_LEN_MAX - 2);
	buf_add_text(&rounded, "0.1e1");
	add_times(&rounded, "0", JSON_NUMBER_LEN_MAX - 5);
	cr_expect_eq(json_scan(buf_slice(&nines), nullptr), HF_OK);
	cr_expect_gt(json_number_compare(buf_slice(&nines), buf_slice(&rounded)), 0);
	json_number_canonical(buf_slice(&nines), &out);
	cr_expect_eq(out.len, JSON_NUMBER_LEN_MAX + 1);
	buf_clear(&nines);
	add_times(&nines, "9", 18);
	buf_add_text(&nines, ".");
	add_times(&nines, "9", JSON_NUMBER_LEN_MAX - 19);
	buf_clear(&out);
	json_number_canonical(buf_slice(&nines), &out);
	cr_expect(slice_equal(buf_slice(&out), buf_slice(&nines)));
}

HF_TEST(json, the_canonical_form_ignores_order_space_and_spelling)
{
	static const struct {
		const char *text, *wanted;
	} rows[] = {
		{ " null ", "null" },
		{ "[ ]", "[]" },
		{ "{ }", "{}" },
		{ "{\"b\" : 1.0,\n\"a\" : [ 1e0 , true ]}", "{\"a\":[1,true],\"b\":1}" },
		{ "{\"\\u0062\":\"\\u0061\\/\",\"a\":{\"d\":0,\"c\":-0}}",
		  "{\"a\":{\"c\":0,\"d\":0},\"b\":\"a/\"}" },
		{ "{\"aa\":1,\"a\":2,\"\":3,\"B\":4}", "{\"\":3,\"B\":4,\"a\":2,\"aa\":1}" },
		{ "[3,1,2]", "[3,1,2]" },
		/* the order of RFC 8785's example: by UTF-16 code units */
		{ "{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,"
		  "\"\\u0080\":6,\"\\u00f6\":7}",
		  "{\"\\r\":2,\"1\":4,\"\xc2\x80\":6,\"\xc3\xb6\":7,\"\xe2\x82\xac\":1,"
		  "\"\xf0\x9f\x98\x80\":5,\"\xef\xac\xb3\":3}" },
		{ "{\"\\ud7ff\":1,\"\\ue000\":2,\"\\udbff\\udfff\":3,\"\\ud800\\udc00\":4}",
		  "{\"\xed\x9f\xbf\":1,\"\xf0\x90\x80\x80\":4,\"\xf4\x8f\xbf\xbf\":3,"
		  "\"\xee\x80\x80\":2}" },
		{ "[\"\\u000F\\u000a\\u20ac\\u005c\\u0022\\/\"]",
		  "[\"\\u000f\\n\xe2\x82\xac\\\\\\\"/\"]" },
		{ "[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]",
		  "[333333333.33333329,1e+30,4.5,0.002,1e-27]" },
		{ "{\"effect_id\":\"e\",\"z\":{\"effect_id\":1},\"a\":[{\"effect_id\":2}]}",
		  "{\"a\":[{\"effect_id\":2}],\"z\":{\"effect_id\":1}}" },
		{ "{\"effect\\u005fid\":\"e\"}", "{}" },
		{ "{\"a\":1,\"effect_id\":\"e\",\"b\":{}}", "{\"a\":1,\"b\":{}}" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf out = {};
		cr_assert_eq(json_scan(slice_of(rows[i].text), nullptr), HF_OK);
		json_canonical(slice_of(rows[i].text), "effect_id", &out);
		cr_expect_str_eq(out.data, rows[i].wanted);
	}
}

HF_TEST(json, what_differs_in_value_differs_in_canonical_form)
{
	static const char *const rows[] = {
		"{\"n\":9007199254740992}",
		"{\"n\":9007199254740993}",
		"{\"n\":\"1\"}",
		"{\"n\":1}",
		"{\"n\":null}",
		"{}",
		"{\"n\":[1,2]}",
		"{\"n\":[2,1]}",
		"{\"n\":\"e\xcc\x81\"}",
		"{\"n\":\"\xc3\xa9\"}",
		"{\"N\":1}",
		"[{\"n\":1}]",
		"{\"n\":1e400}",
		"{\"n\":1e401}",
	};
	struct buf forms[countof(rows)] = {};
	for (size_t i = 0; i < countof(rows); i++) {
		json_canonical(slice_of(rows[i]), nullptr, &forms[i]);
		for (size_t j = 0; j < i; j++)
			cr_expect_not(slice_equal(buf_slice(&forms[i]), buf_slice(&forms[j])),
				      "%s and %s", rows[i], rows[j]);
	}
	for (size_t i = 0; i < countof(rows); i++)
		buf_deinit(&forms[i]);
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Four MiB in the shapes that hurt: many members, one prefix, deep nests, many short numbers. */
static void big_text(size_t shape, struct buf *text)
{
	static const char *const opens[] = { "{", "{", "[", "{", "{" };
	static const char *const closes[] = { "}", "}", "]", "}", "}" };
	size_t depth = shape == 3 ? JSON_DEPTH_MAX - 1 : 0;
	add_times(text, "{\"z\":0,\"a\":", depth);
	buf_add_text(text, opens[shape]);
	for (unsigned i = 0; text->len < (4 << 20) - 200; i++) {
		unsigned mixed = i * 2654435761u;
		if (i > 0)
			buf_add_byte(text, ',');
		if (shape == 2)
			buf_add_text(text, i % 2 ? "1" : "0.5");
		else if (shape == 1)
			buf_add_format(text, "\"%0100u\":1", mixed);
		else if (shape == 4)
			buf_add_format(text, "\"\\u0061%x\":\"\\n\"", mixed);
		else
			buf_add_format(text, "\"%x\":1", mixed);
	}
	buf_add_text(text, closes[shape]);
	add_times(text, "}", depth);
}

HF_TEST(json, four_mebibytes_in_bad_shapes_stay_quick)
{
	for (size_t shape = 0; shape < 5; shape++) {
		hf_cleanup(buf) struct buf text = {}, out = {};
		big_text(shape, &text);
		double start = seconds();
		cr_expect_eq(json_scan(buf_slice(&text), nullptr), HF_OK);
		double scanned = seconds();
		json_canonical(buf_slice(&text), nullptr, &out);
		double done = seconds();
		if (getenv("HOLDFAST_TIMES"))
			fprintf(stderr, "shape %zu: scan %.3f s, canonical %.3f s\n", shape,
				scanned - start, done - scanned);
		cr_expect_lt(scanned - start, 2.0, "shape %zu", shape);
		cr_expect_lt(done - scanned, 2.0, "shape %zu", shape);
	}
}

/* A small generator of our own: the same bytes on every machine. */
static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static void exercise(struct slice text)
{
	hf_cleanup(buf) struct buf first = {}, second = {};
	json_canonical(text, "a", &first);
	buf_clear(&first);
	json_canonical(text, nullptr, &first);
	cr_assert_eq(json_scan(buf_slice(&first), nullptr), HF_OK, "%s", first.data);
	json_canonical(buf_slice(&first), nullptr, &second);
	cr_assert(slice_equal(buf_slice(&first), buf_slice(&second)), "%s", first.data);
	struct slice value;
	(void)json_pointer(text, slice_of("/a/0"), &value);
	(void)json_member(text, "a", &value);
	free(json_string_dup(json_trim(text)));
}

HF_TEST(json, random_texts_break_nothing)
{
	static const char *const pieces[] = {
		"{",       "}",      "[",           "]",        "\"",      ",",
		":",       "\"a\"",  "\"\\u0061\"", "1",        "-0",      "0.5",
		"e9",      "true",   "null",        "\\",       "\\u",     "\"\\ud800\\udc00\"",
		" ",       "\n",     "\x80",        "\xe2\x82", "{\"a\":", "[[",
		"1e-9999", "\"b\":", "]}",
	};
	uint64_t state = 42;
	size_t good = 0;
	for (size_t round = 0; round < 200'000; round++) {
		hf_cleanup(buf) struct buf text = {};
		size_t count = next_random(&state) % 9;
		for (size_t i = 0; i < count; i++)
			buf_add_text(&text, pieces[next_random(&state) % countof(pieces)]);
		if (round % 4 == 0)
			buf_add_byte(&text, (char)next_random(&state));
		if (json_scan(buf_slice(&text), nullptr) == HF_OK) {
			exercise(buf_slice(&text));
			good++;
		}
	}
	cr_expect_gt(good, 1000);
}

HF_TEST(json, a_text_with_one_byte_changed_breaks_nothing)
{
	static const char seed[] = "{\"a\":[1.50e1,{\"b\":\"\\ud83d\\ude00\\n\xc3\xa9\"},-0],"
				   "\"\\u0063\":{\"d\":null,\"a\":true},\"e\":[[],{}]}";
	for (size_t at = 0; at < sizeof seed - 1; at++) {
		for (unsigned byte = 0; byte < 256; byte++) {
			char text[sizeof seed];
			memcpy(text, seed, sizeof seed);
			text[at] = (char)byte;
			struct slice changed = { text, sizeof seed - 1 };
			if (json_scan(changed, nullptr) == HF_OK)
				exercise(changed);
		}
	}
}
