/* run.h - one claimed task in this process, from the claim to the moment nothing of it is left.
 * worker.c starts runs and tells them what happened; phase kinds ask through phase.h and, for what
 * not every kind has to know, through the second half of this header. */
#pragma once

#include <stdint.h>

#include "runtime/store.h"

struct run;
struct tool;
struct worker;

/* Copies `task`. `tool` and `folder` must outlive the run. Works from the loop, never from inside;
 * worker_run_ended tells its end. */
struct run *run_start(struct worker *worker, const struct tool *tool, const char *folder,
		      const struct claimed_task *task);
/* For worker_run_ended alone. */
void run_free(struct run *run);

/* Something is asked of it: to be given back so that it is parked, or to end cancelled. */
void run_wish(struct run *run, enum wish wish);
/* This worker stops: give the task back as soon as nothing is in flight, spending no attempt. */
void run_hand_back(struct run *run);
/* As above, and break off what is still in flight. */
void run_abandon(struct run *run);
/* The claim is lost. `taken`: another may hold it; else it is handed back if it is still ours. */
void run_lose(struct run *run, bool taken);

/* This run holds the claim of `flag`. */
bool run_owns(const struct run *run, const struct beat_wish *flag);
/* Its progress, where that changed since it was last asked for; lives until the next step. */
bool run_progress_take(struct run *run, struct beat_task *out);

/* One more crash is its tool's limit; and of those here it is the one that runs. */
bool run_has_last_start(const struct run *run);
bool run_is_apart(const struct run *run);

/* --- for some phase kinds --------------------------------------------------------------------- */

/* The write of this phase's recovery point, `state` left empty. */
struct step_write run_step_write(const struct run *run);
/* As run_wish, seen on the way by a phase that is about to report: takes effect with its report. */
void run_note_wish(struct run *run, enum wish wish);
/* No new effect may begin: the phase runs only to learn whether an earlier request took effect. A
 * lookup phase reads back and reports PHASE_STOPPED where that proves it absent. */
bool run_settling(const struct run *run);
/* As above, for the last time: what is not learned now is unknown. */
bool run_settles_last(const struct run *run);
/* A cancel is asked for, and its undo steps have not begun. */
bool run_is_cancelled(const struct run *run);
/* Nobody has started this phase before. */
bool run_is_first(const struct run *run);
/* ms since the first start of this phase. */
int64_t run_first_try_age_ms(const struct run *run);
/* An earlier request went out under the phase's key, and downstream may have forgotten it by now:
 * counted from the first try, with a margin. */
bool run_key_is_stale(const struct run *run);
/* ms since the last moment at which an earlier request of this phase may have left; negative: none
 * did. */
int64_t run_sent_age_ms(const struct run *run);
/* How long a foreign request in flight is waited for once its phase is told to stop. */
int64_t run_grace_ms(const struct run *run);
/* Stopped by a park or a pause alone: nobody waits for its end. */
bool run_is_unhurried(const struct run *run);
