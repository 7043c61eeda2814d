/* pgdial.c - a round over the hosts:
 *
 *   idle ──► starting* ──► resolving* ──► connecting* ──► asking* ──► greeting* ──► done
 *                │  ▲            │              │           │          │
 *                ▼  └────────────┴── next address, next host┴──────────┘
 *              done without one                        * suspended: a callback resumes
 *
 * asking: which timeline it is on, a read alone. Only the one that is chosen is greeted: first, by
 * another read, whether it is the store that this process remembers (lineage.h), then with a
 * waiting commit, and last, whether this process may work there at all. At a primary that was
 * replaced nothing is written, and nobody waits for its standby; a store that lost something is
 * told to stand still. */
#include "runtime/pgdial.h"

#include <arpa/inet.h>
#include <ev.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/lineage.h"
#include "runtime/log.h"
#include "runtime/pgfail.h"
#include "runtime/resolve.h"

constexpr int OPTIONS_MAX = 80; /* of libpq, and ours */

enum dial_state {
	DIAL_IDLE,
	DIAL_STARTING,
	DIAL_RESOLVING,
	DIAL_CONNECTING,
	DIAL_ASKING,
	DIAL_GREETING,
};

/* Of greeting. */
enum greeting { GREET_LOOKS, GREET_COMMITS, GREET_ADMITS, GREET_WARNS };

struct host {
	struct pgdial *dial;
	char *name, *address, *port; /* nullptr: not given */
	bool to_resolve;
	struct resolve *resolve; /* under way, even past its time: never two for one host */
};

struct pgdial {
	struct ev_loop *loop;
	PQconninfoOption *options;
	char *application, *attributes;
	char *greeting;  /* nullptr: none */
	char *admission; /* nullptr: none */
	void (*refused)(void *ctx, const char *why);
	char bad[200]; /* why the DSN does not parse */
	int64_t address_ms;
	struct host hosts[DIAL_HOSTS_MAX];
	int hosts_count;
	int good; /* the host that answered last */
	pgdial_done *done;
	void *ctx;
	/* of this round */
	enum dial_state state;
	int tried, host; /* hosts so far, the one at hand */
	char addresses[RESOLVE_ADDRESSES_MAX][RESOLVE_ADDRESS_LEN];
	size_t addresses_count, address;
	char why[300];
	bool survey; /* of several: the newest of those that write is looked for */
	PGconn *best;
	unsigned long best_timeline;
	bool best_pooled;
	int best_host;
	/* of this address */
	PGconn *conn;
	ev_io io;
	ev_timer timer;
	unsigned long timeline; /* 0: not told yet */
	enum greeting greeting_state;
	bool any_timeline, pooled, answered, warned;
	char lost[LINEAGE_TEXT_LEN];
};

static void dial_on(struct pgdial *dial);

/* --- the DSN ---------------------------------------------------------------------------------- */

static const char *option(const struct pgdial *dial, const char *keyword)
{
	for (const PQconninfoOption *at = dial->options; at && at->keyword; at++)
		if (strcmp(at->keyword, keyword) == 0)
			return at->val && *at->val ? at->val : nullptr;
	return nullptr;
}

/* The nth of a list with commas, as a copy; nullptr where it is empty or there are fewer. */
static char *list_item(const char *list, int n)
{
	for (; list && n > 0; n--) {
		list = strchr(list, ',');
		list = list ? list + 1 : nullptr;
	}
	size_t len = list ? strcspn(list, ",") : 0;
	return len ? hf_strndup(list, len) : nullptr;
}

static int list_count(const char *list)
{
	int count = list ? 1 : 0;
	for (; list && (list = strchr(list, ',')); list++)
		count++;
	return count;
}

static bool is_numeric(const char *text)
{
	unsigned char bytes[sizeof(struct in6_addr)];
	return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1 ||
	       strchr(text, '%') != nullptr;
}

