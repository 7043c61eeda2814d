/* watch.c - see watch.h. Used by plain.c and companion.c; serve.c passes the store's hints on. A
 * look is a call of store_poll, which gathers those of one turn of the loop into one statement. */
#include "api/watch.h"

#include <stdlib.h>

#include <ev.h>

#include "runtime/base.h"
#include "runtime/chain.h"
#include "runtime/clock.h"
#include "runtime/store.h"
#include "runtime/timer.h"

constexpr int64_t GATHER_MS = 5;     /* what is due so soon rides along */
constexpr int64_t HINT_EVERY_MS = 5; /* hints that come faster are one */

struct watch {
	struct ev_loop *loop;
	struct store *store;
	struct watcher *first;
	ev_timer timer; /* may fire for nothing after a watch_remove */
	int64_t armed_ms;
	int64_t hinted_ms;
};

/* The way back from the store. It outlives a watcher that was removed meanwhile. */
struct look {
	struct watcher *watcher; /* nullptr: removed */
};

/* Sees to it that the timer fires by then. */
static void arm(struct watch *watch, int64_t due_ms)
{
	if (ev_is_active(&watch->timer) && watch->armed_ms <= due_ms)
		return;
	watch->armed_ms = due_ms;
	timer_set(watch->loop, &watch->timer, due_ms - clock_boot_ms());
}

static void on_polled(void *ctx, enum hf_code code, const struct task_view *view,
		      const struct hf_err *err)
{
	struct look *look = ctx;
	struct watcher *watcher = look->watcher;
	free(look);
	if (!watcher)
		return;

	struct watch *watch = watcher->watch;
	watcher->look = nullptr;
	watcher->pause_ms += watcher->pause_ms / 2;
	if (watcher->pause_ms > WATCH_SLOWEST_MS)
		watcher->pause_ms = WATCH_SLOWEST_MS;
	watcher->due_ms = clock_boot_ms() + (watcher->again ? 0 : watcher->pause_ms);
	watcher->again = false;
	arm(watch, watcher->due_ms);
	watcher->seen(watcher->ctx, code, view, err); /* `watcher` may be no more */
}

static void look_at(struct watcher *watcher)
{
	struct look *look = hf_alloc(sizeof *look);
	look->watcher = watcher;
	watcher->look = look;
	store_poll(watcher->watch->store, watcher->owner, &watcher->id, on_polled, look);
}

static void on_timer(struct ev_loop *, ev_timer *timer, int)
{
	struct watch *watch = container_of(timer, struct watch, timer);
	int64_t until_ms = clock_boot_ms() + GATHER_MS, next_ms = INT64_MAX;
	for (struct watcher *at = watch->first; at; at = at->next) {
		if (at->look)
			continue;
		if (at->due_ms <= until_ms)
			look_at(at);
		else if (at->due_ms < next_ms)
			next_ms = at->due_ms;
	}
	if (next_ms != INT64_MAX)
		arm(watch, next_ms);
}

struct watch *watch_new(struct ev_loop *loop, struct store *store)
{
	struct watch *watch = hf_alloc(sizeof *watch);
	watch->loop = loop;
	watch->store = store;
	ev_init(&watch->timer, on_timer);
	return watch;
}

struct watch *watch_free(struct watch *watch)
{
	if (!watch)
		return nullptr;
	hf_assert(!watch->first);
	ev_timer_stop(watch->loop, &watch->timer);
	free(watch);
	return nullptr;
}

void watch_add(struct watch *watch, struct watcher *watcher, int64_t first_ms)
{
	hf_assert(!watcher->watch);
	hf_assert(watcher->seen);
	watcher->watch = watch;
	watcher->look = nullptr;
	watcher->again = false;
	watcher->pause_ms = WATCH_FIRST_MS;
	watcher->due_ms = clock_boot_ms() + first_ms;
	chain_add(watch->first, watcher);
	arm(watch, watcher->due_ms);
}

void watch_remove(struct watcher *watcher)
{
	struct watch *watch = watcher->watch;
	if (!watch)
		return;
	chain_drop(watch->first, watcher);
	if (watcher->look)
		watcher->look->watcher = nullptr;
	watcher->look = nullptr;
	watcher->watch = nullptr;
}

void watch_hint(struct watch *watch)
{
	int64_t now_ms = clock_boot_ms();
	int64_t at_ms = watch->hinted_ms + HINT_EVERY_MS;
	if (at_ms < now_ms)
		at_ms = now_ms;
	watch->hinted_ms = at_ms;
	for (struct watcher *at = watch->first; at; at = at->next) {
		at->again = at->look;
		if (at->due_ms > at_ms)
			at->due_ms = at_ms;
	}
	if (watch->first)
		arm(watch, at_ms);
}
