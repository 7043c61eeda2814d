/* differential_work.c - the calls of workers. */
#include <stdio.h>
#include <stdlib.h>

#include "test/sim/differential.h"

constexpr size_t STEP_LINES_MAX = 64;

static const char *const fence_words[] = { "held", "adopted", "lost" };

static void want_fence(struct run *run, size_t at, enum fence fence)
{
	struct buf row = {};
	row_int(&row, (int64_t)at + 1);
	row_text(&row, slice_of(fence_words[fence]));
	want_row(run, &row);
}

/* --- beat ------------------------------------------------------------------------------------- */

static void want_wishes(struct run *run, const struct uuid *incarnation, bool alive)
{
	struct beat_wish wishes[CLAIMS_MAX];
	size_t count = alive ? model_wishes(run->model, incarnation, wishes, countof(wishes)) : 0;
	for (size_t i = 0; i < count || i == 0; i++) {
		struct buf row = {};
		row_bool(&row, alive);
		row_id(&row, count ? &wishes[i].id : nullptr);
		row_uuid(&row, count ? &wishes[i].token : nullptr);
		row_int(&row, count ? (int)wishes[i].wish : 0);
		want_row(run, &row);
		hit("beat", "%s",
		    !alive                        ? "dead"
		    : !count                      ? "alive"
		    : wishes[i].wish == WISH_PARK ? "wish park"
						  : "wish cancel");
	}
}

static void beat(struct run *run, const struct uuid *incarnation, bool fresh,
		 const struct beat_task *tasks, size_t count)
{
	bool worker = incarnation < &run->incarnations[WORKERS];
	sql_begin(run, "SELECT * FROM holdfast.beat_async(");
	sql_uuid(run, incarnation);
	sql_add(run, ", %s, '%s', 4, 0", fresh ? "true" : "false", worker ? "worker" : "api");
	SQL_ARRAY(run, "bytea", count, sql_id(run, &tasks[i].id));
	SQL_ARRAY(run, "uuid", count, sql_uuid(run, &tasks[i].token));
	SQL_ARRAY(run, "real", count,
		  tasks[i].progress < 0 ? sql_add(run, "NULL")
					: sql_add(run, "%g", tasks[i].progress));
	SQL_ARRAY(run, "text", count, sql_text(run, tasks[i].message));
	sql_add(run, ")");
	sql_run(run, nullptr);
	want_wishes(run, incarnation, model_beat(run->model, incarnation, fresh, tasks, count));
	settle_call(run);
}

void first_beat(struct run *run, const struct uuid *incarnation)
{
	beat(run, incarnation, true, nullptr, 0);
}

static void do_beat(struct run *run)
{
	static const double progresses[] = { -1, 0.25, 0.5 };
	size_t who = chance(run, INCARNATIONS);
	const struct uuid *incarnation = &run->incarnations[who];
	struct hold holds[2];
	struct beat_task tasks[2];
	size_t count = who < WORKERS ? chance_holds(run, holds, countof(holds), false) : 0;
	for (size_t i = 0; i < count; i++)
		tasks[i] = (struct beat_task){
			.id = holds[i].id,
			.token = holds[i].token,
			.progress = progresses[chance(run, countof(progresses))],
			.message = chance_of(run, 50) ? slice_of("at it") : (struct slice){},
		};
	bool fresh =
	    model_beats(run->model, incarnation) ? chance_of(run, 10) : !chance_of(run, 25);
	beat(run, incarnation, fresh, tasks, count);
}

static void do_leave(struct run *run)
{
	size_t who = chance(run, INCARNATIONS);
	sql_begin(run, "SELECT count(*) FROM holdfast.leave(");
	sql_uuid(run, &run->incarnations[who]);
	sql_add(run, ")");
	sql_run(run, nullptr);
	hit("leave", model_beats(run->model, &run->incarnations[who]) ? "gone" : "was not");
	model_leave(run->model, &run->incarnations[who]);
	want_int(run, 1);
	settle_call(run);
}

