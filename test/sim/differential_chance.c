/* differential_chance.c - what a schedule draws: numbers, and tasks and claims to act on. Mostly
 * what is there, now and then what was. */
#include "test/sim/differential.h"

uint64_t chance_bits(struct run *run)
{
	uint64_t bits = run->random += SEED_STEP;
	bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9U;
	bits = (bits ^ bits >> 27) * 0x94d049bb133111ebU;
	return bits ^ bits >> 31;
}

size_t chance(struct run *run, size_t below)
{
	return (size_t)(chance_bits(run) % below);
}

bool chance_of(struct run *run, int percent)
{
	return chance(run, 100) < (size_t)percent;
}

struct uuid chance_uuid(struct run *run)
{
	struct uuid uuid;
	for (size_t i = 0; i < sizeof uuid.bytes; i += sizeof(uint64_t)) {
		uint64_t bits = chance_bits(run);
		memcpy(uuid.bytes + i, &bits, sizeof bits);
	}
	return uuid;
}

bool chance_task(struct run *run, struct task_id *id)
{
	if (!run->tasks_count)
		return false;
	*id = run->tasks[chance(run, run->tasks_count)];
	const struct model_task *task = model_look(run->model, id);
	/* Another draw for what is over. */
	if (!task || !task->open)
		*id = run->tasks[chance(run, run->tasks_count)];
	return true;
}

bool chance_hold(struct run *run, struct hold *hold)
{
	if (!run->holds_count)
		return false;
	size_t alive[CLAIMS_MAX], alive_count = 0;
	for (size_t i = 0; i < run->holds_count; i++) {
		if (task_fence(run->model, &run->holds[i].id, &run->holds[i].token))
			alive[alive_count++] = i;
	}
	bool any = !alive_count || chance_of(run, 12);
	*hold = run->holds[any ? chance(run, run->holds_count) : alive[chance(run, alive_count)]];
	const struct model_task *task = task_fence(run->model, &hold->id, &hold->token);
	if (task) {
		hold->phase = task->phase;
		hold->attempt = task->attempt;
	}
	return true;
}

bool chance_where(struct run *run,
		  bool (*fits)(const struct run *run, const struct model_task *task),
		  struct task_id *id)
{
	size_t such[TASKS_MAX], count = 0;
	for (size_t i = 0; i < run->tasks_count; i++) {
		const struct model_task *task = model_look(run->model, &run->tasks[i]);
		if (task && fits(run, task))
			such[count++] = i;
	}
	if (chance_of(run, 10))
		return chance_task(run, id);
	if (!count)
		return false;
	*id = run->tasks[such[chance(run, count)]];
	return true;
}

/* Whether the last of a batch, each of which begins with the ID of its task, goes with the others.
 */
static bool batch_fits(const void *batch, size_t size, size_t last, bool one_week)
{
	const unsigned char *items = batch;
	const struct task_id *id = (const void *)(items + last * size);
	for (size_t i = 0; i < last; i++) {
		const struct task_id *other = (const void *)(items + i * size);
		if (task_id_equal(other, id) ||
		    (one_week && task_id_week(other) != task_id_week(id)))
			return false;
	}
	return true;
}

size_t chance_holds(struct run *run, struct hold *holds, size_t most, bool one_week)
{
	static_assert(offsetof(struct hold, id) == 0);
	size_t count = 0, wanted = chance_of(run, 70) ? 1 : most;
	for (size_t tries = 0; tries < wanted; tries++) {
		if (!chance_hold(run, &holds[count]))
			return 0;
		count += batch_fits(holds, sizeof *holds, count, one_week);
	}
	return count;
}

size_t chance_tasks(struct run *run, struct task_id *ids, size_t most, bool one_week)
{
	size_t count = 0, wanted = chance_of(run, 70) ? 1 : most;
	for (size_t tries = 0; tries < wanted; tries++) {
		if (!chance_task(run, &ids[count]))
			return 0;
		count += batch_fits(ids, sizeof *ids, count, one_week);
	}
	return count;
}

int64_t chance_owner(struct run *run, const struct task_id *id)
{
	const struct model_task *task = model_look(run->model, id);
	return task && !chance_of(run, 8) ? task->owner : 1 + (int64_t)chance(run, OWNERS);
}

const char *state_word(const struct run *run, const struct task_id *id)
{
	const struct model_task *task = model_look(run->model, id);
	return task ? task_state_name(task->state) : "gone";
}

void note_task(struct run *run, const struct task_id *id)
{
	for (size_t i = 0; i < run->tasks_count; i++) {
		if (task_id_equal(&run->tasks[i], id))
			return;
	}
	hf_assert(run->tasks_count < TASKS_MAX);
	run->tasks[run->tasks_count++] = *id;
}
