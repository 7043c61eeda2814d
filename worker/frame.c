/* frame.c - the writer packs straight into a struct buf; the reader walks the bytes with a small
 * stack of "values still to come", so that depth is a bound and counts are only numbers: an array
 * that claims more values than bytes are left is refused before anything is done with it. */
#include "worker/frame.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/utf8.h"

static_assert(FRAME_DEPTH_MAX > JSON_DEPTH_MAX);
static_assert(FRAME_BYTES_MAX <= UINT32_MAX);

/* --- writing ---------------------------------------------------------------------------------- */

static void add_number(struct buf *buf, unsigned char tag, uint64_t value, unsigned len)
{
	unsigned char bytes[9] = { tag };
	for (unsigned i = 0; i < len; i++)
		bytes[1 + i] = (unsigned char)(value >> (8 * (len - 1 - i)));
	buf_add(buf, bytes, 1 + len);
}

size_t frame_begin(struct buf *buf)
{
	size_t start = buf->len;
	buf_add(buf, "\0\0\0\0", FRAME_HEAD_BYTES);
	return start;
}

void frame_map(struct buf *buf, uint32_t count)
{
	if (count < 16)
		buf_add_byte(buf, (char)(0x80 | count));
	else
		add_number(buf, 0xdf, count, 4);
}

void frame_text(struct buf *buf, struct slice text)
{
	if (text.len < 32)
		buf_add_byte(buf, (char)(0xa0 | text.len));
	else if (text.len <= UINT8_MAX)
		add_number(buf, 0xd9, text.len, 1);
	else
		add_number(buf, 0xdb, text.len, 4);
	buf_add_slice(buf, text);
}

void frame_int(struct buf *buf, int64_t value)
{
	if (value >= 0 && value < 128)
		buf_add_byte(buf, (char)value);
	else
		add_number(buf, 0xd3, (uint64_t)value, 8);
}

void frame_double(struct buf *buf, double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	add_number(buf, 0xcb, bits, 8);
}

void frame_bool(struct buf *buf, bool value)
{
	buf_add_byte(buf, (char)(value ? 0xc3 : 0xc2));
}

void frame_nil(struct buf *buf)
{
	buf_add_byte(buf, (char)0xc0);
}

void frame_raw(struct buf *buf, struct slice msgpack)
{
	hf_assert(msgpack.len > 0);
	buf_add_slice(buf, msgpack);
}

bool frame_end(struct buf *buf, size_t start)
{
	hf_assert(start <= buf->len);
	size_t len = buf->len - start - FRAME_HEAD_BYTES;
	if (buf->overflow || buf->len - start < FRAME_HEAD_BYTES || len > FRAME_BYTES_MAX) {
		buf->len = start;
		buf->overflow = false;
		return false;
	}
	for (unsigned i = 0; i < FRAME_HEAD_BYTES; i++)
		buf->data[start + i] = (char)(unsigned char)(len >> (8 * (3 - i)));
	return true;
}

/* --- reading ---------------------------------------------------------------------------------- */

enum shape {
	SHAPE_NONE,
	SHAPE_NIL,
	SHAPE_BOOL,
	SHAPE_INT,
	SHAPE_UINT,
	SHAPE_FLOAT,
	SHAPE_DOUBLE,
	SHAPE_TEXT,
	SHAPE_BIN,
	SHAPE_EXT,
	SHAPE_ARRAY,
	SHAPE_MAP
};

/* One value's first bytes, read. */
struct head {
	enum shape shape;
	size_t len;        /* of the head itself */
	uint64_t body;     /* bytes that follow and are no values */
	uint64_t children; /* values that follow */
	uint64_t number;   /* what the number bytes of the head say */
};

static unsigned char byte_at(struct slice bytes, size_t at)
{
	return (unsigned char)bytes.data[at];
}

/* What the first bytes 0xc0 … 0xdf mean: the shape, and how many number bytes come behind. */
static const struct {
	unsigned char shape, number_len, body;
} tags[32] = {
	[0x00] = { SHAPE_NIL, 0, 0 },   [0x01] = { SHAPE_NONE, 0, 0 },
	[0x02] = { SHAPE_BOOL, 0, 0 },  [0x03] = { SHAPE_BOOL, 0, 0 },
	[0x04] = { SHAPE_BIN, 1, 0 },   [0x05] = { SHAPE_BIN, 2, 0 },
	[0x06] = { SHAPE_BIN, 4, 0 },   [0x07] = { SHAPE_EXT, 1, 1 },
	[0x08] = { SHAPE_EXT, 2, 1 },   [0x09] = { SHAPE_EXT, 4, 1 },
	[0x0a] = { SHAPE_FLOAT, 4, 0 }, [0x0b] = { SHAPE_DOUBLE, 8, 0 },
	[0x0c] = { SHAPE_UINT, 1, 0 },  [0x0d] = { SHAPE_UINT, 2, 0 },
	[0x0e] = { SHAPE_UINT, 4, 0 },  [0x0f] = { SHAPE_UINT, 8, 0 },
	[0x10] = { SHAPE_INT, 1, 0 },   [0x11] = { SHAPE_INT, 2, 0 },
	[0x12] = { SHAPE_INT, 4, 0 },   [0x13] = { SHAPE_INT, 8, 0 },
	[0x14] = { SHAPE_EXT, 0, 2 },   [0x15] = { SHAPE_EXT, 0, 3 },
	[0x16] = { SHAPE_EXT, 0, 5 },   [0x17] = { SHAPE_EXT, 0, 9 },
	[0x18] = { SHAPE_EXT, 0, 17 },  [0x19] = { SHAPE_TEXT, 1, 0 },
	[0x1a] = { SHAPE_TEXT, 2, 0 },  [0x1b] = { SHAPE_TEXT, 4, 0 },
	[0x1c] = { SHAPE_ARRAY, 2, 0 }, [0x1d] = { SHAPE_ARRAY, 4, 0 },
	[0x1e] = { SHAPE_MAP, 2, 0 },   [0x1f] = { SHAPE_MAP, 4, 0 },
};

