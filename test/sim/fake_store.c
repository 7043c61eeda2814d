/* fake_store.c - the way of an act from its caller to the store and back, on connections that
 * break: executed in order on each of them, told later; an answer that is lost has the act sent
 * again, as runtime/db.c does, and what was on its way may still arrive behind it. What the process
 * that dies has sent may be executed after its death. */
#include "test/sim/fake_store.h"

#include <stdlib.h>

#include "runtime/base.h"
#include "test/sim/seen.h"

constexpr int64_t WAY_US_MAX = 4 * MS;
constexpr int64_t SLOW_US_MAX = 400 * MS;
constexpr int64_t COPY_US_MAX = 300 * MS;
constexpr int64_t AWAY_US_MAX = 1'500 * MS;
constexpr int64_t WAKE_US_MAX = 20 * MS;
constexpr int WAKE_LOST_IN_10000 = 2'000;
/* What a process is killed or its connection lost upon, within the act's time. */
constexpr int DOOM_WORKER_IN_10000 = 40, DOOM_API_IN_10000 = 6, DOOM_SELDOM_IN_10000 = 200;
constexpr int BREAK_IN_10000 = 20;
constexpr int SLOW_IN_10000 = 100, REFUSED_IN_10000 = 12;

struct model *store_now(void)
{
	model_set_now(world.model, database_ms());
	return world.model;
}

int effect_number(const struct task_id *id)
{
	const struct model_task *task = model_look(world.model, id);
	const struct effect *effect = task ? effect_of(task->effect_id) : nullptr;
	return effect ? effect->number : -1;
}

/* --- one act ---------------------------------------------------------------------------------- */

struct piece {
	struct piece *next;
	alignas(16) char bytes[];
};

static void pieces_free(struct piece **pieces)
{
	for (struct piece *at = *pieces, *next; at; at = next) {
		next = at->next;
		free(at);
	}
	*pieces = nullptr;
}

static struct slice piece_add(struct piece **pieces, struct slice slice)
{
	if (!slice.len)
		return slice;
	struct piece *piece = malloc(sizeof *piece + slice.len + 1);
	hf_assert(piece);
	piece->next = *pieces;
	*pieces = piece;
	memcpy(piece->bytes, slice.data, slice.len);
	piece->bytes[slice.len] = '\0';
	return (struct slice){ piece->bytes, slice.len };
}

static void act_drop(struct act *act)
{
	if (!act->shared)
		pieces_free(&act->asked);
	pieces_free(&act->answer);
	free(act);
}

struct slice act_keep(struct act *act, struct slice slice)
{
	return piece_add(&act->asked, slice);
}

struct slice act_answer(struct act *act, struct slice slice)
{
	return piece_add(&act->answer, slice);
}

static void line_leave(struct act *act)
{
	struct store *store = act->store;
	*(act->previous ? &act->previous->next : &store->first[act->kind->lane]) = act->next;
	if (act->next)
		act->next->previous = act->previous;
	act->next = act->previous = nullptr;
	event_drop(&act->execute);
	event_drop(&act->tell);
	event_drop(&act->give_up);
}

static void answer(struct act *act, enum hf_code code)
{
	struct hf_err err = {};
	if (code != HF_OK)
		(void)hf_fail(&err, code, "it is simulated");
	line_leave(act);
	act->kind->tell(act, code, code == HF_OK ? nullptr : &err);
	act_drop(act);
}

static void on_tell(struct event *event)
{
	answer(container_of(event, struct act, tell), HF_OK);
}

static void on_refused(struct event *event)
{
	static const enum hf_code codes[] = { HF_BUSY, HF_DB, HF_INVALID };
	answer(container_of(event, struct act, tell), codes[dice() % countof(codes)]);
}

static void on_execute(struct event *event);
static void break_soon(struct process *process, enum lane lane);

