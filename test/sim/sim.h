/* sim.h - the inner harness: what its files share. One world at a time in a process: a store in
 * memory (model.h), a downstream with a ledger, workers and APIs that run the product's own code,
 * callers, an operator and faults, on one virtual clock. Everything that is left to chance is drawn
 * from one seed, so that a world is the same to the last bit each time. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/slice.h"
#include "runtime/store.h"
#include "runtime/tool.h"

struct fibre;
struct front;
struct model;
struct process;

/* --- dice.c: chance --------------------------------------------------------------------------- */

void dice_seed(uint64_t seed);
uint64_t dice(void);
int64_t dice_between(int64_t low, int64_t high); /* both may come */
bool dice_hits(int in_10000);

/* --- scheduler.c: time ------------------------------------------------------------------------ */

/* Embedded by what is to happen. */
struct event {
	int64_t at_us;
	uint64_t tie;            /* drawn: the order of what falls on one moment */
	size_t spot;             /* 1 + its place in the heap; 0: not waiting */
	struct process *process; /* nullptr: happens whatever becomes of the processes */
	void (*fire)(struct event *event);
};

constexpr int64_t MS = 1'000; /* in the clock's unit */

extern int64_t now_us; /* since the world began */
int64_t database_ms(void);
void event_set(struct event *event, int64_t at_us); /* also where it waits already */
void event_drop(struct event *event);
/* The next event; false: none is left. An event of a dead process does not happen, one of a stopped
 * process happens once it goes on. */
bool scheduler_step(void);

/* --- process.c: the processes that are simulated ---------------------------------------------- */

enum process_kind { PROCESS_WORKER, PROCESS_API };

struct ev_loop;
struct process {
	enum process_kind kind;
	int number;
	bool alive, draining;
	int64_t go_on_us;       /* it is stopped until then */
	int64_t boot_offset_ms; /* its machine's boot clock is its own */
	struct ev_loop *loop;
	struct store *store;
	struct downstream *downstream;
	struct host_pool *hosts;
	struct fibre *fibre; /* a worker's worker_main waits in there */
	struct front *front; /* an API's */
};

extern struct process *running_process; /* whose code runs at the moment; nullptr: none's */
/* Runs `call` as code of that process. */
#define as_process(whose, call)                            \
	do {                                               \
		struct process *before_ = running_process; \
		running_process = (whose);                 \
		call;                                      \
		running_process = before_;                 \
	} while (0)

/* Once, before the first world: where the secrets of keys stand. */
void process_set_up(const char *keys_path);
/* In the place of the last of that kind and number. */
struct process *process_new(enum process_kind kind, int number);
struct process *worker_begin(int number);
void process_ended(struct process *process); /* by itself */
void process_kill(struct process *process);
void process_stop(struct process *process, int64_t for_us);
void process_terminate(struct process *process); /* SIGTERM */
/* It is to be killed soon, at a moment that something of it is on its way. */
void process_doom(struct process *process, int64_t within_us);

/* --- fake_ev.c -------------------------------------------------------------------------------- */

struct ev_loop *loop_new(struct process *process);
void loop_signal(struct ev_loop *loop, int number);
/* What a run is seen to do: after each turn in which one had a part. */
void seen_run(void *step_watcher);
void seen_cleared(void *step_watcher); /* as a run does at its end */
void seen_killed(const struct process *process);

/* --- fake_store.c ----------------------------------------------------------------------------- */

/* In the order of what kill cells are printed. */
enum op_kind {
	OP_CLAIM,
	OP_STEP,
	OP_CHECKPOINT,
	OP_FINISH,
	OP_RELEASE,
	OP_ASK,
	OP_INTENT,
	OP_BEAT,
	OP_LEAVE,
	OP_SQL,
	OP_ARTIFACT,
	OP_ACCEPT,
	OP_POLL,
	OP_CANCEL,
	OP_ATTACH,
	OP_DETACH,
	OP_ANSWER,
	OPS
};

void store_wake_all(enum wake wake);
void store_process_died(struct process *process);
void store_break_lane(struct process *process);

/* --- downstream_sim.c, program_sim.c, ledger.c ------------------------------------------------ */

constexpr int PHASES_MAX = 8;
constexpr int PLACES = 2 * PHASES_MAX; /* undo steps behind the phases */
constexpr int COLUMN_READING = 5;      /* beside the effect classes */

/* What became of one phase of one effect, as the outside world knows it. */
struct entry {
	int effects, sends, flying;
	bool sent_key;
	char key[56];
	int64_t first_us, visible_us;
	bool working;
};

struct entry *ledger(int effect, int place);
/* A request that may have an effect leaves for it, or a program that may have one is started. */
void ledger_send(int effect, int place, const char *key, enum effect_class class);
void ledger_effect(int effect, int place);

void downstream_died(struct process *process);
void programs_died(struct process *process);

/* --- tools_sim.c ------------------------------------------------------------------------------ */

constexpr int TOOLS_MAX = 32;
extern struct tool *tools[TOOLS_MAX];
extern int tools_count;
void tools_make(void);
struct tool *tool_draw(void); /* by chance */
void tools_add(struct model *model);
/* "p3" → 3, "undo:p3" → 8 + 3; negative: no phase's name. */
int place_of(struct slice phase_name);

