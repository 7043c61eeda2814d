/* tool_parse.h - private to tool*.c and pack*.c: their JSON is read by tables of members, and each
 * error names file, JSON pointer and reason. After the first error nothing goes on, so paths need
 * no unwinding on the way out. */
#pragma once

#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"
#include "runtime/tool.h"

constexpr int64_t TOOL_TIME_MS_MAX = 365LL * 24 * 3600 * 1000 * 10; /* of any time in tool.json */

struct tool_parse {
	const struct tool_files *files; /* nullable */
	const char *file;               /* being read; nullable: tool.json */
	struct tool *tool;              /* being made */
	struct buf path;                /* JSON pointer of what is being read */
	bool own_state;                 /* templates may name the state of their own phase */
	bool key_named;                 /* a template did, since this was last set to false */
	bool before;                    /* acceptance: templates may name /args and /input alone */
	struct slice ask;               /* rounds of questions, or empty */
	size_t asking;                  /* the rounds whose answers templates may name */
	bool failed;                    /* the error text is complete */
	struct hf_err *err;
};

enum member_type {
	MEMBER_ANY,
	MEMBER_STRING,  /* min and max: bytes of the unescaped text; max 0: no bounds */
	MEMBER_INTEGER, /* min and max: of the value */
	MEMBER_BOOLEAN,
	MEMBER_ARRAY, /* min and max: elements; max 0: no bounds */
	MEMBER_OBJECT,
};

struct member {
	const char *name;
	enum member_type type;
	bool required;
	int64_t min, max;
};

/* HF_INVALID "<file>#<path>: <text>". */
enum hf_code tool_bad(struct tool_parse *parse, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with a text that begins with a pointer from here on: "/params/mode: …". */
enum hf_code tool_bad_within(struct tool_parse *parse, const char *text);

/* Steps into a member or element; what is given back goes to path_up on the way out. */
size_t path_down(struct tool_parse *parse, struct slice name);
size_t path_down_text(struct tool_parse *parse, const char *name);
size_t path_down_index(struct tool_parse *parse, size_t index);
void path_up(struct tool_parse *parse, size_t mark);

/* values[i] becomes the value of members[i], empty where it is absent. Everything else in the
 * object, a missing required member, a wrong type and a value out of bounds are errors. */
enum hf_code members_read(struct tool_parse *parse, struct slice object,
			  const struct member *members, size_t count, struct slice *values);
/* Of a value that members_read accepted. */
int64_t member_integer(struct slice value, int64_t otherwise);
[[nodiscard]] char *member_text(struct slice value); /* nullptr where absent */
/* Which of the words the member `name` of the current object is; 0 where it is absent. */
enum hf_code member_word(struct tool_parse *parse, const char *name, struct slice value,
			 const char *const *words, int count, int *which);

/* [A-Za-z0-9_.-] and nothing else. */
bool name_is_plain(const char *name);
/* [a-z_][a-z0-9_]*: as SQL would spell it without quotes. */
bool name_is_sql(const char *name);
/* 1*tchar of RFC 9110. */
bool name_is_token(const char *name);
/* A relative path of plain names without "." and "..". */
bool path_is_safe(const char *path);
size_t array_count(struct slice array);

/* A file of the folder, named at the current path. `content` stays empty without tool_files. */
enum hf_code file_read(struct tool_parse *parse, const char *path, struct slice *content,
		       bool *executable);

/* tool_effect.c. The members of every kind but wait, with which its table begins. */
enum {
	PHASE_NAME,
	PHASE_KIND,
	PHASE_EFFECT,
	PHASE_TIMEOUT,
	PHASE_ATTEMPTS,
	PHASE_BACKOFF_FIRST,
	PHASE_BACKOFF_MAX,
	PHASE_UNDO,
	PHASE_MEMBERS
};
constexpr int64_t PHASE_ATTEMPTS_MAX = 1'000;
#define PHASE_MEMBER_TABLE                                                                      \
	[PHASE_NAME] = { "name", MEMBER_STRING, false, 1, 64 },                                 \
	[PHASE_KIND] = { "kind", MEMBER_STRING, true, 0, 0 },                                   \
	[PHASE_EFFECT] = { "effect", MEMBER_STRING, false, 0, 0 },                              \
	[PHASE_TIMEOUT] = { "timeout_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX },         \
	[PHASE_ATTEMPTS] = { "attempts", MEMBER_INTEGER, false, 1, PHASE_ATTEMPTS_MAX },        \
	[PHASE_BACKOFF_FIRST] = { "backoff_first_ms", MEMBER_INTEGER, false, 1,                 \
				  TOOL_TIME_MS_MAX },                                           \
	[PHASE_BACKOFF_MAX] = { "backoff_max_ms", MEMBER_INTEGER, false, 1, TOOL_TIME_MS_MAX }, \
	[PHASE_UNDO] = { "undo", MEMBER_OBJECT, false, 0, 0 }

enum hf_code phase_common_read(struct tool_parse *parse, const struct slice *values,
			       int64_t timeout_ms, struct phase_spec *phase);
/* A member that one effect class needs and no other may have. */
enum hf_code phase_class_check(struct tool_parse *parse, const struct phase_spec *phase,
			       enum effect_class effect, const char *name, struct slice value);

/* tool_phase.c */
enum hf_code phases_read(struct tool_parse *parse, struct slice phases);
void phase_deinit(struct phase_spec *phase);

/* tool_input.c. A question at the path of what it stands in: its key and its request, whose
 * templates are those of the phase. `taken`: who asks under that key already, or nullptr. */
enum hf_code question_check(struct tool_parse *parse, struct slice name, struct slice request,
			    size_t phase, const char *taken);
enum hf_code input_read(struct tool_parse *parse, struct slice object, size_t number,
			struct phase_spec *phase);

/* tool_plain.c: what the API acts on. */
enum hf_code requires_read(struct tool_parse *parse, struct slice object);
/* Sets parse->ask, so that templates may name its answers. `ask`, `otherwise`: may be empty. */
enum hf_code ask_read(struct tool_parse *parse, struct slice ask, struct slice otherwise,
		      bool *go_on);
enum hf_code answer_read(struct tool_parse *parse, struct slice object);
enum hf_code progress_read(struct tool_parse *parse, struct slice array);

/* tool_http.c */
enum hf_code phase_http_read(struct tool_parse *parse, struct slice object, size_t number,
			     struct phase_spec *phase);
void request_spec_deinit(struct request_spec *request);

/* tool_check.c: templates lead somewhere. The scope of phase p is the states before it; phase
 * `tool->phases_count` is the result, which sees all. `value`: a JSON template. */
enum hf_code references_check(struct tool_parse *parse, struct slice value, size_t phase);
/* Whether one of the first rounds asks under that key. */
bool ask_find(struct slice ask, size_t rounds, struct slice key);
/* An http(s) URL or {/conf/NAME}…, and no caller chooses the host. */
enum hf_code url_check(struct tool_parse *parse, const char *url);
enum hf_code pointer_check(struct tool_parse *parse, const char *pointer);
/* What the effect ID's rule, x-mcp-header and the dialect want of inputSchema; sets tool->input. */
enum hf_code input_schema_check(struct tool_parse *parse);
enum hf_code output_schema_check(struct tool_parse *parse);
enum hf_code annotations_check(struct tool_parse *parse, struct slice annotations);
