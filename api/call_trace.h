/* call_trace.h - the trace context in the _meta of a call (A20), in the form that is stored. */
#pragma once

#include "runtime/arena.h"
#include "runtime/slice.h"

/* In the arena; empty where there is none, or none that has the form. `meta` is an object. */
struct slice call_trace(struct slice meta, struct arena *arena);
/* The trace ID of that, for the log, ended by NUL; nullptr where there is none. */
const char *call_trace_id(struct slice stored, struct arena *arena);