/* --- claim ------------------------------------------------------------------------------------ */

static void uuid_read(const char *text, struct uuid *uuid)
{
	char hex[33];
	size_t len = 0;
	for (; *text && len < 32; text++) {
		if (*text != '-')
			hex[len++] = *text;
	}
	bool whole = hex_parse((struct slice){ hex, len }, uuid->bytes, sizeof uuid->bytes);
	hf_assert(whole);
}

static void id_read(const char *text, struct task_id *id)
{
	bool whole = hex_parse(slice_of(text + 2), id->bytes, sizeof id->bytes);
	hf_assert(whole);
}

/* What Postgres gave: tokens for the model, holds for what comes. */
static void holds_note(struct run *run)
{
	run->taken_count = 0;
	if (PQresultStatus(run->result) != PGRES_TUPLES_OK)
		return;
	for (int row = 0; row < PQntuples(run->result); row++) {
		struct hold hold = {};
		id_read(PQgetvalue(run->result, row, 0), &hold.id);
		uuid_read(PQgetvalue(run->result, row, 1), &hold.token);
		hold.phase = atoi(PQgetvalue(run->result, row, 3));
		hold.attempt = atoi(PQgetvalue(run->result, row, 4));
		run->taken[run->taken_count++] = hold.id;
		bool known = false;
		for (size_t i = 0; i < run->holds_count; i++)
			known = known || uuid_equal(&run->holds[i].token, &hold.token);
		if (known)
			continue;
		hf_assert(run->holds_count < CLAIMS_MAX);
		run->holds[run->holds_count++] = hold;
	}
}

/* Where a tenant is paused, which tasks were set aside decides who came next among equals. */
static void aside_note(struct run *run)
{
	run->aside_count = 0;
	if (!run->model->pauses_count)
		return;
	PGresult *result = PQexec(run->conn, "SELECT task FROM holdfast.work"
					     " WHERE state = 'paused' AND pause = 'tenant'");
	for (int row = 0; row < PQntuples(result) && run->aside_count < TASKS_MAX; row++)
		id_read(PQgetvalue(result, row, 0), &run->aside[run->aside_count++]);
	PQclear(result);
}

static char *step_line(int32_t place, const char *kind, struct slice name, struct slice state)
{
	struct buf text = {};
	buf_add_format(&text, "%010d,%s,", place, kind);
	buf_add_slice(&text, name);
	buf_add_byte(&text, ',');
	row_bytes(&text, state);
	return buf_take(&text);
}

static void row_steps(struct buf *row, const struct claimed_task *task)
{
	static const char *const kinds[] = {
		[STEP_RECOVERY_POINT] = "recovery_point",
		[STEP_CHECKPOINT] = "checkpoint",
		[STEP_OUTCOME] = "outcome",
		[STEP_INTENT] = "intent",
		[STEP_INBOX] = "inbox",
		[STEP_GENERATION] = "generation",
	};
	char *lines[STEP_LINES_MAX], asks[16];
	size_t count = 0;
	hf_assert(task->steps_count + 2 <= STEP_LINES_MAX);
	for (size_t i = 0; i < task->steps_count; i++) {
		const struct claimed_step *step = &task->steps[i];
		lines[count++] = step_line(step->place, kinds[step->kind], step->name, step->state);
		hit("claim", "with %s", kinds[step->kind]);
	}
	if (task->inputs.data)
		lines[count++] = step_line(0, "inputs", (struct slice){}, task->inputs);
	snprintf(asks, sizeof asks, "%d", task->asks);
	if (task->asks)
		lines[count++] = step_line(0, "asks", slice_of(asks), (struct slice){});
	lines_sort(lines, count);
	for (size_t i = 0; i < count; i++) {
		buf_add_format(row, "%s%s", i ? ";" : "", lines[i]);
		free(lines[i]);
	}
	buf_add_text(row, count ? "|" : "~|");
}

