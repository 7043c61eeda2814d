/* seen.c - which moves the runs make. A run's only watcher that is fed is its `step`; every write
 * of a run and every turn of it passes here, and between two looks it makes one move, or two by way
 * of deciding. */
#include <stdlib.h>

#include "runtime/base.h"
#include "test/sim/seen.h"
#include "test/sim/sim.h"
#include "worker/run_private.h"

/* One a run, by its address; the order of the table is never looked at. */
struct seen {
	struct seen *next;
	const struct run *run;
	const struct process *process;
	enum run_state state;
	uint64_t serial;
};

constexpr size_t BUCKETS = 4'096;
static struct seen *buckets[BUCKETS];
static void (*step)(struct ev_loop *loop, ev_prepare *watcher, int revents);

static struct seen **find(const struct run *run)
{
	struct seen **at = &buckets[((uintptr_t)run >> 6) % BUCKETS];
	while (*at && (*at)->run != run)
		at = &(*at)->next;
	return at;
}

static void moved(struct seen *seen, enum run_state to)
{
	count(TABLE_EDGE, seen->state, to);
	seen->state = to;
}

/* Where no edge leads straight there, deciding lies between. A write that the store refused is
 * given up as a crash, straight from where it was. */
static bool is_straight(const struct run *run, enum run_state from, enum run_state to)
{
	switch (to) {
	case RUN_DECIDING:
		return true;
	case RUN_ENDED:
		return from != RUN_PAUSED;
	case RUN_INTENDING:
		return from == RUN_DECIDING;
	case RUN_WORKING:
		return from == RUN_DECIDING;
	case RUN_PAUSED: /* from deciding where it is to run apart */
		return from == RUN_WORKING || (from == RUN_DECIDING && run->apart);
	case RUN_COMMITTING:
		return from == RUN_WORKING;
	case RUN_FINISHING:
		return from == RUN_DECIDING || from == RUN_WORKING;
	case RUN_RELEASING:
		return from == RUN_DECIDING || from == RUN_WORKING || from == RUN_FINISHING ||
		       (from != RUN_PAUSED && run->how == RELEASE_CRASH);
	}
	return false;
}

static void look(struct seen *seen)
{
	const struct run *run = seen->run;
	if (run->state == seen->state && run->serial == seen->serial)
		return;
	bool straight = is_straight(run, seen->state, run->state);
	if (!straight && seen->state != RUN_DECIDING)
		moved(seen, RUN_DECIDING);
	/* A phase that reported from its start. */
	if (!straight && (run->state == RUN_COMMITTING || run->state == RUN_PAUSED))
		moved(seen, RUN_WORKING);
	seen->serial = run->serial;
	moved(seen, run->state);
}

static struct seen *get(const struct run *run)
{
	struct seen **at = find(run);
	if (!*at) {
		struct seen *seen = hf_alloc(sizeof *seen);
		*seen = (struct seen){ .run = run, .process = running_process };
		*at = seen;
	}
	return *at;
}

void seen_write(const struct run *run)
{
	step = run->step.cb;
	look(get(run));
}

void seen_run(void *watcher)
{
	ev_prepare *fed = watcher;
	if (step && fed->cb == step)
		look(get(container_of(fed, struct run, step)));
}

void seen_cleared(void *watcher)
{
	ev_prepare *cleared = watcher;
	if (!step || cleared->cb != step)
		return;
	struct seen **at = find(container_of(cleared, struct run, step)), *seen = *at;
	if (!seen)
		return;
	look(seen);
	*at = seen->next;
	free(seen);
}

void seen_killed(const struct process *process)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct seen **at = &buckets[i], *seen; (seen = *at);) {
			if (seen->process != process) {
				at = &seen->next;
				continue;
			}
			look(seen);
			count(TABLE_CRASH, seen->state, 0);
			*at = seen->next;
			free(seen);
		}
	}
}
