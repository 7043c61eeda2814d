/* cursor.c - see cursor.h. Hex of: version, 8 bytes of SHA-256 over mark and name, name. */
#include "api/cursor.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/id.h"
#include "runtime/key.h"

static constexpr char VERSION = 1;
static constexpr char MARK[] = "holdfast cursor 1 ";
constexpr size_t SUM_BYTES = 8, HEAD_BYTES = 1 + SUM_BYTES;

static void sum(struct slice name, unsigned char out[static 32])
{
	hf_cleanup(buf) struct buf whole = {};
	buf_add_text(&whole, MARK);
	buf_add_slice(&whole, name);
	sha256(buf_slice(&whole), out);
}

void cursor_write(struct slice last_name, struct buf *out)
{
	hf_assert(last_name.len <= CURSOR_NAME_LEN_MAX);

	unsigned char digest[32];
	char text[2 * (HEAD_BYTES + CURSOR_NAME_LEN_MAX) + 1];
	hf_cleanup(buf) struct buf bytes = {};
	sum(last_name, digest);
	buf_add_byte(&bytes, VERSION);
	buf_add(&bytes, digest, SUM_BYTES);
	buf_add_slice(&bytes, last_name);
	buf_add_text(out, hex_format((const unsigned char *)bytes.data, bytes.len, text));
}

enum hf_code cursor_read(struct slice text, struct buf *last_name, struct hf_err *err)
{
	unsigned char bytes[HEAD_BYTES + CURSOR_NAME_LEN_MAX], digest[32];
	size_t len = text.len / 2;
	if (text.len % 2 != 0 || len < HEAD_BYTES || len > sizeof bytes ||
	    !hex_parse(text, bytes, len))
		return hf_fail(err, HF_INVALID, "the cursor has not the form of one");
	struct slice name = { (const char *)bytes + HEAD_BYTES, len - HEAD_BYTES };
	sum(name, digest);
	if (bytes[0] != VERSION || memcmp(bytes + 1, digest, SUM_BYTES) != 0)
		return hf_fail(err, HF_INVALID, "the cursor was not given by a list");
	buf_add_slice(last_name, name);
	return HF_OK;
}
