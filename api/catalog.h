/* catalog.h - the tools that calls may name, as last read from the store, and how they are
 * published. Replaced whole; what it hands out is valid until then, so nothing keeps a pointer
 * across a callback. */
#pragma once

#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/store.h"
#include "runtime/tool.h"

struct catalog_entry {
	struct tool *tool;
	bool has_param_headers; /* the schema marks an argument with x-mcp-header */
	bool names_effect_id;   /* the schema has a property effect_id */
};

struct catalog;
[[nodiscard]] struct catalog *catalog_new(void);
struct catalog *catalog_free(struct catalog *catalog); /* takes nullptr; returns nullptr */

/* A tool that does not read is left out and logged: the others stay callable. */
void catalog_replace(struct catalog *catalog, int64_t number, const struct store_tool *tools,
		     size_t count);
int64_t catalog_number(const struct catalog *catalog); /* 0: nothing was read yet */

const struct catalog_entry *catalog_find(const struct catalog *catalog, struct slice name);
const struct catalog_entry *catalog_find_version(const struct catalog *catalog, int32_t tool);

/* The JSON array of all tools, sorted by name: `tools` of tools/list. */
struct slice catalog_tools_json(const struct catalog *catalog);
/* How long any tool keeps results and tombstones at least. */
int64_t catalog_result_ttl_ms(const struct catalog *catalog);
int64_t catalog_tombstone_ttl_ms(const struct catalog *catalog);

/* A tool as a client sees it. */
void catalog_publish(const struct tool *tool, struct buf *out);
