/* What a subscriptions/listen asks for, its frames, and that what is pushed of a task is what
 * tasks/get says. The streams themselves are test/system/test_listen.py's. */
#include <string.h>

#include "api/ladder.h"
#include "api/result.h"
#include "api/subscription.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "test/test.h"

#define ID_A "tsk_AQAAAZAAAAAAABERERERERERERERERER"
#define ID_B "tsk_AQAAAZAAAAAAACIiIiIiIiIiIiIiIiIi"

HF_TEST(subscription, what_is_no_filter_is_refused)
{
	static const char *const bad[] = {
		"{}",
		"{\"notifications\":[]}",
		"{\"notifications\":null}",
		"{\"notifications\":{\"toolsListChanged\":1}}",
		"{\"notifications\":{\"promptsListChanged\":\"true\"}}",
		"{\"notifications\":{\"resourcesListChanged\":null}}",
		"{\"notifications\":{\"resourceSubscriptions\":\"file:///a\"}}",
		"{\"notifications\":{\"resourceSubscriptions\":[1]}}",
		"{\"notifications\":{\"taskIds\":\"" ID_A "\"}}",
		"{\"notifications\":{\"taskIds\":[\"" ID_A "\",7]}}",
		"{\"notifications\":{\"taskIds\":null}}",
	};
	struct subscription out;
	for (size_t i = 0; i < countof(bad); i++)
		cr_assert_not_null(subscription_read(slice_of(bad[i]), &out), "%s", bad[i]);
	cr_assert_not_null(subscription_read((struct slice){}, &out));
}

