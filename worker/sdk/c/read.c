/* read.c - see read.h. The worker is trusted, but what it sent may be cut. */
#include "read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A value has 64 levels; around it are the frame and the map of states. */
constexpr unsigned DEPTH_MAX = 64 + 2;

void tool_out_of_memory(void)
{
	fprintf(stderr, "holdfast: out of memory\n");
	fflush(nullptr);
	_exit(EXIT_FAILURE);
}

struct reader {
	const char *bytes;
	size_t len, at;
	msgpack_zone *zone; /* arrays and maps; texts stay in `bytes` */
	bool broken;
};

/* `size` bytes, or a stand-in and `broken`. */
static const char *take(struct reader *reader, uint64_t size)
{
	static const char none[8];
	if (size > reader->len - reader->at) {
		reader->broken = true;
		return none;
	}
	reader->at += (size_t)size;
	return reader->bytes + reader->at - size;
}

static uint64_t take_uint(struct reader *reader, unsigned size)
{
	const char *bytes = take(reader, size);
	uint64_t value = 0;
	for (unsigned i = 0; i < size; i++)
		value = value << 8 | (unsigned char)bytes[i];
	return value;
}

/* The bytes of a text or the like, which stay in the frame; returns their number. */
static uint32_t take_body(struct reader *reader, uint64_t size, const char **body)
{
	*body = take(reader, size);
	return reader->broken ? 0 : (uint32_t)size;
}

static msgpack_object read_text(struct reader *reader, uint64_t size)
{
	msgpack_object out = { .type = MSGPACK_OBJECT_STR };
	out.via.str.size = take_body(reader, size, &out.via.str.ptr);
	return out;
}

static msgpack_object read_bytes(struct reader *reader, uint64_t size)
{
	msgpack_object out = { .type = MSGPACK_OBJECT_BIN };
	out.via.bin.size = take_body(reader, size, &out.via.bin.ptr);
	return out;
}

static msgpack_object read_extension(struct reader *reader, uint64_t size)
{
	msgpack_object out = { .type = MSGPACK_OBJECT_EXT };
	out.via.ext.type = (signed char)take_uint(reader, 1);
	out.via.ext.size = take_body(reader, size, &out.via.ext.ptr);
	return out;
}

static msgpack_object read_signed(struct reader *reader, unsigned size)
{
	unsigned unused = 64 - 8 * size;
	int64_t value = (int64_t)(take_uint(reader, size) << unused) >> unused;
	msgpack_object out = { .type = MSGPACK_OBJECT_NEGATIVE_INTEGER };
	if (value >= 0)
		out.type = MSGPACK_OBJECT_POSITIVE_INTEGER;
	out.via.i64 = value;
	return out;
}

static msgpack_object read_unsigned(struct reader *reader, unsigned size)
{
	msgpack_object out = { .type = MSGPACK_OBJECT_POSITIVE_INTEGER };
	out.via.u64 = take_uint(reader, size);
	return out;
}

static msgpack_object read_float(struct reader *reader, bool wide)
{
	msgpack_object out = { .type = wide ? MSGPACK_OBJECT_FLOAT64 : MSGPACK_OBJECT_FLOAT32 };
	uint64_t bits = take_uint(reader, wide ? 8 : 4);
	if (wide) {
		memcpy(&out.via.f64, &bits, sizeof out.via.f64);
	} else {
		uint32_t half = (uint32_t)bits;
		float narrow;
		memcpy(&narrow, &half, sizeof narrow);
		out.via.f64 = (double)narrow;
	}
	return out;
}

static msgpack_object read_object(struct reader *reader, unsigned depth);

/* Room for `count` of `size` bytes each, of which every one takes at least `least` of the frame. */
static void *reserve(struct reader *reader, uint64_t count, uint64_t least, size_t size)
{
	if (count > (reader->len - reader->at) / least) {
		reader->broken = true;
		return nullptr;
	}
	void *room = msgpack_zone_malloc(reader->zone, (size_t)count * size + 1);
	if (!room)
		tool_out_of_memory();
	return room;
}

