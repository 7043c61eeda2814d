/* The phase kind sql: the tool's statement in the recovery point's own transaction. All of it is
 * runtime/sqlphase.c; this only says it in the words of a phase. */
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/json.h"
#include "runtime/sqlphase.h"
#include "runtime/value.h"
#include "worker/phase.h"
#include "worker/run.h"
#include "worker/worker.h"

struct sql_phase {
	struct run *run;
	struct sqlphase *flight;
	bool stopping, lost;
};

/* What a statement that was rolled back reports, when it was stopped or failed in passing. */
static enum phase_outcome rolled_back(const struct sql_phase *phase)
{
	if (phase->lost)
		return PHASE_LOST;
	return phase->stopping ? PHASE_STOPPED : PHASE_RETRY;
}

static void committed(struct run *run, struct slice json)
{
	struct hf_err err = {};
	hf_cleanup(buf) struct buf state = {};
	struct phase_result result = { .outcome = PHASE_COMMITTED };
	if (json_scan(json, &err) == HF_OK) {
		value_from_json(json_trim(json), &state);
		result.state = buf_slice(&state);
	} else {
		result = (struct phase_result){ .outcome = PHASE_FAILED,
						.text = err.text,
						.maybe_executed = true };
	}
	run_phase_done(run, &result);
}

static void on_done(void *ctx, enum sqlphase_outcome outcome, enum wish wish, struct slice state,
		    const char *text)
{
	struct sql_phase *phase = ctx;
	struct run *run = phase->run;
	run_note_wish(run, wish);
	struct phase_result result = { .text = text };
	switch (outcome) {
	case SQLPHASE_DONE:
		committed(run, state);
		free(phase);
		return;
	case SQLPHASE_ADOPTED:
		/* Written once more, so that run.c hears from the store that it was adopted. */
		result.outcome = PHASE_DONE;
		result.state = state;
		break;
	case SQLPHASE_LOST:
		result.outcome = PHASE_LOST;
		break;
	case SQLPHASE_RETRY:
		result.outcome = rolled_back(phase);
		break;
	case SQLPHASE_REFUSED:
		result.outcome = PHASE_FAILED;
		break;
	}
	run_phase_done(run, &result);
	free(phase);
}

static void *start(struct run *run)
{
	int64_t left = run_time_left_ms(run);
	struct sqlphase_call call = { .step = run_step_write(run),
				      .tool_name = run_tool(run)->name,
				      .sql = run_phase(run)->sql,
				      .args_json = run_scope(run)->args,
				      .states_json = run_states_json(run),
				      .timeout_ms = left > 0 ? left : 1 };
	struct sql_phase *phase = hf_alloc(sizeof *phase);
	phase->run = run;
	phase->flight = sqlphase_start(worker_sql(run_worker(run)), &call, on_done, phase);
	return phase;
}

static void stop(void *state, bool lost)
{
	struct sql_phase *phase = state;
	phase->lost = phase->lost || lost;
	if (phase->stopping)
		return;
	phase->stopping = true;
	sqlphase_cancel(phase->flight);
}

const struct phase_kind phase_sql = { start, stop };
