#include "runtime/maintain.h"

#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/id.h"
#include "runtime/lineage.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/migrations.h"
#include "runtime/monitor.h"
#include "runtime/pgrun.h"
#include "runtime/random.h"
#include "runtime/stop_signals.h"
#include "runtime/task.h"

constexpr int ROWS_A_ROUND = 200;           /* of each sweep */
constexpr int SWEEP_BATCHES_A_ROUND = 20;   /* of ROWS_A_ROUND */
constexpr int TOMBSTONE_PAGES_A_ROUND = 64; /* of one partition of effect */
constexpr int EFFECT_PARTS = 16;
constexpr int WAITING_A_ROUND = 1'000;       /* waiting tasks looked at */
constexpr int COUNT_PAGES_A_ROUND = 2'000;   /* of work, for the gauges: 16 MB */
constexpr int64_t SLOW_EVERY_MS = 5'000;     /* weeks, retention, tombstones, gauges */
constexpr int64_t BLOCKER_MS = 5'000;        /* in ClientRead while others wait (rule 12) */
constexpr int64_t LEAP_MS = 600'000;         /* the database's clock ahead of ours: no sweep */
constexpr int64_t LEAP_WALL_MS = 86'400'000; /* ahead of this machine's clock: no sweep either */
constexpr int64_t BACK_MS = 1'000;           /* the database's clock went back: rows are mended */
constexpr int64_t MEND_MS = 10'000;          /* for so long, as some are held meanwhile */
constexpr int MEND_PAGES_A_ROUND = 2'000;    /* of work: 16 MB */
constexpr int64_t PAUSE_FIRST_MS = 100; /* until the first try to reach Postgres again; doubles */
constexpr int64_t PAUSE_MAX_MS = 2'000; /* between two tries */
constexpr int WORKERS_MAX = 4'096;

/* What the reaper saw of an incarnation: death is a counter that stands still. */
struct look {
	char incarnation[37];
	int64_t beat;
	int64_t since_ms; /* boot time at which this count was first seen */
	bool seen;        /* in this round */
};

struct maintain {
	const struct config *config;
	struct ev_loop *loop; /* turned wherever something is waited for */
	struct stop_signals signals;
	struct monitor *monitor;
	PGconn *conn;
	struct uuid id;
	char incarnation[UUID_TEXT_LEN + 1];
	bool leading, stop;
	int64_t well_ms;     /* boot time of the last round that went well; 0: none yet */
	char postmaster[64]; /* start time: another one makes all looks void */
	struct look *looks;
	size_t looks_count;
	int64_t slow_at_ms;
	/* The database's clock minus ours: when this process first looked, and last. */
	int64_t ahead_first_ms, ahead_ms;
	bool clock_seen, leapt, ahead; /* ahead: of this machine's */
	int64_t mend_until_ms, mend_page;
	char waiting_due[64], waiting_task[64]; /* where the next page begins; empty: anew */
	int part;                               /* of effect, next to be swept */
	int64_t page;
	/* the count of open tasks, a part of the table at a time */
	int64_t count_page, counted_ms; /* counted_ms: when the last whole one ended; 0: none */
	int64_t counts[TASK_COMPLETED]; /* of each open state */
};

static enum hf_code ask(struct maintain *m, const char *sql, int count, const char *const *values,
			int64_t *out, struct hf_err *err)
{
	PGresult *result = nullptr;
	hf_try(pg_run(m->conn, sql, count, values, &result, err));
	const char *text = PQntuples(result) ? PQgetvalue(result, 0, 0) : "0";
	*out = text[0] == 't' ? 1 : text[0] == 'f' ? 0 : strtoll(text, nullptr, 10);
	PQclear(result);
	return HF_OK;
}

/* --- the dead --------------------------------------------------------------------------------- */

static struct look *look_find(struct maintain *m, const char *incarnation)
{
	for (size_t i = 0; i < m->looks_count; i++)
		if (strcmp(m->looks[i].incarnation, incarnation) == 0)
			return &m->looks[i];
	return nullptr;
}

