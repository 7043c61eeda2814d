/* db.c - the machine of one connection.
 *
 *     down* ──wait──► dialing* ──► up* ──┐
 *      ▲                 │          │    │ calls
 *      └─────────────────┴─ lost ───┴ ◄──┘
 *                                    * suspended: a callback resumes
 *
 * pgdial.c finds the host, and greets it: the barrier and LISTEN come before any call. Lost: what
 * was in flight goes back to the head of the queue and is sent again on the next connection. What
 * an SQLSTATE asks for is told by pgfail.c. */
#include "runtime/db.h"

#include <ev.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/lineage.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/pgdial.h"
#include "runtime/pgfail.h"
#include "runtime/random.h"

enum db_state { DB_DOWN, DB_DIALING, DB_UP };

struct call {
	struct call *next;
	const char *sql;
	struct pgparams params;
	db_done *done;
	void (*ended)(void *ctx); /* nullable */
	void *ctx;
	int64_t give_up_at_ms; /* boot time; 0: never */
	int64_t not_before_ms; /* a failed call waits this out before it is sent again */
	int failures;
	PGresult *result; /* rows, kept until the Sync says that they are committed */
	bool maybe;       /* sent, and the answer was lost: it may have been committed */
};

struct calls {
	struct call *head, **tail;
	size_t count;
};

struct db {
	struct db *next_open;
	struct ev_loop *loop;
	char *name;
	struct pgdial *dial;
	const char *lane; /* the last word of the name, for metrics */
	void (*notified)(void *ctx, const char *payload);
	void (*connected)(void *ctx);
	void (*refused)(void *ctx, const char *why);
	void *ctx;
	/* private */
	enum db_state state;
	PGconn *conn;
	ev_io io;
	ev_timer timer; /* answering, waiting: the next thing that time brings */
	ev_check kick;  /* fed, never started: sends at the end of a turn what was queued in it */
	struct calls queue;  /* to be sent */
	struct calls flight; /* sent, in order */
	int64_t connect_at_ms, flight_since_ms, answer_ms;
	int failures;
	/* A pooler stands between: one Sync at a time. PgBouncer (1.18) gives on the session of a
	 * client that went while a second was open, and its answer to whoever comes next. */
	bool pooled;
	bool warned;  /* a WARNING came while the oldest call ran: its commit is unknown */
	bool doubted; /* another connection knows better which host is the primary */
};

/* All of the process. They are connected to one primary: who only reads learns from who writes that
 * it is none any more, else it would answer from there for ever. */
static struct db *open_dbs;

static void calls_init(struct calls *calls)
{
	*calls = (struct calls){ .tail = &calls->head };
}

static void calls_add(struct calls *calls, struct call *call)
{
	call->next = nullptr;
	*calls->tail = call;
	calls->tail = &call->next;
	calls->count++;
}

static struct call *calls_take(struct calls *calls)
{
	struct call *call = calls->head;
	if (!call)
		return nullptr;
	calls->head = call->next;
	if (!calls->head)
		calls->tail = &calls->head;
	calls->count--;
	return call;
}

static void call_free(struct call *call)
{
	PQclear(call->result);
	pgparams_deinit(&call->params);
	if (call->ended)
		call->ended(call->ctx);
	free(call);
}

static void call_end(struct call *call, enum hf_code code, const struct hf_err *err)
{
	if (call->done)
		call->done(call->ctx, code, code == HF_OK ? call->result : nullptr, err);
	call_free(call);
}

static int64_t backoff_ms(int failures)
{
	int64_t cap = DB_BACKOFF_FIRST_MS;
	for (int i = 1; i < failures && cap < DB_BACKOFF_MAX_MS; i++)
		cap *= 2;
	if (cap > DB_BACKOFF_MAX_MS)
		cap = DB_BACKOFF_MAX_MS;
	return 1 + random_up_to(cap);
}

static void db_lost(struct db *db, const char *why);
static void db_send(struct db *db);

/* --- time ------------------------------------------------------------------------------------- */

