/* test_template.c - references in JSON, texts and URLs: what goes in, what is refused, and what
 * `tools check` is shown. */
#include "runtime/template.h"

#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "test/test.h"

#define NAME_90                                 \
	"a-name-of-ninety-bytes-so-that-two-of" \
	"-them-and-what-stands-between-them-fill-the-room-that"

static bool on_state(void *, struct slice phase, struct slice *json)
{
	if (slice_is(phase, "render"))
		*json =
		    slice_of("{\"pages\":7,\"pdf\":\"r\\u0065port\",\"list\":[1,{\"id\":\"m\"}]}");
	else if (slice_is(phase, "nothing"))
		*json = slice_of("{}");
	else if (slice_is(phase, "wide"))
		*json =
		    slice_of("{\"" NAME_90 "\":1,\"" NAME_90 "\\u0007\":2,\"more-than-fits\":3}");
	else if (slice_is(phase, "count"))
		*json = slice_of("42");
	else
		return false;
	return true;
}

static struct template_scope a_scope(void)
{
	return (struct template_scope){
		.args = slice_of(" {\"month\":\"2014-07\",\"n\":9007199254740993,\"f\":1.50,"
				 "\"ok\":true,\"none\":null,\"o\":{\"a/b\":\"c\"},\"odd\":"
				 "\"a b/c?d=\xc3\xa9&\\u0022{/key}\",\"up\":\"..\",\"dot\":\".\","
				 "\"empty\":\"\"}"),
		.key = slice_of("\"k3y\""),
		.task = slice_of("{\"id\":\"tsk_1\",\"attempt\":2}"),
		.conf = slice_of("{\"store\":\"http://127.0.0.1:7/a b\"}"),
		.state = on_state,
	};
}

static const struct {
	const char *json, *wanted; /* nullptr: refused with `code` */
	enum hf_code code;
} documents[] = {
	{ "{\"$from\":\"/args/month\"}", "\"2014-07\"", HF_OK },
	{ " [ {\"$from\" : \"/args/n\"} , 1.50, \"x\" ] ", "[9007199254740993,1.50,\"x\"]", HF_OK },
	{ "{\"$from\":\"/args/o\"}", "{\"a/b\":\"c\"}", HF_OK },
	{ "{\"$from\":\"/args/o/a~1b\"}", "\"c\"", HF_OK },
	{ "{\"\\u0024from\":\"\\/key\"}", "\"k3y\"", HF_OK },
	{ "{\"$from\":\"/args/none\"}", "null", HF_OK },
	{ "{\"$from\":\"/task\"}", "{\"id\":\"tsk_1\",\"attempt\":2}", HF_OK },
	{ "{\"$from\":\"/state/count\"}", "42", HF_OK },
	{ "{\"$from\":\"/state/render/list/1/id\"}", "\"m\"", HF_OK },
	{ "{\"a\":{\"b\":[{\"$from\":\"/state/render/pages\"}]},\"c\":{}}",
	  "{\"a\":{\"b\":[7]},\"c\":{}}", HF_OK },
	{ "[\"{/args/month} has {/state/render/pages}\",\"{{plain}\"]",
	  "[\"2014-07 has 7\",\"{plain}\"]", HF_OK },
	{ "\"\\u007b/args/odd}\"", "\"a b/c?d=\xc3\xa9&\\\"{/key}\"", HF_OK },
	{ "{\"{/args/month}\":\"\\u00e9\"}", "{\"{/args/month}\":\"\\u00e9\"}", HF_OK },
	{ "{\"from\":\"/args/month\"}", "{\"from\":\"/args/month\"}", HF_OK },
	{ "{\"$from\":\"/args/nope\"}", nullptr, HF_MISSING },
	{ "{\"$from\":\"/args/month/x\"}", nullptr, HF_MISSING },
	{ "{\"$from\":\"/state/publish/url\"}", nullptr, HF_MISSING },
	{ "{\"$from\":\"/state\"}", nullptr, HF_MISSING },
	{ "{\"$from\":\"/nope\"}", nullptr, HF_MISSING },
	{ "{\"$from\":\"args\"}", nullptr, HF_MISSING },
	{ "{\"$from\":\"\"}", nullptr, HF_MISSING },
	{ "{\"$from\":\"/key/x\"}", nullptr, HF_MISSING },
	{ "{\"$from\":1}", nullptr, HF_INVALID },
	{ "{\"$from\":\"/key\",\"x\":1}", nullptr, HF_INVALID },
	{ "[\"{/args/o}\"]", nullptr, HF_INVALID },
	{ "[\"{/args/none}\"]", nullptr, HF_INVALID },
	{ "[\"{month}\"]", nullptr, HF_INVALID },
	{ "[\"{/args/month\"]", nullptr, HF_INVALID },
};

