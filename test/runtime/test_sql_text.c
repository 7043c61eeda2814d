/* What may be one statement of a sql phase, and what may stand in schema.sql. */
#include "runtime/sql_text.h"

#include <string.h>

#include "runtime/base.h"
#include "test/test.h"

struct sql_case {
	const char *sql;
	const char *refused; /* how the text begins; nullptr: accepted */
};

static void check(const struct sql_case *cases, size_t count,
		  enum hf_code (*run)(struct slice sql, struct hf_err *err))
{
	for (size_t i = 0; i < count; i++) {
		struct hf_err err = {};
		enum hf_code code = run(slice_of(cases[i].sql), &err);
		if (!cases[i].refused) {
			cr_expect_eq(code, HF_OK, "%s: %s", cases[i].sql, err.text);
			continue;
		}
		cr_expect_eq(code, HF_INVALID, "accepted: %s", cases[i].sql);
		cr_expect_eq(strncmp(err.text, cases[i].refused, strlen(cases[i].refused)), 0,
			     "%s\n  said     %s\n  expected %s", cases[i].sql, err.text,
			     cases[i].refused);
	}
}

HF_TEST(sql_text, one_statement_is_told_from_others)
{
	static const struct sql_case cases[] = {
		{ "SELECT 1", nullptr },
		{ "select 1;", nullptr },
		{ "SELECT 1;; -- end\n/* of ; it */ ", nullptr },
		{ "-- head\nWITH a AS (SELECT 1) SELECT * FROM a", nullptr },
		{ "((SELECT 1))", nullptr },
		{ "INSERT INTO t VALUES ($1) RETURNING '{}'", nullptr },
		{ "SELECT ';', E'\\';', \"a;b\", $$;$$, $x$;$$;$x$, '''; '", nullptr },
		{ "SELECT a$b$c FROM t", nullptr },
		{ "SELECT $1::json, $2::json", nullptr },
		{ "SELECT 1 /* a /* nested ; */ ; */", nullptr },
		{ "SELECT 'commit; set_config'", nullptr },
		{ "SELECT '\\'", nullptr },
		{ "", "line 1: holds no statement" },
		{ "-- nothing\n;", "line 1: holds no statement" },
		{ "SELECT 1; SELECT 2", "line 1: a second statement" },
		{ "SELECT 1\n;\n\nCOMMIT", "line 4: a second statement" },
		{ "SELECT '\\'; SELECT 2 --'", "line 1: a second statement" },
		{ "COMMIT", "line 1: a statement may not begin with COMMIT, but with SELECT" },
		{ "\nbegin", "line 2: a statement may not begin with begin" },
		{ "SET ROLE postgres", "line 1: a statement may not begin with SET" },
		{ "RESET ROLE", "line 1: a statement may not begin with RESET" },
		{ "DO $$ BEGIN END $$", "line 1: a statement may not begin with DO" },
		{ "CREATE TABLE t ()", "line 1: a statement may not begin with CREATE" },
		{ "COPY t FROM STDIN", "line 1: a statement may not begin with COPY" },
		{ "\"select\" 1", "line 1: a statement may not begin with select" },
		{ "(COMMIT)", "line 1: a statement may not begin with COMMIT" },
		{ "SELECT set_config('role', 'x', true)", "line 1: set_config is not allowed" },
		{ "SELECT pg_catalog.\"set_config\"('role', 'x', true)", "line 1: set_config" },
		{ "SELECT 'open", "line 1: a string, quoted name or comment does not end" },
		{ "SELECT 1 /* open", "line 1: a string, quoted name or comment does not end" },
		{ "SELECT $a$ open $b$", "line 1: a string, quoted name or comment does not end" },
		{ "SELECT \"open", "line 1: a string, quoted name or comment does not end" },
	};
	check(cases, countof(cases), sql_check_statement);
}

HF_TEST(sql_text, a_script_stays_in_its_transaction_and_role)
{
	static const struct sql_case cases[] = {
		{ "CREATE TABLE t (a int); INSERT INTO t VALUES (1);\nANALYZE t", "line 2: a st" },
		{ "CREATE TABLE t (a int); INSERT INTO t VALUES (1);", nullptr },
		{ "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT 1; SELECT 2 $$;",
		  nullptr },
		{ "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true "
		  "THEN "
		  "1 END; END; CREATE TABLE t ()",
		  nullptr },
		{ "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END;\nCOMMIT",
		  "line 2: a statement may not begin with COMMIT" },
		{ "CREATE FUNCTION f() RETURNS void LANGUAGE sql SET search_path = x AS ''",
		  nullptr },
		{ "CREATE TABLE t ();\nCOMMIT;", "line 2: a statement may not begin with COMMIT" },
		{ "END", "line 1: a statement may not begin with END" },
		{ "ROLLBACK", "line 1: a statement may not begin with ROLLBACK" },
		{ "RESET ROLE", "line 1: a statement may not begin with RESET" },
		{ "SET search_path = public", "line 1: a statement may not begin with SET" },
		{ "COPY t FROM STDIN", "line 1: a statement may not begin with COPY" },
		{ "PREPARE TRANSACTION 'x'", "line 1: a statement may not begin with PREPARE" },
		{ "DO $$ BEGIN PERFORM 1; END $$", nullptr },
		{ "\\i other.sql", "line 1: a statement may not begin with \\" },
	};
	check(cases, countof(cases), sql_check_script);
}

HF_TEST(sql_text, a_nul_byte_is_refused)
{
	struct hf_err err = {};
	struct slice sql = { "SELECT 1\0;COMMIT", 16 };
	cr_expect_eq(sql_check_statement(sql, &err), HF_INVALID);
}
