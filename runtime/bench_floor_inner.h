/* bench_floor_inner.h - what bench_floor.c and bench_floor_run.c share; nobody else includes it. */
#pragma once

#include "runtime/bench_floor.h"

/* The task of the common workload. */
#define FLOOR_ARGUMENTS "{\"month\":\"2026-07\",\"format\":\"pdf\",\"n\":17,\"pad\":\"0123456789\"}"
/* As an element of a Postgres array, without the outer quotes and braces. */
#define FLOOR_ARGUMENTS_QUOTED                                                               \
	"\\\"month\\\":\\\"2026-07\\\",\\\"format\\\":\\\"pdf\\\",\\\"n\\\":17,\\\"pad\\\":" \
	"\\\"0123456789\\\""
#define FLOOR_RESULT "{\"ok\":true,\"rows\":1234}"

/* New tables, filled by one statement (nullable). */
enum hf_code floor_prepare(const struct floor_place *place, const char *fill, struct hf_err *err);

struct floor_crew {
	void *ctx;
	void *(*server)(void *crew);
	int servers;
	void *(*client)(void *crew);
	int clients;
};
enum hf_code floor_measure(const struct floor_place *place, const struct floor_crew *parts,
			   int64_t ms, double *ops_per_s, struct hf_err *err);
