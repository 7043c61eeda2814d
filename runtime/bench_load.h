/* bench_load.h - closed-loop HTTP/1.1 clients on kept-alive loopback connections, all in one
 * thread: each sends a request, waits for its answer, and goes on. It shares the machine with what
 * it measures, so it copies nothing and parses no more of an answer than its length. */
#pragma once

#include <signal.h>
#include <stdint.h>

#include "runtime/bench_hist.h"
#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

struct load_client {
	void *own; /* of the work; not the load's */
	/* private */
	int fd;
	int index;
	struct buf in;
	bool in_operation, waits;
	int64_t began_ns, wake_ns;
};

enum heard {
	HEARD_MORE,  /* the operation goes on with another request */
	HEARD_DONE,  /* the operation has ended */
	HEARD_WRONG, /* not what a right server answers; the load stops */
};

struct load_work {
	/* What the client sends next, as a whole request that lives until its answer; or an empty
	 * slice and in *wait_ns how long to wait before asking again. */
	struct slice (*ask)(void *ctx, struct load_client *client, int64_t *wait_ns);
	enum heard (*hear)(void *ctx, struct load_client *client, int status, struct slice body);
	void *ctx;
};

struct load_stats {
	uint64_t operations;
	int64_t ns;
	struct hist hist; /* of whole operations */
};

struct load;

/* Connects `count` clients to the port. `stopped` ends a run early, with HF_CANCELLED. */
enum hf_code load_open(int port, int count, const struct load_work *work,
		       const volatile sig_atomic_t *stopped, struct load **out, struct hf_err *err);
struct load *load_close(struct load *load); /* takes nullptr */
struct load_client *load_client_at(struct load *load, int index);

/* When a run ends: after min_ms and min_operations, but no later than max_ms. */
struct load_span {
	int64_t min_ms, max_ms;
	uint64_t min_operations;
};
/* Goes on where the run before it stopped: requests in flight stay in flight between runs. Stats
 * are of this run alone; `stats` is nullable. */
enum hf_code load_run(struct load *load, const struct load_span *span, struct load_stats *stats,
		      struct hf_err *err);

/* One request, blocking, on a connection of its own. HF_NET: no answer. */
enum hf_code load_once(int port, struct slice request, int *status, struct buf *body,
		       struct hf_err *err);

int64_t load_now_ns(void);
