/* plain_tool.h - tools without effect ID, which the API answers itself, at once, and of which
 * nothing is stored: fixtures of test packs. */
#pragma once

#include "api/request.h"
#include "runtime/tool.h"

/* Asks and answers; no string of the call holds NUL. Ends the request, now or after the tool's
 * progress was told. `tool` and `arguments` (an object) need live no longer than this call. */
void plain_tool_call(struct request *request, const struct tool *tool, struct slice arguments);
