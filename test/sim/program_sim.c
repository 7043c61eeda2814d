/* program_sim.c - worker/host.h with tool processes that are simulated, behind real frames: each
 * run plays a short script of checkpoints, recalls, progress and questions, takes effect where its
 * class has one (keyed: once a key), and ends in one of the ways that programs end. A process that
 * is killed may have taken effect before. */
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "test/sim/sim.h"
#include "worker/frame.h"
#include "worker/host.h"

constexpr int64_t WORK_US_MAX = 700 * MS, DIE_US_MAX = 200 * MS;
constexpr int DOOM_IN_10000 = 25;

enum end {
	END_RESULT,
	END_ERROR,
	END_ERROR_RETRY,
	END_CRASH_BEFORE, /* killed by a signal, nothing done */
	END_CRASH_AFTER,
	END_EXIT_RETRY, /* exit 75, nothing done */
	END_EXIT_BAD,   /* exit 3 */
	END_EXIT_BAD_AFTER,
	END_GARBAGE,
	END_HANG,
	ENDS
};

/* What its script does next. */
enum turn { TURN_RECALL, TURN_CHECKPOINT, TURN_ASK, TURN_PROGRESS, TURN_EFFECT, TURN_END };

struct host {
	struct host *next, *previous;
	struct host_pool *pool;
	void (*on_change)(void *ctx);
	void *ctx;
	struct event turns, dies;
	enum turn turn;
	enum end end;
	int effect, place;
	enum effect_class class;
	char key[56];
	bool running, busy, killed, exited, gone, asks;
	int status;
	struct buf said; /* frames for the worker */
	size_t taken;    /* of them, by the last host_read */
};

struct host_pool {
	struct process *process;
	struct host *first;
	size_t count;
};

static void change(struct host *host)
{
	if (host->on_change)
		host->on_change(host->ctx);
}

/* --- what it says ----------------------------------------------------------------------------- */

static size_t begin(struct host *host, const char *type, uint32_t more)
{
	size_t start = frame_begin(&host->said);
	frame_map(&host->said, 2 + more);
	frame_text(&host->said, slice_of("t"));
	frame_text(&host->said, slice_of(type));
	frame_text(&host->said, slice_of("run"));
	frame_int(&host->said, 1);
	return start;
}

static void member_text(struct host *host, const char *name, const char *text)
{
	frame_text(&host->said, slice_of(name));
	frame_text(&host->said, slice_of(text));
}

static void end_frame(struct host *host, size_t start)
{
	bool whole = frame_end(&host->said, start);
	hf_assert(whole);
	change(host);
}

static void exits(struct host *host, int status)
{
	host->exited = true;
	host->status = status;
	host->gone = true;
	change(host);
}

static void say_ask(struct host *host)
{
	size_t start = begin(host, "ask", 2);
	member_text(host, "key", "sure");
	frame_text(&host->said, slice_of("request"));
	frame_map(&host->said, 2);
	member_text(host, "method", "elicitation/create");
	frame_text(&host->said, slice_of("params"));
	frame_map(&host->said, 2);
	member_text(host, "message", "Sure?");
	frame_text(&host->said, slice_of("requestedSchema"));
	frame_map(&host->said, 2);
	member_text(host, "type", "object");
	frame_text(&host->said, slice_of("properties"));
	frame_map(&host->said, 0);
	end_frame(host, start);
}

/* A word that is answered: the script goes on at host_send. */
static void say_asking(struct host *host)
{
	size_t start;
	if (host->turn == TURN_ASK) {
		say_ask(host);
	} else if (host->turn == TURN_RECALL) {
		start = begin(host, "recall", 1);
		member_text(host, "name", "part");
		end_frame(host, start);
	} else {
		start = begin(host, "checkpoint", 2);
		member_text(host, "name", "part");
		frame_text(&host->said, slice_of("value"));
		frame_int(&host->said, host->place);
		end_frame(host, start);
	}
}

static void say_end(struct host *host)
{
	size_t start;
	switch (host->end) {
	case END_RESULT:
		start = begin(host, "result", 1);
		frame_text(&host->said, slice_of("value"));
		frame_map(&host->said, 1);
		frame_text(&host->said, slice_of("n"));
		frame_int(&host->said, 1);
		end_frame(host, start);
		return;
	case END_ERROR:
	case END_ERROR_RETRY:
		start = begin(host, "error", 2);
		member_text(host, "text", "it says no");
		frame_text(&host->said, slice_of("retry"));
		frame_bool(&host->said, host->end == END_ERROR_RETRY);
		end_frame(host, start);
		return;
	case END_GARBAGE:
		buf_add(&host->said, "\0\0\0\1\xc1", 5);
		change(host);
		return;
	case END_CRASH_BEFORE:
	case END_CRASH_AFTER:
		exits(host, 11);
		return;
	case END_EXIT_RETRY:
		exits(host, 75 << 8);
		return;
	case END_EXIT_BAD:
	case END_EXIT_BAD_AFTER:
		exits(host, 3 << 8);
		return;
	case END_HANG:
	case ENDS:
		return;
	}
}