static void want_claimed(struct run *run, const struct claimed_task *task)
{
	struct buf row = {};
	row_id(&row, &task->id);
	row_uuid(&row, &task->token);
	row_int(&row, task->tool);
	row_int(&row, task->phase);
	row_int(&row, task->attempt);
	row_int(&row, task->crashes);
	row_bool(&row, task->cancel);
	row_int(&row, task->now_ms);
	row_int(&row, task->deadline_ms);
	row_int(&row, task->first_try_ms);
	row_int(&row, task->sent_ms);
	row_int(&row, task->owner);
	row_text(&row, task->issuer);
	row_text(&row, task->subject);
	row_text(&row, task->tenant);
	row_text(&row, task->effect_id);
	row_text(&row, task->trace);
	row_text(&row, task->arguments);
	row_int(&row, task->key_version);
	row_bool(&row, true);
	row_steps(&row, task);
	want_row(run, &row);
}

static void call_draw(struct run *run, size_t worker, struct uuid *call)
{
	*call = chance_uuid(run);
	uint64_t number = chance_of(run, 92) ? ++run->calls : 1;
	if (chance_of(run, 4))
		number |= 1ULL << 63;
	for (size_t i = 0; i < 8; i++)
		call->bytes[15 - i] = (unsigned char)(number >> (8 * i));
	if (worker == run->last_worker && chance_of(run, 15))
		*call = run->last_call;
	run->last_call = *call;
	run->last_worker = worker;
}

static void claim_sql(struct run *run, const struct uuid *incarnation, const int32_t *queues,
		      size_t count, int most, const struct uuid *call)
{
	sql_begin(run,
		  "SELECT task, token, tool, phase, attempt, crashes, cancel, now_ms, deadline_ms,"
		  " first_try_ms, sent_ms, owner, issuer, subject, tenant, effect_id, trace,"
		  " arguments, key_version,"
		  " cluster = (SELECT incarnation FROM holdfast.cluster), (SELECT"
		  " string_agg(s, ';' ORDER BY s COLLATE \"C\") FROM (SELECT lpad(p::text, 10,"
		  " '0') || ',' || k || ',' || n || ',' || coalesce('\\x' || encode(b, 'hex'),"
		  " '~') || '|' FROM unnest(places, kinds, names, states) u (p, k, n, b)) l (s))"
		  " FROM holdfast.claim(");
	sql_uuid(run, incarnation);
	SQL_ARRAY(run, "int", count, sql_add(run, "%d", queues[i]));
	sql_add(run, ", %d, ", most);
	sql_uuid(run, call);
	sql_add(run, ")");
	sql_run(run, nullptr);
}

void claim_once(struct run *run)
{
	size_t worker = chance(run, WORKERS);
	const struct uuid *incarnation = &run->incarnations[worker];
	/* Workers beat before they claim. */
	if (!model_beats(run->model, incarnation) && chance_of(run, 80)) {
		do_beat(run);
		return;
	}
	int32_t queues[TOOLS] = { 1, 2, 3 };
	for (size_t i = TOOLS - 1; i > 0; i--) {
		size_t other = chance(run, i + 1);
		int32_t queue = queues[i];
		queues[i] = queues[other];
		queues[other] = queue;
	}
	size_t count = chance_of(run, 70) ? (size_t)TOOLS : 1 + chance(run, 2);
	int most = 1 + (int)chance(run, 3);
	struct uuid call;
	call_draw(run, worker, &call);
	size_t held_before = run->holds_count;
	claim_sql(run, incarnation, queues, count, most, &call);
	holds_note(run);
	aside_note(run);
	size_t given = 0;
	const struct claimed_task *tasks =
	    model_claim(run->model, incarnation, queues, count, most, &call, &given);
	for (size_t i = 0; i < given; i++) {
		want_claimed(run, &tasks[i]);
		hit("claim", "%s%s", tasks[i].attempt == 1 ? "first" : "again",
		    tasks[i].sent_ms ? ", maybe sent" : "");
		if (tasks[i].cancel)
			hit("claim", "cancelled");
		if (tasks[i].crashes)
			hit("claim", "crashed before");
		if (tasks[i].phase >= UNDO_PHASE_FIRST)
			hit("claim", "undo");
	}
	if (given && run->holds_count == held_before)
		hit("claim", "the same call again");
	if (!given)
		hit("claim", "%s", model_beats(run->model, incarnation) ? "none" : "none, dead");
	if (run->aside_count)
		hit("claim", "tenant aside");
	settle_call(run);
}

