/* What a run knows: the claim's copy, the states of its phases in both forms, checkpoints, and the
 * roots that templates read. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/json.h"
#include "runtime/value.h"
#include "worker/run_private.h"
#include "worker/worker.h"

static size_t claim_size(const struct claimed_task *task)
{
	constexpr size_t PIECE = 64; /* alignment and terminator, generously */
	size_t size = task->issuer.len + task->subject.len + task->tenant.len +
		      task->effect_id.len + task->trace.len + task->arguments.len +
		      task->inputs.len + 7 * PIECE;
	for (size_t i = 0; i < task->steps_count; i++)
		size += sizeof task->steps[0] + task->steps[i].name.len + task->steps[i].state.len +
			3 * PIECE;
	return size + PIECE;
}

static struct slice copy(struct arena *arena, struct slice slice)
{
	return (struct slice){ arena_copy(arena, slice), slice.len };
}

static void copy_claim(struct run *run, const struct claimed_task *task)
{
	size_t size = claim_size(task);
	hf_assert(size < RUN_CLAIM_BYTES_MAX);
	run->arena = arena_new(size);
	struct claimed_task *own = &run->task;
	*own = *task;
	own->issuer = copy(run->arena, task->issuer);
	own->subject = copy(run->arena, task->subject);
	own->tenant = copy(run->arena, task->tenant);
	own->effect_id = copy(run->arena, task->effect_id);
	own->trace = copy(run->arena, task->trace);
	own->arguments = copy(run->arena, task->arguments);
	own->inputs = copy(run->arena, task->inputs);
	run->trace = trace_unpack(own->trace);
	struct slice id = trace_id(&run->trace);
	if (id.len)
		memcpy(run->trace_id, id.data, id.len);
	struct claimed_step *steps =
	    arena_alloc(run->arena, task->steps_count * sizeof task->steps[0]);
	for (size_t i = 0; i < task->steps_count; i++) {
		steps[i] = task->steps[i];
		steps[i].name = copy(run->arena, task->steps[i].name);
		steps[i].state = copy(run->arena, task->steps[i].state);
	}
	own->steps = steps;
}

/* The client's own bytes are stored; an effect ID that came in another carrier is put in here, as
 * it was before the schema check. */
static enum hf_code make_args(struct run *run, struct hf_err *err)
{
	struct slice args = json_trim(run->task.arguments), found;
	if (args.len == 0)
		args = slice_of("{}");
	hf_try(json_scan(args, err));
	if (json_type_of(args) != JSON_OBJECT)
		return hf_fail(err, HF_INVALID, "the arguments are no object");
	if (run->task.effect_id.len == 0 || json_member(args, "effect_id", &found)) {
		buf_add_slice(&run->args, args);
		return HF_OK;
	}
	struct slice name, value;
	size_t at = 0;
	bool empty = !json_object_next(args, &at, &name, &value);
	buf_add(&run->args, args.data, args.len - 1);
	buf_add_text(&run->args, empty ? "\"effect_id\":" : ",\"effect_id\":");
	json_string_encode(run->task.effect_id, &run->args);
	buf_add_byte(&run->args, '}');
	return HF_OK;
}

static enum hf_code keep_generation(struct run *run, int phase, struct slice name,
				    struct hf_err *err)
{
	int64_t number;
	if (!json_integer(name, &number) || number < 0 || number > UINT32_MAX)
		return hf_fail(err, HF_CORRUPT, "the generation of a key is no number");
	run->generations[phase] = (uint32_t)number;
	return HF_OK;
}

