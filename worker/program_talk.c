/* What a program and its process say to each other. Frames are taken one at a time and none while
 * an answer is on its way, so a run holds one frame of memory in each direction. */
#include <math.h>

#include "runtime/base.h"
#include "runtime/key.h"
#include "runtime/utf8.h"
#include "runtime/value.h"
#include "worker/ask.h"
#include "worker/host.h"
#include "worker/program.h"
#include "worker/say.h"
#include "worker/text.h"

constexpr size_t NAME_LEN_MAX = 255; /* of a checkpoint or artifact */
constexpr size_t MEDIA_TYPE_LEN_MAX = 127;

static void send_out(struct program *program)
{
	host_send(program->host, &program->out);
	buf_clear(&program->out);
}

bool program_say_run(struct program *program)
{
	if (!say_run(program->run, host_run(program->host), program->limit_ms, &program->out)) {
		program_end(program, PHASE_FAILED,
			    "cannot start: arguments and states are over %zu bytes",
			    FRAME_BYTES_MAX);
		return false;
	}
	send_out(program);
	return true;
}

void program_say(struct program *program, const char *type)
{
	say_type(type, &program->out);
	send_out(program);
}

static void send_value(struct program *program, struct slice value)
{
	say_value(value, &program->out);
	send_out(program);
}

/* --- what the tool says ----------------------------------------------------------------------- */

void program_garbage(struct program *program, const char *what)
{
	/* Of one step, whoever it is. */
	if (program->plain) {
		if (host_plain(program->host))
			plain_refuse(host_plain(program->host));
		return;
	}
	program_fail(program, PHASE_CRASHED, "broke the frame protocol: %s", what);
}

/* A text that names something stored, or the end. One that cannot be kept is an error of the tool,
 * as a value is: run again, it would say the same. A step's is its own affair. */
static bool get_name(struct program *program, const struct frame *frame, const char *member,
		     size_t len_max, struct slice *name)
{
	if (!frame_get_any_text(frame, member, name)) {
		program_garbage(program, "a name or media type that is not text");
		return false;
	}
	if (name->len > 0 && name->len <= len_max && utf8_is_plain(name->data, name->len))
		return true;
	if (program->plain)
		program_garbage(program, "a name that is not plain text");
	else
		program_end(program, PHASE_TOOL_ERROR,
			    "gave a %s that is not 1 to %zu bytes of plain text", member, len_max);
	return false;
}

/* A value that can be stored, or the end: what is given to a later phase has a JSON form. */
static bool get_value(struct program *program, const struct frame *frame, const char *what,
		      struct slice *value)
{
	if (!frame_get(frame, "value", value)) {
		program_garbage(program, "no value in what it wants stored");
		return false;
	}
	if (value->len > PROGRAM_VALUE_BYTES_MAX) {
		program_end(program, PHASE_TOOL_ERROR,
			    "gave a %s of %zu bytes; over %zu belong into an artifact", what,
			    value->len, PROGRAM_VALUE_BYTES_MAX);
		return false;
	}
	hf_cleanup(buf) struct buf json = {};
	struct hf_err err;
	if (value_to_json(*value, &json, &err) != HF_OK) {
		program_end(program, PHASE_TOOL_ERROR, "gave a %s that has no JSON form: %s", what,
			    err.text);
		return false;
	}
	return true;
}

static void serve_checkpoint(struct program *program, const struct frame *frame)
{
	struct slice name, value;
	if (!get_name(program, frame, "name", NAME_LEN_MAX, &name) ||
	    !get_value(program, frame, "checkpoint", &value))
		return;
	program_storing(program);
	run_checkpoint(program->run, name, value, program_stored, program);
}

static void serve_recall(struct program *program, const struct frame *frame)
{
	struct slice name, value = {};
	if (!get_name(program, frame, "name", NAME_LEN_MAX, &name))
		return;
	if (!run_recall(program->run, name, &value))
		value = (struct slice){};
	send_value(program, value);
}

/* What it asks its caller: an answer that is there is its answer, as a checkpoint would be; else
 * the process ends, and the phase starts anew when there is one. */
static void serve_ask(struct program *program, const struct frame *frame)
{
	struct slice key, value, answer = {};
	int64_t wait_ms = 0;
	enum ask_state state;
	struct hf_err err;
	hf_cleanup(buf) struct buf request = {}, questions = {}, text = {}, packed = {};
	if (!get_name(program, frame, "key", NAME_LEN_MAX, &key))
		return;
	if (!frame_get(frame, "request", &value) ||
	    (frame_get_int(frame, "timeout_ms", &wait_ms) && wait_ms < 1)) {
		program_garbage(program, "a question without a request, or with a bad timeout_ms");
		return;
	}
	enum hf_code code = value_to_json(value, &request, &err);
	if (code == HF_OK)
		code = ask_look(program->run, key, buf_slice(&request), &state, &answer, &questions,
				&err);
	if (code != HF_OK || state == ASK_UNDECLARED) {
		program_end(program, PHASE_FAILED, "%s", err.text);
	} else if (state == ASK_OPEN) {
		ask_close(&questions);
		ask_text(buf_slice(&request), &text);
		program->declined = true;
		program->wait_ms = wait_ms;
		program_end(program, PHASE_ASK, "%s", text.data);
		buf_add_slice(&program->state, buf_slice(&questions));
	} else {
		if (state == ASK_ANSWERED)
			value_from_json(answer, &packed);
		send_value(program, buf_slice(&packed));
	}
}

