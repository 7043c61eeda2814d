/* companion.h - task_status, task_result and task_cancel: plain tools beside those of the catalog,
 * for clients that know no tasks. They are answered from the store, accept nothing and need no
 * effect ID. Their names are reserved: runtime/tool.h. */
#pragma once

#include "api/request.h"
#include "runtime/slice.h"

constexpr int64_t COMPANION_WAIT_MS_MAX = 20'000; /* of task_status; clients give up at 60 s */
constexpr int64_t COMPANION_WAIT_MS = 10'000;

struct companions;
[[nodiscard]] struct companions *companions_new(void);
/* Nobody may wait any more. Takes nullptr; returns nullptr. */
struct companions *companions_free(struct companions *companions);

/* As tools/list shows them, separated by commas. */
struct slice companions_json(const struct companions *companions);

/* Ends the request. `name` is reserved; `arguments` is an object. */
void companion_call(struct request *request, struct slice name, struct slice arguments);

/* Whoever waits is answered with what is so, now and from now on. */
void companions_drain(struct companions *companions);
