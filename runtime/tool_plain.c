/* tool_plain.c - what of tool.json the API itself acts on: what a client must be able to do
 * (`requires`), what it is asked before the call is accepted (`ask`), and the answer of a tool
 * without effect ID. Called by tool_new through tool_parse.h. */
#include <inttypes.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/tool_parse.h"

constexpr int64_t ASK_ROUNDS_MAX = 16;
constexpr size_t ASK_KEYS_MAX = 16; /* of one round */
constexpr int64_t CONTENT_BLOCKS_MAX = 64;
constexpr int64_t PROGRESS_STEPS_MAX = 100;
constexpr int64_t PROGRESS_MS_MAX = 10'000; /* of all steps together: an answer waits for them */
constexpr int64_t PROGRESS_MAX = 1'000'000'000;

/* --- requires --------------------------------------------------------------------------------- */

static enum hf_code capabilities_check(struct tool_parse *parse, struct slice object)
{
	size_t mark, at = 0;
	for (struct slice name, value; json_object_next(object, &at, &name, &value);) {
		hf_cleanup(buf) struct buf text = {};
		json_string_decode(name, &text);
		mark = path_down(parse, buf_slice(&text));
		if (json_type_of(value) != JSON_OBJECT)
			return tool_bad(parse, "must be an object, is %s",
					json_type_name(json_type_of(value)));
		hf_try(capabilities_check(parse, value));
		path_up(parse, mark);
	}
	return HF_OK;
}

enum hf_code requires_read(struct tool_parse *parse, struct slice object)
{
	size_t mark = path_down_text(parse, "requires");
	hf_try(capabilities_check(parse, object));
	path_up(parse, mark);
	parse->tool->needs = object;
	return HF_OK;
}

/* --- ask -------------------------------------------------------------------------------------- */

static enum hf_code round_check(struct tool_parse *parse, size_t number, struct slice round)
{
	size_t count = 0, at = 0, mark = parse->path.len;
	if (json_type_of(round) != JSON_OBJECT)
		return tool_bad(parse, "must be an object");
	parse->asking = number;
	for (struct slice name, request; json_object_next(round, &at, &name, &request); count++) {
		struct slice key = { name.data + 1, name.len - 2 };
		const char *taken = ask_find(parse->ask, number, key) ? "round" : nullptr;
		hf_try(question_check(parse, name, request, 0, taken));
		path_up(parse, mark);
	}
	if (count == 0 || count > ASK_KEYS_MAX)
		return tool_bad(parse, "has 1 to %zu keys", ASK_KEYS_MAX);
	return HF_OK;
}

enum hf_code ask_read(struct tool_parse *parse, struct slice ask, struct slice otherwise,
		      bool *go_on)
{
	static const char *const words[] = { "refuse", "continue" };
	int word;
	hf_try(member_word(parse, "ask_otherwise", otherwise, words, countof(words), &word));
	*go_on = word == 1;
	size_t mark = path_down_text(parse, "ask_otherwise");
	if (otherwise.len && !ask.len)
		return tool_bad(parse, "goes with \"ask\"");
	path_up(parse, mark);
	if (!ask.len)
		return HF_OK;
	path_down_text(parse, "ask");
	if (array_count(ask) > ASK_ROUNDS_MAX)
		return tool_bad(parse, "has over %" PRId64 " rounds", ASK_ROUNDS_MAX);
	parse->ask = ask;
	size_t at = 0, number = 0;
	for (struct slice round; json_array_next(ask, &at, &round); number++) {
		size_t inner = path_down_index(parse, number);
		hf_try(round_check(parse, number, round));
		path_up(parse, inner);
	}
	parse->asking = number; /* from here on all of them may be named */
	path_up(parse, mark);
	return HF_OK;
}

/* --- answer ----------------------------------------------------------------------------------- */

