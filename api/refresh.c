#include "api/refresh.h"

#include <ev.h>
#include <stdlib.h>

#include "api/request.h"
#include "runtime/base.h"
#include "runtime/store.h"

static constexpr double REFRESH_S = 1.0;

struct refresh {
	struct ev_loop *loop;
	struct store *store;
	struct refresh_hooks hooks;
	ev_timer timer;
	bool reading;
	struct request *waiting; /* for the catalog that is being read */
	struct request *next;    /* came while it was read: for the one after */
};

static void read_catalog(struct refresh *refresh);

static void resume(struct request *waiting, enum hf_code code, const struct hf_err *err)
{
	while (waiting) {
		struct request *request = waiting;
		waiting = request->next_waiting;
		request->looked_again = true;
		if (code != HF_OK)
			request_unavailable(request, code, err, "no");
		else
			request->go_on(request);
	}
}

static void on_catalog(void *ctx, enum hf_code code, const struct store_catalog *found,
		       const struct hf_err *err)
{
	struct refresh *refresh = ctx;
	struct request *waiting = refresh->waiting;
	refresh->waiting = nullptr;
	refresh->reading = false;
	if (code == HF_OK && found->number != refresh->hooks.known(refresh->hooks.ctx))
		refresh->hooks.changed(refresh->hooks.ctx, found);
	resume(waiting, code, err); /* none of them waits again */
	hf_assert(!refresh->waiting);

	refresh->waiting = refresh->next;
	refresh->next = nullptr;
	if (refresh->waiting && refresh->waiting->api->closing) {
		waiting = refresh->waiting;
		refresh->waiting = nullptr;
		resume(waiting, HF_CANCELLED, nullptr);
	} else if (refresh->waiting) {
		read_catalog(refresh);
	}
}

static void read_catalog(struct refresh *refresh)
{
	if (refresh->reading)
		return;
	refresh->reading = true;
	store_catalog(refresh->store, refresh->hooks.known(refresh->hooks.ctx), on_catalog,
		      refresh);
}

void refresh_look_again(struct request *request, void (*go_on)(struct request *request))
{
	struct refresh *refresh = request->api->refresh;
	request->go_on = go_on;
	if (request->api->closing) {
		request_unavailable(request, HF_CANCELLED, nullptr, "no");
		return;
	}
	/* A reading that is on its way may have begun before the tool was applied. */
	struct request **list = refresh->reading ? &refresh->next : &refresh->waiting;
	request->next_waiting = *list;
	*list = request;
	read_catalog(refresh);
}

bool refresh_has_read(const struct refresh *refresh)
{
	return refresh->hooks.known(refresh->hooks.ctx) != 0;
}

static void on_time(struct ev_loop *, ev_timer *timer, int)
{
	read_catalog(container_of(timer, struct refresh, timer));
}

struct refresh *refresh_new(struct ev_loop *loop, struct store *store,
			    const struct refresh_hooks *hooks)
{
	struct refresh *refresh = hf_alloc(sizeof *refresh);
	refresh->loop = loop;
	refresh->store = store;
	refresh->hooks = *hooks;
	ev_timer_init(&refresh->timer, on_time, 0, REFRESH_S);
	ev_timer_start(loop, &refresh->timer);
	return refresh;
}

struct refresh *refresh_free(struct refresh *refresh)
{
	if (refresh)
		ev_timer_stop(refresh->loop, &refresh->timer);
	free(refresh);
	return nullptr;
}