static enum hf_code look_at(struct maintain *m, const char *incarnation, const char *beat_text,
			    struct hf_err *err)
{
	int64_t now = clock_boot_ms(), beat = strtoll(beat_text, nullptr, 10);
	struct look *look = look_find(m, incarnation);
	if (!look) {
		if (m->looks_count == WORKERS_MAX) { /* looked at once others are gone */
			metric_add(METRIC_bound_refused_total, "incarnations_watched", 1);
			return HF_OK;
		}
		look = &m->looks[m->looks_count++];
		*look = (struct look){ .beat = beat, .since_ms = now };
		memcpy(look->incarnation, incarnation, strlen(incarnation) + 1);
	}
	look->seen = true;
	if (look->beat != beat) {
		look->beat = beat;
		look->since_ms = now;
	}
	if (!m->leading || now - look->since_ms < m->config->lease_ms)
		return HF_OK;
	int64_t dead = 0;
	const char *const values[] = { incarnation, beat_text };
	hf_try(ask(m, "SELECT holdfast.declare_dead($1, $2)", 2, values, &dead, err));
	if (dead)
		log_warn("incarnation declared dead", "incarnation", incarnation, nullptr);
	metric_add(METRIC_maintained_total, "declared_dead", dead);
	look->since_ms = now;
	return HF_OK;
}

/* Who does not lead looks too, so that the dead wait no second lease for the next leader's. What it
 * saw is as good: declare_dead asks for the same count.
 * After a restart of Postgres nobody is dead before beats had one full interval: a new start time
 * begins all looks anew. */
static enum hf_code bury(struct maintain *m, struct hf_err *err)
{
	PGresult *result = nullptr;
	hf_try(
	    pg_run(m->conn,
		   "SELECT pg_postmaster_start_time(), w.incarnation, w.beat FROM (SELECT 1) one "
		   "LEFT JOIN holdfast.worker w ON true",
		   0, nullptr, &result, err));
	const char *start = PQgetvalue(result, 0, 0);
	if (strncmp(start, m->postmaster, sizeof m->postmaster - 1) != 0) {
		snprintf(m->postmaster, sizeof m->postmaster, "%s", start);
		m->looks_count = 0;
	}
	for (size_t i = 0; i < m->looks_count; i++)
		m->looks[i].seen = false;
	enum hf_code code = HF_OK;
	for (int row = 0; row < PQntuples(result) && code == HF_OK; row++)
		if (!PQgetisnull(result, row, 1))
			code =
			    look_at(m, PQgetvalue(result, row, 1), PQgetvalue(result, row, 2), err);
	PQclear(result);
	size_t kept = 0;
	for (size_t i = 0; i < m->looks_count; i++)
		if (m->looks[i].seen)
			m->looks[kept++] = m->looks[i];
	m->looks_count = kept;
	return code;
}

/* Repeats a limited sweep until it finds less than a full batch. */
static enum hf_code drain(struct maintain *m, const char *sql, const char *act, const char *what,
			  struct hf_err *err)
{
	int64_t n = ROWS_A_ROUND, total = 0;
	for (int i = 0; i < SWEEP_BATCHES_A_ROUND && n == ROWS_A_ROUND; i++) {
		hf_try(ask(m, sql, 0, nullptr, &n, err));
		metric_add(METRIC_maintained_total, act, n);
		total += n;
	}
	if (total)
		log_info(what, "tasks", LOG_INT(total), nullptr);
	return HF_OK;
}

/* --- retention -------------------------------------------------------------------------------- */

/* A database clock that leapt ahead of ours lets nothing be swept until it is back, or until
 * someone has looked at it and started maintenance anew (rule 15). Where it went back, rows of the
 * time before are due far in the future. */
static enum hf_code watch_clock(struct maintain *m, struct hf_err *err)
{
	int64_t now = 0;
	hf_try(ask(m, "SELECT holdfast.to_ms(holdfast.now_())", 0, nullptr, &now, err));
	int64_t ahead_ms = now - clock_boot_ms();
	if (!m->clock_seen)
		m->ahead_first_ms = m->ahead_ms = ahead_ms;
	m->clock_seen = true;
	if (ahead_ms < m->ahead_ms - BACK_MS) {
		log_warn("the database's clock went back", "ms", LOG_INT(m->ahead_ms - ahead_ms),
			 nullptr);
		m->mend_until_ms = clock_boot_ms() + MEND_MS;
	}
	m->ahead_ms = ahead_ms;
	if (ahead_ms < m->ahead_first_ms)
		m->ahead_first_ms = ahead_ms;
	bool leapt = ahead_ms - m->ahead_first_ms > LEAP_MS;
	if (leapt && !m->leapt)
		log_error("the database's clock leapt; retention stops until it is back, or "
			  "maintenance is restarted",
			  nullptr);
	m->leapt = leapt;
	return HF_OK;
}

