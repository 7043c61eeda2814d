/* tool_phase.c - the phases of tool.json: which members each kind has, and what each effect class
 * needs. Called by tool_new through tool_parse.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/rfc3339.h"
#include "runtime/sql_text.h"
#include "runtime/tool_parse.h"

constexpr int64_t SQL_TIMEOUT_MS = 30'000;
constexpr int64_t PROGRAM_TIMEOUT_MS = 600'000;
constexpr int64_t SQL_FILE_BYTES_MAX = 1 << 20;
constexpr int64_t ARGUMENT_BYTES_MAX = 4'096, ARGUMENTS_MAX = 64;

static void texts_free(char **texts)
{
	for (size_t i = 0; texts && texts[i]; i++)
		free(texts[i]);
	free(texts);
}

void phase_deinit(struct phase_spec *phase)
{
	free(phase->name);
	free(phase->file);
	free(phase->sql);
	texts_free(phase->command);
	texts_free(phase->env);
	request_spec_deinit(&phase->request);
	request_spec_deinit(&phase->reconcile);
	free(phase->key_header);
	free(phase->done_when);
	free(phase->absent_when_empty);
	request_spec_deinit(&phase->verify.request);
	free(phase->verify.done_when);
	if (phase->undo)
		phase_deinit(phase->undo);
	free(phase->undo);
	*phase = (struct phase_spec){};
}

/* --- sql -------------------------------------------------------------------------------------- */

static enum hf_code sql_read(struct tool_parse *parse, struct slice object,
			     struct phase_spec *phase)
{
	enum { SQL_FILE = PHASE_MEMBERS, COUNT };
	static const struct member members[COUNT] = {
		PHASE_MEMBER_TABLE,
		[SQL_FILE] = { "file", MEMBER_STRING, true, 1, 255 },
	};
	struct slice values[COUNT], content;
	hf_try(members_read(parse, object, members, COUNT, values));
	hf_try(phase_common_read(parse, values, SQL_TIMEOUT_MS, phase));
	size_t mark = path_down_text(parse, "file");
	phase->file = member_text(values[SQL_FILE]);
	bool executable;
	hf_try(file_read(parse, phase->file, &content, &executable));
	if (parse->files) {
		if (content.len > SQL_FILE_BYTES_MAX)
			return tool_bad(parse, "%s is over %" PRId64 " bytes", phase->file,
					SQL_FILE_BYTES_MAX);
		struct hf_err inner = {};
		if (sql_check_statement(content, &inner) != HF_OK)
			return tool_bad(parse, "%s %s", phase->file, inner.text);
		phase->sql = hf_strndup(content.data, content.len);
	}
	path_up(parse, mark);
	return HF_OK;
}

/* --- program ---------------------------------------------------------------------------------- */

static enum hf_code texts_read(struct tool_parse *parse, struct slice array, char ***out)
{
	char **texts = hf_alloc((array_count(array) + 1) * sizeof *texts);
	*out = texts;
	struct slice element;
	for (size_t at = 0, i = 0; json_array_next(array, &at, &element); i++) {
		size_t mark = path_down_index(parse, i);
		texts[i] = json_string_dup(element);
		if (!texts[i])
			return tool_bad(parse, "must be a string");
		if (strlen(texts[i]) > ARGUMENT_BYTES_MAX)
			return tool_bad(parse, "is over %" PRId64 " bytes", ARGUMENT_BYTES_MAX);
		path_up(parse, mark);
	}
	return HF_OK;
}

static enum hf_code command_check(struct tool_parse *parse, const char *program)
{
	path_down_text(parse, "command");
	path_down_index(parse, 0);
	if (strncmp(program, "./", 2) == 0) {
		struct slice content;
		bool executable;
		hf_try(file_read(parse, program + 2, &content, &executable));
		return executable ? HF_OK : tool_bad(parse, "%s is not executable", program);
	}
	if (program[0] == '\0')
		return tool_bad(parse, "is empty");
	if (program[0] != '/' && strchr(program, '/'))
		return tool_bad(parse, "a program of the tool's folder begins with ./");
	return HF_OK;
}

/* A tool gets the variables that it names, but never a way into the store. */
static enum hf_code env_check(struct tool_parse *parse, char *const *names)
{
	path_down_text(parse, "env");
	for (size_t i = 0; names[i]; i++) {
		size_t mark = path_down_index(parse, i), len = strlen(names[i]);
		bool digit = names[i][0] >= '0' && names[i][0] <= '9';
		if (!name_is_plain(names[i]) || strpbrk(names[i], ".-") || digit)
			return tool_bad(parse, "must be the name of an environment variable");
		bool ours = strncmp(names[i], "HOLDFAST_", 9) == 0;
		if (ours && len >= 3 && strcmp(names[i] + len - 3, "DSN") == 0)
			return tool_bad(parse, "a tool gets no connection string of the store");
		path_up(parse, mark);
	}
	return HF_OK;
}