static enum hf_code keep_steps(struct run *run, struct hf_err *err)
{
	for (size_t i = 0; i < run->task.steps_count; i++) {
		const struct claimed_step *step = &run->task.steps[i];
		int phase = step->place / STEP_PLACES_PER_PHASE;
		if (step->kind == STEP_CHECKPOINT) {
			run_checkpoint_keep(run, step->place, step->name, step->state);
		} else if (step->kind == STEP_RECOVERY_POINT && phase >= UNDO_PHASE_FIRST) {
			run->undone[undo_phase(phase)] = true;
		} else if (step->kind == STEP_RECOVERY_POINT) {
			hf_try(run_keep_state(run, phase, step->state, err));
			run->states[phase].known = true;
		} else if (step->kind == STEP_GENERATION && phase < (int)TOOL_PHASES_MAX) {
			hf_try(keep_generation(run, phase, step->name, err));
		}
	}
	run->kept_bytes = 0; /* the bound is for what this run adds */
	return HF_OK;
}

enum hf_code run_keep_claim(struct run *run, const struct claimed_task *task, struct hf_err *err)
{
	copy_claim(run, task);
	task_id_format(&task->id, run->id);
	run->claimed_at = clock_boot_ms();
	run->deadline_at = run->claimed_at + task->deadline_ms - task->now_ms;
	run->phase = task->phase;
	run->attempt = task->attempt;
	run->cancel = task->cancel;
	run->first = task->first_try_ms == task->now_ms && task->sent_ms == 0;
	run->first_try_at = run->claimed_at - (task->now_ms - task->first_try_ms);
	run->accepted_at = RUN_NEVER;
	run_sent_keep(run, task);
	run->states = hf_alloc(run->tool->phases_count * sizeof run->states[0]);
	hf_try(make_args(run, err));
	hf_try(keep_steps(run, err));
	hf_try(run_keep_accepted(run, err));
	/* A recovery point that stands past the claim's phase was set by another's hand: go on
	 * after it, and believe nothing about what was sent meanwhile. */
	while (run->phase < (int)run->tool->phases_count && run->states[run->phase].known) {
		run->phase++;
		run->attempt = 1;
		run->first = false;
		run->sent_at = run->claimed_at;
		run->accepted_at = RUN_NEVER;
	}
	run_sent_tail(run);
	return HF_OK;
}

enum hf_code run_keep_state(struct run *run, int phase, struct slice msgpack, struct hf_err *err)
{
	hf_assert(phase >= 0);
	if (phase >= UNDO_PHASE_FIRST)
		return HF_OK; /* nobody reads what an undo step gave */
	hf_assert(phase < (int)run->tool->phases_count);
	struct known_state *state = &run->states[phase];
	buf_clear(&state->msgpack);
	buf_clear(&state->json);
	state->json.max = RUN_STATE_JSON_BYTES_MAX;
	hf_try(value_to_json(msgpack, &state->json, err));
	if (state->json.overflow || run->kept_bytes + msgpack.len > RUN_KEPT_BYTES_MAX)
		return hf_fail(err, HF_LIMIT, "the state of the phase is too large");
	buf_add_slice(&state->msgpack, msgpack);
	run->kept_bytes += msgpack.len;
	return HF_OK;
}

struct checkpoint *run_checkpoint_find(struct run *run, struct slice name)
{
	for (struct checkpoint *point = run->checkpoints; point; point = point->next)
		if (point->phase == run->phase && slice_equal(buf_slice(&point->name), name))
			return point;
	return nullptr;
}

void run_checkpoint_keep(struct run *run, int32_t place, struct slice name, struct slice value)
{
	struct checkpoint *point = hf_alloc(sizeof *point);
	point->phase = place / STEP_PLACES_PER_PHASE;
	point->n = place % STEP_PLACES_PER_PHASE;
	buf_add_slice(&point->name, name);
	buf_add_slice(&point->value, value);
	point->next = run->checkpoints;
	run->checkpoints = point;
	run->kept_bytes += name.len + value.len;
	if (point->n > run->points[point->phase])
		run->points[point->phase] = point->n;
}