static void hosts_read(struct pgdial *dial)
{
	/* A service may name hosts of its own; libpq reads it, and tries them in its own way. */
	bool service = option(dial, "service") || getenv("PGSERVICE");
	const char *hosts = option(dial, "host"), *addresses = option(dial, "hostaddr");
	const char *ports = option(dial, "port");
	if (!service && !hosts && !addresses) {
		hosts = getenv("PGHOST");
		addresses = getenv("PGHOSTADDR");
	}
	if (!service && !ports)
		ports = getenv("PGPORT");
	int count = list_count(addresses) ?: list_count(hosts) ?: 1;
	if (count > DIAL_HOSTS_MAX) {
		snprintf(dial->bad, sizeof dial->bad, "over %d hosts", DIAL_HOSTS_MAX);
		return;
	}
	for (int i = 0; i < count; i++) {
		struct host *host = &dial->hosts[i];
		host->dial = dial;
		host->name = list_item(hosts, i);
		host->address = list_item(addresses, i);
		host->port = list_item(ports, list_count(ports) == 1 ? 0 : i);
		host->to_resolve = host->name && !host->address && host->name[0] != '/' &&
				   host->name[0] != '@' && !is_numeric(host->name);
	}
	dial->hosts_count = count;
}

/* --- one address ------------------------------------------------------------------------------ */

static void watch(struct pgdial *dial, int events)
{
	ev_io_stop(dial->loop, &dial->io); /* the socket may be another one now */
	ev_io_set(&dial->io, PQsocket(dial->conn), events);
	ev_io_start(dial->loop, &dial->io);
}

static void wait_for(struct pgdial *dial, int64_t ms)
{
	ev_timer_stop(dial->loop, &dial->timer);
	ev_timer_set(&dial->timer, (double)ms / 1000.0, 0.0);
	ev_timer_start(dial->loop, &dial->timer);
}

/* Once one is found that may do, the others are not waited for as long. */
static int64_t patience(const struct pgdial *dial, int64_t ms)
{
	return dial->best && dial->best_timeline >= lineage_timeline() ? DIAL_OTHER_MS : ms;
}

static void say_why(struct pgdial *dial, const char *why)
{
	const struct host *host = &dial->hosts[dial->host];
	const char *name = host->name ? host->name : host->address;
	snprintf(dial->why, sizeof dial->why, "%s: %.*s", name ? name : "the default host",
		 (int)strcspn(why, "\n"), why);
}

static void address_failed(struct pgdial *dial, const char *why)
{
	say_why(dial, why);
	ev_io_stop(dial->loop, &dial->io);
	ev_timer_stop(dial->loop, &dial->timer);
	PQfinish(dial->conn);
	dial->conn = nullptr;
	dial->state = DIAL_STARTING;
}

struct params {
	const char *names[OPTIONS_MAX], *values[OPTIONS_MAX];
	int count;
};

static void param(struct params *params, const char *name, const char *value)
{
	hf_assert(params->count < OPTIONS_MAX - 1);
	params->names[params->count] = name;
	params->values[params->count++] = value;
}

/* False: it failed at once. */
static bool address_begin(struct pgdial *dial, const char *address)
{
	const struct host *host = &dial->hosts[dial->host];
	struct params params = {};
	param(&params, "target_session_attrs", dial->attributes);
	param(&params, "tcp_user_timeout", "5000");
	param(&params, "keepalives_idle", "5");
	param(&params, "keepalives_interval", "2");
	param(&params, "keepalives_count", "3");
	param(&params, "application_name", dial->application);
	for (const PQconninfoOption *at = dial->options; at->keyword; at++) {
		bool ours = strcmp(at->keyword, "host") == 0 ||
			    strcmp(at->keyword, "hostaddr") == 0 ||
			    strcmp(at->keyword, "port") == 0;
		if (!ours && at->val && *at->val)
			param(&params, at->keyword, at->val);
	}
	param(&params, "host", host->name);
	param(&params, "hostaddr", *address ? address : nullptr);
	param(&params, "port", host->port);
	dial->state = DIAL_CONNECTING;
	dial->conn = PQconnectStartParams(params.names, params.values, 0);
	if (!dial->conn || PQstatus(dial->conn) == CONNECTION_BAD || PQsocket(dial->conn) < 0) {
		address_failed(dial, dial->conn ? PQerrorMessage(dial->conn) : "out of memory");
		return false;
	}
	watch(dial, EV_WRITE);
	wait_for(dial, patience(dial, dial->address_ms));
	return true;
}