static void head_fixed(unsigned char first, struct head *head)
{
	if (first < 0x80) {
		head->shape = SHAPE_UINT;
		head->number = first;
	} else if (first < 0x90) {
		head->shape = SHAPE_MAP;
		head->children = 2 * (uint64_t)(first & 0x0f);
	} else if (first < 0xa0) {
		head->shape = SHAPE_ARRAY;
		head->children = first & 0x0f;
	} else if (first < 0xc0) {
		head->shape = SHAPE_TEXT;
		head->body = first & 0x1f;
	} else {
		head->shape = SHAPE_INT;
		head->number = (uint64_t)(int64_t)(signed char)first;
	}
}

static uint64_t sign_extend(uint64_t number, unsigned len)
{
	unsigned shift = 64 - 8 * len;
	return (uint64_t)((int64_t)(number << shift) >> shift);
}

/* False: no value can start like this here. */
static bool head_read(struct slice bytes, size_t at, struct head *head)
{
	*head = (struct head){ .len = 1 };
	if (at >= bytes.len)
		return false;
	unsigned char first = byte_at(bytes, at);
	if (first < 0xc0 || first >= 0xe0) {
		head_fixed(first, head);
	} else {
		unsigned number_len = tags[first - 0xc0].number_len;
		if (bytes.len - at - 1 < number_len)
			return false;
		for (unsigned i = 0; i < number_len; i++)
			head->number = head->number << 8 | byte_at(bytes, at + 1 + i);
		head->shape = tags[first - 0xc0].shape;
		head->len = 1 + number_len;
		head->body = tags[first - 0xc0].body;
		if (head->shape == SHAPE_BOOL)
			head->number = first & 1;
		else if (head->shape == SHAPE_INT)
			head->number = sign_extend(head->number, number_len);
		else if (head->shape == SHAPE_ARRAY)
			head->children = head->number;
		else if (head->shape == SHAPE_MAP)
			head->children = 2 * head->number;
		else if (head->shape == SHAPE_TEXT || head->shape == SHAPE_BIN ||
			 head->shape == SHAPE_EXT)
			head->body += head->number;
	}
	uint64_t left = bytes.len - at - head->len;
	return head->shape != SHAPE_NONE && head->body <= left && head->children <= left;
}

size_t frame_value_len(struct slice bytes)
{
	uint64_t to_come[FRAME_DEPTH_MAX];
	unsigned depth = 0;
	size_t at = 0;
	do {
		struct head head;
		if (!head_read(bytes, at, &head))
			return 0;
		at += head.len + head.body;
		if (depth)
			to_come[depth - 1]--;
		if (head.children && depth == FRAME_DEPTH_MAX)
			return 0;
		if (head.children)
			to_come[depth++] = head.children;
		while (depth && to_come[depth - 1] == 0)
			depth--;
	} while (depth);
	return at;
}

size_t frame_utf8_len(struct slice text)
{
	size_t at = 0;
	uint32_t code;
	for (size_t len; (len = utf8_next(text.data + at, text.len - at, &code)) && code;)
		at += len;
	return at;
}

static bool value_text(struct slice value, struct slice *text)
{
	struct head head;
	if (!head_read(value, 0, &head) || head.shape != SHAPE_TEXT)
		return false;
	*text = (struct slice){ value.data + head.len, (size_t)head.body };
	return frame_utf8_len(*text) == text->len;
}

static bool field_add(struct frame *frame, struct slice name, struct slice value)
{
	for (size_t i = 0; i < frame->count; i++) {
		if (slice_equal(frame->fields[i].name, name))
			return false;
	}
	frame->fields[frame->count++] = (struct frame_field){ name, value };
	return true;
}

