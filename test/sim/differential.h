/* differential.h - one schedule of the differential run: the same calls to Postgres and to the
 * model, each answer compared as text. An operation writes its statement into `sql`, runs it, asks
 * the model and writes the rows that it expects; settle_call() compares. */
#pragma once

#include <libpq-fe.h>

#include "test/sim/model_inner.h"

constexpr uint64_t SEED_STEP = 0x9e3779b97f4a7c15U;
constexpr size_t TASKS_MAX = 64;
constexpr size_t CLAIMS_MAX = 128;
constexpr size_t WORKERS = 3, APIS = 2;
constexpr size_t INCARNATIONS = WORKERS + APIS;
constexpr size_t OWNERS = 3;
constexpr int TOOLS = 3;
constexpr size_t LINES_MAX = 512;

/* A claim that some worker was once given; it may be over. */
struct hold {
	struct task_id id;
	struct uuid token;
	int phase, attempt;
};

struct lines {
	char *rows[LINES_MAX];
	size_t count;
};

struct run {
	PGconn *conn;
	uint64_t random; /* the state of its generator */
	struct model *model;
	int64_t now_ms;
	uint64_t schedule;

	struct task_id tasks[TASKS_MAX];
	size_t tasks_count;
	struct hold holds[CLAIMS_MAX];
	size_t holds_count;
	struct uuid incarnations[INCARNATIONS]; /* workers first */
	uint64_t calls;                         /* numbers of claims and of plain calls */
	struct uuid last_call;
	size_t last_worker;

	struct buf sql, trace;
	struct lines got, want;
	PGresult *result; /* of the last statement */
	/* What the last claim took and set aside: first among equals. */
	struct task_id taken[TASKS_MAX], aside[TASKS_MAX];
	size_t taken_count, aside_count;
	bool failed, each;
};

extern const struct model_tool differential_tools[TOOLS];
extern const char *const differential_tenants[OWNERS];
extern const char *const differential_subjects[OWNERS];

/* --- chance ----------------------------------------------------------------------------------- */

uint64_t chance_bits(struct run *run);
size_t chance(struct run *run, size_t below); /* 0 … below - 1 */
bool chance_of(struct run *run, int percent);
struct uuid chance_uuid(struct run *run);

/* Something to act on; false: there is none. Mostly what is there, now and then what was. */
bool chance_task(struct run *run, struct task_id *id);
bool chance_hold(struct run *run, struct hold *hold);
/* One of those that fit, but for now and then any; false: there is none. */
bool chance_where(struct run *run,
		  bool (*fits)(const struct run *run, const struct model_task *task),
		  struct task_id *id);
static inline bool is_waiting(const struct run *, const struct model_task *task)
{
	return task->open && task->state == TASK_WAITING;
}
static inline bool has_artifact(const struct run *, const struct model_task *task)
{
	return task->artifacts_count > 0;
}
/* Up to `most` holds of different tasks; with one_week all of the same. Returns how many. */
size_t chance_holds(struct run *run, struct hold *holds, size_t most, bool one_week);
/* The same of tasks. */
size_t chance_tasks(struct run *run, struct task_id *ids, size_t most, bool one_week);
/* The owner of a task, now and then another. */
int64_t chance_owner(struct run *run, const struct task_id *id);
const char *state_word(const struct run *run, const struct task_id *id);
void note_task(struct run *run, const struct task_id *id);

/* --- statements and rows ---------------------------------------------------------------------- */

void sql_begin(struct run *run, const char *text);
void sql_text(struct run *run, struct slice text); /* a literal; NULL where data is nullptr */
void sql_bytes(struct run *run, const void *bytes, size_t len);
void sql_id(struct run *run, const struct task_id *id);
void sql_task(struct run *run, const struct task_id *id); /* two parameters: its week, the ID */
void sql_uuid(struct run *run, const struct uuid *uuid);
void sql_add(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Runs it; its rows are in `got`. `error` (nullable) begins the SQLSTATEs that are answers too:
 * then the one row is it. */
void sql_run(struct run *run, const char *error);
/* The rows of all these statements, in one round trip; no part of the calls. */
void rows_read(struct run *run, const char *const *statements, size_t count);
/* Beside the calls: nothing is compared, and it has to go well. */
void sql_quiet(struct run *run, const char *text);

/* A comma, but behind the bracket of a call. */
void sql_comma(struct run *run);
/* One more parameter: an array of `count` elements, each written by a statement that uses `i`. */
#define SQL_ARRAY(run, type, count, element)                    \
	do {                                                    \
		sql_comma(run);                                 \
		buf_add_text(&(run)->sql, "ARRAY[");            \
		for (size_t i = 0; i < (count); i++) {          \
			if (i)                                  \
				buf_add_byte(&(run)->sql, ','); \
			element;                                \
		}                                               \
		buf_add_text(&(run)->sql, "]::" type "[]");     \
	} while (0)

/* A row is its columns with | behind each; ~ is NULL. */
void want_row(struct run *run, struct buf *row); /* takes it over */
void row_text(struct buf *row, struct slice text);
void row_bytes(struct buf *row, struct slice bytes);
void row_id(struct buf *row, const struct task_id *id); /* nullptr: NULL, as below */
void row_uuid(struct buf *row, const struct uuid *uuid);
void row_int(struct buf *row, int64_t n);
void row_int_or_null(struct buf *row, int64_t n); /* negative: NULL */
void row_bool(struct buf *row, bool yes);
void row_view(struct buf *row, const struct task_view *view);
void lines_sort(char **lines, size_t count);
void want_word(struct run *run, const char *word);
void want_int(struct run *run, int64_t n);

/* Compares what was got with what was wanted, and forgets both. */
void settle_call(struct run *run);
/* Counts "function: what". */
void hit(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- operations ------------------------------------------------------------------------------- */

struct operation {
	const char *name;
	int weight;
	void (*run)(struct run *run);
};
extern const struct operation api_operations[], work_operations[], keep_operations[],
    operator_operations[];
extern const size_t api_operations_count, work_operations_count, keep_operations_count,
    operator_operations_count;

/* Parts of others. */
void claim_once(struct run *run);
void retry_once(struct run *run);
void first_beat(struct run *run, const struct uuid *incarnation);
/* All rows of the store against the model's. */
void compare_rows(struct run *run);
