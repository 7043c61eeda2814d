/* worker.h - the worker process: claims tasks for its free slots and runs them. One libev loop, the
 * default one, since only that reaps children. Owns what its runs share; phase kinds and run.c
 * reach it through here. */
#pragma once

#include <stdint.h>

#include "runtime/slice.h"

struct beat;
struct config;
struct downstream;
struct ev_loop;
struct host_pool;
struct keyring;
struct run;
struct sqlphase_pool;
struct store;
struct worker;

/* Runs until SIGTERM, SIGINT or SIGHUP; returns the exit code of the process. `config` was loaded
 * for role 'w' and is borrowed. */
int worker_main(const struct config *config);

struct ev_loop *worker_loop(const struct worker *worker);
const struct config *worker_config(const struct worker *worker);
struct store *worker_store(const struct worker *worker);
const struct keyring *worker_keyring(const struct worker *worker);
struct downstream *worker_downstream(const struct worker *worker);
struct sqlphase_pool *worker_sql(const struct worker *worker);
struct host_pool *worker_hosts(const struct worker *worker);
/* What tools read as /conf: one JSON object, scanned. */
struct slice worker_conf(const struct worker *worker);
/* V4: the local lease has more than its margin left. */
bool worker_may_send(const struct worker *worker);
/* Another run than this one has its last start before the crash limit; `taken`: and runs. */
bool worker_has_last_starts(const struct worker *worker, const struct run *than, bool *taken);

/* A run is over: nothing of it is in flight any more. Frees it. `due_ms`: it was released and is
 * due again in so long; negative where it isn't. */
void worker_run_ended(struct worker *worker, struct run *run, int64_t due_ms);
