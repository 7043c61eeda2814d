/* differential_keep.c - the calls of maintenance and of operators. */
#include <stdio.h>

#include "test/sim/differential.h"

constexpr int MOST = 1000; /* no limit: which of many SQL takes first is open */
constexpr int64_t DAY_MS = 24LL * 60 * 60 * 1000;

/* --- maintenance ------------------------------------------------------------------------------ */

static void counted(struct run *run, const char *name, int (*call)(struct model *, int))
{
	sql_begin(run, "SELECT holdfast.");
	sql_add(run, "%s(%d)", name, MOST);
	sql_run(run, nullptr);
	int n = call(run->model, MOST);
	want_int(run, n);
	hit(name, n ? "some" : "none");
	settle_call(run);
}

static void do_reclaim(struct run *run)
{
	counted(run, "reclaim", model_reclaim);
}

static void do_declare_dead(struct run *run)
{
	const struct uuid *incarnation = &run->incarnations[chance(run, INCARNATIONS)];
	if (run->model->running && chance_of(run, 60))
		incarnation = &run->model->running->incarnation;
	int64_t beat = model_beats(run->model, incarnation);
	if (chance_of(run, 25))
		beat++;
	sql_begin(run, "SELECT holdfast.declare_dead(");
	sql_uuid(run, incarnation);
	sql_add(run, ", %ld)", (long)beat);
	sql_run(run, nullptr);
	bool dead = model_declare_dead(run->model, incarnation, beat);
	want_word(run, dead ? "t" : "f");
	hit("declare_dead", dead ? "dead" : "has beaten, or gone");
	settle_call(run);
	if (chance_of(run, 50))
		do_reclaim(run);
}

static void do_expire_deadlines(struct run *run)
{
	size_t open = model_open_count(run->model);
	counted(run, "expire_deadlines", model_expire_deadlines);
	if (model_open_count(run->model) < open)
		hit("expire_deadlines", "ended");
}

static void do_park_orphans(struct run *run)
{
	counted(run, "park_orphans", model_park_orphans);
}

static void do_expire_parked(struct run *run)
{
	size_t open = model_open_count(run->model);
	counted(run, "expire_parked", model_expire_parked);
	if (model_open_count(run->model) < open)
		hit("expire_parked", "ended");
}

/* Makes the bug that the backstop is there for: an answer that woke nobody. */
static void lose_a_wake(struct run *run, const struct task_id *id)
{
	struct model_task *task = task_open(run->model, id);
	sql_begin(run, "WITH lost AS (UPDATE holdfast.inbox SET how = 'answer', answer = '1',"
		       " answered = holdfast.now_() WHERE how IS NULL AND task = ");
	sql_id(run, id);
	sql_add(run, " RETURNING 1) SELECT count(*) FROM lost");
	sql_run(run, nullptr);
	int lost = 0;
	for (size_t i = 0; i < task->questions_count; i++) {
		struct model_question *question = &task->questions[i];
		if (question->how != MODEL_OPEN)
			continue;
		question->how = MODEL_ANSWERED;
		question->answer = text_keep(slice_of("1"));
		question->answered_ms = run->now_ms;
		lost++;
	}
	want_int(run, lost);
	settle_call(run);
}

static void do_wake_answered(struct run *run)
{
	struct task_id id;
	bool found = chance_where(run, is_waiting, &id);
	if (!found && !chance_of(run, 20))
		return;
	const struct model_task *task = found ? model_look(run->model, &id) : nullptr;
	if (task && is_waiting(run, task) && chance_of(run, 50))
		lose_a_wake(run, &id);
	sql_begin(run, "SELECT woken FROM holdfast.wake_answered(NULL, NULL, ");
	sql_add(run, "%d)", MOST);
	sql_run(run, nullptr);
	int woken = model_wake_answered(run->model);
	want_int(run, woken);
	hit("wake_answered", woken ? "some" : "none");
	settle_call(run);
}

