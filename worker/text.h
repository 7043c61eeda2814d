/* text.h - text from outside (tools, downstream systems) on its way into Postgres and to people. */
#pragma once

#include "runtime/buf.h"
#include "runtime/slice.h"

constexpr size_t TEXT_PROGRESS_LEN_MAX = 200;
constexpr size_t TEXT_REASON_LEN_MAX = 2'000;
constexpr size_t TEXT_TOOL_ERROR_LEN_MAX = 16'000;

/* Without the white space at its ends. */
struct slice text_trim(struct slice text);

/* Appends at most `len_max` bytes of `text` as UTF-8 without NUL: what is ill-formed becomes '?',
 * control characters other than line feed and tab too. Cut text ends with "…" and never within a
 * character. */
void text_clean(struct slice text, size_t len_max, struct buf *out);
