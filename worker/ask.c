/* ask.c - what came is in the claim, as rows of the inbox. A question whose answer does not fit is
 * asked again under KEY.2, KEY.3 and so on: what was answered once stands. */
#include "worker/ask.h"

#include "runtime/base.h"
#include "runtime/input.h"
#include "runtime/json.h"
#include "worker/phase.h"
#include "worker/text.h"

constexpr size_t TEXT_LEN_MAX = 200;

/* One row of the inbox. */
struct entry {
	int64_t phase;
	struct slice how, request, answer;
};

static bool find(const struct run *run, struct slice key, struct entry *entry)
{
	const struct claimed_task *task = run_task(run);
	for (size_t i = 0; i < task->steps_count; i++) {
		const struct claimed_step *step = &task->steps[i];
		struct slice phase;
		if (step->kind != STEP_INBOX || !slice_equal(step->name, key))
			continue;
		/* Built by the store. */
		bool whole = json_member(step->state, "phase", &phase) &&
			     json_integer(phase, &entry->phase) &&
			     json_member(step->state, "how", &entry->how) &&
			     json_member(step->state, "request", &entry->request) &&
			     json_member(step->state, "answer", &entry->answer);
		hf_assert(whole);
		return true;
	}
	return false;
}

static size_t keys_count(const struct run *run)
{
	const struct claimed_task *task = run_task(run);
	size_t count = 0;
	for (size_t i = 0; i < task->steps_count; i++)
		count += task->steps[i].kind == STEP_INBOX;
	return count;
}

static void add_question(struct buf *questions, struct slice key, struct slice request)
{
	buf_add_byte(questions, questions->len ? ',' : '[');
	buf_add_text(questions, "{\"key\":");
	json_string_encode(key, questions);
	buf_add_text(questions, ",\"request\":");
	buf_add_slice(questions, request);
	buf_add_byte(questions, '}');
}

void ask_close(struct buf *questions)
{
	buf_add_text(questions, questions->len ? "]" : "[]");
}

/* Where the nth asking stands; false: what came is no answer to it, so it is asked once more. */
static bool look_at(const struct entry *entry, struct slice request, enum ask_state *state,
		    struct slice *answer, struct hf_err *err)
{
	*state = ASK_OPEN;
	if (json_type_of(entry->how) == JSON_NULL)
		return true;
	*state = json_string_is(entry->how, "answer") ? ASK_ANSWERED : ASK_SILENT;
	*answer = entry->answer;
	/* What counts is what was sent; to an answer that came early nothing was. */
	struct slice sent = entry->phase < 0 ? request : entry->request;
	return *state == ASK_SILENT || input_answer_check(sent, entry->answer, err) == HF_OK;
}

/* The asking behind the nth is there: the nth was found a misfit, which is not found out anew. */
static bool was_asked_again(const struct run *run, struct slice key, int n)
{
	hf_cleanup(buf) struct buf name = {};
	struct entry entry;
	buf_add_slice(&name, key);
	buf_add_format(&name, ".%d", n + 1);
	return n < INPUT_ASKED_MAX && find(run, buf_slice(&name), &entry);
}

enum hf_code ask_look(struct run *run, struct slice key, struct slice request,
		      enum ask_state *state, struct slice *answer, struct buf *questions,
		      struct hf_err *err)
{
	int kind;
	struct hf_err misfit = {};
	if (!input_key_free(key))
		return hf_fail(err, HF_INVALID,
			       "the key of a question is 1 to %zu of A-Z a-z 0-9 _ . - and does "
			       "not end like .2",
			       INPUT_KEY_LEN_MAX - 3);
	hf_try(input_request_check(request, &kind, err));
	if (!(run_task(run)->asks & kind)) {
		*state = ASK_UNDECLARED;
		(void)hf_fail(err, HF_DENIED,
			      "asks its caller, whose client does not declare that it can be "
			      "asked so; call from one that does, under a new effect ID: %s",
			      input_capability(kind));
		return HF_OK;
	}
	hf_cleanup(buf) struct buf name = {};
	for (int n = 1; n <= INPUT_ASKED_MAX; n++) {
		struct entry entry;
		buf_clear(&name);
		buf_add_slice(&name, key);
		if (n > 1)
			buf_add_format(&name, ".%d", n);
		bool there = find(run, buf_slice(&name), &entry);
		if (there && entry.phase >= 0 && entry.phase != run_phase_number(run))
			return hf_fail(err, HF_CONFLICT,
				       "asks under the key %s, which another phase has used",
				       name.data);
		if (there && entry.phase >= 0 && was_asked_again(run, key, n))
			continue;
		if (there && !look_at(&entry, request, state, answer, &misfit))
			continue;
		if (!there && keys_count(run) >= INPUT_KEYS_MAX)
			return hf_fail(err, HF_LIMIT, "asks too much: this task has %zu questions",
				       INPUT_KEYS_MAX);
		if (!there)
			*state = ASK_OPEN;
		if (*state == ASK_OPEN)
			add_question(questions, buf_slice(&name), request);
		return HF_OK;
	}
	return hf_fail(err, HF_LIMIT,
		       "was answered %d times, and never as it asked to be; the last time%s%s",
		       INPUT_ASKED_MAX, misfit.text[0] == ':' ? "" : ", ", misfit.text);
}

void ask_text(struct slice request, struct buf *text)
{
	struct slice params, message, method;
	hf_cleanup(buf) struct buf said = {};
	if (json_member(request, "params", &params) && json_type_of(params) == JSON_OBJECT &&
	    json_member(params, "message", &message) && json_type_of(message) == JSON_STRING)
		json_string_decode(message, &said);
	else if (json_member(request, "method", &method))
		json_string_decode(method, &said);
	buf_add_text(text, "asks: ");
	text_clean(buf_slice(&said), TEXT_LEN_MAX, text);
}
