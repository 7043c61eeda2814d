#!/usr/bin/python3
"""Retention at work (rule 15, F23): the sweep races repeats, polls and retries at the very end of
each task's retention, and no answer contradicts another; tombstones answer until their time and not
after; a week that one open task pins is emptied and kept; a clock that leapt sweeps nothing."""

import os
import random
import subprocess
import threading
import time

from sql_rig import Bench, Store, digest, rig, week_of
from rig import check, equal, until

RACES, RACES_MAX = 1_000, 5_000
RACES_MIN = {"races": RACES, "same_then_expired": RACES // 10, "polled_then_gone": RACES // 10,
             "retried": 50, "too_late": 50, "swept": RACES // 2}
BATCH = 50              # tasks whose retention ends in the same moment
TTL_MS = 300            # of those
SPREAD_MS = 100         # within which they end
counts = {"races": 0, "same_then_expired": 0, "polled_then_gone": 0, "retried": 0, "too_late": 0,
          "swept": 0, "weeks_dropped": 0}
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


class Race:
    """One task at the end of its retention, and every answer about it, by when it was begun."""

    def __init__(self, call, task):
        self.call, self.task = call, task
        self.over_at = 0.0  # about; the store's clock decides
        self.repeats, self.polls, self.retries = [], [], []

    def judge(self, store):
        order = [outcome for _, _, outcome, _ in sorted(self.repeats)]
        equal({task for _, _, outcome, task in self.repeats if outcome == "same"} <= {
            self.task, self.successor()}, True, "a repeat names the task or its successor")
        check("new" not in order and "conflict" not in order, "a repeat is never a new call", order)
        # An answer that came before another was asked for is not taken back by it.
        gone = [end for _, end, outcome, _ in self.repeats if outcome == "expired"]
        late = [begin for begin, _, outcome, _ in self.repeats if outcome == "same"]
        check(not gone or not late or self.successor() or max(late) <= min(gone),
              "what is expired stays so", order)
        unseen = [end for _, end, state in self.polls if state is None]
        seen = [begin for begin, _, state in self.polls if state is not None]
        check(not unseen or not seen or max(seen) <= min(unseen), "what is gone stays gone")
        counts["same_then_expired"] += bool(gone and late)
        counts["polled_then_gone"] += bool(unseen and seen)
        self.judge_retry(store)

    def successor(self):
        return next((successor for _, _, answer, successor in self.retries
                     if answer == "retried"), None)

    def judge_retry(self, store):
        answers = [answer for _, _, answer, _ in sorted(self.retries)]
        check(set(answers) <= {"retried", "successor", "missing"}, "a retry has an answer", answers)
        check(answers.count("retried") <= 1, "there is one successor", answers)
        newest, until_ = store.rows("SELECT task, tombstone_until FROM effect WHERE digest = %s",
                                    digest("/".join(map(str, self.call[:3])))[:16])[0]
        successor = self.successor()
        if successor:
            counts["retried"] += 1
            equal((newest, until_), (successor, None), "the effect is the successor's")
            equal(store.poll(self.call[0], successor), "ready", "which is open")
        else:
            counts["too_late"] += 1
            equal((newest, until_ is not None), (self.task, True), "the effect is a tombstone")
        for table in ("task", "step", "event", "work"):
            equal(store.one(f"SELECT count(*) FROM {table} WHERE task = %s", self.task), 0,
                  f"nothing of it is left in {table}")


class Retention(Bench):
    def begin(self):
        super().begin()
        self.worker = self.new_worker()
        self.stores = [Store(self.cluster) for _ in range(8)]

    def ended_tasks(self):
        """Failed ones, so that an operator may retry them, which end by and by."""
        calls = [(self.owner, self.tool, self.fresh(), "{}") for _ in range(BATCH)]
        races = [Race(call, row[1]) for call, row in zip(calls, self.a.accept(*calls))]
        for claim in self.a.claim(self.worker, self.tool, BATCH):
            check(self.a.fail(claim[:2]), "it fails")
        now = time.monotonic()
        for number, race in enumerate(races):
            race.over_at = now + (TTL_MS + number * SPREAD_MS / BATCH) / 1000
        self.a.conn.execute(
            "UPDATE task t SET result_ttl_ms = to_ms(now_()) - to_ms(s.at) + u.left_ms"
            " FROM unnest(%s::bytea[], %s::int[]) u (task, left_ms) JOIN step s USING (task)"
            " WHERE t.task = u.task AND s.place = 2147483647",
            ([race.task for race in races],
             [int((race.over_at - now) * 1000) for race in races]))
        return races

    def batch(self):
        races = self.ended_tasks()
        week, over = week_of(races[0].task), threading.Event()
        deadline = time.monotonic() + 20

        def going():
            return not over.is_set() and time.monotonic() < deadline

        def repeat(store):
            while going():
                race = random.choice(races)
                began = time.monotonic()
                outcome, task = store.accept(race.call)[0][:2]
                race.repeats.append((began, time.monotonic(), outcome, task))

        def poll(store):
            while going():
                race = random.choice(races)
                began = time.monotonic()
                state = store.poll(self.owner, race.task)
                race.polls.append((began, time.monotonic(), state))

        def retry(store):
            """Of half of them, each once, about when its retention ends."""
            at = [(race.over_at - random.choice((0.2, 0.05, 0.02, 0.01, 0)), race)
                  for race in races[1::2]]
            for due, race in sorted(at, key=lambda one: one[0]):
                time.sleep(max(0, due - time.monotonic()))
                began = time.monotonic()
                race.retries.append((began, time.monotonic(), *store.retry(race.task)))

        def sweep(store):
            left = len(races)
            while left > 0 and time.monotonic() < deadline:
                swept = store.one("SELECT sweep(%s, 7)", week)
                counts["swept"] += swept
                time.sleep(0.003)  # else a retry waits for its lock of the week for ever
                left = store.one("SELECT count(*) FROM task WHERE task = ANY (%s)",
                                 [race.task for race in races])
            time.sleep(0.02)
            over.set()

        work = [repeat, repeat, repeat, poll, poll, retry, sweep, sweep]
        rig.in_parallel(lambda one: one[0](one[1]), list(zip(work, self.stores)))
        for race in races:
            race.judge(self.a)
        counts["races"] += len(races)
        self.clear()

    def pass_over_tombstones(self):
        for part in range(16):
            page = 0
            while True:
                page = self.a.one("SELECT sweep_tombstones(%s, %s, 1)", part, page)
                if page == 0:
                    break

    def maintain(self, more=None):
        """Maintenance that leads."""
        led = self.log().count("maintenance leads")
        # Its log is its last words, too.
        log = open(self.folder / "maintain.log", "ab")
        process = subprocess.Popen([rig.HOLDFAST, "maintain", "--maintain-ms", "50"], stdout=log,
                                   stderr=log, env={**os.environ,
                                                    "HOLDFAST_MAINTAIN_DSN":
                                                        self.cluster.dsn(user="holdfast_maintain"),
                                                    **(more or {})})
        until(lambda: self.log().count("maintenance leads") > led, 30, "maintenance leads")
        return process

    def log(self):
        path = self.folder / "maintain.log"
        return path.read_text() if path.exists() else ""

    def old_week(self, weeks, open_tasks):
        """A week that far back, with ended tasks and some that are open; (week, open ones)."""
        self.move_clock(f"-{7 * weeks} days")
        self.make_week()
        week = self.a.one("SELECT week_of(to_ms(now_()))")
        self.a.conn.execute(f"CREATE TABLE IF NOT EXISTS inbox_w{week} PARTITION OF inbox"
                            f" FOR VALUES FROM ({week}) TO ({week + 1})")
        for _ in range(30):
            self.new_task()
        for claim in self.a.claim(self.worker, self.tool, 30):
            self.a.finish(claim[:2])
        left = [self.new_task() for _ in range(open_tasks)]
        self.a.conn.execute("UPDATE work SET deadline = now_() + interval '1000 days', held = true")
        self.move_clock("0 days")
        return week, left

    def end(self, process):
        process.terminate()
        equal(process.wait(30), 0, "maintenance ends")


class Tests(Retention):
    def no_answer_contradicts_another(self):
        """As many as are asked for, and more until each way of one has come often enough."""
        while (counts["races"] < RACES_MAX and
               any(counts[name] < least for name, least in RACES_MIN.items())):
            self.batch()

    def tombstones_end_page_by_page(self):
        """All of the races' effects, past their time, in one pass over all partitions."""
        self.a.conn.execute("UPDATE effect SET tombstone_until = now_() + interval '1 hour'"
                            " WHERE tombstone_until IS NOT NULL")
        before = self.a.one("SELECT count(*) FROM effect")
        self.pass_over_tombstones()
        equal(self.a.one("SELECT count(*) FROM effect"), before, "none goes before its time")
        living = self.a.one("SELECT count(*) FROM effect WHERE tombstone_until IS NULL")
        self.a.conn.execute("UPDATE effect SET tombstone_until = now_() - interval '1 second'"
                            " WHERE tombstone_until IS NOT NULL")
        self.pass_over_tombstones()
        equal(self.a.one("SELECT count(*) FROM effect"), living, "all go past it, no other does")

    def a_pinned_week_is_emptied_and_kept(self):
        (free, _), (pinned, left) = self.old_week(6, 0), self.old_week(5, 1)
        process = self.maintain()
        weeks = "SELECT week FROM week WHERE week = ANY (%s) ORDER BY week"
        until(lambda: self.a.rows(weeks, [free, pinned]) == [(pinned,)], 60,
              "the week that nothing pins is dropped, the other one stays")
        counts["weeks_dropped"] += 1
        equal(self.a.one("SELECT to_regclass(%s)", f"holdfast.task_w{free}"), None,
              "with its tables")
        until(lambda: self.a.rows("SELECT task FROM task WHERE week = %s", pinned) ==
              [(left[0],)], 30, "of the pinned week the expired rows are deleted")
        equal(self.a.poll(self.owner, left[0]), "ready", "the open task is there")
        self.a.beat(self.worker, True)
        claim = self.a.claim(self.worker, self.tool)[0]
        equal(self.a.finish(claim[:2]), ["held"], "and ends as any other")
        time.sleep(12)  # two slow rounds
        equal(self.a.poll(self.owner, left[0]), "completed", "its retention counts from its end")
        self.a.conn.execute("UPDATE task SET result_ttl_ms = 1 WHERE task = %s", (left[0],))
        until(lambda: self.a.rows(weeks, [free, pinned]) == [], 60, "then its week goes")
        counts["weeks_dropped"] += 1
        self.end(process)

    def a_leap_of_the_clock_sweeps_nothing(self):
        """In both orders: seen while it runs, and before it began."""
        task = self.new_task()
        self.a.beat(self.worker, True)
        claim = self.a.claim(self.worker, self.tool)[0]
        self.a.finish(claim[:2])
        kept = "SELECT count(*) FROM task WHERE task = %s"
        process = self.maintain()
        time.sleep(6)  # it has seen the clock
        self.move_clock("30 days")
        until(lambda: "clock leapt" in self.log(), 30, "it says that the clock leapt")
        time.sleep(6)
        equal(self.a.one(kept, task), 1, "nothing is swept")
        self.end(process)
        # One that begins then knows the clock of its own machine, here a month behind.
        process = self.maintain({"LD_PRELOAD": FAKETIME, "FAKETIME": "-30d",
                                 "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
        until(lambda: "a day ahead of this machine's" in self.log(), 30, "it says so as well")
        time.sleep(6)
        equal(self.a.one(kept, task), 1, "and sweeps nothing")
        self.move_clock("0 days")
        self.end(process)
        equal(self.a.poll(self.owner, task), "completed", "the result is there when time is right")


if __name__ == "__main__":
    Tests().run()
    rig.finish("retention", counts, {**RACES_MIN, "weeks_dropped": 2})
