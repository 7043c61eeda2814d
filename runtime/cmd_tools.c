/* cmd_tools.c - `holdfast tools check DIR… | apply DIR… | list [--json]`. Results go to stdout,
 * faults to stderr as "holdfast tools: DIR/FILE#POINTER: reason". Of several folders each is tried;
 * the exit code is that of the first that failed. */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/json.h"
#include "runtime/pack.h"
#include "runtime/pgrun.h"
#include "runtime/tool.h"
#include "runtime/tool_apply.h"
#include "runtime/tool_folder.h"

constexpr int VERSION_CHARS_SHOWN = 12;

/* The folder stands before the file that the text begins with. */
static int complain_of(const char *dir, const struct hf_err *err)
{
	size_t len = strlen(dir);
	bool slash = len && dir[len - 1] == '/';
	bool named = err->code == HF_MISSING || err->code == HF_DB;
	if (named)
		return command_failed("tools", err->text);
	fprintf(stderr, "holdfast tools: %s%s%s\n", dir, slash ? "" : "/", err->text);
	return EXIT_FAILED;
}

struct opened {
	struct tool_folder *folder;
	struct tool *tool; /* nullptr: prompts and resources alone */
	struct pack *pack;
};

static void hf_cleanup_opened(struct opened *opened)
{
	pack_free(opened->pack);
	tool_free(opened->tool);
	tool_folder_free(opened->folder);
}

static enum hf_code folder_open(const char *dir, struct opened *opened, struct hf_err *err)
{
	hf_try(tool_folder_read(dir, &opened->folder, err));
	if (tool_folder_find(opened->folder, "tool.json"))
		hf_try(tool_folder_tool(opened->folder, &opened->tool, err));
	return pack_new(opened->folder, opened->tool ? opened->tool->name : nullptr, &opened->pack,
			err);
}

static const char *plural(size_t count)
{
	return count == 1 ? "" : "s";
}

/* Silence makes a phase unsafe; that is to be a choice. */
static void tell_undeclared(const struct phase_spec *phase)
{
	if (phase->effect == EFFECT_UNSAFE && !phase->effect_declared)
		printf("  phase %s declares no effect, so it is unsafe: after a crash in it a "
		       "person has to say whether it happened\n",
		       phase->name);
}

static void tell_author(const struct tool *tool)
{
	for (size_t i = 0; tool && i < tool->phases_count; i++) {
		tell_undeclared(&tool->phases[i]);
		if (tool->phases[i].undo)
			tell_undeclared(tool->phases[i].undo);
	}
	if (tool && tool->remarks.len)
		fputs(tool->remarks.data, stdout);
}

/* --- check ------------------------------------------------------------------------------------ */

static int check(const char *dir)
{
	hf_cleanup(opened) struct opened opened = {};
	struct hf_err err = {};
	if (folder_open(dir, &opened, &err) != HF_OK)
		return complain_of(dir, &err);
	const struct pack *pack = opened.pack;
	printf("%s: good, version %.*s", pack->name, VERSION_CHARS_SHOWN, pack->version);
	if (opened.tool)
		printf(", %zu phase%s", opened.tool->phases_count,
		       plural(opened.tool->phases_count));
	if (pack->prompts > 0 || !opened.tool)
		printf(", %zu prompt%s", pack->prompts, plural(pack->prompts));
	if (pack->resources > 0 || !opened.tool)
		printf(", %zu resource%s", pack->resources, plural(pack->resources));
	printf(", %zu file%s\n", opened.folder->count, plural(opened.folder->count));
	tell_author(opened.tool);
	return EXIT_DONE;
}

/* --- The database ----------------------------------------------------------------------------- */

static int connect_admin(const char *dsn, PGconn **db)
{
	int code = command_connect("tools", dsn, false, db);
	if (code == EXIT_DONE)
		PQsetClientEncoding(*db, "UTF8");
	return code;
}

static int status_of(PGconn *db, const struct hf_err *err)
{
	if (PQstatus(db) != CONNECTION_OK)
		return EXIT_DATABASE;
	return err->code == HF_MISSING ? EXIT_MIGRATION : EXIT_FAILED;
}

