/* ladder.c - see ladder.h. Called by mcp.c. Nothing was stored and nothing may have happened when
 * any of these refuses. */
#include "api/ladder.h"

#include "api/headers.h"
#include "runtime/base.h"
#include "runtime/input.h"
#include "runtime/json.h"

#define META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"

static const struct {
	const char *name, *name_param;
	bool name_required, needs_tasks;
} methods[] = {
#define METHOD(id, name, name_param, name_required, needs_tasks, ...) \
	{ name, name_param, name_required, needs_tasks },
#include "api/methods.def"
#undef METHOD
};
static_assert(countof(methods) == METHODS_COUNT);

const char *method_name(enum method method)
{
	hf_assert(method < METHODS_COUNT);

	return methods[method].name;
}

void refusal_set(struct refusal *refusal, int status, enum rpc_code code, const char *message)
{
	*refusal = (struct refusal){ .status = status, .code = code, .message = message };
}

void refusal_set_tasks(struct refusal *refusal)
{
	refusal_set(refusal, 400, RPC_MISSING_CAPABILITY, "Missing required client capability");
	refusal->data =
	    slice_of("{\"requiredCapabilities\":{\"extensions\":{\"" MCP_TASKS "\":{}}}}");
}

static enum ladder refuse(struct refusal *refusal, int status, enum rpc_code code,
			  const char *message)
{
	refusal_set(refusal, status, code, message);
	return LADDER_REFUSED;
}

bool ladder_origin(const struct call *call, const struct gate *gate, struct refusal *refusal)
{
	struct slice host = {}, origin;
	size_t count = 0;
	call_header(call, "Host", &host, nullptr);
	if (!call_header(call, "Origin", &origin, &count))
		return true;
	if (count == 1 &&
	    header_origin_allowed(origin, gate->allowed_origins, host, gate->allowed_hosts))
		return true;
	refusal_set(refusal, 403, RPC_INVALID_REQUEST,
		    "This Origin is not allowed; the setting allowed-origins names those that are");
	return false;
}

/* HTTP/1.0 may come without a Host; a browser, whose name may be rebound, never does. */
static bool host_fits(const struct call *call, const struct gate *gate)
{
	struct slice host;
	return !call_header(call, "Host", &host, nullptr) ||
	       header_host_allowed(host, gate->allowed_hosts);
}

bool ladder_gate(const struct call *call, const struct gate *gate, struct refusal *refusal)
{
	struct slice value;
	size_t count = 0;
	if (!host_fits(call, gate)) {
		refusal_set(
		    refusal, 403, RPC_INVALID_REQUEST,
		    "This Host is not served here; the setting allowed-hosts names those that are");
		return false;
	}
	if (!slice_is(call->method, "POST")) {
		refusal_set(refusal, 405, RPC_INVALID_REQUEST, "Only POST is served here");
		refusal->extra = "Allow: POST\r\n";
		return false;
	}
	if (!call_header(call, "Content-Type", &value, &count) || count != 1 ||
	    !header_is_json(value)) {
		refusal_set(refusal, 415, RPC_INVALID_REQUEST,
			    "Content-Type must be application/json");
		return false;
	}
	if (!header_accepts_json(call)) {
		refusal_set(refusal, 406, RPC_INVALID_REQUEST,
			    "Accept must let application/json in");
		return false;
	}
	return true;
}

constexpr size_t REQUESTED_LEN_MAX = 64;

static enum ladder refuse_version(struct arena *arena, struct slice requested,
				  struct refusal *refusal)
{
	hf_cleanup(buf) struct buf data = {};
	/* As long as a body: of no use to whoever sent it. */
	if (requested.len > REQUESTED_LEN_MAX)
		requested.len = REQUESTED_LEN_MAX;
	buf_add_text(&data, "{\"supported\":[\"" MCP_REVISION "\"],\"requested\":");
	json_string_encode(requested, &data);
	buf_add_byte(&data, '}');
	refusal_set(refusal, 400, RPC_UNSUPPORTED_VERSION, "Unsupported protocol version");
	refusal->data = arena_slice(arena, buf_slice(&data));
	return LADDER_REFUSED;
}

static bool is_modern(struct slice version)
{
	return slice_is(version, MCP_REVISION);
}

/* A request whose body does not claim the revision: A21, for a server that has no other. */
static enum ladder climb_unclaimed(const struct call *call, const struct rpc *rpc,
				   struct arena *arena, struct refusal *refusal)
{
	struct slice header = {}, requested;
	bool named = call_header(call, "MCP-Protocol-Version", &header, nullptr);
	if (slice_is(rpc->method, "initialize")) {
		if (named && is_modern(header))
			return refuse(refusal, 400, RPC_HEADER_MISMATCH,
				      "Header mismatch: MCP-Protocol-Version names a revision that "
				      "the body does not claim in params._meta");
		if (json_member(rpc->params, "protocolVersion", &requested) &&
		    json_type_of(requested) == JSON_STRING)
			header = json_string_copy(requested, arena);
		return refuse_version(arena, header, refusal);
	}
	if (named && !is_modern(header))
		return refuse_version(arena, header, refusal);
	return refuse(refusal, 400, RPC_INVALID_PARAMS,
		      "params._meta needs \"" META_VERSION "\" and \"" META_CAPABILITIES "\"");
}

