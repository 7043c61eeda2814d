/* holdfast/tool.h - writes a program phase in C. The program calls tool_main with one function; the
 * worker starts it, keeps it, and has it run one task after the other. For the phase {"name":
 * "twice", "kind": "program", "command": ["./twice"], "effect": "pure"}, in the tool's folder:
 *
 *   cc -I$repo/zig-out/include -o twice twice.c -L$repo/zig-out/lib -lholdfast_tool -lmsgpackc
 *
 *   static int run(struct tool_run *run)
 *   {
 *           int64_t n = tool_int(tool_args(run), "n", 1);
 *           msgpack_packer *pack = tool_pack(run);
 *           msgpack_pack_map(pack, 1);
 *           tool_pack_text(pack, "twice");
 *           msgpack_pack_int64(pack, 2 * n);
 *           return tool_result(run);
 *   }
 *
 *   int main(void) { return tool_main(run); }
 *
 * Whatever is given back here lives until `run` returns. A worker that is gone ends the process
 * from inside these functions: there is nobody left to work for. stdout and stderr are the log,
 * of which the end is shown when the program fails. The protocol itself: FRAMES.md. */
#ifndef HOLDFAST_TOOL_H
#define HOLDFAST_TOOL_H

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tool_run;

#define TOOL_EXIT_RETRY 75 /* this exit code asks for another attempt */

/* Serves runs until the worker closes the pipe; returns the exit code of the process. `run` ends
 * with tool_result, tool_error or tool_retry, whose 0 it returns; any other number becomes the exit
 * code of the process at once. */
int tool_main(int (*run)(struct tool_run *run));

/* --- what is asked for ------------------------------------------------------------------------ */

const msgpack_object *tool_args(const struct tool_run *run);
/* What the caller was asked before the call was accepted ("ask"): key to answer. */
const msgpack_object *tool_input(const struct tool_run *run);
/* The state of an earlier phase; NULL: no such phase. */
const msgpack_object *tool_state(const struct tool_run *run, const char *phase);
const char *tool_task_id(const struct tool_run *run);
const char *tool_name(const struct tool_run *run);
/* Which phase it is, for a program that serves several. */
const char *tool_phase_name(const struct tool_run *run);
const char *tool_effect_id(const struct tool_run *run);
/* W3C traceparent of this attempt's span; "" where the call came with no trace. */
const char *tool_traceparent(const struct tool_run *run);
int tool_attempt(const struct tool_run *run);          /* from 1; a start after a crash counts */
int64_t tool_time_left_ms(const struct tool_run *run); /* then the process is killed */

/* Members of a map: NULL or the fallback where `map` is NULL, no map, has no such member or one of
 * another type. Texts end with NUL. */
const msgpack_object *tool_find(const msgpack_object *map, const char *name);
const char *tool_text(struct tool_run *run, const msgpack_object *map, const char *name,
		      const char *fallback);
int64_t tool_int(const msgpack_object *map, const char *name, int64_t fallback);
double tool_number(const msgpack_object *map, const char *name, double fallback);

/* --- what is said ----------------------------------------------------------------------------- */

/* Starts a new value: pack exactly one into it, then give it to tool_checkpoint or tool_result. */
msgpack_packer *tool_pack(struct tool_run *run);
void tool_pack_text(msgpack_packer *pack, const char *text);

/* What was packed is durable under this name when this returns: a later attempt of this phase finds
 * it. The first value of a name stands; one of a later attempt changes nothing. */
void tool_checkpoint(struct tool_run *run, const char *name);
/* The value of a checkpoint, of this attempt or an earlier one; NULL: there is none. */
const msgpack_object *tool_recall(struct tool_run *run, const char *name);

/* Asks the caller what was packed, a request {"method", "params"} as MCP has it, and returns its
 * answer. The first time there is none yet: this process is ended, and the run begins anew when
 * there is one, where this returns it at once. Ask before anything is sent that is not
 * checkpointed. `timeout_ms` counts from the first asking, 0: no end; NULL: nobody answered in
 * time. */
const msgpack_object *tool_ask(struct tool_run *run, const char *key, int64_t timeout_ms);

/* What the caller sees while it waits; fraction from 0 to 1. */
void tool_progress(struct tool_run *run, double fraction, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The key to send downstream with the nth request of this phase (0 is the first): the same in
 * every attempt, so that the effect is made once. */
const char *tool_key(struct tool_run *run, uint32_t call);

/* Stores a file with the task; later phases refer to it by name. At most about 16 MiB. */
void tool_artifact(struct tool_run *run, const char *name, const char *media_type, const void *data,
		   size_t len);

/* The task was cancelled: whoever works for long asks, and then returns tool_error. */
bool tool_cancelled(struct tool_run *run);

/* Each ends the run and returns 0. tool_result: what was packed becomes the state of this phase.
 * tool_error: the tool says no, in words for the caller. tool_retry: not now. */
int tool_result(struct tool_run *run);
int tool_error(struct tool_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
int tool_retry(struct tool_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif

#endif
