/* follow.h - tasks that streams follow to their end, which may be hours away. All of them are
 * looked at together in one slow tick, one statement for a week's tasks, sooner when a hint says
 * that tasks have ended; a bounded number in each tick, however many are followed. (What an open
 * call waits for is hurried: that is watch.h's.) */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/err.h"
#include "runtime/id.h"

struct ev_loop;
struct follow;
struct look_back;
struct store;
struct task_view;

constexpr int64_t FOLLOW_EVERY_MS = 500;   /* between two ticks */
constexpr int64_t FOLLOW_SOON_MS = 100;    /* after a hint; hints that come faster are one */
constexpr size_t FOLLOW_LOOKS_MAX = 256;   /* in a tick; the others have the next ones */
constexpr unsigned FOLLOW_URGENT_MAX = 16; /* first looks, and those asked for, in flight */

/* Embedded by who follows. Zero it, set the first four. */
struct follower {
	int64_t owner;
	struct task_id id;
	/* Each time that the task was looked at: HF_OK with a view, HF_MISSING, or the store is
	 * away (it is looked at again all the same). May call follow_remove. */
	void (*seen)(void *ctx, enum hf_code code, const struct task_view *view,
		     const struct hf_err *err);
	void *ctx;
	bool paused; /* set by who follows: not looked at until follow_again */
	/* private */
	struct follow *follow; /* nullptr: not followed */
	struct follower *next, *previous;
	struct look_back *look;     /* in flight */
	struct follower *look_next; /* of those that this look is for */
	bool again;                 /* that look may have been too early */
	bool urgent;                /* stands in that line */
};

[[nodiscard]] struct follow *follow_new(struct ev_loop *loop, struct store *store);
/* Nobody may follow any more; looks in flight must be over (store_close sees to that). Takes
 * nullptr; returns nullptr. */
struct follow *follow_free(struct follow *follow);

/* Looks as soon as may be, and goes on until follow_remove. */
void follow_add(struct follow *follow, struct follower *follower);
/* Nothing is called any more. Harmless where it does not follow. */
void follow_remove(struct follower *follower);
/* Looks as soon as may be, also at one that was paused. */
void follow_again(struct follower *follower);
/* Tasks have ended. */
void follow_hint(struct follow *follow);
