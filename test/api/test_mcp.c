/* The ladder with its codes and statuses, the headers it reads, and the results that carry tasks.
 * None of it needs a store. */
#include <string.h>

#include "api/headers.h"
#include "api/ladder.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/json.h"
#include "test/api/call_of.h"
#include "test/test.h"

HF_TEST(headers, only_json_is_a_content_type)
{
	static const struct {
		const char *value;
		bool json;
	} table[] = {
		{ "application/json", true },
		{ "Application/JSON", true },
		{ "application/json; charset=utf-8", true },
		{ "application/json ;charset=\"UTF-8\"", true },
		{ "application/json-seq", false },
		{ "application/jsonx", false },
		{ "text/plain", false },
		{ "text/plain; application/json", false },
		{ "", false },
	};
	for (size_t i = 0; i < countof(table); i++)
		cr_assert_eq(header_is_json(slice_of(table[i].value)), table[i].json, "%s",
			     table[i].value);
}

HF_TEST(headers, accept_is_read_over_all_its_lines)
{
	static const struct {
		const char *headers;
		bool json, events;
	} table[] = {
		{ "", true, true },
		{ "Accept: application/json, text/event-stream\n", true, true },
		{ "Accept: text/event-stream;q=0.5, application/json;q=0.9\n", true, true },
		{ "Accept: text/event-stream\nAccept: application/json\n", true, true },
		{ "Accept: application/json, Text/*;q=0.1\n", true, true },
		{ "Accept: */*\n", true, true },
		{ "Accept: application/json\n", true, false },
		{ "accept: APPLICATION/JSON\n", true, false },
		{ "Accept: application/*\n", true, false },
		{ "Accept: application/*, text/plain\n", true, false },
		{ "Accept: text/event-stream;q=0, */*\n", true, false },
		{ "Accept: text/event-stream\n", false, true },
		{ "Accept: application/json;q=0, */*\n", false, true },
		{ "Accept: */*, application/json; q=0.000\n", false, true },
		{ "Accept: text/html\n", false, false },
		{ "Accept: text/html;x=\",application/json\"\n", false, false },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(call_of) struct call_of made = {};
		const struct call *call = call_of_init(&made, table[i].headers, "");
		cr_assert_eq(header_accepts_json(call), table[i].json, "%s", table[i].headers);
		cr_assert_eq(header_accepts_events(call), table[i].events, "%s", table[i].headers);
	}
}

HF_TEST(headers, hosts_and_origins_match_whole)
{
	static constexpr char HOSTS[] = "localhost, 127.0.0.1,[::1]";
	static const struct {
		const char *host;
		bool allowed;
	} hosts[] = {
		{ "localhost", true },
		{ "LOCALHOST:8080", true },
		{ "127.0.0.1:1", true },
		{ "[::1]:8080", true },
		{ "[::1]", true },
		{ "localhost.evil", false },
		{ "evil", false },
		{ "", false },
		{ ":80", false },
		{ "localhost:80x", false },
		{ "[::1]x:80", false },
		{ "[::1", false },
		{ "127.0.0.1.evil", false },
		{ "[::1]@evil:80", false },
	};
	for (size_t i = 0; i < countof(hosts); i++)
		cr_assert_eq(header_host_allowed(slice_of(hosts[i].host), HOSTS), hosts[i].allowed,
			     "%s", hosts[i].host);
	cr_assert(header_host_allowed(slice_of("any.example:1"), "*"));

	static const struct {
		const char *origin, *host, *hosts;
		bool allowed;
	} origins[] = {
		{ "https://app.example", "localhost:1", HOSTS, true },
		{ "https://app.example.evil", "localhost:1", HOSTS, false },
		{ "https://app.example:444", "localhost:1", HOSTS, false },
		{ "http://app.example", "localhost:1", HOSTS, false },
		{ "null", "localhost:1", HOSTS, false },
		{ "", "localhost:1", HOSTS, false },
		{ "http://localhost:1", "localhost:1", HOSTS, true },
		{ "http://localhost:2", "localhost:1", HOSTS, false },
		{ "http://evil:1", "evil:1", HOSTS, false },
		{ "http://evil:1", "evil:1", "*", false }, /* a rebound name is no proof */
	};
	for (size_t i = 0; i < countof(origins); i++)
		cr_assert_eq(header_origin_allowed(slice_of(origins[i].origin),
						   "https://other.example,https://app.example",
						   slice_of(origins[i].host), origins[i].hosts),
			     origins[i].allowed, "row %zu", i);
}

