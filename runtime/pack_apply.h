/* pack_apply.h - a checked pack becomes what the API offers. Blocking, on the administrator's
 * connection; for tool_apply.c. */
#pragma once

#include <libpq-fe.h>

#include "runtime/err.h"
#include "runtime/pack.h"

/* Within the caller's transaction, to whose end all others that apply a pack wait. A pack that
 * offers nothing is taken away. HF_INVALID: another pack has one of its names; the text begins with
 * the file. HF_DB otherwise. */
enum hf_code pack_apply(PGconn *db, const struct pack *pack, bool *changed, struct hf_err *err);
