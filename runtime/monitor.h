/* monitor.h - the small listener for operators, the same in every role: GET /metrics, /healthz (the
 * loop turns) and /readyz (it can do its work). Apart from what clients reach. One request a
 * connection; connections, bytes and times are bounded, and nothing here waits for the store. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/err.h"

struct ev_loop;
struct monitor;
struct uuid;

constexpr size_t MONITOR_CONNECTIONS_MAX = 16; /* at once; past it the oldest makes room */
constexpr size_t MONITOR_HEAD_BYTES_MAX = 4'096;
constexpr int64_t MONITOR_HEAD_MS = 5'000;  /* for a whole request to arrive */
constexpr int64_t MONITOR_WRITE_MS = 5'000; /* for the answer to be taken */

struct monitor_hooks {
	void (*collect)(void *ctx);          /* sets the role's gauges: /metrics is asked for */
	const char *(*not_ready)(void *ctx); /* why not, in a few words; nullptr: it is ready */
	const struct uuid *(*incarnation)(void *ctx); /* nullptr: none at the moment */
	void *ctx;
};

/* `address` nullptr: none is wanted, *out is nullptr then. `role`: a letter of metrics.def. At a
 * loopback address only a Host of this machine is answered, since a web page may otherwise be made
 * to ask. HF_INVALID, HF_SYSTEM as listen_at has them. */
enum hf_code monitor_open(struct ev_loop *loop, const char *address, char role,
			  const struct monitor_hooks *hooks, struct monitor **out,
			  struct hf_err *err);
/* Takes nullptr; is nullptr. */
struct monitor *monitor_close(struct monitor *monitor);
