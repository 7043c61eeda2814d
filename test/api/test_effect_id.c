/* Carriers, their order, and the form of an effect ID. */
#include "api/effect_id.h"

#include <string.h>

#include "runtime/base.h"
#include "test/api/call_of.h"
#include "test/test.h"

#define PARAM(value) "{\"idempotencyKey\":" value "}"
#define META(value)  "{\"_meta\":{\"dev.holdfast/effect-id\":" value "}}"
#define ARG(value)   "{\"effect_id\":" value "}"
#define X255                                                                    \
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" \
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" \
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" \
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
static_assert(sizeof X255 == 255 + 1);

static const struct {
	const char *params, *arguments, *headers;
	enum effect_answer answer;
	enum effect_carrier carrier;
	const char *text;
} table[] = {
	{ "", "", "", EFFECT_ABSENT, 0, "" },
	{ "{}", "{}", "", EFFECT_ABSENT, 0, "" },
	{ "{\"_meta\":{}}", "{\"Effect_id\":\"a\"}", "", EFFECT_ABSENT, 0, "" },
	{ PARAM("\"a\""), "{}", "", EFFECT_FOUND, EFFECT_CARRIER_PARAM, "a" },
	{ META("\"a\""), "{}", "", EFFECT_FOUND, EFFECT_CARRIER_META, "a" },
	{ "{}", ARG("\"a\""), "", EFFECT_FOUND, EFFECT_CARRIER_ARGUMENT, "a" },
	{ "{}", "", "idempotency-key: a\n", EFFECT_FOUND, EFFECT_CARRIER_HEADER, "a" },
	{ "{}", "{}", "Idempotency-Key: \"a\\\"\\\\b\"\n", EFFECT_FOUND, EFFECT_CARRIER_HEADER,
	  "a\"\\b" },
	/* equal: the first in order speaks */
	{ PARAM("\"a\""), ARG("\"\\u0061\""), "Idempotency-Key: a\n", EFFECT_FOUND,
	  EFFECT_CARRIER_PARAM, "a" },
	{ META("\"a\""), ARG("\"a\""), "", EFFECT_FOUND, EFFECT_CARRIER_META, "a" },
	/* different */
	{ PARAM("\"a\""), ARG("\"b\""), "", EFFECT_AMBIGUOUS, EFFECT_CARRIER_ARGUMENT, "" },
	{ META("\"a\""), "{}", "Idempotency-Key: A\n", EFFECT_AMBIGUOUS, EFFECT_CARRIER_HEADER,
	  "" },
	/* ill-formed */
	{ "{}", ARG("\"\""), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("5"), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("null"), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("[\"a\"]"), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("\"a b\""), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("\"a \""), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("\"a\\u0001\""), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("\"a\\u007f\""), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("\"\xd0\xb0\""), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ "{}", ARG("\"" X255 "\""), "", EFFECT_FOUND, EFFECT_CARRIER_ARGUMENT, X255 },
	{ "{}", ARG("\"x" X255 "\""), "", EFFECT_INVALID, EFFECT_CARRIER_ARGUMENT, "" },
	{ PARAM("7"), ARG("\"a\""), "", EFFECT_INVALID, EFFECT_CARRIER_PARAM, "" },
	{ META("true"), "{}", "", EFFECT_INVALID, EFFECT_CARRIER_META, "" },
	{ "{}", "{}", "Idempotency-Key: \n", EFFECT_INVALID, EFFECT_CARRIER_HEADER, "" },
	{ "{}", "{}", "Idempotency-Key: \"a\n", EFFECT_INVALID, EFFECT_CARRIER_HEADER, "" },
	{ "{}", "{}", "Idempotency-Key: \"a\"b\"\n", EFFECT_INVALID, EFFECT_CARRIER_HEADER, "" },
	{ "{}", "{}", "Idempotency-Key: \"a\\b\"\n", EFFECT_INVALID, EFFECT_CARRIER_HEADER, "" },
	{ "{}", "{}", "Idempotency-Key: a\nIdempotency-Key: a\n", EFFECT_INVALID,
	  EFFECT_CARRIER_HEADER, "" },
};

