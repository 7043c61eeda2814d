#!/usr/bin/python3
"""What hangs is dead before anybody else may run it. Programs that ignore signals, leave their group
and session, stop themselves, flood, or turn against their keeper; killed at their time-out, or when
their worker is killed, stopped past its lease, or cut off from Postgres for longer. Every process of
the old attempt beats into a file: after the first line of the next attempt there is no beat of it,
and the log says how the end was proved."""

import time

import relay
import rig
from rig import check, equal, until

# Long enough for one that only stalls, and for all of a shape's processes to have begun.
LEASE_MS = 3_000
TIMEOUT_MS = 6_000
SHAPES = {  # and the roles whose beats must have been seen
    "plain": {"main"}, "deaf": {"main"}, "children": {"main", "child", "child of it"},
    "escaped": {"main", "escaped"}, "stopped": {"main", "child"}, "flood": {"main", "child"},
    "left": {"main", "escaped"}, "keeper stopped": {"main", "child"},
    "keeper killed": {"main", "child", "child of it"}}
OF_THE_WORKER = ("plain", "deaf", "children", "escaped", "stopped", "flood")
counts = {"timed_out": 0, "worker_killed": 0, "worker_stopped": 0, "postgres_lost": 0, "beats": 0,
          "margin_ms_min": 10**9}


def hung_tool(name, timeout_ms):
    return rig.make_tool(
        name, [{"name": "hang", "kind": "program", "mode": "plain", "command": ["./hung"],
                "effect": "pure", "timeout_ms": timeout_ms, "env": ["RIG_FOLDER"],
                "backoff_first_ms": 20, "backoff_max_ms": 50}],
        {"shape": rig.TEXT}, programs=rig.test_program("hung"), poll_interval_ms=50)


class Stack(rig.Stack):
    """Each worker reaches Postgres through a relay of its own."""

    def start_worker(self, name):
        one = relay.Relay(self.cluster)
        self.environment["HOLDFAST_WORKER_DSN"] = (
            f"host=127.0.0.1 port={one.port} sslmode=disable gssencmode=disable dbname=holdfast "
            "user=holdfast_worker")
        worker = super().start_worker(name)
        worker.relay = one
        return worker


stack = Stack(workers=1, tools=[hung_tool("brief", TIMEOUT_MS), hung_tool("long", 120_000)],
              settings={"worker": {"beat_ms": 100, "lease_ms": LEASE_MS, "poll_ms": 100,
                                   "slots": 16},
                        "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}})
client = stack.client()


class Hung:
    def __init__(self, shape, tool):
        self.shape, self.effect_id = shape, rig.new_id("hung")
        answer = client.call(tool, {"effect_id": self.effect_id, "shape": shape})
        check(answer.handle, "a handle", repr(answer))
        self.task_id = answer.task_id

    def lines(self):
        return rig.read_jsonl(stack.folder / f"beats-{self.effect_id}.jsonl")

    def beats(self):
        return SHAPES[self.shape] <= {line["role"] for line in self.lines()}

    def restarted(self):
        return sum(line["role"] == "start" for line in self.lines()) > 1

    def judge(self, what):
        what = f"{what}, {self.shape}"
        if not until(self.restarted, 40, f"{what}: it is started again", 0.05):
            return False
        equal(client.wait(self.task_id, 40).result["status"], "completed", f"{what}: completed")
        lines = self.lines()
        roles = [line["role"] for line in lines]
        again = len(roles) - 1 - roles[::-1].index("start")
        late = [line for line in lines[again + 1:]]
        check(not late, f"{what}: the old attempt beats on", late[:3])
        check(SHAPES[self.shape] <= set(roles[:again]), f"{what}: all of it had beaten", set(roles))
        for pid in {line["pid"] for line in lines}:
            check(rig.process_gone(pid), f"{what}: process {pid} is gone")
        counts["beats"] += again
        margin = int((lines[again]["at"] - max(line["at"] for line in lines[:again])) * 1000)
        counts["margin_ms_min"] = min(counts["margin_ms_min"], margin)
        return not late


def beating(shapes, tool):
    hungs = [Hung(shape, tool) for shape in shapes]
    for one in hungs:
        until(one.beats, 30, f"{one.shape}: all of it beats")
    return hungs


def times_out():
    for one in beating(SHAPES, "brief"):
        counts["timed_out"] += one.judge("time-out")
    said(stack.workers[-1], '"msg":"tool process killed, reaped"')


def said(worker, text):
    check(text in worker.log(), f"the log says how: {text}", worker.log()[-600:])


def kill(worker):
    worker.kill()
    return "the worker died: tool process killed, reaped"


def stop(worker):
    worker.signal(rig.signal.SIGSTOP)
    return "the lease is over: tool process killed, reaped"


def cut_off(worker):
    worker.relay.open.clear()
    return "tool process killed, reaped"


def another_takes_over(name, fault):
    """The only worker holds them all; another is there when it falls."""
    old = stack.workers[-1]
    hungs = beating(OF_THE_WORKER, "long")
    new = stack.start_worker(f"worker-{len(stack.workers) + 1}")
    stack.workers.append(new)
    until(lambda: stack.query("SELECT count(*) FROM holdfast.worker WHERE role = 'worker'")
          == [(2,)], 20, "the other worker is there")
    proof = fault(old)
    for one in hungs:
        counts[name] += one.judge(name)
    said(old, proof)
    old.relay.open.set()
    old.signal(rig.signal.SIGCONT)
    if old.alive():
        time.sleep(0.5)
        check(old.alive(), f"{name}: it lives on")
        equal(old.terminate(), 0, f"{name}: and ends well")


rig.run(times_out, (another_takes_over, "worker_killed", kill),
        (another_takes_over, "worker_stopped", stop), (another_takes_over, "postgres_lost", cut_off))
rig.finish("hung", counts, {"timed_out": len(SHAPES), "worker_killed": len(OF_THE_WORKER),
                            "worker_stopped": len(OF_THE_WORKER),
                            "postgres_lost": len(OF_THE_WORKER), "beats": 500})
