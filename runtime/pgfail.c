#include "runtime/pgfail.h"

#include <stddef.h>
#include <string.h>

/* A code stands before its class; the first match counts. */
static const struct {
	const char *state; /* a class, or a whole code */
	enum pgfail ours, tool;
} table[] = {
	/* Warnings never come as a failure; should one, its commit is unknown (rule 11). */
	{ "00", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
	{ "01", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
	{ "08", PGFAIL_RECONNECT, PGFAIL_RECONNECT }, /* connection exception */
	/* A plan of before a migration; a new session reads the schema, and its version, anew. */
	{ "0A", PGFAIL_RECONNECT, PGFAIL_REFUSED },
	{ "22", PGFAIL_REFUSED, PGFAIL_REFUSED }, /* data exception */
	{ "23", PGFAIL_REFUSED, PGFAIL_REFUSED }, /* integrity constraint */
	/* A primary that was demoted, or told to write nothing: look for another. */
	{ "25006", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
	{ "25", PGFAIL_RECONNECT, PGFAIL_REFUSED },   /* transaction state, idle for too long */
	{ "28", PGFAIL_RECONNECT, PGFAIL_RECONNECT }, /* the role may not log in any more */
	{ "3D", PGFAIL_RECONNECT, PGFAIL_REFUSED },   /* no such database */
	{ "3F", PGFAIL_RECONNECT, PGFAIL_REFUSED },   /* no such schema */
	/* Of 40003, completion unknown, Postgres itself makes no use. */
	{ "40003", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
	{ "40", PGFAIL_CONFLICT, PGFAIL_CONFLICT }, /* serialization failure, deadlock */
	/* Functions, grants: a migration is under way, or has run behind this session. */
	{ "42", PGFAIL_RECONNECT, PGFAIL_REFUSED },
	/* Disk, memory, connections. */
	{ "53", PGFAIL_AGAIN, PGFAIL_AGAIN },
	/* A standby says that it is one; a lock was not to be had. */
	{ "55000", PGFAIL_RECONNECT, PGFAIL_REFUSED },
	{ "55", PGFAIL_AGAIN, PGFAIL_AGAIN },
	/* Cancelled, by statement_timeout too: rolled back, the session lives. */
	{ "57014", PGFAIL_AGAIN, PGFAIL_AGAIN },
	{ "57", PGFAIL_RECONNECT, PGFAIL_RECONNECT }, /* shut down, crashed, starting */
	{ "58", PGFAIL_AGAIN, PGFAIL_AGAIN },         /* input or output failed */
	{ "HF001", PGFAIL_REFUSED, PGFAIL_REFUSED },  /* the fence: the claim is lost */
	{ "HF002", PGFAIL_REFUSED, PGFAIL_AGAIN },    /* the fence: look again */
	{ "HF", PGFAIL_REFUSED, PGFAIL_REFUSED },
	{ "XX", PGFAIL_RECONNECT, PGFAIL_AGAIN }, /* internal error, corrupt data */
	/* All else (rule 10): nobody knows it, so it is waited out; a tool's SQL says no. */
	{ "", PGFAIL_AGAIN, PGFAIL_REFUSED },
};

static size_t row_of(const char *sqlstate)
{
	size_t row = 0;
	while (strncmp(sqlstate, table[row].state, strlen(table[row].state)) != 0)
		row++;
	return row;
}

enum pgfail pgfail_of(const char *sqlstate)
{
	return sqlstate && *sqlstate ? table[row_of(sqlstate)].ours : PGFAIL_RECONNECT;
}

enum pgfail pgfail_of_tool(const char *sqlstate)
{
	return sqlstate && *sqlstate ? table[row_of(sqlstate)].tool : PGFAIL_RECONNECT;
}

void pgfail_on_notice(void *warned, const PGresult *notice)
{
	const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
	if (severity && strcmp(severity, "WARNING") == 0)
		*(bool *)warned = true;
}
