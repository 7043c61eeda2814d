/* json_scan.c - the strict check that stands before everything else that reads JSON. One pass over
 * the bytes; recursion is bounded by JSON_DEPTH_MAX. The names of open objects lie on one stack; a
 * closing object sorts its own by hash, then content, so that duplicates are neighbours. Sorting
 * needs no secret, and names chosen to collide cost n log n comparisons of short names or few of
 * long ones. Called by the api on each body, by the worker on what tools and peers answer. */
#include "runtime/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json_inner.h"
#include "runtime/utf8.h"

constexpr size_t SCAN_NAMES_FIRST = 64;
constexpr size_t SCAN_PAIRS_MAX = 8; /* up to here comparing all pairs beats sorting */

struct scan_name {
	uint64_t hash;
	struct slice name; /* unescaped */
	size_t at;
};

struct scan {
	struct slice text;
	size_t at;
	struct scan_name *names; /* of all open objects, outermost first */
	size_t names_count, names_room;
	size_t members;       /* of all objects so far */
	struct buf unescaped; /* names that had escapes; reserved once, so that it never moves */
	struct json_quirks *quirks; /* nullptr: none is let through */
	struct hf_err *err;
};

static enum hf_code refuse(struct scan *scan, size_t at, const char *reason)
{
	return hf_fail(scan->err, HF_INVALID, "byte %zu: %s", at, reason);
}

static int peek(const struct scan *scan)
{
	return scan->at < scan->text.len ? (unsigned char)scan->text.data[scan->at] : -1;
}

static void skip_space(struct scan *scan)
{
	scan->at = json_space_end(scan->text, scan->at);
}

static enum hf_code refuse_here(struct scan *scan, const char *wanted)
{
	int byte = peek(scan);
	if (byte < 0)
		return hf_fail(scan->err, HF_INVALID, "byte %zu: the text ends where %s was due",
			       scan->at, wanted);
	if (byte == 0)
		return refuse(scan, scan->at, "a NUL byte");
	return hf_fail(scan->err, HF_INVALID, "byte %zu: %s was due", scan->at, wanted);
}

static enum hf_code scan_word(struct scan *scan, const char *word)
{
	size_t len = strlen(word);
	if (scan->text.len - scan->at < len || memcmp(scan->text.data + scan->at, word, len) != 0)
		return refuse_here(scan, "a value");
	scan->at += len;
	return HF_OK;
}

static enum hf_code scan_digits(struct scan *scan)
{
	size_t start = scan->at;
	while (peek(scan) >= '0' && peek(scan) <= '9')
		scan->at++;
	return scan->at > start ? HF_OK : refuse_here(scan, "a digit");
}

static enum hf_code scan_number(struct scan *scan)
{
	size_t start = scan->at;
	if (peek(scan) == '-')
		scan->at++;
	if (peek(scan) == '0') {
		scan->at++;
		if (peek(scan) >= '0' && peek(scan) <= '9')
			return refuse(scan, scan->at, "a digit after a leading zero");
	} else {
		hf_try(scan_digits(scan));
	}
	if (peek(scan) == '.') {
		scan->at++;
		hf_try(scan_digits(scan));
	}
	if (peek(scan) == 'e' || peek(scan) == 'E') {
		scan->at++;
		if (peek(scan) == '+' || peek(scan) == '-')
			scan->at++;
		hf_try(scan_digits(scan));
	}
	if (scan->at - start > JSON_NUMBER_LEN_MAX)
		return hf_fail(scan->err, HF_LIMIT, "byte %zu: a number of more than %zu bytes",
			       start, JSON_NUMBER_LEN_MAX);
	return HF_OK;
}

long json_hex4(struct slice text, size_t at)
{
	long value = 0;
	for (size_t i = 0; i < 4; i++) {
		int byte = at + i < text.len ? (unsigned char)text.data[at + i] : -1;
		int digit = byte >= '0' && byte <= '9'   ? byte - '0'
			    : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
			    : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
							 : -1;
		if (digit < 0)
			return -1;
		value = value << 4 | digit;
	}
	return value;
}

