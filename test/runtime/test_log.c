#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/log.h"
#include "test/test.h"

/* stderr goes into a packet pipe: one read returns what one write wrote. */
static int capture(int *before)
{
	int ends[2];
	cr_assert_eq(pipe2(ends, O_DIRECT | O_NONBLOCK), 0);
	*before = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	return ends[0];
}

/* The next line after its time stamp, which is checked for its form; empty: none was written. */
static const char *next_line(int fd)
{
	static char line[2 * LOG_LINE_BYTES_MAX];
	ssize_t len = read(fd, line, sizeof line - 1);
	line[len > 0 ? len : 0] = '\0';
	if (len <= 0)
		return line;
	static const char form[] = "{\"time\":\"0000-00-00T00:00:00.000Z\",";
	for (size_t i = 0; form[i]; i++) {
		bool digit = form[i] == '0';
		cr_assert(digit ? line[i] >= '0' && line[i] <= '9' : line[i] == form[i], "%s",
			  line);
	}
	return line + sizeof form - 1;
}

HF_TEST(log, a_line_is_one_json_object_in_one_write)
{
	int before;
	int fd = capture(&before);
	log_init(LOG_INFO, "worker");
	log_info("claimed", "task_id", "tsk_x", "attempt", LOG_INT(-3), "none", nullptr, nullptr);
	log_error("bare", nullptr);
	dup2(before, STDERR_FILENO);
	cr_assert_str_eq(next_line(fd),
			 "\"level\":\"info\",\"role\":\"worker\",\"msg\":\"claimed\","
			 "\"task_id\":\"tsk_x\",\"attempt\":-3,\"none\":null}\n");
	cr_assert_str_eq(next_line(fd),
			 "\"level\":\"error\",\"role\":\"worker\",\"msg\":\"bare\"}\n");
	cr_assert_str_eq(next_line(fd), "");
}

HF_TEST(log, what_lies_below_the_level_is_dropped)
{
	int before;
	int fd = capture(&before);
	log_init(LOG_WARN, "api");
	log_debug("a", nullptr);
	log_info("b", nullptr);
	log_warn("c", nullptr);
	log_init(LOG_DEBUG, "api");
	log_debug("d", nullptr);
	dup2(before, STDERR_FILENO);
	cr_assert(strstr(next_line(fd), "\"msg\":\"c\""));
	cr_assert(strstr(next_line(fd), "\"level\":\"debug\",\"role\":\"api\",\"msg\":\"d\""));
	cr_assert_str_eq(next_line(fd), "");
}

HF_TEST(log, hostile_text_cannot_leave_its_string)
{
	static const char *const rows[][2] = {
		{ "a\"b\\c", "a\\\"b\\\\c" },
		{ "\n\r\t\x1b[31m\x7f", "\\u000a\\u000d\\u0009\\u001b[31m\\u007f" },
		{ "zo\xc3\xab \xe6\x97\xa5 \xf0\x9f\x8c\x8d",
		  "zo\xc3\xab \xe6\x97\xa5 \xf0\x9f\x8c\x8d" },
		{ "\xc2\x9b[2J", "\\u009b[2J" },                        /* a C1 control */
		{ "\xff\xc0\xaf", "\\ufffd\\ufffd\\ufffd" },            /* overlong */
		{ "\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd" },            /* a surrogate */
		{ "\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd" }, /* above U+10FFFF */
		{ "\xe6\x97", "\\ufffd\\ufffd" },                       /* cut */
		{ "\xe0\x80\x80", "\\ufffd\\ufffd\\ufffd" },
		{ "7", "7" },
	};
	int before;
	int fd = capture(&before);
	log_init(LOG_INFO, "r");
	for (size_t i = 0; i < countof(rows); i++)
		log_info("m", "v", rows[i][0], nullptr);
	dup2(before, STDERR_FILENO);
	for (size_t i = 0; i < countof(rows); i++) {
		const char *line = next_line(fd);
		const char *value = strstr(line, "\"v\":\"");
		cr_assert(value);
		value += 5;
		size_t len = strlen(rows[i][1]);
		cr_expect(strncmp(value, rows[i][1], len) == 0, "row %zu: %s", i, line);
		cr_expect_str_eq(value + len, "\"}\n", "row %zu", i);
	}
}

/* Every length around the border, so that each place where the cut may fall is met. */
HF_TEST(log, a_long_line_is_cut_and_still_whole_json)
{
	static const char *const pieces[] = { "x", "\xe6\x97\xa5", "\x01", "\"" };
	int before;
	int fd = capture(&before);
	log_init(LOG_INFO, "r");
	static char text[LOG_LINE_BYTES_MAX * 2];
	static const char tail[] = ",\"cut\":true}\n";
	int cut = 0, whole = 0;
	for (size_t len = 3800; len < 4100; len++) {
		memset(text, 'x', len);
		text[len] = '\0';
		strcat(text, pieces[len % countof(pieces)]);
		log_info("m", "first", text, "n", LOG_INT(5), "last", "\n", nullptr);
		const char *line = next_line(fd);
		size_t line_len = strlen(line);
		cr_assert_lt(line_len, LOG_LINE_BYTES_MAX);
		bool has_tail = strcmp(line + line_len - strlen(tail), tail) == 0;
		bool has_last = strstr(line, "\"n\":5,\"last\":\"\\u000a\"}\n");
		cr_assert_neq(has_tail, has_last, "%s", line + 3700);
		cut += has_tail;
		whole += has_last;
		if (has_tail) {
			char end = line[line_len - sizeof tail];
			cr_assert(end == '"' || end == '5', "%s", line + 3700);
		}
	}
	dup2(before, STDERR_FILENO);
	cr_assert_gt(cut, 0);
	cr_assert_gt(whole, 0);
}

HF_TEST(log, a_full_pipe_drops_the_line_and_keeps_errno)
{
	int before;
	capture(&before);
	log_init(LOG_INFO, "r");
	errno = EDOM;
	for (int i = 0; i < 10'000; i++)
		log_info("m", nullptr);
	cr_assert_eq(errno, EDOM);
	dup2(before, STDERR_FILENO);
}

HF_TEST(log, levels_have_one_spelling)
{
	enum log_level level = LOG_ERROR;
	cr_assert(log_level_parse("debug", &level));
	cr_assert_eq(level, LOG_DEBUG);
	cr_assert_not(log_level_parse("Debug", &level));
	cr_assert_not(log_level_parse("", &level));
	cr_assert_eq(level, LOG_DEBUG);
}

HF_TEST(log, thirty_two_numbers_live_at_once)
{
	const char *first = LOG_INT(INT64_MIN);
	for (int i = 0; i < 31; i++)
		LOG_INT(i);
	cr_assert_str_eq(first, "-9223372036854775808");
}
