/* log.c - one JSON line an event, built on the stack and written with one write(2), so that lines
 * of several processes on one pipe or file never mix. A line is whole JSON even where it was cut:
 * then its last member is "cut":true. A line that cannot be written is dropped. */
#include "runtime/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/utf8.h"

constexpr size_t LOG_INTS = 32;
constexpr size_t LOG_INT_BYTES = 24;

static const char *const level_names[] = { "debug", "info", "warn", "error" };
static const char log_tail[] = ",\"cut\":true}\n";

static enum log_level log_least = LOG_INFO;
static const char *log_role = "";
static char log_ints[LOG_INTS][LOG_INT_BYTES];
static size_t log_ints_next;

/* Everything stops at the first piece that does not fit; the tail always does. */
struct line {
	char bytes[LOG_LINE_BYTES_MAX];
	size_t len;
	bool cut;
};

bool log_level_parse(const char *text, enum log_level *level)
{
	hf_assert(text);
	hf_assert(level);
	for (size_t i = 0; i < countof(level_names); i++) {
		if (strcmp(text, level_names[i]) == 0) {
			*level = (enum log_level)i;
			return true;
		}
	}
	return false;
}

void log_init(enum log_level level, const char *role)
{
	hf_assert(role);
	log_least = level;
	log_role = role;
}

const char *log_int(int64_t value)
{
	char *text = log_ints[log_ints_next];
	log_ints_next = (log_ints_next + 1) % LOG_INTS;
	snprintf(text, LOG_INT_BYTES, "%" PRId64, value);
	return text;
}

static bool is_int(const char *value)
{
	uintptr_t at = (uintptr_t)value;
	return at >= (uintptr_t)log_ints && at < (uintptr_t)log_ints + sizeof log_ints;
}

/* One piece, whole or not at all. `keep` bytes beside the tail stay free after it. */
static void add(struct line *line, const char *piece, size_t len, size_t keep)
{
	if (line->cut || line->len + len + keep + sizeof log_tail - 1 > sizeof line->bytes) {
		line->cut = true;
		return;
	}
	memcpy(line->bytes + line->len, piece, len);
	line->len += len;
}

/* Escapes one character of `at`; returns how many bytes of it were used. */
static size_t add_char(struct line *line, const char *at)
{
	uint32_t code = 0;
	size_t len = utf8_next(at, strnlen(at, 4), &code);
	char escape[8];
	if (len == 0) {
		add(line, "\\ufffd", 6, 1);
		return 1;
	}
	if (code == '"' || code == '\\') {
		int n = snprintf(escape, sizeof escape, "\\%c", (char)code);
		add(line, escape, (size_t)n, 1);
	} else if (code < 0x20 || (code >= 0x7f && code < 0xa0)) {
		int n = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
		add(line, escape, (size_t)n, 1);
	} else {
		add(line, at, len, 1);
	}
	return len;
}

/* The closing quote has room even where the text had not. */
static void add_string(struct line *line, const char *text)
{
	if (line->cut)
		return;
	add(line, "\"", 1, 1);
	if (line->cut)
		return;
	while (*text && !line->cut)
		text += add_char(line, text);
	line->bytes[line->len++] = '"';
}

static void add_member(struct line *line, const char *name, const char *value)
{
	size_t before = line->len;
	add(line, ",", 1, 0);
	add_string(line, name);
	add(line, ":", 1, sizeof "\"\"");
	if (line->cut) {
		line->len = before; /* a name without a value is no JSON */
		return;
	}
	if (!value)
		add(line, "null", 4, 0);
	else if (is_int(value))
		add(line, value, strlen(value), 0);
	else
		add_string(line, value);
	if (line->bytes[line->len - 1] == ':')
		line->len = before;
}

static void add_time(struct line *line)
{
	int64_t ms = clock_wall_ms();
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;
	hf_assert(gmtime_r(&seconds, &tm));
	char text[64], whole[64];
	strftime(whole, sizeof whole, "{\"time\":\"%Y-%m-%dT%H:%M:%S", &tm);
	int len = snprintf(text, sizeof text, "%s.%03dZ\"", whole, (int)(ms % 1000));
	add(line, text, (size_t)len, 0);
}

static void write_line(const struct line *line)
{
	ssize_t done;
	do
		done = write(STDERR_FILENO, line->bytes, line->len);
	while (done < 0 && errno == EINTR);
}

void log_write(enum log_level level, const char *msg, ...)
{
	hf_assert((size_t)level < countof(level_names));
	hf_assert(msg);
	if (level < log_least)
		return;
	int saved = errno; /* a caller may log before it looks at errno */
	struct line line;
	line.len = 0;
	line.cut = false;
	add_time(&line);
	add_member(&line, "level", level_names[level]);
	add_member(&line, "role", log_role);
	add_member(&line, "msg", msg);
	va_list args;
	va_start(args, msg);
	for (const char *name; (name = va_arg(args, const char *));)
		add_member(&line, name, va_arg(args, const char *));
	va_end(args);
	const char *tail = line.cut ? log_tail : "}\n";
	memcpy(line.bytes + line.len, tail, strlen(tail));
	line.len += strlen(tail);
	hf_assert(line.len <= sizeof line.bytes);
	write_line(&line);
	errno = saved;
}
