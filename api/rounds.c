/* rounds.c - see rounds.h. A question is a pure function of the arguments and of earlier answers,
 * so nobody has to remember what was asked: answers are checked against what would be asked again.
 * That is also why the first round may be answered unasked, without a requestState. Called by
 * tools.c, plain_tool.c and prompts.c. */
#include "api/rounds.h"

#include <string.h>

#include "api/answer.h"
#include "api/request_state.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/input.h"
#include "runtime/json.h"
#include "runtime/metrics.h"
#include "runtime/template.h"

constexpr size_t QUESTIONS_BYTES_MAX = 1 << 20; /* of one round, with the arguments put in */

/* One climb; `answers` grows member by member, without its last brace. */
struct climb {
	struct request *request;
	const struct rounds *rounds;
	struct request_state_scope scope;
	struct request_state state;
	struct slice responses; /* of this request, or empty */
	struct buf answers;
	struct buf questions; /* members of inputRequests */
	int undeclared;       /* kinds that can't be asked, but must */
};

static void hf_cleanup_climb(struct climb *climb)
{
	buf_deinit(&climb->answers);
	buf_deinit(&climb->questions);
}

/* `elicitation: {}` declares forms (A6.4). */
static bool is_form_only(struct slice name, struct slice declared)
{
	struct slice member;
	return json_string_is(name, "form") && !json_member(declared, "form", &member) &&
	       !json_member(declared, "url", &member);
}

/* Depth is bounded: both were scanned. */
static bool declares(struct slice declared, struct slice required)
{
	size_t at = 0;
	for (struct slice name, wanted, given; json_object_next(required, &at, &name, &wanted);) {
		hf_cleanup(buf) struct buf text = {};
		json_string_decode(name, &text);
		if (!json_member(declared, text.data ? text.data : "", &given)) {
			if (!is_form_only(name, declared))
				return false;
			continue;
		}
		if (json_type_of(given) != JSON_OBJECT || !declares(given, wanted))
			return false;
	}
	return true;
}

static void refuse_capability(struct request *request, struct slice required)
{
	hf_cleanup(buf) struct buf data = {};
	metric_add(METRIC_calls_refused_total, "missing_capability", 1);
	buf_add_text(&data, "{\"requiredCapabilities\":");
	buf_add_slice(&data, required);
	buf_add_text(&data, ",\"executed\":\"no\"}");
	request_refuse(request, &(struct refusal){
				    .status = 400,
				    .code = RPC_MISSING_CAPABILITY,
				    .message = "Missing required client capability",
				    .data = buf_slice(&data),
				});
}

bool rounds_requires(struct request *request, struct slice required)
{
	if (!required.len || declares(request->top.capabilities, required))
		return true;
	refuse_capability(request, required);
	return false;
}

static void refuse_undeclared(struct request *request, int kinds)
{
	hf_cleanup(buf) struct buf required = {};
	int elicited = kinds & (INPUT_FORM | INPUT_URL);
	buf_add_byte(&required, '{');
	if (elicited)
		buf_add_format(&required, "\"elicitation\":{%s%s%s}",
			       kinds & INPUT_FORM ? "\"form\":{}" : "",
			       elicited == (INPUT_FORM | INPUT_URL) ? "," : "",
			       kinds & INPUT_URL ? "\"url\":{}" : "");
	if (kinds & INPUT_SAMPLING)
		buf_add_format(&required, "%s\"sampling\":{}", required.len > 1 ? "," : "");
	if (kinds & INPUT_ROOTS)
		buf_add_format(&required, "%s\"roots\":{}", required.len > 1 ? "," : "");
	buf_add_byte(&required, '}');
	refuse_capability(request, buf_slice(&required));
}

static void refuse(struct request *request, const char *message)
{
	metric_add(METRIC_calls_refused_total, "request_state", 1);
	request_refuse_params(request, message, slice_of("{\"executed\":\"no\"}"));
}

bool rounds_began(const struct request *request)
{
	struct slice value;
	return json_member(request->rpc.params, "requestState", &value);
}

