#!/usr/bin/python3
"""Poison (B039): a task that dies each time, by its own hand, by the kernel for its memory, or with
its worker, is started as often as its tool's crash_limit says, over all workers, and ends failed with
the reason. Who waits behind it is served. A cancel ends it at the next take-over; a graceful stop of
a worker is no crash."""

import threading
import time

import poisoning
import rig
from rig import check, equal, until

LIMIT = 3
HEALTHY = 20
STOPS = 5
LEASE_MS = 3_000  # long enough for one that only stalls: each start is counted
counts = {"poisoned": 0, "starts": 0, "healthy": 0, "cancelled": 0, "graceful": 0, "restarts": 0,
          "neighbours": 0}
cgroup = poisoning.cgroup()
stack = rig.Stack(workers=3, tools=[poisoning.tool(crash_limit=LIMIT), rig.probe_tool(crash_limit=LIMIT)],
                  settings={"worker": {"beat_ms": 100, "lease_ms": LEASE_MS, "poll_ms": 100,
                                       "slots": 2, "drain_ms": 5000},
                            "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}})
client = stack.client()
supervising = True


def supervise():
    """As an init system does: who ends is started again."""
    while supervising:
        for worker in stack.workers:
            if not worker.alive():
                worker.start()
                counts["restarts"] += 1
        time.sleep(0.05)


def begin(how):
    effect_id = rig.new_id(how)
    arguments = {"effect_id": effect_id, "how": how}
    if how == "memory":
        arguments["cgroup"] = str(cgroup.path)
    answer = client.call("poison", arguments)
    check(answer.handle, "a handle", repr(answer))
    return effect_id, answer.task_id


def healthy(number, ms=100):
    answer = client.call("probe", {"effect_id": rig.new_id(f"healthy-{number}"),
                                   "plan": rig.json.dumps({"P1": [{"sleep_ms": ms}]})})
    return answer.task_id


def poison(how):
    effect_id, task_id = begin(how)
    behind = [healthy(number) for number in range(HEALTHY)]
    for task in behind:
        if equal(client.wait(task, 60).result["status"], "completed", f"{how}: who waits behind"):
            counts["healthy"] += 1
    result = client.wait(task_id, 60).result
    lines = poisoning.starts(stack, effect_id)
    equal(result["status"], "failed", f"{how}: failed")
    equal(len(lines), LIMIT, f"{how}: starts in all")
    counts["starts"] += len(lines)
    counts["poisoned"] += 1
    error = result.get("error") or {}
    check("worker died" in error.get("message", ""), f"{how}: the reason", error)
    equal((error.get("data") or {}).get("type"), "crash_limit", f"{how}: the type")
    equal((error.get("data") or {}).get("executed"), "no", f"{how}: pure work did nothing")
    gaps = [later["at"] - earlier["at"] for earlier, later in zip(lines, lines[1:])]
    check(min(gaps) >= 0.5, f"{how}: no tight loop", gaps)
    if how != "worker":
        # Waits of 0.5 to 1 s, and of 1 to 2 s.
        check(gaps[1] >= 1, f"{how}: the second wait is longer", gaps)
    else:
        equal(len({line["worker"] for line in lines}), LIMIT, f"{how}: each start had its worker")
    time.sleep(1.5)
    equal(len(poisoning.starts(stack, effect_id)), LIMIT, f"{how}: and none after the end")


def neighbours():
    """They share the only worker that there is with poison that kills it, each time from the start:
    all are as near to the crash limit, and only poison reaches it."""
    spared = stack.workers[1:]
    stack.workers[:] = stack.workers[:1]
    time.sleep(0.2)
    for worker in spared:
        worker.terminate()
    tasks = [healthy(number, 4_000) for number in range(1)]
    effect_id, task_id = begin("worker")
    equal(client.wait(task_id, 90).result["status"], "failed", "neighbours: poison has failed")
    equal(len(poisoning.starts(stack, effect_id)), LIMIT, "neighbours: starts of poison")
    for task in tasks:
        result = client.wait(task, 90).result
        if equal(result["status"], "completed", "neighbours: who shared its worker completes"):
            counts["neighbours"] += 1
    stack.workers += [worker.start() for worker in spared]


def cancelled(how):
    """The cancel comes right behind the first start: there is no second, or only one that was
    claimed before it."""
    effect_id, task_id = begin(how)
    until(lambda: poisoning.starts(stack, effect_id), 20, f"{how}: it has begun")
    answer = client.cancel(task_id)
    equal(answer.status, 200, f"{how}: the cancel is acknowledged")
    acknowledged = time.time()
    result = client.wait(task_id, 20).result
    equal(result["status"], "cancelled", f"{how}: cancelled")
    late = [line for line in poisoning.starts(stack, effect_id) if line["at"] > acknowledged]
    equal(late, [], f"{how}: nothing starts after the cancel")
    counts["cancelled"] += 1


def graceful():
    """SIGTERM in the midst of a healthy phase, more often than the crash limit is."""
    effect_id = rig.new_id("graceful")
    plan = {"P1": [{"gate": f"in-{number}", "starts": [number]} for number in range(1, STOPS + 1)]}
    task_id = client.call("probe", {"effect_id": effect_id,
                                    "plan": rig.json.dumps(plan)}).task_id
    for number in range(1, STOPS + 1):
        line = stack.at_gate(effect_id, f"in-{number}")
        worker = next(one for one in stack.workers if one.pid == line["parent"])
        worker.signal(rig.signal.SIGTERM)
        counts["graceful"] += 1
        until(lambda number=number: len(starts(effect_id)) > number, 20, "taken over")
    equal(client.wait(task_id).result["status"], "completed", "graceful stops: completed")
    lines = starts(effect_id)
    equal([line["attempt"] for line in lines], [1] * (STOPS + 1), "graceful stops: no attempt spent")
    crashes = stack.query("SELECT count(*) FROM holdfast.event e JOIN holdfast.task t "
                          "USING (week, task) WHERE t.effect_id = %s AND e.kind = 'crash'",
                          (effect_id,))
    equal(crashes, [(0,)], "graceful stops: no crash is noted")


def starts(effect_id):
    return [line for line in stack.run_log(effect_id, "start") if line["phase"] == "P1"]


supervisor = threading.Thread(target=supervise, daemon=True)
supervisor.start()
for way in poisoning.WAYS:
    began = time.monotonic()
    poison(way)
    print(f"{way}: {time.monotonic() - began:.1f} s", flush=True)
neighbours()
for way in ("abort", "worker"):
    cancelled(way)
graceful()
supervising = False
supervisor.join()
rig.finish("poison", counts, {"poisoned": 3, "starts": 3 * LIMIT, "healthy": 3 * HEALTHY,
                              "cancelled": 2, "graceful": STOPS, "restarts": LIMIT,
                              "neighbours": 1})
