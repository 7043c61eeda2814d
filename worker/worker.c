/*
 * Slots, the claim loop and the end of the process.
 *
 *   A claim is in flight at most once. After one that brought tasks the next follows soon, after an
 *   empty one the wait doubles up to poll_ms, with jitter; a wake-up, a freed slot and a task that
 *   falls due again shorten it. Nothing is claimed without an acknowledged beat, a version that
 *   stands unpacked, and a free slot.
 *
 *   serving ──SIGTERM──► draining ──no run is left──► leaving ──answer or time──► ended
 *
 *   While draining nothing is claimed, every run is asked to give its task back, and one whose
 *   foreign request is in flight has drain_ms to hear the answer. A second signal ends it at once;
 *   the claims then fall to others when the beats stay away.
 */
#include "worker/worker.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/json.h"
#include "runtime/key.h"
#include "runtime/lineage.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/monitor.h"
#include "runtime/random.h"
#include "runtime/sqlphase.h"
#include "runtime/stop_signals.h"
#include "runtime/store.h"
#include "runtime/timer.h"
#include "worker/beat.h"
#include "worker/downstream.h"
#include "worker/host.h"
#include "worker/keeper.h"
#include "worker/phase.h"
#include "worker/run.h"
#include "worker/versions.h"

constexpr int CLAIM_TASKS_MAX = 64; /* of one claim */
/* A wake-up arrives within milliseconds; work that is older was found without one. */
constexpr int64_t WAKE_UP_LATE_MS = 250;
constexpr int64_t POLL_FIRST_MS = 10; /* after a claim that brought tasks; then doubled */
constexpr int64_t LEAVE_MS = 2'000;   /* for the last words at the end */
constexpr int64_t END_LOOK_MS = 10;   /* between two looks for tool processes at the end */
constexpr off_t CONF_BYTES_MAX = 1 << 20;

enum worker_state { WORKER_SERVING, WORKER_DRAINING, WORKER_LEAVING, WORKER_ENDED };

struct worker {
	const struct config *config;
	struct ev_loop *loop;
	struct keyring *keyring;
	struct buf conf;
	char *state_dir; /* absolute */
	struct store *store;
	struct sqlphase_pool *sql;
	struct downstream *downstream;
	struct host_pool *hosts;
	struct versions *versions;
	struct beat *beat;
	struct monitor *monitor;

	enum worker_state state;
	struct run **runs; /* config->slots of them */
	size_t runs_count;
	bool claiming, claim_again;
	bool woken; /* since a claim brought nothing */
	bool idle;  /* the last claim brought nothing */
	bool polls; /* the next claim, or the one in flight, is for no other reason than time */
	struct uuid claimer; /* the incarnation of the claim in flight */
	int64_t wait_ms;     /* between two claims, before jitter */
	ev_timer claim;
	bool lost, taken; /* the incarnation is; `taken` as beat_hooks.lost says */
	ev_timer renew;
	struct stop_signals signals;
	ev_timer drain; /* drain_ms, then LEAVE_MS */
	bool abandoned; /* drain_ms are over: so is all that runs */
	ev_timer look;  /* for the end */
	int exit_code;
};

/* --- claiming -----------------------------------------------------------------------------------
 */

static size_t free_slots(const struct worker *worker)
{
	return (size_t)worker->config->slots - worker->runs_count;
}

static void claim_in(struct worker *worker, int64_t ms)
{
	if (worker->state == WORKER_SERVING)
		timer_set(worker->loop, &worker->claim, ms);
}

/* No later than in `ms`. */
static void claim_by(struct worker *worker, int64_t ms)
{
	bool sooner = ev_is_active(&worker->claim) &&
		      ev_timer_remaining(worker->loop, &worker->claim) * 1000 <= (double)ms;
	worker->polls = false;
	if (worker->claiming)
		worker->claim_again = worker->claim_again || ms == 0;
	else if (!sooner)
		claim_in(worker, ms);
}

