/* store_artifact.c - the API's look at an artifact, as a resource of the task's owner. */
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/store.h"
#include "runtime/store_inner.h"

struct artifact_op {
	void (*done)(void *ctx, enum hf_code code, const struct store_artifact *artifact,
		     const struct hf_err *err);
	void *ctx;
	struct store_end end;
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
}

static void on_artifact_ended(void *ctx)
{
	struct artifact_op *op = ctx;
	op->end.ended(op->end.ctx);
	free(op);
}

void store_artifact_of(struct store *store, const struct artifact_look *look, struct store_end end,
		       void (*done)(void *ctx, enum hf_code code,
				    const struct store_artifact *artifact,
				    const struct hf_err *err),
		       void *ctx)
{
	struct artifact_op *op = hf_alloc(sizeof *op);
	*op = (struct artifact_op){ done, ctx, end };
	struct pgparams params = {};
	pgparams_int4(&params, task_id_week(look->id));
	pgparams_int8(&params, look->owner);
	pgparams_task_id(&params, look->id);
	pgparams_text(&params, look->name);
	pgparams_int8(&params, (int64_t)look->bytes_max);
	db_call_until(store->lanes[LANE_READ],
		      "SELECT * FROM holdfast.artifact_of($1, $2, $3, $4, $5)", &params,
		      STORE_GIVE_UP_MS, on_artifact, on_artifact_ended, op);
}
