/* text.c - byte by byte, since what comes may be anything. */
#include "worker/text.h"

#include "runtime/base.h"

static const char CUT[] = "…";

static bool is_space(char byte)
{
	return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

struct slice text_trim(struct slice text)
{
	for (; text.len && is_space(*text.data); text.data++)
		text.len--;
	while (text.len && is_space(text.data[text.len - 1]))
		text.len--;
	return text;
}

/* Length of the well-formed character at `at`, or 0. */
static size_t character_len(const unsigned char *at, size_t left)
{
	if (at[0] < 0x80)
		return 1;
	size_t len = at[0] >= 0xF0 ? 4 : at[0] >= 0xE0 ? 3 : 2;
	if (at[0] < 0xC2 || at[0] > 0xF4 || len > left)
		return 0;
	/* The first continuation byte is what keeps overlong forms, surrogates and the end out. */
	unsigned char low = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
	unsigned char high = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
	if (at[1] < low || at[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((at[i] & 0xC0) != 0x80)
			return 0;
	return len;
}

static bool is_control(unsigned char byte)
{
	return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
}

void text_clean(struct slice text, size_t len_max, struct buf *out)
{
	hf_assert(len_max >= sizeof CUT);
	const unsigned char *bytes = (const unsigned char *)text.data;
	/* What comes out is as long as what goes in, so it is known beforehand whether to cut. */
	bool cut = text.len > len_max;
	size_t room = cut ? len_max - (sizeof CUT - 1) : len_max;
	for (size_t i = 0; i < text.len;) {
		size_t len = character_len(bytes + i, text.len - i);
		bool bad = len == 0 || (len == 1 && is_control(bytes[i]));
		if (i + (bad ? 1 : len) > room)
			break;
		if (bad)
			buf_add_byte(out, '?');
		else
			buf_add(out, bytes + i, len);
		i += bad ? 1 : len;
	}
	if (cut)
		buf_add_text(out, CUT);
}
