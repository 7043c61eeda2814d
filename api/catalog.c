/* catalog.c - see catalog.h. Filled by api.c each time the store's number has changed; read by
 * tools.c, tasks.c and discover.c. */
#include "api/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/log.h"

static constexpr int64_t RESULT_TTL_MS = 604'800'000;      /* 7 days: while there is no tool */
static constexpr int64_t TOMBSTONE_TTL_MS = 7'776'000'000; /* 90 days */

struct catalog {
	int64_t number;
	struct catalog_entry *entries; /* by name */
	size_t count;
};

struct catalog *catalog_new(void)
{
	return hf_alloc(sizeof(struct catalog));
}

static void clear(struct catalog *catalog)
{
	for (size_t i = 0; i < catalog->count; i++) {
		param_headers_free(catalog->entries[i].param_headers);
		buf_deinit(&catalog->entries[i].json);
		tool_free(catalog->entries[i].tool);
	}
	free(catalog->entries);
	catalog->entries = nullptr;
	catalog->count = 0;
}

struct catalog *catalog_free(struct catalog *catalog)
{
	if (!catalog)
		return nullptr;
	clear(catalog);
	free(catalog);
	return nullptr;
}

static int by_name(const void *left, const void *right)
{
	const struct catalog_entry *a = left, *b = right;
	return strcmp(a->tool->name, b->tool->name);
}

static bool read_tool(const struct store_tool *stored, struct catalog_entry *entry)
{
	struct hf_err err = {};
	struct tool *tool;
	/* tool_new refuses names that are reserved, too. */
	if (tool_new(stored->doc, nullptr, &tool, &err) != HF_OK) {
		log_error("stored tool does not read", "version", LOG_INT(stored->id), "error",
			  err.text, nullptr);
		return false;
	}

	tool->id = stored->id;
	size_t len = stored->version.len < sizeof tool->version ? stored->version.len
								: sizeof tool->version - 1;
	memcpy(tool->version, stored->version.data, len);

	struct slice schema = tool->input_schema, property;
	*entry = (struct catalog_entry){
		.tool = tool,
		.param_headers = param_headers_new(schema),
		.names_effect_id =
		    json_pointer(schema, slice_of("/properties/effect_id"), &property),
	};
	catalog_publish(tool, &entry->json);
	return true;
}

void catalog_replace(struct catalog *catalog, int64_t number, const struct store_tool *tools,
		     size_t count)
{
	clear(catalog);
	catalog->number = number;
	catalog->entries = hf_alloc(count * sizeof *catalog->entries);
	for (size_t i = 0; i < count; i++)
		if (read_tool(&tools[i], &catalog->entries[catalog->count]))
			catalog->count++;
	if (catalog->count > 1)
		qsort(catalog->entries, catalog->count, sizeof *catalog->entries, by_name);
}

int64_t catalog_number(const struct catalog *catalog)
{
	return catalog->number;
}

const struct catalog_entry *catalog_find(const struct catalog *catalog, struct slice name)
{
	for (size_t i = 0; i < catalog->count; i++)
		if (slice_is(name, catalog->entries[i].tool->name))
			return &catalog->entries[i];
	return nullptr;
}

const struct catalog_entry *catalog_find_version(const struct catalog *catalog, int32_t tool)
{
	for (size_t i = 0; i < catalog->count; i++)
		if (catalog->entries[i].tool->id == tool)
			return &catalog->entries[i];
	return nullptr;
}

/* As strcmp orders them. */
static bool comes_behind(const char *name, struct slice after)
{
	size_t len = strlen(name), least = len < after.len ? len : after.len;
	int order = least ? memcmp(name, after.data, least) : 0;
	return order > 0 || (order == 0 && len > after.len);
}

void catalog_page(const struct catalog *catalog, struct slice after, size_t most, struct buf *out,
		  struct slice *last)
{
	hf_assert(most > 0);

	size_t at = 0, taken = 0;
	*last = (struct slice){};
	while (at < catalog->count && !comes_behind(catalog->entries[at].tool->name, after))
		at++;
	for (; at < catalog->count && taken < most; at++, taken++) {
		if (taken > 0)
			buf_add_byte(out, ',');
		buf_add_slice(out, buf_slice(&catalog->entries[at].json));
	}
	if (at < catalog->count)
		*last = slice_of(catalog->entries[at - 1].tool->name);
}

int64_t catalog_result_ttl_ms(const struct catalog *catalog)
{
	int64_t least = INT64_MAX;
	for (size_t i = 0; i < catalog->count; i++)
		if (catalog->entries[i].tool->effect_id != EFFECT_ID_NONE &&
		    catalog->entries[i].tool->result_ttl_ms < least)
			least = catalog->entries[i].tool->result_ttl_ms;
	return least < INT64_MAX ? least : RESULT_TTL_MS;
}

