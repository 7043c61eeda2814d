/* span.h - the trace context of an attempt, as a tool's program is told of it: W3C traceparent of
 * its own span, tracestate and baggage as the caller sent them, each only where there is one. */
#pragma once

#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/trace.h"

constexpr size_t SPAN_PARTS = 3;

/* Members of a frame, and how many they are. `parent` may be "". */
uint32_t span_count(const struct trace *trace, const char *parent);
void span_add_members(const struct trace *trace, const char *parent, struct buf *frame);
/* Variables of an environment, on the heap, from `next` on. */
void span_add_vars(const struct trace *trace, const char *parent, char **next);
