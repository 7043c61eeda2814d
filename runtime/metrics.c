/* metrics.c - see metrics.h. A metric keeps its series, one for each value of its label, in the
 * order in which they came; there are few, so they are found by looking. */
#include "runtime/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"

enum kind { COUNTER, GAUGE };
enum unit { ONE, MS };

static const struct {
	const char *name;
	enum kind kind;
	enum unit unit;
	const char *roles, *label, *values, *help;
} table[METRICS] = {
#define METRIC(name, kind, unit, roles, label, values, help) \
	{ "holdfast_" #name, kind, unit, roles, label, values, help },
#include "runtime/metrics.def"
#undef METRIC
};

struct series {
	char value[METRIC_VALUE_LEN_MAX + 1]; /* of the label; "" where there is none */
	int64_t number;
};

static struct {
	struct series *series;
	size_t count;
	bool listed; /* the values of the table are there */
} kept[METRICS];

static const char other[] = "other";

static struct series *find(enum metric metric, const char *value, size_t len)
{
	for (size_t i = 0; i < kept[metric].count; i++) {
		struct series *series = &kept[metric].series[i];
		if (strncmp(series->value, value, len) == 0 && series->value[len] == '\0')
			return series;
	}
	return nullptr;
}

static struct series *append(enum metric metric, const char *value, size_t len)
{
	size_t count = ++kept[metric].count;
	kept[metric].series = hf_realloc(kept[metric].series, count * sizeof(struct series));
	struct series *series = &kept[metric].series[count - 1];
	*series = (struct series){};
	memcpy(series->value, value, len);
	return series;
}

/* A counter is there from 0 on wherever its series are known ahead, so that its first rise is seen
 * as one. */
static void list_values(enum metric metric)
{
	if (kept[metric].listed)
		return;
	kept[metric].listed = true;
	const char *at = table[metric].values;
	while (*at) {
		size_t len = strcspn(at, " ");
		append(metric, at, len);
		at += len + strspn(at + len, " ");
	}
	if (!table[metric].label[0])
		append(metric, "", 0);
}

/* A list without values takes what comes. */
static bool may_stand(enum metric metric, const char *value, size_t len)
{
	const char *at = table[metric].values;
	if (!*at)
		return kept[metric].count < METRIC_SERIES_MAX;
	for (size_t word; *at; at += word + strspn(at + word, " ")) {
		word = strcspn(at, " ");
		if (word == len && memcmp(at, value, len) == 0)
			return true;
	}
	return false;
}

static struct series *series_of(enum metric metric, const char *value)
{
	if (table[metric].kind == COUNTER)
		list_values(metric);
	value = value ? value : "";
	size_t len = strnlen(value, METRIC_VALUE_LEN_MAX);
	struct series *found = find(metric, value, len);
	if (!found && may_stand(metric, value, len))
		return append(metric, value, len);
	if (!found)
		found = find(metric, other, sizeof other - 1);
	return found ? found : append(metric, other, sizeof other - 1);
}

void metric_add(enum metric metric, const char *value, int64_t more)
{
	hf_assert(table[metric].kind == COUNTER);
	hf_assert(more >= 0);
	series_of(metric, value)->number += more;
}

void metric_set(enum metric metric, const char *value, int64_t now)
{
	hf_assert(table[metric].kind == GAUGE);
	series_of(metric, value)->number = now;
}

void metric_forget(enum metric metric)
{
	hf_assert(table[metric].kind == GAUGE);
	kept[metric].count = 0;
}

void metric_bound(const char *bound, int64_t used, int64_t limit)
{
	metric_set(METRIC_bound_used, bound, used);
	metric_set(METRIC_bound_limit, bound, limit);
	metric_add(METRIC_bound_refused_total, bound, 0);
}

const char *metric_status(int status)
{
	static const char *const classes[] = { "1xx", "2xx", "3xx", "4xx", "5xx" };
	return status >= 100 && status < 600 ? classes[status / 100 - 1] : other;
}

void metric_batch(const char *act, size_t rows, int64_t ms)
{
	metric_add(METRIC_store_batches_total, act, 1);
	metric_add(METRIC_store_rows_total, act, (int64_t)rows);
	metric_add(METRIC_store_wait_seconds_total, act, ms);
}

void metric_batch_known(const char *act)
{
	static const enum metric counters[] = {
		METRIC_store_batches_total,      METRIC_store_rows_total,
		METRIC_store_wait_seconds_total, METRIC_store_batches_halved_total,
		METRIC_store_rows_failed_total,
	};
	for (size_t i = 0; i < countof(counters); i++)
		metric_add(counters[i], act, 0);
}

void metric_store_error(const char *sqlstate)
{
	char class[3] = "";
	memcpy(class, sqlstate, strnlen(sqlstate, 2));
	metric_add(METRIC_store_errors_total, class[0] ? class : "none", 1);
}

static void write_escaped(const char *text, bool quoted, struct buf *out)
{
	for (; *text; text++) {
		if (*text == '\n')
			buf_add_text(out, "\\n");
		else if (*text == '\\' || (quoted && *text == '"'))
			buf_add_format(out, "\\%c", *text);
		else
			buf_add_byte(out, *text);
	}
}

static void write_number(int64_t number, enum unit unit, struct buf *out)
{
	if (unit == ONE) {
		buf_add_format(out, " %lld\n", (long long)number);
		return;
	}
	uint64_t size = number < 0 ? -(uint64_t)number : (uint64_t)number;
	buf_add_format(out, " %s%llu.%03llu\n", number < 0 ? "-" : "",
		       (unsigned long long)(size / 1'000), (unsigned long long)(size % 1'000));
}

static void write_metric(enum metric metric, struct buf *out)
{
	if (table[metric].kind == COUNTER)
		list_values(metric);
	buf_add_format(out, "# HELP %s ", table[metric].name);
	write_escaped(table[metric].help, false, out);
	buf_add_format(out, "\n# TYPE %s %s\n", table[metric].name,
		       table[metric].kind == COUNTER ? "counter" : "gauge");
	for (size_t i = 0; i < kept[metric].count; i++) {
		const struct series *series = &kept[metric].series[i];
		buf_add_text(out, table[metric].name);
		if (table[metric].label[0]) {
			buf_add_format(out, "{%s=\"", table[metric].label);
			write_escaped(series->value, true, out);
			buf_add_text(out, "\"}");
		}
		write_number(series->number, table[metric].unit, out);
	}
}

void metrics_write(char role, struct buf *out)
{
	for (enum metric metric = 0; metric < METRICS; metric++)
		if (strchr(table[metric].roles, role))
			write_metric(metric, out);
}

void metrics_reset(void)
{
	for (enum metric metric = 0; metric < METRICS; metric++) {
		free(kept[metric].series);
		kept[metric].series = nullptr;
		kept[metric].count = 0;
		kept[metric].listed = false;
	}
}
