#include "runtime/maintain.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/id.h"
#include "runtime/log.h"
#include "runtime/migrations.h"
#include "runtime/random.h"

constexpr int ROWS_A_ROUND = 200;           /* of each sweep */
constexpr int SWEEP_BATCHES_A_ROUND = 20;   /* of ROWS_A_ROUND */
constexpr int TOMBSTONE_PAGES_A_ROUND = 64; /* of one partition of effect */
constexpr int EFFECT_PARTS = 16;
constexpr int64_t SLOW_EVERY_MS = 5'000; /* weeks, retention, tombstones */
constexpr int64_t BLOCKER_MS = 5'000;    /* in ClientRead while others wait (rule 12) */
constexpr int64_t LEAP_MS = 86'400'000;  /* of the database's clock against ours: no sweep */
constexpr int64_t RETRY_MAX_MS = 2'000;  /* between two tries to reach Postgres */
constexpr int WORKERS_MAX = 4'096;

/* What the reaper saw of an incarnation: death is a counter that stands still (design §4). */
struct look {
	char incarnation[37];
	int64_t beat;
	int64_t since_ms; /* boot time at which this count was first seen */
	bool seen;        /* in this round */
};

struct maintain {
	const struct config *config;
	PGconn *conn;
	char incarnation[37];
	bool leading;
	char postmaster[64]; /* start time: another one makes all looks void */
	struct look *looks;
	size_t looks_count;
	int64_t slow_at_ms;
	int64_t clock_ms, clock_boot; /* the database's clock and ours, at the last round */
	bool leapt;
	int part; /* of effect, next to be swept */
	int64_t page;
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
		if (m->looks_count == WORKERS_MAX)
			return HF_OK; /* looked at once others are gone */
		look = &m->looks[m->looks_count++];
		*look = (struct look){ .beat = beat, .since_ms = now };
		memcpy(look->incarnation, incarnation, strlen(incarnation) + 1);
	}
	look->seen = true;
	if (look->beat != beat) {
		look->beat = beat;
		look->since_ms = now;
	}
	if (now - look->since_ms < m->config->lease_ms)
		return HF_OK;
	int64_t dead = 0;
	const char *const values[] = { incarnation, beat_text };
	hf_try(ask(m, "SELECT holdfast.declare_dead($1, $2)", 2, values, &dead, err));
	if (dead)
		log_warn("incarnation declared dead", "incarnation", incarnation, nullptr);
	look->since_ms = now;
	return HF_OK;
}

/* After a restart of Postgres nobody is dead before beats had one full interval: a new start time
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
static enum hf_code drain(struct maintain *m, const char *sql, const char *what, struct hf_err *err)
{
	int64_t n = ROWS_A_ROUND, total = 0;
	for (int i = 0; i < SWEEP_BATCHES_A_ROUND && n == ROWS_A_ROUND; i++) {
		hf_try(ask(m, sql, 0, nullptr, &n, err));
		total += n;
	}
	if (total)
		log_info(what, "tasks", LOG_INT(total), nullptr);
	return HF_OK;
}

/* --- retention -------------------------------------------------------------------------------- */

/* A database clock that ran a day ahead of ours sweeps nothing until someone has looked at it and
 * started maintenance anew (rule 15). */
static enum hf_code watch_clock(struct maintain *m, struct hf_err *err)
{
	int64_t now = 0, boot = clock_boot_ms();
	hf_try(ask(m, "SELECT holdfast.to_ms(holdfast.now_())", 0, nullptr, &now, err));
	if (m->clock_ms && now - m->clock_ms - (boot - m->clock_boot) > LEAP_MS && !m->leapt) {
		m->leapt = true;
		log_error(
		    "the database's clock leapt; retention stops until maintenance is restarted",
		    nullptr);
	}
	m->clock_ms = now;
	m->clock_boot = boot;
	return HF_OK;
}