/* --- apply ------------------------------------------------------------------------------------ */

static int apply(PGconn *db, const char *dir)
{
	static const char *const words[] = {
		[APPLIED_NEW] = "applied; API and workers take it up within a second",
		[APPLIED_BACK] = "was applied before, current again",
		[APPLIED_STOOD] = "nothing to do, is current",
	};
	hf_cleanup(opened) struct opened opened = {};
	struct hf_err err = {};
	if (folder_open(dir, &opened, &err) != HF_OK)
		return complain_of(dir, &err);
	enum applied applied;
	int32_t id;
	if (tool_apply(db, opened.folder, opened.tool, opened.pack, &applied, &id, &err) != HF_OK) {
		complain_of(dir, &err);
		return status_of(db, &err);
	}
	printf("%s: version %.*s %s\n", opened.pack->name, VERSION_CHARS_SHOWN,
	       opened.pack->version, words[applied]);
	tell_author(opened.tool);
	return EXIT_DONE;
}

/* The first that failed gives the exit code; those behind it are tried all the same. */
static int each_folder(bool applies, const char *dsn, const char **dirs)
{
	hf_cleanup(conn) PGconn *db = nullptr;
	int status = applies ? connect_admin(dsn, &db) : EXIT_DONE;
	for (; (db || !applies) && *dirs; dirs++) {
		int one = applies ? apply(db, *dirs) : check(*dirs);
		status = status == EXIT_DONE ? one : status;
	}
	return status;
}

/* --- list ------------------------------------------------------------------------------------- */

enum { LIST_NAME, LIST_VERSION, LIST_CURRENT, LIST_PHASES, LIST_APPLIED, LIST_OPEN };

static void print_table(const PGresult *rows)
{
	int count = PQntuples(rows), width = 4;
	for (int i = 0; i < count; i++) {
		int len = (int)strlen(PQgetvalue(rows, i, LIST_NAME));
		width = len > width ? len : width;
	}
	printf("%-*s  %-*s  CURRENT  PHASES  OPEN  APPLIED\n", width, "NAME", VERSION_CHARS_SHOWN,
	       "VERSION");
	for (int i = 0; i < count; i++)
		printf("%-*s  %.*s  %-7s  %6s  %4s  %s\n", width, PQgetvalue(rows, i, LIST_NAME),
		       VERSION_CHARS_SHOWN, PQgetvalue(rows, i, LIST_VERSION),
		       *PQgetvalue(rows, i, LIST_CURRENT) == 't' ? "yes" : "no",
		       PQgetvalue(rows, i, LIST_PHASES), PQgetvalue(rows, i, LIST_OPEN),
		       PQgetvalue(rows, i, LIST_APPLIED));
}

static void print_json(const PGresult *rows)
{
	hf_cleanup(buf) struct buf text = {};
	for (int i = 0; i < PQntuples(rows); i++) {
		buf_clear(&text);
		buf_add_text(&text, "{\"name\":");
		json_string_encode(slice_of(PQgetvalue(rows, i, LIST_NAME)), &text);
		buf_add_format(&text,
			       ",\"version\":\"%s\",\"current\":%s,\"phases\":%s,\"open\":%s,"
			       "\"applied\":\"%s\"}",
			       PQgetvalue(rows, i, LIST_VERSION),
			       *PQgetvalue(rows, i, LIST_CURRENT) == 't' ? "true" : "false",
			       PQgetvalue(rows, i, LIST_PHASES), PQgetvalue(rows, i, LIST_OPEN),
			       PQgetvalue(rows, i, LIST_APPLIED));
		puts(text.data);
	}
}

enum { PACK_NAME, PACK_VERSION, PACK_PROMPTS, PACK_RESOURCES, PACK_APPLIED };

