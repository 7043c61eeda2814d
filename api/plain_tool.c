/* plain_tool.c - see plain_tool.h. The answer is made first, so that nothing has to outlive the
 * catalog while progress is told:
 *
 *    checked ─► asked (rounds.c) ─► answer made ─► told* ─► answered     * a stream, timers
 *                                                    └─ gone */
#include "api/plain_tool.h"

#include <ev.h>

#include "api/answer.h"
#include "api/auth.h"
#include "api/headers.h"
#include "api/result.h"
#include "api/rounds.h"
#include "runtime/base.h"
#include "runtime/template.h"
#include "runtime/timer.h"

constexpr size_t ANSWER_BYTES_MAX = 8 << 20; /* with arguments and inputs put in */

/* Lives in the arena. */
struct telling {
	struct request *request;
	struct slice answer;
	const struct progress_step *steps;
	size_t count, at;
	ev_timer timer;
};

static struct request *telling_end(struct telling *telling)
{
	struct request *request = telling->request;
	ev_timer_stop(request->api->loop, &telling->timer);
	request->principal->plains--;
	request->call->on_gone = nullptr;
	return request;
}

static void on_gone(struct call *call)
{
	request_drop(telling_end(call->on_gone_ctx));
}

static void tell(const struct telling *telling, const struct progress_step *step)
{
	hf_cleanup(buf) struct buf members = {};
	buf_add_format(&members, "\"progress\":%lld", (long long)step->progress);
	if (step->total)
		buf_add_format(&members, ",\"total\":%lld", (long long)step->total);
	request_progress(telling->request, buf_slice(&members));
}

static void wait_for_next(struct telling *telling)
{
	timer_set(telling->request->api->loop, &telling->timer,
		  telling->steps[telling->at].after_ms);
}

static void on_step(struct ev_loop *, ev_timer *timer, int)
{
	struct telling *telling = container_of(timer, struct telling, timer);
	tell(telling, &telling->steps[telling->at++]);
	if (telling->at < telling->count) {
		wait_for_next(telling);
		return;
	}
	struct slice answer = telling->answer;
	request_reply(telling_end(telling), answer);
}

static void start_telling(struct request *request, const struct tool *tool, struct slice answer)
{
	struct arena *arena = request->call->arena;
	struct telling *telling = arena_alloc(arena, sizeof *telling);
	size_t bytes = tool->progress_count * sizeof *tool->progress;
	*telling = (struct telling){
		.request = request,
		.answer = arena_slice(arena, answer),
		.count = tool->progress_count,
	};
	telling->steps = (const struct progress_step *)
	    arena_copy(arena, (struct slice){ (const char *)tool->progress, bytes });
	ev_init(&telling->timer, on_step);
	request->principal->plains++;
	request->call->on_gone = on_gone;
	request->call->on_gone_ctx = telling;
	request_stream(request);
	wait_for_next(telling);
}

static enum hf_code make_answer(const struct tool *tool, const struct template_scope *scope,
				struct buf *out, struct hf_err *err)
{
	out->max = ANSWER_BYTES_MAX;
	buf_add_text(out, "{\"resultType\":\"complete\",\"content\":");
	hf_try(template_json(tool->answer_content, scope, out, err));
	if (tool->result_structured.len) {
		buf_add_text(out, ",\"structuredContent\":");
		hf_try(template_json(tool->result_structured, scope, out, err));
	}
	buf_add_format(out, ",\"isError\":%s", tool->answer_is_error ? "true" : "false");
	result_end(out);
	if (out->overflow)
		return hf_fail(err, HF_LIMIT, "the answer has over %zu bytes", ANSWER_BYTES_MAX);
	return HF_OK;
}

static void answer(struct request *request, const struct tool *tool,
		   const struct template_scope *scope)
{
	struct hf_err err = {};
	hf_cleanup(buf) struct buf text = {};
	if (make_answer(tool, scope, &text, &err) != HF_OK) {
		answer_bad_arguments(request, arena_strdup(request->call->arena, err.text),
				     nullptr);
		return;
	}
	bool tells = tool->progress_count && request_progress_token(request).len &&
		     header_accepts_events(request->call) &&
		     request->principal->plains < AUTH_PLAINS_MAX;
	if (tells)
		start_telling(request, tool, buf_slice(&text));
	else
		request_reply(request, buf_slice(&text));
}

/* False: the request was ended. */
static bool check_arguments(struct request *request, const struct tool *tool,
			    struct slice arguments)
{
	struct hf_err err = {};
	if (schema_check(tool->input, arguments, &err) == HF_OK)
		return true;
	answer_bad_arguments(request, arena_strdup(request->call->arena, err.text), nullptr);
	return false;
}

void plain_tool_call(struct request *request, const struct tool *tool, struct slice arguments)
{
	hf_assert(tool->effect_id == EFFECT_ID_NONE);

	struct rounds_answers answers = {};
	if (!check_arguments(request, tool, arguments))
		return;
	const struct rounds rounds = {
		.ask = tool->ask,
		.go_on = tool->ask_go_on,
		.name = slice_of(tool->name),
		.arguments = arguments,
	};
	if (tool->ask.len && !rounds_climb(request, &rounds, &answers))
		return;
	const struct template_scope scope = { .args = arguments, .input = answers.inputs };
	answer(request, tool, &scope);
}
