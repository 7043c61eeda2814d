/* follow.c - see follow.h. Used by listen.c; api.c passes the store's hints on. The list is in the
 * order of the last looks: a tick takes from its head and appends. */
#include "api/follow.h"

#include <stdlib.h>

#include <ev.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/store.h"

struct follow {
	struct ev_loop *loop;
	struct store *store;
	struct follower *first, *last;
	size_t count;
	size_t hinted; /* so many from the head are to be looked at soon */
	ev_timer timer;
	int64_t ticked_ms;
};

/* The way back from the store. It outlives a follower that was removed meanwhile. */
struct look_back {
	struct follower *follower; /* nullptr: removed */
};

static void unlink_one(struct follow *follow, struct follower *follower)
{
	*(follower->previous ? &follower->previous->next : &follow->first) = follower->next;
	*(follower->next ? &follower->next->previous : &follow->last) = follower->previous;
}

static void append(struct follow *follow, struct follower *follower)
{
	follower->next = nullptr;
	follower->previous = follow->last;
	*(follow->last ? &follow->last->next : &follow->first) = follower;
	follow->last = follower;
}

static void arm(struct follow *follow)
{
	int64_t pause_ms = follow->hinted ? FOLLOW_SOON_MS : FOLLOW_EVERY_MS;
	int64_t wait_ms = follow->ticked_ms + pause_ms - clock_boot_ms();
	ev_timer_stop(follow->loop, &follow->timer);
	if (!follow->first)
		return;
	ev_now_update(follow->loop);
	ev_timer_set(&follow->timer, wait_ms > 0 ? (double)wait_ms / 1000 : 0, 0);
	ev_timer_start(follow->loop, &follow->timer);
}

static void on_polled(void *ctx, enum hf_code code, const struct task_view *view,
		      const struct hf_err *err)
{
	struct look_back *look = ctx;
	struct follower *follower = look->follower;
	free(look);
	if (!follower)
		return;
	follower->look = nullptr;
	/* Where the store is away, the next tick is soon enough. */
	if (follower->again && (code == HF_OK || code == HF_MISSING))
		follow_again(follower);
	follower->seen(follower->ctx, code, view, err); /* `follower` may be no more */
}

static void look_at(struct follower *follower)
{
	struct look_back *look = hf_alloc(sizeof *look);
	look->follower = follower;
	follower->look = look;
	follower->again = false;
	store_poll(follower->follow->store, follower->owner, &follower->id, on_polled, look);
}

static void on_tick(struct ev_loop *, ev_timer *timer, int)
{
	struct follow *follow = container_of(timer, struct follow, timer);
	size_t looks = follow->count < FOLLOW_LOOKS_MAX ? follow->count : FOLLOW_LOOKS_MAX;
	follow->ticked_ms = clock_boot_ms();
	for (size_t i = 0; i < looks; i++) {
		struct follower *at = follow->first;
		unlink_one(follow, at);
		append(follow, at);
		if (at->look)
			at->again = at->again || follow->hinted > 0;
		else if (!at->paused)
			look_at(at);
	}
	follow->hinted -= follow->hinted < looks ? follow->hinted : looks;
	arm(follow);
}

struct follow *follow_new(struct ev_loop *loop, struct store *store)
{
	struct follow *follow = hf_alloc(sizeof *follow);
	follow->loop = loop;
	follow->store = store;
	ev_init(&follow->timer, on_tick);
	return follow;
}

struct follow *follow_free(struct follow *follow)
{
	if (!follow)
		return nullptr;
	hf_assert(!follow->first);
	ev_timer_stop(follow->loop, &follow->timer);
	free(follow);
	return nullptr;
}

void follow_add(struct follow *follow, struct follower *follower)
{
	hf_assert(!follower->follow);
	hf_assert(follower->seen);
	follower->follow = follow;
	follower->paused = false;
	append(follow, follower);
	follow->count++;
	if (follow->count == 1) {
		follow->ticked_ms = clock_boot_ms();
		arm(follow);
	}
	look_at(follower);
}

void follow_remove(struct follower *follower)
{
	struct follow *follow = follower->follow;
	if (!follow)
		return;
	unlink_one(follow, follower);
	follow->count--;
	if (follower->look)
		follower->look->follower = nullptr;
	follower->look = nullptr;
	follower->follow = nullptr;
}

void follow_again(struct follower *follower)
{
	hf_assert(follower->follow);
	follower->paused = false;
	if (follower->look)
		follower->again = true;
	else
		look_at(follower);
}

void follow_hint(struct follow *follow)
{
	follow->hinted = follow->count;
	arm(follow);
}
