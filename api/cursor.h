/* cursor.h - where a list goes on: opaque to clients, and a pure function of the last name told, so
 * that any API process reads the cursor of any other (A16.1). It carries a checksum: what was not
 * handed out by a list is told apart from what was. It is no secret and no permission. */
#pragma once

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

constexpr size_t CURSOR_NAME_LEN_MAX = 2'048;

/* Appends the cursor behind `last_name`, of at most CURSOR_NAME_LEN_MAX bytes: ASCII letters and
 * digits, never empty. */
void cursor_write(struct slice last_name, struct buf *out);
/* Appends the name to `last_name`. HF_INVALID: no list ever gave this cursor, "" among them. */
enum hf_code cursor_read(struct slice text, struct buf *last_name, struct hf_err *err);
