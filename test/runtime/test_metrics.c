/* The text format (HELP and TYPE once, escapes, no series twice), label values, units. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/metrics.h"
#include "test/test.h"

/* The exposition as text, which the caller frees. */
static char *written(char role)
{
	struct buf out = {};
	metrics_write(role, &out);
	return buf_take(&out);
}

static size_t count_of(const char *text, const char *needle)
{
	size_t count = 0;
	for (const char *at = text; (at = strstr(at, needle)); at++)
		count++;
	return count;
}

static void expect_lines(char role, const char *const *lines, size_t count)
{
	char *text = written(role);
	for (size_t i = 0; i < count; i++) {
		char *line = hf_format("\n%s\n", lines[i]);
		cr_expect_eq(count_of(text, line), 1, "%s in\n%s", lines[i], text);
		free(line);
	}
	free(text);
}

HF_TEST(metrics, a_counter_is_there_from_0_on_and_only_rises)
{
	static const char *const before[] = {
		"# TYPE holdfast_calls_total counter",
		"holdfast_calls_total{outcome=\"new\"} 0",
		"holdfast_calls_total{outcome=\"expired\"} 0",
		"holdfast_parked_total 0",
	};
	static const char *const after[] = {
		"holdfast_calls_total{outcome=\"new\"} 3",
		"holdfast_calls_total{outcome=\"same\"} 0",
		"holdfast_parked_total 1",
	};
	expect_lines('a', before, countof(before));
	metric_add(METRIC_calls_total, "new", 1);
	metric_add(METRIC_calls_total, "new", 2);
	metric_add(METRIC_parked_total, nullptr, 1);
	expect_lines('a', after, countof(after));
	metrics_reset();
	expect_lines('a', before, countof(before));
	metrics_reset();
}

HF_TEST(metrics, what_is_not_in_the_list_counts_as_other)
{
	static const char *const lines[] = {
		"holdfast_calls_total{outcome=\"other\"} 5",
		"holdfast_calls_total{outcome=\"new\"} 0",
	};
	static const char *const strangers[] = { "ne", "news", "", "new same" };
	metric_add(METRIC_calls_total, nullptr, 1);
	for (size_t i = 0; i < countof(strangers); i++)
		metric_add(METRIC_calls_total, strangers[i], 1);
	expect_lines('a', lines, countof(lines));
	metrics_reset();
}

HF_TEST(metrics, a_gauge_is_absent_until_it_is_set_and_after_it_is_forgotten)
{
	static const char *const set[] = { "holdfast_weeks_ahead 5" };
	char *text = written('m');
	cr_expect_eq(count_of(text, "\nholdfast_weeks_ahead"), 0);
	cr_expect_eq(count_of(text, "# TYPE holdfast_weeks_ahead gauge\n"), 1);
	free(text);
	metric_set(METRIC_weeks_ahead, "", 4);
	metric_set(METRIC_weeks_ahead, nullptr, 5);
	expect_lines('m', set, countof(set));
	metric_forget(METRIC_weeks_ahead);
	text = written('m');
	cr_expect_eq(count_of(text, "\nholdfast_weeks_ahead"), 0);
	free(text);
	metrics_reset();
}