static void round_end(struct pgdial *dial, PGconn *conn)
{
	hf_assert(!dial->best);
	if (conn)
		dial->good = dial->host;
	dial->state = DIAL_IDLE;
	ev_io_stop(dial->loop, &dial->io);
	ev_timer_stop(dial->loop, &dial->timer);
	dial->done(dial->ctx, conn, conn ? nullptr : dial->why);
}

/* --- the greeting ----------------------------------------------------------------------------- */

static bool flush(struct pgdial *dial)
{
	int left = PQflush(dial->conn);
	if (left >= 0)
		watch(dial, left ? EV_READ | EV_WRITE : EV_READ);
	return left >= 0;
}

static void query(struct pgdial *dial, const char *sql, int64_t wait_ms)
{
	dial->warned = false;
	wait_for(dial, wait_ms);
	if (!PQsendQuery(dial->conn, sql) || !flush(dial)) {
		address_failed(dial, PQerrorMessage(dial->conn));
		dial_on(dial);
	}
}

static void ask(struct pgdial *dial)
{
	dial->state = DIAL_ASKING;
	dial->timeline = 0;
	dial->answered = false;
	PQsetNoticeReceiver(dial->conn, pgfail_on_notice, &dial->warned);
	PQsetnonblocking(dial->conn, 1);
	query(dial, "SELECT pg_walfile_name(pg_current_wal_lsn()), pg_backend_pid()",
	      patience(dial, DIAL_ADDRESS_MS));
}

static void greeted(struct pgdial *dial)
{
	PGconn *conn = dial->conn;
	/* Another connection may have found a newer one meanwhile. */
	if ((dial->any_timeline || pgdial_is_newest(dial)) && PQenterPipelineMode(conn)) {
		dial->conn = nullptr;
		round_end(dial, conn);
		return;
	}
	address_failed(dial, "it was replaced meanwhile");
	dial_on(dial);
}

static void greet(struct pgdial *dial)
{
	dial->state = DIAL_GREETING;
	dial->greeting_state = GREET_LOOKS;
	dial->answered = false;
	if (dial->greeting)
		query(dial, "SELECT * FROM holdfast.store_now()", DIAL_GREETING_MS);
	else
		greeted(dial);
}

/* A part of the greeting was answered, and well. */
static void greet_on(struct pgdial *dial)
{
	bool admits = dial->greeting_state == GREET_COMMITS && dial->admission;
	if (admits) {
		dial->greeting_state = GREET_ADMITS;
		dial->answered = false;
		query(dial, dial->admission, DIAL_GREETING_MS);
	} else if (dial->greeting_state == GREET_COMMITS || dial->greeting_state == GREET_ADMITS) {
		greeted(dial);
	} else if (dial->greeting_state == GREET_WARNS) {
		address_failed(dial, LINEAGE_WAITS);
		dial_on(dial);
	} else if (dial->lost[0]) {
		dial->greeting_state = GREET_WARNS;
		const char *const why[] = { dial->lost };
		wait_for(dial, DIAL_GREETING_MS);
		if (PQsendQueryParams(dial->conn, "SELECT holdfast.restore_ask($1)", 1, nullptr,
				      why, nullptr, nullptr, 0) &&
		    flush(dial))
			return;
		address_failed(dial, PQerrorMessage(dial->conn));
		dial_on(dial);
	} else {
		dial->greeting_state = GREET_COMMITS;
		dial->answered = false;
		query(dial, dial->greeting, DIAL_GREETING_MS);
	}
}

