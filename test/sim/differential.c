/* differential.c - the model against Postgres: seeded schedules of calls that collide, every row
 * that comes back compared, and at each end all rows of the tables. Started by test_differential.py
 * with the DSN of a migrated store of its own; ends with a JSON line. A schedule that fails prints
 * what it did, as statements, and is run again by --seed N --schedules 1. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/sim/differential.h"

constexpr size_t CALLS_LEAST = 20, CALLS_MORE = 41;
constexpr int64_t HOUR_MS = 3'600'000, WEEK_MS = 7 * 24 * HOUR_MS;
constexpr size_t SCHEDULES = 2000; /* in CI; fewer need not see everything */
constexpr size_t CELLS_MAX = 1024;
constexpr int FAILURES_MAX = 3; /* then it stops */
constexpr int VACUUM_EVERY = 50;

/* --- tools ------------------------------------------------------------------------------------ */

static const struct model_phase alpha_phases[] = { { "pay", "keyed", false, false },
						   { "rest", "local", true, true } };
static const struct model_phase beta_phases[] = { { "draw", "pure", false, false },
						  { "book", "keyed", false, false },
						  { "approve", "local", true, false },
						  { "ship", "unsafe", false, false } };
static const int beta_undos[] = { 0, 1, 3 };
static const char *const beta_inputs[] = { "k1", "k2" };

const struct model_tool differential_tools[TOOLS] = {
	{ .tool = 1,
	  .name = "alpha",
	  .result_ttl_ms = 60'000,
	  .tombstone_ttl_ms = 90'000,
	  .deadline_ms = 100'000,
	  .park_ttl_ms = 30'000,
	  .phases = alpha_phases,
	  .phases_count = countof(alpha_phases) },
	{ .tool = 2,
	  .name = "alpha",
	  .result_ttl_ms = 20'000,
	  .tombstone_ttl_ms = 0,
	  .deadline_ms = 15'000,
	  .park_ttl_ms = 5'000,
	  .phases = alpha_phases,
	  .phases_count = countof(alpha_phases) },
	{ .tool = 3,
	  .name = "beta",
	  .result_ttl_ms = 100'000,
	  .tombstone_ttl_ms = 50'000,
	  .deadline_ms = 200'000,
	  .park_ttl_ms = 40'000,
	  .phases = beta_phases,
	  .phases_count = countof(beta_phases),
	  .undos = beta_undos,
	  .undos_count = countof(beta_undos),
	  .inputs = beta_inputs,
	  .inputs_count = countof(beta_inputs) },
};
const char *const differential_tenants[OWNERS] = { "A", "A", "B" };
const char *const differential_subjects[OWNERS] = { "alice", "anna", "bob" };

/* --- cells ------------------------------------------------------------------------------------ */

static struct cell {
	char name[64];
	uint64_t hits;
	bool required;
} cells[CELLS_MAX];
static size_t cells_count;

/* What must have come back at least once. */
static const char *const required[] = {
#define CELL(name) name,
#include "test/sim/differential_cells.def"
#undef CELL
};

static struct cell *cell_of(const char *name)
{
	for (size_t i = 0; i < cells_count; i++) {
		if (strcmp(cells[i].name, name) == 0)
			return &cells[i];
	}
	hf_assert(cells_count < CELLS_MAX);
	snprintf(cells[cells_count].name, sizeof cells->name, "%s", name);
	return &cells[cells_count++];
}

void hit(const char *function, const char *format, ...)
{
	char what[41], name[64];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	snprintf(name, sizeof name, "%.20s: %.40s", function, what);
	cell_of(name)->hits++;
}

static int cell_order(const void *a, const void *b)
{
	return strcmp(((const struct cell *)a)->name, ((const struct cell *)b)->name);
}

/* How many of those required were never hit. */
static size_t cells_tell(void)
{
	size_t missing = 0;
	for (size_t i = 0; i < countof(required); i++)
		cell_of(required[i])->required = true;
	qsort(cells, cells_count, sizeof *cells, cell_order);
	for (size_t i = 0; i < cells_count; i++) {
		bool never = cells[i].required && !cells[i].hits;
		missing += never;
		printf("%8lu  %s%s\n", (unsigned long)cells[i].hits, cells[i].name,
		       never ? "  NEVER" : "");
	}
	return missing;
}

