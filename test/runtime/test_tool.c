/* One good manifest, and a table of edits that each make it bad in one way: what is said must name
 * the place and the reason. */
#include "runtime/tool.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "test/runtime/tool_edit.h"
#include "test/test.h"

static const char good[] =
    "{\"name\": \"report\", \"title\": \"A report\", \"description\": \"Builds it.\",\n"
    " \"effect_id\": \"required\",\n"
    " \"inputSchema\": {\"type\": \"object\", \"required\": [\"month\", \"effect_id\"],\n"
    "   \"additionalProperties\": false, \"properties\": {\n"
    "     \"month\": {\"type\": \"string\", \"pattern\": \"^[0-9]{4}-[0-9]{2}$\"},\n"
    "     \"place\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}},\n"
    "     \"effect_id\": {\"type\": \"string\", \"minLength\": 1}}},\n"
    " \"outputSchema\": {\"type\": \"object\", \"required\": [\"url\"],\n"
    "   \"properties\": {\"url\": {\"type\": \"string\"}}},\n"
    " \"annotations\": {\"idempotentHint\": true},\n"
    " \"tombstone_ttl_ms\": 90000000, \"on_disconnect\": \"park\", \"limits\": {\"running\": 4},\n"
    " \"data\": [{\"table\": \"weather\", \"file\": \"data.csv\"}],\n"
    " \"phases\": [\n"
    "  {\"name\": \"collect\", \"kind\": \"sql\", \"file\": \"collect.sql\"},\n"
    "  {\"name\": \"render\", \"kind\": \"program\", \"command\": [\"./render\", \"-q\"],\n"
    "   \"effect\": \"pure\", \"attempts\": 4, \"env\": [\"HOLDFAST_RIG\"]},\n"
    "  {\"name\": \"publish\", \"kind\": \"http\", \"effect\": \"keyed\",\n"
    "   \"key_header\": \"Idempotency-Key\", \"key_ttl_ms\": 86400000,\n"
    "   \"request\": {\"method\": \"PUT\", \"url\": \"{/conf/store}/r/{/key}.pdf\",\n"
    "    \"headers\": {\"X-Month\": \"m {/args/month}\"},\n"
    "    \"body_artifact\": {\"$from\": \"/state/render/pdf\"}}},\n"
    "  {\"name\": \"notify\", \"kind\": \"http\", \"effect\": \"lookup\",\n"
    "   \"visible_within_ms\": 5000, \"request\": {\"method\": \"POST\",\n"
    "    \"url\": \"https://{/conf/mail}/send\", \"json\": {\"ref\": {\"$from\": \"/key\"},\n"
    "     \"link\": {\"$from\": \"/state/publish/url\"}, \"by\": \"{/task/id}\"}},\n"
    "   \"reconcile\": {\"request\": {\"method\": \"GET\",\n"
    "     \"url\": \"{/conf/mail}/messages?ref={/key}\"},\n"
    "    \"done_when\": \"/items/0/id\", \"absent_when_empty\": \"/items\"}}],\n"
    " \"result\": {\"text\": \"The report of {/args/month} is at {/state/publish/url}.\",\n"
    "  \"structured\": {\"url\": {\"$from\": \"/state/publish/url\"}},\n"
    "  \"links\": [{\"$from\": \"/state/publish/url\"}]}}\n";

static const struct {
	const char *path, *content;
	bool executable;
} files[] = {
	{ "collect.sql", "SELECT $1; -- all of it\n", false },
	{ "two.sql", "SELECT 1;\nSELECT 2", false },
	{ "commit.sql", "COMMIT", false },
	{ "render", "\177ELF", true },
	{ "notes.txt", "no program", false },
	{ "data.csv", "a\n1\n", false },
};

static enum hf_code on_read(void *, const char *path, struct slice *content, bool *executable,
			    struct hf_err *err)
{
	for (size_t i = 0; i < countof(files); i++) {
		if (strcmp(files[i].path, path) != 0)
			continue;
		*content = slice_of(files[i].content);
		if (executable)
			*executable = files[i].executable;
		return HF_OK;
	}
	return hf_fail(err, HF_MISSING, "%s: none", path);
}
static const struct tool_files folder = { .read = on_read };

static struct tool *read_edited(const char *from, const char *to)
{
	char *doc = edited(good, from, to);
	struct tool *tool = read_tool(doc, &folder);
	free(doc);
	return tool;
}

