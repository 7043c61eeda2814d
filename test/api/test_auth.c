/* Bearer tokens: what a tokens file may hold, and who a request is. */
#include "api/auth.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base.h"
#include "test/api/call_of.h"
#include "test/test.h"

/* SHA-256 of "rig-alice" and "rig-bob", made with sha256sum. */
#define ALICE "05c7e2bee1ceb852de9eb8fe8a181561fdfe8c48f08086d8176a5efd3eecfbe7"
#define BOB   "85bf05a14135f78f05f44240e27fcd65dc90b0fe57c53bd167ea66e92cb9b6a2"

static enum hf_code open_text(const char *text, struct auth **auth, struct hf_err *err)
{
	char path[sizeof TEST_FILE];
	test_file(text, path);
	enum hf_code code = auth_open(path, false, auth, err);
	unlink(path);
	return code;
}

HF_TEST(auth, a_tokens_file_is_read_strictly)
{
	static const struct {
		const char *text, *reason; /* nullptr: good */
	} table[] = {
		{ ALICE " alice A\n", nullptr },
		{ "# who\n\n" ALICE "\talice\tA\r\n" BOB " bob B", nullptr },
		{ "", "holds no token" },
		{ "# nobody\n", "holds no token" },
		{ ALICE " alice\n", ":1: needs SHA256-HEX SUBJECT TENANT" },
		{ ALICE " alice A more\n", ":1: needs SHA256-HEX SUBJECT TENANT" },
		{ "\nrig-alice alice A\n", ":2: needs 64 hexadecimal digits first" },
		{ ALICE " alice A\n" ALICE " bob B\n", ":2: the token stands above already" },
		{ ALICE " al\xc3\xa9 A\n", ":1: names are 1 to 255 visible ASCII characters" },
	};
	for (size_t i = 0; i < countof(table); i++) {
		struct auth *auth = nullptr;
		struct hf_err err = {};
		enum hf_code code = open_text(table[i].text, &auth, &err);
		cr_assert_eq(code == HF_OK, !table[i].reason, "row %zu: %s", i, err.text);
		if (table[i].reason)
			cr_assert(strstr(err.text, table[i].reason), "row %zu: %s", i, err.text);
		auth_close(auth);
	}
}

HF_TEST(auth, a_token_is_known_by_its_hash_alone)
{
	static const struct {
		const char *headers;
		enum auth_answer answer;
		const char *subject;
	} table[] = {
		{ "Authorization: Bearer rig-alice\n", AUTH_KNOWN, "alice" },
		{ "authorization: bearer  rig-bob\n", AUTH_KNOWN, "bob" },
		{ "", AUTH_MISSING, nullptr },
		{ "Authorization: Basic cmlnLWFsaWNl\n", AUTH_MISSING, nullptr },
		{ "Authorization: Bearer\n", AUTH_MALFORMED, nullptr },
		{ "Authorization: Bearer a b\n", AUTH_MALFORMED, nullptr },
		{ "Authorization: Bearer ===\n", AUTH_MALFORMED, nullptr },
		{ "Authorization: Bearer rig-alice\nAuthorization: Bearer rig-bob\n",
		  AUTH_MALFORMED, nullptr },
		{ "Authorization: Bearer rig-alic\n", AUTH_UNKNOWN, nullptr },
		{ "Authorization: Bearer rig-alice=\n", AUTH_UNKNOWN, nullptr },
		{ "Authorization: Bearer " ALICE "\n", AUTH_UNKNOWN, nullptr },
	};
	struct auth *auth = nullptr;
	cr_assert_eq(open_text(ALICE " alice A\n" BOB " bob B\n", &auth, nullptr), HF_OK);
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(call_of) struct call_of made = {};
		struct principal *principal = nullptr;
		struct call *call = call_of_init(&made, table[i].headers, "");
		enum auth_answer answer = auth_check(auth, call, &principal);
		cr_assert_eq(answer, table[i].answer, "row %zu: %d", i, answer);
		if (principal) {
			cr_assert_str_eq(principal->subject, table[i].subject);
			cr_assert_str_eq(principal->issuer, "static");
		}
		auth_release(principal);
	}
	auth_close(auth);
}

static enum auth_answer ask_dev(struct auth *auth, int number, struct principal **principal)
{
	hf_cleanup(call_of) struct call_of made = {};
	char headers[64];
	snprintf(headers, sizeof headers, "Authorization: Bearer u%d\n", number);
	return auth_check(auth, call_of_init(&made, headers, ""), principal);
}

HF_TEST(auth, idle_principals_make_room_and_busy_ones_stay)
{
	static struct principal *busy[AUTH_PRINCIPALS_MAX];
	struct auth *auth = nullptr;
	struct principal *principal = nullptr;
	cr_assert_eq(auth_open(nullptr, true, &auth, nullptr), HF_OK);
	for (size_t i = 0; i < AUTH_PRINCIPALS_MAX; i++)
		cr_assert_eq(ask_dev(auth, (int)i, &busy[i]), AUTH_KNOWN);
	cr_assert_eq(ask_dev(auth, -1, &principal), AUTH_FULL);
	cr_assert_eq(ask_dev(auth, 7, &principal), AUTH_KNOWN);
	cr_assert_eq(principal, busy[7]);
	auth_release(principal);

	busy[7]->owner = 42;
	auth_release(busy[8]);
	cr_assert_eq(ask_dev(auth, -1, &principal), AUTH_KNOWN);
	cr_assert_str_eq(principal->subject, "u-1");
	cr_assert_str_eq(principal->issuer, "dev");
	cr_assert_str_eq(principal->tenant, "default");
	cr_assert_eq(principal->owner, 0);
	cr_assert_eq(busy[7]->owner, 42);
	auth_close(auth);
}
