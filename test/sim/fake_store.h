/* fake_store.h - an act of runtime/store.h on its way to the model and back: shared by
 * fake_store.c, which moves acts, acts_worker.c and acts_api.c, which know what each does, and
 * sql_sim.c. */
#pragma once

#include "runtime/key.h"
#include "runtime/store.h"
#include "test/sim/model.h"
#include "test/sim/sim.h"

enum lane { LANE_WRITE, LANE_READ, LANE_BEAT, LANE_SQL, LANES };

struct act;
struct piece; /* of memory */

/* What an act is: done at the store, and what its caller is told then. */
struct act_kind {
	enum op_kind op;
	enum lane lane;
	bool gives_up; /* the API's, after STORE_GIVE_UP_MS */
	bool refusable;
	/* Called again for a `copy` that came late. */
	void (*execute)(struct act *act);
	void (*tell)(struct act *act, enum hf_code code, const struct hf_err *err);
};

struct act {
	const struct act_kind *kind;
	struct store *store;
	struct process *process;
	struct act *next, *previous; /* of its lane */
	struct event execute, tell, give_up;
	bool sent, executed, copy;
	bool shared; /* what it asks is a copy's too, and stays */
	int effect;  /* for the story; -1 */

	/* What is asked. */
	void *ctx;
	struct task_id id;
	struct uuid token, incarnation, call;
	int64_t owner, number;
	int32_t queues[TOOLS_MAX];
	size_t queues_count;
	int limit, phase;
	bool fresh, park;
	struct step_write step;
	bool has_step;
	struct outcome_write outcome;
	struct release_write release;
	struct ask_write ask;
	struct accept_call accept;
	unsigned char random[16];
	struct slice text, type, content;
	struct beat_task *beats;
	size_t beats_count;

	/* What came of it. */
	struct piece *answer;
	enum fence fence;
	enum wish wish;
	struct slice adopted;
	bool found, flagged, ours, running, alive, ready;
	int step_number, taken;
	enum accept_outcome accepted;
	struct task_view view;
	struct store_artifact artifact;
	struct claimed_task *tasks;
	size_t tasks_count;
	struct beat_wish *wishes;
	size_t wishes_count;

	union {
		void (*simple)(void *ctx, enum hf_code code, const struct hf_err *err);
		void (*fenced)(void *ctx, enum hf_code code, enum fence fence,
			       const struct hf_err *err);
		void (*stepped)(void *ctx, enum hf_code code, enum fence fence, enum wish wish,
				struct slice adopted, const struct hf_err *err);
		void (*claimed)(void *ctx, enum hf_code code, const struct claimed_task *tasks,
				size_t count, const struct hf_err *err);
		void (*beaten)(void *ctx, enum hf_code code, bool alive,
			       const struct beat_wish *wishes, size_t count,
			       const struct hf_err *err);
		void (*got)(void *ctx, enum hf_code code, struct slice media_type,
			    struct slice content, const struct hf_err *err);
		void (*accept_done)(void *ctx, enum hf_code code, enum accept_outcome outcome,
				    const struct task_view *view, const struct hf_err *err);
		void (*polled)(void *ctx, enum hf_code code, const struct task_view *view,
			       const struct hf_err *err);
		void (*detached)(void *ctx, enum hf_code code, bool ours, int step,
				 const struct hf_err *err);
		void (*answered)(void *ctx, enum hf_code code, int taken, const struct hf_err *err);
	} done;
	struct piece *asked; /* what its slices point into */
};

struct store {
	struct process *process;
	struct act *first[LANES];
	int64_t executed_us[LANES], told_us[LANES]; /* of the last in line */
	int64_t up_us[LANES];                       /* its connection is away until then */
	struct event wakes[WAKES];
	void (*on_wake)(void *ctx, enum wake wake);
	void *on_wake_ctx;
	bool has_beaten;
	struct uuid beaten;
	uint64_t claims;
};

struct act *act_new(struct store *store, const struct act_kind *kind, void *ctx);
/* Into the act's own memory. */
struct slice act_keep(struct act *act, struct slice slice);
/* What it says to its caller, kept until it was told. */
struct slice act_answer(struct act *act, struct slice slice);
void act_send(struct act *act);
/* The model, at this moment. */
struct model *store_now(void);
int effect_number(const struct task_id *id);