/* A leap before we began shows against the clock of this machine. */
static enum hf_code compare_clocks(struct maintain *m, struct hf_err *err)
{
	int64_t server = 0;
	hf_try(ask(m, "SELECT holdfast.to_ms(clock_timestamp())", 0, nullptr, &server, err));
	bool ahead = server - clock_wall_ms() > LEAP_WALL_MS;
	if (ahead && !m->ahead)
		log_error("the database's clock is over a day ahead of this machine's; retention "
			  "stops while it is",
			  nullptr);
	m->ahead = ahead;
	return HF_OK;
}

static enum hf_code mend(struct maintain *m, struct hf_err *err)
{
	char page[24], pages[16], slack[24];
	snprintf(page, sizeof page, "%lld", (long long)m->mend_page);
	snprintf(pages, sizeof pages, "%d", MEND_PAGES_A_ROUND);
	snprintf(slack, sizeof slack, "%lld", (long long)BACK_MS);
	const char *const values[] = { page, pages, slack };
	PGresult *result = nullptr;
	hf_try(pg_run(m->conn, "SELECT next, mended FROM holdfast.mend_clock($1, $2, $3)", 3,
		      values, &result, err));
	m->mend_page = strtoll(PQgetvalue(result, 0, 0), nullptr, 10);
	int64_t mended = strtoll(PQgetvalue(result, 0, 1), nullptr, 10);
	PQclear(result);
	metric_add(METRIC_maintained_total, "mended", mended);
	if (mended)
		log_info("due times of a clock that went back", "tasks", LOG_INT(mended), nullptr);
	return HF_OK;
}

static enum hf_code week_drop(struct maintain *m, const char *week, struct hf_err *err)
{
	int64_t closed = 0;
	const char *const values[] = { week };
	hf_try(ask(m, "SELECT holdfast.close_week($1)", 1, values, &closed, err));
	if (!closed)
		return HF_OK;
	for (size_t i = 0; i < countof(weekly_tables); i++) {
		/* Detaching is apart from any transaction; an interrupted one is ended first. */
		char *finalize =
		    hf_format("ALTER TABLE holdfast.%s DETACH PARTITION holdfast.%s_w%s FINALIZE",
			      weekly_tables[i], weekly_tables[i], week);
		char *detach = hf_format(
		    "ALTER TABLE holdfast.%s DETACH PARTITION holdfast.%s_w%s CONCURRENTLY",
		    weekly_tables[i], weekly_tables[i], week);
		char *drop =
		    hf_format("DROP TABLE IF EXISTS holdfast.%s_w%s", weekly_tables[i], week);
		struct hf_err ignored;
		(void)pg_run(m->conn, finalize, 0, nullptr, nullptr, &ignored);
		(void)pg_run(m->conn, detach, 0, nullptr, nullptr, &ignored);
		enum hf_code code = pg_run(m->conn, drop, 0, nullptr, nullptr, err);
		free(finalize);
		free(detach);
		free(drop);
		hf_try(code);
	}
	metric_add(METRIC_maintained_total, "week_dropped", 1);
	log_info("week dropped", "week", week, nullptr);
	return pg_run(m->conn, "DELETE FROM holdfast.week WHERE week = $1", 1, values, nullptr,
		      err);
}