static enum hf_code week_drop(struct maintain *m, const char *week, struct hf_err *err)
{
	static const char *const tables[] = { "task", "step", "event", "artifact", "intent" };
	int64_t closed = 0;
	const char *const values[] = { week };
	hf_try(ask(m, "SELECT holdfast.close_week($1)", 1, values, &closed, err));
	if (!closed)
		return HF_OK;
	for (size_t i = 0; i < countof(tables); i++) {
		/* Detaching is apart from any transaction; an interrupted one is ended first. */
		char *finalize =
		    hf_format("ALTER TABLE holdfast.%s DETACH PARTITION holdfast.%s_w%s FINALIZE",
			      tables[i], tables[i], week);
		char *detach = hf_format(
		    "ALTER TABLE holdfast.%s DETACH PARTITION holdfast.%s_w%s CONCURRENTLY",
		    tables[i], tables[i], week);
		char *drop = hf_format("DROP TABLE IF EXISTS holdfast.%s_w%s", tables[i], week);
		struct hf_err ignored;
		(void)pg_run(m->conn, finalize, 0, nullptr, nullptr, &ignored);
		(void)pg_run(m->conn, detach, 0, nullptr, nullptr, &ignored);
		enum hf_code code = pg_run(m->conn, drop, 0, nullptr, nullptr, err);
		free(finalize);
		free(detach);
		free(drop);
		hf_try(code);
	}
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
	if (m->page == 0)
		m->part = (m->part + 1) % EFFECT_PARTS;
	return HF_OK;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static enum hf_code slow_round(struct maintain *m, struct hf_err *err)
{
	int made = 0;
	hf_try(pg_run(m->conn, "SET ROLE holdfast_owner", 0, nullptr, nullptr, err));
	hf_try(weeks_ensure(m->conn, WEEKS_AHEAD, &made, err));
	if (made)
		log_info("weeks made ahead", "weeks", LOG_INT(made), nullptr);
	hf_try(watch_clock(m, err));
	if (!m->leapt)
		hf_try(retention(m, err));
	if (!m->leapt)
		hf_try(drain(m, "SELECT holdfast.sweep_windows(200)", "intent windows over", err));
	return pg_run(m->conn, "RESET ROLE", 0, nullptr, nullptr, err);
}

static enum hf_code round_(struct maintain *m, struct hf_err *err)
{
	char ttl[24];
	snprintf(ttl, sizeof ttl, "%lld", (long long)(3 * m->config->maintain_ms + 5'000));
	const char *const values[] = { "maintain", m->incarnation, ttl };
	int64_t mine = 0;
	hf_try(ask(m, "SELECT holdfast.lease_take($1, $2, $3)", 3, values, &mine, err));
	if (mine && !m->leading)
		log_info("maintenance leads", nullptr);
	m->leading = mine;
	if (!mine) {
		m->looks_count = 0;
		return HF_OK;
	}
	hf_try(bury(m, err));
	hf_try(drain(m, "SELECT holdfast.reclaim(200)", "claims of dead workers freed", err));
	hf_try(drain(m, "SELECT holdfast.expire_deadlines(200)", "deadlines passed", err));
	hf_try(
	    drain(m, "SELECT holdfast.park_orphans(200)", "attachments of dead APIs parked", err));
	hf_try(drain(m, "SELECT holdfast.expire_parked(200)", "parked for too long", err));
	int64_t ended = 0;
	char blocker[24];
	snprintf(blocker, sizeof blocker, "%lld", (long long)BLOCKER_MS);
	const char *const older[] = { blocker };
	hf_try(ask(m, "SELECT holdfast.end_blockers($1)", 1, older, &ended, err));
	if (ended)
		log_warn("backends ended that blocked others", "backends", LOG_INT(ended), nullptr);
	if (clock_boot_ms() < m->slow_at_ms)
		return HF_OK;
	m->slow_at_ms = clock_boot_ms() + SLOW_EVERY_MS;
	return slow_round(m, err);
}

static void wait_ms(int64_t ms, const volatile int *stop)
{
	constexpr int64_t SLICE_MS =
	    50; /* a signal between the check and the sleep waits no longer */
	for (int64_t left = ms; left > 0 && !*stop; left -= SLICE_MS) {
		int64_t slice = left < SLICE_MS ? left : SLICE_MS;
		struct timespec pause = { .tv_nsec = slice * 1'000'000 };
		nanosleep(&pause, nullptr);
	}
}

static void incarnate(char text[static 37])
{
	struct uuid id = uuid_new();
	char hex[33];
	hex_format(id.bytes, sizeof id.bytes, hex);
	snprintf(text, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

void maintain_run(const struct config *config, const char *dsn, const volatile int *stop)
{
	struct maintain m = { .config = config };
	m.looks = hf_alloc(WORKERS_MAX * sizeof *m.looks);
	incarnate(m.incarnation);
	while (!*stop) {
		struct hf_err err = {};
		enum hf_code code = HF_OK;
		if (!m.conn)
			code = pg_connect(dsn, "holdfast maintain", &m.conn, &err);
		if (code == HF_OK)
			code = round_(&m, &err);
		if (code != HF_OK) {
			log_warn("maintenance goes on later", "error", err.text, "sqlstate",
				 err.sqlstate, nullptr);
			PQfinish(m.conn);
			m.conn = nullptr;
			m.leading = false;
			wait_ms(1 + random_up_to(RETRY_MAX_MS), stop);
			continue;
		}
		wait_ms(config->maintain_ms, stop);
	}
	if (m.conn && m.leading) {
		struct hf_err ignored;
		const char *const values[] = { m.incarnation };
		(void)pg_run(m.conn, "DELETE FROM holdfast.lease WHERE incarnation = $1", 1, values,
			     nullptr, &ignored);
	}
	PQfinish(m.conn);
	free(m.looks);
}
