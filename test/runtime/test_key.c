/* The expected values come from Python's hashlib, hmac and base64, not from this code. A changed
 * value means that downstream systems see other keys for old effects: never "fix" one. */
#include <stdio.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/key.h"
#include "test/test.h"

#define RISING "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define ONES   "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

static enum hf_code load(const char *text, struct keyring **keyring, struct hf_err *err)
{
	char path[sizeof TEST_FILE];
	test_file(text, path);
	enum hf_code code = keyring_load(path, keyring, err);
	unlink(path);
	return code;
}

HF_TEST(key, effect_digests_are_the_golden_ones)
{
	static const char long_id[] =
	    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
	static_assert(sizeof long_id - 1 == 255);
	static const struct {
		int64_t owner;
		const char *tool, *effect_id, *digest;
	} rows[] = {
		{ 1, "build_report", "september", "62c1db83d397108e8ebabf47ab073e86" },
		/* The parts' borders count, and so does letter case. */
		{ 1, "build_reports", "eptember", "97ced6978f648af69f74f08b168b8fbb" },
		{ 11, "build_report", "september", "8a68eabc1d5a3c60fbe2c97494d4a85c" },
		{ 1, "build_report", "September", "41d3eba9a6246d2713bc1ee8496610f1" },
		{ INT64_MAX, "t", long_id, "235f9555674f4b0f2d81e094aab34331" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		unsigned char digest[EFFECT_DIGEST_BYTES];
		char text[2 * EFFECT_DIGEST_BYTES + 1];
		effect_digest(rows[i].owner, slice_of(rows[i].tool), slice_of(rows[i].effect_id),
			      digest);
		cr_expect_str_eq(hex_format(digest, sizeof digest, text), rows[i].digest);
	}
}

HF_TEST(key, the_fingerprint_is_plain_sha256)
{
	static const char *const rows[][2] = {
		{ "{\"month\":\"2015-09\"}",
		  "2381534def8ff3521ee7cd838f8992f4938d59ca3453938502d9d88775c0b1ba" },
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		unsigned char print[FINGERPRINT_BYTES];
		char text[2 * FINGERPRINT_BYTES + 1];
		fingerprint(slice_of(rows[i][0]), print);
		cr_expect_str_eq(hex_format(print, sizeof print, text), rows[i][1]);
	}
	unsigned char print[FINGERPRINT_BYTES];
	fingerprint((struct slice){}, print);
	cr_assert_eq(print[0], 0xe3);
}

static const struct uuid cluster_a0 = { { 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8,
					  0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf } };

HF_TEST(key, derived_keys_are_the_golden_ones)
{
	static const struct {
		int version;
		bool other_cluster;
		const char *issuer, *subject, *tenant, *tool, *effect_id, *phase;
		uint32_t call, generation;
		const char *key;
	} rows[] = {
#define REPORT "acme", "build_report", "september", "publish"
#define ALICE  "https://idp.example", "alice", REPORT
		{ 1, false, ALICE, 0, 0, "puavxa5lrkzl5yjc7se6g7ugz7dtezof6mbjkeeqkcfampnvje6a" },
		{ 1, false, ALICE, 1, 0, "ijwuuaxmc2l3qvbhfqtug6yqjwl7ldmsfyhpevupjwu37rrrsfnq" },
		{ 1, false, ALICE, 0, 1, "rwn4bwizknm7ifbb3rspxemgg5bzzil6dovyoz22k3febqcmgziq" },
		{ 1, false, ALICE, UINT32_MAX, UINT32_MAX,
		  "ywoeti4xlc7u23kdkvfhs7cojojycgxhyntdz6fecx6r2fni6ppa" },
		{ 7, false, ALICE, 0, 0, "evmwkpf7fm5wljfs7xouo5i6t3wxojte4mbgwbid7pgyyhfiy2na" },
		{ 1, true, ALICE, 0, 0, "5veewnus2b4psdi3suciby4mzok77ymkfgkapf3u5jktegc36cga" },
		{ 1, false, "https://idp.example", "alic", "eacme", "build_report", "september",
		  "publish", 0, 0, "scfdstqp4bjuiq6hv6cioxrgqfo257oylvemdeimidqlqf5j3lna" },
		{ 1, false, "", "", "", "", "", "", 0, 0,
		  "7thssynf3obsecpwm37nknqgvq657qbvmkrkzacaxg4dayqiqntq" },
		{ 1, false, "static", "zo\xc3\xab", "default", "build_report", "september",
		  "notify", 0, 0, "ukaco6uehitqima2bry2j6lpcojpu5ihpuvcvy76zteuimnsnp7a" },
#undef ALICE
#undef REPORT
	};
	struct keyring *keyring = nullptr;
	cr_assert_eq(load("1 " RISING "\n7 " ONES "\n", &keyring, nullptr), HF_OK);
	for (size_t i = 0; i < countof(rows); i++) {
		const struct key_place place = {
			.key_version = rows[i].version,
			.cluster = rows[i].other_cluster ? (struct uuid){} : cluster_a0,
			.issuer = slice_of(rows[i].issuer),
			.subject = slice_of(rows[i].subject),
			.tenant = slice_of(rows[i].tenant),
			.tool = slice_of(rows[i].tool),
			.effect_id = slice_of(rows[i].effect_id),
			.phase = slice_of(rows[i].phase),
			.call = rows[i].call,
			.generation = rows[i].generation,
		};
		char text[DERIVED_KEY_LEN + 1];
		cr_assert_eq(derive_key(keyring, &place, text, nullptr), HF_OK);
		cr_expect_str_eq(text, rows[i].key, "row %zu", i);
	}
	keyring_free(keyring);
}

HF_TEST(key, a_version_that_is_gone_gives_no_key)
{
	struct keyring *keyring = nullptr;
	struct hf_err err;
	cr_assert_eq(load("2 " RISING "\n", &keyring, &err), HF_OK);
	const struct key_place place = { .key_version = 1, .tool = slice_of("t") };
	char text[DERIVED_KEY_LEN + 1] = "untouched";
	cr_assert_eq(derive_key(keyring, &place, text, &err), HF_MISSING);
	cr_assert_str_eq(text, "untouched");
	keyring_free(keyring);
}

HF_TEST(key, marks_are_the_golden_ones_and_no_derived_keys)
{
	/* The mark, and how it would look as a key. */
	static const struct {
		int version;
		const char *mark, *as_key;
	} rows[] = {
		{ 1, "4827d6d0c1e9818270e7ec7bdd09c1accb8ea71f35c9d42b2d41727e8f895941",
		  "jat5nugb5gaye4hh5r552cobvtfy5jy7gxe5ikznifzh5d4jlfaq" },
		{ 7, "4e07660283d08f556b3a03c72e6edbd30fa9de83afa9f88fe92e0ce66af7de8d",
		  "jydwmaud2chvk2z2apds43w32mh2txudv6u7rd7jfygom2xx32gq" },
		/* The first secret under another version. */
		{ 7, "76dbfba718638cdcb2362f2644534e0cb192b2a96a96473598efc29d07351039",
		  "o3n7xjyymognzmrwf4teiu2obsyzfmvjnkleonmy57bj2bzvca4q" },
	};
	struct keyring *keyring = nullptr, *swapped = nullptr;
	cr_assert_eq(load("1 " RISING "\n7 " ONES "\n", &keyring, nullptr), HF_OK);
	cr_assert_eq(load("7 " RISING "\n", &swapped, nullptr), HF_OK);
	cr_assert_eq(keyring_count(keyring), 2);
	for (size_t i = 0; i < countof(rows); i++) {
		unsigned char mark[KEY_MARK_BYTES], other[32];
		char text[2 * KEY_MARK_BYTES + 1];
		const struct keyring *from = i < 2 ? keyring : swapped;
		cr_expect_eq(keyring_mark(from, i % 2, mark), rows[i].version);
		cr_expect_str_eq(hex_format(mark, sizeof mark, text), rows[i].mark);

		/* Neither a key that the emptiest place gets, nor anything that is signed. */
		const struct key_place place = { .key_version = rows[i].version };
		char key[DERIVED_KEY_LEN + 1];
		cr_assert_eq(derive_key(from, &place, key, nullptr), HF_OK);
		cr_expect_str_neq(key, rows[i].as_key);
		const char *const purposes[] = { "", "hf1", "hf1-cluster", "hf1-request-state" };
		const struct slice part = slice_of(rows[i].version == 1 ? "1" : "7");
		for (size_t n = 0; n < countof(purposes); n++) {
			cr_assert_eq(keyring_sign(from, rows[i].version, purposes[n], &part, 1,
						  other, nullptr),
				     HF_OK);
			cr_expect_neq(memcmp(mark, other, sizeof mark), 0, "%s", purposes[n]);
		}
	}
	keyring_free(keyring);
	keyring_free(swapped);
}

HF_TEST(key, the_highest_version_is_for_new_tasks)
{
	struct keyring *keyring = nullptr;
	cr_assert_eq(load("# old\n1 " RISING " # until May\r\n\n \t3\t" ONES, &keyring, nullptr),
		     HF_OK);
	cr_assert_eq(keyring_current(keyring), 3);
	cr_assert_null(keyring_free(keyring));
	cr_assert_null(keyring_free(nullptr));
}

HF_TEST(key, a_bad_keys_file_is_refused_and_never_quoted)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
		{ "", "no key" },
		{ "# nothing\n\n", "no key" },
		{ "1\n", ":1:" },
		{ RISING "\n", ":1:" },
		{ "1" RISING "\n", ":1:" },
		{ "0 " RISING "\n", ":1:" },
		{ "32768 " RISING "\n", ":1:" },
		{ "-1 " RISING "\n", ":1:" },
		{ "1 " RISING "00\n", ":1:" },
		{ "1 " RISING " x\n", ":1:" },
		{ "#\n1 " RISING "\n1 " ONES "\n", ":3:" },
		{ "2 " RISING "\n1 " ONES "\n", ":2:" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		struct keyring *keyring = nullptr;
		struct hf_err err;
		cr_expect_eq(load(rows[i].text, &keyring, &err), HF_INVALID, "row %zu", i);
		cr_expect_null(keyring);
		cr_expect(strstr(err.text, rows[i].says), "row %zu: %s", i, err.text);
		cr_expect_null(strstr(err.text, "0506"), "row %zu: %s", i, err.text);
	}
}

