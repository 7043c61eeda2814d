/* The envelope: what is one request, what is none, and that an id comes back as it was sent. */
#include "api/rpc.h"

#include <string.h>

#include "runtime/base.h"
#include "test/test.h"

struct envelope {
	struct arena *arena;
	struct rpc rpc;
	enum rpc_code code;
	const char *reason;
};

static void hf_cleanup_envelope(struct envelope *envelope)
{
	arena_free(envelope->arena);
}

static struct envelope read_body(const char *body)
{
	struct envelope out = { .arena = arena_new(1 << 20) };
	out.code = rpc_read(slice_of(body), out.arena, &out.rpc, &out.reason);
	return out;
}

static const struct {
	const char *body;
	enum rpc_code code;
	const char *id; /* as it must be echoed; "" none */
} bodies[] = {
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}", RPC_NONE, "1" },
	{ " {\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"a\",\"params\":{}} ", RPC_NONE, "0" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":\"0\",\"method\":\"a\"}", RPC_NONE, "\"0\"" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":\"\",\"method\":\"a\"}", RPC_NONE, "\"\"" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":-7,\"method\":\"a\"}", RPC_NONE, "-7" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"a\"}", RPC_NONE,
	  "9007199254740993" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":123456789012345678901234567890,\"method\":\"a\"}", RPC_NONE,
	  "123456789012345678901234567890" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":\"\\u0061\\n\",\"method\":\"a\"}", RPC_NONE,
	  "\"\\u0061\\n\"" },
	{ "{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", RPC_NONE, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0000b\",\"method\":\"a\"}", RPC_NONE,
	  "\"a\\u0000b\"" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"a\"}", RPC_INVALID_REQUEST, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"a\"}", RPC_INVALID_REQUEST, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"a\"}", RPC_INVALID_REQUEST, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"a\"}", RPC_INVALID_REQUEST, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"a\"}", RPC_INVALID_REQUEST, "" },
	{ "{\"id\":1,\"method\":\"a\"}", RPC_INVALID_REQUEST, "1" },
	{ "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"a\"}", RPC_INVALID_REQUEST, "1" },
	{ "{\"jsonrpc\":2.0,\"id\":1,\"method\":\"a\"}", RPC_INVALID_REQUEST, "1" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1}", RPC_INVALID_REQUEST, "1" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", RPC_INVALID_REQUEST, "1" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", RPC_INVALID_REQUEST, "1" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"Method\":\"a\"}", RPC_INVALID_REQUEST, "1" },
	{ "[]", RPC_INVALID_REQUEST, "" },
	{ "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}]", RPC_INVALID_REQUEST, "" },
	{ "\"text\"", RPC_INVALID_REQUEST, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":[]}", RPC_INVALID_PARAMS,
	  "1" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":null}", RPC_INVALID_PARAMS,
	  "1" },
	{ "", RPC_PARSE, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"", RPC_PARSE, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}x", RPC_PARSE, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"a\"}", RPC_INVALID_REQUEST, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\"a\":1,\"\\u0061\":1}}",
	  RPC_INVALID_REQUEST, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"a\"", RPC_PARSE, "" },
	{ "\xef\xbb\xbf{}", RPC_PARSE, "" },
	{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", RPC_PARSE, "" },
	{ "{\"a\":\"\\u0000\",}", RPC_PARSE, "" },
};

HF_TEST(rpc, one_request_is_told_from_anything_else)
{
	for (size_t i = 0; i < countof(bodies); i++) {
		hf_cleanup(envelope) struct envelope got = read_body(bodies[i].body);
		cr_assert_eq(got.code, bodies[i].code, "%s: %d", bodies[i].body, got.code);
		cr_assert_eq(got.code == RPC_NONE, !got.reason, "%s", bodies[i].body);
		cr_assert(slice_is(got.rpc.id, bodies[i].id), "%s: %.*s", bodies[i].body,
			  (int)got.rpc.id.len, got.rpc.id.data);
	}
}

HF_TEST(rpc, only_a_body_without_an_id_is_a_notification)
{
	hf_cleanup(envelope) struct envelope without =
	    read_body("{\"jsonrpc\":\"2.0\",\"method\":\"a\"}");
	cr_assert_eq(without.code, RPC_NONE);
	cr_assert(without.rpc.notification);
	hf_cleanup(envelope) struct envelope with =
	    read_body("{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"a\\u0062\"}");
	cr_assert_eq(with.code, RPC_NONE);
	cr_assert(!with.rpc.notification);
	cr_assert(slice_is(with.rpc.method, "ab"));
}

HF_TEST(rpc, an_escaped_nul_is_noticed_and_an_escaped_backslash_is_not_taken_for_one)
{
	static const struct {
		const char *body;
		bool nul;
	} table[] = {
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"x\\u0000\"}}",
		  true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":"
		  "\"\\\\\\u0000\"}}",
		  true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"\\\\u0000\"}"
		  "}",
		  false },
	};
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(envelope) struct envelope got = read_body(table[i].body);
		cr_assert_eq(got.code, RPC_NONE);
		cr_assert_eq(got.rpc.holds_nul, table[i].nul, "%s", table[i].body);
	}
}

HF_TEST(rpc, only_the_nul_itself_is_read_as_another)
{
	hf_cleanup(envelope) struct envelope got =
	    read_body("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\","
		      "\"params\":{\"a\":\"\\\\u0000\\u0000\"}}");
	cr_assert_eq(got.code, RPC_NONE);
	cr_assert(slice_is(got.rpc.params, "{\"a\":\"\\\\u0000\\u0001\"}"));
}

HF_TEST(rpc, an_id_that_is_too_long_to_echo_is_refused)
{
	hf_cleanup(buf) struct buf body = {};
	buf_add_text(&body, "{\"jsonrpc\":\"2.0\",\"id\":\"");
	for (size_t i = 0; i < RPC_ID_BYTES_MAX; i++)
		buf_add_byte(&body, 'x');
	buf_add_text(&body, "\",\"method\":\"a\"}");
	hf_cleanup(envelope) struct envelope got = read_body(body.data);
	cr_assert_eq(got.code, RPC_INVALID_REQUEST);
	cr_assert_eq(got.rpc.id.len, 0);
}

HF_TEST(rpc, answers_hold_the_id_as_it_came_or_none)
{
	hf_cleanup(buf) struct buf out = {};
	rpc_begin(slice_of("1e2"), &out);
	buf_add_text(&out, "{}");
	rpc_end(&out);
	cr_assert_str_eq(out.data, "{\"jsonrpc\":\"2.0\",\"id\":1e2,\"result\":{}}");

	buf_clear(&out);
	rpc_error((struct slice){}, RPC_PARSE, "a \"b\"", (struct slice){}, &out);
	cr_assert_str_eq(out.data, "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,"
				   "\"message\":\"a \\\"b\\\"\"}}");

	buf_clear(&out);
	rpc_error(slice_of("\"x\""), RPC_CONFLICT, "m", slice_of("{\"a\":1}"), &out);
	cr_assert_str_eq(out.data, "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"error\":{\"code\":1409,"
				   "\"message\":\"m\",\"data\":{\"a\":1}}}");
}

HF_TEST(rpc, a_stored_error_goes_out_as_it_is)
{
	hf_cleanup(buf) struct buf out = {};
	rpc_error_stored(slice_of("7"), slice_of("{\"code\" : 1,\"message\":\"m\"}"), &out);
	cr_assert_str_eq(out.data, "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\" : "
				   "1,\"message\":\"m\"}}");
}
