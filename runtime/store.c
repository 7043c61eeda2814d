/* store.c - lanes, batches and wake-ups of a process. The operations are in store_api.c and
 * store_worker.c. */
#include "runtime/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/clock.h"
#include "runtime/key.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/random.h"
#include "runtime/store_inner.h"

static const struct {
	const struct batch_kind *kind;
	enum store_role role;
	enum lane lane;
	int64_t give_up_ms;
} plan[BATCHES] = {
	[BATCH_ACCEPT] = { &batch_accept, STORE_API, LANE_WRITE, STORE_GIVE_UP_MS },
	[BATCH_POLL] = { &batch_poll, STORE_API, LANE_READ, STORE_GIVE_UP_MS },
	[BATCH_CANCEL] = { &batch_cancel, STORE_API, LANE_WRITE, STORE_GIVE_UP_MS },
	[BATCH_ATTACH] = { &batch_attach, STORE_API, LANE_WRITE, STORE_GIVE_UP_MS },
	[BATCH_DETACH] = { &batch_detach, STORE_API, LANE_WRITE, 0 },
	[BATCH_STEP] = { &batch_step, STORE_WORKER, LANE_WRITE, 0 },
	[BATCH_FINISH] = { &batch_finish, STORE_WORKER, LANE_WRITE, 0 },
	[BATCH_RELEASE] = { &batch_release, STORE_WORKER, LANE_WRITE, 0 },
};

/* What a notification says, by enum wake. */
static const char *const hints[WAKES] = { "work", "wish", "ended" };

static void on_notified(void *ctx, const char *payload)
{
	struct store *store = ctx;
	if (store->hello[0] && strcmp(payload, store->hello) == 0) {
		ev_timer_stop(store->loop, &store->proof_timer);
		store->hello[0] = '\0';
		store->wakes_come = true;
		store->told_none = false;
		log_info("wake-ups arrive", nullptr);
	}
	for (enum wake wake = 0; store->on_wake && wake < WAKES; wake++)
		if (strcmp(payload, hints[wake]) == 0)
			store->on_wake(store->on_wake_ctx, wake);
}

static void wake_sent(void *, enum hf_code, const PGresult *, const struct hf_err *)
{
}

static void notify(struct store *store, enum lane lane, const char *hint)
{
	struct pgparams params = {};
	pgparams_text(&params, slice_of(hint));
	db_call(store->lanes[lane], "SELECT holdfast.wake_async($1)", &params, STORE_GIVE_UP_MS,
		wake_sent, store);
}

/* A pooler takes LISTEN and delivers nothing, without an error. Only hearing oneself proves it,
 * when spoken over another connection and while the one that listens is at rest: what a pooled
 * session says comes back to itself. */
static void on_proof_timer(struct ev_loop *, ev_timer *watcher, int)
{
	struct store *store = container_of(watcher, struct store, proof_timer);
	if (!store->hello[0]) {
		snprintf(store->hello, sizeof store->hello, "hello %" PRIi64,
			 random_up_to(INT64_MAX));
		notify(store, LANE_READ, store->hello);
		ev_timer_set(watcher, (double)WAKE_PROOF_MS / 1000.0, 0.0);
		ev_timer_start(store->loop, watcher);
		return;
	}
	store->hello[0] = '\0';
	store->wakes_come = false;
	ev_timer_set(watcher, (double)WAKE_AGAIN_MS / 1000.0, 0.0);
	ev_timer_start(store->loop, watcher);
	if (store->told_none)
		return;
	store->told_none = true;
	log_warn("no wake-ups arrive: work is found by polling alone", "cause",
		 "a pooler between here and Postgres?", nullptr);
}

static void on_listening(void *ctx)
{
	struct store *store = ctx;
	/* Some may have been missed while the connection was away. */
	for (enum wake wake = 0; store->on_wake && wake < WAKES; wake++)
		store->on_wake(store->on_wake_ctx, wake);
	store->hello[0] = '\0';
	ev_timer_stop(store->loop, &store->proof_timer);
	ev_timer_set(&store->proof_timer, (double)WAKE_REST_MS / 1000.0, 0.0);
	ev_timer_start(store->loop, &store->proof_timer);
}

static void on_wake_timer(struct ev_loop *, ev_timer *watcher, int)
{
	struct store *store = container_of(watcher, struct store, wake_timer);
	store->woke_at_ms = clock_boot_ms();
	for (enum wake wake = 0; wake < WAKES; wake++) {
		if (!store->waking[wake])
			continue;
		store->waking[wake] = false;
		notify(store, LANE_BEAT, hints[wake]);
	}
}

void store_wake(struct store *store, enum wake wake)
{
	store->waking[wake] = true;
	if (ev_is_active(&store->wake_timer))
		return;
	int64_t wait = store->woke_at_ms + WAKE_EVERY_MS - clock_boot_ms();
	ev_timer_set(&store->wake_timer, wait > 0 ? (double)wait / 1000.0 : 0.0, 0.0);
	ev_timer_start(store->loop, &store->wake_timer);
}

void store_on_wake(struct store *store, void (*wake)(void *ctx, enum wake wake), void *ctx)
{
	store->on_wake = wake;
	store->on_wake_ctx = ctx;
}

static void on_refused(void *ctx, const char *why)
{
	const struct store *store = ctx;
	store->refused(store->refused_ctx, why);
}

