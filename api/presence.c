/* presence.c - see presence.h. Owned by serve.c. One beat is in flight at a time; the store holds
 * it for as long as Postgres is away. */
#include "api/presence.h"

#include <stdlib.h>

#include <ev.h>

#include "runtime/base.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/store.h"

struct presence {
	struct ev_loop *loop;
	struct store *store;
	struct presence_hooks hooks;
	ev_timer timer;
	struct uuid incarnation;
	bool known; /* to the store, as far as it has told us */
	bool born;  /* once before */
	bool beating, closed;
	void (*left)(void *ctx);
	void *left_ctx;
};

static void beat(struct presence *presence);

static void on_beat(void *ctx, enum hf_code code, bool alive, const struct beat_wish *, size_t,
		    const struct hf_err *err)
{
	struct presence *presence = ctx;
	presence->beating = false;
	if (presence->closed)
		return;
	if (code != HF_OK) {
		if (code != HF_CANCELLED)
			log_warn("beat not taken", "error", err ? err->text : nullptr, nullptr);
		return;
	}
	if (!alive) {
		log_warn("declared dead, going on as another", nullptr);
		metric_add(METRIC_incarnations_lost_total, "dead", 1);
		presence->known = false;
		presence->incarnation = uuid_new();
		beat(presence);
		return;
	}
	bool reborn = !presence->known && presence->born;
	presence->known = presence->born = true;
	if (reborn)
		presence->hooks.reborn(presence->hooks.ctx);
}

static void beat(struct presence *presence)
{
	if (presence->beating || presence->closed)
		return;
	presence->beating = true;
	store_beat(presence->store, &presence->incarnation, 0,
		   (int)presence->hooks.open(presence->hooks.ctx), nullptr, 0, on_beat, presence);
}

static void on_timer(struct ev_loop *, ev_timer *timer, int)
{
	beat(container_of(timer, struct presence, timer));
}

struct presence *presence_open(struct ev_loop *loop, struct store *store, int64_t beat_ms,
			       const struct presence_hooks *hooks)
{
	hf_assert(beat_ms > 0);
	hf_assert(hooks->open);
	hf_assert(hooks->reborn);
	struct presence *presence = hf_alloc(sizeof *presence);
	presence->loop = loop;
	presence->store = store;
	presence->hooks = *hooks;
	presence->incarnation = uuid_new();
	ev_timer_init(&presence->timer, on_timer, 0, (double)beat_ms / 1000);
	ev_timer_start(loop, &presence->timer);
	return presence;
}

struct presence *presence_close(struct presence *presence)
{
	if (!presence)
		return nullptr;
	hf_assert(!presence->beating);
	ev_timer_stop(presence->loop, &presence->timer);
	free(presence);
	return nullptr;
}

const struct uuid *presence_incarnation(const struct presence *presence)
{
	return presence->known ? &presence->incarnation : nullptr;
}

static void on_left(void *ctx, enum hf_code, const struct hf_err *)
{
	struct presence *presence = ctx;
	presence->left(presence->left_ctx);
}

void presence_leave(struct presence *presence, void (*done)(void *ctx), void *ctx)
{
	hf_assert(!presence->closed);
	presence->closed = true;
	presence->known = false;
	presence->left = done;
	presence->left_ctx = ctx;
	ev_timer_stop(presence->loop, &presence->timer);
	store_leave(presence->store, &presence->incarnation, on_left, presence);
}
