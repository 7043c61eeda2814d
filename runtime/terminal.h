/* terminal.h - what a command prints for a person: text of others without control characters,
 * spans of time, and a progress bar on a terminal's stderr. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "runtime/slice.h"

/* Control characters but line feed and tab become '?', and so do bytes that are no
 * UTF-8: nobody's text moves the cursor or sets the title. */
void print_clean(FILE *out, struct slice text);
/* The same on one line (line feeds and tabs become spaces), at most `columns` characters; what
 * was cut ends in "…". */
void print_cut(FILE *out, struct slice text, size_t columns);
/* JSON on one line: line feeds, which can only stand between its tokens, become spaces. */
void print_json_line(FILE *out, struct slice json);

/* "12 ms", "3.120 s", "2 min 05 s", "3 h 07 min", before a time "-2 min 05 s"; `text` has room for
 * SPAN_TEXT_LEN_MAX + 1. */
constexpr size_t SPAN_TEXT_LEN_MAX = 31;
char *span_format(int64_t ms, char *text);

/* Draws over its own last line where stderr is a terminal. Elsewhere a line is written whenever
 * the text has changed. `fraction` is 0…1, or negative: not known. */
struct bar {
	bool drawn;
	bool terminal;
	int turn;
	char last[256]; /* text that was written last, cut */
};
void bar_init(struct bar *bar);
void bar_draw(struct bar *bar, double fraction, struct slice text);
/* Takes the line away, so that other text may follow. */
void bar_clear(struct bar *bar);
