/* What a run offers to its running phase (phase.h). A side operation, a checkpoint or an artifact
 * on its way, outlives neither its run nor, in what it tells, its phase: run.c goes on only when
 * all are back, and an answer that comes after the phase has ended is told to nobody. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "runtime/clock.h"
#include "runtime/json.h"
#include "runtime/value.h"
#include "worker/run_private.h"
#include "worker/text.h"
#include "worker/worker.h"

struct ev_loop *run_loop(const struct run *run)
{
	return run->loop;
}

struct worker *run_worker(const struct run *run)
{
	return run->worker;
}

const struct tool *run_tool(const struct run *run)
{
	return run->tool;
}

const struct phase_spec *run_phase(const struct run *run)
{
	return run->spec;
}

int run_phase_number(const struct run *run)
{
	return run->phase;
}

const struct claimed_task *run_task(const struct run *run)
{
	return &run->task;
}

const char *run_task_id(const struct run *run)
{
	return run->id;
}

const char *run_tool_folder(const struct run *run)
{
	return run->folder;
}

const struct trace *run_trace(const struct run *run)
{
	return &run->trace;
}

const char *run_traceparent(const struct run *run)
{
	return run->traceparent;
}

const char *run_trace_id(const struct run *run)
{
	return run->trace_id[0] ? run->trace_id : nullptr;
}

const char *run_key(const struct run *run)
{
	return run->key;
}

enum hf_code run_derive(const struct run *run, uint32_t call, char *text, struct hf_err *err)
{
	const struct claimed_task *task = &run->task;
	struct key_place place = { .key_version = task->key_version,
				   .cluster = task->cluster,
				   .issuer = task->issuer,
				   .subject = task->subject,
				   .tenant = task->tenant,
				   .tool = slice_of(run->tool->name),
				   .effect_id = task->effect_id,
				   .phase = slice_of(run->spec->name),
				   .call = call,
				   .generation = run->phase < (int)TOOL_PHASES_MAX
						     ? run->generations[run->phase]
						     : 0 };
#ifdef PLANT_key_with_attempt
	place.generation = (uint32_t)run->attempt;
#endif
	return derive_key(worker_keyring(run->worker), &place, text, err);
}

const struct template_scope *run_scope(const struct run *run)
{
	return &run->scope;
}

struct slice run_states_json(struct run *run)
{
	struct buf *out = &run->states_json;
	if (out->len == 0) {
		buf_add_byte(out, '{');
		for (size_t i = 0; i < run->tool->phases_count; i++) {
			if (!run->states[i].known)
				continue;
			if (out->len > 1)
				buf_add_byte(out, ',');
			json_string_encode(slice_of(run->tool->phases[i].name), out);
			buf_add_byte(out, ':');
			buf_add_slice(out, buf_slice(&run->states[i].json));
		}
		buf_add_byte(out, '}');
	}
	return buf_slice(out);
}

int run_attempt(const struct run *run)
{
	return run->attempt + (run->phase == run->task.phase ? run->task.crashes : 0);
}

int64_t run_database_ms(const struct run *run)
{
	return run->task.now_ms + clock_boot_ms() - run->claimed_at;
}

int64_t run_time_left_ms(const struct run *run)
{
	int64_t now = clock_boot_ms();
	int64_t left = run->started_at + run->spec->timeout_ms - now;
	/* Settling may begin when the deadline is over. */
	if (!run->settling && !run_undoing(run) && run->deadline_at - now < left)
		left = run->deadline_at - now;
	return left > 0 ? left : 0;
}

bool run_may_send(const struct run *run)
{
	return run->lost == LOSS_NONE && worker_may_send(run->worker);
}

/* --- progress --------------------------------------------------------------------------------- */

/* Phases count by the time-outs that the tool declares: the best guess at their share there is. */
static double overall(const struct run *run, double fraction)
{
	double done = 0, all = 0;
	for (size_t i = 0; i < run->tool->phases_count; i++) {
		double weight = (double)run->tool->phases[i].timeout_ms;
		all += weight;
		if ((int)i < run->phase)
			done += weight;
		else if ((int)i == run->phase)
			done += weight * fraction;
	}
	return all > 0 ? done / all : 0;
}

static void set_progress(struct run *run, double fraction, struct slice text)
{
	run->progress = overall(run, fraction);
	buf_clear(&run->message);
	buf_add_text(&run->message, run->spec->name);
	if (text.len > 0) {
		buf_add_text(&run->message, ": ");
		text_clean(text, TEXT_PROGRESS_LEN_MAX, &run->message);
	}
	run->progress_changed = true;
}

