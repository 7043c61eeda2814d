#include <string.h>

#include "runtime/base.h"
#include "runtime/id.h"
#include "test/test.h"

/* 2015-10-01 of week 2387; the last has all bits set. */
static const struct {
	const char *text;
	int64_t ms;
	int32_t week;
} good[] = {
	{ "tsk_AQEBUCCyzHvw8fLz9PX29_j5-vv8_f7_", 1'443'657'600'123, 2387 },
	{ "tsk_Af______________________________", 281'474'976'710'655, 465'401 },
	{ "tsk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 0, 0 },
};

HF_TEST(id, a_task_id_reads_back_as_the_same_text)
{
	for (size_t i = 0; i < countof(good); i++) {
		struct task_id id;
		char text[TASK_ID_TEXT_LEN + 1];
		cr_assert(task_id_parse(slice_of(good[i].text), &id), "%s", good[i].text);
		cr_assert_str_eq(task_id_format(&id, text), good[i].text);
		cr_assert_eq(task_id_ms(&id), good[i].ms);
		cr_assert_eq(task_id_week(&id), good[i].week);
	}
}

HF_TEST(id, the_bytes_are_version_cluster_time_random)
{
	struct task_id id;
	cr_assert(task_id_parse(slice_of(good[0].text), &id));
	const unsigned char bytes[TASK_ID_BYTES] = {
		0x01, 0x01, 0x01, 0x50, 0x20, 0xb2, 0xcc, 0x7b, 0xf0, 0xf1, 0xf2, 0xf3,
		0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff,
	};
	cr_assert_arr_eq(id.bytes, bytes, sizeof bytes);
}

HF_TEST(id, anything_but_a_canonical_task_id_is_refused)
{
	static const struct slice bad[] = {
#define TEXT(text) { text, sizeof(text) - 1 }
		TEXT(""),
		TEXT("tsk_"),
		TEXT("tsk_AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),  /* version 2 */
		TEXT("tsk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),  /* version 0 */
		TEXT("tsk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),   /* short */
		TEXT("tsk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), /* long */
		TEXT("tsk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
		TEXT("tsk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAA+/"),
		TEXT("tsk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\0"),
		TEXT("tsk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAA "),
		TEXT("TSK_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
		TEXT("tsk-AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
		TEXT("tsk_AQAAAAAAAAAAAAAAAAAAAAAAAAAAAA\xc3\xa9"),
#undef TEXT
	};
	for (size_t i = 0; i < countof(bad); i++) {
		struct task_id id;
		memset(&id, 0xab, sizeof id);
		cr_assert_not(task_id_parse(bad[i], &id), "row %zu", i);
		cr_assert_eq(id.bytes[0], 0xab, "row %zu touched the ID", i);
	}
}

HF_TEST(id, ids_differ_by_any_byte)
{
	struct task_id a;
	cr_assert(task_id_parse(slice_of(good[0].text), &a));
	for (size_t i = 0; i < TASK_ID_BYTES; i++) {
		struct task_id b = a;
		cr_assert(task_id_equal(&a, &b));
		b.bytes[i] ^= 1;
		cr_assert_not(task_id_equal(&a, &b));
	}
}

HF_TEST(id, uuids_are_of_version_4_and_never_the_same)
{
	struct uuid a = uuid_new();
	struct uuid b = uuid_new();
	cr_assert_not(uuid_equal(&a, &b));
	cr_assert(uuid_equal(&a, &a));
	cr_assert_eq(a.bytes[6] >> 4, 4);
	cr_assert_eq(a.bytes[8] >> 6, 2);
}

HF_TEST(id, hex_reads_both_cases_and_writes_the_lower)
{
	unsigned char bytes[4];
	char text[9];
	cr_assert(hex_parse(slice_of("00fFA5e9"), bytes, sizeof bytes));
	cr_assert_str_eq(hex_format(bytes, sizeof bytes, text), "00ffa5e9");
	cr_assert_str_eq(hex_format(bytes, 0, text), "");
	cr_assert(hex_parse(slice_of(""), bytes, 0));
}

HF_TEST(id, hex_of_another_length_or_alphabet_is_refused)
{
	static const char *const bad[] = { "",         "00fFA5e",  "00fFA5e90", "00fFA5e900",
					   "00fFA5eg", "00fFA5e ", "0x00fFA5" };
	for (size_t i = 0; i < countof(bad); i++) {
		unsigned char bytes[4] = { 1, 2, 3, 4 };
		cr_assert_not(hex_parse(slice_of(bad[i]), bytes, sizeof bytes), "%s", bad[i]);
		cr_assert_eq(bytes[0], 1);
	}
}
