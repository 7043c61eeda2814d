/* store_worker.c - the worker's operations: beat, claim, step, finish, release, artifacts, tools.
 * Every write names its claim. None of them gives up: an answer comes once Postgres is back. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/metrics.h"
#include "runtime/store.h"
#include "runtime/store_inner.h"

/* --- beat, leave ------------------------------------------------------------------------------ */

struct beat_op {
	struct store *store;
	struct uuid incarnation;
	int64_t sent_ms;
	size_t tasks;
	void (*done)(void *ctx, enum hf_code code, bool alive, const struct beat_wish *wishes,
		     size_t wishes_count, const struct hf_err *err);
	void *ctx;
};

static void on_beat(void *ctx, enum hf_code code, const PGresult *result, const struct hf_err *err)
{
	struct beat_op *op = ctx;
	struct beat_wish *wishes = nullptr;
	size_t count = 0;
	bool alive = false;
	if (code == HF_OK) {
		int rows = PQntuples(result);
		hf_assert(rows > 0);
		alive = pgrow_bool(result, 0, 0);
		wishes = hf_alloc((size_t)rows * sizeof *wishes);
		for (int row = 0; row < rows; row++) {
			if (pgrow_is_null(result, row, 1))
				continue;
			pgrow_task_id(result, row, 1, &wishes[count].id);
			pgrow_uuid(result, row, 2, &wishes[count].token);
			wishes[count++].wish = (enum wish)pgrow_int4(result, row, 3);
		}
		op->store->beaten = op->incarnation;
		op->store->has_beaten = true;
		op->store->beat_ms = op->sent_ms;
		metric_batch("beat", op->tasks, clock_boot_ms() - op->sent_ms);
	}
	op->done(op->ctx, code, alive, wishes, count, err);
	free(wishes);
	free(op);
}

void store_beat(struct store *store, const struct uuid *incarnation, int capacity, int running,
		const struct beat_task *tasks, size_t count,
		void (*done)(void *ctx, enum hf_code code, bool alive,
			     const struct beat_wish *wishes, size_t wishes_count,
			     const struct hf_err *err),
		void *ctx)
{
	struct beat_op *op = hf_alloc(sizeof *op);
	*op = (struct beat_op){ store, *incarnation, clock_boot_ms(), count, done, ctx };
	bool fresh = !store->has_beaten || !uuid_equal(&store->beaten, incarnation);
	struct pgparams params = {};
	pgparams_uuid(&params, incarnation);
	pgparams_bool(&params, fresh);
	pgparams_text(&params, slice_of(store->role == STORE_API ? "api" : "worker"));
	pgparams_int4(&params, capacity);
	pgparams_int4(&params, running);
	pgparams_array(&params, PG_BYTEA);
	for (size_t i = 0; i < count; i++)
		pgarray_task_id(&params, &tasks[i].id);
	pgparams_array(&params, PG_UUID);
	for (size_t i = 0; i < count; i++)
		pgarray_uuid(&params, &tasks[i].token);
	pgparams_array(&params, PG_FLOAT4);
	for (size_t i = 0; i < count; i++) {
		if (tasks[i].progress < 0)
			pgarray_null(&params);
		else
			pgarray_float4(&params, (float)tasks[i].progress);
	}
	pgparams_array(&params, PG_TEXT);
	for (size_t i = 0; i < count; i++)
		pgarray_slice_or_null(&params, tasks[i].message);
	db_call(store->lanes[LANE_BEAT],
		"SELECT * FROM holdfast.beat_async($1, $2, $3, $4, $5, $6, $7, $8, $9)", &params, 0,
		on_beat, op);
}

/* For operations whose answer is no more than that it was done. */
struct plain_op {
	store_done *done;
	void *ctx;
};

static void on_plain(void *ctx, enum hf_code code, const PGresult *, const struct hf_err *err)
{
	struct plain_op *op = ctx;
	op->done(op->ctx, code, err);
	free(op);
}

void store_leave(struct store *store, const struct uuid *incarnation, store_done *done, void *ctx)
{
	struct plain_op *op = hf_alloc(sizeof *op);
	*op = (struct plain_op){ done, ctx };
	struct pgparams params = {};
	pgparams_uuid(&params, incarnation);
	db_call(store->lanes[LANE_BEAT], "SELECT holdfast.leave($1)", &params, STORE_GIVE_UP_MS,
		on_plain, op);
}