HF_TEST(template, references_in_json_are_replaced)
{
	struct template_scope scope = a_scope();
	for (size_t i = 0; i < countof(documents); i++) {
		hf_cleanup(buf) struct buf out = {};
		struct hf_err err = {};
		struct slice json = slice_of(documents[i].json);
		cr_assert_eq(json_scan(json, nullptr), HF_OK);
		cr_expect_eq(template_json(json, &scope, &out, &err), documents[i].code, "%s: %s",
			     documents[i].json, err.text);
		if (!documents[i].wanted)
			continue;
		cr_expect_str_eq(out.data, documents[i].wanted);
		cr_expect_eq(json_scan(buf_slice(&out), nullptr), HF_OK);
	}
}

HF_TEST(template, errors_name_the_pointer)
{
	static const struct {
		const char *json, *wanted;
	} rows[] = {
		{ "{\"$from\":\"/args/nope\"}", "/args/nope: there is no such value" },
		{ "{\"$from\":\"/state/later/x\"}",
		  "/state/later/x: that phase has no recovery point yet" },
		{ "\"{/state/render/words}\"", "/state/render/words: there is no such value; "
					       "/state/render has pages, pdf, list" },
		{ "\"{/state/render/list/1/name}\"", "/state/render/list/1/name: there is no such "
						     "value; /state/render/list/1 has id" },
		{ "\"{/state/render/list/2/id}\"",
		  "/state/render/list/2/id: there is no such value; /state/render/list is array" },
		{ "\"{/state/count/x}\"",
		  "/state/count/x: there is no such value; /state/count is number" },
		{ "\"{/state/nothing/x}\"",
		  "/state/nothing/x: there is no such value; /state/nothing is {}" },
		{ "\"{/state/wide/x}\"",
		  "/state/wide/x: there is no such value; /state/wide has " NAME_90 ", " NAME_90
		  "\\u0007, …" },
		{ "\"{/argh/x}\"", "/argh/x: there is no such root" },
		{ "\"{/args/o}\"", "/args/o: object cannot stand in a text" },
	};
	struct template_scope scope = a_scope();
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf out = {};
		struct hf_err err = {};
		cr_expect_neq(template_json(slice_of(rows[i].json), &scope, &out, &err), HF_OK);
		cr_expect_str_eq(err.text, rows[i].wanted);
	}
}

HF_TEST(template, texts_and_urls_are_filled)
{
	static const struct {
		const char *text;
		bool url;
		const char *wanted; /* nullptr: refused with `code` */
		enum hf_code code;
	} rows[] = {
		{ "", false, "", HF_OK },
		{ "plain } text }}", false, "plain } text }}", HF_OK },
		{ "{{{/key}", false, "{k3y", HF_OK },
		{ "{/args/n} {/args/f} {/args/ok}", false, "9007199254740993 1.50 true", HF_OK },
		{ "{/args/odd}", false, "a b/c?d=\xc3\xa9&\"{/key}", HF_OK },
		{ "{/args/odd}", true, "a%20b%2Fc%3Fd%3D%C3%A9%26%22%7B%2Fkey%7D", HF_OK },
		{ "{/conf/store}/r/{/key}.pdf", true, "http://127.0.0.1:7/a b/r/k3y.pdf", HF_OK },
		{ "{/conf/store}/{/state/render/pdf}?n={/args/n}", true,
		  "http://127.0.0.1:7/a b/report?n=9007199254740993", HF_OK },
		{ "http://h/{/args/up}.pdf", true, "http://h/...pdf", HF_OK },
		{ "http://h/?q={/args/up}/..", true, "http://h/?q=../..", HF_OK },
		{ "http://h/a{/args/empty}b", true, "http://h/ab", HF_OK },
		{ "http://h/{/args/up}/x", true, nullptr, HF_INVALID },
		{ "http://h/{/args/up}", true, nullptr, HF_INVALID },
		{ "http://h/{/args/dot}{/args/dot}?x", true, nullptr, HF_INVALID },
		{ "http://h/{/args/dot}/x", true, nullptr, HF_INVALID },
		{ "{", false, nullptr, HF_INVALID },
		{ "a{", false, nullptr, HF_INVALID },
		{ "{}", false, nullptr, HF_INVALID },
		{ "{args/month}", false, nullptr, HF_INVALID },
		{ "{/args/month", false, nullptr, HF_INVALID },
		{ "{/args}", false, nullptr, HF_INVALID },
		{ "{/}", false, nullptr, HF_MISSING },
		{ "{/args/nope}", false, nullptr, HF_MISSING },
	};
	struct template_scope scope = a_scope();
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf out = {};
		struct hf_err err = {};
		enum hf_code code =
		    template_text(slice_of(rows[i].text), rows[i].url, &scope, &out, &err);
		cr_expect_eq(code, rows[i].code, "%s: %s", rows[i].text, err.text);
		if (rows[i].wanted)
			cr_expect(slice_is(buf_slice(&out), rows[i].wanted), "%s: %s", rows[i].text,
				  out.data);
	}
}

