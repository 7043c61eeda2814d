/* test_request_state.c - what a client carries between two rounds is good for what it was given
 * for, and for nothing else. */
#include "api/request_state.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base.h"
#include "test/test.h"

static constexpr int64_t NOW_MS = 1'790'000'000'000;
static constexpr char ANSWERS[] =
    "{\"who\":{\"action\":\"accept\",\"content\":{\"name\":\"Ada\"}}}";

/* `lines`: of a keys file. */
static struct keyring *keyring_of(const char *lines)
{
	char path[sizeof TEST_FILE];
	test_file(lines, path);
	struct keyring *keyring = nullptr;
	struct hf_err err = {};
	cr_assert_eq(keyring_load(path, &keyring, &err), HF_OK, "%s", err.text);
	unlink(path);
	return keyring;
}

#define KEY_1 "1 1111111111111111111111111111111111111111111111111111111111111111\n"
#define KEY_2 "2 2222222222222222222222222222222222222222222222222222222222222222\n"
#define KEY_3 "1 3333333333333333333333333333333333333333333333333333333333333333\n"

static struct request_state_scope scope_of(const struct keyring *keyring)
{
	return (struct request_state_scope){
		.keyring = keyring,
		.issuer = slice_of("tokens"),
		.subject = slice_of("alice"),
		.tenant = slice_of("A"),
		.method = slice_of("tools/call"),
		.name = slice_of("send"),
		.digest = { 1, 2, 3 },
	};
}

static struct request_state state_of(void)
{
	return (struct request_state){
		.nonce = uuid_new(),
		.expires_ms = NOW_MS + REQUEST_STATE_TTL_MS,
		.round = 3,
		.answers = slice_of(ANSWERS),
	};
}

static bool opens(const struct request_state_scope *scope, struct slice text, int64_t now_ms)
{
	hf_cleanup(buf) struct buf answers = {};
	struct request_state read;
	enum hf_code code = request_state_open(scope, text, now_ms, &answers, &read, nullptr);
	cr_assert(code == HF_OK || code == HF_INVALID);
	return code == HF_OK;
}

HF_TEST(request_state, what_was_sealed_is_opened)
{
	struct keyring *keyring = keyring_of(KEY_1);
	const struct request_state_scope scope = scope_of(keyring);
	/* Each length of the last group of base64. */
	for (size_t cut = 0; cut < 3; cut++) {
		hf_cleanup(buf) struct buf text = {}, answers = {};
		struct request_state state = state_of(), read;
		struct hf_err err = {};
		state.answers.len -= cut;
		request_state_seal(&scope, &state, &text);
		cr_assert_eq(request_state_open(&scope, buf_slice(&text), NOW_MS, &answers, &read,
						&err),
			     HF_OK, "%s", err.text);
		cr_assert(uuid_equal(&read.nonce, &state.nonce));
		cr_assert_eq(read.expires_ms, state.expires_ms);
		cr_assert_eq(read.round, 3);
		cr_assert(slice_equal(read.answers, state.answers));
	}
	keyring_free(keyring);
}

HF_TEST(request_state, no_byte_of_it_can_be_changed_added_or_left_out)
{
	static constexpr char put_in[] = "A0-_.=+/ \"\n{~\xff";
	struct keyring *keyring = keyring_of(KEY_1 KEY_2);
	const struct request_state_scope scope = scope_of(keyring);
	const struct request_state state = state_of();
	hf_cleanup(buf) struct buf text = {};
	request_state_seal(&scope, &state, &text);
	cr_assert(opens(&scope, buf_slice(&text), NOW_MS));
	size_t tried = 0;
	for (size_t i = 0; i < text.len; i++) {
		char was = text.data[i];
		for (int flip = 1; flip < 256; flip++, tried++) {
			text.data[i] = (char)(was ^ flip);
			cr_assert(!opens(&scope, buf_slice(&text), NOW_MS), "byte %zu ^ %d", i,
				  flip);
		}
		text.data[i] = was;
		cr_assert(!opens(&scope, (struct slice){ text.data, i }, NOW_MS));
		cr_assert(
		    !opens(&scope, (struct slice){ text.data + i + 1, text.len - i - 1 }, NOW_MS));
	}
	cr_assert_gt(tried, 20'000);
	for (size_t i = 0; i < sizeof put_in; i++) {
		hf_cleanup(buf) struct buf longer = {};
		buf_add_slice(&longer, buf_slice(&text));
		buf_add_byte(&longer, put_in[i]);
		cr_assert(!opens(&scope, buf_slice(&longer), NOW_MS), "and %d", put_in[i]);
	}
	cr_assert(!opens(&scope, (struct slice){}, NOW_MS));
	cr_assert(opens(&scope, buf_slice(&text), NOW_MS));
	keyring_free(keyring);
}

HF_TEST(request_state, it_is_of_one_caller_one_call_and_a_time)
{
	struct keyring *keyring = keyring_of(KEY_1);
	const struct request_state_scope scope = scope_of(keyring);
	const struct request_state state = state_of();
	hf_cleanup(buf) struct buf text = {};
	request_state_seal(&scope, &state, &text);
	struct request_state_scope others[] = { scope, scope, scope, scope, scope, scope, scope };
	others[0].subject = slice_of("bob");
	others[1].tenant = slice_of("B");
	others[2].issuer = slice_of("other");
	others[3].method = slice_of("prompts/get");
	others[4].name = slice_of("sent");
	others[5].digest[31] ^= 1;
	/* Equal when their parts are put behind each other. */
	others[6].subject = slice_of("aliceA");
	others[6].tenant = slice_of("");
	for (size_t i = 0; i < countof(others); i++)
		cr_assert(!opens(&others[i], buf_slice(&text), NOW_MS), "other %zu", i);
	cr_assert(opens(&scope, buf_slice(&text), state.expires_ms - 1));
	cr_assert(!opens(&scope, buf_slice(&text), state.expires_ms));
	keyring_free(keyring);
}

HF_TEST(request_state, keys_are_rotated_and_end)
{
	struct keyring *before = keyring_of(KEY_1), *during = keyring_of(KEY_1 KEY_2);
	struct keyring *after = keyring_of(KEY_2), *foreign = keyring_of(KEY_3);
	const struct request_state_scope was = scope_of(before), is = scope_of(during);
	const struct request_state_scope will = scope_of(after), other = scope_of(foreign);
	const struct request_state state = state_of();
	hf_cleanup(buf) struct buf old = {}, new = {};
	request_state_seal(&was, &state, &old);
	request_state_seal(&is, &state, &new);
	cr_assert(opens(&is, buf_slice(&old), NOW_MS));
	cr_assert(opens(&will, buf_slice(&new), NOW_MS));
	cr_assert(!opens(&will, buf_slice(&old), NOW_MS));
	cr_assert(!opens(&was, buf_slice(&new), NOW_MS));
	cr_assert(!opens(&other, buf_slice(&old), NOW_MS));
	keyring_free(before);
	keyring_free(during);
	keyring_free(after);
	keyring_free(foreign);
}
