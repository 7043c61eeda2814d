/* catalog.c - see catalog.h. Filled by serve.c each time the store's number has changed. */
#include "api/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/log.h"

/* While there is no tool: 7 and 90 days. */
static constexpr struct catalog_keeps KEEPS = { 604'800'000, 7'776'000'000 };
static constexpr int64_t POLL_INTERVAL_MS = 1'000; /* of a tool that is no longer there */

struct catalog {
	int64_t number;
	struct list tools; /* of struct catalog_entry */
};

struct catalog *catalog_new(void)
{
	struct catalog *catalog = hf_alloc(sizeof *catalog);
	catalog_replace(catalog, 0, nullptr, 0);
	return catalog;
}

static void clear(struct catalog *catalog)
{
	struct catalog_entry *entries = catalog->tools.items;
	for (size_t i = 0; i < catalog->tools.count; i++) {
		param_headers_free(entries[i].param_headers);
		buf_deinit(&entries[i].json);
		tool_free(entries[i].tool);
	}
	free(entries);
}

struct catalog *catalog_free(struct catalog *catalog)
{
	if (!catalog)
		return nullptr;
	clear(catalog);
	free(catalog);
	return nullptr;
}

static void read_tool(struct catalog *catalog, const struct store_tool *stored)
{
	struct hf_err err = {};
	struct tool *tool;
	/* tool_new refuses names that are reserved, too. */
	if (tool_new(stored->doc, nullptr, &tool, &err) != HF_OK) {
		log_error("stored tool does not read", "version", LOG_INT(stored->id), "error",
			  err.text, nullptr);
		return;
	}

	tool->id = stored->id;
	size_t len = stored->version.len < sizeof tool->version ? stored->version.len
								: sizeof tool->version - 1;
	memcpy(tool->version, stored->version.data, len);

	struct slice property;
	struct catalog_entry *entry =
	    list_add(&catalog->tools, (struct list_item){ .key = slice_of(tool->name) });
	entry->tool = tool;
	entry->param_headers = param_headers_new(tool->input_schema);
	entry->names_effect_id =
	    json_pointer(tool->input_schema, slice_of("/properties/effect_id"), &property);
	catalog_publish(tool, &entry->json);
	entry->item.published = buf_slice(&entry->json);
}

void catalog_replace(struct catalog *catalog, int64_t number, const struct store_tool *tools,
		     size_t count)
{
	clear(catalog);
	*catalog = (struct catalog){
		.number = number,
		.tools = { .member = "tools", .size = sizeof(struct catalog_entry) },
	};
	for (size_t i = 0; i < count; i++)
		read_tool(catalog, &tools[i]);
	list_sort(&catalog->tools);
}

int64_t catalog_number(const struct catalog *catalog)
{
	return catalog->number;
}

const struct list *catalog_list(const struct catalog *catalog)
{
	return &catalog->tools;
}

const struct catalog_entry *catalog_find(const struct catalog *catalog, struct slice name)
{
	return list_find(&catalog->tools, name);
}

int64_t catalog_poll_interval_ms(const struct catalog *catalog, int32_t tool)
{
	const struct catalog_entry *entries = catalog->tools.items;
	for (size_t i = 0; i < catalog->tools.count; i++)
		if (entries[i].tool->id == tool)
			return entries[i].tool->poll_interval_ms;
	return POLL_INTERVAL_MS;
}

struct catalog_keeps catalog_keeps(const struct catalog *catalog)
{
	const struct catalog_entry *entries = catalog->tools.items;
	struct catalog_keeps least = { INT64_MAX, INT64_MAX };
	bool any = false;
	for (size_t i = 0; i < catalog->tools.count; i++) {
		const struct tool *tool = entries[i].tool;
		if (tool->effect_id == EFFECT_ID_NONE)
			continue;
		any = true;
		if (tool->result_ttl_ms < least.result_ttl_ms)
			least.result_ttl_ms = tool->result_ttl_ms;
		if (tool->tombstone_ttl_ms < least.tombstone_ttl_ms)
			least.tombstone_ttl_ms = tool->tombstone_ttl_ms;
	}
	return any ? least : KEEPS;
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
	if (tool->effect_id == EFFECT_ID_NONE) {
		json_string_encode(slice_of(tool->description), out);
		return;
	}
	buf_add_text(&text, tool->description);
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
	bool add = tool->effect_id == EFFECT_ID_REQUIRED &&
		   !json_member(tool->annotations, "idempotentHint", &hint);
	if (!add) {
		if (tool->annotations.len) {
			buf_add_text(out, ",\"annotations\":");
			buf_add_slice(out, tool->annotations);
		}
		return;
	}

	buf_add_text(out, ",\"annotations\":{\"idempotentHint\":true");
	struct slice name, value;
	for (size_t at = 0; json_object_next(tool->annotations, &at, &name, &value);) {
		buf_add_byte(out, ',');
		buf_add_slice(out, name);
		buf_add_byte(out, ':');
		buf_add_slice(out, value);
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
