/* tool.h - a tool as applied: tool.json read and checked. What is here passed every check, so
 * that the API and the worker need none. Immutable after tool_new. */
#pragma once

#include <stdint.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/schema.h"
#include "runtime/slice.h"

enum effect_class { EFFECT_LOCAL, EFFECT_PURE, EFFECT_KEYED, EFFECT_LOOKUP, EFFECT_UNSAFE };
const char *effect_class_name(enum effect_class effect);

enum phase_type {
#define PHASE(id, ...) PHASE_##id,
#include "runtime/phases.def"
#undef PHASE
	PHASE_TYPES
};
const char *phase_type_name(enum phase_type type);

enum effect_id_rule { EFFECT_ID_REQUIRED, EFFECT_ID_OPTIONAL, EFFECT_ID_NONE };

/* What becomes of a task whose plain client hung up. */
enum disconnect { DISCONNECT_PARK, DISCONNECT_CONTINUE };

constexpr size_t TOOL_PHASES_MAX = 63;           /* their undo steps have the numbers from 64 on */
constexpr size_t TOOL_FILE_BYTES_MAX = 64 << 20; /* of all files of a tool */

/* One HTTP request template. JSON slices point into the tool's own copy of tool.json. `method` is
 * nullptr where the phase has no such request. */
struct request_spec {
	char *method;               /* GET, HEAD, POST, PUT, PATCH or DELETE */
	struct slice url;           /* text template, unescaped: for template_text */
	struct slice headers;       /* JSON object whose strings are text templates, or empty */
	struct slice json;          /* JSON template of the body, or empty */
	struct slice body_artifact; /* JSON template that yields an artifact's name, or empty */
	bool names_key;             /* a template of it names /key */
};

/* After a request was accepted: read back until it is seen. Without request.method: not wanted. */
struct verify_spec {
	struct request_spec request; /* may name the phase's own state: the answer that accepted */
	char *done_when;             /* pointer that exists in the answer once it is seen */
	int64_t within_ms, every_ms; /* from the acceptance; between two looks */
	bool go_on; /* not seen in time: the phase is done all the same; else unknown */
};

struct phase_spec {
	char *name; /* "undo:NAME" of an undo step */
	enum phase_type type;
	enum effect_class effect;
	bool effect_declared;
	int64_t timeout_ms; /* one attempt; default sql 30 000, http 30 000, program 600 000 */
	int attempts;       /* business attempts; default 5 */
	int64_t backoff_first_ms; /* default 500 */
	int64_t backoff_max_ms;   /* default 60 000 */
	/* sql */
	char *file; /* where the statement stands */
	char *sql;  /* it; $1 arguments, $2 states, both JSON text. nullptr without tool_files */
	/* program */
	char **command; /* argv, nullptr-terminated; [0] with "./" is of the tool's folder */
	char **env; /* names of the worker's variables that it gets; nullptr-terminated, nullable */
	bool plain; /* "mode": "plain": stdin and stdout instead of frames */
	/* wait */
	int64_t wait_ms;    /* from its first start; -1: there is `until` instead */
	struct slice until; /* JSON template of an RFC 3339 time, or empty */
	/* wait with "input": a JSON object key -> request template, else empty. `wait_ms` is then
	 * how long an answer is waited for, 0: until the deadline. */
	struct slice input;
	bool input_go_on; /* what is not answered, or can't be asked, is null; else it fails */
	/* http */
	struct request_spec request;
	char *key_header;          /* keyed http: the header that carries the derived key */
	int64_t key_ttl_ms;        /* keyed: how long downstream keeps it; 0 elsewhere */
	int64_t visible_within_ms; /* lookup */
	struct request_spec reconcile;
	char *done_when;         /* lookup: pointer that exists in the answer when it happened */
	char *absent_when_empty; /* lookup, nullable: pointer to an array, empty when it did not */
	struct verify_spec verify;
	/* Any kind but wait: what a cancel runs once this phase is done. Nullable. */
	struct phase_spec *undo;
};

/* Rows that `tools apply` loads into a table of the tool's own schema, from a CSV with a header. */
struct data_spec {
	char *table, *file;
};

/* Told on the stream of a plain tool whose caller gave a progressToken. */
struct progress_step {
	int64_t progress, total; /* total 0: none */
	int64_t after_ms;
};

/* Of the tool, whichever version a task is of: those of the current one count. 0: none. */
struct tool_limits {
	int running, running_per_tenant; /* tasks at once */
	int backlog;                     /* tasks that wait; then new calls are refused */
};

struct tool {
	int32_t id;       /* the store's number of this version; 0 before it is applied */
	char version[65]; /* SHA-256 of the folder, hex; the caller fills it in, empty until then */
	char *doc;        /* tool.json's text; slices below point into it */
	char *name, *title, *description; /* title nullable */
	enum effect_id_rule effect_id;
	/* For clients that send no effect ID (R1.9). The member of _meta that is taken for one
	 * where no carrier holds any, or nullptr; and for how long after a call without any an
	 * equal one joins it, 0: never. */
	char *effect_id_fallback;
	int64_t intent_window_ms;
	struct slice input_schema, output_schema, annotations; /* the last two may be empty */
	struct schema *input;
	int64_t deadline_ms, result_ttl_ms, tombstone_ttl_ms, poll_interval_ms;
	int64_t answer_window_ms; /* a plain call is answered within it, done or not */
	int64_t park_ttl_ms;      /* parked for longer, a task ends cancelled */
	enum disconnect on_disconnect;
	int crash_limit;
	struct tool_limits limits;
	/* `requires`: a ClientCapabilities-shaped object that each caller must declare, or empty.
	 */
	struct slice needs;
	/* What is asked before the call is accepted: an array of rounds, each key -> request
	 * template; or empty. The answers are /input/KEY. */
	struct slice ask;
	bool ask_go_on; /* what can't be asked, or was declined, is null; else it is refused */
	struct phase_spec *phases; /* none where effect_id is none */
	size_t phases_count;
	/* effect_id none: the answer, of templates over /args and /input; result_structured too. */
	struct slice answer_content; /* an array of content blocks */
	bool answer_is_error;
	struct progress_step *progress;
	size_t progress_count;
	struct slice result_text; /* JSON string with its quotes: a template for template_json */
	struct slice result_structured; /* JSON template, or empty */
	struct slice result_links;      /* JSON template of an array of URIs, or empty */
	struct data_spec *data;
	size_t data_count;
	struct buf remarks; /* lines for its author: what is allowed and may fail */
};

/* Files that tool.json names, found through this; content is borrowed until tool_new returns. */
struct tool_files {
	/* HF_MISSING when there is no such file. `executable` may be nullptr. */
	enum hf_code (*read)(void *ctx, const char *path, struct slice *content, bool *executable,
			     struct hf_err *err);
	void *ctx;
};

/* HF_INVALID: the text is "<file>#<pointer>: <reason>", of what is no JSON
 * "<file>:<line>:<column>: <reason>". Unknown members are errors. `doc` need not have been scanned;
 * it is copied. With `files` nullptr no file is looked at (the API needs none):
 * phases have no `sql` then. */
enum hf_code tool_new(struct slice doc, const struct tool_files *files, struct tool **out,
		      struct hf_err *err);
struct tool *tool_free(struct tool *tool); /* takes nullptr; returns nullptr */
HF_DEFINE_CLEANUP(tool, struct tool *, tool_free)

/* Names of the companions that every server has beside its tools (api/companion.h). */
bool tool_name_reserved(struct slice name);

const struct phase_spec *tool_phase(const struct tool *tool, const char *name);
