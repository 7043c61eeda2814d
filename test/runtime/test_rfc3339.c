/* Dates as RFC 3339 spells them, and those that it does not. */
#include "runtime/rfc3339.h"

#include "runtime/base.h"
#include "test/test.h"

HF_TEST(rfc3339, every_spelling_of_a_time_is_read)
{
	static const struct {
		const char *text;
		int64_t ms;
	} times[] = {
		{ "1970-01-01T00:00:00Z", 0 },
		{ "2015-09-01T12:30:00Z", 1'441'110'600'000 },
		{ "2015-09-01t12:30:00.5z", 1'441'110'600'500 },
		{ "2015-09-01 12:30:00.123456789Z", 1'441'110'600'123 },
		{ "2015-09-01T14:30:00+02:00", 1'441'110'600'000 },
		{ "2015-09-01T04:00:00-08:30", 1'441'110'600'000 },
		{ "2016-02-29T00:00:00Z", 1'456'704'000'000 },
		{ "2016-12-31T23:59:60Z", 1'483'228'800'000 },
		{ "1969-12-31T23:59:59.999Z", -1 },
	};
	for (size_t i = 0; i < countof(times); i++) {
		int64_t ms = 7;
		cr_expect(rfc3339_parse(slice_of(times[i].text), &ms), "%s", times[i].text);
		cr_expect_eq(ms, times[i].ms, "%s: %lld", times[i].text, (long long)ms);
	}
}

HF_TEST(rfc3339, everything_else_is_refused)
{
	static const char *const texts[] = { "",
					     "tomorrow",
					     "2015-09-01",
					     "2015-09-01T12:30:00",
					     "2015-09-01T12:30Z",
					     "2015-9-1T12:30:00Z",
					     "2015-13-01T12:30:00Z",
					     "2015-00-01T12:30:00Z",
					     "2015-02-29T12:30:00Z",
					     "1900-02-29T12:30:00Z",
					     "2015-09-31T12:30:00Z",
					     "2015-09-01T24:00:00Z",
					     "2015-09-01T12:60:00Z",
					     "2015-09-01T12:30:61Z",
					     "2015-09-01T12:30:00.Z",
					     "2015-09-01T12:30:00+0200",
					     "2015-09-01T12:30:00+24:00",
					     "2015-09-01T12:30:00+02:60",
					     "2015-09-01T12:30:00ZZ",
					     " 2015-09-01T12:30:00Z",
					     "2015-09-01T12:30:00.5",
					     "-015-09-01T12:30:00Z",
					     "2015-09-01T12:30:-1Z",
					     "1441110600000" };
	for (size_t i = 0; i < countof(texts); i++) {
		int64_t ms;
		cr_expect_not(rfc3339_parse(slice_of(texts[i]), &ms), "\"%s\" was read", texts[i]);
	}
}

HF_TEST(rfc3339, a_time_is_written_as_it_is_read)
{
	static const char *const texts[] = { "2015-09-01T12:30:00.000Z", "1969-12-31T23:59:59.999Z",
					     "9999-12-31T23:59:59.001Z" };
	for (size_t i = 0; i < countof(texts); i++) {
		int64_t ms;
		char text[RFC3339_TEXT_LEN + 1];
		cr_assert(rfc3339_parse(slice_of(texts[i]), &ms));
		rfc3339_format(ms, text);
		cr_expect_str_eq(text, texts[i]);
	}
}
