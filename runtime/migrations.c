#include "runtime/migrations.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/pgdial.h"
#include "runtime/pgrun.h"

/* The array order is the order of application: each builds on those before. */
#define EMBED(name) static const char name[] =
EMBED(sql_roles){
#embed "sql/roles.sql" suffix(, 0)
};
EMBED(sql_grants){
#embed "sql/grants.sql" suffix(, 0)
};
EMBED(sql_0001_core){
#embed "sql/migrations/0001_core.sql" suffix(, 0)
};
EMBED(sql_0002_intent){
#embed "sql/migrations/0002_intent.sql" suffix(, 0)
};
EMBED(sql_0003_inputs){
#embed "sql/migrations/0003_inputs.sql" suffix(, 0)
};
EMBED(sql_0004_inbox){
#embed "sql/migrations/0004_inbox.sql" suffix(, 0)
};
EMBED(sql_0005_pack){
#embed "sql/migrations/0005_pack.sql" suffix(, 0)
};
EMBED(sql_0006_intent_window){
#embed "sql/migrations/0006_intent_window.sql" suffix(, 0)
};
EMBED(sql_0007_operate){
#embed "sql/migrations/0007_operate.sql" suffix(, 0)
};
EMBED(sql_0008_plain_tool){
#embed "sql/migrations/0008_plain_tool.sql" suffix(, 0)
};
EMBED(sql_0009_claim_call){
#embed "sql/migrations/0009_claim_call.sql" suffix(, 0)
};
EMBED(sql_0010_limits){
#embed "sql/migrations/0010_limits.sql" suffix(, 0)
};
EMBED(sql_0011_restore){
#embed "sql/migrations/0011_restore.sql" suffix(, 0)
};
EMBED(sql_0012_leave){
#embed "sql/migrations/0012_leave.sql" suffix(, 0)
};
EMBED(sql_0013_key_mark){
#embed "sql/migrations/0013_key_mark.sql" suffix(, 0)
};
EMBED(sql_base){
#embed "sql/functions/base.sql" suffix(, 0)
};
EMBED(sql_accept){
#embed "sql/functions/accept.sql" suffix(, 0)
};
EMBED(sql_limits){
#embed "sql/functions/limits.sql" suffix(, 0)
};
EMBED(sql_work){
#embed "sql/functions/work.sql" suffix(, 0)
};
EMBED(sql_unknown){
#embed "sql/functions/unknown.sql" suffix(, 0)
};
EMBED(sql_input){
#embed "sql/functions/input.sql" suffix(, 0)
};
EMBED(sql_pack){
#embed "sql/functions/pack.sql" suffix(, 0)
};
EMBED(sql_maintain){
#embed "sql/functions/maintain.sql" suffix(, 0)
};
EMBED(sql_operate){
#embed "sql/functions/operate.sql" suffix(, 0)
};
EMBED(sql_restore){
#embed "sql/functions/restore.sql" suffix(, 0)
};
EMBED(sql_views){
#embed "sql/functions/views.sql" suffix(, 0)
};

#ifdef PLANT_SQL /* a bug on purpose, of sql/plants: see test/chaos/planted */
EMBED(sql_plant){
#embed PLANT_SQL suffix(, 0)
};
#endif

/* Forward only. The number of the last is DIAL_SCHEMA_VERSION; oldest_binary is the oldest release
 * that still runs against it. */
static const struct {
	int version;
	const char *name, *sql, *oldest_binary;
} migrations[] = {
	{ 1, "0001_core", sql_0001_core, "0.1.0" },
	{ 2, "0002_intent", sql_0002_intent, "0.1.0" },
	{ 3, "0003_inputs", sql_0003_inputs, "0.1.0" },
	{ 4, "0004_inbox", sql_0004_inbox, "0.1.0" },
	{ 5, "0005_pack", sql_0005_pack, "0.1.0" },
	{ 6, "0006_intent_window", sql_0006_intent_window, "0.1.0" },
	{ 7, "0007_operate", sql_0007_operate, "0.1.0" },
	{ 8, "0008_plain_tool", sql_0008_plain_tool, "0.1.0" },
	{ 9, "0009_claim_call", sql_0009_claim_call, "0.1.0" },
	{ 10, "0010_limits", sql_0010_limits, "0.1.0" },
	{ 11, "0011_restore", sql_0011_restore, "0.1.0" },
	{ 12, "0012_leave", sql_0012_leave, "0.1.0" },
	{ 13, "0013_key_mark", sql_0013_key_mark, "0.1.0" },
};
static_assert(countof(migrations) == DIAL_SCHEMA_VERSION, "pgdial.h: the number of the last");

/* Replaced at each run; an old signature stays for one release under its old name. */
static const char *const functions[] = {
	sql_base,  sql_limits,   sql_accept,  sql_work,    sql_unknown, sql_input,
	sql_pack,  sql_maintain, sql_operate, sql_restore, sql_views,
#ifdef PLANT_SQL
	sql_plant,
#endif
};

/* Who waits for a lock has others wait behind it: not for a second. */
#define LOCK_TIMEOUT "500ms"
constexpr int LOCK_TRIES_MAX = 50; /* half a minute for a rival's run, or for a long transaction */
constexpr useconds_t LOCK_REST_US = 100'000;

static enum hf_code run(PGconn *conn, const char *sql, struct hf_err *err)
{
	return pg_run(conn, sql, 0, nullptr, nullptr, err);
}

