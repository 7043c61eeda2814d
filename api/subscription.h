/* subscription.h - what a subscriptions/listen asks for, and the frames of its stream (A14). Pure
 * functions. Every frame carries the id of the listen, as it came. */
#pragma once

#include <stddef.h>

#include "runtime/buf.h"
#include "runtime/id.h"
#include "runtime/slice.h"

constexpr size_t SUBSCRIPTION_TASKS_MAX = 64; /* that one listen may name */

struct subscription {
	bool tools_changed; /* notifications/tools/list_changed is wanted */
	bool names_tasks;   /* taskIds was given, be it empty */
	/* Well-formed, each once, in the order given. */
	struct task_id tasks[SUBSCRIPTION_TASKS_MAX];
	size_t tasks_count;
};

/* Whether it needs the Tasks extension, whatever else is wrong with it. */
[[nodiscard]] bool subscription_names_tasks(struct slice params);
/* nullptr, or what is wrong, for a person. What is asked for and not served here, and a task ID
 * that cannot be one, is left out. */
[[nodiscard]] const char *subscription_read(struct slice params, struct subscription *out);

/* Each appends one JSON-RPC notification. `id`: the raw token of the listen's. */
void subscription_ack(struct slice id, const struct subscription *honoured, struct buf *out);
void subscription_tools_changed(struct slice id, struct buf *out);
/* `params`: as result_task_notice makes them. */
void subscription_task(struct slice params, struct buf *out);
/* The result that ends it: what stands behind "result":. */
void subscription_end(struct slice id, struct buf *out);
