"""The store's functions on a real Postgres: what each promises, its races with two real sessions at
controlled points, and each rule of the store (sql/RULES.md) with the experiment that broke it."""

import os
import random
import time

import psycopg

from sql_rig import Bench, Late, Store, digest, new_incarnation, rig, week_of
from rig import check, equal

counts = {"races": 0, "storm_calls": 0}
DEADLOCK_ROUNDS = 60
RACE_ROUNDS = 300
ROWS_READ_MAX = 200  # of one table by one call, with a million in it


class Tests(Bench):
    # --- acceptance (rule 3, traps 1) ---

    def equal_keys_in_one_batch_make_one_task(self):
        effect = self.fresh()
        call = (self.owner, self.tool, effect, "{}")
        other = (self.owner, self.tool, effect, '{"a":1}')
        got = self.a.accept(call, call, other, call)
        equal([row[0] for row in got], ["new", "same", "conflict", "same"], "equal keys in a batch")
        equal(len({row[1] for row in got if row[1]}), 1, "equal keys name one task")
        task = got[0][1]
        for table in ("task", "work", "effect"):
            equal(self.a.one(f"SELECT count(*) FROM {table} WHERE task = %s", task), 1,
                  f"one row in {table}")

    def a_repeat_waits_for_its_rival_and_gets_its_task(self):
        for commits in (True, False):
            call = (self.owner, self.tool, self.fresh(), "{}")
            with self.a.conn.transaction(force_rollback=not commits):
                first = self.a.accept(call)[0]
                late = Late(lambda call=call: self.b.accept(call)[0])
                check(late.blocked(), "an uncommitted accept holds its rival")
            second = late.ended()
            counts["races"] += 1
            equal((second[0], second[1] == first[1]), ("same", True) if commits else ("new", False),
                  f"the rival of an accept that {'commits' if commits else 'rolls back'}")

    def a_storm_of_duplicates_gets_one_task_each(self):
        """Trap 1 of reliability: a one-statement upsert gave 748 of 960 callers no row."""
        stores = [Store(self.cluster) for _ in range(24)]
        for _ in range(40):
            call = (self.owner, self.tool, self.fresh(), "{}")
            got = rig.in_parallel(lambda store, call=call: store.accept(call)[0], stores)
            counts["storm_calls"] += len(got)
            equal((len({row[1] for row in got}), [row[0] for row in got].count("new")), (1, 1),
                  "a storm names one task and one first")

    def a_repeat_writes_nothing(self):
        call = (self.owner, self.tool, self.fresh(), "{}")
        self.a.accept(call)
        counts["wal_bytes_per_repeat"] = self.writes_no_wal(
            lambda: self.a.accept(call), "a repeat writes no WAL")

    def a_call_that_joins_a_window_writes_nothing(self):
        ask = "SELECT intent_window(%s, %s, 60000)"
        digest = os.urandom(16)
        first = self.a.one(ask, digest, self.fresh())
        self.writes_no_wal(lambda: equal(self.a.one(ask, digest, self.fresh()), first, "it joins"),
                           "who joins writes no WAL")

    def what_is_over_is_a_tombstone_for_its_time(self):
        """R1.7, rule 15: live, expired, swept, forgotten."""
        call = (self.owner, self.tool, self.fresh(), "{}")
        incarnation = self.new_worker()
        task = self.a.accept(call)[0][1]
        claim = self.a.claim(incarnation, self.tool)[0]
        self.a.finish(claim[:2])
        week = week_of(task)
        self.move_clock("6 days")
        equal(self.a.accept(call)[0][0], "same", "within retention a repeat is answered")
        equal(self.a.poll(self.owner, task), "completed", "and a poll too")
        self.move_clock("8 days")
        equal(self.a.accept(call)[0][0], "expired", "expired and unswept is a tombstone")
        equal(self.a.poll(self.owner, task), None, "and the task is gone")
        check(self.a.one("SELECT sweep(%s, 1000)", week) > 0, "the sweep takes it")
        equal(self.a.one("SELECT count(*) FROM step WHERE task = %s", task), 0, "its steps are gone")
        equal(self.a.accept(call)[0][0], "expired", "swept is a tombstone")
        conflict = self.a.accept((self.owner, self.tool, call[2], '{"a":1}'))[0][0]
        equal(conflict, "conflict", "other arguments stay a conflict")
        self.move_clock("98 days")
        self.make_week()
        again = self.a.accept(call)[0]
        equal((again[0], again[1] != task), ("new", True), "past the tombstone it is a new task")
        self.move_clock("0 days")

    def tombstones_go_in_the_order_of_their_digests(self):
        """Who meets tombstones past their time locks them as the sweep does: no two wait for each other."""
        for _ in range(4):
            calls, digests = self.tombstoned(2)
            pairs = sorted(zip(digests, calls), reverse=True)
            with self.a.conn.transaction():
                self.a.rows("SELECT 1 FROM effect WHERE digest = %s FOR UPDATE", pairs[1][0])
                late = Late(lambda p=pairs: self.b.accept(*(call for _, call in p)))
                check(late.blocked(), "the call waits for the smaller digest")
                self.a.rows("SELECT 1 FROM effect WHERE digest = %s FOR UPDATE NOWAIT", pairs[0][0])
            equal([got[0] for got in late.ended()], ["new", "new"], "and holds no other meanwhile")
            counts["races"] += 1

    def effects_are_locked_before_tasks(self):
        """Rule 6, also where a tombstone goes while a call looks at it."""
        api = new_incarnation()
        repeat = (self.owner, self.tool, self.fresh(), "{}")
        task = self.a.accept(repeat, api=api, number=1)[0][1]
        (gone,), (tombstone,) = self.tombstoned(1)
        sweep = Store(self.cluster)
        with self.b.conn.transaction():
            with sweep.conn.transaction():
                sweep.rows("DELETE FROM effect WHERE digest = %s RETURNING 1", tombstone)
                rival = Late(lambda: self.b.accept(gone))
                late = Late(lambda: self.a.accept(repeat, gone, api=api, number=2))
                check(rival.blocked() and late.blocked(), "both wait for the sweep")
            taken = rival.ended()[0][0]
            self.b.rows("SELECT 1 FROM work WHERE task = %s FOR UPDATE", task)
        equal(sorted((taken, late.ended()[1][0])), ["new", "same"], "one takes its place, and no deadlock")
        counts["races"] += 1

    def the_sweep_of_tombstones_waits_for_nobody(self):
        """By pages it meets them in another order than a call, which goes by their digests."""
        calls, digests = self.tombstoned(8)
        parts = {int(name.rsplit("_", 1)[1]): found for name, found in self.a.rows(
            "SELECT tableoid::regclass::text, array_agg(digest) FROM effect WHERE digest = ANY (%s)"
            " GROUP BY 1", digests)}
        with self.a.conn.transaction():
            held = self.a.one("SELECT digest FROM effect WHERE digest = ANY (%s) LIMIT 1 FOR UPDATE",
                              digests)
            with self.b.conn.transaction():
                self.b.conn.execute("SET LOCAL lock_timeout = '2s'")
                for part in parts:
                    equal(self.b.one("SELECT sweep_tombstones(%s, 0, 100000)", part), 0, "swept")
        equal(self.a.rows("SELECT digest FROM effect WHERE digest = ANY (%s)", digests), [(held,)],
              "what another holds is for the next time")
        for part in parts:
            self.a.one("SELECT sweep_tombstones(%s, 0, 100000)", part)
        equal(self.a.rows("SELECT digest FROM effect WHERE digest = ANY (%s)", digests), [],
              "which takes it")
        equal({got[0] for got in self.a.accept(*calls)}, {"new"}, "and the calls are new ones")

    # --- claims and the fence (rules 1, 2) ---

    def a_claim_sees_every_step_of_its_task(self):
        """Experiment e10: claiming and reading steps in one statement ran a phase again."""
        incarnation = self.new_worker()
        for _ in range(4):
            self.new_task()
        stores = [Store(self.cluster) for _ in range(4)]
        blind = []

        def run(store):
            for _ in range(RACE_ROUNDS // 4):
                for task, token, phase, _, _, places in store.claim(incarnation, self.tool):
                    counts["races"] += 1
                    if len(places or []) != phase:
                        blind.append((phase, places))
                    if phase == 60:  # no tool has as many
                        store.finish((task, token))
                        self.new_task(store)
                        continue
                    store.step((task, token, phase))
                    store.release("back", (task, token))

        rig.in_parallel(run, stores)
        equal(blind, [], "a claim shows as many recovery points as phases are done")

    def a_stale_claim_waits_for_the_reclaim_and_writes_nothing(self):
        """Compared without a lock, or under FOR KEY SHARE, a stale writer got in."""
        for write in ("step", "finish", "release", "artifact"):
            incarnation = self.new_worker()
            task, token = self.claimed(incarnation)
            check(self.a.one("SELECT declare_dead(%s, 1)", incarnation), "declared dead")
            with self.a.conn.transaction():
                check(self.a.one("SELECT reclaim(100)") >= 1, "reclaimed")
                late = Late({
                    "step": lambda: self.b.step((task, token, 0)),
                    "finish": lambda: self.b.finish((task, token)),
                    "release": lambda: self.b.release("retry", (task, token)),
                    "artifact": lambda: [self.b.one(
                        "SELECT artifact_put(%s, %s, %s, 0, 'a', 'b', 'c')", week_of(task), task,
                        token)]}[write])
                check(late.blocked(), f"a stale {write} waits for the reclaim")
            counts["races"] += 1
            equal(late.ended(), ["lost"], f"a stale {write} is fenced out")
            equal(self.a.one("SELECT count(*) FROM step WHERE task = %s", task), 0,
                  f"a stale {write} left no step")
            equal(self.a.poll(self.owner, task), "ready", "the task goes on")
            self.clear()

    def a_beat_in_time_is_not_buried(self):
        incarnation = self.new_worker()
        self.a.beat(incarnation)
        check(not self.a.one("SELECT declare_dead(%s, 1)", incarnation), "a counter that moved lives")
        check(self.a.one("SELECT declare_dead(%s, 2)", incarnation), "one that stood still is dead")
        equal(self.a.beat(incarnation)[0][0], False, "and is told so at its next beat")
        self.new_task()
        equal(self.a.claim(incarnation, self.tool), [], "the dead are given nothing")

    def a_lost_answer_is_asked_again(self):
        """Rule 11: the same statement again says what happened, and moves the task once."""
        incarnation = self.new_worker()
        task, token = self.claimed(incarnation)
        equal(self.a.step((task, token, 0)), ["held"], "a step")
        equal(self.a.step((task, token, 0)), ["held"], "the same step again")
        equal(self.a.one("SELECT phase FROM work WHERE task = %s", task), 1, "one phase further")
        equal(self.a.finish((task, token)), ["held"], "an outcome")
        equal(self.a.finish((task, token)), ["held"], "the same outcome again")
        equal(self.a.finish((task, new_incarnation())), ["lost"], "another's outcome is lost")

    def crashes_are_not_attempts_and_are_bounded(self):
        incarnation = None
        task = self.new_task()
        for crash in range(1, 4):
            incarnation = self.new_worker()
            claim = self.a.claim(incarnation, self.tool)
            equal((claim[0][3], claim[0][4]), (1, crash - 1), "attempt and crashes at a claim")
            self.a.one("SELECT declare_dead(%s, 1)", incarnation)
            self.a.one("SELECT reclaim(100)")
        equal(self.a.poll(self.owner, task), "ready", "a worker ends it past the limit")

    def a_claim_whose_answer_was_lost_is_given_again(self):
        """V9, rule 11: asked again by the same call it is the same claim; nothing stays behind."""
        incarnation, call = new_incarnation(), new_incarnation()
        self.a.beat(incarnation, True)
        for _ in range(6):
            self.new_task()
        sql = "SELECT task, token FROM claim(%s, %s, 4, %s)"
        first = self.a.rows(sql, incarnation, [self.tool], call)
        equal(len(first), 4, "a claim of four")
        equal(sorted(self.a.rows(sql, incarnation, [self.tool], call)), sorted(first),
              "the same call again: the same claims")
        equal(len(self.a.rows(sql, incarnation, [self.tool], new_incarnation())), 2,
              "another call: what is left")

    def what_may_have_been_sent_is_settled_before_it_ends(self):
        """V7: a cancel, a deadline or the end of parking between two attempts denies nothing."""
        incarnation = self.new_worker()
        for sent in (True, False):
            task, token = self.claimed(incarnation)
            self.a.release("retry", (task, token), delay=60_000, sent=sent)
            equal(self.a.cancel(self.owner, task), (True, False), "a cancel between two attempts")
            equal(self.a.poll(self.owner, task), "ready" if sent else "cancelled",
                  "a worker settles what may have been sent")
            self.clear()
            task, token = self.claimed(incarnation)
            self.a.release("retry", (task, token), delay=60_000, sent=sent)
            self.move_clock("2 hours")
            self.a.one("SELECT expire_deadlines(100)")
            equal(self.a.poll(self.owner, task), "ready" if sent else "failed", "and so does a deadline")
            self.move_clock("0 days")
            self.clear()

    def an_intent_stands_until_it_provably_never_left(self):
        incarnation = self.new_worker()
        for how, sent, wanted in (("retry", False, []), ("back", False, []), ("retry", True, ["intent"]),
                                  ("crash", True, ["intent"]), ("unverified", True, ["intent"])):
            task, token = self.claimed(incarnation)
            equal((self.intend(task, token), self.intend(task, token)), ("held", "held"),
                  "an intent, and the same again")
            equal(self.intend(task, new_incarnation()), "lost", "a foreign claim intends nothing")
            equal(self.intend(task, token, 1), "lost", "nor does a phase that is not at hand")
            equal(self.a.release(how, (task, token), sent=sent), ["held"], how)
            equal(self.kinds(incarnation), wanted, f"{how}, sent {sent}: what the next claim is told")
            self.clear()

    def a_stale_intent_waits_for_the_reclaim_and_is_fenced_out(self):
        incarnation = self.new_worker()
        task, token = self.claimed(incarnation)
        self.a.one("SELECT declare_dead(%s, 1)", incarnation)
        with self.a.conn.transaction():
            check(self.a.one("SELECT reclaim(100)") >= 1, "reclaimed")
            late = Late(lambda: self.intend(task, token, store=self.b))
            check(late.blocked(), "it waits")
        equal(late.ended(), "lost", "and intends nothing")
        equal(self.a.one("SELECT count(*) FROM intent WHERE task = %s", task), 0, "no row")
        counts["races"] += 1

    def settled_as_absent_nothing_stands_in_the_way(self):
        incarnation = self.new_worker()
        for verdict, left in (("absent", []), ("done", ["recovery_point"])):
            task, token = self.claimed(incarnation)
            self.intend(task, token)
            sent = self.a.one("SELECT at FROM intent WHERE task = %s", task)
            self.a.release("unknown", (task, token), sent=True)
            equal(self.a.settle(task, verdict), "settled", verdict)
            equal(self.kinds(incarnation), left, f"{verdict}: what the next claim is told")
            equal(self.a.rows("SELECT kind, at = %s FROM event WHERE task = %s ORDER BY place", sent, task),
                  [("unknown", False), ("settled", False), ("intent", True)], "when it was sent stays told")
            self.clear()

    def the_time_that_a_task_stood_unknown_does_not_count_against_its_deadline(self):
        """Settled in the morning, what became unknown in the night has left what it had then."""
        incarnation = self.new_worker()
        for became, settled, minutes, why in (
                ("50 minutes", "3 days", 10, "what was left"),
                ("70 minutes", "3 days", -10, "it was late already"),
                ("50 minutes", "1 minute", 59, "the clock went back: nothing is taken"),
                ("-3 days", "0 days", 60, "the clock went on: no more than a new task has")):
            for verdict in ("absent", "done"):
                task, token = self.claimed(incarnation)
                self.move_clock(became)
                self.a.release("unknown", (task, token), sent=True)
                self.move_clock(settled)
                self.a.rows("UPDATE work SET crashes = 3 WHERE task = %s RETURNING 1", task)
                equal(self.a.settle(task, verdict), "settled", verdict)
                equal(self.a.one("SELECT crashes FROM work WHERE task = %s", task), 0,
                      "what follows is not ended by the crashes before")
                equal(self.a.rows("SELECT round(extract(epoch FROM w.deadline - now_()) / 60), t.deadline ="
                                  " w.deadline FROM work w JOIN task t ON t.task = w.task WHERE w.task = %s",
                                  task), [(minutes, True)], why)
                self.a.one("SELECT expire_deadlines(100)")
                equal(self.a.poll(self.owner, task), "ready" if minutes > 0 else "failed", why)
                self.move_clock("0 days")
                self.clear()

    def a_restore_leaves_what_a_worker_said_of_an_unknown_task(self):
        tool, incarnation = self.operated(("unsafe",))
        with self.a.conn.transaction(force_rollback=True):
            self.a.accept(*((self.owner, tool, self.fresh(), "{}") for _ in range(2)))
            claim = self.a.claim(incarnation, tool)[0][:2]
            self.a.release("unknown", claim)
            self.a.one("SELECT restore_begin(now_() - interval '1 hour', false, 'ann', 'why')")
            self.a.one("SELECT restore_tasks('', 100)")
            said = dict(self.a.rows("SELECT task, message FROM work WHERE queue = %s AND state = 'unknown'", tool))
            equal(said.pop(claim[0]), "why", "it has the key, which the store cannot make")
            equal(["restored" in text for text in said.values()], [True], "the other is unknown for the restore")

    def a_cancel_hands_what_can_be_undone_to_a_worker(self):
        incarnation = self.new_worker()
        self.a.rows("UPDATE holdfast.tool SET undos = '{0}' RETURNING 1")
        for phases, wanted in ((0, "cancelled"), (1, "ready")):
            task, token = self.claimed(incarnation)
            for phase in range(phases):
                self.a.step((task, token, phase))
            self.a.release("retry", (task, token), delay=60_000)
            equal(self.a.cancel(self.owner, task)[0], True, "acknowledged")
            equal(self.a.poll(self.owner, task), wanted, f"{phases} phases done")
        self.move_clock("2 hours")
        self.a.one("SELECT expire_deadlines(100)")
        equal(self.a.poll(self.owner, task), "ready", "a deadline does not come before its undo steps")
        self.move_clock("0 days")
        claim = self.a.claim(incarnation, self.tool)[0]
        self.a.rows("UPDATE work SET crashes = 3 RETURNING 1")
        equal(self.a.release("undo", claim[:2]), ["held"], "its undo steps begin")
        claim = self.a.claim(incarnation, self.tool)[0]
        equal(claim[2:5], (127, 1, 0), "as a phase after all others, from its first attempt")
        equal(self.intend(task, claim[1], 127), "held", "the store knows which one: it may be unsafe")
        self.a.release("retry", claim[:2], delay=60_000)
        equal(self.a.poll(self.owner, task), "scheduled", "a wait between two attempts is kept")
        self.move_clock("2 hours")
        self.a.one("SELECT expire_deadlines(100)")
        equal(self.a.poll(self.owner, task), "scheduled", "and no deadline ends it")
        self.move_clock("0 days")
        self.a.rows("UPDATE holdfast.tool SET undos = '{}' RETURNING 1")

    def undo_steps_are_numbered_by_the_store(self):
        incarnation = self.new_worker()
        self.a.rows("UPDATE holdfast.tool SET undos = '{0,2}' RETURNING 1")
        task, token = self.claimed(incarnation)
        for phase in range(3):
            self.a.step((task, token, phase))
        self.a.cancel(self.owner, task)
        self.a.release("undo", (task, token))
        for wanted, settled in ((125, False), (127, True)):
            claim = self.a.claim(incarnation, self.tool)[0]
            equal(claim[2], wanted, "in reverse, past what has none")
            if not settled:
                equal(self.a.step((task, claim[1], wanted)), ["held"], "it is done")
                equal(self.a.one("SELECT phase FROM work WHERE task = %s", task), 127, "the next is known")
                equal(self.a.one("SELECT attempt FROM work WHERE task = %s", task), 1, "with attempts of its own")
                self.a.release("back", claim[:2])
            else:
                self.a.release("unknown", claim[:2], sent=True)
                equal(self.a.settle(task, "done", "undo:p0"), "settled", "an unknown one can be settled")
                equal(self.a.one("SELECT phase FROM work WHERE task = %s", task), 128, "and none is left")
        self.a.rows("UPDATE holdfast.tool SET undos = '{}' RETURNING 1")

    def a_claim_that_comes_twice_takes_nothing_new(self):
        """V9, rule 11: a flight that was given up for lost arrives behind the one sent in its place, when
        all that this one took is over."""
        incarnation = self.new_worker()
        for _ in range(3):
            self.new_task()

        def claim(number, mark="aa"):
            call = mark * 8 + f"{number:016x}"
            return self.a.rows("SELECT task, token FROM claim(%s, %s, 1, %s::uuid)", incarnation, [self.tool], call)

        first = claim(1)
        equal((len(first), claim(1)), (1, first), "a claim, and the same again")
        self.a.finish(first[0])
        equal(claim(1), [], "again once its task is over: nothing that nobody knows of")
        equal(len(claim(2, "bb")), 1, "the next one")
        equal(claim(1), [], "one that was overtaken takes nothing")
        equal(self.a.one("SELECT count(*) FROM work WHERE state = 'running'"), 1, "one claim stands")
        equal(len(self.a.rows("SELECT task FROM claim(%s, %s, 1, gen_random_uuid())", incarnation,
                              [self.tool])), 1, "a worker of the release before is given what it asks")

    # --- finish against cancel (rule 9), both orders ---

    def finish_and_cancel_meet_in_both_orders(self):
        incarnation = self.new_worker()
        task, token = self.claimed(incarnation)
        with self.a.conn.transaction():
            self.a.finish((task, token))
            late = Late(lambda: self.b.cancel(self.owner, task))
            check(late.blocked(), "a cancel waits for a finish")
        equal(late.ended(), (True, False), "a cancel after the end is acknowledged")
        equal(self.a.poll(self.owner, task), "completed", "and changes nothing")

        task, token = self.claimed(incarnation)
        with self.a.conn.transaction():
            equal(self.a.cancel(self.owner, task), (True, True), "a running task is flagged")
            late = Late(lambda: self.b.finish((task, token)))
            check(late.blocked(), "a finish waits for a cancel")
        equal(late.ended(), ["held"], "and then completes anyway")
        equal(self.a.poll(self.owner, task), "completed", "which is the truth")
        counts["races"] += 2

        task = self.new_task()
        equal(self.a.cancel(self.other, task), (False, False), "a foreign cancel finds nothing (V8)")
        equal(self.a.poll(self.other, task), None, "a foreign poll finds nothing (V8)")
        equal(self.a.cancel(self.owner, task), (True, False), "a waiting task ends here and now")
        equal(self.a.poll(self.owner, task), "cancelled", "as cancelled")

    # --- plain calls ---

    def a_late_hang_up_does_not_stop_the_next_call(self):
        one, two = new_incarnation(), new_incarnation()
        call = (self.owner, self.tool, self.fresh(), "{}")
        task = self.a.accept(call, api=one, number=1)[0][1]
        self.a.accept(call, api=two, number=1)
        equal(self.a.detach(task, one, 1)[0], False, "whoever came before hangs up: nothing")
        equal(self.a.poll(self.owner, task), "ready", "work goes on")
        equal(self.a.detach(task, two, 1), (True, 1, False), "the last one hangs up")
        equal(self.a.poll(self.owner, task), "parked", "work is parked")
        equal(self.a.accept(call, api=one, number=2)[0][2], "ready", "the same effect ID takes it up")
        equal(self.a.detach(task, one, 2, park=False)[0], True, "an answer is no hang-up")
        equal(self.a.poll(self.owner, task), "ready", "work goes on")
        equal(self.a.detach(task, one, 2)[0], False, "and nobody is attached any more")
        self.a.accept(call, api=one, number=3)
        self.a.accept(call)
        equal(self.a.detach(task, one, 3)[0], False, "a client that declares Tasks holds it")
        self.a.accept(call, api=one, number=4)
        equal(self.a.detach(task, one, 4)[0], False, "for good")

    def a_running_task_is_asked_to_park(self):
        api, incarnation = new_incarnation(), new_incarnation()
        self.a.beat(incarnation, True)
        call = (self.owner, self.tool, self.fresh(), "{}")
        self.a.accept(call, api=api, number=1)
        task, token = self.a.claim(incarnation, self.tool)[0][:2]
        equal(self.a.detach(task, api, 1), (True, 1, True), "its worker is to be woken")
        equal([row[3] for row in self.a.beat(incarnation)], [1], "the next beat says park")
        equal(self.a.release("back", (task, token)), ["held"], "the worker gives it back")
        equal(self.a.poll(self.owner, task), "parked", "and it is parked")
        equal(self.a.attach(self.owner, task, api, 2), 1, "one that still waits takes it up")
        token = self.a.claim(incarnation, self.tool)[0][1]
        self.a.detach(task, api, 2)
        self.a.accept(call, api=api, number=3)
        equal(self.a.release("back", (task, token)), ["held"], "joined before it was given back")
        equal(self.a.poll(self.owner, task), "ready", "it is not parked")
        equal(self.a.attach(self.other, task, api, 4), 0, "nobody attaches to a foreign task (V8)")

    def a_hang_up_meets_the_next_call_in_both_orders(self):
        api = new_incarnation()
        for call_first in (True, False):
            call = (self.owner, self.tool, self.fresh(), "{}")
            task = self.a.accept(call, api=api, number=1)[0][1]
            with self.a.conn.transaction():
                if call_first:
                    self.a.accept(call, api=api, number=2)
                    late = Late(lambda task=task: self.b.detach(task, api, 1)[0])
                else:
                    self.a.detach(task, api, 1)
                    late = Late(lambda call=call: self.b.accept(call, api=api, number=2)[0][2])
                check(late.blocked(), "the second waits for the first")
            counts["races"] += 1
            equal(late.ended(), False if call_first else "ready", "and sees what it did")
            equal(self.a.poll(self.owner, task), "ready", "the new call's task goes on")

    def what_nobody_waits_for_is_parked_and_ends(self):
        api = new_incarnation()
        call = (self.owner, self.tool, self.fresh(), "{}")
        self.a.beat(api, True)
        task = self.a.accept(call, api=api, number=1)[0][1]
        equal(self.a.one("SELECT park_orphans(100)"), 0, "a live API's calls are let alone")
        self.a.one("SELECT declare_dead(%s, 1)", api)
        equal(self.a.one("SELECT park_orphans(100)"), 1, "a dead API's calls are parked")
        equal(self.a.poll(self.owner, task), "parked", "as if they had hung up")
        equal(self.a.one("SELECT expire_parked(100)"), 0, "for as long as the tool allows")
        self.move_clock("25 hours")
        equal(self.a.one("SELECT expire_parked(100)"), 1, "then it ends")
        equal(self.a.poll(self.owner, task), "cancelled", "as cancelled")
        self.move_clock("0 days")

    def batches_in_any_order_do_not_deadlock(self):
        """With FOR SHARE, or unsorted, re-sent finishes deadlocked (rules 2 and 6)."""
        incarnation = self.new_worker()
        stores = [Store(self.cluster) for _ in range(4)]
        errors = []
        for _ in range(DEADLOCK_ROUNDS):
            for _ in range(12):
                self.new_task()
            claims = [row[:2] for row in self.a.claim(incarnation, self.tool, 12)]

            def run(store, claims=claims):
                mine = claims[:]
                random.shuffle(mine)
                try:
                    store.step(*[(task, token, 0) for task, token in mine])
                    store.finish(*mine)
                except psycopg.Error as error:
                    errors.append(error.sqlstate)

            rig.in_parallel(run, stores)
            counts["races"] += 4
        equal(errors, [], "no deadlock in shuffled batches of four sessions")

    # --- keys files (V5) ---

    def a_key_version_is_the_secret_of_who_came_first(self):
        def admit(store, **marks):
            return store.one("SELECT keys_admit(%s, %s)", [int(name[1:]) for name in marks],
                             [digest(mark) for mark in marks.values()])

        def kept():
            return {row[0]: bytes(row[1]) for row in self.a.rows("SELECT version, mark FROM key_mark")}

        api, worker = Store(self.cluster, "holdfast_api"), Store(self.cluster, "holdfast_worker")
        equal(admit(api, v1="a"), None, "the first")
        equal([admit(store, v1="a") for store in (api, worker)], [None, None], "the same again")
        check("version 1 is not the secret" in (admit(worker, v1="b") or ""), "another is refused")
        check("version 1 " in admit(worker, v1="b", v2="c"), "with all it brings")
        equal(kept(), {1: digest("a")}, "and leaves nothing")
        equal(admit(worker, v1="a", v3="c"), None, "a further version")
        equal(admit(api, v1="a"), None, "who does not know it yet goes on")
        equal(admit(api, v3="c"), None, "and so does who has let the old one go")
        check("version 3 " in admit(api, v1="a", v3="d"), "the further one is as fast")
        # Rivals: the second waits, and then is told of the first, or takes its place where that came to nothing.
        for theirs, end, wanted in (("e", "COMMIT", None), ("f", "COMMIT", "version 5 "), ("f", "ROLLBACK", None)):
            self.a.conn.execute("DELETE FROM key_mark WHERE version > 3")
            self.a.conn.execute("BEGIN")
            equal(admit(self.a, v5="e"), None, "the first of two at once")
            late = Late(lambda: admit(self.b, v4="g", v5=theirs))
            check(late.blocked(), "the second waits")
            equal(admit(worker, v1="a"), None, "who brings nothing new does not")
            self.a.conn.execute(end)
            said = late.ended()
            check(said is None if wanted is None else wanted in (said or ""), f"{theirs} after {end}", said)
            equal(set(kept()), {1, 3, 5} if wanted else {1, 3, 4, 5}, "what is kept")
            equal(kept()[5], digest("f" if end == "ROLLBACK" else "e"), "of whom")
            counts["races"] += 1
        for store in (api, worker):
            store.conn.close()

    # --- commits, roles, plans ---

    def only_async_functions_commit_without_the_disk(self):
        """Rule 5: a function-level SET has no effect on the commit; a name says which ones do."""
        calls = {
            "wake_async": "SELECT wake_async('w')",
            "beat_async": f"SELECT beat_async('{new_incarnation()}', true, 'worker', 1, 0, '{{}}',"
                          " '{}', '{}', '{}')",
            "claim": f"SELECT claim('{new_incarnation()}', '{{1}}', 1, gen_random_uuid())",
            "accept_bounded": "SELECT accept_bounded(true" + ", '{}'" * 13 + ")",
            "cancel": "SELECT cancel(1, '{}', '{}')",
            "step": "SELECT step(1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
            "finish": "SELECT finish(1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',"
                      " '{}', '{}', '{}')",
            "release": "SELECT release('{}', '{}', '{}', '{}', '{}', '{}')",
            "barrier": "SELECT barrier()",
            "keys_admit": "SELECT keys_admit('{}', '{}')",
        }
        for name, sql in calls.items():
            with self.a.conn.transaction():
                self.a.conn.execute(sql)
                equal(self.a.one("SHOW synchronous_commit"),
                      "off" if name.endswith("_async") else "on", f"synchronous_commit of {name}")

    def roles_execute_theirs_and_touch_no_table(self):
        for role in ("holdfast_api", "holdfast_worker", "holdfast_sql"):
            session = Store(self.cluster, role)
            for table in ("task", "work", "effect", "principal", "key_mark"):
                try:
                    session.rows(f"SELECT * FROM {table}")
                    check(False, f"{role} reads {table}")
                except psycopg.errors.InsufficientPrivilege:
                    check(True, "")
            try:
                session.rows("SELECT declare_dead(%s, 1)", new_incarnation())
                check(False, f"{role} may maintain")
            except psycopg.errors.InsufficientPrivilege:
                check(True, "")
            session.conn.close()
        bad = self.a.rows(
            "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'holdfast' AND (has_function_privilege('holdfast_api', p.oid,"
            " 'EXECUTE') OR has_function_privilege('holdfast_worker', p.oid, 'EXECUTE') OR"
            " has_function_privilege('holdfast_sql', p.oid, 'EXECUTE'))"
            " AND NOT (p.prosecdef AND p.provolatile = 'v' AND p.proconfig::text LIKE '%%search_path%%')")
        equal(bad, [], "what roles may call is SECURITY DEFINER, VOLATILE, with a search_path")

    def phases_update_in_place(self):
        """HOT: no index and no predicate on what a phase changes. By the best of some tries: while
        autovacuum analyses, its snapshot keeps the versions whose room the next ones take."""
        incarnation = self.new_worker()
        hot = "SELECT n_tup_hot_upd FROM pg_stat_all_tables WHERE relname = 'work'"
        self.b.one("SELECT pg_stat_force_next_flush()")
        updated = tries = 0
        while updated < 54 and tries < 3:
            tries += 1
            claims = [self.claimed(incarnation) for _ in range(20)]
            time.sleep(1.2)
            self.a.one("SELECT pg_stat_force_next_flush()")
            before = self.b.one(hot)
            for phase in range(3):
                equal(self.a.step(*[(task, token, phase) for task, token in claims]), ["held"] * 20,
                      "twenty steps")
            self.a.one("SELECT pg_stat_force_next_flush()")
            time.sleep(0.3)
            updated = self.b.one(hot) - before
        counts["hot_of_60"] = updated
        check(updated >= 54, "nine of ten phase updates are HOT", updated)

    def plans_hold_at_a_million_rows(self):
        """Statistics from empty, a million rows, a held snapshot: no sequential scan of what grows,
        and no relation lock outside the fast path."""
        self.a.conn.execute("ALTER TABLE work SET (autovacuum_enabled = off); ANALYZE work")
        held = psycopg.connect(self.cluster.dsn())
        held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        incarnation = self.new_worker()
        self.a.conn.execute(
            "INSERT INTO work (task, week, owner, queue, state, due, deadline, updated)"
            " SELECT '\\x01'::bytea || set_byte('\\x00'::bytea, 0, 1) ||"
            " substring(int8send(to_ms(now_())) FROM 3) || uuid_send(gen_random_uuid()), 1,"
            " %s, %s, CASE WHEN i %% 2 = 0 THEN 'scheduled' ELSE 'ready' END,"
            " now_() + interval '1 day', now_() + interval '2 days', now_()"
            " FROM generate_series(1, 1000000) i", (self.owner, self.tool + 1))
        counts["rows"] = self.a.one("SELECT count(*) FROM work")
        task, token = self.claimed(incarnation)
        for _ in range(5):
            ready = self.new_task()

        def read():
            """Rows read from what grows, by scan and by index: a whole walk shows in either."""
            self.a.one("SELECT pg_stat_force_next_flush()")
            time.sleep(0.2)
            return dict(self.b.rows(
                "SELECT t.relname, t.seq_tup_read + (SELECT sum(i.idx_tup_read)"
                " FROM pg_stat_all_indexes i WHERE i.relid = t.relid) FROM pg_stat_all_tables t"
                " WHERE t.schemaname = 'holdfast' AND (t.relname = 'work' OR t.relname LIKE"
                " 'effect_%%' OR t.relname LIKE 'step_w%%' OR t.relname LIKE 'task_w%%')"))

        for name, call in {
            "claim": lambda: self.a.claim(incarnation, self.tool, 10),
            "step": lambda: self.a.step((task, token, 0)),
            "release": lambda: self.a.release("retry", (task, new_incarnation())),
            "accept": lambda: self.a.accept((self.owner, self.tool, self.fresh(), "{}")),
            "poll": lambda: self.a.poll(self.owner, task),
            "poll_task": lambda: self.a.rows("SELECT state FROM poll_task(%s, %s, %s)",
                                             week_of(ready), [self.owner], [ready]),
            "artifact_of": lambda: self.a.rows("SELECT * FROM artifact_of(%s, %s, %s, 'report.pdf', 1)",
                                               week_of(task), self.owner, task),
            "shelf": lambda: self.a.rows("SELECT number FROM shelf(0)"),
            "beat_async": lambda: self.a.beat(incarnation),
            "answer": lambda: self.a.rows("SELECT * FROM answer(%s, %s, %s, '{\"k\":1}')", week_of(task),
                                          self.owner, task),
            "ask": lambda: self.a.one("SELECT ask(%s, %s, %s, 0, '[]', NULL, false, '')",
                                      week_of(task), task, new_incarnation()),
            "poll_asking": lambda: self.a.rows("SELECT * FROM poll_asking(%s, %s, %s)", week_of(task),
                                               self.owner, task),
            "finish": lambda: self.a.finish((task, token)),
            "gauges": lambda: self.a.rows("SELECT * FROM gauges()"),
            "count_work": lambda: self.a.rows("SELECT * FROM count_work(7, 1)"),
        }.items():
            # Statistics of other sessions may come late; a walk of ours would show each time.
            for _ in range(3):
                before = read()
                began = time.monotonic()
                with self.a.conn.transaction():
                    call()
                    slow = self.a.rows(
                        "SELECT relation::regclass FROM pg_locks WHERE locktype = 'relation'"
                        " AND NOT fastpath AND relation > 16384 AND pid = pg_backend_pid()")
                counts[f"{name}_ms"] = round((time.monotonic() - began) * 1000, 1)
                walked = {k: int(v - before.get(k, 0)) for k, v in read().items()
                          if v - before.get(k, 0) > ROWS_READ_MAX}
                if not walked:
                    break
            equal(walked, {}, f"{name} walks nothing that grows")
            if name in ("step", "poll", "poll_task", "release", "beat_async", "answer", "ask"):
                equal(slow, [], f"{name} takes no lock outside the fast path")
        held.close()


if __name__ == "__main__":
    Tests().run()
    rig.finish("sql", counts, {"races": RACE_ROUNDS, "storm_calls": 960, "rows": 1_000_000})
