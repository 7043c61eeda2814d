/* check.c - what must be true: of each start, and of the whole once all is over (V1-V10 of
 * README). ledger.c and clients.c hold what is true at every moment. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "test/sim/model.h"
#include "test/sim/sim.h"

constexpr int BROKEN_EXIT = 3;
constexpr int SENDS_MAX = 60, CRASHES_MAX = 40;

void broken(int effect, const char *format, ...)
{
	va_list args;
	fprintf(stderr, "BROKEN in world %d of seed %llu, at %.3f ms, ", world.number,
		(unsigned long long)world.seed, (double)now_us / 1000);
	if (effect >= 0)
		fprintf(stderr, "effect e%d of the tool %s: ", effect,
			effects[effect].tool->description);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	tally->broken_effect = effect;
	exit(BROKEN_EXIT);
}

static const struct model_step *step_at(const struct model_task *task, int32_t place)
{
	for (size_t i = 0; i < task->steps_count; i++)
		if (task->steps[i].place == place)
			return &task->steps[i];
	return nullptr;
}

static int phase_number(int place)
{
	return place < PHASES_MAX ? place : undo_phase(place - PHASES_MAX);
}

static const struct model_task *task_of(const struct effect *effect)
{
	unsigned char digest[EFFECT_DIGEST_BYTES];
	char id[16];
	snprintf(id, sizeof id, "e%d", effect->number);
	effect_digest(effect->owner, slice_of(effect->tool->name), slice_of(id), digest);
	const struct model_effect *known = model_look_effect(world.model, digest);
	return known ? model_look(world.model, &known->task) : nullptr;
}

void check_start(const struct effect *effect, int place)
{
	const struct model_task *task = task_of(effect);
	if (!task)
		broken(effect->number, "phase %d runs for a task that is not stored (V2)", place);
	if (step_at(task, step_place_recovery(phase_number(place))))
		broken(effect->number, "phase %d starts again, its recovery point stands (V3)",
		       place);
	if (!task->open)
		broken(effect->number, "phase %d starts, the task is over (V6)", place);
}

/* --- the end ---------------------------------------------------------------------------------- */

static const char *state_name(const struct model_task *task)
{
	return task_state_name(task->state);
}

enum executed { EXECUTED_NO, EXECUTED_MAYBE, EXECUTED_YES, EXECUTED_UNSAID };

/* `where`: "data" of an error, "structuredContent" of a result. */
static enum executed executed_of(struct slice json, const char *where)
{
	static const char *const words[] = { "no", "maybe", "yes" };
	struct slice inner, executed;
	if (!json.len || !json_member(json, where, &inner) || json_type_of(inner) != JSON_OBJECT ||
	    !json_member(inner, "executed", &executed))
		return EXECUTED_UNSAID;
	for (size_t i = 0; i < countof(words); i++)
		if (json_string_is(executed, words[i]))
			return (enum executed)i;
	return EXECUTED_UNSAID;
}

static bool mentions(struct slice text, const char *word)
{
	return text.len && memmem(text.data, text.len, word, strlen(word));
}

static const struct phase_spec *spec_of(const struct tool *tool, int place)
{
	const struct phase_spec *phase = &tool->phases[place % PHASES_MAX];
	return place < PHASES_MAX ? phase : phase->undo;
}

/* Done is done, once. */
static void check_completed(const struct effect *effect, const struct model_task *task)
{
	for (int i = 0; i < (int)effect->tool->phases_count; i++) {
		const struct phase_spec *phase = &effect->tool->phases[i];
		bool acts = phase->type != PHASE_WAIT && phase->effect != EFFECT_PURE;
		if (!step_at(task, step_place_recovery(i)))
			broken(effect->number, "completed without the recovery point of %d", i);
		if (acts && ledger(effect->number, i)->effects != 1)
			broken(effect->number, "completed, and phase %d took effect %d times", i,
			       ledger(effect->number, i)->effects);
	}
}

/* What may have happened is said (V7). */
static void check_said(const struct effect *effect, enum executed executed, int happened)
{
	if (executed == EXECUTED_NO && happened > 0)
		broken(effect->number,
		       "ended with executed \"no\", and something took effect (V7)");
	if (executed == EXECUTED_YES && happened == 0)
		broken(effect->number, "ended with executed \"yes\", and nothing took effect");
}

