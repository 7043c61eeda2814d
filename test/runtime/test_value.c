/* test_value.c - JSON to msgpack and back: what must come back the same, what must be refused, and
 * random bytes as a hostile tool would send them. */
#include "runtime/value.h"

#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "test/test.h"

#define TEXT(literal) { literal, sizeof(literal) - 1 }

static const struct {
	const char *json;
	struct slice msgpack;
	const char *back; /* nullptr: as `json` */
} pairs[] = {
	{ "null", TEXT("\xc0"), nullptr },
	{ " true ", TEXT("\xc3"), "true" },
	{ "false", TEXT("\xc2"), nullptr },
	{ "0", TEXT("\x00"), nullptr },
	{ "-0", TEXT("\x00"), "0" },
	{ "127", TEXT("\x7f"), nullptr },
	{ "128", TEXT("\xcc\x80"), nullptr },
	{ "65536", TEXT("\xce\x00\x01\x00\x00"), nullptr },
	{ "-1", TEXT("\xff"), nullptr },
	{ "-33", TEXT("\xd0\xdf"), nullptr },
	{ "1.0", TEXT("\x01"), "1" },
	{ "1e2", TEXT("\x64"), "100" },
	{ "9007199254740993", TEXT("\xcf\x00\x20\x00\x00\x00\x00\x00\x01"), nullptr },
	{ "18446744073709551615", TEXT("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), nullptr },
	{ "-9223372036854775808", TEXT("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), nullptr },
	{ "18446744073709551616",
	  TEXT("\xc7\x14\x01"
	       "18446744073709551616"),
	  nullptr },
	{ "-9223372036854775809",
	  TEXT("\xc7\x14\x01"
	       "-9223372036854775809"),
	  nullptr },
	{ "0.5", TEXT("\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"), nullptr },
	{ "-5e-1", TEXT("\xcb\xbf\xe0\x00\x00\x00\x00\x00\x00"), "-0.5" },
	{ "0.1000000000000000", TEXT("\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a"), "0.1" },
	{ "1.2345678901234567",
	  TEXT("\xc7\x12\x01"
	       "1.2345678901234567"),
	  nullptr },
	{ "1e400",
	  TEXT("\xc7\x05\x01"
	       "1e400"),
	  nullptr },
	{ "1E-9", TEXT("\xcb\x3e\x11\x2e\x0b\xe8\x26\xd6\x95"), "1e-9" },
	{ "\"\"", TEXT("\xa0"), nullptr },
	{ "\"\\u00e9\\n\"", TEXT("\xa3\xc3\xa9\n"), "\"\xc3\xa9\\n\"" },
	{ "[ ]", TEXT("\x90"), "[]" },
	{ "{\"b\":[1,{}],\"a\":\"x\"}",
	  TEXT("\x82\xa1"
	       "b\x92\x01\x80\xa1"
	       "a\xa1x"),
	  nullptr },
	{ "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14]",
	  TEXT("\x9f\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e"), nullptr },
	{ "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]",
	  TEXT("\xdc\x00\x10\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"),
	  nullptr },
};

HF_TEST(value, json_becomes_msgpack_and_comes_back)
{
	for (size_t i = 0; i < countof(pairs); i++) {
		hf_cleanup(buf) struct buf packed = {}, json = {};
		struct hf_err err = {};
		value_from_json(slice_of(pairs[i].json), &packed);
		cr_expect(slice_equal(buf_slice(&packed), pairs[i].msgpack), "%s", pairs[i].json);
		enum hf_code code = value_to_json(buf_slice(&packed), &json, &err);
		cr_assert_eq(code, HF_OK, "%s: %s", pairs[i].json, err.text);
		cr_expect_str_eq(json.data, pairs[i].back ? pairs[i].back : pairs[i].json);
	}
}

HF_TEST(value, other_forms_of_msgpack_are_read)
{
	static const struct {
		struct slice msgpack;
		const char *json;
	} rows[] = {
		{ TEXT("\xcd\x00\x01"), "1" },
		{ TEXT("\xd1\xff\xff"), "-1" },
		{ TEXT("\xa1\xff"), "\"\xef\xbf\xbd\"" },
		{ TEXT("\xa2\xc3\x28"), "\"\xef\xbf\xbd(\"" },
		{ TEXT("\x81\xa2\xffk\x01"), "{\"\xef\xbf\xbdk\":1}" },
		{ TEXT("\xd2\xff\xff\xff\xfe"), "-2" },
		{ TEXT("\xd3\x00\x00\x00\x00\x00\x00\x00\x05"), "5" },
		{ TEXT("\xca\x3f\xc0\x00\x00"), "1.5" },
		{ TEXT("\xcb\x80\x00\x00\x00\x00\x00\x00\x00"), "0" },
		{ TEXT("\xcb\x40\x59\x00\x00\x00\x00\x00\x00"), "100" },
		{ TEXT("\xcb\x00\x00\x00\x00\x00\x00\x00\x01"), "5e-324" },
		{ TEXT("\xcb\x7f\xef\xff\xff\xff\xff\xff\xff"), "1.7976931348623157e+308" },
		{ TEXT("\xcb\x3f\xd5\x55\x55\x55\x55\x55\x55"), "0.3333333333333333" },
		{ TEXT("\xd9\x01x"), "\"x\"" },
		{ TEXT("\xda\x00\x01x"), "\"x\"" },
		{ TEXT("\xdb\x00\x00\x00\x01x"), "\"x\"" },
		{ TEXT("\xdd\x00\x00\x00\x01\xc0"), "[null]" },
		{ TEXT("\xde\x00\x01\xa0\xc0"), "{\"\":null}" },
		{ TEXT("\xdf\x00\x00\x00\x01\xd9\x01k\x90"), "{\"k\":[]}" },
		{ TEXT("\xd4\x01"
		       "7"),
		  "7" },
		{ TEXT("\xd5\x01"
		       "-7"),
		  "-7" },
		{ TEXT("\xc8\x00\x03\x01"
		       "1.5"),
		  "1.5" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf json = {};
		struct hf_err err = {};
		cr_assert_eq(value_to_json(rows[i].msgpack, &json, &err), HF_OK, "row %zu: %s", i,
			     err.text);
		cr_expect_str_eq(json.data, rows[i].json);
	}
}

HF_TEST(value, what_has_no_json_form_is_corrupt)
{
	static const struct slice rows[] = {
		TEXT(""),
		TEXT("\xc1"),
		TEXT("\xc0\xc0"),  /* two values */
		TEXT("\xc4\x01x"), /* bin */
		TEXT("\xc5\x00\x01x"),
		TEXT("\xc6\x00\x00\x00\x01x"),
		TEXT("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"), /* NaN */
		TEXT("\xcb\xff\xf0\x00\x00\x00\x00\x00\x00"),
		TEXT("\x82\xa1\xfe\x01\xa1\xff\x01"), /* the same replaced key twice */
		TEXT("\xca\x7f\x80\x00\x00"),
		TEXT("\xa1\x00"),     /* NUL */
		TEXT("\x81\x01\x01"), /* keys that are no strings */
		TEXT("\x81\xc0\x01"),
		TEXT("\x81\x80\x01"),
		TEXT("\x81\x91\xa1k\x01"),
		TEXT("\x82\xa1k\x01\xa1k\x02"), /* equal keys */
		TEXT("\x82\xa1k\x01\xd9\x01k\x02"),
		TEXT("\xd4\x01x"), /* extensions */
		TEXT("\xd5\x01 7"),
		TEXT("\xd5\x01[]"),
		TEXT("\xd5\x01"
		     "07"),
		TEXT("\xd4\x02"
		     "7"),
		TEXT("\xd6\xff\x00\x00\x00\x00"), /* a time stamp */
		TEXT("\xc7\x00\x01"),
		TEXT("\xdd\xff\xff\xff\xff"), /* lengths that are not there */
		TEXT("\xdf\xff\xff\xff\xff"),
		TEXT("\xdb\xff\xff\xff\xffx"),
		TEXT("\xc9\xff\xff\xff\xff\x01x"),
		TEXT("\xdd\x00\x00\x00"),
		TEXT("\xcf\x00"),
		TEXT("\xa5"
		     "abc"),
		TEXT("\x92\x01"),
		TEXT("\x81\xa1k"),
	};
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf json = {};
		struct hf_err err = {};
		cr_expect_eq(value_to_json(rows[i], &json, &err), HF_CORRUPT, "row %zu", i);
		cr_expect(strncmp(err.text, "msgpack", 7) == 0, "row %zu: %s", i, err.text);
	}
}

HF_TEST(value, the_depth_limit_of_json_holds_both_ways)
{
	for (size_t depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
		hf_cleanup(buf) struct buf packed = {}, json = {};
		for (size_t i = 0; i < depth; i++)
			buf_add_text(&packed, i % 2 ? "\x91" : "\x81\xa1k");
		buf_add_byte(&packed, 1);
		cr_expect_eq(value_to_json(buf_slice(&packed), &json, nullptr),
			     depth > JSON_DEPTH_MAX ? HF_CORRUPT : HF_OK);
		if (depth > JSON_DEPTH_MAX)
			continue;
		hf_cleanup(buf) struct buf again = {};
		value_from_json(buf_slice(&json), &again);
		cr_expect(slice_equal(buf_slice(&again), buf_slice(&packed)));
	}
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

HF_TEST(value, every_double_comes_back)
{
	uint64_t state = 7;
	for (size_t round = 0; round < 20'000; round++) {
		uint64_t bits = (uint64_t)next_random(&state) << 33 ^ next_random(&state);
		double number, again;
		memcpy(&number, &bits, sizeof number);
		if (!(number - number == 0))
			continue;
		char packed[9] = { '\xcb' };
		for (size_t i = 0; i < 8; i++)
			packed[1 + i] = (char)(bits >> (56 - 8 * i));
		hf_cleanup(buf) struct buf json = {};
		cr_assert_eq(value_to_json((struct slice){ packed, 9 }, &json, nullptr), HF_OK);
		again = strtod(json.data, nullptr);
		cr_assert(again == number, "%s", json.data);
	}
}

HF_TEST(value, sizes_at_the_edges_of_headers_come_back)
{
	static const size_t counts[] = { 15, 16, 31, 32, 255, 256, 65'535, 65'536 };
	for (size_t i = 0; i < countof(counts); i++) {
		hf_cleanup(buf) struct buf text = {}, packed = {}, json = {};
		buf_add_text(&text, "{\"s\":\"");
		for (size_t n = 0; n < counts[i]; n++)
			buf_add_byte(&text, 'x');
		buf_add_text(&text, "\",\"a\":[");
		for (size_t n = 0; n < counts[i]; n++)
			buf_add_text(&text, n ? ",1" : "1");
		buf_add_text(&text, "],\"m\":{");
		for (size_t n = 0; n < counts[i]; n++)
			buf_add_format(&text, "%s\"%zu\":[]", n ? "," : "", n);
		buf_add_text(&text, "}}");
		value_from_json(buf_slice(&text), &packed);
		cr_assert_eq(value_to_json(buf_slice(&packed), &json, nullptr), HF_OK);
		cr_expect(slice_equal(buf_slice(&json), buf_slice(&text)), "%zu", counts[i]);
	}
}

HF_TEST(value, random_msgpack_breaks_nothing)
{
	uint64_t state = 1;
	size_t good = 0;
	for (size_t round = 0; round < 300'000; round++) {
		char bytes[24];
		size_t len = next_random(&state) % sizeof bytes;
		for (size_t i = 0; i < len; i++) {
			uint32_t random = next_random(&state);
			/* Small containers and strings often, so that some are well-formed. */
			bytes[i] = (char)(random % 3 ? random >> 8 : 0x80 + (random >> 8) % 36);
		}
		hf_cleanup(buf) struct buf json = {};
		if (value_to_json((struct slice){ bytes, len }, &json, nullptr) != HF_OK)
			continue;
		good++;
		hf_cleanup(buf) struct buf packed = {}, again = {};
		cr_assert_eq(json_scan(buf_slice(&json), nullptr), HF_OK);
		value_from_json(buf_slice(&json), &packed);
		cr_assert_eq(value_to_json(buf_slice(&packed), &again, nullptr), HF_OK);
		cr_assert(slice_equal(buf_slice(&json), buf_slice(&again)), "%s", json.data);
	}
	cr_expect_gt(good, 1000);
}
