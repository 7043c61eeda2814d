/* json_inner.h - what the json_*.c, value.c and template.c share and nobody else needs: moving over
 * scanned text token by token, and numbers taken apart. Positions never pass the end of the text;
 * text that was not scanned ends in a failed assertion, not beyond the buffer. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/json.h"
#include "runtime/slice.h"

/* The first position at or after `at` that is no white space; may be text.len. */
size_t json_space_end(struct slice text, size_t at);
/* Where the string that starts at `at` ends, with its quotes. */
size_t json_string_end(struct slice text, size_t at);
/* Where the whole value that starts at `at` ends. */
size_t json_value_end(struct slice text, size_t at);

/* Four hexadecimal digits at `at`, or -1. */
long json_hex4(struct slice text, size_t at);
/* The unescaped content of a string: a part of `string` itself where it has no escape, otherwise
 * appended to `scratch` (valid until that moves or is cleared). */
struct slice json_string_view(struct slice string, struct buf *scratch);

/* A number: 0.DIGITS x 10^point. `digits` has no zero at either end; zero has no digits, no sign
 * and point 0. An exponent beyond int64_t stands as decimal text in `far`, without leading zeros.
 * About 2 kB: never zeroed as a whole. */
struct decimal {
	bool negative;
	bool far_negative;
	size_t count;   /* of digits */
	size_t far_len; /* 0: `point` holds */
	int64_t point;
	char digits[JSON_NUMBER_LEN_MAX];
	char far[JSON_NUMBER_LEN_MAX + 8];
};

void decimal_parse(struct decimal *decimal, struct slice number);
/* True where there is nothing behind the decimal point. */
bool decimal_whole(const struct decimal *decimal);
/* The magnitude of a whole number; false where it is over UINT64_MAX or not whole. */
bool decimal_magnitude(const struct decimal *decimal, uint64_t *out);