static void serve_progress(struct program *program, const struct frame *frame)
{
	double fraction;
	struct slice text = {};
	if (!frame_get_double(frame, "fraction", &fraction) || isnan(fraction)) {
		program_garbage(program, "progress without a fraction");
		return;
	}
	frame_get_any_text(frame, "text", &text);
	hf_cleanup(buf) struct buf clean = {};
	text_clean(text, TEXT_PROGRESS_LEN_MAX, &clean);
	run_progress(program->run, fmin(fmax(fraction, 0.), 1.), buf_slice(&clean));
}

static void serve_key(struct program *program, const struct frame *frame)
{
	int64_t call;
	char key[DERIVED_KEY_LEN + 1];
	struct hf_err err;
	if (!frame_get_int(frame, "call", &call) || call < 0 || call > UINT32_MAX) {
		program_garbage(program, "key without a call number from 0 to 2^32 - 1");
		return;
	}
	if (run_derive(program->run, (uint32_t)call, key, &err) != HF_OK) {
		program_end(program, PHASE_FAILED, "got no key: %s", err.text);
		return;
	}
	hf_cleanup(buf) struct buf value = {};
	frame_text(&value, slice_of(key));
	send_value(program, buf_slice(&value));
}

static void serve_artifact(struct program *program, const struct frame *frame)
{
	struct slice name, media_type, content;
	if (!get_name(program, frame, "name", NAME_LEN_MAX, &name))
		return;
	if (!get_name(program, frame, "media_type", MEDIA_TYPE_LEN_MAX, &media_type))
		return;
	if (!frame_get_bin(frame, "data", &content)) {
		program_garbage(program, "an artifact whose data is not bin");
		return;
	}
	program_storing(program);
	run_artifact_put(program->run, name, media_type, content, program_stored, program);
}

/* Both answers leave the process as it is: it waits for its next run. True: the program is over. */
static bool serve_result(struct program *program, const struct frame *frame)
{
	struct slice value;
	if (!get_value(program, frame, "result", &value))
		return false;
	buf_add_slice(&program->state, value);
	buf_add_text(&program->answer, "result");
	program->outcome = PHASE_DONE;
	return true;
}

static bool serve_error(struct program *program, const struct frame *frame)
{
	struct slice text;
	bool retry = false;
	if (!frame_get_any_text(frame, "text", &text)) {
		program_garbage(program, "an error without text");
		return false;
	}
	frame_get_bool(frame, "retry", &retry);
	if (text.len)
		text_clean(text, TEXT_TOOL_ERROR_LEN_MAX, &program->text);
	else
		buf_add_format(&program->text, "%s failed", run_phase(program->run)->name);
	buf_add_text(&program->answer, retry ? "error, retry" : "error");
	program->declined = retry;
	program->outcome = retry ? PHASE_RETRY : PHASE_TOOL_ERROR;
	/* It was asked to stop, and says that it did. */
	if (program->told && program->outcome == PHASE_TOOL_ERROR)
		program->outcome = PHASE_STOPPED;
	return true;
}

/* A frame that names no run is believed only while the process has had no other. */
static bool is_of_this_run(struct program *program, const struct frame *frame)
{
	int64_t named = 0;
	int number = host_run(program->host);
	program->names_run = frame_get_int(frame, "run", &named);
	if (program->names_run ? named == number : number == 1)
		return true;
	program_garbage(program, "a frame that is not about this run");
	return false;
}

/* What a step may say too. */
static void serve_side(struct program *program, const struct frame *frame)
{
	if (slice_is(frame->type, "checkpoint"))
		serve_checkpoint(program, frame);
	else if (slice_is(frame->type, "recall"))
		serve_recall(program, frame);
	else if (slice_is(frame->type, "ask"))
		serve_ask(program, frame);
	else if (slice_is(frame->type, "progress"))
		serve_progress(program, frame);
	else if (slice_is(frame->type, "key"))
		serve_key(program, frame);
	else
		program_garbage(program, "a frame of a type that is not in it");
}

bool program_hear(struct program *program, const struct frame *frame)
{
	if (program->plain) {
		serve_side(program, frame);
		return false;
	}
	if (!is_of_this_run(program, frame))
		return false;
	if (slice_is(frame->type, "result"))
		return serve_result(program, frame);
	if (slice_is(frame->type, "error"))
		return serve_error(program, frame);
	if (slice_is(frame->type, "artifact"))
		serve_artifact(program, frame);
	else
		serve_side(program, frame);
	return false;
}
