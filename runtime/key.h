/* key.h - what is derived from a call: the effect digest, the fingerprint, and the keys that
 * downstream systems get (V5: pure functions of identity and place). Golden vectors:
 * test/runtime/test_key.c. Every variable-length part goes in with a 4-byte big-endian length. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/err.h"
#include "runtime/id.h"
#include "runtime/slice.h"

constexpr size_t EFFECT_DIGEST_BYTES = 16;
constexpr size_t FINGERPRINT_BYTES = 32;
constexpr size_t DERIVED_KEY_LEN = 52; /* lower-case base32 (RFC 4648 alphabet) of 32 bytes */

/* First 16 bytes of SHA-256 over the parts digest version "1", owner (decimal text), tool name
 * and effect ID, each length-prefixed. No secret, never rotated. */
void effect_digest(int64_t owner, struct slice tool, struct slice effect_id,
		   unsigned char digest[static EFFECT_DIGEST_BYTES]);

/* SHA-256 of the canonical arguments (json_canonical), `effect_id` left out. */
void fingerprint(struct slice canonical, unsigned char out[static FINGERPRINT_BYTES]);

void sha256(struct slice bytes, unsigned char out[static 32]);

/* The secrets that keys are derived under: a file of lines `VERSION HEX`, VERSION 1..32767 and
 * rising, HEX of 32 bytes; '#' starts a comment. The highest version is for new tasks. */
struct keyring;
enum hf_code keyring_load(const char *path, struct keyring **out, struct hf_err *err);
struct keyring *keyring_free(struct keyring *keyring); /* takes nullptr; returns nullptr */
int keyring_current(const struct keyring *keyring);
size_t keyring_count(const struct keyring *keyring);

/* What tells the nth secret (from 0) from any other of that version and gives nothing of it away;
 * the version. It is no key: nothing else is made under that purpose. */
constexpr size_t KEY_MARK_BYTES = 32;
int keyring_mark(const struct keyring *keyring, size_t nth,
		 unsigned char mark[static KEY_MARK_BYTES]);

/* HMAC-SHA-256 over the parts, each with its length in front, under HMAC-SHA-256(version's secret,
 * purpose): what this deployment gives out and has to know again. HF_MISSING as below. */
enum hf_code keyring_sign(const struct keyring *keyring, int version, const char *purpose,
			  const struct slice *parts, size_t parts_count,
			  unsigned char out[static 32], struct hf_err *err);

/* Who asks and where; all of it goes into the derived key, all of it is stored with the task. */
struct key_place {
	int key_version;
	struct uuid cluster; /* the cluster incarnation at acceptance */
	struct slice issuer, subject, tenant, tool, effect_id, phase;
	uint32_t call;       /* number of the call within the phase, from 0 */
	uint32_t generation; /* 0 unless an operator asked for a new key */
};

/* HMAC-SHA-256 under the secret of (version, cluster) over the three bytes "hf1" and the parts in
 * the order issuer, subject, tenant, tool, effect ID, phase, call, generation, each with its
 * length in front; call and generation as decimal text. The secret of a
 * cluster is HMAC-SHA-256(version's secret, "hf1-cluster" | 16 bytes). HF_MISSING when the keyring
 * has no such version. `text` has room for DERIVED_KEY_LEN + 1. */
enum hf_code derive_key(const struct keyring *keyring, const struct key_place *place, char *text,
			struct hf_err *err);