static void print_packs(const PGresult *rows)
{
	if (PQntuples(rows) > 0)
		printf("\n%-*s  PROMPTS  RESOURCES  APPLIED               OF\n",
		       VERSION_CHARS_SHOWN, "VERSION");
	for (int i = 0; i < PQntuples(rows); i++)
		printf("%.*s  %7s  %9s  %s  %s\n", VERSION_CHARS_SHOWN,
		       PQgetvalue(rows, i, PACK_VERSION), PQgetvalue(rows, i, PACK_PROMPTS),
		       PQgetvalue(rows, i, PACK_RESOURCES), PQgetvalue(rows, i, PACK_APPLIED),
		       PQgetvalue(rows, i, PACK_NAME));
}

static void print_packs_json(const PGresult *rows)
{
	hf_cleanup(buf) struct buf text = {};
	for (int i = 0; i < PQntuples(rows); i++) {
		buf_clear(&text);
		buf_add_text(&text, "{\"pack\":");
		json_string_encode(slice_of(PQgetvalue(rows, i, PACK_NAME)), &text);
		buf_add_format(
		    &text,
		    ",\"version\":\"%s\",\"prompts\":%s,\"resources\":%s,\"applied\":\"%s\"}",
		    PQgetvalue(rows, i, PACK_VERSION), PQgetvalue(rows, i, PACK_PROMPTS),
		    PQgetvalue(rows, i, PACK_RESOURCES), PQgetvalue(rows, i, PACK_APPLIED));
		puts(text.data);
	}
}

/* `rows` is the caller's, whatever came. */
static int list_query(PGconn *db, const char *sql, PGresult **rows)
{
	struct hf_err err = {};
	return pg_run(db, sql, 0, nullptr, rows, &err) == HF_OK
		   ? EXIT_DONE
		   : command_refused("tools", &err, false);
}

static int list(const char *dsn, bool json)
{
	static constexpr char TOOLS[] =
	    "SELECT t.name, t.version, t.current, t.phases,"
	    " to_char(t.applied AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'),"
	    " (SELECT count(*) FROM holdfast.work w WHERE w.queue = t.tool)"
	    " FROM holdfast.tool t ORDER BY t.name, t.current DESC, t.applied DESC, t.tool DESC";
	static constexpr char PACKS[] =
	    "SELECT p.name, p.version, count(*) FILTER (WHERE e.kind = 'prompt'),"
	    " count(*) FILTER (WHERE e.kind = 'resource'),"
	    " to_char(p.applied AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
	    " FROM holdfast.pack p JOIN holdfast.pack_entry e ON e.pack = p.name"
	    " GROUP BY p.name ORDER BY p.name";
	hf_cleanup(conn) PGconn *db = nullptr;
	hf_cleanup(result) PGresult *tools = nullptr, *packs = nullptr;
	int status = connect_admin(dsn, &db);
	if (status == EXIT_DONE)
		status = list_query(db, TOOLS, &tools);
	if (status == EXIT_DONE)
		status = list_query(db, PACKS, &packs);
	if (status != EXIT_DONE)
		return status;
	if (json) {
		print_json(tools);
		print_packs_json(packs);
	} else {
		print_table(tools);
		print_packs(packs);
	}
	return EXIT_DONE;
}

/* --- The command ------------------------------------------------------------------------------ */

int cmd_tools(int argc, char **argv)
{
	static constexpr char ACTS[] = "give one of check, apply and list";
	bool json = false;
	const struct own_flag own[] = { { "json", .on = &json }, {} };
	hf_cleanup(config) struct config config;
	int code = command_load("tools", 't', argc, argv, own, &config);
	if (code != EXIT_DONE)
		return code;
	const char **words = config.arguments;
	int dirs_count = config.arguments_count - 1;
	if (dirs_count < 0)
		return command_usage("tools", ACTS);
	bool checks = strcmp(words[0], "check") == 0, applies = strcmp(words[0], "apply") == 0;
	bool lists = strcmp(words[0], "list") == 0;
	if (!checks && !applies && !lists)
		return command_usage("tools", ACTS);
	if (lists && dirs_count > 0)
		return command_usage("tools", "list takes no folder");
	if (!lists && json)
		return command_usage("tools", "--json goes with list");
	if (!lists && dirs_count == 0)
		return command_usage("tools", "give a folder with tool.json or pack.json in it");
	return lists ? list(config.dsn, json) : each_folder(applies, config.dsn, words + 1);
}
