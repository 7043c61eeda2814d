/* store_api.c - the API's operations: principal, catalog, accept, poll, cancel. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/metrics.h"
#include "runtime/random.h"
#include "runtime/store.h"
#include "runtime/store_inner.h"

/* --- principal, catalog ----------------------------------------------------------------------- */

struct principal_op {
	void (*done)(void *ctx, enum hf_code code, int64_t owner, const struct hf_err *err);
	void *ctx;
};

static void on_principal(void *ctx, enum hf_code code, const PGresult *result,
			 const struct hf_err *err)
{
	struct principal_op *op = ctx;
	op->done(op->ctx, code, code == HF_OK ? pgrow_int8(result, 0, 0) : 0, err);
	free(op);
}

void store_principal(
    struct store *store, struct slice issuer, struct slice subject, struct slice tenant,
    void (*done)(void *ctx, enum hf_code code, int64_t owner, const struct hf_err *err), void *ctx)
{
	struct principal_op *op = hf_alloc(sizeof *op);
	*op = (struct principal_op){ done, ctx };
	struct pgparams params = {};
	pgparams_text(&params, issuer);
	pgparams_text(&params, subject);
	pgparams_text(&params, tenant);
	db_call(store->lanes[LANE_WRITE], "SELECT holdfast.principal_owner($1, $2, $3)", &params,
		STORE_GIVE_UP_MS, on_principal, op);
}

struct catalog_op {
	void (*done)(void *ctx, enum hf_code code, const struct store_catalog *catalog,
		     const struct hf_err *err);
	void *ctx;
};

enum { SHELF_NUMBER, SHELF_TOOL, SHELF_NAME, SHELF_VERSION, SHELF_DOC };

/* A row without a number of a tool is a pack, one without a name closes the answer. */
static void read_shelf(const PGresult *result, struct store_tool *tools, struct store_pack *packs,
		       struct store_catalog *catalog)
{
	*catalog = (struct store_catalog){
		.number = pgrow_int8(result, 0, SHELF_NUMBER),
		.tools = tools,
		.packs = packs,
	};
	for (int row = 0; row < PQntuples(result); row++) {
		if (pgrow_is_null(result, row, SHELF_NAME))
			continue;
		struct slice name = pgrow_slice(result, row, SHELF_NAME);
		struct slice version = pgrow_slice(result, row, SHELF_VERSION);
		struct slice doc = pgrow_slice(result, row, SHELF_DOC);
		if (pgrow_is_null(result, row, SHELF_TOOL))
			packs[catalog->packs_count++] = (struct store_pack){ name, doc };
		else
			tools[catalog->tools_count++] = (struct store_tool){
				.id = pgrow_int4(result, row, SHELF_TOOL),
				.name = name,
				.version = version,
				.doc = doc,
			};
	}
}

static void on_catalog(void *ctx, enum hf_code code, const PGresult *result,
		       const struct hf_err *err)
{
	struct catalog_op *op = ctx;
	struct store_catalog catalog = {};
	size_t rows = code == HF_OK ? (size_t)PQntuples(result) : 0;
	hf_assert(code != HF_OK || rows > 0);
	struct store_tool *tools = hf_alloc(rows * sizeof *tools);
	struct store_pack *packs = hf_alloc(rows * sizeof *packs);
	if (code == HF_OK)
		read_shelf(result, tools, packs, &catalog);
	op->done(op->ctx, code, code == HF_OK ? &catalog : nullptr, err);
	free(tools);
	free(packs);
	free(op);
}

void store_catalog(struct store *store, int64_t since,
		   void (*done)(void *ctx, enum hf_code code, const struct store_catalog *catalog,
				const struct hf_err *err),
		   void *ctx)
{
	struct catalog_op *op = hf_alloc(sizeof *op);
	*op = (struct catalog_op){ done, ctx };
	struct pgparams params = {};
	pgparams_int8(&params, since);
	db_call(store->lanes[LANE_READ], "SELECT * FROM holdfast.shelf($1)", &params,
		STORE_GIVE_UP_MS, on_catalog, op);
}

/* --- accept ----------------------------------------------------------------------------------- */