int64_t catalog_tombstone_ttl_ms(const struct catalog *catalog)
{
	int64_t least = INT64_MAX;
	for (size_t i = 0; i < catalog->count; i++)
		if (catalog->entries[i].tool->effect_id != EFFECT_ID_NONE &&
		    catalog->entries[i].tool->tombstone_ttl_ms < least)
			least = catalog->entries[i].tool->tombstone_ttl_ms;
	return least < INT64_MAX ? least : TOMBSTONE_TTL_MS;
}

/* "7 days", "36 hours", "90 seconds": in the largest unit that is exact. */
static void add_duration(int64_t ms, struct buf *out)
{
	static const struct {
		int64_t ms;
		const char *name;
	} units[] = { { 86'400'000, "day" },
		      { 3'600'000, "hour" },
		      { 60'000, "minute" },
		      { 1'000, "second" } };
	for (size_t i = 0; i < countof(units); i++) {
		if (ms < units[i].ms || ms % units[i].ms != 0)
			continue;
		int64_t count = ms / units[i].ms;
		buf_add_format(out, "%lld %s%s", (long long)count, units[i].name,
			       count == 1 ? "" : "s");
		return;
	}
	buf_add_format(out, "%lld ms", (long long)ms);
}

/* The tool's own text, and what every tool here does on a repeat: a model reads nothing else. */
static void add_description(const struct tool *tool, struct buf *out)
{
	hf_cleanup(buf) struct buf text = {};
	buf_add_text(&text, tool->description);
	if (tool->effect_id == EFFECT_ID_NONE) {
		json_string_encode(buf_slice(&text), out);
		return;
	}
	buf_add_text(&text,
		     "\n\nRepeats: use a new effect_id (a UUID, say) for each new piece of "
		     "work. To repeat a call, after a lost answer for example, send the same "
		     "effect_id with the same arguments: the same task and its result come "
		     "back, and nothing runs twice. The same effect_id with other arguments "
		     "is refused. Results are kept for ");
	add_duration(tool->result_ttl_ms, &text);
	buf_add_text(&text, " after the end.");
	if (tool->intent_window_ms > 0) {
		buf_add_text(&text, " A call without effect_id joins the first call of yours with "
				    "equal arguments, and gets its result, for ");
		add_duration(tool->intent_window_ms, &text);
		buf_add_text(&text, " from that first call; to run it again earlier, send a new "
				    "effect_id.");
	}
	json_string_encode(buf_slice(&text), out);
}

static void add_annotations(const struct tool *tool, struct buf *out)
{
	struct slice hint;
	bool add =
	    tool->effect_id == EFFECT_ID_REQUIRED &&
	    (!tool->annotations.len || !json_member(tool->annotations, "idempotentHint", &hint));
	if (!add) {
		if (tool->annotations.len) {
			buf_add_text(out, ",\"annotations\":");
			buf_add_slice(out, tool->annotations);
		}
		return;
	}

	buf_add_text(out, ",\"annotations\":{\"idempotentHint\":true");
	struct slice name, value;
	if (tool->annotations.len) {
		for (size_t at = 0; json_object_next(tool->annotations, &at, &name, &value);) {
			buf_add_byte(out, ',');
			buf_add_slice(out, name);
			buf_add_byte(out, ':');
			buf_add_slice(out, value);
		}
	}
	buf_add_byte(out, '}');
}

/* What of the extension dev.holdfast/effects differs by tool. */
static void add_effects(const struct tool *tool, struct buf *out)
{
	static const char *const rules[] = {
		[EFFECT_ID_REQUIRED] = "required",
		[EFFECT_ID_OPTIONAL] = "optional",
		[EFFECT_ID_NONE] = "none",
	};
	buf_add_format(out, ",\"_meta\":{\"dev.holdfast/effects\":{\"effectId\":\"%s\"",
		       rules[tool->effect_id]);
	if (tool->effect_id != EFFECT_ID_NONE)
		buf_add_format(out, ",\"retentionMs\":%lld,\"tombstoneMs\":%lld",
			       (long long)tool->result_ttl_ms, (long long)tool->tombstone_ttl_ms);
	if (tool->effect_id_fallback) {
		buf_add_text(out, ",\"fallback\":");
		json_string_encode(slice_of(tool->effect_id_fallback), out);
	}
	if (tool->intent_window_ms > 0)
		buf_add_format(out, ",\"intentWindowMs\":%lld", (long long)tool->intent_window_ms);
	buf_add_text(out, "}}");
}

void catalog_publish(const struct tool *tool, struct buf *out)
{
	buf_add_text(out, "{\"name\":");
	json_string_encode(slice_of(tool->name), out);
	if (tool->title) {
		buf_add_text(out, ",\"title\":");
		json_string_encode(slice_of(tool->title), out);
	}
	buf_add_text(out, ",\"description\":");
	add_description(tool, out);
	buf_add_text(out, ",\"inputSchema\":");
	buf_add_slice(out, tool->input_schema);
	if (tool->output_schema.len) {
		buf_add_text(out, ",\"outputSchema\":");
		buf_add_slice(out, tool->output_schema);
	}
	add_annotations(tool, out);
	add_effects(tool, out);
	buf_add_byte(out, '}');
}
