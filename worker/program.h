/* program.h - inside of a program phase: phase_program.c is its machine, program_talk.c what it and
 * its process say to each other. */
#pragma once

#include <ev.h>
#include <stdint.h>

#include "runtime/buf.h"
#include "worker/frame.h"
#include "worker/phase.h"

struct host;

constexpr size_t PROGRAM_VALUE_BYTES_MAX = 1 << 20; /* of a result or checkpoint, as msgpack */

enum stage { STAGE_STARTING, STAGE_SERVING, STAGE_STORING, STAGE_LEAVING, STAGE_ENDING };

struct program {
	struct run *run;
	struct host *host;
	ev_timer wait;  /* the next reason to look without an event, or the grace of an end */
	ev_timer limit; /* the attempt's time */
	enum stage stage;
	bool stepping; /* program_step is on the stack */
	bool foreign;  /* what it does may be done elsewhere, as soon as it has its key */
	bool run_sent, plain;
	bool declined; /* the tool asked for another attempt, or asks its caller: nothing is done */
	bool leaving;  /* its result is in `state`; artifacts are stored */
	bool names_run;               /* the tool's last frame said which run it is about */
	bool stopping, lost, overdue; /* wishes; overdue: the grace of a stop is over */
	bool told;                    /* to stop, if it can */
	bool timed_out, closed;
	bool exited;             /* its end is its own */
	bool storing, stored_ok; /* a call of run_checkpoint or run_artifact_put is out */
	int64_t limit_ms;
	int64_t wait_ms; /* for the answer to what it asked, 0: until the deadline */
	enum phase_outcome outcome;
	struct buf out, state, text, answer;
};

/* phase_program.c */
/* Decides the outcome, once; the process is then killed and waited for. The text follows the
 * phase's name. */
[[gnu::format(printf, 3, 4)]] void program_end(struct program *program, enum phase_outcome outcome,
					       const char *format, ...);
/* As above, for what the tool's own last words may explain. */
[[gnu::format(printf, 3, 4)]] void program_fail(struct program *program, enum phase_outcome outcome,
						const char *format, ...);
/* To be called right before something is stored, with program_stored as who hears of it. */
void program_storing(struct program *program);
void program_stored(void *program, bool ok);

/* program_talk.c */
/* False: it cannot be said, and the program is at its end. */
bool program_say_run(struct program *program);
void program_say(struct program *program, const char *type);
/* Takes a frame of the tool, or of a step. True: it was the answer, and the program is over. */
bool program_hear(struct program *program, const struct frame *frame);
/* What came is not of the protocol: the end, or of the step that said it. */
void program_garbage(struct program *program, const char *what);
