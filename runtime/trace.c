/* trace.c - see trace.h. Called by the API at acceptance, and by the worker for each attempt. */
#include "runtime/trace.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/id.h"
#include "runtime/random.h"

static constexpr size_t STATE_MEMBERS_MAX = 32, STATE_KEY_LEN_MAX = 256, STATE_VALUE_LEN_MAX = 256;
static constexpr size_t BAGGAGE_MEMBERS_MAX = 64;
static constexpr size_t ID_AT = 3, SPAN_AT = 36, SPAN_LEN = 16;

bool trace_parent_valid(struct slice text)
{
	static constexpr char FORM[] = "00-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
	static_assert(sizeof FORM - 1 == TRACE_PARENT_LEN);
	if (text.len != TRACE_PARENT_LEN)
		return false;

	bool trace = false, span = false; /* all zero is none */
	for (size_t i = 0; i < text.len; i++) {
		char byte = text.data[i];
		bool hex = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
		if (FORM[i] == 'h' ? !hex : byte != FORM[i])
			return false;
		trace = trace || (i >= ID_AT && i < ID_AT + TRACE_ID_LEN && byte != '0');
		span = span || (i >= SPAN_AT && i < SPAN_AT + SPAN_LEN && byte != '0');
	}
	return trace && span;
}

/* What stands before the next `mark`; the rest moves behind it. False: nothing is left. */
static bool take(struct slice *rest, char mark, struct slice *piece)
{
	if (!rest->data)
		return false;
	const char *end = rest->len ? memchr(rest->data, mark, rest->len) : nullptr;
	size_t len = end ? (size_t)(end - rest->data) : rest->len;
	*piece = (struct slice){ rest->data, len };
	*rest = end ? (struct slice){ end + 1, rest->len - len - 1 } : (struct slice){};
	return true;
}

static bool is_one_of(char byte, const char *bytes)
{
	return byte != '\0' && strchr(bytes, byte);
}

static bool is_lower(char byte)
{
	return byte >= 'a' && byte <= 'z';
}

static bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

static bool state_key_valid(struct slice key)
{
	if (key.len == 0 || key.len > STATE_KEY_LEN_MAX ||
	    !(is_lower(key.data[0]) || is_digit(key.data[0])))
		return false;
	for (size_t i = 1; i < key.len; i++)
		if (!is_lower(key.data[i]) && !is_digit(key.data[i]) &&
		    !is_one_of(key.data[i], "_-*/@"))
			return false;
	return true;
}

static bool state_value_valid(struct slice value)
{
	if (value.len == 0 || value.len > STATE_VALUE_LEN_MAX)
		return false;
	for (size_t i = 0; i < value.len; i++)
		if (value.data[i] < ' ' || value.data[i] > '~' || is_one_of(value.data[i], ",="))
			return false;
	return true;
}

bool trace_state_valid(struct slice text)
{
	struct slice keys[STATE_MEMBERS_MAX], member, key;
	size_t count = 0;
	if (text.len == 0 || text.len > TRACE_STATE_LEN_MAX)
		return false;
	while (take(&text, ',', &member)) {
		member = slice_trim(member);
		if (member.len == 0)
			continue; /* an empty member is allowed */
		struct slice value = member;
		if (count == countof(keys) || !take(&value, '=', &key) || !value.data ||
		    !state_key_valid(key) || !state_value_valid(value))
			return false;
		for (size_t i = 0; i < count; i++)
			if (slice_equal(keys[i], key))
				return false;
		keys[count++] = key;
	}
	return count > 0;
}

static bool token_valid(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] <= ' ' || text.data[i] > '~' ||
		    is_one_of(text.data[i], "\"(),/:;<=>?@[\\]{}"))
			return false;
	return text.len > 0;
}

/* %x21 / %x23-2B / %x2D-3A / %x3C-5B / %x5D-7E */
static bool baggage_value_valid(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] <= ' ' || text.data[i] > '~' || is_one_of(text.data[i], "\",;\\"))
			return false;
	return true;
}

static bool baggage_pair_valid(struct slice pair, bool needs_value)
{
	struct slice name, value = pair;
	if (!take(&value, '=', &name) || !token_valid(slice_trim(name)))
		return false;
	return value.data ? baggage_value_valid(slice_trim(value)) : !needs_value;
}

bool trace_baggage_valid(struct slice text)
{
	struct slice member, pair;
	size_t count = 0;
	if (text.len == 0 || text.len > TRACE_BAGGAGE_LEN_MAX)
		return false;
	while (take(&text, ',', &member)) {
		bool first = true;
		for (; take(&member, ';', &pair); first = false)
			if (!baggage_pair_valid(pair, first))
				return false;
		count++;
	}
	return count <= BAGGAGE_MEMBERS_MAX;
}

void trace_pack(const struct trace *trace, struct buf *out)
{
	bool parent = trace_parent_valid(trace->parent);
	bool state = parent && trace_state_valid(trace->state);
	bool baggage = trace_baggage_valid(trace->baggage);
	if (parent)
		buf_add_slice(out, trace->parent);
	if (state || baggage)
		buf_add_byte(out, '\n');
	if (state)
		buf_add_slice(out, trace->state);
	if (baggage) {
		buf_add_byte(out, '\n');
		buf_add_slice(out, trace->baggage);
	}
}

struct trace trace_unpack(struct slice stored)
{
	struct trace trace = {};
	struct slice *lines[] = { &trace.parent, &trace.state, &trace.baggage };
	for (size_t i = 0; i < countof(lines) && take(&stored, '\n', lines[i]); i++)
		continue;
	return trace;
}

struct slice trace_id(const struct trace *trace)
{
	if (trace->parent.len != TRACE_PARENT_LEN)
		return (struct slice){};
	return (struct slice){ trace->parent.data + ID_AT, TRACE_ID_LEN };
}

void trace_span(const struct trace *trace, char *text)
{
	unsigned char span[SPAN_LEN / 2];
	bool zero = true;
	text[0] = '\0';
	if (trace->parent.len != TRACE_PARENT_LEN)
		return;
	while (zero) {
		random_bytes(span, sizeof span);
		for (size_t i = 0; i < sizeof span; i++)
			zero = zero && span[i] == 0;
	}
	char hex[SPAN_LEN + 1];
	memcpy(text, trace->parent.data, TRACE_PARENT_LEN);
	memcpy(text + SPAN_AT, hex_format(span, sizeof span, hex), SPAN_LEN);
	text[TRACE_PARENT_LEN] = '\0';
}