void run_progress_phase(struct run *run)
{
	set_progress(run, 0, (struct slice){});
}

void run_progress(struct run *run, double fraction, struct slice text)
{
	if (!isfinite(fraction) || fraction < 0)
		fraction = 0;
	set_progress(run, fraction > 1 ? 1 : fraction, text);
}

bool run_progress_take(struct run *run, struct beat_task *out)
{
	if (!run->progress_changed || run->state != RUN_WORKING)
		return false;
	run->progress_changed = false;
	*out = (struct beat_task){ .id = run->task.id,
				   .token = run->task.token,
				   .progress = run->progress,
				   .message = buf_slice(&run->message) };
	return true;
}

/* --- side operations -------------------------------------------------------------------------- */

struct side {
	struct run *run;
	uint64_t serial;
	struct buf name, value; /* of a checkpoint */
	int32_t place;
	bool accepts;     /* it is the checkpoint that the request was accepted */
	bool ok;          /* what `later` will tell */
	ev_prepare later; /* never started, only fed: an answer that needs no store */
	void (*put_done)(void *ctx, bool ok);
	void (*get_done)(void *ctx, bool found, struct slice media_type, struct slice content);
	void *ctx;
};

static struct side *side_new(struct run *run, void *ctx)
{
	struct side *side = hf_alloc(sizeof *side);
	side->run = run;
	side->serial = run->serial;
	side->ctx = ctx;
	run->sides++;
	return side;
}

static bool side_wanted(const struct side *side)
{
	const struct run *run = side->run;
	return side->serial == run->serial && !run->result.here && run->state == RUN_WORKING;
}

static void side_free(struct side *side)
{
	struct run *run = side->run;
	hf_assert(run->sides > 0);
	run->sides--;
	buf_deinit(&side->name);
	buf_deinit(&side->value);
	free(side);
	run_feed(run);
}

static void side_put(struct side *side, bool ok)
{
	if (side_wanted(side))
		side->put_done(side->ctx, ok);
	side_free(side);
}

static void on_later(struct ev_loop *, ev_prepare *later, int)
{
	struct side *side = container_of(later, struct side, later);
	side_put(side, side->ok);
}

static void answer_later(struct side *side, bool ok)
{
	side->ok = ok;
	ev_init(&side->later, on_later);
	ev_feed_event(side->run->loop, &side->later, EV_CUSTOM);
}

void run_break(struct run *run, enum phase_outcome outcome, const char *format, ...)
{
	if (run->broken.len > 0)
		return;
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	text_clean(slice_of(text), TEXT_REASON_LEN_MAX, &run->broken);
	run->broken_outcome = outcome;
	run_feed(run);
}

/* True: it is ours still. `what` failed otherwise, and the run knows. */
static bool put_held(struct run *run, const char *what, enum hf_code code, enum fence fence,
		     const struct hf_err *err)
{
	if (code == HF_OK && fence == FENCE_HELD)
		return true;
	if (code == HF_OK)
		run_lose(run, true);
	else if (code != HF_CANCELLED)
		run_break(run, code == HF_INVALID || code == HF_LIMIT ? PHASE_FAILED : PHASE_RETRY,
			  "%s could not be stored: %s", what, err ? err->text : hf_code_name(code));
	return false;
}

static void on_checkpoint(void *ctx, enum hf_code code, enum fence fence, enum wish wish,
			  struct slice, const struct hf_err *err)
{
	struct side *side = ctx;
	struct run *run = side->run;
	struct hf_err inner = {};
	/* Adopted means that another claim came after ours: this one is stale. */
	bool held = put_held(run, side->accepts ? "that it was accepted" : "a checkpoint", code,
			     fence, err);
	if (held)
		run_checkpoint_keep(run, side->place, buf_slice(&side->name),
				    buf_slice(&side->value));
	if (held && side->accepts && run_keep_accepted(run, &inner) != HF_OK)
		run_break(run, PHASE_FAILED, "%s", inner.text);
	if (held && wish != WISH_NONE)
		run_wish(run, wish);
	side_put(side, held);
}

