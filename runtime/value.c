/* value.c - JSON text to msgpack in one pass, and back. Reading msgpack is our own: msgpack-c's
 * unpacker stops at 32 levels and allocates what a hostile length claims, and here no tree is
 * wanted, only text. What comes out has always passed json_scan. Called by the worker for
 * arguments, states and frames, and by `holdfast task show`. */
#include "runtime/value.h"

#include <float.h>
#include <inttypes.h>
#include <msgpack/pack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/json_inner.h"

constexpr int8_t VALUE_EXT_NUMBER = 1;
/* A decimal of so many digits, well inside a double's range, comes back as it was. */
constexpr size_t DOUBLE_DIGITS_MAX = 15;
constexpr int64_t DOUBLE_POINT_MAX = 300;
constexpr size_t LONG_HEADER_BYTES = 5; /* of a map or an array, before its size is known */

struct writer {
	struct slice text;
	size_t at;
	struct buf scratch; /* of one string */
	struct buf out;
	msgpack_packer pack;
};

static int on_pack(void *ctx, const char *bytes, size_t len)
{
	buf_add(ctx, bytes, len);
	return 0;
}

static double decimal_double(const struct decimal *decimal)
{
	/* Without a decimal point the locale has no say in strtod. */
	char spelt[64];
	snprintf(spelt, sizeof spelt, "%s%.*se%" PRId64, decimal->negative ? "-" : "",
		 (int)decimal->count, decimal->digits, decimal->point - (int64_t)decimal->count);
	return strtod(spelt, nullptr);
}

/* Whole numbers beyond 64 bits travel as doubles only where they were written as such, with an
 * exponent: digits that somebody wrote out come back as digits. */
static bool fits_double(const struct decimal *decimal, struct slice number)
{
	if (decimal->count > DOUBLE_DIGITS_MAX || decimal->far_len ||
	    decimal->point > DOUBLE_POINT_MAX || decimal->point < -DOUBLE_POINT_MAX)
		return false;
	return !decimal_whole(decimal) || memchr(number.data, 'e', number.len) ||
	       memchr(number.data, 'E', number.len);
}

static void pack_number(struct writer *writer, struct slice number)
{
	struct decimal decimal;
	uint64_t magnitude;
	decimal_parse(&decimal, number);
	bool whole = decimal_magnitude(&decimal, &magnitude);
	if (whole && !decimal.negative) {
		msgpack_pack_uint64(&writer->pack, magnitude);
	} else if (whole && magnitude <= (uint64_t)INT64_MAX + 1) {
		msgpack_pack_int64(&writer->pack, (int64_t)(0 - magnitude));
	} else if (fits_double(&decimal, number)) {
		msgpack_pack_double(&writer->pack, decimal_double(&decimal));
	} else {
		msgpack_pack_ext(&writer->pack, number.len, VALUE_EXT_NUMBER);
		msgpack_pack_ext_body(&writer->pack, number.data, number.len);
	}
}

static void pack_string(struct writer *writer, struct slice raw)
{
	buf_clear(&writer->scratch);
	struct slice text = json_string_view(raw, &writer->scratch);
	msgpack_pack_str(&writer->pack, text.len);
	msgpack_pack_str_body(&writer->pack, text.data, text.len);
}

static void pack_scalar(struct writer *writer, struct slice raw)
{
	switch (json_type_of(raw)) {
	case JSON_NULL:
		msgpack_pack_nil(&writer->pack);
		break;
	case JSON_FALSE:
		msgpack_pack_false(&writer->pack);
		break;
	case JSON_TRUE:
		msgpack_pack_true(&writer->pack);
		break;
	case JSON_STRING:
		pack_string(writer, raw);
		break;
	default:
		pack_number(writer, raw);
		break;
	}
}

static size_t take_scalar(struct writer *writer)
{
	size_t end = json_value_end(writer->text, writer->at);
	pack_scalar(writer, (struct slice){ writer->text.data + writer->at, end - writer->at });
	return end;
}

/* Puts the shortest header in the place that was kept for the longest. */
static void close_container(struct buf *out, size_t start, size_t count, bool map)
{
	unsigned char header[LONG_HEADER_BYTES];
	size_t len = count < 16 ? 1 : count <= UINT16_MAX ? 3 : LONG_HEADER_BYTES;
	hf_assert(count <= UINT32_MAX);
	if (len == 1)
		header[0] = (unsigned char)((map ? 0x80 : 0x90) | count);
	else
		header[0] = (unsigned char)((map ? 0xde : 0xdc) + (len == LONG_HEADER_BYTES));
	for (size_t i = 1; i < len; i++)
		header[i] = (unsigned char)(count >> 8 * (len - 1 - i));
	char *at = out->data + start;
	memmove(at + len, at + LONG_HEADER_BYTES, out->len - start - LONG_HEADER_BYTES);
	memcpy(at, header, len);
	out->len -= LONG_HEADER_BYTES - len;
	out->data[out->len] = '\0';
}

