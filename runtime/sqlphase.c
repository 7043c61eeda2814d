/* sqlphase.c - a few connections, each running one sql phase at a time:
 *
 *   down* ──► dialing* ──► idle* ──► running* ──► fencing* ──► idle
 *                            ▲          └──► undoing* ──► idle, or resting* ──► running
 *                                                * suspended: a callback resumes
 *
 * running: BEGIN … the tool's statement are in flight; fencing: RESET ROLE, the raising fence and
 * COMMIT are. A connection lost while fencing leaves the COMMIT unknown: the phase is run again
 * from the top, where the check finds its own recovery point if it was committed (rule 11). What
 * passes soon (a deadlock, a full disk) is run again after a rest, a few times, before it counts as
 * an attempt. */
#include "runtime/sqlphase.h"

#include <ev.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/json.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/pgdial.h"
#include "runtime/pgfail.h"
#include "runtime/pgvalue.h"
#include "runtime/random.h"
#include "runtime/value.h"

constexpr int64_t RECONNECT_MAX_MS = 2'000;
constexpr int64_t ANSWER_MARGIN_MS = 5'000; /* past the statement's own time-out: reconnect */
constexpr size_t STATE_BYTES_MAX = 4 << 20; /* what one statement may return */
constexpr int64_t REST_FIRST_MS = 50;       /* doubled from run to run, with full jitter */
constexpr int RUNS_MAX = 5;                 /* of one phase in a row before it is a retry */

enum conn_state {
	CONN_DOWN,
	CONN_DIALING,
	CONN_IDLE,
	CONN_RUNNING,
	CONN_FENCING,
	CONN_UNDOING,
	CONN_RESTING,
};

/* The answers of the first flight, in the order of conn_run. */
enum { ANSWER_BEGIN, ANSWER_LIMITS, ANSWER_CHECK, ANSWER_ROLE, ANSWER_STATEMENT };
/* Of the second. */
enum { ANSWER_RESET, ANSWER_FENCE, ANSWER_COMMIT };

struct conn {
	struct sqlphase_pool *pool;
	struct pgdial *dial;
	PGconn *pg;
	enum conn_state state;
	ev_io io;
	ev_timer timer;
	struct sqlphase *phase;
	int answers; /* of this flight so far */
	bool warned; /* a WARNING since the fence was sent: the COMMIT is unknown */
};

struct sqlphase {
	struct sqlphase *next;
	struct sqlphase_pool *pool;
	struct conn *conn; /* nullptr while it waits */
	struct step_write step;
	char *tool_name, *sql, *name;
	struct buf args, states;
	int64_t timeout_ms, started_at_ms;
	void (*done)(void *ctx, enum sqlphase_outcome outcome, enum wish wish, struct slice state,
		     const char *text);
	void *ctx;
	int runs;
	bool cancelled;
	bool fate_open; /* a COMMIT left and its answer is not known */
	/* what the flight said */
	enum sqlphase_outcome outcome;
	bool settled; /* outcome is decided: undo, then tell */
	bool again;   /* settled by what passes: undo, rest, run */
	bool drop;    /* settled by what makes the connection useless */
	enum wish wish;
	struct buf state_json; /* what the statement returned */
	struct buf state;      /* msgpack, for the step */
	char text[200];
};

struct sqlphase_pool {
	struct ev_loop *loop;
	struct conn *conns;
	int count;
	struct sqlphase *head, **tail;
	ev_check kick; /* fed, never started */
	int failures;
};

static void pool_give(struct sqlphase_pool *pool);
static void conn_lost(struct conn *conn, const char *why);

/* --- ends ------------------------------------------------------------------------------------- */

static void phase_free(struct sqlphase *phase)
{
	free(phase->tool_name);
	free(phase->sql);
	free(phase->name);
	buf_deinit(&phase->args);
	buf_deinit(&phase->states);
	buf_deinit(&phase->state_json);
	buf_deinit(&phase->state);
	free(phase);
}

