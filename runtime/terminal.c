/* terminal.c - printing for a person. Text that came over the wire or out of a table is hostile
 * to a terminal until it went through here. */
#include "runtime/terminal.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/utf8.h"

constexpr int BAR_CELLS = 24;
constexpr int TERMINAL_COLUMNS_DEFAULT = 80;

/* The character at text[at], to be printed as `len` bytes of `shown`; returns its length there. */
static size_t next_clean(struct slice text, size_t at, const char **shown, size_t *len)
{
	uint32_t code = 0;
	size_t used = utf8_next(text.data + at, text.len - at, &code);
	bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
	*shown = used && !control ? text.data + at : "?";
	*len = used && !control ? used : 1;
	return used ? used : 1;
}

void print_clean(FILE *out, struct slice text)
{
	const char *shown;
	size_t len;
	for (size_t at = 0; at < text.len;) {
		char c = text.data[at];
		size_t used = next_clean(text, at, &shown, &len);
		if (c == '\n' || c == '\t')
			putc(c, out);
		else
			fwrite(shown, 1, len, out);
		at += used;
	}
}

void print_cut(FILE *out, struct slice text, size_t columns)
{
	const char *shown;
	size_t len;
	for (size_t at = 0, done = 0; at < text.len; done++) {
		if (done == columns) {
			fputs("…", out);
			return;
		}
		char c = text.data[at];
		at += next_clean(text, at, &shown, &len);
		if (c == '\n' || c == '\t' || c == '\r')
			putc(' ', out);
		else
			fwrite(shown, 1, len, out);
	}
}

void print_json_line(FILE *out, struct slice json)
{
	for (size_t i = 0; i < json.len; i++) {
		char c = json.data[i];
		putc(c == '\n' || c == '\r' ? ' ' : c, out);
	}
}

char *span_format(int64_t ms, char *text)
{
	constexpr uint64_t second = 1000, minute = 60 * second, hour = 60 * minute;
	constexpr size_t room = SPAN_TEXT_LEN_MAX + 1;
	const char *sign = ms < 0 ? "-" : "";
	uint64_t span = ms < 0 ? -(uint64_t)ms : (uint64_t)ms;
	if (span < second)
		snprintf(text, room, "%s%" PRIu64 " ms", sign, span);
	else if (span < minute)
		snprintf(text, room, "%s%" PRIu64 ".%03d s", sign, span / second,
			 (int)(span % second));
	else if (span < hour)
		snprintf(text, room, "%s%" PRIu64 " min %02d s", sign, span / minute,
			 (int)(span % minute / second));
	else
		snprintf(text, room, "%s%" PRIu64 " h %02d min", sign, span / hour,
			 (int)(span % hour / minute));
	return text;
}

void bar_init(struct bar *bar)
{
	hf_assert(bar);
	*bar = (struct bar){ .terminal = isatty(STDERR_FILENO) == 1 };
}

static int terminal_columns(void)
{
	struct winsize size;
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
		return TERMINAL_COLUMNS_DEFAULT;
	return size.ws_col;
}

static void draw_cells(struct bar *bar, double fraction)
{
	char cells[BAR_CELLS + 1];
	memset(cells, '.', BAR_CELLS);
	cells[BAR_CELLS] = '\0';
	if (fraction >= 0) {
		memset(cells, '#', (size_t)(fraction * BAR_CELLS));
		fprintf(stderr, "\r\x1b[K[%s] %3d %%  ", cells, (int)(fraction * 100));
		return;
	}
	/* How far is not known: something that moves says that the wait is alive. */
	for (int i = 0; i < 3; i++)
		cells[(bar->turn + i) % BAR_CELLS] = '#';
	fprintf(stderr, "\r\x1b[K[%s]        ", cells);
}

void bar_draw(struct bar *bar, double fraction, struct slice text)
{
	hf_assert(bar);
	hf_assert(fraction <= 1);
	bar->turn++;
	if (bar->terminal) {
		constexpr int around = BAR_CELLS + sizeof "[] 100 %  …";
		int columns = terminal_columns() - around;
		draw_cells(bar, fraction);
		print_cut(stderr, text, columns > 0 ? (size_t)columns : 0);
		fflush(stderr);
		bar->drawn = true;
		return;
	}
	size_t len = text.len < sizeof bar->last ? text.len : sizeof bar->last - 1;
	if (text.len == 0 || slice_equal((struct slice){ text.data, len }, slice_of(bar->last)))
		return;
	memcpy(bar->last, text.data, len);
	bar->last[len] = '\0';
	fputs("  ", stderr);
	print_cut(stderr, text, sizeof bar->last);
	putc('\n', stderr);
}

void bar_clear(struct bar *bar)
{
	hf_assert(bar);
	if (!bar->drawn)
		return;
	fputs("\r\x1b[K", stderr);
	fflush(stderr);
	bar->drawn = false;
}
