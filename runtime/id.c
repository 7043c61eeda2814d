/* id.c - the text forms of task IDs and random names. 24 bytes are exactly 32 characters of
 * base64url, so every text has one reading and every ID one text; parsing needs no second look. */
#include "runtime/id.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/random.h"

constexpr unsigned char TASK_ID_VERSION = 1;
constexpr size_t TASK_ID_MS_AT = 2; /* after version and cluster */
constexpr size_t TASK_ID_MS_BYTES = 6;
constexpr int64_t WEEK_MS = 7LL * 24 * 60 * 60 * 1000;

static const char task_id_prefix[] = "tsk_";
static constexpr char BASE64URL[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static_assert(TASK_ID_TEXT_LEN == sizeof task_id_prefix - 1 + TASK_ID_BYTES / 3 * 4);
static_assert(TASK_ID_BYTES % 3 == 0);

char *base64url_format(const unsigned char *bytes, size_t len, char *text)
{
	hf_assert(bytes || len == 0);
	hf_assert(text);
	char *out = text;
	uint32_t bits = 0;
	unsigned held = 0;
	for (size_t i = 0; i < len; i++) {
		bits = (bits << 8 | bytes[i]) & 0xffff;
		for (held += 8; held >= 6; held -= 6)
			*out++ = BASE64URL[bits >> (held - 6) & 63];
	}
	if (held > 0)
		*out++ = BASE64URL[bits << (6 - held) & 63];
	*out = '\0';
	return text;
}

bool base64url_parse(struct slice text, unsigned char *bytes)
{
	hf_assert(bytes || text.len == 0);
	uint32_t bits = 0;
	unsigned held = 0;
	for (size_t i = 0; i < text.len; i++) {
		const char *at = memchr(BASE64URL, text.data[i], sizeof BASE64URL - 1);
		if (!at)
			return false;
		bits = (bits << 6 | (uint32_t)(at - BASE64URL)) & 0xffff;
		held += 6;
		if (held < 8)
			continue;
		held -= 8;
		*bytes++ = (unsigned char)(bits >> held & 255);
	}
	/* Bits left over that say something would be a second spelling. */
	return held < 6 && (bits & ((1u << held) - 1)) == 0;
}

char *task_id_format(const struct task_id *id, char *text)
{
	hf_assert(id);
	hf_assert(text);
	memcpy(text, task_id_prefix, sizeof task_id_prefix - 1);
	base64url_format(id->bytes, sizeof id->bytes, text + sizeof task_id_prefix - 1);
	return text;
}

bool task_id_parse(struct slice text, struct task_id *id)
{
	hf_assert(id);
	constexpr size_t PREFIX_LEN = sizeof task_id_prefix - 1;
	struct task_id read;
	if (text.len != TASK_ID_TEXT_LEN || memcmp(text.data, task_id_prefix, PREFIX_LEN) != 0 ||
	    !base64url_parse((struct slice){ text.data + PREFIX_LEN, text.len - PREFIX_LEN },
			     read.bytes) ||
	    read.bytes[0] != TASK_ID_VERSION)
		return false;
	*id = read;
	return true;
}

int64_t task_id_ms(const struct task_id *id)
{
	hf_assert(id);
	int64_t ms = 0;
	for (size_t i = 0; i < TASK_ID_MS_BYTES; i++)
		ms = ms << 8 | id->bytes[TASK_ID_MS_AT + i];
	return ms;
}

int32_t task_id_week(const struct task_id *id)
{
	/* 48 bits of ms are at most 465,401 weeks. */
	return (int32_t)(task_id_ms(id) / WEEK_MS);
}

bool task_id_equal(const struct task_id *a, const struct task_id *b)
{
	return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

struct uuid uuid_new(void)
{
	struct uuid uuid;
	random_bytes(uuid.bytes, sizeof uuid.bytes);
	uuid.bytes[6] = (unsigned char)((uuid.bytes[6] & 0x0f) | 0x40);
	uuid.bytes[8] = (unsigned char)((uuid.bytes[8] & 0x3f) | 0x80);
	return uuid;
}

bool uuid_equal(const struct uuid *a, const struct uuid *b)
{
	return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

char *hex_format(const unsigned char *bytes, size_t len, char *text)
{
	static const char digits[] = "0123456789abcdef";
	hf_assert(bytes || len == 0);
	hf_assert(text);
	for (size_t i = 0; i < len; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	text[2 * len] = '\0';
	return text;
}

char *bytea_text(const unsigned char *bytes, size_t len)
{
	char *text = hf_alloc(2 + 2 * len + 1);
	text[0] = '\\';
	text[1] = 'x';
	hex_format(bytes, len, text + 2);
	return text;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool hex_parse(struct slice text, unsigned char *bytes, size_t len)
{
	hf_assert(bytes || len == 0);
	if (text.len % 2 != 0 || text.len / 2 != len)
		return false;
	for (size_t i = 0; i < text.len; i++)
		if (hex_value(text.data[i]) < 0)
			return false;
	for (size_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)(hex_value(text.data[2 * i]) << 4 |
					   hex_value(text.data[2 * i + 1]));
	return true;
}

const char *uuid_format(const struct uuid *uuid, char text[static UUID_TEXT_LEN + 1])
{
	char hex[sizeof uuid->bytes * 2 + 1];
	hex_format(uuid->bytes, sizeof uuid->bytes, hex);
	snprintf(text, UUID_TEXT_LEN + 1, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
		 hex + 16, hex + 20);
	return text;
}
