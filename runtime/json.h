/* json.h - JSON at the border, on the bytes themselves: a strict scan, then walking by spans. No
 * number passes through a double and no string is cut. Everything below but json_scan expects text
 * that json_scan accepted. A value's span starts at its first byte and ends after its last. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/arena.h"
#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

constexpr unsigned JSON_DEPTH_MAX = 64;
constexpr size_t JSON_NUMBER_LEN_MAX = 1024; /* longer spellings are refused */

/* RFC 8259, strictly: UTF-8 (no overlong forms, no surrogates), no lone surrogate escapes, no NUL
 * (raw or \u0000), no duplicate members in one object (compared after unescaping), no depth over
 * JSON_DEPTH_MAX, one value with white space around it and nothing else, no byte order mark.
 * HF_INVALID with the byte offset in the text; HF_LIMIT for depth and number length. */
enum hf_code json_scan(struct slice text, struct hf_err *err);

/* As json_scan, but the text begins with "LINE:COLUMN: ", both from 1: for what a person wrote. */
enum hf_code json_scan_written(struct slice text, struct hf_err *err);

/* What RFC 8259 lets pass and json_scan does not. */
struct json_quirks {
	bool nul; /* \u0000 in a string or a name */
	bool duplicate;
	size_t duplicate_at; /* byte of the later name, in the first object to close with two */
};

constexpr size_t JSON_MEMBERS_MAX = 10'000; /* of all objects of a text from outside */

/* As json_scan, but these two are noted and no fault. What has one must not be walked. For texts of
 * whom nobody trusts: JSON_MEMBERS_MAX counts (HF_LIMIT), since looking for equal names is what
 * takes longest. */
enum hf_code json_scan_quirks(struct slice text, struct json_quirks *quirks, struct hf_err *err);

enum json_type {
	JSON_NULL,
	JSON_FALSE,
	JSON_TRUE,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT
};

enum json_type json_type_of(struct slice value);
const char *json_type_name(enum json_type type); /* "null", "boolean", "number", … */
/* The value without the white space around it. */
struct slice json_trim(struct slice text);

/* Walk: start with *at = 0; false at the end. `name` is the raw member name with its quotes. */
bool json_object_next(struct slice object, size_t *at, struct slice *name, struct slice *value);
bool json_array_next(struct slice array, size_t *at, struct slice *value);

/* Member of an object by its unescaped name, case-sensitive; false if absent or not an object. An
 * empty slice is none, and has no members and elements to walk over. */
bool json_member(struct slice object, const char *name, struct slice *value);
bool json_element(struct slice array, size_t index, struct slice *value);
/* RFC 6901. The empty pointer is the whole; false if absent. */
bool json_pointer(struct slice value, struct slice pointer, struct slice *out);

/* Appends the unescaped UTF-8 of a string value. */
void json_string_decode(struct slice string, struct buf *out);
bool json_string_is(struct slice string, const char *text); /* false for other types */
/* Heap copy of the unescaped string; nullptr where `value` is no string. */
[[nodiscard]] char *json_string_dup(struct slice value);
/* The same of a string in the arena, terminated. */
struct slice json_string_copy(struct slice string, struct arena *arena);
/* Appends `text` as a JSON string with quotes, escaped as RFC 8785 does. What json_scan would
 * refuse (bytes that are not UTF-8, NUL) becomes U+FFFD. */
void json_string_encode(struct slice text, struct buf *out);

/* An integer value in any spelling (1, 1.0, 10e-1) within int64_t; false otherwise. */
bool json_integer(struct slice number, int64_t *out);
/* Nothing behind the decimal point, in any spelling and of any size. */
bool json_number_whole(struct slice number);
/* Numbers compared by exact decimal value: <0, 0, >0. */
int json_number_compare(struct slice a, struct slice b);
/* Appends the canonical spelling of a number: equal values, equal bytes. Written as ECMAScript
 * would if it had exact decimals (1, 0.001, 1e+21, 1.5e-7), so for numbers that a double holds
 * exactly as spelt it is RFC 8785's; -0 is 0. */
void json_number_canonical(struct slice number, struct buf *out);

/* Canonical form of a value: members sorted as RFC 8785 does, strings as
 * RFC 8785, numbers canonical, no white space. `leave_out` (nullable) names a top-level member to
 * skip. */
void json_canonical(struct slice value, const char *leave_out, struct buf *out);
