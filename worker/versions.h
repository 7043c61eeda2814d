/* versions.h - the tool versions that this worker can serve: found through the store, unpacked into
 * STATE_DIR/tools/<version>/ and read. A queue is claimed from only once its version stands here.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/slice.h"
#include "runtime/store.h"
#include "runtime/tool.h"

struct ev_loop;
struct versions;

constexpr int64_t VERSIONS_REFRESH_MS = 5'000;
constexpr int64_t VERSIONS_HINT_MS = 500; /* a hint looks again no sooner than this */

struct version {
	int32_t id;
	struct tool *tool; /* nullptr: not read yet, or bad */
	char *folder;      /* absolute */
	bool listed;       /* in the store's last answer */
	bool tried;        /* since then */
	bool bad;          /* its content is at fault: not tried again */
	uint64_t served;   /* when it last gave a task, as versions_served counts */
};

/* `state_dir` is absolute. `changed` is called whenever queues were added. */
struct versions *versions_open(struct ev_loop *loop, struct store *store, const char *state_dir,
			       void (*changed)(void *ctx), void *ctx);
/* After the store is closed. */
struct versions *versions_close(struct versions *versions);
/* Look no more; what is here stays. */
void versions_stop(struct versions *versions);
/* There may be a version that is not known here. */
void versions_hint(struct versions *versions);
/* Queues that may be claimed from; valid until the loop goes on. Those that gave a task last stand
 * last, so that a flood of one tool keeps no other waiting. */
const int32_t *versions_queues(struct versions *versions, size_t *count);
/* nullptr unless it can be served. What is given stays valid until versions_close. */
const struct version *versions_find(const struct versions *versions, int32_t id);

/* A claim brought a task of it. */
void versions_served(struct versions *versions, int32_t id);

/* Writes `files` as `state_dir`/tools/`version`/, where that does not exist: into a folder beside
 * it, renamed when whole. Blocks, which is bounded by TOOL_FILE_BYTES_MAX and happens once a
 * version. HF_INVALID: a path would leave the folder. `folder` becomes the caller's. */
enum hf_code versions_unpack(const char *state_dir, const char *version,
			     const struct store_file *files, size_t count, char **folder,
			     struct hf_err *err);