/* --- step ------------------------------------------------------------------------------------- */

static void step_draw(struct run *run, const struct hold *hold, struct step_write *step)
{
	*step = (struct step_write){
		.id = hold->id,
		.token = hold->token,
		.kind = STEP_RECOVERY_POINT,
		.phase = hold->phase,
		.name = slice_of("phase"),
		.state = slice_of(chance_of(run, 50) ? "\x01" : "\x02"),
		.derived_key = chance_of(run, 30) ? slice_of("key") : (struct slice){},
		.answer = chance_of(run, 30) ? slice_of("200") : (struct slice){},
		.attempt = hold->attempt,
		.took_ms = (int64_t)chance(run, 50),
	};
	if (chance_of(run, 8) && step->phase > 0)
		step->phase--;
	step->place = step_place_recovery(step->phase);
	if (chance_of(run, 30)) {
		step->kind = STEP_CHECKPOINT;
		step->place = step_place_checkpoint(step->phase, chance_of(run, 80) ? 1 : 2);
		if (chance_of(run, 30))
			step->place = step->phase * STEP_PLACES_PER_PHASE + STEP_ACCEPTED;
	}
}

/* Now and then at a place that another claim has defined. */
static void step_rival(struct run *run, const struct hold *hold, struct step_write *step)
{
	const struct model_task *task = model_look(run->model, &hold->id);
	if (!task || !task->steps_count || !chance_of(run, 15))
		return;
	const struct model_step *stands = &task->steps[chance(run, task->steps_count)];
	if (stands->kind == STEP_OUTCOME)
		return;
	step->kind = stands->kind;
	step->place = stands->place;
	step->phase = stands->place / STEP_PLACES_PER_PHASE;
}

static void steps_write(struct run *run, const struct step_write *steps, size_t count)
{
	sql_begin(run, "SELECT * FROM holdfast.step(");
	sql_add(run, "%d", task_id_week(&steps[0].id));
	SQL_ARRAY(run, "bytea", count, sql_id(run, &steps[i].id));
	SQL_ARRAY(run, "uuid", count, sql_uuid(run, &steps[i].token));
	SQL_ARRAY(run, "text", count,
		  sql_add(run, "'%s'",
			  steps[i].kind == STEP_CHECKPOINT ? "checkpoint" : "recovery_point"));
	SQL_ARRAY(run, "int", count, sql_add(run, "%d", steps[i].place));
	SQL_ARRAY(run, "int", count, sql_add(run, "%d", steps[i].phase));
	SQL_ARRAY(run, "text", count, sql_text(run, steps[i].name));
	SQL_ARRAY(run, "bytea", count, sql_bytes(run, steps[i].state.data, steps[i].state.len));
	SQL_ARRAY(run, "text", count, sql_text(run, steps[i].derived_key));
	SQL_ARRAY(run, "text", count, sql_text(run, steps[i].answer));
	SQL_ARRAY(run, "int", count, sql_add(run, "%d", steps[i].attempt));
	SQL_ARRAY(run, "bigint", count, sql_add(run, "%ld", (long)steps[i].took_ms));
	sql_add(run, ")");
	sql_run(run, nullptr);
	for (size_t i = 0; i < count; i++) {
		enum wish wish;
		struct slice adopted;
		enum fence fence = model_step(run->model, &steps[i], &wish, &adopted);
		struct buf row = {};
		row_int(&row, (int64_t)i + 1);
		row_text(&row, slice_of(fence_words[fence]));
		row_int(&row, (int)wish);
		row_bytes(&row, adopted);
		want_row(run, &row);
		hit("step", "%s %s",
		    steps[i].kind == STEP_CHECKPOINT     ? "checkpoint"
		    : steps[i].phase >= UNDO_PHASE_FIRST ? "undo point"
							 : "recovery point",
		    fence_words[fence]);
		if (wish != WISH_NONE)
			hit("step", "wish %s", wish == WISH_PARK ? "park" : "cancel");
	}
	settle_call(run);
}