static void phase_settle(struct sqlphase *phase, enum sqlphase_outcome outcome, const char *text)
{
	if (phase->settled)
		return;
	phase->settled = true;
	phase->outcome = outcome;
	snprintf(phase->text, sizeof phase->text, "%s", text ? text : "");
}

static void phase_tell(struct sqlphase *phase)
{
	hf_assert(phase->settled);
	struct slice state = { "", 0 };
	if (phase->outcome == SQLPHASE_DONE)
		state = buf_slice(&phase->state_json);
	if (phase->outcome == SQLPHASE_ADOPTED)
		state = buf_slice(&phase->state);
	phase->done(phase->ctx, phase->outcome, phase->wish, state, phase->text);
	phase_free(phase);
}

static void queue_add(struct sqlphase_pool *pool, struct sqlphase *phase)
{
	phase->next = nullptr;
	*pool->tail = phase;
	pool->tail = &phase->next;
}

static struct sqlphase *queue_take(struct sqlphase_pool *pool)
{
	struct sqlphase *phase = pool->head;
	if (!phase)
		return nullptr;
	pool->head = phase->next;
	if (!pool->head)
		pool->tail = &pool->head;
	return phase;
}

/* --- flights ---------------------------------------------------------------------------------- */

static bool send_text(PGconn *pg, const char *sql)
{
	return pgparams_send(&(struct pgparams){}, pg, sql);
}

static bool send_params(PGconn *pg, const char *sql, struct pgparams *params)
{
	bool sent = pgparams_send(params, pg, sql);
	pgparams_deinit(params);
	return sent;
}

static void conn_watch(struct conn *conn, int events)
{
	ev_io_stop(conn->pool->loop, &conn->io);
	ev_io_set(&conn->io, PQsocket(conn->pg), events);
	ev_io_start(conn->pool->loop, &conn->io);
}

static void conn_timer(struct conn *conn, int64_t wait_ms)
{
	ev_timer_stop(conn->pool->loop, &conn->timer);
	ev_timer_set(&conn->timer, (double)wait_ms / 1000.0, 0.0);
	ev_timer_start(conn->pool->loop, &conn->timer);
}

static void flight_leave(struct conn *conn, bool sent)
{
	int left = sent && PQpipelineSync(conn->pg) ? PQflush(conn->pg) : -1;
	if (left < 0)
		conn_lost(conn, PQerrorMessage(conn->pg));
	else
		conn_watch(conn, left ? EV_READ | EV_WRITE : EV_READ);
}

static void step_params(const struct sqlphase *phase, struct pgparams *params)
{
	pgparams_int4(params, task_id_week(&phase->step.id));
	pgparams_task_id(params, &phase->step.id);
	pgparams_uuid(params, &phase->step.token);
	pgparams_int4(params, phase->step.place);
}

static void conn_run(struct conn *conn, struct sqlphase *phase)
{
	conn->phase = phase;
	phase->conn = conn;
	phase->runs++;
	phase->settled = phase->again = phase->drop = false;
	buf_clear(&phase->state_json);
	buf_clear(&phase->state);
	conn->state = CONN_RUNNING;
	conn->answers = 0;
	conn_timer(conn, phase->timeout_ms + ANSWER_MARGIN_MS);

	char *limits = hf_format("SELECT set_config('statement_timeout', '%lld', true), "
				 "set_config('client_connection_check_interval', '1s', true), "
				 "set_config('search_path', 'holdfast_tool_%s', true)",
				 (long long)phase->timeout_ms, phase->tool_name);
	char *role = hf_format("SET LOCAL ROLE \"holdfast_tool_%s\"", phase->tool_name);
	struct pgparams check = {}, call = {};
	step_params(phase, &check);
	pgparams_text(&call, buf_slice(&phase->args));
	pgparams_text(&call, buf_slice(&phase->states));
	bool sent = send_text(conn->pg, "BEGIN") && send_text(conn->pg, limits);
	sent = send_params(conn->pg, "SELECT * FROM holdfast.sql_check($1, $2, $3, $4)", &check) &&
	       sent;
	sent = sent && send_text(conn->pg, role);
	sent = send_params(conn->pg, phase->sql, &call) && sent;
	free(limits);
	free(role);
	flight_leave(conn, sent);
}

