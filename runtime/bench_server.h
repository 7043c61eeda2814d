/* bench_server.h - the product under `holdfast bench`: a new database on the bench's cluster with
 * the bench's two tools in it, and this very program as its API and worker. */
#pragma once

#include <libpq-fe.h>

#include "runtime/bench_child.h"
#include "runtime/bench_cluster.h"
#include "runtime/bench_request.h"
#include "runtime/err.h"

static constexpr char SERVER_TOOL_PHASES[] = "bench_report"; /* three phases with empty bodies */
static constexpr char SERVER_TOOL_STEP[] = "bench_step";     /* one */
constexpr int SERVER_TOOL_PHASES_COUNT = 3;
constexpr int SERVER_SLOTS = 256; /* of the worker: as many as serve it best on two cores */

struct server {
	const char *dir;
	char *dsn; /* of the administrator */
	PGconn *db;
	char token[33];
	int port;
	struct child api, worker;
};

enum hf_code server_open(struct server *server, const struct cluster *cluster, struct hf_err *err);
/* Stops what runs. Safe on a zeroed struct and safe twice. */
void server_close(struct server *server);

/* A socket at a free port of this machine; the caller's to close. */
enum hf_code server_listen(int *fd, int *port, struct hf_err *err);
/* Waits until it is ready. */
enum hf_code server_start_api(struct server *server, int cpu, struct hf_err *err);
/* Returns at once. */
enum hf_code server_start_worker(struct server *server, struct hf_err *err);
void server_stop_worker(struct server *server);

struct request_target server_target(const struct server *server);
