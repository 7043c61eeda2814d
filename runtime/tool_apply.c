/* tool_apply.c - stores a version of a tool. Everything happens in one transaction under a lock per
 * tool name, so that two that apply at once follow each other, and a fault leaves nothing behind.
 *
 * The author of a tool is not the administrator: nothing of a tool may run with the rights of this
 * connection. SET ROLE alone would not do, since any DO block or trigger can say RESET ROLE; inside
 * a SECURITY DEFINER function Postgres refuses that. So the tool's SQL runs in such a function,
 * made anew before each call, and rows are staged in a plain table before they meet the triggers
 * and types of the tool. What could still run at COMMIT (deferrable constraints) is refused. */
#include "runtime/tool_apply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/json.h"
#include "runtime/pack_apply.h"
#include "runtime/pgrun.h"

constexpr Oid TYPE_BYTEA = 17, TYPE_INT4 = 23, TYPE_TEXT = 25;
constexpr Oid TYPE_JSON = 114, TYPE_VARCHAR = 1043, TYPE_JSONB = 3802;
constexpr size_t COPY_BYTES_MAX = 64 << 10; /* of one message */
constexpr int FILE_MODE = 0644, FILE_MODE_EXECUTABLE = 0755;

/* --- Statements ------------------------------------------------------------------------------- */

/* The line that a position (in characters, from 1) of a statement lies on. */
static int line_of(const char *sql, const char *position)
{
	long left = strtol(position, nullptr, 10);
	int line = 1;
	for (; *sql && left > 1; sql++) {
		line += *sql == '\n';
		left -= ((unsigned char)sql[1] & 0xc0) != 0x80;
	}
	return line;
}

static const char *field(const PGresult *result, int code)
{
	const char *text = result ? PQresultErrorField(result, code) : nullptr;
	return text ? text : "";
}

/* The line of `sql` (nullable) that Postgres points at, whether it was sent as such or run in a
 * function; 0: none. */
static int error_line(const PGresult *result, const char *sql)
{
	const char *position = field(result, PG_DIAG_STATEMENT_POSITION);
	if (sql && *position)
		return line_of(sql, position);
	position = field(result, PG_DIAG_INTERNAL_POSITION);
	if (sql && *position && strcmp(field(result, PG_DIAG_INTERNAL_QUERY), sql) == 0)
		return line_of(sql, position);
	return 0;
}

