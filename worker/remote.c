/* remote.c - a list in no order, walked for each request: few hosts are remembered. */
#include "worker/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/random.h"
#include "worker/downstream.h"

/* Room for one more, by forgetting who was idle for longest. */
static void trim(struct remotes *remotes)
{
	struct remote **oldest = nullptr;
	for (struct remote **at = &remotes->first; *at; at = &(*at)->next) {
		bool idle = (*at)->running == 0 && !(*at)->waiting;
		if (idle && (!oldest || (*at)->used_at < (*oldest)->used_at))
			oldest = at;
	}
	if (remotes->count < remotes->count_max || !oldest)
		return;
	struct remote *gone = *oldest;
	*oldest = gone->next;
	remotes->count--;
	free(gone);
}

struct remote *remote_get(struct remotes *remotes, const struct egress_target *target)
{
	int64_t now_ms = clock_boot_ms();
	struct remote *remote = remotes->first;
	while (remote && (remote->target.port != target->port ||
			  strcmp(remote->target.host, target->host) != 0))
		remote = remote->next;
	if (!remote) {
		trim(remotes);
		remote = hf_alloc(sizeof *remote);
		*remote = (struct remote){ .next = remotes->first, .target = *target };
		remote->waiting_end = &remote->waiting;
		retry_budget_init(&remote->budget, now_ms);
		remotes->first = remote;
		remotes->count++;
	}
	remote->used_at = now_ms;
	return remote;
}

int64_t remote_wait_ms(const struct remote *remote, struct buf *text)
{
	int64_t wait_ms = breaker_wait_ms(&remote->breaker, clock_boot_ms());
	if (wait_ms == 0)
		return 0;
	char when[32];
	struct tm parts;
	time_t at = time(nullptr) + (time_t)((wait_ms + 999) / 1'000);
	strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &parts));
	buf_add_format(text, "breaker open for %s:%d until %s, last: %s", remote->target.host,
		       remote->target.port, when, remote->last);
	return wait_ms;
}

void remote_tell(const struct remotes *remotes, struct remote *remote, struct breaker_pass pass,
		 enum breaker_result result, const char *reason)
{
	static const char *const because[] = { [BREAKER_OPENS_BY_ROW] = "row",
					       [BREAKER_OPENS_BY_SHARE] = "share",
					       [BREAKER_OPENS_BY_PROBE] = "probe" };
	enum breaker_change change = breaker_tell(&remote->breaker, &remotes->limits, pass, result,
						  clock_boot_ms(), random_up_to(RETRY_DICE_MAX));
	if (change == BREAKER_STAYS)
		return;
	if (change == BREAKER_CLOSES) {
		log_info("breaker closes", "host", remote->target.host, "port",
			 LOG_INT(remote->target.port), nullptr);
		return;
	}
	snprintf(remote->last, sizeof remote->last, "%.*s", (int)REMOTE_LAST_LEN_MAX, reason);
	metric_add(METRIC_breaker_opens_total, because[change], 1);
	log_warn("breaker opens", "host", remote->target.host, "port", LOG_INT(remote->target.port),
		 "because", because[change], "last", remote->last, "pause_ms",
		 LOG_INT(remote->breaker.pause_ms), nullptr);
}

void remotes_collect(const struct remotes *remotes)
{
	int64_t most = 0, repeats = 0, spent = 0;
	metric_forget(METRIC_breaker_open);
	for (const struct remote *remote = remotes->first; remote; remote = remote->next) {
		int64_t gone =
		    RETRY_SAVED_MAX - retry_budget_left(&remote->budget, clock_boot_ms());
		most = remote->running > most ? remote->running : most;
		repeats = remote->repeats > repeats ? remote->repeats : repeats;
		spent = gone > spent ? gone : spent;
		if (remote->breaker.state == BREAKER_CLOSED)
			continue;
		char name[EGRESS_HOST_LEN_MAX + 16];
		snprintf(name, sizeof name, "%s:%d", remote->target.host, remote->target.port);
		metric_set(METRIC_breaker_open, name, 1);
	}
	metric_bound("downstream_hosts", (int64_t)remotes->count, (int64_t)remotes->count_max);
	metric_bound("calls_per_host", most, DOWNSTREAM_CALLS_PER_HOST_MAX);
	metric_bound("repeats_per_host", repeats, DOWNSTREAM_REPEATS_PER_HOST_MAX);
	metric_bound("retry_budget", spent, RETRY_SAVED_MAX);
}

void remotes_deinit(struct remotes *remotes)
{
	for (struct remote *remote = remotes->first, *next; remote; remote = next) {
		next = remote->next;
		free(remote);
	}
	*remotes = (struct remotes){};
}
