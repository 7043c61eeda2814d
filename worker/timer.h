/* timer.h - a libev timer that goes off once, counted from now and not from where the loop's turn
 * began. */
#pragma once

#include <ev.h>
#include <stdint.h>

/* Started anew where it runs; not later than soon where `ms` is past. */
static inline void timer_set(struct ev_loop *loop, ev_timer *timer, int64_t ms)
{
	ev_timer_stop(loop, timer);
	ev_now_update(loop);
	ev_timer_set(timer, (double)(ms > 0 ? ms : 0) / 1000, 0);
	ev_timer_start(loop, timer);
}
