/* rpc.c - see rpc.h. Called by mcp.c for each body, and by whoever writes an answer. */
#include "api/rpc.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/err.h"
#include "runtime/json.h"

static constexpr char NUL_ESCAPE[] = "\\u0000";
static constexpr size_t NUL_ESCAPE_LEN = sizeof NUL_ESCAPE - 1;

/* A copy with \u0001 for each \u0000. Same length, so that spans of the copy are spans of the
 * original. */
static struct slice without_nul(struct slice body, struct arena *arena)
{
	char *copy = arena_copy(arena, body);
	for (size_t at = 0; at + 1 < body.len; at++) {
		if (copy[at] != '\\')
			continue;
		if (body.len - at >= NUL_ESCAPE_LEN &&
		    memcmp(copy + at, NUL_ESCAPE, NUL_ESCAPE_LEN) == 0)
			copy[at + NUL_ESCAPE_LEN - 1] = '1';
		at++; /* the escaped byte, which may be a backslash itself */
	}
	return (struct slice){ copy, body.len };
}

static bool is_integer(struct slice number)
{
	int64_t value;
	if (json_integer(number, &value))
		return true;

	/* Beyond 64 bits: still an integer where it is spelt as one. */
	for (size_t i = number.data[0] == '-'; i < number.len; i++)
		if (number.data[i] < '0' || number.data[i] > '9')
			return false;
	return true;
}

static const char *id_fault(struct slice id)
{
	switch (json_type_of(id)) {
	case JSON_STRING:
		break;
	case JSON_NUMBER:
		if (!is_integer(id))
			return "id must be a string or an integer";
		break;
	case JSON_NULL:
	case JSON_FALSE:
	case JSON_TRUE:
	case JSON_ARRAY:
	case JSON_OBJECT:
		return "id must be a string or an integer";
	}
	return id.len > RPC_ID_BYTES_MAX ? "id is too long" : nullptr;
}

static const char *envelope_fault(struct slice message, struct slice *method)
{
	struct slice version, other;
	if (!json_member(message, "jsonrpc", &version) || !json_string_is(version, "2.0"))
		return "jsonrpc must be \"2.0\"";
	if (!json_member(message, "method", method)) {
		if (json_member(message, "result", &other) || json_member(message, "error", &other))
			return "responses are not accepted here";
		return "method is missing";
	}
	return json_type_of(*method) == JSON_STRING ? nullptr : "method must be a string";
}

static enum rpc_code refuse(const char *text, const char **reason)
{
	*reason = text;
	return RPC_INVALID_REQUEST;
}

/* `message` may be a copy of `body` of equal length, see without_nul. */
static enum rpc_code read_message(struct slice body, struct slice message, struct arena *arena,
				  struct rpc *out, const char **reason)
{
	const char *base = message.data;
	message = json_trim(message);
	if (json_type_of(message) == JSON_ARRAY)
		return refuse("batches are not accepted: one message a request", reason);
	if (json_type_of(message) != JSON_OBJECT)
		return refuse("the body must be one JSON-RPC object", reason);

	struct slice id;
	out->notification = !json_member(message, "id", &id);
	if (!out->notification) {
		const char *fault = id_fault(id);
		if (fault)
			return refuse(fault, reason);
		out->id = (struct slice){ body.data + (id.data - base), id.len };
	}

	struct slice method;
	const char *fault = envelope_fault(message, &method);
	if (fault)
		return refuse(fault, reason);
	out->method = json_string_copy(method, arena);

	if (!json_member(message, "params", &out->params))
		out->params = (struct slice){};
	if (out->params.len && json_type_of(out->params) != JSON_OBJECT) {
		*reason = "params must be an object";
		return RPC_INVALID_PARAMS;
	}
	return RPC_NONE;
}

enum rpc_code rpc_read(struct slice body, struct arena *arena, struct rpc *out, const char **reason)
{
	*out = (struct rpc){};

	struct hf_err err = {};
	struct json_quirks quirks;
	if (json_scan_quirks(body, &quirks, &err) != HF_OK) {
		*reason = arena_strdup(arena, err.text);
		return RPC_PARSE;
	}
	if (quirks.duplicate) {
		*reason = arena_format(arena, "byte %zu: a member of the same name once more",
				       quirks.duplicate_at);
		return RPC_INVALID_REQUEST;
	}
	out->holds_nul = quirks.nul;
	struct slice message = quirks.nul ? without_nul(body, arena) : body;
	return read_message(body, message, arena, out, reason);
}

static void open_message(struct slice id, struct buf *out)
{
	buf_add_text(out, "{\"jsonrpc\":\"2.0\"");
	if (!id.len)
		return;
	buf_add_text(out, ",\"id\":");
	buf_add_slice(out, id);
}

void rpc_begin(struct slice id, struct buf *out)
{
	hf_assert(id.len > 0);

	open_message(id, out);
	buf_add_text(out, ",\"result\":");
}

void rpc_end(struct buf *out)
{
	buf_add_byte(out, '}');
}

void rpc_error(struct slice id, enum rpc_code code, const char *message, struct slice data,
	       struct buf *out)
{
	hf_assert(code != RPC_NONE);

	open_message(id, out);
	buf_add_format(out, ",\"error\":{\"code\":%d,\"message\":", (int)code);
	json_string_encode(slice_of(message), out);
	if (data.len) {
		buf_add_text(out, ",\"data\":");
		buf_add_slice(out, data);
	}
	buf_add_text(out, "}}");
}

void rpc_error_stored(struct slice id, struct slice error, struct buf *out)
{
	open_message(id, out);
	buf_add_text(out, ",\"error\":");
	buf_add_slice(out, error);
	buf_add_byte(out, '}');
}