/* --- claim ------------------------------------------------------------------------------------ */

struct claim_op {
	int64_t sent_ms;
	void (*done)(void *ctx, enum hf_code code, const struct claimed_task *tasks, size_t count,
		     const struct hf_err *err);
	void *ctx;
};

static enum step_kind step_kind_of(struct slice name)
{
	if (slice_is(name, "recovery_point"))
		return STEP_RECOVERY_POINT;
	if (slice_is(name, "intent"))
		return STEP_INTENT;
	if (slice_is(name, "generation"))
		return STEP_GENERATION;
	if (slice_is(name, "inbox"))
		return STEP_INBOX;
	return slice_is(name, "checkpoint") ? STEP_CHECKPOINT : STEP_OUTCOME;
}

/* Columns of claim() in the order of its head. */
enum claim_column {
	C_TASK,
	C_TOKEN,
	C_TOOL,
	C_PHASE,
	C_ATTEMPT,
	C_CRASHES,
	C_CANCEL,
	C_NOW,
	C_DEADLINE,
	C_FIRST_TRY,
	C_SENT,
	C_OWNER,
	C_ISSUER,
	C_SUBJECT,
	C_TENANT,
	C_EFFECT_ID,
	C_TRACE,
	C_ARGUMENTS,
	C_KEY_VERSION,
	C_CLUSTER,
	C_PLACES,
	C_KINDS,
	C_NAMES,
	C_STATES,
};

static int number_of(struct slice text)
{
	int n = 0;
	for (size_t i = 0; i < text.len && text.data[i] >= '0' && text.data[i] <= '9'; i++)
		n = 10 * n + text.data[i] - '0';
	return n;
}

/* "FROM TO", and " new" behind it: see tail_of() in sql/functions/restore.sql. */
static void tail_read(struct slice text, struct lost_tail *tail)
{
	char copy[80];
	snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.data);
	char *rest;
	tail->from_ms = strtoll(copy, &rest, 10);
	tail->to_ms = strtoll(rest, &rest, 10);
	tail->is_new = *rest == ' ';
}

/* What was answered before the acceptance, and what can be asked, come among the steps and are
 * none. */
static struct claimed_step *claimed_steps(const PGresult *result, int row,
					  struct claimed_task *task)
{
	size_t rows = pgrow_array_count(result, row, C_PLACES), kept = 0;
	struct claimed_step *steps = hf_alloc(rows * sizeof *steps);
	size_t place_at = 0, kind_at = 0, name_at = 0, state_at = 0;
	for (size_t i = 0; i < rows; i++) {
		struct claimed_step *step = &steps[kept];
		struct slice place, kind;
		bool whole = pgrow_array_next(result, row, C_PLACES, &place_at, &place) &&
			     pgrow_array_next(result, row, C_KINDS, &kind_at, &kind) &&
			     pgrow_array_next(result, row, C_NAMES, &name_at, &step->name) &&
			     pgrow_array_next(result, row, C_STATES, &state_at, &step->state);
		hf_assert(whole);
		step->place = pgslice_int4(place);
		step->kind = step_kind_of(kind);
		if (slice_is(kind, "inputs"))
			task->inputs = step->state;
		else if (slice_is(kind, "asks"))
			task->asks = number_of(step->name);
		else if (slice_is(kind, "copy"))
			task->copy = true;
		else if (slice_is(kind, "tail"))
			tail_read(step->name, &task->tail);
		else
			kept++;
	}
	task->steps_count = kept;
	return steps;
}

