/* model_inner.h - what the model's files share, and the differential run looks at. */
#pragma once

#include "runtime/arena.h"
#include "runtime/base.h"
#include "runtime/buf.h"
#include "test/sim/model.h"

constexpr int UNDO_PHASE_MAX = 63; /* the last number of a phase that is no undo step */
constexpr size_t MODEL_PAUSES_MAX = 16;
constexpr size_t MODEL_LEASES_MAX = 4;

/* Tasks by key, then first in first out. */
struct heap {
	struct model_task **items;
	size_t count, room;
	size_t spot; /* offset of the struct model_spot in a task */
};

struct incarnation {
	struct uuid id;
	int64_t beat;
	bool has_call;
	int64_t call;
};

struct window {
	unsigned char digest[16];
	struct slice effect_id;
	int64_t opened_ms;
	struct window *next;
};

/* A table of chains that doubles; what is in it begins its chain by a member of its own. */
struct buckets {
	void **heads;
	size_t count, mask;
};

struct owner {
	struct slice issuer, subject, tenant;
};

struct model {
	struct model_config config;
	int64_t now_ms;
	uint64_t order;
	struct buckets tasks, effects, windows;
	size_t open;
	const struct model_tool **tools; /* by number */
	struct heap *queues;             /* by number of the tool: ready */
	size_t tools_room;
	struct heap later[TASK_CANCELLED + 1]; /* scheduled, waiting, paused, parked, unverified */
	struct heap deadlines;                 /* of all open tasks */
	struct heap ended;                     /* by the end of their retention */
	struct model_task *running, *attached;
	struct incarnation *incarnations;
	size_t incarnations_count, incarnations_room;
	struct owner *owners;
	size_t owners_count, owners_room;
	struct {
		bool tenant;
		struct slice name;
	} pauses[MODEL_PAUSES_MAX];
	size_t pauses_count;
	struct {
		const char *name;
		struct uuid incarnation;
		int64_t until_ms;
	} leases[MODEL_LEASES_MAX];
	struct arena *given; /* of the last claim; or nullptr */
	struct buf requests; /* of the last view */
	struct buf scratch;
};

/* model.c */
struct slice text_keep(struct slice text);       /* empty: NULL */
struct slice text_keep_empty(struct slice text); /* empty: empty */
void text_drop(struct slice *text);
int slice_compare(struct slice a, struct slice b);
void text_set(struct slice *text, struct slice to); /* to may be NULL, and is kept as it is */
struct slice text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of a task that is accepted now. */
void task_id_make(const struct model *model, const unsigned char random[16], struct task_id *id);
struct model_task *task_find(const struct model *model, const struct task_id *id);
struct model_task *task_open(const struct model *model, const struct task_id *id); /* has work */
/* The fence: the task that this claim holds. */
struct model_task *task_fence(const struct model *model, const struct task_id *id,
			      const struct uuid *token);
struct model_task *task_add(struct model *model, const struct task_id *id);
void task_free(struct model *model, struct model_task *task);
/* After any change of state or due: where claims and clocks look for it. */
void task_place(struct model *model, struct model_task *task);
void task_unclaim(struct model *model, struct model_task *task); /* token and incarnation: NULL */
void task_claim(struct model *model, struct model_task *task, const struct uuid *token,
		const struct uuid *incarnation);
void task_attach(struct model *model, struct model_task *task, const struct uuid *api,
		 int64_t number); /* nullptr: NULL */
const struct model_tool *tool_of(const struct model *model, const struct model_task *task);

struct model_step *step_find(const struct model_task *task, int32_t place);
/* Zeroed but for place; where one stands already nullptr. */
struct model_step *step_add(struct model_task *task, int32_t place);
/* Of the key that the phase at that place is sent with. */
int generation_of(const struct model *model, const struct model_task *task, int32_t place);
void step_delete(struct model_task *task, int32_t place);
void event_add(struct model *model, struct model_task *task, const char *kind, struct slice text);
void intent_add(struct model_task *task, int phase, const struct uuid *token, struct slice name,
		int64_t at_ms);
/* The time of the first that stands of its phase; -1: none does. */
int64_t intent_since(const struct model_task *task);
/* token nullptr: of all. */
void intents_drop(struct model_task *task, int phase, const struct uuid *token);
struct model_question *question_find(const struct model_task *task, struct slice key);
struct model_question *question_add(struct model_task *task, struct slice key);
struct model_artifact *artifact_find(const struct model_task *task, int phase, struct slice name);
struct model_artifact *artifact_add(struct model_task *task, int phase, struct slice name);

struct model_effect *effect_find(const struct model *model, const unsigned char *digest);
struct model_effect *effect_add(struct model *model, const unsigned char *digest);
void effect_delete(struct model *model, struct model_effect *effect);

struct window *window_find(const struct model *model, const unsigned char *digest);
struct window *window_add(struct model *model, const unsigned char *digest);
void window_delete(struct model *model, struct window *window);

struct incarnation *incarnation_find(const struct model *model, const struct uuid *id);
struct incarnation *incarnation_add(struct model *model, const struct uuid *id);
void incarnation_delete(struct model *model, struct incarnation *incarnation);

struct model_task *heap_first(const struct heap *heap); /* nullptr: empty */
void heap_put(struct model *model, struct heap *heap, struct model_task *task, int64_t key);
void heap_take(struct heap *heap, struct model_task *task);

/* base.sql, shared by the files */
void end_task(struct model *model, struct model_task *task, enum task_state state,
	      struct slice error, struct slice message, int attempt);
struct slice phases_done(const struct model_task *task); /* to be dropped */
enum wish wish_of(const struct model_task *task);
bool becomes_paused(const struct model_task *task);
int next_undo(const struct model *model, const struct model_task *task, int after);
/* stop_task(): a worker has to. */
bool stop_task(struct model *model, struct model_task *task, const char *why);
bool task_view(struct model *model, const struct model_task *task, struct task_view *view);
const char *pause_word(const struct model *model, const struct model_task *task);
bool is_paused(const struct model *model, bool tenant, struct slice name);
bool is_asking(const struct model_task *task, int phase);
void close_silent(struct model *model, struct model_task *task);
struct model_cancelled cancel_task(struct model *model, struct model_task *task);
/* Of a paused tenant: out of the claims' way. */
bool set_aside(struct model *model, struct model_task *task);