static void do_sweep(struct run *run)
{
	struct task_id id;
	if (!chance_task(run, &id))
		return;
	int32_t week = task_id_week(&id);
	sql_begin(run, "SELECT holdfast.sweep(");
	sql_add(run, "%d, %d)", week, MOST);
	sql_run(run, nullptr);
	int swept = model_sweep(run->model, week, MOST);
	want_int(run, swept);
	hit("sweep", swept ? "some" : "none");
	settle_call(run);
}

/* Often just behind the end of one. */
static void tombstone_reach(struct run *run)
{
	int64_t next = INT64_MAX;
	for (size_t i = 0; i <= run->model->effects.mask; i++) {
		for (const struct model_effect *at = run->model->effects.heads[i]; at;
		     at = at->bucket_next) {
			if (at->tombstone_ms >= run->now_ms && at->tombstone_ms < next)
				next = at->tombstone_ms;
		}
	}
	if (next != INT64_MAX && chance_of(run, 60)) {
		run->now_ms = next + (int64_t)chance(run, 3);
		model_set_now(run->model, run->now_ms);
	}
}

static void do_sweep_tombstones(struct run *run)
{
	tombstone_reach(run);
	size_t before = run->model->effects.count;
	sql_begin(run, "SELECT sum(holdfast.sweep_tombstones(p, 0, 1000000))"
		       " FROM generate_series(0, 15) p");
	sql_run(run, nullptr);
	model_sweep_tombstones(run->model);
	want_int(run, 0);
	hit("sweep_tombstones", before > run->model->effects.count ? "some" : "none");
	settle_call(run);
}

static void do_sweep_windows(struct run *run)
{
	if (run->model->windows.count && chance_of(run, 30)) {
		run->now_ms += DAY_MS;
		model_set_now(run->model, run->now_ms);
	}
	counted(run, "sweep_windows", model_sweep_windows);
}

static void lease_once(struct run *run)
{
	const struct uuid *incarnation = &run->incarnations[chance(run, WORKERS)];
	int64_t ttl_ms = chance_of(run, 80) ? 2000 : 10;
	sql_begin(run, "SELECT holdfast.lease_take('maintain', ");
	sql_uuid(run, incarnation);
	sql_add(run, ", %ld)", (long)ttl_ms);
	sql_run(run, nullptr);
	bool mine = model_lease_take(run->model, "maintain", incarnation, ttl_ms);
	want_word(run, mine ? "t" : "f");
	hit("lease_take", mine ? "mine" : "another's");
	settle_call(run);
}

static void do_lease_take(struct run *run)
{
	lease_once(run);
	lease_once(run);
}

const struct operation keep_operations[] = {
	{ "declare_dead", 4, do_declare_dead },
	{ "reclaim", 6, do_reclaim },
	{ "expire_deadlines", 4, do_expire_deadlines },
	{ "park_orphans", 3, do_park_orphans },
	{ "expire_parked", 3, do_expire_parked },
	{ "wake_answered", 2, do_wake_answered },
	{ "sweep", 5, do_sweep },
	{ "sweep_tombstones", 2, do_sweep_tombstones },
	{ "sweep_windows", 1, do_sweep_windows },
	{ "lease_take", 1, do_lease_take },
};
const size_t keep_operations_count = countof(keep_operations);

/* --- operators -------------------------------------------------------------------------------- */

static const struct model_act act = { .by = { "ann", 3 }, .why = { "so it is", 8 } };

static bool is_unknown(const struct run *, const struct model_task *task)
{
	return task->open && task->state == TASK_UNKNOWN;
}

static bool is_paused_now(const struct run *, const struct model_task *task)
{
	return task->open && (task->state == TASK_PAUSED || (task->park && task->pause));
}

static bool has_failed(const struct run *run, const struct model_task *task)
{
	return task->state == TASK_FAILED && task->due.key > run->now_ms;
}

