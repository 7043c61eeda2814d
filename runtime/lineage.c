#include "runtime/lineage.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"

/* One store a process, whatever the number of its connections. */
static struct {
	char system[32], started[32];
	int64_t restored;
	unsigned long timeline; /* 0: nothing seen yet */
	uint64_t kept;
	bool waits;
} known;

static uint64_t lsn_of(const PGresult *result, int column)
{
	unsigned high = 0, low = 0;
	bool whole = sscanf(PQgetvalue(result, 0, column), "%X/%X", &high, &low) == 2;
	return whole ? (uint64_t)high << 32 | low : 0;
}

void lineage_read(const PGresult *result, unsigned long timeline, struct lineage *now)
{
	hf_assert(PQntuples(result) == 1);
	hf_assert(PQnfields(result) >= 7);
	*now = (struct lineage){
		.system = PQgetvalue(result, 0, 0),
		.home = PQgetvalue(result, 0, 1),
		.held = PQgetisnull(result, 0, 2) ? nullptr : PQgetvalue(result, 0, 2),
		.restored = strtoll(PQgetvalue(result, 0, 3), nullptr, 10),
		.started = PQgetvalue(result, 0, 4),
		.timeline = timeline,
		.tail = lsn_of(result, 5),
		.wal = lsn_of(result, 6),
	};
}

static void remember(const struct lineage *now)
{
	snprintf(known.system, sizeof known.system, "%s", now->system);
	snprintf(known.started, sizeof known.started, "%s", now->started);
	known.restored = now->restored;
	known.timeline = now->timeline;
	known.waits = false;
}

static enum lineage_verdict compare(const struct lineage *now, char why[LINEAGE_TEXT_LEN])
{
	bool older = strcmp(now->system, known.system) == 0 && now->timeline < known.timeline;
	if (now->restored < known.restored && !older) {
		snprintf(why, LINEAGE_TEXT_LEN, "it is of before the last `holdfast restored`");
		return LINEAGE_LOST;
	}
	if (strcmp(now->system, known.system) != 0) {
		snprintf(why, LINEAGE_TEXT_LEN, "another Postgres: system %s, before it was %s",
			 now->system, known.system);
		return LINEAGE_LOST;
	}
	if (now->timeline < known.timeline) {
		snprintf(why, LINEAGE_TEXT_LEN, "it was replaced: its timeline is older");
		return LINEAGE_REPLACED;
	}
	if (strcmp(now->started, known.started) == 0 && now->timeline == known.timeline)
		return LINEAGE_SAME;
	uint64_t end = now->tail ? now->tail : now->wal;
	/* The record of the commit stands behind the place that is remembered. */
	if (end > known.kept)
		return LINEAGE_SAME;
	snprintf(why, LINEAGE_TEXT_LEN,
		 "it lost what was acknowledged: its log came up to %X/%X, and was kept past %X/%X",
		 (unsigned)(end >> 32), (unsigned)end, (unsigned)(known.kept >> 32),
		 (unsigned)known.kept);
	return LINEAGE_LOST;
}

enum lineage_verdict lineage_check(const struct lineage *now, char why[LINEAGE_TEXT_LEN])
{
	hf_assert(now->system && now->home && now->started);
	enum lineage_verdict verdict = LINEAGE_SAME;
	why[0] = '\0';
	if (now->held) {
		snprintf(why, LINEAGE_TEXT_LEN, "%s", now->held);
		verdict = LINEAGE_HELD;
	} else if (strcmp(now->system, now->home) != 0) {
		snprintf(why, LINEAGE_TEXT_LEN, "a copy: of system %s, in system %s", now->home,
			 now->system);
		verdict = LINEAGE_LOST;
	} else if (known.timeline && now->restored <= known.restored) {
		verdict = compare(now, why);
	} else {
		known.kept = 0;
	}
	if (verdict == LINEAGE_SAME)
		remember(now);
	else if (verdict != LINEAGE_REPLACED)
		known.waits = true;
	return verdict;
}

void lineage_kept(uint64_t wal)
{
	if (wal > known.kept)
		known.kept = wal;
}

bool lineage_waits(void)
{
	return known.waits;
}

unsigned long lineage_timeline(void)
{
	return known.timeline;
}

void lineage_forget(void)
{
	memset(&known, 0, sizeof known);
}
