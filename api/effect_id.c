/* effect_id.c - see effect_id.h. Called by tools.c for each tools/call. Text is never cut and never
 * changed: what is no effect ID is refused. */
#include "api/effect_id.h"

#include "api/http_text.h"
#include "runtime/base.h"
#include "runtime/json.h"

const char *effect_carrier_name(enum effect_carrier carrier)
{
	switch (carrier) {
	case EFFECT_CARRIER_PARAM:
		return "params.idempotencyKey";
	case EFFECT_CARRIER_META:
		return "params._meta[\"dev.holdfast/effect-id\"]";
	case EFFECT_CARRIER_ARGUMENT:
		return "arguments.effect_id";
	case EFFECT_CARRIER_HEADER:
		break;
	case EFFECT_CARRIER_FALLBACK:
		return "the member of params._meta that the tool names";
	}
	return "Idempotency-Key";
}

bool effect_id_valid(struct slice text)
{
	return text.len <= EFFECT_ID_LEN_MAX && text_is_visible(text);
}

enum found { NOTHING, TEXT, NO_TEXT };

static enum found read_json(struct slice object, const char *name, struct arena *arena,
			    struct slice *text)
{
	struct slice value;
	if (!json_member(object, name, &value))
		return NOTHING;
	if (json_type_of(value) != JSON_STRING)
		return NO_TEXT;
	*text = json_string_copy(value, arena);
	return TEXT;
}

/* A string as in RFC 8941, "…" with \" and \\, or the bare value. */
static enum found read_quoted(struct slice value, struct arena *arena, struct slice *text)
{
	if (value.len < 2 || value.data[value.len - 1] != '"')
		return NO_TEXT;

	char *bytes = arena_alloc(arena, value.len);
	size_t len = 0;
	for (size_t i = 1; i < value.len - 1; i++) {
		char byte = value.data[i];
		if (byte == '"')
			return NO_TEXT;
		if (byte == '\\') {
			if (++i == value.len - 1)
				return NO_TEXT;
			byte = value.data[i];
			if (byte != '"' && byte != '\\')
				return NO_TEXT;
		}
		bytes[len++] = byte;
	}
	*text = (struct slice){ bytes, len };
	return TEXT;
}

static enum found read_header(const struct call *call, struct arena *arena, struct slice *text)
{
	struct slice value;
	size_t count = 0;
	if (!call_header(call, "Idempotency-Key", &value, &count))
		return NOTHING;
	if (count != 1)
		return NO_TEXT;
	if (value.len && value.data[0] == '"')
		return read_quoted(value, arena, text);
	*text = arena_slice(arena, value);
	return TEXT;
}

static enum found read_carrier(enum effect_carrier carrier, const struct call *call,
			       struct slice params, struct slice arguments, struct arena *arena,
			       struct slice *text)
{
	struct slice meta = {};
	switch (carrier) {
	case EFFECT_CARRIER_PARAM:
		return read_json(params, "idempotencyKey", arena, text);
	case EFFECT_CARRIER_META:
		json_member(params, "_meta", &meta);
		return read_json(meta, "dev.holdfast/effect-id", arena, text);
	case EFFECT_CARRIER_ARGUMENT:
		return read_json(arguments, "effect_id", arena, text);
	case EFFECT_CARRIER_FALLBACK:
		return NOTHING;
	case EFFECT_CARRIER_HEADER:
		break;
	}
	return read_header(call, arena, text);
}

enum effect_answer effect_id_read(const struct call *call, struct slice params,
				  struct slice arguments, struct arena *arena,
				  struct effect_id *out)
{
	*out = (struct effect_id){};

	for (int i = 0; i < EFFECT_CARRIERS; i++) {
		enum effect_carrier carrier = (enum effect_carrier)i;
		struct slice text = {};
		enum found found = read_carrier(carrier, call, params, arguments, arena, &text);
		if (found == NOTHING)
			continue;
		if (found == NO_TEXT || !effect_id_valid(text)) {
			out->carrier = carrier;
			return EFFECT_INVALID;
		}
		if (out->text.len && !slice_equal(out->text, text)) {
			out->first = out->carrier;
			out->carrier = carrier;
			return EFFECT_AMBIGUOUS;
		}
		if (!out->text.len)
			out->carrier = carrier;
		out->text = text;
		out->in_arguments = out->in_arguments || carrier == EFFECT_CARRIER_ARGUMENT;
	}
	return out->text.len ? EFFECT_FOUND : EFFECT_ABSENT;
}

enum effect_answer effect_id_read_fallback(struct slice params, const char *name,
					   struct arena *arena, struct effect_id *out)
{
	struct slice meta = {}, text = {};
	*out = (struct effect_id){ .carrier = EFFECT_CARRIER_FALLBACK };
	json_member(params, "_meta", &meta);
	enum found found = read_json(meta, name, arena, &text);
	if (found == NOTHING)
		return EFFECT_ABSENT;
	if (found == NO_TEXT || !effect_id_valid(text))
		return EFFECT_INVALID;
	out->text = text;
	return EFFECT_FOUND;
}

const char *effect_id_mint(char text[static EFFECT_ID_MINTED_LEN + 1])
{
	const struct uuid fresh = uuid_new();
	return uuid_format(&fresh, text);
}

void effect_id_merge(struct slice arguments, struct slice effect_id, struct buf *out)
{
	struct slice member;
	if (json_member(arguments, "effect_id", &member)) {
		buf_add_slice(out, arguments);
		return;
	}

	buf_add_text(out, "{\"effect_id\":");
	json_string_encode(effect_id, out);
	struct slice rest = arguments.len
				? json_trim((struct slice){ arguments.data + 1, arguments.len - 1 })
				: slice_of("}");
	if (rest.data[0] != '}')
		buf_add_byte(out, ',');
	buf_add_slice(out, rest);
}
