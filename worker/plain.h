/* plain.h - what a process in plain mode has beside its host: the arguments on stdin, its result on
 * stdout, a file with the states so far, a folder for artifacts, and a socket where `holdfast step`
 * asks and stores. Made anew for each run (worker/sdk/PLAIN.md). Called by host.c. */
#pragma once

#include <stddef.h>

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"
#include "worker/frame.h"

struct ev_loop;
struct plain;

constexpr size_t PLAIN_OUTPUT_BYTES_MAX = 1 << 20;          /* of its stdout */
constexpr size_t PLAIN_FRAME_BYTES_MAX = (1 << 20) + 4'096; /* of one on its socket */
constexpr int PLAIN_CONNECTIONS_MAX = 8;                    /* at once; others wait */
constexpr size_t PLAIN_ARTIFACTS_MAX = 64;                  /* files that it leaves */
constexpr size_t PLAIN_ARTIFACT_BYTES_MAX = 16 << 20;       /* each */

struct plain_spec {
	struct slice input;  /* becomes its stdin */
	struct slice states; /* becomes the file of HOLDFAST_STATE_FILE */
	char *const *vars;   /* "NAME=value", for its environment; nullptr-terminated */
};

/* Makes all of it within `place`, an empty directory. `on_change` is called from the loop whenever
 * plain_read or plain_is_over may answer differently. HF_SYSTEM: no room or no descriptor. */
enum hf_code plain_new(struct ev_loop *loop, const char *place, const struct plain_spec *spec,
		       void (*on_change)(void *ctx), void *ctx, struct plain **out,
		       struct hf_err *err);
/* Closes everything; takes nullptr, returns nullptr. Files stay, for the owner of `place`. */
struct plain *plain_free(struct plain *plain);

/* For its process: the ends of stdin and stdout, and the working directory. */
int plain_stdin(const struct plain *plain);
int plain_stdout(const struct plain *plain);
const char *plain_folder(const struct plain *plain);
/* "NAME=value", heap, nullptr-terminated: spec's and its own. */
[[nodiscard]] char **plain_vars(const struct plain *plain);
/* The process has its ends: ours of them are closed, and the loop takes part. */
void plain_start(struct plain *plain);

/* The next frame of any connection; valid until the next plain_read. A connection that talks
 * nonsense is closed. False: none is there yet. */
bool plain_read(struct plain *plain, struct frame *frame);
/* Answers the frame that was read last; refusing closes its connection instead. */
void plain_send(struct plain *plain, const struct buf *frame);
void plain_refuse(struct plain *plain);

/* It wrote more than PLAIN_OUTPUT_BYTES_MAX to stdout. */
bool plain_is_over(const struct plain *plain);
/* All that it wrote, once it has ended. */
struct slice plain_output(struct plain *plain);

/* A file that it left, in the order of their names; everything lives until the next call. `name` is
 * nullptr when there is no further one. HF_INVALID, HF_LIMIT: what is there is no artifact; the
 * text says why, for the tool's author. HF_SYSTEM: it cannot be read. */
struct plain_artifact {
	const char *name, *media_type;
	struct slice content;
};
enum hf_code plain_artifact_next(struct plain *plain, struct plain_artifact *artifact,
				 struct hf_err *err);
