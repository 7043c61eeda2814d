/* say.c - what FRAMES.md and PLAIN.md promise a tool to find. */
#include "worker/say.h"

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/value.h"
#include "worker/frame.h"
#include "worker/phase.h"
#include "worker/span.h"

static void member_text(struct buf *out, const char *name, struct slice text)
{
	frame_text(out, slice_of(name));
	frame_text(out, text);
}

static void member_int(struct buf *out, const char *name, int64_t value)
{
	frame_text(out, slice_of(name));
	frame_int(out, value);
}

static void member_json(struct buf *out, const char *name, struct slice json)
{
	frame_text(out, slice_of(name));
	if (json.len)
		value_from_json(json, out);
	else
		frame_map(out, 0);
}

bool say_run(struct run *run, int number, int64_t limit_ms, struct buf *out)
{
	const struct claimed_task *task = run_task(run);
	const struct trace *trace = run_trace(run);
	const char *parent = run_traceparent(run);
	size_t start = frame_begin(out);
	frame_map(out, 12 + span_count(trace, parent));
	member_text(out, "t", slice_of("run"));
	member_int(out, "run", number);
	member_text(out, "task", slice_of(run_task_id(run)));
	member_text(out, "tool", slice_of(run_tool(run)->name));
	member_text(out, "phase", slice_of(run_phase(run)->name));
	member_int(out, "attempt", run_attempt(run));
	member_text(out, "effect_id", task->effect_id);
	member_text(out, "key", slice_of(run_key(run)));
	member_int(out, "deadline_ms", limit_ms);
	span_add_members(trace, parent, out);
	member_json(out, "args", task->arguments);
	member_json(out, "input", task->inputs);
	member_json(out, "state", run_states_json(run));
	return frame_end(out, start);
}

void say_type(const char *type, struct buf *out)
{
	size_t start = frame_begin(out);
	frame_map(out, 1);
	member_text(out, "t", slice_of(type));
	bool whole = frame_end(out, start);
	hf_assert(whole);
}

void say_value(struct slice value, struct buf *out)
{
	size_t start = frame_begin(out);
	frame_map(out, 3);
	member_text(out, "t", slice_of("value"));
	frame_text(out, slice_of("found"));
	frame_bool(out, value.len > 0);
	frame_text(out, slice_of("value"));
	if (value.len)
		frame_raw(out, value);
	else
		frame_nil(out);
	/* Stored values passed a smaller bound. */
	bool whole = frame_end(out, start);
	hf_assert(whole);
}

char **say_vars(const struct run *run)
{
	const struct claimed_task *task = run_task(run);
	int64_t left_ms = run_time_left_ms(run);
	char **vars = hf_alloc((10 + SPAN_PARTS) * sizeof *vars), **next = vars;
	*next++ = hf_format("HOLDFAST_TASK=%s", run_task_id(run));
	*next++ = hf_format("HOLDFAST_TOOL=%s", run_tool(run)->name);
	*next++ = hf_format("HOLDFAST_PHASE=%s", run_phase(run)->name);
	*next++ = hf_format("HOLDFAST_ATTEMPT=%d", run_attempt(run));
	*next++ = hf_format("HOLDFAST_EFFECT_ID=%.*s", (int)task->effect_id.len,
			    task->effect_id.data ? task->effect_id.data : "");
	*next++ = hf_format("HOLDFAST_KEY=%s", run_key(run));
	if (task->inputs.len)
		*next++ =
		    hf_format("HOLDFAST_INPUT=%.*s", (int)task->inputs.len, task->inputs.data);
	*next++ = hf_format("HOLDFAST_DEADLINE_MS=%lld", (long long)left_ms);
	*next++ = hf_format("HOLDFAST_DEADLINE=%lld", (long long)(clock_wall_ms() + left_ms));
	span_add_vars(run_trace(run), run_traceparent(run), next);
	return vars;
}