static enum hf_code one_int(PGconn *conn, const char *sql, int *out, struct hf_err *err)
{
	PGresult *result = nullptr;
	hf_try(pg_run(conn, sql, 0, nullptr, &result, err));
	*out = PQntuples(result) ? atoi(PQgetvalue(result, 0, 0)) : 0;
	PQclear(result);
	return HF_OK;
}

/* Attaching takes no lock that stops a poll, unlike CREATE … PARTITION OF (rule 15). */
static enum hf_code week_make(PGconn *conn, int week, struct hf_err *err)
{
	for (size_t i = 0; i < countof(weekly_tables); i++) {
		const char *table = weekly_tables[i];
		char *sql =
		    hf_format("CREATE TABLE IF NOT EXISTS holdfast.%s_w%d (LIKE holdfast.%s "
			      "INCLUDING ALL); ALTER TABLE holdfast.%s_w%d OWNER TO holdfast_owner",
			      table, week, table, table, week);
		enum hf_code code = run(conn, sql, err);
		free(sql);
		hf_try(code);
		int attached = 0;
		sql = hf_format("SELECT count(*) FROM pg_inherits WHERE inhrelid = "
				"'holdfast.%s_w%d'::regclass",
				table, week);
		code = one_int(conn, sql, &attached, err);
		free(sql);
		hf_try(code);
		if (attached)
			continue;
		sql =
		    hf_format("ALTER TABLE holdfast.%s ATTACH PARTITION holdfast.%s_w%d FOR VALUES "
			      "FROM (%d) TO (%d)",
			      table, table, week, week, week + 1);
		code = run(conn, sql, err);
		free(sql);
		hf_try(code);
	}
	char *sql =
	    hf_format("INSERT INTO holdfast.week (week) VALUES (%d) ON CONFLICT DO NOTHING", week);
	enum hf_code code = run(conn, sql, err);
	free(sql);
	return code;
}

enum hf_code weeks_ensure(PGconn *conn, int ahead, int *made, struct hf_err *err)
{
	int now = 0;
	hf_try(
	    one_int(conn, "SELECT holdfast.week_of(holdfast.to_ms(holdfast.now_()))", &now, err));
	*made = 0;
	for (int week = now; week <= now + ahead; week++) {
		/* By the tables, not by the week's row: one that was made by a binary of an
		 * older schema lacks those that are new since. */
		char *sql = hf_format("SELECT count(*) FROM pg_class c JOIN pg_inherits i ON "
				      "i.inhrelid = c.oid JOIN holdfast.week w ON w.week = %d "
				      "WHERE c.relnamespace = 'holdfast'::regnamespace AND "
				      "right(c.relname, length('_w' || w.week)) = '_w' || w.week",
				      week);
		int there = 0;
		enum hf_code code = one_int(conn, sql, &there, err);
		free(sql);
		hf_try(code);
		if (there == (int)countof(weekly_tables))
			continue;
		hf_try(week_make(conn, week, err));
		++*made;
	}
	return HF_OK;
}

static enum hf_code apply(PGconn *conn, int *applied, struct hf_err *err)
{
	hf_try(run(conn, sql_roles, err));
	hf_try(run(conn, "SET LOCAL ROLE holdfast_owner; SET LOCAL search_path = holdfast", err));
	hf_try(run(conn,
		   "CREATE TABLE IF NOT EXISTS schema_version (version integer PRIMARY KEY, "
		   "oldest_binary text NOT NULL, applied timestamptz NOT NULL DEFAULT "
		   "clock_timestamp())",
		   err));
	int version = 0;
	hf_try(
	    one_int(conn, "SELECT coalesce(max(version), 0) FROM schema_version", &version, err));
	if (version > migrations[countof(migrations) - 1].version) {
		*applied = MIGRATE_NEWER;
		return HF_OK;
	}
	for (size_t i = 0; i < countof(migrations); i++) {
		if (migrations[i].version <= version)
			continue;
		if (run(conn, migrations[i].sql, err) != HF_OK)
			return hf_wrap(err, migrations[i].name);
		char *sql = hf_format("INSERT INTO schema_version (version, oldest_binary) "
				      "VALUES (%d, '%s')",
				      migrations[i].version, migrations[i].oldest_binary);
		enum hf_code code = run(conn, sql, err);
		free(sql);
		hf_try(code);
		++*applied;
	}
	for (size_t i = 0; i < countof(functions); i++)
		hf_try(run(conn, functions[i], err));
	hf_try(run(conn, sql_grants, err));
	int made;
	return weeks_ensure(conn, WEEKS_AHEAD, &made, err);
}

/* The number of the lock is ours alone; it ends with the transaction, whoever that ends. */
static enum hf_code try_once(PGconn *conn, int *applied, struct hf_err *err)
{
	*applied = 0;
	hf_try(run(conn,
		   "BEGIN; SET LOCAL lock_timeout = '" LOCK_TIMEOUT "'; "
		   "SET LOCAL client_min_messages = warning",
		   err));
	enum hf_code code = run(conn, "SELECT pg_advisory_xact_lock(4752001)", err);
	if (code == HF_OK)
		code = apply(conn, applied, err);
	if (code == HF_OK)
		return run(conn, "COMMIT", err);
	struct hf_err ignored;
	(void)run(conn, "ROLLBACK", &ignored);
	return code;
}

enum hf_code migrate(PGconn *conn, int *applied, struct hf_err *err)
{
	for (int i = 0; i < LOCK_TRIES_MAX; i++) {
		enum hf_code code = try_once(conn, applied, err);
		if (code == HF_OK || strcmp(err->sqlstate, "55P03") != 0)
			return code;
		usleep(LOCK_REST_US);
	}
	return hf_fail(err, HF_BUSY, "another migration or a long transaction holds a lock");
}