HF_TEST(headers, a_sentinel_is_decoded_and_anything_else_is_itself)
{
	static const struct {
		const char *value, *decoded; /* nullptr: refused */
	} table[] = {
		{ "plain", "plain" },
		{ "a b\tc", "a b\tc" },
		{ "", "" },
		{ "=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, \xe4\xb8\x96\xe7\x95\x8c" },
		{ "=?base64?IHBhZGRlZCA=?=", " padded " },
		{ "=?base64?bGluZTEKbGluZTI=?=", "line1\nline2" },
		{ "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?=" },
		{ "=?base64?"
		  "?=",
		  "" },
		{ "=?base64?only the prefix", "=?base64?only the prefix" },
		{ "only the suffix?=", "only the suffix?=" },
		{ "=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?=" },
		{ "=?base64?=", "=?base64?=" },
		{ "=?base64?SGVsbG8?=", nullptr },
		{ "=?base64?SGVs!!!bG8=?=", nullptr },
		{ "=?base64?SGVsbG9=?=", nullptr }, /* bits behind the last byte */
		{ "=?base64?SGVs=G8=?=", nullptr },
		{ "=?base64?====?=", nullptr },
		{ "=?base64?SGVsbG8-?=", nullptr },
		{ "caf\xc3\xa9", nullptr },
		{ "a\x01", nullptr },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(call_of) struct call_of made = {};
		struct slice out = {};
		const struct call *call = call_of_init(&made, "", "");
		bool fits = header_decode(slice_of(table[i].value), call->arena, &out);
		cr_assert_eq(fits, table[i].decoded != nullptr, "%s", table[i].value);
		if (fits)
			cr_assert(slice_is(out, table[i].decoded), "%s", table[i].value);
	}
}

#define JSON_HEADERS "Host: localhost\nContent-Type: application/json\n"

HF_TEST(ladder, the_gate_refuses_with_its_status)
{
	static const struct {
		const char *method, *headers;
		int status; /* 0: comes in */
	} table[] = {
		{ "POST", JSON_HEADERS, 0 },
		{ "POST", "Content-Type: application/json\n", 0 }, /* HTTP/1.0 */
		{ "POST", "Host: evil\nContent-Type: application/json\n", 403 },
		{ "GET", "Host: evil\n", 403 },
		{ "GET", JSON_HEADERS, 405 },
		{ "DELETE", JSON_HEADERS, 405 },
		{ "post", JSON_HEADERS, 405 },
		{ "POST", "Host: localhost\n", 415 },
		{ "POST", "Host: localhost\nContent-Type: text/plain\n", 415 },
		{ "POST", JSON_HEADERS "Content-Type: application/json\n", 415 },
		{ "POST", JSON_HEADERS "Accept: text/html\n", 406 },
	};
	static const struct gate gate = { "localhost", "" };
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(call_of) struct call_of made = {};
		struct refusal refusal = {};
		struct call *call = call_of_init(&made, table[i].headers, "");
		call->method = slice_of(table[i].method);
		bool in = ladder_gate(call, &gate, &refusal);
		cr_assert_eq(in, table[i].status == 0, "row %zu", i);
		cr_assert_eq(refusal.status, table[i].status, "row %zu: %d", i, refusal.status);
	}
}

