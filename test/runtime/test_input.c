/* What a caller can be asked, and what counts as an answer. */
#include "runtime/input.h"

#include <string.h>
#include <time.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "test/test.h"

#define FORM(properties, more)                                              \
	"{\"method\":\"elicitation/create\",\"params\":{\"message\":\"m\"," \
	"\"requestedSchema\":{\"type\":\"object\",\"properties\":{" properties "}" more "}}}"

static struct slice scanned(const char *text)
{
	cr_assert_eq(json_scan(slice_of(text), nullptr), HF_OK, "%s", text);
	return slice_of(text);
}

HF_TEST(input, declared_kinds_are_read_from_the_capabilities)
{
	static const struct {
		const char *text;
		int declared;
	} cases[] = {
		{ "{}", 0 },
		{ "{\"elicitation\":{}}", INPUT_FORM },
		{ "{\"elicitation\":{\"form\":{}}}", INPUT_FORM },
		{ "{\"elicitation\":{\"url\":{}}}", INPUT_URL },
		{ "{\"elicitation\":{\"form\":{},\"url\":{}}}", INPUT_FORM | INPUT_URL },
		{ "{\"elicitation\":null,\"sampling\":true,\"roots\":[]}", 0 },
		{ "{\"sampling\":{},\"roots\":{}}", INPUT_SAMPLING | INPUT_ROOTS },
	};
	for (size_t i = 0; i < countof(cases); i++)
		cr_expect_eq(input_declared(scanned(cases[i].text)), cases[i].declared, "%s",
			     cases[i].text);
	cr_expect_eq(input_declared((struct slice){}), 0);
}

