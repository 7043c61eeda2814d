/* host_pool.c - which tool processes there are, who gets which, and that nothing is left of one
 * that ended: its keeper ends after all that it keeps, but one that was killed leaves them to this
 * process, a subreaper, too. The sweep, a short timer, kills every child of ours that is no keeper.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "worker/host_private.h"
#include "worker/keeper.h"
#include "worker/rundir.h"
#include "worker/spawn.h"
#include "worker/texts.h"

constexpr double SWEEP_S = 0.005; /* between two looks at what is ending */
constexpr int64_t SWEEP_WARN_MS = 5'000;
constexpr int64_t CLOSE_MS = 2'000; /* host_pool_close waits so long */

/* --- what is ending --------------------------------------------------------------------------- */

static struct host *host_by_pid(const struct host_pool *pool, pid_t pid)
{
	struct host *host = pool->hosts;
	while (host && (host->gone || host->pid != pid))
		host = host->next;
	return host;
}

/* Children of this process that are no keepers, but were left by one: how many are left. */
static size_t kill_strangers(const struct host_pool *pool)
{
	char name[64];
	snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
	FILE *file = fopen(name, "re");
	size_t found = 0;
	for (int pid; file && fscanf(file, "%d", &pid) == 1;) {
		if (host_by_pid(pool, pid))
			continue;
		kill(pid, SIGKILL);
		found++;
	}
	if (file)
		fclose(file);
	return found;
}

static struct host *first_ending(const struct host_pool *pool, bool ended)
{
	for (struct host *host = pool->hosts; host; host = host->next) {
		if (host->ending && !host->gone && (!ended || host->exited))
			return host;
	}
	return nullptr;
}

static void warn_slow(const struct host_pool *pool)
{
	for (struct host *host = pool->hosts; host; host = host->next) {
		if (!host->ending || host->gone ||
		    clock_boot_ms() - host->warned_ms < SWEEP_WARN_MS)
			continue;
		host->warned_ms = clock_boot_ms();
		log_warn("a killed tool process does not end, and its task waits for that", "tool",
			 host->tool, "pid", LOG_INT(host->pid), nullptr);
	}
}

static void on_sweep(struct ev_loop *, ev_timer *timer, int)
{
	struct host_pool *pool = container_of(timer, struct host_pool, sweep);
	/* A killed keeper's children become ours, one generation at a time. */
	if (kill_strangers(pool) == 0) {
		for (struct host *host; (host = first_ending(pool, true));)
			host_went(host);
	}
	warn_slow(pool);
	if (!first_ending(pool, false))
		ev_timer_stop(pool->loop, &pool->sweep);
}

void host_pool_sweep(struct host_pool *pool)
{
	if (!ev_is_active(&pool->sweep))
		ev_timer_again(pool->loop, &pool->sweep);
}

/* --- taking and giving back --------------------------------------------------------------------
 */

static bool host_fits(const struct host *host, const char *folder, char *const *argv,
		      char *const *env)
{
	return !host->on_change && !host->ending && strcmp(host->folder, folder) == 0 &&
	       texts_same(host->argv, argv) && texts_same(host->env_names, env);
}

static struct host *find_idle(struct host_pool *pool, const struct host_spec *spec, size_t *count)
{
	char *folder = realpath(spec->folder, nullptr);
	if (!folder)
		return nullptr;
	char **argv = spawn_resolve(folder, spec->command);
	struct host *found = nullptr;
	for (struct host *host = pool->hosts; host; host = host->next) {
		if (!host_fits(host, folder, argv, spec->env))
			continue;
		*count += 1;
		if (host->ready && !host_is_quiet(host))
			host_kill(host);
		else if (!found || (host->ready && !found->ready))
			found = host;
	}
	texts_free(argv);
	free(folder);
	return found;
}

enum hf_code host_take(struct host_pool *pool, const struct host_spec *spec,
		       void (*on_change)(void *ctx), void *ctx, struct host **out,
		       struct hf_err *err)
{
	hf_assert(on_change);
	hf_assert(spec->command && spec->command[0]);
	size_t idle = 0;
	struct host *host = spec->plain ? nullptr : find_idle(pool, spec, &idle);
	if (!host)
		hf_try(host_start(pool, spec, &host, err));
	ev_timer_stop(pool->loop, &host->idle_timer);
	host->on_change = on_change;
	host->ctx = ctx;
	host->tasks++;
	if (host->tasks > 1)
		tail_clear(&host->log);
	host->log.bytes = 0;
	*out = host;
	return HF_OK;
}