HF_TEST(subscription, only_what_is_served_is_honoured)
{
	static const struct {
		const char *filter, *honoured;
	} table[] = {
		{ "{}", "{}" },
		{ "{\"toolsListChanged\":true}", "{\"toolsListChanged\":true}" },
		{ "{\"toolsListChanged\":false}", "{}" },
		{ "{\"promptsListChanged\":true,\"resourcesListChanged\":true,"
		  "\"resourceSubscriptions\":[\"file:///a\"],\"other\":{\"x\":[]}}",
		  "{}" },
		{ "{\"taskIds\":[]}", "{\"taskIds\":[]}" },
		{ "{\"taskIds\":[\"\",\"tsk_\",\"" ID_A "x\"]}", "{\"taskIds\":[]}" },
		{ "{\"taskIds\":[\"" ID_B "\",\"" ID_A "\",\"" ID_B
		  "\"],\"toolsListChanged\":true}",
		  "{\"toolsListChanged\":true,\"taskIds\":[\"" ID_B "\",\"" ID_A "\"]}" },
		/* As JSON escapes it, it is the same one. */
		{ "{\"taskIds\":[\"" ID_A "\",\"\\u0074"
		  "sk_AQAAAZAAAAAAABERERERERERERERERER\"]}",
		  "{\"taskIds\":[\"" ID_A "\"]}" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf params = {}, out = {}, expected = {};
		struct subscription wanted;
		buf_add_format(&params, "{\"notifications\":%s}", table[i].filter);
		cr_assert_null(subscription_read(buf_slice(&params), &wanted), "%s",
			       table[i].filter);
		subscription_ack(slice_of("\"\""), &wanted, &out);
		buf_add_format(
		    &expected,
		    "{\"jsonrpc\":\"2.0\",\"method\":"
		    "\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{"
		    "\"io.modelcontextprotocol/subscriptionId\":\"\"},"
		    "\"notifications\":%s}}",
		    table[i].honoured);
		cr_assert_str_eq(out.data, expected.data);
		cr_assert_eq(subscription_names_tasks(buf_slice(&params)),
			     strstr(table[i].filter, "taskIds") != nullptr);
	}
}

HF_TEST(subscription, the_number_of_tasks_is_bounded)
{
	for (size_t extra = 0; extra < 2; extra++) {
		hf_cleanup(buf) struct buf params = {};
		struct subscription wanted;
		buf_add_text(&params, "{\"notifications\":{\"taskIds\":[");
		for (size_t i = 0; i < SUBSCRIPTION_TASKS_MAX + extra; i++)
			buf_add_format(&params, "%s\"tsk_AQAAAZAAAAAAABERERERERERERERER%c%c\"",
				       i > 0 ? "," : "", (char)('A' + i / 26),
				       (char)('A' + i % 26));
		buf_add_text(&params, "]}}");
		const char *fault = subscription_read(buf_slice(&params), &wanted);
		cr_assert_eq(fault != nullptr, extra > 0, "%s", fault);
		if (!fault)
			cr_assert_eq(wanted.tasks_count, SUBSCRIPTION_TASKS_MAX);
	}
}

HF_TEST(subscription, every_frame_has_the_id_as_it_came)
{
	static const char *const ids[] = { "0", "\"\"", "\"a\\u00e9\"", "12345678901234567890" };
	for (size_t i = 0; i < countof(ids); i++) {
		hf_cleanup(buf) struct buf changed = {}, end = {}, member = {};
		struct slice meta, id;
		subscription_tools_changed(slice_of(ids[i]), &changed);
		cr_assert_eq(json_scan(buf_slice(&changed), nullptr), HF_OK);
		cr_assert(json_pointer(buf_slice(&changed), slice_of("/params/_meta"), &meta));
		cr_assert(json_member(meta, MCP_SUBSCRIPTION, &id));
		cr_assert(slice_is(id, ids[i]));
		subscription_end(slice_of(ids[i]), &end);
		cr_assert_eq(json_scan(buf_slice(&end), nullptr), HF_OK);
		cr_assert(json_pointer(buf_slice(&end), slice_of("/_meta"), &meta));
		cr_assert(json_member(meta, MCP_SUBSCRIPTION, &id));
		cr_assert(slice_is(id, ids[i]));
	}
}

/* `text` without its _meta and resultType; its _meta without the subscription. */
static void strip(struct slice text, struct buf *out)
{
	struct slice name, value, inner, member;
	cr_assert_eq(json_scan(text, nullptr), HF_OK, "%.*s", (int)text.len, text.data);
	for (size_t at = 0; json_object_next(text, &at, &name, &value);)
		if (!slice_is(name, "\"_meta\"") && !slice_is(name, "\"resultType\""))
			buf_add_format(out, "%.*s=%.*s\n", (int)name.len, name.data, (int)value.len,
				       value.data);
	cr_assert(json_member(text, "_meta", &value));
	for (size_t at = 0; json_object_next(value, &at, &inner, &member);)
		if (!slice_is(inner, "\"" MCP_SUBSCRIPTION "\""))
			buf_add_format(out, "meta %.*s=%.*s\n", (int)inner.len, inner.data,
				       (int)member.len, member.data);
}

HF_TEST(subscription, a_notice_says_what_tasks_get_says)
{
	struct task_view view = {
		.created_ms = 1'790'000'000'000,
		.updated_ms = 1'790'000'000'500,
		.ended_ms = 1'790'000'001'000,
		.result_ttl_ms = 1'000,
		.progress = 0.5,
		.message = slice_of("so far"),
		.effect_id = slice_of("e"),
		.result = slice_of("{\"content\":[]}"),
		.error = slice_of("{\"code\":1,\"message\":\"m\"}"),
	};
	cr_assert(task_id_parse(slice_of(ID_A), &view.id));
	static const enum task_state states[] = { TASK_READY,     TASK_RUNNING, TASK_WAITING,
						  TASK_COMPLETED, TASK_FAILED,  TASK_CANCELLED };
	for (size_t i = 0; i < countof(states); i++) {
		view.state = states[i];
		hf_cleanup(buf) struct buf got = {}, pushed = {}, as_got = {}, as_pushed = {};
		cr_assert(result_task(&view, 1'000, &got));
		cr_assert(result_task_notice(&view, 1'000, slice_of("7"), &pushed));
		strip(buf_slice(&got), &as_got);
		strip(buf_slice(&pushed), &as_pushed);
		cr_assert_str_eq(as_got.data, as_pushed.data);
		struct slice meta, id;
		cr_assert(json_member(buf_slice(&pushed), "_meta", &meta));
		cr_assert(json_member(meta, MCP_SUBSCRIPTION, &id));
		cr_assert(slice_is(id, "7"));
		cr_assert(!json_member(buf_slice(&pushed), "resultType", &id));
	}
	hf_cleanup(buf) struct buf out = {};
	view.state = TASK_COMPLETED;
	view.result = (struct slice){};
	cr_assert(!result_task_notice(&view, 1'000, slice_of("7"), &out));
}
