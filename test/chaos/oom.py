"""Memory that runs out. F14, the fault `oom`: the kernel kills a worker or an API process under load,
as its memory cgroup is full. F13, a sweep as those of points.py: while a worker works and an API
process answers, its nth allocation fails, once, for each n. Then it either goes on, with an error as
its answer or after trying again, or has ended in one known place (a SIGABRT that says why) and is
started again; nothing is half-written either way. A crash is a violation."""

import contextlib
import os
import signal
import time

import points
import rig
from cgroup import Cgroup
from load import LOST

ROLES = ("worker", "api")
WANTED = {"oom": ROLES}
CI = {"oom": 6}
SOAK = {"oom": [("oom", 100)]}
WORLD = None
LIMIT_BYTES = 256 * 1024    # of what it takes from then on
FULL_S_MAX = 15

# --- F14 -----------------------------------------------------------------------------------------


class Faults:
    def oom(self):
        role = self.rarest("oom")
        processes = {process.name: process for process in
                     (self.stack.workers if role == "worker" else self.stack.apis)}
        process = processes[self.dice.choice(sorted(processes))]
        group = Cgroup(f"hf-oom-{os.getpid()}-{next(self.ids)}", LIMIT_BYTES)
        self.stack.downed.add(process)
        try:
            self.was_hit("oom", *(task for name, _, task in self.stack.running()
                                  if name == process.name))
            group.take(process.pid)
            killed = self.fill(process)
        finally:
            process.kill()
            group.remove()
            self.stack.begin(process)
        if process in self.stack.apis:
            rig.until(lambda: self.stack.ready(process), 20, "the API is up again", 0.005)
        if killed not in (None, -signal.SIGKILL):
            self.findings.add("alive", f"{process.name} ended otherwise: {killed}")
        self.let_work(0.1)
        return {role} if killed == -signal.SIGKILL else False

    def fill(self, process):
        """Waits until it is killed, which more than its usual load brings about; its exit code."""
        end = time.monotonic() + FULL_S_MAX
        while process.alive() and time.monotonic() < end:
            if process in self.stack.apis:
                with contextlib.suppress(*LOST):
                    rig.Client(process.port, timeout=5).post(b" " * 3_000_000, {
                        "Authorization": "Bearer rig-alice", "Content-Type": "application/json"})
            time.sleep(0.01)
        return process.popen.poll()


# --- F13 -----------------------------------------------------------------------------------------

# Allocations to each next one that fails, in CI; a soak takes every one.
STEPS = {"submit": 7, "get": 7, "chaos_one": 37, "chaos_three": 61}
# Where a process that lacks memory may end.
KNOWN = ("holdfast: out of memory", "(libev) memory allocation failed",
         "(libev) cannot allocate")
FAILED_MIN = {"submit": 5, "get": 2, "chaos_one": 5, "chaos_three": 5}


class Lane(points.Lane):
    SHIM = "failat"
    POINTS_MAX = 200_000

    def revive(self, process, trap):
        """What became of it, once its allocation has failed."""
        failed = trap.died()
        if process.alive():
            return f"went on after {failed}" if failed else None
        failed = failed or trap.died()
        code = process.popen.wait()
        lines = process.log().splitlines()[-5:]
        if code != -signal.SIGABRT or not any(text in line for line in lines for text in KNOWN):
            self.findings.add("crash", f"{process.name} ended by {code} where allocation "
                              f"{trap.point} failed", log=" | ".join(lines))
        trap.arm(0)
        self.stack.begin(process)
        if process is self.stack.apis[0]:
            rig.until(lambda: self.stack.ready(process), 20, "the API is up again", 0.005)
        return f"ended after {failed}"


def run(seed, every=False):
    """The summary."""
    steps = {name: 1 if every else step for name, step in STEPS.items()}
    lanes = [[(name, 1, steps[name])] for name in ("chaos_three", "chaos_one")]
    lanes.append([(name, 1, steps[name]) for name in ("submit", "get")])
    return points.run(seed, lanes, Lane, "oom_allocations", FAILED_MIN)