/* --- clients.c -------------------------------------------------------------------------------- */

/* One effect ID and all who use it. */
struct effect {
	int number;
	struct tool *tool;
	int64_t owner;
	bool accepted; /* the store has it */
	bool hung_up;  /* a plain client of it did */
	struct task_id task;
	unsigned char fingerprint[FINGERPRINT_BYTES];
	bool ended; /* somebody saw its end: then state and outcome never change */
	enum task_state state;
	uint64_t outcome;
};
extern struct effect *effects;
extern int effects_count;
/* By its ID "e123"; nullptr: none. */
struct effect *effect_of(struct slice id);
void clients_begin(int tasks, int64_t spread_us);
bool clients_are_done(void);
void check_clients(void); /* as check_all_ended */
void operator_begin(void);
/* The store, or an API, says that this is the task of the effect. */
void told_task(struct effect *effect, const struct task_id *id);
/* Somebody is told how a task stands. */
void told_view(struct effect *effect, const struct task_view *view);

/* --- world.c ---------------------------------------------------------------------------------- */

struct world {
	uint64_t seed;
	int number;
	struct model *model;
	bool calm; /* no fault happens any more */
	int64_t calm_us;
	int workers, apis, slots;
	int64_t beat_ms, lease_ms;
	struct process *processes[16];
	int processes_count;
	int trouble; /* in 10000: how often things go wrong, of this world */
};
extern struct world world;
void world_run(uint64_t seed, int number, int tasks);
/* Maintenance knows of an incarnation from then on. */
void reaper_learn(const struct uuid *incarnation);
bool in_trouble(int in_10000); /* a fault of that likelihood; never when it is calm */

/* --- check.c ---------------------------------------------------------------------------------- */

/* The promise is broken: says so and ends this process. `effect`: -1 where it is none's. */
[[noreturn]] void broken(int effect, const char *format, ...) __attribute__((format(printf, 2, 3)));
void check_end(void);
[[noreturn]] void check_all_ended(void); /* too late: says what has not */
/* A request of a phase is about to leave, a program of it about to start. */
void check_start(const struct effect *effect, int place);

/* --- tally.c: counts, the digest of the history, the story ------------------------------------ */

enum table {
	TABLE_EDGE,    /* run state → run state */
	TABLE_CRASH,   /* run state of a run whose process was killed */
	TABLE_KILL,    /* store act × where it was when its process was killed */
	TABLE_WIRE,    /* request class × where it was when its process was killed */
	TABLE_LOST,    /* store act × where it was when its connection was lost */
	TABLE_FENCE,   /* store act × fence */
	TABLE_RELEASE, /* how × the state of the task after it */
	TABLE_PHASE,   /* outcome of a phase × effect class */
	TABLE_ANSWER,  /* answer of the downstream × effect class */
	TABLE_PROGRAM, /* end of a program × effect class */
	TABLE_STATE,   /* state of a task → state */
	TABLE_FAILURE, /* why tasks failed, by a worker */
	TABLE_END,     /* how tasks ended × executed */
	TABLE_PLAIN,   /* what became of plain calls */
	TABLE_ACT,     /* what else was done: faults, clients, operator */
	TABLES
};
constexpr int ROWS = 28, COLUMNS = 16;

void count(enum table table, int row, int column);
void count_more(enum table table, int row, int column, int more);
/* A metric of the product, where it says what was decided. */
void count_word(int metric, const char *value, int64_t more);
struct tally {
	uint64_t cells[TABLES][ROWS][COLUMNS];
	uint64_t tasks, events, most_attempts, most_crashes, most_sends;
	int broken_effect;
};
extern struct tally *tally; /* shared with the process that prints it */
/* Prints it as JSON; false: a cell that must be hit was not. */
bool tally_print(const struct tally *sum, uint64_t seed, uint64_t digest, double seconds);

enum plain_word {
	PLAIN_REPLY,
	PLAIN_GONE,
	PLAIN_OUTCOME,
	PLAIN_WINDOW,
	PLAIN_PARKS,
	PLAIN_REATTACHED,
	PLAIN_DRAINED,
	PLAIN_TAKEN_UP,
	PLAIN_STREAMS
};
enum act_word {
	ACT_KILL,
	ACT_STOP,
	ACT_DRAIN,
	ACT_LANE,
	ACT_SETTLE_DONE,
	ACT_SETTLE_ABSENT,
	ACT_SETTLE_FAIL,
	ACT_REPEAT,
	ACT_CONFLICT,
	ACT_CANCEL,
	ACT_PAUSE,
	ACT_RESUME,
	ACT_ANSWER,
	ACT_DEAD,
	ACT_RECLAIM,
	ACT_EXPIRE,
	ACT_WAKE_ANSWERED,
	ACT_PARK_ORPHANS,
	ACT_EXPIRE_PARKED,
	ACT_LEASE_LOST,
	ACT_CLAIM_LOST,
	ACT_BUSY,
	ACT_TIMEOUT,
	ACT_HANG_UP,
	ACT_PROGRAM_CANCEL
};

/* One thing that happened: into the digest, and into the story where one is told. */
void happened(const char *what, int effect, int64_t a, int64_t b);
extern uint64_t history; /* the digest so far */
extern int story_of;     /* the effect whose story is told; -2: none's, -1: all */