HF_TEST(effect_id, each_carrier_is_read_in_its_order)
{
	for (size_t i = 0; i < countof(table); i++) {
		hf_cleanup(call_of) struct call_of made = {};
		struct effect_id id;
		struct call *call = call_of_init(&made, table[i].headers, "");
		enum effect_answer answer =
		    effect_id_read(call, slice_of(table[i].params), slice_of(table[i].arguments),
				   call->arena, &id);
		cr_assert_eq(answer, table[i].answer, "row %zu: %d", i, answer);
		cr_assert_eq(id.carrier, table[i].carrier, "row %zu", i);
		if (table[i].answer == EFFECT_AMBIGUOUS)
			cr_assert_eq(id.first,
				     strstr(table[i].params, "_meta") ? EFFECT_CARRIER_META
								      : EFFECT_CARRIER_PARAM,
				     "row %zu", i);
		if (answer == EFFECT_FOUND)
			cr_assert(slice_is(id.text, table[i].text), "row %zu", i);
	}
}

HF_TEST(effect_id, a_fallback_is_read_from_the_member_that_the_tool_names)
{
	static const struct {
		const char *params;
		enum effect_answer answer;
		const char *text;
	} cases[] = {
		{ "", EFFECT_ABSENT, "" },
		{ "{}", EFFECT_ABSENT, "" },
		{ "{\"_meta\":{}}", EFFECT_ABSENT, "" },
		{ "{\"_meta\":{\"h/other\":\"x\"}}", EFFECT_ABSENT, "" },
		{ "{\"_meta\":{\"h/use\":\"toolu_1\"}}", EFFECT_FOUND, "toolu_1" },
		{ "{\"_meta\":{\"h/use\":\"a b\"}}", EFFECT_INVALID, "" },
		{ "{\"_meta\":{\"h/use\":\"\"}}", EFFECT_INVALID, "" },
		{ "{\"_meta\":{\"h/use\":7}}", EFFECT_INVALID, "" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		hf_cleanup(call_of) struct call_of made = {};
		struct effect_id id;
		struct call *call = call_of_init(&made, "", "");
		enum effect_answer answer =
		    effect_id_read_fallback(slice_of(cases[i].params), "h/use", call->arena, &id);
		cr_assert_eq(answer, cases[i].answer, "row %zu: %d", i, answer);
		cr_assert_eq(id.carrier, EFFECT_CARRIER_FALLBACK, "row %zu", i);
		cr_assert(slice_is(id.text, cases[i].text), "row %zu", i);
	}
}

HF_TEST(effect_id, a_carried_id_becomes_an_argument)
{
	static const struct {
		const char *arguments, *merged;
	} cases[] = {
		{ "", "{\"effect_id\":\"a\\\"b\"}" },
		{ "{}", "{\"effect_id\":\"a\\\"b\"}" },
		{ "{ }", "{\"effect_id\":\"a\\\"b\"}" },
		{ "{ \"m\" : 1 }", "{\"effect_id\":\"a\\\"b\",\"m\" : 1 }" },
		{ "{\"m\":1,\"effect_id\":\"x\"}", "{\"m\":1,\"effect_id\":\"x\"}" },
	};
	for (size_t i = 0; i < countof(cases); i++) {
		hf_cleanup(buf) struct buf out = {};
		effect_id_merge(slice_of(cases[i].arguments), slice_of("a\"b"), &out);
		cr_assert_str_eq(out.data, cases[i].merged);
	}
}

HF_TEST(effect_id, a_minted_id_is_a_new_uuid_each_time)
{
	char one[EFFECT_ID_MINTED_LEN + 1], two[EFFECT_ID_MINTED_LEN + 1];
	cr_assert_eq(strlen(effect_id_mint(one)), EFFECT_ID_MINTED_LEN);
	effect_id_mint(two);
	cr_assert_str_neq(one, two);
	cr_assert(effect_id_valid(slice_of(one)));
	cr_assert_eq(one[8], '-');
	cr_assert_eq(one[13], '-');
	cr_assert_eq(one[14], '4');
	cr_assert(strchr("89ab", one[19]));
	cr_assert_eq(strspn(one, "0123456789abcdef-"), EFFECT_ID_MINTED_LEN);
}