static enum hf_code program_read(struct tool_parse *parse, struct slice object,
				 struct phase_spec *phase)
{
	enum { COMMAND = PHASE_MEMBERS, ENV, MODE, KEY_TTL, COUNT };
	static const struct member members[COUNT] = {
		PHASE_MEMBER_TABLE,
		[COMMAND] = { "command", MEMBER_ARRAY, true, 1, ARGUMENTS_MAX },
		[ENV] = { "env", MEMBER_ARRAY, false, 0, ARGUMENTS_MAX },
		[MODE] = { "mode", MEMBER_STRING, false, 0, 0 },
		[KEY_TTL] = { "key_ttl_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX },
	};
	struct slice values[COUNT];
	hf_try(members_read(parse, object, members, COUNT, values));
	hf_try(phase_common_read(parse, values, PROGRAM_TIMEOUT_MS, phase));
	hf_try(phase_class_check(parse, phase, EFFECT_KEYED, "key_ttl_ms", values[KEY_TTL]));
	phase->key_ttl_ms = member_integer(values[KEY_TTL], 0);
	static const char *const words[] = { "frames", "plain" };
	int word;
	hf_try(member_word(parse, "mode", values[MODE], words, countof(words), &word));
	phase->plain = word == 1;
	size_t mark = path_down_text(parse, "command");
	hf_try(texts_read(parse, values[COMMAND], &phase->command));
	path_up(parse, mark);
	hf_try(command_check(parse, phase->command[0]));
	path_up(parse, mark);
	if (values[ENV].len) {
		path_down_text(parse, "env");
		hf_try(texts_read(parse, values[ENV], &phase->env));
		path_up(parse, mark);
		hf_try(env_check(parse, phase->env));
		path_up(parse, mark);
	}
	return HF_OK;
}

/* --- wait ------------------------------------------------------------------------------------- */

/* A time that stands there as text is read once and for all; one that is put in, when it is. */
static enum hf_code until_check(struct tool_parse *parse, struct slice until, size_t number)
{
	path_down_text(parse, "until");
	hf_try(references_check(parse, until, number));
	enum json_type type = json_type_of(until);
	if (type != JSON_STRING && type != JSON_OBJECT)
		return tool_bad(parse, "must be an RFC 3339 time, or a reference to one");
	hf_cleanup(buf) struct buf text = {};
	int64_t ms;
	if (type == JSON_STRING)
		json_string_decode(until, &text);
	if (type == JSON_STRING && !memchr(text.data ? text.data : "", '{', text.len) &&
	    !rfc3339_parse(buf_slice(&text), &ms))
		return tool_bad(parse, "is no RFC 3339 time, as 2015-09-01T12:30:00Z is one");
	return HF_OK;
}

static enum hf_code wait_read(struct tool_parse *parse, struct slice object, size_t number,
			      struct phase_spec *phase)
{
	enum { WAIT_NAME, WAIT_KIND, WAIT_EFFECT, MS, UNTIL, INPUT, COUNT };
	static const struct member members[COUNT] = {
		[WAIT_NAME] = { "name", MEMBER_STRING, true, 1, 64 },
		[WAIT_KIND] = { "kind", MEMBER_STRING, true, 0, 0 },
		[WAIT_EFFECT] = { "effect", MEMBER_STRING, false, 0, 0 },
		[MS] = { "ms", MEMBER_INTEGER, false, 0, TOOL_TIME_MS_MAX },
		[UNTIL] = { "until", MEMBER_ANY, false, 0, 0 },
		[INPUT] = { "input", MEMBER_OBJECT, false, 0, 0 },
	};
	struct slice values[COUNT];
	hf_try(members_read(parse, object, members, COUNT, values));
	const struct slice common[PHASE_MEMBERS] = { [PHASE_EFFECT] = values[WAIT_EFFECT] };
	hf_try(phase_common_read(parse, common, 1, phase));
	if ((values[MS].len > 0) + (values[UNTIL].len > 0) + (values[INPUT].len > 0) != 1)
		return tool_bad(parse, "a wait phase has either \"ms\" or \"until\" or \"input\"");
	phase->wait_ms = member_integer(values[MS], -1);
	phase->until = values[UNTIL];
	if (values[INPUT].len)
		hf_try(input_read(parse, values[INPUT], number, phase));
	if (phase->wait_ms > 0)
		phase->timeout_ms = phase->wait_ms; /* its share of the progress */
	size_t mark = parse->path.len;
	if (phase->until.len)
		hf_try(until_check(parse, phase->until, number));
	path_up(parse, mark);
	if (phase->wait_ms <= parse->tool->deadline_ms)
		return HF_OK;
	path_down_text(parse, phase->input.len ? "input" : "ms");
	return tool_bad(parse, "%" PRId64 " is over the tool's deadline_ms %" PRId64,
			phase->wait_ms, parse->tool->deadline_ms);
}

/* --- All -------------------------------------------------------------------------------------- */

static enum hf_code kind_read(struct tool_parse *parse, struct slice object,
			      struct phase_spec *phase)
{
	struct slice kind;
	if (!json_member(object, "kind", &kind))
		return tool_bad(parse, "member \"kind\" is missing");
	size_t mark = path_down_text(parse, "kind");
	for (int i = 0; i < PHASE_TYPES; i++) {
		if (json_string_is(kind, phase_type_name((enum phase_type)i))) {
			phase->type = (enum phase_type)i;
			path_up(parse, mark);
			return HF_OK;
		}
	}
	if (json_string_is(kind, "mcp"))
		return tool_bad(
		    parse, "phases of this kind can't run yet; sql, http, program and wait do");
	return tool_bad(parse, "must be \"sql\", \"http\", \"program\" or \"wait\"");
}

/* Names come first, so that a reference to a later phase is told from one to none. */
static enum hf_code names_read(struct tool_parse *parse, struct slice phases)
{
	struct tool *tool = parse->tool;
	struct slice phase, name;
	for (size_t at = 0, i = 0; json_array_next(phases, &at, &phase); i++) {
		size_t mark = path_down_index(parse, i);
		if (json_type_of(phase) != JSON_OBJECT)
			return tool_bad(parse, "must be an object, is %s",
					json_type_name(json_type_of(phase)));
		if (!json_member(phase, "name", &name))
			return tool_bad(parse, "member \"name\" is missing");
		path_down_text(parse, "name");
		tool->phases[i].name = member_text(name);
		if (!tool->phases[i].name)
			return tool_bad(parse, "must be a string, is %s",
					json_type_name(json_type_of(name)));
		if (!name_is_plain(tool->phases[i].name) || strlen(tool->phases[i].name) > 64)
			return tool_bad(parse, "must be 1 to 64 of A-Z a-z 0-9 _ . -");
		for (size_t other = 0; other < i; other++)
			if (strcmp(tool->phases[other].name, tool->phases[i].name) == 0)
				return tool_bad(parse, "\"%s\" stands twice", tool->phases[i].name);
		path_up(parse, mark);
	}
	return HF_OK;
}

static enum hf_code body_read(struct tool_parse *parse, struct slice object, size_t number,
			      struct phase_spec *phase)
{
	switch (phase->type) {
	case PHASE_SQL:
		return sql_read(parse, object, phase);
	case PHASE_HTTP:
		return phase_http_read(parse, object, number, phase);
	case PHASE_PROGRAM:
		return program_read(parse, object, phase);
	case PHASE_WAIT:
		return wait_read(parse, object, number, phase);
	case PHASE_TYPES:
		break;
	}
	hf_assert(false);
	return HF_INVALID;
}

/* An undo step is a phase without a name of its own, and sees the state of what it undoes. */
static enum hf_code undo_read(struct tool_parse *parse, struct slice object, size_t number,
			      struct phase_spec *phase)
{
	struct slice value;
	size_t mark = path_down_text(parse, "undo");
	static const char *const never[] = { "name", "undo", "verify" };
	for (size_t i = 0; i < countof(never); i++) {
		if (!json_member(object, never[i], &value))
			continue;
		path_down_text(parse, never[i]);
		return tool_bad(parse, "an undo step has none");
	}
	phase->undo = hf_alloc(sizeof *phase->undo);
	phase->undo->name = hf_format("undo:%s", phase->name);
	hf_try(kind_read(parse, object, phase->undo));
	if (phase->undo->type == PHASE_WAIT)
		return tool_bad(parse, "waiting undoes nothing");
	parse->own_state = true;
	hf_try(body_read(parse, object, number, phase->undo));
	parse->own_state = false;
	path_up(parse, mark);
	return HF_OK;
}

enum hf_code phases_read(struct tool_parse *parse, struct slice phases)
{
	struct tool *tool = parse->tool;
	size_t mark = path_down_text(parse, "phases"), count = array_count(phases);
	hf_assert(count > 0 && count <= TOOL_PHASES_MAX);
	tool->phases = hf_alloc(count * sizeof *tool->phases);
	tool->phases_count = count;
	hf_try(names_read(parse, phases));
	struct slice object, undo;
	for (size_t at = 0, i = 0; json_array_next(phases, &at, &object); i++) {
		size_t inner = path_down_index(parse, i);
		hf_try(kind_read(parse, object, &tool->phases[i]));
		hf_try(body_read(parse, object, i, &tool->phases[i]));
		if (json_member(object, "undo", &undo))
			hf_try(undo_read(parse, undo, i, &tool->phases[i]));
		path_up(parse, inner);
	}
	path_up(parse, mark);
	return HF_OK;
}