/* Returns the steps, which the caller frees. */
static struct claimed_step *claimed_task(const PGresult *result, int row, struct claimed_task *task)
{
	pgrow_task_id(result, row, C_TASK, &task->id);
	pgrow_uuid(result, row, C_TOKEN, &task->token);
	task->tool = pgrow_int4(result, row, C_TOOL);
	task->phase = pgrow_int4(result, row, C_PHASE);
	task->attempt = pgrow_int4(result, row, C_ATTEMPT);
	task->crashes = pgrow_int4(result, row, C_CRASHES);
	task->cancel = pgrow_bool(result, row, C_CANCEL);
	task->now_ms = pgrow_int8(result, row, C_NOW);
	task->deadline_ms = pgrow_int8(result, row, C_DEADLINE);
	task->first_try_ms = pgrow_int8(result, row, C_FIRST_TRY);
	task->sent_ms = pgrow_int8(result, row, C_SENT);
	task->owner = pgrow_int8(result, row, C_OWNER);
	task->issuer = pgrow_slice(result, row, C_ISSUER);
	task->subject = pgrow_slice(result, row, C_SUBJECT);
	task->tenant = pgrow_slice(result, row, C_TENANT);
	task->effect_id = pgrow_slice(result, row, C_EFFECT_ID);
	task->trace = pgrow_slice(result, row, C_TRACE);
	task->arguments = pgrow_slice(result, row, C_ARGUMENTS);
	task->key_version = pgrow_int4(result, row, C_KEY_VERSION);
	pgrow_uuid(result, row, C_CLUSTER, &task->cluster);
	task->inputs = (struct slice){};
	task->asks = 0;
	task->tail = (struct lost_tail){};
	task->copy = false;
	struct claimed_step *steps = claimed_steps(result, row, task);
	task->steps = steps;
	return steps;
}

static void on_claim(void *ctx, enum hf_code code, const PGresult *result, const struct hf_err *err)
{
	struct claim_op *op = ctx;
	size_t count = code == HF_OK ? (size_t)PQntuples(result) : 0;
	if (code == HF_OK)
		metric_batch("claim", count, clock_boot_ms() - op->sent_ms);
	struct claimed_task *tasks = hf_alloc(count * sizeof *tasks);
	struct claimed_step **steps = hf_alloc(count * sizeof *steps);
	for (size_t i = 0; i < count; i++)
		steps[i] = claimed_task(result, (int)i, &tasks[i]);
	op->done(op->ctx, code, tasks, count, err);
	for (size_t i = 0; i < count; i++)
		free(steps[i]);
	free(steps);
	free(tasks);
	free(op);
}

/* A random half, and a number that rises with each call, big-endian. */
static struct uuid claim_call(struct store *store)
{
	struct uuid call = uuid_new();
	uint64_t number = ++store->claims;
	for (size_t i = 0; i < 8; i++)
		call.bytes[15 - i] = (unsigned char)(number >> (8 * i));
	return call;
}

void store_claim(struct store *store, const struct uuid *incarnation, const int32_t *queues,
		 size_t queues_count, int limit,
		 void (*done)(void *ctx, enum hf_code code, const struct claimed_task *tasks,
			      size_t count, const struct hf_err *err),
		 void *ctx)
{
	struct claim_op *op = hf_alloc(sizeof *op);
	*op = (struct claim_op){ clock_boot_ms(), done, ctx };
	struct pgparams params = {};
	pgparams_uuid(&params, incarnation);
	pgparams_array(&params, PG_INT4);
	for (size_t i = 0; i < queues_count; i++)
		pgarray_int4(&params, queues[i]);
	pgparams_int4(&params, limit);
	struct uuid call = claim_call(store);
	pgparams_uuid(&params, &call);
	db_call(store->lanes[LANE_READ],
		"SELECT *, " STORE_WAL " FROM holdfast.claim($1, $2, $3, $4)", &params, 0, on_claim,
		op);
}

/* --- step, finish, release: writes of a claim, batched ---------------------------------------- */

struct write_op {
	struct batch_item item;
	struct store *store;
	struct task_id id;
	struct uuid token;
	struct step_write step; /* step; finish: the last recovery point, where has_step */
	bool has_step;
	struct outcome_write outcome; /* finish */
	struct release_write release; /* release */
	void (*step_done)(void *ctx, enum hf_code code, enum fence fence, enum wish wish,
			  struct slice adopted_state, const struct hf_err *err);
	store_fenced *done;
	void *ctx;
	struct buf bytes; /* what the slices point into */
};

static struct write_op *write_of(struct batch_item *item)
{
	return container_of(item, struct write_op, item);
}

static struct write_op *write_new(struct store *store, const struct task_id *id,
				  const struct uuid *token, void *ctx)
{
	struct write_op *op = hf_alloc(sizeof *op);
	op->store = store;
	op->id = *id;
	op->token = *token;
	op->ctx = ctx;
	op->item.key = (struct slice){ (const char *)op->id.bytes, TASK_ID_BYTES };
	/* A task is its own source; what is behind its time is random. */
	memcpy(&op->item.source, op->id.bytes + TASK_ID_BYTES - sizeof op->item.source,
	       sizeof op->item.source);
	return op;
}

