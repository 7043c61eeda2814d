/* pgdial.h - a connection to the one of a DSN's hosts that takes writes, made without blocking the
 * loop. Each address of each host is tried by itself and within a time of its own, since libpq
 * waits for a silent one for ever; the host that answered last is asked first.
 *
 * Where neither DSN nor caller say otherwise, target_session_attrs is read-write, so that a standby
 * and a demoted primary are passed by, and a silent peer is noticed within seconds.
 *
 * Of several hosts each is asked for its timeline, and the newest is taken. One that is older than
 * this process has seen is refused, and nothing is written there: it was replaced, and came back.
 * A store that is not the one which this process remembers is refused until an operator has looked:
 * lineage.h. Where only the old one answers a process that has seen no other, it cannot know: that
 * one is for fencing, and the cluster manager. Who `greets` begins each connection with a waiting
 * commit (rule 13), before anything is read from it, and wants the schema. */
#pragma once

#include <libpq-fe.h>
#include <stdint.h>

struct ev_loop;
struct pgdial;

constexpr int64_t DIAL_ADDRESS_MS = 4'000; /* for one address; connect_timeout counts over it */
constexpr int64_t DIAL_OTHER_MS = 500;     /* for each other host, once one that writes is found */
constexpr int64_t DIAL_RESOLVE_MS = 4'000; /* for the addresses of a name */
constexpr int64_t DIAL_GREETING_MS = 40'000; /* for its first commit, which a standby may delay */
constexpr int DIAL_HOSTS_MAX = 16;
constexpr int DIAL_SCHEMA_VERSION = 13; /* what this binary needs: the last of migrations.c */

/* `conn` is the caller's: connected, not blocking, in pipeline mode; nullptr: no host
 * would have us, `why` says so for the last of them. */
typedef void pgdial_done(void *ctx, PGconn *conn, const char *why);

struct pgdial_options {
	const char *dsn, *application;
	const char
	    *attributes; /* target_session_attrs unless the DSN has it; nullptr: read-write */
	bool greets;
	bool any_timeline;  /* its caller compares it with what is remembered */
	const char *listen; /* a channel, or nullptr; only of who greets */
	/* A statement behind the greeting, or nullptr. Its one value is null, or why this process
	 * may not work on this store: then `refused` is told, and the connection is not used. */
	const char *admission;
	void (*refused)(void *ctx, const char *why);
};

/* Strings are copied. A DSN that does not parse fails each round with that reason. */
struct pgdial *pgdial_new(struct ev_loop *loop, const struct pgdial_options *options,
			  pgdial_done *done, void *ctx);
void pgdial_free(struct pgdial *dial);
/* Of the connection that the last round found: it comes from a pooler. */
bool pgdial_pooled(const struct pgdial *dial);
/* Whether no connection of this process has seen a newer timeline than its last one is on. */
bool pgdial_is_newest(const struct pgdial *dial);
/* One round over all hosts; `done` comes once, never from inside. Not while a round is on. */
void pgdial_start(struct pgdial *dial);