HF_TEST(input, requests_are_checked_by_kind)
{
	static const struct {
		const char *text;
		int kind;            /* 0: refused */
		const char *refused; /* how the text begins */
	} cases[] = {
		{ FORM("\"ok\":{\"type\":\"boolean\"}", ""), INPUT_FORM, "" },
		{ "{\"method\":\"elicitation/"
		  "create\",\"params\":{\"mode\":\"url\",\"message\":\"m\","
		  "\"url\":\"https://h/\"}}",
		  INPUT_URL, "" },
		{ "{\"method\":\"sampling/createMessage\",\"params\":{\"messages\":[],"
		  "\"maxTokens\":10}}",
		  INPUT_SAMPLING, "" },
		{ "{\"method\":\"roots/list\"}", INPUT_ROOTS, "" },
		{ "{\"method\":\"roots/list\",\"params\":7}", 0, "/params: must be an object" },
		{ "{\"method\":\"tools/call\"}", 0, "/method: must be elicitation/create" },
		{ "{\"params\":{}}", 0, ": must be an object with \"method\"" },
		{ "[]", 0, ": must be an object with" },
		{ "{\"method\":\"roots/list\",\"id\":1}", 0, "/\"id\": unknown member" },
		{ "{\"method\":\"elicitation/create\",\"params\":{\"message\":\"m\"}}", 0,
		  "/params: \"requestedSchema\" is missing" },
		{ "{\"method\":\"elicitation/create\",\"params\":{\"mode\":\"form\","
		  "\"message\":1}}",
		  0, "/params/message: must be string" },
		{ "{\"method\":\"elicitation/create\",\"params\":{\"mode\":\"page\"}}", 0,
		  "/params/mode: must be form or url" },
		{ "{\"method\":\"elicitation/"
		  "create\",\"params\":{\"mode\":\"url\",\"message\":\"m\"}}",
		  0, "/params: \"url\" is missing" },
		{ FORM("\"a\":{\"type\":\"object\"}", ""), 0,
		  "/params/requestedSchema/properties/\"a\": must have type" },
		{ FORM("\"a\":{\"type\":\"array\"}", ""), 0,
		  "/params/requestedSchema/properties/\"a\": a list of choices" },
		{ "{\"method\":\"sampling/createMessage\",\"params\":{\"messages\":[]}}", 0,
		  "/params: \"maxTokens\" is missing" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		struct hf_err err = {};
		int kind = 0;
		enum hf_code code = input_request_check(scanned(cases[i].text), &kind, &err);
		cr_expect_eq(code, cases[i].kind ? HF_OK : HF_INVALID, "%s: %s", cases[i].text,
			     err.text);
		if (code == HF_OK)
			cr_expect_eq(kind, cases[i].kind, "%s", cases[i].text);
		else
			cr_expect_eq(strncmp(err.text, cases[i].refused, strlen(cases[i].refused)),
				     0, "%s: %s", cases[i].text, err.text);
	}
}

#define ACCEPT(content) "{\"action\":\"accept\",\"content\":{" content "}}"

HF_TEST(input, an_answer_fits_the_form_that_was_sent)
{
	static const char request[] =
	    FORM("\"name\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":3},"
		 "\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":5},"
		 "\"x\":{\"type\":\"number\"},\"ok\":{\"type\":\"boolean\"},"
		 "\"size\":{\"type\":\"string\",\"enum\":[\"s\",\"l\"]},"
		 "\"shade\":{\"type\":\"string\",\"oneOf\":[{\"const\":\"red\",\"title\":\"R\"}]},"
		 "\"tags\":{\"type\":\"array\",\"maxItems\":2,"
		 "\"items\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"]}}",
		 ",\"required\":[\"name\"]");
	static const struct {
		const char *answer, *refused;
	} cases[] = {
		{ "{\"action\":\"decline\"}", nullptr },
		{ "{\"action\":\"cancel\",\"content\":{}}", nullptr },
		{ ACCEPT("\"name\":\"ab\""), nullptr },
		{ ACCEPT("\"name\":\"\\u00e4\\u00f6\\u00fc\",\"n\":5.0,\"x\":-1e3,\"ok\":false,"
			 "\"size\":\"l\",\"shade\":\"red\",\"tags\":[\"a\",\"b\"]"),
		  nullptr },
		{ "{\"action\":\"yes\"}", "/action: must be" },
		{ "{}", "/action: must be" },
		{ "[]", ": must be an object" },
		{ "{\"action\":\"accept\"}", "/content: must be an object" },
		{ ACCEPT(""), "/content: \"name\" is missing" },
		{ ACCEPT("\"name\":\"a\""), "/content/name: does not fit" },
		{ ACCEPT("\"name\":\"abcd\""), "/content/name: does not fit" },
		{ ACCEPT("\"name\":7"), "/content/name: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"other\":1"), "/content/other: was not asked for" },
		{ ACCEPT("\"name\":\"ab\",\"n\":1.5"), "/content/n: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"n\":0"), "/content/n: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"n\":6"), "/content/n: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"n\":\"1\""), "/content/n: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"ok\":\"true\""), "/content/ok: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"size\":\"m\""), "/content/size: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"shade\":\"R\""), "/content/shade: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"tags\":[\"c\"]"), "/content/tags: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"tags\":[\"a\",\"a\",\"b\"]"),
		  "/content/tags: does not fit" },
		{ ACCEPT("\"name\":\"ab\",\"tags\":\"a\""), "/content/tags: does not fit" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		struct hf_err err = {};
		enum hf_code code =
		    input_answer_check(scanned(request), scanned(cases[i].answer), &err);
		cr_expect_eq(code, cases[i].refused ? HF_INVALID : HF_OK, "%s: %s", cases[i].answer,
			     err.text);
		if (cases[i].refused)
			cr_expect_eq(strncmp(err.text, cases[i].refused, strlen(cases[i].refused)),
				     0, "%s: %s", cases[i].answer, err.text);
	}
}