HF_TEST(ladder, a_foreign_origin_is_refused_everywhere)
{
	static const struct gate gate = { "localhost", "https://app.example" };
	static const struct {
		const char *headers;
		bool in;
	} table[] = {
		{ "Host: localhost\n", true },
		{ "Host: localhost\nOrigin: https://app.example\n", true },
		{ "Host: localhost\nOrigin: https://evil.example\n", false },
		{ "Host: localhost\nOrigin: https://app.example\nOrigin: https://app.example\n",
		  false },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(call_of) struct call_of made = {};
		struct refusal refusal = {};
		struct call *call = call_of_init(&made, table[i].headers, "");
		cr_assert_eq(ladder_origin(call, &gate, &refusal), table[i].in, "row %zu", i);
		cr_assert_eq(refusal.status, table[i].in ? 0 : 403, "row %zu", i);
	}
}

#define VERSION_OF(text)   "\"io.modelcontextprotocol/protocolVersion\":" text
#define CAPABILITIES(text) "\"io.modelcontextprotocol/clientCapabilities\":" text
#define TASKS              "{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}"
#define META_OF(version, capabilities) \
	"\"_meta\":{" VERSION_OF(version) "," CAPABILITIES(capabilities) "}"
#define META META_OF("\"2026-07-28\"", TASKS)
#define REQUEST(method, params) \
	"{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"" method "\",\"params\":{" params "}}"
#define HEADERS_OF(version, method) "MCP-Protocol-Version: " version "\nMcp-Method: " method "\n"
#define HEADERS(method)             HEADERS_OF("2026-07-28", method)

