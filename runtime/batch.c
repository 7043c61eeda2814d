#include "runtime/batch.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/metrics.h"

struct watchers {
	ev_check kick; /* fed, never started: sends at the end of a turn, before db.c does */
	ev_timer timer;
	struct batch *batch;
};

static void batch_send(struct batch *batch);

static bool shares_key(struct batch_item *const *items, size_t count, const struct batch_item *item,
		       size_t *index)
{
	if (item->key.len == 0)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (slice_equal(items[i]->key, item->key)) {
			*index = i;
			return true;
		}
	}
	return false;
}

static void put_back(struct batch *batch, struct batch_item *first, struct batch_item **last)
{
	if (!first)
		return;
	*last = batch->head;
	if (!batch->head)
		batch->tail = last;
	batch->head = first;
}

/* --- who rides alone -------------------------------------------------------------------------- */

static bool rides_alone(const struct batch *batch, int64_t source)
{
	for (size_t i = 0; source && i < batch->alone_count; i++)
		if (batch->alone[i].source == source)
			return true;
	return false;
}

static void alone_expire(struct batch *batch)
{
	size_t kept = 0;
	int64_t now = batch->alone_count ? clock_boot_ms() : 0;
	for (size_t i = 0; i < batch->alone_count; i++)
		if (batch->alone[i].until_ms > now)
			batch->alone[kept++] = batch->alone[i];
	batch->alone_count = kept;
}

/* The oldest stands first. */
static void alone_add(struct batch *batch, int64_t source)
{
	if (!source)
		return;
	size_t kept = 0;
	for (size_t i = batch->alone_count == BATCH_ALONE_MAX; i < batch->alone_count; i++)
		if (batch->alone[i].source != source)
			batch->alone[kept++] = batch->alone[i];
	batch->alone[kept] = (struct batch_alone){ source, clock_boot_ms() + BATCH_ALONE_MS };
	batch->alone_count = kept + 1;
}

/* --- gathering -------------------------------------------------------------------------------- */

static struct batch_item *take_head(struct batch *batch)
{
	struct batch_item *item = batch->head;
	batch->head = item->next;
	if (!batch->head)
		batch->tail = &batch->head;
	item->next = nullptr;
	return item;
}

enum fit { FIT_TAKE, FIT_FOLD, FIT_LATER, FIT_FULL };

static enum fit fit_of(const struct batch *batch, const struct batch_item *item, size_t bytes,
		       bool alone_too, size_t *same)
{
	bool alone = rides_alone(batch, item->source);
	if (alone && (batch->flight_count || !alone_too))
		return FIT_LATER;
	if (shares_key(batch->flight, batch->flight_count, item, same))
		return batch->kind->folds ? FIT_FOLD : FIT_LATER;
	if (batch->flight_count && item->week != batch->flight[0]->week)
		return FIT_LATER;
	if (batch->flight_count && bytes + item->bytes > BATCH_BYTES_MAX)
		return FIT_FULL;
	return FIT_TAKE;
}

/* Takes the next batch off the queue into `flight`. */
static void gather_some(struct batch *batch, bool alone_too)
{
	struct batch_item *kept = nullptr, **kept_tail = &kept;
	size_t bytes = 0, same = 0;
	batch->was_alone = false;
	while (batch->head && batch->flight_count < batch->rows_limit && !batch->was_alone) {
		struct batch_item *item = take_head(batch);
		enum fit fit = fit_of(batch, item, bytes, alone_too, &same);
		if (fit == FIT_LATER || fit == FIT_FULL) {
			*kept_tail = item;
			kept_tail = &item->next;
			if (fit == FIT_FULL)
				break;
			continue;
		}
		batch->waiting--;
		if (fit == FIT_FOLD) {
			item->folded = batch->flight[same]->folded;
			batch->flight[same]->folded = item;
			continue;
		}
		bytes += item->bytes;
		batch->was_alone = rides_alone(batch, item->source);
		batch->flight[batch->flight_count++] = item;
	}
	put_back(batch, kept, kept_tail);
}

static void gather(struct batch *batch)
{
	alone_expire(batch);
	gather_some(batch, !batch->was_alone);
	if (batch->flight_count == 0)
		gather_some(batch, true);
}

static void unfold(struct batch *batch, struct batch_item *item)
{
	for (struct batch_item *other = item->folded, *next; other; other = next) {
		next = other->folded;
		other->folded = nullptr;
		other->next = batch->head;
		if (!batch->head)
			batch->tail = &other->next;
		batch->head = other;
		batch->waiting++;
	}
	item->folded = nullptr;
}

/* The values of this batch are refused: half of it next time, one by one in the end. */
static void halve(struct batch *batch)
{
	metric_add(METRIC_store_batches_halved_total, batch->kind->name, 1);
	batch->rows_limit = batch->flight_count / 2;
	for (size_t i = batch->flight_count; i-- > 0;) {
		struct batch_item *item = batch->flight[i];
		unfold(batch, item);
		item->next = batch->head;
		if (!batch->head)
			batch->tail = &item->next;
		batch->head = item;
		batch->waiting++;
	}
	batch->flight_count = 0;
}

static void fail(struct batch *batch, struct batch_item *item, enum hf_code code,
		 const struct hf_err *err)
{
	metric_add(METRIC_store_rows_failed_total, batch->kind->name, 1);
	batch->kind->fail(item, code, err);
}

static void fail_all(struct batch *batch, struct batch_item *item, enum hf_code code,
		     const struct hf_err *err)
{
	for (struct batch_item *next; item; item = next) {
		next = item->folded;
		item->folded = nullptr;
		fail(batch, item, code, err);
	}
}

