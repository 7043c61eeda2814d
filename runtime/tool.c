/* tool.c - tool.json's top level. Everything is checked here once, for `tools check`, `tools
 * apply`, the API and the worker alike, so that a tool that exists is a tool that can run. */
#include "runtime/tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/sql_text.h"
#include "runtime/tool_parse.h"

constexpr size_t TOOL_DOC_BYTES_MAX = 1 << 20;
constexpr size_t TOOL_SQL_NAME_MAX = 63 - sizeof "holdfast_tool_" + 1; /* Postgres cuts at 63 */
constexpr int64_t DEADLINE_MS = 3'600'000;
constexpr int64_t RESULT_TTL_MS = 604'800'000;
constexpr int64_t TOMBSTONE_TTL_MS = 7'776'000'000;
constexpr int64_t POLL_INTERVAL_MS = 1'000, POLL_INTERVAL_MS_MIN = 10;
constexpr int64_t POLL_INTERVAL_MS_MAX = 3'600'000;
constexpr int64_t ANSWER_WINDOW_MS = 25'000; /* clients and proxies give up at 60 s */
constexpr int64_t ANSWER_WINDOW_MS_MIN = 100, ANSWER_WINDOW_MS_MAX = 3'600'000;
constexpr int64_t INTENT_WINDOW_MS_MIN = 100, INTENT_WINDOW_MS_MAX = 86'400'000;
constexpr int64_t PARK_TTL_MS = 86'400'000;
constexpr int64_t CRASH_LIMIT = 10, CRASH_LIMIT_MAX = 1'000;
constexpr int64_t LIMIT_MAX = 1'000'000;
constexpr int64_t DATA_FILES_MAX = 64;
constexpr int64_t LINKS_MAX = 64;

