/* differential_rows.c - all rows of the store against the model's, table by table. */
#include "test/sim/differential.h"

static void row_name(struct buf *row, const char *table)
{
	buf_add_format(row, "%s|", table);
}

static void row_generations(struct run *run, struct buf *row, const struct model_task *task)
{
	if (!task->generations) {
		buf_add_text(row, "~|");
		return;
	}
	for (int i = 0; i < tool_of(run->model, task)->phases_count; i++)
		buf_add_format(row, "%c%d", i ? ',' : '{', task->generations[i]);
	buf_add_text(row, "}|");
}

static void want_work(struct run *run, const struct model_task *task)
{
	struct buf row = {};
	row_name(&row, "work");
	row_id(&row, &task->id);
	row_int(&row, task->week);
	row_int(&row, task->owner);
	row_int(&row, task->tool);
	row_text(&row, slice_of(task_state_name(task->state)));
	row_int(&row, task->due_ms);
	row_int(&row, task->deadline_ms);
	row_uuid(&row, task->has_token ? &task->token : nullptr);
	row_uuid(&row, task->has_token ? &task->incarnation : nullptr);
	row_int(&row, task->phase);
	row_int(&row, task->attempt);
	row_int(&row, task->crashes);
	row_int_or_null(&row, task->first_try_ms);
	row_int_or_null(&row, task->sent_ms);
	row_bool(&row, task->cancel);
	row_bool(&row, task->park);
	row_bool(&row, task->held);
	row_uuid(&row, task->has_attached ? &task->attached : nullptr);
	row_int_or_null(&row, task->has_attached ? task->attached_no : -1);
	if (task->progress < 0)
		buf_add_text(&row, "~|");
	else
		buf_add_format(&row, "%g|", task->progress);
	row_text(&row, task->message);
	row_int(&row, task->updated_ms);
	row_generations(run, &row, task);
	row_text(&row, slice_of(task->pause));
	want_row(run, &row);
}

static const char work_sql[] =
    "SELECT 'work', task, week, owner, queue, state, holdfast.to_ms(due),"
    " holdfast.to_ms(deadline), token, incarnation, phase, attempt, crashes,"
    " holdfast.to_ms(first_try), holdfast.to_ms(sent), cancel, park, held, attached, attached_no,"
    " progress, message, holdfast.to_ms(updated), generations, pause FROM holdfast.work";

static void want_task(struct run *run, const struct model_task *task)
{
	struct buf row = {};
	row_name(&row, "task");
	row_id(&row, &task->id);
	row_int(&row, task->owner);
	row_int(&row, task->tool);
	row_text(&row, task->effect_id);
	row_bytes(&row, (struct slice){ (const char *)task->digest, EFFECT_DIGEST_BYTES });
	row_bytes(&row, (struct slice){ (const char *)task->fingerprint, FINGERPRINT_BYTES });
	row_text(&row, task->arguments);
	row_text(&row, task->inputs);
	row_int(&row, task->asks);
	row_int(&row, task->accepted_ms);
	row_int(&row, task->deadline_ms);
	row_text(&row, task->trace);
	row_int(&row, task->key_version);
	row_int(&row, task->result_ttl_ms);
	row_id(&row, task->has_retry_of ? &task->retry_of : nullptr);
	row_id(&row, task->has_successor ? &task->successor : nullptr);
	row_generations(run, &row, task);
	row_int_or_null(&row, task->tried_ms);
	want_row(run, &row);
}

static const char task_sql[] =
    "SELECT 'task', task, owner, tool, effect_id, digest, fingerprint, arguments, inputs, asks,"
    " holdfast.to_ms(accepted), holdfast.to_ms(deadline), trace, key_version, result_ttl_ms,"
    " retry_of, successor, generations, holdfast.to_ms(tried) FROM holdfast.task";

