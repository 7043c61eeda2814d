/* differential_api.c - the calls of the API. */
#include <stdio.h>

#include "test/sim/differential.h"

constexpr size_t BATCH_MAX = 3;
constexpr size_t EFFECTS = 3;

/* --- accept ----------------------------------------------------------------------------------- */

static const char *const effect_ids[EFFECTS] = { "e0", "e1", "e2" };
static const char *const accept_words[] = { "new", "same", "conflict", "expired" };

struct accept_item {
	struct accept_call call;
	unsigned char digest[EFFECT_DIGEST_BYTES], random[16];
};

static void accept_draw(struct run *run, struct accept_item *item)
{
	bool plain = chance_of(run, 50);
	size_t tool = chance(run, TOOLS);
	struct accept_call *call = &item->call;
	*call = (struct accept_call){
		.owner = chance_of(run, 60) ? 1 : 1 + (int64_t)chance(run, OWNERS),
		.tool = differential_tools[tool].tool,
		.tool_name = slice_of(differential_tools[tool].name),
		.effect_id = slice_of(effect_ids[chance(run, EFFECTS)]),
		.result_ttl_ms = differential_tools[tool].result_ttl_ms,
		.arguments = slice_of(chance_of(run, 90) ? "{}" : "{\"a\":1}"),
		.inputs = chance_of(run, 20) ? slice_of("{\"q\":1}") : (struct slice){},
		.asks = chance_of(run, 30) ? 3 : 0,
		.trace = chance_of(run, 20) ? slice_of("00-ab") : (struct slice){},
		.key_version = 1 + (int)chance(run, 2),
	};
	sha256(call->arguments, call->fingerprint);
	if (plain) {
		call->api = run->incarnations[WORKERS + chance(run, APIS)];
		call->number = (int64_t)++run->calls;
	}
	effect_digest(call->owner, call->tool_name, call->effect_id, item->digest);
	struct uuid random = chance_uuid(run);
	memcpy(item->random, random.bytes, sizeof item->random);
}

static size_t accept_batch(struct run *run, struct accept_item *items)
{
	size_t count = 0, wanted = chance_of(run, 60) ? 1 : BATCH_MAX;
	while (wanted-- > 0) {
		struct accept_item *item = &items[count];
		accept_draw(run, item);
		bool fits = true;
		for (size_t i = 0; i < count; i++)
			fits =
			    fits && memcmp(items[i].digest, item->digest, EFFECT_DIGEST_BYTES) != 0;
		count += fits;
	}
	return count;
}

static void accept_sql(struct run *run, const struct accept_item *items, size_t count)
{
	sql_begin(run, "SELECT * FROM holdfast.accept_bounded(true");
	SQL_ARRAY(run, "bigint", count, sql_add(run, "%ld", (long)items[i].call.owner));
	SQL_ARRAY(run, "int", count, sql_add(run, "%d", items[i].call.tool));
	SQL_ARRAY(run, "bytea", count, sql_bytes(run, items[i].digest, EFFECT_DIGEST_BYTES));
	SQL_ARRAY(run, "text", count, sql_text(run, items[i].call.effect_id));
	SQL_ARRAY(run, "bytea", count,
		  sql_bytes(run, items[i].call.fingerprint, FINGERPRINT_BYTES));
	SQL_ARRAY(run, "text", count, sql_text(run, items[i].call.arguments));
	SQL_ARRAY(run, "text", count, sql_text(run, items[i].call.inputs));
	SQL_ARRAY(run, "int", count, sql_add(run, "%d", items[i].call.asks));
	SQL_ARRAY(run, "text", count, sql_text(run, items[i].call.trace));
	SQL_ARRAY(run, "int", count, sql_add(run, "%d", items[i].call.key_version));
	SQL_ARRAY(run, "uuid", count,
		  sql_uuid(run, items[i].call.number ? &items[i].call.api : nullptr));
	SQL_ARRAY(run, "bigint", count,
		  items[i].call.number ? sql_add(run, "%ld", (long)items[i].call.number)
				       : sql_add(run, "NULL"));
	SQL_ARRAY(run, "bytea", count, sql_bytes(run, items[i].random, sizeof items[i].random));
	sql_add(run, ")");
	sql_run(run, nullptr);
}