/* --- statements ------------------------------------------------------------------------------- */

void sql_begin(struct run *run, const char *text)
{
	buf_clear(&run->sql);
	buf_add_text(&run->sql, text);
}

void sql_add(struct run *run, const char *format, ...)
{
	char text[256];
	va_list args;
	va_start(args, format);
	int len = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	hf_assert(len >= 0 && (size_t)len < sizeof text);
	buf_add(&run->sql, text, (size_t)len);
}

void sql_comma(struct run *run)
{
	if (run->sql.data[run->sql.len - 1] != '(')
		buf_add_text(&run->sql, ", ");
}

void sql_text(struct run *run, struct slice text)
{
	if (!text.data) {
		buf_add_text(&run->sql, "NULL");
		return;
	}
	buf_add_byte(&run->sql, '\'');
	for (size_t i = 0; i < text.len; i++) {
		hf_assert(text.data[i] != '\'');
		buf_add_byte(&run->sql, text.data[i]);
	}
	buf_add_byte(&run->sql, '\'');
}

void sql_bytes(struct run *run, const void *bytes, size_t len)
{
	char hex[2 * 64 + 1];
	hf_assert(len <= 64);
	sql_add(run, "'\\x%s'", hex_format(bytes, len, hex));
}

void sql_id(struct run *run, const struct task_id *id)
{
	sql_bytes(run, id->bytes, TASK_ID_BYTES);
}

void sql_task(struct run *run, const struct task_id *id)
{
	sql_add(run, "%d, ", task_id_week(id));
	sql_id(run, id);
}

void sql_uuid(struct run *run, const struct uuid *uuid)
{
	char text[UUID_TEXT_LEN + 1];
	if (uuid)
		sql_add(run, "'%s'", uuid_format(uuid, text));
	else
		sql_add(run, "NULL");
}

static void lines_free(struct lines *lines)
{
	while (lines->count)
		free(lines->rows[--lines->count]);
}

static void lines_add(struct lines *lines, struct buf *row)
{
	hf_assert(lines->count < LINES_MAX);
	lines->rows[lines->count++] = buf_take(row);
}

static void result_read(struct run *run, const PGresult *result)
{
	for (int row = 0; row < PQntuples(result); row++) {
		struct buf text = {};
		for (int column = 0; column < PQnfields(result); column++) {
			buf_add_text(&text, PQgetisnull(result, row, column)
						? "~"
						: PQgetvalue(result, row, column));
			buf_add_byte(&text, '|');
		}
		lines_add(&run->got, &text);
	}
}

static void run_fail(struct run *run, const char *what)
{
	run->failed = true;
	printf("FAILED %s\n  in schedule --seed %lu, after:\n%.*s", what,
	       (unsigned long)run->schedule, (int)run->trace.len,
	       run->trace.data ? run->trace.data : "");
}

void sql_run(struct run *run, const char *error)
{
	struct buf text = {};
	buf_add_format(&text, "SET sim.now_ms = %ld; ", (long)run->now_ms);
	buf_add_slice(&text, buf_slice(&run->sql));
	buf_add_byte(&text, ';');
	buf_add_slice(&run->trace, buf_slice(&text));
	buf_add_byte(&run->trace, '\n');
	PQclear(run->result);
	run->result = PQexec(run->conn, text.data);
	buf_deinit(&text);
	const char *state = PQresultErrorField(run->result, PG_DIAG_SQLSTATE);
	if (state && error && strncmp(state, error, strlen(error)) == 0) {
		buf_add_format(&text, "%s|", state);
		lines_add(&run->got, &text);
	} else if (PQresultStatus(run->result) == PGRES_TUPLES_OK) {
		result_read(run, run->result);
	} else {
		run_fail(run, PQerrorMessage(run->conn));
	}
}

void rows_read(struct run *run, const char *const *statements, size_t count)
{
	struct buf text = {};
	for (size_t i = 0; i < count; i++) {
		buf_add_text(&text, statements[i]);
		buf_add_byte(&text, ';');
	}
	bool sent = PQsendQuery(run->conn, text.data);
	bool whole = sent;
	for (PGresult *result; sent && (result = PQgetResult(run->conn)); PQclear(result)) {
		if (PQresultStatus(result) == PGRES_TUPLES_OK)
			result_read(run, result);
		else
			whole = false;
	}
	if (!whole)
		run_fail(run, PQerrorMessage(run->conn));
	buf_deinit(&text);
}