static void add_part(struct buf *out, struct slice part)
{
	buf_add_format(out, "%zu:", part.len);
	buf_add_slice(out, part);
}

/* The caller, the call, its arguments by value, and the questions themselves: a tool that now asks
 * something else does not take answers to what it asked before. */
static void scope_set(struct climb *climb)
{
	const struct request *request = climb->request;
	const struct rounds *rounds = climb->rounds;
	const struct principal *principal = request->principal;
	hf_cleanup(buf) struct buf canonical = {}, whole = {};
	json_canonical(rounds->arguments, "effect_id", &canonical);
	add_part(&whole, buf_slice(&canonical));
	add_part(&whole, rounds->effect_id);
	add_part(&whole, rounds->ask);
	climb->scope = (struct request_state_scope){
		.keyring = request->api->keyring,
		.issuer = slice_of(principal->issuer),
		.subject = slice_of(principal->subject),
		.tenant = slice_of(principal->tenant),
		.method = slice_of(method_name(request->top.method)),
		.name = rounds->name,
	};
	sha256(buf_slice(&whole), climb->scope.digest);
}

/* False: the request was ended. */
static bool state_read(struct climb *climb)
{
	struct request *request = climb->request;
	struct slice value;
	struct hf_err err = {};
	if (!json_member(request->rpc.params, "requestState", &value)) {
		climb->state = (struct request_state){ .nonce = uuid_new() };
		buf_add_byte(&climb->answers, '{');
		return true;
	}
	hf_cleanup(buf) struct buf text = {};
	if (json_type_of(value) == JSON_STRING)
		json_string_decode(value, &text);
	if (request_state_open(&climb->scope, buf_slice(&text), clock_wall_ms(), &climb->answers,
			       &climb->state, &err) != HF_OK) {
		refuse(request, arena_strdup(request->call->arena, err.text));
		return false;
	}
	/* Signed by us, so it is an object. */
	hf_assert(climb->answers.len >= 2);
	climb->answers.len--;
	return true;
}

static bool responses_read(struct climb *climb)
{
	struct slice value;
	if (!json_member(climb->request->rpc.params, "inputResponses", &value))
		return true;
	if (json_type_of(value) != JSON_OBJECT) {
		refuse(climb->request, "params.inputResponses must be an object");
		return false;
	}
	climb->responses = value;
	return true;
}

static void add_member(struct buf *out, struct slice raw_name, struct slice value)
{
	if (out->len && out->data[out->len - 1] != '{')
		buf_add_byte(out, ',');
	buf_add_slice(out, raw_name);
	buf_add_byte(out, ':');
	buf_add_slice(out, value);
}

static bool was_declined(struct slice answer)
{
	struct slice action;
	return json_member(answer, "action", &action) && !json_string_is(action, "accept");
}

static void refuse_declined(struct request *request, const char *key)
{
	struct arena *arena = request->call->arena;
	metric_add(METRIC_calls_refused_total, "declined", 1);
	const char *text =
	    arena_format(arena, "Nothing was run: the user did not give what was asked for (%s).",
			 key);
	struct slice data = answer_data(arena, "declined", "no", "key", slice_of(key));
	if (request->top.method == METHOD_TOOLS_CALL)
		answer_tool_error(request, text, data);
	else
		request_refuse_params(request, text, data);
}

/* False: the request was ended. */
static bool take_answer(struct climb *climb, struct slice name, const char *key,
			struct slice answer)
{
	bool declined = was_declined(answer);
	if (declined && !climb->rounds->go_on) {
		refuse_declined(climb->request, key);
		return false;
	}
	add_member(&climb->answers, name, declined ? slice_of("null") : answer);
	if (climb->answers.len < REQUEST_STATE_ANSWERS_MAX)
		return true;
	refuse(climb->request,
	       arena_format(climb->request->call->arena, "The answers have over %zu bytes together",
			    REQUEST_STATE_ANSWERS_MAX));
	return false;
}