static void write_free(struct write_op *op)
{
	buf_deinit(&op->bytes);
	free(op);
}

static void write_fail(struct batch_item *item, enum hf_code code, const struct hf_err *err)
{
	struct write_op *op = write_of(item);
	if (op->step_done)
		op->step_done(op->ctx, code, FENCE_LOST, WISH_NONE, (struct slice){ "", 0 }, err);
	else
		op->done(op->ctx, code, FENCE_LOST, err);
	write_free(op);
}

static enum fence fence_of(struct slice name)
{
	if (slice_is(name, "held") || slice_is(name, "waiting") || slice_is(name, "ready"))
		return FENCE_HELD;
	return slice_is(name, "adopted") ? FENCE_ADOPTED : FENCE_LOST;
}

static void claims_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	batch_column(PG_BYTEA, pgarray_task_id(params, &write_of(item)->id));
	batch_column(PG_UUID, pgarray_uuid(params, &write_of(item)->token));
}

static void step_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	pgparams_int4(params, items[0]->week);
	claims_build(items, count, params);
	batch_column(PG_TEXT,
		     pgarray_slice(params, slice_of(write_of(item)->step.kind == STEP_CHECKPOINT
							? "checkpoint"
							: "recovery_point")));
	batch_column(PG_INT4, pgarray_int4(params, write_of(item)->step.place));
	batch_column(PG_INT4, pgarray_int4(params, write_of(item)->step.phase));
	batch_column(PG_TEXT, pgarray_slice(params, write_of(item)->step.name));
	batch_column(PG_BYTEA, pgarray_slice(params, write_of(item)->step.state));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, write_of(item)->step.derived_key));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, write_of(item)->step.answer));
	batch_column(PG_INT4, pgarray_int4(params, write_of(item)->step.attempt));
	batch_column(PG_INT8, pgarray_int8(params, write_of(item)->step.took_ms));
}

static void step_deliver(struct batch_item *const *items, size_t count, const PGresult *result)
{
	hf_assert((size_t)PQntuples(result) == count);
	for (int row = 0; row < (int)count; row++) {
		struct batch_item *item = batch_answered(items, count, result, row);
		struct write_op *op = write_of(item);
		op->step_done(op->ctx, HF_OK, fence_of(pgrow_slice(result, row, 1)),
			      (enum wish)pgrow_int4(result, row, 2), pgrow_slice(result, row, 3),
			      nullptr);
		write_free(op);
	}
}

const struct batch_kind batch_step = {
	.name = "step",
	.sql = "SELECT *, " STORE_WAL " FROM holdfast.step($1, $2, $3, $4, $5, $6, $7, "
	       "$8, $9, $10, $11, $12)",
	.build = step_build,
	.deliver = step_deliver,
	.fail = write_fail,
};

/* Copies a slice behind those before it; fix_slice gives it its place once all are there. */
static void keep_slice(struct write_op *op, struct slice *slice)
{
	buf_add_slice(&op->bytes, *slice);
}

static size_t fix_slice(struct write_op *op, struct slice *slice, size_t at)
{
	slice->data = op->bytes.data ? op->bytes.data + at : "";
	return at + slice->len;
}

static void keep_slices(struct write_op *op, struct slice *const *slices, size_t count)
{
	for (size_t i = 0; i < count; i++)
		keep_slice(op, slices[i]);
	size_t at = 0;
	for (size_t i = 0; i < count; i++)
		at = fix_slice(op, slices[i], at);
	op->item.bytes = op->bytes.len;
}

void store_step(struct store *store, const struct step_write *step,
		void (*done)(void *ctx, enum hf_code code, enum fence fence, enum wish wish,
			     struct slice adopted_state, const struct hf_err *err),
		void *ctx)
{
	hf_assert(step->kind == STEP_RECOVERY_POINT || step->kind == STEP_CHECKPOINT);
	struct write_op *op = write_new(store, &step->id, &step->token, ctx);
	op->step = *step;
	op->step_done = done;
	struct slice *const slices[] = { &op->step.name, &op->step.state, &op->step.derived_key,
					 &op->step.answer };
	keep_slices(op, slices, countof(slices));
	op->item.week = task_id_week(&op->id);
	store_add(store, BATCH_STEP, &op->item);
}

