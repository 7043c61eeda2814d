/* The table of SQLSTATEs: each row is a promise of what happens to a statement. */
#include "runtime/pgfail.h"

#include "runtime/base.h"
#include "test/test.h"

HF_TEST(pgfail, every_class_has_its_answer)
{
	static const struct {
		const char *state;
		enum pgfail ours, tool;
	} rows[] = {
		{ "22P02", PGFAIL_REFUSED, PGFAIL_REFUSED },
		{ "23505", PGFAIL_REFUSED, PGFAIL_REFUSED },
		{ "HF001", PGFAIL_REFUSED, PGFAIL_REFUSED },
		{ "HF002", PGFAIL_REFUSED, PGFAIL_AGAIN },
		{ "40001", PGFAIL_CONFLICT, PGFAIL_CONFLICT },
		{ "40P01", PGFAIL_CONFLICT, PGFAIL_CONFLICT },
		{ "40003", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ "53100", PGFAIL_AGAIN, PGFAIL_AGAIN },
		{ "53200", PGFAIL_AGAIN, PGFAIL_AGAIN },
		{ "53300", PGFAIL_AGAIN, PGFAIL_AGAIN },
		{ "55P03", PGFAIL_AGAIN, PGFAIL_AGAIN },
		{ "55000", PGFAIL_RECONNECT, PGFAIL_REFUSED },
		{ "57014", PGFAIL_AGAIN, PGFAIL_AGAIN },
		{ "57P01", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ "57P02", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ "57P03", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ "57P05", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ "08006", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ "25006", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ "25P03", PGFAIL_RECONNECT, PGFAIL_REFUSED },
		{ "58030", PGFAIL_AGAIN, PGFAIL_AGAIN },
		{ "01000", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ "0A000", PGFAIL_RECONNECT, PGFAIL_REFUSED },
		{ "42501", PGFAIL_RECONNECT, PGFAIL_REFUSED },
		{ "42883", PGFAIL_RECONNECT, PGFAIL_REFUSED },
		{ "XX000", PGFAIL_RECONNECT, PGFAIL_AGAIN },
		{ "P0001", PGFAIL_AGAIN, PGFAIL_REFUSED },
		{ "99999", PGFAIL_AGAIN, PGFAIL_REFUSED },
		{ "", PGFAIL_RECONNECT, PGFAIL_RECONNECT },
		{ nullptr, PGFAIL_RECONNECT, PGFAIL_RECONNECT },
	};
	for (size_t i = 0; i < countof(rows); i++) {
		cr_expect_eq(pgfail_of(rows[i].state), rows[i].ours, "%s", rows[i].state);
		cr_expect_eq(pgfail_of_tool(rows[i].state), rows[i].tool, "%s, a tool's",
			     rows[i].state);
	}
}
