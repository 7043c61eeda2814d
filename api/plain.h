/* plain.h - calls of clients that do not declare Tasks: the answer is held until the task is over,
 * or until the tool's answer window is. While it is held, the task is attached to it; a client that
 * hangs up parks its task. */
#pragma once

#include <stddef.h>

#include "api/accepting.h"
#include "api/request.h"

constexpr int64_t PLAIN_QUICK_MS = 1'000;        /* an answer within it is JSON, then a stream */
constexpr int64_t PLAIN_PROGRESS_EVERY_MS = 100; /* at most one notification in that time */

struct plains;
[[nodiscard]] struct plains *plains_new(struct api *api);
/* None may be left. Takes nullptr; returns nullptr. */
struct plains *plains_free(struct plains *plains);

/* Accepts, waits and answers; ends the request. The principal's owner is known. */
void plain_call(struct request *request, const struct accepting *accepting);

/* The API has a new incarnation: whoever waits is attached under it. */
void plains_reattach(struct plains *plains);
/* Answers all that can't be answered in full, now and from now on, with "still running"; their work
 * goes on. */
void plains_drain(struct plains *plains);
/* Those that wait, and those of which the store is still to be told. */
size_t plains_count(const struct plains *plains);
/* Sets their gauges. */
void plains_collect(const struct plains *plains);