/* What is wrong with the schema, or nullptr: one of the release behind serves this one as well. */
static const char *schema_fault(int version)
{
	static int told;
	if (version < DIAL_SCHEMA_VERSION) {
		log_error("the schema is too old for this binary: run `holdfast migrate`", nullptr);
		return "the schema is too old";
	}
	if (version > DIAL_SCHEMA_VERSION && version != told)
		log_warn("the schema is newer than this binary; it goes on", "schema",
			 LOG_INT(version), "binary", LOG_INT(DIAL_SCHEMA_VERSION), nullptr);
	told = version;
	return nullptr;
}

/* What is wrong with the store, by store_now(). One that lost something is to be told to stand
 * still, so that processes which know nothing hear of it. */
static const char *strangeness(struct pgdial *dial, const PGresult *result)
{
	bool waited = lineage_waits();
	struct lineage now;
	lineage_read(result, dial->timeline, &now);
	char why[LINEAGE_TEXT_LEN];
	enum lineage_verdict verdict = lineage_check(&now, why);
	dial->lost[0] = '\0';
	if (verdict == LINEAGE_SAME)
		return nullptr;
	if (verdict == LINEAGE_REPLACED) {
		log_error("a primary that was replaced is refused", "host", PQhost(dial->conn),
			  "timeline", LOG_INT((int64_t)now.timeline), "seen",
			  LOG_INT((int64_t)lineage_timeline()), nullptr);
		return "it was replaced: its timeline is older";
	}
	if (!waited)
		log_error(LINEAGE_WAITS, "reason", why, nullptr);
	if (verdict == LINEAGE_HELD)
		return LINEAGE_WAITS;
	memcpy(dial->lost, why, sizeof dial->lost);
	return nullptr;
}

/* Why this process may not work here, or nullptr. */
static const char *admission_fault(struct pgdial *dial, const PGresult *result)
{
	if (PQgetisnull(result, 0, 0))
		return nullptr;
	dial->refused(dial->ctx, PQgetvalue(result, 0, 0));
	return "this process is refused";
}

static void timeline_read(struct pgdial *dial, const PGresult *result)
{
	char hex[9]; /* a WAL file's name begins with its timeline */
	snprintf(hex, sizeof hex, "%s", PQgetvalue(result, 0, 0));
	dial->timeline = strtoul(hex, nullptr, 16);
	/* A pooler makes up the process that a client may cancel. */
	dial->pooled = atoi(PQgetvalue(result, 0, 1)) != PQbackendPID(dial->conn);
	dial->answered = dial->timeline != 0;
}

/* What is wrong with a result, or nullptr. */
static const char *fault_of(struct pgdial *dial, const PGresult *result)
{
	if (PQresultStatus(result) == PGRES_COMMAND_OK)
		return nullptr;
	if (PQresultStatus(result) != PGRES_TUPLES_OK) {
		const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE) ?: "";
		bool no_store = strcmp(state, "3F000") == 0 || strcmp(state, "42883") == 0;
		if (dial->state == DIAL_GREETING && no_store)
			return schema_fault(0);
		return PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) ?: "no greeting";
	}
	if (dial->state == DIAL_ASKING) {
		timeline_read(dial, result);
		return nullptr;
	}
	dial->answered = true;
	if (dial->greeting_state == GREET_LOOKS)
		return strangeness(dial, result);
	if (dial->greeting_state == GREET_ADMITS)
		return admission_fault(dial, result);
	return dial->greeting_state == GREET_COMMITS ? schema_fault(atoi(PQgetvalue(result, 0, 0)))
						     : nullptr;
}

/* Which timeline the one at hand is on is told; of two the newer counts. */
static void asked(struct pgdial *dial)
{
	if (!dial->survey) {
		greet(dial);
		return;
	}
	ev_io_stop(dial->loop, &dial->io);
	ev_timer_stop(dial->loop, &dial->timer);
	PGconn *worse = dial->conn;
	if (dial->timeline > dial->best_timeline) {
		worse = dial->best;
		dial->best = dial->conn;
		dial->best_timeline = dial->timeline;
		dial->best_host = dial->host;
		dial->best_pooled = dial->pooled;
	}
	PQfinish(worse);
	dial->conn = nullptr;
	dial->state = DIAL_STARTING;
	dial->address = dial->addresses_count; /* of this host, one is enough */
	dial_on(dial);
}

