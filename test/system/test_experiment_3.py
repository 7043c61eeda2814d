#!/usr/bin/python3
"""Experiment 3: SIGKILL of a worker and of an API process at every step boundary.

A task has three phases: P1 pure, P2 keyed (one POST under its derived key), P3 pure. Each cell of
the grid victim x boundary stops the task exactly there, by a gate in the tool's program, by a row or
table lock in Postgres that holds a commit back, or by a downstream that has made the effect and
not answered yet, and kills the victim. A commit held back is then let through with nobody left to
read its answer ("landed"), or ended with its backend ("lost").

Then, for every accepted task: it completes; the downstream (which honours keys) has one effect; no
phase started after its recovery point stood; one outcome; the client's own repeats found one task.
Lanes run side by side, each with a whole stack of its own."""

import argparse
import collections
import contextlib
import http.client
import itertools
import os
import random
import threading
import time

import rig
from rig import check, equal, until

LANES = 3
LEASE_MS = 2_000  # long enough for one that only stalls: each start of a phase is counted
PHASES = ("P1", "P2", "P3")
parser = argparse.ArgumentParser()
parser.add_argument("--kills", type=int, default=200)
parser.add_argument("--lanes", type=int, default=LANES)
parser.add_argument("--cell", help="only cells whose name has this in it")
options = parser.parse_args()
hits = collections.Counter()
totals = collections.Counter()
lock = threading.Lock()


