/* pgrun.c - see pgrun.h. What is in flight is waited for in one place, turn(); with a loop it turns
 * there, so that sequential code needs no callbacks to leave others their time. */
#include "runtime/pgrun.h"

#include <ev.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/pgdial.h"
#include "runtime/pgfail.h"

static struct ev_loop *turned; /* nullptr: block */
static const bool *turned_stop;
/* Since the statement at hand was sent. */
static bool warned;

struct wait {
	ev_io io;
	ev_timer timer;
	bool ready, over;
	int64_t until_ms;
};

void pg_turn(struct ev_loop *loop, const bool *stop)
{
	turned = loop;
	turned_stop = stop;
}

static void on_ready(struct ev_loop *, ev_io *io, int)
{
	container_of(io, struct wait, io)->ready = true;
}

static void on_time(struct ev_loop *, ev_timer *timer, int)
{
	container_of(timer, struct wait, timer)->over = true;
}

static void wait_until(struct wait *wait, int64_t until_ms)
{
	int64_t left = until_ms - clock_boot_ms();
	wait->until_ms = until_ms;
	ev_timer_stop(turned, &wait->timer);
	ev_now_update(turned);
	ev_timer_set(&wait->timer, (double)(left > 0 ? left : 0) / 1000, 0);
	ev_timer_start(turned, &wait->timer);
}

/* Turns the loop until the socket is ready for one of `events`. */
static enum hf_code turn(const PGconn *conn, int events, int64_t until_ms, struct hf_err *err)
{
	struct wait wait = {};
	bool stopping = false;
	ev_io_init(&wait.io, on_ready, PQsocket(conn), events);
	ev_init(&wait.timer, on_time);
	ev_io_start(turned, &wait.io);
	wait_until(&wait, until_ms);
	while (!wait.ready && !wait.over) {
		if (*turned_stop && !stopping) {
			stopping = true;
			int64_t soon = clock_boot_ms() + PG_STOP_MS;
			wait_until(&wait, soon < until_ms ? soon : until_ms);
		}
		ev_run(turned, EVRUN_ONCE);
	}
	ev_io_stop(turned, &wait.io);
	ev_timer_stop(turned, &wait.timer);
	return wait.ready ? HF_OK : hf_fail(err, HF_TIMEOUT, "no answer in time");
}

/* --- connecting ------------------------------------------------------------------------------- */

struct dialed {
	PGconn *conn;
	bool over;
	char why[300];
};

static void on_dialed(void *ctx, PGconn *conn, const char *why)
{
	struct dialed *dialed = ctx;
	dialed->conn = conn;
	dialed->over = true;
	snprintf(dialed->why, sizeof dialed->why, "%s", why ? why : "");
}

static void on_notice(void *, const PGresult *result)
{
	bool warning = false;
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	pgfail_on_notice(&warning, result);
	warned = warned || warning;
	log_info(warning ? "Postgres warns" : "Postgres notes", "text", text ? text : "?", nullptr);
}

/* Until it is told, from inside the loop: each step of a dial has a time of its own, and a bound
 * over all would keep the last of several hosts from ever being asked. */
static void dial_turn(struct ev_loop *loop, struct dialed *dialed)
{
	ev_now_update(loop);
	while (!dialed->over && !(turned && *turned_stop))
		ev_run(loop, EVRUN_ONCE);
}

static enum hf_code dial(const struct pgdial_options *options, PGconn **conn, struct hf_err *err)
{
	struct ev_loop *loop = turned ? turned : ev_loop_new(EVFLAG_AUTO);
	struct dialed dialed = {};
	struct pgdial *dial = pgdial_new(loop, options, on_dialed, &dialed);
	pgdial_start(dial);
	dial_turn(loop, &dialed);
	pgdial_free(dial);
	if (!turned)
		ev_loop_destroy(loop);
	if (!dialed.conn)
		return hf_fail(err, HF_DB, "%s",
			       dialed.over ? dialed.why : "this process is to end");
	PQexitPipelineMode(dialed.conn);
	PQsetnonblocking(dialed.conn, turned != nullptr);
	PQsetNoticeReceiver(dialed.conn, on_notice, nullptr);
	*conn = dialed.conn;
	return HF_OK;
}

enum hf_code pg_connect(const char *dsn, const char *name, PGconn **conn, struct hf_err *err)
{
	const struct pgdial_options options = {
		.dsn = dsn,
		.application = name,
		.any_timeline = true,
	};
	return dial(&options, conn, err);
}

enum hf_code pg_connect_reading(const char *dsn, const char *name, PGconn **conn,
				struct hf_err *err)
{
	const struct pgdial_options options = {
		.dsn = dsn,
		.application = name,
		.attributes = "primary",
		.any_timeline = true,
	};
	return dial(&options, conn, err);
}

/* --- statements ------------------------------------------------------------------------------- */

/* What PQexec would give back: the last result. */
static enum hf_code fetch(PGconn *conn, PGresult **out, struct hf_err *err)
{
	int64_t until_ms = clock_boot_ms() + PG_ANSWER_MS;
	while (PQflush(conn) > 0) {
		hf_try(turn(conn, EV_READ | EV_WRITE, until_ms, err));
		(void)PQconsumeInput(conn); /* a failure shows below */
	}
	for (;;) {
		bool lost = false;
		while (!lost && PQisBusy(conn)) {
			hf_try(turn(conn, EV_READ, until_ms, err));
			lost = !PQconsumeInput(conn);
		}
		PGresult *next = PQgetResult(conn);
		if (!next)
			return HF_OK;
		PQclear(*out);
		*out = next;
	}
}

static enum hf_code run_turning(PGconn *conn, const char *sql, int count, const char *const *values,
				PGresult **out, struct hf_err *err)
{
	int sent = count ? PQsendQueryParams(conn, sql, count, nullptr, values, nullptr, nullptr, 0)
			 : PQsendQuery(conn, sql);
	if (!sent)
		return hf_fail(err, HF_DB, "%s", PQerrorMessage(conn));
	enum hf_code code = fetch(conn, out, err);
	if (code != HF_OK)
		PQclear(*out);
	return code;
}

enum hf_code pg_run(PGconn *conn, const char *sql, int count, const char *const *values,
		    PGresult **result, struct hf_err *err)
{
	PGresult *got = nullptr;
	warned = false;
	if (turned)
		hf_try(run_turning(conn, sql, count, values, &got, err));
	else
		got = count ? PQexecParams(conn, sql, count, nullptr, values, nullptr, nullptr, 0)
			    : PQexec(conn, sql);
	ExecStatusType status = PQresultStatus(got);
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
		const char *state = got ? PQresultErrorField(got, PG_DIAG_SQLSTATE) : nullptr;
		const char *text = got ? PQresultErrorField(got, PG_DIAG_MESSAGE_PRIMARY) : nullptr;
		enum hf_code code = hf_fail(err, HF_DB, "%s", text ? text : PQerrorMessage(conn));
		if (err && state)
			strncpy(err->sqlstate, state, sizeof err->sqlstate - 1);
		PQclear(got);
		return code;
	}
	if (warned) {
		PQclear(got);
		return hf_fail(err, HF_TIMEOUT, "Postgres warned: look whether it was committed");
	}
	if (result)
		*result = got;
	else
		PQclear(got);
	return HF_OK;
}
