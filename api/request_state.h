/* request_state.h - the requestState of MRTR (A13.5): what was answered so far travels with the
 * client, so that any API process can go on with any round, and nothing is held or stored for a
 * caller who may never come back. It is signed under the keyring and good for one caller, one call
 * and a time; nothing in it is secret from its caller. Pure functions: no clock, no store. */
#pragma once

#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/err.h"
#include "runtime/id.h"
#include "runtime/key.h"
#include "runtime/slice.h"

constexpr int64_t REQUEST_STATE_TTL_MS = 1'800'000;  /* for a person to answer */
constexpr size_t REQUEST_STATE_ANSWERS_MAX = 65'536; /* bytes, of all rounds together */

/* What one is bound to: opened under any other, it is bad. */
struct request_state_scope {
	const struct keyring *keyring;
	struct slice issuer, subject, tenant;
	struct slice method, name; /* "tools/call" and the tool, "prompts/get" and the prompt */
	unsigned char digest[32];  /* of the arguments and of whatever else must stay the same */
};

struct request_state {
	struct uuid nonce;    /* the same through all rounds of a call */
	int64_t expires_ms;   /* wall clock */
	uint32_t round;       /* that is being asked, from 0 */
	struct slice answers; /* a JSON object: key to answer, of this round and those before */
};

/* Appends its text, ASCII, under the keyring's current version. */
void request_state_seal(const struct request_state_scope *scope, const struct request_state *state,
			struct buf *out);
/* `answers` is appended to and pointed into. HF_INVALID: not one of ours, changed, of another
 * scope, too old, or of a key that is no longer there. The text is for the caller. */
enum hf_code request_state_open(const struct request_state_scope *scope, struct slice text,
				int64_t now_ms, struct buf *answers, struct request_state *out,
				struct hf_err *err);