static enum hf_code scan_escape(struct scan *scan)
{
	size_t start = scan->at++;
	int kind = peek(scan);
	if (kind < 0)
		return refuse_here(scan, "an escape");
	scan->at++;
	if (kind != 'u')
		return kind && strchr("\"\\/bfnrt", kind)
			   ? HF_OK
			   : refuse(scan, start, "an unknown escape");
	long code = json_hex4(scan->text, scan->at);
	if (code < 0)
		return refuse(scan, start, "\\u without four hexadecimal digits");
	if (code == 0 && !scan->quirks)
		return refuse(scan, start, "an escaped NUL (\\u0000)");
	if (code == 0)
		scan->quirks->nul = true;
	scan->at += 4;
	if (code < 0xd800 || code > 0xdfff)
		return HF_OK;
	const char *next = scan->text.data + scan->at;
	bool pair =
	    code < 0xdc00 && scan->text.len - scan->at >= 6 && next[0] == '\\' && next[1] == 'u';
	long low = pair ? json_hex4(scan->text, scan->at + 2) : -1;
	if (low < 0xdc00 || low > 0xdfff)
		return refuse(scan, start, "a lone surrogate");
	scan->at += 6;
	return HF_OK;
}

/* One character beyond ASCII. */
static enum hf_code scan_wide(struct scan *scan)
{
	uint32_t code;
	size_t len = utf8_next(scan->text.data + scan->at, scan->text.len - scan->at, &code);
	if (len == 0)
		return refuse(scan, scan->at, "not UTF-8");
	scan->at += len;
	return HF_OK;
}

static enum hf_code scan_character(struct scan *scan)
{
	int byte = peek(scan);
	if (byte < 0)
		return refuse_here(scan, "the end of a string");
	if (byte < 0x20)
		return refuse(scan, scan->at,
			      byte ? "a raw control character in a string" : "a NUL byte");
	if (byte == '\\')
		return scan_escape(scan);
	if (byte >= 0x80)
		return scan_wide(scan);
	scan->at++;
	return HF_OK;
}

static enum hf_code scan_string(struct scan *scan)
{
	hf_assert(peek(scan) == '"');
	scan->at++;
	while (peek(scan) != '"')
		hf_try(scan_character(scan));
	scan->at++;
	return HF_OK;
}

static uint64_t hash_of(struct slice name)
{
	uint64_t hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < name.len; i++)
		hash = (hash ^ (unsigned char)name.data[i]) * 0x100000001b3;
	return hash;
}

static void push_name(struct scan *scan, struct slice raw, size_t at)
{
	/* Unescaping never lengthens, so all names of the text fit into its own length. */
	if (!scan->unescaped.data && memchr(raw.data, '\\', raw.len)) {
		void *room = buf_reserve(&scan->unescaped, scan->text.len);
		hf_assert(room);
	}
	if (scan->names_count == scan->names_room) {
		scan->names_room = scan->names_room ? scan->names_room * 2 : SCAN_NAMES_FIRST;
		scan->names = hf_realloc(scan->names, scan->names_room * sizeof *scan->names);
	}
	struct slice name = json_string_view(raw, &scan->unescaped);
	scan->names[scan->names_count++] =
	    (struct scan_name){ .hash = hash_of(name), .name = name, .at = at };
}

static int compare_names(const struct scan_name *a, const struct scan_name *b)
{
	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	if (a->name.len != b->name.len)
		return a->name.len < b->name.len ? -1 : 1;
	return a->name.len ? memcmp(a->name.data, b->name.data, a->name.len) : 0;
}

static int on_sort_names(const void *a, const void *b)
{
	return compare_names(a, b);
}

static enum hf_code found_duplicate(struct scan *scan, size_t at)
{
	struct json_quirks *quirks = scan->quirks;
	if (!quirks)
		return refuse(scan, at, "a member of the same name once more");
	if (!quirks->duplicate)
		quirks->duplicate_at = at;
	quirks->duplicate = true;
	return HF_OK;
}

/* Pops the names of the object that closes; finds whether two of them are equal. */
static enum hf_code close_object(struct scan *scan, size_t base)
{
	hf_assert(base <= scan->names_count);
	struct scan_name *names = scan->names + base;
	size_t count = scan->names_count - base;
	scan->names_count = base;
	bool pairs = count <= SCAN_PAIRS_MAX;
	if (!pairs)
		qsort(names, count, sizeof *names, on_sort_names);
	for (size_t i = 1; i < count; i++) {
		for (size_t j = pairs ? 0 : i - 1; j < i; j++) {
			if (compare_names(&names[i], &names[j]) != 0)
				continue;
			size_t later = names[i].at > names[j].at ? names[i].at : names[j].at;
			return found_duplicate(scan, later);
		}
	}
	return HF_OK;
}

static enum hf_code scan_value(struct scan *scan, unsigned depth);

