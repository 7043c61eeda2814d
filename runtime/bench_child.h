/* bench_child.h - the processes that `holdfast bench` starts: each in a session of its own, with a
 * pid file and nothing of our environment but what it needs, and always taken back. One that a
 * killed bench left behind is found by its pid file; the start time in it keeps a pid which another
 * program has by now from being taken for ours. */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/err.h"

struct child {
	pid_t pid; /* 0: none */
	const char *name;
	char *pid_file; /* heap */
};

constexpr int CHILD_ANY_CPU = -1;
constexpr int CHILD_WORDS_MAX = 32;

struct child_spec {
	const char *name;             /* of pid file and log */
	const char *const *words;     /* argv, nullptr-terminated; [0] is a path */
	const char *const *variables; /* NAME=VALUE on top of PATH, HOME and LANG; nullable */
	void (*run)(const void *ctx); /* instead of words: runs in a fork and never returns */
	const void *ctx;
	int cpu; /* to be bound to, or CHILD_ANY_CPU */
};

/* `dir` holds run/NAME.pid and log/NAME.log; both folders must be there. */
enum hf_code child_start(struct child *child, const char *dir, const struct child_spec *spec,
			 struct hf_err *err);
/* Reaps it once it has ended. */
bool child_lives(struct child *child);
/* Sends `with`, waits, kills what is still there, reaps it and removes the pid file. Safe on a
 * zeroed struct and safe twice. */
void child_stop(struct child *child, int with, int64_t wait_ms);

/* Starts it, waits for its end: HF_SYSTEM where it ends with anything but 0. */
enum hf_code child_run(const char *dir, const struct child_spec *spec, struct hf_err *err);

/* The same for what an earlier bench left behind. */
void child_stop_left(const char *dir, const char *name, int with, int64_t wait_ms);
