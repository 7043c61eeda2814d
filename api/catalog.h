/* catalog.h - the tools that calls may name, as last read from the store, and how they are
 * published. Replaced whole; what it hands out is valid until then, so nothing keeps a pointer
 * across a callback. */
#pragma once

#include <stdint.h>

#include "api/list.h"
#include "api/param_headers.h"
#include "runtime/buf.h"
#include "runtime/store.h"
#include "runtime/tool.h"

struct catalog_entry {
	struct list_item item; /* by name */
	struct tool *tool;
	struct param_headers *param_headers; /* nullptr where the schema marks no argument */
	struct buf json;                     /* what `item` publishes */
	bool names_effect_id;                /* the schema has a property effect_id */
};

struct catalog;
[[nodiscard]] struct catalog *catalog_new(void);
struct catalog *catalog_free(struct catalog *catalog); /* takes nullptr; returns nullptr */

/* A tool that does not read is left out and logged: the others stay callable. */
void catalog_replace(struct catalog *catalog, int64_t number, const struct store_tool *tools,
		     size_t count);
int64_t catalog_number(const struct catalog *catalog); /* 0: nothing was read yet */

const struct catalog_entry *catalog_find(const struct catalog *catalog, struct slice name);
const struct list *catalog_list(const struct catalog *catalog); /* by name */

/* How often a task of that version of a tool is to be polled, also when it is no longer there. */
int64_t catalog_poll_interval_ms(const struct catalog *catalog, int32_t tool);

struct catalog_keeps {
	int64_t result_ttl_ms, tombstone_ttl_ms;
};
/* What all tools keep at least. */
struct catalog_keeps catalog_keeps(const struct catalog *catalog);

/* A tool as a client sees it. */
void catalog_publish(const struct tool *tool, struct buf *out);
