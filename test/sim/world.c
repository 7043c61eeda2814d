/* world.c - one world from its seed: who is in it, how often things go wrong, what maintenance
 * does, and when it is calm again. Then everything that was accepted has to end. */
#include <stdlib.h>

#include "runtime/base.h"
#include "test/sim/front.h"
#include "test/sim/model.h"
#include "test/sim/sim.h"

constexpr int64_t MAINTAIN_US = 500 * MS;
constexpr int64_t FAULT_US_MAX = 3'000 * MS;  /* between two */
constexpr int64_t CALM_US_MAX = 400'000 * MS; /* after the last fault all is over by then */
constexpr int64_t TASK_US = 60 * MS;          /* of virtual time a task */
constexpr int LOOKS_MAX = 64;                 /* incarnations that the reaper looks at */

struct world world;

bool in_trouble(int in_10000)
{
	return !world.calm && dice_hits(in_10000 * world.trouble / 10'000);
}

/* --- maintenance ------------------------------------------------------------------------------ */

/* What the reaper saw of an incarnation: dead when the counter stood still for a lease. */
struct look {
	struct uuid incarnation;
	int64_t beat, since_us;
};
static struct look looks[LOOKS_MAX];
static int looks_count;
static struct event maintenance;

void reaper_learn(const struct uuid *incarnation)
{
	for (int i = 0; i < looks_count; i++)
		if (uuid_equal(&looks[i].incarnation, incarnation))
			return;
	hf_assert(looks_count < LOOKS_MAX);
	looks[looks_count++] = (struct look){ *incarnation, 0, now_us };
}

static void reap(void)
{
	for (int i = 0; i < looks_count; i++) {
		struct look *look = &looks[i];
		int64_t beat = model_beats(world.model, &look->incarnation);
		bool gone = beat == 0;
		if (beat != look->beat) {
			look->beat = beat;
			look->since_us = now_us;
		} else if (!gone && now_us - look->since_us >= world.lease_ms * MS) {
			gone = model_declare_dead(world.model, &look->incarnation, beat);
			count(TABLE_ACT, ACT_DEAD, gone);
			happened("declared dead", -1, gone, beat);
		}
		/* A row that comes late is learnt of again by its beat. */
		if (gone && now_us - look->since_us >= world.lease_ms * MS)
			*look = looks[--looks_count];
	}
}

static void on_maintenance(struct event *event)
{
	model_set_now(world.model, database_ms());
	reap();
	count_more(TABLE_ACT, ACT_RECLAIM, 0, model_reclaim(world.model, 256));
	count_more(TABLE_ACT, ACT_EXPIRE, 0, model_expire_deadlines(world.model, 256));
	count_more(TABLE_ACT, ACT_PARK_ORPHANS, 0, model_park_orphans(world.model, 256));
	count_more(TABLE_ACT, ACT_EXPIRE_PARKED, 0, model_expire_parked(world.model, 256));
	count_more(TABLE_ACT, ACT_WAKE_ANSWERED, 0, model_wake_answered(world.model));
	event_set(event, now_us + dice_between(MAINTAIN_US / 2, 2 * MAINTAIN_US));
}

/* --- faults ----------------------------------------------------------------------------------- */

static struct event faults, calms;

static void on_fault(struct event *event)
{
	if (world.calm)
		return;
	struct process *process = world.processes[dice_between(0, world.processes_count - 1)];
	switch (dice_between(0, 9)) {
	case 0:
		process_kill(process);
		break;
	case 1:
	case 2:
		process_stop(process, dice_between(100 * MS, 2 * world.lease_ms * MS));
		break;
	case 3:
		process_terminate(process);
		break;
	default:
		store_break_lane(process);
		break;
	}
	event_set(event, now_us + dice_between(1 * MS, FAULT_US_MAX));
}

static void on_calm(struct event *)
{
	world.calm = true;
	world.calm_us = now_us;
	happened("calm", -1, 0, 0);
}

/* --- the whole -------------------------------------------------------------------------------- */

static uint64_t draw(void *, const struct task_id *)
{
	return dice();
}

static void begin(uint64_t seed, int number)
{
	dice_seed(seed * 1'000'003 + (uint64_t)number);
	world = (struct world){ .seed = seed, .number = number };
	world.workers = (int)dice_between(2, 4);
	world.apis = (int)dice_between(1, 3);
	world.slots = (int)dice_between(2, 24);
	world.beat_ms = dice_between(300, 1'000);
	world.lease_ms = dice_between(3, 6) * 1'000;
	world.trouble = (int)dice_between(2'000, 12'000);
	struct model_config config = { .cluster_number = 1, .draw = draw };
	memset(config.cluster.bytes, 7, sizeof config.cluster.bytes);
	world.model = model_new(&config);
	model_set_now(world.model, database_ms());
	tools_add(world.model);
}

static bool all_over(void)
{
	return clients_are_done() && model_open_count(world.model) == 0;
}

void world_run(uint64_t seed, int number, int tasks)
{
	begin(seed, number);
	int64_t spread_us = tasks * TASK_US;
	clients_begin(tasks, spread_us);
	operator_begin();
	for (int i = 0; i < world.workers; i++)
		worker_begin(i);
	for (int i = 0; i < world.apis; i++)
		api_begin(i);
	maintenance.fire = on_maintenance;
	event_set(&maintenance, MAINTAIN_US);
	faults.fire = on_fault;
	event_set(&faults, FAULT_US_MAX);
	calms.fire = on_calm;
	event_set(&calms, spread_us + spread_us / 4);
	while (!world.calm || !all_over()) {
		if (!scheduler_step())
			broken(-1, "nothing happens any more");
		if (world.calm && now_us > world.calm_us + CALM_US_MAX)
			check_all_ended();
	}
	/* What is still on its way arrives. */
	for (int64_t until_us = now_us + 20'000 * MS; now_us < until_us;)
		if (!scheduler_step())
			break;
	check_end();
}