/* Moves over white space and a comma; false at the closing bracket, which is consumed. */
static bool next_entry(struct writer *writer)
{
	writer->at = json_space_end(writer->text, writer->at);
	hf_assert(writer->at < writer->text.len);
	char byte = writer->text.data[writer->at];
	if (byte == '}' || byte == ']') {
		writer->at++;
		return false;
	}
	if (byte == ',')
		writer->at = json_space_end(writer->text, writer->at + 1);
	return true;
}

static void pack_value(struct writer *writer, unsigned depth)
{
	hf_assert(depth <= JSON_DEPTH_MAX);
	writer->at = json_space_end(writer->text, writer->at);
	hf_assert(writer->at < writer->text.len);
	char byte = writer->text.data[writer->at];
	if (byte != '{' && byte != '[') {
		writer->at = take_scalar(writer);
		return;
	}
	size_t start = writer->out.len, count = 0;
	buf_add(&writer->out, "\0\0\0\0\0", LONG_HEADER_BYTES);
	for (writer->at++; next_entry(writer); count++) {
		if (byte == '{') {
			writer->at = json_space_end(writer->text, take_scalar(writer));
			hf_assert(writer->text.data[writer->at] == ':');
			writer->at++;
		}
		pack_value(writer, depth + 1);
	}
	close_container(&writer->out, start, count, byte == '{');
}

void value_from_json(struct slice json, struct buf *msgpack)
{
	hf_assert(msgpack);
	struct writer writer = { .text = json };
	msgpack_packer_init(&writer.pack, &writer.out, on_pack);
	pack_value(&writer, 0);
	buf_add_slice(msgpack, buf_slice(&writer.out));
	buf_deinit(&writer.scratch);
	buf_deinit(&writer.out);
}

struct reader {
	struct slice in;
	size_t at;
	struct buf out;
	struct hf_err *err;
};

static enum hf_code corrupt(struct reader *reader, const char *reason)
{
	return hf_fail(reader->err, HF_CORRUPT, "msgpack byte %zu: %s", reader->at, reason);
}

static enum hf_code take(struct reader *reader, uint64_t len, struct slice *out)
{
	if (len > reader->in.len - reader->at)
		return corrupt(reader, "the value is cut short");
	*out = (struct slice){ reader->in.data + reader->at, (size_t)len };
	reader->at += (size_t)len;
	return HF_OK;
}

static enum hf_code take_uint(struct reader *reader, size_t bytes, uint64_t *out)
{
	struct slice raw;
	hf_try(take(reader, bytes, &raw));
	*out = 0;
	for (size_t i = 0; i < bytes; i++)
		*out = *out << 8 | (unsigned char)raw.data[i];
	return HF_OK;
}

static enum hf_code read_string(struct reader *reader, uint64_t len)
{
	struct slice text;
	hf_try(take(reader, len, &text));
	if (text.len && memchr(text.data, '\0', text.len))
		return corrupt(reader, "a string that holds NUL");
	json_string_encode(text, &reader->out); /* U+FFFD for what is not UTF-8 */
	return HF_OK;
}

/* The shortest spelling that reads back as the same double. */
static enum hf_code write_double(struct reader *reader, double number)
{
	if (!(number - number == 0))
		return corrupt(reader, "a number that is not finite");
	char spelt[40];
	/* Below the normal range a double holds fewer digits. */
	int digits = number < DBL_MIN && number > -DBL_MIN ? 1 : DOUBLE_DIGITS_MAX;
	do
		snprintf(spelt, sizeof spelt, "%.*e", digits - 1, number);
	while (strtod(spelt, nullptr) != number && digits++ < 17);
	/* The point is dropped, whatever the locale writes for it, and the exponent moved. */
	const char *exponent = strchr(spelt, 'e');
	hf_assert(exponent);
	hf_cleanup(buf) struct buf plain = {};
	for (const char *at = spelt; at < exponent; at++) {
		if (*at == '-' || (*at >= '0' && *at <= '9'))
			buf_add_byte(&plain, *at);
	}
	size_t written = plain.len - (spelt[0] == '-');
	buf_add_format(&plain, "e%ld", strtol(exponent + 1, nullptr, 10) - (long)written + 1);
	json_number_canonical(buf_slice(&plain), &reader->out);
	return HF_OK;
}

static enum hf_code read_float(struct reader *reader, bool wide)
{
	uint64_t bits;
	hf_try(take_uint(reader, wide ? 8 : 4, &bits));
	if (!wide) {
		float narrow;
		uint32_t low = (uint32_t)bits;
		memcpy(&narrow, &low, sizeof narrow);
		return write_double(reader, (double)narrow);
	}
	double number;
	memcpy(&number, &bits, sizeof number);
	return write_double(reader, number);
}

static enum hf_code read_integer(struct reader *reader, size_t bytes, bool with_sign)
{
	uint64_t value;
	hf_try(take_uint(reader, bytes, &value));
	if (!with_sign) {
		buf_add_format(&reader->out, "%" PRIu64, value);
		return HF_OK;
	}
	unsigned unused = (unsigned)(64 - 8 * bytes);
	buf_add_format(&reader->out, "%" PRId64, (int64_t)(value << unused) >> unused);
	return HF_OK;
}