/* `n`: its place within the phase. */
static void store_checkpoint(struct side *side, int n)
{
	struct run *run = side->run;
	struct step_write step = run_step_write(run);
	step.kind = STEP_CHECKPOINT;
	step.place = side->place = step_place_checkpoint(run->phase, n);
	step.name = buf_slice(&side->name);
	step.state = buf_slice(&side->value);
	store_step(worker_store(run->worker), &step, on_checkpoint, side);
}

static bool name_is_clean(struct slice name)
{
	hf_cleanup(buf) struct buf clean = {};
	text_clean(name, RUN_NAME_LEN_MAX, &clean);
	return name.len > 0 && slice_equal(name, buf_slice(&clean));
}

void run_checkpoint(struct run *run, struct slice name, struct slice value_msgpack,
		    void (*done)(void *ctx, bool ok), void *ctx)
{
	hf_assert(run->state == RUN_WORKING);
	struct side *side = side_new(run, ctx);
	side->put_done = done;
	/* Given out for good, whatever becomes of it: two never share a place. */
	int n = run->points[run->phase] + 1;
	if (run_checkpoint_find(run, name)) {
		answer_later(side, true);
		return;
	}
	if (!name_is_clean(name) || n >= STEP_ACCEPTED ||
	    run->kept_bytes + value_msgpack.len > RUN_KEPT_BYTES_MAX) {
		run_break(run, PHASE_FAILED,
			  name_is_clean(name)
			      ? "too many checkpoints, or too large ones"
			      : "the name of a checkpoint is empty, too long or not plain text");
		answer_later(side, false);
		return;
	}
	run->points[run->phase] = n;
	buf_add_slice(&side->name, name);
	buf_add_slice(&side->value, value_msgpack);
	store_checkpoint(side, n);
}

void run_accept(struct run *run, struct slice state_json, void (*done)(void *ctx, bool ok),
		void *ctx)
{
	hf_assert(run->state == RUN_WORKING);
	struct side *side = side_new(run, ctx);
	side->put_done = done;
	hf_cleanup(buf) struct buf json = {};
	buf_add_format(&json, "{\"accepted_ms\":%jd,\"state\":", (intmax_t)run_database_ms(run));
	buf_add_slice(&json, state_json);
	buf_add_byte(&json, '}');
	value_from_json(buf_slice(&json), &side->value);
	buf_add_text(&side->name, "accepted");
	side->accepts = true;
	store_checkpoint(side, STEP_ACCEPTED);
}

bool run_recall(struct run *run, struct slice name, struct slice *value_msgpack)
{
	struct checkpoint *point = run_checkpoint_find(run, name);
	if (point)
		*value_msgpack = buf_slice(&point->value);
	return point != nullptr;
}

static void on_artifact_put(void *ctx, enum hf_code code, enum fence fence,
			    const struct hf_err *err)
{
	struct side *side = ctx;
	side_put(side, put_held(side->run, "an artifact", code, fence, err));
}

void run_artifact_put(struct run *run, struct slice name, struct slice media_type,
		      struct slice content, void (*done)(void *ctx, bool ok), void *ctx)
{
	hf_assert(run->state == RUN_WORKING);
	struct side *side = side_new(run, ctx);
	side->put_done = done;
	if (!name_is_clean(name) || !name_is_clean(media_type)) {
		run_break(run, PHASE_FAILED,
			  "name or media type of an artifact is empty, too long or not plain text");
		answer_later(side, false);
		return;
	}
	store_artifact_put(worker_store(run->worker), &run->task.id, &run->task.token, run->phase,
			   name, media_type, content, on_artifact_put, side);
}

static void on_artifact_get(void *ctx, enum hf_code code, struct slice media_type,
			    struct slice content, const struct hf_err *err)
{
	struct side *side = ctx;
	if (code != HF_OK && code != HF_MISSING && code != HF_CANCELLED)
		run_break(side->run, PHASE_RETRY, "an artifact could not be read: %s",
			  err ? err->text : hf_code_name(code));
	if (side_wanted(side))
		side->get_done(side->ctx, code == HF_OK, media_type, content);
	side_free(side);
}

void run_artifact_get(struct run *run, struct slice name,
		      void (*done)(void *ctx, bool found, struct slice media_type,
				   struct slice content),
		      void *ctx)
{
	hf_assert(run->state == RUN_WORKING);
	struct side *side = side_new(run, ctx);
	side->get_done = done;
	store_artifact_get(worker_store(run->worker), &run->task.id, run->phase, name,
			   on_artifact_get, side);
}
