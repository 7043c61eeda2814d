/* ladder.h - the checks that each request climbs, in the order of protocol page A7; the first that
 * fails decides code and status. Pure functions of the request: no store, no clock. */
#pragma once

#include "api/call.h"
#include "api/rpc.h"
#include "runtime/arena.h"
#include "runtime/slice.h"

#define MCP_REVISION     "2026-07-28"
#define MCP_TASKS        "io.modelcontextprotocol/tasks"
#define MCP_SUBSCRIPTION "io.modelcontextprotocol/subscriptionId"

enum method {
#define METHOD(id, ...) METHOD_##id,
#include "api/methods.def"
#undef METHOD
	METHODS_COUNT,
};
const char *method_name(enum method method);

/* An answer that is an error. */
struct refusal {
	int status; /* of HTTP */
	enum rpc_code code;
	const char *message;
	struct slice data; /* JSON text, or empty */
	const char *extra; /* nullable: further header lines */
};
void refusal_set(struct refusal *refusal, int status, enum rpc_code code, const char *message);
/* Its client has to declare the Tasks extension for this. */
void refusal_set_tasks(struct refusal *refusal);

/* Who may come in at all; see config.def. */
struct gate {
	const char *allowed_hosts, *allowed_origins;
};

/* Step 1 for every path: Origin. */
[[nodiscard]] bool ladder_origin(const struct call *call, const struct gate *gate,
				 struct refusal *refusal);
/* Steps 1 to 3 for the MCP endpoint: Host, verb, media types. */
[[nodiscard]] bool ladder_gate(const struct call *call, const struct gate *gate,
			       struct refusal *refusal);

enum ladder {
	LADDER_GO_ON,
	LADDER_REFUSED,
	LADDER_NOTIFIED, /* a notification: 202 and nothing else */
};

struct ladder_top {
	enum method method;
	struct slice meta;         /* params._meta, an object */
	struct slice capabilities; /* what its client declares, an object */
	bool declares_tasks;
	int asks; /* what its client can be asked: a sum of INPUT_… of input.h */
};

/* Steps 8 to 14. What the message says goes into `arena`. */
enum ladder ladder_climb(const struct call *call, const struct rpc *rpc, struct arena *arena,
			 struct ladder_top *top, struct refusal *refusal);
