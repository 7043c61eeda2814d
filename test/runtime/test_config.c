#include <stdlib.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/config.h"
#include "test/test.h"

extern char **environ;

struct taken {
	char args[256];
	const char *by;
	bool json;
};

static enum hf_code on_arg(void *ctx, const char *value, struct hf_err *err)
{
	struct taken *taken = ctx;
	if (strcmp(value, "bad") == 0)
		return hf_fail(err, HF_INVALID, "no good");
	strcat(taken->args, value);
	strcat(taken->args, ";");
	return HF_OK;
}

constexpr int WORDS_MAX = 8;

struct given {
	char role;
	const char *words[WORDS_MAX];
	const char *variables[3]; /* NAME=value */
};

/* One load under exactly these variables. The strings live until the next: the config borrows. */
static enum hf_code load(const struct given *given, struct config *config, struct taken *taken,
			 struct hf_err *err)
{
	static char *variables[countof(given->variables) + 1];
	static char *words[WORDS_MAX];
	for (size_t i = 0; i < countof(given->variables); i++) {
		free(variables[i]);
		variables[i] = given->variables[i] ? hf_strdup(given->variables[i]) : nullptr;
	}
	int count = 0;
	for (int i = 0; i < WORDS_MAX; i++) {
		free(words[i]);
		words[i] = given->words[i] ? hf_strdup(given->words[i]) : nullptr;
		count += words[i] != nullptr;
	}
	const struct own_flag own[] = { { "arg", .take = on_arg, .ctx = taken },
					{ "by", .text = &taken->by },
					{ "json", .on = &taken->json },
					{} };
	char **before = environ;
	environ = variables;
	enum hf_code code = config_load(config, given->role, count, words, own, err);
	environ = before;
	return code;
}

HF_TEST(config, without_anything_the_defaults_hold)
{
	struct config config;
	struct taken taken = {};
	const struct given given = { 'a', {}, {} };
	cr_assert_eq(load(&given, &config, &taken, nullptr), HF_OK);
	cr_assert_str_eq(config.listen, "127.0.0.1:8080");
	cr_assert_null(config.dsn);
	cr_assert_eq(config.body_bytes_max, 4 << 20);
	cr_assert_not(config.insecure_dev);
	cr_assert_eq(config.arguments_count, 0);
	cr_assert_null(config.arguments[0]);
	config_deinit(&config);
	config_deinit(&config);
}

HF_TEST(config, flags_win_over_the_environment_and_that_over_defaults)
{
	struct config config;
	struct taken taken = {};
	const struct given given = {
		'w',
		{ "--slots=7", "--beat-ms", "20", "--slots", "8", "--state-dir", "" },
		{ "HOLDFAST_SLOTS=9", "HOLDFAST_LEASE_MS=100", "HOLD=9" },
	};
	cr_assert_eq(load(&given, &config, &taken, nullptr), HF_OK);
	cr_assert_eq(config.slots, 8);
	cr_assert_eq(config.beat_ms, 20);
	cr_assert_eq(config.lease_ms, 100);
	cr_assert_eq(config.poll_ms, 1000);
	cr_assert_str_eq(config.state_dir, "");
	config_deinit(&config);
}

HF_TEST(config, the_environment_may_hold_what_other_commands_use)
{
	struct config config;
	struct taken taken = {};
	const struct given given = { 'c',
				     {},
				     { "HOLDFAST_DSN=host=/x", "HOLDFAST_LEDGER=/l",
				       "HOLDFAST_INSECURE_DEV=true" } };
	cr_assert_eq(load(&given, &config, &taken, nullptr), HF_OK);
	cr_assert_str_eq(config.dsn, "host=/x");
	cr_assert(config.insecure_dev);
	config_deinit(&config);
}

HF_TEST(config, a_flag_stands_bare_or_with_a_value)
{
	static const struct {
		const char *word;
		bool on;
	} rows[] = {
		{ "--insecure-dev", true },        { "--insecure-dev=true", true },
		{ "--insecure-dev=1", true },      { "--insecure-dev=no", false },
		{ "--insecure-dev=false", false }, { "--insecure-dev=0", false },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		struct config config;
		struct taken taken = {};
		const struct given given = { 'a', { rows[i].word, "left" }, {} };
		cr_assert_eq(load(&given, &config, &taken, nullptr), HF_OK);
		cr_expect_eq(config.insecure_dev, rows[i].on, "%s", rows[i].word);
		cr_expect_eq(config.arguments_count, 1);
		config_deinit(&config);
	}
}

HF_TEST(config, arguments_keep_their_order_and_two_dashes_end_the_flags)
{
	struct config config;
	struct taken taken = {};
	const struct given given = {
		'c', { "--by=ann", "--arg=a=b", "-", "--json", "--arg", "--by", "--", "--json" }, {}
	};
	cr_assert_eq(load(&given, &config, &taken, nullptr), HF_OK);
	cr_assert_str_eq(taken.args, "a=b;--by;");
	cr_assert_str_eq(taken.by, "ann");
	cr_assert(taken.json);
	cr_assert_eq(config.arguments_count, 2);
	cr_assert_str_eq(config.arguments[0], "-");
	cr_assert_str_eq(config.arguments[1], "--json");
	cr_assert_null(config.arguments[2]);
	config_deinit(&config);
}

