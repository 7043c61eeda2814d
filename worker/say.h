/* say.h - what a tool process is told: frames, and in plain mode the variables of its environment.
 */
#pragma once

#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/slice.h"

struct run;

/* Appends the frame that begins run `number` of a process. False, with nothing appended: it would
 * be over FRAME_BYTES_MAX. */
[[nodiscard]] bool say_run(struct run *run, int number, int64_t limit_ms, struct buf *out);
void say_type(const char *type, struct buf *out);
/* `value` empty: not found. */
void say_value(struct slice value, struct buf *out);

/* NAME=VALUE, ended by nullptr; array and texts are the caller's to free. */
char **say_vars(const struct run *run);
