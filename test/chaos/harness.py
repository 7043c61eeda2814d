"""One run: a world, its clients and its operator, the faults one after the other, the drain and its
measure, the checks."""

import json
import threading
import time

import patience
import rig
import shapes
import story
import truth
import wide
import world
from checker import Checker
from faults import LANES, Faults, PROXIED, WANTED
from load import Caller, Journal, Task
from plain import PlainCaller
from settler import Operator

CALLERS = 4
PLAIN_CALLERS = 2
# What a task may take at most after the last fault, beside its own work: a claim that is lost
# twice, and what may be waited for in turn: a connection of the API to Postgres for who comes back,
# one of the worker (DB_BACKOFF_MAX_MS in runtime/db.h each), and the second that a 409 asks for, or
# until mail can be read back.
RETRY_CAP_MS = 2 * 2_000 + 1_000
GIVE_UP_S = 30          # a drain that takes longer will not end
STORIES_MAX = 3
MISSES_MAX = 50         # of a fault in a row
LOOK_EVERY = 20         # faults between two looks at the oracle
SHOW_EVERY = 25         # faults between two open tasks that are shown
YARDSTICK_MIN = 8       # tasks


def order_of(kinds, count, dice):
    """Even over the kinds, mixed."""
    order = [kinds[number % len(kinds)] for number in range(count)]
    dice.shuffle(order)
    return order