static void do_step(struct run *run)
{
	struct hold holds[2];
	struct step_write steps[2];
	size_t count = chance_holds(run, holds, countof(holds), true);
	for (size_t i = 0; i < count; i++) {
		step_draw(run, &holds[i], &steps[i]);
		step_rival(run, &holds[i], &steps[i]);
	}
	if (count)
		steps_write(run, steps, count);
}

/* The parameters that name a claim. */
static void sql_claim(struct run *run, const struct task_id *id, const struct uuid *token)
{
	sql_task(run, id);
	sql_comma(run);
	sql_uuid(run, token);
}

static void do_sql_check(struct run *run)
{
	static const char *const words[] = { "held", "done", "adopted", "lost" };
	struct hold hold;
	struct step_write step;
	if (!chance_hold(run, &hold))
		return;
	step_draw(run, &hold, &step);
	step_rival(run, &hold, &step);
	sql_begin(run, "SELECT * FROM holdfast.sql_check(");
	sql_claim(run, &step.id, &step.token);
	sql_add(run, ", %d)", step.place);
	sql_run(run, nullptr);
	enum wish wish;
	struct slice state;
	enum model_sql said =
	    model_sql_check(run->model, &step.id, &step.token, step.place, &wish, &state);
	struct buf row = {};
	row_text(&row, slice_of(words[said]));
	row_int(&row, (int)wish);
	row_bytes(&row, state);
	want_row(run, &row);
	hit("sql_check", "%s", words[said]);
	settle_call(run);
}

static void do_sql_fence(struct run *run)
{
	struct hold hold;
	struct step_write step;
	if (!chance_hold(run, &hold))
		return;
	step_draw(run, &hold, &step);
	step.kind = STEP_RECOVERY_POINT;
	step.place = step_place_recovery(step.phase);
	step.derived_key = step.answer = (struct slice){};
	sql_begin(run, "SELECT holdfast.sql_fence(");
	sql_claim(run, &step.id, &step.token);
	sql_add(run, ", %d, %d, 'phase', ", step.place, step.phase);
	sql_bytes(run, step.state.data, step.state.len);
	sql_add(run, ", %d, %ld)", step.attempt, (long)step.took_ms);
	sql_run(run, "HF00");
	enum wish wish;
	enum model_sql said = model_sql_fence(run->model, &step, &wish);
	if (said == MODEL_SQL_HELD)
		want_int(run, (int)wish);
	else
		want_word(run, said == MODEL_SQL_LOST ? "HF001" : "HF002");
	hit("sql_fence", "%s",
	    said == MODEL_SQL_HELD   ? "held"
	    : said == MODEL_SQL_LOST ? "lost"
				     : "stands already");
	settle_call(run);
}

/* --- finish ----------------------------------------------------------------------------------- */