struct accept_op {
	struct batch_item item;
	struct store *store;
	void (*done)(void *ctx, enum hf_code code, enum accept_outcome outcome,
		     const struct task_view *view, const struct hf_err *err);
	void *ctx;
	struct accept_call call; /* slices point behind the struct */
	unsigned char digest[EFFECT_DIGEST_BYTES];
	unsigned char random[16]; /* of the task ID, should this be the first */
	char bytes[];
};

static struct accept_op *accept_of(struct batch_item *item)
{
	return container_of(item, struct accept_op, item);
}

static void accept_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	pgparams_bool(params, true);
	batch_column(PG_INT8, pgarray_int8(params, accept_of(item)->call.owner));
	batch_column(PG_INT4, pgarray_int4(params, accept_of(item)->call.tool));
	batch_column(PG_BYTEA, pgarray_bytes(params, accept_of(item)->digest, EFFECT_DIGEST_BYTES));
	batch_column(PG_TEXT, pgarray_slice(params, accept_of(item)->call.effect_id));
	batch_column(PG_BYTEA,
		     pgarray_bytes(params, accept_of(item)->call.fingerprint, FINGERPRINT_BYTES));
	batch_column(PG_TEXT, pgarray_slice(params, accept_of(item)->call.arguments));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, accept_of(item)->call.inputs));
	batch_column(PG_INT4, pgarray_int4(params, accept_of(item)->call.asks));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, accept_of(item)->call.trace));
	batch_column(PG_INT4, pgarray_int4(params, accept_of(item)->call.key_version));
	pgparams_array(params, PG_UUID);
	for (size_t i = 0; i < count; i++) {
		if (accept_of(items[i])->call.number)
			pgarray_uuid(params, &accept_of(items[i])->call.api);
		else
			pgarray_null(params);
	}
	batch_column(PG_INT8, pgarray_int8(params, accept_of(item)->call.number));
	batch_column(PG_BYTEA, pgarray_bytes(params, accept_of(item)->random, 16));
}

static const char *const accept_names[] = {
	[ACCEPT_NEW] = "new",         [ACCEPT_SAME] = "same", [ACCEPT_CONFLICT] = "conflict",
	[ACCEPT_EXPIRED] = "expired", [ACCEPT_FULL] = "full",
};

static enum accept_outcome accept_outcome_of(struct slice name)
{
	enum accept_outcome outcome = ACCEPT_NEW;
	while (outcome < ACCEPT_FULL && !slice_is(name, accept_names[outcome]))
		outcome++;
	return outcome;
}

/* One row answers its item and those that share its key; only the first can be new, each is judged
 * by its own fingerprint, and one that declares Tasks behind a plain call is asked again, to hold.
 * Of several plain calls one is attached; their process attaches the others (api/plain.c). */
static void accept_tell(struct batch_item *item, enum accept_outcome outcome,
			const struct task_view *view)
{
	struct accept_op *first = accept_of(item);
	/* 'same' under our own random bytes: our commit's answer was lost, it is still the first.
	 */
	if (outcome == ACCEPT_SAME && memcmp(view->id.bytes + 8, first->random, 16) == 0)
		outcome = ACCEPT_NEW;
	for (struct batch_item *at = item, *next; at; at = next) {
		struct accept_op *op = accept_of(at);
		next = at->folded;
		enum accept_outcome mine = outcome;
		bool equal =
		    memcmp(op->call.fingerprint, first->call.fingerprint, FINGERPRINT_BYTES) == 0;
		if (op != first && outcome == ACCEPT_NEW)
			mine = equal ? ACCEPT_SAME : ACCEPT_CONFLICT;
		bool holds = first->call.number && !op->call.number;
		if (op != first && (holds || (outcome != ACCEPT_NEW && !equal))) {
			/* The row spoke for another fingerprint, or holds nothing: ask again alone.
			 */
			at->folded = nullptr;
			store_add(op->store, BATCH_ACCEPT, at);
			continue;
		}
		bool seen = mine == ACCEPT_NEW || mine == ACCEPT_SAME;
		metric_add(METRIC_calls_total, accept_names[mine], 1);
		op->done(op->ctx, HF_OK, mine, seen ? view : nullptr, nullptr);
		if (op != first)
			free(op);
	}
	free(first);
}

