"""What an operator does, on a real Postgres: retries, pauses and filters, and what they meet."""

import json
import os

from sql_rig import Bench, Late, Store, digest, new_incarnation, rig, week_of
from rig import check, equal

counts = {"races": 0}
RACE_ROUNDS = 300


class Tests(Bench):
    def a_retry_makes_one_successor_with_what_was_done(self):
        tool, incarnation = self.operated()
        task, call = self.failed(tool, incarnation, 2)
        before = self.a.rows("SELECT place, name, error, message, hash, at FROM step WHERE task = %s"
                             " ORDER BY place", task)
        self.a.rows("INSERT INTO artifact (week, task, phase, name, media_type, sha256, content, at)"
                    " SELECT %s, %s, p, 'a' || p, 'text/plain', 'x', 'y', now_()"
                    " FROM generate_series(0, 2) p RETURNING 1", week_of(task), task)
        answer, successor = self.a.retry(task)
        equal(answer, "retried", "a failed task is retried")
        check(successor and successor != task, "under a handle of its own")
        equal(self.a.rows("SELECT place, name, error, message, hash, at FROM step WHERE task = %s"
                          " ORDER BY place", task), before, "the old outcome is as it was (V6)")
        equal(self.a.poll(self.owner, task), "failed", "the old handle stays failed")
        equal(self.a.rows("SELECT v.successor FROM poll_task(%s, %s, %s) v", week_of(task),
                          [self.owner], [task]), [(successor,)], "and names its successor")
        equal(self.a.accept(call)[0][:2], ("same", successor), "the effect ID answers with it")
        equal(self.a.rows("SELECT place, origin, token FROM step WHERE task = %s ORDER BY place",
                          successor), [(65535, task, None), (131071, task, None)],
              "the recovery points came along, with their origin")
        equal(self.a.one("SELECT count(*) FROM artifact WHERE task = %s", successor), 2,
              "and the artifacts of the phases that are done")
        equal(self.a.rows("SELECT retry_of, generations, tried FROM task WHERE task = %s", successor),
              [(task, None, None)], "retry_of")
        equal(self.a.rows("SELECT act, by FROM audit WHERE task = %s", task), [("retry", "ann")],
              "an audit row")
        equal(self.a.retry(task), ("successor", successor), "a second retry is told of the first")
        claim = self.a.claim(incarnation, tool)[0]
        equal((claim[0], claim[2], claim[3], claim[5]), (successor, 2, 1, [65535, 131071]),
              "a worker goes on behind them")
        self.a.fail(claim[:2])
        third = self.a.retry(successor)[1]
        equal(self.a.rows("SELECT DISTINCT origin FROM step WHERE task = %s", third), [(task,)],
              "a copy of a copy knows where it comes from")
        equal(self.a.rows("SELECT v.successor FROM poll_task(%s, %s, %s) v", week_of(third),
                          [self.owner], [third]), [(third,)], "the newest names itself")

    def a_retry_knows_what_it_must_not_do(self):
        tool, incarnation = self.operated(("pure", "keyed", "pure", "unsafe"))
        for done, phase, error, maybe, new_key, wanted in (
                (1, None, "phase_failed", "no", True, "retried"),
                (1, 1, "phase_failed", "no", True, "retried"),
                (1, None, "attempts_exhausted", "no", True, "not_refused"),
                (1, None, "phase_failed", "maybe", True, "not_refused"),
                (1, 0, "phase_failed", "no", True, "not_refused"),
                (2, None, "phase_failed", "no", True, "not_refused"),
                (1, 0, "phase_failed", "no", False, "retried"),
                (1, 0, "phase_failed", "maybe", False, "maybe"),
                (1, 2, "phase_failed", "no", False, "ahead"),
                (2, 1, "phase_failed", "no", False, "done"),
                (3, 2, "phase_failed", "no", False, "retried"),
                (3, 0, "phase_failed", "no", False, "done"),
                (4, None, "result", "no", False, "retried")):
            task, _ = self.failed(tool, incarnation, done, error, maybe)
            equal(self.a.retry(task, phase, new_key)[0], wanted,
                  f"{done} done, from {phase}, {error}, {maybe}, new key {new_key}")
            self.clear()
        times = self.new_tool(phases=[{"name": "look", "kind": "http", "effect": "pure"}, {
            "name": "rest", "kind": "wait", "ms": 1}, {"name": "ask", "kind": "wait", "input": {}}])
        for done, wanted in ((2, "retried"), (3, "done")):
            task, _ = self.failed(times, incarnation, done)
            equal(self.a.retry(task, 0)[0], wanted, "a time that passed stands in no way, an answer does")
            self.clear()
        for state in ("completed", "cancelled"):
            self.a.accept((self.owner, tool, self.fresh(), "{}"))
            claim = self.a.claim(incarnation, tool)[0][:2]
            self.a.finish(claim, state=state)
            equal(self.a.retry(claim[0])[0], state, f"{state} is final")
        equal(self.a.retry(os.urandom(24))[0], "missing", "no such task")

    def a_new_key_is_the_next_generation_for_good(self):
        tool, incarnation = self.operated(("pure", "keyed", "pure"))
        task, _ = self.failed(tool, incarnation, 1)
        for generation in (1, 2):
            task = self.a.retry(task, None, True)[1]
            claim = self.a.rows("SELECT task, token, places, kinds, names FROM"
                                " claim(%s, %s, 1, gen_random_uuid())", incarnation, [tool])[0]
            equal([row for row in zip(*claim[2:]) if row[1] == "generation"],
                  [(65536, "generation", str(generation))], "the worker is told")
            check(f"key generation {generation}" in self.a.one(
                "SELECT detail FROM audit ORDER BY at DESC LIMIT 1"), "the audit row says so")
            if generation == 1:
                self.a.fail(claim[:2])
        self.a.step((claim[0], claim[1], 1))
        equal(self.a.rows("SELECT place / 65536, generation FROM step WHERE task = %s ORDER BY 1",
                          task), [(0, 0), (1, 2)], "and so does the step")
        self.a.fail(claim[:2], "attempts_exhausted")
        successor = self.a.retry(task)[1]
        equal(self.a.one("SELECT generations FROM task WHERE task = %s", successor), [0, 2, 0],
              "a retry without a new key keeps it")
        self.a.rows("UPDATE work SET state = 'unknown', phase = 1, generations = '{0,2,0}' WHERE task = %s"
                    " RETURNING 1", successor)
        self.a.rows("DELETE FROM step WHERE task = %s AND place / 65536 = 1 RETURNING 1", successor)
        equal(self.a.settle(successor, "done", "p1"), "settled", "settled as done")
        equal(self.a.rows("SELECT generation FROM step WHERE task = %s AND place / 65536 = 1", successor),
              [(2,)], "and what a person settles is of the generation that was sent")

    def what_may_have_happened_is_still_open_in_the_successor(self):
        """V7: the next worker must not believe that nobody has started the phase before."""
        tool, incarnation = self.operated(("keyed", "unsafe", "lookup"))
        for done, maybe, checkpoint in ((0, "maybe", False), (1, "maybe", True), (2, "maybe", False),
                                        (1, "no", True), (0, "no", False)):
            task, _ = self.failed(tool, incarnation, done, "crash_limit", maybe, checkpoint)
            for _ in range(2):
                successor = self.a.retry(task)[1]
                row = self.a.rows("SELECT w.first_try, w.sent, (SELECT count(*) FROM intent i WHERE"
                                  " i.task = w.task AND i.phase = w.phase) FROM work w"
                                  " WHERE w.task = %s", successor)[0]
                origin = self.a.one("SELECT min(t.accepted) FROM task t WHERE t.effect_id = (SELECT"
                                    " effect_id FROM task WHERE task = %s)", successor)
                ended = self.a.one("SELECT at FROM step WHERE task = %s AND kind = 'outcome'", task)
                if maybe == "no":
                    equal(row, (None, None, 0), "what was refused starts anew")
                else:
                    check(row[0] and origin <= row[0] <= ended and row[1] == ended and row[2] == 1,
                          f"phase {done} may have been sent", row)
                    if done == 0:
                        equal(row[0], origin, "its key's window counts from the first task")
                equal(self.a.one("SELECT count(*) FROM step WHERE task = %s AND kind = 'checkpoint'",
                                 successor), int(checkpoint), "its checkpoints came along")
                task = successor
                self.a.fail(self.a.claim(incarnation, tool)[0][:2], "crash_limit", maybe)
        # Settled as failed, by a person who could not tell either.
        self.a.accept((self.owner, tool, self.fresh(), "{}"))
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.step((*claim, 0))
        self.a.release("unknown", claim, sent=True)
        self.a.settle(claim[0], "fail", "p1")
        equal(self.a.one("SELECT count(*) FROM intent WHERE task = %s", self.a.retry(claim[0])[1]), 1,
              "what was settled as failed may have happened")
        self.clear()
        tool, incarnation = self.operated(("pure",))
        for phase, kept in ((None, 1), (0, 0)):
            task, _ = self.failed(tool, incarnation, 0, checkpoint=True)
            equal(self.a.one("SELECT count(*) FROM step WHERE task = %s", self.a.retry(task, phase)[1]),
                  kept, "a pure phase asked for by name begins without its checkpoints")
            self.clear()

    def open_tasks_are_retried_in_place(self):
        tool, incarnation = self.operated()
        self.a.accept((self.owner, tool, self.fresh(), "{}"))
        claim = self.a.claim(incarnation, tool)[0][:2]
        equal(self.a.retry(claim[0])[0], "running", "what runs is not touched")
        self.a.step((*claim, 0))
        self.a.release("retry", claim, delay=3_600_000, sent=True)
        equal(self.a.retry(claim[0], 0)[0], "place", "a place with a recovery point is over (V3)")
        equal(self.a.retry(claim[0], 1, True)[0], "not_refused", "and its key stays")
        first = self.a.rows("SELECT first_try, sent FROM work WHERE task = %s", claim[0])
        equal(self.a.retry(claim[0], 1), ("due", None), "what backs off is due")
        equal(self.a.rows("SELECT first_try, sent FROM work WHERE task = %s", claim[0]), first,
              "and keeps what it knows of its request")
        equal(self.a.retry(claim[0])[0], "ready", "once")
        again = self.a.claim(incarnation, tool)[0]
        equal((again[0], again[2], again[3]), (claim[0], 1, 2), "it goes on at its phase")
        self.a.release("unknown", again[:2], sent=True)
        equal(self.a.retry(claim[0])[0], "unknown", "unknown goes on by settle alone")

    def two_retries_make_one_successor(self):
        tool, incarnation = self.operated()
        for commits in (True, False):
            task, call = self.failed(tool, incarnation, 1)
            with self.a.conn.transaction(force_rollback=not commits):
                first = self.a.retry(task)
                equal(self.b.accept(call)[0][1], task, "a repeat meanwhile gets the old task")
                late = Late(lambda task=task: self.b.retry(task))
                check(late.blocked(), "the second waits")
            counts["races"] += 1
            second = late.ended()
            if commits:
                equal(second, ("successor", first[1]), "and is told of the first")
            else:
                equal(second[0], "retried", "and is the first, where that came to nothing")
            equal(self.a.one("SELECT count(*) FROM work w JOIN task t ON t.task = w.task"
                             " WHERE t.effect_id = %s", call[2]), 1, "one live task (V1)")
            self.clear()
        stores = [Store(self.cluster) for _ in range(8)]
        for _ in range(RACE_ROUNDS // 10):
            task, call = self.failed(tool, incarnation, 1)
            got = rig.in_parallel(lambda store, task=task: store.retry(task), stores[:4])
            told = rig.in_parallel(lambda store, call=call: store.accept(call)[0], stores)
            counts["races"] += 1
            equal((sorted(row[0] for row in got), len({row[1] for row in got})),
                  (["retried"] + ["successor"] * 3, 1), "four at once make one successor")
            equal({row[:2] for row in told}, {("same", got[0][1])}, "which repeats get")
            self.clear()

    def a_repeat_beside_a_retry_gets_the_old_task_or_the_new(self):
        """Whatever comes first, a repeat gets the old task or the new one, and makes none."""
        tool, incarnation = self.operated()
        stores = [Store(self.cluster) for _ in range(5)]
        for _ in range(RACE_ROUNDS // 10):
            task, call = self.failed(tool, incarnation, 1)
            got = rig.in_parallel(
                lambda work, task=task, call=call: work[1].retry(task) if work[0] == 2
                else work[1].accept(call)[0], list(enumerate(stores)))
            counts["races"] += 1
            successor = got[2][1]
            check(all(row[0] == "same" and row[1] in (task, successor)
                      for i, row in enumerate(got) if i != 2), "old or new", got)
            equal(self.a.accept(call)[0][1], successor, "and from then on the new one")
            self.clear()

    def retries_of_many_lock_as_the_sweep_does(self):
        """Effects by their digests over the whole batch, however the tasks stand in it."""
        tool, incarnation = self.operated()
        for _ in range(6):
            tasks = [self.failed(tool, incarnation, 0) for _ in range(2)]
            pairs = sorted((digest("/".join(map(str, call[:3])))[:16], task) for task, call in tasks)
            with self.a.conn.transaction():
                self.a.rows("SELECT 1 FROM effect WHERE digest = %s FOR NO KEY UPDATE", pairs[0][0])
                late = Late(lambda p=pairs: self.b.rows("SELECT answer, number FROM operate('retry', %s,"
                                                        " 'ann', 'why')", [task for _, task in p]))
                check(late.blocked(), "the retries wait for the smaller digest")
                self.a.rows("SELECT 1 FROM effect WHERE digest = %s FOR NO KEY UPDATE NOWAIT", pairs[1][0])
            equal(late.ended(), [("retried", 2)], "and hold no other meanwhile")
            counts["races"] += 1
            self.clear()

    def a_retry_and_the_sweep_come_one_after_the_other(self):
        tool, incarnation = self.operated()
        # The sweep first: nothing is left to retry.
        task, call = self.failed(tool, incarnation, 1)
        week = week_of(task)
        self.move_clock("8 days")
        self.make_week()
        equal(self.a.retry(task)[0], "missing", "past its retention it is over, swept or not")
        with self.a.conn.transaction():
            self.a.one("SELECT sweep(%s, 1000)", week)
            late = Late(lambda: self.b.retry(task))
            check(late.blocked(), "a retry waits for the sweep")
        counts["races"] += 1
        equal(late.ended()[0], "missing", "and finds nothing")
        equal(self.a.accept(call)[0][0], "expired", "the tombstone stands")
        self.move_clock("0 days")
        # The retry first: the old one is swept, the effect stays with the successor.
        task, call = self.failed(tool, incarnation, 1)
        with self.a.conn.transaction():
            successor = self.a.retry(task)[1]
            late = Late(lambda: self.b.one("SELECT sweep(%s, 1000)", week))
            check(late.blocked(), "a sweep waits for the retry")
        late.ended()
        counts["races"] += 1
        equal(self.a.accept(call)[0][:2], ("same", successor), "the successor is live")
        self.move_clock("8 days")
        while self.a.one("SELECT sweep(%s, 1000)", week):
            pass
        equal(self.a.one("SELECT count(*) FROM task WHERE task = %s", task), 0, "the old is swept")
        equal(self.a.accept(call)[0][:2], ("same", successor), "its effect is no tombstone")
        equal(self.a.one("SELECT tombstone_until FROM effect WHERE task = %s", successor), None,
              "not even a hidden one")
        self.a.finish(self.a.claim(incarnation, tool)[0][:2])
        self.move_clock("16 days")
        while self.a.one("SELECT sweep(%s, 1000)", week_of(successor)):
            pass
        equal(self.a.accept(call)[0][0], "expired", "the successor's end makes the tombstone")
        self.move_clock("0 days")

    def a_pause_stops_a_task_at_its_next_place(self):
        tool, incarnation = self.operated()
        task = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0][1]
        equal([self.a.act("pause", task) for _ in range(2)], ["paused", "paused"], "a ready one at once")
        equal(self.a.one("SELECT count(*) FROM audit WHERE task = %s", task), 1, "one act, one row")
        equal(self.a.claim(incarnation, tool), [], "and it is not claimed")
        equal(self.a.poll(self.owner, task), "paused", "which is told")
        equal([self.a.act("resume", task) for _ in range(2)], ["resumed", "not_paused"], "resumed")
        claim = self.a.claim(incarnation, tool)[0][:2]
        equal([self.a.act("pause", task) for _ in range(2)], ["asked", "asked"], "a running one is asked")
        equal(self.a.rows("SELECT wish FROM beat_async(%s, false, 'worker', 4, 0, '{}', '{}', '{}',"
                          " '{}')", incarnation), [(1,)], "as for a park, at the next beat")
        equal(self.a.step((*claim, 0)), ["held"], "what it did is kept")
        self.a.release("back", claim)
        equal(self.a.rows("SELECT state, park, pause, phase, message FROM work WHERE task = %s", task),
              [("paused", False, "task", 1, None)], "then it is paused, not parked")
        equal(self.a.retry(task)[0], "due", "a retry lets it go on too")
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.act("pause", task)
        equal(self.a.act("resume", task), "resumed", "taken back before it stopped")
        self.a.release("back", claim)
        equal(self.a.poll(self.owner, task), "ready", "it goes on")
        # A pause outlives the worker's death, a hang-up and a plain client that comes back.
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.act("pause", task)
        equal(self.a.one("SELECT declare_dead(%s, (SELECT beat FROM worker WHERE incarnation = %s))",
                         incarnation, incarnation), True, "its worker dies")
        self.a.one("SELECT reclaim(10)")
        incarnation = self.new_worker()
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.release("back", claim)
        equal(self.a.poll(self.owner, task), "paused", "the next one is asked as well")
        equal(self.a.cancel(self.owner, task)[0], True, "it can be cancelled")
        equal(self.a.rows("SELECT state, cancel, pause FROM work WHERE task = %s", task),
              [("ready", True, None)], "and a worker settles what the dead one may have sent")
        equal(self.a.act("pause", task), "ending", "which no pause stops")
        self.clear()
        api = new_incarnation()
        call = (self.owner, tool, self.fresh(), "{}")
        task = self.a.accept(call, api=api, number=1)[0][1]
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.act("pause", task)
        self.a.accept(call, api=api, number=2)
        self.a.detach(task, api, 2, park=False)
        self.a.release("back", claim)
        equal(self.a.poll(self.owner, task), "paused", "a repeat does not take the wish away")
        self.a.accept(call, api=api, number=3)
        self.a.detach(task, api, 3)
        equal(self.a.poll(self.owner, task), "paused", "nor is it parked by a hang-up")

    def a_pause_outlives_what_nobody_can_tell(self):
        tool, incarnation = self.operated(("unsafe", "unsafe"))

        def unknown():
            """A task whose pause was asked for while its phase ran, which became unknown."""
            task = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0][1]
            claim = self.a.claim(incarnation, tool)[0][:2]
            equal((claim[0], self.a.act("pause", task)), (task, "asked"), "asked")
            self.a.release("unknown", claim, sent=True)
            equal(self.a.rows("SELECT w.state, v.due FROM work w JOIN waiting v USING (task) WHERE w.task = %s",
                              task), [("unknown", None)], "unknown, and due at no time")
            return task

        def stands(task):
            return self.a.rows("SELECT state, pause, park, phase FROM work WHERE task = %s", task)

        for verdict, phase in (("absent", 0), ("done", 1)):
            task = unknown()
            equal(self.a.settle(task, verdict), "settled", verdict)
            equal(stands(task), [("paused", "task", False, phase)], f"{verdict}: it is paused again")
            equal(self.a.claim(incarnation, tool), [], f"{verdict}: nothing is sent")
            equal(self.a.act("resume", task), "resumed", f"{verdict}: resumed")
            equal(self.a.claim(incarnation, tool)[0][::2][:2], (task, phase), f"{verdict}: and on")
            self.clear()
        task = unknown()
        equal([self.a.act("resume", task) for _ in range(2)], ["unknown", "not_paused"], "resumed meanwhile")
        self.a.settle(task, "absent")
        equal(stands(task), [("ready", None, False, 0)], "it goes on when settled")
        self.clear()
        task = unknown()
        self.a.cancel(self.owner, task)
        self.a.settle(task, "absent")
        equal(stands(task), [("ready", None, False, 0)], "a cancel goes before a pause")
        self.clear()
        task = unknown()
        self.a.settle(task, "fail")
        equal(self.a.poll(self.owner, task), "failed", "settled as failed it is over")

    def what_a_cancel_has_left_is_not_retried(self):
        tool, incarnation = self.operated(("keyed", "keyed", "pure", "keyed"))
        self.a.rows("UPDATE tool SET undos = '{0,1}', doc = (SELECT jsonb_set(jsonb_set(doc::jsonb,"
                    " '{phases,0,undo}', '{\"kind\":\"http\"}'), '{phases,1,undo}', '{\"kind\":\"http\"}')::text)"
                    " WHERE tool = %s RETURNING 1", tool)
        for undone, maybe, left in ((0, "maybe", "p0, p1 (its undo may have taken effect)"),
                                    (0, "no", "p0, p1"),
                                    (1, "maybe", "p0 (its undo may have taken effect)")):
            task = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0][1]
            claim = self.a.claim(incarnation, tool)[0][:2]
            for phase in range(3):
                self.a.step((*claim, phase))
            equal(self.a.cancel(self.owner, task), (True, True), "asked to stop")
            self.a.release("undo", claim)
            for phase in range(126, 126 + undone + 1):
                claim = self.a.claim(incarnation, tool)[0]
                equal(claim[2], phase, "an undo step")
                if phase < 126 + undone:
                    self.a.step((*claim[:2], phase))
                    self.a.release("back", claim[:2])
            check(self.a.fail(claim[:2], "attempts_exhausted", maybe), "which fails")
            equal([self.a.retry(task, phase)[0] for phase in (None, 2, 3)], ["undone"] * 3,
                  f"{undone} undone, {maybe}: it does not go forward")
            equal(self.a.one("SELECT left_standing(%s, %s)", week_of(task), task), left, "what stands")
        task, _ = self.failed(tool, incarnation, 1)
        equal(self.a.one("SELECT left_standing(%s, %s)", week_of(task), task), None, "nothing was cancelled")
        equal(self.a.retry(task)[0], "retried", "so it goes on")

    def an_intent_keeps_its_time_in_the_successor(self):
        tool, incarnation = self.operated(("pure", "unsafe"))
        call = (self.owner, tool, self.fresh(), "{}")
        task = self.a.accept(call)[0][1]
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.step((*claim, 0))
        equal(self.a.one("SELECT intent_put(%s, %s, %s, 1, 'letter')", week_of(task), *claim), "held", "held")
        sent = self.a.one("SELECT at FROM intent WHERE task = %s", task)
        self.a.rows("SELECT pg_sleep(0.05)")
        self.a.fail(claim, "attempts_exhausted", "maybe")
        for _ in range(2):
            task = self.a.retry(task)[1]
            equal(self.a.rows("SELECT phase, at FROM intent WHERE task = %s", task), [(1, sent)],
                  "as the first was sent")
            self.a.fail(self.a.claim(incarnation, tool)[0][:2], "attempts_exhausted", "maybe")

    def what_was_answered_is_kept_and_a_pause_outlives_a_question(self):
        tool, incarnation = self.operated(("pure", "pure"))

        def ask(claim, phase, key):
            return self.a.one("SELECT ask(%s, %s, %s, %s, %s, NULL, false, 'asks')",
                              week_of(claim[0]), claim[0], claim[1], phase,
                              json.dumps([{"key": key, "request": {}}]))

        def keys(task):
            return self.a.rows("SELECT key, how FROM inbox WHERE task = %s ORDER BY key", task)

        task = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0][1]
        for phase, key in ((0, "a"), (1, "b")):
            claim = self.a.claim(incarnation, tool)[0][:2]
            equal(ask(claim, phase, key), "waiting", "it waits")
            self.a.rows("SELECT * FROM answer(%s, %s, %s, %s)", week_of(task), self.owner, task,
                        json.dumps({key: 1}))
            if phase == 0:
                claim = self.a.claim(incarnation, tool)[0][:2]
                self.a.step((*claim, 0))
                self.a.release("back", claim)
        self.a.fail(self.a.claim(incarnation, tool)[0][:2])
        task = self.a.retry(task)[1]
        equal(keys(task), [("a", "answer"), ("b", "answer")], "answers came along")
        self.a.fail(self.a.claim(incarnation, tool)[0][:2])
        task = self.a.retry(task, 1)[1]
        equal(keys(task), [("a", "answer")], "a phase from its beginning asks again")
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.act("pause", task)
        ask(claim, 1, "b")
        equal(self.a.rows("SELECT state, pause, park FROM work WHERE task = %s", task),
              [("paused", "task", False)], "paused, with its question open")
        self.a.rows("SELECT * FROM answer(%s, %s, %s, %s)", week_of(task), self.owner, task, '{"b":2}')
        equal(self.a.poll(self.owner, task), "paused", "an answer does not resume it")
        self.a.act("resume", task)
        equal(self.a.claim(incarnation, tool)[0][0], task, "its operator does")

    def a_paused_tool_is_not_claimed_for(self):
        tool, incarnation = self.operated()
        other, _ = self.operated()
        name = self.a.one("SELECT name FROM tool WHERE tool = %s", tool)
        equal(self.a.one("SELECT pause_all('tool', 'nobody', 'ann', 'why')"), "missing", "no such tool")
        equal([self.a.one("SELECT pause_all('tool', %s, 'ann', 'why')", name) for _ in range(2)],
              ["paused", "already"], "paused once")
        got = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0]
        self.a.accept((self.owner, other, self.fresh(), "{}"))
        equal(got[0], "new", "calls are accepted")
        equal(self.a.rows("SELECT state, message FROM poll_task(%s, %s, %s)", week_of(got[1]),
                          [self.owner], [got[1]]), [("paused", "all work of this tool")], "and told")
        claims = self.a.rows("SELECT tool FROM claim(%s, %s, 9, gen_random_uuid())", incarnation,
                             [tool, other])
        equal(claims, [(other,)], "the other tool's work goes on")
        equal(self.a.one("SELECT serves FROM worker WHERE incarnation = %s", incarnation),
              [tool, other], "the worker's row says what it serves")
        self.a.one("SELECT resume_all('tool', %s, 'ann', 'why')", name)
        equal(self.a.claim(incarnation, tool)[0][0], got[1], "resumed")

    def a_paused_tenant_is_set_aside_and_nobody_starves(self):
        tool, incarnation = self.operated()
        bobs = [self.a.accept((self.other, tool, self.fresh(), "{}"))[0][1] for _ in range(30)]
        equal(self.a.one("SELECT pause_all('tenant', 'B', 'ann', 'why')"), "paused", "paused")
        alices = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0][1]
        equal(self.a.poll(self.other, bobs[0]), "paused", "told at once")
        equal([row[0] for row in self.a.claim(incarnation, tool, 5)], [alices],
              "behind thirty of a paused tenant another's is found")
        page = 0
        while page := self.a.one("SELECT pause_pages(%s, 8)", page):
            pass
        equal(self.a.one("SELECT count(*) FROM work WHERE state = 'paused' AND pause = 'tenant'"), 30,
              "all are set aside")
        equal(self.a.act("resume", bobs[0]), "tenant", "one of them alone is not resumed")
        # A claim that has set one aside and not committed holds the resume, which then finds it.
        late_one = self.a.accept((self.other, tool, self.fresh(), "{}"))[0][1]
        with self.a.conn.transaction():
            equal(self.a.claim(incarnation, tool, 5), [], "nothing is claimed")
            late = Late(lambda: self.b.one("SELECT resume_all('tenant', 'B', 'ann', 'why')"))
            check(late.blocked(), "a resume waits for a claim that is setting aside")
        counts["races"] += 1
        equal(late.ended(), "resumed", "resumed")
        while self.a.one("SELECT resume_tenant('B', 7)"):
            pass
        got = {row[0] for row in self.a.claim(incarnation, tool, 100)}
        equal(got, {*bobs, late_one}, "all of them are due again")

    def filters_find_what_they_say(self):
        tool, incarnation = self.operated()
        name = self.a.one("SELECT name FROM tool WHERE tool = %s", tool)
        tasks = [self.failed(tool, incarnation, 1)[0] for _ in range(5)]
        pick = "SELECT p FROM pick(%s, %s, %s, %s, %s, %s) p"

        def found(state="failed", tenant=None, older=0, after=b"", most=100):
            return [row[0] for row in self.a.rows(pick, state, name, tenant, older, after, most)]

        equal(found(), tasks, "the failed ones, in order")
        equal(found(most=2), tasks[:2], "some of them")
        equal(found(after=tasks[1]), tasks[2:], "behind one")
        equal(found(tenant="B"), [], "of a tenant")
        equal(found(older=3_600_000), [], "none is older")
        equal(self.a.rows("SELECT * FROM operate('retry', %s, 'ann', 'why')", tasks[:3]),
              [("retried", 3)], "three are retried")
        equal(found(), tasks[3:], "what has a successor is over")
        ready = found("ready")
        equal(len(ready), 3, "their successors are ready")
        equal(self.a.rows("SELECT * FROM operate('pause', %s, 'ann', 'why')", [*ready, tasks[4]]),
              [("paused", 3), ("missing", 1)], "paused")
        equal(found("paused"), ready, "and found as such")
        equal(self.a.rows("SELECT * FROM operate('cancel', %s, 'ann', 'why')", ready),
              [("cancelled", 3)], "cancelled")


if __name__ == "__main__":
    Tests().run()
    rig.finish("store_operate", counts)