static void outcome_draw(struct run *run, const struct hold *hold, struct outcome_write *outcome,
			 struct step_write *last)
{
	static const enum task_state states[] = { TASK_COMPLETED, TASK_FAILED, TASK_CANCELLED };
	static const char *const errors[] = {
		"{\"code\":1,\"data\":{\"type\":\"phase_failed\",\"phase_executed\":\"no\"}}",
		"{\"code\":1,\"data\":{\"type\":\"phase_failed\",\"phase_executed\":\"no\"}}",
		"{\"code\":1,\"data\":{\"type\":\"phase_failed\",\"phase_executed\":\"maybe\"}}",
		"{\"code\":1,\"data\":{\"type\":\"phase_failed\"}}",
		"{\"code\":1,\"data\":{\"type\":\"deadline\"}}",
	};
	size_t kind = chance(run, 100);
	enum task_state state = states[kind < 30 ? 0 : kind < 88 ? 1 : 2];
	*outcome = (struct outcome_write){
		.id = hold->id,
		.token = hold->token,
		.state = state,
		.result = state == TASK_COMPLETED ? slice_of("{\"content\":[]}") : (struct slice){},
		.error = state == TASK_FAILED ? slice_of(errors[chance(run, countof(errors))])
					      : (struct slice){},
		.message = chance_of(run, 70) ? slice_of("over") : (struct slice){},
		.attempt = hold->attempt,
	};
	step_draw(run, hold, last);
	last->kind = STEP_RECOVERY_POINT;
	last->place = step_place_recovery(hold->phase);
	last->attempt = hold->attempt;
	if (state == TASK_COMPLETED && chance_of(run, 70))
		outcome->last = last;
}

static void finish_sql(struct run *run, const struct outcome_write *outcomes,
		       const struct step_write *lasts, size_t count)
{
	sql_begin(run, "SELECT * FROM holdfast.finish(");
	sql_add(run, "%d", task_id_week(&outcomes[0].id));
	SQL_ARRAY(run, "bytea", count, sql_id(run, &outcomes[i].id));
	SQL_ARRAY(run, "uuid", count, sql_uuid(run, &outcomes[i].token));
	SQL_ARRAY(run, "text", count, sql_add(run, "'%s'", task_state_name(outcomes[i].state)));
	SQL_ARRAY(run, "text", count, sql_text(run, outcomes[i].result));
	SQL_ARRAY(run, "text", count, sql_text(run, outcomes[i].error));
	SQL_ARRAY(run, "text", count, sql_text(run, outcomes[i].message));
	SQL_ARRAY(run, "int", count, sql_add(run, "%d", outcomes[i].attempt));
	SQL_ARRAY(run, "int", count,
		  outcomes[i].last ? sql_add(run, "%d", lasts[i].place) : sql_add(run, "NULL"));
	SQL_ARRAY(run, "text", count, sql_text(run, lasts[i].name));
	SQL_ARRAY(run, "bytea", count, sql_bytes(run, lasts[i].state.data, lasts[i].state.len));
	SQL_ARRAY(run, "text", count, sql_text(run, lasts[i].derived_key));
	SQL_ARRAY(run, "text", count, sql_text(run, lasts[i].answer));
	SQL_ARRAY(run, "bigint", count, sql_add(run, "%ld", (long)lasts[i].took_ms));
	sql_add(run, ")");
	sql_run(run, nullptr);
}

static void do_finish(struct run *run)
{
	struct hold holds[2];
	struct outcome_write outcomes[2];
	struct step_write lasts[2];
	size_t count = chance_holds(run, holds, countof(holds), true);
	if (!count)
		return;
	for (size_t i = 0; i < count; i++)
		outcome_draw(run, &holds[i], &outcomes[i], &lasts[i]);
	finish_sql(run, outcomes, lasts, count);
	for (size_t i = 0; i < count; i++) {
		bool twice = !task_fence(run->model, &holds[i].id, &holds[i].token);
		enum fence fence = model_finish(run->model, &outcomes[i]);
		want_fence(run, i, fence);
		if (fence == FENCE_HELD && !twice)
			hit("finish", "%s%s", task_state_name(outcomes[i].state),
			    outcomes[i].last ? ", last point" : "");
		else
			hit("finish", fence == FENCE_HELD ? "twice" : "lost");
	}
	settle_call(run);
	if (outcomes[0].state == TASK_FAILED && chance_of(run, 30))
		retry_once(run);
}