static void finish_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	pgparams_int4(params, items[0]->week);
	claims_build(items, count, params);
	batch_column(PG_TEXT,
		     pgarray_slice(params,
				   slice_of(task_state_name(write_of(item)->outcome.state))));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, write_of(item)->outcome.result));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, write_of(item)->outcome.error));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, write_of(item)->outcome.message));
	batch_column(PG_INT4, pgarray_int4(params, write_of(item)->outcome.attempt));
	pgparams_array(params, PG_INT4);
	for (size_t i = 0; i < count; i++) {
		if (write_of(items[i])->has_step)
			pgarray_int4(params, write_of(items[i])->step.place);
		else
			pgarray_null(params);
	}
	batch_column(PG_TEXT, pgarray_slice(params, write_of(item)->step.name));
	batch_column(PG_BYTEA, pgarray_slice(params, write_of(item)->step.state));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, write_of(item)->step.derived_key));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, write_of(item)->step.answer));
	batch_column(PG_INT8, pgarray_int8(params, write_of(item)->step.took_ms));
}

static const char *release_name(enum release how)
{
	static const char *const names[] = {
		[RELEASE_RETRY] = "retry",     [RELEASE_AGAIN] = "again",
		[RELEASE_BACK] = "back",       [RELEASE_CRASH] = "crash",
		[RELEASE_UNKNOWN] = "unknown", [RELEASE_UNVERIFIED] = "unverified",
		[RELEASE_UNDO] = "undo",
	};
	hf_assert((size_t)how < countof(names));
	return names[how];
}

static void fence_deliver(struct batch_item *const *items, size_t count, const PGresult *result)
{
	hf_assert((size_t)PQntuples(result) == count);
	for (int row = 0; row < (int)count; row++) {
		struct batch_item *item = batch_answered(items, count, result, row);
		struct write_op *op = write_of(item);
		enum fence fence = fence_of(pgrow_slice(result, row, 1));
		if (fence == FENCE_HELD && op->release.how == RELEASE_BACK)
			store_wake(op->store, WAKE_WORK);
		if (fence == FENCE_HELD && op->outcome.state)
			store_wake(op->store, WAKE_ENDED);
		if (fence == FENCE_HELD && !op->outcome.state)
			metric_add(METRIC_tasks_released_total, release_name(op->release.how), 1);
		op->done(op->ctx, HF_OK, fence, nullptr);
		write_free(op);
	}
}

const struct batch_kind batch_finish = {
	.name = "finish",
	.sql = "SELECT *, " STORE_WAL " FROM holdfast.finish($1, $2, $3, $4, $5, $6, "
	       "$7, $8, $9, $10, $11, $12, "
	       "$13, $14)",
	.build = finish_build,
	.deliver = fence_deliver,
	.fail = write_fail,
};

void store_finish(struct store *store, const struct outcome_write *outcome, store_fenced *done,
		  void *ctx)
{
	hf_assert(task_state_is_terminal(outcome->state));
	struct write_op *op = write_new(store, &outcome->id, &outcome->token, ctx);
	op->outcome = *outcome;
	op->done = done;
	op->has_step = outcome->last != nullptr;
	if (op->has_step)
		op->step = *outcome->last;
	/* No release: the enum's first value is another. */
	op->release.how = RELEASE_RETRY;
	struct slice *const slices[] = { &op->outcome.result,  &op->outcome.error,
					 &op->outcome.message, &op->step.name,
					 &op->step.state,      &op->step.derived_key,
					 &op->step.answer };
	keep_slices(op, slices, countof(slices));
	op->item.week = task_id_week(&op->id);
	store_add(store, BATCH_FINISH, &op->item);
}

static void release_build(struct batch_item *const *items, size_t count, struct pgparams *params)
{
	claims_build(items, count, params);
	batch_column(PG_TEXT,
		     pgarray_slice(params, slice_of(release_name(write_of(item)->release.how))));
	batch_column(PG_INT8, pgarray_int8(params, write_of(item)->release.delay_ms));
	batch_column(PG_BOOL, pgarray_bool(params, write_of(item)->release.maybe_sent));
	batch_column(PG_TEXT, pgarray_slice_or_null(params, write_of(item)->release.reason));
}

