/* task_why.h - the one sentence of `holdfast task why`, for the command and for the acts that are
 * refused because of what it says. */
#pragma once

#include <libpq-fe.h>
#include <stdio.h>

#include "runtime/err.h"
#include "runtime/slice.h"

struct task_id;

/* One row with one JSON object, or none where there is no such task; the caller clears it. */
enum hf_code task_why_ask(PGconn *conn, const struct task_id *id, PGresult **row,
			  struct hf_err *err);

/* Prints the sentence of such an object as a line. `act`, nullable, is set where somebody has to do
 * something. False, and nothing is printed: it is no such object. */
bool task_why_print(FILE *out, struct slice answer, bool *act);

/* Both, on stderr. False: there is no such task, or it cannot be asked. */
bool task_why_tell(PGconn *conn, const struct task_id *id);