static const char *effect_word(const struct run *run, const struct accept_item *item)
{
	const struct model_effect *effect = model_look_effect(run->model, item->digest);
	if (!effect)
		return "unknown";
	return effect->tombstone_ms >= 0 ? "tombstone" : state_word(run, &effect->task);
}

static void do_accept(struct run *run)
{
	struct accept_item items[BATCH_MAX];
	if (run->tasks_count + 2 * BATCH_MAX > TASKS_MAX)
		return;
	size_t count = accept_batch(run, items);
	accept_sql(run, items, count);
	for (size_t i = 0; i < count; i++) {
		char before[32];
		snprintf(before, sizeof before, "%s", effect_word(run, &items[i]));
		struct task_view view;
		enum accept_outcome outcome =
		    model_accept(run->model, &items[i].call, items[i].random, &view);
		struct buf row = {};
		row_int(&row, (int64_t)i + 1);
		row_text(&row, slice_of(accept_words[outcome]));
		if (outcome == ACCEPT_NEW || outcome == ACCEPT_SAME) {
			row_view(&row, &view);
			note_task(run, &view.id);
		} else {
			buf_add_text(&row, "~|~|~|~|~|~|~|~|~|~|");
		}
		want_row(run, &row);
		hit("accept", "%s, was %s", accept_words[outcome], before);
	}
	settle_call(run);
}

/* --- looking ---------------------------------------------------------------------------------- */

static void poll_row(struct run *run, int64_t owner, const struct task_id *id, bool asking)
{
	struct task_view view;
	if (!model_poll(run->model, owner, id, asking, &view)) {
		hit(asking ? "poll_asking" : "poll", "missing");
		return;
	}
	struct buf row = {};
	row_view(&row, &view);
	row_text(&row, view.result);
	row_text(&row, view.error);
	row_text(&row, view.effect_id);
	if (asking)
		row_text(&row, view.requests);
	else
		row_id(&row, view.has_successor ? &view.successor : nullptr);
	want_row(run, &row);
	if (asking)
		hit("poll_asking", "%s", view.requests.data ? "requests" : "none");
	else
		hit("poll", "%s%s", task_state_name(view.state),
		    view.has_successor ? ", successor" : "");
}

static size_t owned_draw(struct run *run, struct task_id *ids, int64_t *owners, size_t most,
			 bool one_week)
{
	size_t count = chance_tasks(run, ids, most, one_week);
	for (size_t i = 0; i < count; i++)
		owners[i] = chance_owner(run, &ids[i]);
	return count;
}

static void sql_owned(struct run *run, const struct task_id *ids, const int64_t *owners,
		      size_t count)
{
	SQL_ARRAY(run, "bigint", count, sql_add(run, "%ld", (long)owners[i]));
	SQL_ARRAY(run, "bytea", count, sql_id(run, &ids[i]));
}

static void do_poll(struct run *run)
{
	struct task_id ids[2];
	int64_t owners[2];
	size_t count = owned_draw(run, ids, owners, countof(ids), true);
	if (!count)
		return;
	sql_begin(run, "SELECT task, tool, state, attempt, created_ms, updated_ms, ended_ms,"
		       " result_ttl_ms, progress, message, result, error, effect_id, successor"
		       " FROM holdfast.poll_task(");
	sql_add(run, "%d", task_id_week(&ids[0]));
	sql_owned(run, ids, owners, count);
	sql_add(run, ")");
	sql_run(run, nullptr);
	for (size_t i = 0; i < count; i++)
		poll_row(run, owners[i], &ids[i], false);
	settle_call(run);
}

static void do_poll_asking(struct run *run)
{
	struct task_id id;
	if (!chance_where(run, is_waiting, &id))
		return;
	int64_t owner = chance_owner(run, &id);
	sql_begin(run, "SELECT task, tool, state, attempt, created_ms, updated_ms, ended_ms,"
		       " result_ttl_ms, progress, message, result, error, effect_id, requests"
		       " FROM holdfast.poll_asking(");
	sql_add(run, "%d, %ld, ", task_id_week(&id), (long)owner);
	sql_id(run, &id);
	sql_add(run, ")");
	sql_run(run, nullptr);
	poll_row(run, owner, &id, true);
	settle_call(run);
}