static msgpack_object read_array(struct reader *reader, uint64_t count, unsigned depth)
{
	msgpack_object out = { .type = MSGPACK_OBJECT_ARRAY };
	msgpack_object *values = reserve(reader, count, 1, sizeof *values);
	reader->broken = reader->broken || depth == DEPTH_MAX;
	for (uint64_t i = 0; i < count && !reader->broken; i++)
		values[i] = read_object(reader, depth + 1);
	out.via.array.ptr = values;
	out.via.array.size = reader->broken ? 0 : (uint32_t)count;
	return out;
}

static msgpack_object read_map(struct reader *reader, uint64_t count, unsigned depth)
{
	msgpack_object out = { .type = MSGPACK_OBJECT_MAP };
	msgpack_object_kv *pairs = reserve(reader, count, 2, sizeof *pairs);
	reader->broken = reader->broken || depth == DEPTH_MAX;
	for (uint64_t i = 0; i < count && !reader->broken; i++) {
		pairs[i].key = read_object(reader, depth + 1);
		pairs[i].val = read_object(reader, depth + 1);
	}
	out.via.map.ptr = pairs;
	out.via.map.size = reader->broken ? 0 : (uint32_t)count;
	return out;
}

/* Lead bytes from 0xc0 to 0xdf. */
static msgpack_object read_marked(struct reader *reader, unsigned char lead, unsigned depth)
{
	msgpack_object out = { .type = MSGPACK_OBJECT_NIL };
	if (lead == 0xc0)
		return out;
	if (lead == 0xc2 || lead == 0xc3) {
		out.type = MSGPACK_OBJECT_BOOLEAN;
		out.via.boolean = lead == 0xc3;
		return out;
	}
	if (lead >= 0xc4 && lead <= 0xc6)
		return read_bytes(reader, take_uint(reader, 1u << (lead - 0xc4)));
	if (lead >= 0xc7 && lead <= 0xc9)
		return read_extension(reader, take_uint(reader, 1u << (lead - 0xc7)));
	if (lead == 0xca || lead == 0xcb)
		return read_float(reader, lead == 0xcb);
	if (lead >= 0xcc && lead <= 0xcf)
		return read_unsigned(reader, 1u << (lead - 0xcc));
	if (lead >= 0xd0 && lead <= 0xd3)
		return read_signed(reader, 1u << (lead - 0xd0));
	if (lead >= 0xd4 && lead <= 0xd8)
		return read_extension(reader, 1u << (lead - 0xd4));
	if (lead >= 0xd9 && lead <= 0xdb)
		return read_text(reader, take_uint(reader, 1u << (lead - 0xd9)));
	if (lead == 0xdc || lead == 0xdd)
		return read_array(reader, take_uint(reader, lead == 0xdd ? 4 : 2), depth);
	if (lead == 0xde || lead == 0xdf)
		return read_map(reader, take_uint(reader, lead == 0xdf ? 4 : 2), depth);
	reader->broken = true;
	return out;
}

/* `depth` counts the arrays and maps around it. */
static msgpack_object read_object(struct reader *reader, unsigned depth)
{
	unsigned char lead = (unsigned char)take_uint(reader, 1);
	if (lead < 0x80 || lead >= 0xe0) {
		reader->at -= !reader->broken;
		return read_signed(reader, 1);
	}
	if (lead < 0x90)
		return read_map(reader, lead & 15, depth);
	if (lead < 0xa0)
		return read_array(reader, lead & 15, depth);
	if (lead < 0xc0)
		return read_text(reader, lead & 31);
	return read_marked(reader, lead, depth);
}

bool tool_read(const char *bytes, size_t len, msgpack_zone *zone, msgpack_object *value)
{
	struct reader reader = { .bytes = bytes, .len = len, .zone = zone };
	*value = read_object(&reader, 0);
	return !reader.broken && reader.at == len;
}