static const struct rung {
	const char *headers, *body;
	enum ladder ladder;
	int status;
	enum rpc_code code;
} rungs[] = {
	{ HEADERS("tools/list"), REQUEST("tools/list", META), LADDER_GO_ON, 0, RPC_NONE },
	{ "mcp-protocol-version: 2026-07-28\nMCP-METHOD: tools/list\n", REQUEST("tools/list", META),
	  LADDER_GO_ON, 0, RPC_NONE },
	{ HEADERS("tools/list"), REQUEST("tools/list", META_OF("\"2026-07-28\"", "{}")),
	  LADDER_GO_ON, 0, RPC_NONE },

	/* 8: notifications and eras */
	{ "", "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}", LADDER_NOTIFIED, 0,
	  RPC_NONE },
	{ HEADERS("tools/call"), "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{}}",
	  LADDER_NOTIFIED, 0, RPC_NONE },
	{ "MCP-Protocol-Version: 2025-11-25\n",
	  "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", LADDER_REFUSED, 400,
	  RPC_UNSUPPORTED_VERSION },
	{ "", REQUEST("initialize", "\"protocolVersion\":\"2025-11-25\""), LADDER_REFUSED, 400,
	  RPC_UNSUPPORTED_VERSION },
	{ HEADERS("initialize"), REQUEST("initialize", "\"protocolVersion\":\"2025-11-25\""),
	  LADDER_REFUSED, 400, RPC_HEADER_MISMATCH },
	{ HEADERS_OF("2025-11-25", "tools/list"), REQUEST("tools/list", ""), LADDER_REFUSED, 400,
	  RPC_UNSUPPORTED_VERSION },

	/* 9: _meta */
	{ HEADERS("tools/list"), REQUEST("tools/list", ""), LADDER_REFUSED, 400,
	  RPC_INVALID_PARAMS },
	{ "", REQUEST("tools/list", ""), LADDER_REFUSED, 400, RPC_INVALID_PARAMS },
	{ HEADERS("tools/list"), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}",
	  LADDER_REFUSED, 400, RPC_INVALID_PARAMS },
	{ HEADERS("tools/list"), REQUEST("tools/list", "\"_meta\":5"), LADDER_REFUSED, 400,
	  RPC_INVALID_PARAMS },
	{ HEADERS("tools/list"), REQUEST("tools/list", META_OF("5", "{}")), LADDER_REFUSED, 400,
	  RPC_INVALID_PARAMS },
	{ HEADERS("tools/list"), REQUEST("tools/list", META_OF("\"2026-07-28\"", "[]")),
	  LADDER_REFUSED, 400, RPC_INVALID_PARAMS },
	{ HEADERS("tools/list"),
	  REQUEST("tools/list", "\"_meta\":{" VERSION_OF("\"2026-07-28\"") "}"), LADDER_REFUSED,
	  400, RPC_INVALID_PARAMS },

	/* 10: version header */
	{ "Mcp-Method: tools/list\n", REQUEST("tools/list", META), LADDER_REFUSED, 400,
	  RPC_HEADER_MISMATCH },
	{ HEADERS_OF("2025-11-25", "tools/list"), REQUEST("tools/list", META), LADDER_REFUSED, 400,
	  RPC_HEADER_MISMATCH },
	{ HEADERS("tools/list") "MCP-Protocol-Version: 2026-07-28\n", REQUEST("tools/list", META),
	  LADDER_REFUSED, 400, RPC_HEADER_MISMATCH },
	{ HEADERS("tools/list"), REQUEST("tools/list", META_OF("\"v999.0.0\"", "{}")),
	  LADDER_REFUSED, 400, RPC_HEADER_MISMATCH },

	/* 11: Mcp-Method, Mcp-Name */
	{ "MCP-Protocol-Version: 2026-07-28\n", REQUEST("tools/list", META), LADDER_REFUSED, 400,
	  RPC_HEADER_MISMATCH },
	{ HEADERS("tools/call"), REQUEST("tools/list", META), LADDER_REFUSED, 400,
	  RPC_HEADER_MISMATCH },
	{ HEADERS("TOOLS/LIST"), REQUEST("tools/list", META), LADDER_REFUSED, 400,
	  RPC_HEADER_MISMATCH },
	{ HEADERS("tools/call") "Mcp-Name: t\n", REQUEST("tools/call", "\"name\":\"t\"," META),
	  LADDER_GO_ON, 0, RPC_NONE },
	{ HEADERS("tools/call") "Mcp-Name: =?base64?dA==?=\n",
	  REQUEST("tools/call", "\"name\":\"t\"," META), LADDER_GO_ON, 0, RPC_NONE },
	{ HEADERS("tools/call"), REQUEST("tools/call", "\"name\":\"t\"," META), LADDER_REFUSED, 400,
	  RPC_HEADER_MISMATCH },
	{ HEADERS("tools/call") "Mcp-Name: u\n", REQUEST("tools/call", "\"name\":\"t\"," META),
	  LADDER_REFUSED, 400, RPC_HEADER_MISMATCH },
	{ HEADERS("tools/call") "Mcp-Name: t\nMcp-Name: u\n",
	  REQUEST("tools/call", "\"name\":\"t\"," META), LADDER_REFUSED, 400, RPC_HEADER_MISMATCH },
	{ HEADERS("tools/call") "Mcp-Name: =?base64?!?=\n",
	  REQUEST("tools/call", "\"name\":\"t\"," META), LADDER_REFUSED, 400, RPC_HEADER_MISMATCH },
	{ HEADERS("tools/call"), REQUEST("tools/call", "\"name\":5," META), LADDER_GO_ON, 0,
	  RPC_NONE },
	{ HEADERS("tasks/get"), REQUEST("tasks/get", "\"taskId\":\"x\"," META), LADDER_GO_ON, 0,
	  RPC_NONE },
	{ HEADERS("tasks/get") "Mcp-Name: y\n", REQUEST("tasks/get", "\"taskId\":\"x\"," META),
	  LADDER_REFUSED, 400, RPC_HEADER_MISMATCH },
	{ HEADERS("tasks/get") "Mcp-Name: 12\n", REQUEST("tasks/get", "\"taskId\":12," META),
	  LADDER_GO_ON, 0, RPC_NONE },
	{ HEADERS("tools/list") "Mcp-Name: ignored\n", REQUEST("tools/list", META), LADDER_GO_ON, 0,
	  RPC_NONE },

	/* 12: version */
	{ HEADERS_OF("v999.0.0", "tools/list"),
	  REQUEST("tools/list", META_OF("\"v999.0.0\"", "{}")), LADDER_REFUSED, 400,
	  RPC_UNSUPPORTED_VERSION },

	/* 13: method */
	{ HEADERS("ping"), REQUEST("ping", META), LADDER_REFUSED, 404, RPC_METHOD_NOT_FOUND },
	{ HEADERS("initialize"), REQUEST("initialize", META), LADDER_REFUSED, 404,
	  RPC_METHOD_NOT_FOUND },
	{ HEADERS("tasks/result"), REQUEST("tasks/result", META), LADDER_REFUSED, 404,
	  RPC_METHOD_NOT_FOUND },
	{ HEADERS("tasks/list"), REQUEST("tasks/list", META), LADDER_REFUSED, 404,
	  RPC_METHOD_NOT_FOUND },

	/* 14: capability, before any look at the task */
	{ HEADERS("tasks/get"),
	  REQUEST("tasks/get", "\"taskId\":\"x\"," META_OF("\"2026-07-28\"", "{}")), LADDER_REFUSED,
	  400, RPC_MISSING_CAPABILITY },
	{ HEADERS("tasks/cancel"),
	  REQUEST("tasks/cancel", META_OF("\"2026-07-28\"", "{\"tasks\":{}}")), LADDER_REFUSED, 400,
	  RPC_MISSING_CAPABILITY },
	{ HEADERS("tasks/update"),
	  REQUEST("tasks/update",
		  META_OF("\"2026-07-28\"",
			  "{\"extensions\":{\"io.modelcontextprotocol/tasks\":null}}")),
	  LADDER_REFUSED, 400, RPC_MISSING_CAPABILITY },

	/* strings with NUL */
	{ HEADERS("tasks/get"), REQUEST("tasks/get", "\"taskId\":\"x\\u0000\"," META),
	  LADDER_REFUSED, 200, RPC_INVALID_PARAMS },
	{ HEADERS("tools/call") "Mcp-Name: t\n",
	  REQUEST("tools/call", "\"name\":\"t\",\"arguments\":{\"a\":\"\\u0000\"}," META),
	  LADDER_GO_ON, 0, RPC_NONE },
};

