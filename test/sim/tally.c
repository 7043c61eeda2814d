/* tally.c - what was hit: counts by table, row and column, the digest of all that happened, and the
 * story of one effect where it is asked for. A cell of `required` that a whole run never hits makes
 * it fail: a fault that no longer happens proves nothing. */
#include <stdio.h>

#include "runtime/base.h"
#include "runtime/metrics.h"
#include "test/sim/sim.h"

struct tally *tally;
uint64_t history;
int story_of = -2;

void count_more(enum table table, int row, int column, int more)
{
	hf_assert(row >= 0 && row < ROWS);
	hf_assert(column >= 0 && column < COLUMNS);
	tally->cells[table][row][column] += (uint64_t)more;
}

void count(enum table table, int row, int column)
{
	count_more(table, row, column, 1);
}

void happened(const char *what, int effect, int64_t a, int64_t b)
{
	uint64_t mixed = history ^ (uint64_t)now_us;
	for (const char *at = what; *at; at++)
		mixed = (mixed ^ (unsigned char)*at) * 0x100000001b3U;
	mixed = (mixed ^ (uint64_t)effect) * 0x9e3779b97f4a7c15U;
	mixed = (mixed ^ (uint64_t)a) * 0xbf58476d1ce4e5b9U;
	history = (mixed ^ (uint64_t)b ^ mixed >> 29) * 0x94d049bb133111ebU;
	if (story_of == -1 || (story_of >= 0 && (effect == story_of || effect == -1)))
		fprintf(stderr, "%12.3f %s %d %s (%lld, %lld)\n", (double)now_us / 1000,
			running_process ? running_process->kind == PROCESS_API ? "api" : "worker"
					: "store",
			running_process ? running_process->number : 0, what, (long long)a,
			(long long)b);
}

/* --- names ------------------------------------------------------------------------------------ */

static const char *const runs[] = { "deciding",   "intending", "working",   "paused",
				    "committing", "finishing", "releasing", "ended" };
static const char *const ops[] = { "claim",  "step",   "checkpoint", "finish", "release",  "ask",
				   "intent", "beat",   "leave",      "sql",    "artifact", "accept",
				   "poll",   "cancel", "attach",     "detach", "answer" };
static const char *const wheres[] = { "waits", "sent", "executed" };
static const char *const ways[] = { "unsent", "on_its_way", "worked", "program" };
static const char *const classes[] = { "local", "pure", "keyed", "lookup", "unsafe", "reading" };
static const char *const fences[] = { "held", "adopted", "lost" };
static const char *const hows[] = { "retry",   "again",      "back", "crash",
				    "unknown", "unverified", "undo", "ask" };
static const char *const states[] = { "ready",     "scheduled", "running",    "waiting",
				      "paused",    "parked",    "unverified", "unknown",
				      "completed", "failed",    "cancelled" };
static const char *const phases[] = { "done",      "committed",  "retry",      "again",
				      "crashed",   "tool_error", "failed",     "unknown",
				      "cancelled", "lost",       "unverified", "asks" };
static const char *const fates[] = {
	"done",        "refused",    "conflict", "later",      "busy",    "busy_later", "failed",
	"lost_before", "lost_after", "garbage",  "unreadable", "slow",    "elsewhere",  "see_other",
	"replayed",    "working",    "not_sent", "no_budget",  "breaker", "withheld",   "denied"
};
static const char *const programs[] = { "result",       "error",          "error_retry",
					"crash_before", "crash_after",    "exit_retry",
					"exit_bad",     "exit_bad_after", "garbage",
					"hang" };
static const char *const ends[] = { "completed", "failed", "cancelled", "tool_error" };
static const char *const failures[] = { "attempts_exhausted", "deadline", "crash_limit",
					"phase_failed",       "corrupt",  "result" };
static const char *const said[] = { "no", "maybe", "yes", "unsaid" };
static const char *const plains[] = { "reply",      "gone",    "outcome",  "window", "parked",
				      "reattached", "drained", "taken_up", "streams" };
static const char *const acts[] = {
	"kill",          "stop",        "drain",          "lane_lost",      "settle_done",
	"settle_absent", "settle_fail", "repeat",         "conflict",       "cancel",
	"pause",         "resume",      "answer",         "declared_dead",  "reclaimed",
	"expired",       "woken",       "orphans_parked", "parked_expired", "lease_lost",
	"claim_lost",    "busy",        "timeout",        "hang_up",        "program_cancel"
};
static const char *const any[] = { "0", "1", "2", "3", "4", "5" };

