/* watch.h - the tasks that open answers of this process wait for. One timer looks at all that are
 * due in one batch of polls: soon at first, then ever more seldom, and at once when a hint says
 * that tasks have ended somewhere. Hints may be lost; looking is the truth. */
#pragma once

#include <stdint.h>

#include "runtime/err.h"
#include "runtime/id.h"

struct ev_loop;
struct store;
struct task_view;
struct watch;

constexpr int64_t WATCH_FIRST_MS = 20; /* until the first look, then half as much again each time */
constexpr int64_t WATCH_SLOWEST_MS = 500;

/* Embedded by who waits. Zero it, set the first five. */
struct watcher {
	int64_t owner;
	struct task_id id;
	/* Each time that the task was looked at. HF_OK with a view, HF_MISSING (it ended and its
	 * retention is over), or the store is away: it is looked at again all the same. May call
	 * watch_remove. */
	void (*seen)(void *ctx, enum hf_code code, const struct task_view *view,
		     const struct hf_err *err);
	void *ctx;
	/* private */
	struct watch *watch; /* nullptr: not watching */
	struct watcher *next, *previous;
	struct look *look; /* in flight */
	int64_t pause_ms, due_ms;
	bool again; /* a hint came while a look was in flight, which may have been too early */
};

[[nodiscard]] struct watch *watch_new(struct ev_loop *loop, struct store *store);
/* Nobody may watch any more; looks in flight must be over (store_close sees to that). Takes
 * nullptr; returns nullptr. */
struct watch *watch_free(struct watch *watch);

/* Looks after `first_ms`, 0 for at once, and goes on until watch_remove. */
void watch_add(struct watch *watch, struct watcher *watcher, int64_t first_ms);
/* Nothing is called any more. Harmless where it does not watch. */
void watch_remove(struct watcher *watcher);
/* Looks at all of them at once: tasks have ended. */
void watch_hint(struct watch *watch);