/* What had been sent arrives after all, or never does. */
static void may_arrive(struct act *act)
{
	if (!act->sent || act->executed || !act->execute.spot || !dice_hits(5'000))
		return;
	struct act *copy = hf_alloc(sizeof *copy);
	*copy = *act;
	copy->copy = true;
	copy->answer = nullptr;
	copy->next = copy->previous = nullptr;
	copy->execute = (struct event){ .fire = on_execute };
	copy->tell = copy->give_up = (struct event){};
	act->shared = copy->shared = true;
	event_set(&copy->execute, now_us + dice_between(0, COPY_US_MAX));
}

static void on_give_up(struct event *event)
{
	struct act *act = container_of(event, struct act, give_up);
	count(TABLE_ACT, act->sent ? ACT_TIMEOUT : ACT_BUSY, 0);
	may_arrive(act);
	answer(act, act->sent ? HF_TIMEOUT : HF_BUSY);
}

static void execute(struct act *act)
{
	store_now();
	pieces_free(&act->answer);
	act->kind->execute(act);
}

static void on_execute(struct event *event)
{
	struct act *act = container_of(event, struct act, execute);
	if (act->copy) {
		happened("a late copy arrives", act->effect, act->kind->op, 0);
		execute(act);
		act_drop(act);
		return;
	}
	execute(act);
	act->executed = true;
}

static int64_t way_us(void)
{
	return in_trouble(SLOW_IN_10000) ? dice_between(0, SLOW_US_MAX)
					 : dice_between(200, WAY_US_MAX);
}

/* On its way, behind all that were sent before on this connection. */
static void launch(struct act *act)
{
	struct store *store = act->store;
	enum lane lane = act->kind->lane;
	int64_t from_us = now_us > store->up_us[lane] ? now_us : store->up_us[lane];
	int64_t at_us = from_us + way_us();
	if (at_us <= store->executed_us[lane])
		at_us = store->executed_us[lane] + 1;
	store->executed_us[lane] = at_us;
	act->sent = act->sent || store->up_us[lane] <= now_us;
	act->executed = false;
	act->execute.fire = on_execute;
	act->tell.fire = on_tell;
	if (act->kind->refusable && in_trouble(REFUSED_IN_10000))
		act->tell.fire = on_refused;
	else
		event_set(&act->execute, at_us);
	at_us += way_us();
	if (at_us <= store->told_us[lane])
		at_us = store->told_us[lane] + 1;
	store->told_us[lane] = at_us;
	event_set(&act->tell, at_us);
}

struct act *act_new(struct store *store, const struct act_kind *kind, void *ctx)
{
	struct act *act = hf_alloc(sizeof *act);
	act->kind = kind;
	act->store = store;
	act->process = store->process;
	act->ctx = ctx;
	act->effect = -1;
	return act;
}

/* Acts that are seldom have to meet a death as well. */
static int doom_in_10000(enum op_kind op, bool is_worker)
{
	switch (op) {
	case OP_ATTACH:
	case OP_CANCEL:
	case OP_ANSWER:
		return DOOM_SELDOM_IN_10000;
	case OP_INTENT:
	case OP_ASK:
		return 2 * DOOM_WORKER_IN_10000;
	default:
		return is_worker ? DOOM_WORKER_IN_10000 : DOOM_API_IN_10000;
	}
}

void act_send(struct act *act)
{
	struct store *store = act->store;
	enum lane lane = act->kind->lane;
	act->tell.process = act->give_up.process = store->process;
	act->next = store->first[lane];
	if (act->next)
		act->next->previous = act;
	store->first[lane] = act;
	if (act->kind->gives_up) {
		act->give_up.fire = on_give_up;
		event_set(&act->give_up, now_us + STORE_GIVE_UP_MS * MS);
	}
	bool is_worker = store->process->kind == PROCESS_WORKER;
	if (in_trouble(doom_in_10000(act->kind->op, is_worker)))
		process_doom(store->process, 2 * WAY_US_MAX);
	if (in_trouble(is_worker ? BREAK_IN_10000 : BREAK_IN_10000 / 4))
		break_soon(store->process, lane);
	launch(act);
}

/* --- what goes wrong -------------------------------------------------------------------------- */

enum { WHERE_WAITS, WHERE_SENT, WHERE_EXECUTED };

static int where(const struct act *act)
{
	return act->executed ? WHERE_EXECUTED : act->sent ? WHERE_SENT : WHERE_WAITS;
}

static void break_lane(struct process *process, enum lane lane)
{
	struct store *store = process->store;
	if (!process->alive || !store)
		return;
	count(TABLE_ACT, ACT_LANE, lane);
	happened("connection lost", -1, process->number, lane);
	store->up_us[lane] = now_us + dice_between(1 * MS, AWAY_US_MAX);
	/* Sent again in the order of first sending: the line is newest first. */
	struct act *oldest = store->first[lane];
	while (oldest && oldest->next)
		oldest = oldest->next;
	for (struct act *act = oldest; act; act = act->previous) {
		count(TABLE_LOST, act->kind->op, where(act));
		may_arrive(act);
		event_drop(&act->execute);
		event_drop(&act->tell);
		launch(act);
	}
}

void store_break_lane(struct process *process)
{
	break_lane(process, (enum lane)(dice() % LANES));
}

struct breaks {
	struct event event;
	enum lane lane;
};

static void on_break(struct event *event)
{
	struct breaks *breaks = container_of(event, struct breaks, event);
	break_lane(event->process, breaks->lane);
	free(breaks);
}

/* While something is on its way there. */
static void break_soon(struct process *process, enum lane lane)
{
	struct breaks *breaks = hf_alloc(sizeof *breaks);
	breaks->event = (struct event){ .process = process, .fire = on_break };
	breaks->lane = lane;
	event_set(&breaks->event, now_us + dice_between(0, 2 * WAY_US_MAX));
}

void store_process_died(struct process *process)
{
	struct store *store = process->store;
	process->store = nullptr;
	if (!store)
		return;
	for (enum lane lane = 0; lane < LANES; lane++) {
		while (store->first[lane]) {
			struct act *act = store->first[lane];
			count(TABLE_KILL, act->kind->op, where(act));
			may_arrive(act);
			line_leave(act);
			act_drop(act);
		}
	}
	for (enum wake wake = 0; wake < WAKES; wake++)
		event_drop(&store->wakes[wake]);
}

/* --- runtime/store.h: the store itself -------------------------------------------------------- */

static void on_wake_event(struct event *event)
{
	struct store *store = event->process->store;
	for (enum wake wake = 0; wake < WAKES; wake++)
		if (event == &store->wakes[wake] && store->on_wake)
			store->on_wake(store->on_wake_ctx, wake);
}

/* A hint: to every process, soon, or lost. */
void store_wake_all(enum wake wake)
{
	for (int i = 0; i < world.processes_count; i++) {
		struct process *process = world.processes[i];
		struct store *store = process->store;
		bool wants = (wake == WAKE_ENDED) == (process->kind == PROCESS_API);
		if (!store || !wants || store->wakes[wake].spot || dice_hits(WAKE_LOST_IN_10000))
			continue;
		store->wakes[wake].fire = on_wake_event;
		store->wakes[wake].process = process;
		event_set(&store->wakes[wake], now_us + dice_between(0, WAKE_US_MAX));
	}
}

struct store *store_open(struct ev_loop *, enum store_role, const char *, const char *,
			 const struct store_keys *)
{
	struct store *store = hf_alloc(sizeof *store);
	store->process = running_process;
	running_process->store = store;
	return store;
}

void store_close(struct store *store)
{
	for (enum lane lane = 0; lane < LANES; lane++)
		while (store->first[lane])
			answer(store->first[lane], HF_CANCELLED);
	for (enum wake wake = 0; wake < WAKES; wake++)
		event_drop(&store->wakes[wake]);
	store->process->store = nullptr;
}

bool store_ready(const struct store *)
{
	return true;
}

void store_collect(const struct store *)
{
}

void store_on_wake(struct store *store, void (*wake)(void *ctx, enum wake wake), void *ctx)
{
	store->on_wake = wake;
	store->on_wake_ctx = ctx;
}
