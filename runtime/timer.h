/* timer.h - a one-shot timer set anew, in our own unit. */
#pragma once

#include <ev.h>
#include <stdint.h>

/* Fires once in `after_ms`, in the next turn of the loop where that is 0 or less, and at no time
 * that was set before. Counted from now: libev's own clock is as old as the turn. */
static inline void timer_set(struct ev_loop *loop, ev_timer *timer, int64_t after_ms)
{
	ev_timer_stop(loop, timer);
	ev_now_update(loop);
	ev_timer_set(timer, after_ms > 0 ? (double)after_ms / 1000 : 0, 0);
	ev_timer_start(loop, timer);
}
