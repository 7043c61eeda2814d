/* call_trace.c - see call_trace.h. Called by tools.c. */
#include "api/call_trace.h"

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/trace.h"

static void read_text(struct slice meta, const char *name, struct buf *out)
{
	struct slice value;
	if (json_member(meta, name, &value) && json_type_of(value) == JSON_STRING)
		json_string_decode(value, out);
}

struct slice call_trace(struct slice meta, struct arena *arena)
{
	hf_cleanup(buf) struct buf parent = {}, state = {}, baggage = {}, stored = {};
	read_text(meta, "traceparent", &parent);
	read_text(meta, "tracestate", &state);
	read_text(meta, "baggage", &baggage);
	const struct trace trace = { buf_slice(&parent), buf_slice(&state), buf_slice(&baggage) };
	trace_pack(&trace, &stored);
	if (stored.len == 0)
		return (struct slice){};
	return arena_slice(arena, buf_slice(&stored));
}

const char *call_trace_id(struct slice stored, struct arena *arena)
{
	const struct trace trace = trace_unpack(stored);
	struct slice id = trace_id(&trace);
	return id.len ? arena_format(arena, "%.*s", (int)id.len, id.data) : nullptr;
}
