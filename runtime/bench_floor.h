/* bench_floor.h - the floors of `holdfast bench`: the least SQL that still meets the rules of
 * durability, on libpq alone, with no HTTP and no runtime around it; what the product is held
 * against. Each is measured on the product's own cluster, in the same run. Blocking, with threads
 * of its own: one for each client, and one for each connection that commits for them. */
#pragma once

#include <signal.h>
#include <stdint.h>

#include "runtime/bench_cluster.h"
#include "runtime/bench_hist.h"
#include "runtime/err.h"

struct floor_place {
	char *dsn; /* heap */
	const volatile sig_atomic_t *stopped;
};

/* A database of its own. */
enum hf_code floor_open(struct floor_place *place, const struct cluster *cluster,
			const volatile sig_atomic_t *stopped, struct hf_err *err);
void floor_close(struct floor_place *place); /* safe on a zeroed struct */

struct floor_run {
	int clients;
	int connections; /* batched and plain run: that commit */
	int64_t ms;
};
/* All: *ops_per_s gets the rate. HF_CANCELLED when stopped. */

/* Batched: clients wait; each connection takes all that wait and commits them in one statement. */
enum hf_code floor_submit_batched(const struct floor_place *place, const struct floor_run *run,
				  double *ops_per_s, struct hf_err *err);
/* Each client reads a random one of `rows` rows by its unique key. */
enum hf_code floor_read(const struct floor_place *place, const struct floor_run *run, int rows,
			double *ops_per_s, struct hf_err *err);
/* Plain: a backlog is drained; a claim takes 50 tasks, and each task has three recovery points and
 * an end, every one of them a commit. Tasks per second. */
enum hf_code floor_drain(const struct floor_place *place, const struct floor_run *run,
			 double *ops_per_s, struct hf_err *err);
/* One task after another: submit, notified pick-up, one recovery point, end, notified result. Of
 * the whole: `hist`. run->ms is how long it goes on. */
enum hf_code floor_pickup(const struct floor_place *place, const struct floor_run *run,
			  struct hist *hist, struct hf_err *err);
