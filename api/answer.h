/* answer.h - what a caller of tools/call is told of its effect and its task, in the form that its
 * effect ID came in: where a model chose it as an argument, a tool result that the model can act
 * on, else an error of the protocol. Used by tools.c, plain.c and
 * companion.c. */
#pragma once

#include "api/effect_id.h"
#include "api/request.h"
#include "runtime/store.h"

constexpr int64_t ANSWER_RETRY_AFTER_MS = 2'000; /* what is still running may be asked for then */

/* {"type": …, "executed": …, NAME: VALUE}, in the arena. `name` nullable. */
struct slice answer_data(struct arena *arena, const char *type, const char *executed,
			 const char *name, struct slice value);

/* Each ends the request. */

/* A result with isError. `structured` is one JSON object. */
void answer_tool_error(struct request *request, const char *text, struct slice structured);
/* Arguments that do not fit; `advice` (nullable) ends the text. */
void answer_bad_arguments(struct request *request, const char *fault, const char *advice);

/* What store_accept said where there is no task to go on with: a failure, another use of the effect
 * ID, a tombstone, or a full backlog (429). */
void answer_not_accepted(struct request *request, const struct effect_id *effect_id,
			 enum hf_code code, enum accept_outcome outcome, const struct hf_err *err);
/* Its result is no longer kept. */
void answer_expired(struct request *request, const struct effect_id *effect_id);

/* The task is over, or unknown. */
bool answer_is_due(enum task_state state);
/* Then: its stored result, or why there is none. */
void answer_outcome(struct request *request, enum effect_carrier carrier,
		    const struct task_view *view, bool replayed);
/* Its stored outcome cannot be sent; the log says so. `executed`: as of request_unavailable. */
void answer_corrupt(struct request *request, const char *executed);
/* The task goes on; of `view` only id, effect_id, state, attempt, progress and message count. */
void answer_still_running(struct request *request, enum effect_carrier carrier,
			  const struct task_view *view);
