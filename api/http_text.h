/* http_text.h - the small grammars of RFC 9110, 9112 and 3986, and what else is asked of a few
 * characters in a row. They take slices without NUL, carriage return or line feed. */
#pragma once

#include "runtime/slice.h"

bool text_is_digit(char c);
bool text_is_hex(char c);
/* RFC 9110 5.6.2: what a method and a header name are made of. */
bool text_is_token(struct slice text);
/* As slice_equal and slice_is, in any letter case. */
bool text_equal_any_case(struct slice a, struct slice b);
bool text_is_any_case(struct slice a, const char *text);
bool text_begins_any_case(struct slice text, struct slice start);
/* One or more visible ASCII characters, no space: what names and effect IDs are made of. */
bool text_is_visible(struct slice text);
/* Cuts the text before the first `byte`, and the byte, off `rest`; false when there is none. */
bool text_split(struct slice *rest, char byte, struct slice *out);
/* Unreserved characters, sub-delimiters, whole percent escapes (RFC 3986 2), and what `also` has.
 */
bool text_is_uri(struct slice text, const char *also);
/* uri-host [":" port]; user information is not for a Host. */
bool text_is_authority(struct slice text);
/* `*(";" name ["=" value])` of RFC 9112 7.1.1, without the optional spaces that nobody sends. */
bool text_is_chunk_extensions(struct slice text);
/* What frames, routes or authenticates a message must not come behind it (RFC 9110 6.5.1). */
bool text_is_forbidden_trailer(struct slice line);