static void accept_deliver(struct batch_item *const *items, size_t count, const PGresult *result)
{
	static const struct view_columns columns = {
		2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1, -1, -1, -1
	};
	hf_assert((size_t)PQntuples(result) == count);
	bool news = false;
	struct store *store = accept_of(items[0])->store;
	for (int row = 0; row < (int)count; row++) {
		struct batch_item *item = batch_answered(items, count, result, row);
		struct accept_op *op = accept_of(item);
		enum accept_outcome outcome = accept_outcome_of(pgrow_slice(result, row, 1));
		struct task_view view = {};
		if (outcome == ACCEPT_NEW || outcome == ACCEPT_SAME) {
			store_read_view(result, row, &columns, &view);
			view.effect_id = op->call.effect_id;
		}
		news = news || outcome == ACCEPT_NEW;
		accept_tell(item, outcome, &view);
	}
	if (news)
		store_wake(store, WAKE_WORK);
}

static void accept_fail(struct batch_item *item, enum hf_code code, const struct hf_err *err)
{
	struct accept_op *op = accept_of(item);
	op->done(op->ctx, code, ACCEPT_NEW, nullptr, err);
	free(op);
}

const struct batch_kind batch_accept = {
	.name = "accept",
	.sql = "SELECT *, " STORE_WAL " FROM holdfast.accept_bounded($1, $2, $3, $4, $5, $6, "
	       "$7, $8, $9, $10, $11, $12, $13, $14)",
	.folds = true,
	.build = accept_build,
	.deliver = accept_deliver,
	.fail = accept_fail,
};

static struct slice keep(char **at, struct slice slice)
{
	char *copy = *at;
	if (slice.len)
		memcpy(copy, slice.data, slice.len);
	*at += slice.len;
	return (struct slice){ copy, slice.len };
}

void store_accept(struct store *store, const struct accept_call *call,
		  void (*done)(void *ctx, enum hf_code code, enum accept_outcome outcome,
			       const struct task_view *view, const struct hf_err *err),
		  void *ctx)
{
	size_t bytes =
	    call->effect_id.len + call->arguments.len + call->inputs.len + call->trace.len;
	struct accept_op *op = hf_alloc(sizeof *op + bytes);
	op->store = store;
	op->done = done;
	op->ctx = ctx;
	op->call = *call;
	char *at = op->bytes;
	op->call.effect_id = keep(&at, call->effect_id);
	op->call.arguments = keep(&at, call->arguments);
	op->call.inputs = keep(&at, call->inputs);
	op->call.trace = keep(&at, call->trace);
	effect_digest(call->owner, call->tool_name, call->effect_id, op->digest);
	random_bytes(op->random, sizeof op->random);
	op->item.bytes = bytes;
	op->item.source = call->owner;
	op->item.key = (struct slice){ (const char *)op->digest, sizeof op->digest };
	store_add(store, BATCH_ACCEPT, &op->item);
}

/* --- poll, cancel, attach, detach: they name a task of an owner ------------------------------- */

struct task_op {
	struct batch_item item;
	struct store *store;
	int64_t owner;
	struct task_id id;
	void (*poll_done)(void *ctx, enum hf_code code, const struct task_view *view,
			  const struct hf_err *err);
	void (*cancel_done)(void *ctx, enum hf_code code, const struct hf_err *err);
	void *ctx;
	bool told, asking;
	/* attach, detach */
	struct uuid api;
	int64_t number;
	bool park;
	void (*detach_done)(void *ctx, enum hf_code code, bool ours, int step,
			    const struct hf_err *err);
};

static struct task_op *task_of(struct batch_item *item)
{
	return container_of(item, struct task_op, item);
}

static void task_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	pgparams_int4(params, items[0]->week);
	batch_column(PG_INT8, pgarray_int8(params, task_of(item)->owner));
	batch_column(PG_BYTEA, pgarray_task_id(params, &task_of(item)->id));
}

static void task_fail(struct batch_item *item, enum hf_code code, const struct hf_err *err)
{
	struct task_op *op = task_of(item);
	if (op->poll_done)
		op->poll_done(op->ctx, code, nullptr, err);
	else if (op->detach_done)
		op->detach_done(op->ctx, code, false, 0, err);
	else
		op->cancel_done(op->ctx, code, err);
	free(op);
}