/* What each connection says of the keys file. */
static void admission_write(const struct keyring *keyring, struct buf *out)
{
	hf_cleanup(buf) struct buf marks = {};
	buf_add_text(out, "SELECT holdfast.keys_admit('{");
	for (size_t i = 0; i < keyring_count(keyring); i++) {
		unsigned char mark[KEY_MARK_BYTES];
		char hex[2 * KEY_MARK_BYTES + 1], version[16];
		snprintf(version, sizeof version, "%s%d", i ? "," : "",
			 keyring_mark(keyring, i, mark));
		buf_add_text(out, version);
		buf_add_text(&marks, i ? ",'\\x" : "'\\x");
		buf_add_text(&marks, hex_format(mark, sizeof mark, hex));
		buf_add_text(&marks, "'");
	}
	buf_add_text(out, "}', ARRAY[");
	buf_add_slice(out, buf_slice(&marks));
	buf_add_text(out, "]::bytea[])");
	buf_add(out, "", 1);
}

struct store *store_open(struct ev_loop *loop, enum store_role role, const char *dsn,
			 const char *wake_dsn, const struct store_keys *keys)
{
	struct store *store = hf_alloc(sizeof *store);
	store->loop = loop;
	store->role = role;
	store->refused = keys->refused;
	store->refused_ctx = keys->ctx;
	hf_cleanup(buf) struct buf admission = {};
	admission_write(keys->keyring, &admission);
	ev_init(&store->wake_timer, on_wake_timer);
	ev_init(&store->proof_timer, on_proof_timer);
	const char *who = role == STORE_API ? "api" : "worker";
	for (enum lane lane = 0; lane < LANES; lane++) {
		static const char *const names[] = { "write", "read", "beat" };
		char *name = hf_format("%s %s", who, names[lane]);
		struct db_options options = { .dsn = dsn,
					      .name = name,
					      .admission = admission.data,
					      .refused = on_refused,
					      .ctx = store };
		if (lane == LANE_BEAT) {
			options.dsn = wake_dsn ? wake_dsn : dsn;
			options.answer_ms = BEAT_ANSWER_MS;
			options.listen = "holdfast_wake";
			options.notified = on_notified;
			options.connected = on_listening;
		}
		store->lanes[lane] = db_open(loop, &options);
		free(name);
	}
	for (enum batch_number i = 0; i < BATCHES; i++)
		if (plan[i].role == role)
			batch_init(&store->batches[i], loop, store->lanes[plan[i].lane],
				   plan[i].kind, plan[i].give_up_ms);
	return store;
}

void store_close(struct store *store)
{
	ev_timer_stop(store->loop, &store->wake_timer);
	ev_timer_stop(store->loop, &store->proof_timer);
	for (enum batch_number i = 0; i < BATCHES; i++)
		if (plan[i].role == store->role)
			batch_stop(&store->batches[i]);
	for (enum lane lane = 0; lane < LANES; lane++)
		if (store->lanes[lane])
			db_close(store->lanes[lane]);
	for (enum batch_number i = 0; i < BATCHES; i++)
		if (plan[i].role == store->role)
			batch_deinit(&store->batches[i]);
	free(store);
}

bool store_ready(const struct store *store)
{
	for (enum lane lane = 0; lane < LANES; lane++)
		if (store->lanes[lane] && !db_is_up(store->lanes[lane]))
			return false;
	return true;
}

void store_collect(const struct store *store)
{
	for (enum lane lane = 0; lane < LANES; lane++)
		if (store->lanes[lane])
			db_collect(store->lanes[lane]);
	for (enum batch_number i = 0; i < BATCHES; i++)
		if (plan[i].role == store->role)
			batch_collect(&store->batches[i]);
	metric_set(METRIC_wakeups_arrive, nullptr, store->wakes_come);
	metric_batch_known("beat");
	if (store->role == STORE_WORKER)
		metric_batch_known("claim");
	if (store->beat_ms)
		metric_set(METRIC_beat_age_seconds, nullptr, clock_boot_ms() - store->beat_ms);
}

void store_add(struct store *store, enum batch_number number, struct batch_item *item)
{
	hf_assert(plan[number].role == store->role);
	batch_add(&store->batches[number], item);
}

struct batch_item *batch_answered(struct batch_item *const *items, size_t count,
				  const PGresult *result, int row)
{
	int ord = pgrow_int4(result, row, 0);
	hf_assert(ord > 0 && (size_t)ord <= count);
	return items[ord - 1];
}

void store_read_view(const PGresult *result, int row, const struct view_columns *columns,
		     struct task_view *view)
{
	*view = (struct task_view){ .progress = -1.0 };
	pgrow_task_id(result, row, columns->task, &view->id);
	view->tool = pgrow_int4(result, row, columns->tool);
	bool known = task_state_parse(pgrow_slice(result, row, columns->state), &view->state);
	hf_assert(known);
	view->attempt = pgrow_int4(result, row, columns->attempt);
	view->created_ms = pgrow_int8(result, row, columns->created);
	view->updated_ms = pgrow_int8(result, row, columns->updated);
	view->ended_ms = pgrow_int8(result, row, columns->ended);
	view->result_ttl_ms = pgrow_int8(result, row, columns->ttl);
	if (!pgrow_is_null(result, row, columns->progress))
		view->progress = (double)pgrow_float4(result, row, columns->progress);
	view->message = pgrow_slice(result, row, columns->message);
	if (columns->result >= 0)
		view->result = pgrow_slice(result, row, columns->result);
	if (columns->error >= 0)
		view->error = pgrow_slice(result, row, columns->error);
	if (columns->effect_id >= 0)
		view->effect_id = pgrow_slice(result, row, columns->effect_id);
	view->has_successor =
	    columns->successor >= 0 && !pgrow_is_null(result, row, columns->successor);
	if (view->has_successor)
		pgrow_task_id(result, row, columns->successor, &view->successor);
}
