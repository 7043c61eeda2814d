/* template.h - how values flow between phases: {"$from": "/state/render/pages"} wherever a JSON
 * value may stand, {/args/month} inside strings. No conditions, no expressions. "{{" is a brace. */
#pragma once

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/slice.h"

/* The roots, as scanned JSON text: args, state/<phase>, input, key, task, conf, minted. */
struct template_scope {
	struct slice args;
	struct slice key;    /* a JSON string */
	struct slice task;   /* {"id": …, "tool": …, "effect_id": …, "attempt": …} */
	struct slice conf;   /* an object */
	struct slice input;  /* what was answered, an object */
	struct slice minted; /* what was made for this one use: {"effect_id": …} */
	/* The state of a phase by name, or false: no recovery point of it yet. */
	bool (*state)(void *ctx, struct slice phase, struct slice *json);
	void *state_ctx;
};

/* Appends `json` (scanned) with every reference replaced, also {/pointer} within its strings (their
 * values; member names stand as they are). HF_MISSING: a pointer leads nowhere. HF_INVALID: "$from"
 * with company or no string, or as template_text. HF_LIMIT: a value would nest too deep. Past the
 * maximum of `out` it stops with HF_OK and out->overflow. */
enum hf_code template_json(struct slice json, const struct template_scope *scope, struct buf *out,
			   struct hf_err *err);
/* Appends `text` with {/pointer} replaced: strings as they are, numbers and booleans as spelt.
 * With `url`, what is put in is percent-encoded, except for /conf values. HF_INVALID: the value
 * is null, an array or an object, a brace opens no {/pointer}, or the finished URL's path has a
 * segment "." or "..", which would climb out of what the author wrote. */
enum hf_code template_text(struct slice text, bool url, const struct template_scope *scope,
			   struct buf *out, struct hf_err *err);

/* Calls `found` for each pointer in a template, so that `tools check` can validate them. Stops at
 * the first that returns an error. `json`: a whole JSON template (scanned), or one JSON string. The
 * pointer is unescaped, starts with "/", and is valid during the call. HF_INVALID as above. */
enum hf_code template_walk(struct slice json,
			   enum hf_code (*found)(void *ctx, struct slice pointer,
						 struct hf_err *err),
			   void *ctx, struct hf_err *err);
