/* test_tool_plain.c - what of tool.json the API itself acts on: tools without effect ID, what is
 * asked before a call is accepted, and what its client must declare. Good ones, and a table of
 * edits that each make one bad. */
#include "runtime/tool.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "test/runtime/tool_edit.h"
#include "test/test.h"

#define FORM(message)                                                                        \
	"{\"method\": \"elicitation/create\", \"params\": {\"message\": \"" message "\", "   \
	"\"requestedSchema\": {\"type\": \"object\", \"properties\": {\"name\": {\"type\": " \
	"\"string\"}}}}}"
#define WHO   FORM("Who?")
#define WHOM  FORM("{/args/who}?")
#define AGAIN FORM("{/input/first/content/name}?")

static const char plain[] =
    "{\"name\": \"greet\", \"description\": \"Greets.\", \"effect_id\": \"none\",\n"
    " \"inputSchema\": {\"type\": \"object\", \"properties\": {\"who\": {\"type\": \"string\"}}},\n"
    " \"requires\": {\"elicitation\": {\"form\": {}}, \"extensions\": {\"a/b\": {}}},\n"
    " \"ask\": [{\"first\": " WHOM "},\n  {\"second\": " AGAIN "}],\n"
    " \"ask_otherwise\": \"continue\",\n"
    " \"progress\": [{\"progress\": 0, \"total\": 2}, {\"progress\": 2, \"after_ms\": 50}],\n"
    " \"answer\": {\"content\":"
    " [{\"type\": \"text\", \"text\": \"Hello {/input/second/content/name}\"}],\n"
    "  \"structured\": {\"who\": {\"$from\": \"/args/who\"}}, \"isError\": true}}\n";

static const char phased[] =
    "{\"name\": \"work\", \"description\": \"Works.\", \"effect_id\": \"optional\",\n"
    " \"inputSchema\": {\"type\": \"object\"},\n \"ask\": [{\"first\": " WHO "}],\n"
    " \"phases\": [{\"name\": \"wait\", \"kind\": \"wait\","
    " \"until\": \"{/input/first/content/name}\"}],\n"
    " \"result\": {\"text\": \"For {/input/first/content/name}, {/task/id}.\"}}\n";

HF_TEST(tool_plain, good_ones_are_read_whole)
{
	struct tool *tool = read_tool(plain, nullptr);
	cr_expect_eq(tool->effect_id, EFFECT_ID_NONE);
	cr_expect_eq(tool->phases_count, 0);
	cr_expect_eq(tool->progress_count, 2);
	cr_expect_eq(tool->progress[0].total, 2);
	cr_expect_eq(tool->progress[1].after_ms, 50);
	cr_expect_eq(tool->progress[1].total, 0);
	cr_expect(tool->ask_go_on);
	cr_expect(tool->answer_is_error);
	cr_expect_eq(tool->ask.data[0], '[');
	cr_expect_eq(tool->needs.data[0], '{');
	cr_expect_eq(tool->answer_content.data[0], '[');
	cr_expect_eq(tool->result_structured.data[0], '{');
	tool_free(tool);

	tool = read_tool(phased, nullptr);
	cr_expect_eq(tool->effect_id, EFFECT_ID_OPTIONAL);
	cr_expect_not(tool->ask_go_on);
	cr_expect_eq(tool->needs.len, 0);
	cr_expect_eq(tool->phases_count, 1);
	tool_free(tool);
}

