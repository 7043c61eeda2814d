/* ask.h - what a phase asks of its caller, on top of what its claim brought: shared by the phase
 * kinds wait and program. */
#pragma once

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

struct run;

enum ask_state {
	ASK_OPEN,      /* to be asked, and waited for */
	ASK_ANSWERED,  /* `answer`, of the shape that its request wants */
	ASK_SILENT,    /* no answer came in time */
	ASK_UNDECLARED /* its caller's client cannot be asked this; `err` names the capability */
};

/* Where the question `key` of the running phase stands. `request`: JSON text, rendered. ASK_OPEN:
 * an entry for what run_phase_done takes with PHASE_ASK is appended to `questions`, which begins
 * empty and is closed by ask_close. HF_INVALID: the request or its key is none; HF_CONFLICT:
 * another phase has used the key; HF_LIMIT: answered INPUT_ASKED_MAX times, never as asked for, or
 * the task has asked INPUT_KEYS_MAX times. */
enum hf_code ask_look(struct run *run, struct slice key, struct slice request,
		      enum ask_state *state, struct slice *answer, struct buf *questions,
		      struct hf_err *err);
void ask_close(struct buf *questions);

/* "asks: MESSAGE", or the method of a request without one: what to tell a person. */
void ask_text(struct slice request, struct buf *text);
