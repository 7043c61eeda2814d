/* What a process remembers of its store: which it goes on with, and which it stops before. */
#include "runtime/lineage.h"

#include "runtime/base.h"
#include "test/test.h"

static char why[LINEAGE_TEXT_LEN];

static struct lineage store(const char *started, unsigned long timeline, uint64_t tail)
{
	return (struct lineage){ .system = "1",
				 .home = "1",
				 .started = started,
				 .timeline = timeline,
				 .tail = tail,
				 .wal = 1'000'000 };
}

static enum lineage_verdict check(struct lineage now)
{
	return lineage_check(&now, why);
}

/* A fresh process on timeline 5 whose commits were kept past 500. */
static void begin(void)
{
	lineage_forget();
	cr_assert(check(store("a", 5, 10)) == LINEAGE_SAME);
	lineage_kept(500);
	lineage_kept(400);
}

HF_TEST(lineage, a_crash_and_a_failover_without_loss_go_on)
{
	begin();
	cr_assert(check(store("a", 5, 10)) == LINEAGE_SAME);  /* the same server */
	cr_assert(check(store("b", 5, 501)) == LINEAGE_SAME); /* it crashed, and has it all */
	cr_assert(check(store("c", 6, 501)) == LINEAGE_SAME); /* another was promoted */
	cr_assert(check(store("d", 6, 0)) == LINEAGE_SAME);   /* shut down in order */
	cr_assert(!lineage_waits());
}

HF_TEST(lineage, a_lost_tail_is_seen)
{
	begin();
	cr_assert(check(store("b", 5, 500)) == LINEAGE_LOST); /* the commit itself is missing */
	cr_assert(lineage_waits());
	cr_assert(check(store("b", 6, 499)) == LINEAGE_LOST);
	struct lineage at_rest = store("b", 6, 0);
	at_rest.wal = 300;
	cr_assert(check(at_rest) == LINEAGE_LOST);
}

HF_TEST(lineage, a_restored_store_is_taken_as_it_is)
{
	begin();
	struct lineage now = store("b", 4, 100); /* of an older timeline, even */
	cr_assert(check(now) == LINEAGE_REPLACED);
	now.restored = 7;
	cr_assert(check(now) == LINEAGE_SAME);
	lineage_kept(150);
	now.started = "c";
	now.tail = 160;
	cr_assert(check(now) == LINEAGE_SAME); /* what was kept before counts no more */
	now.restored = 6;
	cr_assert(check(now) == LINEAGE_LOST); /* an older backup, put in place once more */
	now.restored = 8;
	now.held = "restored runs";
	cr_assert(check(now) == LINEAGE_HELD);
	now.held = nullptr;
	cr_assert(check(now) == LINEAGE_SAME);
	cr_assert(!lineage_waits());
}

HF_TEST(lineage, another_postgres_is_seen_also_by_who_knows_nothing)
{
	lineage_forget();
	struct lineage copy = store("a", 1, 0);
	copy.system = "2";
	cr_assert(check(copy) == LINEAGE_LOST);
	copy.home = "2";
	cr_assert(check(copy) == LINEAGE_SAME);
	begin();
	cr_assert(check(copy) == LINEAGE_LOST);
}