static const struct {
	const char *name;
	const char *const *rows;
	int rows_count;
	const char *const *columns;
	int columns_count;
} tables[TABLES] = {
#define NAMED(names) names, (int)countof(names)
	[TABLE_EDGE] = { "edges", NAMED(runs), NAMED(runs) },
	[TABLE_CRASH] = { "killed_in", NAMED(runs), NAMED(any) },
	[TABLE_KILL] = { "killed_at", NAMED(ops), NAMED(wheres) },
	[TABLE_WIRE] = { "killed_while", NAMED(classes), NAMED(ways) },
	[TABLE_LOST] = { "connection_lost_at", NAMED(ops), NAMED(wheres) },
	[TABLE_FENCE] = { "fences", NAMED(ops), NAMED(fences) },
	[TABLE_RELEASE] = { "releases", NAMED(hows), NAMED(states) },
	[TABLE_PHASE] = { "phases", NAMED(phases), NAMED(any) },
	[TABLE_ANSWER] = { "answers", NAMED(fates), NAMED(classes) },
	[TABLE_PROGRAM] = { "programs", NAMED(programs), NAMED(classes) },
	[TABLE_STATE] = { "states", NAMED(states), NAMED(states) },
	[TABLE_FAILURE] = { "failures", NAMED(failures), NAMED(any) },
	[TABLE_END] = { "ends", NAMED(ends), NAMED(said) },
	[TABLE_PLAIN] = { "plain", NAMED(plains), NAMED(any) },
	[TABLE_ACT] = { "acts", NAMED(acts), NAMED(any) },
};

void count_word(int metric, const char *value, int64_t more)
{
	if (metric == METRIC_incarnations_lost_total)
		count(TABLE_ACT, ACT_LEASE_LOST, strcmp(value, "lease") == 0);
	if (metric == METRIC_plain_calls_total && strcmp(value, "gone") == 0)
		count(TABLE_PLAIN, PLAIN_GONE, 0);
	for (int i = 0; metric == METRIC_tasks_failed_total && i < (int)countof(failures); i++)
		if (strcmp(value, failures[i]) == 0)
			count(TABLE_FAILURE, i, 0);
	if (metric != METRIC_phases_total || more <= 0)
		return;
	for (int i = 0; i < (int)countof(phases); i++)
		if (strcmp(value, phases[i]) == 0)
			count(TABLE_PHASE, i, 0);
}

/* --- what must be hit ------------------------------------------------------------------------- */

/* "row column" of a table; a column of "*": any of them. */
static const struct {
	enum table table;
	const char *cells; /* separated by commas */
} required[] = {
#include "test/sim/required.def"
};

static bool is_hit(const struct tally *sum, enum table table, const char *row, const char *column)
{
	for (int r = 0; r < tables[table].rows_count; r++)
		for (int c = 0; c < tables[table].columns_count; c++)
			if (strcmp(tables[table].rows[r], row) == 0 &&
			    (strcmp(column, "*") == 0 ||
			     strcmp(tables[table].columns[c], column) == 0) &&
			    sum->cells[table][r][c])
				return true;
	return false;
}

static int missed(const struct tally *sum, int *wanted)
{
	int count_ = 0;
	for (size_t i = 0; i < countof(required); i++) {
		char row[32], column[32];
		int used = 0;
		for (const char *at = required[i].cells;
		     sscanf(at, " %31[^ ,] %31[^ ,]%n", row, column, &used) == 2;) {
			++*wanted;
			if (!is_hit(sum, required[i].table, row, column)) {
				fprintf(stderr, "never hit: %s %s %s\n",
					tables[required[i].table].name, row, column);
				count_++;
			}
			at += used;
			at += *at == ',';
		}
	}
	return count_;
}

static void print_table(const struct tally *sum, enum table table)
{
	printf("%s\"%s\": {", table ? ",\n " : "\n ", tables[table].name);
	const char *between = "";
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < COLUMNS; c++) {
			if (!sum->cells[table][r][c])
				continue;
			hf_assert(r < tables[table].rows_count && c < tables[table].columns_count);
			printf("%s\"%s %s\": %llu", between, tables[table].rows[r],
			       tables[table].columns[c],
			       (unsigned long long)sum->cells[table][r][c]);
			between = ", ";
		}
	printf("}");
}

bool tally_print(const struct tally *sum, uint64_t seed, uint64_t digest, double seconds)
{
	int wanted = 0, not_hit = missed(sum, &wanted);
	printf("{\"seed\": %llu, \"tasks\": %llu, \"events\": %llu, \"seconds\": %.1f, "
	       "\"digest\": \"%016llx\", \"required\": %d, \"never_hit\": %d, "
	       "\"most_attempts\": %llu, \"most_crashes\": %llu, \"most_sends\": %llu,",
	       (unsigned long long)seed, (unsigned long long)sum->tasks,
	       (unsigned long long)sum->events, seconds, (unsigned long long)digest, wanted,
	       not_hit, (unsigned long long)sum->most_attempts,
	       (unsigned long long)sum->most_crashes, (unsigned long long)sum->most_sends);
	for (enum table table = 0; table < TABLES; table++)
		print_table(sum, table);
	printf("}\n");
	return not_hit == 0;
}
