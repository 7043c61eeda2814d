/* maintain.h - the rounds of `holdfast maintain`: dead incarnations, deadlines, retention,
 * partitions, blockers. Any number of processes may run it, one holds the lease. It has no clients,
 * so it is a plain loop with one blocking connection. */
#pragma once

#include "runtime/config.h"
#include "runtime/err.h"

/* Runs until `*stop` is set (by a signal handler); every trouble with Postgres is waited out. */
void maintain_run(const struct config *config, const char *dsn, const volatile int *stop);
