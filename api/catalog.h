/* catalog.h - the tools that calls may name, as last read from the store, and how they are
 * published. Replaced whole; what it hands out is valid until then, so nothing keeps a pointer
 * across a callback. */
#pragma once

#include <stdint.h>

#include "api/param_headers.h"
#include "runtime/buf.h"
#include "runtime/store.h"
#include "runtime/tool.h"

struct catalog_entry {
	struct tool *tool;
	struct param_headers *param_headers; /* nullptr where the schema marks no argument */
	struct buf json;                     /* as published */
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
const struct catalog_entry *catalog_find_version(const struct catalog *catalog, int32_t tool);

/* Appends up to `most` tools as JSON, with commas between, whose names come behind `after`, in the
 * order of their names. Where more follow, `last` is the name of the last one appended; else empty.
 */
void catalog_page(const struct catalog *catalog, struct slice after, size_t most, struct buf *out,
		  struct slice *last);
/* How long any tool keeps results and tombstones at least. */
int64_t catalog_result_ttl_ms(const struct catalog *catalog);
int64_t catalog_tombstone_ttl_ms(const struct catalog *catalog);

/* A tool as a client sees it. */
void catalog_publish(const struct tool *tool, struct buf *out);
