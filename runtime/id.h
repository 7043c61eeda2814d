/* id.h - the names that travel: task IDs, tokens, incarnations, and their text forms. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/slice.h"

/* Version, cluster, 6 bytes of database time in ms (big-endian), 16 random bytes. */
constexpr size_t TASK_ID_BYTES = 24;
constexpr size_t TASK_ID_TEXT_LEN = 36; /* "tsk_" + 32 of base64url */

struct task_id {
	unsigned char bytes[TASK_ID_BYTES];
};

/* A claim's token, a process's incarnation: random, in the form of a UUID of version 4. */
struct uuid {
	unsigned char bytes[16];
};

/* Writes the terminated text; `text` has room for TASK_ID_TEXT_LEN + 1. Returns `text`. */
char *task_id_format(const struct task_id *id, char *text);
/* False unless `text` is exactly one canonical task ID of version 1. `id` is untouched then. */
[[nodiscard]] bool task_id_parse(struct slice text, struct task_id *id);
int64_t task_id_ms(const struct task_id *id);
/* Whole weeks since 1970 of its time: the partition that holds it. */
int32_t task_id_week(const struct task_id *id);
bool task_id_equal(const struct task_id *a, const struct task_id *b);

struct uuid uuid_new(void);
bool uuid_equal(const struct uuid *a, const struct uuid *b);
/* As Postgres spells it. */
constexpr size_t UUID_TEXT_LEN = 36;
const char *uuid_format(const struct uuid *uuid, char text[static UUID_TEXT_LEN + 1]);

/* Base64url without padding. `text` has room for BASE64URL_LEN(len) + 1. Returns `text`. */
#define BASE64URL_LEN(len) (((len) * 4 + 2) / 3)
char *base64url_format(const unsigned char *bytes, size_t len, char *text);
/* False unless `text` is what base64url_format writes for some bytes; `bytes` has room for 3/4 of
 * its length, and may have been written to all the same. */
[[nodiscard]] bool base64url_parse(struct slice text, unsigned char *bytes);

/* Lower-case hexadecimal of `len` bytes; `text` has room for 2 * len + 1. Returns `text`. */
char *hex_format(const unsigned char *bytes, size_t len, char *text);
/* "\\x" and those digits, as Postgres reads a bytea; freed by the caller. */
char *bytea_text(const unsigned char *bytes, size_t len);
/* False unless `text` is exactly 2 * len hexadecimal digits (either case). */
[[nodiscard]] bool hex_parse(struct slice text, unsigned char *bytes, size_t len);