/* A quarter of the wait is chance, so that workers that began together drift apart. */
static void claim_after_wait(struct worker *worker)
{
	int64_t quarter = worker->wait_ms / 4;
	worker->polls = true;
	claim_in(worker, worker->wait_ms - quarter + random_up_to(quarter));
}

static void take(struct worker *worker, const struct claimed_task *task)
{
	const struct version *version = versions_find(worker->versions, task->tool);
	hf_assert(version); /* only queues of versions that stand here were claimed from */
	hf_assert(free_slots(worker) > 0);
	versions_served(worker->versions, task->tool);
	struct run *run = run_start(worker, version->tool, version->folder, task);
	worker->runs[worker->runs_count++] = run;
	if (worker->state != WORKER_SERVING)
		run_hand_back(run);
	const struct uuid *now = beat_incarnation(worker->beat);
	if (!now || !uuid_equal(now, &worker->claimer))
		run_lose(run, worker->taken);
}

static void renew_if_over(struct worker *worker)
{
	if (worker->lost && worker->runs_count == 0 && !worker->claiming)
		timer_set(worker->loop, &worker->renew, 0);
}

/* Not every free slot may be for its tasks. */
static bool is_limited(const struct worker *worker, const struct claimed_task *task)
{
	const struct tool_limits *limits =
	    &versions_find(worker->versions, task->tool)->tool->limits;
	return limits->running || limits->running_per_tenant;
}

/* Somebody accepted it and told everyone, and this worker had nothing to do and did not hear. What
 * has limits may have waited for its turn. */
static bool wake_up_missed(const struct worker *worker, const struct claimed_task *task)
{
	bool fresh = task->phase == 0 && task->attempt == 1 && task->crashes == 0 &&
		     task->sent_ms == 0 && task->first_try_ms == task->now_ms;
	return worker->polls && worker->idle && fresh && !is_limited(worker, task) &&
	       task->now_ms - task_id_ms(&task->id) > WAKE_UP_LATE_MS;
}

static void count_claim(struct worker *worker, const struct claimed_task *tasks, size_t count)
{
	if (count > 0)
		metric_add(METRIC_claims_total, worker->polls ? "poll" : "wake_up", 1);
	metric_add(METRIC_tasks_claimed_total, nullptr, (int64_t)count);
	for (size_t i = 0; i < count; i++)
		if (wake_up_missed(worker, &tasks[i]))
			metric_add(METRIC_missed_wakeups_total, "poll", 1);
	worker->idle = count == 0;
	worker->polls = false;
}

static void on_claimed(void *ctx, enum hf_code code, const struct claimed_task *tasks, size_t count,
		       const struct hf_err *err)
{
	struct worker *worker = ctx;
	worker->claiming = false;
	if (code == HF_CANCELLED)
		return;
	if (code != HF_OK)
		log_warn("claim failed", "error", err ? err->text : nullptr, nullptr);
	count_claim(worker, tasks, count);
	for (size_t i = 0; i < count; i++)
		take(worker, &tasks[i]);
	renew_if_over(worker);
	if (count > 0)
		worker->wait_ms = POLL_FIRST_MS;
	else
		worker->wait_ms = worker->wait_ms * 2 < worker->config->poll_ms
				      ? worker->wait_ms * 2
				      : worker->config->poll_ms;
	/* Woken, and there was nothing to claim: perhaps it is of a version not known here. */
	if (worker->woken && code == HF_OK && count == 0 && worker->state == WORKER_SERVING) {
		versions_hint(worker->versions);
		worker->woken = false;
	}
	/* A full batch says that there is more: a pause would cap the rate at a batch a pause. */
	if (worker->claim_again || count >= (size_t)CLAIM_TASKS_MAX)
		claim_in(worker, 0); /* `polls` is false: there was a reason */
	else
		claim_after_wait(worker);
	worker->claim_again = false;
}