/* --- release ---------------------------------------------------------------------------------- */

static const char *const hows[] = { "retry",   "again",      "back", "crash",
				    "unknown", "unverified", "undo" };

static void release_draw(struct run *run, const struct hold *hold, struct release_write *release)
{
	static const char *const reasons[] = { "because", "stopped; pay may have taken effect",
					       "x; may have taken effect",
					       "a; b; c may have taken effect", "no; end" };
	const struct model_task *task = model_look(run->model, &hold->id);
	*release = (struct release_write){
		.id = hold->id,
		.token = hold->token,
		.how = (enum release)chance(run, RELEASE_UNDO),
		.delay_ms = chance_of(run, 50) ? 0 : 1 + (int64_t)chance(run, 3000),
		.maybe_sent = chance_of(run, 35),
		.reason = chance_of(run, 80) ? slice_of(reasons[0]) : (struct slice){},
	};
	if (chance_of(run, task && task->cancel ? 50 : 4)) {
		release->how = RELEASE_UNDO;
		release->reason = slice_of(reasons[chance(run, countof(reasons))]);
	}
}

static void do_release(struct run *run)
{
	struct hold holds[2];
	struct release_write writes[2];
	size_t count = chance_holds(run, holds, countof(holds), false);
	if (!count)
		return;
	for (size_t i = 0; i < count; i++)
		release_draw(run, &holds[i], &writes[i]);
	sql_begin(run, "SELECT * FROM holdfast.release(");
	SQL_ARRAY(run, "bytea", count, sql_id(run, &writes[i].id));
	SQL_ARRAY(run, "uuid", count, sql_uuid(run, &writes[i].token));
	SQL_ARRAY(run, "text", count, sql_add(run, "'%s'", hows[writes[i].how]));
	SQL_ARRAY(run, "bigint", count, sql_add(run, "%ld", (long)writes[i].delay_ms));
	SQL_ARRAY(run, "bool", count, sql_add(run, "%s", writes[i].maybe_sent ? "true" : "false"));
	SQL_ARRAY(run, "text", count, sql_text(run, writes[i].reason));
	sql_add(run, ")");
	sql_run(run, nullptr);
	for (size_t i = 0; i < count; i++) {
		enum fence fence = model_release(run->model, &writes[i]);
		want_fence(run, i, fence);
		if (fence == FENCE_LOST)
			hit("release", "lost");
		else
			hit("release", "%s, then %s", hows[writes[i].how],
			    state_word(run, &writes[i].id));
	}
	settle_call(run);
}

/* --- ask, intent, artifacts ------------------------------------------------------------------- */

static void do_ask(struct run *run)
{
	static const char *const questions[] = {
		"[{\"key\":\"k1\",\"request\":{\"m\": 1}}]",
		"[{\"key\":\"k1\",\"request\":{\"m\": 1}},{\"key\":\"k2\",\"request\":\"two\"}]",
		"[{\"key\":\"k3\",\"request\":[ ]}]",
	};
	struct hold hold;
	if (!chance_hold(run, &hold))
		return;
	struct ask_write ask = {
		.id = hold.id,
		.token = hold.token,
		.phase = chance_of(run, 92) ? hold.phase : hold.phase + 1,
		.questions = slice_of(questions[chance(run, countof(questions))]),
		.wait_ms = chance_of(run, 40) ? 0 : 1 + (int64_t)chance(run, 5000),
		.maybe_sent = chance_of(run, 20),
		.reason = slice_of("asks"),
	};
	sql_begin(run, "SELECT holdfast.ask(");
	sql_claim(run, &ask.id, &ask.token);
	sql_add(run, ", %d, ", ask.phase);
	sql_text(run, ask.questions);
	sql_add(run, ", nullif(%ld, 0), %s, 'asks')", (long)ask.wait_ms,
		ask.maybe_sent ? "true" : "false");
	sql_run(run, nullptr);
	bool ready;
	enum fence fence = model_ask(run->model, &ask, &ready);
	want_word(run, fence == FENCE_LOST ? "lost" : ready ? "ready" : "waiting");
	if (fence == FENCE_LOST)
		hit("ask", "lost");
	else
		hit("ask", "then %s", state_word(run, &ask.id));
	settle_call(run);
}

