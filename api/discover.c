/* discover.c - server/discover: what a client may do here (A9). The Tasks extension is advertised
 * as exactly {}: a real client takes any member in it for "no tasks" (T1.3). What is ours stands
 * under our own extension. What is offered is the same whether or not a pack is there: clients keep
 * this answer, and an empty list is one. */
#include "api/catalog.h"
#include "api/effect_id.h"
#include "api/mcp.h"
#include "api/result.h"
#include "runtime/base.h"
#include "runtime/json.h"

static constexpr int64_t CACHE_TTL_MS = 60'000;

static constexpr char INSTRUCTIONS[] =
    "Tools here run as durable tasks. Give each new piece of work its own effect_id and send the "
    "same effect_id again to repeat a call: the first task and its result come back, and nothing "
    "is done twice.";

void mcp_discover(struct request *request)
{
	const struct catalog_keeps keeps = catalog_keeps(request->api->catalog);
	hf_cleanup(buf) struct buf result = {};
	buf_add_text(&result, "{\"resultType\":\"complete\",\"supportedVersions\":[\"" MCP_REVISION
			      "\"],\"capabilities\":{\"tools\":{\"listChanged\":true},\"prompts\":{"
			      "},\"resources\":{},"
			      "\"completions\":{},\"extensions\":{\"" MCP_TASKS
			      "\":{},\"dev.holdfast/effects\":{");
	buf_add_format(&result, "\"retentionMs\":%lld,\"tombstoneMs\":%lld,\"carriers\":[",
		       (long long)keeps.result_ttl_ms, (long long)keeps.tombstone_ttl_ms);
	for (int i = 0; i < EFFECT_CARRIERS; i++) {
		if (i > 0)
			buf_add_byte(&result, ',');
		json_string_encode(slice_of(effect_carrier_name((enum effect_carrier)i)), &result);
	}
	buf_add_text(&result, "]}}},\"instructions\":");
	json_string_encode(slice_of(INSTRUCTIONS), &result);
	buf_add_format(&result, ",\"ttlMs\":%lld,\"cacheScope\":\"public\"",
		       (long long)CACHE_TTL_MS);
	result_end(&result);
	request_reply(request, buf_slice(&result));
}
