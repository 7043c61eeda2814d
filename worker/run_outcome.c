/* The words of outcomes: the stored result of a completed task, the error object of a failed one,
 * and the sentence that a person reads. `executed` is "yes" once a keyed or
 * lookup phase has its recovery point; "maybe" where the phase at hand may have taken effect, or a
 * local phase is done, of which only its author knows whether its SQL changes anything; else "no".
 */
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "worker/run_private.h"
#include "worker/text.h"

/* A phase behind the one at hand that may have run before a restore took what is known of it. */
static bool lost_sight_of(const struct run *run, size_t phase)
{
	return run->task.tail.to_ms != 0 && !run->task.tail.is_new && !run->states[phase].known &&
	       (int)phase != run->phase && effect_is_foreign(run->tool->phases[phase].effect);
}

static const char *executed(const struct run *run, bool maybe_now)
{
	bool maybe = maybe_now;
	for (size_t i = 0; i < run->tool->phases_count; i++) {
		maybe = maybe || lost_sight_of(run, i);
		if (!run->states[i].known)
			continue;
		enum effect_class effect = run->tool->phases[i].effect;
		if (effect_is_foreign(effect))
			return "yes";
		maybe = maybe || effect == EFFECT_LOCAL;
	}
	return maybe ? "maybe" : "no";
}

void outcome_name(const struct run *run, struct slice text, struct buf *out)
{
	size_t len = run->spec ? strlen(run->spec->name) : 0;
	bool named = len == 0 || (text.len > len && memcmp(text.data, run->spec->name, len) == 0 &&
				  text.data[len] == ' ');
	if (!named)
		buf_add_format(out, "%s: ", run->spec->name);
	buf_add_slice(out, text);
}

static void encode_clean(struct slice text, size_t len_max, struct buf *out)
{
	hf_cleanup(buf) struct buf clean = {};
	text_clean(text, len_max, &clean);
	json_string_encode(buf_slice(&clean), out);
}

static struct slice link_name(struct slice uri, const struct run *run)
{
	size_t end = 0;
	while (end < uri.len && uri.data[end] != '?' && uri.data[end] != '#')
		end++;
	size_t start = end;
	while (start > 0 && uri.data[start - 1] != '/')
		start--;
	if (start == end)
		return slice_of(run->tool->name);
	return (struct slice){ uri.data + start, end - start };
}

/* A template of the result; what fails in it is of no phase. */
static enum hf_code fill(struct run *run, struct slice template, const char *place, struct buf *out,
			 struct hf_err *err)
{
	enum hf_code code = template_json(template, &run->scope, out, err);
	return code == HF_OK ? HF_OK : hf_wrap(err, place);
}

static enum hf_code add_links(struct run *run, struct buf *out, struct hf_err *err)
{
	hf_cleanup(buf) struct buf links = {};
	hf_try(fill(run, run->tool->result_links, "tool.json#/result/links", &links, err));
	struct slice link;
	for (size_t at = 0; json_array_next(buf_slice(&links), &at, &link);) {
		if (json_type_of(link) != JSON_STRING)
			return hf_fail(err, HF_INVALID, "a link of the result is no string");
		hf_cleanup(buf) struct buf uri = {};
		json_string_decode(link, &uri);
		if (out->data[out->len - 1] != '[')
			buf_add_byte(out, ',');
		buf_add_text(out, "{\"type\":\"resource_link\",\"uri\":");
		buf_add_slice(out, link);
		buf_add_text(out, ",\"name\":");
		json_string_encode(link_name(buf_slice(&uri), run), out);
		buf_add_byte(out, '}');
	}
	return HF_OK;
}

enum hf_code outcome_result(struct run *run, struct buf *out, struct hf_err *err)
{
	const struct tool *tool = run->tool;
	out->max = RUN_RESULT_BYTES_MAX;
	buf_add_text(out, "{\"content\":[");
	if (tool->result_text.len > 0) {
		buf_add_text(out, "{\"type\":\"text\",\"text\":");
		hf_try(fill(run, tool->result_text, "tool.json#/result/text", out, err));
		buf_add_byte(out, '}');
	}
	if (tool->result_links.len > 0)
		hf_try(add_links(run, out, err));
	buf_add_byte(out, ']');
	if (tool->result_structured.len > 0) {
		buf_add_text(out, ",\"structuredContent\":");
		hf_try(
		    fill(run, tool->result_structured, "tool.json#/result/structured", out, err));
	}
	buf_add_text(out, ",\"isError\":false}");
	if (out->overflow)
		return hf_fail(err, HF_LIMIT, "the result is over %zu bytes", RUN_RESULT_BYTES_MAX);
	return HF_OK;
}