/* The parameters that every put begins with. Returns the phase. */
static int put_sql(struct run *run, const struct hold *hold)
{
	int phase = chance_of(run, 92) ? hold->phase : hold->phase + 1;
	sql_claim(run, &hold->id, &hold->token);
	sql_add(run, ", %d, ", phase);
	return phase;
}

static void do_intent(struct run *run)
{
	struct hold hold;
	if (!chance_hold(run, &hold))
		return;
	sql_begin(run, "SELECT holdfast.intent_put(");
	int phase = put_sql(run, &hold);
	sql_add(run, "'ship')");
	sql_run(run, nullptr);
	enum fence fence = model_intent(run->model, &hold.id, &hold.token, phase, slice_of("ship"));
	want_word(run, fence_words[fence]);
	hit("intent_put", "%s", fence_words[fence]);
	settle_call(run);
}

static void do_artifact_put(struct run *run)
{
	struct hold hold;
	if (!chance_hold(run, &hold))
		return;
	struct slice name = slice_of(chance_of(run, 80) ? "report" : "other");
	struct store_artifact artifact = {
		.media_type = slice_of("text/plain"),
		.content = slice_of(chance_of(run, 50) ? "abc" : "defg"),
	};
	sql_begin(run, "SELECT holdfast.artifact_put(");
	int phase = put_sql(run, &hold);
	sql_text(run, name);
	sql_add(run, ", 'text/plain', ");
	sql_bytes(run, artifact.content.data, artifact.content.len);
	sql_add(run, ")");
	sql_run(run, nullptr);
	enum fence fence =
	    model_artifact_put(run->model, &hold.id, &hold.token, phase, &artifact, name);
	want_word(run, fence_words[fence]);
	hit("artifact_put", "%s", fence_words[fence]);
	settle_call(run);
	if (fence == FENCE_HELD && chance_of(run, 40)) {
		struct step_write step;
		step_draw(run, &hold, &step);
		steps_write(run, &step, 1);
	}
}

static void do_artifact_get(struct run *run)
{
	struct task_id id;
	if (!chance_where(run, has_artifact, &id))
		return;
	int phase = (int)chance(run, 4);
	sql_begin(run, "SELECT * FROM holdfast.artifact_get(");
	sql_task(run, &id);
	sql_add(run, ", %d, 'report')", phase);
	sql_run(run, nullptr);
	struct store_artifact artifact;
	bool found = model_artifact_get(run->model, &id, phase, slice_of("report"), &artifact);
	if (found) {
		struct buf row = {};
		row_text(&row, artifact.media_type);
		row_bytes(&row, artifact.content);
		want_row(run, &row);
	}
	hit("artifact_get", found ? "found" : "none");
	settle_call(run);
}

const struct operation work_operations[] = {
	{ "beat", 8, do_beat },
	{ "leave", 1, do_leave },
	{ "claim", 22, claim_once },
	{ "step", 16, do_step },
	{ "sql_check", 2, do_sql_check },
	{ "sql_fence", 3, do_sql_fence },
	{ "finish", 6, do_finish },
	{ "release", 10, do_release },
	{ "ask", 6, do_ask },
	{ "intent", 5, do_intent },
	{ "artifact_put", 4, do_artifact_put },
	{ "artifact_get", 2, do_artifact_get },
};
const size_t work_operations_count = countof(work_operations);