void sql_quiet(struct run *run, const char *text)
{
	PGresult *result = PQexec(run->conn, text);
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
		printf("FAILED %s: %s", text, PQerrorMessage(run->conn));
		exit(1);
	}
	PQclear(result);
}

/* --- rows ------------------------------------------------------------------------------------- */

void want_row(struct run *run, struct buf *row)
{
	lines_add(&run->want, row);
}

void row_text(struct buf *row, struct slice text)
{
	if (text.data)
		buf_add_slice(row, text);
	else
		buf_add_byte(row, '~');
	buf_add_byte(row, '|');
}

void row_bytes(struct buf *row, struct slice bytes)
{
	if (!bytes.data) {
		buf_add_text(row, "~|");
		return;
	}
	char *hex = hf_alloc(2 * bytes.len + 1);
	hex_format((const unsigned char *)bytes.data, bytes.len, hex);
	buf_add_format(row, "\\x%s|", hex);
	free(hex);
}

void row_id(struct buf *row, const struct task_id *id)
{
	row_bytes(row,
		  id ? (struct slice){ (const char *)id->bytes, TASK_ID_BYTES } : (struct slice){});
}

void row_uuid(struct buf *row, const struct uuid *uuid)
{
	char text[UUID_TEXT_LEN + 1];
	buf_add_format(row, "%s|", uuid ? uuid_format(uuid, text) : "~");
}

void row_int(struct buf *row, int64_t n)
{
	buf_add_format(row, "%ld|", (long)n);
}

void row_int_or_null(struct buf *row, int64_t n)
{
	if (n < 0)
		buf_add_text(row, "~|");
	else
		row_int(row, n);
}

void row_bool(struct buf *row, bool yes)
{
	buf_add_text(row, yes ? "t|" : "f|");
}

/* As accept_bounded(): the first columns of a view. */
void row_view(struct buf *row, const struct task_view *view)
{
	row_id(row, &view->id);
	row_int(row, view->tool);
	row_text(row, slice_of(task_state_name(view->state)));
	row_int(row, view->attempt);
	row_int(row, view->created_ms);
	row_int(row, view->updated_ms);
	row_int(row, view->ended_ms);
	row_int(row, view->result_ttl_ms);
	if (view->progress < 0)
		buf_add_text(row, "~|");
	else
		buf_add_format(row, "%g|", view->progress);
	row_text(row, view->message);
}

void want_word(struct run *run, const char *word)
{
	struct buf row = {};
	row_text(&row, slice_of(word));
	want_row(run, &row);
}

void want_int(struct run *run, int64_t n)
{
	struct buf row = {};
	row_int(&row, n);
	want_row(run, &row);
}

static int line_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void lines_sort(char **lines, size_t count)
{
	qsort((void *)lines, count, sizeof *lines, line_order);
}

void settle_call(struct run *run)
{
	lines_sort(run->got.rows, run->got.count);
	lines_sort(run->want.rows, run->want.count);
	bool same = run->got.count == run->want.count;
	for (size_t i = 0; same && i < run->got.count; i++)
		same = strcmp(run->got.rows[i], run->want.rows[i]) == 0;
	if (!same && !run->failed) {
		run_fail(run, "Postgres and the model differ");
		for (size_t i = 0; i < run->got.count; i++)
			printf("  postgres %s\n", run->got.rows[i]);
		for (size_t i = 0; i < run->want.count; i++)
			printf("  model    %s\n", run->want.rows[i]);
		fflush(stdout);
	}
	lines_free(&run->got);
	lines_free(&run->want);
}

/* --- a schedule ------------------------------------------------------------------------------- */

/* The second half of a token is what Postgres drew. */
static uint64_t on_draw(void *ctx, const struct task_id *id)
{
	struct run *run = ctx;
	uint64_t half = 0;
	for (size_t i = 0; i < run->holds_count; i++) {
		if (task_id_equal(&run->holds[i].id, id))
			memcpy(&half, run->holds[i].token.bytes + 8, sizeof half);
	}
	return half;
}