static bool can_go_on(const struct run *, const struct model_task *task)
{
	return task->state == TASK_SCHEDULED || task->state == TASK_UNVERIFIED ||
	       task->state == TASK_PAUSED;
}

static void do_settle(struct run *run)
{
	static const char *const verdicts[] = { "done", "absent", "fail" };
	struct task_id id;
	if (!chance_where(run, is_unknown, &id))
		return;
	struct model_verdict verdict = {
		.verdict = verdicts[chance(run, countof(verdicts))],
		.state = slice_of("\x03"),
		.name = slice_of("phase"),
		.visible_within_ms = (int64_t)chance(run, 20'000),
		.force = chance_of(run, 20),
	};
	sql_begin(run, "SELECT holdfast.settle(");
	sql_task(run, &id);
	sql_add(run, ", '%s', 'ann', 'so it is', '\\x03', 'phase', %ld, %s)", verdict.verdict,
		(long)verdict.visible_within_ms, verdict.force ? "true" : "false");
	sql_run(run, nullptr);
	const struct model_task *task = model_look(run->model, &id);
	int64_t deadline_ms = task ? task->deadline_ms : 0;
	const char *said = model_settle(run->model, &id, &verdict, &act);
	want_word(run, said);
	if (strcmp(said, "settled") == 0)
		hit("settle", "%s", verdict.verdict);
	else
		hit("settle", "not: %s", said);
	if (task && task->open && task->deadline_ms > run->now_ms && deadline_ms < run->now_ms)
		hit("settle", "in time again");
	if (task && task->open && task->state == TASK_PAUSED)
		hit("settle", "paused again");
	settle_call(run);
}

static void act_on(struct run *run, const char *name, const struct task_id *id,
		   const char *(*call)(struct model *, const struct task_id *,
				       const struct model_act *))
{
	sql_begin(run, "SELECT holdfast.");
	sql_add(run, "%s(", name);
	sql_id(run, id);
	sql_add(run, ", 'ann', 'so it is')");
	sql_run(run, nullptr);
	const char *said = call(run->model, id, &act);
	want_word(run, said);
	hit(name, "%s", said);
	settle_call(run);
}

static bool is_running(const struct run *, const struct model_task *task)
{
	return task->open && task->state == TASK_RUNNING;
}

static void do_pause_task(struct run *run)
{
	struct task_id id;
	if (chance_of(run, 60) ? chance_where(run, is_running, &id) : chance_task(run, &id))
		act_on(run, "pause_task", &id, model_pause_task);
}

static void do_resume_task(struct run *run)
{
	struct task_id id;
	if (chance_where(run, is_paused_now, &id))
		act_on(run, "resume_task", &id, model_resume_task);
}

static void do_cancel_task(struct run *run)
{
	struct task_id id;
	if (chance_task(run, &id))
		act_on(run, "cancel_task", &id, model_cancel_task);
}

void retry_once(struct run *run)
{
	struct task_id id, successor = {};
	if (run->tasks_count + 1 > TASKS_MAX ||
	    !(chance_of(run, 60) ? chance_where(run, has_failed, &id)
				 : chance_where(run, can_go_on, &id)))
		return;
	struct model_retry retry = { .from_phase = chance_of(run, 50) ? -1 : (int)chance(run, 3),
				     .new_key = chance_of(run, 40) };
	struct uuid random = chance_uuid(run);
	memcpy(retry.random, random.bytes, sizeof retry.random);
	sql_begin(run, "SELECT * FROM holdfast.retry(");
	sql_task(run, &id);
	if (retry.from_phase < 0)
		sql_add(run, ", NULL");
	else
		sql_add(run, ", %d", retry.from_phase);
	sql_add(run, ", %s, 'ann', 'so it is', ", retry.new_key ? "true" : "false");
	sql_bytes(run, retry.random, sizeof retry.random);
	sql_add(run, ")");
	sql_run(run, nullptr);
	const char *said = model_retry(run->model, &id, &retry, &act, &successor);
	bool retried = strcmp(said, "retried") == 0;
	bool names = retried || strcmp(said, "successor") == 0;
	struct buf row = {};
	row_text(&row, slice_of(said));
	row_id(&row, names ? &successor : nullptr);
	want_row(run, &row);
	hit("retry", "%s%s", said, retried && retry.new_key ? ", new key" : "");
	if (retried) {
		note_task(run, &successor);
		const struct model_task *task = model_look(run->model, &successor);
		if (task->sent_ms >= 0)
			hit("retry", "retried, maybe sent");
	}
	settle_call(run);
	if (retried && chance_of(run, 50))
		claim_once(run);
}

static void do_pause_pages(struct run *run)
{
	sql_begin(run, "SELECT holdfast.pause_pages(0, 1000000)");
	sql_run(run, nullptr);
	model_pause_pages(run->model);
	want_int(run, 0);
	hit("pause_pages", run->model->pauses_count ? "pauses" : "none");
	settle_call(run);
}

static void resume_tenant(struct run *run, const char *tenant)
{
	sql_begin(run, "SELECT holdfast.resume_tenant(");
	sql_add(run, "'%s', %d)", tenant, MOST);
	sql_run(run, nullptr);
	int n = model_resume_tenant(run->model, tenant, MOST);
	want_int(run, n);
	hit("resume_tenant", n ? "some" : "none");
	settle_call(run);
}

static void do_resume_tenant(struct run *run)
{
	resume_tenant(run, differential_tenants[chance(run, OWNERS)]);
}

static void pause_or_resume(struct run *run, bool pause, const char *kind, const char *name)
{
	const char *function = pause ? "pause_all" : "resume_all";
	sql_begin(run, "SELECT holdfast.");
	sql_add(run, "%s('%s', '%s', 'ann', 'so it is')", function, kind, name);
	sql_run(run, nullptr);
	const char *said = pause ? model_pause_all(run->model, kind, name)
				 : model_resume_all(run->model, kind, name);
	want_word(run, said);
	hit(function, "%s %s", kind, said);
	settle_call(run);
}

static const char *const pausable[][2] = {
	{ "tool", "alpha" }, { "tool", "beta" }, { "tool", "gamma" },
	{ "tenant", "A" },   { "tenant", "B" },
};

static void do_pause_all(struct run *run)
{
	const char *const *what = pausable[chance(run, countof(pausable))];
	pause_or_resume(run, true, what[0], what[1]);
	if (chance_of(run, 40))
		do_pause_pages(run);
}

static void do_resume_all(struct run *run)
{
	const char *const *what = pausable[chance(run, countof(pausable))];
	char name[8];
	if (run->model->pauses_count && !chance_of(run, 20)) {
		size_t at = chance(run, run->model->pauses_count);
		bool tenant = run->model->pauses[at].tenant;
		snprintf(name, sizeof name, "%s", run->model->pauses[at].name.data);
		pause_or_resume(run, false, tenant ? "tenant" : "tool", name);
		if (tenant && chance_of(run, 80))
			resume_tenant(run, name);
	} else if (chance_of(run, 20)) {
		pause_or_resume(run, false, what[0], what[1]);
	}
}

const struct operation operator_operations[] = {
	{ "settle", 8, do_settle },
	{ "pause_task", 2, do_pause_task },
	{ "resume_task", 3, do_resume_task },
	{ "cancel_task", 1, do_cancel_task },
	{ "retry", 8, retry_once },
	{ "pause_all", 1, do_pause_all },
	{ "resume_all", 10, do_resume_all },
	{ "pause_pages", 1, do_pause_pages },
	{ "resume_tenant", 2, do_resume_tenant },
};
const size_t operator_operations_count = countof(operator_operations);
