/* headers.c - see headers.h. */
#include "api/headers.h"

#include <stdint.h>
#include <string.h>

#include "api/http_text.h"
#include "runtime/base.h"

/* The next piece up to `mark`, trimmed, with quoted strings skipped; false at the end. */
static bool next_piece(struct slice *rest, char mark, struct slice *piece)
{
	if (!rest->data)
		return false;

	bool quoted = false;
	size_t at = 0;
	for (; at < rest->len && (quoted || rest->data[at] != mark); at++) {
		if (rest->data[at] == '"')
			quoted = !quoted;
		else if (quoted && rest->data[at] == '\\')
			at++;
	}
	at = at < rest->len ? at : rest->len;
	*piece = slice_trim((struct slice){ rest->data, at });
	*rest = at < rest->len ? (struct slice){ rest->data + at + 1, rest->len - at - 1 }
			       : (struct slice){};
	return true;
}

bool header_is_json(struct slice content_type)
{
	struct slice type;
	return next_piece(&content_type, ';', &type) && text_is_any_case(type, "application/json");
}

/* The media ranges that name a type, the closest last. */
constexpr int RANGES = 3;
static const char *const json_ranges[RANGES] = { "*/*", "application/*", "application/json" };
static const char *const event_ranges[RANGES] = { "*/*", "text/*", "text/event-stream" };

/* How closely a media range names the type: 0 not at all, RANGES exactly. */
static int closeness(const char *const *ranges, struct slice range)
{
	for (int i = 0; i < RANGES; i++)
		if (text_is_any_case(range, ranges[i]))
			return i + 1;
	return 0;
}

/* q=0, q=0., q=0.000: not acceptable. */
static bool is_zero_weight(struct slice parameter)
{
	if (parameter.len < 3 || !text_begins_any_case(parameter, slice_of("q=")))
		return false;
	for (size_t i = 2; i < parameter.len; i++)
		if (parameter.data[i] != '0' && parameter.data[i] != '.')
			return false;
	return true;
}

struct accept {
	const char *const *ranges;
	int closest;
	bool wanted;
};

static void read_range(struct slice piece, struct accept *accept)
{
	struct slice range, parameter;
	if (!next_piece(&piece, ';', &range))
		return;
	int close = closeness(accept->ranges, range);
	if (close == 0 || close < accept->closest)
		return;

	bool wanted = true;
	while (next_piece(&piece, ';', &parameter))
		wanted = wanted && !is_zero_weight(parameter);
	accept->wanted = wanted || (close == accept->closest && accept->wanted);
	accept->closest = close;
}

static bool accepts(const struct call *call, const char *const *ranges)
{
	struct accept accept = { .ranges = ranges };
	bool present = false;
	for (size_t i = 0; i < call->headers_count; i++) {
		struct slice rest = call->headers[i].value, piece;
		if (!text_is_any_case(call->headers[i].name, "accept"))
			continue;
		present = present || rest.len > 0;
		while (next_piece(&rest, ',', &piece))
			read_range(piece, &accept);
	}
	return !present || accept.wanted;
}

bool header_accepts_json(const struct call *call)
{
	return accepts(call, json_ranges);
}

bool header_accepts_events(const struct call *call)
{
	return accepts(call, event_ranges);
}

static bool host_name(struct slice host, struct slice *name)
{
	const char *end =
	    host.len && host.data[0] == '[' ? memchr(host.data, ']', host.len) : nullptr;
	const char *colon = end ? end + 1 : host.len ? memchr(host.data, ':', host.len) : nullptr;
	size_t len = colon ? (size_t)(colon - host.data) : host.len;
	for (size_t i = len; i < host.len; i++) {
		bool fits =
		    i == len ? host.data[i] == ':' : host.data[i] >= '0' && host.data[i] <= '9';
		if (!fits)
			return false;
	}
	*name = (struct slice){ host.data, len };
	return len > 0;
}

static bool host_listed(struct slice host, const char *allowed, bool wildcard)
{
	struct slice name, rest = slice_of(allowed), piece;
	if (!host_name(host, &name))
		return false;
	while (next_piece(&rest, ',', &piece))
		if (slice_is(piece, "*") ? wildcard : text_equal_any_case(piece, name))
			return true;
	return false;
}

bool header_host_allowed(struct slice host, const char *allowed)
{
	return host_listed(host, allowed, true);
}

static bool is_own_origin(struct slice origin, struct slice host)
{
	static const char *const schemes[] = { "http://", "https://" };
	for (size_t i = 0; i < countof(schemes); i++) {
		size_t len = strlen(schemes[i]);
		if (origin.len >= len && memcmp(origin.data, schemes[i], len) == 0 &&
		    text_equal_any_case((struct slice){ origin.data + len, origin.len - len },
					host))
			return true;
	}
	return false;
}

bool header_origin_allowed(struct slice origin, const char *allowed, struct slice host,
			   const char *allowed_hosts)
{
	struct slice rest = slice_of(allowed), piece;
	while (next_piece(&rest, ',', &piece))
		if (piece.len && (slice_equal(piece, origin) || slice_is(piece, "*")))
			return true;
	return host.len && is_own_origin(origin, host) && host_listed(host, allowed_hosts, false);
}

static int base64_value(char digit)
{
	if (digit >= 'A' && digit <= 'Z')
		return digit - 'A';
	if (digit >= 'a' && digit <= 'z')
		return digit - 'a' + 26;
	if (digit >= '0' && digit <= '9')
		return digit - '0' + 52;
	return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

/* Padded, without any other byte, and with zero bits behind the last: one spelling a value. */
static bool base64_decode(struct slice text, struct arena *arena, struct slice *out)
{
	if (text.len % 4 != 0)
		return false;
	size_t pad = 0;
	while (pad < 2 && pad < text.len && text.data[text.len - 1 - pad] == '=')
		pad++;

	char *bytes = arena_alloc(arena, text.len / 4 * 3 + 1);
	size_t len = 0;
	uint32_t bits = 0;
	unsigned count = 0;
	for (size_t i = 0; i < text.len - pad; i++) {
		int value = base64_value(text.data[i]);
		if (value < 0)
			return false;
		bits = bits << 6 | (uint32_t)value;
		count += 6;
		if (count < 8)
			continue;
		count -= 8;
		bytes[len++] = (char)(bits >> count & 0xff);
		bits &= (1u << count) - 1;
	}
	if (bits != 0)
		return false;
	*out = (struct slice){ bytes, len };
	return true;
}

bool header_decode(struct slice value, struct arena *arena, struct slice *out)
{
	static constexpr char PREFIX[] = "=?base64?", SUFFIX[] = "?=";
	static constexpr size_t prefix_len = sizeof PREFIX - 1, suffix_len = sizeof SUFFIX - 1;

	for (size_t i = 0; i < value.len; i++) {
		unsigned char byte = (unsigned char)value.data[i];
		if (byte != '\t' && (byte < ' ' || byte > '~'))
			return false;
	}
	if (value.len < prefix_len + suffix_len || memcmp(value.data, PREFIX, prefix_len) != 0 ||
	    memcmp(value.data + value.len - suffix_len, SUFFIX, suffix_len) != 0) {
		*out = value;
		return true;
	}
	struct slice text = { value.data + prefix_len, value.len - prefix_len - suffix_len };
	return base64_decode(text, arena, out);
}
