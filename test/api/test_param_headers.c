/* Arguments that stand in headers too, with the vectors of A4 and A5. */
#include "api/param_headers.h"

#include "runtime/base.h"
#include "test/api/call_of.h"
#include "test/test.h"

static constexpr char SCHEMA[] = "{\"type\":\"object\",\"properties\":{"
				 "\"region\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"},"
				 "\"where\":{\"type\":\"object\",\"properties\":{"
				 "\"n\":{\"type\":\"integer\",\"x-mcp-header\":\"N\"},"
				 "\"in\":{\"type\":\"object\",\"properties\":{"
				 "\"deep\":{\"type\":\"string\",\"x-mcp-header\":\"Deep\"}}},"
				 "\"on\":{\"type\":\"boolean\",\"x-mcp-header\":\"On\"}}},"
				 "\"x-mcp-header\":{\"type\":\"string\"}}}";

static const struct {
	const char *arguments, *headers, *fault; /* nullptr: none */
} table[] = {
	{ "", "", nullptr },
	{ "{}", "", nullptr },
	{ "{\"region\":null}", "", nullptr },
	{ "{\"region\":\"eu\"}", "mcp-param-region: eu\n", nullptr },
	{ "{\"region\":\"eu\"}", "", "Region is missing" },
	{ "{\"region\":\"eu\"}", "Mcp-Param-Region: EU\n", "Region differs" },
	{ "{\"region\":\"eu\"}", "Mcp-Param-Region: eu\nMcp-Param-Region: eu\n",
	  "Region stands twice" },
	{ "{}", "Mcp-Param-Region: eu\n", "Region has no argument" },
	{ "{\"region\":null}", "Mcp-Param-Region: null\n", "Region has no argument" },
	{ "{\"where\":null}", "Mcp-Param-N: 1\n", "N has no argument" },
	{ "{\"where\":3}", "Mcp-Param-N: 3\n", "N has no argument" },
	/* nested chains */
	{ "{\"where\":{\"in\":{\"deep\":\"d\"}}}", "Mcp-Param-Deep: d\n", nullptr },
	{ "{\"where\":{\"in\":{\"deep\":\"d\"}}}", "Mcp-Param-Deep: e\n", "Deep differs" },
	{ "{\"where\":{\"in\":{\"deep\":\"d\"}}}", "", "Deep is missing" },
	{ "{\"in\":{\"deep\":\"d\"}}", "", nullptr },
	/* numbers by value, booleans by word */
	{ "{\"where\":{\"n\":42,\"on\":true}}", "Mcp-Param-N: 42.0\nMcp-Param-On: true\n",
	  nullptr },
	{ "{\"where\":{\"n\":42.0}}", "Mcp-Param-N: 42\n", nullptr },
	{ "{\"where\":{\"n\":4.2e1}}", "Mcp-Param-N: 42\n", nullptr },
	{ "{\"where\":{\"n\":-0}}", "Mcp-Param-N: 0\n", nullptr },
	{ "{\"where\":{\"n\":9007199254740991}}", "Mcp-Param-N: 9007199254740991\n", nullptr },
	{ "{\"where\":{\"n\":9007199254740993}}", "Mcp-Param-N: 9007199254740992\n", "N differs" },
	{ "{\"where\":{\"n\":42}}", "Mcp-Param-N: 4.2e1\n", "N differs" },
	{ "{\"where\":{\"n\":42}}", "Mcp-Param-N: 43\n", "N differs" },
	{ "{\"where\":{\"n\":42}}", "Mcp-Param-N: 042\n", "N differs" },
	{ "{\"where\":{\"n\":42}}", "Mcp-Param-N: +42\n", "N differs" },
	{ "{\"where\":{\"n\":42}}", "Mcp-Param-N: 42.\n", "N differs" },
	{ "{\"where\":{\"n\":42}}", "Mcp-Param-N: =?base64?NDI=?=\n", nullptr },
	{ "{\"where\":{\"on\":false}}", "Mcp-Param-On: true\n", "On differs" },
	{ "{\"where\":{\"on\":true}}", "Mcp-Param-On: True\n", "On differs" },
	/* the sentinel */
	{ "{\"region\":\"\xc3\xa9\"}", "Mcp-Param-Region: =?base64?w6k=?=\n", nullptr },
	{ "{\"region\":\"Hello, \xe4\xb8\x96\xe7\x95\x8c\"}",
	  "Mcp-Param-Region: =?base64?SGVsbG8sIOS4lueVjA==?=\n", nullptr },
	{ "{\"region\":\" padded \"}", "Mcp-Param-Region: =?base64?IHBhZGRlZCA=?=\n", nullptr },
	{ "{\"region\":\"line1\\nline2\"}", "Mcp-Param-Region: =?base64?bGluZTEKbGluZTI=?=\n",
	  nullptr },
	{ "{\"region\":\"=?base64?literal?=\"}",
	  "Mcp-Param-Region: =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=\n", nullptr },
	{ "{\"region\":\"=?base64?abc\"}", "Mcp-Param-Region: =?base64?abc\n", nullptr },
	{ "{\"region\":\"abc?=\"}", "Mcp-Param-Region: abc?=\n", nullptr },
	{ "{\"region\":\"Hello\"}", "Mcp-Param-Region: =?base64?SGVsbG8?=\n",
	  "Region cannot be decoded" },
	{ "{\"region\":\"Hello\"}", "Mcp-Param-Region: =?base64?SGVs!!!bG8=?=\n",
	  "Region cannot be decoded" },
	{ "{\"region\":\"Hello\"}", "Mcp-Param-Region: =?base64?SGVsbG9=?=\n",
	  "Region cannot be decoded" },
	{ "{\"region\":\"\xef\xbf\xbd\"}", "Mcp-Param-Region: =?base64?/w==?=\n",
	  "Region differs" },
	{ "{\"region\":\"\xc3\xa9\"}", "Mcp-Param-Region: \xc3\xa9\n", "Region cannot be decoded" },
	/* nobody's business */
	{ "{\"where\":{}}", "Mcp-Param-Other: x\nMcp-Param-Other: y\nMcp-Param: \n", nullptr },
	{ "{\"x-mcp-header\":\"a\"}", "", nullptr },
	/* no header form: left to the schema */
	{ "{\"region\":[1]}", "Mcp-Param-Region: x\n", nullptr },
};

HF_TEST(param_headers, a_marked_argument_says_the_same_in_its_header)
{
	struct param_headers *headers = param_headers_new(slice_of(SCHEMA));
	cr_assert(headers);
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(call_of) struct call_of made = {};
		struct call *call = call_of_init(&made, table[i].headers, "");
		const char *fault =
		    param_headers_fault(headers, call, slice_of(table[i].arguments), call->arena);
		cr_assert_eq(!fault, !table[i].fault, "row %zu, %s: %s", i, table[i].arguments,
			     fault ? fault : "no fault");
		cr_assert(!fault || strstr(fault, table[i].fault), "row %zu: %s", i, fault);
	}
	param_headers_free(headers);
}

HF_TEST(param_headers, a_schema_without_marks_has_none)
{
	cr_assert_eq(param_headers_new(slice_of("{\"type\":\"object\"}")), nullptr);
	cr_assert_eq(param_headers_new(slice_of("{\"type\":\"object\",\"properties\":{"
						"\"x-mcp-header\":{\"type\":\"string\"}}}")),
		     nullptr);
	hf_cleanup(call_of) struct call_of made = {};
	struct call *call = call_of_init(&made, "Mcp-Param-A: x\n", "");
	cr_assert_eq(param_headers_fault(nullptr, call, slice_of("{}"), nullptr), nullptr);
}
