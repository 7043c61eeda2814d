/* content.h - bytes as MCP carries them: as text where media type and bytes allow it, else in
 * base64. */
#pragma once

#include "runtime/buf.h"
#include "runtime/slice.h"

/* Appends the base64 of the bytes, padded. */
void base64_add(struct slice bytes, struct buf *out);
/* Padded base64 of the standard alphabet, and nothing else; empty is. */
bool base64_is_valid(struct slice text);

/* "type/subtype" with parameters or without, of visible ASCII and spaces. */
bool media_type_is_valid(struct slice media_type);

/* Appends the member "text":"…" or "blob":"…", without a comma. */
void content_add(struct slice media_type, struct slice bytes, struct buf *out);
