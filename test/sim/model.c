/* model.c - the rows of the store in memory, and where they are found: chains by ID, heaps by time.
 * What SQL decides with them is in model_accept.c, model_work.c, model_input.c, model_maintain.c
 * and model_operate.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/sim/model_inner.h"

constexpr size_t BUCKETS_FIRST = 1024;

/* --- texts ------------------------------------------------------------------------------------ */

struct slice text_keep_empty(struct slice text)
{
	return (struct slice){ hf_strndup(text.len ? text.data : "", text.len), text.len };
}

struct slice text_keep(struct slice text)
{
	return text.len ? text_keep_empty(text) : (struct slice){};
}

void text_drop(struct slice *text)
{
	free((char *)(uintptr_t)text->data);
	*text = (struct slice){};
}

void text_set(struct slice *text, struct slice to)
{
	struct slice kept = to.data ? text_keep_empty(to) : (struct slice){};
	text_drop(text);
	*text = kept;
}

struct slice text_format(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	char *text = nullptr;
	int len = vasprintf(&text, format, args);
	va_end(args);
	hf_assert(len >= 0);
	return (struct slice){ text, (size_t)len };
}

int slice_compare(struct slice a, struct slice b)
{
	size_t len = a.len < b.len ? a.len : b.len;
	int order = len ? memcmp(a.data, b.data, len) : 0;
	return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* --- chains ----------------------------------------------------------------------------------- */

static uint64_t hash_of(const unsigned char *bytes)
{
	uint64_t hash;
	memcpy(&hash, bytes, sizeof hash);
	return (hash ^ hash >> 31) * 0x9e3779b97f4a7c15U >> 20;
}

/* The random end of an ID is all that tells tasks apart. */
static uint64_t task_hash(const struct task_id *id)
{
	return hash_of(id->bytes + TASK_ID_BYTES - sizeof(uint64_t));
}

static void buckets_init(struct buckets *buckets)
{
	buckets->heads = hf_alloc(BUCKETS_FIRST * sizeof *buckets->heads);
	buckets->mask = BUCKETS_FIRST - 1;
}

struct chain {
	uint64_t (*hash)(const void *row);
	void **(*next)(void *row);
};

static uint64_t task_row_hash(const void *row)
{
	return task_hash(&((const struct model_task *)row)->id);
}
static void **task_row_next(void *row)
{
	return (void **)&((struct model_task *)row)->bucket_next;
}
static uint64_t effect_row_hash(const void *row)
{
	return hash_of(((const struct model_effect *)row)->digest);
}
static void **effect_row_next(void *row)
{
	return (void **)&((struct model_effect *)row)->bucket_next;
}
static uint64_t window_row_hash(const void *row)
{
	return hash_of(((const struct window *)row)->digest);
}
static void **window_row_next(void *row)
{
	return (void **)&((struct window *)row)->next;
}
static const struct chain window_chain = { window_row_hash, window_row_next };
static const struct chain task_chain = { task_row_hash, task_row_next };
static const struct chain effect_chain = { effect_row_hash, effect_row_next };

static void buckets_add(struct buckets *buckets, const struct chain *chain, void *row)
{
	void **head = &buckets->heads[chain->hash(row) & buckets->mask];
	*chain->next(row) = *head;
	*head = row;
	if (++buckets->count <= buckets->mask)
		return;
	struct buckets wider = { .mask = 2 * buckets->mask + 1, .count = buckets->count };
	wider.heads = hf_alloc((wider.mask + 1) * sizeof *wider.heads);
	for (size_t i = 0; i <= buckets->mask; i++) {
		for (void *at = buckets->heads[i], *next; at; at = next) {
			next = *chain->next(at);
			head = &wider.heads[chain->hash(at) & wider.mask];
			*chain->next(at) = *head;
			*head = at;
		}
	}
	free(buckets->heads);
	*buckets = wider;
}

static void buckets_delete(struct buckets *buckets, const struct chain *chain, void *row)
{
	void **link = &buckets->heads[chain->hash(row) & buckets->mask];
	while (*link != row)
		link = chain->next(*link);
	*link = *chain->next(row);
	buckets->count--;
}

struct model_task *task_find(const struct model *model, const struct task_id *id)
{
	struct model_task *at = model->tasks.heads[task_hash(id) & model->tasks.mask];
	while (at && !task_id_equal(&at->id, id))
		at = at->bucket_next;
	return at;
}

struct model_effect *effect_find(const struct model *model, const unsigned char *digest)
{
	struct model_effect *at = model->effects.heads[hash_of(digest) & model->effects.mask];
	while (at && memcmp(at->digest, digest, EFFECT_DIGEST_BYTES) != 0)
		at = at->bucket_next;
	return at;
}

struct model_effect *effect_add(struct model *model, const unsigned char *digest)
{
	struct model_effect *effect = hf_alloc(sizeof *effect);
	memcpy(effect->digest, digest, EFFECT_DIGEST_BYTES);
	effect->tombstone_ms = -1;
	buckets_add(&model->effects, &effect_chain, effect);
	return effect;
}

void effect_delete(struct model *model, struct model_effect *effect)
{
	buckets_delete(&model->effects, &effect_chain, effect);
	free(effect);
}

struct window *window_find(const struct model *model, const unsigned char *digest)
{
	struct window *at = model->windows.heads[hash_of(digest) & model->windows.mask];
	while (at && memcmp(at->digest, digest, sizeof at->digest) != 0)
		at = at->next;
	return at;
}

struct window *window_add(struct model *model, const unsigned char *digest)
{
	struct window *window = hf_alloc(sizeof *window);
	memcpy(window->digest, digest, sizeof window->digest);
	buckets_add(&model->windows, &window_chain, window);
	return window;
}

void window_delete(struct model *model, struct window *window)
{
	buckets_delete(&model->windows, &window_chain, window);
	text_drop(&window->effect_id);
	free(window);
}

/* --- heaps ------------------------------------------------------------------------------------ */

static struct model_spot *spot_of(const struct heap *heap, struct model_task *task)
{
	return (struct model_spot *)((unsigned char *)task + heap->spot);
}

static bool heap_before(const struct heap *heap, size_t a, size_t b)
{
	const struct model_spot *left = spot_of(heap, heap->items[a]);
	const struct model_spot *right = spot_of(heap, heap->items[b]);
	return left->key != right->key ? left->key < right->key : left->order < right->order;
}

static void heap_swap(struct heap *heap, size_t a, size_t b)
{
	struct model_task *task = heap->items[a];
	heap->items[a] = heap->items[b];
	heap->items[b] = task;
	spot_of(heap, heap->items[a])->at = a + 1;
	spot_of(heap, heap->items[b])->at = b + 1;
}

static void heap_rise(struct heap *heap, size_t at)
{
	for (; at > 0 && heap_before(heap, at, (at - 1) / 2); at = (at - 1) / 2)
		heap_swap(heap, at, (at - 1) / 2);
}

static void heap_sink(struct heap *heap, size_t at)
{
	for (;;) {
		size_t least = at;
		for (size_t child = 2 * at + 1; child <= 2 * at + 2; child++) {
			if (child < heap->count && heap_before(heap, child, least))
				least = child;
		}
		if (least == at)
			return;
		heap_swap(heap, at, least);
		at = least;
	}
}

struct model_task *heap_first(const struct heap *heap)
{
	return heap->count ? heap->items[0] : nullptr;
}

void heap_put(struct model *model, struct heap *heap, struct model_task *task, int64_t key)
{
	if (heap->count == heap->room) {
		heap->room = heap->room ? 2 * heap->room : 16;
		heap->items =
		    hf_realloc((void *)heap->items, heap->room * sizeof(struct model_task *));
	}
	heap->items[heap->count] = task;
	*spot_of(heap, task) = (struct model_spot){ key, model->order++, ++heap->count };
	heap_rise(heap, heap->count - 1);
}

void heap_take(struct heap *heap, struct model_task *task)
{
	size_t at = spot_of(heap, task)->at - 1;
	hf_assert(at < heap->count && heap->items[at] == task);
	heap_swap(heap, at, heap->count - 1);
	heap->count--;
	spot_of(heap, task)->at = 0;
	if (at < heap->count) {
		heap_rise(heap, at);
		heap_sink(heap, at);
	}
}

static struct heap *heap_of(struct model *model, const struct model_task *task)
{
	if (!task->open)
		return &model->ended;
	if (task->state == TASK_READY)
		return &model->queues[task->tool];
	return task->state == TASK_RUNNING || task->state == TASK_UNKNOWN
		   ? nullptr
		   : &model->later[task->state];
}

void task_place(struct model *model, struct model_task *task)
{
	struct heap *heap = heap_of(model, task);
	int64_t key = task->due_ms;
	if (!task->open) {
		const struct model_step *outcome = step_find(task, STEP_PLACE_OUTCOME);
		hf_assert(outcome);
		key = outcome->at_ms + task->result_ttl_ms;
	}
	if (heap == task->heap && (!heap || task->due.key == key))
		return;
	if (task->heap)
		heap_take(task->heap, task);
	task->heap = heap;
	if (heap)
		heap_put(model, heap, task, key);
}

/* --- tasks ------------------------------------------------------------------------------------ */

struct model_task *task_add(struct model *model, const struct task_id *id)
{
	struct model_task *task = hf_alloc(sizeof *task);
	task->id = *id;
	task->week = task_id_week(id);
	task->tried_ms = task->first_try_ms = task->sent_ms = -1;
	task->progress = -1;
	buckets_add(&model->tasks, &task_chain, task);
	return task;
}

static void step_drop(struct model_step *step)
{
	struct slice *const texts[] = { &step->name,  &step->state,   &step->result,
					&step->error, &step->message, &step->derived_key,
					&step->answer };
	for (size_t i = 0; i < countof(texts); i++)
		text_drop(texts[i]);
}

static void task_drop(struct model_task *task)
{
	struct slice *const texts[] = { &task->effect_id, &task->arguments, &task->inputs,
					&task->trace, &task->message };
	for (size_t i = 0; i < countof(texts); i++)
		text_drop(texts[i]);
	for (size_t i = 0; i < task->steps_count; i++)
		step_drop(&task->steps[i]);
	for (size_t i = 0; i < task->events_count; i++)
		text_drop(&task->events[i].text);
	for (size_t i = 0; i < task->intents_count; i++)
		text_drop(&task->intents[i].name);
	for (size_t i = 0; i < task->questions_count; i++) {
		text_drop(&task->questions[i].key);
		text_drop(&task->questions[i].request);
		text_drop(&task->questions[i].answer);
	}
	for (size_t i = 0; i < task->artifacts_count; i++) {
		text_drop(&task->artifacts[i].name);
		text_drop(&task->artifacts[i].media_type);
		text_drop(&task->artifacts[i].content);
	}
	free(task->generations);
	free(task->steps);
	free(task->events);
	free(task->intents);
	free(task->questions);
	free(task->artifacts);
	free(task);
}

void task_free(struct model *model, struct model_task *task)
{
	hf_assert(!task->open);
	heap_take(task->heap, task);
	buckets_delete(&model->tasks, &task_chain, task);
	task_drop(task);
}

struct model_task *task_open(const struct model *model, const struct task_id *id)
{
	struct model_task *task = task_find(model, id);
	return task && task->open ? task : nullptr;
}

struct model_task *task_fence(const struct model *model, const struct task_id *id,
			      const struct uuid *token)
{
	struct model_task *task = task_open(model, id);
	return task && task->has_token && uuid_equal(&task->token, token) ? task : nullptr;
}

const struct model_tool *tool_of(const struct model *model, const struct model_task *task)
{
	hf_assert((size_t)task->tool < model->tools_room && model->tools[task->tool]);
	return model->tools[task->tool];
}

void task_claim(struct model *model, struct model_task *task, const struct uuid *token,
		const struct uuid *incarnation)
{
	hf_assert(!task->has_token);
	task->has_token = true;
	task->token = *token;
	task->incarnation = *incarnation;
	task->running_prev = nullptr;
	task->running_next = model->running;
	if (model->running)
		model->running->running_prev = task;
	model->running = task;
}

void task_unclaim(struct model *model, struct model_task *task)
{
	if (!task->has_token)
		return;
	task->has_token = false;
	if (task->running_prev)
		task->running_prev->running_next = task->running_next;
	else
		model->running = task->running_next;
	if (task->running_next)
		task->running_next->running_prev = task->running_prev;
}

static void unattach(struct model *model, struct model_task *task)
{
	if (!task->has_attached)
		return;
	task->has_attached = false;
	task->attached_no = 0;
	if (task->attached_prev)
		task->attached_prev->attached_next = task->attached_next;
	else
		model->attached = task->attached_next;
	if (task->attached_next)
		task->attached_next->attached_prev = task->attached_prev;
}

void task_attach(struct model *model, struct model_task *task, const struct uuid *api,
		 int64_t number)
{
	unattach(model, task);
	if (!api)
		return;
	task->has_attached = true;
	task->attached = *api;
	task->attached_no = number;
	task->attached_prev = nullptr;
	task->attached_next = model->attached;
	if (model->attached)
		model->attached->attached_prev = task;
	model->attached = task;
}

/* --- rows of a task --------------------------------------------------------------------------- */

/* Makes room for one more of `size` bytes before index `at`, and zeroes it. */
static void *row_insert(void **rows, size_t *count, size_t size, size_t at)
{
	if ((*count & (*count - 1)) == 0)
		*rows = hf_realloc(*rows, (*count ? 2 * *count : 1) * size);
	unsigned char *row = (unsigned char *)*rows + at * size;
	memmove(row + size, row, (*count - at) * size);
	memset(row, 0, size);
	++*count;
	return row;
}

static void row_delete(void *rows, size_t *count, size_t size, size_t at)
{
	unsigned char *row = (unsigned char *)rows + at * size;
	memmove(row, row + size, (*count - at - 1) * size);
	--*count;
}

struct model_step *step_find(const struct model_task *task, int32_t place)
{
	for (size_t i = task->steps_count; i-- > 0;) {
		if (task->steps[i].place == place)
			return &task->steps[i];
	}
	return nullptr;
}

struct model_step *step_add(struct model_task *task, int32_t place)
{
	size_t at = task->steps_count;
	while (at > 0 && task->steps[at - 1].place >= place) {
		if (task->steps[--at].place == place)
			return nullptr;
	}
	struct model_step *step =
	    row_insert((void **)&task->steps, &task->steps_count, sizeof *step, at);
	step->place = place;
	step->started_ms = -1;
	return step;
}

void step_delete(struct model_task *task, int32_t place)
{
	struct model_step *step = step_find(task, place);
	if (!step)
		return;
	step_drop(step);
	row_delete(task->steps, &task->steps_count, sizeof *step, (size_t)(step - task->steps));
}

void event_add(struct model *model, struct model_task *task, const char *kind, struct slice text)
{
	struct model_event *event = row_insert((void **)&task->events, &task->events_count,
					       sizeof *event, task->events_count);
	*event = (struct model_event){
		.kind = kind, .phase = task->phase, .attempt = task->attempt, .at_ms = model->now_ms
	};
	text_set(&event->text, text);
}

void intent_add(struct model_task *task, int phase, const struct uuid *token, struct slice name,
		int64_t at_ms)
{
	size_t at = 0;
	for (; at < task->intents_count; at++) {
		const struct model_intent *other = &task->intents[at];
		int order = memcmp(other->token.bytes, token->bytes, sizeof token->bytes);
		if (other->phase == phase && order == 0)
			return;
		if (other->phase > phase || (other->phase == phase && order > 0))
			break;
	}
	struct model_intent *intent =
	    row_insert((void **)&task->intents, &task->intents_count, sizeof *intent, at);
	*intent = (struct model_intent){ phase, *token, text_keep_empty(name), at_ms };
}

int64_t intent_since(const struct model_task *task)
{
	int64_t since = -1;
	for (size_t i = 0; i < task->intents_count; i++) {
		const struct model_intent *at = &task->intents[i];
		if (at->phase == task->phase && (since < 0 || at->at_ms < since))
			since = at->at_ms;
	}
	return since;
}

void intents_drop(struct model_task *task, int phase, const struct uuid *token)
{
	for (size_t i = task->intents_count; i-- > 0;) {
		struct model_intent *intent = &task->intents[i];
		if (intent->phase != phase || (token && !uuid_equal(&intent->token, token)))
			continue;
		text_drop(&intent->name);
		row_delete(task->intents, &task->intents_count, sizeof *intent, i);
	}
}

struct model_question *question_find(const struct model_task *task, struct slice key)
{
	for (size_t i = 0; i < task->questions_count; i++) {
		if (slice_equal(task->questions[i].key, key))
			return &task->questions[i];
	}
	return nullptr;
}

struct model_question *question_add(struct model_task *task, struct slice key)
{
	size_t at = 0;
	while (at < task->questions_count && slice_compare(task->questions[at].key, key) < 0)
		at++;
	struct model_question *question =
	    row_insert((void **)&task->questions, &task->questions_count, sizeof *question, at);
	*question = (struct model_question){
		.key = text_keep_empty(key), .phase = -1, .asked_ms = -1, .until_ms = -1
	};
	return question;
}

struct model_artifact *artifact_find(const struct model_task *task, int phase, struct slice name)
{
	for (size_t i = 0; i < task->artifacts_count; i++) {
		if (task->artifacts[i].phase == phase && slice_equal(task->artifacts[i].name, name))
			return &task->artifacts[i];
	}
	return nullptr;
}

struct model_artifact *artifact_add(struct model_task *task, int phase, struct slice name)
{
	size_t at = 0;
	while (at < task->artifacts_count && (task->artifacts[at].phase < phase ||
					      (task->artifacts[at].phase == phase &&
					       slice_compare(task->artifacts[at].name, name) < 0)))
		at++;
	struct model_artifact *artifact =
	    row_insert((void **)&task->artifacts, &task->artifacts_count, sizeof *artifact, at);
	*artifact = (struct model_artifact){ .phase = phase, .name = text_keep_empty(name) };
	return artifact;
}

/* --- incarnations ----------------------------------------------------------------------------- */

struct incarnation *incarnation_find(const struct model *model, const struct uuid *id)
{
	for (size_t i = 0; i < model->incarnations_count; i++) {
		if (uuid_equal(&model->incarnations[i].id, id))
			return &model->incarnations[i];
	}
	return nullptr;
}

struct incarnation *incarnation_add(struct model *model, const struct uuid *id)
{
	if (model->incarnations_count == model->incarnations_room) {
		model->incarnations_room = 2 * model->incarnations_room + 8;
		model->incarnations =
		    hf_realloc(model->incarnations,
			       model->incarnations_room * sizeof *model->incarnations);
	}
	struct incarnation *row = &model->incarnations[model->incarnations_count++];
	*row = (struct incarnation){ .id = *id, .beat = 1 };
	return row;
}

void incarnation_delete(struct model *model, struct incarnation *incarnation)
{
	*incarnation = model->incarnations[--model->incarnations_count];
}

/* --- the whole -------------------------------------------------------------------------------- */

struct model *model_new(const struct model_config *config)
{
	struct model *model = hf_alloc(sizeof *model);
	model->config = *config;
	buckets_init(&model->tasks);
	buckets_init(&model->effects);
	buckets_init(&model->windows);
	for (size_t i = 0; i < countof(model->later); i++)
		model->later[i].spot = offsetof(struct model_task, due);
	model->ended.spot = offsetof(struct model_task, due);
	model->deadlines.spot = offsetof(struct model_task, deadline);
	return model;
}

static void windows_free(struct model *model)
{
	for (size_t i = 0; i <= model->windows.mask; i++) {
		for (struct window *at = model->windows.heads[i], *next; at; at = next) {
			next = at->next;
			text_drop(&at->effect_id);
			free(at);
		}
	}
	free(model->windows.heads);
}

static void rows_free(struct model *model)
{
	for (size_t i = 0; i <= model->tasks.mask; i++) {
		for (struct model_task *at = model->tasks.heads[i], *next; at; at = next) {
			next = at->bucket_next;
			task_drop(at);
		}
	}
	for (size_t i = 0; i <= model->effects.mask; i++) {
		for (struct model_effect *at = model->effects.heads[i], *next; at; at = next) {
			next = at->bucket_next;
			free(at);
		}
	}
	free(model->tasks.heads);
	free(model->effects.heads);
	windows_free(model);
}

struct model *model_free(struct model *model)
{
	if (!model)
		return nullptr;
	rows_free(model);
	for (size_t i = 0; i < model->tools_room; i++)
		free((void *)model->queues[i].items);
	for (size_t i = 0; i < countof(model->later); i++)
		free((void *)model->later[i].items);
	free((void *)model->ended.items);
	free((void *)model->deadlines.items);
	for (size_t i = 0; i < model->owners_count; i++) {
		text_drop(&model->owners[i].issuer);
		text_drop(&model->owners[i].subject);
		text_drop(&model->owners[i].tenant);
	}
	for (size_t i = 0; i < model->pauses_count; i++)
		text_drop(&model->pauses[i].name);
	free(model->owners);
	free(model->incarnations);
	free(model->queues);
	free((void *)model->tools);
	arena_free(model->given);
	buf_deinit(&model->requests);
	buf_deinit(&model->scratch);
	free(model);
	return nullptr;
}

void model_set_now(struct model *model, int64_t now_ms)
{
	model->now_ms = now_ms;
}

void model_tool_add(struct model *model, const struct model_tool *tool)
{
	hf_assert(tool->tool > 0);
	size_t room = model->tools_room;
	if ((size_t)tool->tool >= room) {
		model->tools_room = (size_t)tool->tool + 8;
		model->tools =
		    hf_realloc((void *)model->tools, model->tools_room * sizeof *model->tools);
		model->queues =
		    hf_realloc(model->queues, model->tools_room * sizeof *model->queues);
	}
	for (; room < model->tools_room; room++) {
		model->tools[room] = nullptr;
		model->queues[room] = (struct heap){ .spot = offsetof(struct model_task, due) };
	}
	model->tools[tool->tool] = tool;
}

int64_t model_owner(struct model *model, struct slice issuer, struct slice subject,
		    struct slice tenant)
{
	for (size_t i = 0; i < model->owners_count; i++) {
		const struct owner *owner = &model->owners[i];
		if (slice_equal(owner->issuer, issuer) && slice_equal(owner->subject, subject) &&
		    slice_equal(owner->tenant, tenant))
			return (int64_t)i + 1;
	}
	if (model->owners_count == model->owners_room) {
		model->owners_room = 2 * model->owners_room + 8;
		model->owners =
		    hf_realloc(model->owners, model->owners_room * sizeof *model->owners);
	}
	model->owners[model->owners_count++] =
	    (struct owner){ text_keep_empty(issuer), text_keep_empty(subject),
			    text_keep_empty(tenant) };
	return (int64_t)model->owners_count;
}

const struct model_task *model_look(const struct model *model, const struct task_id *id)
{
	return task_find(model, id);
}

const struct model_effect *model_look_effect(const struct model *model,
					     const unsigned char digest[EFFECT_DIGEST_BYTES])
{
	return effect_find(model, digest);
}

void model_each(const struct model *model, void (*task)(void *ctx, const struct model_task *task),
		void (*effect)(void *ctx, const struct model_effect *effect), void *ctx)
{
	for (size_t i = 0; task && i <= model->tasks.mask; i++) {
		for (struct model_task *at = model->tasks.heads[i]; at; at = at->bucket_next)
			task(ctx, at);
	}
	for (size_t i = 0; effect && i <= model->effects.mask; i++) {
		for (struct model_effect *at = model->effects.heads[i]; at; at = at->bucket_next)
			effect(ctx, at);
	}
}

size_t model_open_count(const struct model *model)
{
	return model->open;
}
