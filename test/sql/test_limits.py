"""Limits of tools in the store (rule 6, V10): never passed by eight claimers at once that are killed in
between, nothing leaked, no tenant in another's way, backlogs refused; and what each of that reads of a
table of a million rows."""

import os
import random
import threading
import time

import psycopg

from sql_rig import Bench, Late, Store, digest, new_incarnation, rig, week_of
from rig import check, equal

counts = {"claims": 0, "kills": 0, "looks": 0}
CLAIMERS = 8
STORM_S, STORM_S_MAX = 20, 200
STORM_MIN = {"claims": 500, "kills": 20, "looks": 200}
STORM_TASKS = 3_000  # of each of three tenants
RUNNING, PER_TENANT = 7, 3
CLAIM_SETS_ASIDE_MAX = 1_024  # by one claim, of one tool: limit_pick
ROWS_READ_MAX = 4_000  # of `work`, by one claim that has nothing to set aside
BACKLOG = 5_000


class Limits(Bench):
    def tool_with(self, name=None, **limits):
        """A new version, current now, and its name."""
        name = name or self.fresh()
        self.names += 1
        self.a.rows("UPDATE tool SET current = false WHERE name = %s AND current RETURNING 1", name)
        return self.new_tool(name, f"{self.names:064}", **({"limits": limits} if limits else {})), name

    def tasks(self, tool, n, owner=None):
        """Accepted one after the other, so that each was due before the next."""
        return [self.a.accept((owner or self.owner, tool, self.fresh(), "{}"))[0][1] for _ in range(n)]

    def flood(self, tool, n, owner=None):
        for first in range(0, n, 500):
            self.a.accept(*((owner or self.owner, tool, self.fresh(), "{}")
                            for _ in range(min(n - first, 500))))

    def rows(self, tool, n, due="now_()"):
        """Rows of `work` alone, of tenant A: a claim takes them, and tells of none. Due at infinity,
        they are set aside."""
        self.a.conn.execute(
            "INSERT INTO work (task, week, owner, queue, state, due, deadline, updated, tenant, turn)"
            " SELECT '\\x01'::bytea || set_byte('\\x00'::bytea, 0, 1) ||"
            " substring(int8send(to_ms(now_())) FROM 3) || uuid_send(gen_random_uuid()), week_of(to_ms(now_())), %s, %s,"
            f" 'ready', {due}, now_() + interval '2 days', now_(), 'A', now_() - interval '1 minute'"
            " FROM generate_series(1, %s) i", (self.owner, tool, n))

    def empty(self):
        self.clear()
        self.a.rows("DELETE FROM worker RETURNING 1")
        self.a.one("SELECT reclaim(1)")
        equal(self.a.rows("SELECT * FROM limit_use"), [], "who is gone and holds nothing uses nothing")

    def take(self, incarnation, *queues, most=1, store=None):
        counts["claims"] += 1
        return [(bytes(row[0]), row[1]) for row in (store or self.a).rows(
            "SELECT task, token FROM claim(%s, %s, %s, gen_random_uuid())", incarnation,
            list(queues), most)]

    def use(self, name):
        return int(self.a.one("SELECT coalesce(sum(number), 0) FROM limit_use WHERE name = %s", name))

    def aside(self, tool):
        return self.a.one("SELECT count(*) FROM work WHERE queue = %s AND state = 'ready' AND"
                          " due = 'infinity'", tool)

    def reads(self, call, tries=3):
        """Rows of `work` that it reads, by scan and by index, and its time: the least of some tries."""
        best = None
        for _ in range(tries):
            rows = []
            for step in (lambda: None, call):
                began = time.monotonic()
                step()
                took = time.monotonic() - began
                self.a.one("SELECT pg_stat_force_next_flush()")
                time.sleep(0.2)
                rows.append(int(self.b.one(
                    "SELECT t.seq_tup_read + (SELECT sum(i.idx_tup_read) FROM pg_stat_all_indexes i"
                    " WHERE i.relid = t.relid) FROM pg_stat_all_tables t WHERE t.relname = 'work'"
                    " AND t.schemaname = 'holdfast'")))
            best = min(best or (10**9, 0), (rows[1] - rows[0], round(took * 1000, 1)))
        return best