/* --- its script ------------------------------------------------------------------------------- */

static bool takes_effect(const struct host *host)
{
	return host->class != EFFECT_PURE &&
	       (host->end == END_RESULT || host->end == END_CRASH_AFTER ||
		host->end == END_EXIT_BAD_AFTER || host->end == END_GARBAGE ||
		host->end == END_HANG);
}

/* Of a keyed one the system behind knows the key already. */
static void effect(struct host *host)
{
	struct entry *entry = ledger(host->effect, host->place);
	entry->flying--;
	host->busy = false;
	if (takes_effect(host) && !(host->class == EFFECT_KEYED && entry->effects > 0))
		ledger_effect(host->effect, host->place);
}

static void turn_soon(struct host *host)
{
	event_set(&host->turns, now_us + dice_between(100, WORK_US_MAX / 4));
}

static void on_turn(struct event *event)
{
	struct host *host = container_of(event, struct host, turns);
	bool asks = host->asks;
	switch (host->turn) {
	case TURN_ASK:
		if (!asks) {
			host->turn++;
			turn_soon(host);
			return;
		}
		say_asking(host);
		return;
	case TURN_RECALL:
	case TURN_CHECKPOINT:
		say_asking(host);
		return;
	case TURN_PROGRESS:
		host->turn++;
		size_t start = begin(host, "progress", 1);
		frame_text(&host->said, slice_of("fraction"));
		frame_double(&host->said, 0.5);
		end_frame(host, start);
		turn_soon(host);
		return;
	case TURN_EFFECT:
		host->turn++;
		if (host->busy)
			effect(host);
		turn_soon(host);
		return;
	case TURN_END:
		say_end(host);
		return;
	}
}

