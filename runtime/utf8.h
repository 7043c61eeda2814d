/* utf8.h - one UTF-8 sequence at a time, strictly: no overlong forms, no surrogates, nothing past
 * U+10FFFF. Inline because the JSON scan runs it over every byte that a client sends. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/slice.h"

/* The length of the sequence that starts at text[0], 1 to 4, with its code point in *code; 0 when
 * there is no well-formed sequence within `len` bytes. */
static inline size_t utf8_next(const char *text, size_t len, uint32_t *code)
{
	const unsigned char *at = (const unsigned char *)text;
	if (len == 0)
		return 0;
	if (at[0] < 0x80) {
		*code = at[0];
		return 1;
	}
	size_t want = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
	if (at[0] < 0xc2 || at[0] > 0xf4 || want > len)
		return 0;
	static const unsigned char lead_bits[] = { 0, 0, 0x1f, 0x0f, 0x07 };
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t value = at[0] & lead_bits[want];
	for (size_t i = 1; i < want; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		value = value << 6 | (at[i] & 0x3f);
	}
	if (value < least[want] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
		return 0;
	*code = value;
	return want;
}

/* What JSON can carry as it is: well-formed throughout, without NUL. */
static inline bool utf8_is_text(struct slice text)
{
	uint32_t code;
	for (size_t at = 0, width; at < text.len; at += width) {
		width = utf8_next(text.data + at, text.len - at, &code);
		if (width == 0 || code == 0)
			return false;
	}
	return true;
}

/* Whether a byte goes on with a character of well-formed text. */
static inline bool utf8_goes_on(char byte)
{
	return ((unsigned char)byte & 0xc0) == 0x80;
}

/* The characters of well-formed text. */
static inline int64_t utf8_count(struct slice text)
{
	int64_t count = 0;
	for (size_t i = 0; i < text.len; i++)
		count += !utf8_goes_on(text.data[i]);
	return count;
}

/* The last place at or before `len`, which lies within the text, where a character ends. */
static inline size_t utf8_cut(const char *text, size_t len)
{
	while (len > 0 && utf8_goes_on(text[len]))
		len--;
	return len;
}

/* Well-formed throughout, and no control character in it. */
static inline bool utf8_is_plain(const char *text, size_t len)
{
	for (size_t at = 0; at < len;) {
		uint32_t code;
		size_t width = utf8_next(text + at, len - at, &code);
		if (width == 0 || code < 0x20 || code == 0x7f)
			return false;
		at += width;
	}
	return true;
}

/* Writes a code point that is a Unicode scalar value; returns its length, 1 to 4. */
static inline size_t utf8_put(uint32_t code, char out[static 4])
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (char)(0xe0 | code >> 12);
		out[1] = (char)(0x80 | (code >> 6 & 0x3f));
		out[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | code >> 18);
	out[1] = (char)(0x80 | (code >> 12 & 0x3f));
	out[2] = (char)(0x80 | (code >> 6 & 0x3f));
	out[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}
