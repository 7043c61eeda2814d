/* presence.h - this API process in the store: an incarnation that beats, so that the attachments of
 * its plain calls count. When the store has declared it dead, a new one
 * begins, and whoever waits has to be attached under that. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/id.h"

struct ev_loop;
struct presence;
struct store;

struct presence_hooks {
	/* Open plain calls, for people who look at the store. */
	size_t (*open)(void *ctx);
	/* A further incarnation is in the store: the attachments of the last one may be gone. */
	void (*reborn)(void *ctx);
	void *ctx;
};

[[nodiscard]] struct presence *presence_open(struct ev_loop *loop, struct store *store,
					     int64_t beat_ms, const struct presence_hooks *hooks);
/* Stops beating. A beat in flight must be over (store_close sees to that). Takes nullptr; returns
 * nullptr. */
struct presence *presence_close(struct presence *presence);

/* The incarnation to attach under; nullptr while the store knows of none. */
const struct uuid *presence_incarnation(const struct presence *presence);

/* Takes it out of the store; `done` once that is over, whatever came of it. Its row would else be
 * declared dead in its time. */
void presence_leave(struct presence *presence, void (*done)(void *ctx), void *ctx);
