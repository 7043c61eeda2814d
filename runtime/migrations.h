/* migrations.h - the SQL under sql/, compiled into the binary, and how it is applied. */
#pragma once

#include <libpq-fe.h>

#include "runtime/err.h"

constexpr int MIGRATE_NEWER = -1;

/* Brings the store to this binary's schema: roles, migrations not applied yet, all functions,
 * grants, and the partitions of this week and those ahead; one transaction, under a lock, so any
 * number may run at once. It never waits long for a lock, as others would wait behind it, but tries
 * again. `conn` is an administrator's. `applied` gets the number of migrations that were new, or
 * MIGRATE_NEWER: a newer schema is left as it is. */
enum hf_code migrate(PGconn *conn, int *applied, struct hf_err *err);

/* Makes the partitions from this week (the database's) to `ahead` weeks later; as the owner's
 * member. `made` gets how many weeks were new. */
enum hf_code weeks_ensure(PGconn *conn, int ahead, int *made, struct hf_err *err);

/* The tables that have a partition for each week. */
static const char *const weekly_tables[] = {
	"task", "step", "event", "artifact", "intent", "inbox"
};
constexpr int WEEKS_AHEAD = 5; /* kept ready */