void outcome_tool_error(struct run *run, struct slice text, bool maybe_now, struct buf *out)
{
	buf_add_text(out, "{\"content\":[{\"type\":\"text\",\"text\":");
	encode_clean(text, TEXT_TOOL_ERROR_LEN_MAX, out);
	const char *word = executed(run, maybe_now);
	if (strcmp(word, "no") != 0) {
		hf_cleanup(buf) struct buf stands = {};
		outcome_message(run, slice_of("What this call did stands"), maybe_now, &stands);
		buf_add_text(out, "},{\"type\":\"text\",\"text\":");
		json_string_encode(buf_slice(&stands), out);
	}
	buf_add_text(out, "}],\"structuredContent\":{\"type\":\"tool_error\",\"phase\":");
	json_string_encode(slice_of(run->spec->name), out);
	buf_add_format(out, ",\"executed\":\"%s\"},\"isError\":true}", word);
}

void outcome_error(struct run *run, const char *type, struct slice text, bool maybe_now,
		   struct buf *out)
{
	constexpr int INTERNAL_ERROR = -32603;
	hf_cleanup(buf) struct buf message = {};
	if (strcmp(type, "result") == 0)
		buf_add_slice(&message, text);
	else
		outcome_name(run, text, &message);
	buf_add_format(out, "{\"code\":%d,\"message\":", INTERNAL_ERROR);
	encode_clean(buf_slice(&message), TEXT_REASON_LEN_MAX, out);
	buf_add_format(out, ",\"data\":{\"type\":\"%s\"", type);
	if (run->spec) {
		buf_add_text(out, ",\"phase\":");
		json_string_encode(slice_of(run->spec->name), out);
		/* What an operator's retry has to know: see retry() in sql/functions/operate.sql.
		 */
		buf_add_format(out, ",\"phase_executed\":\"%s\"", maybe_now ? "maybe" : "no");
	}
	buf_add_format(out, ",\"executed\":\"%s\"}}", executed(run, maybe_now));
}

void outcome_message(struct run *run, struct slice text, bool maybe_now, struct buf *out)
{
	text_clean(text, TEXT_REASON_LEN_MAX, out);
	const char *between = "; done before: ";
	for (size_t i = 0; i < run->tool->phases_count; i++) {
		if (!run->states[i].known)
			continue;
		buf_add_text(out, between);
		buf_add_text(out, run->tool->phases[i].name);
		between = ", ";
	}
	if (between[0] == ';')
		buf_add_text(out, "; no phase was done");
	between = "; undone: ";
	for (size_t i = run->tool->phases_count; i > 0; i--) {
		if (!run->undone[i - 1])
			continue;
		buf_add_text(out, between);
		buf_add_text(out, run->tool->phases[i - 1].name);
		between = ", ";
	}
	for (size_t i = 0; i < run->tool->phases_count; i++)
		if (lost_sight_of(run, i))
			buf_add_format(out, "; %s may have taken effect",
				       run->tool->phases[i].name);
	if (maybe_now && run->spec)
		buf_add_format(out, "; %s may have taken effect", run->spec->name);
}

void outcome_unknown(const struct run *run, struct buf *more)
{
	struct hf_err err = {};
	char key[DERIVED_KEY_LEN + 1];
	bool keyed = run->spec->effect == EFFECT_KEYED || run->spec->type == PHASE_PROGRAM ||
		     run->spec->request.names_key;
	buf_add_text(more, "; may have happened, nobody can tell yet");
	if (!keyed)
		buf_add_text(more, "; it bears no key: look for its effect ID or arguments");
	else if (run_derive(run, 0, key, &err) == HF_OK)
		buf_add_format(more, "; its key is %s", key);
}
