/* tool_apply.h - `tools apply`: a checked folder becomes a version in the store, its prompts and
 * resources those that the API offers. Blocking, on the administrator's connection; for commands
 * only. */
#pragma once

#include <libpq-fe.h>
#include <stdint.h>

#include "runtime/err.h"
#include "runtime/pack.h"
#include "runtime/tool.h"
#include "runtime/tool_folder.h"

enum applied {
	APPLIED_NEW,   /* a version that was not there; now current */
	APPLIED_BACK,  /* was there, is current again; its SQL did not run again */
	APPLIED_STOOD, /* was there and current: nothing changed */
};

/* One transaction. Makes the tool's role and schema where it has SQL, runs schema.sql and loads the
 * data as that role, lets Postgres check each statement, stores the files. HF_MISSING: the schema
 * `holdfast` is not there (`holdfast migrate`). HF_INVALID: the tool's SQL or data is at fault; the
 * text names file, pointer and reason. HF_DB otherwise. `tool`: nullptr where the folder has none;
 * `id` is then left alone. */
enum hf_code tool_apply(PGconn *db, const struct tool_folder *folder, const struct tool *tool,
			const struct pack *pack, enum applied *applied, int32_t *id,
			struct hf_err *err);
