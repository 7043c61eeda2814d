/* task_find.h - the tasks that an operator's word means: a task ID, or an effect ID of any owner
 * and tool. Reads alone. */
#pragma once

#include <libpq-fe.h>

#include "runtime/err.h"

struct task_id;

/* The newest task of each effect of that ID: its digest and task ID as text, and whose it is, for a
 * person. `effects` is the caller's to PQclear; nullptr where nothing was ever accepted. */
enum hf_code effects_find(PGconn *conn, const char *effect_id, PGresult **effects,
			  struct hf_err *err);

/* The one task that `name` means; a task ID is taken as it is. HF_MISSING: no task bears that
 * effect ID; HF_CONFLICT: several do, and the text names them. */
enum hf_code task_find(PGconn *conn, const char *name, struct task_id *id, struct hf_err *err);