static const struct view_columns poll_columns = { 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
/* A task that waits has no successor; what it asks is in that place. */
static const struct view_columns asking_columns = {
	2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -1
};

static void task_missing(struct batch_item *item)
{
	struct hf_err err = {};
	(void)hf_fail(&err, HF_MISSING, "no such task");
	task_fail(item, HF_MISSING, &err);
}

/* A waiting task is looked at again, with what it asks: polls of all others stay cheap. */
static void on_asking(void *ctx, enum hf_code code, const PGresult *result,
		      const struct hf_err *err)
{
	struct task_op *op = ctx;
	if (code != HF_OK) {
		task_fail(&op->item, code, err);
		return;
	}
	if (PQntuples(result) == 0) {
		task_missing(&op->item);
		return;
	}
	struct task_view view;
	store_read_view(result, 0, &asking_columns, &view);
	hf_assert(pgrow_int8(result, 0, 1) == op->owner);
	hf_assert(task_id_equal(&view.id, &op->id));
	view.requests = pgrow_slice(result, 0, 15);
	/* The last answer came between the two looks at it. */
	if (view.state == TASK_WAITING && view.requests.len == 0)
		view.state = TASK_READY;
	if (view.state != TASK_WAITING)
		view.requests = (struct slice){};
	op->poll_done(op->ctx, HF_OK, &view, nullptr);
	free(op);
}

static void poll_asking(struct task_op *op)
{
	struct pgparams params = {};
	pgparams_int4(&params, task_id_week(&op->id));
	pgparams_int8(&params, op->owner);
	pgparams_task_id(&params, &op->id);
	db_call(op->store->lanes[LANE_READ], "SELECT * FROM holdfast.poll_asking($1, $2, $3)",
		&params, STORE_GIVE_UP_MS, on_asking, op);
}

static void poll_deliver(struct batch_item *const *items, size_t count, const PGresult *result)
{
	for (int row = 0; row < PQntuples(result); row++) {
		struct batch_item *item = batch_answered(items, count, result, row);
		struct task_op *op = task_of(item);
		struct task_view view;
		store_read_view(result, row, &poll_columns, &view);
		/* The last wall before a byte is told (V8): it is theirs and it is what they named.
		 */
		hf_assert(pgrow_int8(result, row, 1) == op->owner);
		hf_assert(task_id_equal(&view.id, &op->id));
		op->told = true;
		op->asking = view.state == TASK_WAITING;
		if (op->asking)
			poll_asking(op);
		else
			op->poll_done(op->ctx, HF_OK, &view, nullptr);
	}
	for (size_t i = 0; i < count; i++) {
		struct task_op *op = task_of(items[i]);
		if (!op->told)
			task_missing(items[i]);
		else if (!op->asking)
			free(op);
	}
}

const struct batch_kind batch_poll = {
	.name = "poll",
	.sql = "SELECT * FROM holdfast.poll_task($1, $2, $3)",
	.build = task_build,
	.deliver = poll_deliver,
	.fail = task_fail,
};

static void cancel_deliver(struct batch_item *const *items, size_t count, const PGresult *result)
{
	hf_assert((size_t)PQntuples(result) == count);
	struct store *store = task_of(items[0])->store;
	for (int row = 0; row < (int)count; row++) {
		struct batch_item *item = batch_answered(items, count, result, row);
		if (pgrow_bool(result, row, 2))
			store_wake(store, WAKE_WISH);
		if (!pgrow_bool(result, row, 1)) {
			task_missing(item);
			continue;
		}
		struct task_op *op = task_of(item);
		op->cancel_done(op->ctx, HF_OK, nullptr);
		free(op);
	}
}

const struct batch_kind batch_cancel = {
	.name = "cancel",
	.sql = "SELECT * FROM holdfast.cancel($1, $2, $3)",
	.build = task_build,
	.deliver = cancel_deliver,
	.fail = task_fail,
};

static struct task_op *task_op_new(struct store *store, int64_t owner, const struct task_id *id,
				   void *ctx)
{
	struct task_op *op = hf_alloc(sizeof *op);
	op->store = store;
	op->owner = owner;
	op->id = *id;
	op->ctx = ctx;
	op->item.week = task_id_week(id);
	op->item.bytes = TASK_ID_BYTES;
	op->item.source = owner;
	return op;
}

void store_poll(struct store *store, int64_t owner, const struct task_id *id,
		void (*done)(void *ctx, enum hf_code code, const struct task_view *view,
			     const struct hf_err *err),
		void *ctx)
{
	struct task_op *op = task_op_new(store, owner, id, ctx);
	op->poll_done = done;
	store_add(store, BATCH_POLL, &op->item);
}

void store_cancel(struct store *store, int64_t owner, const struct task_id *id, store_done *done,
		  void *ctx)
{
	struct task_op *op = task_op_new(store, owner, id, ctx);
	op->cancel_done = done;
	op->item.key = (struct slice){ (const char *)op->id.bytes, TASK_ID_BYTES };
	store_add(store, BATCH_CANCEL, &op->item);
}

static void calls_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	batch_column(PG_BYTEA, pgarray_task_id(params, &task_of(item)->id));
	batch_column(PG_UUID, pgarray_uuid(params, &task_of(item)->api));
	batch_column(PG_INT8, pgarray_int8(params, task_of(item)->number));
}