const struct batch_kind batch_release = {
	.name = "release",
	.sql = "SELECT *, " STORE_WAL " FROM holdfast.release($1, $2, $3, $4, $5, $6)",
	.build = release_build,
	.deliver = fence_deliver,
	.fail = write_fail,
};

void store_release(struct store *store, const struct release_write *release, store_fenced *done,
		   void *ctx)
{
	hf_assert(release->delay_ms >= 0);
	struct write_op *op = write_new(store, &release->id, &release->token, ctx);
	op->release = *release;
	op->done = done;
	struct slice *const slices[] = { &op->release.reason };
	keep_slices(op, slices, countof(slices));
	store_add(store, BATCH_RELEASE, &op->item);
}

/* --- intents, questions, artifacts ------------------------------------------------------------ */

struct put_op {
	store_fenced *done;
	void *ctx;
	struct store *asks; /* ask alone: the task may be ready at once */
};

static void on_put(void *ctx, enum hf_code code, const PGresult *result, const struct hf_err *err)
{
	struct put_op *op = ctx;
	struct slice said = code == HF_OK ? pgrow_slice(result, 0, 0) : slice_of("lost");
	enum fence fence = fence_of(said);
	if (op->asks && fence != FENCE_LOST)
		metric_add(METRIC_tasks_released_total, "ask", 1);
	if (op->asks && fence != FENCE_LOST && slice_is(said, "ready"))
		store_wake(op->asks, WAKE_WORK);
	op->done(op->ctx, code, fence, err);
	free(op);
}

/* The parameters that every put begins with; `what`: its name, or its questions. */
static void put_build(struct pgparams *params, const struct task_id *id, const struct uuid *token,
		      int phase, struct slice what)
{
	pgparams_int4(params, task_id_week(id));
	pgparams_task_id(params, id);
	pgparams_uuid(params, token);
	pgparams_int4(params, phase);
	pgparams_text(params, what);
}

void store_intent(struct store *store, const struct task_id *id, const struct uuid *token,
		  int phase, struct slice name, store_fenced *done, void *ctx)
{
	struct put_op *op = hf_alloc(sizeof *op);
	*op = (struct put_op){ .done = done, .ctx = ctx };
	struct pgparams params = {};
	put_build(&params, id, token, phase, name);
	db_call(store->lanes[LANE_WRITE],
		"SELECT holdfast.intent_put($1, $2, $3, $4, $5), " STORE_WAL, &params, 0, on_put,
		op);
}

void store_ask(struct store *store, const struct ask_write *ask, store_fenced *done, void *ctx)
{
	struct put_op *op = hf_alloc(sizeof *op);
	*op = (struct put_op){ .done = done, .ctx = ctx, .asks = store };
	struct pgparams params = {};
	put_build(&params, &ask->id, &ask->token, ask->phase, ask->questions);
	pgparams_int8(&params, ask->wait_ms);
	pgparams_bool(&params, ask->maybe_sent);
	pgparams_text(&params, ask->reason);
	db_call(store->lanes[LANE_WRITE],
		"SELECT holdfast.ask($1, $2, $3, $4, $5, nullif($6, 0), $7, $8)", &params, 0,
		on_put, op);
}

struct artifact_op {
	void (*done)(void *ctx, enum hf_code code, struct slice media_type, struct slice content,
		     const struct hf_err *err);
	void *ctx;
};

void store_artifact_put(struct store *store, const struct task_id *id, const struct uuid *token,
			int phase, struct slice name, struct slice media_type, struct slice content,
			store_fenced *done, void *ctx)
{
	struct put_op *op = hf_alloc(sizeof *op);
	*op = (struct put_op){ .done = done, .ctx = ctx };
	struct pgparams params = {};
	put_build(&params, id, token, phase, name);
	pgparams_text(&params, media_type);
	pgparams_bytea(&params, content);
	db_call(store->lanes[LANE_WRITE],
		"SELECT holdfast.artifact_put($1, $2, $3, $4, $5, $6, $7)", &params, 0, on_put, op);
}

