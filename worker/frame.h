/* frame.h - frames between the worker and a tool process (worker/sdk/FRAMES.md): 4 bytes of
 * big-endian length, then one msgpack map with string keys. Reading is made for a hostile peer: it
 * allocates nothing, never recurses, and looks at every byte at most twice, whatever lengths and
 * counts the bytes claim. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

constexpr size_t FRAME_HEAD_BYTES = 4;
constexpr size_t FRAME_BYTES_MAX = 16 << 20; /* without the head */
/* Far over what can be stored (JSON_DEPTH_MAX), so that a value nested too deep is an answer of the
 * tool that is refused by name, and no garbage. */
constexpr unsigned FRAME_DEPTH_MAX = 2'048;
constexpr size_t FRAME_FIELDS_MAX = 16;

/* --- writing: frame_begin, frame_map(n), n times (frame_text(name) and a value), frame_end ---- */

/* Returns where the frame starts, for frame_end. */
size_t frame_begin(struct buf *buf);
void frame_map(struct buf *buf, uint32_t count);
void frame_text(struct buf *buf, struct slice text);
void frame_int(struct buf *buf, int64_t value);
void frame_double(struct buf *buf, double value);
void frame_bool(struct buf *buf, bool value);
void frame_nil(struct buf *buf);
/* One msgpack value that is ready. */
void frame_raw(struct buf *buf, struct slice msgpack);
/* Writes the length. False, with the buffer as it was before frame_begin: over FRAME_BYTES_MAX or
 * the buffer's own maximum. */
[[nodiscard]] bool frame_end(struct buf *buf, size_t start);

/* --- reading ---------------------------------------------------------------------------------- */

struct frame_field {
	struct slice name;
	struct slice value; /* one msgpack value */
};

struct frame {
	struct frame_field fields[FRAME_FIELDS_MAX];
	size_t count;
	struct slice type; /* the text of "t" */
};

enum frame_next {
	FRAME_WHOLE, /* `frame` borrows from the bytes; `used` bytes of them were it */
	FRAME_PART,  /* more bytes are needed: at least `used` in all, as far as is known */
	FRAME_BAD,   /* never going to be a frame; `err` says why */
};

/* The first frame of `bytes`. A head that claims too much is FRAME_BAD at once. */
enum frame_next frame_next(struct slice bytes, struct frame *frame, size_t *used,
			   struct hf_err *err);

/* False: absent, or another type. Text is UTF-8 without NUL. */
bool frame_get(const struct frame *frame, const char *name, struct slice *msgpack);
bool frame_get_text(const struct frame *frame, const char *name, struct slice *text);
/* Text as it came: for what is cleaned before anybody sees it. */
bool frame_get_any_text(const struct frame *frame, const char *name, struct slice *text);
bool frame_get_bin(const struct frame *frame, const char *name, struct slice *bytes);
bool frame_get_int(const struct frame *frame, const char *name, int64_t *value);
bool frame_get_double(const struct frame *frame, const char *name, double *value); /* or an int */
bool frame_get_bool(const struct frame *frame, const char *name, bool *value);

/* The length of the whole UTF-8 characters (no NUL) that `text` starts with; text.len if valid. */
size_t frame_utf8_len(struct slice text);

/* The bytes that one well-formed msgpack value takes at the start of `bytes`; 0: none is there. */
size_t frame_value_len(struct slice bytes);