/* One header that repeats a value of the body: there, once, equal. `wrapped`: perhaps in base64. */
static bool header_repeats(const struct call *call, const char *name, bool wrapped,
			   struct slice body, struct arena *arena, struct refusal *refusal)
{
	struct slice value;
	size_t count = 0;
	const char *fault = nullptr;
	if (!call_header(call, name, &value, &count))
		fault = "is missing";
	else if (count != 1)
		fault = "stands twice";
	else if (wrapped && !header_decode(value, arena, &value))
		fault = "cannot be decoded";
	else if (!slice_equal(value, body))
		fault = "differs from the body";
	if (fault)
		refusal_set(refusal, 400, RPC_HEADER_MISMATCH,
			    arena_format(arena, "Header mismatch: %s %s", name, fault));
	return !fault;
}

static bool name_fits(const struct call *call, const struct rpc *rpc, enum method method,
		      struct arena *arena, struct refusal *refusal)
{
	struct slice body, value;
	const char *param = methods[method].name_param;
	if (!param || !json_member(rpc->params, param, &body) || json_type_of(body) != JSON_STRING)
		return true; /* a missing parameter is the method's own to refuse */
	if (!methods[method].name_required && !call_header(call, "Mcp-Name", &value, nullptr))
		return true;
	return header_repeats(call, "Mcp-Name", true, json_string_copy(body, arena), arena,
			      refusal);
}

static bool find_method(struct slice name, enum method *method)
{
	for (size_t i = 0; i < countof(methods); i++) {
		if (slice_is(name, methods[i].name)) {
			*method = (enum method)i;
			return true;
		}
	}
	return false;
}

/* `version`: as the body claims it, decoded. */
static enum ladder climb_headers(const struct call *call, const struct rpc *rpc,
				 struct slice version, struct arena *arena, struct ladder_top *top,
				 struct refusal *refusal)
{
	if (!header_repeats(call, "MCP-Protocol-Version", false, version, arena, refusal) ||
	    !header_repeats(call, "Mcp-Method", false, rpc->method, arena, refusal))
		return LADDER_REFUSED;

	bool known = find_method(rpc->method, &top->method);
	if (known && !name_fits(call, rpc, top->method, arena, refusal))
		return LADDER_REFUSED;
	if (!is_modern(version))
		return refuse_version(arena, version, refusal);
	if (!known)
		return refuse(refusal, 404, RPC_METHOD_NOT_FOUND, "Method not found");
	return LADDER_GO_ON;
}

static bool declares_tasks(struct slice capabilities)
{
	struct slice extensions, tasks;
	return json_member(capabilities, "extensions", &extensions) &&
	       json_member(extensions, MCP_TASKS, &tasks) && json_type_of(tasks) == JSON_OBJECT;
}

static enum ladder climb_request(const struct call *call, const struct rpc *rpc,
				 struct arena *arena, struct ladder_top *top,
				 struct refusal *refusal)
{
	struct slice version, capabilities;
	if (!json_member(rpc->params, "_meta", &top->meta) ||
	    !json_member(top->meta, META_VERSION, &version))
		return climb_unclaimed(call, rpc, arena, refusal);
	if (json_type_of(version) != JSON_STRING)
		return refuse(refusal, 400, RPC_INVALID_PARAMS,
			      "params._meta: \"" META_VERSION "\" must be a string");
	if (!json_member(top->meta, META_CAPABILITIES, &capabilities) ||
	    json_type_of(capabilities) != JSON_OBJECT)
		return refuse(refusal, 400, RPC_INVALID_PARAMS,
			      "params._meta needs the object \"" META_CAPABILITIES "\"");

	enum ladder ladder =
	    climb_headers(call, rpc, json_string_copy(version, arena), arena, top, refusal);
	if (ladder != LADDER_GO_ON)
		return ladder;

	top->capabilities = capabilities;
	top->declares_tasks = declares_tasks(capabilities);
	top->asks = input_declared(capabilities);
	if (methods[top->method].needs_tasks && !top->declares_tasks) {
		refusal_set_tasks(refusal);
		return LADDER_REFUSED;
	}
	/* tools/call looks at its effect ID first. */
	if (rpc->holds_nul && top->method != METHOD_TOOLS_CALL)
		return refuse(refusal, 200, RPC_INVALID_PARAMS,
			      "Strings must not hold NUL (U+0000)");
	return LADDER_GO_ON;
}

enum ladder ladder_climb(const struct call *call, const struct rpc *rpc, struct arena *arena,
			 struct ladder_top *top, struct refusal *refusal)
{
	*top = (struct ladder_top){};
	if (!rpc->notification)
		return climb_request(call, rpc, arena, top, refusal);

	/* No notification of a client means anything to this server (A1.7). */
	struct slice header;
	if (call_header(call, "MCP-Protocol-Version", &header, nullptr) && !is_modern(header))
		return refuse_version(arena, header, refusal);
	return LADDER_NOTIFIED;
}
