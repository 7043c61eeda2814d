/* rundir.h - where the tool processes of one worker live on disk: STATE_DIR/run/<name>/, locked
 * for as long as the worker lives, with a working directory for each host in it. What a killed
 * worker left there, files and processes, is removed by the next one that starts. Blocking, on
 * local files, bounded by RUNDIR_ENTRIES_MAX. Called by host.c. */
#pragma once

#include <stddef.h>

#include "runtime/err.h"

struct rundir;

constexpr int RUNDIR_ENTRIES_MAX = 10'000; /* removed at once; more are left for the next start */
constexpr int RUNDIR_DEPTH_MAX = 64;       /* folders within folders that are removed */

/* The variable that each tool process carries: the path of its worker's directory. By it the
 * processes of a killed worker are found. */
extern const char rundir_variable[];

/* Within `state_dir`, which is absolute and there. HF_SYSTEM: it cannot be made or locked. */
enum hf_code rundir_open(const char *state_dir, struct rundir **out, struct hf_err *err);
void rundir_close(struct rundir *rundir);             /* removes it; takes nullptr */
const char *rundir_path(const struct rundir *rundir); /* absolute */

/* Makes an empty directory `number` in it, for the owner only. Heap path by out-parameter. */
enum hf_code rundir_add(const struct rundir *rundir, int number, char **path, struct hf_err *err);

/* Removes everything in `path` without following links. False: something is left. */
[[nodiscard]] bool rundir_clear(const char *path);
void rundir_remove(const char *path); /* clear, and the directory itself */
