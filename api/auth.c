/* auth.c - see auth.h. Called by mcp.c before a body is parsed. No token is kept or logged, and the
 * time of a look-up tells nothing of how close a guess was: all hashes are compared, each in
 * constant time. */
#include "api/auth.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http_text.h"
#include "runtime/base.h"
#include "runtime/id.h"
#include "runtime/key.h"
#include "runtime/metrics.h"

static constexpr size_t HASH_BYTES = 32;
static constexpr size_t BUCKETS = 1'024;

struct token {
	unsigned char hash[HASH_BYTES];
	char *subject, *tenant;
};

struct auth {
	bool insecure_dev;
	struct token *tokens;
	size_t tokens_count;
	struct principal *buckets[BUCKETS];
	size_t principals_count;
	size_t hand; /* the bucket that makes room next */
};

static bool name_valid(const char *text)
{
	return strlen(text) <= AUTH_NAME_LEN_MAX && text_is_visible(slice_of(text));
}

static enum hf_code add_token(struct auth *auth, char *line, const char *place, struct hf_err *err)
{
	static constexpr char SPACE[] = " \t\r\n";
	char *rest = nullptr;
	char *fields[4] = {};
	size_t count = 0;
	for (char *field = strtok_r(line, SPACE, &rest); field && count < countof(fields);
	     field = strtok_r(nullptr, SPACE, &rest))
		fields[count++] = field;
	if (count == 0 || fields[0][0] == '#')
		return HF_OK;

	struct token token = {};
	if (count != 3)
		return hf_fail(err, HF_INVALID, "%s: needs SHA256-HEX SUBJECT TENANT", place);
	if (!hex_parse(slice_of(fields[0]), token.hash, HASH_BYTES))
		return hf_fail(err, HF_INVALID, "%s: needs 64 hexadecimal digits first", place);
	if (!name_valid(fields[1]) || !name_valid(fields[2]))
		return hf_fail(err, HF_INVALID, "%s: names are 1 to %zu visible ASCII characters",
			       place, AUTH_NAME_LEN_MAX);
	for (size_t i = 0; i < auth->tokens_count; i++)
		if (memcmp(auth->tokens[i].hash, token.hash, HASH_BYTES) == 0)
			return hf_fail(err, HF_INVALID, "%s: the token stands above already",
				       place);
	if (auth->tokens_count == AUTH_TOKENS_MAX)
		return hf_fail(err, HF_LIMIT, "%s: over %zu tokens", place, AUTH_TOKENS_MAX);

	token.subject = hf_strdup(fields[1]);
	token.tenant = hf_strdup(fields[2]);
	auth->tokens = hf_realloc(auth->tokens, (auth->tokens_count + 1) * sizeof *auth->tokens);
	auth->tokens[auth->tokens_count++] = token;
	return HF_OK;
}

static enum hf_code load_tokens(struct auth *auth, const char *path, struct hf_err *err)
{
	FILE *file = fopen(path, "re");
	if (!file)
		return hf_fail(err, HF_SYSTEM, "%s: %s", path, strerror(errno));

	char *line = nullptr;
	size_t room = 0;
	enum hf_code code = HF_OK;
	for (int number = 1; code == HF_OK && getline(&line, &room, file) >= 0; number++) {
		char *place = hf_format("%s:%d", path, number);
		code = add_token(auth, line, place, err);
		free(place);
	}
	if (code == HF_OK && ferror(file))
		code = hf_fail(err, HF_SYSTEM, "%s: cannot be read", path);
	if (code == HF_OK && auth->tokens_count == 0)
		code = hf_fail(err, HF_INVALID, "%s: holds no token", path);
	free(line);
	fclose(file);
	return code;
}

enum hf_code auth_open(const char *tokens_file, bool insecure_dev, struct auth **out,
		       struct hf_err *err)
{
	hf_assert(insecure_dev == !tokens_file);

	struct auth *auth = hf_alloc(sizeof *auth);
	auth->insecure_dev = insecure_dev;
	if (!insecure_dev) {
		enum hf_code code = load_tokens(auth, tokens_file, err);
		if (code != HF_OK) {
			auth_close(auth);
			return code;
		}
	}
	*out = auth;
	return HF_OK;
}

static void principal_free(struct principal *principal)
{
	free(principal->issuer);
	free(principal->subject);
	free(principal->tenant);
	free(principal);
}

void auth_close(struct auth *auth)
{
	if (!auth)
		return;
	for (size_t i = 0; i < auth->tokens_count; i++) {
		free(auth->tokens[i].subject);
		free(auth->tokens[i].tenant);
	}
	for (size_t i = 0; i < BUCKETS; i++) {
		while (auth->buckets[i]) {
			struct principal *principal = auth->buckets[i];
			auth->buckets[i] = principal->next;
			principal_free(principal);
		}
	}
	free(auth->tokens);
	free(auth);
}

static size_t bucket_of(const char *subject, const char *tenant)
{
	uint64_t hash = 14695981039346656037u; /* FNV-1a; chains are bounded by PRINCIPALS_MAX */
	const char *const parts[] = { subject, tenant };
	for (size_t i = 0; i < countof(parts); i++)
		for (const char *at = parts[i]; *at; at++)
			hash = (hash ^ (unsigned char)*at) * 1099511628211u;
	return hash % BUCKETS;
}

/* Forgets one that nobody uses; buckets take turns. */
static bool make_room(struct auth *auth)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		size_t bucket = auth->hand++ % BUCKETS;
		struct principal **slot = &auth->buckets[bucket];
		while (*slot && (*slot)->pins > 0)
			slot = &(*slot)->next;
		if (!*slot)
			continue;
		struct principal *idle = *slot;
		*slot = idle->next;
		principal_free(idle);
		auth->principals_count--;
		return true;
	}
	return false;
}

