/* Opens what requests share, routes what conn.c hands over, and drains. The one file that knows all
 * rooms. */
#include "api/serve.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "api/artifacts.h"
#include "api/auth.h"
#include "api/call.h"
#include "api/catalog.h"
#include "api/companion.h"
#include "api/follow.h"
#include "api/listen.h"
#include "api/listener.h"
#include "api/mcp.h"
#include "api/packs.h"
#include "api/plain.h"
#include "api/presence.h"
#include "api/refresh.h"
#include "api/watch.h"
#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/err.h"
#include "runtime/key.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/monitor.h"
#include "runtime/store.h"

static constexpr double DRAIN_LOOK_S = 0.02;

static void on_call(struct call *call)
{
	struct api *api = call->server;
	struct refusal refusal = {};
	if (!ladder_origin(call, &api->gate, &refusal)) {
		call_refuse(call, (struct slice){}, &refusal);
		return;
	}
	if (slice_is(call->path, "/mcp")) {
		mcp_call(api, call);
	} else if (slice_is(call->path, "/healthz")) {
		health_live(call);
	} else if (slice_is(call->path, "/readyz")) {
		health_ready(api, call);
	} else {
		refusal_set(&refusal, 404, RPC_METHOD_NOT_FOUND,
			    "No such path; the MCP endpoint is /mcp");
		call_refuse(call, (struct slice){}, &refusal);
	}
}

static int64_t on_catalog_known(void *ctx)
{
	return catalog_number(((const struct api *)ctx)->catalog);
}

static void on_catalog_changed(void *ctx, const struct store_catalog *found)
{
	struct api *api = ctx;
	bool first = !refresh_has_read(api->refresh);
	catalog_replace(api->catalog, found->number, found->tools, found->tools_count);
	packs_replace(api->packs, found->packs, found->packs_count);
	log_info("tools read", "catalog", LOG_INT(found->number), "tools",
		 LOG_INT(found->tools_count), "packs", LOG_INT(found->packs_count), nullptr);
	if (!first)
		listens_tools_changed(api->listens);
}

static size_t on_count_open(void *ctx)
{
	const struct api *api = ctx;
	return plains_count(api->plains);
}

static void on_reborn(void *ctx)
{
	const struct api *api = ctx;
	plains_reattach(api->plains);
}

static void on_wake(void *ctx, enum wake wake)
{
	const struct api *api = ctx;
	if (wake != WAKE_ENDED)
		return;
	watch_hint(api->watch);
	follow_hint(api->follow);
}

/* What waits for the store: who we are there, and what plain calls look at. */
static void open_waiting(struct api *api)
{
	const struct presence_hooks hooks = {
		.open = on_count_open,
		.reborn = on_reborn,
		.ctx = api,
	};
	api->companions = companions_new();
	api->watch = watch_new(api->loop, api->store);
	api->plains = plains_new(api);
	api->follow = follow_new(api->loop, api->store);
	api->listens = listens_new(api);
	api->presence = presence_open(api->loop, api->store, api->config->beat_ms, &hooks);
	store_on_wake(api->store, on_wake, api);
}

static void on_left(void *ctx)
{
	struct api *api = ctx;
	ev_break(api->loop, EVBREAK_ALL);
}

/* Balancers have had their time to look elsewhere. */
static void refuse_connections(struct api *api)
{
	api->refusing = true;
	api->drain_until_ms = clock_boot_ms() + api->config->drain_ms;
	listener_drain(api->listener);
	plains_drain(api->plains);
	listens_drain(api->listens);
	companions_drain(api->companions);
}

static void on_drain(struct ev_loop *loop, ev_timer *timer, int)
{
	struct api *api = container_of(timer, struct api, drain);
	if (!api->refusing) {
		if (clock_boot_ms() >= api->drain_until_ms)
			refuse_connections(api);
		return;
	}
	size_t connections = listener_connections(api->listener);
	if (connections == 0 && plains_count(api->plains) == 0 && !api->leaving) {
		api->leaving = true;
		presence_leave(api->presence, on_left, api);
	} else if (clock_boot_ms() >= api->drain_until_ms) {
		log_warn("drained no further", "connections", LOG_INT(connections), nullptr);
		ev_break(loop, EVBREAK_ALL);
	}
}