static bool is_answered(const struct climb *climb, const char *key)
{
	hf_cleanup(buf) struct buf whole = {};
	struct slice value;
	buf_add_slice(&whole, buf_slice(&climb->answers));
	buf_add_byte(&whole, '}');
	return json_member(buf_slice(&whole), key, &value);
}

/* One question of the round at hand: taken, asked, passed over or refused. False: the request was
 * ended. */
static bool question(struct climb *climb, const struct template_scope *scope, struct slice name,
		     struct slice template)
{
	struct request *request = climb->request;
	struct hf_err err = {};
	struct slice answer;
	int kind;
	hf_cleanup(buf) struct buf key = {}, rendered = { .max = QUESTIONS_BYTES_MAX };
	json_string_decode(name, &key);
	if (is_answered(climb, key.data))
		return true;
	enum hf_code code = template_json(template, scope, &rendered, &err);
	if (code == HF_OK)
		code = input_request_check(buf_slice(&rendered), &kind, &err);
	if (code != HF_OK || rendered.overflow) {
		refuse(request, arena_format(request->call->arena,
					     "With these arguments there is no question %s: %s",
					     key.data, rendered.overflow ? "too large" : err.text));
		return false;
	}
	if (!(input_declared(request->top.capabilities) & kind)) {
		if (climb->rounds->go_on)
			return take_answer(climb, name, key.data, slice_of("null"));
		climb->undeclared |= kind;
		return true;
	}
	if (json_member(climb->responses, key.data, &answer) &&
	    input_answer_check(buf_slice(&rendered), answer, nullptr) == HF_OK)
		return take_answer(climb, name, key.data, answer);
	add_member(&climb->questions, name, buf_slice(&rendered));
	return true;
}

/* False: the request was ended. */
static bool round_climb(struct climb *climb, struct slice round)
{
	hf_cleanup(buf) struct buf earlier = {};
	buf_add_slice(&earlier, buf_slice(&climb->answers));
	buf_add_byte(&earlier, '}');
	const struct template_scope scope = { .args = climb->rounds->arguments,
					      .input = buf_slice(&earlier) };
	size_t at = 0;
	for (struct slice name, template; json_object_next(round, &at, &name, &template);)
		if (!question(climb, &scope, name, template))
			return false;
	if (!climb->undeclared)
		return true;
	refuse_undeclared(climb->request, climb->undeclared);
	return false;
}

/* The request ends with the questions of the round. */
static void ask(struct climb *climb)
{
	hf_cleanup(buf) struct buf result = {}, state = {};
	buf_add_byte(&climb->answers, '}');
	climb->state.answers = buf_slice(&climb->answers);
	climb->state.expires_ms = clock_wall_ms() + REQUEST_STATE_TTL_MS;
	request_state_seal(&climb->scope, &climb->state, &state);
	buf_add_text(&result, "{\"resultType\":\"input_required\",\"inputRequests\":{");
	buf_add_slice(&result, buf_slice(&climb->questions));
	buf_add_text(&result, "},\"requestState\":\"");
	buf_add_slice(&result, buf_slice(&state));
	buf_add_text(&result, "\"");
	result_end(&result);
	request_reply(climb->request, buf_slice(&result));
}

bool rounds_climb(struct request *request, const struct rounds *rounds, struct rounds_answers *out)
{
	hf_cleanup(climb) struct climb climb = { .request = request, .rounds = rounds };
	scope_set(&climb);
	if (!state_read(&climb) || !responses_read(&climb))
		return false;

	struct slice round;
	while (json_element(rounds->ask, climb.state.round, &round)) {
		if (!round_climb(&climb, round))
			return false;
		if (climb.questions.len) {
			ask(&climb);
			return false;
		}
		climb.responses = (struct slice){}; /* what comes next was not asked yet */
		climb.state.round++;
	}
	buf_add_byte(&climb.answers, '}');
	out->inputs = arena_slice(request->call->arena, buf_slice(&climb.answers));
	out->nonce = climb.state.nonce;
	return true;
}
