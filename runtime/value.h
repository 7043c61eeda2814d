/* value.h - JSON text to msgpack and back: how states are stored and frames speak. Integers within
 * int64_t/uint64_t keep their value in any spelling (1.0 is 1), decimals of at most 15 digits
 * travel as doubles (so do larger integers written with an exponent), every other number as
 * extension type 1 that holds its spelling. Bytes (msgpack bin) and unknown extensions have no JSON
 * form and are refused on the way to JSON. */
#pragma once

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

/* `json` must have passed json_scan. Appends one msgpack value. */
void value_from_json(struct slice json, struct buf *msgpack);
/* HF_CORRUPT: not exactly one well-formed msgpack value, or one without a JSON form (NaN, bin,
 * non-string keys, strings that hold NUL, depth over JSON_DEPTH_MAX, equal keys in one map). `json`
 * may hold a part of the output then. What is not UTF-8 in a string becomes U+FFFD: a program in a
 * legacy code page has done its work, and one byte must not take its whole answer away. */
enum hf_code value_to_json(struct slice msgpack, struct buf *json, struct hf_err *err);
