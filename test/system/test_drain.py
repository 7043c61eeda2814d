#!/usr/bin/python3
"""B049: a rolling update, as SIGTERM sees it. An API says at once that it is not ready, takes
connections for drain_delay_ms more, answers what it has read and resets nobody; a worker claims
nothing more, commits or hands back what it runs, and another takes it within a second; no attempt is
spent. A second signal ends either at once. The same as process 1 of a namespace of its own, and while
Postgres is away."""

import http.client
import os
import signal
import subprocess
import threading
import time

import rig
from patience import soon
from rig import check, equal, until

DELAY_MS, GRACE_S = 1_500, 10
CALLS_PER_S, CALLERS = 50, 5
CALLS_MIN = 60
TASKS, SLOW_MS = 20, 4_000
counts = {"calls": 0, "resets": 0, "handed_back": 0, "drains": 0}
SETTINGS = {"api": {"drain_delay_ms": DELAY_MS, "drain_ms": 1_000 * (GRACE_S - 4)},
            "worker": {"drain_ms": 1_000 * (GRACE_S - 4), "slots": 32, "poll_ms": 5_000}}
stack = rig.Stack(apis=2, workers=2, settings=SETTINGS, tools=[rig.probe_tool()])
client = stack.client(api=1)


def begin(plan, of=client):
    effect_id = rig.new_id("drain")
    answer = of.call("probe", {"effect_id": effect_id, "plan": rig.json.dumps(plan)})
    check(answer.handle, "a handle", repr(answer))
    return effect_id, answer.task_id


def run_by(worker):
    return [line for line in stack.run_log(what="start") if line["parent"] == worker.pid]


