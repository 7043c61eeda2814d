/* follow.c - see follow.h. Used by listen.c; serve.c passes the store's hints on. The round is in
 * the order of the last looks: a tick takes from its head and appends. Who is to be looked at
 * first, or again, stands in the urgent line before. */
#include "api/follow.h"

#include <stdlib.h>

#include <ev.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/store.h"
#include "runtime/timer.h"

struct line {
	struct follower *first, *last;
	size_t count;
};

struct follow {
	struct ev_loop *loop;
	struct store *store;
	struct line urgent;    /* to be looked at as soon as a few others have been */
	struct line round;     /* looked at in turn */
	size_t hinted;         /* so many from its head are to be looked at soon */
	unsigned urgent_looks; /* in flight */
	bool away;             /* the store did not answer lately */
	ev_timer timer;
	int64_t ticked_ms;
};

/* The way back from the store. It outlives the followers that are removed meanwhile. */
struct look_back {
	struct follow *follow;
	struct follower *first; /* of the same owner's same task */
	int64_t owner;
	struct task_id id;
	bool urgent;
};

static void line_take(struct line *line, struct follower *follower)
{
	*(follower->previous ? &follower->previous->next : &line->first) = follower->next;
	*(follower->next ? &follower->next->previous : &line->last) = follower->previous;
	line->count--;
}

static void line_append(struct line *line, struct follower *follower)
{
	follower->next = nullptr;
	follower->previous = line->last;
	*(line->last ? &line->last->next : &line->first) = follower;
	line->last = follower;
	line->count++;
}

static void arm(struct follow *follow)
{
	int64_t pause_ms = follow->hinted ? FOLLOW_SOON_MS : FOLLOW_EVERY_MS;
	if (follow->round.first)
		timer_set(follow->loop, &follow->timer,
			  follow->ticked_ms + pause_ms - clock_boot_ms());
	else
		ev_timer_stop(follow->loop, &follow->timer);
}

static void on_polled(void *ctx, enum hf_code code, const struct task_view *view,
		      const struct hf_err *err);

static void look_join(struct look_back *look, struct follower *follower)
{
	follower->look = look;
	follower->again = false;
	follower->look_next = look->first;
	look->first = follower;
}

static void look_leave(struct follower *follower)
{
	struct follower **at = &follower->look->first;
	while (*at != follower)
		at = &(*at)->look_next;
	*at = follower->look_next;
	follower->look = nullptr;
}

static struct look_back *look_at(struct follower *follower, bool urgent)
{
	struct look_back *look = hf_alloc(sizeof *look);
	look->follow = follower->follow;
	look->owner = follower->owner;
	look->id = follower->id;
	look->urgent = urgent;
	look_join(look, follower);
	store_poll(follower->follow->store, follower->owner, &follower->id, on_polled, look);
	return look;
}

/* Results may be large, and these looks are likely to bring some: a few at a time. */
static void hurry(struct follow *follow)
{
	while (follow->urgent.first && (follow->away || follow->urgent_looks < FOLLOW_URGENT_MAX)) {
		struct follower *at = follow->urgent.first;
		line_take(&follow->urgent, at);
		line_append(&follow->round, at);
		at->urgent = false;
		follow->urgent_looks++;
		look_at(at, true);
	}
	if (!ev_is_active(&follow->timer))
		arm(follow);
}

static void on_polled(void *ctx, enum hf_code code, const struct task_view *view,
		      const struct hf_err *err)
{
	struct look_back *look = ctx;
	struct follow *follow = look->follow;
	if (look->urgent)
		follow->urgent_looks--;
	follow->away = code != HF_OK && code != HF_MISSING;
	if (code != HF_CANCELLED) /* the store is being closed */
		hurry(follow);
	for (struct follower *follower; (follower = look->first);) {
		look_leave(follower);
		if (follower->again && !follow->away)
			follow_again(follower);
		/* `follower` may be no more afterwards, and others may have left the look. */
		follower->seen(follower->ctx, code, view, err);
	}
	free(look);
}

/* However many streams follow a task, a tick looks at it once. */
static struct look_back *find_look(struct look_back *const *looks, size_t count,
				   const struct follower *follower)
{
	for (size_t i = 0; i < count; i++)
		if (looks[i]->owner == follower->owner &&
		    task_id_equal(&looks[i]->id, &follower->id))
			return looks[i];
	return nullptr;
}

static void on_tick(struct ev_loop *, ev_timer *timer, int)
{
	struct follow *follow = container_of(timer, struct follow, timer);
	size_t count = follow->round.count;
	size_t looks = count < FOLLOW_LOOKS_MAX ? count : FOLLOW_LOOKS_MAX;
	struct look_back *now[FOLLOW_LOOKS_MAX];
	size_t now_count = 0;
	follow->ticked_ms = clock_boot_ms();
	for (size_t i = 0; i < looks; i++) {
		struct follower *at = follow->round.first;
		struct look_back *look;
		line_take(&follow->round, at);
		line_append(&follow->round, at);
		if (at->look)
			at->again = at->again || follow->hinted > 0;
		else if (at->paused)
			continue;
		else if ((look = find_look(now, now_count, at)))
			look_join(look, at);
		else
			now[now_count++] = look_at(at, false);
	}
	follow->hinted -= follow->hinted < looks ? follow->hinted : looks;
	arm(follow);
}

struct follow *follow_new(struct ev_loop *loop, struct store *store)
{
	struct follow *follow = hf_alloc(sizeof *follow);
	follow->loop = loop;
	follow->store = store;
	ev_init(&follow->timer, on_tick);
	return follow;
}

struct follow *follow_free(struct follow *follow)
{
	if (!follow)
		return nullptr;
	hf_assert(!follow->round.first);
	hf_assert(!follow->urgent.first);
	ev_timer_stop(follow->loop, &follow->timer);
	free(follow);
	return nullptr;
}

static void enqueue(struct follow *follow, struct follower *follower)
{
	follower->urgent = true;
	line_append(&follow->urgent, follower);
	if (!follow->round.first)
		follow->ticked_ms = clock_boot_ms();
	hurry(follow);
}

void follow_add(struct follow *follow, struct follower *follower)
{
	hf_assert(!follower->follow);
	hf_assert(follower->seen);
	follower->follow = follow;
	follower->paused = false;
	enqueue(follow, follower);
}

void follow_remove(struct follower *follower)
{
	struct follow *follow = follower->follow;
	if (!follow)
		return;
	line_take(follower->urgent ? &follow->urgent : &follow->round, follower);
	if (follower->look)
		look_leave(follower);
	follower->follow = nullptr;
}

void follow_again(struct follower *follower)
{
	struct follow *follow = follower->follow;
	hf_assert(follow);
	follower->paused = false;
	if (follower->look)
		follower->again = true;
	if (follower->look || follower->urgent)
		return;
	line_take(&follow->round, follower);
	enqueue(follow, follower);
}

void follow_hint(struct follow *follow)
{
	follow->hinted = follow->round.count;
	arm(follow);
}
