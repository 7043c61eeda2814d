#include "runtime/pgvalue.h"

#include <endian.h>
#include <string.h>

#include "runtime/base.h"

/* An array value: dimensions, has-nulls flag, element type, then length and lower bound of the one
 * dimension; each element is a length (-1: NULL) and its bytes. */
constexpr size_t ARRAY_HEAD_BYTES = 20;
constexpr size_t ARRAY_COUNT_AT = 12;

static struct buf *param_next(struct pgparams *params, Oid type)
{
	hf_assert(params->count < PGPARAMS_MAX);
	params->types[params->count] = type;
	return &params->values[params->count++];
}

static void add_be32(struct buf *buf, uint32_t value)
{
	uint32_t big = htobe32(value);
	buf_add(buf, &big, sizeof big);
}

static void add_be64(struct buf *buf, uint64_t value)
{
	uint64_t big = htobe64(value);
	buf_add(buf, &big, sizeof big);
}

void pgparams_int4(struct pgparams *params, int32_t value)
{
	add_be32(param_next(params, PG_INT4), (uint32_t)value);
}

void pgparams_int8(struct pgparams *params, int64_t value)
{
	add_be64(param_next(params, PG_INT8), (uint64_t)value);
}

void pgparams_bool(struct pgparams *params, bool value)
{
	buf_add_byte(param_next(params, PG_BOOL), value);
}

static void param_slice(struct pgparams *params, Oid type, struct slice value)
{
	struct buf *buf = param_next(params, type);
	buf_add(buf, "", 0); /* so that an empty value has bytes to point at */
	buf_add_slice(buf, value);
}

void pgparams_text(struct pgparams *params, struct slice value)
{
	param_slice(params, PG_TEXT, value);
}

void pgparams_bytea(struct pgparams *params, struct slice value)
{
	param_slice(params, PG_BYTEA, value);
}

void pgparams_uuid(struct pgparams *params, const struct uuid *value)
{
	buf_add(param_next(params, PG_UUID), value->bytes, sizeof value->bytes);
}

void pgparams_task_id(struct pgparams *params, const struct task_id *value)
{
	buf_add(param_next(params, PG_BYTEA), value->bytes, sizeof value->bytes);
}

static Oid array_type(enum pgtype type)
{
	switch (type) {
	case PG_BOOL:
		return 1000;
	case PG_BYTEA:
		return 1001;
	case PG_INT8:
		return 1016;
	case PG_INT4:
		return 1007;
	case PG_TEXT:
		return 1009;
	case PG_FLOAT4:
		return 1021;
	case PG_UUID:
		return 2951;
	}
	hf_assert(false);
	return 0;
}

void pgparams_array(struct pgparams *params, enum pgtype type)
{
	struct buf *buf = param_next(params, array_type(type));
	add_be32(buf, 1);
	add_be32(buf, 1);
	add_be32(buf, type);
	add_be32(buf, 0);
	add_be32(buf, 1);
}

static struct buf *array_element(struct pgparams *params)
{
	hf_assert(params->count > 0);
	struct buf *buf = &params->values[params->count - 1];
	hf_assert(buf->len >= ARRAY_HEAD_BYTES);
	uint32_t count;
	memcpy(&count, buf->data + ARRAY_COUNT_AT, sizeof count);
	count = htobe32(be32toh(count) + 1);
	memcpy(buf->data + ARRAY_COUNT_AT, &count, sizeof count);
	return buf;
}

void pgarray_bytes(struct pgparams *params, const void *bytes, size_t len)
{
	struct buf *buf = array_element(params);
	hf_assert(len < INT32_MAX);
	add_be32(buf, (uint32_t)len);
	buf_add(buf, bytes, len);
}

void pgarray_int4(struct pgparams *params, int32_t value)
{
	uint32_t big = htobe32((uint32_t)value);
	pgarray_bytes(params, &big, sizeof big);
}

void pgarray_int8(struct pgparams *params, int64_t value)
{
	uint64_t big = htobe64((uint64_t)value);
	pgarray_bytes(params, &big, sizeof big);
}

void pgarray_bool(struct pgparams *params, bool value)
{
	char byte = value;
	pgarray_bytes(params, &byte, 1);
}

void pgarray_float4(struct pgparams *params, float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	pgarray_int4(params, (int32_t)bits);
}

void pgarray_uuid(struct pgparams *params, const struct uuid *value)
{
	pgarray_bytes(params, value->bytes, sizeof value->bytes);
}

