/* host.h - tool processes ("hosts"), pooled per tool version and command: started when first
 * needed, used for many tasks, replaced ahead of need after HOST_TASKS_MAX of them, killed on any
 * fault. Each lives under a keeper (keeper.h), in a session and process group of its own, with
 * limits, a scrubbed environment and a working directory under STATE_DIR/run. A host is gone only
 * when its process is reaped and nothing is left of its group, of what moved out of it, or of its
 * directory.
 *
 * The worker must run on libev's default loop: only that one reaps children, the orphans of tools
 * among them (this process becomes their subreaper). worker.c owns the one pool; phase_program.c
 * is the user. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"
#include "worker/frame.h"
#include "worker/plain.h"

struct ev_loop;
struct host;
struct host_pool;

constexpr int HOST_TASKS_MAX = 100;       /* runs of one process */
constexpr size_t HOST_IDLE_MAX = 4;       /* waiting processes of one version and command */
constexpr int64_t HOST_IDLE_MS = 120'000; /* then a waiting process is let go */
constexpr size_t HOST_COUNT_MAX = 4'096;  /* processes of a pool */
constexpr int64_t HOST_FILES_MAX = 256;   /* RLIMIT_NOFILE */
constexpr int64_t HOST_MEMORY_BYTES_MAX = 2LL << 30;   /* RLIMIT_DATA: what it may write to */
constexpr int64_t HOST_ADDRESS_BYTES_MAX = 64LL << 30; /* RLIMIT_AS: runtimes reserve a lot */
constexpr int64_t HOST_CPU_S_MAX = 6 * 3'600;          /* RLIMIT_CPU, of the whole process */
constexpr int64_t HOST_FILE_BYTES_MAX = 1LL << 30;     /* RLIMIT_FSIZE */
constexpr int64_t HOST_PROTOCOL = 1;                   /* what "ready" must say */

/* Removes what killed workers left under STATE_DIR/run (directories and processes) and makes this
 * worker's own place there; STATE_DIR is absolute. HF_SYSTEM: it cannot be made. */
enum hf_code host_pool_open(struct ev_loop *loop, const char *state_dir, struct host_pool **out,
			    struct hf_err *err);
/* Until when on the boot clock its hosts may live, by the last lease. Before the first call, they
 * may. */
void host_pool_lease(struct host_pool *pool, int64_t until_ms);
/* Kills every host, in use or not; those in use tell their users when they are gone. */
void host_pool_kill(struct host_pool *pool);
/* Sets its gauges. */
void host_pool_collect(const struct host_pool *pool);
/* Hosts that are not gone yet: 0 says that no tool process of this worker exists. */
size_t host_pool_count(const struct host_pool *pool);
/* The end of the process: kills what is left and waits for it, blocking, for at most two seconds.
 * Users that still have a host are never called again and must not touch it. */
void host_pool_close(struct host_pool *pool);

struct host_spec {
	const char *tool, *version; /* for logs */
	const char *folder;         /* of the tool's files; "./x" in `command` is relative to it */
	char *const *command;       /* nullptr-terminated */
	char *const *env;           /* names of this process's variables to pass; nullable */
	/* Plain mode: a process for this run alone, which speaks through these; nullable. */
	const struct plain_spec *plain;
};

/* A waiting host, or a new process. `on_change` is called from the loop, never from inside a call
 * here, whenever host_read, host_sending, host_exited or host_gone may answer differently.
 * HF_SYSTEM, HF_LIMIT: no process could be made (passing); HF_MISSING: no such program. */
enum hf_code host_take(struct host_pool *pool, const struct host_spec *spec,
		       void (*on_change)(void *ctx), void *ctx, struct host **out,
		       struct hf_err *err);

/* Which run of its process this is, from 1: what its frames must name (`run`), so that a late word
 * about one task never counts for the next. */
int host_run(const struct host *host);

enum host_read {
	HOST_FRAME,   /* `frame` is next: valid until the next host_read of this host */
	HOST_WAIT,    /* nothing yet; on_change comes */
	HOST_GARBAGE, /* not the protocol; kill it */
	HOST_CLOSED,  /* the peer closed its end and everything was read */
};
/* What is not asked for stays in the kernel: a tool is not read faster than its user takes. The
 * host's "ready" is taken by the pool and never comes here. In plain mode the frames are those of
 * its steps, and it is HOST_FRAME or HOST_WAIT. */
enum host_read host_read(struct host *host, struct frame *frame, struct hf_err *err);

/* Sends a whole frame (frame_begin … frame_end); before "ready" too, it is held back until then.
 * A pipe that is lost meanwhile shows in host_read. */
void host_send(struct host *host, const struct buf *frame);
/* Sent frames have not all left yet: take no further frame until they have. */
bool host_sending(const struct host *host);

/* What a process in plain mode has beside this, until it is gone; nullptr in frames mode. */
struct plain *host_plain(const struct host *host);

/* It said "ready" once; in plain mode: its program was started, known once it has exited. */
bool host_ready(const struct host *host);
/* The process has ended with this wait status; its group may still exist. */
bool host_exited(const struct host *host, int *status);
bool host_gone(const struct host *host);
/* Of a gone one: how long that took from the first host_kill on. */
int64_t host_took_ms(const struct host *host);
/* "exit 3", "signal 9 (Killed)": lives in the host. */
const char *host_exit_text(struct host *host);

/* Appends what it last wrote to stdout and stderr (in plain mode: stderr) in this run, as UTF-8
 * text without control characters, without white space at the ends. Reads what is there to be read
 * first. */
void host_log(struct host *host, struct buf *text);

/* SIGKILL to all of it. on_change comes once it is gone. May be called again. */
void host_kill(struct host *host);

/* Gives a host back; the user's on_change is not called again and `host` is no longer the user's.
 * An idle one (after result or error) waits for its next run. */
void host_put(struct host *host);
