/* accepting.h - a tools/call that passed every check and is to be accepted. */
#pragma once

#include "api/effect_id.h"
#include "runtime/store.h"
#include "runtime/tool.h"

/* What acceptance and the answer need, in the arena: the catalog may be another one by then. */
struct accepting {
	struct accept_call call;
	struct effect_id effect_id;
	int64_t poll_interval_ms;
	int64_t answer_window_ms;
	enum disconnect on_disconnect;
	struct slice ask; /* what is asked before it is accepted, or empty */
	bool ask_go_on;
	bool minted; /* the caller gave no effect ID */
	/* Not 0: the effect ID is a fresh one, to be asked about first (api/intent_window.h). */
	int64_t intent_window_ms;
	const char *trace_id; /* for the log, nullable */
};