static void conn_fence(struct conn *conn)
{
	struct sqlphase *phase = conn->phase;
	conn->state = CONN_FENCING;
	conn->answers = 0;
	conn->warned = false;
	conn_timer(conn, ANSWER_MARGIN_MS);
	struct pgparams fence = {};
	step_params(phase, &fence);
	pgparams_int4(&fence, phase->step.phase);
	pgparams_text(&fence, slice_of(phase->name));
	pgparams_bytea(&fence, buf_slice(&phase->state));
	pgparams_int4(&fence, phase->step.attempt);
	pgparams_int8(&fence, clock_boot_ms() - phase->started_at_ms);
	bool sent = send_text(conn->pg, "RESET ROLE");
	sent =
	    send_params(conn->pg, "SELECT holdfast.sql_fence($1, $2, $3, $4, $5, $6, $7, $8, $9)",
			&fence) &&
	    sent;
	flight_leave(conn, sent && send_text(conn->pg, "COMMIT"));
}

static void conn_undo(struct conn *conn)
{
	conn->state = CONN_UNDOING;
	conn_timer(conn, ANSWER_MARGIN_MS);
	flight_leave(conn, send_text(conn->pg, "ROLLBACK"));
}

/* --- answers ---------------------------------------------------------------------------------- */

/* Of the flights one statement is the tool's own, and COMMIT, which checks what it deferred; the
 * others are ours, whose failures say nothing against the tool. */
static void statement_failed(struct conn *conn, const PGresult *result)
{
	struct sqlphase *phase = conn->phase;
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	bool own =
	    conn->answers == (conn->state == CONN_RUNNING ? ANSWER_STATEMENT : ANSWER_COMMIT);
	enum pgfail fail = pgfail_of_tool(state);
	if (!own && fail == PGFAIL_REFUSED)
		fail = PGFAIL_AGAIN;
	char line[200];
	snprintf(line, sizeof line, "%s (SQLSTATE %s)", text ? text : "?", state ? state : "?");
	if (phase->settled)
		return;
	if (state && strcmp(state, "HF001") == 0) {
		phase_settle(phase, SQLPHASE_LOST, line);
		return;
	}
	phase->drop = fail == PGFAIL_RECONNECT;
	/* The tool's own time-out and its own lock_timeout are attempts of its own. */
	bool of_tool =
	    own && state && (strcmp(state, "57014") == 0 || strncmp(state, "55", 2) == 0);
	phase->again = fail != PGFAIL_REFUSED && !of_tool && phase->runs < RUNS_MAX;
	phase_settle(phase, fail == PGFAIL_REFUSED ? SQLPHASE_REFUSED : SQLPHASE_RETRY, line);
}

/* sql_check's row: what stands at our place already. */
static void checked(struct sqlphase *phase, const PGresult *result)
{
	struct slice fence = pgrow_slice(result, 0, 0);
	phase->wish = (enum wish)pgrow_int4(result, 0, 1);
	phase->fate_open = false;
	if (slice_is(fence, "lost"))
		phase_settle(phase, SQLPHASE_LOST, "the claim is lost");
	if (slice_is(fence, "done") || slice_is(fence, "adopted")) {
		buf_add_slice(&phase->state, pgrow_slice(result, 0, 2));
		phase_settle(phase, SQLPHASE_ADOPTED, "");
	}
}