static const struct checkpoint *accepted_find(const struct run *run)
{
	for (const struct checkpoint *point = run->checkpoints; point; point = point->next)
		if (point->phase == run->phase && point->n == STEP_ACCEPTED)
			return point;
	return nullptr;
}

enum hf_code run_keep_accepted(struct run *run, struct hf_err *err)
{
	const struct checkpoint *point = accepted_find(run);
	if (!point || run_undoing(run) || run->states[run->phase].known)
		return HF_OK;
	hf_cleanup(buf) struct buf json = {}, state = {};
	struct slice at, body;
	int64_t accepted_ms;
	hf_try(value_to_json(buf_slice(&point->value), &json, err));
	if (!json_member(buf_slice(&json), "accepted_ms", &at) || !json_integer(at, &accepted_ms) ||
	    !json_member(buf_slice(&json), "state", &body))
		return hf_fail(err, HF_CORRUPT, "an accepted request does not read back");
	value_from_json(body, &state);
	hf_try(run_keep_state(run, run->phase, buf_slice(&state), err));
	run->accepted_at = run->claimed_at - (run->task.now_ms - accepted_ms);
	run->sent_at = run->accepted_at;
	return HF_OK;
}

bool run_accepted(const struct run *run, int64_t *age_ms, struct slice *state_msgpack)
{
	if (run->accepted_at == RUN_NEVER)
		return false;
	int64_t age = clock_boot_ms() - run->accepted_at;
	*age_ms = age > 0 ? age : 0;
	*state_msgpack = buf_slice(&run->states[run->phase].msgpack);
	return true;
}

static bool scope_state(void *ctx, struct slice phase, struct slice *json)
{
	struct run *run = ctx;
	for (size_t i = 0; i < run->tool->phases_count; i++) {
		bool accepted = (int)i == run->phase && run->accepted_at != RUN_NEVER;
		if ((!run->states[i].known && !accepted) ||
		    !slice_is(phase, run->tool->phases[i].name))
			continue;
		*json = buf_slice(&run->states[i].json);
		return true;
	}
	return false;
}

static void task_json(struct run *run)
{
	struct buf *out = &run->task_json;
	buf_clear(out);
	buf_add_text(out, "{\"id\":");
	json_string_encode(slice_of(run->id), out);
	buf_add_text(out, ",\"tool\":");
	json_string_encode(slice_of(run->tool->name), out);
	buf_add_text(out, ",\"effect_id\":");
	json_string_encode(run->task.effect_id, out);
	buf_add_format(out, ",\"attempt\":%d}", run_attempt(run));
}

enum hf_code run_scope_set(struct run *run, struct hf_err *err)
{
	buf_clear(&run->states_json);
	buf_clear(&run->key_json);
	run->key[0] = '\0';
	trace_span(&run->trace, run->traceparent);
	if (run->spec)
		hf_try(run_derive(run, 0, run->key, err));
	json_string_encode(slice_of(run->key), &run->key_json);
	task_json(run);
	run->scope = (struct template_scope){ .args = buf_slice(&run->args),
					      .key = buf_slice(&run->key_json),
					      .task = buf_slice(&run->task_json),
					      .conf = worker_conf(run->worker),
					      .input = run->task.inputs.len ? run->task.inputs
									    : slice_of("{}"),
					      .state = scope_state,
					      .state_ctx = run };
	return HF_OK;
}

void run_keep_free(struct run *run)
{
	for (struct checkpoint *point = run->checkpoints, *next; point; point = next) {
		next = point->next;
		buf_deinit(&point->name);
		buf_deinit(&point->value);
		free(point);
	}
	for (size_t i = 0; run->states && i < run->tool->phases_count; i++) {
		buf_deinit(&run->states[i].msgpack);
		buf_deinit(&run->states[i].json);
	}
	free(run->states);
	buf_deinit(&run->args);
	buf_deinit(&run->key_json);
	buf_deinit(&run->task_json);
	buf_deinit(&run->states_json);
	arena_free(run->arena);
}
