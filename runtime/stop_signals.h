/* stop_signals.h - what tells a process of ours to end in order: SIGTERM, SIGINT, and SIGHUP, which
 * a closed terminal sends and an operator who hopes that files are read again. Nothing is: they are
 * read at the start. */
#pragma once

#include <ev.h>

struct stop_signals {
	ev_signal each[3];
};

/* `heard` is called once for each signal, with `data` in its watcher. SIGHUP stays ignored where it
 * was (nohup). */
void stop_signals_start(struct stop_signals *signals, struct ev_loop *loop,
			void (*heard)(struct ev_loop *loop, ev_signal *signal, int events),
			void *data);
void stop_signals_stop(struct stop_signals *signals, struct ev_loop *loop);