/* One climb and what came of it. */
struct climbed {
	struct call_of made;
	enum ladder ladder;
	struct refusal refusal;
};

static void hf_cleanup_climbed(struct climbed *climbed)
{
	hf_cleanup_call_of(&climbed->made);
}

static struct climbed climb(const char *headers, const char *body)
{
	struct climbed out = {};
	struct rpc rpc;
	struct ladder_top top;
	const char *reason = nullptr;
	struct call *call = call_of_init(&out.made, headers, body);
	cr_assert_eq(rpc_read(call->body, call->arena, &rpc, &reason), RPC_NONE, "%s: %s", body,
		     reason);
	out.ladder = ladder_climb(call, &rpc, call->arena, &top, &out.refusal);
	return out;
}

HF_TEST(ladder, the_first_rung_that_fails_decides)
{
	for (size_t i = 0; i < countof(rungs); i++) {
		const struct rung *rung = &rungs[i];
		hf_cleanup(climbed) struct climbed got = climb(rung->headers, rung->body);
		cr_assert_eq(got.ladder, rung->ladder, "row %zu: %d %s", i, got.ladder,
			     got.refusal.message ? got.refusal.message : "");
		cr_assert_eq(got.refusal.status, rung->status, "row %zu: %d", i,
			     got.refusal.status);
		cr_assert_eq(got.refusal.code, rung->code, "row %zu: %d", i, got.refusal.code);
	}
}

