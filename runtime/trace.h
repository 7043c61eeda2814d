/* trace.h - W3C trace context as a call may carry it in _meta (A20): checked, stored with the task
 * and handed on. What does not have the form counts as absent. The stored form is three lines:
 * traceparent, tracestate, baggage; a line may be empty, and trailing empty lines are left out. */
#pragma once

#include "runtime/buf.h"
#include "runtime/slice.h"

constexpr size_t TRACE_PARENT_LEN = 55; /* 00-<32 hex>-<16 hex>-<2 hex> */
constexpr size_t TRACE_ID_LEN = 32;
constexpr size_t TRACE_STATE_LEN_MAX = 512;
constexpr size_t TRACE_BAGGAGE_LEN_MAX = 8'192;

struct trace {
	struct slice parent, state, baggage; /* each may be empty */
};

/* Version 00 in lower case, neither ID all zero. */
bool trace_parent_valid(struct slice text);
/* 1 to 32 members, each KEY=VALUE, no key twice. */
bool trace_state_valid(struct slice text);
/* 1 to 64 members, each TOKEN=VALUE, perhaps with ;properties. */
bool trace_baggage_valid(struct slice text);

/* Appends the stored form of what is valid; nothing where nothing is. A state without a valid
 * parent belongs to nothing and is left out. */
void trace_pack(const struct trace *trace, struct buf *out);
/* Of the stored form; points into it. */
struct trace trace_unpack(struct slice stored);

/* The 32 digits of the trace, or empty. */
struct slice trace_id(const struct trace *trace);
/* The traceparent of a new span in the same trace, with the caller's flags; "" where there is no
 * trace. `text` has room for TRACE_PARENT_LEN + 1. */
void trace_span(const struct trace *trace, char *text);
