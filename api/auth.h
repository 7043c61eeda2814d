/* auth.h - bearer token to principal. Tokens are known by their SHA-256 only, from a file; with
 * --insecure-dev (loopback only, serve.c refuses it elsewhere) the token is the user's name. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "runtime/err.h"

constexpr size_t AUTH_TOKEN_LEN_MAX = 4'096;
constexpr size_t AUTH_NAME_LEN_MAX = 255;  /* of a subject or tenant */
constexpr size_t AUTH_TOKENS_MAX = 10'000; /* in the file */
/* Of one principal in one process; more are told to come back. */
constexpr unsigned AUTH_ACCEPTS_MAX = 1'024;  /* calls in flight to the store */
constexpr unsigned AUTH_PLAINS_MAX = 512;     /* plain calls that wait */
constexpr unsigned AUTH_UPDATES_MAX = 64;     /* answers to tasks that the store holds */
constexpr unsigned AUTH_READS_MAX = 8;        /* artifacts that the store reads */
constexpr size_t AUTH_PRINCIPALS_MAX = 4'096; /* remembered; the longest idle make room */

/* Who asks. Lives at least until auth_release. */
struct principal {
	char *issuer, *subject, *tenant;
	int64_t owner;    /* the store's number; 0: not asked for yet, written by request.c */
	unsigned accepts; /* accepts in flight in this process, counted by tools.c and plain.c */
	unsigned plains;  /* plain calls that wait in this process, counted by plain.c */
	unsigned updates; /* its answers to tasks in this process, counted by tasks.c */
	unsigned reads;   /* its reads of artifacts in this process, counted by artifacts.c */
	unsigned listens; /* its streams of notifications in this process, counted by listen.c */
	/* private */
	unsigned pins;
	struct principal *next;
};

struct auth;

/* One of the two: a tokens file, or `insecure_dev`. HF_INVALID: the text is "<file>:<line>: …". */
enum hf_code auth_open(const char *tokens_file, bool insecure_dev, struct auth **out,
		       struct hf_err *err);
void auth_close(struct auth *auth); /* takes nullptr */

enum auth_answer {
	AUTH_KNOWN,     /* `principal` is set and pinned: auth_release it */
	AUTH_MISSING,   /* no bearer token came */
	AUTH_MALFORMED, /* two, or no token at all by its spelling */
	AUTH_UNKNOWN,
	AUTH_FULL, /* AUTH_PRINCIPALS_MAX are busy: later */
};
enum auth_answer auth_check(struct auth *auth, const struct call *call,
			    struct principal **principal);
/* Sets the gauges of what is bounded by principal. */
void auth_collect(const struct auth *auth, int64_t listens_max);
void auth_release(struct principal *principal); /* takes nullptr */

/* One more in `count`, of the principal, and in `total` (nullable), of the process, until
 * hold_free; its principal stays as long. For what outlives its request. */
struct hold *hold_new(struct principal *principal, unsigned *count, size_t *total);
void hold_free(void *hold);