static enum hf_code sweep_week(struct maintain *m, const char *week, struct hf_err *err)
{
	char limit[16];
	snprintf(limit, sizeof limit, "%d", ROWS_A_ROUND);
	const char *const values[] = { week, limit };
	int64_t n = ROWS_A_ROUND, total = 0;
	for (int i = 0; i < SWEEP_BATCHES_A_ROUND && n == ROWS_A_ROUND; i++) {
		hf_try(ask(m, "SELECT holdfast.sweep($1, $2)", 2, values, &n, err));
		metric_add(METRIC_maintained_total, "swept", n);
		total += n;
	}
	if (total)
		log_info("retention is over", "week", week, "tasks", LOG_INT(total), nullptr);
	return n < ROWS_A_ROUND ? week_drop(m, week, err) : HF_OK;
}

static enum hf_code retention(struct maintain *m, struct hf_err *err)
{
	PGresult *weeks = nullptr;
	hf_try(pg_run(m->conn,
		      "SELECT week FROM holdfast.week WHERE week <= "
		      "holdfast.week_of(holdfast.to_ms(holdfast.now_())) ORDER BY week",
		      0, nullptr, &weeks, err));
	enum hf_code code = HF_OK;
	for (int row = 0; row < PQntuples(weeks) && code == HF_OK; row++)
		code = sweep_week(m, PQgetvalue(weeks, row, 0), err);
	PQclear(weeks);
	hf_try(code);

	char part[16], page[24], pages[16];
	snprintf(part, sizeof part, "%d", m->part);
	snprintf(page, sizeof page, "%lld", (long long)m->page);
	snprintf(pages, sizeof pages, "%d", TOMBSTONE_PAGES_A_ROUND);
	const char *const values[] = { part, page, pages };
	hf_try(ask(m, "SELECT holdfast.sweep_tombstones($1, $2, $3)", 3, values, &m->page, err));
	metric_add(METRIC_tombstone_pages_total, nullptr, TOMBSTONE_PAGES_A_ROUND);
	if (m->page == 0)
		m->part = (m->part + 1) % EFFECT_PARTS;
	return HF_OK;
}

/* --- the overlooked --------------------------------------------------------------------------- */

/* One page of the waiting tasks a round: those that wait for nothing are woken, and are a bug. */
static enum hf_code wake_overlooked(struct maintain *m, struct hf_err *err)
{
	char limit[16];
	snprintf(limit, sizeof limit, "%d", WAITING_A_ROUND);
	bool fresh = m->waiting_due[0] == '\0';
	const char *const values[] = { fresh ? nullptr : m->waiting_due,
				       fresh ? nullptr : m->waiting_task, limit };
	PGresult *result = nullptr;
	hf_try(pg_run(m->conn, "SELECT * FROM holdfast.wake_answered($1, $2, $3)", 3, values,
		      &result, err));
	metric_add(METRIC_maintained_total, "overlooked",
		   strtoll(PQgetvalue(result, 0, 0), nullptr, 10));
	if (strcmp(PQgetvalue(result, 0, 0), "0") != 0)
		log_error("tasks waited although all was answered", "tasks",
			  PQgetvalue(result, 0, 0), nullptr);
	snprintf(m->waiting_due, sizeof m->waiting_due, "%s", PQgetvalue(result, 0, 1));
	snprintf(m->waiting_task, sizeof m->waiting_task, "%s", PQgetvalue(result, 0, 2));
	PQclear(result);
	return HF_OK;
}

/* --- what the store looks like ---------------------------------------------------------------- */

/* What only the leader reads is unknown to all others, and to it while the store is away. */
static void forget(struct maintain *m)
{
	static const enum metric gauges[] = { METRIC_tasks_open, METRIC_oldest_ready_seconds,
					      METRIC_incarnations, METRIC_weeks_ahead };
	for (size_t i = 0; i < countof(gauges); i++)
		metric_forget(gauges[i]);
	m->counted_ms = m->count_page = 0;
	memset(m->counts, 0, sizeof m->counts);
}

static void count_published(struct maintain *m)
{
	for (enum task_state state = 0; state < TASK_COMPLETED; state++)
		metric_set(METRIC_tasks_open, task_state_name(state), m->counts[state]);
	memset(m->counts, 0, sizeof m->counts);
	m->counted_ms = clock_boot_ms();
	m->count_page = 0;
}

