/* keeper.h - the process between this worker and a tool process. It lives as long as anything of
 * the tool does: whatever the tool starts, in whichever group or session, is its child or becomes
 * one when the parent dies (it is a subreaper). It ends them all, and then itself,
 *
 *   when the tool process ends,
 *   when the worker says so (SIGTERM), or dies,
 *   when the worker's lease is over: by the boot clock, from a page that both map, so also where
 * the worker is stopped, or too busy to notice.
 *
 * Its end is the proof: it ends after the last of them was reaped, with the tool's own status, and
 * before the store gives the task to anybody else (KEEPER_MARGIN_PERCENT of the lease before). */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

constexpr int64_t KEEPER_NO_LEASE = INT64_MAX; /* nothing ends by time */
constexpr int64_t KEEPER_MARGIN_PERCENT = 10;  /* of the lease; the worker's own loss is earlier */
static constexpr int KEEPER_STOP_SIGNAL = 15;  /* SIGTERM */

struct keeper {
	const _Atomic int64_t *until_ms; /* shared: the end of the lease, on the boot clock */
	pid_t worker;
	/* Neither returns: in the tool's process; and in the keeper's, where there is none. */
	void (*run)(const void *ctx, pid_t keeper);
	void (*fail)(const void *ctx, const char *what, int why);
	const void *ctx;
};

/* In a child of the worker, right after the fork, with all signals blocked. From there on only
 * async-signal-safe calls: see spawn.c. */
[[noreturn]] void keeper_main(const struct keeper *keeper);
