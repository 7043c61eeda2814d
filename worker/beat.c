/*
 *   registering* ──alive──► held* ──dead, or lease down to its margin──► lost*
 *        ▲                                                                 │
 *        └──────────────── beat_renew (all runs are over) ◄────────────────┘
 *                                    * suspended: a beat's answer, a timer or beat_renew resumes
 *
 * A beat in flight belongs to the incarnation that sent it; its answer counts for no other.
 */
#include "worker/beat.h"

#include <ev.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/timer.h"

constexpr size_t PROGRESS_ROWS_MAX = 256; /* of one beat; the rest goes with the next */
constexpr int64_t FAILED_MS = 500;        /* from a beat that failed to the next */

enum beat_state { BEAT_REGISTERING, BEAT_HELD, BEAT_LOST };

struct beat {
	struct ev_loop *loop;
	struct store *store;
	struct beat_settings settings;
	struct beat_hooks hooks;
	enum beat_state state;
	struct uuid incarnation;
	uint64_t number;      /* of the incarnation */
	uint64_t flying;      /* number of the incarnation whose beat is in flight; 0: none */
	int64_t sent_ms;      /* boot clock: when the beat in flight was sent */
	int64_t acknowledged; /* boot clock: when the last acknowledged one was sent */
	bool again;           /* asked for while one was in flight */
	ev_timer next;        /* the next beat is due */
	ev_timer end;         /* the local lease is down to its margin */
};

static int64_t margin_ms(const struct beat *beat)
{
	return beat->settings.lease_ms * BEAT_MARGIN_PERCENT / 100;
}

static int64_t lease_left_ms(const struct beat *beat)
{
	return beat->acknowledged + beat->settings.lease_ms - margin_ms(beat) - clock_boot_ms();
}

static int64_t interval_ms(const struct beat *beat)
{
	bool runs = beat->hooks.running(beat->hooks.ctx) > 0;
	return runs && beat->settings.beat_ms > BEAT_MS_MAX_RUNNING ? BEAT_MS_MAX_RUNNING
								    : beat->settings.beat_ms;
}

static void lose(struct beat *beat, bool taken)
{
	if (beat->state == BEAT_LOST)
		return;
	char id[UUID_TEXT_LEN + 1];
	log_warn("incarnation lost", "incarnation", uuid_format(&beat->incarnation, id), "reason",
		 taken ? "declared dead" : "no beat was acknowledged in time", "running",
		 LOG_INT(beat->hooks.running(beat->hooks.ctx)), nullptr);
	metric_add(METRIC_incarnations_lost_total, taken ? "dead" : "lease", 1);
	beat->state = BEAT_LOST;
	ev_timer_stop(beat->loop, &beat->next);
	ev_timer_stop(beat->loop, &beat->end);
	beat->hooks.lost(beat->hooks.ctx, taken);
}

static void acknowledge(struct beat *beat)
{
	beat->acknowledged = beat->sent_ms;
	beat->hooks.renewed(beat->hooks.ctx, beat->sent_ms, beat->settings.lease_ms);
	if (beat->state == BEAT_REGISTERING) {
		char id[UUID_TEXT_LEN + 1];
		log_info("incarnation registered", "incarnation",
			 uuid_format(&beat->incarnation, id), nullptr);
		beat->state = BEAT_HELD;
		beat->hooks.ready(beat->hooks.ctx);
	}
	timer_set(beat->loop, &beat->end, lease_left_ms(beat));
}

static void on_beat(void *ctx, enum hf_code code, bool alive, const struct beat_wish *wishes,
		    size_t wishes_count, const struct hf_err *err)
{
	struct beat *beat = ctx;
	bool mine = beat->flying == beat->number;
	beat->flying = 0;
	if (code == HF_CANCELLED)
		return; /* the store is closing */
	if (mine && code == HF_OK && !alive)
		lose(beat, true);
	else if (mine && code == HF_OK && beat->state != BEAT_LOST)
		acknowledge(beat);
	if (code != HF_OK)
		log_warn("a beat failed, the next follows soon", "error", err ? err->text : nullptr,
			 nullptr);
	if (beat->state == BEAT_LOST)
		return;
	for (size_t i = 0; mine && code == HF_OK && i < wishes_count; i++)
		beat->hooks.wish(beat->hooks.ctx, &wishes[i]);
	int64_t wait =
	    code == HF_OK ? beat->sent_ms + interval_ms(beat) - clock_boot_ms() : FAILED_MS;
	timer_set(beat->loop, &beat->next, beat->again || !mine ? 0 : wait);
	beat->again = false;
}

static void on_next(struct ev_loop *, ev_timer *timer, int)
{
	struct beat *beat = container_of(timer, struct beat, next);
	if (beat->flying || beat->state == BEAT_LOST) {
		beat->again = true;
		return;
	}
	static struct beat_task tasks[PROGRESS_ROWS_MAX];
	size_t count = beat->hooks.progress(beat->hooks.ctx, tasks, PROGRESS_ROWS_MAX);
	beat->flying = beat->number;
	beat->sent_ms = clock_boot_ms();
	store_beat(beat->store, &beat->incarnation, beat->settings.slots,
		   (int)beat->hooks.running(beat->hooks.ctx), tasks, count, on_beat, beat);
}

static void on_end(struct ev_loop *, ev_timer *timer, int)
{
	struct beat *beat = container_of(timer, struct beat, end);
	/* libev's clock stops while the machine sleeps, the boot-time clock doesn't. */
	if (lease_left_ms(beat) > 0)
		timer_set(beat->loop, &beat->end, lease_left_ms(beat));
	else
		lose(beat, false);
}

static void begin(struct beat *beat)
{
	beat->state = BEAT_REGISTERING;
	beat->incarnation = uuid_new();
	beat->number++;
	beat->again = false;
	timer_set(beat->loop, &beat->next, 0);
}

struct beat *beat_open(struct ev_loop *loop, struct store *store,
		       const struct beat_settings *settings, const struct beat_hooks *hooks)
{
	struct beat *beat = hf_alloc(sizeof *beat);
	beat->loop = loop;
	beat->store = store;
	beat->settings = *settings;
	beat->hooks = *hooks;
	ev_init(&beat->next, on_next);
	ev_init(&beat->end, on_end);
	begin(beat);
	return beat;
}

void beat_stop(struct beat *beat)
{
	beat->state = BEAT_LOST;
	ev_timer_stop(beat->loop, &beat->next);
	ev_timer_stop(beat->loop, &beat->end);
}

struct beat *beat_close(struct beat *beat)
{
	if (!beat)
		return nullptr;
	beat_stop(beat);
	free(beat);
	return nullptr;
}

const struct uuid *beat_incarnation(const struct beat *beat)
{
	return beat->state == BEAT_HELD ? &beat->incarnation : nullptr;
}

const struct uuid *beat_last_incarnation(const struct beat *beat)
{
	return &beat->incarnation;
}

bool beat_may_send(const struct beat *beat)
{
	return beat->state == BEAT_HELD && lease_left_ms(beat) > 0;
}

void beat_now(struct beat *beat)
{
	if (beat->state != BEAT_LOST)
		timer_set(beat->loop, &beat->next, 0);
}

void beat_renew(struct beat *beat)
{
	hf_assert(beat->state == BEAT_LOST);
	begin(beat);
}
