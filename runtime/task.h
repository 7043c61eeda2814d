/* task.h - the states of a task and their one set of words: SQL's CHECK constraint, this table and
 * what an MCP client is told. */
#pragma once

#include "runtime/slice.h"

enum task_state : unsigned char {
	TASK_READY,
	TASK_SCHEDULED,
	TASK_RUNNING,
	TASK_WAITING,
	TASK_PAUSED,
	TASK_PARKED,
	TASK_UNVERIFIED,
	TASK_UNKNOWN,
	TASK_COMPLETED, /* terminal from here on: never changes again (V6) */
	TASK_FAILED,
	TASK_CANCELLED,
};

const char *task_state_name(enum task_state state);
[[nodiscard]] bool task_state_parse(struct slice name, enum task_state *state);
bool task_state_is_terminal(enum task_state state);
/* MCP Tasks T4.5: waiting is input_required, every other open state working. */
const char *task_state_mcp(enum task_state state);