/* All were asked; true: the newest is at hand, to be greeted. */
static bool best_take(struct pgdial *dial)
{
	if (!dial->best)
		return false;
	dial->conn = dial->best;
	dial->host = dial->best_host;
	dial->timeline = dial->best_timeline;
	dial->pooled = dial->best_pooled;
	dial->best = nullptr;
	dial->survey = false;
	greet(dial);
	return true;
}

/* Takes what has come; true: the answer is whole. */
static bool answer_take(struct pgdial *dial, char fault[200])
{
	while (!*fault && !PQisBusy(dial->conn)) {
		PGresult *result = PQgetResult(dial->conn);
		if (!result)
			return true;
		const char *wrong = fault_of(dial, result);
		snprintf(fault, 200, "%s", wrong ? wrong : "");
		PQclear(result);
	}
	return false;
}

static void receive(struct pgdial *dial)
{
	char fault[200] = "";
	if (!PQconsumeInput(dial->conn))
		snprintf(fault, sizeof fault, "%s", PQerrorMessage(dial->conn));
	bool whole = answer_take(dial, fault);
	if (!*fault && whole && dial->warned)
		snprintf(fault, sizeof fault, "a warning at its first commit");
	else if (!*fault && whole && !dial->answered)
		snprintf(fault, sizeof fault, "no greeting");
	if (*fault) {
		address_failed(dial, fault);
		dial_on(dial);
	} else if (whole && dial->state == DIAL_ASKING) {
		asked(dial);
	} else if (whole) {
		greet_on(dial);
	}
}

/* --- the round -------------------------------------------------------------------------------- */

static void on_resolved(void *ctx, const char (*addresses)[RESOLVE_ADDRESS_LEN], size_t count,
			const char *why)
{
	struct host *host = ctx;
	struct pgdial *dial = host->dial;
	host->resolve = nullptr;
	if (dial->state != DIAL_RESOLVING || host != &dial->hosts[dial->host])
		return; /* too late for this round */
	if (count)
		memcpy(dial->addresses, addresses, count * sizeof *addresses);
	else
		say_why(dial, why);
	dial->addresses_count = count;
	dial->state = DIAL_STARTING;
	dial_on(dial);
}

/* The addresses of the host at hand; true: they come later. */
static bool host_begin(struct pgdial *dial)
{
	struct host *host = &dial->hosts[dial->host];
	dial->address = dial->addresses_count = 0;
	if (!host->to_resolve) {
		snprintf(dial->addresses[0], RESOLVE_ADDRESS_LEN, "%s",
			 host->address ? host->address : "");
		dial->addresses_count = 1;
		return false;
	}
	if (!host->resolve)
		host->resolve = resolve_start(dial->loop, host->name, on_resolved, host);
	if (!host->resolve) {
		say_why(dial, "no thread to look the name up in");
		return false;
	}
	dial->state = DIAL_RESOLVING;
	wait_for(dial, patience(dial, DIAL_RESOLVE_MS));
	return true;
}

static void dial_on(struct pgdial *dial)
{
	for (;;) {
		while (dial->address < dial->addresses_count)
			if (address_begin(dial, dial->addresses[dial->address++]))
				return;
		if (dial->tried == dial->hosts_count)
			break;
		dial->host = (dial->good + dial->tried++) % dial->hosts_count;
		if (host_begin(dial))
			return;
	}
	if (!best_take(dial))
		round_end(dial, nullptr);
}

