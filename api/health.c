/* health.c - two answers for whoever starts, watches and balances API processes. Called by api.c.
 * They tell no secret, so they need no token and no Host. */
#include "api/api.h"
#include "api/call.h"
#include "api/catalog.h"
#include "api/presence.h"
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

void health_live(struct call *call)
{
	answer(call, 200, "{\"status\":\"ok\"}");
}

void health_ready(const struct api *api, struct call *call)
{
	if (api->draining)
		answer(call, 503, "{\"status\":\"draining\"}");
	else if (!store_ready(api->store) || !presence_incarnation(api->presence))
		answer(call, 503, "{\"status\":\"store away\"}");
	else if (catalog_number(api->catalog) == 0)
		answer(call, 503, "{\"status\":\"tools not read yet\"}");
	else
		answer(call, 200, "{\"status\":\"ready\"}");
}
