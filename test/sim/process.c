/* process.c - workers and APIs as processes: begun, stopped, told to end, killed at any point. A
 * worker is worker_main itself, on a stack of its own; killed, it is simply never called again. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/config.h"
#include "test/sim/fibre.h"
#include "test/sim/front.h"
#include "test/sim/sim.h"
#include "worker/worker.h"

constexpr int64_t RESTART_US_MAX = 3'000 * MS;
constexpr int64_t BOOT_OFFSET_MS_MAX = 100'000'000;

struct process *running_process;
static struct config config;
static char keys_path[64];

/* A key's secret, in a file of no name. */
void process_set_up(const char *path)
{
	snprintf(keys_path, sizeof keys_path, "%s", path);
}

static const struct config *worker_settings(void)
{
	config = (struct config){ .slots = world.slots,
				  .beat_ms = world.beat_ms,
				  .lease_ms = world.lease_ms,
				  .cancel_grace_ms = 3'000,
				  .poll_ms = 1'000,
				  .drain_ms = 4'000,
				  .sql_connections = 4,
				  .state_dir = ".",
				  .keys_file = keys_path,
				  .worker_dsn = "",
				  .sql_dsn = "",
				  .allow_hosts = "*" };
	return &config;
}

struct process *process_new(enum process_kind kind, int number)
{
	struct process *process = hf_alloc(sizeof *process);
	process->kind = kind;
	process->number = number;
	process->alive = true;
	process->boot_offset_ms = dice_between(0, BOOT_OFFSET_MS_MAX);
	process->loop = loop_new(process);
	for (int i = 0; i < world.processes_count; i++) {
		if (world.processes[i]->kind != kind || world.processes[i]->number != number)
			continue;
		world.processes[i] = process;
		return process;
	}
	hf_assert(world.processes_count < (int)countof(world.processes));
	world.processes[world.processes_count++] = process;
	return process;
}

struct restart {
	struct event event;
	enum process_kind kind;
	int number;
};

static void on_restart(struct event *event)
{
	struct restart *restart = container_of(event, struct restart, event);
	if (restart->kind == PROCESS_WORKER)
		worker_begin(restart->number);
	else
		api_begin(restart->number);
	free(restart);
}

/* Another one takes its place. */
static void replace(const struct process *process)
{
	struct restart *restart = hf_alloc(sizeof *restart);
	restart->event.fire = on_restart;
	restart->kind = process->kind;
	restart->number = process->number;
	event_set(&restart->event, now_us + dice_between(0, RESTART_US_MAX));
}

static void over(struct process *process)
{
	process->alive = false;
	store_process_died(process);
	downstream_died(process);
	programs_died(process);
	api_died(process);
	replace(process);
}

static void run_worker(void *ctx)
{
	struct process *process = ctx;
	int code = worker_main(worker_settings());
	if (process->alive && code != 0)
		broken(-1, "a worker ended with %d", code);
	if (process->alive)
		over(process);
}

struct process *worker_begin(int number)
{
	struct process *process = process_new(PROCESS_WORKER, number);
	as_process(process, fibre_begin(&process->fibre, run_worker, process));
	return process;
}

void process_ended(struct process *process)
{
	over(process);
}

void process_kill(struct process *process)
{
	if (!process->alive)
		return;
	count(TABLE_ACT, ACT_KILL, process->kind);
	happened("killed", -1, process->kind, process->number);
	seen_killed(process);
	if (process->fibre)
		fibre_drop(process->fibre);
	over(process);
}

void process_stop(struct process *process, int64_t for_us)
{
	if (!process->alive)
		return;
	count(TABLE_ACT, ACT_STOP, process->kind);
	happened("stopped", -1, process->number, for_us / MS);
	process->go_on_us = now_us + for_us;
}

void process_terminate(struct process *process)
{
	if (!process->alive || process->draining)
		return;
	count(TABLE_ACT, ACT_DRAIN, process->kind);
	happened("told to end", -1, process->kind, process->number);
	process->draining = true;
	if (process->kind == PROCESS_WORKER)
		loop_signal(process->loop, SIGTERM);
	else
		as_process(process, api_drain(process));
}

struct doom {
	struct event event;
	struct process *process;
};

static void on_doom(struct event *event)
{
	struct doom *doom = container_of(event, struct doom, event);
	process_kill(doom->process);
	free(doom);
}

void process_doom(struct process *process, int64_t within_us)
{
	struct doom *doom = hf_alloc(sizeof *doom);
	doom->event.fire = on_doom;
	doom->process = process;
	event_set(&doom->event, now_us + dice_between(0, within_us));
}
