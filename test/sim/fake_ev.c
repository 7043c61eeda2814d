/* fake_ev.c - libev as far as the product's decision code uses it, over the virtual clock: timers
 * fire when their time has come, what is fed is called soon after, in an order of chance. One loop
 * a process. */
#include <ev.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "test/sim/fibre.h"
#include "test/sim/sim.h"

constexpr int FED_LATE_IN_10000 = 300; /* other things happen between a feed and its call */
constexpr int64_t FED_LATE_US = 3 * MS;
constexpr size_t SIGNALS_MAX = 4;

struct ev_loop {
	struct process *process;
	bool broken;
	ev_signal *signals[SIGNALS_MAX];
	size_t signals_count;
};

/* A watcher that waits: for its time, or for its call. Watchers name them by number, in `active`
 * and `pending`, which the product reads as "not zero". */
struct waiting {
	struct event event;
	struct ev_loop *loop;
	ev_watcher *watcher;
	int revents;
	int number;
	bool fed;
};

static struct waiting **all;
static int all_count;
static int *free_numbers;
static int free_count;

static struct waiting *waiting_new(struct ev_loop *loop, ev_watcher *watcher)
{
	if (free_count == 0) {
		struct waiting *one = hf_alloc(sizeof *one);
		one->number = ++all_count;
		all = hf_realloc(all, (size_t)(all_count + 1) * sizeof(struct waiting *));
		free_numbers =
		    hf_realloc(free_numbers, (size_t)(all_count + 1) * sizeof free_numbers[0]);
		all[one->number] = one;
		free_numbers[free_count++] = one->number;
	}
	struct waiting *waiting = all[free_numbers[--free_count]];
	waiting->loop = loop;
	waiting->watcher = watcher;
	waiting->event.process = loop->process;
	return waiting;
}

static void waiting_free(struct waiting *waiting)
{
	event_drop(&waiting->event);
	waiting->watcher = nullptr;
	free_numbers[free_count++] = waiting->number;
}

static void call(struct ev_loop *loop, ev_watcher *watcher, int revents)
{
	watcher->cb(loop, watcher, revents);
	if (loop->broken && loop->process->fibre)
		fibre_go_on(loop->process->fibre);
}

static void on_fed(struct event *event)
{
	struct waiting *waiting = container_of(event, struct waiting, event);
	struct ev_loop *loop = waiting->loop;
	ev_watcher *watcher = waiting->watcher;
	int revents = waiting->revents;
	watcher->pending = 0;
	waiting_free(waiting);
	call(loop, watcher, revents);
}

static void on_time(struct event *event)
{
	struct waiting *waiting = container_of(event, struct waiting, event);
	struct ev_loop *loop = waiting->loop;
	ev_timer *timer = (ev_timer *)waiting->watcher;
	if (timer->repeat > 0) {
		event_set(event, now_us + (int64_t)(timer->repeat * 1e6));
	} else {
		timer->active = 0;
		waiting_free(waiting);
	}
	call(loop, (ev_watcher *)timer, EV_TIMER);
}

void ev_feed_event(struct ev_loop *loop, void *w, int revents) EV_NOEXCEPT
{
	ev_watcher *watcher = w;
	seen_run(w);
	if (watcher->pending) {
		all[watcher->pending]->revents |= revents;
		return;
	}
	struct waiting *waiting = waiting_new(loop, watcher);
	waiting->revents = revents;
	waiting->event.fire = on_fed;
	watcher->pending = waiting->number;
	event_set(&waiting->event,
		  dice_hits(FED_LATE_IN_10000) ? now_us + dice_between(0, FED_LATE_US) : now_us);
}

int ev_clear_pending(struct ev_loop *, void *w) EV_NOEXCEPT
{
	ev_watcher *watcher = w;
	int number = watcher->pending;
	seen_cleared(w);
	watcher->pending = 0;
	if (!number)
		return 0;
	int revents = all[number]->revents;
	waiting_free(all[number]);
	return revents;
}

void ev_timer_start(struct ev_loop *loop, ev_timer *timer) EV_NOEXCEPT
{
	if (timer->active)
		return;
	struct waiting *waiting = waiting_new(loop, (ev_watcher *)timer);
	waiting->event.fire = on_time;
	timer->active = waiting->number;
	event_set(&waiting->event, now_us + (int64_t)(timer->at * 1e6 + 0.5));
}

void ev_timer_stop(struct ev_loop *loop, ev_timer *timer) EV_NOEXCEPT
{
	ev_clear_pending(loop, timer);
	if (timer->active)
		waiting_free(all[timer->active]);
	timer->active = 0;
}

ev_tstamp ev_timer_remaining(struct ev_loop *, ev_timer *timer) EV_NOEXCEPT
{
	return timer->active ? (double)(all[timer->active]->event.at_us - now_us) / 1e6 : 0;
}

void ev_now_update(struct ev_loop *) EV_NOEXCEPT
{
}

/* The worker's loop is the harness's: its own code waits in here until ev_break. */
int ev_run(struct ev_loop *loop, int)
{
	if (!loop->broken)
		fibre_wait(loop->process->fibre);
	return 0;
}

void ev_break(struct ev_loop *loop, int) EV_NOEXCEPT
{
	loop->broken = true;
}

struct ev_loop *ev_default_loop(unsigned) EV_NOEXCEPT
{
	return running_process->loop;
}

void ev_signal_start(struct ev_loop *loop, ev_signal *signal) EV_NOEXCEPT
{
	hf_assert(loop->signals_count < SIGNALS_MAX);
	loop->signals[loop->signals_count++] = signal;
}

void ev_signal_stop(struct ev_loop *loop, ev_signal *signal) EV_NOEXCEPT
{
	for (size_t i = 0; i < loop->signals_count; i++)
		if (loop->signals[i] == signal)
			loop->signals[i--] = loop->signals[--loop->signals_count];
}

void loop_signal(struct ev_loop *loop, int number)
{
	for (size_t i = 0; i < loop->signals_count; i++)
		if (loop->signals[i]->signum == number)
			ev_feed_event(loop, loop->signals[i], EV_SIGNAL);
}

struct ev_loop *loop_new(struct process *process)
{
	struct ev_loop *loop = hf_alloc(sizeof *loop);
	loop->process = process;
	return loop;
}