static void want_steps(struct run *run, const struct model_task *task)
{
	static const char *const kinds[] = { "recovery_point", "checkpoint", "outcome" };
	for (size_t i = 0; i < task->steps_count; i++) {
		const struct model_step *step = &task->steps[i];
		struct buf row = {};
		row_name(&row, "step");
		row_id(&row, &task->id);
		row_int(&row, step->place);
		row_text(&row, slice_of(kinds[step->kind]));
		row_text(&row, step->name);
		row_bytes(&row, step->state);
		row_text(&row, step->result);
		row_text(&row, step->error);
		row_text(&row, step->message);
		row_text(&row, step->derived_key);
		row_text(&row, step->answer);
		row_int(&row, step->attempt);
		row_int(&row, step->generation);
		row_uuid(&row, step->has_token ? &step->token : nullptr);
		row_bool(&row, true);
		row_int_or_null(&row, step->started_ms);
		row_int(&row, step->at_ms);
		row_id(&row, step->has_origin ? &step->origin : nullptr);
		want_row(run, &row);
	}
}

static const char step_sql[] =
    "SELECT 'step', task, place, kind, name, state, result, error, message, derived_key, answer,"
    " attempt, generation, token, hash = sha256(coalesce(state, convert_to(coalesce(result, '')"
    " || coalesce(error, ''), 'UTF8'))), holdfast.to_ms(started), holdfast.to_ms(at), origin"
    " FROM holdfast.step";

static void want_events(struct run *run, const struct model_task *task)
{
	for (size_t i = 0; i < task->events_count; i++) {
		const struct model_event *event = &task->events[i];
		struct buf row = {};
		row_name(&row, "event");
		row_id(&row, &task->id);
		row_int(&row, (int64_t)i + 1); /* no gaps */
		row_text(&row, slice_of(event->kind));
		row_int(&row, event->phase);
		row_int(&row, event->attempt);
		row_text(&row, event->text);
		row_int(&row, event->at_ms);
		want_row(run, &row);
	}
}

static const char event_sql[] = "SELECT 'event', task, place, kind, phase, attempt, text,"
				" holdfast.to_ms(at) FROM holdfast.event";

/* The token of one that a retry left is drawn by the store. */
static void want_intents(struct run *run, const struct model_task *task)
{
	for (size_t i = 0; i < task->intents_count; i++) {
		const struct model_intent *intent = &task->intents[i];
		bool drawn = slice_is(intent->name, "before the retry");
		struct buf row = {};
		row_name(&row, "intent");
		row_id(&row, &task->id);
		row_int(&row, intent->phase);
		row_uuid(&row, drawn ? nullptr : &intent->token);
		row_text(&row, intent->name);
		row_int(&row, intent->at_ms);
		want_row(run, &row);
	}
}

static const char intent_sql[] =
    "SELECT 'intent', task, phase, CASE WHEN name <> 'before the retry' THEN token END, name,"
    " holdfast.to_ms(at) FROM holdfast.intent";

static void want_inbox(struct run *run, const struct model_task *task)
{
	static const char *const hows[] = { nullptr, "answer", "silence" };
	for (size_t i = 0; i < task->questions_count; i++) {
		const struct model_question *question = &task->questions[i];
		struct buf row = {};
		row_name(&row, "inbox");
		row_id(&row, &task->id);
		row_text(&row, question->key);
		row_int_or_null(&row, question->phase);
		row_text(&row, question->request);
		row_int_or_null(&row, question->asked_ms);
		row_int_or_null(&row, question->until_ms);
		row_text(&row, slice_of(hows[question->how]));
		row_text(&row, question->answer);
		row_int_or_null(&row, question->how == MODEL_OPEN ? -1 : question->answered_ms);
		want_row(run, &row);
	}
}

static const char inbox_sql[] =
    "SELECT 'inbox', task, key, phase, request, holdfast.to_ms(asked), holdfast.to_ms(until), how,"
    " answer, holdfast.to_ms(answered) FROM holdfast.inbox";