class Run:
    def __init__(self, kinds, count, seed, until_red=False, quiet=False):
        self.kinds, self.count, self.seed = kinds, count, seed
        self.until_red, self.quiet = until_red, quiet
        self.findings = world.Findings()
        self.began = time.monotonic()
        self.red = False  # and nothing more is wanted
        self.drain_ms = self.drain_limit_ms = self.yardstick_ms = 0
        self.shown = {}

    def say(self, text):
        if not self.quiet:
            print(f"[{time.monotonic() - self.began:7.1f} s] {text}", flush=True)

    def go(self):
        """The summary."""
        proxied = bool(PROXIED & set(self.kinds))
        kind_of_world = wide.world_of(self.kinds) or world.World
        self.stack = kind_of_world(self.findings, through_proxy=proxied)
        self.journal = Journal(self.stack.folder / "journal.jsonl", self.findings)
        self.callers = [Caller(self.stack, self.journal, self.seed, n) for n in range(CALLERS)]
        self.plain = [PlainCaller(self.stack, self.journal, self.seed, n)
                      for n in range(PLAIN_CALLERS)]
        self.operator = Operator(self.stack, self.journal, self.findings, self.seed)
        self.threads = [*self.callers, *self.plain, self.operator]
        self.faults = Faults(self.stack, self.journal, self.callers + self.plain, self.findings,
                             self.seed)
        for thread in self.threads:
            thread.start()
        rig.until(self.stack.running, 20, "work is under way")
        self.say(f"up: {', '.join(sorted(set(self.kinds)))}, {self.count} in all, "
                 f"seed {self.seed}")
        self.break_things()
        broke = time.monotonic()
        if not self.red:
            self.drain()
        self.end_callers()
        drained = time.monotonic()
        self.say("drained")
        checker = (self.stack.CHECKER or Checker)(self.stack, self.journal, self.findings, self.operator)
        counts = checker.oracle_alone() if self.red else checker.check()
        if not self.red:
            self.shown = truth.Truth(checker).check(self.faults.hits, world.dice(self.seed, "show"))
        self.journal.file.close()
        self.tell_stories()
        summary = self.summary(counts, broke - self.began, drained - broke)
        self.stack.stop()
        return summary

    # --- faults ---

    def break_things(self):
        """In as many lanes as all of these kinds allow, each taking the next of one order."""
        self.order = iter(order_of(self.kinds, self.count, world.dice(self.seed, "order")))
        self.number, self.misses, self.said = 0, 0, time.monotonic()
        self.lane_lock, self.enough = threading.Lock(), False
        lanes = min(LANES.get(kind, 1) for kind in self.kinds)
        rig.in_parallel(lambda _: self.lane(), list(range(lanes)))

    def lane(self):
        while not self.enough:
            with self.lane_lock:
                kind = next(self.order, None)
                self.number += 1
                number = self.number
            if kind is None:
                return
            while not self.faults.inject(kind) and not self.enough:
                self.misses += 1
                if self.misses > MISSES_MAX:
                    self.findings.add("harness", f"{kind} cannot be injected")
                    self.enough = True
            self.misses = 0
            with self.lane_lock:
                self.enough = self.enough or self.look(number)

    def look(self, number):
        """After a fault; whether the run is to end."""
        if number % LOOK_EVERY == 0 and self.stack.ask("SELECT 1 FROM chaos.finding LIMIT 1"):
            self.say("the oracle has found something")
            self.red = self.until_red
        self.look_for_loss()
        if self.until_red and len(self.findings):
            self.red = True
        errors = [repr(thread.error) for thread in self.threads if thread.error]
        if errors:
            self.findings.add("harness", f"a client of the harness ended: {errors}")
        if number % SHOW_EVERY == 0:
            truth.look_at_open(self.stack, self.findings)
        if time.monotonic() - self.said > 15:
            self.said = time.monotonic()
            self.say(f"{number} faults, {len(self.journal.tasks)} tasks, "
                     f"{len(self.findings)} violations")
        return self.red or bool(errors)

    def look_for_loss(self):
        """Nothing here is restored: a store that stands still has lost what was acknowledged."""
        if self.stack.MAY_STAND_STILL:
            return
        held = self.stack.ask("SELECT held FROM holdfast.cluster WHERE held IS NOT NULL")
        if held:
            self.findings.add("V2", f"the store stands still: {held[0][0]}")
            self.enough = True

    # --- the drain ---

    def drain(self):
        """Everything accepted ends within twice the lease and the retry cap after the last fault,
        beside its own work; what that takes here is measured on the same work without faults."""
        last_fault = max(time.time(), self.faults.over_at)
        was_open = 0
        for caller in self.callers + self.plain:
            caller.accepting = False
            was_open += len(caller.open) + len(caller.inbox)
        if not self.wait_for_all():
            left = [task.handle or task.effect_id for caller in self.callers + self.plain
                    for task in caller.open]
            self.findings.add("V9", f"{len(left)} tasks do not end in {GIVE_UP_S} s", left=left[:5])
        self.yardstick(max(was_open, YARDSTICK_MIN))
        self.drain_limit_ms = 2 * world.LEASE_MS + RETRY_CAP_MS + self.yardstick_ms
        settled = {one["task"] for one in self.operator.settles if one["at"] > last_fault - 5}
        by_handle = {task.handle: task for task in self.journal.tasks.values()}
        for task, at in self.stack.query("SELECT task, extract(epoch FROM at)::float8 "
                                         "FROM chaos.ended"):
            handle = rig.task_text(task)
            mine = by_handle.get(handle)
            if at < last_fault or mine is None or mine.yardstick or handle in settled:
                continue  # what a person settles waits for the person
            # What is parked goes on when its client is back.
            took = int(patience.between(max(last_fault, mine.returned_at), at) * 1000)
            if shapes.is_slow(mine.tool):
                took -= mine.arguments["slow_ms"]
            self.drain_ms = max(self.drain_ms, took)
            if took > self.drain_limit_ms:
                self.findings.add("V9", f"ended {took} ms after the last fault",
                                  limit=self.drain_limit_ms, task=handle, tool=mine.tool)

    def wait_for_all(self, seconds=GIVE_UP_S):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not any(one.open or one.inbox for one in self.callers + self.plain):
                return True
            self.stack.look_for_dead()
            time.sleep(0.02)
        return False

    def yardstick(self, count):
        began = time.time()
        tools = ["chaos_three", "chaos_eight", "chaos_one", "chaos_again"]
        for number in range(count):
            task = Task(tools[number % len(tools)], {"effect_id": f"yard-{number}", "n": number,
                                                     "ms": number % 20, "slow_ms": 0})
            task.yardstick = True
            self.callers[number % CALLERS].inbox.append(self.journal.add(task))
        time.sleep(0.05)
        if not self.wait_for_all():
            self.findings.add("V9", "tasks without a fault do not end")
        rows = self.stack.query("SELECT max(extract(epoch FROM at))::float8 FROM chaos.ended")
        self.yardstick_ms = max(0, int((rows[0][0] - began) * 1000))

    def end_callers(self):
        for thread in self.threads:
            thread.stopping = True
        for thread in self.threads:
            thread.join(25)

    def tell_stories(self):
        """Of the first tasks that went wrong: a red run need not be run again to be read."""
        told = set()
        for one in self.findings.items:
            handle = one.get("task", "None")
            if handle.startswith("tsk_") and handle not in told and len(told) < STORIES_MAX:
                told.add(handle)
                story.tell(self.stack, handle, one.get("effect_id"))

    def summary(self, counts, broke_s, drained_s):
        unhit = self.faults.unhit()
        counts = {name: counts[name] for name in sorted(counts)}
        for caller in self.plain:
            for name, count in caller.counts.items():
                counts[f"plain {name}"] = counts.get(f"plain {name}", 0) + count
        counts["operator looked"], counts["operator refused"] = (self.operator.looked,
                                                                 self.operator.refused)
        return {
            "test": "chaos", "passed": sum(self.faults.counts.values()),
            "failed": len(self.findings) + len(unhit), "seed": self.seed,
            "faults": dict(self.faults.counts),
            "cells": {kind: dict(sorted(cells.items()))
                      for kind, cells in sorted(self.faults.cells.items())},
            "tasks": counts.pop("tasks", 0), "effects": counts.pop("effects", 0), "counts": counts,
            "told": self.journal.lines, "shown": self.shown, "measured": self.faults.measured,
            "break_s": round(broke_s, 1), "drain_s": round(drained_s, 1), "drain_ms": self.drain_ms,
            "drain_limit_ms": self.drain_limit_ms, "yardstick_ms": self.yardstick_ms,
            "violations": self.findings.items, "more_violations": self.findings.dropped,
            "unhit": unhit}


def run(kinds, count, seed, **more):
    """Runs; the summary. Unknown kinds are a ValueError."""
    unknown = [kind for kind in kinds if kind not in WANTED]
    if unknown:
        raise ValueError(f"no fault {', '.join(unknown)}; there are {', '.join(WANTED)}")
    return Run(kinds, count, seed, **more).go()


def report(summary):
    print(json.dumps(summary, default=str), flush=True)
    return 1 if summary["violations"] or summary["unhit"] else 0