HF_TEST(metrics, milliseconds_are_told_in_seconds)
{
	static const char *const lines[] = {
		"holdfast_oldest_ready_seconds{tool=\"a\"} 1.007",
		"holdfast_oldest_ready_seconds{tool=\"b\"} 0.000",
		"holdfast_oldest_ready_seconds{tool=\"c\"} -0.020",
		"holdfast_oldest_ready_seconds{tool=\"d\"} 9223372036854775.807",
	};
	metric_set(METRIC_oldest_ready_seconds, "a", 1'007);
	metric_set(METRIC_oldest_ready_seconds, "b", 0);
	metric_set(METRIC_oldest_ready_seconds, "c", -20);
	metric_set(METRIC_oldest_ready_seconds, "d", INT64_MAX);
	expect_lines('m', lines, countof(lines));
	metrics_reset();
}

HF_TEST(metrics, label_values_are_escaped_and_cut_and_bounded)
{
	static const char *const lines[] = {
		"holdfast_oldest_ready_seconds{tool=\"a\\\\b\\\"c\\nd}\"} 0.001",
		"holdfast_oldest_ready_seconds{tool=\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"} 0.003",
	};
	char long_name[200];
	memset(long_name, 'x', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = '\0';
	metric_set(METRIC_oldest_ready_seconds, "a\\b\"c\nd}", 1);
	metric_set(METRIC_oldest_ready_seconds, long_name, 2);
	long_name[100] = 'y';
	metric_set(METRIC_oldest_ready_seconds, long_name, 3);
	expect_lines('m', lines, countof(lines));
	for (int i = 0; i < 1'000; i++) {
		char name[16];
		snprintf(name, sizeof name, "tool%d", i);
		metric_set(METRIC_oldest_ready_seconds, name, i);
	}
	char *text = written('m');
	cr_expect_eq(count_of(text, "\nholdfast_oldest_ready_seconds{"), METRIC_SERIES_MAX + 1);
	cr_expect_eq(count_of(text, "{tool=\"other\"}"), 1);
	free(text);
	metrics_reset();
}

/* Every metric of every role, with all that is listed: HELP, TYPE, then its series, each once. */
HF_TEST(metrics, each_name_has_one_help_and_one_type_and_no_series_is_told_twice)
{
	static const char *const names[] = {
#define METRIC(name, ...) "holdfast_" #name,
#include "runtime/metrics.def"
#undef METRIC
	};
	static const char *const roles[] = {
#define METRIC(name, kind, unit, roles, ...) roles,
#include "runtime/metrics.def"
#undef METRIC
	};
	metric_bound("slots", 1, 2);
	metric_bound("slots", 2, 2);
	for (const char *role = "awm"; *role; role++) {
		char *text = written(*role);
		cr_expect_eq(text[strlen(text) - 1], '\n');
		for (size_t i = 0; i < countof(names); i++) {
			char *help = hf_format("# HELP %s ", names[i]);
			char *type = hf_format("\n# TYPE %s ", names[i]);
			size_t wanted = strchr(roles[i], *role) ? 1 : 0;
			cr_expect_eq(count_of(text, help), wanted, "%c %s", *role, names[i]);
			cr_expect_eq(count_of(text, type), wanted, "%c %s", *role, names[i]);
			free(help);
			free(type);
		}
		cr_expect_eq(count_of(text, "\n\n"), 0);
		for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			char *series = hf_format("\n%.*s ", (int)strcspn(line, " "), line);
			cr_expect(line[0] == '#' || !strstr(end + 1, series), "%s", line);
			free(series);
			*end = '\n';
		}
		free(text);
	}
	metrics_reset();
}

HF_TEST(metrics, names_end_as_their_kind_and_unit_want)
{
	static const struct {
		const char *name, *kind, *unit, *help;
	} rows[] = {
#define METRIC(name, kind, unit, roles, label, values, help) { #name, #kind, #unit, help },
#include "runtime/metrics.def"
#undef METRIC
	};
	for (size_t i = 0; i < countof(rows); i++) {
		bool total = strlen(rows[i].name) > 6 &&
			     strcmp(rows[i].name + strlen(rows[i].name) - 6, "_total") == 0;
		bool seconds = strstr(rows[i].name, "_seconds") != nullptr;
		cr_expect_eq(total, strcmp(rows[i].kind, "COUNTER") == 0, "%s", rows[i].name);
		cr_expect_eq(seconds, strcmp(rows[i].unit, "MS") == 0, "%s", rows[i].name);
		cr_expect(rows[i].help[0], "%s", rows[i].name);
	}
}

HF_TEST(metrics, states_and_statuses_have_the_words_of_the_table)
{
	cr_expect_str_eq(metric_status(200), "2xx");
	cr_expect_str_eq(metric_status(599), "5xx");
	cr_expect_str_eq(metric_status(0), "other");
	cr_expect_str_eq(metric_status(600), "other");
	metric_store_error("40001");
	metric_store_error("");
	metric_store_error("HF001");
	static const char *const lines[] = {
		"holdfast_store_errors_total{class=\"40\"} 1",
		"holdfast_store_errors_total{class=\"none\"} 1",
		"holdfast_store_errors_total{class=\"HF\"} 1",
	};
	expect_lines('w', lines, countof(lines));
	metrics_reset();
}