static enum end draw_end(void)
{
	static const int weights[ENDS] = {
		[END_ERROR] = 15,          [END_ERROR_RETRY] = 30, [END_CRASH_BEFORE] = 40,
		[END_CRASH_AFTER] = 40,    [END_EXIT_RETRY] = 30,  [END_EXIT_BAD] = 10,
		[END_EXIT_BAD_AFTER] = 10, [END_GARBAGE] = 15,     [END_HANG] = 5,
	};
	int drawn = (int)dice_between(0, 999);
	for (enum end end = END_ERROR; end < ENDS && !world.calm; end++) {
		if (drawn < weights[end] * world.trouble / 10'000)
			return end;
		drawn -= weights[end] * world.trouble / 10'000;
	}
	return END_RESULT;
}

static void run_begins(struct host *host, const struct frame *frame)
{
	struct slice phase = {}, effect_id = {}, key = {};
	bool whole = frame_get_text(frame, "phase", &phase) &&
		     frame_get_text(frame, "effect_id", &effect_id) &&
		     frame_get_text(frame, "key", &key);
	hf_assert(whole);
	struct effect *known = effect_of(effect_id);
	hf_assert(known);
	host->effect = known->number;
	host->place = place_of(phase);
	const struct phase_spec *spec = &known->tool->phases[host->place % PHASES_MAX];
	if (host->place >= PHASES_MAX)
		spec = spec->undo;
	host->class = spec->effect;
	host->asks = slice_is(slice_of(spec->command[0]), "./asks");
	snprintf(host->key, sizeof host->key, "%.*s", (int)key.len, key.data);
	host->end = draw_end();
	host->running = true;
	host->turn = TURN_RECALL;
	count(TABLE_PROGRAM, (int)host->end, (int)host->class);
	happened("program begins", host->effect, host->place, host->end);
	if (host->class != EFFECT_PURE) {
		ledger_send(host->effect, host->place, host->key, host->class);
		ledger(host->effect, host->place)->flying++;
		host->busy = true;
	}
	turn_soon(host);
	if (in_trouble(DOOM_IN_10000))
		process_doom(host->pool->process, WORK_US_MAX);
}

/* --- host.h ----------------------------------------------------------------------------------- */

static void host_leave(struct host *host)
{
	*(host->previous ? &host->previous->next : &host->pool->first) = host->next;
	if (host->next)
		host->next->previous = host->previous;
	host->pool->count--;
	event_drop(&host->turns);
	event_drop(&host->dies);
	/* What it was about to do it does or never will. */
	if (host->busy && host->turn >= TURN_EFFECT && dice_hits(5'000)) {
		effect(host);
	} else if (host->busy) {
		ledger(host->effect, host->place)->flying--;
		host->busy = false;
	}
	buf_deinit(&host->said);
	free(host);
}

static void on_dies(struct event *event)
{
	struct host *host = container_of(event, struct host, dies);
	event_drop(&host->turns);
	exits(host, 9);
}

enum hf_code host_take(struct host_pool *pool, const struct host_spec *, void (*on_change)(void *),
		       void *ctx, struct host **out, struct hf_err *err)
{
	if (in_trouble(30))
		return hf_fail(err, HF_SYSTEM, "no process could be made");
	struct host *host = hf_alloc(sizeof *host);
	host->pool = pool;
	host->next = pool->first;
	if (host->next)
		host->next->previous = host;
	pool->first = host;
	pool->count++;
	host->on_change = on_change;
	host->ctx = ctx;
	host->turns = (struct event){ .process = pool->process, .fire = on_turn };
	host->dies = (struct event){ .process = pool->process, .fire = on_dies };
	*out = host;
	return HF_OK;
}

int host_run(const struct host *)
{
	return 1;
}

enum host_read host_read(struct host *host, struct frame *frame, struct hf_err *err)
{
	buf_consume(&host->said, host->taken);
	host->taken = 0;
	switch (frame_next(buf_slice(&host->said), frame, &host->taken, err)) {
	case FRAME_WHOLE:
		return HOST_FRAME;
	case FRAME_BAD:
		return HOST_GARBAGE;
	case FRAME_PART:
		break;
	}
	host->taken = 0;
	return host->exited ? HOST_CLOSED : HOST_WAIT;
}

void host_send(struct host *host, const struct buf *bytes)
{
	struct frame frame;
	struct hf_err err;
	size_t used;
	enum frame_next next = frame_next(buf_slice(bytes), &frame, &used, &err);
	hf_assert(next == FRAME_WHOLE);
	if (host->exited || host->killed)
		return;
	if (slice_is(frame.type, "run")) {
		run_begins(host, &frame);
	} else if (slice_is(frame.type, "cancel")) {
		count(TABLE_ACT, ACT_PROGRAM_CANCEL, 0);
	} else if (host->running && host->turn < TURN_PROGRESS) {
		host->turn++;
		turn_soon(host);
	}
}

bool host_sending(const struct host *)
{
	return false;
}

struct plain *host_plain(const struct host *)
{
	return nullptr;
}

bool host_ready(const struct host *)
{
	return true;
}

bool host_exited(const struct host *host, int *status)
{
	*status = host->status;
	return host->exited;
}

bool host_gone(const struct host *host)
{
	return host->gone;
}

const char *host_exit_text(struct host *host)
{
	return host->status & 0x7f ? "signal" : "exit";
}

void host_log(struct host *, struct buf *)
{
}

void host_kill(struct host *host)
{
	if (host->gone || host->killed)
		return;
	host->killed = true;
	event_set(&host->dies, now_us + dice_between(100, DIE_US_MAX));
}

void host_put(struct host *host)
{
	host_leave(host);
}

int64_t host_took_ms(const struct host *)
{
	return 0;
}

void host_pool_lease(struct host_pool *, int64_t)
{
}

enum hf_code host_pool_open(struct ev_loop *, const char *, struct host_pool **out, struct hf_err *)
{
	*out = hf_alloc(sizeof **out);
	(*out)->process = running_process;
	running_process->hosts = *out;
	return HF_OK;
}

void host_pool_kill(struct host_pool *pool)
{
	for (struct host *host = pool->first; host; host = host->next)
		host_kill(host);
}

void host_pool_collect(const struct host_pool *)
{
}

size_t host_pool_count(const struct host_pool *pool)
{
	return pool->count;
}

void host_pool_close(struct host_pool *pool)
{
	while (pool->first)
		host_leave(pool->first);
}

/* The tools of a worker that died are killed by the next one on its machine, or go on a while. */
void programs_died(struct process *process)
{
	struct host_pool *pool = process->hosts;
	process->hosts = nullptr;
	while (pool && pool->first) {
		struct host *host = pool->first;
		if (host->running)
			count(TABLE_WIRE, (int)host->class, 3);
		host_leave(host);
	}
}

/* Never reached: no process here runs in plain mode. */
void plain_refuse(struct plain *)
{
	hf_assert(false);
}

bool plain_is_over(const struct plain *)
{
	return false;
}

struct slice plain_output(struct plain *)
{
	return (struct slice){};
}

enum hf_code plain_artifact_next(struct plain *, struct plain_artifact *, struct hf_err *err)
{
	return hf_fail(err, HF_SYSTEM, "no plain mode here");
}
