/* pack_apply.c - see pack_apply.h. */
#include "runtime/pack_apply.h"

#include <string.h>

#include "runtime/base.h"
#include "runtime/pgrun.h"

static const char *kind_name(enum pack_kind kind)
{
	return kind == PACK_PROMPT ? "prompt" : "resource";
}

static enum hf_code count_of(PGconn *db, const char *sql, const char *name, bool *any,
			     struct hf_err *err)
{
	hf_cleanup(result) PGresult *rows = nullptr;
	hf_try(pg_run(db, sql, 1, &name, &rows, err));
	*any = PQntuples(rows) > 0;
	return HF_OK;
}

/* A tool and a pack without one are never of one name. */
static enum hf_code name_check(PGconn *db, const struct pack *pack, struct hf_err *err)
{
	bool taken;
	hf_try(count_of(db,
			pack->has_tool ? "SELECT FROM holdfast.pack WHERE name = $1 AND NOT tool"
				       : "SELECT FROM holdfast.tool WHERE name = $1",
			pack->name, &taken, err));
	if (!taken)
		return HF_OK;
	if (pack->has_tool)
		return hf_fail(err, HF_INVALID, "tool.json#/name: a pack is called %s", pack->name);
	return hf_fail(err, HF_INVALID, "pack.json#/name: a tool is called %s", pack->name);
}

static enum hf_code entry_insert(PGconn *db, const struct pack *pack,
				 const struct pack_entry *entry, struct hf_err *err)
{
	const char *values[3] = { kind_name(entry->kind), entry->key, pack->name };
	hf_cleanup(result) PGresult *made = nullptr;
	hf_try(pg_run(db,
		      "INSERT INTO holdfast.pack_entry (kind, key, pack) VALUES ($1, $2, $3)"
		      " ON CONFLICT DO NOTHING RETURNING pack",
		      3, values, &made, err));
	if (PQntuples(made) > 0)
		return HF_OK;
	hf_cleanup(result) PGresult *other = nullptr;
	hf_try(pg_run(db, "SELECT pack FROM holdfast.pack_entry WHERE kind = $1 AND key = $2", 2,
		      values, &other, err));
	return hf_fail(err, HF_INVALID, "%s: %s %.80s is of pack %s already", entry->file,
		       values[0], entry->key, PQntuples(other) ? PQgetvalue(other, 0, 0) : "?");
}

enum hf_code pack_apply(PGconn *db, const struct pack *pack, bool *changed, struct hf_err *err)
{
	hf_assert(db && pack && changed);
	*changed = false;
	hf_try(pg_run(db, "SELECT pg_advisory_xact_lock(hashtext('holdfast packs'))", 0, nullptr,
		      nullptr, err));
	hf_try(name_check(db, pack, err));
	const char *values[4] = { pack->name, pack->version, pack->has_tool ? "true" : "false",
				  pack->doc.data };
	hf_cleanup(result) PGresult *stands = nullptr;
	hf_try(pg_run(db, "SELECT version FROM holdfast.pack WHERE name = $1", 1, values, &stands,
		      err));
	bool there = PQntuples(stands) > 0;
	*changed = there ? strcmp(PQgetvalue(stands, 0, 0), pack->version) != 0 : pack->count > 0;
	if (!*changed)
		return HF_OK;
	hf_try(pg_run(db, "DELETE FROM holdfast.pack WHERE name = $1", 1, values, nullptr, err));
	if (pack->count == 0)
		return HF_OK;
	hf_try(pg_run(db,
		      "INSERT INTO holdfast.pack (name, version, tool, doc)"
		      " VALUES ($1, $2, $3, $4)",
		      4, values, nullptr, err));
	for (size_t i = 0; i < pack->count; i++)
		hf_try(entry_insert(db, pack, &pack->entries[i], err));
	return HF_OK;
}
