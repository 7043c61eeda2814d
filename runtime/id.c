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
static const char base64url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static_assert(TASK_ID_TEXT_LEN == sizeof task_id_prefix - 1 + TASK_ID_BYTES / 3 * 4);
static_assert(TASK_ID_BYTES % 3 == 0);

char *task_id_format(const struct task_id *id, char *text)
{
	hf_assert(id);
	hf_assert(text);
	char *out = text;
	memcpy(out, task_id_prefix, sizeof task_id_prefix - 1);
	out += sizeof task_id_prefix - 1;
	for (size_t i = 0; i < TASK_ID_BYTES; i += 3) {
		unsigned bits = (unsigned)id->bytes[i] << 16 | (unsigned)id->bytes[i + 1] << 8 |
				id->bytes[i + 2];
		for (int shift = 18; shift >= 0; shift -= 6)
			*out++ = base64url[bits >> shift & 63];
	}
	*out = '\0';
	return text;
}

/* -1: not of the alphabet. */
static int base64url_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '-')
		return 62;
	return c == '_' ? 63 : -1;
}

bool task_id_parse(struct slice text, struct task_id *id)
{
	hf_assert(id);
	if (text.len != TASK_ID_TEXT_LEN ||
	    memcmp(text.data, task_id_prefix, sizeof task_id_prefix - 1) != 0)
		return false;
	struct task_id read = {};
	const char *at = text.data + sizeof task_id_prefix - 1;
	for (size_t i = 0; i < TASK_ID_BYTES; i += 3) {
		unsigned bits = 0;
		for (int n = 0; n < 4; n++) {
			int value = base64url_value(*at++);
			if (value < 0)
				return false;
			bits = bits << 6 | (unsigned)value;
		}
		read.bytes[i] = (unsigned char)(bits >> 16);
		read.bytes[i + 1] = (unsigned char)(bits >> 8 & 255);
		read.bytes[i + 2] = (unsigned char)(bits & 255);
	}
	if (read.bytes[0] != TASK_ID_VERSION)
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
