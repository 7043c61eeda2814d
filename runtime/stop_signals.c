#include "runtime/stop_signals.h"

#include <signal.h>

#include "runtime/base.h"

static bool is_ignored(int number)
{
	struct sigaction now;
	return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

static void on_signal(struct ev_loop *, ev_signal *signal, int)
{
	struct stop_signals *signals = signal->data;
	if (signals->told && signal->signum == SIGHUP)
		return;
	signals->told = true;
	signals->heard(signals->ctx);
}

void stop_signals_start(struct stop_signals *signals, struct ev_loop *loop,
			void (*heard)(void *ctx), void *ctx)
{
	static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
	static_assert(countof(numbers) == countof(signals->each));
	signals->heard = heard;
	signals->ctx = ctx;
	for (size_t i = 0; i < countof(numbers); i++) {
		ev_signal_init(&signals->each[i], on_signal, numbers[i]);
		signals->each[i].data = signals;
		if (numbers[i] != SIGHUP || !is_ignored(SIGHUP))
			ev_signal_start(loop, &signals->each[i]);
	}
}

void stop_signals_stop(struct stop_signals *signals, struct ev_loop *loop)
{
	for (size_t i = 0; i < countof(signals->each); i++)
		ev_signal_stop(loop, &signals->each[i]);
}
