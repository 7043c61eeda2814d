/* uri_template.h - URI templates of RFC 6570, level 1: {name} stands for text in which every
 * reserved character is percent-encoded. What a template says is so found again in a URI. */
#pragma once

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

constexpr size_t URI_LEN_MAX = 2'000;
constexpr size_t URI_VARIABLES_MAX = 8;
constexpr size_t URI_VARIABLE_LEN_MAX = 64;

/* A scheme, a colon, and visible ASCII characters that may stand in a URI; at most URI_LEN_MAX. */
enum hf_code uri_check(struct slice uri, struct hf_err *err);
/* The same with {name} in it: begins with a literal scheme, has a variable and at most
 * URI_VARIABLES_MAX, all different, each of A-Z a-z 0-9 _ and followed by literal text or the end.
 * HF_INVALID with the reason. */
enum hf_code uri_template_check(struct slice template, struct hf_err *err);

/* Walks the variables: start with *at = 0; false at the end. */
bool uri_template_next(struct slice template, size_t *at, struct slice *name);

/* Whether the text is a URI, and one of the template. Then appends {"name":"value", …} to `values`,
 * decoded. A variable takes at least one character, none of / ? #, and ends where the literal text
 * behind it first occurs (the last one: where that text ends the URI); its value is UTF-8 without
 * NUL. */
bool uri_template_match(struct slice template, struct slice uri, struct buf *values);