static int rank_of(const struct run *run, const struct model_task *task)
{
	for (size_t i = 0; i < run->aside_count; i++) {
		if (task_id_equal(&run->aside[i], &task->id))
			return 0;
	}
	for (size_t i = 0; i < run->taken_count; i++) {
		if (task_id_equal(&run->taken[i], &task->id))
			return 1;
	}
	return 2;
}

static int on_equals(void *ctx, const struct model_task *a, const struct model_task *b)
{
	return rank_of(ctx, a) - rank_of(ctx, b);
}

static void next_of(const struct run *run, const struct heap *heap, size_t spot, int64_t *next)
{
	for (size_t i = 0; i < heap->count; i++) {
		const struct model_spot *at =
		    (const struct model_spot *)((const unsigned char *)heap->items[i] + spot);
		if (at->key >= run->now_ms && at->key < *next)
			*next = at->key;
	}
}

/* The next moment at which the time itself changes what a call does. */
static int64_t next_edge(struct run *run)
{
	const struct model *model = run->model;
	int64_t next = INT64_MAX;
	for (size_t i = 0; i < countof(model->later); i++)
		next_of(run, &model->later[i], offsetof(struct model_task, due), &next);
	next_of(run, &model->ended, offsetof(struct model_task, due), &next);
	if (chance_of(run, 10))
		next_of(run, &model->deadlines, offsetof(struct model_task, deadline), &next);
	return next == INT64_MAX ? run->now_ms : next;
}

