/* bench_cluster.h - the private Postgres of `holdfast bench`, with the settings of a fair
 * comparison: everything that durability needs is on, nothing else is tuned. Kept between runs
 * under the bench's folder, so that no run pays for the making; each run gets new databases. */
#pragma once

#include <libpq-fe.h>

#include "runtime/bench_child.h"
#include "runtime/err.h"

struct cluster {
	const char *dir; /* the bench's folder, absolute */
	char *data, *socket, *programs;
	struct child postgres;
};

/* Makes it where it is not there, and starts it. `dir` has its folders run and log, and is held by
 * this process alone. */
enum hf_code cluster_start(struct cluster *cluster, const char *dir, struct hf_err *err);
/* Safe on a zeroed struct. */
void cluster_stop(struct cluster *cluster);

/* A connection string of the superuser; heap. */
char *cluster_dsn(const struct cluster *cluster, const char *database);
/* Drops the database where it is there, makes it anew, and checkpoints. */
enum hf_code cluster_new_database(const struct cluster *cluster, const char *name,
				  struct hf_err *err);
enum hf_code cluster_drop_database(const struct cluster *cluster, const char *name,
				   struct hf_err *err);