static void on_claim_time(struct ev_loop *, ev_timer *timer, int)
{
	struct worker *worker = container_of(timer, struct worker, claim);
	ev_timer_stop(worker->loop, timer);
	const struct uuid *incarnation = beat_incarnation(worker->beat);
	size_t queues_count, room = free_slots(worker);
	const int32_t *queues = versions_queues(worker->versions, &queues_count);
	if (queues_count == 0 && worker->woken && worker->state == WORKER_SERVING) {
		versions_hint(worker->versions);
		worker->woken = false;
	}
	/* What is missing comes with a call of claim_by. */
	if (worker->claiming || worker->state != WORKER_SERVING || !incarnation || room == 0 ||
	    queues_count == 0)
		return;
	worker->claiming = true;
	worker->claimer = *incarnation;
	int limit = room < (size_t)CLAIM_TASKS_MAX ? (int)room : CLAIM_TASKS_MAX;
	store_claim(worker->store, incarnation, queues, queues_count, limit, on_claimed, worker);
}

static void on_wake(void *ctx, enum wake wake)
{
	struct worker *worker = ctx;
	if (wake == WAKE_WISH)
		beat_now(worker->beat);
	if (wake == WAKE_WORK) {
		worker->woken = true;
		claim_by(worker, 0);
	}
}

static void on_versions(void *ctx)
{
	claim_by(ctx, 0);
}

/* --- beats --------------------------------------------------------------------------------------
 */

static size_t beat_progress(void *ctx, struct beat_task *tasks, size_t room)
{
	struct worker *worker = ctx;
	size_t count = 0;
	for (size_t i = 0; i < worker->runs_count && count < room; i++)
		count += run_progress_take(worker->runs[i], &tasks[count]);
	return count;
}

static size_t beat_running(void *ctx)
{
	return ((struct worker *)ctx)->runs_count;
}

static void on_beat_wish(void *ctx, const struct beat_wish *wish)
{
	struct worker *worker = ctx;
	for (size_t i = 0; i < worker->runs_count; i++)
		if (run_owns(worker->runs[i], wish))
			run_wish(worker->runs[i], wish->wish);
}

static void on_beat_ready(void *ctx)
{
	claim_by(ctx, 0);
}

/* After the loss that the worker itself sees, before the store's. */
static void on_beat_renewed(void *ctx, int64_t sent_ms, int64_t lease_ms)
{
	const struct worker *worker = ctx;
	int64_t margin_ms = lease_ms * KEEPER_MARGIN_PERCENT / 100;
	host_pool_lease(worker->hosts, sent_ms + lease_ms - margin_ms);
}

static void on_beat_lost(void *ctx, bool taken)
{
	struct worker *worker = ctx;
	worker->lost = true;
	worker->taken = taken;
	for (size_t i = 0; i < worker->runs_count; i++)
		run_lose(worker->runs[i], taken);
	renew_if_over(worker);
}

static void on_left(void *, enum hf_code, const struct hf_err *)
{
	/* A row that stays is swept when its counter stands still. */
}

static void on_renew(struct ev_loop *, ev_timer *timer, int)
{
	struct worker *worker = container_of(timer, struct worker, renew);
	ev_timer_stop(worker->loop, timer);
	if (!worker->lost || worker->state != WORKER_SERVING)
		return;
	worker->lost = false;
	store_leave(worker->store, beat_last_incarnation(worker->beat), on_left, worker);
	beat_renew(worker->beat);
}

/* --- for operators ------------------------------------------------------------------------------
 */

static const char *on_not_ready(void *ctx)
{
	const struct worker *worker = ctx;
	if (worker->state != WORKER_SERVING)
		return "draining";
	if (lineage_waits())
		return LINEAGE_WAITS;
	if (!store_ready(worker->store))
		return "store away";
	return beat_incarnation(worker->beat) ? nullptr : "no beat acknowledged yet";
}

static const struct uuid *on_incarnation(void *ctx)
{
	return beat_incarnation(((const struct worker *)ctx)->beat);
}