static void check_cancelled(const struct effect *effect, const struct model_task *task,
			    const struct model_step *end)
{
	for (int i = 0; i < (int)effect->tool->phases_count; i++) {
		const struct phase_spec *phase = &effect->tool->phases[i];
		if (ledger(effect->number, i)->effects && !mentions(end->message, phase->name))
			broken(effect->number,
			       "cancelled without a word of phase %d, which took effect: %.*s", i,
			       (int)end->message.len, end->message.data);
		if (!phase->undo || !step_at(task, step_place_recovery(i)))
			continue;
		int undo = PHASES_MAX + i;
		if (!step_at(task, step_place_recovery(phase_number(undo))))
			broken(effect->number, "cancelled, and phase %d was not undone", i);
		if (ledger(effect->number, undo)->effects != 1)
			broken(effect->number, "the undo step of phase %d took effect %d times", i,
			       ledger(effect->number, undo)->effects);
	}
}

static void check_task(const struct effect *effect, const struct model_task *task)
{
	const struct model_step *end = step_at(task, STEP_PLACE_OUTCOME);
	if (!end)
		broken(effect->number, "over without an outcome");
	int happened = 0;
	for (int place = 0; place < PLACES; place++) {
		const struct entry *entry = ledger(effect->number, place);
		happened += entry->effects;
		if (entry->sends > SENDS_MAX)
			broken(effect->number, "phase %d was sent %d times (V10)", place,
			       entry->sends);
		if (entry->sends && !spec_of(effect->tool, place))
			broken(effect->number, "place %d is no phase's", place);
	}
	if (task->crashes > CRASHES_MAX)
		broken(effect->number, "%d crashes (V10)", task->crashes);
	enum executed executed = task->state == TASK_FAILED
				     ? executed_of(json_trim(end->error), "data")
				     : executed_of(json_trim(end->result), "structuredContent");
	bool is_error = task->state == TASK_COMPLETED && mentions(end->result, "\"isError\":true");
	count(TABLE_END, task->state - TASK_COMPLETED + (is_error ? 3 : 0), executed);
	check_said(effect, executed, happened);
	if (task->state == TASK_COMPLETED && !is_error)
		check_completed(effect, task);
	else if (task->state == TASK_CANCELLED)
		check_cancelled(effect, task, end);
	else if (executed == EXECUTED_UNSAID)
		broken(effect->number, "%s without a word of what was executed", state_name(task));
}

static int *tasks_seen;

static void on_task(void *, const struct model_task *task)
{
	struct effect *effect = effect_of(task->effect_id);
	if (!effect)
		broken(-1, "a task of nobody's");
	if (++tasks_seen[effect->number] > 1)
		broken(effect->number, "has two tasks (V1)");
	if (task->open)
		broken(effect->number, "is %s still (V9)", state_name(task));
	if (effect->accepted && !task_id_equal(&effect->task, &task->id))
		broken(effect->number, "was told of another task (V1)");
	check_task(effect, task);
	struct task_view view = {};
	if (model_poll(world.model, effect->owner, &task->id, false, &view))
		told_view(effect, &view);
	if (model_poll(world.model, effect->owner + 1, &task->id, false, &view))
		broken(effect->number, "another owner sees it (V8)");
}

void check_end(void)
{
	tasks_seen = hf_alloc((size_t)effects_count * sizeof tasks_seen[0]);
	model_set_now(world.model, database_ms());
	model_each(world.model, on_task, nullptr, nullptr);
	for (int i = 0; i < effects_count; i++)
		if (effects[i].accepted && !tasks_seen[i])
			broken(i, "was accepted and is gone (V2)");
}

static void on_open(void *, const struct model_task *task)
{
	if (task->open)
		broken(effect_of(task->effect_id)->number,
		       "has not ended long after the last fault: %s, phase %d, attempt %d (V9)",
		       state_name(task), task->phase, task->attempt);
}

void check_all_ended(void)
{
	model_each(world.model, on_open, nullptr, nullptr);
	check_clients();
	broken(-1, "all is over, and was not seen to be");
}
