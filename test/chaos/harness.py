"""One run: a world, its clients, the faults one after the other, the drain, the checks."""

import json
import time

import rig
import shapes
import story
import world
from checker import Checker
from faults import Faults, PROXIED, WANTED
from load import Caller, Journal

CALLERS = 4
# What a task may take at most to go on after the last fault: a claim that is lost twice, and the
# longest wait of anybody who tries again (a connection to Postgres, the tools' own backoff, the
# second that a 409 asks for).
RETRY_CAP_MS = 2_000
# On top, for the work itself on a busy machine: what is open then is run, eight phases each.
WORK_MS = 8_000
GIVE_UP_S = 30          # a drain that takes longer will not end
STORIES_MAX = 3
MISSES_MAX = 50         # of a fault in a row
LOOK_EVERY = 20         # faults between two looks at the oracle


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
        self.drain_ms = self.drain_limit_ms = 0

    def say(self, text):
        if not self.quiet:
            print(f"[{time.monotonic() - self.began:7.1f} s] {text}", flush=True)

    def go(self):
        """The summary."""
        proxied = bool(PROXIED & set(self.kinds))
        self.stack = world.World(self.findings, through_proxy=proxied)
        self.stack.refusals = 0
        self.journal = Journal(self.stack.folder / "journal.jsonl", self.findings)
        self.callers = [Caller(self.stack, self.journal, self.seed, n) for n in range(CALLERS)]
        self.faults = Faults(self.stack, self.journal, self.callers, self.findings, self.seed)
        for caller in self.callers:
            caller.start()
        rig.until(self.stack.running, 20, "work is under way")
        self.say(f"up: {', '.join(self.kinds)}, {self.count} in all, seed {self.seed}")
        self.break_things()
        broke = time.monotonic()
        if not self.red:
            self.drain()
        self.end_callers()
        drained = time.monotonic()
        self.say("drained")
        checker = Checker(self.stack, self.journal, self.findings)
        counts = checker.oracle_alone() if self.red else checker.check()
        self.journal.file.close()
        self.tell_stories()
        summary = self.summary(counts, broke - self.began, drained - broke)
        self.stack.stop()
        return summary

    def break_things(self):
        misses, said = 0, time.monotonic()
        for number, kind in enumerate(order_of(self.kinds, self.count,
                                               world.dice(self.seed, "order"))):
            while not self.faults.inject(kind):
                misses += 1
                if misses > MISSES_MAX:
                    self.findings.add("harness", f"{kind} cannot be injected")
                    return
            misses = 0
            self.stack.refusals = self.faults.refusals
            if number % LOOK_EVERY == 0 and self.stack.ask("SELECT 1 FROM chaos.finding LIMIT 1"):
                self.say("the oracle has found something")
                if self.until_red:
                    self.red = True
                    return
            if self.until_red and len(self.findings):
                self.red = True
                return
            if any(caller.error for caller in self.callers):
                self.findings.add("harness", repr([caller.error for caller in self.callers]))
                return
            if time.monotonic() - said > 15:
                said = time.monotonic()
                self.say(f"{number + 1} faults, {len(self.journal.tasks)} tasks, "
                         f"{len(self.findings)} violations")

    def drain(self):
        for caller in self.callers:
            caller.accepting = False
        end = time.monotonic() + GIVE_UP_S
        slow = max(shapes.BRIEF_SLOW_MS) / 1000
        began = time.monotonic()
        while time.monotonic() < end and any(one.open or one.inbox for one in self.callers):
            self.stack.look_for_dead()
            time.sleep(0.02)
        self.drain_ms = int((time.monotonic() - began) * 1000)
        self.drain_limit_ms = 2 * world.LEASE_MS + RETRY_CAP_MS + WORK_MS + int(slow * 1000)
        if self.drain_ms > self.drain_limit_ms:
            self.findings.add("V9", f"the drain took {self.drain_ms} ms", limit=self.drain_limit_ms)

    def end_callers(self):
        for caller in self.callers:
            caller.stopping = True
        for caller in self.callers:
            caller.join(15)

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
        shown = dict(sorted(counts.items()))
        return {
            "test": "chaos", "passed": sum(self.faults.counts.values()),
            "failed": len(self.findings) + len(unhit), "seed": self.seed,
            "faults": dict(self.faults.counts),
            "cells": {kind: dict(sorted(cells.items()))
                      for kind, cells in sorted(self.faults.cells.items())},
            "tasks": shown.pop("tasks", 0), "effects": shown.pop("effects", 0), "counts": shown,
            "told": self.journal.lines, "break_s": round(broke_s, 1),
            "drain_ms": self.drain_ms, "drain_limit_ms": self.drain_limit_ms,
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
