"""F1 and F2: a worker is killed at each point of a task's way, and an API process at each point of
what it is asked, by killat.c: for n = 1, 2, … until the task, or the answer, is there before point
n. For each shape of a task and each kind of request; after each kill all must go on as if nothing
had been, and at the end the checker sees every task of it."""

import collections
import mmap
import os
import pathlib
import struct
import subprocess
import tempfile
import time

import rig
import shapes
import truth
import world
from checker import Checker
from load import Caller, Journal, Task
from plain import PlainCaller
from settler import Operator

HERE = pathlib.Path(__file__).resolve().parent
# Each point waits for the lease. Beats are rare, as each is some points that lead nowhere.
LEASE_MS = 100
SETTINGS = {"api": {"beat_ms": 45},
            "worker": {"beat_ms": 45, "lease_ms": LEASE_MS, "poll_ms": 500,
                       "cancel_grace_ms": 2000},
            "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}}
VISIBLE_WITHIN_MS = 500  # of mail here: no fault makes it late, a busy machine may
QUIET_S = 0.1            # nor a request late
PAGE = struct.Struct("<III20s")
DISARM_S = 0.01         # in which a call that was armed is over
TASK_S_MAX = 60         # a call that the library lost is missed after DB_ANSWER_MS (runtime/db.h)
THROUGH = 2             # runs in a row that no point stopped: the sweep is over
POINTS_MAX = 2_000      # a sweep that is still not at its end is broken
# In lanes, each with a world of its own, as most of the time is waiting: shapes of tasks for the
# worker, then requests to the API. A long one is shared: (name, first point, step).
LANES = [[("chaos_eight", 1, 2), ("chaos_one", 1, 1), ("submit", 1, 1), ("get", 1, 1)],
         [("chaos_eight", 2, 2), ("chaos_error", 1, 1), ("cancel_request", 1, 1)],
         [("chaos_three", 1, 1), ("chaos_cancel", 1, 1), ("unknown", 1, 1), ("plain", 1, 1)]]
SHAPES = ("chaos_one", "chaos_three", "chaos_eight", "chaos_error", "chaos_cancel", "unknown")
# Fewer points than this, and a sweep has not seen what it is for.
POINTS_MIN = {"chaos_one": 12, "chaos_three": 25, "chaos_eight": 60, "chaos_error": 15,
              "chaos_cancel": 25, "unknown": 12, "submit": 6, "get": 6, "cancel_request": 6,
              "plain": 6}


class Trap:
    """The page that arms killat.c in one process."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.truncate(mmap.PAGESIZE)
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def arm(self, point):
        """Forgets the last; 0 arms nothing."""
        self.page[:PAGE.size] = PAGE.pack(0, 0, 0, b"")
        self.page[:4] = struct.pack("<I", point)
        self.point = point

    def disarm(self):
        """Nothing dies after it; what died before is still to be read."""
        self.page[:4] = struct.pack("<I", 0)
        time.sleep(DISARM_S)

    def died(self):
        """The call that the process died at, or None."""
        _, _, died, where = PAGE.unpack(self.page[:PAGE.size])
        return where.rstrip(b"\0").decode() if died else None


class Lane:
    SHIM = "killat"
    POINTS_MAX = POINTS_MAX

    def __init__(self, number, seed, findings, folder, schedule):
        self.findings, self.schedule = findings, schedule
        self.traps = {name: Trap(folder / f"trap-{number}-{name}") for name in ("worker-1", "api-1")}
        environments = {name: {"LD_PRELOAD": str(folder / f"{self.SHIM}.so"), "KILLAT": str(trap.path)}
                        for name, trap in self.traps.items()}
        self.stack = world.World(findings, workers=1, apis=1, settings=SETTINGS,
                                 environments=environments)
        self.journal = Journal(self.stack.folder / "journal.jsonl", findings)
        seed = f"{seed}.{number}"
        self.caller = Caller(self.stack, self.journal, seed, 0)
        self.plain = PlainCaller(self.stack, self.journal, seed, 0)
        self.operator = Operator(self.stack, self.journal, findings, seed, QUIET_S)
        self.dice = world.dice(seed, "points")
        self.tasks = []
        self.points = collections.Counter()                         # sweep -> points
        self.calls = collections.defaultdict(collections.Counter)   # sweep -> call died at -> times
        self.number = 0

    def run(self):
        self.operator.start()
        for name, first, step in self.schedule:
            self.sweep(name, first, step)
        for task in self.tasks:
            self.end_of(task)
        self.operator.stopping = True
        self.operator.join(20)
        checker = Checker(self.stack, self.journal, self.findings, self.operator)
        counts = checker.check()
        hit = {"points": [task for task in self.tasks if not task.plain]}
        counts["shown"] = sum(truth.Truth(checker).check(hit, self.dice).values())
        self.journal.file.close()
        self.stack.stop()
        return counts

    def sweep(self, name, first, step):
        process = self.stack.workers[0] if name in SHAPES else self.stack.apis[0]
        trap = self.traps[process.name]
        began = time.monotonic()
        through = 0
        for point in range(first, self.POINTS_MAX, step):
            died = getattr(self, f"do_{name}", self.do_shape)(name, process, trap, point)
            if died:
                self.points[name] += 1
                self.calls[name][died] += 1
                through = 0
                continue
            # No two runs are the same: one may have been short.
            through += 1
            if through == THROUGH:
                print(f"{name}: {self.points[name]} points, {time.monotonic() - began:.1f} s",
                      flush=True)
                return
        self.findings.add("harness", f"the sweep of {name} does not end")

    def new_task(self, tool):
        self.number += 1
        task = self.journal.add(Task(tool, {"effect_id": f"{tool}-{self.number}", "n": self.number,
                                            "ms": 0, "slow_ms": 5}))
        self.tasks.append(task)
        return task

    def revive(self, process, trap):
        """The call at whose point it died, once it is started again; None while it lives."""
        died = trap.died()
        if died is None:
            if process.alive():
                return None
            died = trap.died()  # or it died between the two looks
        if died is None:
            self.stack.downed.discard(process)
            self.stack.look_for_dead()  # says so
            return None
        process.popen.wait()
        trap.arm(0)
        self.stack.begin(process)
        if process is self.stack.apis[0]:
            rig.until(lambda: self.stack.ready(process), 20, "the API is up again", 0.005)
        return died

    # --- the worker, at a task of each shape ---

    def do_shape(self, tool, process, trap, point):
        task, died = self.new_task(tool), None
        task.arguments["slow_ms"] = 60
        self.stack.downed.add(process)
        trap.arm(point)
        end = time.monotonic() + TASK_S_MAX
        while not task.over and time.monotonic() < end:
            self.caller.poll(task) if task.handle else self.caller.call(task)
            if tool == "chaos_cancel" and not task.cancelled and "slow1" in task.message:
                self.caller.cancel(task)  # with two phases done, in the third
            died = self.revive(process, trap) or died
            time.sleep(0.002)
        trap.disarm()
        died = self.revive(process, trap) or died
        if not task.over:
            self.findings.add("V9", f"{tool} killed at point {point} does not end", task=task.handle)
        return died

    def do_unknown(self, _, process, trap, point):
        """Its one attempt takes effect and its answer is lost; the operator settles it."""
        self.stack.steer("ledger", lose_answers=1)
        died = self.do_shape("chaos_fragile", process, trap, point)
        self.stack.steer("ledger", lose_answers=0)
        return died

    # --- the API process, at each kind of request ---

    def ask_until(self, process, trap, ask, answered):
        """Asks, and where the API died, again."""
        died = None
        self.stack.downed.add(process)
        end = time.monotonic() + TASK_S_MAX
        while not answered() and time.monotonic() < end:
            ask()
            died = self.revive(process, trap) or died
        trap.disarm()
        died = self.revive(process, trap) or died
        if not answered():
            self.findings.add("V9", "no answer in the end")
        return died

    def do_submit(self, _, process, trap, point):
        task = self.new_task("chaos_one")
        trap.arm(point)
        return self.ask_until(process, trap, lambda: self.caller.call(task), lambda: task.handle)

    def do_get(self, _, process, trap, point):
        task = self.tasks[0] if self.tasks else self.new_task("chaos_one")
        self.end_of(task)
        told = self.journal_lines(task)
        trap.arm(point)
        # Twice: how far it is behind its first answer when that is read is the scheduler's.
        return self.ask_until(process, trap, lambda: self.get(task),
                              lambda: self.journal_lines(task) > told + 1)

    def journal_lines(self, task):
        return task.calls

    def get(self, task):
        answer = self.caller.ask("get", task, lambda client: client.get(task.handle))
        if answer is not None:
            task.calls += 1
            self.journal.seen(task, answer)

    def do_cancel_request(self, _, process, trap, point):
        task = self.new_task("chaos_cancel")
        task.arguments["slow_ms"] = 300
        while task.handle is None:
            self.caller.call(task)
        trap.arm(point)
        return self.ask_until(process, trap, lambda: self.caller.cancel(task),
                              lambda: task.cancelled)

    def do_plain(self, _, process, trap, point):
        task = self.new_task("chaos_one")
        task.plain = True
        trap.arm(point)

        def ask():
            answer = self.plain.call(task)
            if answer is not None:
                self.plain.judge(task, answer)

        return self.ask_until(process, trap, ask, lambda: task.plain_end is not None)

    def end_of(self, task):
        end = time.monotonic() + TASK_S_MAX
        while not task.over and time.monotonic() < end:
            self.caller.poll(task) if task.handle else self.caller.call(task)
            time.sleep(0.005)


def run(seed, schedules=None, kind=Lane, test="chaos_points", least=POINTS_MIN):
    """The summary."""
    findings = world.Findings()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hf-chaos-points-") as folder:
        folder = pathlib.Path(folder)
        shapes.VISIBLE_WITHIN_MS, visible = VISIBLE_WITHIN_MS, shapes.VISIBLE_WITHIN_MS
        os.chmod(folder, 0o755)
        subprocess.run(["gcc", "-std=gnu2x", "-O1", "-shared", "-fPIC", "-o", folder / f"{kind.SHIM}.so",
                        HERE / f"{kind.SHIM}.c", "-ldl"], check=True)
        lanes = rig.in_parallel(lambda one: kind(one[0], seed, findings, folder, one[1]),
                                list(enumerate(schedules or LANES, 1)))
        shapes.VISIBLE_WITHIN_MS = visible
        counts = sum(rig.in_parallel(lambda lane: lane.run(), lanes), collections.Counter())
    points, calls = collections.Counter(), collections.defaultdict(collections.Counter)
    for lane in lanes:
        points.update(lane.points)
        for name, hit in lane.calls.items():
            calls[name].update(hit)
    swept = {name for schedule in schedules or LANES for name, *_ in schedule}
    unhit = [f"{name}: {points[name]} points" for name in sorted(swept)
             if points[name] < least[name]]
    return {"test": test, "passed": sum(points.values()),
            "failed": len(findings) + len(unhit), "seed": seed, "points": dict(points),
            "calls": calls, "tasks": counts.pop("tasks", 0), "effects": counts.pop("effects", 0),
            "counts": dict(sorted(counts.items())), "seconds": round(time.monotonic() - began, 1),
            "violations": findings.items, "unhit": unhit}