static void on_answer(void *ctx, enum hf_code code, const PGresult *result,
		      const struct hf_err *err)
{
	struct batch *batch = ctx;
	size_t count = batch->flight_count;
	if (code == HF_OK) {
		metric_batch(batch->kind->name, count, clock_boot_ms() - batch->sent_ms);
		if (batch->rows_limit < BATCH_ROWS_MAX)
			batch->rows_limit *= 2;
		batch->kind->deliver(batch->flight, count, result);
		batch->flight_count = 0;
	} else if (code == HF_INVALID && count > 1) {
		halve(batch);
	} else {
		if (code == HF_INVALID)
			alone_add(batch, batch->flight[0]->source);
		for (size_t i = 0; i < count; i++)
			fail_all(batch, batch->flight[i], code, err);
		batch->flight_count = 0;
	}
	if (batch->head && code != HF_CANCELLED)
		batch_send(batch);
}

static void batch_send(struct batch *batch)
{
	hf_assert(batch->flight_count == 0);
	gather(batch);
	if (batch->flight_count == 0)
		return;
	struct pgparams params = {};
	batch->sent_ms = clock_boot_ms();
	batch->kind->build(batch->flight, batch->flight_count, &params);
	db_call(batch->db, batch->kind->sql, &params, batch->give_up_ms, on_answer, batch);
}

static void on_kick(struct ev_loop *, ev_check *watcher, int)
{
	struct batch *batch = container_of(watcher, struct watchers, kick)->batch;
	struct hf_err err = {};
	(void)hf_fail(&err, HF_LIMIT, "too many operations wait for Postgres");
	while (batch->refused) {
		struct batch_item *item = batch->refused;
		batch->refused = item->next;
		metric_add(METRIC_bound_refused_total, batch->bound, 1);
		fail(batch, item, HF_LIMIT, &err);
	}
	if (batch->flight_count == 0)
		batch_send(batch);
}

/* Those that wait behind a flight give up too, in the order they came. */
static void on_timer(struct ev_loop *, ev_timer *watcher, int)
{
	struct batch *batch = container_of(watcher, struct watchers, timer)->batch;
	struct hf_err err = {};
	(void)hf_fail(&err, HF_BUSY, "Postgres did not answer in time");
	int64_t now = clock_boot_ms();
	while (batch->head && batch->head->give_up_at_ms <= now) {
		struct batch_item *item = batch->head;
		batch->head = item->next;
		if (!batch->head)
			batch->tail = &batch->head;
		batch->waiting--;
		fail(batch, item, HF_BUSY, &err);
	}
	if (batch->head) {
		int64_t wait = batch->head->give_up_at_ms - now;
		ev_timer_set(batch->timer, (double)wait / 1000.0, 0.0);
		ev_timer_start(batch->loop, batch->timer);
	}
}

void batch_init(struct batch *batch, struct ev_loop *loop, struct db *db,
		const struct batch_kind *kind, int64_t give_up_ms)
{
	*batch = (struct batch){ .kind = kind, .db = db, .give_up_ms = give_up_ms, .loop = loop };
	snprintf(batch->bound, sizeof batch->bound, "%s_waiting", kind->name);
	batch->tail = &batch->head;
	batch->rows_limit = BATCH_ROWS_MAX;
	batch->flight = hf_alloc(BATCH_ROWS_MAX * sizeof *batch->flight);
	struct watchers *watchers = hf_alloc(sizeof *watchers);
	watchers->batch = batch;
	ev_init(&watchers->kick, on_kick);
	ev_set_priority(&watchers->kick, EV_MINPRI + 1);
	ev_init(&watchers->timer, on_timer);
	batch->kick = &watchers->kick;
	batch->timer = &watchers->timer;
}

void batch_stop(struct batch *batch)
{
	struct hf_err err = {};
	(void)hf_fail(&err, HF_CANCELLED, "the process ends");
	ev_clear_pending(batch->loop, batch->kick);
	ev_timer_stop(batch->loop, batch->timer);
	while (batch->refused) {
		struct batch_item *item = batch->refused;
		batch->refused = item->next;
		batch->kind->fail(item, HF_CANCELLED, &err);
	}
	while (batch->head) {
		struct batch_item *item = batch->head;
		batch->head = item->next;
		batch->waiting--;
		batch->kind->fail(item, HF_CANCELLED, &err);
	}
	batch->tail = &batch->head;
}

void batch_collect(const struct batch *batch)
{
	const char *act = batch->kind->name;
	metric_bound(batch->bound, (int64_t)batch->waiting, (int64_t)BATCH_WAITING_MAX);
	metric_batch_known(act);
}

void batch_deinit(struct batch *batch)
{
	hf_assert(batch->flight_count == 0);
	free(container_of(batch->kick, struct watchers, kick));
	free(batch->flight);
}

void batch_add(struct batch *batch, struct batch_item *item)
{
	if (batch->waiting >= BATCH_WAITING_MAX) {
		item->next = batch->refused;
		batch->refused = item;
		ev_feed_event(batch->loop, batch->kick, EV_CUSTOM);
		return;
	}
	item->next = nullptr;
	item->folded = nullptr;
	item->give_up_at_ms = batch->give_up_ms ? clock_boot_ms() + batch->give_up_ms : 0;
	*batch->tail = item;
	batch->tail = &item->next;
	batch->waiting++;
	if (batch->flight_count == 0)
		ev_feed_event(batch->loop, batch->kick, EV_CUSTOM);
	if (batch->give_up_ms && !ev_is_active(batch->timer)) {
		ev_timer_set(batch->timer, (double)batch->give_up_ms / 1000.0, 0.0);
		ev_timer_start(batch->loop, batch->timer);
	}
}