/* The next part of the table: no index could count a million, and no read may take that long. */
static enum hf_code count_open(struct maintain *m, struct hf_err *err)
{
	char page[24], pages[16];
	snprintf(page, sizeof page, "%lld", (long long)m->count_page);
	snprintf(pages, sizeof pages, "%d", COUNT_PAGES_A_ROUND);
	const char *const values[] = { page, pages };
	PGresult *rows = nullptr;
	hf_try(pg_run(m->conn, "SELECT state, number FROM holdfast.count_work($1, $2)", 2, values,
		      &rows, err));
	int64_t next = 0;
	for (int row = 0; row < PQntuples(rows); row++) {
		int64_t number = strtoll(PQgetvalue(rows, row, 1), nullptr, 10);
		enum task_state state;
		if (PQgetisnull(rows, row, 0))
			next = number;
		else if (task_state_parse(slice_of(PQgetvalue(rows, row, 0)), &state) &&
			 state < TASK_COMPLETED)
			m->counts[state] += number;
	}
	PQclear(rows);
	m->count_page = next;
	if (next == 0)
		count_published(m);
	return HF_OK;
}

static enum hf_code read_gauges(struct maintain *m, struct hf_err *err)
{
	static const struct {
		const char *name;
		enum metric metric;
	} gauges[] = {
		{ "oldest_ready", METRIC_oldest_ready_seconds },
		{ "incarnations", METRIC_incarnations },
		{ "weeks_ahead", METRIC_weeks_ahead },
		{ "tool_running", METRIC_tool_running },
		{ "tool_running_limit", METRIC_tool_running_limit },
		{ "tool_tenant_running", METRIC_tool_tenant_running },
		{ "tool_tenant_running_limit", METRIC_tool_tenant_running_limit },
		{ "tool_backlog", METRIC_tool_backlog },
		{ "tool_backlog_limit", METRIC_tool_backlog_limit },
	};
	PGresult *rows = nullptr;
	hf_try(pg_run(m->conn, "SELECT name, label, number FROM holdfast.gauges()", 0, nullptr,
		      &rows, err));
	for (size_t i = 0; i < countof(gauges); i++)
		metric_forget(gauges[i].metric);
	for (int row = 0; row < PQntuples(rows); row++)
		for (size_t i = 0; i < countof(gauges); i++)
			if (strcmp(PQgetvalue(rows, row, 0), gauges[i].name) == 0)
				metric_set(gauges[i].metric, PQgetvalue(rows, row, 1),
					   strtoll(PQgetvalue(rows, row, 2), nullptr, 10));
	PQclear(rows);
	return HF_OK;
}

