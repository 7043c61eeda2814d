/* task_find.c - see task_find.h. Called by cmd_task.c, which shows all that bear an effect ID, and
 * by the acts, each of which is for one task. */
#include "runtime/task_find.h"

#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/id.h"
#include "runtime/key.h"
#include "runtime/pgrun.h"

/* Its parameter stands in its head. */
static const char effects_sql[] = {
#embed "sql/admin/task_effects.sql" suffix(, )
	0
};

/* An effect ID alone is no key: it belongs to an owner and a tool, so the digests of all pairs are
 * looked up. The effect table keeps no text. */
enum hf_code effects_find(PGconn *conn, const char *effect_id, PGresult **effects,
			  struct hf_err *err)
{
	hf_cleanup(result) PGresult *pairs = nullptr;
	*effects = nullptr;
	hf_try(pg_run(conn,
		      "SELECT p.owner, t.name FROM holdfast.principal p"
		      " CROSS JOIN (SELECT DISTINCT name FROM holdfast.tool) t",
		      0, nullptr, &pairs, err));
	hf_cleanup(buf) struct buf digests = {};
	for (int i = 0; i < PQntuples(pairs); i++) {
		unsigned char digest[EFFECT_DIGEST_BYTES];
		char text[2 * EFFECT_DIGEST_BYTES + 1];
		effect_digest(strtoll(PQgetvalue(pairs, i, 0), nullptr, 10),
			      slice_of(PQgetvalue(pairs, i, 1)), slice_of(effect_id), digest);
		buf_add_format(&digests, "%s\"\\\\x%s\"", i ? "," : "{",
			       hex_format(digest, sizeof digest, text));
	}
	if (digests.len == 0)
		return HF_OK;
	buf_add_byte(&digests, '}');
	const char *const values[] = { digests.data };
	return pg_run(conn, effects_sql, countof(values), values, effects, err);
}

enum hf_code task_find(PGconn *conn, const char *name, struct task_id *id, struct hf_err *err)
{
	if (task_id_parse(slice_of(name), id))
		return HF_OK;
	hf_cleanup(result) PGresult *effects = nullptr;
	hf_try(effects_find(conn, name, &effects, err));
	int count = effects ? PQntuples(effects) : 0;
	if (count == 0)
		return hf_fail(err, HF_MISSING,
			       "nothing was done: no task has the ID or the effect ID `%s`; "
			       "`holdfast task list` shows the newest",
			       name);
	if (count == 1 && task_id_parse(slice_of(PQgetvalue(effects, 0, 1)), id))
		return HF_OK;
	hf_cleanup(buf) struct buf all = {};
	for (int i = 0; i < count; i++)
		buf_add_format(&all, "%s%s (%s)", i ? ", " : "", PQgetvalue(effects, i, 1),
			       PQgetvalue(effects, i, 2));
	return hf_fail(err, HF_CONFLICT,
		       "nothing was done: %d tasks bear this effect ID; give the ID of one: %s",
		       count, all.data);
}