static void attach_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	batch_column(PG_INT8, pgarray_int8(params, task_of(item)->owner));
	calls_build(items, count, params);
}

static void attach_deliver(struct batch_item *const *items, size_t count, const PGresult *)
{
	store_wake(task_of(items[0])->store, WAKE_WORK);
	for (size_t i = 0; i < count; i++) {
		struct task_op *op = task_of(items[i]);
		op->cancel_done(op->ctx, HF_OK, nullptr);
		free(op);
	}
}

const struct batch_kind batch_attach = {
	.name = "attach",
	.sql = "SELECT holdfast.attach($1, $2, $3, $4)",
	.build = attach_build,
	.deliver = attach_deliver,
	.fail = task_fail,
};

void store_attach(struct store *store, int64_t owner, const struct task_id *id,
		  const struct uuid *api, int64_t number, store_done *done, void *ctx)
{
	struct task_op *op = task_op_new(store, owner, id, ctx);
	op->item.week = 0;
	op->item.key = (struct slice){ (const char *)op->id.bytes, TASK_ID_BYTES };
	op->api = *api;
	op->number = number;
	op->cancel_done = done;
	store_add(store, BATCH_ATTACH, &op->item);
}

static void detach_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	calls_build(items, count, params);
	batch_column(PG_BOOL, pgarray_bool(params, task_of(item)->park));
}

static void detach_deliver(struct batch_item *const *items, size_t count, const PGresult *result)
{
	hf_assert((size_t)PQntuples(result) == count);
	for (int row = 0; row < (int)count; row++) {
		struct batch_item *item = batch_answered(items, count, result, row);
		struct task_op *op = task_of(item);
		if (pgrow_bool(result, row, 3))
			store_wake(op->store, WAKE_WISH);
		op->detach_done(op->ctx, HF_OK, pgrow_bool(result, row, 1),
				pgrow_int4(result, row, 2), nullptr);
		free(op);
	}
}

const struct batch_kind batch_detach = {
	.name = "detach",
	.sql = "SELECT * FROM holdfast.detach($1, $2, $3, $4)",
	.build = detach_build,
	.deliver = detach_deliver,
	.fail = task_fail,
};

void store_detach(struct store *store, const struct task_id *id, const struct uuid *api,
		  int64_t number, bool park,
		  void (*done)(void *ctx, enum hf_code code, bool ours, int step,
			       const struct hf_err *err),
		  void *ctx)
{
	struct task_op *op = task_op_new(store, 0, id, ctx);
	op->item.week = 0;
	op->item.key = (struct slice){ (const char *)op->id.bytes, TASK_ID_BYTES };
	op->api = *api;
	op->number = number;
	op->park = park;
	op->detach_done = done;
	store_add(store, BATCH_DETACH, &op->item);
}

/* --- answer ----------------------------------------------------------------------------------- */

struct answer_op {
	struct store *store;
	struct store_end end;
	void (*done)(void *ctx, enum hf_code code, int taken, const struct hf_err *err);
	void *ctx;
};

static void on_answer(void *ctx, enum hf_code code, const PGresult *result,
		      const struct hf_err *err)
{
	struct answer_op *op = ctx;
	struct hf_err missing = {};
	int taken = 0;
	if (code == HF_OK && !pgrow_bool(result, 0, 0)) {
		code = hf_fail(&missing, HF_MISSING, "no such task");
		err = &missing;
	} else if (code == HF_OK) {
		taken = pgrow_int4(result, 0, 2);
		if (pgrow_bool(result, 0, 1))
			store_wake(op->store, WAKE_WORK);
	}
	op->done(op->ctx, code, taken, err);
}