HF_TEST(config, what_the_table_does_not_allow_is_an_error_that_names_it)
{
	static const struct {
		struct given given;
		const char *says;
	} rows[] = {
		{ { 'w', { "--slot", "1" }, {} }, "unknown flag --slot (nearest: --slots)" },
		{ { 'w', { "--lease", "1" }, {} }, "unknown flag --lease (nearest: --lease-ms)" },
		{ { 'w', { "--slot-s", "1" }, {} }, "(nearest: --slots)" },
		{ { 'c', { "--jsn" }, {} }, "unknown flag --jsn (nearest: --json)" },
		{ { 'w', { "--slotss=1" }, {} }, "unknown flag --slotss" },
		{ { 'w', { "--SLOTS=1" }, {} }, "unknown flag" },
		{ { 'w', { "-s", "1" }, {} }, "unknown flag -s" },
		{ { 'w', { "--listen", "x" }, {} }, "--listen is no flag of this command" },
		{ { 'w', { "--beat_ms=20" }, {} }, "unknown flag" },
		{ { 'w', { "--slots" }, {} }, "--slots needs a value" },
		{ { 'w', { "--slots=" }, {} }, "not a whole number" },
		{ { 'w', { "--slots= 1" }, {} }, "not a whole number" },
		{ { 'w', { "--slots=1x" }, {} }, "not a whole number" },
		{ { 'w', { "--slots=0x10" }, {} }, "not a whole number" },
		{ { 'w', { "--slots=+1" }, {} }, "not a whole number" },
		{ { 'w', { "--slots=1.0" }, {} }, "not a whole number" },
		{ { 'w', { "--slots=99999999999999999999" }, {} }, "not a whole number" },
		{ { 'w', { "--slots=0" }, {} }, "not within 1 and 4096" },
		{ { 'w', { "--slots=4097" }, {} }, "not within 1 and 4096" },
		{ { 'w', { "--slots=-1" }, {} }, "not within" },
		{ { 'w', { "--log-level=loud" }, {} }, "--log-level: `loud`" },
		{ { 'a', { "--insecure-dev=maybe" }, {} }, "neither true nor false" },
		{ { 'c', { "--arg" }, {} }, "--arg needs a value" },
		{ { 'c', { "--json=1" }, {} }, "--json takes no value" },
		{ { 'c', { "--arg=bad" }, {} }, "--arg: no good" },
		{ { 'c', { "--by", "" }, {} }, "--by is empty" },
		{ { 'c', {}, { "HOLDFAST_SLOT=1" } }, "HOLDFAST_SLOT in the environment" },
		{ { 'c', {}, { "HOLDFAST_slots=1" } }, "HOLDFAST_slots in the environment" },
		{ { 'c', {}, { "HOLDFAST_=1" } }, "HOLDFAST_ in the environment" },
		{ { 'c', {}, { "HOLDFAST_SLOTS=x" } }, "HOLDFAST_SLOTS: `x`" },
		{ { 'c', {}, { "HOLDFAST_LOG_LEVEL=" } }, "HOLDFAST_LOG_LEVEL" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		struct config config = { .slots = -5 };
		struct taken taken = {};
		struct hf_err err;
		cr_expect_eq(load(&rows[i].given, &config, &taken, &err), HF_INVALID, "row %zu", i);
		cr_expect(strstr(err.text, rows[i].says), "row %zu: %s", i, err.text);
		cr_expect_eq(config.slots, -5, "row %zu touched the config", i);
	}
}

HF_TEST(config, a_role_dsn_has_the_other_user_and_no_password)
{
	static const char *const rows[][2] = {
		{ "host=/run/pg dbname=holdfast user=postgres password=s3",
		  "dbname='holdfast' host='/run/pg' user='holdfast_api'" },
		{ "postgresql://root:s3@db1,db2:5433/hold?sslmode=verify-full",
		  "dbname='hold' host='db1,db2' port=',5433' sslmode='verify-full' "
		  "user='holdfast_api'" },
		{ "dbname='a\\'b\\\\c d'", "dbname='a\\'b\\\\c d' user='holdfast_api'" },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		char *dsn = nullptr;
		cr_assert_eq(config_role_dsn(rows[i][0], "holdfast_api", &dsn, nullptr), HF_OK);
		cr_expect_str_eq(dsn, rows[i][1]);
		free(dsn);
	}
}

HF_TEST(config, what_is_no_dsn_is_refused_without_quoting_it)
{
	static const char *const rows[] = { nullptr, "", "s3cret", "postgresql://u:s3cret@[x/" };
	for (size_t i = 0; i < countof(rows); i++) {
		char *dsn = nullptr;
		struct hf_err err;
		cr_expect_eq(config_role_dsn(rows[i], "u", &dsn, &err), HF_INVALID);
		cr_expect_null(dsn);
		cr_expect_null(strstr(err.text, "s3cret"), "%s", err.text);
	}
}