enum {
	NAME,
	TITLE,
	DESCRIPTION,
	EFFECT_ID,
	FALLBACK,
	INTENT_WINDOW,
	INPUT_SCHEMA,
	OUTPUT_SCHEMA,
	ANNOTATIONS,
	DEADLINE,
	RESULT_TTL,
	TOMBSTONE_TTL,
	POLL_INTERVAL,
	ANSWER_WINDOW,
	PARK_TTL,
	CRASHES,
	ON_DISCONNECT,
	LIMITS,
	PHASES,
	RESULT,
	DATA,
	REQUIRES,
	ASK,
	ASK_OTHERWISE,
	ANSWER,
	PROGRESS,
	TOP_COUNT,
};
static const struct member top_members[TOP_COUNT] = {
	[NAME] = { "name", MEMBER_STRING, true, 1, 64 },
	[TITLE] = { "title", MEMBER_STRING, false, 1, 200 },
	[DESCRIPTION] = { "description", MEMBER_STRING, true, 1, 4'096 },
	[EFFECT_ID] = { "effect_id", MEMBER_STRING, false, 0, 0 },
	[FALLBACK] = { "effect_id_fallback", MEMBER_STRING, false, 1, 200 },
	[INTENT_WINDOW] = { "intent_window_ms", MEMBER_INTEGER, false, INTENT_WINDOW_MS_MIN,
			    INTENT_WINDOW_MS_MAX },
	[INPUT_SCHEMA] = { "inputSchema", MEMBER_OBJECT, true, 0, 0 },
	[OUTPUT_SCHEMA] = { "outputSchema", MEMBER_OBJECT, false, 0, 0 },
	[ANNOTATIONS] = { "annotations", MEMBER_OBJECT, false, 0, 0 },
	[DEADLINE] = { "deadline_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX },
	[RESULT_TTL] = { "result_ttl_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX },
	[TOMBSTONE_TTL] = { "tombstone_ttl_ms", MEMBER_INTEGER, false, 0, TOOL_TIME_MS_MAX },
	[POLL_INTERVAL] = { "poll_interval_ms", MEMBER_INTEGER, false, POLL_INTERVAL_MS_MIN,
			    POLL_INTERVAL_MS_MAX },
	[ANSWER_WINDOW] = { "answer_window_ms", MEMBER_INTEGER, false, ANSWER_WINDOW_MS_MIN,
			    ANSWER_WINDOW_MS_MAX },
	[PARK_TTL] = { "park_ttl_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX },
	[CRASHES] = { "crash_limit", MEMBER_INTEGER, false, 1, CRASH_LIMIT_MAX },
	[ON_DISCONNECT] = { "on_disconnect", MEMBER_STRING, false, 0, 0 },
	[LIMITS] = { "limits", MEMBER_OBJECT, false, 0, 0 },
	[PHASES] = { "phases", MEMBER_ARRAY, false, 1, TOOL_PHASES_MAX },
	[RESULT] = { "result", MEMBER_OBJECT, false, 0, 0 },
	[DATA] = { "data", MEMBER_ARRAY, false, 0, DATA_FILES_MAX },
	[REQUIRES] = { "requires", MEMBER_OBJECT, false, 0, 0 },
	[ASK] = { "ask", MEMBER_ARRAY, false, 0, 0 },
	[ASK_OTHERWISE] = { "ask_otherwise", MEMBER_STRING, false, 0, 0 },
	[ANSWER] = { "answer", MEMBER_OBJECT, false, 0, 0 },
	[PROGRESS] = { "progress", MEMBER_ARRAY, false, 0, 0 },
};

const char *effect_class_name(enum effect_class effect)
{
	static const char *const names[] = { "local", "pure", "keyed", "lookup", "unsafe" };
	hf_assert((size_t)effect < countof(names));
	return names[effect];
}

const char *phase_type_name(enum phase_type type)
{
	static const char *const names[] = {
#define PHASE(id, name, ...) [PHASE_##id] = #name,
#include "runtime/phases.def"
#undef PHASE
	};
	hf_assert((size_t)type < countof(names));
	return names[type];
}

/* A key of _meta that a client sets: with a prefix, so that it means what its owner says, and none
 * of the protocol's own. */
static enum hf_code fallback_check(struct tool_parse *parse)
{
	const char *key = parse->tool->effect_id_fallback;
	if (!key)
		return HF_OK;
	const char *slash = strchr(key, '/');
	size_t mark = path_down_text(parse, "effect_id_fallback");
	if (!slash || slash == key || !slash[1] ||
	    strncmp(key, "io.modelcontextprotocol/", slash + 1 - key) == 0)
		return tool_bad(parse, "must be a member of _meta with a prefix, as in "
				       "\"claudecode/toolUseId\"");
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code limits_read(struct tool_parse *parse, struct slice limits)
{
	enum { RUNNING, PER_TENANT, BACKLOG, COUNT };
	static const struct member members[COUNT] = {
		[RUNNING] = { "running", MEMBER_INTEGER, false, 1, LIMIT_MAX },
		[PER_TENANT] = { "running_per_tenant", MEMBER_INTEGER, false, 1, LIMIT_MAX },
		[BACKLOG] = { "backlog", MEMBER_INTEGER, false, 1, LIMIT_MAX },
	};
	struct slice values[COUNT];
	size_t mark = path_down_text(parse, "limits");
	hf_try(members_read(parse, limits, members, COUNT, values));
	parse->tool->limits = (struct tool_limits){
		.running = (int)member_integer(values[RUNNING], 0),
		.running_per_tenant = (int)member_integer(values[PER_TENANT], 0),
		.backlog = (int)member_integer(values[BACKLOG], 0),
	};
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code links_check(struct tool_parse *parse, struct slice links)
{
	size_t mark = path_down_text(parse, "links");
	struct slice element, from;
	bool whole = json_member(links, "$from", &from);
	if (!whole && json_type_of(links) != JSON_ARRAY)
		return tool_bad(parse, "must be an array or {\"$from\": …}");
	if (!whole && array_count(links) > LINKS_MAX)
		return tool_bad(parse, "has over %" PRId64 " elements", LINKS_MAX);
	for (size_t at = 0, i = 0; !whole && json_array_next(links, &at, &element); i++) {
		size_t inner = path_down_index(parse, i);
		if (json_type_of(element) != JSON_STRING && !json_member(element, "$from", &from))
			return tool_bad(parse, "must be a string or {\"$from\": …}");
		path_up(parse, inner);
	}
	hf_try(references_check(parse, links, parse->tool->phases_count));
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code result_read(struct tool_parse *parse, struct slice object)
{
	enum { TEXT, STRUCTURED, LINKS, COUNT };
	static const struct member members[COUNT] = {
		[TEXT] = { "text", MEMBER_STRING, true, 1, 65'536 },
		[STRUCTURED] = { "structured", MEMBER_OBJECT, false, 0, 0 },
		[LINKS] = { "links", MEMBER_ANY, false, 0, 0 },
	};
	struct tool *tool = parse->tool;
	struct slice values[COUNT];
	size_t mark = path_down_text(parse, "result");
	hf_try(members_read(parse, object, members, COUNT, values));
	tool->result_text = values[TEXT];
	tool->result_structured = values[STRUCTURED];
	tool->result_links = values[LINKS];
	size_t inner = path_down_text(parse, "text");
	hf_try(references_check(parse, values[TEXT], tool->phases_count));
	path_up(parse, inner);
	if (values[STRUCTURED].len) {
		path_down_text(parse, "structured");
		hf_try(references_check(parse, values[STRUCTURED], tool->phases_count));
		path_up(parse, inner);
	}
	if (values[LINKS].len)
		hf_try(links_check(parse, values[LINKS]));
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code data_read(struct tool_parse *parse, struct slice array)
{
	enum { TABLE, FILE_NAME, COUNT };
	static const struct member members[COUNT] = {
		[TABLE] = { "table", MEMBER_STRING, true, 1, 63 },
		[FILE_NAME] = { "file", MEMBER_STRING, true, 1, 255 },
	};
	struct tool *tool = parse->tool;
	tool->data_count = array_count(array);
	tool->data = hf_alloc(tool->data_count * sizeof *tool->data);
	size_t mark = path_down_text(parse, "data");
	struct slice element, values[COUNT], content;
	for (size_t at = 0, i = 0; json_array_next(array, &at, &element); i++) {
		struct data_spec *data = &tool->data[i];
		size_t inner = path_down_index(parse, i);
		hf_try(members_read(parse, element, members, COUNT, values));
		data->table = member_text(values[TABLE]);
		data->file = member_text(values[FILE_NAME]);
		size_t deepest = path_down_text(parse, "table");
		if (!name_is_sql(data->table))
			return tool_bad(parse, "must be of a-z 0-9 _, and begin with no digit");
		for (size_t other = 0; other < i; other++)
			if (strcmp(tool->data[other].table, data->table) == 0)
				return tool_bad(parse, "\"%s\" stands twice", data->table);
		path_up(parse, deepest);
		path_down_text(parse, "file");
		bool executable;
		hf_try(file_read(parse, data->file, &content, &executable));
		path_up(parse, inner);
	}
	path_up(parse, mark);
	return HF_OK;
}

static enum hf_code schema_file_check(struct tool_parse *parse, bool *found)
{
	*found = false;
	struct slice content = {};
	struct hf_err inner = {};
	if (!parse->files)
		return HF_OK;
	enum hf_code code =
	    parse->files->read(parse->files->ctx, "schema.sql", &content, nullptr, &inner);
	if (code == HF_MISSING)
		return HF_OK;
	if (code == HF_OK)
		code = sql_check_script(content, &inner);
	*found = true;
	parse->failed = code != HF_OK;
	return code == HF_OK ? HF_OK
			     : hf_fail(parse->err, HF_INVALID, "schema.sql: %s", inner.text);
}

static enum hf_code name_check(struct tool_parse *parse)
{
	const struct tool *tool = parse->tool;
	bool has_sql;
	hf_try(schema_file_check(parse, &has_sql));
	has_sql = has_sql || tool->data_count > 0;
	for (size_t i = 0; i < tool->phases_count; i++)
		for (const struct phase_spec *spec = &tool->phases[i]; spec; spec = spec->undo)
			has_sql = has_sql || spec->type == PHASE_SQL;
	size_t mark = path_down_text(parse, "name");
	if (!name_is_plain(tool->name))
		return tool_bad(parse, "must be of A-Z a-z 0-9 _ . -");
	if (tool_name_reserved(slice_of(tool->name)))
		return tool_bad(parse, "\"%s\" is the name of a tool that every server has",
				tool->name);
	/* It names a role and a schema. */
	if (has_sql && (!name_is_sql(tool->name) || strlen(tool->name) > TOOL_SQL_NAME_MAX))
		return tool_bad(parse,
				"of a tool with SQL must be 1 to %zu of a-z 0-9 _, and begin with "
				"no digit",
				TOOL_SQL_NAME_MAX);
	path_up(parse, mark);
	return HF_OK;
}

/* A late repeat must not be accepted as new while a downstream still knows the old key. */
static enum hf_code tombstone_check(struct tool_parse *parse)
{
	const struct tool *tool = parse->tool;
	hf_assert(tool->phases);
	const struct phase_spec *longest = &tool->phases[0];
	for (size_t i = 0; i < tool->phases_count; i++)
		for (const struct phase_spec *spec = &tool->phases[i]; spec; spec = spec->undo)
			if (spec->key_ttl_ms > longest->key_ttl_ms)
				longest = spec;
	if (longest->key_ttl_ms <= tool->tombstone_ttl_ms)
		return HF_OK;
	path_down_text(parse, "tombstone_ttl_ms");
	return tool_bad(parse, "%" PRId64 " is less than key_ttl_ms %" PRId64 " of phase \"%s\"",
			tool->tombstone_ttl_ms, longest->key_ttl_ms, longest->name);
}

/* A tool is answered by the API itself, or has phases: members of the other kind have no use. */
static enum hf_code kind_check(struct tool_parse *parse, const struct slice *values)
{
	static const struct {
		int member;
		bool plain, needed;
	} rules[] = {
		{ PHASES, false, true },         { RESULT, false, true },
		{ ANSWER, true, true },          { PROGRESS, true, false },
		{ DATA, false, false },          { DEADLINE, false, false },
		{ RESULT_TTL, false, false },    { TOMBSTONE_TTL, false, false },
		{ POLL_INTERVAL, false, false }, { ANSWER_WINDOW, false, false },
		{ PARK_TTL, false, false },      { CRASHES, false, false },
		{ ON_DISCONNECT, false, false }, { LIMITS, false, false },
		{ FALLBACK, false, false },      { INTENT_WINDOW, false, false },
	};
	bool plain = parse->tool->effect_id == EFFECT_ID_NONE;
	for (size_t i = 0; i < countof(rules); i++) {
		const char *name = top_members[rules[i].member].name;
		bool there = values[rules[i].member].len > 0;
		if (rules[i].plain == plain && rules[i].needed && !there)
			return tool_bad(parse, "member \"%s\" is missing", name);
		if (rules[i].plain == plain || !there)
			continue;
		path_down_text(parse, name);
		return tool_bad(parse, "a tool %s effect ID has none", plain ? "without" : "with");
	}
	return HF_OK;
}

static enum hf_code plain_read(struct tool_parse *parse, const struct slice *values)
{
	parse->before = true;
	hf_try(answer_read(parse, values[ANSWER]));
	if (values[PROGRESS].len)
		hf_try(progress_read(parse, values[PROGRESS]));
	hf_try(name_check(parse));
	return output_schema_check(parse);
}

static enum hf_code asked_first_read(struct tool_parse *parse, const struct slice *values)
{
	struct tool *tool = parse->tool;
	if (values[REQUIRES].len)
		hf_try(requires_read(parse, values[REQUIRES]));
	parse->before = true;
	hf_try(ask_read(parse, values[ASK], values[ASK_OTHERWISE], &tool->ask_go_on));
	parse->before = false;
	tool->ask = values[ASK];
	return HF_OK;
}

static enum hf_code doc_read(struct tool_parse *parse, struct slice doc)
{
	struct tool *tool = parse->tool;
	struct slice values[TOP_COUNT];
	hf_try(members_read(parse, doc, top_members, TOP_COUNT, values));
	tool->name = member_text(values[NAME]);
	tool->title = member_text(values[TITLE]);
	tool->description = member_text(values[DESCRIPTION]);
	size_t mark = parse->path.len;
	static const char *const rules[] = { "required", "optional", "none" };
	int word;
	hf_try(member_word(parse, "effect_id", values[EFFECT_ID], rules, countof(rules), &word));
	tool->effect_id = (enum effect_id_rule)word;
	path_up(parse, mark);
	tool->effect_id_fallback = member_text(values[FALLBACK]);
	tool->intent_window_ms = member_integer(values[INTENT_WINDOW], 0);
	hf_try(fallback_check(parse));
	hf_try(kind_check(parse, values));
	tool->input_schema = values[INPUT_SCHEMA];
	tool->output_schema = values[OUTPUT_SCHEMA];
	tool->annotations = values[ANNOTATIONS];
	hf_try(input_schema_check(parse));
	if (values[ANNOTATIONS].len)
		hf_try(annotations_check(parse, values[ANNOTATIONS]));
	tool->deadline_ms = member_integer(values[DEADLINE], DEADLINE_MS);
	tool->result_ttl_ms = member_integer(values[RESULT_TTL], RESULT_TTL_MS);
	tool->tombstone_ttl_ms = member_integer(values[TOMBSTONE_TTL], TOMBSTONE_TTL_MS);
	tool->poll_interval_ms = member_integer(values[POLL_INTERVAL], POLL_INTERVAL_MS);
	tool->crash_limit = (int)member_integer(values[CRASHES], CRASH_LIMIT);
	tool->answer_window_ms = member_integer(values[ANSWER_WINDOW], ANSWER_WINDOW_MS);
	tool->park_ttl_ms = member_integer(values[PARK_TTL], PARK_TTL_MS);
	static const char *const ends[] = { "park", "continue" };
	hf_try(
	    member_word(parse, "on_disconnect", values[ON_DISCONNECT], ends, countof(ends), &word));
	tool->on_disconnect = (enum disconnect)word;
	if (values[LIMITS].len)
		hf_try(limits_read(parse, values[LIMITS]));
	hf_try(asked_first_read(parse, values));
	if (tool->effect_id == EFFECT_ID_NONE)
		return plain_read(parse, values);
	hf_try(phases_read(parse, values[PHASES]));
	if (values[DATA].len)
		hf_try(data_read(parse, values[DATA]));
	hf_try(name_check(parse));
	hf_try(tombstone_check(parse));
	hf_try(result_read(parse, values[RESULT]));
	return output_schema_check(parse);
}

enum hf_code tool_new(struct slice doc, const struct tool_files *files, struct tool **out,
		      struct hf_err *err)
{
	hf_assert(out);
	struct hf_err inner = {};
	if (doc.len > TOOL_DOC_BYTES_MAX)
		return hf_fail(err, HF_INVALID, "tool.json#: is over %zu bytes",
			       TOOL_DOC_BYTES_MAX);
	if (json_scan_written(doc, &inner) != HF_OK)
		return hf_fail(err, HF_INVALID, "tool.json:%s", inner.text);
	hf_cleanup(tool) struct tool *tool = hf_alloc(sizeof *tool);
	tool->doc = hf_strndup(doc.data, doc.len);
	struct tool_parse parse = { .files = files, .tool = tool, .err = &inner };
	buf_add_text(&parse.path, "");
	enum hf_code code = doc_read(&parse, json_trim((struct slice){ tool->doc, doc.len }));
	buf_deinit(&parse.path);
	if (code != HF_OK) {
		if (err)
			*err = inner;
		return code;
	}
	*out = tool;
	tool = nullptr;
	return HF_OK;
}

struct tool *tool_free(struct tool *tool)
{
	if (!tool)
		return nullptr;
	for (size_t i = 0; i < tool->phases_count; i++)
		phase_deinit(&tool->phases[i]);
	for (size_t i = 0; i < tool->data_count; i++) {
		free(tool->data[i].table);
		free(tool->data[i].file);
	}
	free(tool->phases);
	free(tool->progress);
	free(tool->data);
	schema_free(tool->input);
	free(tool->name);
	free(tool->title);
	free(tool->description);
	free(tool->effect_id_fallback);
	free(tool->doc);
	buf_deinit(&tool->remarks);
	free(tool);
	return nullptr;
}

bool tool_name_reserved(struct slice name)
{
	static const char *const names[] = { "task_status", "task_result", "task_cancel" };
	for (size_t i = 0; i < countof(names); i++)
		if (slice_is(name, names[i]))
			return true;
	return false;
}

const struct phase_spec *tool_phase(const struct tool *tool, const char *name)
{
	hf_assert(tool);
	hf_assert(name);
	for (size_t i = 0; i < tool->phases_count; i++)
		if (strcmp(tool->phases[i].name, name) == 0)
			return &tool->phases[i];
	return nullptr;
}
