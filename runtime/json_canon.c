/* json_canon.c - one spelling for each JSON value: what a fingerprint is taken over and what enum
 * and const compare. One pass over the bytes writes members in their own order; a closing object
 * puts its members in order by moving their finished bytes, which costs at most JSON_DEPTH_MAX
 * copies of a byte. Called by the api for each accepted call, and by the schema. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/json_inner.h"

constexpr size_t CANON_MEMBERS_FIRST = 64;

struct canon_member {
	struct slice name; /* unescaped */
	size_t start, len; /* in `out`: the name, the colon and the value */
};

struct canon {
	struct slice text;
	size_t at;
	const char *leave_out;
	struct canon_member *members; /* of all open objects, outermost first */
	size_t members_count, members_room;
	struct buf unescaped; /* names that had escapes; reserved once, so that it never moves */
	struct buf sorted;
	struct buf out;
};

/* By UTF-16 code units, as RFC 8785 wants. On UTF-8 that is the order of bytes, but what needs
 * surrogates in UTF-16 (lead bytes from F0) comes before U+E000 to U+FFFF (lead bytes EE, EF). */
static int on_sort_members(const void *a, const void *b)
{
	struct slice left = ((const struct canon_member *)a)->name;
	struct slice right = ((const struct canon_member *)b)->name;
	size_t shared = left.len < right.len ? left.len : right.len;
	size_t i = 0;
	while (i < shared && left.data[i] == right.data[i])
		i++;
	if (i == shared)
		return (left.len > right.len) - (left.len < right.len);
	unsigned char x = (unsigned char)left.data[i], y = (unsigned char)right.data[i];
	if (x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0))
		return x >= 0xf0 ? -1 : 1;
	return x < y ? -1 : 1;
}

static void put_value(struct canon *canon, unsigned depth);

static void put_string(struct canon *canon, struct slice raw)
{
	hf_cleanup(buf) struct buf decoded = {};
	if (memchr(raw.data, '\\', raw.len))
		json_string_encode(json_string_view(raw, &decoded), &canon->out);
	else
		buf_add_slice(&canon->out, raw);
}

static struct slice name_view(struct canon *canon, struct slice raw)
{
	/* Unescaping never lengthens, so all names of the text fit into its own length. */
	if (!canon->unescaped.data && memchr(raw.data, '\\', raw.len)) {
		void *room = buf_reserve(&canon->unescaped, canon->text.len);
		hf_assert(room);
	}
	return json_string_view(raw, &canon->unescaped);
}

static void push_member(struct canon *canon, struct canon_member member)
{
	if (canon->members_count == canon->members_room) {
		canon->members_room =
		    canon->members_room ? canon->members_room * 2 : CANON_MEMBERS_FIRST;
		canon->members =
		    hf_realloc(canon->members, canon->members_room * sizeof *canon->members);
	}
	canon->members[canon->members_count++] = member;
}

/* One member, from its name's quote to the end of its value; nothing is written for what is left
 * out. */
static void put_member(struct canon *canon, unsigned depth, bool first)
{
	size_t start = canon->at;
	size_t end = json_string_end(canon->text, start);
	struct slice raw = { canon->text.data + start, end - start };
	canon->at = json_space_end(canon->text, end) + 1; /* the colon */
	canon->at = json_space_end(canon->text, canon->at);
	if (depth == 1 && canon->leave_out && json_string_is(raw, canon->leave_out)) {
		canon->at = json_value_end(canon->text, canon->at);
		return;
	}
	if (!first)
		buf_add_byte(&canon->out, ',');
	struct canon_member member = { .name = name_view(canon, raw), .start = canon->out.len };
	put_string(canon, raw);
	buf_add_byte(&canon->out, ':');
	put_value(canon, depth);
	member.len = canon->out.len - member.start;
	push_member(canon, member);
}

/* Puts the members from `base` on, which stand in `out` from `start` with commas between, in
 * order, and pops them. */
static void order_members(struct canon *canon, size_t base, size_t start)
{
	struct canon_member *members = canon->members + base;
	size_t count = canon->members_count - base;
	canon->members_count = base;
	size_t ordered = 1;
	while (ordered < count && on_sort_members(&members[ordered - 1], &members[ordered]) < 0)
		ordered++;
	if (ordered >= count)
		return;
	qsort(members, count, sizeof *members, on_sort_members);
	buf_clear(&canon->sorted);
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			buf_add_byte(&canon->sorted, ',');
		buf_add(&canon->sorted, canon->out.data + members[i].start, members[i].len);
	}
	hf_assert(canon->sorted.len == canon->out.len - start);
	memcpy(canon->out.data + start, canon->sorted.data, canon->sorted.len);
}

/* Moves past the white space and one comma; true at the closing bracket, which is consumed. */
static bool closes(struct canon *canon)
{
	canon->at = json_space_end(canon->text, canon->at);
	hf_assert(canon->at < canon->text.len);
	char byte = canon->text.data[canon->at];
	if (byte == ',')
		canon->at = json_space_end(canon->text, canon->at + 1);
	else if (byte == '}' || byte == ']')
		canon->at++;
	return byte == '}' || byte == ']';
}

static void put_object(struct canon *canon, unsigned depth)
{
	size_t base = canon->members_count;
	canon->at++;
	buf_add_byte(&canon->out, '{');
	size_t start = canon->out.len;
	while (!closes(canon))
		put_member(canon, depth, canon->members_count == base);
	if (canon->members_count > base)
		order_members(canon, base, start);
	buf_add_byte(&canon->out, '}');
}

static void put_array(struct canon *canon, unsigned depth)
{
	canon->at++;
	buf_add_byte(&canon->out, '[');
	for (bool first = true; !closes(canon); first = false) {
		if (!first)
			buf_add_byte(&canon->out, ',');
		put_value(canon, depth);
	}
	buf_add_byte(&canon->out, ']');
}

/* `depth` counts the arrays and objects around the value. */
static void put_value(struct canon *canon, unsigned depth)
{
	canon->at = json_space_end(canon->text, canon->at);
	hf_assert(canon->at < canon->text.len);
	hf_assert(depth <= JSON_DEPTH_MAX);
	char byte = canon->text.data[canon->at];
	if (byte == '{') {
		put_object(canon, depth + 1);
	} else if (byte == '[') {
		put_array(canon, depth + 1);
	} else {
		size_t end = json_value_end(canon->text, canon->at);
		struct slice raw = { canon->text.data + canon->at, end - canon->at };
		if (byte == '"')
			put_string(canon, raw);
		else if (byte == '-' || (byte >= '0' && byte <= '9'))
			json_number_canonical(raw, &canon->out);
		else
			buf_add_slice(&canon->out, raw);
		canon->at = end;
	}
}

void json_canonical(struct slice value, const char *leave_out, struct buf *out)
{
	hf_assert(out);
	struct canon canon = { .text = value, .leave_out = leave_out };
	put_value(&canon, 0);
	hf_assert(canon.members_count == 0);
	buf_add_slice(out, buf_slice(&canon.out));
	free(canon.members);
	buf_deinit(&canon.unescaped);
	buf_deinit(&canon.sorted);
	buf_deinit(&canon.out);
}
