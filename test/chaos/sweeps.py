"""The sweep against whoever asks at the very end of a task's retention (F23): repeats, polls, other
arguments and an operator's retry, over both API processes, while the sweep is ordered again and
again beside maintenance's own. What is told in one answer is not taken back by the next: once gone, a
task stays gone, and its effect ID is a tombstone that starts nothing."""

import threading
import time

import rig
import shapes
from load import Caller

WAYS = ("repeat", "get", "conflict", "retry")
WANTED = {"sweep_race": WAYS}
CI = {"sweep_race": 100}
SOAK = {"sweeps": [("sweep_race", 10_000)]}
LANES = {"sweep_race": 12}
WORLD = None
EARLY_S = 0.15      # before the end of the retention the race begins,
LATE_S = 0.15       # and after it, it ends
TIMES_MIN = 3       # it is asked for in that time, or longer where that is slow


class Faults:
    own = threading.local()  # of each lane

    def sweep_race(self):
        with self.lock:
            way = self.rarest("sweep_race")
            self.cells["sweep_race"][way] += 1  # the other lanes take another
        try:
            return self.race(way)
        finally:
            with self.lock:
                self.cells["sweep_race"][way] -= 1

    def race(self, way):
        task = self.new_task("sweep_race", "chaos_brief")
        caller = self.caller_of_races()
        end = time.monotonic() + 30
        while time.monotonic() < end and task.handle is None:
            caller.call(task)
        ended = rig.until(lambda: self.stack.ask(
            "SELECT extract(epoch FROM at)::float8 FROM chaos.ended WHERE task = %s",
            (rig.task_bytes(task.handle),)), 30, "a brief task ends", 0.02)
        over_at = ended[0][0] + shapes.BRIEF_TTL_MS / 1000
        time.sleep(max(0, over_at - EARLY_S - time.time()))
        stopping = threading.Event()
        sweeper = threading.Thread(target=self.sweep, args=(task, stopping), daemon=True)
        sweeper.start()
        ask = {"repeat": lambda: caller.call(task, "repeat"), "get": lambda: caller.poll(task),
               "conflict": lambda: caller.conflict(task), "retry": lambda: self.retry(task)}[way]
        times, in_time = 0, time.time() < over_at
        while times < TIMES_MIN or time.time() < over_at + LATE_S:
            ask()
            times += 1
        stopping.set()
        sweeper.join(20)
        self.is_gone(task, caller)
        return in_time and {way}

    def caller_of_races(self):
        """A lane's own: dice and clients are not for two threads."""
        if getattr(self.own, "caller", None) is None:
            number = next(self.ids)
            self.own.caller = Caller(self.stack, self.journal, f"race-{number}", number)
        return self.own.caller

    def sweep(self, task, stopping):
        with self.stack.cluster.connect() as admin:
            while not stopping.is_set():
                admin.execute("SELECT holdfast.sweep(holdfast.week_of_task(%s), 3)",
                              (rig.task_bytes(task.handle),))
                time.sleep(0.005)

    def retry(self, task):
        """Of what was completed there is none, whenever it is asked for."""
        rows = self.stack.ask(
            "SELECT answer FROM holdfast.retry(holdfast.week_of_task(%s), %s, NULL, false, 'ann', "
            "'why', %s)", (rig.task_bytes(task.handle), rig.task_bytes(task.handle), bytes(16)))
        if rows and rows[0][0] not in ("completed", "missing"):
            self.findings.add("V6", f"a retry of a completed task: {rows[0][0]}", task=task.handle)

    def is_gone(self, task, caller):
        end = time.monotonic() + 20
        while not task.gone and time.monotonic() < end:
            caller.poll(task)
        for _ in range(3):
            caller.call(task, "repeat")
            caller.poll(task)
        if not task.gone:
            self.findings.add("V9", "a task outlives its retention", task=task.handle)
