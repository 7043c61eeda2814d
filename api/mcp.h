/* mcp.h - one POST to the MCP endpoint, from the call to its method's handler. */
#pragma once

#include "api/request.h"

/* Climbs the ladder and hands over to a handler; ends the call, now or later. */
void mcp_call(struct api *api, struct call *call);

/* Handlers, one for each row of methods.def. Each ends its request. */
#define METHOD(id, name, name_param, name_required, needs_tasks, handler) \
	void mcp_##handler(struct request *request);
#include "api/methods.def"
#undef METHOD
