/* bench_wal.c - see bench_wal.h. Needs the extension pg_walinspect and track_functions, both set up
 * by bench_server.c. Called by bench_work.c. */
#include "runtime/bench_wal.h"
#include "runtime/pgrun.h"

#include <stdio.h>
#include <stdlib.h>

static constexpr char MARK[] = "SELECT pg_current_wal_insert_lsn(), (SELECT coalesce(sum(calls), 0)"
			       " FROM pg_stat_user_functions WHERE funcname LIKE '%\\_async')";

enum hf_code wal_mark_take(PGconn *db, struct wal_mark *mark, struct hf_err *err)
{
	PGresult *rows = nullptr;
	hf_try(pg_run(db, MARK, 0, nullptr, &rows, err));
	snprintf(mark->lsn, sizeof mark->lsn, "%s", PQgetvalue(rows, 0, 0));
	mark->async_commits = atoll(PQgetvalue(rows, 0, 1));
	PQclear(rows);
	return HF_OK;
}

enum hf_code wal_cost_since(PGconn *db, const struct wal_mark *mark, struct wal_cost *cost,
			    struct hf_err *err)
{
	struct wal_mark now;
	hf_try(wal_mark_take(db, &now, err));
	const char *const values[] = { mark->lsn, now.lsn };
	PGresult *rows = nullptr;
	hf_try(pg_run(db, "SELECT pg_wal_lsn_diff($2, $1)", 2, values, &rows, err));
	*cost = (struct wal_cost){ .bytes = atof(PQgetvalue(rows, 0, 0)) };
	PQclear(rows);
	if (cost->bytes <= 0)
		return HF_OK;
	/* The log can be read as far as it is on the disk. */
	hf_try(pg_run(db, "SELECT pg_logical_emit_message(true, 'holdfast', 'bench')", 0, nullptr,
		      nullptr, err));
	hf_try(pg_run(db,
		      "SELECT coalesce(sum(count) FILTER (WHERE \"resource_manager/record_type\""
		      " = 'Transaction/COMMIT'), 0), coalesce(sum(fpi_size), 0)"
		      " FROM pg_get_wal_stats($1, $2, true)",
		      2, values, &rows, err));
	cost->durable_commits =
	    atof(PQgetvalue(rows, 0, 0)) - (double)(now.async_commits - mark->async_commits);
	cost->fpi_bytes = atof(PQgetvalue(rows, 0, 1));
	PQclear(rows);
	if (cost->durable_commits < 0)
		cost->durable_commits = 0;
	return HF_OK;
}