static void on_io(struct ev_loop *, ev_io *watcher, int events)
{
	struct pgdial *dial = container_of(watcher, struct pgdial, io);
	if (dial->state == DIAL_ASKING || dial->state == DIAL_GREETING) {
		if ((events & EV_WRITE) && !flush(dial)) {
			address_failed(dial, PQerrorMessage(dial->conn));
			dial_on(dial);
		} else if (events & EV_READ) {
			receive(dial);
		}
		return;
	}
	switch (PQconnectPoll(dial->conn)) {
	case PGRES_POLLING_READING:
		watch(dial, EV_READ);
		break;
	case PGRES_POLLING_WRITING:
		watch(dial, EV_WRITE);
		break;
	case PGRES_POLLING_OK:
		ask(dial);
		break;
	default:
		address_failed(dial, PQerrorMessage(dial->conn));
		dial_on(dial);
		break;
	}
}

static void on_timer(struct ev_loop *, ev_timer *watcher, int)
{
	struct pgdial *dial = container_of(watcher, struct pgdial, timer);
	if (dial->state == DIAL_STARTING && dial->bad[0]) {
		memcpy(dial->why, dial->bad, sizeof dial->bad);
		round_end(dial, nullptr);
		return;
	}
	if (dial->state == DIAL_RESOLVING) {
		say_why(dial, "no address in time");
		dial->state = DIAL_STARTING;
	} else if (dial->state != DIAL_STARTING) {
		address_failed(dial, "no answer in time");
	}
	dial_on(dial);
}

struct pgdial *pgdial_new(struct ev_loop *loop, const struct pgdial_options *options,
			  pgdial_done *done, void *ctx)
{
	const char *listen = options->listen;
	hf_assert(options->greets || !listen);
	hf_assert(options->greets || !options->admission);
	hf_assert(options->refused || !options->admission);
	struct pgdial *dial = hf_alloc(sizeof *dial);
	dial->loop = loop;
	dial->application = hf_strdup(options->application);
	dial->any_timeline = options->any_timeline;
	dial->attributes = hf_strdup(options->attributes ? options->attributes : "read-write");
	if (options->greets)
		dial->greeting =
		    hf_format("%s%s%sSELECT holdfast.barrier()", listen ? "LISTEN " : "",
			      listen ? listen : "", listen ? "; " : "");
	dial->admission = options->admission ? hf_strdup(options->admission) : nullptr;
	dial->refused = options->refused;
	dial->done = done;
	dial->ctx = ctx;
	ev_init(&dial->io, on_io);
	ev_init(&dial->timer, on_timer);
	/* libpq's reason may quote the string, and with it a password. */
	dial->options = PQconninfoParse(options->dsn, nullptr);
	if (dial->options)
		hosts_read(dial);
	else
		snprintf(dial->bad, sizeof dial->bad, "the DSN is no Postgres connection string");
	const char *seconds = option(dial, "connect_timeout");
	int64_t wanted = seconds ? strtoll(seconds, nullptr, 10) : 0;
	dial->address_ms = wanted > 0 && wanted < 3600 ? wanted * 1000 : DIAL_ADDRESS_MS;
	return dial;
}

void pgdial_free(struct pgdial *dial)
{
	ev_io_stop(dial->loop, &dial->io);
	ev_timer_stop(dial->loop, &dial->timer);
	PQfinish(dial->conn);
	PQfinish(dial->best);
	for (int i = 0; i < dial->hosts_count; i++) {
		resolve_stop(dial->hosts[i].resolve);
		free(dial->hosts[i].name);
		free(dial->hosts[i].address);
		free(dial->hosts[i].port);
	}
	PQconninfoFree(dial->options);
	free(dial->application);
	free(dial->attributes);
	free(dial->greeting);
	free(dial->admission);
	free(dial);
}

bool pgdial_is_newest(const struct pgdial *dial)
{
	return dial->timeline >= lineage_timeline();
}

bool pgdial_pooled(const struct pgdial *dial)
{
	return dial->pooled;
}

void pgdial_start(struct pgdial *dial)
{
	hf_assert(dial->state == DIAL_IDLE);
	dial->state = DIAL_STARTING;
	dial->tried = 0;
	dial->survey = dial->hosts_count > 1;
	dial->best_timeline = 0;
	dial->address = dial->addresses_count = 0;
	wait_for(dial, 0);
}