class Tests(Limits):
    # --- what the limits are ---

    def limits_are_those_of_the_current_version(self):
        def kept(name):
            return self.a.rows("SELECT running, running_per_tenant, backlog, gated FROM tool_limit"
                               " WHERE name = %s", name)

        first, name = self.tool_with(running=4, running_per_tenant=2, backlog=9)
        equal(kept(name), [(4, 2, 9, True)], "applied")
        self.tool_with(name, running=5)
        equal(kept(name), [(5, None, None, True)], "another version's")
        self.a.rows("UPDATE tool SET current = false WHERE name = %s RETURNING 1", name)
        self.a.rows("UPDATE tool SET current = true WHERE tool = %s RETURNING 1", first)
        equal(kept(name), [(4, 2, 9, True)], "back to the first")
        equal(kept(self.tool_with()[1]), [], "none")
        equal(kept(self.tool_with(backlog=3)[1]), [(None, None, 3, False)], "no gate for a backlog")

    # --- exactness ---

    def a_claim_takes_what_is_left(self):
        self.empty()
        tool, name = self.tool_with(running=5)
        newer, _ = self.tool_with(name, running=5)
        one, two = self.new_worker(), self.new_worker()
        self.tasks(tool, 4)
        self.tasks(newer, 4)
        mine = self.take(one, tool, newer, most=3)
        equal(len(mine), 3, "three of five")
        theirs = self.take(two, newer, tool, most=9)
        equal((len(theirs), self.use(name)), (2, 5), "versions share the limit of their tool")
        equal(self.take(two, tool, newer, most=9), [], "nothing is left")
        self.a.finish(*mine[:2])
        equal(self.take(two, tool, newer, most=9), [], "its use is counted at its own claim")
        equal(self.take(one, tool, newer, most=0), [], "which may take nothing")
        equal((self.use(name), len(self.take(two, tool, newer, most=9))), (3, 2), "then there is room")
        self.a.release("retry", *theirs, delay=3_600_000)
        self.a.release("back", mine[2])
        equal(len(self.take(two, tool, newer, most=9)), 2, "given back is given back")

    def the_dead_give_back_what_they_hold_with_their_claims(self):
        self.empty()
        tool, name = self.tool_with(running=4)
        dead, alive = self.new_worker(), self.new_worker()
        self.tasks(tool, 9)
        equal(len(self.take(dead, tool, most=4)), 4, "all that may run")
        self.a.one("SELECT declare_dead(%s, 1)", dead)
        equal((self.use(name), self.take(alive, tool, most=9)), (4, []),
              "declared dead it still holds them")
        equal(self.a.one("SELECT reclaim(3)"), 3, "three are freed")
        equal((self.use(name), len(self.take(alive, tool, most=9))), (1, 3), "and give room for three")
        equal(self.a.one("SELECT reclaim(3)"), 1, "the last one")
        equal(len(self.take(alive, tool, most=9)), 1, "and its room")
        # Who leaves with a claim that nobody knows of, as after a lease that ran out.
        self.a.rows("SELECT leave(%s)", alive)
        equal(self.use(name), 4, "left, but not its claims")
        self.a.one("SELECT reclaim(100)")
        equal((self.use(name), self.a.rows("SELECT * FROM limit_use")), (0, []), "nothing leaks")

    def two_claims_at_once_are_one_after_the_other(self):
        self.empty()
        tool, name = self.tool_with(running=3)
        one, two = self.new_worker(), self.new_worker()
        self.tasks(tool, 9)
        self.take(one, tool, most=0)  # writes that the limits are no news
        with self.a.conn.transaction():
            equal(len(self.take(one, tool, most=2)), 2, "two of three, not committed")
            late = Late(lambda: self.take(two, tool, most=2, store=self.b))
            check(late.blocked(), "the gate holds its rival")
            other, _ = self.tool_with()
            self.tasks(other, 1)
            stores = Store(self.cluster)
            free = Late(lambda: stores.accept((self.owner, tool, self.fresh(), "{}"))[0][0])
            equal(free.ended(), "new", "and no acceptance")
        equal((len(late.ended()), self.use(name)), (1, 3), "which then takes the third")

    def a_new_limit_counts_what_runs_already(self):
        self.empty()
        tool, name = self.tool_with()
        one, two = self.new_worker(), self.new_worker()
        self.tasks(tool, 9)
        held = self.take(one, tool, most=4)
        newer, _ = self.tool_with(name, running=5)
        equal(len(self.take(two, tool, newer, most=9)), 1, "four run, one more may")
        self.tool_with(name, running=2)
        self.a.finish(*held[:2])
        equal(self.take(one, tool, most=9), [], "three run, two may")
        self.tool_with(name)
        equal(len(self.take(two, tool, most=2)), 2, "no limit any more")
        equal(self.a.one("SELECT gated FROM tool_limit WHERE name = %s", name), False, "and no gate")
        equal(self.use(name), 0, "nor use")

    def never_passed_by_eight_claimers_that_are_killed(self):
        self.empty()
        tool, name = self.tool_with(running=RUNNING, running_per_tenant=PER_TENANT)
        carol = self.a.one("SELECT principal_owner('static', 'carol', 'C')")
        for owner in (self.owner, self.other, carol):
            self.flood(tool, STORM_TASKS, owner)
        began = time.monotonic()
        lock, buried, most_seen = threading.Lock(), [], [0, 0]

        def going():
            """So long, and on until all that is asked for has been seen."""
            took = time.monotonic() - began
            seen = most_seen == [RUNNING, PER_TENANT] and all(counts[name] >= least
                                                              for name, least in STORM_MIN.items())
            return took < STORM_S or not seen and took < STORM_S_MAX

        def claimer(number):
            dice = random.Random(number)
            while going():
                store, incarnation = Store(self.cluster), new_incarnation()
                store.beat(incarnation, True)
                held = []
                for _ in range(dice.randrange(3, 40)):
                    if not going():
                        break
                    try:
                        if dice.random() < 0.05:  # killed inside of a claim: none was made
                            with store.conn.transaction():
                                self.take(incarnation, tool, most=3, store=store)
                                time.sleep(0.005)
                                pid = store.conn.info.backend_pid
                                with lock:
                                    self.killer.execute("SELECT pg_terminate_backend(%s)", (pid,))
                                store.rows("SELECT 1")
                        held += self.take(incarnation, tool, most=dice.randrange(1, 4), store=store)
                    except psycopg.OperationalError:
                        counts["kills"] += 1
                        break
                    time.sleep(dice.random() * 0.01)
                    ended = held[:dice.randrange(3)]
                    for claim in ended:
                        held.remove(claim)
                        if dice.random() < 0.3:
                            store.release("back", claim)
                        else:
                            store.rows("DELETE FROM work WHERE task = %s AND token = %s RETURNING 1",
                                       *claim)
                store.conn.close()
                with lock:  # dead, its claims open
                    buried.append(incarnation)

        def undertaker():
            store = Store(self.cluster)
            while going():
                with lock:
                    dead, buried[:] = buried[:], []
                for incarnation in dead:
                    store.one("SELECT declare_dead(%s, (SELECT beat FROM worker WHERE"
                              " incarnation = %s))", incarnation, incarnation)
                store.one("SELECT reclaim(2)")
                time.sleep(0.02)

        def watcher():
            store = Store(self.cluster)
            while going():
                rows = store.rows("SELECT owner, count(*) FROM work WHERE incarnation IS NOT NULL"
                                  " AND queue = %s GROUP BY owner", tool)
                most_seen[0] = max(most_seen[0], sum(row[1] for row in rows))
                most_seen[1] = max([most_seen[1], *(row[1] for row in rows)])
                counts["looks"] += 1

        self.killer = psycopg.connect(self.cluster.dsn(), autocommit=True)
        rig.in_parallel(lambda work: work(), [*(lambda n=n: claimer(n) for n in range(CLAIMERS)),
                                              undertaker, watcher])
        equal(most_seen, [RUNNING, PER_TENANT], "the limits were reached and never passed")
        self.a.rows("DELETE FROM worker RETURNING 1")
        while self.a.one("SELECT reclaim(100)"):
            pass
        equal(self.a.rows("SELECT * FROM limit_use"), [], "nothing leaks")
        fresh = self.new_worker()
        equal(len(self.take(fresh, tool, most=64)), RUNNING, "all of it is to be had again")
        self.empty()

    # --- nobody in another's way ---

    def a_tenant_without_room_is_in_nobodys_way(self):
        self.empty()
        tool, name = self.tool_with(running=10, running_per_tenant=2)
        one = self.new_worker()
        first = self.tasks(tool, 5)
        self.flood(tool, 3_000)
        bobs = self.tasks(tool, 1, self.other)
        held = self.take(one, tool, most=2)
        equal({task for task, _ in held}, {bytes(task) for task in first[:2]}, "the oldest first")
        looks = 0
        got = []
        while not got and looks < 9:
            before = self.aside(tool)
            got = self.take(one, tool, most=2)
            looks += 1
            check(self.aside(tool) - before <= CLAIM_SETS_ASIDE_MAX, "what a claim does is bounded")
        equal([task for task, _ in got], [bytes(task) for task in bobs], "another tenant's is found")
        check(looks <= 4, "within four claims", looks)
        told = self.a.rows("SELECT state, message FROM poll_task(%s, %s, %s)",
                           week_of(first[2]), [self.owner], [first[2]])[0]
        check(told[0] == "ready" and "turn" in (told[1] or ""), "its client is told", told)
        self.a.finish(held[0])
        equal([task for task, _ in self.take(one, tool, most=9)], [bytes(first[2])],
              "the first that was set aside is the next")
        self.a.one("SELECT operate('cancel', %s, 'ann', 'why')", [first[3]])
        self.a.finish(held[1])
        equal([task for task, _ in self.take(one, tool, most=9)], [bytes(first[4])],
              "one that is cancelled is passed by")
        # All of them come, and none twice.
        seen = set()
        self.tool_with(name, running_per_tenant=100)
        while claims := self.take(one, tool, most=64):
            check(not seen & {task for task, _ in claims}, "none twice")
            seen |= {task for task, _ in claims}
            self.a.rows("DELETE FROM work WHERE task = ANY (%s) RETURNING 1", list(seen))
        equal((len(seen), self.a.one("SELECT count(*) FROM work WHERE state = 'ready'")), (3_000, 0),
              "every one was claimed (V9)")

    def many_tenants_take_turns(self):
        self.empty()
        tool, _ = self.tool_with(running=8, running_per_tenant=1)
        one = self.new_worker()
        owners = [self.a.one("SELECT principal_owner('static', 'x', %s)", f"tenant {n:03}")
                  for n in range(150)]
        for owner in owners:
            self.flood(tool, 3, owner)
        ended, turns, worst = {}, 0, 0
        while claims := self.take(one, tool, most=8):
            turns += 1
            rows = self.a.rows("SELECT owner FROM work WHERE task = ANY (%s)", [c[0] for c in claims])
            equal(len(set(rows)), len(claims), "one of each")
            for (owner,) in rows:
                ended[owner] = ended.get(owner, 0) + 1
            worst = max(worst, max(ended.values()) - min(ended.get(owner, 0) for owner in owners))
            self.a.rows("DELETE FROM work WHERE task = ANY (%s) RETURNING 1", [c[0] for c in claims])
        equal((sum(ended.values()), turns), (450, 57), "full claims to the end")
        counts["worst_lead"] = worst

    def an_old_backlog_gives_way_when_its_limit_goes(self):
        for limits in ({}, {"running": 50}, {"backlog": 9}):
            self.empty()
            tool, name = self.tool_with(running_per_tenant=1)
            one = self.new_worker()
            self.tasks(tool, 9)
            self.take(one, tool, most=1)
            equal((self.take(one, tool, most=9), self.aside(tool)), ([], 8), "eight are set aside")
            self.tool_with(name, **limits)
            equal((len(self.take(one, tool, most=64)), self.aside(tool)), (8, 0), f"with {limits}")

    def a_paused_tenant_loses_nothing_by_its_limit(self):
        self.empty()
        tool, name = self.tool_with(running_per_tenant=1)
        one = self.new_worker()
        tasks = self.tasks(tool, 9, self.other)
        held = self.take(one, tool, most=1)
        equal((self.take(one, tool, most=1), self.aside(tool)), ([], 8), "set aside")
        self.a.one("SELECT pause_all('tenant', 'B', 'ann', 'why')")
        self.a.finish(*held)
        equal(self.take(one, tool, most=1), [], "and paused")
        page = 0
        while page := self.a.one("SELECT pause_pages(%s, 8)", page):
            pass
        equal(self.aside(tool), 0, "all of them")
        self.tool_with(name)
        self.take(one, tool, most=1)
        self.a.one("SELECT resume_all('tenant', 'B', 'ann', 'why')")
        while self.a.one("SELECT resume_tenant('B', 3)"):
            pass
        equal({task for task, _ in self.take(one, tool, most=64)}, {bytes(t) for t in tasks[1:]},
              "due again, though the limit is gone meanwhile")

    def no_queue_takes_all(self):
        self.empty()
        flooded, other = self.tool_with()[0], self.tool_with()[0]
        one = self.new_worker()
        self.flood(flooded, 500)
        single = self.tasks(other, 2)
        got = [task for task, _ in self.take(one, flooded, other, most=8)]
        equal((len(got), bytes(single[0]) in got and bytes(single[1]) in got), (8, True),
              "the flood in front leaves the other its share, and takes what that does not want")
        equal(len(set(got)), 8, "none twice")
        single = self.tasks(other, 1)
        equal([task for task, _ in self.take(one, other, flooded)], [bytes(single[0])],
              "who asks for it first gets it")

    # --- backlogs ---

    def a_full_backlog_refuses_what_is_new(self):
        self.empty()
        tool, name = self.tool_with(backlog=5)
        newer, _ = self.tool_with(name, backlog=5)
        one = self.new_worker()
        tasks = self.tasks(tool, 3)
        calls = [(self.owner, newer, self.fresh(), "{}") for _ in range(4)]
        got = [row[0] for row in self.a.accept(*calls)]
        equal(got, ["new", "new", "full", "full"], "two more, in their order")
        equal([row[0] for row in self.a.accept(*calls)], ["same", "same", "full", "full"],
              "repeats are answered")
        for table in ("effect", "task", "work"):
            equal(self.a.one(f"SELECT count(*) FROM {table} WHERE "
                             + ("queue" if table == "work" else "tool") + " = %s", newer), 2,
                  f"nothing of a refused one stands in {table}")
        other = (self.owner, self.tool, self.fresh(), "{}")
        equal([row[0] for row in self.a.accept(calls[2], other)], ["full", "new"], "others go on")
        claim = self.take(one, tool)[0]
        equal(claim[0], bytes(tasks[0]), "one runs")
        equal(self.a.accept(calls[2])[0][0], "new", "what runs does not wait")
        self.a.release("retry", claim, delay=3_600_000)
        equal(self.a.accept(calls[3])[0][0], "full", "but what backs off does")
        equal(self.a.rows("SELECT outcome FROM accept_call(%s, %s, %s, %s, %s, %s, '{NULL}', '{0}',"
                          " '{NULL}', '{1}', '{NULL}', '{NULL}', %s)", [self.owner], [newer],
                          [os.urandom(16)], ["x"], [digest("{}")], ["{}"],
                          [os.urandom(16)]), [("new",)],
              "a binary of the release before knows no bound")

    # --- what it reads ---

    def plans_hold_at_a_million_rows(self):
        self.empty()
        self.a.conn.execute("ALTER TABLE work SET (autovacuum_enabled = off); ANALYZE work")
        blocked, name = self.tool_with(running=40, running_per_tenant=2)
        free, _ = self.tool_with()
        full, _ = self.tool_with(backlog=BACKLOG)
        one = self.new_worker()
        self.rows(blocked, 2, due="now_() - interval '1 hour'")
        self.take(one, blocked, most=2)
        rows = {}
        for size in (1_000, 500_000):
            self.a.conn.execute("DELETE FROM work WHERE due = 'infinity'")
            self.rows(blocked, size, due="'infinity'")
            self.a.conn.execute("VACUUM work")
            rows[size] = self.reads(lambda: equal(self.take(one, blocked, most=8), [], "blocked"))
            self.flood(blocked, 1, self.other)
            rows[f"{size} and one"] = self.reads(
                lambda: self.take(one, blocked, most=8), 1)
            equal(self.a.one("SELECT count(*) FROM work WHERE incarnation = %s AND owner = %s", one,
                             self.other), 1, "one behind all of them is found at once")
            self.a.rows("DELETE FROM work WHERE owner = %s RETURNING 1", self.other)
        counts["blocked_claim"] = rows
        for size, (read, _) in rows.items():
            check(read <= ROWS_READ_MAX, f"a claim beside {size} of a blocked tenant reads little", read)
        check(rows[500_000][0] <= rows[1_000][0] + 64, "and no more with more of them", rows)
        # In front, not yet set aside.
        self.rows(blocked, 200_000)
        counts["front_claim"] = self.reads(lambda: self.take(one, blocked, most=8))
        check(counts["front_claim"][0] <= 8 * CLAIM_SETS_ASIDE_MAX, "a claim sets aside in parts",
              counts["front_claim"])
        self.rows(full, 300_000, due="now_() + interval '1 day'")
        counts["rows"] = self.a.one("SELECT count(*) FROM work")
        for tool, what, most, wanted in ((full, "full_accept", 2 * BACKLOG, "full"),
                                         (free, "free_accept", 200, "new")):
            calls = [(self.owner, tool, self.fresh(), "{}") for _ in range(3)]
            counts[what] = self.reads(
                lambda calls=calls, wanted=wanted: equal(self.a.accept(calls.pop())[0][0], wanted,
                                                         "the outcome"))
            check(counts[what][0] <= most, f"{what} reads what it must", counts[what])
        counts["free_claim"] = self.reads(lambda: self.take(one, free, most=1))
        check(counts["free_claim"][0] <= 200, "no limit, no cost", counts["free_claim"])
        gauges = self.reads(lambda: self.a.rows("SELECT * FROM gauges()"))
        counts["gauges"] = gauges
        check(gauges[0] <= 2 * BACKLOG, "the gauges count up to the bounds", gauges)
        said = dict(self.a.rows("SELECT name, number FROM gauges() WHERE label = %s"
                                " AND name LIKE 'tool%%'", name))
        equal(said, {"tool_running": 2, "tool_running_limit": 40, "tool_tenant_running": 2,
                     "tool_tenant_running_limit": 2}, "and tell of use and bound")


if __name__ == "__main__":
    Tests().run()
    rig.finish("sql_limits", counts, {**STORM_MIN, "rows": 1_000_000})