/* The replacement of a used-up process, ready before it is asked for. */
static void start_ahead(const struct host *old)
{
	struct host_spec spec = { old->tool, old->version,   old->folder,
				  old->argv, old->env_names, nullptr };
	struct host *host;
	struct hf_err err;
	if (host_start(old->pool, &spec, &host, &err) == HF_OK)
		host_wait_idle(host);
	else
		log_warn("no tool process was started ahead; one is when a task needs it", "tool",
			 old->tool, "error", err.text, nullptr);
}

void host_put(struct host *host)
{
	hf_assert(host->on_change);
	host->on_change = nullptr;
	if (host->gone) {
		host_free(host);
		return;
	}
	struct host_spec spec = { host->tool, host->version,   host->folder,
				  host->argv, host->env_names, nullptr };
	bool sound = !host->plain && !host->ending && host->ready && host_is_quiet(host) &&
		     rundir_clear(host->place);
	/* Counted with itself: it has no user by now. */
	size_t idle = 0;
	if (sound)
		find_idle(host->pool, &spec, &idle);
	if (sound && host->tasks < HOST_TASKS_MAX && idle <= HOST_IDLE_MAX) {
		host_wait_idle(host);
		return;
	}
	host_kill(host);
	if (sound && host->tasks >= HOST_TASKS_MAX)
		start_ahead(host);
}

enum hf_code host_pool_open(struct ev_loop *loop, const char *state_dir, struct host_pool **out,
			    struct hf_err *err)
{
	hf_assert(ev_is_default_loop(loop));
	struct rundir *rundir;
	hf_try(rundir_open(state_dir, &rundir, err));
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) {
		rundir_close(rundir);
		return hf_fail(err, HF_SYSTEM, "no subreaper: %s", strerror(errno));
	}
	void *page = mmap(nullptr, sizeof(_Atomic int64_t), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		rundir_close(rundir);
		return hf_fail(err, HF_SYSTEM, "no shared page: %s", strerror(errno));
	}
	struct host_pool *pool = hf_alloc(sizeof *pool);
	pool->until_ms = page;
	*pool->until_ms = KEEPER_NO_LEASE;
	pool->loop = loop;
	pool->rundir = rundir;
	ev_timer_init(&pool->sweep, on_sweep, 0., SWEEP_S);
	*out = pool;
	return HF_OK;
}

void host_pool_lease(struct host_pool *pool, int64_t until_ms)
{
	atomic_store(pool->until_ms, until_ms);
}

void host_pool_kill(struct host_pool *pool)
{
	for (struct host *host = pool->hosts; host; host = host->next)
		host_kill(host);
}

void host_pool_collect(const struct host_pool *pool)
{
	metric_bound("hosts", (int64_t)pool->count, (int64_t)HOST_COUNT_MAX);
}

size_t host_pool_count(const struct host_pool *pool)
{
	return pool->count;
}

/* Reaps by hand, without the loop. */
static void reap_rest(struct host_pool *pool)
{
	int status;
	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
		struct host *host = host_by_pid(pool, pid);
		if (host)
			host->exited = true;
	}
	if (kill_strangers(pool) > 0)
		return;
	for (struct host *host; (host = first_ending(pool, true));)
		host_went(host);
}

void host_pool_close(struct host_pool *pool)
{
	for (struct host *host = pool->hosts; host; host = host->next)
		host->on_change = nullptr;
	host_pool_kill(pool);
	int64_t end = clock_boot_ms() + CLOSE_MS;
	while (pool->count && clock_boot_ms() < end) {
		reap_rest(pool);
		nanosleep(&(struct timespec){ .tv_nsec = 1'000'000 }, nullptr);
	}
	/* Those that a user had and were gone already, and those that do not end. */
	while (pool->hosts)
		host_free(pool->hosts);
	ev_timer_stop(pool->loop, &pool->sweep);
	munmap(pool->until_ms, sizeof *pool->until_ms);
	rundir_close(pool->rundir);
	free(pool);
}