static void want_artifacts(struct run *run, const struct model_task *task)
{
	for (size_t i = 0; i < task->artifacts_count; i++) {
		const struct model_artifact *artifact = &task->artifacts[i];
		struct buf row = {};
		row_name(&row, "artifact");
		row_id(&row, &task->id);
		row_int(&row, artifact->phase);
		row_text(&row, artifact->name);
		row_text(&row, artifact->media_type);
		row_bytes(&row, artifact->content);
		row_int(&row, artifact->at_ms);
		want_row(run, &row);
	}
}

static const char artifact_sql[] = "SELECT 'artifact', task, phase, name, media_type, content,"
				   " holdfast.to_ms(at) FROM holdfast.artifact";

static void on_task(void *ctx, const struct model_task *task)
{
	struct run *run = ctx;
	if (task->open)
		want_work(run, task);
	want_task(run, task);
	want_steps(run, task);
	want_events(run, task);
	want_intents(run, task);
	want_inbox(run, task);
	want_artifacts(run, task);
}

static void on_effect(void *ctx, const struct model_effect *effect)
{
	struct run *run = ctx;
	struct buf row = {};
	row_name(&row, "effect");
	row_bytes(&row, (struct slice){ (const char *)effect->digest, EFFECT_DIGEST_BYTES });
	row_id(&row, &effect->task);
	row_bytes(&row, (struct slice){ (const char *)effect->fingerprint, FINGERPRINT_BYTES });
	row_int(&row, effect->tool);
	row_int(&row, effect->accepted_ms);
	row_int_or_null(&row, effect->tombstone_ms);
	want_row(run, &row);
}

static const char effect_sql[] =
    "SELECT 'effect', digest, task, fingerprint, tool, holdfast.to_ms(accepted),"
    " holdfast.to_ms(tombstone_until) FROM holdfast.effect";

static void want_rest(struct run *run)
{
	const struct model *model = run->model;
	for (size_t i = 0; i < model->incarnations_count; i++) {
		const struct incarnation *incarnation = &model->incarnations[i];
		struct buf row = {};
		row_name(&row, "worker");
		row_uuid(&row, &incarnation->id);
		row_int(&row, incarnation->beat);
		row_int_or_null(&row, incarnation->has_call ? incarnation->call : -1);
		want_row(run, &row);
	}
	for (size_t i = 0; i < model->pauses_count; i++) {
		struct buf row = {};
		row_name(&row, "pause");
		row_text(&row, slice_of(model->pauses[i].tenant ? "tenant" : "tool"));
		row_text(&row, model->pauses[i].name);
		want_row(run, &row);
	}
	for (size_t i = 0; i <= model->windows.mask; i++) {
		for (const struct window *at = model->windows.heads[i]; at; at = at->next) {
			struct buf row = {};
			row_name(&row, "window");
			row_bytes(&row, (struct slice){ (const char *)at->digest, 16 });
			row_text(&row, at->effect_id);
			row_int(&row, at->opened_ms);
			want_row(run, &row);
		}
	}
}

static const char rest_sql[] =
    "SELECT 'worker', w.incarnation, w.beat, c.number FROM holdfast.worker w"
    " FULL JOIN holdfast.claim_call c USING (incarnation)";
static const char pause_sql[] = "SELECT 'pause', kind, name FROM holdfast.pause";
static const char window_sql[] = "SELECT 'window', digest, effect_id, holdfast.to_ms(opened)"
				 " FROM holdfast.intent_window";

void compare_rows(struct run *run)
{
	static const char *const statements[] = {
		work_sql,     task_sql,   step_sql, event_sql, intent_sql, inbox_sql,
		artifact_sql, effect_sql, rest_sql, pause_sql, window_sql,
	};
	model_each(run->model, on_task, on_effect, run);
	want_rest(run);
	rows_read(run, statements, countof(statements));
	settle_call(run);
}
