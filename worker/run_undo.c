/* The undo steps of a cancelled task: phases after all others, in reverse, of what has its recovery
 * point. Which is next the store knows as well: next_undo() in sql/functions/work.sql. */
#include "worker/run_private.h"

bool run_undoing(const struct run *run)
{
	return run->phase >= UNDO_PHASE_FIRST;
}

static bool undo_is_due(const struct run *run, int phase)
{
	return phase < (int)run->tool->phases_count && run->tool->phases[phase].undo &&
	       run->states[phase].known && !run->undone[phase];
}

bool run_has_undo(const struct run *run)
{
	for (int i = 0; i < (int)run->tool->phases_count; i++)
		if (undo_is_due(run, i))
			return true;
	return false;
}

const struct phase_spec *run_spec_find(struct run *run)
{
	while (run_undoing(run) && run->phase < UNDO_PHASE_END &&
	       !undo_is_due(run, undo_phase(run->phase)))
		run->phase++;
	if (run->phase < (int)run->tool->phases_count)
		return &run->tool->phases[run->phase];
	bool undo = run_undoing(run) && run->phase < UNDO_PHASE_END;
	return undo ? run->tool->phases[undo_phase(run->phase)].undo : nullptr;
}
