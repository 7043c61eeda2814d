/* tool_input.c - what a tool asks its caller, by key: questions wherever they stand, and the member
 * "input" of a wait phase. Called by tool_phase.c and tool_plain.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/input.h"
#include "runtime/json.h"
#include "runtime/tool_parse.h"

constexpr size_t KEYS_MAX = 16; /* of one phase */

/* Keys are unique over the life of a task (T6.3): in all phases up to this one. */
static bool is_taken(const struct tool *tool, size_t number, struct slice key)
{
	struct slice name, request;
	for (size_t i = 0; i < number; i++)
		for (size_t at = 0; tool->phases[i].input.len &&
				    json_object_next(tool->phases[i].input, &at, &name, &request);)
			if (slice_equal(name, key))
				return true;
	return false;
}

enum hf_code question_check(struct tool_parse *parse, struct slice name, struct slice request,
			    size_t phase, const char *taken)
{
	hf_cleanup(buf) struct buf key = {};
	struct hf_err inner = {};
	int kind;
	json_string_decode(name, &key);
	path_down(parse, buf_slice(&key));
	bool plain = name.len == key.len + 2; /* no escapes: others compare its spelling */
	if (parse->before && (!plain || !input_key_ok(buf_slice(&key))))
		return tool_bad(parse, "a key is 1 to %zu of A-Z a-z 0-9 _ . -", INPUT_KEY_LEN_MAX);
	if (!parse->before && (!plain || !input_key_free(buf_slice(&key))))
		return tool_bad(parse,
				"a key is 1 to %zu of A-Z a-z 0-9 _ . - and does not end "
				"like .2",
				INPUT_KEY_LEN_MAX - 3);
	if (taken)
		return tool_bad(parse, "an earlier %s asks under this key already", taken);
	hf_try(references_check(parse, request, phase));
	return input_request_check(request, &kind, &inner) == HF_OK
		   ? HF_OK
		   : tool_bad_within(parse, inner.text);
}

enum hf_code input_read(struct tool_parse *parse, struct slice object, size_t number,
			struct phase_spec *phase)
{
	enum { REQUESTS, TIMEOUT, OTHERWISE, COUNT };
	static const struct member members[COUNT] = {
		[REQUESTS] = { "requests", MEMBER_OBJECT, true, 0, 0 },
		[TIMEOUT] = { "timeout_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX },
		[OTHERWISE] = { "otherwise", MEMBER_STRING, false, 0, 0 },
	};
	struct slice values[COUNT], name, request;
	size_t outer = path_down_text(parse, "input");
	hf_try(members_read(parse, object, members, COUNT, values));
	static const char *const words[] = { "fail", "continue" };
	int word;
	hf_try(member_word(parse, "otherwise", values[OTHERWISE], words, countof(words), &word));
	phase->input_go_on = word == 1;
	size_t count = 0, mark = path_down_text(parse, "requests");
	for (size_t at = 0; json_object_next(values[REQUESTS], &at, &name, &request); count++) {
		size_t inner = parse->path.len;
		const char *taken = is_taken(parse->tool, number, name) ? "phase" : nullptr;
		hf_try(question_check(parse, name, request, number, taken));
		path_up(parse, inner);
	}
	if (count == 0 || count > KEYS_MAX)
		return tool_bad(parse, "has 1 to %zu keys", KEYS_MAX);
	path_up(parse, mark);
	path_up(parse, outer);
	phase->input = values[REQUESTS];
	phase->wait_ms = member_integer(values[TIMEOUT], 0);
	return HF_OK;
}
