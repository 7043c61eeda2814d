/* rounds.h - what a tool or a prompt asks its caller before anything is accepted (MRTR, A13): round
 * by round a result of type input_required and a signed requestState (request_state.h), until all
 * is answered. Nothing is held between two rounds. */
#pragma once

#include "api/request.h"
#include "runtime/id.h"
#include "runtime/slice.h"

struct rounds {
	struct slice ask;  /* an array of objects, key -> request template; not empty */
	bool go_on;        /* what can't be asked, or was declined, is null; else that is refused */
	struct slice name; /* of the tool or prompt */
	struct slice arguments; /* for templates; an object */
	struct slice effect_id; /* of the call, or empty */
};

struct rounds_answers {
	struct slice inputs; /* key -> answer, an object in the arena */
	struct uuid nonce;   /* the same each time that the same last round is sent */
};

/* Whether the request brings a requestState: an answer to a question of ours. */
bool rounds_began(const struct request *request);
/* True: all is answered. False: the request was ended. */
[[nodiscard]] bool rounds_climb(struct request *request, const struct rounds *rounds,
				struct rounds_answers *out);

/* Ends the request with -32021 where its client does not declare all of `required`, a
 * ClientCapabilities-shaped object or empty; true: it does. */
[[nodiscard]] bool rounds_requires(struct request *request, struct slice required);