class Load(threading.Thread):
    """Keeps its connection while it may and calls at a steady rate; counts what is reset."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self.client = rig.Client(api.port, "rig-alice", timeout=10)
        self.answers, self.refused, self.cut, self.stopping = [], 0, [], False

    def run(self):
        while not self.stopping and not self.refused:
            began = time.monotonic()
            effect_id = rig.new_id("load")
            try:
                answer = self.client.call("probe", {"effect_id": effect_id, "plan": "{}"})
                self.answers.append((answer.status, bool(answer.handle)))
            except ConnectionRefusedError:
                self.refused += 1
            except (OSError, http.client.HTTPException) as error:
                self.cut.append(repr(error))
            time.sleep(max(0, CALLERS / CALLS_PER_S - (time.monotonic() - began)))


def status(api):
    return rig.http_ask(api.port, "/readyz", seconds=5)


def ends_in_its_grace(popen, what):
    began = time.monotonic()
    try:
        equal(popen.wait(3 * GRACE_S), 0, f"{what} ends on SIGTERM with 0")
        soon(began, GRACE_S, f"{what} ends in its grace")
    except subprocess.TimeoutExpired:
        check(False, f"{what} does not end")


def an_api_that_drains_resets_nobody():
    api = stack.apis[0]
    loads = [Load(api) for _ in range(CALLERS)]
    for load in loads:
        load.start()
    until(lambda: sum(len(load.answers) for load in loads) > CALLS_MIN, 60, "the load is under way")
    asked = time.monotonic()
    api.signal(signal.SIGTERM)
    until(lambda: status(api)[0] == 503, 5, "readiness says 503", 0.005)
    soon(asked, 1, "503 within a second")
    while time.monotonic() - asked < DELAY_MS / 1000 - 0.5:
        told = status(api)
        if time.monotonic() - asked < DELAY_MS / 1000:  # or it stood still meanwhile
            equal(told, (503, b'{"status":"draining"}'), "a new connection is still taken")
        time.sleep(0.1)
    ends_in_its_grace(api.popen, "an API")
    check(time.monotonic() - asked >= DELAY_MS / 1000, "and not before its delay")
    for load in loads:
        load.stopping = True
        load.join(15)
        counts["calls"] += len(load.answers)
        counts["resets"] += len(load.cut)
        equal(load.cut, [], "no request is reset")
        equal(set(load.answers), {(200, True)}, "each is answered with a handle")
    counts["drains"] += 1
    api.start()
    until(lambda: stack.ready(api), 20, "up again")


def a_worker_that_drains_hands_on():
    """20 tasks, one phase of each under way; those between two phases and those within one."""
    first, second = stack.workers
    equal(second.terminate(), 0, "the second rests, so that the first has them all")
    begun = [begin({"P1": [{"sleep_ms": 100}], "P2": [{"sleep_ms": SLOW_MS if n % 4 == 0 else 0}],
                    "P3": [{"gate": "go"}]}) for n in range(TASKS)]
    ids = {effect_id for effect_id, _ in begun}
    until(lambda: ids <= {line["effect_id"] for line in run_by(first)}, 60, "the first has them all")
    second.start()
    until(lambda: "serving" in second.log().rpartition("worker ended")[2], 20, "the second serves again")
    until(lambda: len(stack.run_log(what="gate")) >= TASKS // 2 + 1, 60, "most are in their last phase")
    first.signal(signal.SIGTERM)
    until(lambda: "draining" in first.log(), 5, "it says that it drains", 0.001)
    late = [begin({}) for _ in range(5)]
    ends_in_its_grace(first.popen, "a worker")
    released = time.monotonic()
    until(lambda: stack.query("SELECT 1 FROM holdfast.work WHERE incarnation IS NULL LIMIT 1") == [], 20,
          "all of it is taken over")
    soon(released, 1, "within a second of its release")
    for effect_id, _ in begun:
        stack.open_gate(effect_id, "go")
    equal({effect_id for effect_id, _ in late} & {line["effect_id"] for line in run_by(first)}, set(),
          "it claims nothing more")
    for effect_id, task in begun + late:
        equal(client.wait(task, 60).result["status"], "completed", "every task is completed")
        attempts = {line["attempt"] for line in stack.run_log(effect_id, "start")}
        equal(attempts, {1}, "no attempt is spent")
    for effect_id in ids:
        phases = [line["phase"] for line in stack.run_log(effect_id, "start")]
        counts["handed_back"] += len(phases) > len(set(phases))
    equal(stack.query("SELECT count(*) FROM holdfast.event WHERE kind = 'crash'"), [(0,)],
          "nobody was thought dead")
    counts["drains"] += 1
    first.start()


def a_second_signal_ends_at_once():
    effect_id, task = begin({"P2": [{"gate": "in"}]})
    stack.at_gate(effect_id, "in")
    holder = next(worker for worker in stack.workers
                  if worker.pid == stack.at_gate(effect_id, "in")["parent"])
    for process in (holder, stack.apis[0]):
        began = time.monotonic()
        for _ in range(2):  # as a closed terminal does: the first is as good as any, another says no more
            process.signal(signal.SIGHUP)
            time.sleep(0.2)
        # One that stood still for so long may have ended by itself.
        check(process.alive() or time.monotonic() - began > DELAY_MS / 1000, f"{process.name} drains")
        process.signal(signal.SIGTERM)
        process.popen.wait(5)
        soon(began, 3, f"{process.name}: the second signal ends it at once")
    stack.open_gate(effect_id, "in")
    equal(client.wait(task, 60).result["status"], "completed", "what it left goes on by the lease")
    equal(stack.effects_by_id().get(effect_id, 0) <= 1, True, "one effect at most")
    for process in (holder, stack.apis[0]):
        process.start()
    until(lambda: stack.ready(stack.apis[0]), 20, "up again")
    counts["drains"] += 2


def as_process_1():
    """Nobody gives process 1 a default action: what it does not handle is ignored."""
    for role in ("api", "worker"):
        port = rig.free_port()
        state = stack.folder / "inner"
        state.mkdir(exist_ok=True)
        flags = {"api": ["--listen", f"127.0.0.1:{port}", "--tokens-file", stack.folder / "tokens"],
                 "worker": ["--conf-file", stack.folder / "conf.json", "--state-dir", state]}[role]
        log = stack.logs / f"inner-{role}.log"
        with open(log, "ab") as out:
            outer = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", str(rig.HOLDFAST), role,
                 "--keys-file", str(stack.folder / "keys"), *map(str, flags)],
                env=stack.env(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, cwd=stack.folder)
        said = "listening" if role == "api" else "serving"
        until(lambda log=log, said=said: said in log.read_text() or outer.poll() is not None, 20,
              f"{role} as process 1 serves")
        equal(outer.poll(), None, f"{role}: a namespace can be had")
        inner = int(open(f"/proc/{outer.pid}/task/{outer.pid}/children",
                         encoding="ascii").read().split()[0])
        os.kill(inner, signal.SIGTERM)
        ends_in_its_grace(outer, f"{role} as process 1")
        counts["drains"] += 1


def while_postgres_is_away():
    stack.cluster.stop("immediate")
    time.sleep(0.5)
    for process in (stack.apis[0], stack.workers[0], stack.maintains[0]):
        process.signal(signal.SIGTERM)
    for process in (stack.apis[0], stack.workers[0], stack.maintains[0]):
        code = None
        try:
            code = process.popen.wait(GRACE_S + 5)
        except subprocess.TimeoutExpired:
            process.kill()
        equal(code, 0, f"{process.name} ends while Postgres is away")
        counts["drains"] += 1
    stack.cluster.start()
    for process in (stack.apis[0], stack.workers[0], stack.maintains[0]):
        process.start()
    effect_id, task = begin({}, stack.client(api=1)) if until(
        lambda: stack.ready(stack.apis[1]), 30, "the other API serves again") else (None, None)
    equal(client.wait(task, 60).result["status"], "completed", f"{effect_id}: and all goes on")


rig.run(an_api_that_drains_resets_nobody, a_worker_that_drains_hands_on,
        a_second_signal_ends_at_once, as_process_1, while_postgres_is_away)
rig.finish("drain", counts, {"calls": CALLS_MIN, "handed_back": TASKS // 2})