/* The tool's own row becomes the phase's state. */
static void returned(struct sqlphase *phase, const PGresult *result)
{
	if (phase->settled)
		return;
	if (PQntuples(result) != 1 || PQnfields(result) != 1 || PQgetisnull(result, 0, 0)) {
		phase_settle(phase, SQLPHASE_REFUSED,
			     "the statement must return one row with one column, JSON text");
		return;
	}
	struct slice text = pgrow_slice(result, 0, 0);
	/* jsonb travels with a version byte in front. */
	if (PQftype(result, 0) == 3802 && text.len)
		text = (struct slice){ text.data + 1, text.len - 1 };
	struct hf_err err = {};
	if (text.len > STATE_BYTES_MAX) {
		phase_settle(phase, SQLPHASE_REFUSED, "the statement returned over 4 MiB");
	} else if (json_scan(text, &err) != HF_OK) {
		phase_settle(phase, SQLPHASE_REFUSED, "the statement returned no JSON");
	} else {
		buf_add_slice(&phase->state_json, text);
		value_from_json(text, &phase->state);
	}
}

static bool result_is_row(const PGresult *result)
{
	return PQresultStatus(result) == PGRES_TUPLES_OK;
}

static void take(struct conn *conn, const PGresult *result)
{
	struct sqlphase *phase = conn->phase;
	ExecStatusType status = PQresultStatus(result);
	if (status == PGRES_PIPELINE_ABORTED)
		return;
	if (status == PGRES_FATAL_ERROR) {
		statement_failed(conn, result);
		return;
	}
	if (conn->state == CONN_RUNNING && conn->answers == ANSWER_CHECK)
		checked(phase, result);
	if (conn->state == CONN_RUNNING && conn->answers == ANSWER_STATEMENT)
		returned(phase, result);
	conn->answers++;
	if (conn->state == CONN_FENCING) {
		if (result_is_row(result))
			phase->wish = (enum wish)pgrow_int4(result, 0, 0);
		else if (strcmp(PQcmdStatus((PGresult *)(uintptr_t)result), "COMMIT") == 0)
			phase_settle(phase, SQLPHASE_DONE, "");
	}
}

/* A flight is answered to its Sync. */
static void synced(struct conn *conn)
{
	struct sqlphase *phase = conn->phase;
	if (phase->drop) {
		conn_lost(conn, phase->text);
		return;
	}
	if (conn->state == CONN_RUNNING) {
		if (phase->cancelled)
			phase_settle(phase, SQLPHASE_RETRY, "stopped");
		if (!phase->settled && phase->state.len == 0)
			phase_settle(phase, SQLPHASE_REFUSED, "the statement returned nothing");
		if (phase->settled)
			conn_undo(conn);
		else
			conn_fence(conn);
		return;
	}
	if (conn->state == CONN_FENCING && conn->warned) {
		conn_lost(conn, "a warning at COMMIT");
		return;
	}
	if (conn->state == CONN_FENCING && !(phase->settled && phase->outcome == SQLPHASE_DONE)) {
		phase_settle(phase, SQLPHASE_RETRY, "not committed");
		conn_undo(conn);
		return;
	}
	if (conn->state == CONN_UNDOING && phase->again && !phase->cancelled) {
		conn->state = CONN_RESTING;
		conn_timer(conn, 1 + random_up_to(REST_FIRST_MS << phase->runs));
		return;
	}
	ev_timer_stop(conn->pool->loop, &conn->timer);
	conn->phase = nullptr;
	conn->state = CONN_IDLE;
	phase_tell(phase);
	pool_give(conn->pool);
}

static void conn_receive(struct conn *conn)
{
	if (!PQconsumeInput(conn->pg)) {
		conn_lost(conn, PQerrorMessage(conn->pg));
		return;
	}
	int empty = 0; /* libpq says nullptr once between two results */
	while (conn->pg && !PQisBusy(conn->pg) && empty < 2) {
		PGresult *result = PQgetResult(conn->pg);
		if (!result) {
			empty++;
			continue;
		}
		empty = 0;
		if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
			PQclear(result);
			if (conn->phase)
				synced(conn);
			continue;
		}
		if (conn->phase)
			take(conn, result);
		PQclear(result);
	}
}

/* --- connections ------------------------------------------------------------------------------ */