static void on_collect(void *ctx)
{
	const struct worker *worker = ctx;
	size_t versions;
	versions_queues(worker->versions, &versions);
	metric_set(METRIC_versions_served, nullptr, (int64_t)versions);
	metric_bound("slots", (int64_t)worker->runs_count, worker->config->slots);
	store_collect(worker->store);
	sqlphase_collect(worker->sql);
	downstream_collect(worker->downstream);
	host_pool_collect(worker->hosts);
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void end(struct worker *worker, int exit_code)
{
	worker->state = WORKER_ENDED;
	worker->exit_code = exit_code;
	ev_break(worker->loop, EVBREAK_ALL);
}

static void on_last_left(void *ctx, enum hf_code code, const struct hf_err *)
{
	struct worker *worker = ctx;
	if (code != HF_CANCELLED && worker->state == WORKER_LEAVING)
		worker->state = WORKER_ENDED;
}

/* Every step of the end is looked for again and again: it has few, and happens once. */
static void on_look(struct ev_loop *, ev_timer *timer, int)
{
	struct worker *worker = container_of(timer, struct worker, look);
	if (worker->state == WORKER_DRAINING && worker->runs_count == 0 && !worker->claiming) {
		worker->state = WORKER_LEAVING;
		host_pool_kill(worker->hosts);
		beat_stop(worker->beat);
		store_leave(worker->store, beat_last_incarnation(worker->beat), on_last_left,
			    worker);
		timer_set(worker->loop, &worker->drain, LEAVE_MS);
	}
	if (worker->state == WORKER_ENDED && host_pool_count(worker->hosts) == 0)
		end(worker, EXIT_DONE);
	else
		timer_set(worker->loop, timer, END_LOOK_MS);
}

static void on_drained(struct ev_loop *, ev_timer *timer, int)
{
	struct worker *worker = container_of(timer, struct worker, drain);
	ev_timer_stop(worker->loop, timer);
	if (worker->state != WORKER_DRAINING || worker->abandoned) {
		log_warn("ends before all is given back; others take over when the lease is over",
			 "running", LOG_INT(worker->runs_count), nullptr);
		end(worker, EXIT_DONE);
		return;
	}
	worker->abandoned = true;
	for (size_t i = 0; i < worker->runs_count; i++)
		run_abandon(worker->runs[i]);
	timer_set(worker->loop, timer, LEAVE_MS);
}

static void on_signal(void *ctx)
{
	struct worker *worker = ctx;
	if (worker->state != WORKER_SERVING) {
		log_warn("second signal", nullptr);
		end(worker, EXIT_FAILED);
		return;
	}
	log_info("draining", "running", LOG_INT(worker->runs_count), nullptr);
	worker->state = WORKER_DRAINING;
	ev_timer_stop(worker->loop, &worker->claim);
	versions_stop(worker->versions);
	for (size_t i = 0; i < worker->runs_count; i++)
		run_hand_back(worker->runs[i]);
	timer_set(worker->loop, &worker->drain, worker->config->drain_ms);
	timer_set(worker->loop, &worker->look, 0);
}

/* --- what runs ask ------------------------------------------------------------------------------
 */

struct ev_loop *worker_loop(const struct worker *worker)
{
	return worker->loop;
}

const struct config *worker_config(const struct worker *worker)
{
	return worker->config;
}

struct store *worker_store(const struct worker *worker)
{
	return worker->store;
}

const struct keyring *worker_keyring(const struct worker *worker)
{
	return worker->keyring;
}

struct downstream *worker_downstream(const struct worker *worker)
{
	return worker->downstream;
}

struct sqlphase_pool *worker_sql(const struct worker *worker)
{
	return worker->sql;
}

struct host_pool *worker_hosts(const struct worker *worker)
{
	return worker->hosts;
}

struct slice worker_conf(const struct worker *worker)
{
	return buf_slice(&worker->conf);
}

bool worker_may_send(const struct worker *worker)
{
	return beat_may_send(worker->beat);
}

bool worker_has_last_starts(const struct worker *worker, const struct run *than, bool *taken)
{
	bool found = false;
	for (size_t i = 0; i < worker->runs_count; i++) {
		if (worker->runs[i] == than || !run_has_last_start(worker->runs[i]))
			continue;
		found = true;
		*taken = *taken || run_is_apart(worker->runs[i]);
	}
	return found;
}

void worker_run_ended(struct worker *worker, struct run *run, int64_t due_ms)
{
	size_t i = 0;
	while (i < worker->runs_count && worker->runs[i] != run)
		i++;
	hf_assert(i < worker->runs_count);
	/* Something may wait for the slot, or for the task's place within its limits. */
	bool makes_room = free_slots(worker) == 0 || is_limited(worker, run_task(run));
	worker->runs[i] = worker->runs[--worker->runs_count];
	run_free(run);
	renew_if_over(worker);
	if (makes_room)
		claim_by(worker, 0);
	else if (due_ms >= 0)
		claim_by(worker, due_ms + 1);
}

/* --- setting up ---------------------------------------------------------------------------------
 */

static enum hf_code read_conf(const char *path, struct buf *out, struct hf_err *err)
{
	if (!path) {
		buf_add_text(out, "{}");
		return HF_OK;
	}
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return hf_fail(err, HF_SYSTEM, "conf_file %s: %s", path, strerror(errno));
	if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || stat.st_size > CONF_BYTES_MAX) {
		close(fd);
		return hf_fail(err, HF_SYSTEM, "conf_file %s is no file of at most 1 MiB", path);
	}
	for (ssize_t got = 1; got > 0;) {
		got = read(fd, buf_reserve(out, 4'096), 4'096);
		buf_grew(out, got > 0 ? (size_t)got : 0);
	}
	close(fd);
	if (json_scan(buf_slice(out), err) != HF_OK)
		return hf_wrap(err, "conf_file");
	struct slice value = json_trim(buf_slice(out));
	if (json_type_of(value) != JSON_OBJECT)
		return hf_fail(err, HF_INVALID, "conf_file %s holds no JSON object", path);
	return HF_OK;
}

static enum hf_code make_state_dir(const char *path, char **out, struct hf_err *err)
{
	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		return hf_fail(err, HF_SYSTEM, "state_dir %s: %s", path, strerror(errno));
	*out = realpath(path, nullptr);
	if (!*out)
		return hf_fail(err, HF_SYSTEM, "state_dir %s: %s", path, strerror(errno));
	return HF_OK;
}

static void on_refused(void *ctx, const char *why)
{
	struct worker *worker = ctx;
	if (worker->state == WORKER_ENDED)
		return;
	log_error("the store refuses this worker", "error", why, nullptr);
	end(worker, EXIT_USAGE);
}

static enum hf_code open_database(struct worker *worker, struct hf_err *err)
{
	const struct config *config = worker->config;
	char *worker_dsn = nullptr, *sql_dsn = nullptr;
	enum hf_code code = HF_OK;
	if (!config->worker_dsn)
		code = config_role_dsn(config->dsn, "holdfast_worker", &worker_dsn, err);
	if (code == HF_OK && !config->sql_dsn)
		code = config_role_dsn(config->dsn, "holdfast_sql", &sql_dsn, err);
	if (code == HF_OK) {
		const struct store_keys keys = { worker->keyring, on_refused, worker };
		worker->store = store_open(worker->loop, STORE_WORKER,
					   worker_dsn ? worker_dsn : config->worker_dsn,
					   config->wake_dsn, &keys);
		worker->sql = sqlphase_open(worker->loop, sql_dsn ? sql_dsn : config->sql_dsn,
					    (int)config->sql_connections);
	}
	free(worker_dsn);
	free(sql_dsn);
	return code;
}

static enum hf_code set_up(struct worker *worker, struct hf_err *err)
{
	const struct config *config = worker->config;
	if (!config->keys_file)
		return hf_fail(err, HF_INVALID,
			       "give --keys-file FILE: derived keys need their secrets");
	hf_try(keyring_load(config->keys_file, &worker->keyring, err));
	hf_try(read_conf(config->conf_file, &worker->conf, err));
	hf_try(make_state_dir(config->state_dir, &worker->state_dir, err));
	hf_try(host_pool_open(worker->loop, worker->state_dir, &worker->hosts, err));
	hf_try(open_database(worker, err));
	const struct breaker_limits limits = { .failures = (int)config->breaker_failures,
					       .pause_ms = config->breaker_pause_ms,
					       .pause_ms_max = config->breaker_pause_max_ms };
	worker->downstream = downstream_open(worker->loop, &limits);
	hf_try(downstream_guard(worker->downstream, config->allow_hosts, config->allow_addresses,
				buf_slice(&worker->conf), err));
	worker->runs = hf_alloc((size_t)config->slots * sizeof(struct run *));
	return HF_OK;
}

static void init_watchers(struct worker *worker)
{
	ev_init(&worker->claim, on_claim_time);
	ev_init(&worker->renew, on_renew);
	ev_init(&worker->drain, on_drained);
	ev_init(&worker->look, on_look);
	stop_signals_start(&worker->signals, worker->loop, on_signal, worker);
	signal(SIGPIPE, SIG_IGN);
}

static enum hf_code start(struct worker *worker, struct hf_err *err)
{
	struct beat_settings settings = { .beat_ms = worker->config->beat_ms,
					  .lease_ms = worker->config->lease_ms,
					  .slots = (int)worker->config->slots };
	struct beat_hooks hooks = { .progress = beat_progress,
				    .running = beat_running,
				    .wish = on_beat_wish,
				    .ready = on_beat_ready,
				    .renewed = on_beat_renewed,
				    .lost = on_beat_lost,
				    .ctx = worker };
	worker->wait_ms = POLL_FIRST_MS;
	store_on_wake(worker->store, on_wake, worker);
	worker->versions =
	    versions_open(worker->loop, worker->store, worker->state_dir, on_versions, worker);
	worker->beat = beat_open(worker->loop, worker->store, &settings, &hooks);
	const struct monitor_hooks seen = { on_collect, on_not_ready, on_incarnation, worker };
	hf_try(monitor_open(worker->loop, worker->config->metrics_listen, 'w', &seen,
			    &worker->monitor, err));
	log_info("worker started", "slots", LOG_INT(worker->config->slots), nullptr);
	return HF_OK;
}

/* Runs that are left (a second signal, no answer in time) are left to the end of the process. */
static void tear_down(struct worker *worker)
{
	worker->monitor = monitor_close(worker->monitor);
	if (worker->hosts)
		host_pool_close(worker->hosts);
	if (worker->runs_count > 0)
		return;
	if (worker->sql)
		sqlphase_close(worker->sql);
	if (worker->store)
		store_close(worker->store);
	beat_close(worker->beat);
	versions_close(worker->versions);
	downstream_close(worker->downstream);
	keyring_free(worker->keyring);
	buf_deinit(&worker->conf);
	free(worker->state_dir);
	free(worker->runs);
}

int worker_main(const struct config *config)
{
	struct hf_err err = {};
	struct worker worker = { .config = config, .loop = EV_DEFAULT };
	init_watchers(&worker);
	enum hf_code code = set_up(&worker, &err);
	if (code == HF_OK)
		code = start(&worker, &err);
	if (code == HF_OK) {
		ev_run(worker.loop, 0);
	} else {
		log_error("the worker cannot start", "error", err.text, nullptr);
		worker.exit_code = code == HF_INVALID ? EXIT_USAGE : EXIT_FAILED;
	}
	log_info("worker ended", nullptr);
	tear_down(&worker);
	return worker.exit_code;
}