static void do_find(struct run *run)
{
	struct accept_item item;
	accept_draw(run, &item);
	sql_begin(run, "SELECT holdfast.find(");
	sql_bytes(run, item.digest, EFFECT_DIGEST_BYTES);
	sql_add(run, ")");
	sql_run(run, nullptr);
	struct task_id id;
	bool found =
	    model_find(run->model, item.call.owner, item.call.tool_name, item.call.effect_id, &id);
	struct buf row = {};
	row_id(&row, found ? &id : nullptr);
	want_row(run, &row);
	hit("find", found ? "found" : "none");
	settle_call(run);
}

static void do_artifact_of(struct run *run)
{
	struct task_id id;
	if (!chance_where(run, has_artifact, &id))
		return;
	int64_t owner = chance_owner(run, &id);
	size_t most = chance_of(run, 70) ? 100 : 1;
	sql_begin(run, "SELECT media_type, size, content FROM holdfast.artifact_of(");
	sql_add(run, "%d, %ld, ", task_id_week(&id), (long)owner);
	sql_id(run, &id);
	sql_add(run, ", 'report', %zu)", most);
	sql_run(run, nullptr);
	struct store_artifact artifact;
	bool found = model_artifact_of(run->model, owner, &id, slice_of("report"), most, &artifact);
	if (found) {
		struct buf row = {};
		row_text(&row, artifact.media_type);
		row_int(&row, artifact.size);
		row_bytes(&row, artifact.content);
		want_row(run, &row);
	}
	hit("artifact_of", "%s", !found ? "none" : artifact.content.data ? "whole" : "too large");
	settle_call(run);
}

static void window_once(struct run *run, unsigned char of)
{
	unsigned char digest[16] = { of };
	char fresh[24];
	snprintf(fresh, sizeof fresh, "auto-%lu", (unsigned long)++run->calls);
	int64_t window_ms = 1 + (int64_t)chance(run, 3000);
	sql_begin(run, "SELECT holdfast.intent_window(");
	sql_bytes(run, digest, sizeof digest);
	sql_add(run, ", '%s', %ld)", fresh, (long)window_ms);
	sql_run(run, nullptr);
	struct slice chosen = model_intent_window(run->model, digest, slice_of(fresh), window_ms);
	struct buf row = {};
	row_text(&row, chosen);
	want_row(run, &row);
	hit("intent_window", slice_is(chosen, fresh) ? "fresh" : "joined");
	settle_call(run);
}

static void do_intent_window(struct run *run)
{
	unsigned char of = (unsigned char)chance(run, 3);
	window_once(run, of);
	if (chance_of(run, 60))
		window_once(run, of);
}

/* --- joining and leaving ---------------------------------------------------------------------- */

static void do_cancel(struct run *run)
{
	struct task_id ids[2];
	int64_t owners[2];
	size_t count = owned_draw(run, ids, owners, countof(ids), true);
	if (!count)
		return;
	sql_begin(run, "SELECT * FROM holdfast.cancel(");
	sql_add(run, "%d", task_id_week(&ids[0]));
	sql_owned(run, ids, owners, count);
	sql_add(run, ")");
	sql_run(run, nullptr);
	for (size_t i = 0; i < count; i++) {
		char before[32];
		snprintf(before, sizeof before, "%s", state_word(run, &ids[i]));
		struct model_cancelled said = model_cancel(run->model, owners[i], &ids[i]);
		struct buf row = {};
		row_int(&row, (int64_t)i + 1);
		row_bool(&row, said.found);
		row_bool(&row, said.flagged);
		want_row(run, &row);
		if (said.found)
			hit("cancel", "%s, then %s", before, state_word(run, &ids[i]));
		else
			hit("cancel", "missing");
	}
	settle_call(run);
}

static void do_attach(struct run *run)
{
	struct task_id ids[2];
	int64_t owners[2];
	size_t count = owned_draw(run, ids, owners, countof(ids), false);
	if (!count)
		return;
	const struct uuid *api = &run->incarnations[WORKERS + chance(run, APIS)];
	int64_t number = (int64_t)++run->calls;
	sql_begin(run, "SELECT holdfast.attach(");
	sql_owned(run, ids, owners, count);
	SQL_ARRAY(run, "uuid", count, sql_uuid(run, api));
	SQL_ARRAY(run, "bigint", count, sql_add(run, "%ld", (long)number));
	sql_add(run, ")");
	sql_run(run, nullptr);
	int joined = 0;
	for (size_t i = 0; i < count; i++) {
		char before[32];
		const struct model_task *task = model_look(run->model, &ids[i]);
		bool held = task && task->held;
		snprintf(before, sizeof before, "%s", state_word(run, &ids[i]));
		bool mine = model_attach(run->model, owners[i], &ids[i], api, number);
		joined += mine;
		hit("attach", "%s", !mine ? "none" : held ? "held" : before);
	}
	want_int(run, joined);
	settle_call(run);
}

