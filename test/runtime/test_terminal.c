#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/terminal.h"
#include "test/test.h"

HF_TEST(terminal, hostile_text_cannot_steer_the_terminal)
{
	static const char *const rows[][2] = {
		{ "plain\n\ttext", "plain\n\ttext" },
		{ "\x1b]0;title\x07", "?]0;title?" },
		{ "a\rb\x7f", "a?b?" },
		{ "\xc2\x9b[2J", "?[2J" },
		{ "\xff\xe6\x97", "???" },
		{ "zo\xc3\xab \xe6\x97\xa5", "zo\xc3\xab \xe6\x97\xa5" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		char *text = nullptr;
		size_t len = 0;
		FILE *out = open_memstream(&text, &len);
		print_clean(out, slice_of(rows[i][0]));
		fclose(out);
		cr_expect_str_eq(text, rows[i][1], "row %zu", i);
		free(text);
	}
}

HF_TEST(terminal, a_cut_counts_characters_and_stays_on_one_line)
{
	static const struct {
		const char *text;
		size_t columns;
		const char *shown;
	} rows[] = {
		{ "abc", 3, "abc" },
		{ "abcd", 3, "abc\u2026" },
		{ "", 0, "" },
		{ "a", 0, "\u2026" },
		{ "\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5", 2, "\xe6\x97\xa5\xe6\x97\xa5\u2026" },
		{ "a\nb\tc\x1b", 9, "a b c?" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		char *text = nullptr;
		size_t len = 0;
		FILE *out = open_memstream(&text, &len);
		print_cut(out, slice_of(rows[i].text), rows[i].columns);
		fclose(out);
		cr_expect_str_eq(text, rows[i].shown, "row %zu", i);
		free(text);
	}
}

HF_TEST(terminal, spans_have_a_unit_that_fits)
{
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {
		{ 0, "0 ms" },
		{ -5, "-5 ms" },
		{ 999, "999 ms" },
		{ 1'000, "1.000 s" },
		{ 59'999, "59.999 s" },
		{ 60'000, "1 min 00 s" },
		{ 3'599'999, "59 min 59 s" },
		{ 3'600'000, "1 h 00 min" },
		{ -175'997, "-2 min 55 s" },
		{ INT64_MIN, "-2562047788015 h 12 min" },
		{ INT64_MAX, "2562047788015 h 12 min" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		char text[SPAN_TEXT_LEN_MAX + 1];
		cr_expect_str_eq(span_format(rows[i].ms, text), rows[i].text);
	}
}
