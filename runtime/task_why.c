#include "runtime/task_why.h"

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/id.h"
#include "runtime/json.h"
#include "runtime/pgrun.h"
#include "runtime/terminal.h"

static constexpr size_t WHY_COLUMNS = 1000;

/* Its parameters stand in its head. */
static const char why_sql[] = {
#embed "sql/admin/task_why.sql" suffix(, )
	0
};

enum hf_code task_why_ask(PGconn *conn, const struct task_id *id, PGresult **row,
			  struct hf_err *err)
{
	char week[12];
	hf_cleanup(text) char *task = bytea_text(id->bytes, sizeof id->bytes);
	snprintf(week, sizeof week, "%d", task_id_week(id));
	const char *const values[] = { week, task };
	return pg_run(conn, why_sql, countof(values), values, row, err);
}

bool task_why_print(FILE *out, struct slice answer, bool *act)
{
	struct slice why, acts;
	if (!json_member(answer, "why", &why) || !json_member(answer, "act", &acts))
		return false;
	hf_cleanup(buf) struct buf text = {};
	json_string_decode(why, &text);
	print_cut(out, buf_slice(&text), WHY_COLUMNS);
	fputc('\n', out);
	if (act && json_type_of(acts) == JSON_TRUE)
		*act = true;
	return true;
}

bool task_why_tell(PGconn *conn, const struct task_id *id)
{
	hf_cleanup(result) PGresult *row = nullptr;
	return task_why_ask(conn, id, &row, nullptr) == HF_OK && PQntuples(row) == 1 &&
	       task_why_print(stderr, slice_of(PQgetvalue(row, 0, 0)), nullptr);
}