static enum hf_code content_check(struct tool_parse *parse, struct slice content)
{
	/* What each kind of block cannot be without (A17.5). */
	static const struct {
		const char *type, *needs[2];
	} kinds[] = {
		{ "text", { "text" } },
		{ "image", { "data", "mimeType" } },
		{ "audio", { "data", "mimeType" } },
		{ "resource_link", { "uri", "name" } },
		{ "resource", { "resource" } },
	};
	size_t at = 0, number = 0, mark = path_down_text(parse, "content");
	for (struct slice block, type, value; json_array_next(content, &at, &block); number++) {
		size_t inner = path_down_index(parse, number), kind = 0;
		bool typed = json_member(block, "type", &type);
		while (typed && kind < countof(kinds) && !json_string_is(type, kinds[kind].type))
			kind++;
		if (!typed || kind == countof(kinds))
			return tool_bad(parse, "must have type text, image, audio, resource_link "
					       "or resource");
		for (size_t i = 0; i < countof(kinds[kind].needs) && kinds[kind].needs[i]; i++)
			if (!json_member(block, kinds[kind].needs[i], &value))
				return tool_bad(parse, "a block of type %s needs \"%s\"",
						kinds[kind].type, kinds[kind].needs[i]);
		path_up(parse, inner);
	}
	hf_try(references_check(parse, content, 0));
	path_up(parse, mark);
	return HF_OK;
}

enum hf_code answer_read(struct tool_parse *parse, struct slice object)
{
	enum { CONTENT, STRUCTURED, IS_ERROR, COUNT };
	static const struct member members[COUNT] = {
		[CONTENT] = { "content", MEMBER_ARRAY, true, 1, CONTENT_BLOCKS_MAX },
		[STRUCTURED] = { "structured", MEMBER_OBJECT, false, 0, 0 },
		[IS_ERROR] = { "isError", MEMBER_BOOLEAN, false, 0, 0 },
	};
	struct tool *tool = parse->tool;
	struct slice values[COUNT];
	size_t mark = path_down_text(parse, "answer");
	hf_try(members_read(parse, object, members, COUNT, values));
	hf_try(content_check(parse, values[CONTENT]));
	if (values[STRUCTURED].len) {
		size_t inner = path_down_text(parse, "structured");
		hf_try(references_check(parse, values[STRUCTURED], 0));
		path_up(parse, inner);
	}
	path_up(parse, mark);
	tool->answer_content = values[CONTENT];
	tool->answer_is_error = values[IS_ERROR].len && json_type_of(values[IS_ERROR]) == JSON_TRUE;
	tool->result_structured = values[STRUCTURED];
	return HF_OK;
}

enum hf_code progress_read(struct tool_parse *parse, struct slice array)
{
	enum { PROGRESS, TOTAL, AFTER, COUNT };
	static const struct member members[COUNT] = {
		[PROGRESS] = { "progress", MEMBER_INTEGER, true, 0, PROGRESS_MAX },
		[TOTAL] = { "total", MEMBER_INTEGER, false, 1, PROGRESS_MAX },
		[AFTER] = { "after_ms", MEMBER_INTEGER, false, 0, PROGRESS_MS_MAX },
	};
	struct tool *tool = parse->tool;
	struct slice values[COUNT];
	size_t mark = path_down_text(parse, "progress"), at = 0, i = 0;
	if (array_count(array) > PROGRESS_STEPS_MAX)
		return tool_bad(parse, "has over %" PRId64 " steps", PROGRESS_STEPS_MAX);
	tool->progress = hf_alloc(array_count(array) * sizeof *tool->progress);
	int64_t sum_ms = 0, last = -1;
	for (struct slice element; json_array_next(array, &at, &element); i++) {
		size_t inner = path_down_index(parse, i);
		struct progress_step *step = &tool->progress[i];
		hf_try(members_read(parse, element, members, COUNT, values));
		*step = (struct progress_step){ member_integer(values[PROGRESS], 0),
						member_integer(values[TOTAL], 0),
						member_integer(values[AFTER], 0) };
		if (step->progress <= last)
			return tool_bad(parse, "progress must rise");
		last = step->progress;
		sum_ms += step->after_ms;
		path_up(parse, inner);
	}
	if (sum_ms > PROGRESS_MS_MAX)
		return tool_bad(parse, "takes over %" PRId64 " ms", PROGRESS_MS_MAX);
	tool->progress_count = i;
	path_up(parse, mark);
	return HF_OK;
}
