/* The last start before the crash limit. Whoever shares a worker with a task that kills it is
 * counted that crash as well, and must not end failed for it: so of the tasks that have one start
 * left a worker runs one at a time. The poison among them ends alone, and the others find out that
 * they are well. */
#include "runtime/random.h"
#include "runtime/timer.h"
#include "worker/run_private.h"
#include "worker/worker.h"

constexpr int64_t APART_MS = 2'000; /* until who has to wait asks again */
constexpr int64_t APART_SPREAD_MS = 1'000;
constexpr int64_t APART_LOOK_MS = 20; /* between two looks whether the others are given back */

bool run_has_last_start(const struct run *run)
{
	return run->task.crashes > 0 && run->task.crashes == run->tool->crash_limit - 1 &&
	       !run_undoing(run);
}

bool run_is_apart(const struct run *run)
{
	return run->apart;
}

bool run_waits_apart(struct run *run)
{
	if (!run_has_last_start(run))
		return false;
	bool taken = false;
	bool others = worker_has_last_starts(run->worker, run, &taken);
	if (taken) {
		run_release(run, RELEASE_AGAIN, APART_MS + random_up_to(APART_SPREAD_MS), false,
			    "waits to run apart: one more crash would be its last");
		return true;
	}
	run->apart = true;
	if (!others)
		return false;
	run_move(run, RUN_PAUSED);
	timer_set(run->loop, &run->pause, APART_LOOK_MS);
	return true;
}