struct detach_item {
	struct task_id id;
	struct uuid api;
	int64_t number;
	bool park;
};

static bool has_attached(const struct run *, const struct model_task *task)
{
	return task->open && task->has_attached;
}

static void do_detach(struct run *run)
{
	struct task_id ids[2];
	struct detach_item items[2];
	size_t count = chance_tasks(run, ids, countof(ids), false);
	if (count == 1 && !chance_where(run, has_attached, &ids[0]))
		return;
	if (!count)
		return;
	for (size_t i = 0; i < count; i++) {
		const struct model_task *task = model_look(run->model, &ids[i]);
		bool right = task && task->has_attached && !chance_of(run, 10);
		items[i] = (struct detach_item){
			.id = ids[i],
			.api =
			    right ? task->attached : run->incarnations[WORKERS + chance(run, APIS)],
			.number = right ? task->attached_no : 1 + (int64_t)chance(run, 9),
			.park = chance_of(run, 75),
		};
	}
	sql_begin(run, "SELECT * FROM holdfast.detach(");
	SQL_ARRAY(run, "bytea", count, sql_id(run, &items[i].id));
	SQL_ARRAY(run, "uuid", count, sql_uuid(run, &items[i].api));
	SQL_ARRAY(run, "bigint", count, sql_add(run, "%ld", (long)items[i].number));
	SQL_ARRAY(run, "bool", count, sql_add(run, "%s", items[i].park ? "true" : "false"));
	sql_add(run, ")");
	sql_run(run, nullptr);
	for (size_t i = 0; i < count; i++) {
		char before[32];
		snprintf(before, sizeof before, "%s", state_word(run, &items[i].id));
		struct model_detached said = model_detach(run->model, &items[i].id, &items[i].api,
							  items[i].number, items[i].park);
		struct buf row = {};
		row_int(&row, (int64_t)i + 1);
		row_bool(&row, said.ours);
		row_int(&row, said.phase);
		row_bool(&row, said.running);
		want_row(run, &row);
		if (said.ours)
			hit("detach", "%s %s", items[i].park ? "park" : "leave", before);
		else
			hit("detach", "not ours");
	}
	settle_call(run);
}

static void do_answer(struct run *run)
{
	static const char *const texts[] = { "{\"k1\":{\"v\": 1}}", "{\"k2\":2,\"k9\":true}",
					     "{\"k1\":null,\"k2\":\"x\",\"k3\":3}", "{}",
					     "{\"k3\": [ 1,2 ] }" };
	struct task_id id;
	if (!(chance_of(run, 60) ? chance_where(run, is_waiting, &id) : chance_task(run, &id)))
		return;
	int64_t owner = chance_owner(run, &id);
	struct slice answers = slice_of(texts[chance(run, countof(texts))]);
	sql_begin(run, "SELECT * FROM holdfast.answer(");
	sql_add(run, "%d, %ld, ", task_id_week(&id), (long)owner);
	sql_id(run, &id);
	sql_add(run, ", ");
	sql_text(run, answers);
	sql_add(run, ")");
	sql_run(run, nullptr);
	struct model_answered said = model_answer(run->model, owner, &id, answers);
	struct buf row = {};
	row_bool(&row, said.known);
	row_bool(&row, said.woken);
	row_int(&row, said.taken);
	want_row(run, &row);
	if (!said.known)
		hit("answer", "missing");
	else
		hit("answer", "%s, %s", said.taken ? "taken" : "none taken",
		    said.woken ? "woken" : "not woken");
	settle_call(run);
}

const struct operation api_operations[] = {
	{ "accept", 24, do_accept },          { "poll", 6, do_poll },
	{ "poll_asking", 2, do_poll_asking }, { "find", 1, do_find },
	{ "artifact_of", 2, do_artifact_of }, { "intent_window", 2, do_intent_window },
	{ "cancel", 4, do_cancel },           { "attach", 3, do_attach },
	{ "detach", 6, do_detach },           { "answer", 6, do_answer },
};
const size_t api_operations_count = countof(api_operations);
