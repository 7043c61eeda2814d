/* rfc3339.c - dates as text. Called for the times that wait phases wait for. */
#include "runtime/rfc3339.h"

#include <stdio.h>
#include <time.h>

#include "runtime/base.h"

constexpr size_t DATE_TIME_LEN = 19; /* 2015-09-01T12:30:00 */

/* `count` digits at `at`, or -1. */
static int number(struct slice text, size_t at, size_t count)
{
	int value = 0;
	if (at + count > text.len)
		return -1;
	for (size_t i = at; i < at + count; i++) {
		if (text.data[i] < '0' || text.data[i] > '9')
			return -1;
		value = value * 10 + text.data[i] - '0';
	}
	return value;
}

static int days_of(int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
	return days[month - 1] + (month == 2 && leap);
}

static bool marks_stand(struct slice text)
{
	static const struct {
		size_t at;
		const char *of;
	} marks[] = { { 4, "-" }, { 7, "-" }, { 10, "Tt " }, { 13, ":" }, { 16, ":" } };
	if (text.len <= DATE_TIME_LEN)
		return false;
	for (size_t i = 0; i < countof(marks); i++)
		if (!memchr(marks[i].of, text.data[marks[i].at], strlen(marks[i].of)))
			return false;
	return true;
}

/* Minutes east of UTC: all that is left of the text. */
static bool offset_parse(struct slice text, int *minutes)
{
	*minutes = 0;
	if (text.len == 1 && (*text.data == 'Z' || *text.data == 'z'))
		return true;
	int hour = number(text, 1, 2), minute = number(text, 4, 2);
	if (text.len != 6 || (*text.data != '+' && *text.data != '-') || text.data[3] != ':' ||
	    hour < 0 || hour > 23 || minute < 0 || minute > 59)
		return false;
	*minutes = (hour * 60 + minute) * (*text.data == '-' ? -1 : 1);
	return true;
}

bool rfc3339_parse(struct slice text, int64_t *ms)
{
	if (!marks_stand(text))
		return false;
	int year = number(text, 0, 4), month = number(text, 5, 2), day = number(text, 8, 2);
	int hour = number(text, 11, 2), minute = number(text, 14, 2);
	int second = number(text, 17, 2);
	if (year < 0 || month < 1 || month > 12 || day < 1 || day > days_of(year, month) ||
	    hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
		return false;
	size_t at = DATE_TIME_LEN;
	int fraction = 0, digits = 0;
	if (text.data[at] == '.') {
		for (at++; number(text, at, 1) >= 0; at++, digits++)
			if (digits < 3)
				fraction = fraction * 10 + number(text, at, 1);
		if (digits == 0)
			return false;
		for (; digits < 3; digits++)
			fraction *= 10;
	}
	int offset;
	if (at == text.len ||
	    !offset_parse((struct slice){ text.data + at, text.len - at }, &offset))
		return false;
	struct tm date = { .tm_year = year - 1900,
			   .tm_mon = month - 1,
			   .tm_mday = day,
			   .tm_hour = hour,
			   .tm_min = minute,
			   .tm_sec = second };
	*ms = ((int64_t)timegm(&date) - (int64_t)offset * 60) * 1000 + fraction;
	return true;
}

void rfc3339_format(int64_t ms, char text[static RFC3339_TEXT_LEN + 1])
{
	int64_t rest = (ms % 1000 + 1000) % 1000;
	time_t seconds = (time_t)((ms - rest) / 1000);
	struct tm date;
	bool told = gmtime_r(&seconds, &date);
	hf_assert(told && date.tm_year >= -1900 && date.tm_year <= 9999 - 1900);
	char whole[RFC3339_TEXT_LEN];
	strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%S", &date);
	snprintf(text, RFC3339_TEXT_LEN + 1, "%.19s.%03dZ", whole, (int)rest);
}
