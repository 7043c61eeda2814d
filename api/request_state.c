/* request_state.c - see request_state.h. The text is "hs1.", the key version, ".", and base64url of
 * signature, nonce, expiry, round and answers. Each content has one spelling, so that no byte of a
 * text can be changed without its being noticed. Called by rounds.c. */
#include "api/request_state.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"

static constexpr char PREFIX[] = "hs1.";
static constexpr char PURPOSE[] = "hf1-request-state";
constexpr size_t SIGNATURE_BYTES = 32, NONCE_BYTES = 16, EXPIRY_BYTES = 8, ROUND_BYTES = 4;
constexpr size_t HEAD_BYTES = NONCE_BYTES + EXPIRY_BYTES + ROUND_BYTES;
constexpr size_t BODY_BYTES_MAX = SIGNATURE_BYTES + HEAD_BYTES + REQUEST_STATE_ANSWERS_MAX;
constexpr size_t VERSION_DIGITS_MAX = 5;

static void put(struct buf *out, uint64_t number, size_t bytes)
{
	for (size_t i = bytes; i-- > 0;)
		buf_add_byte(out, (char)(number >> 8 * i & 255));
}

static uint64_t take(const char *bytes, size_t count)
{
	uint64_t number = 0;
	for (size_t i = 0; i < count; i++)
		number = number << 8 | (unsigned char)bytes[i];
	return number;
}

static enum hf_code sign(const struct request_state_scope *scope, int version, struct slice content,
			 unsigned char out[static SIGNATURE_BYTES], struct hf_err *err)
{
	const struct slice parts[] = {
		scope->issuer, scope->subject,
		scope->tenant, scope->method,
		scope->name,   { (const char *)scope->digest, sizeof scope->digest },
		content,
	};
	return keyring_sign(scope->keyring, version, PURPOSE, parts, countof(parts), out, err);
}

void request_state_seal(const struct request_state_scope *scope, const struct request_state *state,
			struct buf *out)
{
	hf_assert(state->answers.len <= REQUEST_STATE_ANSWERS_MAX);

	int version = keyring_current(scope->keyring);
	unsigned char signature[SIGNATURE_BYTES];
	hf_cleanup(buf) struct buf content = {}, body = {};
	buf_add(&content, state->nonce.bytes, NONCE_BYTES);
	put(&content, (uint64_t)state->expires_ms, EXPIRY_BYTES);
	put(&content, state->round, ROUND_BYTES);
	buf_add_slice(&content, state->answers);
	enum hf_code code = sign(scope, version, buf_slice(&content), signature, nullptr);
	hf_assert(code == HF_OK); /* the current version is there */
	buf_add(&body, signature, sizeof signature);
	buf_add_slice(&body, buf_slice(&content));
	buf_add_format(out, "%s%d.", PREFIX, version);
	char *room = buf_reserve(out, BASE64URL_LEN(body.len) + 1);
	if (!room) /* as with every append, out->overflow says so */
		return;
	base64url_format((const unsigned char *)body.data, body.len, room);
	buf_grew(out, BASE64URL_LEN(body.len));
}

/* The key version in front, and what stands behind it. */
static bool take_version(struct slice text, int *version, struct slice *rest)
{
	size_t head = sizeof PREFIX - 1, digits = 0;
	if (text.len < head || memcmp(text.data, PREFIX, head) != 0)
		return false;
	*version = 0;
	for (; head + digits < text.len && digits <= VERSION_DIGITS_MAX; digits++) {
		char c = text.data[head + digits];
		if (c < '0' || c > '9')
			break;
		*version = *version * 10 + (c - '0');
	}
	size_t at = head + digits;
	if (digits == 0 || digits > VERSION_DIGITS_MAX || text.data[head] == '0' ||
	    at >= text.len || text.data[at] != '.')
		return false;
	*rest = (struct slice){ text.data + at + 1, text.len - at - 1 };
	return true;
}

static bool body_read(struct slice text, struct buf *body)
{
	size_t len = text.len * 3 / 4;
	unsigned char *room = buf_reserve(body, len);
	buf_grew(body, len);
	return base64url_parse(text, room);
}

/* The content that stands in `body`, if its signature is ours. */
static bool is_genuine(const struct request_state_scope *scope, int version, struct slice body,
		       struct slice *content)
{
	unsigned char signature[SIGNATURE_BYTES];
	if (body.len < SIGNATURE_BYTES + HEAD_BYTES)
		return false;
	*content = (struct slice){ body.data + SIGNATURE_BYTES, body.len - SIGNATURE_BYTES };
	return sign(scope, version, *content, signature, nullptr) == HF_OK &&
	       CRYPTO_memcmp(signature, body.data, sizeof signature) == 0;
}

enum hf_code request_state_open(const struct request_state_scope *scope, struct slice text,
				int64_t now_ms, struct buf *answers, struct request_state *out,
				struct hf_err *err)
{
	int version = 0;
	struct slice rest, content;
	hf_cleanup(buf) struct buf body = {};
	if (!take_version(text, &version, &rest) || rest.len > BASE64URL_LEN(BODY_BYTES_MAX) ||
	    !body_read(rest, &body) || !is_genuine(scope, version, buf_slice(&body), &content))
		return hf_fail(err, HF_INVALID,
			       "requestState was not given to this caller for this call");
	const char *at = content.data;
	memcpy(out->nonce.bytes, at, NONCE_BYTES);
	out->expires_ms = (int64_t)take(at + NONCE_BYTES, EXPIRY_BYTES);
	out->round = (uint32_t)take(at + NONCE_BYTES + EXPIRY_BYTES, ROUND_BYTES);
	if (now_ms >= out->expires_ms)
		return hf_fail(err, HF_INVALID,
			       "requestState is too old; make the call again without it");
	size_t from = answers->len;
	buf_add(answers, at + HEAD_BYTES, content.len - HEAD_BYTES);
	out->answers = (struct slice){ answers->data + from, answers->len - from };
	return HF_OK;
}
