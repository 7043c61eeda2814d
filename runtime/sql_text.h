/* sql_text.h - what can be said of a tool's SQL without Postgres: where statements end, and with
 * which word each begins. It gives a good reason early; what the SQL of a tool cannot do is ensured
 * by the role and the function that it runs in (tool_apply.c). */
#pragma once

#include "runtime/err.h"
#include "runtime/slice.h"

/* One statement that may run as a sql phase (a trailing semicolon is fine). HF_INVALID: the text is
 * "line N: <reason>". */
enum hf_code sql_check_statement(struct slice sql, struct hf_err *err);
/* A script of schema.sql: any number of statements, none of which ends the transaction, changes
 * the role or a setting, or copies from the client. */
enum hf_code sql_check_script(struct slice sql, struct hf_err *err);
