/* metrics.h - counters and gauges of this process, in the text format that Prometheus reads. One
 * table, metrics.def. A fact is counted where it happens, by one line:
 *   metric_add(METRIC_phases_total, "done", 1);
 * Gauges are set when they are asked for, see monitor.h. For the loop's thread alone. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/buf.h"

constexpr size_t METRIC_SERIES_MAX = 64;    /* of a metric whose label values come as they occur */
constexpr size_t METRIC_VALUE_LEN_MAX = 64; /* of a label's value, which is cut there */

enum metric {
#define METRIC(name, ...) METRIC_##name,
#include "runtime/metrics.def"
#undef METRIC
	METRICS,
};

/* `value`: of the metric's label, nullptr where it has none. What is not in the table's list counts
 * as "other", and so does what comes past METRIC_SERIES_MAX. In units of the table. */
void metric_add(enum metric metric, const char *value, int64_t more);
void metric_set(enum metric metric, const char *value, int64_t now);
/* A gauge of which nothing is known any more: it is absent until it is set again. */
void metric_forget(enum metric metric);

/* A bound of this process and its use, under the name of the constant or setting. */
void metric_bound(const char *bound, int64_t used, int64_t limit);
/* "2xx" … "5xx", for the label `status`. */
const char *metric_status(int status);
/* Counts an answered batch of that act; `known`: its counters are there, from 0 on. */
void metric_batch(const char *act, size_t rows, int64_t ms);
void metric_batch_known(const char *act);
/* Counts a statement that failed, by its SQLSTATE ("" for none). */
void metric_store_error(const char *sqlstate);

/* All metrics of `role` ('a', 'w', 'm') in the text format, version 0.0.4. */
void metrics_write(char role, struct buf *out);
/* As at the start of the process. For tests. */
void metrics_reset(void);