void pgarray_task_id(struct pgparams *params, const struct task_id *value)
{
	pgarray_bytes(params, value->bytes, sizeof value->bytes);
}

void pgarray_slice(struct pgparams *params, struct slice value)
{
	pgarray_bytes(params, value.len ? value.data : "", value.len);
}

void pgarray_slice_or_null(struct pgparams *params, struct slice value)
{
	if (value.len)
		pgarray_slice(params, value);
	else
		pgarray_null(params);
}

void pgarray_null(struct pgparams *params)
{
	add_be32(array_element(params), UINT32_MAX);
}

bool pgparams_send(const struct pgparams *params, PGconn *conn, const char *sql)
{
	const char *values[PGPARAMS_MAX];
	int lengths[PGPARAMS_MAX], formats[PGPARAMS_MAX];
	for (int i = 0; i < params->count; i++) {
		values[i] = params->values[i].data;
		lengths[i] = (int)params->values[i].len;
		formats[i] = 1;
	}
	return PQsendQueryParams(conn, sql, params->count, params->types, values, lengths, formats,
				 1);
}

void pgparams_deinit(struct pgparams *params)
{
	for (int i = 0; i < params->count; i++)
		buf_deinit(&params->values[i]);
	*params = (struct pgparams){};
}

bool pgrow_is_null(const PGresult *result, int row, int column)
{
	return PQgetisnull(result, row, column);
}

struct slice pgrow_slice(const PGresult *result, int row, int column)
{
	if (PQgetisnull(result, row, column))
		return (struct slice){ "", 0 };
	return (struct slice){ PQgetvalue(result, row, column),
			       (size_t)PQgetlength(result, row, column) };
}

/* The bytes of a field of that width; false for NULL. */
static bool fixed(const PGresult *result, int row, int column, void *out, size_t width)
{
	if (PQgetisnull(result, row, column))
		return false;
	hf_assert((size_t)PQgetlength(result, row, column) == width);
	memcpy(out, PQgetvalue(result, row, column), width);
	return true;
}

int32_t pgrow_int4(const PGresult *result, int row, int column)
{
	uint32_t big = 0;
	fixed(result, row, column, &big, sizeof big);
	return (int32_t)be32toh(big);
}

int64_t pgrow_int8(const PGresult *result, int row, int column)
{
	uint64_t big = 0;
	fixed(result, row, column, &big, sizeof big);
	return (int64_t)be64toh(big);
}

bool pgrow_bool(const PGresult *result, int row, int column)
{
	char byte = 0;
	fixed(result, row, column, &byte, 1);
	return byte != 0;
}

float pgrow_float4(const PGresult *result, int row, int column)
{
	uint32_t bits = (uint32_t)pgrow_int4(result, row, column);
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

void pgrow_uuid(const PGresult *result, int row, int column, struct uuid *out)
{
	*out = (struct uuid){};
	fixed(result, row, column, out->bytes, sizeof out->bytes);
}

void pgrow_task_id(const PGresult *result, int row, int column, struct task_id *out)
{
	*out = (struct task_id){};
	fixed(result, row, column, out->bytes, sizeof out->bytes);
}

static uint32_t be32_at(struct slice bytes, size_t at)
{
	hf_assert(at + 4 <= bytes.len);
	uint32_t big;
	memcpy(&big, bytes.data + at, sizeof big);
	return be32toh(big);
}

bool pgrow_array_next(const PGresult *result, int row, int column, size_t *at, struct slice *out)
{
	struct slice bytes = pgrow_slice(result, row, column);
	if (*at == 0)
		*at = ARRAY_HEAD_BYTES;
	if (bytes.len < ARRAY_HEAD_BYTES || *at >= bytes.len)
		return false;
	uint32_t len = be32_at(bytes, *at);
	*at += 4;
	if (len == UINT32_MAX) {
		*out = (struct slice){ nullptr, 0 };
		return true;
	}
	hf_assert(len <= bytes.len - *at);
	*out = (struct slice){ bytes.data + *at, len };
	*at += len;
	return true;
}

size_t pgrow_array_count(const PGresult *result, int row, int column)
{
	struct slice bytes = pgrow_slice(result, row, column);
	return bytes.len < ARRAY_HEAD_BYTES ? 0 : be32_at(bytes, ARRAY_COUNT_AT);
}

int32_t pgslice_int4(struct slice value)
{
	return (int32_t)be32_at(value, 0);
}
