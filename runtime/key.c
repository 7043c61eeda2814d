/* key.c - digests and derived keys (V5). A part is written with its length, so that no two
 * different lists of parts have the same bytes. Secrets are wiped when they are let go. */
#include "runtime/key.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base.h"
#include "runtime/buf.h"

constexpr size_t SECRET_BYTES = 32;
constexpr size_t KEYRING_FILE_BYTES_MAX = 65'536;
constexpr size_t KEYRING_SECRETS_MAX = 512;
constexpr int KEY_VERSION_MAX = 32'767;
static constexpr char MARK_PURPOSE[] = "hf1-key-mark";

struct secret {
	int version;
	unsigned char bytes[SECRET_BYTES];
};

/* Versions rise, so the last is the current one. */
struct keyring {
	size_t count;
	struct secret secrets[KEYRING_SECRETS_MAX];
};

static void add_part(struct buf *parts, struct slice part)
{
	hf_assert(part.len <= UINT32_MAX);
	uint32_t len = (uint32_t)part.len;
	const unsigned char prefix[4] = {
		(unsigned char)(len >> 24),
		(unsigned char)(len >> 16 & 255),
		(unsigned char)(len >> 8 & 255),
		(unsigned char)(len & 255),
	};
	buf_add(parts, prefix, sizeof prefix);
	buf_add_slice(parts, part);
}

static void add_number(struct buf *parts, int64_t number)
{
	char text[24];
	snprintf(text, sizeof text, "%" PRId64, number);
	add_part(parts, slice_of(text));
}

void sha256(struct slice bytes, unsigned char out[static 32])
{
	/* SHA256 may not be given a null pointer, not even for no bytes. */
	const void *data = bytes.data ? bytes.data : "";
	if (!SHA256(data, bytes.len, out)) /* it allocates, and fails at nothing else */
		hf_out_of_memory(0);
}

static void hmac(const unsigned char *secret, struct slice bytes, unsigned char out[static 32])
{
	unsigned len = 0;
	const unsigned char *data = (const unsigned char *)bytes.data;
	if (!HMAC(EVP_sha256(), secret, (int)SECRET_BYTES, data, bytes.len, out, &len))
		hf_out_of_memory(0);
	hf_assert(len == SHA256_DIGEST_LENGTH);
}

void effect_digest(int64_t owner, struct slice tool, struct slice effect_id,
		   unsigned char digest[static EFFECT_DIGEST_BYTES])
{
	hf_cleanup(buf) struct buf parts = {};
	add_part(&parts, slice_of("1"));
	add_number(&parts, owner);
	add_part(&parts, tool);
	add_part(&parts, effect_id);
	unsigned char full[SHA256_DIGEST_LENGTH];
	sha256(buf_slice(&parts), full);
	memcpy(digest, full, EFFECT_DIGEST_BYTES);
}

void fingerprint(struct slice canonical, unsigned char out[static FINGERPRINT_BYTES])
{
	sha256(canonical, out);
}

/* Takes "VERSION HEX" apart; false unless it is exactly that. */
static bool read_secret(struct slice line, struct secret *secret)
{
	size_t at = 0;
	int version = 0;
	for (; at < line.len && line.data[at] >= '0' && line.data[at] <= '9'; at++) {
		version = version * 10 + (line.data[at] - '0');
		if (version > KEY_VERSION_MAX)
			return false;
	}
	size_t digits = at;
	while (at < line.len && (line.data[at] == ' ' || line.data[at] == '\t'))
		at++;
	if (digits == 0 || at == digits || version == 0)
		return false;
	secret->version = version;
	return hex_parse((struct slice){ line.data + at, line.len - at }, secret->bytes,
			 SECRET_BYTES);
}

static enum hf_code read_line(struct keyring *keyring, struct slice line, const char *path,
			      int number, struct hf_err *err)
{
	const char *comment = line.len ? memchr(line.data, '#', line.len) : nullptr;
	if (comment)
		line.len = (size_t)(comment - line.data);
	else if (line.len && line.data[line.len - 1] == '\r')
		line.len--;
	line = slice_trim(line);
	if (line.len == 0)
		return HF_OK;
	if (keyring->count == KEYRING_SECRETS_MAX)
		return hf_fail(err, HF_LIMIT, "%s: more than %zu keys", path, KEYRING_SECRETS_MAX);
	struct secret *secret = &keyring->secrets[keyring->count];
	/* The text never quotes the line: it may be a secret with a slip in it. */
	if (!read_secret(line, secret))
		return hf_fail(err, HF_INVALID,
			       "%s:%d: not `VERSION HEX` (1 to %d, 64 hexadecimal digits)", path,
			       number, KEY_VERSION_MAX);
	if (keyring->count && secret->version <= secret[-1].version)
		return hf_fail(err, HF_INVALID, "%s:%d: version %d is not above the one before",
			       path, number, secret->version);
	keyring->count++;
	return HF_OK;
}

static enum hf_code read_file(const char *path, struct buf *text, struct hf_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return hf_fail(err, errno == ENOENT ? HF_MISSING : HF_SYSTEM, "%s: %s", path,
			       strerror(errno));
	ssize_t got = 1;
	while (got > 0 && text->len <= KEYRING_FILE_BYTES_MAX) {
		/* One growth for the whole file, so that no copy of a secret stays behind. */
		void *room = buf_reserve(text, KEYRING_FILE_BYTES_MAX + 1 - text->len);
		hf_assert(room);
		got = read(fd, room, KEYRING_FILE_BYTES_MAX + 1 - text->len);
		if (got > 0)
			buf_grew(text, (size_t)got);
	}
	int error = errno;
	close(fd);
	if (got < 0)
		return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(error));
	if (text->len > KEYRING_FILE_BYTES_MAX)
		return hf_fail(err, HF_LIMIT, "%s: over %zu bytes", path, KEYRING_FILE_BYTES_MAX);
	return HF_OK;
}

