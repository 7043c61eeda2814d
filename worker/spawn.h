/* spawn.h - starts a tool process under a keeper (keeper.h): its command resolved, a session and
 * process group of its own, limits, no signals of ours, only the descriptors it is meant to have.
 * Called by host.c. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/err.h"

struct spawn {
	const char *program;             /* absolute */
	char **argv, **envp;             /* nullptr-terminated */
	const char *folder;              /* working directory */
	int frames;                      /* becomes descriptor 3 */
	int log;                         /* becomes 1 and 2; 0 is /dev/null */
	const _Atomic int64_t *until_ms; /* the keeper's */
	/* Plain mode: 0 and 1 are these. 3 only tells whether the program was started: its end
	 * comes with exec, a byte before it says that it was not. */
	bool plain;
	int input, output;
};

/* The keeper's process, which ends as the tool's did, after all that the tool started; asked to end
 * by KEEPER_STOP_SIGNAL. What goes wrong between fork and exec is written to `log` and ends it with
 * status 126 or 127. HF_SYSTEM: no process. */
enum hf_code spawn_process(const struct spawn *spawn, pid_t *pid, struct hf_err *err);

/* What a tool finds its programs in, whatever this process's own path is. */
static constexpr char SPAWN_PATH[] = "/usr/local/bin:/usr/bin:/bin";

/* "PATH=…" with the folder of this process's own program first, so that a tool finds `holdfast`. */
[[nodiscard]] char *spawn_path_with_self(void);

/* Heap copy of a command with "./x", wherever it stands in it, as the file x of `folder`. */
[[nodiscard]] char **spawn_resolve(const char *folder, char *const *command);
/* HF_MISSING: no such program, or not to be executed. Heap path by out-parameter. */
enum hf_code spawn_find(const char *name, char **program, struct hf_err *err);