static void conn_connect(struct conn *conn)
{
	conn->state = CONN_DIALING;
	pgdial_start(conn->dial);
}

static void on_dialed(void *ctx, PGconn *pg, const char *why)
{
	struct conn *conn = ctx;
	if (!pg) {
		conn_lost(conn, why);
		return;
	}
	conn->pg = pg;
	PQsetNoticeReceiver(pg, pgfail_on_notice, &conn->warned);
	conn->pool->failures = 0;
	conn->state = CONN_IDLE;
	metric_add(METRIC_store_connects_total, "sql", 1);
	conn_watch(conn, EV_READ);
	pool_give(conn->pool);
}

static void conn_lost(struct conn *conn, const char *why)
{
	metric_add(METRIC_store_losses_total, "sql", 1);
	struct sqlphase *phase = conn->phase;
	bool fencing = conn->state == CONN_FENCING;
	bool settled =
	    phase && phase->settled && !phase->again && !phase->drop && conn->state == CONN_UNDOING;
	if (conn->pool->failures++ == 0)
		log_warn("connection for sql phases lost", "error", why, nullptr);
	ev_io_stop(conn->pool->loop, &conn->io);
	PQfinish(conn->pg);
	conn->pg = nullptr;
	conn->phase = nullptr;
	conn->state = CONN_DOWN;
	conn_timer(conn, 1 + random_up_to(RECONNECT_MAX_MS));
	if (!phase)
		return;
	phase->conn = nullptr;
	phase->fate_open = phase->fate_open || fencing;
	/* What was undone by the loss is settled; a lost COMMIT is asked for by running again. */
	if (settled) {
		phase_tell(phase);
	} else if (phase->runs >= RUNS_MAX && !phase->cancelled && !phase->fate_open) {
		phase->settled = false;
		phase_settle(phase, SQLPHASE_RETRY,
			     "the connection to Postgres was lost again and again");
		phase_tell(phase);
	} else {
		phase->settled = false;
		queue_add(conn->pool, phase);
	}
}

static void on_io(struct ev_loop *, ev_io *watcher, int events)
{
	struct conn *conn = container_of(watcher, struct conn, io);
	if (events & EV_READ)
		conn_receive(conn);
	if (conn->pg && (events & EV_WRITE)) {
		int left = PQflush(conn->pg);
		if (left < 0)
			conn_lost(conn, PQerrorMessage(conn->pg));
		else
			conn_watch(conn, left ? EV_READ | EV_WRITE : EV_READ);
	}
}

static void on_timer(struct ev_loop *, ev_timer *watcher, int)
{
	struct conn *conn = container_of(watcher, struct conn, timer);
	if (conn->state == CONN_DOWN)
		conn_connect(conn);
	else if (conn->state == CONN_RESTING)
		conn_run(conn, conn->phase);
	else
		conn_lost(conn, "no answer in time");
}

/* --- the pool --------------------------------------------------------------------------------- */

static void pool_give(struct sqlphase_pool *pool)
{
	for (int i = 0; i < pool->count && pool->head; i++) {
		struct conn *conn = &pool->conns[i];
		if (conn->state != CONN_IDLE)
			continue;
		if (pgdial_is_newest(conn->dial))
			conn_run(conn, queue_take(pool));
		else
			conn_lost(conn, "its primary was replaced");
	}
}

static void on_kick(struct ev_loop *, ev_check *watcher, int)
{
	struct sqlphase_pool *pool = container_of(watcher, struct sqlphase_pool, kick);
	struct sqlphase *kept = nullptr, **tail = &kept;
	for (struct sqlphase *phase; (phase = queue_take(pool));) {
		/* A COMMIT of unknown fate is asked for first, stopped or not. */
		if (phase->cancelled && !phase->fate_open) {
			phase_settle(phase, SQLPHASE_RETRY, "stopped");
			phase_tell(phase);
			continue;
		}
		phase->next = nullptr;
		*tail = phase;
		tail = &phase->next;
	}
	for (struct sqlphase *next; kept; kept = next) {
		next = kept->next;
		queue_add(pool, kept);
	}
	pool_give(pool);
}

