/* intent_window.c - see intent_window.h. Called by tools.c, right before acceptance: what was
 * chosen is durable by then, and the effect of that ID decides everything else (V1). */
#include "api/intent_window.h"

#include "runtime/base.h"
#include "runtime/store.h"

static void on_chosen(void *ctx, enum hf_code code, struct slice effect_id,
		      const struct hf_err *err)
{
	struct request *request = ctx;
	struct accepting *accepting = request->detail;
	struct arena *arena = request->call->arena;
	hf_assert(request->principal->accepts > 0);
	request->principal->accepts--;
	if (code != HF_OK) {
		request_unavailable(request, code, err, "no");
		return;
	}
	accepting->effect_id.text = arena_slice(arena, effect_id);
	accepting->call.effect_id = accepting->effect_id.text;
	accepting->intent_window_ms = 0;
	request->go_on(request);
}

void intent_window_ask(struct request *request, struct accepting *accepting,
		       void (*go_on)(struct request *request))
{
	hf_assert(accepting->intent_window_ms > 0);
	hf_assert(accepting == request->detail);

	request->go_on = go_on;
	request->principal->accepts++;
	store_intent_window(request->api->store, &accepting->call, accepting->effect_id.text,
			    accepting->intent_window_ms, on_chosen, request);
}