static enum auth_answer find_principal(struct auth *auth, const char *issuer, const char *subject,
				       const char *tenant, struct principal **out)
{
	size_t bucket = bucket_of(subject, tenant);
	struct principal *found = auth->buckets[bucket];
	while (found && (strcmp(found->subject, subject) != 0 ||
			 strcmp(found->tenant, tenant) != 0 || strcmp(found->issuer, issuer) != 0))
		found = found->next;

	if (!found) {
		if (auth->principals_count >= AUTH_PRINCIPALS_MAX && !make_room(auth)) {
			metric_add(METRIC_bound_refused_total, "principals", 1);
			return AUTH_FULL;
		}
		found = hf_alloc(sizeof *found);
		found->issuer = hf_strdup(issuer);
		found->subject = hf_strdup(subject);
		found->tenant = hf_strdup(tenant);
		found->next = auth->buckets[bucket];
		auth->buckets[bucket] = found;
		auth->principals_count++;
	}
	found->pins++;
	*out = found;
	return AUTH_KNOWN;
}

/* The b64token of RFC 6750. */
static bool token_spelt_well(struct slice token)
{
	size_t end = token.len;
	while (end > 0 && token.data[end - 1] == '=')
		end--;
	if (end == 0)
		return false;
	for (size_t i = 0; i < end; i++) {
		char byte = token.data[i];
		bool fits = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
			    (byte >= 'a' && byte <= 'z') || (byte && strchr("-._~+/", byte));
		if (!fits)
			return false;
	}
	return true;
}

static enum auth_answer bearer_of(const struct call *call, struct slice *token)
{
	const struct slice scheme = slice_of("Bearer");
	struct slice value;
	size_t count = 0;
	if (!call_header(call, "Authorization", &value, &count))
		return AUTH_MISSING;
	if (count != 1)
		return AUTH_MALFORMED;
	if (!text_begins_any_case(value, scheme))
		return AUTH_MISSING;

	struct slice rest = { value.data + scheme.len, value.len - scheme.len };
	if (rest.len == 0 || rest.data[0] != ' ')
		return AUTH_MALFORMED;
	while (rest.len && rest.data[0] == ' ') {
		rest.data++;
		rest.len--;
	}
	if (!token_spelt_well(rest))
		return AUTH_MALFORMED;
	*token = rest;
	return rest.len > AUTH_TOKEN_LEN_MAX ? AUTH_UNKNOWN : AUTH_KNOWN;
}

static enum auth_answer find_dev(struct auth *auth, struct slice token, struct principal **out)
{
	if (token.len > AUTH_NAME_LEN_MAX)
		return AUTH_UNKNOWN;
	char *name = hf_strndup(token.data, token.len);
	enum auth_answer answer = find_principal(auth, "dev", name, "default", out);
	free(name);
	return answer;
}

enum auth_answer auth_check(struct auth *auth, const struct call *call,
			    struct principal **principal)
{
	struct slice token;
	enum auth_answer answer = bearer_of(call, &token);
	if (answer != AUTH_KNOWN)
		return answer;
	if (auth->insecure_dev)
		return find_dev(auth, token, principal);

	unsigned char hash[HASH_BYTES];
	sha256(token, hash);
	const struct token *found = nullptr;
	for (size_t i = 0; i < auth->tokens_count; i++)
		if (CRYPTO_memcmp(auth->tokens[i].hash, hash, HASH_BYTES) == 0)
			found = &auth->tokens[i];
	if (!found)
		return AUTH_UNKNOWN;
	return find_principal(auth, "static", found->subject, found->tenant, principal);
}

void auth_release(struct principal *principal)
{
	if (!principal)
		return;
	hf_assert(principal->pins > 0);

	principal->pins--;
}

struct hold {
	struct principal *principal;
	unsigned *count;
	size_t *total;
};

struct hold *hold_new(struct principal *principal, unsigned *count, size_t *total)
{
	struct hold *hold = hf_alloc(sizeof *hold);
	*hold = (struct hold){ principal, count, total };
	principal->pins++;
	(*count)++;
	if (total)
		(*total)++;
	return hold;
}

void hold_free(void *hold)
{
	struct hold held = *(struct hold *)hold;
	hf_assert(*held.count > 0);
	(*held.count)--;
	if (held.total)
		(*held.total)--;
	auth_release(held.principal);
	free(hold);
}

void auth_collect(const struct auth *auth, int64_t listens_max)
{
	unsigned accepts = 0, plains = 0, updates = 0, reads = 0, listens = 0;
	for (size_t i = 0; i < BUCKETS; i++) {
		for (const struct principal *at = auth->buckets[i]; at; at = at->next) {
			accepts = at->accepts > accepts ? at->accepts : accepts;
			plains = at->plains > plains ? at->plains : plains;
			updates = at->updates > updates ? at->updates : updates;
			reads = at->reads > reads ? at->reads : reads;
			listens = at->listens > listens ? at->listens : listens;
		}
	}
	metric_bound("principals", (int64_t)auth->principals_count, AUTH_PRINCIPALS_MAX);
	metric_bound("accepts_per_principal", accepts, AUTH_ACCEPTS_MAX);
	metric_bound("plain_calls_per_principal", plains, AUTH_PLAINS_MAX);
	metric_bound("updates_per_principal", updates, AUTH_UPDATES_MAX);
	metric_bound("artifact_reads_per_principal", reads, AUTH_READS_MAX);
	metric_bound("listens_per_owner", listens, listens_max);
}
