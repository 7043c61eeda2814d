/* pgrun.c - see pgrun.h. What is in flight is waited for in one place, turn(); with a loop it turns
 * there, so that sequential code needs no callbacks to leave others their time. */
#include "runtime/pgrun.h"

#include <ev.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/clock.h"

static struct ev_loop *turned; /* nullptr: block */
static const bool *turned_stop;

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

static enum hf_code connect_turning(PGconn *conn, struct hf_err *err)
{
	int64_t until_ms = clock_boot_ms() + PG_CONNECT_MS;
	PostgresPollingStatusType wants = PGRES_POLLING_WRITING;
	while (PQstatus(conn) != CONNECTION_BAD && wants != PGRES_POLLING_OK &&
	       wants != PGRES_POLLING_FAILED) {
		hf_try(
		    turn(conn, wants == PGRES_POLLING_READING ? EV_READ : EV_WRITE, until_ms, err));
		wants = PQconnectPoll(conn);
	}
	PQsetnonblocking(conn, 1);
	return HF_OK;
}

enum hf_code pg_connect(const char *dsn, const char *name, PGconn **conn, struct hf_err *err)
{
	const char *const names[] = { "connect_timeout",  "tcp_user_timeout",
				      "application_name", "target_session_attrs",
				      "dbname",           nullptr };
	const char *const values[] = { "5", "10000", name, "read-write", dsn, nullptr };
	PGconn *made =
	    turned ? PQconnectStartParams(names, values, 1) : PQconnectdbParams(names, values, 1);
	enum hf_code code = HF_OK;
	if (made && turned)
		code = connect_turning(made, err);
	if (code == HF_OK && (!made || PQstatus(made) != CONNECTION_OK))
		code = hf_fail(err, HF_DB, "%s", made ? PQerrorMessage(made) : "out of memory");
	if (code != HF_OK) {
		PQfinish(made);
		return code;
	}
	*conn = made;
	return HF_OK;
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
	if (result)
		*result = got;
	else
		PQclear(got);
	return HF_OK;
}
