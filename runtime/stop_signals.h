/* stop_signals.h - what tells a process of ours to end in order: SIGTERM, SIGINT, and SIGHUP, which
 * a closed terminal sends, perhaps twice, and an operator who hopes that files are read again.
 * Nothing is: they are read at the start. */
#pragma once

#include <ev.h>

struct stop_signals {
	ev_signal each[3];
	void (*heard)(void *ctx);
	void *ctx;
	bool told; /* once, at least */
};

/* `heard` is called for each signal, but for a SIGHUP behind another one: whoever ends at once at a
 * second signal was asked twice. SIGHUP stays ignored where it was (nohup). */
void stop_signals_start(struct stop_signals *signals, struct ev_loop *loop,
			void (*heard)(void *ctx), void *ctx);
void stop_signals_stop(struct stop_signals *signals, struct ev_loop *loop);