/* `where` stands before the reason; with `sql`, the line in it does too. */
static enum hf_code pg_fail(PGconn *db, const PGresult *result, enum hf_code code,
			    const char *where, const char *sql, struct hf_err *err)
{
	const char *reason = field(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *context = field(result, PG_DIAG_CONTEXT); /* of a COPY it names the row */
	if (strncmp(context, "COPY", 4) != 0)
		context = "";
	int line = error_line(result, sql);
	char line_text[32] = "";
	if (line)
		snprintf(line_text, sizeof line_text, " line %d", line);
	if (!*reason)
		reason = PQerrorMessage(db);
	if (PQstatus(db) != CONNECTION_OK)
		code = HF_DB;
	code = hf_fail(err, code, "%s%s: %.*s%s%.*s", where, line_text, (int)strcspn(reason, "\n"),
		       reason, *context ? "; " : "", (int)strcspn(context, "\n"), context);
	if (err)
		snprintf(err->sqlstate, sizeof err->sqlstate, "%s",
			 field(result, PG_DIAG_SQLSTATE));
	return code;
}

static bool went_well(const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);
	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* A statement of ours. `out` (nullable) gets the result. */
static enum hf_code run(PGconn *db, const char *sql, int count, const char *const *values,
			PGresult **out, struct hf_err *err)
{
	hf_cleanup(result) PGresult *result =
	    PQexecParams(db, sql, count, nullptr, values, nullptr, nullptr, 0);
	if (!went_well(result))
		return pg_fail(db, result, HF_DB, "apply", nullptr, err);
	if (out) {
		*out = result;
		result = nullptr;
	}
	return HF_OK;
}

static enum hf_code run_format(PGconn *db, struct hf_err *err, const char *format, const char *name)
{
	/* The names put in are of a-z 0-9 _ (tool_new), so they need no quoting. */
	hf_cleanup(buf) struct buf sql = {};
	for (const char *at = format; *at; at++) {
		if (*at == '@')
			buf_add_text(&sql, name);
		else
			buf_add_byte(&sql, *at);
	}
	return run(db, sql.data, 0, nullptr, nullptr, err);
}

/* --- As the tool's role ----------------------------------------------------------------------- */

static bool needs_role(const struct tool_folder *folder, const struct tool *tool)
{
	if (tool->data_count || tool_folder_find(folder, "schema.sql"))
		return true;
	for (size_t i = 0; i < tool->phases_count; i++)
		for (const struct phase_spec *spec = &tool->phases[i]; spec; spec = spec->undo)
			if (spec->type == PHASE_SQL)
				return true;
	return false;
}

/* Roles are the whole cluster's: another database may be making the same one. */
static enum hf_code role_make(PGconn *db, const char *name, struct hf_err *err)
{
	hf_try(run_format(db, err,
			  "DO $$ BEGIN"
			  " IF to_regrole('holdfast_tool_@') IS NULL THEN"
			  "  CREATE ROLE holdfast_tool_@ NOLOGIN; END IF;"
			  " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;"
			  " END $$",
			  name));
	hf_try(run_format(db, err,
			  "DO $$ BEGIN"
			  " IF NOT pg_has_role('holdfast_sql', 'holdfast_tool_@', 'MEMBER') THEN"
			  "  GRANT holdfast_tool_@ TO holdfast_sql; END IF;"
			  " IF NOT pg_has_role('holdfast_tool_@', 'MEMBER') THEN"
			  "  GRANT holdfast_tool_@ TO CURRENT_USER; END IF;"
			  " END $$",
			  name));
	return run_format(db, err,
			  "CREATE SCHEMA IF NOT EXISTS holdfast_tool_@"
			  " AUTHORIZATION holdfast_tool_@",
			  name);
}

/* Runs a script of the tool with the tool's rights and no more. */
static enum hf_code run_as_tool(PGconn *db, const char *name, const char *script, const char *where,
				struct hf_err *err)
{
	/* An earlier script may have put another function in the place of ours. */
	hf_try(run_format(db, err, "SET LOCAL ROLE holdfast_tool_@", name));
	hf_try(run_format(db, err,
			  "CREATE OR REPLACE FUNCTION holdfast_tool_@.holdfast_apply(script text)"
			  " RETURNS void LANGUAGE plpgsql SECURITY DEFINER"
			  " SET search_path = holdfast_tool_@ AS"
			  " $$ BEGIN EXECUTE script; END $$",
			  name));
	hf_try(run(db, "RESET ROLE", 0, nullptr, nullptr, err));
	hf_cleanup(buf) struct buf call = {};
	buf_add_format(&call, "SELECT holdfast_tool_%s.holdfast_apply($1::pg_catalog.text)", name);
	hf_cleanup(result) PGresult *result =
	    PQexecParams(db, call.data, 1, nullptr, &script, nullptr, nullptr, 0);
	if (!went_well(result))
		return pg_fail(db, result, HF_INVALID, where, script, err);
	/* A setting would last, and a cursor WITH HOLD would run at COMMIT. */
	hf_try(run(db, "CLOSE ALL", 0, nullptr, nullptr, err));
	hf_try(run(db, "SET LOCAL search_path TO pg_catalog", 0, nullptr, nullptr, err));
	return run_format(db, err, "DROP FUNCTION IF EXISTS holdfast_tool_@.holdfast_apply(text)",
			  name);
}

static enum hf_code schema_run(PGconn *db, const struct tool_folder *folder, const char *name,
			       struct hf_err *err)
{
	const struct tool_file *file = tool_folder_find(folder, "schema.sql");
	if (!file)
		return HF_OK;
	hf_cleanup(text) char *sql = hf_strndup(file->content.data, file->content.len);
	return run_as_tool(db, name, sql, "schema.sql", err);
}

static enum hf_code copy_send(PGconn *db, struct slice content, const char *where,
			      struct hf_err *err)
{
	bool sent = true;
	while (sent && content.len) {
		size_t len = content.len < COPY_BYTES_MAX ? content.len : COPY_BYTES_MAX;
		sent = PQputCopyData(db, content.data, (int)len) == 1;
		content = (struct slice){ content.data + len, content.len - len };
	}
	if (!sent || PQputCopyEnd(db, nullptr) != 1)
		return pg_fail(db, nullptr, HF_DB, where, nullptr, err);
	hf_cleanup(result) PGresult *result = PQgetResult(db);
	PQclear(PQgetResult(db)); /* the end of the answer: nullptr */
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		return pg_fail(db, result, HF_INVALID, where, nullptr, err);
	return HF_OK;
}

enum { COLUMN_NAMES, COLUMN_TEXTS, COLUMN_CASTS };

/* The columns of a table of the tool: as a list, as text columns, and cast to their types. */
static enum hf_code columns_take(PGconn *db, const char *name, const char *table, const char *where,
				 PGresult **out, struct hf_err *err)
{
	hf_cleanup(text) char *qualified = hf_format("holdfast_tool_%s.\"%s\"", name, table);
	const char *values[1] = { qualified };
	hf_cleanup(result) PGresult *columns = nullptr;
	hf_try(run(db,
		   "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum),"
		   " string_agg(quote_ident(attname) || ' text', ', ' ORDER BY attnum),"
		   " string_agg(quote_ident(attname) || '::' || format_type(atttypid, atttypmod),"
		   " ', ' ORDER BY attnum)"
		   " FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0"
		   " AND NOT attisdropped AND attgenerated = ''",
		   1, values, &columns, err));
	if (PQgetisnull(columns, 0, COLUMN_NAMES))
		return hf_fail(err, HF_INVALID, "%s: schema.sql makes no table \"%s\"", where,
			       table);
	*out = columns;
	columns = nullptr;
	return HF_OK;
}

/* DELETE and not TRUNCATE: running phases of an older version go on reading. */
static enum hf_code data_load(PGconn *db, const struct tool_folder *folder, const struct tool *tool,
			      size_t number, struct hf_err *err)
{
	const struct data_spec *data = &tool->data[number];
	const struct tool_file *file = tool_folder_find(folder, data->file);
	hf_assert(file);
	char where[128];
	snprintf(where, sizeof where, "tool.json#/data/%zu: %.90s", number, data->file);
	hf_cleanup(result) PGresult *columns = nullptr;
	hf_try(columns_take(db, tool->name, data->table, where, &columns, err));
	hf_try(run(db, "DROP TABLE IF EXISTS pg_temp.holdfast_data", 0, nullptr, nullptr, err));
	hf_cleanup(buf) struct buf sql = {};
	buf_add_format(&sql, "CREATE TEMPORARY TABLE holdfast_data (%s) ON COMMIT DROP",
		       PQgetvalue(columns, 0, COLUMN_TEXTS));
	hf_try(run(db, sql.data, 0, nullptr, nullptr, err));
	hf_cleanup(result) PGresult *copy = PQexec(db, "COPY pg_temp.holdfast_data FROM STDIN"
						       " (FORMAT csv, HEADER match,"
						       " ENCODING 'UTF8')");
	if (PQresultStatus(copy) != PGRES_COPY_IN)
		return pg_fail(db, copy, HF_DB, where, nullptr, err);
	hf_try(copy_send(db, file->content, where, err));
	hf_try(run_format(db, err, "GRANT SELECT ON pg_temp.holdfast_data TO holdfast_tool_@",
			  tool->name));
	buf_clear(&sql);
	buf_add_format(&sql,
		       "DELETE FROM \"%s\";"
		       " INSERT INTO \"%s\" (%s) SELECT %s FROM pg_temp.holdfast_data",
		       data->table, data->table, PQgetvalue(columns, 0, COLUMN_NAMES),
		       PQgetvalue(columns, 0, COLUMN_CASTS));
	hf_try(run_as_tool(db, tool->name, sql.data, where, err));
	return run(db, "DROP TABLE IF EXISTS pg_temp.holdfast_data", 0, nullptr, nullptr, err);
}

static bool is_json_text(Oid type)
{
	return type == TYPE_TEXT || type == TYPE_VARCHAR || type == TYPE_JSON || type == TYPE_JSONB;
}

/* Postgres parses and plans it with the names and rights that it will run with. */
static enum hf_code statement_check(PGconn *db, const struct phase_spec *phase, size_t number,
				    struct hf_err *err)
{
	static const Oid types[2] = { TYPE_TEXT, TYPE_TEXT };
	char where[128];
	snprintf(where, sizeof where, "tool.json#/phases/%zu/file: %.80s", number, phase->file);
	hf_cleanup(result) PGresult *prepared = PQprepare(db, "", phase->sql, 2, types);
	if (PQresultStatus(prepared) != PGRES_COMMAND_OK)
		return pg_fail(db, prepared, HF_INVALID, where, phase->sql, err);
	hf_cleanup(result) PGresult *described = PQdescribePrepared(db, "");
	if (PQresultStatus(described) != PGRES_COMMAND_OK)
		return pg_fail(db, described, HF_INVALID, where, phase->sql, err);
	int columns = PQnfields(described);
	if (columns != 1)
		return hf_fail(err, HF_INVALID, "%s: returns %d columns, must be 1 (JSON text)",
			       where, columns);
	if (!is_json_text(PQftype(described, 0)))
		return hf_fail(err, HF_INVALID, "%s: returns type %u, must be text or json", where,
			       PQftype(described, 0));
	return HF_OK;
}

static enum hf_code statements_check(PGconn *db, const struct tool *tool, struct hf_err *err)
{
	hf_try(run_format(db, err, "SET LOCAL ROLE holdfast_tool_@", tool->name));
	hf_try(run_format(db, err, "SET LOCAL search_path TO holdfast_tool_@", tool->name));
	for (size_t i = 0; i < tool->phases_count; i++)
		for (const struct phase_spec *spec = &tool->phases[i]; spec; spec = spec->undo)
			if (spec->type == PHASE_SQL)
				hf_try(statement_check(db, spec, i, err));
	hf_try(run(db, "RESET ROLE", 0, nullptr, nullptr, err));
	return run(db, "SET LOCAL search_path TO pg_catalog", 0, nullptr, nullptr, err);
}

static enum hf_code deferrable_refuse(PGconn *db, const char *name, struct hf_err *err)
{
	hf_cleanup(text) char *role = hf_format("holdfast_tool_%s", name);
	const char *values[1] = { role };
	hf_cleanup(result) PGresult *found = nullptr;
	hf_try(run(db,
		   "SELECT c.relname FROM pg_catalog.pg_trigger t"
		   " JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid"
		   " JOIN pg_catalog.pg_roles r ON r.oid = c.relowner"
		   " WHERE r.rolname = $1 AND t.tgdeferrable LIMIT 1",
		   1, values, &found, err));
	if (PQntuples(found) == 0)
		return HF_OK;
	return hf_fail(err, HF_INVALID,
		       "schema.sql: table \"%s\" has a deferrable constraint; they must be checked "
		       "at once",
		       PQgetvalue(found, 0, 0));
}

static enum hf_code sql_run(PGconn *db, const struct tool_folder *folder, const struct tool *tool,
			    struct hf_err *err)
{
	hf_try(role_make(db, tool->name, err));
	hf_try(schema_run(db, folder, tool->name, err));
	hf_try(deferrable_refuse(db, tool->name, err));
	for (size_t i = 0; i < tool->data_count; i++)
		hf_try(data_load(db, folder, tool, i, err));
	hf_try(
	    deferrable_refuse(db, tool->name, err)); /* a trigger of the tool may have made one */
	return statements_check(db, tool, err);
}

/* --- The rows --------------------------------------------------------------------------------- */

static enum hf_code file_insert(PGconn *db, const char *id, const struct tool_file *file,
				struct hf_err *err)
{
	static const Oid types[4] = { TYPE_INT4, TYPE_TEXT, TYPE_INT4, TYPE_BYTEA };
	static const int formats[4] = { 0, 0, 0, 1 };
	char mode[12];
	snprintf(mode, sizeof mode, "%d", file->executable ? FILE_MODE_EXECUTABLE : FILE_MODE);
	const char *values[4] = { id, file->path, mode, file->content.data };
	int lengths[4] = { 0, 0, 0, (int)file->content.len };
	hf_cleanup(result) PGresult *result = PQexecParams(
	    db,
	    "INSERT INTO holdfast.tool_file (tool, path, mode, content) VALUES ($1, $2, $3, $4)", 4,
	    types, values, lengths, formats, 0);
	return went_well(result) ? HF_OK : pg_fail(db, result, HF_DB, file->path, nullptr, err);
}

/* The numbers of the phases that a cancel undoes, as an array literal. */
static void undos_text(const struct tool *tool, struct buf *out)
{
	buf_add_byte(out, '{');
	for (size_t i = 0; i < tool->phases_count; i++)
		if (tool->phases[i].undo)
			buf_add_format(out, out->len > 1 ? ",%zu" : "%zu", i);
	buf_add_byte(out, '}');
}

/* The keys that its phases declare they ask under; of [A-Za-z0-9_.-]. */
static void inputs_text(const struct tool *tool, struct buf *out)
{
	struct slice key, request;
	buf_add_byte(out, '{');
	for (size_t i = 0; i < tool->phases_count; i++) {
		size_t at = 0;
		while (tool->phases[i].input.len &&
		       json_object_next(tool->phases[i].input, &at, &key, &request)) {
			if (out->len > 1)
				buf_add_byte(out, ',');
			buf_add_slice(out, key); /* with its quotes */
		}
	}
	buf_add_byte(out, '}');
}

static enum hf_code rows_insert(PGconn *db, const struct tool_folder *folder,
				const struct tool *tool, int32_t *id, struct hf_err *err)
{
	enum { NUMBERS = 6, UNDOS = 3 + NUMBERS, INPUTS, VALUES };
	const int64_t numbers[NUMBERS] = { tool->result_ttl_ms, tool->tombstone_ttl_ms,
					   tool->deadline_ms,   (int64_t)tool->phases_count,
					   tool->crash_limit,   tool->park_ttl_ms };
	char texts[NUMBERS][24];
	const char *values[VALUES] = { tool->name, folder->version, tool->doc };
	for (size_t i = 0; i < NUMBERS; i++) {
		snprintf(texts[i], sizeof texts[i], "%" PRId64, numbers[i]);
		values[3 + i] = texts[i];
	}
	hf_cleanup(buf) struct buf undos = {}, inputs = {};
	undos_text(tool, &undos);
	values[UNDOS] = undos.data;
	inputs_text(tool, &inputs);
	values[INPUTS] = inputs.data;
	hf_try(run(db, "UPDATE holdfast.tool SET current = false WHERE name = $1 AND current", 1,
		   values, nullptr, err));
	hf_cleanup(result) PGresult *row = nullptr;
	hf_try(
	    run(db,
		"INSERT INTO holdfast.tool (name, version, doc, result_ttl_ms,"
		" tombstone_ttl_ms, deadline_ms, phases, crash_limit, park_ttl_ms, undos, inputs)"
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING tool",
		VALUES, values, &row, err));
	for (size_t i = 0; i < folder->count; i++)
		hf_try(file_insert(db, PQgetvalue(row, 0, 0), &folder->files[i], err));
	*id = (int32_t)strtol(PQgetvalue(row, 0, 0), nullptr, 10);
	return HF_OK;
}

static enum hf_code begin(PGconn *db, const char *name, struct hf_err *err)
{
	static const char *const settings[] = {
		"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
		"SET LOCAL search_path TO pg_catalog",
		"SET LOCAL client_min_messages TO warning",
		"SET LOCAL standard_conforming_strings TO on",
		/* DDL of schema.sql may meet a running phase; waiting, it would block those behind.
		 */
		"SET LOCAL lock_timeout TO '10s'",
	};
	for (size_t i = 0; i < countof(settings); i++)
		hf_try(run(db, settings[i], 0, nullptr, nullptr, err));
	hf_cleanup(result) PGresult *found = nullptr;
	hf_try(run(db, "SELECT to_regclass('holdfast.pack') IS NOT NULL", 0, nullptr, &found, err));
	if (strcmp(PQgetvalue(found, 0, 0), "t") != 0)
		return hf_fail(err, HF_MISSING,
			       "the database has not this release's schema of Holdfast: "
			       "run `holdfast migrate`");
	return run(db,
		   "SELECT pg_advisory_xact_lock(hashtext('holdfast tools apply'), hashtext($1))",
		   1, &name, nullptr, err);
}

static enum hf_code version_apply(PGconn *db, const struct tool_folder *folder,
				  const struct tool *tool, enum applied *applied, int32_t *id,
				  struct hf_err *err)
{
	const char *values[2] = { tool->name, folder->version };
	hf_cleanup(result) PGresult *known = nullptr;
	hf_try(run(db, "SELECT tool, current FROM holdfast.tool WHERE name = $1 AND version = $2",
		   2, values, &known, err));
	if (PQntuples(known) == 0) {
		*applied = APPLIED_NEW;
		if (needs_role(folder, tool))
			hf_try(sql_run(db, folder, tool, err));
		return rows_insert(db, folder, tool, id, err);
	}
	*id = (int32_t)strtol(PQgetvalue(known, 0, 0), nullptr, 10);
	*applied = *PQgetvalue(known, 0, 1) == 't' ? APPLIED_STOOD : APPLIED_BACK;
	if (*applied == APPLIED_STOOD)
		return HF_OK;
	hf_try(run(db, "UPDATE holdfast.tool SET current = false WHERE name = $1 AND current", 1,
		   values, nullptr, err));
	return run(db, "UPDATE holdfast.tool SET current = true WHERE name = $1 AND version = $2",
		   2, values, nullptr, err);
}

static enum hf_code apply(PGconn *db, const struct tool_folder *folder, const struct tool *tool,
			  const struct pack *pack, enum applied *applied, int32_t *id,
			  struct hf_err *err)
{
	bool changed;
	hf_try(begin(db, pack->name, err));
	if (tool)
		hf_try(version_apply(db, folder, tool, applied, id, err));
	hf_try(pack_apply(db, pack, &changed, err));
	if (!tool)
		*applied = changed ? APPLIED_NEW : APPLIED_STOOD;
	return HF_OK;
}

enum hf_code tool_apply(PGconn *db, const struct tool_folder *folder, const struct tool *tool,
			const struct pack *pack, enum applied *applied, int32_t *id,
			struct hf_err *err)
{
	hf_assert(db);
	hf_assert(applied);
	hf_assert(pack->has_tool == (tool != nullptr));
	enum hf_code code = apply(db, folder, tool, pack, applied, id, err);
	if (code == HF_OK)
		return pg_run(db, "COMMIT", 0, nullptr, nullptr, err);
	PQclear(PQexec(db, "ROLLBACK"));
	return code;
}
