/* operator.c - the person behind: looks now and then for tasks whose outcome is unknown, finds out
 * what is true once nothing of them is on its way any more, and says so; now and then gives a task
 * up that way, pauses one, or goes on with it. */
#include "runtime/base.h"
#include "test/sim/model.h"
#include "test/sim/sim.h"

constexpr int64_t LOOK_US = 1'000 * MS;
constexpr size_t FOUND_MAX = 256;
static struct event look;
static struct task_id found[FOUND_MAX];
static size_t found_count;

static void settle(const struct model_task *task)
{
	struct effect *effect = effect_of(task->effect_id);
	bool undo = task->phase >= UNDO_PHASE_FIRST;
	int phase = undo ? undo_phase(task->phase) : task->phase;
	int place = phase + (undo ? PHASES_MAX : 0);
	const struct entry *entry = ledger(effect->number, place);
	if (entry->flying > 0 || (!world.calm && dice_hits(6'000)))
		return;
	const struct phase_spec *spec = &effect->tool->phases[phase];
	if (undo)
		spec = spec->undo;
	struct model_verdict verdict = { .verdict = entry->effects > 0 ? "done" : "absent",
					 .state = { "\x80", 1 },
					 .name = slice_of(spec->name),
					 .force = true };
	if (in_trouble(1'000))
		verdict.verdict = "fail";
	const struct model_act act = { slice_of("op"), slice_of("looked") };
	struct task_id id = task->id;
	const char *said = model_settle(world.model, &id, &verdict, &act);
	happened(verdict.verdict, effect->number, place, said[0] == 's');
	if (strcmp(said, "settled") != 0)
		broken(effect->number, "settling said %s", said);
	count(TABLE_ACT,
	      verdict.verdict[0] == 'd'   ? ACT_SETTLE_DONE
	      : verdict.verdict[0] == 'a' ? ACT_SETTLE_ABSENT
					  : ACT_SETTLE_FAIL,
	      spec->effect);
}

static void pause_or_resume(const struct model_task *task)
{
	const struct model_act act = { slice_of("op"), slice_of("a pause") };
	struct task_id id = task->id;
	if (task->pause && (world.calm || dice_hits(3'000))) {
		model_resume_task(world.model, &id, &act);
		count(TABLE_ACT, ACT_RESUME, 0);
		happened("resumed", effect_of(task->effect_id)->number, 0, 0);
	} else if (!task->pause && in_trouble(20)) {
		model_pause_task(world.model, &id, &act);
		count(TABLE_ACT, ACT_PAUSE, 0);
		happened("paused", effect_of(task->effect_id)->number, 0, 0);
	}
}

static void on_task(void *, const struct model_task *task)
{
	if (task->open && found_count < FOUND_MAX)
		found[found_count++] = task->id;
}

static void on_look(struct event *event)
{
	model_set_now(world.model, database_ms());
	found_count = 0;
	model_each(world.model, on_task, nullptr, nullptr);
	for (size_t i = 0; i < found_count; i++) {
		const struct model_task *task = model_look(world.model, &found[i]);
		if (task->state == TASK_UNKNOWN)
			settle(task);
		else
			pause_or_resume(task);
	}
	event_set(event, now_us + dice_between(LOOK_US / 2, LOOK_US));
}

void operator_begin(void)
{
	look.fire = on_look;
	event_set(&look, LOOK_US);
}
