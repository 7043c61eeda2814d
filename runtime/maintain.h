/* maintain.h - the rounds of `holdfast maintain`: dead incarnations, deadlines, retention,
 * partitions, blockers. Any number of processes may run it, one holds the lease. It has no clients,
 * so it is plain sequential code on one connection; whatever it waits for turns the loop, on which
 * its metrics are served. */
#pragma once

#include "runtime/config.h"
#include "runtime/err.h"

/* Runs until SIGTERM, SIGINT or SIGHUP; every trouble with Postgres is waited out. HF_INVALID,
 * HF_SYSTEM: it did not start, since it cannot listen at metrics_listen. */
enum hf_code maintain_run(const struct config *config, const char *dsn, struct hf_err *err);