static double cpu_s(void)
{
	struct timespec at;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* As many elements as an answer holds, each of which would have to be compared to each choice; the
 * worker's loop does nothing else meanwhile. */
HF_TEST(input, a_hostile_list_costs_no_time)
{
	static const char *const bounds[] = { "", "\"maxItems\":100000,", "\"minItems\":1," };
	hf_cleanup(buf) struct buf answer = {};
	buf_add_text(&answer, "{\"action\":\"accept\",\"content\":{\"tags\":[\"c499\"");
	while (answer.len < INPUT_ANSWER_BYTES_MAX - 16)
		buf_add_text(&answer, ",\"c499\"");
	buf_add_text(&answer, "]}}");
	for (size_t i = 0; i < countof(bounds); i++) {
		hf_cleanup(buf) struct buf request = {};
		struct hf_err err = {};
		buf_add_format(&request,
			       "{\"method\":\"elicitation/create\",\"params\":{\"message\":\"m\","
			       "\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"tags\":{"
			       "\"type\":\"array\",%s\"items\":{\"enum\":[\"a\"",
			       bounds[i]);
		for (int n = 1; n < 500; n++)
			buf_add_format(&request, ",\"c%d\"", n);
		buf_add_text(&request, "]}}}}}}");
		double start_s = cpu_s();
		cr_expect_eq(input_answer_check(scanned(request.data), scanned(answer.data), &err),
			     HF_INVALID);
		cr_expect_str_eq(err.text, "/content/tags: does not fit the form");
		cr_expect_lt(cpu_s() - start_s, 0.5, "%.2f s", cpu_s() - start_s);
	}
}

HF_TEST(input, choices_are_compared_as_they_are_meant)
{
	static const char request[] =
	    FORM("\"s\":{\"type\":\"string\",\"enum\":[1,\"\\u00e4\"]},"
		 "\"n\":{\"type\":\"number\",\"enum\":[10,\"11\"]},"
		 "\"l\":{\"type\":\"array\",\"enum\":[[\"a\", \"b\"]],\"items\":{}},"
		 "\"t\":{\"type\":\"array\",\"items\":{\"anyOf\":[{\"const\":\"\\u00e4\"}]}}",
		 "");
	static const struct {
		const char *answer;
		bool fits;
	} cases[] = {
		{ ACCEPT("\"s\":\"\xc3\xa4\""), true },
		{ ACCEPT("\"s\":\"\\u00E4\""), true },
		{ ACCEPT("\"s\":\"1\""), false },
		{ ACCEPT("\"n\":1e1"), true },
		{ ACCEPT("\"n\":11"), false },
		{ ACCEPT("\"l\":[\"a\",\"\\u0062\"]"), true },
		{ ACCEPT("\"l\":[\"b\",\"a\"]"), false },
		{ ACCEPT("\"t\":[\"\xc3\xa4\"]"), true },
		{ ACCEPT("\"t\":[]"), true },
		{ ACCEPT("\"t\":[\"\xc3\xa4\",\"\xc3\xa4\"]"), false }, /* over the choices */
		{ ACCEPT("\"t\":[7]"), false },
	};
	for (size_t i = 0; i < countof(cases); i++)
		cr_expect_eq(input_answer_check(scanned(request), scanned(cases[i].answer),
						nullptr),
			     cases[i].fits ? HF_OK : HF_INVALID, "%s", cases[i].answer);
}

HF_TEST(input, keys_leave_room_for_their_numbers)
{
	static const char *const good[] = { "a", "a.b", "2", ".2x", "a2", "x.2.y", "-", "a.", "." };
	static const char *const bad[] = { "", "a.2", ".2", "a.b.33", "a b", "\xc3\xbc", "a/b" };
	char longest[INPUT_KEY_LEN_MAX];
	for (size_t i = 0; i < countof(good); i++)
		cr_expect(input_key_free(slice_of(good[i])), "%s", good[i]);
	for (size_t i = 0; i < countof(bad); i++)
		cr_expect_not(input_key_free(slice_of(bad[i])), "%s", bad[i]);
	memset(longest, 'a', sizeof longest);
	cr_expect(input_key_free((struct slice){ longest, INPUT_KEY_LEN_MAX - 3 }));
	cr_expect_not(input_key_free((struct slice){ longest, INPUT_KEY_LEN_MAX - 2 }));
}