static void on_artifact_get(void *ctx, enum hf_code code, const PGresult *result,
			    const struct hf_err *err)
{
	struct artifact_op *op = ctx;
	struct slice none = { "", 0 };
	struct hf_err missing = {};
	if (code == HF_OK && PQntuples(result) == 0) {
		code = hf_fail(&missing, HF_MISSING, "no such artifact");
		err = &missing;
	}
	if (code == HF_OK)
		op->done(op->ctx, code, pgrow_slice(result, 0, 0), pgrow_slice(result, 0, 1),
			 nullptr);
	else
		op->done(op->ctx, code, none, none, err);
	free(op);
}

void store_artifact_get(struct store *store, const struct task_id *id, int phase, struct slice name,
			void (*done)(void *ctx, enum hf_code code, struct slice media_type,
				     struct slice content, const struct hf_err *err),
			void *ctx)
{
	struct artifact_op *op = hf_alloc(sizeof *op);
	*op = (struct artifact_op){ done, ctx };
	struct pgparams params = {};
	pgparams_int4(&params, task_id_week(id));
	pgparams_task_id(&params, id);
	pgparams_int4(&params, phase);
	pgparams_text(&params, name);
	db_call(store->lanes[LANE_READ], "SELECT * FROM holdfast.artifact_get($1, $2, $3, $4)",
		&params, 0, on_artifact_get, op);
}

/* --- tools ------------------------------------------------------------------------------------ */

struct tool_op {
	int32_t tool;
	void (*files_done)(void *ctx, enum hf_code code, const struct store_tool *tool,
			   const struct store_file *files, size_t count, const struct hf_err *err);
	void (*versions_done)(void *ctx, enum hf_code code, const int32_t *tools, size_t count,
			      const struct hf_err *err);
	void *ctx;
};

static void on_tool_files(void *ctx, enum hf_code code, const PGresult *result,
			  const struct hf_err *err)
{
	struct tool_op *op = ctx;
	size_t count = code == HF_OK ? (size_t)PQntuples(result) : 0;
	struct hf_err missing = {};
	if (code == HF_OK && count == 0) {
		code = hf_fail(&missing, HF_MISSING, "no such tool version");
		err = &missing;
	}
	struct store_tool tool = { .id = op->tool };
	struct store_file *files = hf_alloc(count * sizeof *files);
	for (int row = 0; row < (int)count; row++) {
		tool.name = pgrow_slice(result, row, 0);
		tool.version = pgrow_slice(result, row, 1);
		tool.doc = pgrow_slice(result, row, 2);
		files[row] = (struct store_file){ .path = pgrow_slice(result, row, 3),
						  .executable = pgrow_bool(result, row, 4),
						  .content = pgrow_slice(result, row, 5) };
	}
	op->files_done(op->ctx, code, count ? &tool : nullptr, files, count, err);
	free(files);
	free(op);
}

void store_tool_files(struct store *store, int32_t tool,
		      void (*done)(void *ctx, enum hf_code code, const struct store_tool *tool,
				   const struct store_file *files, size_t count,
				   const struct hf_err *err),
		      void *ctx)
{
	struct tool_op *op = hf_alloc(sizeof *op);
	*op = (struct tool_op){ .tool = tool, .files_done = done, .ctx = ctx };
	struct pgparams params = {};
	pgparams_int4(&params, tool);
	db_call(store->lanes[LANE_READ], "SELECT * FROM holdfast.tool_files($1)", &params, 0,
		on_tool_files, op);
}

static void on_versions(void *ctx, enum hf_code code, const PGresult *result,
			const struct hf_err *err)
{
	struct tool_op *op = ctx;
	size_t count = code == HF_OK ? (size_t)PQntuples(result) : 0;
	int32_t *tools = hf_alloc(count * sizeof *tools);
	for (size_t i = 0; i < count; i++)
		tools[i] = pgrow_int4(result, (int)i, 0);
	op->versions_done(op->ctx, code, tools, count, err);
	free(tools);
	free(op);
}

void store_versions(struct store *store,
		    void (*done)(void *ctx, enum hf_code code, const int32_t *tools, size_t count,
				 const struct hf_err *err),
		    void *ctx)
{
	struct tool_op *op = hf_alloc(sizeof *op);
	*op = (struct tool_op){ .versions_done = done, .ctx = ctx };
	struct pgparams params = {};
	db_call(store->lanes[LANE_READ], "SELECT holdfast.versions()", &params, 0, on_versions, op);
}
