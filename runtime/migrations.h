/* migrations.h - the SQL under sql/, compiled into the binary, and how it is applied. */
#pragma once

#include <libpq-fe.h>

#include "runtime/err.h"
#include "runtime/pgrun.h"

/* Brings the store to this binary's schema: roles, migrations not applied yet, all functions,
 * grants, and the partitions of this week and those ahead; one transaction, under a lock, so any
 * number may run at once. `conn` is an administrator's. A newer schema is left as it is. `applied`
 * gets the number of migrations that were new. */
enum hf_code migrate(PGconn *conn, int *applied, struct hf_err *err);

/* Makes the partitions from this week (the database's) to `ahead` weeks later; as the owner's
 * member. `made` gets how many weeks were new. */
enum hf_code weeks_ensure(PGconn *conn, int ahead, int *made, struct hf_err *err);

constexpr int WEEKS_AHEAD = 5;     /* kept ready */
constexpr int WEEKS_AHEAD_LOW = 2; /* fewer: an alert */
