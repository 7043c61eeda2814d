/* mcp.c - see mcp.h. Called by serve.c for each POST to the endpoint. The order of what stands here
 * is the order of protocol page A7: Host and Origin, verb, media types, (body size: conn.c), token,
 * JSON, envelope, then ladder.c. */
#include "api/mcp.h"

#include "api/auth.h"
#include "runtime/arena.h"
#include "runtime/base.h"
#include "runtime/log.h"

static void (*const handlers[])(struct request *request) = {
#define METHOD(id, name, name_param, name_required, needs_tasks, handler) mcp_##handler,
#include "api/methods.def"
#undef METHOD
};
static_assert(countof(handlers) == METHODS_COUNT);

static void refuse_token(struct call *call, enum auth_answer answer)
{
	static const struct {
		const char *reason; /* for the log */
		int status;
		enum rpc_code code;
		const char *message, *extra;
	} table[] = {
		[AUTH_MISSING] = { "no token", 401, RPC_INVALID_REQUEST,
				   "A bearer token is needed: Authorization: Bearer TOKEN",
				   "WWW-Authenticate: Bearer\r\n" },
		[AUTH_MALFORMED] = { "malformed", 400, RPC_INVALID_REQUEST,
				     "Authorization is malformed: it comes once, as Bearer TOKEN",
				     "WWW-Authenticate: Bearer error=\"invalid_request\"\r\n" },
		[AUTH_UNKNOWN] = { "unknown token", 401, RPC_INVALID_REQUEST,
				   "The bearer token is not known here",
				   "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n" },
		[AUTH_FULL] = { "too many principals", 503, RPC_INTERNAL,
				"Nothing was run: too many callers at once; try again shortly",
				RETRY_AFTER },
	};
	hf_assert(answer != AUTH_KNOWN);

	struct refusal refusal = {};
	refusal_set(&refusal, table[answer].status, table[answer].code, table[answer].message);
	refusal.extra = table[answer].extra;
	log_warn("authentication refused", "reason", table[answer].reason, nullptr);
	call_refuse(call, (struct slice){}, &refusal);
}

/* This server keeps no sessions, so whoever names one has lost it: a client of an older revision
 * that was moved here, say. */
static void log_session(const struct call *call, const struct refusal *refusal)
{
	struct slice session;
	if (refusal->status != 405 && refusal->code != RPC_UNSUPPORTED_VERSION &&
	    refusal->code != RPC_INVALID_PARAMS)
		return;
	if (call_header(call, "Mcp-Session-Id", &session, nullptr))
		log_info("session not found", "cause", "session_not_found", nullptr);
}

/* The token is known and the request is pinned to its principal. */
static void climb(struct request *request)
{
	struct refusal refusal = {};
	const char *reason = nullptr;
	enum rpc_code code =
	    rpc_read(request->call->body, request->call->arena, &request->rpc, &reason);
	if (code != RPC_NONE) {
		const char *kind = code == RPC_PARSE            ? "Parse error"
				   : code == RPC_INVALID_PARAMS ? "Invalid params"
								: "Invalid request";
		refusal_set(&refusal, 400, code,
			    arena_format(request->call->arena, "%s: %s", kind, reason));
		request_refuse(request, &refusal);
		return;
	}

	switch (ladder_climb(request->call, &request->rpc, request->call->arena, &request->top,
			     &refusal)) {
	case LADDER_REFUSED:
		log_session(request->call, &refusal);
		request_refuse(request, &refusal);
		return;
	case LADDER_NOTIFIED:
		request_acknowledge(request);
		return;
	case LADDER_GO_ON:
		break;
	}
	handlers[request->top.method](request);
}

void mcp_call(struct api *api, struct call *call)
{
	struct refusal refusal = {};
	if (!ladder_gate(call, &api->gate, &refusal)) {
		log_session(call, &refusal);
		call_refuse(call, (struct slice){}, &refusal);
		return;
	}

	struct request *request = arena_alloc(call->arena, sizeof *request);
	request->call = call;
	request->api = api;
	enum auth_answer answer = auth_check(api->auth, call, &request->principal);
	if (answer != AUTH_KNOWN) {
		refuse_token(call, answer);
		return;
	}
	climb(request);
}
