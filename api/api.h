/* api.h - the API process: one loop, one listener, one store, and what all requests share. It holds
 * nothing that a restart would lose. */
#pragma once

#include <ev.h>
#include <stdint.h>

#include "api/ladder.h"
#include "runtime/stop_signals.h"

struct auth;
struct call;
struct catalog;
struct companions;
struct config;
struct follow;
struct keyring;
struct listener;
struct listens;
struct monitor;
struct packs;
struct plains;
struct presence;
struct refresh;
struct store;
struct watch;

struct api {
	const struct config *config;
	struct gate gate;
	struct auth *auth;
	struct catalog *catalog;
	struct packs *packs; /* replaced with the catalog */
	struct store *store;
	struct presence *presence;
	struct refresh *refresh;
	struct watch *watch;
	struct plains *plains;
	struct follow *follow;
	struct listens *listens;
	struct companions *companions;
	struct ev_loop *loop;
	struct keyring *keyring; /* signs what clients carry (request_state.h) */
	int key_version;         /* for new tasks */
	size_t artifact_reads;   /* that the store is at, counted by artifacts.c */
	bool draining;           /* and /readyz says so */
	bool refused;            /* by the store: nothing was served */
	bool closing;            /* the store is being closed: nothing new is asked of it */
	/* private */
	struct listener *listener;
	struct monitor *monitor;
	ev_timer drain;
	struct stop_signals signals;
	bool refusing;          /* connections, as drain_delay_ms is over */
	int64_t drain_until_ms; /* of drain_delay_ms, then of drain_ms, on the boot clock */
	bool leaving;           /* the store is being told that nobody is here any more */
};

/* health.c: GET /healthz (the process runs) and GET /readyz (send it requests). */
void health_live(struct call *call);
void health_ready(const struct api *api, struct call *call);
/* Why requests should go elsewhere, in a few words; nullptr: they need not. */
const char *api_not_ready(const struct api *api);