struct sqlphase_pool *sqlphase_open(struct ev_loop *loop, const char *dsn, int connections)
{
	hf_assert(connections > 0);
	const struct pgdial_options dial = {
		.dsn = dsn,
		.application = "holdfast sql",
		.greets = true,
	};
	struct sqlphase_pool *pool = hf_alloc(sizeof *pool);
	pool->loop = loop;
	pool->count = connections;
	pool->conns = hf_alloc((size_t)connections * sizeof *pool->conns);
	pool->tail = &pool->head;
	ev_init(&pool->kick, on_kick);
	for (int i = 0; i < connections; i++) {
		struct conn *conn = &pool->conns[i];
		conn->pool = pool;
		ev_init(&conn->io, on_io);
		ev_init(&conn->timer, on_timer);
		conn->dial = pgdial_new(loop, &dial, on_dialed, conn);
		conn_connect(conn);
	}
	return pool;
}

void sqlphase_close(struct sqlphase_pool *pool)
{
	ev_clear_pending(pool->loop, &pool->kick);
	for (int i = 0; i < pool->count; i++) {
		struct conn *conn = &pool->conns[i];
		ev_io_stop(pool->loop, &conn->io);
		ev_timer_stop(pool->loop, &conn->timer);
		PQfinish(conn->pg);
		pgdial_free(conn->dial);
		if (conn->phase)
			queue_add(pool, conn->phase);
	}
	for (struct sqlphase *phase; (phase = queue_take(pool));) {
		phase->settled = false;
		phase_settle(phase, SQLPHASE_RETRY, "the process ends");
		phase_tell(phase);
	}
	free(pool->conns);
	free(pool);
}

void sqlphase_collect(const struct sqlphase_pool *pool)
{
	int64_t used = 0, up = 0;
	for (int i = 0; i < pool->count; i++) {
		used += pool->conns[i].phase != nullptr;
		up += pool->conns[i].state >= CONN_IDLE;
	}
	for (const struct sqlphase *phase = pool->head; phase; phase = phase->next)
		used++; /* over the limit: they wait */
	metric_bound("sql_connections", used, pool->count);
	metric_set(METRIC_store_connected, "sql", up == pool->count);
	metric_add(METRIC_store_connects_total, "sql", 0);
	metric_add(METRIC_store_losses_total, "sql", 0);
}

struct sqlphase *sqlphase_start(struct sqlphase_pool *pool, const struct sqlphase_call *call,
				void (*done)(void *ctx, enum sqlphase_outcome outcome,
					     enum wish wish, struct slice state, const char *text),
				void *ctx)
{
	struct sqlphase *phase = hf_alloc(sizeof *phase);
	phase->pool = pool;
	phase->step = call->step;
	phase->name = hf_strndup(call->step.name.data, call->step.name.len);
	phase->tool_name = hf_strdup(call->tool_name);
	phase->sql = hf_strdup(call->sql);
	buf_add_slice(&phase->args, call->args_json);
	buf_add_slice(&phase->states, call->states_json);
	phase->timeout_ms = call->timeout_ms;
	phase->started_at_ms = clock_boot_ms();
	phase->done = done;
	phase->ctx = ctx;
	queue_add(pool, phase);
	ev_feed_event(pool->loop, &pool->kick, EV_CUSTOM);
	return phase;
}

void sqlphase_cancel(struct sqlphase *phase)
{
	phase->cancelled = true;
	if (!phase->conn) {
		ev_feed_event(phase->pool->loop, &phase->pool->kick, EV_CUSTOM);
	} else if (phase->conn->state == CONN_RUNNING || phase->conn->state == CONN_RESTING) {
		/* The server notices the closed connection and ends the statement; the queue tells.
		 */
		conn_lost(phase->conn, "stopped");
		ev_feed_event(phase->pool->loop, &phase->pool->kick, EV_CUSTOM);
	}
}
