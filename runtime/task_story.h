/* task_story.h - a task's JSON, as `holdfast task show --json` prints it, told to a person. */
#pragma once

#include "runtime/slice.h"

/* `story` is the object that cmd_task.c's query makes; writes to stdout. */
void task_story_print(struct slice story);
/* One line of `task list`, and the heading above them. */
void task_row_print(struct slice row);
void task_row_heading(void);
