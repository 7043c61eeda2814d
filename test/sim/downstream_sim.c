/* downstream_sim.c - worker/downstream.h over a simulated network and a simulated system behind it:
 * keyed requests are honoured by their key for the tool's window, lookups show after a while,
 * unsafe ones are neither. URLs are http://down/WHAT/PLACE/EFFECT-ID, WHAT: do, find, see. A
 * request that has left takes its way whatever becomes of its worker. */
#include "worker/downstream.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "test/sim/sim.h"

constexpr int64_t CONNECT_US_MAX = 20 * MS, WAY_US_MAX = 300 * MS, WORK_US_MAX = 200 * MS;
constexpr int64_t SHOWS_US_MAX = 2'000 * MS; /* less than the tools' visible_within_ms */
/* Keyed: between the last check and leaving, within the margin that the worker keeps of the window.
 */
constexpr int64_t ZOMBIE_PERCENT_MAX = 4;
constexpr int64_t SLOW_US_MAX = 12'000 * MS; /* past the time-out of the tools */
constexpr int DOOM_IN_10000 = 25;

enum what { WHAT_DO, WHAT_FIND, WHAT_SEE };

/* What the system behind does with a request, and what becomes of its answer. */
enum fate {
	FATE_DONE,
	FATE_REFUSED,     /* 422 */
	FATE_CONFLICT,    /* 409 */
	FATE_LATER,       /* 429 with Retry-After */
	FATE_BUSY,        /* 503, nothing done */
	FATE_BUSY_LATER,  /* 503 with Retry-After, nothing done */
	FATE_FAILED,      /* 500, and it took effect */
	FATE_LOST_BEFORE, /* no answer, nothing done */
	FATE_LOST_AFTER,  /* no answer, and it took effect */
	FATE_GARBAGE,     /* 200, no JSON, and it took effect */
	FATE_UNREADABLE,  /* 200, over the bound, and it took effect */
	FATE_SLOW,        /* took effect, the answer comes after the time-out */
	FATE_ELSEWHERE,   /* 302 */
	FATE_SEE_OTHER,   /* 303, and it took effect */
	FATE_REPLAYED,    /* keyed: the answer of the first */
	FATE_WORKING,     /* keyed: 409, the first is still at it */
	FATE_NOT_SENT,
	FATE_NO_BUDGET,
	FATE_BREAKER,
	FATE_WITHHELD,
	FATE_DENIED,
	FATES
};

struct downstream {
	struct process *process;
	struct downstream_call *first;
};

/* A request on its way, of nobody. */
struct wire {
	struct event arrives, works;
	struct downstream_call *call; /* nullptr: nobody waits for its answer any more */
	enum what what;
	int effect, place;
	enum effect_class class;
	bool pure;
	char key[56];
	enum fate fate;
	int64_t window_us;
};

struct downstream_call {
	struct downstream_call *next, *previous;
	struct downstream *downstream;
	struct event connected, answered, timed_out;
	bool (*may_send)(void *ctx);
	void (*done)(void *ctx, const struct downstream_answer *answer);
	void *ctx;
	bool sent;
	struct wire *wire; /* until it has arrived */
	struct wire request;
	enum downstream_fate fate;
	int status;
	const char *reason, *body;
	int64_t retry_after_ms;
};

/* --- the caller's side ------------------------------------------------------------------------ */

static void call_leave(struct downstream_call *call)
{
	*(call->previous ? &call->previous->next : &call->downstream->first) = call->next;
	if (call->next)
		call->next->previous = call->previous;
	event_drop(&call->connected);
	event_drop(&call->answered);
	event_drop(&call->timed_out);
	if (call->wire)
		call->wire->call = nullptr;
}

static void tell(struct downstream_call *call, enum downstream_fate fate)
{
	struct downstream_answer answer = { .fate = fate,
					    .status = call->status,
					    .reason = call->reason ? call->reason : "no answer",
					    .body = slice_of(call->body ? call->body : ""),
					    .retry_after_ms = call->retry_after_ms };
	if (fate == DOWNSTREAM_NO_ANSWER) {
		answer.status = 0;
		answer.reason = "no answer";
	}
	call_leave(call);
	call->done(call->ctx, &answer);
	free(call);
}

static void on_answered(struct event *event)
{
	struct downstream_call *call = container_of(event, struct downstream_call, answered);
	tell(call, call->fate);
}