static int64_t earlier(int64_t a, int64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static bool may_send(const struct db *db)
{
	return !db->pooled || !db->flight.head;
}

/* When the timer is next needed, by boot time; 0: not at all. */
static int64_t next_time(const struct db *db)
{
	int64_t at = 0;
	if (db->state == DB_DOWN)
		at = db->connect_at_ms;
	if (db->flight.head)
		at = earlier(at, db->flight_since_ms + db->answer_ms);
	for (const struct call *call = db->flight.head; call; call = call->next)
		if (call->done)
			at = earlier(at, call->give_up_at_ms);
	for (const struct call *call = db->queue.head; call; call = call->next) {
		at = earlier(at, call->give_up_at_ms);
		if (db->state == DB_UP && may_send(db))
			at = earlier(at, call->not_before_ms);
	}
	return at;
}

static void timer_set(struct db *db)
{
	ev_timer_stop(db->loop, &db->timer);
	int64_t at = next_time(db);
	if (!at)
		return;
	int64_t wait = at - clock_boot_ms();
	ev_timer_set(&db->timer, wait > 0 ? (double)wait / 1000.0 : 0.0, 0.0);
	ev_timer_start(db->loop, &db->timer);
}

/* BUSY is a promise that nothing was committed; what is on its way, or was once, is TIMEOUT. */
static enum hf_code gave_up(bool maybe, struct hf_err *err)
{
	return maybe ? hf_fail(err, HF_TIMEOUT, "Postgres did not say in time what became of it")
		     : hf_fail(err, HF_BUSY, "Postgres did not answer in time");
}

/* A caller that gave up is told so; its call in flight goes on without it. */
static void give_up(struct db *db, int64_t now)
{
	struct hf_err err = {};
	for (struct call *call = db->flight.head; call; call = call->next) {
		if (!call->done || !call->give_up_at_ms || call->give_up_at_ms > now)
			continue;
		db_done *done = call->done;
		call->done = nullptr;
		enum hf_code code = gave_up(true, &err);
		done(call->ctx, code, nullptr, &err);
	}
	struct calls kept;
	calls_init(&kept);
	for (struct call *call; (call = calls_take(&db->queue));) {
		if (call->give_up_at_ms && call->give_up_at_ms <= now) {
			enum hf_code code = gave_up(call->maybe, &err);
			call_end(call, code, &err);
		} else {
			calls_add(&kept, call);
		}
	}
	while (kept.head)
		calls_add(&db->queue, calls_take(&kept));
}

/* Whoever else of this process has found a newer primary: nothing is asked of an older one. */
static void go_on(struct db *db)
{
	if (db->state != DB_UP)
		return;
	if (db->doubted || !pgdial_is_newest(db->dial))
		db_lost(db, "the primary is another, or none");
	else
		db_send(db);
}

static void on_timer(struct ev_loop *, ev_timer *watcher, int)
{
	struct db *db = container_of(watcher, struct db, timer);
	int64_t now = clock_boot_ms();
	give_up(db, now);
	if (db->state == DB_DOWN && db->connect_at_ms <= now) {
		db->state = DB_DIALING;
		pgdial_start(db->dial);
	} else if (db->flight.head && db->flight_since_ms + db->answer_ms <= now) {
		db_lost(db, "no answer in time");
	} else {
		go_on(db); /* a failed call has rested */
	}
	timer_set(db);
}

/* --- the others ------------------------------------------------------------------------------- */

static void doubt(struct db *db)
{
	db->doubted = db->state == DB_UP;
	ev_feed_event(db->loop, &db->kick, EV_CUSTOM);
}

/* This one was told that its primary takes no writes. */
static void doubt_others(const struct db *db)
{
	for (struct db *other = open_dbs; other; other = other->next_open)
		if (other != db)
			doubt(other);
}

/* A newer primary was found. */
static void doubt_older(void)
{
	for (struct db *db = open_dbs; db; db = db->next_open)
		if (db->state == DB_UP && !pgdial_is_newest(db->dial))
			doubt(db);
}

/* --- sending ---------------------------------------------------------------------------------- */

static void io_set(struct db *db, int events)
{
	if (ev_is_active(&db->io) && (db->io.events & (EV_READ | EV_WRITE)) == events)
		return;
	ev_io_stop(db->loop, &db->io);
	ev_io_set(&db->io, PQsocket(db->conn), events);
	ev_io_start(db->loop, &db->io);
}

/* One act, one Sync, queued back to back; they leave together (rules 5 and 12). */
static bool call_send(struct db *db, struct call *call)
{
	return pgparams_send(&call->params, db->conn, call->sql) && PQpipelineSync(db->conn);
}

static void db_flush(struct db *db)
{
	int left = PQflush(db->conn);
	if (left < 0)
		db_lost(db, PQerrorMessage(db->conn));
	else
		io_set(db, left ? EV_READ | EV_WRITE : EV_READ);
}

static void db_send(struct db *db)
{
	int64_t now = clock_boot_ms();
	bool sent = false;
	struct calls kept;
	calls_init(&kept);
	for (struct call *call; (call = calls_take(&db->queue));) {
		if (call->not_before_ms > now || !may_send(db)) {
			calls_add(&kept, call);
			continue;
		}
		if (!db->flight.head)
			db->flight_since_ms = now;
		calls_add(&db->flight, call);
		sent = true;
		if (!call_send(db, call)) {
			while (kept.head)
				calls_add(&db->queue, calls_take(&kept));
			db_lost(db, PQerrorMessage(db->conn));
			return;
		}
	}
	while (kept.head)
		calls_add(&db->queue, calls_take(&kept));
	if (sent)
		db_flush(db);
}

static void on_kick(struct ev_loop *, ev_check *watcher, int)
{
	struct db *db = container_of(watcher, struct db, kick);
	go_on(db);
	timer_set(db);
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Back to the queue, to be sent again after a while; others may pass it. */
static void call_again(struct db *db, struct call *call)
{
	PQclear(call->result);
	call->result = nullptr;
	call->failures++;
	metric_add(METRIC_store_resent_total, db->lane, call->done ? 1 : 0);
	call->not_before_ms = clock_boot_ms() + backoff_ms(call->failures);
	if (call->done)
		calls_add(&db->queue, call);
	else
		call_free(call);
}

/* A column `wal` is STORE_WAL of a statement whose commit is acknowledged now. Not through a
 * pooler: the connection outlives a change of servers there, and whose place it is nobody knows. */
static void position_keep(const struct db *db, const PGresult *result)
{
	if (db->pooled)
		return;
	int column = PQntuples(result) > 0 ? PQfnumber(result, "wal") : -1;
	if (column >= 0 && !PQgetisnull(result, 0, column))
		lineage_kept((uint64_t)pgrow_int8(result, 0, column));
}

/* The answer of the oldest call is whole. False: the connection is no good any more. A warning says
 * that what was done may be here alone, and can be seen: before it is asked for again there must be
 * the barrier of a new connection, else the same row would answer as a repeat (rules 11 and 13). */
static bool call_answered(struct db *db, struct call *call)
{
	bool warned = db->warned;
	db->warned = false;
	const PGresult *result = call->result;
	ExecStatusType status = result ? PQresultStatus(result) : PGRES_FATAL_ERROR;
	bool rows = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
	if (rows && !warned) {
		position_keep(db, result);
		call_end(call, HF_OK, nullptr);
		return true;
	}
	const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : nullptr;
	state = state ? state : "";
	const char *text = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : nullptr;
	struct hf_err err = {};
	(void)hf_fail(&err, HF_INVALID, "%s", text ? text : "?");
	strncpy(err.sqlstate, state, sizeof err.sqlstate - 1);
	enum pgfail fail = pgfail_of(state);
	metric_store_error(state);
	if (!rows && fail == PGFAIL_REFUSED) {
		call_end(call, HF_INVALID, &err);
		return true;
	}
	/* A failure that was answered to its Sync is rolled back; a warning says nothing. */
	if (rows || fail == PGFAIL_RECONNECT)
		call->maybe = true;
	if (strcmp(state, "25006") == 0)
		doubt_others(db);
	log_warn("statement failed, will be sent again", "connection", db->name, "sqlstate", state,
		 "error", rows ? "a warning at commit" : err.text, nullptr);
	call_again(db, call);
	return !rows && fail != PGFAIL_RECONNECT;
}

static bool take_result(struct db *db, PGresult *result)
{
	struct call *call = db->flight.head;
	if (!call) { /* an error outside any call: the connection ends */
		PQclear(result);
		return false;
	}
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_PIPELINE_SYNC) {
		/* An act has one answer. A second, or an error of libpq's own, which has no
		 * SQLSTATE (it lacks memory), means that the end of an act was lost: whose answers
		 * follow, nobody knows. */
		bool own =
		    status == PGRES_FATAL_ERROR && !PQresultErrorField(result, PG_DIAG_SQLSTATE);
		if (own || call->result) {
			PQclear(result);
			return false;
		}
		call->result = result;
		return true;
	}
	PQclear(result);
	calls_take(&db->flight);
	db->flight_since_ms = clock_boot_ms();
	return call_answered(db, call);
}

static void notifications(struct db *db)
{
	for (PGnotify *notify; (notify = PQnotifies(db->conn));) {
		if (db->notified)
			db->notified(db->ctx, notify->extra);
		PQfreemem(notify);
	}
}

static void db_receive(struct db *db)
{
	if (!PQconsumeInput(db->conn)) {
		db_lost(db, PQerrorMessage(db->conn));
		return;
	}
	notifications(db);
	bool ended = false; /* between two results of a pipeline libpq says nullptr once */
	while (!PQisBusy(db->conn)) {
		PGresult *result = PQgetResult(db->conn);
		if (!result) {
			if (ended || !db->flight.head)
				break;
			ended = true;
			continue;
		}
		ended = false;
		if (!take_result(db, result)) {
			db_lost(db, "the server ended the connection, or its answers went astray");
			return;
		}
	}
	if (db->pooled && db->queue.head)
		ev_feed_event(db->loop, &db->kick, EV_CUSTOM);
}

static void on_io(struct ev_loop *, ev_io *watcher, int events)
{
	struct db *db = container_of(watcher, struct db, io);
	if (events & EV_READ)
		db_receive(db);
	if (db->state == DB_UP && (events & EV_WRITE))
		db_flush(db);
	timer_set(db);
}

/* --- connecting ------------------------------------------------------------------------------- */

static void on_dialed(void *ctx, PGconn *conn, const char *why)
{
	struct db *db = ctx;
	if (!conn) {
		db_lost(db, why);
		return;
	}
	db->conn = conn;
	db->pooled = pgdial_pooled(db->dial);
	PQsetNoticeReceiver(conn, pgfail_on_notice, &db->warned);
	db->state = DB_UP;
	db->failures = 0;
	metric_add(METRIC_store_connects_total, db->lane, 1);
	log_info("connected to Postgres", "connection", db->name, "host", PQhost(conn), "port",
		 PQport(conn), nullptr);
	io_set(db, EV_READ);
	doubt_older();
	if (db->connected)
		db->connected(db->ctx);
	ev_feed_event(db->loop, &db->kick, EV_CUSTOM);
	timer_set(db);
}

static void on_refused(void *ctx, const char *why)
{
	struct db *db = ctx;
	db->refused(db->ctx, why);
}

static void db_lost(struct db *db, const char *why)
{
	if (db->failures == 0)
		log_warn("connection to Postgres lost", "connection", db->name, "error", why,
			 nullptr);
	ev_io_stop(db->loop, &db->io);
	PQfinish(db->conn);
	db->conn = nullptr;
	db->warned = db->doubted = false;
	db->state = DB_DOWN;
	metric_add(METRIC_store_losses_total, db->lane, 1);
	db->connect_at_ms = clock_boot_ms() + backoff_ms(++db->failures);

	struct calls waiting = db->queue;
	if (!waiting.head)
		waiting.tail = &waiting.head;
	calls_init(&db->queue);
	for (struct call *call; (call = calls_take(&db->flight));) {
		PQclear(call->result);
		call->result = nullptr;
		call->maybe = true;
		metric_add(METRIC_store_resent_total, db->lane, call->done ? 1 : 0);
		if (call->done)
			calls_add(&db->queue, call);
		else
			call_free(call);
	}
	while (waiting.head)
		calls_add(&db->queue, calls_take(&waiting));
	timer_set(db);
}

/* --- what others call ------------------------------------------------------------------------- */

struct db *db_open(struct ev_loop *loop, const struct db_options *options)
{
	hf_assert(options->dsn);
	hf_assert(options->name);
	struct db *db = hf_alloc(sizeof *db);
	db->loop = loop;
	db->name = hf_format("holdfast %s", options->name);
	db->answer_ms = options->answer_ms ? options->answer_ms : DB_ANSWER_MS;
	const struct pgdial_options dial = {
		.dsn = options->dsn,
		.application = db->name,
		.greets = true,
		.listen = options->listen,
		.admission = options->admission,
		.refused = on_refused,
	};
	db->dial = pgdial_new(loop, &dial, on_dialed, db);
	db->lane = strrchr(db->name, ' ') + 1;
	db->notified = options->notified;
	db->connected = options->connected;
	db->refused = options->refused;
	db->ctx = options->ctx;
	calls_init(&db->queue);
	calls_init(&db->flight);
	ev_init(&db->io, on_io);
	ev_init(&db->timer, on_timer);
	ev_init(&db->kick, on_kick);
	ev_set_priority(&db->kick, EV_MINPRI); /* after all else of the turn */
	db->connect_at_ms = clock_boot_ms();
	db->next_open = open_dbs;
	open_dbs = db;
	timer_set(db);
	return db;
}

void db_close(struct db *db)
{
	struct hf_err err = {};
	(void)hf_fail(&err, HF_CANCELLED, "the process ends");
	struct db **at = &open_dbs;
	while (*at != db)
		at = &(*at)->next_open;
	*at = db->next_open;
	ev_io_stop(db->loop, &db->io);
	ev_timer_stop(db->loop, &db->timer);
	ev_clear_pending(db->loop, &db->kick);
	PQfinish(db->conn);
	pgdial_free(db->dial);
	for (struct call *call; (call = calls_take(&db->flight));)
		call_end(call, HF_CANCELLED, &err);
	for (struct call *call; (call = calls_take(&db->queue));)
		call_end(call, HF_CANCELLED, &err);
	free(db->name);
	free(db);
}

bool db_is_up(const struct db *db)
{
	bool slow = db->flight.head && clock_boot_ms() - db->flight_since_ms > DB_SLOW_MS;
	return db->state == DB_UP && !slow;
}

void db_collect(const struct db *db)
{
	metric_set(METRIC_store_connected, db->lane, db_is_up(db));
	metric_set(METRIC_store_calls_open, db->lane,
		   (int64_t)(db->queue.count + db->flight.count));
	metric_add(METRIC_store_connects_total, db->lane, 0);
	metric_add(METRIC_store_losses_total, db->lane, 0);
	metric_add(METRIC_store_resent_total, db->lane, 0);
}

void db_call(struct db *db, const char *sql, struct pgparams *params, int64_t give_up_ms,
	     db_done *done, void *ctx)
{
	db_call_until(db, sql, params, give_up_ms, done, nullptr, ctx);
}

void db_call_until(struct db *db, const char *sql, struct pgparams *params, int64_t give_up_ms,
		   db_done *done, void (*ended)(void *ctx), void *ctx)
{
	hf_assert(done);
	struct call *call = hf_alloc(sizeof *call);
	call->sql = sql;
	call->params = *params;
	*params = (struct pgparams){};
	call->done = done;
	call->ended = ended;
	call->ctx = ctx;
	call->give_up_at_ms = give_up_ms ? clock_boot_ms() + give_up_ms : 0;
	calls_add(&db->queue, call);
	ev_feed_event(db->loop, &db->kick, EV_CUSTOM);
}
