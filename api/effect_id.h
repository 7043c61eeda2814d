/* effect_id.h - where a call carries its effect ID, in which order, and in which form. A pure
 * function of the request. */
#pragma once

#include "api/call.h"
#include "runtime/arena.h"
#include "runtime/buf.h"
#include "runtime/id.h"
#include "runtime/slice.h"

constexpr size_t EFFECT_ID_LEN_MAX = 255;
constexpr size_t EFFECT_ID_MINTED_LEN = UUID_TEXT_LEN;

/* In the order of reading. */
enum effect_carrier {
	EFFECT_CARRIER_PARAM,    /* params.idempotencyKey */
	EFFECT_CARRIER_META,     /* params._meta["dev.holdfast/effect-id"] */
	EFFECT_CARRIER_ARGUMENT, /* params.arguments.effect_id */
	EFFECT_CARRIER_HEADER,   /* Idempotency-Key */
	EFFECT_CARRIER_FALLBACK, /* a member of _meta that the tool names; see below */
};
constexpr int EFFECT_CARRIERS = EFFECT_CARRIER_HEADER + 1;

/* As it is published and named in errors: "params.idempotencyKey", …. */
const char *effect_carrier_name(enum effect_carrier carrier);

enum effect_answer {
	EFFECT_FOUND,
	EFFECT_ABSENT,
	EFFECT_INVALID,   /* `carrier` holds something that is no effect ID */
	EFFECT_AMBIGUOUS, /* two carriers differ; `carrier` is the second */
};

struct effect_id {
	struct slice text;           /* EFFECT_FOUND: in the arena, terminated */
	enum effect_carrier carrier; /* the first that holds it, or the one at fault */
	enum effect_carrier first;   /* EFFECT_AMBIGUOUS: that holds the other one */
	bool in_arguments;           /* the argument holds it, perhaps among others */
};

/* `params` and `arguments` are objects, or empty. */
enum effect_answer effect_id_read(const struct call *call, struct slice params,
				  struct slice arguments, struct arena *arena,
				  struct effect_id *out);

/* Of a call that effect_id_read found absent: the member `name` of its _meta, which its client sets
 * for reasons of its own and sends again when it sends the call again (R1.9). */
enum effect_answer effect_id_read_fallback(struct slice params, const char *name,
					   struct arena *arena, struct effect_id *out);

/* 1 to 255 visible ASCII characters without space. */
bool effect_id_valid(struct slice text);

/* A new one, a UUID of version 4. Returns `text`. */
const char *effect_id_mint(char text[static EFFECT_ID_MINTED_LEN + 1]);

/* The arguments (an object, or empty) with `effect_id` as a member, for the schema check; as they
 * are where they have one. */
void effect_id_merge(struct slice arguments, struct slice effect_id, struct buf *out);