static enum hf_code scan_object(struct scan *scan, unsigned depth)
{
	size_t base = scan->names_count;
	scan->at++;
	skip_space(scan);
	if (peek(scan) == '}') {
		scan->at++;
		return HF_OK;
	}
	for (;;) {
		if (peek(scan) != '"')
			return refuse_here(scan, "a member name in quotes");
		size_t start = scan->at;
		if (scan->quirks && ++scan->members > JSON_MEMBERS_MAX)
			return hf_fail(scan->err, HF_LIMIT, "byte %zu: more than %zu members",
				       start, JSON_MEMBERS_MAX);
		hf_try(scan_string(scan));
		push_name(scan, (struct slice){ scan->text.data + start, scan->at - start }, start);
		skip_space(scan);
		if (peek(scan) != ':')
			return refuse_here(scan, "a colon");
		scan->at++;
		hf_try(scan_value(scan, depth));
		skip_space(scan);
		int byte = peek(scan);
		if (byte != '}' && byte != ',')
			return refuse_here(scan, "a comma or the end of the object");
		scan->at++;
		if (byte == '}')
			return close_object(scan, base);
		skip_space(scan);
	}
}

static enum hf_code scan_array(struct scan *scan, unsigned depth)
{
	scan->at++;
	skip_space(scan);
	if (peek(scan) == ']') {
		scan->at++;
		return HF_OK;
	}
	for (;;) {
		hf_try(scan_value(scan, depth));
		skip_space(scan);
		int byte = peek(scan);
		if (byte != ']' && byte != ',')
			return refuse_here(scan, "a comma or the end of the array");
		scan->at++;
		if (byte == ']')
			return HF_OK;
	}
}

/* `depth` counts the arrays and objects around the value. */
static enum hf_code scan_value(struct scan *scan, unsigned depth)
{
	skip_space(scan);
	int byte = peek(scan);
	if ((byte == '{' || byte == '[') && depth == JSON_DEPTH_MAX)
		return hf_fail(scan->err, HF_LIMIT, "byte %zu: nested deeper than %u", scan->at,
			       JSON_DEPTH_MAX);
	if (byte == '-' || (byte >= '0' && byte <= '9'))
		return scan_number(scan);
	switch (byte) {
	case '{':
		return scan_object(scan, depth + 1);
	case '[':
		return scan_array(scan, depth + 1);
	case '"':
		return scan_string(scan);
	case 't':
		return scan_word(scan, "true");
	case 'f':
		return scan_word(scan, "false");
	case 'n':
		return scan_word(scan, "null");
	default:
		return refuse_here(scan, "a value");
	}
}

static enum hf_code scan_text(struct scan *scan)
{
	if (scan->text.len >= 3 && memcmp(scan->text.data, "\xef\xbb\xbf", 3) == 0)
		return refuse(scan, 0, "a byte order mark");
	hf_try(scan_value(scan, 0));
	skip_space(scan);
	return scan->at == scan->text.len ? HF_OK : refuse_here(scan, "the end of the text");
}

static enum hf_code scan_with(struct slice text, struct json_quirks *quirks, struct hf_err *err)
{
	hf_assert(text.data || text.len == 0);
	struct scan scan = { .text = text, .quirks = quirks, .err = err };
	enum hf_code code = scan_text(&scan);
	free(scan.names);
	buf_deinit(&scan.unescaped);
	return code;
}

enum hf_code json_scan(struct slice text, struct hf_err *err)
{
	return scan_with(text, nullptr, err);
}

/* Whether the last thing before `at` is a comma. */
static bool behind_comma(struct slice text, size_t at)
{
	while (at > 0 && strchr(" \t\r\n", text.data[at - 1]))
		at--;
	return at > 0 && text.data[at - 1] == ',';
}

enum hf_code json_scan_written(struct slice text, struct hf_err *err)
{
	struct hf_err inner = {};
	enum hf_code code = json_scan(text, &inner);
	if (code == HF_OK)
		return code;
	size_t at = 0, line = 1, column = 1;
	int head = 0;
	bool placed = sscanf(inner.text, "byte %zu: %n", &at, &head) == 1 && head > 0;
	hf_assert(placed && at <= text.len);
	for (size_t i = 0; i < at; i++) {
		bool ends = text.data[i] == '\n';
		bool inside = ((unsigned char)text.data[i] & 0xc0) == 0x80; /* of a character */
		line += ends;
		column = ends ? 1 : column + !inside;
	}
	bool closes = at < text.len && (text.data[at] == ']' || text.data[at] == '}');
	bool extra = closes && behind_comma(text, at);
	return hf_fail(err, code, "%zu:%zu: %s%s", line, column, inner.text + head,
		       extra ? "; the comma before it is one too many" : "");
}

enum hf_code json_scan_quirks(struct slice text, struct json_quirks *quirks, struct hf_err *err)
{
	*quirks = (struct json_quirks){};
	return scan_with(text, quirks, err);
}