HF_TEST(key, a_keys_file_must_be_there_and_small)
{
	struct keyring *keyring = nullptr;
	struct hf_err err;
	cr_assert_eq(keyring_load("/nonexistent/keys", &keyring, &err), HF_MISSING);
	cr_assert_eq(keyring_load("/", &keyring, &err), HF_SYSTEM);
	cr_assert_eq(keyring_load("/dev/zero", &keyring, &err), HF_LIMIT);
	cr_assert_null(keyring);
}

HF_TEST(key, lengths_are_four_bytes_big_endian)
{
	/* 66,053 is 0x010205: each byte of the length differs. */
	hf_cleanup(buf) struct buf subject = {};
	for (int i = 0; i < 66'053; i++)
		buf_add_byte(&subject, 's');
	struct keyring *keyring = nullptr;
	cr_assert_eq(load("1 " RISING, &keyring, nullptr), HF_OK);
	const struct key_place place = {
		.key_version = 1,
		.cluster = cluster_a0,
		.issuer = slice_of("i"),
		.subject = buf_slice(&subject),
		.tenant = slice_of("t"),
		.tool = slice_of("tool"),
		.effect_id = slice_of("e"),
		.phase = slice_of("p"),
	};
	char text[DERIVED_KEY_LEN + 1];
	cr_assert_eq(derive_key(keyring, &place, text, nullptr), HF_OK);
	cr_assert_str_eq(text, "x2wliq7wwb632c5ufqk22khpg7ecswbffyd6dh5qd3eiaa7ehvoq");
	keyring_free(keyring);
}