HF_TEST(template, a_value_may_not_nest_past_the_limit)
{
	for (size_t outer = 4; outer <= 5; outer++) {
		hf_cleanup(buf) struct buf args = {}, json = {}, out = {};
		for (size_t i = 0; i < 60; i++)
			buf_add_byte(&args, '[');
		for (size_t i = 0; i < 60; i++)
			buf_add_byte(&args, ']');
		for (size_t i = 0; i < outer; i++)
			buf_add_byte(&json, '[');
		buf_add_text(&json, "{\"$from\":\"/args\"}");
		for (size_t i = 0; i < outer; i++)
			buf_add_byte(&json, ']');
		struct template_scope scope = { .args = buf_slice(&args) };
		enum hf_code code = template_json(buf_slice(&json), &scope, &out, nullptr);
		cr_expect_eq(code, outer == 4 ? HF_OK : HF_LIMIT);
		if (code == HF_OK)
			cr_expect_eq(json_scan(buf_slice(&out), nullptr), HF_OK);
	}
}

HF_TEST(template, a_full_buffer_is_seen_by_the_caller)
{
	static const char *const rows[] = { "{\"$from\":\"/args/odd\"}", "\"{/args/odd}\"" };
	struct template_scope scope = a_scope();
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf out = { .max = 8 };
		cr_expect_eq(template_json(slice_of(rows[i]), &scope, &out, nullptr), HF_OK);
		cr_expect(out.overflow);
	}
}

static enum hf_code on_found(void *ctx, struct slice pointer, struct hf_err *err)
{
	struct buf *found = ctx;
	buf_add_slice(found, pointer);
	buf_add_byte(found, ' ');
	if (slice_is(pointer, "/stop"))
		return hf_fail(err, HF_CONFLICT, "stopped");
	return HF_OK;
}

HF_TEST(template, a_walk_shows_every_pointer)
{
	static const struct {
		const char *json, *found;
		enum hf_code code;
	} rows[] = {
		{ "{\"a\":{\"$from\":\"/args/\\u0078\"},\"b\":[\"{/key} {{ {/conf/s}\",1,null]}",
		  "/args/x /key /conf/s ", HF_OK },
		{ "\"{/conf/store}/reports/{/key}.pdf\"", "/conf/store /key ", HF_OK },
		{ "{\"{/key}\":true}", "", HF_OK },
		{ "[{\"$from\":\"/a\"},{\"$from\":\"/stop\"},{\"$from\":\"/b\"}]", "/a /stop ",
		  HF_CONFLICT },
		{ "{\"$from\":\"a\"}", "", HF_INVALID },
		{ "{\"$from\":\"\"}", "", HF_INVALID },
		{ "{\"$from\":[]}", "", HF_INVALID },
		{ "{\"x\":1,\"$from\":\"/a\"}", "", HF_INVALID },
		{ "\"{x}\"", "", HF_INVALID },
		{ "\"{/x\"", "", HF_INVALID },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		hf_cleanup(buf) struct buf found = {};
		struct hf_err err = {};
		enum hf_code code = template_walk(slice_of(rows[i].json), on_found, &found, &err);
		cr_expect_eq(code, rows[i].code, "%s: %s", rows[i].json, err.text);
		cr_expect(slice_is(buf_slice(&found), rows[i].found), "%s", rows[i].json);
	}
}

/* A value repeated beyond the maximum: the rest is not looked at. */
HF_TEST(template, what_grows_too_large_takes_no_more_time, .timeout = 10)
{
	constexpr size_t VALUE_LEN = 1 << 20, REFERENCES = 20'000;
	hf_cleanup(buf) struct buf args = {}, json = {}, out = {};
	buf_add_text(&args, "{\"x\":\"");
	for (size_t i = 0; i < VALUE_LEN; i++)
		buf_add_byte(&args, 'y');
	buf_add_text(&args, "\"}");
	buf_add_byte(&json, '[');
	for (size_t i = 0; i < REFERENCES; i++)
		buf_add_text(&json, "\"{/args/x}{/args/x}\",{\"$from\":\"/args/x\"},");
	buf_add_text(&json, "0]");
	const struct template_scope scope = { .args = buf_slice(&args) };
	out.max = 2 * VALUE_LEN;
	cr_assert_eq(template_json(buf_slice(&json), &scope, &out, nullptr), HF_OK);
	cr_assert(out.overflow);
	cr_assert_leq(out.len, out.max);
}