/* That the gauges cannot be read must not keep maintenance from its work. */
static enum hf_code observe(struct maintain *m, struct hf_err *err)
{
	enum hf_code code = read_gauges(m, err);
	if (code == HF_OK)
		code = count_open(m, err);
	if (code == HF_OK || !err->sqlstate[0] || PQstatus(m->conn) != CONNECTION_OK)
		return code;
	log_warn("gauges not read", "error", err->text, "sqlstate", err->sqlstate, nullptr);
	metric_store_error(err->sqlstate);
	forget(m);
	return HF_OK;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static enum hf_code slow_round(struct maintain *m, struct hf_err *err)
{
	int made = 0;
	hf_try(weeks_ensure(m->conn, WEEKS_AHEAD, &made, err));
	metric_add(METRIC_maintained_total, "week_made", made);
	if (made)
		log_info("weeks made ahead", "weeks", LOG_INT(made), nullptr);
	hf_try(mend(m, err)); /* a part at a time: another may have led when it went back */
	hf_try(compare_clocks(m, err));
	if (!m->leapt && !m->ahead) {
		hf_try(retention(m, err));
		hf_try(drain(m, "SELECT holdfast.sweep_windows(200)", "window_swept",
			     "intent windows over", err));
	}
	return wake_overlooked(m, err);
}

static int64_t lease_ms(const struct maintain *m)
{
	return 3 * m->config->maintain_ms + 5'000;
}

static enum hf_code round_(struct maintain *m, struct hf_err *err)
{
	char ttl[24];
	snprintf(ttl, sizeof ttl, "%lld", (long long)lease_ms(m));
	const char *const values[] = { "maintain", m->incarnation, ttl };
	int64_t mine = 0;
	hf_try(ask(m, "SELECT holdfast.lease_take($1, $2, $3)", 3, values, &mine, err));
	if (mine && !m->leading)
		log_info("maintenance leads", nullptr);
	m->leading = mine;
	hf_try(bury(m, err));
	hf_try(watch_clock(m, err));
	if (!mine) {
		m->ahead = false; /* looked at by who leads */
		forget(m);
		return HF_OK;
	}
	hf_try(drain(m, "SELECT holdfast.reclaim(200)", "reclaimed", "claims of dead workers freed",
		     err));
	hf_try(drain(m, "SELECT holdfast.expire_deadlines(200)", "deadline_expired",
		     "deadlines passed", err));
	hf_try(drain(m, "SELECT holdfast.park_orphans(200)", "orphan_parked",
		     "attachments of dead APIs parked", err));
	hf_try(drain(m, "SELECT holdfast.expire_parked(200)", "parked_expired",
		     "parked for too long", err));
	if (clock_boot_ms() < m->mend_until_ms)
		hf_try(mend(m, err));
	int64_t ended = 0;
	char blocker[24];
	snprintf(blocker, sizeof blocker, "%lld", (long long)BLOCKER_MS);
	const char *const older[] = { blocker };
	hf_try(ask(m, "SELECT holdfast.end_blockers($1)", 1, older, &ended, err));
	metric_add(METRIC_maintained_total, "blocker_ended", ended);
	if (ended)
		log_warn("backends ended that blocked others", "backends", LOG_INT(ended), nullptr);
	if (clock_boot_ms() < m->slow_at_ms)
		return HF_OK;
	m->slow_at_ms = clock_boot_ms() + SLOW_EVERY_MS;
	hf_try(slow_round(m, err));
	return observe(m, err);
}

/* --- the process ------------------------------------------------------------------------------ */

static void on_rested(struct ev_loop *loop, ev_timer *timer, int)
{
	ev_timer_stop(loop, timer);
}

static void rest(struct maintain *m, int64_t ms)
{
	ev_timer timer;
	ev_now_update(m->loop);
	ev_timer_init(&timer, on_rested, (double)ms / 1000, 0);
	ev_timer_start(m->loop, &timer);
	while (ev_is_active(&timer) && !m->stop)
		ev_run(m->loop, EVRUN_ONCE);
	ev_timer_stop(m->loop, &timer);
}

static const char *not_ready(void *ctx)
{
	const struct maintain *m = ctx;
	if (m->stop)
		return "draining";
	if (lineage_waits())
		return LINEAGE_WAITS;
	if (!m->conn || !m->well_ms)
		return "store away";
	return clock_boot_ms() - m->well_ms > lease_ms(m) ? "no round in time" : nullptr;
}

static void collect(void *ctx)
{
	const struct maintain *m = ctx;
	metric_set(METRIC_store_connected, "maintain", m->conn != nullptr);
	metric_add(METRIC_store_connects_total, "maintain", 0);
	metric_add(METRIC_store_losses_total, "maintain", 0);
	metric_set(METRIC_lease_held, nullptr, m->leading);
	metric_set(METRIC_retention_stopped, nullptr, m->leapt || m->ahead);
	metric_forget(METRIC_round_age_seconds);
	metric_forget(METRIC_tasks_counted_age_seconds);
	if (m->well_ms)
		metric_set(METRIC_round_age_seconds, nullptr, clock_boot_ms() - m->well_ms);
	if (m->counted_ms)
		metric_set(METRIC_tasks_counted_age_seconds, nullptr,
			   clock_boot_ms() - m->counted_ms);
	metric_bound("incarnations_watched", (int64_t)m->looks_count, WORKERS_MAX);
}

static const struct uuid *incarnation(void *ctx)
{
	const struct maintain *m = ctx;
	return &m->id;
}

static void on_signal(void *ctx)
{
	struct maintain *m = ctx;
	m->stop = true;
}

static enum hf_code set_up(struct maintain *m, struct hf_err *err)
{
	const struct monitor_hooks hooks = { collect, not_ready, incarnation, m };
	m->loop = ev_default_loop(EVFLAG_AUTO);
	m->looks = hf_alloc(WORKERS_MAX * sizeof *m->looks);
	m->id = uuid_new();
	uuid_format(&m->id, m->incarnation);
	signal(SIGPIPE, SIG_IGN);
	stop_signals_start(&m->signals, m->loop, on_signal, m);
	pg_turn(m->loop, &m->stop);
	return monitor_open(m->loop, m->config->metrics_listen, 'm', &hooks, &m->monitor, err);
}

/* A store in which something is missing is left alone: what it says of deadlines and of the dead
 * may be wrong. `wal` gets a place that is kept once a commit of this round is acknowledged. */
static enum hf_code know_store(struct maintain *m, uint64_t *wal, struct hf_err *err)
{
	PGresult *result = nullptr;
	hf_try(pg_run(m->conn,
		      "SELECT *, left(pg_walfile_name(pg_current_wal_lsn()), 8) "
		      "FROM holdfast.store_now()",
		      0, nullptr, &result, err));
	bool waited = lineage_waits();
	char why[LINEAGE_TEXT_LEN];
	struct lineage now;
	lineage_read(result, strtoul(PQgetvalue(result, 0, 7), nullptr, 16), &now);
	*wal = now.wal;
	enum lineage_verdict verdict = lineage_check(&now, why);
	PQclear(result);
	if (verdict == LINEAGE_SAME)
		return HF_OK;
	if (!waited && verdict != LINEAGE_REPLACED)
		log_error(LINEAGE_WAITS, "reason", why, nullptr);
	const char *const values[] = { why };
	if (verdict == LINEAGE_LOST)
		hf_try(pg_run(m->conn, "SELECT holdfast.restore_ask($1)", 1, values, nullptr, err));
	return hf_fail(err, HF_BUSY, "%s", verdict == LINEAGE_REPLACED ? why : LINEAGE_WAITS);
}

static enum hf_code try_round(struct maintain *m, const char *dsn, struct hf_err *err)
{
	if (!m->conn) {
		hf_try(pg_connect(dsn, "holdfast maintain", &m->conn, err));
		metric_add(METRIC_store_connects_total, "maintain", 1);
	}
	uint64_t wal = 0;
	hf_try(know_store(m, &wal, err));
	hf_try(round_(m, err));
	lineage_kept(wal); /* taking the lease is a waiting commit */
	metric_add(METRIC_rounds_total, m->leading ? "led" : "stood_by", 1);
	m->well_ms = clock_boot_ms();
	return HF_OK;
}

/* Whatever it was, the next try begins with a connection of its own. */
static void round_failed(struct maintain *m, const struct hf_err *err)
{
	log_warn("maintenance goes on later", "error", err->text, "sqlstate", err->sqlstate,
		 nullptr);
	metric_add(METRIC_rounds_total, "failed", 1);
	metric_store_error(err->sqlstate);
	metric_add(METRIC_store_losses_total, "maintain", 1);
	PQfinish(m->conn);
	m->conn = nullptr;
	m->leading = false;
	forget(m);
}

static void tear_down(struct maintain *m)
{
	if (m->conn && m->leading) {
		struct hf_err ignored;
		const char *const values[] = { m->incarnation };
		(void)pg_run(m->conn, "DELETE FROM holdfast.lease WHERE incarnation = $1", 1,
			     values, nullptr, &ignored);
	}
	PQfinish(m->conn);
	m->monitor = monitor_close(m->monitor);
	stop_signals_stop(&m->signals, m->loop);
	pg_turn(nullptr, nullptr);
	free(m->looks);
}

enum hf_code maintain_run(const struct config *config, const char *dsn, struct hf_err *err)
{
	struct maintain m = { .config = config };
	enum hf_code code = set_up(&m, err);
	int64_t pause_ms = PAUSE_FIRST_MS;
	while (code == HF_OK && !m.stop) {
		struct hf_err trouble = {};
		if (try_round(&m, dsn, &trouble) == HF_OK) {
			pause_ms = PAUSE_FIRST_MS;
			rest(&m, config->maintain_ms);
			continue;
		}
		round_failed(&m, &trouble);
		rest(&m, 1 + random_up_to(pause_ms));
		pause_ms = pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS;
	}
	tear_down(&m);
	return code;
}
