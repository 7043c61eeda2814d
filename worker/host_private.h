/* host_private.h - inside of hosts, shared by host.c and host_pool.c alone. */
#pragma once

#include <ev.h>
#include <sys/types.h>

#include "worker/host.h"
#include "worker/stream.h"
#include "worker/tail.h"

struct host {
	struct host_pool *pool;
	struct host *next;
	/* a copy of the spec; `command` resolved */
	char *tool, *version, *folder, *program;
	char **argv, **env_names;

	pid_t pid;           /* of the keeper */
	char *place;         /* working directory, or where plain mode has it */
	struct plain *plain; /* nullptr: frames mode */
	struct stream stream;
	ev_timer idle_timer;
	struct tail log;
	ev_child child;
	bool ready, exited, ending, gone, garbage;
	int status, tasks;
	int64_t ending_ms, warned_ms; /* since when; when it was last said that it takes long */
	int64_t took_ms;              /* of a gone one: from host_kill on */
	struct hf_err fault;
	char exit_text[64];

	void (*on_change)(void *ctx); /* nullptr: idle, or without a user */
	void *ctx;
};

struct host_pool {
	struct ev_loop *loop;
	struct rundir *rundir;
	struct host *hosts; /* all, the gone ones of a user too */
	size_t count;       /* not gone */
	int number;
	_Atomic int64_t *until_ms; /* in a page that the keepers see */
	ev_timer sweep;
};

/* host.c */
/* A new process, without a user, in the pool's list; its idle timer does not run. */
enum hf_code host_start(struct host_pool *pool, const struct host_spec *spec, struct host **out,
			struct hf_err *err);
/* Of one that is gone, or was never a process. Takes it out of the list. */
void host_free(struct host *host);
/* It is wholly reaped: tells its user, or frees it. */
void host_went(struct host *host);
/* Nothing was said since its last run: what it might have said belongs to nobody. */
bool host_is_quiet(const struct host *host);
/* Has no user, until it is taken, ends, or is let go. */
void host_wait_idle(struct host *host);

/* host_pool.c */
/* Looks at what is ending until all of it is gone. */
void host_pool_sweep(struct host_pool *pool);
