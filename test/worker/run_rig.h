/* run_rig.h - a run with pretended phases, a pretended store and a pretended worker: what
 * test_run.c and test_run_unsafe.c stand on. */
#pragma once

#include "runtime/buf.h"
#include "runtime/config.h"
#include "runtime/store.h"
#include "worker/phase.h"
#include "worker/run.h"
#include "worker/worker.h"

struct pretended_store {
	char what[600]; /* the write that waits for its answer, or "" */
	void (*step_done)(void *, enum hf_code, enum fence, enum wish, struct slice,
			  const struct hf_err *);
	void (*done)(void *, enum hf_code, enum fence, const struct hf_err *);
	void (*got)(void *, enum hf_code, struct slice, struct slice, const struct hf_err *);
	void *ctx;
	int64_t delay_ms;
	int writes;
};
extern struct pretended_store store;

struct pretended_phase {
	struct run *run; /* the phase that waits, or nullptr */
	int starts, stops, losses;
	char name[32];
	bool settling, first;
};
extern struct pretended_phase phase;

extern struct config config;
extern int ended;
extern int64_t ended_due_ms;
extern bool others_have_last_starts, one_of_them_runs;
extern struct tool *tool;
extern struct claimed_task task;
extern struct run *run;
void set_up(void);
void set_up_unsafe(void);
void tear_down(void);
void turn(void);
void wait_ms(int64_t ms);
/* Claims the task and starts its run. */
void begin(void);
void expect_phase(const char *name);
void expect_write(const char *want);
void expect_inside(const char *want);
void answer_with(enum hf_code code, enum fence fence, bool cancelled, struct slice adopted);
void answer(void);
void report(struct phase_result result);
void report_done(const char *json);
void expect_end(void);
/* The write that waits is the last. */
void answer_last(void);
/* Ends the run without a write, whatever it was about to do. */
void lose_claim(void);
/* Brings the run to its keyed phase, freshly advanced. */
void to_keyed(void);
struct claimed_step step_at(int number, struct buf *state, const char *json);
/* What the claim brings beside the task. */
void claim_steps(const struct claimed_step *steps, size_t count);
/* Claims the task at phase `number` as one that was tried before; 0: not sent. */
void claimed_again(int number, int64_t sent_ms);
