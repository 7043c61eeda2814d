/* span.c - see span.h. Called by say.c. */
#include "worker/span.h"

#include "runtime/base.h"
#include "worker/frame.h"

static const char *const member_names[SPAN_PARTS] = { "traceparent", "tracestate", "baggage" };
static const char *const var_names[SPAN_PARTS] = { "TRACEPARENT", "TRACESTATE", "BAGGAGE" };

static struct slice part_of(const struct trace *trace, const char *parent, size_t i)
{
	const struct slice parts[SPAN_PARTS] = { slice_of(parent), trace->state, trace->baggage };
	return parts[i];
}

uint32_t span_count(const struct trace *trace, const char *parent)
{
	uint32_t count = 0;
	for (size_t i = 0; i < SPAN_PARTS; i++)
		count += part_of(trace, parent, i).len > 0;
	return count;
}

void span_add_members(const struct trace *trace, const char *parent, struct buf *frame)
{
	for (size_t i = 0; i < SPAN_PARTS; i++) {
		struct slice part = part_of(trace, parent, i);
		if (part.len == 0)
			continue;
		frame_text(frame, slice_of(member_names[i]));
		frame_text(frame, part);
	}
}

void span_add_vars(const struct trace *trace, const char *parent, char **next)
{
	for (size_t i = 0; i < SPAN_PARTS; i++) {
		struct slice part = part_of(trace, parent, i);
		if (part.len > 0)
			*next++ = hf_format("%s=%.*s", var_names[i], (int)part.len, part.data);
	}
}