static void on_timed_out(struct event *event)
{
	struct downstream_call *call = container_of(event, struct downstream_call, timed_out);
	tell(call, call->sent ? DOWNSTREAM_NO_ANSWER : DOWNSTREAM_NOT_SENT);
}

static void answer_later(struct downstream_call *call, enum downstream_fate fate, int64_t in_us)
{
	call->fate = fate;
	call->answered.fire = on_answered;
	call->answered.process = call->downstream->process;
	event_set(&call->answered, now_us + in_us);
}

/* --- the system behind ------------------------------------------------------------------------ */

static enum fate draw_fate(void)
{
	static const struct {
		enum fate fate;
		int weight;
	} odds[] = {
		{ FATE_REFUSED, 20 },     { FATE_CONFLICT, 30 },   { FATE_LATER, 30 },
		{ FATE_BUSY, 60 },        { FATE_BUSY_LATER, 20 }, { FATE_FAILED, 50 },
		{ FATE_LOST_BEFORE, 60 }, { FATE_LOST_AFTER, 70 }, { FATE_GARBAGE, 20 },
		{ FATE_UNREADABLE, 10 },  { FATE_SLOW, 15 },       { FATE_ELSEWHERE, 5 },
		{ FATE_SEE_OTHER, 5 },
	};
	int drawn = (int)dice_between(0, 999);
	for (size_t i = 0; i < countof(odds) && !world.calm; i++) {
		if (drawn < odds[i].weight * world.trouble / 10'000)
			return odds[i].fate;
		drawn -= odds[i].weight * world.trouble / 10'000;
	}
	return FATE_DONE;
}

static bool has_effect(enum fate fate)
{
	return fate == FATE_DONE || fate == FATE_FAILED || fate == FATE_LOST_AFTER ||
	       fate == FATE_GARBAGE || fate == FATE_UNREADABLE || fate == FATE_SLOW ||
	       fate == FATE_SEE_OTHER;
}

static const char *read_back(const struct wire *wire)
{
	const struct entry *entry = ledger(wire->effect, wire->place);
	bool shows = entry->effects > 0 && now_us >= entry->visible_us;
	if (wire->what == WHAT_SEE)
		return shows ? "{\"seen\":true}" : "{}";
	return shows ? "{\"items\":[{\"id\":\"there\"}]}" : "{\"items\":[]}";
}

static void answer_to(struct wire *wire, struct downstream_call *call)
{
	static const struct {
		enum downstream_fate fate;
		int status;
		const char *reason, *body;
		int64_t retry_after_ms;
	} answers[FATES] = {
		[FATE_DONE] = { DOWNSTREAM_ANSWERED, 201, "201 Created", "{\"id\":7}", -1 },
		[FATE_REFUSED] = { DOWNSTREAM_ANSWERED, 422, "422 Refused", "", -1 },
		[FATE_CONFLICT] = { DOWNSTREAM_ANSWERED, 409, "409 Conflict", "", -1 },
		[FATE_LATER] = { DOWNSTREAM_ANSWERED, 429, "429 Too Many", "", 2'000 },
		[FATE_BUSY] = { DOWNSTREAM_ANSWERED, 503, "503 Busy", "", -1 },
		[FATE_BUSY_LATER] = { DOWNSTREAM_ANSWERED, 503, "503 Busy", "", 1'000 },
		[FATE_FAILED] = { DOWNSTREAM_ANSWERED, 500, "500 Oops", "", -1 },
		[FATE_LOST_BEFORE] = { DOWNSTREAM_NO_ANSWER, 0, "reset", "", -1 },
		[FATE_LOST_AFTER] = { DOWNSTREAM_NO_ANSWER, 0, "reset", "", -1 },
		[FATE_GARBAGE] = { DOWNSTREAM_ANSWERED, 200, "200 OK", "<html>", -1 },
		[FATE_UNREADABLE] = { DOWNSTREAM_UNREADABLE, 200, "too large", "", -1 },
		[FATE_SLOW] = { DOWNSTREAM_ANSWERED, 200, "200 OK", "{}", -1 },
		[FATE_ELSEWHERE] = { DOWNSTREAM_ANSWERED, 302, "302 Found", "", -1 },
		[FATE_SEE_OTHER] = { DOWNSTREAM_ANSWERED, 303, "303 See Other", "", -1 },
		[FATE_REPLAYED] = { DOWNSTREAM_ANSWERED, 201, "201 Created", "{\"id\":7}", -1 },
		[FATE_WORKING] = { DOWNSTREAM_ANSWERED, 409, "409 Working", "", -1 },
	};
	call->status = answers[wire->fate].status;
	call->reason = answers[wire->fate].reason;
	call->body = answers[wire->fate].body;
	call->retry_after_ms = answers[wire->fate].retry_after_ms;
	if (wire->what != WHAT_DO && (wire->fate == FATE_DONE || wire->fate == FATE_SLOW))
		call->body = read_back(wire);
	answer_later(call, answers[wire->fate].fate,
		     wire->fate == FATE_SLOW ? dice_between(0, SLOW_US_MAX)
					     : dice_between(200, WAY_US_MAX));
}

static void take_effect(struct wire *wire)
{
	struct entry *entry = ledger(wire->effect, wire->place);
	ledger_effect(wire->effect, wire->place);
	entry->visible_us = now_us + dice_between(0, SHOWS_US_MAX);
}

/* The work behind is done. */
static void on_works(struct event *event)
{
	struct wire *wire = container_of(event, struct wire, works);
	struct entry *entry = ledger(wire->effect, wire->place);
	if (wire->what == WHAT_DO) {
		entry->flying--;
		if (has_effect(wire->fate) && !wire->pure)
			take_effect(wire);
		if (wire->class == EFFECT_KEYED && has_effect(wire->fate))
			entry->working = false;
	}
	if (wire->call) {
		wire->call->wire = nullptr;
		answer_to(wire, wire->call);
	}
	free(wire);
}

static void on_arrives(struct event *event)
{
	struct wire *wire = container_of(event, struct wire, arrives);
	struct entry *entry = ledger(wire->effect, wire->place);
	bool keyed = wire->what == WHAT_DO && wire->class == EFFECT_KEYED;
	bool known = keyed && entry->first_us && now_us - entry->first_us < wire->window_us;
	wire->fate = draw_fate();
	if (known && entry->working)
		wire->fate = FATE_WORKING;
	else if (known && entry->effects > 0 && has_effect(wire->fate))
		wire->fate = wire->fate == FATE_LOST_AFTER ? FATE_LOST_BEFORE : FATE_REPLAYED;
	else if (keyed && has_effect(wire->fate)) {
		entry->working = true;
		entry->first_us = now_us;
	}
	count(TABLE_ANSWER, (int)wire->fate,
	      wire->what == WHAT_DO ? (int)wire->class : COLUMN_READING);
	happened("arrived", wire->effect, wire->place, wire->fate);
	wire->works.fire = on_works;
	event_set(&wire->works, now_us + dice_between(0, WORK_US_MAX));
}

/* --- on the way ------------------------------------------------------------------------------- */

static void on_connected(struct event *event)
{
	struct downstream_call *call = container_of(event, struct downstream_call, connected);
	if (!call->may_send(call->ctx)) {
		count(TABLE_ANSWER, FATE_WITHHELD, call->request.class);
		tell(call, DOWNSTREAM_WITHHELD);
		return;
	}
	struct wire *wire = hf_alloc(sizeof *wire);
	*wire = call->request;
	wire->call = call;
	call->wire = wire;
	call->sent = true;
	int64_t way_us = dice_between(200, WAY_US_MAX);
	if (wire->what == WHAT_DO) {
		if (!wire->pure)
			ledger_send(wire->effect, wire->place, wire->key, wire->class);
		ledger(wire->effect, wire->place)->flying++;
		/* Stopped between the check and the sending: V4 leaves that to the key. */
		if (wire->class == EFFECT_KEYED && in_trouble(50))
			way_us = dice_between(0, wire->window_us * ZOMBIE_PERCENT_MAX / 100);
	}
	wire->arrives.fire = on_arrives;
	event_set(&wire->arrives, now_us + way_us);
	if (in_trouble(DOOM_IN_10000))
		process_doom(call->downstream->process, WAY_US_MAX + WORK_US_MAX);
}

static void read_url(struct wire *wire, const char *url)
{
	int used = 0;
	char what[8];
	if (sscanf(url, "http://down/%7[a-z]/%d/e%d%n", what, &wire->place, &wire->effect, &used) !=
		3 ||
	    url[used])
		broken(-1, "a request went to %s", url);
	wire->what = strcmp(what, "do") == 0 ? WHAT_DO : what[0] == 'f' ? WHAT_FIND : WHAT_SEE;
	const struct tool *tool = effects[wire->effect].tool;
	const struct phase_spec *phase = &tool->phases[wire->place % PHASES_MAX];
	if (wire->place >= PHASES_MAX)
		phase = phase->undo;
	wire->class = phase->effect;
	wire->pure = phase->effect == EFFECT_PURE;
	wire->window_us = phase->key_ttl_ms * MS;
}

struct downstream_call *
downstream_start(struct downstream *downstream, const struct downstream_request *request,
		 void (*done)(void *ctx, const struct downstream_answer *answer), void *ctx)
{
	static const char key_head[] = "Idempotency-Key: ";
	struct downstream_call *call = hf_alloc(sizeof *call);
	call->downstream = downstream;
	call->next = downstream->first;
	if (call->next)
		call->next->previous = call;
	downstream->first = call;
	call->may_send = request->may_send;
	call->done = done;
	call->ctx = ctx;
	call->retry_after_ms = -1;
	read_url(&call->request, request->url);
	for (size_t i = 0; request->headers[i]; i++)
		if (strncmp(request->headers[i], key_head, sizeof key_head - 1) == 0)
			snprintf(call->request.key, sizeof call->request.key, "%s",
				 request->headers[i] + sizeof key_head - 1);
	call->timed_out.fire = on_timed_out;
	call->timed_out.process = downstream->process;
	event_set(&call->timed_out, now_us + request->timeout_ms * MS);
	static const struct {
		enum fate fate;
		enum downstream_fate told;
		int in_10000;
	} odds[] = { { FATE_NOT_SENT, DOWNSTREAM_NOT_SENT, 300 },
		     { FATE_NO_BUDGET, DOWNSTREAM_NO_BUDGET, 100 },
		     { FATE_BREAKER, DOWNSTREAM_BREAKER, 100 },
		     { FATE_DENIED, DOWNSTREAM_DENIED, 5 } };
	for (size_t i = 0; i < countof(odds); i++) {
		if (!in_trouble(odds[i].in_10000) ||
		    (odds[i].fate == FATE_NO_BUDGET && !request->repeat) ||
		    (odds[i].fate == FATE_BREAKER && request->insists))
			continue;
		count(TABLE_ANSWER, odds[i].fate, call->request.class);
		call->reason = "it never left";
		call->retry_after_ms =
		    odds[i].told == DOWNSTREAM_NO_BUDGET || odds[i].told == DOWNSTREAM_BREAKER ? 300
											       : -1;
		answer_later(call, odds[i].told, dice_between(200, CONNECT_US_MAX));
		return call;
	}
	call->connected.fire = on_connected;
	call->connected.process = downstream->process;
	event_set(&call->connected, now_us + dice_between(200, CONNECT_US_MAX));
	return call;
}

bool downstream_sent(const struct downstream_call *call)
{
	return call->sent;
}

bool downstream_abandon(struct downstream_call *call)
{
	bool sent = call->sent;
	call_leave(call);
	free(call);
	return sent;
}

enum { WHERE_UNSENT, WHERE_ON_ITS_WAY, WHERE_WORKED };

void downstream_died(struct process *process)
{
	struct downstream *downstream = process->downstream;
	process->downstream = nullptr;
	while (downstream && downstream->first) {
		struct downstream_call *call = downstream->first;
		int where = !call->sent  ? WHERE_UNSENT
			    : call->wire ? WHERE_ON_ITS_WAY
					 : WHERE_WORKED;
		count(TABLE_WIRE,
		      call->request.what == WHAT_DO ? (int)call->request.class : COLUMN_READING,
		      where);
		call_leave(call);
		free(call);
	}
}

struct downstream *downstream_open(struct ev_loop *, const struct breaker_limits *)
{
	struct downstream *downstream = hf_alloc(sizeof *downstream);
	downstream->process = running_process;
	running_process->downstream = downstream;
	return downstream;
}

enum hf_code downstream_guard(struct downstream *, const char *, const char *, struct slice,
			      struct hf_err *)
{
	return HF_OK;
}

void downstream_close(struct downstream *downstream)
{
	if (downstream)
		downstream_died(downstream->process);
}

void downstream_collect(const struct downstream *)
{
}