static void on_answer_ended(void *ctx)
{
	struct answer_op *op = ctx;
	op->end.ended(op->end.ctx);
	free(op);
}

void store_answer(struct store *store, int64_t owner, const struct task_id *id,
		  struct slice answers, struct store_end end,
		  void (*done)(void *ctx, enum hf_code code, int taken, const struct hf_err *err),
		  void *ctx)
{
	struct answer_op *op = hf_alloc(sizeof *op);
	*op = (struct answer_op){ store, end, done, ctx };
	struct pgparams params = {};
	pgparams_int4(&params, task_id_week(id));
	pgparams_int8(&params, owner);
	pgparams_task_id(&params, id);
	pgparams_text(&params, answers);
	db_call_until(store->lanes[LANE_WRITE], "SELECT * FROM holdfast.answer($1, $2, $3, $4)",
		      &params, STORE_GIVE_UP_MS, on_answer, on_answer_ended, op);
}

/* --- intent window ---------------------------------------------------------------------------- */

struct window_op {
	void (*done)(void *ctx, enum hf_code code, struct slice effect_id,
		     const struct hf_err *err);
	void *ctx;
};

static void on_window(void *ctx, enum hf_code code, const PGresult *result,
		      const struct hf_err *err)
{
	struct window_op *op = ctx;
	op->done(op->ctx, code, code == HF_OK ? pgrow_slice(result, 0, 0) : (struct slice){}, err);
	free(op);
}

void store_intent_window(struct store *store, const struct accept_call *call, struct slice fresh,
			 int64_t window_ms,
			 void (*done)(void *ctx, enum hf_code code, struct slice effect_id,
				      const struct hf_err *err),
			 void *ctx)
{
	unsigned char digest[EFFECT_DIGEST_BYTES];
	/* Of a table of its own, where the fingerprint stands for the effect ID. */
	effect_digest(call->owner, call->tool_name,
		      (struct slice){ (const char *)call->fingerprint, FINGERPRINT_BYTES }, digest);
	struct window_op *op = hf_alloc(sizeof *op);
	*op = (struct window_op){ done, ctx };
	struct pgparams params = {};
	pgparams_bytea(&params, (struct slice){ (const char *)digest, sizeof digest });
	pgparams_text(&params, fresh);
	pgparams_int8(&params, window_ms);
	db_call(store->lanes[LANE_WRITE], "SELECT holdfast.intent_window($1, $2, $3)", &params,
		STORE_GIVE_UP_MS, on_window, op);
}

/* --- find ------------------------------------------------------------------------------------- */

struct find_op {
	void (*done)(void *ctx, enum hf_code code, const struct task_id *id,
		     const struct hf_err *err);
	void *ctx;
};

static void on_found(void *ctx, enum hf_code code, const PGresult *result, const struct hf_err *err)
{
	struct find_op *op = ctx;
	struct task_id id = {};
	struct hf_err missing = {};
	if (code == HF_OK && pgrow_is_null(result, 0, 0)) {
		code = hf_fail(&missing, HF_MISSING, "no such effect");
		err = &missing;
	}
	if (code == HF_OK)
		pgrow_task_id(result, 0, 0, &id);
	op->done(op->ctx, code, code == HF_OK ? &id : nullptr, err);
	free(op);
}

void store_find(struct store *store, int64_t owner, struct slice tool_name, struct slice effect_id,
		void (*done)(void *ctx, enum hf_code code, const struct task_id *id,
			     const struct hf_err *err),
		void *ctx)
{
	unsigned char digest[EFFECT_DIGEST_BYTES];
	effect_digest(owner, tool_name, effect_id, digest);
	struct find_op *op = hf_alloc(sizeof *op);
	*op = (struct find_op){ done, ctx };
	struct pgparams params = {};
	pgparams_bytea(&params, (struct slice){ (const char *)digest, sizeof digest });
	db_call(store->lanes[LANE_READ], "SELECT holdfast.find($1)", &params, STORE_GIVE_UP_MS,
		on_found, op);
}
