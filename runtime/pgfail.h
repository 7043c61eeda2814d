/* pgfail.h - what to do about an SQLSTATE: one table for all who decide by it. An ERROR that is
 * answered at its Sync was rolled back; whatever ends the connection is unknown. */
#pragma once

#include <libpq-fe.h>

enum pgfail {
	PGFAIL_REFUSED,  /* these values, for ever: a batch is halved, alone it is told (rule 10) */
	PGFAIL_CONFLICT, /* lost against another transaction: once more whole, soon */
	PGFAIL_AGAIN,    /* rolled back for what passes: the same again, here, after a while */
	PGFAIL_RECONNECT, /* unknown, or the session is no good: drop it, the same on the next */
};

/* `sqlstate` has five characters; null or empty (no answer at all) is PGFAIL_RECONNECT. */
enum pgfail pgfail_of(const char *sqlstate);

/* The same for the SQL of a tool, which may be at fault where ours is not: PGFAIL_REFUSED also for
 * what its text will meet each time. */
enum pgfail pgfail_of_tool(const char *sqlstate);

/* A notice receiver: sets the bool at `warned` where a WARNING comes, since a COMMIT that it comes
 * with is unknown (rule 11). */
void pgfail_on_notice(void *warned, const PGresult *notice);