static enum hf_code read_ext(struct reader *reader, uint64_t len)
{
	uint64_t type;
	struct slice body;
	hf_try(take_uint(reader, 1, &type));
	hf_try(take(reader, len, &body));
	if (type != VALUE_EXT_NUMBER)
		return corrupt(reader, "an unknown extension type");
	if (json_scan(body, nullptr) != HF_OK || json_type_of(body) != JSON_NUMBER ||
	    json_trim(body).len != body.len)
		return corrupt(reader, "a number extension that is no number");
	buf_add_slice(&reader->out, body);
	return HF_OK;
}

static enum hf_code read_value(struct reader *reader, unsigned depth);

static enum hf_code read_key(struct reader *reader)
{
	size_t start = reader->out.len;
	hf_try(read_value(reader, JSON_DEPTH_MAX));
	if (reader->out.data[start] != '"')
		return corrupt(reader, "a map key that is no string");
	buf_add_byte(&reader->out, ':');
	return HF_OK;
}

static enum hf_code read_container(struct reader *reader, uint64_t count, bool map, unsigned depth)
{
	if (depth >= JSON_DEPTH_MAX)
		return corrupt(reader, "nested too deep, or a map key that is no string");
	buf_add_byte(&reader->out, map ? '{' : '[');
	for (uint64_t i = 0; i < count; i++) {
		if (i > 0)
			buf_add_byte(&reader->out, ',');
		if (map)
			hf_try(read_key(reader));
		hf_try(read_value(reader, depth + 1));
	}
	buf_add_byte(&reader->out, map ? '}' : ']');
	return HF_OK;
}

/* Lead bytes from 0xc0 to 0xdf: the type and how many bytes of size or value follow. */
static enum hf_code read_marked(struct reader *reader, unsigned char lead, unsigned depth)
{
	uint64_t size;
	switch (lead) {
	case 0xc0:
		buf_add_text(&reader->out, "null");
		return HF_OK;
	case 0xc2:
		buf_add_text(&reader->out, "false");
		return HF_OK;
	case 0xc3:
		buf_add_text(&reader->out, "true");
		return HF_OK;
	case 0xc7:
	case 0xc8:
	case 0xc9:
		hf_try(take_uint(reader, (size_t)1 << (lead - 0xc7), &size));
		return read_ext(reader, size);
	case 0xca:
	case 0xcb:
		return read_float(reader, lead == 0xcb);
	case 0xcc:
	case 0xcd:
	case 0xce:
	case 0xcf:
		return read_integer(reader, (size_t)1 << (lead - 0xcc), false);
	case 0xd0:
	case 0xd1:
	case 0xd2:
	case 0xd3:
		return read_integer(reader, (size_t)1 << (lead - 0xd0), true);
	case 0xd4:
	case 0xd5:
	case 0xd6:
	case 0xd7:
	case 0xd8:
		return read_ext(reader, (uint64_t)1 << (lead - 0xd4));
	case 0xd9:
	case 0xda:
	case 0xdb:
		hf_try(take_uint(reader, (size_t)1 << (lead - 0xd9), &size));
		return read_string(reader, size);
	case 0xdc:
	case 0xdd:
	case 0xde:
	case 0xdf:
		hf_try(take_uint(reader, lead % 2 ? 4 : 2, &size));
		return read_container(reader, size, lead >= 0xde, depth);
	default:
		return corrupt(reader, lead == 0xc1 ? "an unused type" : "bytes have no JSON form");
	}
}

/* `depth` counts the maps and arrays around the value. */
static enum hf_code read_value(struct reader *reader, unsigned depth)
{
	uint64_t first;
	hf_try(take_uint(reader, 1, &first));
	unsigned char lead = (unsigned char)first;
	if (lead < 0x80) {
		buf_add_format(&reader->out, "%u", lead);
		return HF_OK;
	}
	if (lead >= 0xe0) {
		buf_add_format(&reader->out, "%d", (int)lead - 256);
		return HF_OK;
	}
	if (lead < 0xa0)
		return read_container(reader, lead & 15, lead < 0x90, depth);
	if (lead < 0xc0)
		return read_string(reader, lead & 31);
	return read_marked(reader, lead, depth);
}

static enum hf_code read_all(struct reader *reader)
{
	hf_try(read_value(reader, 0));
	if (reader->at != reader->in.len)
		return corrupt(reader, "more than one value");
	/* What is left to find here is equal keys; the rest is a second look at our own work. */
	if (json_scan(buf_slice(&reader->out), reader->err) != HF_OK)
		return hf_fail(reader->err, HF_CORRUPT, "msgpack with equal keys in one map");
	return HF_OK;
}

enum hf_code value_to_json(struct slice msgpack, struct buf *json, struct hf_err *err)
{
	hf_assert(json);
	struct reader reader = { .in = msgpack, .err = err };
	enum hf_code code = read_all(&reader);
	if (code == HF_OK)
		buf_add_slice(json, buf_slice(&reader.out));
	buf_deinit(&reader.out);
	return code;
}
