/* health.c - two answers for whoever starts, watches and balances API processes. Called by serve.c.
 * They tell no secret, so they need no token and no Host. */
#include "api/api.h"
#include "api/call.h"
#include "api/catalog.h"
#include "api/presence.h"
#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/lineage.h"
#include "runtime/store.h"

static void answer(struct call *call, int status, const char *body)
{
	if (!slice_is(call->method, "GET") && !slice_is(call->method, "HEAD")) {
		call_reply(call, &(struct reply){ .status = 405, .extra = "Allow: GET, HEAD\r\n" });
		return;
	}
	call_reply(call, &(struct reply){
			     .status = status,
			     .content_type = "application/json",
			     .body = slice_of(body),
			 });
}

const char *api_not_ready(const struct api *api)
{
	if (api->draining)
		return "draining";
	if (lineage_waits())
		return LINEAGE_WAITS;
	if (!store_ready(api->store) || !presence_incarnation(api->presence))
		return "store away";
	return catalog_number(api->catalog) == 0 ? "tools not read yet" : nullptr;
}

void health_live(struct call *call)
{
	answer(call, 200, "{\"status\":\"ok\"}");
}

void health_ready(const struct api *api, struct call *call)
{
	const char *why = api_not_ready(api);
	hf_cleanup(buf) struct buf body = {};
	buf_add_format(&body, "{\"status\":\"%s\"}", why ? why : "ready");
	answer(call, why ? 503 : 200, body.data);
}
