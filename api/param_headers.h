/* param_headers.h - the arguments of a tool that stand in Mcp-Param-* headers too, because its
 * inputSchema marks them with x-mcp-header (A4). Read from the schema once, when the catalog is. */
#pragma once

#include "api/call.h"
#include "runtime/arena.h"
#include "runtime/slice.h"

struct param_headers;
/* Of a schema that passed tool_new; nullptr where it marks none. */
[[nodiscard]] struct param_headers *param_headers_new(struct slice input_schema);
struct param_headers *param_headers_free(struct param_headers *headers); /* takes nullptr */

/* nullptr, or what is wrong: a marked argument that is there and not null stands in its header,
 * once, and says the same; one that is not, stands in none. `headers` nullable, `arguments` an
 * object or empty. Headers that no argument is marked with are nobody's business. */
const char *param_headers_fault(const struct param_headers *headers, const struct call *call,
				struct slice arguments, struct arena *arena);