static void on_signal(void *ctx)
{
	struct api *api = ctx;
	if (api->draining) { /* asked twice: at once */
		ev_break(api->loop, EVBREAK_ALL);
		return;
	}
	log_info("draining", "connections", LOG_INT(listener_connections(api->listener)), nullptr);
	api->draining = true;
	api->drain_until_ms = clock_boot_ms() + api->config->drain_delay_ms;
	listener_part(api->listener);
	if (api->config->drain_delay_ms == 0)
		refuse_connections(api);
	ev_timer_start(api->loop, &api->drain);
}

static bool is_loopback(const char *listen)
{
	static const char *const hosts[] = { "localhost:", "[::1]:" };
	for (size_t i = 0; i < countof(hosts); i++)
		if (strncasecmp(listen, hosts[i], strlen(hosts[i])) == 0)
			return true;
	/* 127.0.0.0/8, spelt as an address: "127.example.org:80" is a name. */
	size_t host_len = strcspn(listen, ":");
	return strncmp(listen, "127.", 4) == 0 && strspn(listen, "0123456789.") == host_len;
}

static enum hf_code check_config(const struct config *config, struct hf_err *err)
{
	if (config->insecure_dev && config->tokens_file)
		return hf_fail(err, HF_INVALID,
			       "--insecure-dev and --tokens-file exclude each other");
	if (config->insecure_dev && !is_loopback(config->listen))
		return hf_fail(err, HF_INVALID, "--insecure-dev is for loopback only, not for %s",
			       config->listen);
	if (!config->insecure_dev && !config->tokens_file)
		return hf_fail(err, HF_INVALID,
			       "callers cannot be told apart: give --tokens-file FILE, or "
			       "--insecure-dev on loopback");
	if (!config->keys_file)
		return hf_fail(err, HF_INVALID,
			       "give --keys-file FILE: derived keys need their secrets");
	if (!config->api_dsn && !config->dsn)
		return hf_fail(err, HF_INVALID, "give HOLDFAST_API_DSN or HOLDFAST_DSN");
	return HF_OK;
}

static void on_refused(void *ctx, const char *why)
{
	struct api *api = ctx;
	if (api->refused)
		return;
	log_error("the store refuses this process", "error", why, nullptr);
	api->refused = true;
	ev_break(api->loop, EVBREAK_ALL);
}

static enum hf_code open_store(struct api *api, struct hf_err *err)
{
	const struct config *config = api->config;
	char *dsn = nullptr;
	if (!config->api_dsn)
		hf_try(config_role_dsn(config->dsn, "holdfast_api", &dsn, err));
	const struct store_keys keys = { api->keyring, on_refused, api };
	api->store =
	    store_open(api->loop, STORE_API, dsn ? dsn : config->api_dsn, config->wake_dsn, &keys);
	free(dsn);
	return HF_OK;
}

static enum hf_code open_listener(struct api *api, struct hf_err *err)
{
	const struct config *config = api->config;
	const struct listener_limits limits = {
		.connections_max = (size_t)config->connections_max,
		.connections_per_address_max = (size_t)config->connections_per_address_max,
		.header_bytes_max = (size_t)config->header_bytes_max,
		.body_bytes_max = (size_t)config->body_bytes_max,
		.header_timeout_ms = config->header_timeout_ms,
		.body_timeout_ms = config->body_timeout_ms,
		.idle_timeout_ms = config->idle_timeout_ms,
		.write_timeout_ms = config->write_timeout_ms,
		.write_bytes_per_s = LISTENER_WRITE_BYTES_PER_S,
		.held_bytes_max = LISTENER_HELD_BYTES_MAX,
	};
	return listener_open(api->loop, config->listen, &limits, on_call, api, &api->listener, err);
}

