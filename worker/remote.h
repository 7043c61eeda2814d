/* remote.h - what is remembered of each system downstream, by host and port: who waits for a turn,
 * its budget of repeats (retry.h), its breaker (breaker.h). For downstream.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/buf.h"
#include "worker/breaker.h"
#include "worker/egress.h"
#include "worker/retry.h"

struct downstream_call;

constexpr size_t REMOTE_LAST_LEN_MAX = 100;

struct remote {
	struct remote *next;
	struct egress_target target;
	int running, repeats; /* repeats: of the running ones */
	struct downstream_call *waiting, **waiting_end;
	struct retry_budget budget;
	struct breaker breaker;
	char last[REMOTE_LAST_LEN_MAX + 1]; /* why the breaker opened */
	int64_t used_at;
};

struct remotes {
	struct remote *first;
	size_t count, count_max;
	struct breaker_limits limits;
};

/* Found or made. Of more than count_max the one idle for longest is forgotten. */
struct remote *remote_get(struct remotes *remotes, const struct egress_target *target);
/* 0: it may be asked. Else how long it is not, and `text` says so, for people. */
int64_t remote_wait_ms(const struct remote *remote, struct buf *text);
/* How a request ended that went out with `pass`; `reason` is kept where the breaker opens. */
void remote_tell(const struct remotes *remotes, struct remote *remote, struct breaker_pass pass,
		 enum breaker_result result, const char *reason);
/* Sets their gauges. */
void remotes_collect(const struct remotes *remotes);
void remotes_deinit(struct remotes *remotes);