class Lane:
    def __init__(self, number):
        self.number = number
        self.stack = rig.Stack(
            apis=2, workers=2, tools=[rig.probe_tool(crash_limit=50)],
            settings={"worker": {"beat_ms": 50, "lease_ms": LEASE_MS, "poll_ms": 100},
                      "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}})
        self.clients = [self.stack.client(api=number) for number in range(2)]
        self.tasks = 0

    # --- what a client does ---

    def arguments(self, plan):
        self.tasks += 1
        return {"effect_id": f"kill-{self.number}-{self.tasks}", "plan": rig.json.dumps(plan)}

    def handle(self, arguments):
        """The same call, to one process after the other, until there is a handle."""
        end = time.monotonic() + 30
        for client in itertools.cycle(self.clients):
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = client.call("probe", arguments)
                if answer.handle:
                    return answer.task_id
            if time.monotonic() > end:
                raise RuntimeError(f"{arguments['effect_id']}: no handle")
            time.sleep(0.02)

    def wait(self, task_id):
        end = time.monotonic() + 60
        answer = None
        for client in itertools.cycle(self.clients):
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = client.get(task_id)
                if answer.status == 200 and (answer.error or
                                             answer.result["status"] in rig.TERMINAL):
                    return answer
            if time.monotonic() > end:
                raise RuntimeError(f"{task_id} not at its end: {answer!r}")
            time.sleep(0.03)

    # --- who is killed ---

    def worker_of(self, effect_id, gate):
        """The worker whose program stands at the gate: its parent."""
        parent = self.stack.at_gate(effect_id, gate)["parent"]
        return next(worker for worker in self.stack.workers if worker.pid == parent)

    def kill(self, process):
        process.kill()
        process.start()

    def kill_api(self):
        """Either one; it is up again before the next cell."""
        api = random.choice(self.stack.apis)
        self.kill(api)

    # --- commits held back ---

    @contextlib.contextmanager
    def held(self, role, statement, parameters=()):
        """A transaction of the administrator's that holds a lock; gives who of that role waits for
        one, be it behind another (beats, which may wait for a task's row too, apart)."""
        connection = self.stack.cluster.connect(autocommit=False)
        try:
            connection.execute(statement, parameters)
            yield lambda: [row[0] for row in self.stack.query(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = %s "
                "AND query NOT ILIKE '%%beat%%'", (f"holdfast_{role}",))]
        finally:
            connection.rollback()
            connection.close()

    def end_backends(self, pids):
        for pid in pids:
            self.stack.query("SELECT pg_terminate_backend(%s)", (pid,))
        until(lambda: not self.stack.query(
            "SELECT 1 FROM pg_stat_activity WHERE pid = ANY (%s)", (pids,)), 10, "backends end")


def gated(phase, *names, post=True):
    """A plan with the gates of one boundary."""
    plan = {name: [] for name in PHASES}
    plan["P2"] = [{"post": True}]
    gates = [{"gate": name} for name in names]
    if phase == "P2":
        plan["P2"] = gates + plan["P2"] if post else plan["P2"] + gates
    elif phase:
        plan[phase] = gates
    return plan


# --- the boundaries, for a worker ---------------------------------------------------------------
# Each starts a task, kills at its boundary, and gives (arguments, task ID, starts wanted or {}).

def stop_workers(lane, number):
    for worker in lane.stack.workers:
        worker.signal(number)


def before_claim(lane):
    stop_workers(lane, rig.signal.SIGSTOP)
    arguments = lane.arguments(gated(None))
    task = lane.handle(arguments)
    state = lane.stack.query("SELECT state, token FROM holdfast.work WHERE task = %s",
                             (rig.task_bytes(task),))
    equal(state, [("ready", None)], "before claim: ready")
    lane.kill(lane.stack.workers[0])
    stop_workers(lane, rig.signal.SIGCONT)
    return arguments, task, {}


def claim(lane, landed):
    """Both workers stop, the task is accepted, one worker goes on into a claim that waits."""
    stop_workers(lane, rig.signal.SIGSTOP)
    arguments = lane.arguments(gated(None))
    task = lane.handle(arguments)
    worker = lane.stack.workers[0]
    with lane.held("worker", "LOCK TABLE holdfast.work IN SHARE MODE") as waiting:
        worker.signal(rig.signal.SIGCONT)
        until(waiting, 10, "a claim waits")
        worker.kill()
        if not landed:
            lane.end_backends(waiting())
    worker.start()
    stop_workers(lane, rig.signal.SIGCONT)
    return arguments, task, {}


def at_gate(lane, phase, post=True):
    arguments = lane.arguments(gated(phase, "here", post=post))
    task = lane.handle(arguments)
    worker = lane.worker_of(arguments["effect_id"], "here")
    lane.kill(worker)
    lane.stack.open_gate(arguments["effect_id"], "here")
    return arguments, task, {phase: 2}


def commit(lane, phase, landed):
    arguments = lane.arguments(gated(phase, "here", post=False))
    task = lane.handle(arguments)
    worker = lane.worker_of(arguments["effect_id"], "here")
    with lane.held("worker", "SELECT 1 FROM holdfast.work WHERE task = %s FOR UPDATE",
                   (rig.task_bytes(task),)) as waiting:
        lane.stack.open_gate(arguments["effect_id"], "here")
        until(lambda: lane.stack.run_log(arguments["effect_id"], "end")[-1:] and
              lane.stack.run_log(arguments["effect_id"], "end")[-1]["phase"] == phase, 10,
              f"{phase} has ended")
        until(waiting, 10, f"the commit of {phase} waits")
        worker.kill()
        if not landed:
            lane.end_backends(waiting())
    worker.start()
    return arguments, task, {phase: 1 if landed else 2}


def post_in_flight(lane):
    """The effect is made, its answer is on its way, for longer than we may take to see that; who
    asks again does not wait for it."""
    lane.stack.steer(delay_after_ms=10_000)
    before = len(lane.stack.ledger())
    arguments = lane.arguments(gated("P2", "here"))
    task = lane.handle(arguments)
    worker = lane.worker_of(arguments["effect_id"], "here")
    lane.stack.open_gate(arguments["effect_id"], "here")
    until(lambda: len(lane.stack.ledger()) > before, 10, "the effect is made", 0.005)
    lane.kill(worker)
    lane.stack.steer(delay_after_ms=0)
    return arguments, task, {"P2": 2}


def after_finish(lane):
    arguments = lane.arguments(gated(None))
    task = lane.handle(arguments)
    lane.wait(task)
    lane.kill(random.choice(lane.stack.workers))
    return arguments, task, {"P1": 1, "P2": 1, "P3": 1}


# --- and for an API process ---------------------------------------------------------------------

def send_and_forget(lane, arguments):
    """Sends the call to the first process, in a thread that may see its connection break."""
    def send():
        client = lane.stack.client()
        with contextlib.suppress(OSError, http.client.HTTPException):
            client.call("probe", arguments)
        client.close()

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def call_in_flight(lane):
    arguments = lane.arguments(gated(None))
    thread = send_and_forget(lane, arguments)
    time.sleep(random.random() * 0.006)
    lane.kill(lane.stack.apis[0])
    thread.join()
    return arguments, lane.handle(arguments), {}


def accept(lane, landed):
    arguments = lane.arguments(gated(None))
    # Not the claims that the workers look for work with: they wait for the same lock.
    with lane.held("api", "LOCK TABLE holdfast.work IN SHARE MODE") as waiting:
        thread = send_and_forget(lane, arguments)
        until(waiting, 10, "an accept waits")
        lane.stack.apis[0].kill()
        if not landed:
            lane.end_backends(waiting())
    lane.stack.apis[0].start()
    thread.join()
    if landed:
        until(lambda: lane.stack.task_rows(arguments["effect_id"]), 10, "the accept landed")
    else:
        equal(lane.stack.task_rows(arguments["effect_id"]), [], "the accept was lost")
    return arguments, lane.handle(arguments), {}


def api_at_gate(lane, phase, post=True):
    arguments = lane.arguments(gated(phase, "here", post=post))
    task = lane.handle(arguments)
    lane.stack.at_gate(arguments["effect_id"], "here")
    lane.kill_api()
    lane.stack.open_gate(arguments["effect_id"], "here")
    return arguments, task, {"P1": 1, "P2": 1, "P3": 1}


def poll_in_flight(lane):
    arguments = lane.arguments(gated("P3", "here"))
    task = lane.handle(arguments)
    stop = threading.Event()

    def poll():
        client = lane.stack.client()
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = client.get(task)
                check(answer.status in (200, 503) and answer.error is None or
                      answer.status == 503, "a poll never loses the task", repr(answer))
        client.close()

    threads = [threading.Thread(target=poll) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    lane.kill(lane.stack.apis[0])
    lane.stack.open_gate(arguments["effect_id"], "here")
    answer = lane.wait(task)
    equal(answer.result["status"], "completed", "poll in flight: completed")
    stop.set()
    for thread in threads:
        thread.join()
    return arguments, task, {"P1": 1, "P2": 1, "P3": 1}


def api_at_commit(lane):
    """The API dies while a worker's last commit waits."""
    arguments = lane.arguments(gated("P3", "here"))
    task = lane.handle(arguments)
    lane.stack.at_gate(arguments["effect_id"], "here")
    with lane.held("worker", "SELECT 1 FROM holdfast.work WHERE task = %s FOR UPDATE",
                   (rig.task_bytes(task),)) as waiting:
        lane.stack.open_gate(arguments["effect_id"], "here")
        until(waiting, 10, "the finish waits")
        lane.kill_api()
    return arguments, task, {"P1": 1, "P2": 1, "P3": 1}


def api_after_finish(lane):
    arguments = lane.arguments(gated(None))
    task = lane.handle(arguments)
    lane.wait(task)
    lane.kill_api()
    return arguments, task, {"P1": 1, "P2": 1, "P3": 1}


CELLS = {
    "worker: before claim": before_claim,
    "worker: claim landed": lambda lane: claim(lane, True),
    "worker: claim lost": lambda lane: claim(lane, False),
    "worker: in P1": lambda lane: at_gate(lane, "P1"),
    "worker: P1 commit landed": lambda lane: commit(lane, "P1", True),
    "worker: P1 commit lost": lambda lane: commit(lane, "P1", False),
    "worker: in P2 before the POST": lambda lane: at_gate(lane, "P2"),
    "worker: POST answered late": post_in_flight,
    "worker: in P2 after the POST": lambda lane: at_gate(lane, "P2", post=False),
    "worker: P2 commit landed": lambda lane: commit(lane, "P2", True),
    "worker: P2 commit lost": lambda lane: commit(lane, "P2", False),
    "worker: in P3": lambda lane: at_gate(lane, "P3"),
    "worker: finish landed": lambda lane: commit(lane, "P3", True),
    "worker: finish lost": lambda lane: commit(lane, "P3", False),
    "worker: after finish": after_finish,
    "api: call in flight": call_in_flight,
    "api: accept landed": lambda lane: accept(lane, True),
    "api: accept lost": lambda lane: accept(lane, False),
    "api: in P1": lambda lane: api_at_gate(lane, "P1"),
    "api: in P2 before the POST": lambda lane: api_at_gate(lane, "P2"),
    "api: in P2 after the POST": lambda lane: api_at_gate(lane, "P2", post=False),
    "api: poll in flight": poll_in_flight,
    "api: finish waits": api_at_commit,
    "api: after finish": api_after_finish,
}


def judge(lane, cell, arguments, task_id, starts_wanted):
    answer = lane.wait(task_id)
    status = (answer.result or {}).get("status")
    equal(status, "completed", f"{cell}: completed")
    effect_id = arguments["effect_id"]
    what = f"{cell} ({effect_id})"
    equal(lane.handle(arguments), task_id, f"{what}: the repeat finds the task")
    equal(len(lane.stack.task_rows(effect_id)), 1, f"{what}: one task")
    steps = lane.stack.query(
        "SELECT kind, name, extract(epoch FROM at)::float8 FROM holdfast.step WHERE task = %s "
        "ORDER BY place", (rig.task_bytes(task_id),))
    equal([name for kind, name, _ in steps if kind == "recovery_point"], list(PHASES),
          f"{what}: a recovery point for each phase")
    equal([name for kind, name, _ in steps if kind == "outcome"], ["completed"],
          f"{what}: one outcome")
    starts = collections.Counter()
    for line in lane.stack.run_log(effect_id, "start"):
        starts[line["phase"]] += 1
    for kind, name, at in steps:
        if kind == "recovery_point":
            late = [line for line in lane.stack.run_log(effect_id, "start")
                    if line["phase"] == name and line["at"] > at]
            check(not late, f"{what}: {name} started after its recovery point", late)
    for phase, wanted in starts_wanted.items():
        equal(starts[phase], wanted, f"{what}: starts of {phase}")
    with lock:
        totals["tasks"] += 1
        totals["phase_starts"] += sum(starts.values())


def run_lane(number, todo):
    lane = Lane(number)
    while True:
        with lock:
            cell = todo.pop() if todo else None
        if cell is None:
            break
        try:
            arguments, task_id, starts_wanted = CELLS[cell](lane)
            with lock:
                hits[cell] += 1
            judge(lane, cell, arguments, task_id, starts_wanted)
        except Exception as error:  # noqa: BLE001 - one broken cell must not hide the others
            check(False, f"{cell}: {type(error).__name__}", repr(error))
            stop_workers(lane, rig.signal.SIGCONT)
        for api in lane.stack.apis:
            until(lambda api=api: lane.stack.ready(api), 20, "API up again")
    effects = lane.stack.effects_by_id()
    equal({name: count for name, count in effects.items() if count != 1}, {}, "one effect a task")
    tasks = lane.stack.query("SELECT count(*) FROM holdfast.task")[0][0]
    equal(len(effects), tasks, "an effect for each task")
    equal(len(lane.stack.ledger()), tasks, "and none beside them")
    equal(lane.stack.query("SELECT count(*) FROM holdfast.work"), [(0,)], "no work is left")
    with lock:
        totals["effects"] += len(effects)
        totals["accepted"] += tasks
    lane.stack.stop()
    equal(leftovers(lane), [], "no tool process outlives its worker")


def leftovers(lane):
    """Processes of this lane's tools, some time after the end of everything."""
    def found():
        pids = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit():
                    with open(f"/proc/{entry}/environ", "rb") as file:
                        if str(lane.stack.folder).encode() in file.read():
                            pids.append(int(entry))
        return pids

    end = time.monotonic() + 20
    while found() and time.monotonic() < end:
        time.sleep(0.05)
    return found()


cells = [cell for cell in CELLS if not options.cell or options.cell in cell]
per_cell = -(-options.kills // len(cells))
todo = [cell for _ in range(per_cell) for cell in cells]
random.shuffle(todo)
rig.in_parallel(lambda number: run_lane(number, todo), list(range(options.lanes)))
for cell in cells:
    check(hits[cell] > 0, f"cell never hit: {cell}")
kills = sum(hits.values())
rig.finish("experiment_3", {"kills": kills, "cells": len(cells), "accepted": totals["accepted"],
                            "completed": totals["tasks"], "effects": totals["effects"],
                            "phase_starts": totals["phase_starts"], "hits": dict(hits)},
           {"kills": options.kills, "completed": kills, "effects": kills})