HF_TEST(ladder, refusals_hold_what_a_client_needs)
{
	static const struct {
		const char *headers, *body, *data;
	} table[] = {
		{ HEADERS_OF("1900-01-01", "tools/list"),
		  REQUEST("tools/list", META_OF("\"1900-01-01\"", "{}")),
		  "{\"supported\":[\"2026-07-28\"],\"requested\":\"1900-01-01\"}" },
		{ "", REQUEST("initialize", "\"protocolVersion\":\"2025-11-25\""),
		  "{\"supported\":[\"2026-07-28\"],\"requested\":\"2025-11-25\"}" },
		{ HEADERS("tasks/get"), REQUEST("tasks/get", META_OF("\"2026-07-28\"", "{}")),
		  "{\"requiredCapabilities\":{\"extensions\":"
		  "{\"io.modelcontextprotocol/tasks\":{}}}}" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(climbed) struct climbed got = climb(table[i].headers, table[i].body);
		cr_assert_eq(got.ladder, LADDER_REFUSED, "row %zu", i);
		cr_assert(slice_is(got.refusal.data, table[i].data), "row %zu", i);
	}
}

HF_TEST(ladder, a_version_as_long_as_a_body_is_not_sent_back)
{
	hf_cleanup(buf) struct buf body = {};
	buf_add_text(&body, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{"
			    "\"protocolVersion\":\"");
	for (int i = 0; i < 10'000; i++)
		buf_add_text(&body, "\\u0001");
	buf_add_text(&body, "\"}}");
	hf_cleanup(climbed) struct climbed got = climb("", body.data);
	cr_assert_eq(got.ladder, LADDER_REFUSED);
	cr_assert_lt(got.refusal.data.len, 500, "%zu", got.refusal.data.len);
}

static struct task_view view_of(enum task_state state)
{
	return (struct task_view){
		.id = { { 1, 1 } },
		.state = state,
		.attempt = 2,
		.created_ms = 1'443'657'600'123,
		.updated_ms = 1'443'657'601'000,
		.result_ttl_ms = 604'800'000,
		.progress = -1,
		.effect_id = slice_of("e\"1"),
	};
}

#define SERVER_INFO                                                                               \
	"\"io.modelcontextprotocol/serverInfo\":{\"name\":\"holdfast\",\"version\":\"" HF_VERSION \
	"\"}"
#define TASK_ID "tsk_AQEAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define TIMES                                         \
	"\"createdAt\":\"2015-10-01T00:00:00.123Z\"," \
	"\"lastUpdatedAt\":\"2015-10-01T00:00:01.000Z\""
#define EFFECT(more)                                                                       \
	"\"dev.holdfast/effect\":{\"effectId\":\"e\\\"1\",\"taskId\":\"" TASK_ID "\"" more \
	",\"attempt\":2}"

HF_TEST(result, a_handle_is_flat_and_says_whether_it_is_a_repeat)
{
	struct task_view view = view_of(TASK_READY);
	view.attempt = 0;
	hf_cleanup(buf) struct buf out = {};
	result_handle(&view, false, 1'500, &out);
	cr_assert_str_eq(out.data,
			 "{\"resultType\":\"task\",\"taskId\":\"" TASK_ID
			 "\",\"status\":\"working\",\"statusMessage\":\"queued\"," TIMES
			 ",\"ttlMs\":null,\"pollIntervalMs\":1500,\"_meta\":{" SERVER_INFO
			 ",\"dev.holdfast/effect\":{\"effectId\":\"e\\\"1\",\"taskId\":\"" TASK_ID
			 "\",\"replayed\":false,\"attempt\":0}}}");

	view = view_of(TASK_COMPLETED);
	view.ended_ms = view.created_ms + 5'000;
	view.result = slice_of("{\"content\":[]}");
	buf_clear(&out);
	result_handle(&view, true, 1'500, &out);
	cr_assert_str_eq(out.data,
			 "{\"resultType\":\"task\",\"taskId\":\"" TASK_ID
			 "\",\"status\":\"completed\"," TIMES
			 ",\"ttlMs\":604805000,\"pollIntervalMs\":1500,\"_meta\":{" SERVER_INFO
			 "," EFFECT(",\"replayed\":true") "}}");
}

HF_TEST(result, a_stored_result_goes_out_byte_for_byte)
{
#define STORED                                                                                \
	"\"content\" : [{\"type\":\"text\",\"text\":\"\\u00e9 } {\"}],\"structuredContent\":" \
	"{\"n\":9007199254740993},\"isError\":false"
	struct task_view view = view_of(TASK_COMPLETED);
	view.ended_ms = view.created_ms + 5'000;
	view.result = slice_of("{" STORED "}");
	view.progress = 1;
	hf_cleanup(buf) struct buf out = {};
	cr_assert(result_task(&view, 1'000, &out));
	cr_assert_str_eq(out.data, "{\"resultType\":\"complete\",\"taskId\":\"" TASK_ID
				   "\",\"status\":\"completed\"," TIMES
				   ",\"ttlMs\":604805000,\"pollIntervalMs\":1000,"
				   "\"result\":{\"resultType\":\"complete\"," STORED
				   ",\"_meta\":{" SERVER_INFO
				   "," EFFECT("") "}},\"_meta\":{" SERVER_INFO "," EFFECT("") "}}");
#undef STORED
	static const char *const bad[] = { "", "{}", "null", "[]", "{" };
	for (size_t i = 0; i < countof(bad); i++) {
		buf_clear(&out);
		view.result = slice_of(bad[i]);
		cr_assert(!result_task(&view, 1'000, &out), "%s", bad[i]);
	}
}

HF_TEST(result, a_plain_call_gets_the_stored_bytes_and_its_effect)
{
	struct task_view view = view_of(TASK_COMPLETED);
	view.result = slice_of(" {\"content\" : [],\"isError\":false}\n");
	hf_cleanup(buf) struct buf out = {};
	cr_assert(result_call(&view, true, &out));
	cr_assert_str_eq(out.data,
			 "{\"resultType\":\"complete\",\"content\" : [],\"isError\":false,"
			 "\"_meta\":{" SERVER_INFO "," EFFECT(",\"replayed\":true") "}}");
	view.result = slice_of("{}");
	cr_assert(!result_call(&view, true, &out));

	static const struct {
		bool is_error;
		const char *structured, *expected;
	} table[] = {
		{ true, "{\"type\":\"t\"}",
		  "\"structuredContent\":{\"type\":\"t\"},\"isError\":true," },
		{ false, nullptr, "\"text\":\"a\\nb\"}],\"isError\":false," },
	};
	for (size_t i = 0; i < countof(table); i++) {
		buf_clear(&out);
		result_about(&view, table[i].is_error, "a\nb", slice_of(table[i].structured), &out);
		cr_assert_eq(json_scan(buf_slice(&out), nullptr), HF_OK, "%s", out.data);
		cr_assert(strstr(out.data, table[i].expected), "%s", out.data);
		cr_assert(strstr(out.data, EFFECT("")), "%s", out.data);
	}
}

HF_TEST(result, a_failed_task_has_its_error_and_no_result)
{
	struct task_view view = view_of(TASK_FAILED);
	view.ended_ms = view.created_ms + 5'000;
	view.error = slice_of("{\"code\":-32603,\"message\":\"gave \\\"up\\\"\","
			      "\"data\":{\"executed\":\"maybe\"}}");
	hf_cleanup(buf) struct buf out = {};
	cr_assert(result_task(&view, 1'000, &out));
	cr_assert_neq(strstr(out.data,
			     "\"status\":\"failed\",\"statusMessage\":\"gave \\\"up\\\"\""),
		      nullptr);
	cr_assert_neq(strstr(out.data,
			     ",\"error\":{\"code\":-32603,\"message\":\"gave \\\"up\\\"\","
			     "\"data\":{\"executed\":\"maybe\"}},"),
		      nullptr);
	cr_assert_eq(strstr(out.data, "\"result\""), nullptr);
	view.error = (struct slice){};
	buf_clear(&out);
	cr_assert(!result_task(&view, 1'000, &out));
}

HF_TEST(result, progress_is_told_while_the_task_is_open)
{
	struct task_view view = view_of(TASK_RUNNING);
	view.progress = 3.0 / 7;
	view.message = slice_of("render: chart 3 of 7");
	hf_cleanup(buf) struct buf out = {};
	cr_assert(result_task(&view, 1'000, &out));
	cr_assert_neq(strstr(out.data, "\"statusMessage\":\"render: chart 3 of 7\""), nullptr);
	cr_assert_neq(strstr(out.data, ",\"dev.holdfast/progress\":0.4286}"), nullptr);

	view.progress = -1;
	buf_clear(&out);
	cr_assert(result_task(&view, 1'000, &out));
	cr_assert_eq(strstr(out.data, "progress"), nullptr);
}

HF_TEST(result, a_status_message_is_about_the_state)
{
	static const struct {
		enum task_state state;
		int attempt;
		const char *message, *told;
	} table[] = {
		{ TASK_READY, 0, "", "queued" },
		{ TASK_READY, 1, "", "waiting for a worker to go on" },
		{ TASK_READY, 0, "waits for its turn", "waits for its turn" },
		{ TASK_RUNNING, 1, "", "running" },
		{ TASK_SCHEDULED, 1, "timed out after 5 ms",
		  "waiting for the next attempt: timed out after 5 ms" },
		{ TASK_SCHEDULED, 1, "", "waiting for the next attempt" },
		{ TASK_CANCELLED, 1, "", "cancelled" },
		{ TASK_CANCELLED, 1, "cancelled; no phase ran", "cancelled; no phase ran" },
		{ TASK_COMPLETED, 1, "", "" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(buf) struct buf scratch = {};
		struct task_view view = view_of(table[i].state);
		view.attempt = table[i].attempt;
		view.message = slice_of(table[i].message);
		cr_assert(slice_is(result_status_message(&view, &scratch), table[i].told),
			  "row %zu", i);
	}
}

HF_TEST(result, what_is_written_is_strict_json)
{
	static const enum task_state states[] = { TASK_READY,    TASK_RUNNING, TASK_WAITING,
						  TASK_UNKNOWN,  TASK_PAUSED,  TASK_COMPLETED,
						  TASK_CANCELLED };
	for (size_t i = 0; i < countof(states); i++) {
		hf_cleanup(buf) struct buf out = {};
		struct task_view view = view_of(states[i]);
		view.message = slice_of("\xff \"quoted\" \x01");
		view.result = slice_of("{\"content\":[]}");
		view.progress = 0.5;
		cr_assert(result_task(&view, 1'000, &out));
		cr_assert_eq(json_scan(buf_slice(&out), nullptr), HF_OK, "%s", out.data);
		buf_clear(&out);
		result_ack(&out);
		cr_assert_eq(json_scan(buf_slice(&out), nullptr), HF_OK);
		buf_clear(&out);
		result_about(nullptr, true, "text \"\n", slice_of("{\"type\":\"t\"}"), &out);
		cr_assert_eq(json_scan(buf_slice(&out), nullptr), HF_OK);
	}
}

HF_TEST(result, times_are_utc_with_milliseconds)
{
	hf_cleanup(buf) struct buf out = {};
	result_add_time(0, &out);
	buf_add_byte(&out, ' ');
	result_add_time(1'791'187'200'007, &out);
	buf_add_byte(&out, ' ');
	result_add_time(-1, &out);
	cr_assert_str_eq(out.data, "1970-01-01T00:00:00.000Z 2026-10-05T08:00:00.007Z "
				   "1969-12-31T23:59:59.999Z");
}