static enum hf_code read_keyring(const char *path, struct slice text, struct keyring *keyring,
				 struct hf_err *err)
{
	int number = 1;
	for (size_t at = 0; at < text.len; number++) {
		const char *line = text.data + at;
		const char *end = memchr(line, '\n', text.len - at);
		size_t len = end ? (size_t)(end - line) : text.len - at;
		hf_try(read_line(keyring, (struct slice){ line, len }, path, number, err));
		at += len + 1;
	}
	if (keyring->count == 0)
		return hf_fail(err, HF_INVALID, "%s: no key in it", path);
	return HF_OK;
}

/* OpenSSL makes itself ready at its first use, and does not survive that memory lacks there: now is
 * better than with the first caller. */
static void hash_once(void)
{
	unsigned char out[SHA256_DIGEST_LENGTH];
	const unsigned char secret[SECRET_BYTES] = {};
	sha256(slice_of(""), out);
	hmac(secret, slice_of(""), out);
}

enum hf_code keyring_load(const char *path, struct keyring **out, struct hf_err *err)
{
	hf_assert(path);
	hf_assert(out);
	struct buf text = {};
	struct keyring *keyring = hf_alloc(sizeof *keyring);
	enum hf_code code = read_file(path, &text, err);
	if (code == HF_OK)
		code = read_keyring(path, buf_slice(&text), keyring, err);
	if (text.data)
		OPENSSL_cleanse(text.data, text.room);
	buf_deinit(&text);
	hash_once();
	if (code == HF_OK)
		*out = keyring;
	else
		keyring_free(keyring);
	return code;
}

struct keyring *keyring_free(struct keyring *keyring)
{
	if (!keyring)
		return nullptr;
	OPENSSL_cleanse(keyring, sizeof *keyring);
	free(keyring);
	return nullptr;
}

int keyring_current(const struct keyring *keyring)
{
	hf_assert(keyring);
	hf_assert(keyring->count > 0);
	return keyring->secrets[keyring->count - 1].version;
}

size_t keyring_count(const struct keyring *keyring)
{
	return keyring->count;
}

int keyring_mark(const struct keyring *keyring, size_t nth,
		 unsigned char mark[static KEY_MARK_BYTES])
{
	hf_assert(nth < keyring->count);
	int version = keyring->secrets[nth].version;
	char text[8];
	snprintf(text, sizeof text, "%d", version);
	const struct slice part = slice_of(text);
	enum hf_code code = keyring_sign(keyring, version, MARK_PURPOSE, &part, 1, mark, nullptr);
	hf_assert(code == HF_OK);
	return version;
}

static const struct secret *keyring_find(const struct keyring *keyring, int version)
{
	for (size_t i = 0; i < keyring->count; i++)
		if (keyring->secrets[i].version == version)
			return &keyring->secrets[i];
	return nullptr;
}

enum hf_code keyring_sign(const struct keyring *keyring, int version, const char *purpose,
			  const struct slice *parts, size_t parts_count,
			  unsigned char out[static 32], struct hf_err *err)
{
	hf_assert(keyring);
	const struct secret *secret = keyring_find(keyring, version);
	if (!secret)
		return hf_fail(err, HF_MISSING, "the keys file has no version %d", version);
	unsigned char purpose_secret[SECRET_BYTES];
	hmac(secret->bytes, slice_of(purpose), purpose_secret);
	hf_cleanup(buf) struct buf bytes = {};
	for (size_t i = 0; i < parts_count; i++)
		add_part(&bytes, parts[i]);
	hmac(purpose_secret, buf_slice(&bytes), out);
	OPENSSL_cleanse(purpose_secret, sizeof purpose_secret);
	return HF_OK;
}

/* 5 bits a character, most significant first; the last has 4 zero bits of padding. */
static void base32_format(const unsigned char bytes[static 32], char *text)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
	for (size_t i = 0; i < DERIVED_KEY_LEN; i++) {
		size_t bit = i * 5;
		unsigned pair = (unsigned)bytes[bit / 8] << 8;
		if (bit / 8 + 1 < 32)
			pair |= bytes[bit / 8 + 1];
		text[i] = alphabet[pair >> (11 - bit % 8) & 31];
	}
	text[DERIVED_KEY_LEN] = '\0';
}

enum hf_code derive_key(const struct keyring *keyring, const struct key_place *place, char *text,
			struct hf_err *err)
{
	hf_assert(keyring);
	hf_assert(place);
	hf_assert(text);
	const struct secret *secret = keyring_find(keyring, place->key_version);
	if (!secret)
		return hf_fail(err, HF_MISSING, "the keys file has no version %d",
			       place->key_version);

	hf_cleanup(buf) struct buf parts = {};
	buf_add_text(&parts, "hf1-cluster");
	buf_add(&parts, place->cluster.bytes, sizeof place->cluster.bytes);
	unsigned char cluster_secret[SECRET_BYTES];
	hmac(secret->bytes, buf_slice(&parts), cluster_secret);

	buf_clear(&parts);
	buf_add_text(&parts, "hf1");
	add_part(&parts, place->issuer);
	add_part(&parts, place->subject);
	add_part(&parts, place->tenant);
	add_part(&parts, place->tool);
	add_part(&parts, place->effect_id);
	add_part(&parts, place->phase);
	add_number(&parts, place->call);
	add_number(&parts, place->generation);
	unsigned char key[32];
	hmac(cluster_secret, buf_slice(&parts), key);
	OPENSSL_cleanse(cluster_secret, sizeof cluster_secret);
	base32_format(key, text);
	return HF_OK;
}
