/* store_pack.c - the API's look at an artifact, as a resource of the task's owner. */
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/store.h"
#include "runtime/store_inner.h"

struct artifact_op {
	void (*done)(void *ctx, enum hf_code code, const struct store_artifact *artifact,
		     const struct hf_err *err);
	void *ctx;
};

static void on_artifact(void *ctx, enum hf_code code, const PGresult *result,
			const struct hf_err *err)
{
	struct artifact_op *op = ctx;
	struct store_artifact artifact = {};
	struct hf_err missing = {};
	if (code == HF_OK && PQntuples(result) == 0) {
		code = hf_fail(&missing, HF_MISSING, "no such artifact");
		err = &missing;
	}
	if (code == HF_OK)
		artifact = (struct store_artifact){
			.media_type = pgrow_slice(result, 0, 0),
			.size = pgrow_int8(result, 0, 1),
			.content = pgrow_slice(result, 0, 2),
		};
	op->done(op->ctx, code, code == HF_OK ? &artifact : nullptr, err);
	free(op);
}

void store_artifact_of(struct store *store, int64_t owner, const struct task_id *id,
		       struct slice name, size_t bytes_max,
		       void (*done)(void *ctx, enum hf_code code,
				    const struct store_artifact *artifact,
				    const struct hf_err *err),
		       void *ctx)
{
	struct artifact_op *op = hf_alloc(sizeof *op);
	*op = (struct artifact_op){ done, ctx };
	struct pgparams params = {};
	pgparams_int4(&params, task_id_week(id));
	pgparams_int8(&params, owner);
	pgparams_bytea(&params, (struct slice){ (const char *)id->bytes, TASK_ID_BYTES });
	pgparams_text(&params, name);
	pgparams_int8(&params, (int64_t)bytes_max);
	db_call(store->lanes[LANE_READ], "SELECT * FROM holdfast.artifact_of($1, $2, $3, $4, $5)",
		&params, STORE_GIVE_UP_MS, on_artifact, op);
}