HF_TEST(tool_plain, a_bad_plain_tool_is_refused_by_pointer_and_reason)
{
	static const struct edit edits[] = {
		{ "\"none\"", "\"never\"", "/effect_id: must be \"required\", \"optional\" or" },
		{ "\"none\"", "\"optional\"", ": member \"phases\" is missing" },
		{ "\"answer\"", "\"result\": {\"text\": \"a\"}, \"answer\"",
		  "/result: a tool without effect ID has none" },
		{ "\"answer\"", "\"deadline_ms\": 1, \"answer\"",
		  "/deadline_ms: a tool without effect ID has none" },
		{ "\"answer\"", "\"answers\"", "/answers: unknown member" },
		{ "{\"form\": {}}", "{\"form\": true}",
		  "/requires/elicitation/form: must be an object" },
		{ "{/args/who}?", "{/args/whom}?", "/ask/0/first: /args/whom: inputSchema has no" },
		{ "{/args/who}?", "{/input/first/x}?",
		  "/ask/0/first: /input/first/x: no round of \"ask\" before this asks for "
		  "\"first\"" },
		{ "{/args/who}?", "{/input/second/x}?", "/ask/0/first: /input/second/x: no round" },
		{ "{/args/who}?", "{/task/id}?",
		  "/ask/0/first: \"/task/id\": here only /args and /input can be named" },
		{ "{/args/who}?", "{/conf/a}?", "/ask/0/first: \"/conf/a\": here only" },
		{ "{/args/who}?", "{/input}?", "/ask/0/first: /input: name a key" },
		{ "\"second\": {", "\"first\": {",
		  "/ask/1/first: an earlier round asks under this" },
		{ "\"second\": {", "\"sec/ond\": {", "/ask/1/sec~1ond: a key is 1 to 64 of" },
		{ "\"second\": {", "\"\\u0073econd\": {", "/ask/1/second: a key is 1 to 64 of" },
		{ "elicitation/create", "elicitation/ask", "/ask/0/first/method: must be elic" },
		{ "\"message\"", "\"massage\"", "/ask/0/first/params: \"message\" is missing" },
		{ "[{\"first\"", "[{}, {\"first\"", "/ask/0: has 1 to 16 keys" },
		{ "[{\"first\"", "[1, {\"first\"", "/ask/0: must be an object" },
		{ "\"continue\"", "\"maybe\"", "/ask_otherwise: must be \"refuse\" or" },
		{ "\"progress\": 2,", "\"progress\": 0,", "/progress/1: progress must rise" },
		{ "\"after_ms\": 50", "\"after_ms\": 10001", "/progress/1/after_ms: must be 0 to" },
		{ "\"type\": \"text\"", "\"type\": \"txt\"",
		  "/answer/content/0: must have type text" },
		{ "\"text\", \"text\"", "\"image\", \"text\"",
		  "/answer/content/0: a block of type image needs \"data\"" },
		{ "Hello {/input/second", "Hello {/input/third",
		  "/answer/content: /input/third/content/name: no round" },
		{ "\"/args/who\"", "\"/args/whom\"",
		  "/answer/structured: /args/whom: inputSchema" },
		{ "\"isError\": true", "\"isError\": 1", "/answer/isError: must be true or false" },
	};
	check_refused(plain, nullptr, edits, countof(edits));
}

HF_TEST(tool_plain, a_bad_question_of_a_tool_with_phases_is_refused)
{
	static const struct edit edits[] = {
		{ "\"optional\"", "\"none\"", "/phases: a tool without effect ID has none" },
		{ "\"phases\"", "\"answer\": {\"content\": []}, \"phases\"",
		  "/answer: a tool with effect ID has none" },
		{ "\"optional\"", "\"required\"", "/inputSchema: properties must declare" },
		{ "{\"type\": \"object\"},",
		  "{\"type\": \"object\", \"properties\": {\"effect_id\": {}}},",
		  "/inputSchema: properties must declare" },
		{ "\"until\": \"{/input/first", "\"until\": \"{/input/last",
		  "/phases/0/until: /input/last/content/name: no round" },
		{ "For {/input/first", "For {/input/last", "/result/text: /input/last" },
		{ "\"ask\"", "\"ask_otherwise\": \"refuse\", \"asks\"", "/asks: unknown member" },
	};
	check_refused(phased, nullptr, edits, countof(edits));
}