static const char *on_not_ready(void *ctx)
{
	return api_not_ready(ctx);
}

static const struct uuid *on_incarnation(void *ctx)
{
	return presence_incarnation(((const struct api *)ctx)->presence);
}

static void on_collect(void *ctx)
{
	const struct api *api = ctx;
	store_collect(api->store);
	listener_collect(api->listener);
	auth_collect(api->auth, api->config->listens_per_owner_max);
	plains_collect(api->plains);
	listens_collect(api->listens);
	metric_bound("artifact_reads", (int64_t)api->artifact_reads, ARTIFACT_READS_MAX);
}

static enum hf_code open_monitor(struct api *api, struct hf_err *err)
{
	const struct monitor_hooks hooks = { on_collect, on_not_ready, on_incarnation, api };
	return monitor_open(api->loop, api->config->metrics_listen, 'a', &hooks, &api->monitor,
			    err);
}

static enum hf_code open_all(struct api *api, struct hf_err *err)
{
	const struct config *config = api->config;
	hf_try(auth_open(config->tokens_file, config->insecure_dev, &api->auth, err));
	hf_try(keyring_load(config->keys_file, &api->keyring, err));
	api->key_version = keyring_current(api->keyring);
	hf_try(open_store(api, err));
	open_waiting(api);
	hf_try(open_listener(api, err));
	hf_try(open_monitor(api, err));

	const struct refresh_hooks hooks = { on_catalog_known, on_catalog_changed, api };
	api->refresh = refresh_new(api->loop, api->store, &hooks);
	ev_timer_init(&api->drain, on_drain, DRAIN_LOOK_S, DRAIN_LOOK_S);
	stop_signals_start(&api->signals, api->loop, on_signal, api);
	return HF_OK;
}

/* Safe on a half-opened one. The store first: what waits for it is answered while its connection
 * still stands. */
static void close_all(struct api *api)
{
	api->closing = true;
	api->monitor = monitor_close(api->monitor);
	if (api->store)
		store_close(api->store);
	listener_close(api->listener);
	api->presence = presence_close(api->presence);
	api->plains = plains_free(api->plains);
	api->listens = listens_free(api->listens);
	api->follow = follow_free(api->follow);
	api->watch = watch_free(api->watch);
	api->companions = companions_free(api->companions);
	api->refresh = refresh_free(api->refresh);
	ev_timer_stop(api->loop, &api->drain);
	stop_signals_stop(&api->signals, api->loop);
	api->catalog = catalog_free(api->catalog);
	api->keyring = keyring_free(api->keyring);
	api->packs = packs_free(api->packs);
	auth_close(api->auth);
}

int serve_run(const struct config *config)
{
	struct hf_err err = {};
	if (check_config(config, &err) != HF_OK) {
		log_error("not started", "error", err.text, nullptr);
		return EXIT_USAGE;
	}

	signal(SIGPIPE, SIG_IGN);
	struct api api = {
		.config = config,
		.gate = { config->allowed_hosts, config->allowed_origins },
		.loop = ev_default_loop(EVFLAG_AUTO),
		.catalog = catalog_new(),
		.packs = packs_new(),
	};
	enum hf_code code = open_all(&api, &err);
	if (code == HF_OK) {
		if (config->insecure_dev)
			log_warn("INSECURE: whoever reaches this port is whoever they say they are",
				 "listen", config->listen, nullptr);
		log_info("listening", "address", listener_address(api.listener), nullptr);
		ev_run(api.loop, 0);
		log_info("stopped", nullptr);
	} else {
		log_error("not started", "error", err.text, nullptr);
	}
	close_all(&api);
	if (api.refused)
		return EXIT_USAGE;
	return code == HF_OK ? EXIT_DONE : EXIT_FAILED;
}
