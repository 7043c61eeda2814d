/* pgvalue.h - values to and from Postgres in its binary format: parameters that are arrays, one
 * column of a batch each, and rows read back. */
#pragma once

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/id.h"
#include "runtime/slice.h"

constexpr int PGPARAMS_MAX = 16;

enum pgtype : Oid {
	PG_BOOL = 16,
	PG_BYTEA = 17,
	PG_INT8 = 20,
	PG_INT4 = 23,
	PG_TEXT = 25,
	PG_FLOAT4 = 700,
	PG_UUID = 2950,
};

/* A zeroed struct is empty. Values are appended in the order of the statement's parameters. */
struct pgparams {
	int count;
	Oid types[PGPARAMS_MAX];
	struct buf values[PGPARAMS_MAX];
};

void pgparams_int4(struct pgparams *params, int32_t value);
void pgparams_int8(struct pgparams *params, int64_t value);
void pgparams_bool(struct pgparams *params, bool value);
void pgparams_text(struct pgparams *params, struct slice value);
void pgparams_bytea(struct pgparams *params, struct slice value);
void pgparams_uuid(struct pgparams *params, const struct uuid *value);
void pgparams_task_id(struct pgparams *params, const struct task_id *value);

/* An array parameter of elements of `type`; then one pgarray_… for each element. */
void pgparams_array(struct pgparams *params, enum pgtype type);
void pgarray_int4(struct pgparams *params, int32_t value);
void pgarray_int8(struct pgparams *params, int64_t value);
void pgarray_bool(struct pgparams *params, bool value);
void pgarray_float4(struct pgparams *params, float value);
void pgarray_uuid(struct pgparams *params, const struct uuid *value);
void pgarray_task_id(struct pgparams *params, const struct task_id *value);
void pgarray_bytes(struct pgparams *params, const void *bytes, size_t len);
void pgarray_slice(struct pgparams *params, struct slice value);
/* NULL where the slice is empty. */
void pgarray_slice_or_null(struct pgparams *params, struct slice value);
void pgarray_null(struct pgparams *params);

/* Queues the statement with these parameters, its answer to come in binary; false: the connection
 * is broken. `params` stays the caller's. */
[[nodiscard]] bool pgparams_send(const struct pgparams *params, PGconn *conn, const char *sql);
/* Frees the values; a zeroed struct again. */
void pgparams_deinit(struct pgparams *params);

/* One field of a result; NULL reads as 0, false or an empty slice. The type is the statement's own
 * business: a wrong width is a broken invariant. */
bool pgrow_is_null(const PGresult *result, int row, int column);
int32_t pgrow_int4(const PGresult *result, int row, int column);
int64_t pgrow_int8(const PGresult *result, int row, int column);
bool pgrow_bool(const PGresult *result, int row, int column);
float pgrow_float4(const PGresult *result, int row, int column);
struct slice pgrow_slice(const PGresult *result, int row, int column);
void pgrow_uuid(const PGresult *result, int row, int column, struct uuid *out);
void pgrow_task_id(const PGresult *result, int row, int column, struct task_id *out);

/* Walks an array field: start with *at = 0; false at the end. A NULL element has data nullptr. */
bool pgrow_array_next(const PGresult *result, int row, int column, size_t *at, struct slice *out);
size_t pgrow_array_count(const PGresult *result, int row, int column);
int32_t pgslice_int4(struct slice value);
