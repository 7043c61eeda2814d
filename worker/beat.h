/* beat.h - this process's hold on its claims. One incarnation at a time beats; its local lease runs
 * on the boot-time clock from the sending of the last beat that was acknowledged (V4). When the
 * store says that the incarnation is dead, or the local lease has come down to its margin, the
 * incarnation is lost: every run is stopped, and only when all are over a new one begins. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/id.h"
#include "runtime/store.h"

struct beat;
struct ev_loop;

/* While anything runs: progress and cancels travel with beats. */
constexpr int64_t BEAT_MS_MAX_RUNNING = 1'000;
constexpr int64_t BEAT_MARGIN_PERCENT = 20; /* of the lease, kept unused */

struct beat_hooks {
	/* Newest progress of at most `room` runs that changed since they were last told; how many.
	 */
	size_t (*progress)(void *ctx, struct beat_task *tasks, size_t room);
	size_t (*running)(void *ctx);
	void (*wish)(void *ctx, const struct beat_wish *wish);
	/* An incarnation is in the store: claims may be made under it. */
	void (*ready)(void *ctx);
	/* The lease is `lease_ms` long from `sent_ms` on, on the boot clock. */
	void (*renewed)(void *ctx, int64_t sent_ms, int64_t lease_ms);
	/* `taken`: the store said so. Else the local lease ran out and the claims may still be
	 * ours. */
	void (*lost)(void *ctx, bool taken);
	void *ctx;
};

struct beat_settings {
	int64_t beat_ms, lease_ms;
	int slots;
};

struct beat *beat_open(struct ev_loop *loop, struct store *store,
		       const struct beat_settings *settings, const struct beat_hooks *hooks);
/* No more beats; whatever comes is ignored. Before the incarnation leaves the store. */
void beat_stop(struct beat *beat);
/* Stops without a word to the store; a beat in flight must be over (store_close sees to that). */
struct beat *beat_close(struct beat *beat);

/* The incarnation to claim under; nullptr before its first acknowledged beat and after a loss. */
const struct uuid *beat_incarnation(const struct beat *beat);
/* The one that beat_incarnation gave last, for store_leave. */
const struct uuid *beat_last_incarnation(const struct beat *beat);
/* False: stop sending, the local lease has no more than its margin left. */
bool beat_may_send(const struct beat *beat);
/* A beat at once, or right after the one in flight: something was asked for somewhere. */
void beat_now(struct beat *beat);
/* After `lost`: every run is over, a new incarnation may begin. */
void beat_renew(struct beat *beat);