static enum hf_code frame_parse(struct slice body, struct frame *frame, struct hf_err *err)
{
	struct head head;
	if (frame_value_len(body) != body.len || !head_read(body, 0, &head))
		return hf_fail(err, HF_CORRUPT, "a frame that is not one msgpack value");
	if (head.shape != SHAPE_MAP)
		return hf_fail(err, HF_CORRUPT, "a frame that is not a map");
	if (head.children / 2 > FRAME_FIELDS_MAX)
		return hf_fail(err, HF_CORRUPT, "a frame of more than %zu members",
			       FRAME_FIELDS_MAX);
	*frame = (struct frame){};
	struct slice rest = { body.data + head.len, body.len - head.len };
	for (uint64_t i = 0; i < head.children / 2; i++) {
		struct slice part[2];
		for (int side = 0; side < 2; side++) {
			part[side] = (struct slice){ rest.data, frame_value_len(rest) };
			hf_assert(part[side].len > 0);
			rest.data += part[side].len;
			rest.len -= part[side].len;
		}
		struct slice name;
		if (!value_text(part[0], &name))
			return hf_fail(err, HF_CORRUPT, "a frame with a key that is not text");
		if (!field_add(frame, name, part[1]))
			return hf_fail(err, HF_CORRUPT, "a frame with two equal keys");
	}
	if (!frame_get_text(frame, "t", &frame->type))
		return hf_fail(err, HF_CORRUPT, "a frame without its type \"t\"");
	return HF_OK;
}

enum frame_next frame_next(struct slice bytes, struct frame *frame, size_t *used,
			   struct hf_err *err)
{
	*used = FRAME_HEAD_BYTES;
	if (bytes.len < FRAME_HEAD_BYTES)
		return FRAME_PART;
	size_t len = 0;
	for (size_t i = 0; i < FRAME_HEAD_BYTES; i++)
		len = len << 8 | byte_at(bytes, i);
	if (len == 0 || len > FRAME_BYTES_MAX) {
		(void)hf_fail(err, HF_CORRUPT,
			      "a frame that claims %zu bytes (1 to %zu are allowed)", len,
			      FRAME_BYTES_MAX);
		return FRAME_BAD;
	}
	*used = FRAME_HEAD_BYTES + len;
	if (bytes.len < *used)
		return FRAME_PART;
	struct slice body = { bytes.data + FRAME_HEAD_BYTES, len };
	return frame_parse(body, frame, err) == HF_OK ? FRAME_WHOLE : FRAME_BAD;
}

bool frame_get(const struct frame *frame, const char *name, struct slice *msgpack)
{
	for (size_t i = 0; i < frame->count; i++) {
		if (slice_is(frame->fields[i].name, name)) {
			*msgpack = frame->fields[i].value;
			return true;
		}
	}
	return false;
}

/* The member's head, when it has one of these shapes. */
static bool get_head(const struct frame *frame, const char *name, enum shape a, enum shape b,
		     struct slice *value, struct head *head)
{
	return frame_get(frame, name, value) && head_read(*value, 0, head) &&
	       (head->shape == a || head->shape == b);
}

static bool get_body(const struct frame *frame, const char *name, enum shape shape,
		     struct slice *body)
{
	struct slice value;
	struct head head;
	if (!get_head(frame, name, shape, shape, &value, &head))
		return false;
	*body = (struct slice){ value.data + head.len, (size_t)head.body };
	return true;
}

bool frame_get_any_text(const struct frame *frame, const char *name, struct slice *text)
{
	return get_body(frame, name, SHAPE_TEXT, text);
}

bool frame_get_text(const struct frame *frame, const char *name, struct slice *text)
{
	struct slice found;
	if (!get_body(frame, name, SHAPE_TEXT, &found) || frame_utf8_len(found) != found.len)
		return false;
	*text = found;
	return true;
}

bool frame_get_bin(const struct frame *frame, const char *name, struct slice *bytes)
{
	return get_body(frame, name, SHAPE_BIN, bytes);
}

bool frame_get_int(const struct frame *frame, const char *name, int64_t *value)
{
	struct slice bytes;
	struct head head;
	if (!get_head(frame, name, SHAPE_INT, SHAPE_UINT, &bytes, &head))
		return false;
	if (head.shape == SHAPE_UINT && head.number > INT64_MAX)
		return false;
	*value = (int64_t)head.number;
	return true;
}

bool frame_get_double(const struct frame *frame, const char *name, double *value)
{
	struct slice bytes;
	struct head head;
	if (get_head(frame, name, SHAPE_DOUBLE, SHAPE_FLOAT, &bytes, &head)) {
		uint32_t half = (uint32_t)head.number;
		float narrow;
		memcpy(&narrow, &half, sizeof narrow);
		memcpy(value, &head.number, sizeof *value);
		if (head.shape == SHAPE_FLOAT)
			*value = (double)narrow;
		return true;
	}
	int64_t number;
	if (!frame_get_int(frame, name, &number))
		return false;
	*value = (double)number;
	return true;
}

bool frame_get_bool(const struct frame *frame, const char *name, bool *value)
{
	struct slice bytes;
	struct head head;
	if (!get_head(frame, name, SHAPE_BOOL, SHAPE_BOOL, &bytes, &head))
		return false;
	*value = head.number != 0;
	return true;
}
