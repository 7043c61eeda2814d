/* intent_window.h - a call without any effect ID, on a tool that takes equal calls within a time
 * for one (R1.9; "intent_window_ms" in tool.json). What is merged: calls of the same owner on the
 * same tool with canonically equal arguments, none of which carries an effect ID. Until when: that
 * many ms after the first of them, by the database's clock; later ones do not make it longer. */
#pragma once

#include "api/accepting.h"
#include "api/request.h"

/* Finds the effect ID that `accepting` is to be accepted under, in place of the fresh one that it
 * has, and goes on; or ends the request. Its owner must be known. */
void intent_window_ask(struct request *request, struct accepting *accepting,
		       void (*go_on)(struct request *request));
