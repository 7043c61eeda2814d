#include "runtime/task.h"

#include "runtime/base.h"

static const struct {
	const char *name;
	const char *mcp;
} states[] = {
	[TASK_READY] = { "ready", "working" },
	[TASK_SCHEDULED] = { "scheduled", "working" },
	[TASK_RUNNING] = { "running", "working" },
	[TASK_WAITING] = { "waiting", "input_required" },
	[TASK_PAUSED] = { "paused", "working" },
	[TASK_PARKED] = { "parked", "working" },
	[TASK_UNVERIFIED] = { "unverified", "working" },
	[TASK_UNKNOWN] = { "unknown", "working" },
	[TASK_COMPLETED] = { "completed", "completed" },
	[TASK_FAILED] = { "failed", "failed" },
	[TASK_CANCELLED] = { "cancelled", "cancelled" },
};

const char *task_state_name(enum task_state state)
{
	hf_assert(state < countof(states));
	return states[state].name;
}

bool task_state_parse(struct slice name, enum task_state *state)
{
	for (size_t i = 0; i < countof(states); i++) {
		if (slice_is(name, states[i].name)) {
			*state = (enum task_state)i;
			return true;
		}
	}
	return false;
}

bool task_state_is_terminal(enum task_state state)
{
	return state >= TASK_COMPLETED;
}

const char *task_state_mcp(enum task_state state)
{
	hf_assert(state < countof(states));
	return states[state].mcp;
}