static void clock_move(struct run *run)
{
	size_t kind = chance(run, 100);
	if (kind < 60)
		run->now_ms += (int64_t)chance(run, 3);
	else if (kind < 78)
		run->now_ms += (int64_t)chance(run, 1000);
	else if (kind < 84)
		run->now_ms += (int64_t)chance(run, 12'000);
	else if (kind < 98)
		run->now_ms = next_edge(run) + (int64_t)chance(run, 2);
	else
		run->now_ms += (int64_t)chance(run, 150'000);
	model_set_now(run->model, run->now_ms);
}

constexpr size_t FAVOURITES = 4;
constexpr size_t FAVOURITE_WEIGHT = 40;

static const struct table {
	const struct operation *operations;
	const size_t *count;
} tables[] = { { api_operations, &api_operations_count },
	       { work_operations, &work_operations_count },
	       { keep_operations, &keep_operations_count },
	       { operator_operations, &operator_operations_count } };

struct favours {
	size_t tables[countof(tables)];
	const struct operation *operations[FAVOURITES];
};

/* Each schedule has its own favourites, so that some go deep where an even mix would not. */
static size_t weight_of(const struct operation *operation, const struct favours *favours,
			size_t table)
{
	size_t weight = (size_t)operation->weight * favours->tables[table];
	for (size_t i = 0; i < FAVOURITES; i++)
		weight += favours->operations[i] == operation ? FAVOURITE_WEIGHT : 0;
	return weight;
}

static const struct operation *operation_at(const struct favours *favours, size_t at, size_t *whole)
{
	*whole = 0;
	for (size_t t = 0; t < countof(tables); t++) {
		for (size_t i = 0; i < *tables[t].count; i++) {
			const struct operation *operation = &tables[t].operations[i];
			*whole += favours ? weight_of(operation, favours, t) : 1;
			if (at < *whole)
				return operation;
		}
	}
	return nullptr;
}

static void favours_draw(struct run *run, struct favours *favours)
{
	/* Of API, work, maintenance, operators. */
	const size_t least[] = { 2, 3, 0, 0 }, more[] = { 3, 5, 3, 3 };
	for (size_t t = 0; t < countof(tables); t++)
		favours->tables[t] = least[t] + chance(run, more[t]);
	size_t whole;
	operation_at(nullptr, SIZE_MAX, &whole);
	for (size_t i = 0; i < FAVOURITES; i++) {
		size_t unused;
		favours->operations[i] = operation_at(nullptr, chance(run, whole), &unused);
	}
}

static const struct operation *operation_draw(struct run *run, const struct favours *favours)
{
	size_t whole, unused;
	operation_at(favours, SIZE_MAX, &whole);
	return operation_at(favours, chance(run, whole), &unused);
}

static void schedule_begin(struct run *run, uint64_t seed)
{
	run->schedule = seed;
	run->random = seed * SEED_STEP;
	run->failed = false;
	run->tasks_count = run->holds_count = run->taken_count = run->aside_count = 0;
	run->calls = 0;
	buf_clear(&run->trace);
	struct model_config config = {
		.cluster_number = 1, .draw = on_draw, .ctx = run, .among_equals = on_equals
	};
	run->model = model_new(&config);
	for (int i = 0; i < TOOLS; i++)
		model_tool_add(run->model, &differential_tools[i]);
	for (size_t i = 0; i < OWNERS; i++)
		model_owner(run->model, slice_of("static"), slice_of(differential_subjects[i]),
			    slice_of(differential_tenants[i]));
	for (size_t i = 0; i < INCARNATIONS; i++)
		run->incarnations[i] = chance_uuid(run);
}

static void schedule_clear(struct run *run)
{
	sql_quiet(run, "DELETE FROM holdfast.work; DELETE FROM holdfast.task;"
		       "DELETE FROM holdfast.step; DELETE FROM holdfast.event;"
		       "DELETE FROM holdfast.intent; DELETE FROM holdfast.inbox;"
		       "DELETE FROM holdfast.artifact; DELETE FROM holdfast.effect;"
		       "DELETE FROM holdfast.worker; DELETE FROM holdfast.claim_call;"
		       "DELETE FROM holdfast.pause; DELETE FROM holdfast.audit;"
		       "DELETE FROM holdfast.lease; DELETE FROM holdfast.intent_window");
	run->model = model_free(run->model);
}

/* Most have their processes there, and something to do. Returns how many calls. */
static size_t first_calls(struct run *run)
{
	if (chance_of(run, 10))
		return 0;
	size_t count = 0;
	for (size_t i = 0; i < INCARNATIONS; i++) {
		if (chance_of(run, 20))
			continue;
		first_beat(run, &run->incarnations[i]);
		count++;
	}
	api_operations[0].run(run); /* accept */
	return count + 1;
}

/* False: it failed. */
static bool schedule_run(struct run *run, uint64_t seed, int64_t week_ms, size_t *calls)
{
	schedule_begin(run, seed);
	/* Some begin shortly before a week ends. */
	run->now_ms = week_ms + (chance_of(run, 25) ? WEEK_MS - (int64_t)chance(run, 30'000)
						    : (int64_t)chance(run, 24 * HOUR_MS));
	model_set_now(run->model, run->now_ms);
	struct favours favours;
	favours_draw(run, &favours);
	size_t count = CALLS_LEAST + chance(run, CALLS_MORE), least = first_calls(run);
	for (size_t i = least; i < count && !run->failed; i++) {
		size_t before = run->trace.len;
		while (run->trace.len == before) /* some find nothing to act on */
			operation_draw(run, &favours)->run(run);
		clock_move(run);
		if (run->each && !run->failed)
			compare_rows(run);
	}
	*calls += count;
	if (!run->failed)
		compare_rows(run);
	schedule_clear(run);
	return !run->failed;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void tool_put(struct run *run, const struct model_tool *tool)
{
	sql_begin(run, "INSERT INTO holdfast.tool (tool, name, version, doc, result_ttl_ms,"
		       " tombstone_ttl_ms, deadline_ms, park_ttl_ms, phases, crash_limit, current,"
		       " undos, inputs) OVERRIDING SYSTEM VALUE VALUES (");
	sql_add(run, "%d, '%s', repeat('%d', 64), '{\"phases\":[", tool->tool, tool->name,
		tool->tool);
	for (int i = 0; i < tool->phases_count; i++)
		sql_add(run, "%s{\"name\":\"%s\",\"kind\":\"%s\",\"effect\":\"%s\"%s}",
			i ? "," : "", tool->phases[i].name,
			tool->phases[i].waits ? "wait" : "program", tool->phases[i].effect,
			tool->phases[i].timer ? ",\"ms\":1" : "");
	sql_add(run, "]}', %ld, %ld, %ld, %ld, %d, 3, %s, '{", (long)tool->result_ttl_ms,
		(long)tool->tombstone_ttl_ms, (long)tool->deadline_ms, (long)tool->park_ttl_ms,
		tool->phases_count, tool->tool == 1 ? "false" : "true");
	for (size_t i = 0; i < tool->undos_count; i++)
		sql_add(run, "%s%d", i ? "," : "", tool->undos[i]);
	sql_add(run, "}', '{");
	for (size_t i = 0; i < tool->inputs_count; i++)
		sql_add(run, "%s%s", i ? "," : "", tool->inputs[i]);
	sql_add(run, "}')");
	sql_quiet(run, run->sql.data);
}

/* The clock of the store is ours from here on. Returns the beginning of the real week. */
static int64_t store_prepare(struct run *run)
{
	sql_quiet(run, "SET client_min_messages = warning; SET synchronous_commit = off;"
		       "SET lock_timeout = '20s'; SET intervalstyle = postgres");
	PGresult *result = PQexec(run->conn, "SELECT holdfast.to_ms(holdfast.now_())");
	hf_assert(PQresultStatus(result) == PGRES_TUPLES_OK);
	int64_t now_ms = strtoll(PQgetvalue(result, 0, 0), nullptr, 10);
	PQclear(result);
	sql_quiet(run, "CREATE OR REPLACE FUNCTION holdfast.now_() RETURNS timestamptz LANGUAGE sql"
		       " VOLATILE AS $$ SELECT timestamptz 'epoch'"
		       " + current_setting('sim.now_ms')::bigint * interval '1 millisecond' $$");
	for (int i = 0; i < TOOLS; i++)
		tool_put(run, &differential_tools[i]);
	for (size_t i = 0; i < OWNERS; i++) {
		sql_begin(run, "");
		sql_add(run, "SELECT holdfast.principal_owner('static', '%s', '%s')",
			differential_subjects[i], differential_tenants[i]);
		result = PQexec(run->conn, run->sql.data);
		hf_assert(strtoll(PQgetvalue(result, 0, 0), nullptr, 10) == (int64_t)i + 1);
		PQclear(result);
	}
	return now_ms / WEEK_MS * WEEK_MS;
}

struct options {
	const char *dsn;
	uint64_t seed;
	size_t schedules;
	bool each;
};

static bool options_read(int argc, char **argv, struct options *options)
{
	*options = (struct options){ .seed = 1, .schedules = SCHEDULES };
	for (int i = 1; i < argc; i++) {
		bool more = i + 1 < argc;
		if (more && strcmp(argv[i], "--seed") == 0)
			options->seed = strtoull(argv[++i], nullptr, 10);
		else if (more && strcmp(argv[i], "--schedules") == 0)
			options->schedules = strtoull(argv[++i], nullptr, 10);
		else if (more && strcmp(argv[i], "--dsn") == 0)
			options->dsn = argv[++i];
		else if (strcmp(argv[i], "--each") == 0)
			options->each = true;
		else
			return false;
	}
	return options->dsn != nullptr;
}

int main(int argc, char **argv)
{
	struct options options;
	if (!options_read(argc, argv, &options)) {
		fprintf(stderr,
			"usage: differential --dsn DSN [--seed N] [--schedules N] [--each]\n"
			"  --each compares all rows after each call\n");
		return 2;
	}
	struct run run = { .each = options.each };
	run.conn = PQconnectdb(options.dsn);
	if (PQstatus(run.conn) != CONNECTION_OK) {
		fprintf(stderr, "%s", PQerrorMessage(run.conn));
		return 1;
	}
	int64_t week_ms = store_prepare(&run);
	size_t passed = 0, failed = 0, calls = 0;
	for (size_t i = 0; i < options.schedules && failed < FAILURES_MAX; i++) {
		if (schedule_run(&run, options.seed + i, week_ms, &calls))
			passed++;
		else
			failed++;
		if (i % VACUUM_EVERY == VACUUM_EVERY - 1)
			sql_quiet(&run, "VACUUM");
	}
	size_t missing = cells_tell();
	if (missing && options.schedules >= SCHEDULES) {
		printf("FAILED %zu of what should come back never did\n", missing);
		failed++;
	}
	printf("{\"test\": \"differential\", \"passed\": %zu, \"failed\": %zu, \"calls\": %zu, "
	       "\"cells\": %zu}\n",
	       passed, failed, calls, cells_count);
	fflush(stdout);
	PQclear(run.result);
	PQfinish(run.conn);
	buf_deinit(&run.sql);
	buf_deinit(&run.trace);
	return failed ? 1 : 0;
}
