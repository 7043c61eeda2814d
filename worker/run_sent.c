/* What may have left: whether an earlier request of the phase at hand may be on its way or have
 * taken effect, since when, and whether its key still keeps a second one from doing so. Everything
 * that V7 forbids to guess is asked here. */
#include "runtime/clock.h"
#include "worker/run_private.h"

constexpr int64_t KEY_MARGIN_PERCENT = 5; /* of the key's window, kept unused */

bool run_asks_downstream(const struct run *run)
{
	return run->spec->type == PHASE_HTTP && effect_is_foreign(run->spec->effect);
}

bool run_has_traces(const struct run *run)
{
	return effect_is_foreign(run->spec->effect) && run->sent_at != RUN_NEVER;
}

bool run_may_have_happened(const struct run *run)
{
	/* A program sends by itself, as soon as it has its key; an unsafe one says what it sent. */
	bool program = run->spec->type == PHASE_PROGRAM && effect_is_foreign(run->spec->effect) &&
		       run->spec->effect != EFFECT_UNSAFE;
	return run_has_traces(run) || (program && run->result.here);
}

bool run_key_is_stale(const struct run *run)
{
	int64_t window = run->spec->key_ttl_ms / 100 * (100 - KEY_MARGIN_PERCENT);
	return run->spec->effect == EFFECT_KEYED && run->sent_at != RUN_NEVER &&
	       clock_boot_ms() - run->first_try_at >= window;
}

bool run_is_first(const struct run *run)
{
	return run->first;
}

int64_t run_first_try_age_ms(const struct run *run)
{
	return clock_boot_ms() - run->first_try_at;
}

int64_t run_sent_age_ms(const struct run *run)
{
	if (run->sent_at == RUN_NEVER)
		return -1;
	int64_t age = clock_boot_ms() - run->sent_at;
	return age > 0 ? age : 0;
}

static bool is_unsafe(const struct run *run)
{
	int phase = run->phase;
	if (phase < (int)run->tool->phases_count)
		return run->tool->phases[phase].effect == EFFECT_UNSAFE;
	phase = undo_phase(phase);
	return phase >= 0 && phase < (int)run->tool->phases_count &&
	       run->tool->phases[phase].undo &&
	       run->tool->phases[phase].undo->effect == EFFECT_UNSAFE;
}

/* Of an unsafe phase its intents tell, exactly; of any other what the store had to assume when its
 * worker died. */
void run_sent_keep(struct run *run, const struct claimed_task *task)
{
	bool intended = false;
	for (size_t i = 0; i < task->steps_count; i++)
		intended = intended || task->steps[i].kind == STEP_INTENT;
	run->sent_at = RUN_NEVER;
	if (is_unsafe(run) ? intended : task->sent_ms != 0)
		run->sent_at = run->claimed_at - (task->now_ms - task->sent_ms);
	if (run->sent_at > run->claimed_at)
		run->sent_at = run->claimed_at;
}

void run_sent_tail(struct run *run)
{
	const struct claimed_task *task = &run->task;
	const struct phase_spec *spec = run_spec_find(run);
	if (task->tail.to_ms == 0 || !spec || !effect_is_foreign(spec->effect))
		return;
	int64_t from = run->claimed_at - (task->now_ms - task->tail.from_ms);
	int64_t to = run->claimed_at - (task->now_ms - task->tail.to_ms);
	/* Of a task that may only repeat a lost one nothing is known: what can be read back is, a
	 * key's window is cut short, and for the rest it is a task like any other. */
	if (task->tail.is_new &&
	    (spec->effect == EFFECT_UNSAFE ||
	     (spec->effect == EFFECT_KEYED &&
	      run_database_ms(run) - task->tail.from_ms >= spec->key_ttl_ms / 2)))
		return;
	run->first = false;
	if (run->sent_at < to)
		run->sent_at = to < run->claimed_at ? to : run->claimed_at;
	if (run->first_try_at > from)
		run->first_try_at = from;
}