HF_TEST(tool, what_is_no_json_is_told_by_line_and_column)
{
	static const struct {
		const char *doc, *expected;
	} cases[] = {
		{ "\"name\": 1}", "tool.json:1:7: the end of the text was due" },
		{ "", "tool.json:1:1: the text ends where a value was due" },
		{ "{\n\t\"name\": \"x\",\n}", "tool.json:3:1: a member name in quotes was due; the "
					      "comma before it is one too many" },
		{ "{\"a\":\n [1, 2 , ] }",
		  "tool.json:2:10: a value was due; the comma before it is one too many" },
		{ "{\"\u00e4\u20ac\": x}", "tool.json:1:8: a value was due" },
		{ "{\"a\": 1\r\n  \"b\": 2}",
		  "tool.json:2:3: a comma or the end of the object was due" },
		{ "{\"a\": 1, \"a\": 2}", "tool.json:1:10: a member of the same name once more" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		struct tool *tool = nullptr;
		struct hf_err err = {};
		cr_expect_eq(tool_new(slice_of(cases[i].doc), &folder, &tool, &err), HF_INVALID);
		cr_expect_str_eq(err.text, cases[i].expected);
		cr_expect_null(tool);
	}
}

HF_TEST(tool, an_effect_class_is_declared_or_not)
{
	struct tool *tool = read_edited("\"effect\": \"pure\",", "");
	cr_expect_eq(tool->phases[1].effect, EFFECT_UNSAFE);
	cr_expect(!tool->phases[1].effect_declared);
	cr_expect(tool->phases[2].effect_declared);
	tool_free(tool);
}

HF_TEST(tool, a_good_manifest_is_read_whole)
{
	struct tool *tool = read_tool(good, &folder);
	cr_expect_str_eq(tool->name, "report");
	cr_expect_str_eq(tool->title, "A report");
	cr_expect_eq(tool->effect_id, EFFECT_ID_REQUIRED);
	cr_expect_eq(tool->deadline_ms, 3'600'000);
	cr_expect_eq(tool->result_ttl_ms, 604'800'000);
	cr_expect_eq(tool->tombstone_ttl_ms, 90'000'000);
	cr_expect_eq(tool->poll_interval_ms, 1'000);
	cr_expect_eq(tool->crash_limit, 10);
	cr_expect_eq(tool->answer_window_ms, 25'000);
	cr_expect_eq(tool->park_ttl_ms, 86'400'000);
	cr_expect_eq(tool->on_disconnect, DISCONNECT_PARK);
	cr_expect_not_null(tool->input);
	cr_assert_eq(tool->phases_count, 4);
	cr_expect_str_eq(tool->data[0].table, "weather");

	const struct phase_spec *collect = tool_phase(tool, "collect");
	cr_expect_eq(collect->type, PHASE_SQL);
	cr_expect_eq(collect->effect, EFFECT_LOCAL);
	cr_expect_eq(collect->timeout_ms, 30'000);
	cr_expect_eq(collect->attempts, 5);
	cr_expect_eq(collect->backoff_first_ms, 500);
	cr_expect_eq(collect->backoff_max_ms, 60'000);
	cr_expect_str_eq(collect->sql, "SELECT $1; -- all of it\n");

	const struct phase_spec *render = tool_phase(tool, "render");
	cr_expect_eq(render->timeout_ms, 600'000);
	cr_expect_eq(render->attempts, 4);
	cr_expect_str_eq(render->command[1], "-q");
	cr_expect_null(render->command[2]);
	cr_expect_not(render->plain);
	cr_expect_str_eq(render->env[0], "HOLDFAST_RIG");
	cr_expect_null(render->env[1]);

	const struct phase_spec *publish = tool_phase(tool, "publish");
	cr_expect_eq(publish->effect, EFFECT_KEYED);
	cr_expect_str_eq(publish->key_header, "Idempotency-Key");
	cr_expect_eq(publish->key_ttl_ms, 86'400'000);
	cr_expect(slice_is(publish->request.url, "{/conf/store}/r/{/key}.pdf"));
	cr_expect(slice_is(publish->request.headers, "{\"X-Month\": \"m {/args/month}\"}"));
	cr_expect(slice_is(publish->request.body_artifact, "{\"$from\": \"/state/render/pdf\"}"));
	cr_expect_null(publish->reconcile.method);

	const struct phase_spec *notify = tool_phase(tool, "notify");
	cr_expect_eq(notify->visible_within_ms, 5'000);
	cr_expect_str_eq(notify->reconcile.method, "GET");
	cr_expect_str_eq(notify->done_when, "/items/0/id");
	cr_expect_str_eq(notify->absent_when_empty, "/items");
	cr_expect_eq(notify->key_ttl_ms, 0);

	cr_expect_null(tool_phase(tool, "other"));
	cr_expect(slice_is(tool->result_links, "[{\"$from\": \"/state/publish/url\"}]"));
	cr_expect_eq(tool->result_text.data[0], '"');
	tool_free(tool);
}

HF_TEST(tool, an_argument_that_a_call_may_lack_is_remarked)
{
	static const char *const cases[][2] = {
		{ "{/args/month} is at", "{/args/place} is at" },
		{ "{/args/month} is at", "{/args/place/city} is at" },
	};
	struct tool *tool = read_tool(good, &folder);
	cr_expect_eq(tool->remarks.len, 0, "%s", tool->remarks.data);
	tool_free(tool);
	for (size_t i = 0; i < countof(cases); i++) {
		char *doc = edited(good, cases[i][0], cases[i][1]);
		char *expected = hf_format("  /result/text takes /args/place%s, which no "
					   "\"required\" beside its \"properties\" names: a call "
					   "without it fails there\n",
					   i ? "/city" : "");
		tool = read_tool(doc, &folder);
		cr_expect_str_eq(tool->remarks.data, expected);
		tool_free(tool);
		free(expected);
		free(doc);
	}
}

HF_TEST(tool, slices_outlive_the_text_that_was_given)
{
	char *doc = hf_strdup(good);
	struct tool *tool = read_tool(doc, &folder);
	memset(doc, 'x', strlen(doc));
	free(doc);
	cr_expect_eq(tool->input_schema.data[0], '{');
	cr_expect_str_eq(tool->doc, good);
	tool_free(tool);
}

HF_TEST(tool, without_files_no_file_is_looked_at)
{
	char *doc = edited(good, "collect.sql", "not_there.sql");
	struct tool *tool = read_tool(doc, nullptr);
	cr_expect_null(tool->phases[0].sql);
	cr_expect_str_eq(tool->phases[0].file, "not_there.sql");
	tool_free(tool);
	free(doc);
}

HF_TEST(tool, what_may_be_left_out_or_spelt_otherwise_is_accepted)
{
	static const struct edit edits[] = {
		{ "\"title\": \"A report\", ", "", "" },
		{ "\"url\": \"https://{/conf/mail}/send\"",
		  "\"url\": \"http://127.0.0.1:8080/send?m={/args/month}\"", "" },
		{ "m {/args/month}", "m {/args/place/city} {{x}", "" },
		{ ", \"absent_when_empty\": \"/items\"", "", "" },
		{ "\"effect\": \"pure\", ", "\"effect\": \"keyed\", \"key_ttl_ms\": 1, ", "" },
		{ "\"file\": \"collect.sql\"", "\"file\": \"collect.sql\", \"effect\": \"pure\"",
		  "" },
		{ "\"effect_id\": \"required\",\n", "", "" },
		{ "\"park\"", "\"continue\"", "" },
		{ "\"./render\"", "\"/usr/bin/env\"", "" },
		{ "\"effect\": \"pure\", ", "", "" },
		{ "\"pure\"", "\"unsafe\"", "" },
		{ "\"attempts\": 4", "\"mode\": \"plain\"", "" },
		{ "\"attempts\": 4", "\"mode\": \"frames\"", "" },
		{ "\"kind\": \"sql\", \"file\": \"collect.sql\"", "\"kind\": \"wait\", \"ms\": 0",
		  "" },
		{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
		  "\"kind\": \"wait\", \"ms\": 3600000, \"effect\": \"local\"", "" },
		{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
		  "\"kind\": \"wait\", \"until\": \"2015-09-01T14:30:00+02:00\"", "" },
		{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
		  "\"kind\": \"wait\", \"until\": \"{/args/month}-01T00:00:00Z\"", "" },
		{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
		  "\"kind\": \"wait\", \"until\": {\"$from\": \"/args/month\"}", "" },
		{ "\"links\": [{\"$from\": \"/state/publish/url\"}]",
		  "\"links\": {\"$from\": \"/state/publish/links\"}", "" },
		{ "\"month\": {\"type\": \"string\",",
		  "\"month\": {\"type\": \"string\", \"x-mcp-header\": \"Month\",", "" },
	};
	for (size_t i = 0; i < countof(edits); i++)
		tool_free(read_edited(edits[i].from, edits[i].to));
}

HF_TEST(tool, plain_mode_and_waits_are_read)
{
	static const struct edit edits[] = {
		{ "\"attempts\": 4", "\"mode\": \"plain\"", "" },
		{ "\"kind\": \"sql\", \"file\": \"collect.sql\"", "\"kind\": \"wait\", \"ms\": 250",
		  "" },
		{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
		  "\"kind\": \"wait\", \"until\": {\"$from\": \"/args/month\"}", "" },
	};
	for (size_t i = 0; i < countof(edits); i++) {
		struct tool *tool = read_edited(edits[i].from, edits[i].to);
		const struct phase_spec *first = &tool->phases[0];
		cr_expect_eq(tool->phases[1].plain, i == 0);
		cr_expect_eq(first->type, i == 0 ? PHASE_SQL : PHASE_WAIT);
		cr_expect_eq(first->wait_ms, i == 0 ? 0 : i == 1 ? 250 : -1);
		cr_expect_eq(first->timeout_ms, i == 0 ? 30'000 : i == 1 ? 250 : 1);
		cr_expect_eq(first->effect, EFFECT_LOCAL);
		cr_expect(slice_is(first->until, i == 2 ? "{\"$from\": \"/args/month\"}" : ""));
		tool_free(tool);
	}
}

#define SQL_PHASE            "\"kind\": \"sql\", \"file\": \"collect.sql\""
#define ASKS(requests, more) "\"kind\": \"wait\", \"input\": {\"requests\": {" requests "}" more "}"
#define FORM(message)                                                               \
	"{\"method\": \"elicitation/create\", \"params\": {\"message\": \"" message \
	"\", \"requestedSchema\": {\"type\": \"object\", \"properties\": {}}}}"

HF_TEST(tool, what_a_wait_asks_is_read)
{
	struct tool *tool =
	    read_edited(SQL_PHASE,
			ASKS("\"a\": " FORM("{/args/month}?") ", \"b-1.x\": {\"method\": "
							      "\"roots/list\"}",
			     ", \"timeout_ms\": 70, \"otherwise\": \"continue\""));
	const struct phase_spec *first = &tool->phases[0];
	cr_expect_eq(first->wait_ms, 70);
	cr_expect(first->input_go_on);
	cr_expect_eq(first->input.data[0], '{');
	cr_expect_eq(first->until.len, 0);
	tool_free(tool);

	tool = read_edited(SQL_PHASE, ASKS("\"a\": " FORM("?"), ""));
	cr_expect_eq(tool->phases[0].wait_ms, 0);
	cr_expect_not(tool->phases[0].input_go_on);
	tool_free(tool);
}

/* In the phase `publish`. */
#define UNDO(members) \
	"\"undo\": {\"kind\": \"http\", \"effect\": \"keyed\", \"key_header\": \"K\", " members "}"
#define UNDO_REQUEST \
	"\"request\": {\"method\": \"DELETE\", \"url\": \"{/conf/store}/r/{/state/publish/url}\"}"
#define VERIFY(members)                                             \
	"\"verify\": {\"request\": {\"method\": \"GET\", \"url\": " \
	"\"{/conf/store}/r/{/state/publish/id}\"}, \"done_when\": \"/seen\"" members "}"

HF_TEST(tool, undo_steps_and_verification_are_read)
{
	struct tool *tool = read_edited(
	    "\"key_ttl_ms\": 86400000,",
	    "\"key_ttl_ms\": 86400000, " UNDO("\"key_ttl_ms\": 9, " UNDO_REQUEST) ", " VERIFY(
		", \"within_ms\": 60000, \"otherwise\": \"continue\"") ",");
	const struct phase_spec *publish = tool_phase(tool, "publish");
	cr_assert_not_null(publish->undo);
	cr_expect_str_eq(publish->undo->name, "undo:publish");
	cr_expect_eq(publish->undo->effect, EFFECT_KEYED);
	cr_expect_eq(publish->undo->key_ttl_ms, 9);
	cr_expect_str_eq(publish->undo->request.method, "DELETE");
	cr_expect_str_eq(publish->verify.request.method, "GET");
	cr_expect_str_eq(publish->verify.done_when, "/seen");
	cr_expect_eq(publish->verify.within_ms, 60'000);
	cr_expect_eq(publish->verify.every_ms, 1'000);
	cr_expect(publish->verify.go_on);
	cr_expect_null(tool_phase(tool, "render")->undo);
	cr_expect_null(tool_phase(tool, "notify")->verify.request.method);
	tool_free(tool);
}

#define IN_PUBLISH    "\"key_ttl_ms\": 86400000,"
#define WITH(members) IN_PUBLISH " " members ","

HF_TEST(tool, a_bad_undo_or_verification_is_refused_by_pointer_and_reason)
{
	static const struct edit edits[] = {
		{ IN_PUBLISH, WITH("\"undo\": 7"), "/phases/2/undo: must be an object" },
		{ IN_PUBLISH, WITH("\"undo\": {}"), "/phases/2/undo: member \"kind\" is missing" },
		{ IN_PUBLISH, WITH("\"undo\": {\"name\": \"n\", \"kind\": \"sql\"}"),
		  "/phases/2/undo/name: an undo step has none" },
		{ IN_PUBLISH, WITH("\"undo\": {\"undo\": {}, \"kind\": \"sql\"}"),
		  "/phases/2/undo/undo: an undo step has none" },
		{ IN_PUBLISH, WITH("\"undo\": {\"kind\": \"wait\", \"ms\": 1}"),
		  "/phases/2/undo: waiting undoes nothing" },
		{ IN_PUBLISH, WITH(UNDO(UNDO_REQUEST)), "/phases/2/undo/key_ttl_ms: is missing" },
		{ IN_PUBLISH, WITH("\"undo\": {\"kind\": \"sql\", \"file\": \"none.sql\"}"),
		  "/phases/2/undo/file: file none.sql is not in" },
		{ IN_PUBLISH,
		  WITH("\"undo\": {\"kind\": \"http\", \"request\": {\"method\": \"GET\", \"url\": "
		       "\"http://a/{/state/notify/id}\"}}"),
		  "/phases/2/undo/request/url: /state/notify/id: phase \"notify\" is not before" },
		{ IN_PUBLISH, WITH(UNDO("\"key_ttl_ms\": 90000001, " UNDO_REQUEST)),
		  "/tombstone_ttl_ms: 90000000 is less than key_ttl_ms 90000001 of phase "
		  "\"undo:p" },
		{ IN_PUBLISH, WITH(VERIFY("")),
		  "/phases/2/verify: member \"within_ms\" is missing" },
		{ IN_PUBLISH, WITH(VERIFY(", \"within_ms\": 0")),
		  "/phases/2/verify/within_ms: must be" },
		{ IN_PUBLISH, WITH(VERIFY(", \"within_ms\": 1, \"otherwise\": \"no\"")),
		  "/phases/2/verify/otherwise: must be \"unknown\" or \"continue\"" },
		{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
		  "\"kind\": \"wait\", \"ms\": 1, \"undo\": {}", "/phases/0/undo: unknown member" },
	};
	check_refused(good, &folder, edits, countof(edits));
}

HF_TEST(tool, a_bad_top_level_is_refused_by_pointer_and_reason)
{
	static const struct edit edits[] = {
		{ "\"name\": \"report\"", "\"nane\": \"report\"", "/nane: unknown member" },
		{ "\"name\": \"report\", ", "", ": member \"name\" is missing" },
		{ "\"report\"", "7", "/name: must be a string, is number" },
		{ "\"report\"", "\"\"", "/name: must have 1 to 64 bytes, has 0" },
		{ "\"report\"", "\"re port\"", "/name: must be of A-Z" },
		{ "\"report\"", "\"Report\"", "/name: of a tool with SQL must be 1 to 49" },
		{ "\"report\"", "\"a_name_that_is_too_long_for_a_role_of_postgres_by_1\"",
		  "/name: of a tool with SQL must be 1 to 49" },
		{ "\"Builds it.\"", "null", "/description: must be a string, is null" },
		{ "\"required\",\n", "\"none\",\n", "/phases: a tool without effect ID has none" },
		{ "\"required\",\n", "\"some\",\n", "/effect_id: must be \"required\"" },
		{ "\"required\",\n", "\"optional\",\n",
		  "/inputSchema: \"required\" names \"effect_id\"" },
		{ "\"idempotentHint\": true", "\"idempotentHint\": 1",
		  "/annotations/idempotentHint: must be true or false" },
		{ "\"idempotentHint\"", "\"sureHint\"", "/annotations/sureHint: unknown member" },
		{ "90000000", "86399999",
		  "/tombstone_ttl_ms: 86399999 is less than key_ttl_ms 86400000 of phase" },
		{ "90000000", "1.5", "/tombstone_ttl_ms: must be an integer" },
		{ "90000000", "-1", "/tombstone_ttl_ms: must be 0 to " },
		{ "\"park\"", "\"stop\"", "/on_disconnect: must be \"park\" or \"continue\"" },
		{ "\"park\"", "\"park\", \"answer_window_ms\": 99",
		  "/answer_window_ms: must be 100 to 3600000" },
		{ "\"park\"", "\"park\", \"answer_window_ms\": \"5\"",
		  "/answer_window_ms: must be an integer" },
		{ "\"park\"", "\"park\", \"park_ttl_ms\": 0", "/park_ttl_ms: must be 1 to " },
		{ "\"name\": \"report\"", "\"name\": \"task_status\"",
		  "/name: \"task_status\" is the name of a tool that every server has" },
		{ "{\"running\": 4}", "{\"running\": 0}", "/limits/running: must be 1 to" },
		{ "{\"running\": 4}", "{\"jogging\": 4}", "/limits/jogging: unknown member" },
		{ "\"weather\"", "\"Weather\"", "/data/0/table: must be of a-z 0-9 _" },
		{ "\"weather\"", "\"w; drop\"", "/data/0/table: must be of a-z 0-9 _" },
		{ "\"data.csv\"", "\"none.csv\"", "/data/0/file: file none.csv is not in" },
		{ "\"data.csv\"", "\"../data.csv\"",
		  "/data/0/file: \"../data.csv\" is not a path" },
		{ "\"data.csv\"", "\"/etc/passwd\"",
		  "/data/0/file: \"/etc/passwd\" is not a path" },
	};
	check_refused(good, &folder, edits, countof(edits));
}

HF_TEST(tool, a_bad_schema_is_refused_by_pointer_and_reason)
{
	static const struct edit edits[] = {
		{ "\"inputSchema\": {\"type\": \"object\"",
		  "\"inputSchema\": {\"type\": \"string\"", "/inputSchema" },
		{ "\"pattern\":", "\"format\":", "/inputSchema/properties/month/format" },
		{ "\"^[0-9]{4}-[0-9]{2}$\"", "\"(\"", "/inputSchema/properties/month/pattern" },
		{ "[\"month\", \"effect_id\"]", "[\"month\"]",
		  "/inputSchema: \"required\" must name \"effect_id\"" },
		{ "\"effect_id\": {\"type\": \"string\", \"minLength\": 1}",
		  "\"effect\": {\"type\": \"string\"}",
		  "/inputSchema: properties must declare \"effect_id\"" },
		{ "\"effect_id\": {\"type\": \"string\"", "\"effect_id\": {\"type\": \"integer\"",
		  "/inputSchema: properties must declare \"effect_id\"" },
		{ "\"month\": {\"type\": \"string\",",
		  "\"month\": {\"type\": \"string\", \"x-mcp-header\": \"a b\",",
		  "/inputSchema/properties/month/x-mcp-header" },
		{ "\"city\": {\"type\": \"string\"}",
		  "\"city\": {\"type\": \"number\", \"x-mcp-header\": \"City\"}",
		  "/inputSchema/properties/place/properties/city/x-mcp-header" },
		{ "\"month\": {\"type\": \"string\",",
		  "\"a\": {\"type\": \"string\", \"x-mcp-header\": \"M\"}, \"month\": {\"type\": "
		  "\"string\", \"x-mcp-header\": \"m\",",
		  "/inputSchema/properties/month/x-mcp-header: \"m\" stands twice" },
		{ "\"additionalProperties\": false, \"properties\"",
		  "\"additionalProperties\": {\"type\": \"string\", \"x-mcp-header\": \"M\"}, "
		  "\"properties\"",
		  "/inputSchema: x-mcp-header goes with properties that are reached by" },
		{ "\"inputSchema\": {", "\"inputSchema\": {\"x-mcp-header\": \"M\", ",
		  "/inputSchema: x-mcp-header goes with properties that are reached by" },
		{ "\"effect_id\": \"required\",",
		  "\"effect_id\": \"required\", \"effect_id_fallback\": \"toolUseId\",",
		  "/effect_id_fallback: must be a member of _meta with a prefix" },
		{ "\"effect_id\": \"required\",",
		  "\"effect_id\": \"required\", \"effect_id_fallback\": "
		  "\"io.modelcontextprotocol/clientInfo\",",
		  "/effect_id_fallback: must be a member of _meta with a prefix" },
		{ "\"effect_id\": \"required\",",
		  "\"effect_id\": \"required\", \"intent_window_ms\": 99,", "/intent_window_ms" },
		{ "\"effect_id\": \"required\",",
		  "\"effect_id\": \"required\", \"intent_window_ms\": 86400001,",
		  "/intent_window_ms" },
		{ "\"outputSchema\": {\"type\": \"object\"",
		  "\"outputSchema\": {\"type\": \"array\"", "/outputSchema" },
		{ "\"required\": [\"url\"]", "\"required\": [\"url\", \"pages\"]",
		  "/outputSchema: requires \"pages\"" },
		{ "  \"structured\": {\"url\": {\"$from\": \"/state/publish/url\"}},\n", "",
		  "/outputSchema: needs result.structured" },
	};
	check_refused(good, &folder, edits, countof(edits));
}

HF_TEST(tool, a_bad_question_is_refused_by_pointer_and_reason)
{
	static const struct edit edits[] = {
		{ SQL_PHASE, ASKS("", ""), "/phases/0/input/requests: has 1 to 16 keys" },
		{ SQL_PHASE, "\"kind\": \"wait\", \"input\": {}",
		  "/phases/0/input: member \"requests\" is missing" },
		{ SQL_PHASE, ASKS("\"a\": " FORM("?"), "") ", \"ms\": 1",
		  "/phases/0: a wait phase has either" },
		{ SQL_PHASE, ASKS("\"a\": " FORM("?"), ", \"otherwise\": \"go\""),
		  "/phases/0/input/otherwise: must be \"fail\" or \"continue\"" },
		{ SQL_PHASE, ASKS("\"a\": " FORM("?"), ", \"timeout_ms\": 0"),
		  "/phases/0/input/timeout_ms: must be" },
		{ SQL_PHASE, ASKS("\"a\": " FORM("?"), ", \"timeout_ms\": 3600001"),
		  "/phases/0/input: 3600001 is over the tool's deadline_ms" },
		{ SQL_PHASE, ASKS("\"a b\": " FORM("?"), ""),
		  "/phases/0/input/requests/a b: a key is 1 to 61" },
		{ SQL_PHASE, ASKS("\"a.2\": " FORM("?"), ""),
		  "/phases/0/input/requests/a.2: a key is 1 to 61" },
		{ SQL_PHASE, ASKS("\"\\u0061\": " FORM("?"), ""),
		  "/phases/0/input/requests/a: a key is 1 to 61" },
		{ SQL_PHASE, ASKS("\"\": " FORM("?"), ""),
		  "/phases/0/input/requests/: a key is 1 to 61" },
		{ SQL_PHASE, ASKS("\"a\": {\"method\": \"tools/list\"}", ""),
		  "/phases/0/input/requests/a/method: must be elicitation/create" },
		{ SQL_PHASE, ASKS("\"a\": 7", ""),
		  "/phases/0/input/requests/a: must be an object" },
		{ SQL_PHASE, ASKS("\"a\": " FORM("{/args/year}"), ""),
		  "/phases/0/input/requests/a: /args/year: inputSchema has no property" },
		{ SQL_PHASE,
		  ASKS("\"a\": " FORM("?"), "") "}, {\"name\": \"more\", " ASKS("\"a\": " FORM("?"),
										""),
		  "/phases/1/input/requests/a: an earlier phase asks under this key" },
	};
	check_refused(good, &folder, edits, countof(edits));
}

static const struct edit bad_phases[] = {
	{ "\"name\": \"render\"", "\"name\": \"collect\"",
	  "/phases/1/name: \"collect\" stands twice" },
	{ "\"name\": \"render\"", "\"name\": \"a/b\"", "/phases/1/name: must be 1 to 64" },
	{ "\"name\": \"render\", ", "", "/phases/1: member \"name\" is missing" },
	{ "\"kind\": \"sql\"", "\"kind\": \"wait\"", "/phases/0/file: unknown member" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"", "\"kind\": \"wait\"",
	  "/phases/0: a wait phase has either \"ms\" or \"until\"" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
	  "\"kind\": \"wait\", \"ms\": 1, \"until\": \"2015-09-01T12:30:00Z\"",
	  "/phases/0: a wait phase has either \"ms\" or \"until\"" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"", "\"kind\": \"wait\", \"ms\": -1",
	  "/phases/0/ms: must be 0 to" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"", "\"kind\": \"wait\", \"ms\": 3600001",
	  "/phases/0/ms: 3600001 is over the tool's deadline_ms 3600000" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
	  "\"kind\": \"wait\", \"until\": \"tomorrow\"", "/phases/0/until: is no RFC 3339 time" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"", "\"kind\": \"wait\", \"until\": 7",
	  "/phases/0/until: must be an RFC 3339 time" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
	  "\"kind\": \"wait\", \"until\": {\"$from\": \"/args/year\"}",
	  "/phases/0/until: /args/year: inputSchema has no property" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
	  "\"kind\": \"wait\", \"until\": {\"$from\": \"/state/render/at\"}",
	  "/phases/0/until: /state/render/at: phase \"render\" is not before this one" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
	  "\"kind\": \"wait\", \"ms\": 1, \"effect\": \"pure\"",
	  "/phases/0/effect: a phase of kind wait is local" },
	{ "\"kind\": \"sql\", \"file\": \"collect.sql\"",
	  "\"kind\": \"wait\", \"ms\": 1, \"attempts\": 2", "/phases/0/attempts: unknown member" },
	{ "\"attempts\": 4", "\"mode\": \"simple\"",
	  "/phases/1/mode: must be \"frames\" or \"plain\"" },
	{ "\"kind\": \"sql\"", "\"kind\": \"mcp\"",
	  "/phases/0/kind: phases of this kind can't run yet" },
	{ "\"kind\": \"sql\"", "\"kind\": \"exec\"", "/phases/0/kind: must be \"sql\"" },
	{ "\"kind\": \"sql\"", "\"kind\": \"http\"", "/phases/0/file: unknown member" },
	{ "\"file\": \"collect.sql\"", "\"file\": \"collect.sql\", \"effect\": \"keyed\"",
	  "/phases/0/effect: a phase of kind sql is local or pure" },
	{ "\"collect.sql\"", "\"none.sql\"", "/phases/0/file: file none.sql is not in" },
	{ "\"collect.sql\"", "\"two.sql\"", "/phases/0/file: two.sql line 2: a second" },
	{ "\"collect.sql\"", "\"commit.sql\"", "/phases/0/file: commit.sql line 1: a st" },
	{ "\"pure\"", "\"local\"", "/phases/1/effect: a phase of kind program is pure, ke" },
	{ "\"pure\"", "\"lookup\"",
	  "/phases/1/effect: a phase of kind program is pure, keyed or unsafe" },
	{ "\"pure\"", "\"clean\"", "/phases/1/effect: no such effect class" },
	{ "\"pure\"", "\"keyed\"", "/phases/1/key_ttl_ms: is missing" },
	{ "\"attempts\": 4", "\"attempts\": 0", "/phases/1/attempts: must be 1 to 1000" },
	{ "\"attempts\": 4", "\"timeout_ms\": \"1 s\"",
	  "/phases/1/timeout_ms: must be an integer, is string" },
	{ "\"attempts\": 4", "\"backoff_first_ms\": 60001",
	  "/phases/1/backoff_first_ms: backoff_first_ms (60001) is over" },
	{ "[\"./render\", \"-q\"]", "[]", "/phases/1/command: must have 1 to 64 elements" },
	{ "[\"./render\", \"-q\"]", "[\"./render\", 1]", "/phases/1/command/1: must be a string" },
	{ "\"./render\"", "\"./none\"", "/phases/1/command/0: file none is not in" },
	{ "\"./render\"", "\"./notes.txt\"", "/phases/1/command/0: ./notes.txt is not executable" },
	{ "\"./render\"", "\"bin/render\"", "/phases/1/command/0: a program of the tool's" },
	{ "\"./render\"", "\"./../render\"", "/phases/1/command/0: \"../render\" is not" },
	{ "\"HOLDFAST_RIG\"", "\"A=B\"", "/phases/1/env/0: must be the name of an env" },
	{ "\"HOLDFAST_RIG\"", "\"HOLDFAST_WORKER_DSN\"",
	  "/phases/1/env/0: a tool gets no connection string" },
};

HF_TEST(tool, a_bad_phase_is_refused_by_pointer_and_reason)
{
	check_refused(good, &folder, bad_phases, countof(bad_phases));
}

HF_TEST(tool, a_bad_request_is_refused_by_pointer_and_reason)
{
	static const struct edit edits[] = {
		{ "\"key_header\": \"Idempotency-Key\",", "",
		  "/phases/2/key_header: is missing: effect keyed needs it" },
		{ " \"key_ttl_ms\": 86400000,", "", "/phases/2/key_ttl_ms: is missing" },
		{ "\"Idempotency-Key\"", "\"Content-Length\"",
		  "/phases/2/key_header: \"Content-L" },
		{ "\"Idempotency-Key\"", "\"X-MONTH\"",
		  "/phases/2/request/headers/X-Month: is the key_header" },
		{ "\"visible_within_ms\": 5000, ", "", "/phases/3/visible_within_ms: is missing" },
		{ "\"visible_within_ms\": 5000", "\"key_ttl_ms\": 5000",
		  "/phases/3/key_ttl_ms: belongs to effect keyed" },
		{ "\"done_when\": \"/items/0/id\", ", "",
		  "/phases/3/reconcile: member \"done_when\" is missing" },
		{ "\"/items/0/id\"", "\"items\"", "/phases/3/reconcile/done_when: must be a JSON" },
		{ "\"/items/0/id\"", "\"/~2\"",
		  "/phases/3/reconcile/done_when: in a JSON pointer" },
		{ "\"GET\"", "\"DELETE\"",
		  "/phases/3/reconcile/request/method: \"DELETE\" is none" },
		{ "\"PUT\"", "\"put\"", "/phases/2/request/method: \"put\" is none" },
		{ "\"PUT\"", "\"GET\"", "/phases/2/request/body_artifact: GET has no body" },
		{ "{\"$from\": \"/state/render/pdf\"}}}", "\"report\", \"json\": {}}}",
		  "/phases/2/request/json: stands beside" },
		{ "\"body_artifact\": {\"$from\": \"/state/render/pdf\"}", "\"body_artifact\": 7",
		  "/phases/2/request/body_artifact: must be a string or" },
		{ "\"X-Month\"", "\"X Month\"", "/phases/2/request/headers/X Month: is no header" },
		{ "\"X-Month\"", "\"Host\"", "/phases/2/request/headers/Host: is set by the" },
		{ "\"X-Month\"", "\"x\": \"1\", \"X\"",
		  "/phases/2/request/headers/X: stands twice" },
		{ "\"m {/args/month}\"", "[]", "/phases/2/request/headers/X-Month: must be a str" },
		{ "{/conf/store}/r", "/r", "/phases/2/request/url: must begin with http://" },
		{ "{/conf/store}/r", "ftp://h/r",
		  "/phases/2/request/url: must begin with http://" },
		{ "{/conf/store}/r", "http:///r", "/phases/2/request/url: has no host" },
		{ "{/conf/store}/r", "http://h r", "/phases/2/request/url: holds a space" },
		{ "{/conf/store}/r", "http://a@b/r", "/phases/2/request/url: no user" },
		{ "{/conf/store}/r", "http://{/args/month}/r",
		  "/phases/2/request/url: the host may only come from /conf" },
		{ "{/conf/store}/r", "{/conf/store}{/args/month}/r",
		  "/phases/2/request/url: the host may only come from /conf" },
		{ "{/conf/store}/r", "{/conf/store}/r#x", "/phases/2/request/url: a fragment" },
		{ "{/key}.pdf", "{/key.pdf", "/phases/2/request/url: " },
	};
	check_refused(good, &folder, edits, countof(edits));
}

HF_TEST(tool, a_reference_that_leads_nowhere_is_refused)
{
	static const struct edit edits[] = {
		{ "m {/args/month}", "{/args/year}",
		  "/phases/2/request/headers/X-Month: /args/year: inputSchema has no property" },
		{ "m {/args/month}", "{/args/place/town}",
		  "/phases/2/request/headers/X-Month: /args/place/town: inputSchema has no" },
		{ "m {/args/month}", "{/args/effect_id}",
		  "/phases/2/request/headers/X-Month: /args/effect_id: name it as /task" },
		{ "m {/args/month}", "{/state/publish/x}",
		  "/phases/2/request/headers/X-Month: /state/publish/x: phase \"publish\" is not" },
		{ "m {/args/month}", "{/state/notify}",
		  "/phases/2/request/headers/X-Month: /state/notify: phase \"notify\" is not" },
		{ "m {/args/month}", "{/state/rendr/x}",
		  "/phases/2/request/headers/X-Month: /state/rendr/x: there is no phase" },
		{ "m {/args/month}", "{/state}",
		  "/phases/2/request/headers/X-Month: /state: name a phase" },
		{ "m {/args/month}", "{/conf}",
		  "/phases/2/request/headers/X-Month: /conf: name a setting" },
		{ "m {/args/month}", "{/key/x}",
		  "/phases/2/request/headers/X-Month: /key/x: /key is a string" },
		{ "m {/args/month}", "{/task/owner}",
		  "/phases/2/request/headers/X-Month: /task/owner: /task has id" },
		{ "m {/args/month}", "{/env/HOME}",
		  "/phases/2/request/headers/X-Month: \"/env/HOME\" begins with none" },
		{ "{\"$from\": \"/state/publish/url\"}, \"by\"",
		  "{\"$from\": \"/nowhere\"}, \"by\"",
		  "/phases/3/request/json: \"/nowhere\" begins with none" },
		{ "?ref={/key}", "?ref={/state/notify/id}",
		  "/phases/3/reconcile/request/url: /state/notify/id: phase \"notify\" is not" },
		{ "is at {/state/publish/url}", "is at {/key}",
		  "/result/text: /key: a phase has a key, the result has none" },
		{ "is at {/state/publish/url}", "is at {/state/later/url}",
		  "/result/text: /state/later/url: there is no phase" },
		{ "\"structured\": {\"url\": {\"$from\": \"/state/publish/url\"}}",
		  "\"structured\": {\"url\": {\"$from\": \"/args/x\"}}",
		  "/result/structured: /args/x: inputSchema has no property" },
		{ "\"links\": [{\"$from\": \"/state/publish/url\"}]", "\"links\": [1]",
		  "/result/links/0: must be a string or" },
		{ "\"links\": [{\"$from\": \"/state/publish/url\"}]", "\"links\": \"x\"",
		  "/result/links: must be an array or" },
		{ "\"result\": {\"text\"", "\"result\": {\"test\"",
		  "/result/test: unknown member" },
	};
	check_refused(good, &folder, edits, countof(edits));
}
