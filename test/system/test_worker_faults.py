#!/usr/bin/python3
"""A tool that exits, writes garbage, floods, hangs or dies is a clear outcome with its stderr tail;
none of it touches its neighbours. SIGTERM hands work back without spending an attempt. A zombie (a
worker stopped past its lease and woken) commits nothing (V4)."""

import signal
import time

import patience
import rig
from rig import check, equal, until

counts = {"outcomes": 0, "retried": 0, "handed_back": 0, "zombies": 0, "poison_starts": 0,
          "neighbours": 0}
LEASE_MS = 3000  # long enough for one that only stalls: each start of a phase is counted
LEASE = {"worker": {"beat_ms": 100, "lease_ms": LEASE_MS, "poll_ms": 100, "drain_ms": 20_000},
         "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}}
SHORT = {"timeout_ms": 5000, "attempts": 3}
stack = rig.Stack(workers=2, settings=LEASE, tools=[
    rig.probe_tool(crash_limit=4),
    rig.probe_tool("brief", {"P1": SHORT, "P2": SHORT, "P3": SHORT}, crash_limit=4)])
client = stack.client()


def begin(plan, tool="probe"):
    effect_id = rig.new_id("fault")
    answer = client.call(tool, {"effect_id": effect_id, "plan": rig.json.dumps(plan)})
    check(answer.handle, "a handle", repr(answer))
    return effect_id, answer.task_id


def run(plan, tool="probe", seconds=60):
    effect_id, task_id = begin(plan, tool)
    counts["outcomes"] += 1
    return effect_id, client.wait(task_id, seconds).result


def starts(effect_id, phase=None):
    return [line for line in stack.run_log(effect_id, "start") if phase in (None, line["phase"])]


def text_of(result):
    return " ".join(block.get("text", "") for block in result.get("result", {}).get("content", []))


def tool_says_no():
    """The tool's own error: completed with isError, not run again, stored for every repeat."""
    for plan, shown in (
            ([{"stderr": "it broke here"}, {"exit": 3}], "it broke here"),
            ([{"stderr": "first line\nlast words"}, {"exit": 1}], "last words"),
            ([{"error": "no such month"}], "no such month"),
            ([{"error": "\u00e4\u00f6\u00fc \U0001f600 <b>"}], "\u00e4\u00f6\u00fc \U0001f600 <b>")):
        effect_id, result = run({"P1": plan})
        equal(result["status"], "completed", f"{shown!r}: completed")
        equal(result.get("result", {}).get("isError"), True, f"{shown!r}: isError")
        check(shown in text_of(result), f"{shown!r} is told", result)
        equal(len(starts(effect_id)), 1, f"{shown!r}: not run again")


def passing_faults():
    """What a second attempt mends: exit 75, error with retry; then it completes."""
    for name, action in (("exit 75", {"exit": 75}), ("error, retry", {"error": "x", "retry": True})):
        effect_id, result = run({"P1": [{**action, "starts": [1, 2]}]})
        equal(result["status"], "completed", f"{name}: completed")
        equal(result.get("result", {}).get("isError", False), False, f"{name}: no error")
        equal([line["attempt"] for line in starts(effect_id, "P1")], [1, 2, 3], f"{name}: attempts")
        counts["retried"] += 1
    effect_id, result = run({"P1": [{"exit": 75}]}, "brief")
    equal(result["status"], "failed", "always exit 75: failed")
    equal(len(starts(effect_id)), SHORT["attempts"], "always exit 75: as many starts as attempts")
    executed((result.get("error") or {}), "always exit 75")


def executed(error, what):
    check(isinstance(error.get("code"), int) and error.get("message"), f"{what}: an error", error)
    check((error.get("data") or {}).get("executed") in ("no", "maybe", "yes"),
          f"{what}: says whether it executed", error)


def infrastructure():
    """Killed by a signal, garbage, a huge frame, a closed pipe: no business attempt is spent, it
    is run again, and it completes."""
    for name, action in (("SIGKILL", {"signal": 9}), ("SIGSEGV", {"signal": 11}),
                         ("SIGABRT", {"signal": 6}), ("garbage", {"garbage": True}),
                         ("huge frame", {"huge_frame": True}), ("closed pipe", {"close": True})):
        effect_id, result = run({"P1": [{"checkpoint": ["done", {"n": 1}], "starts": [1]},
                                        {"recall": "done"}, {**action, "starts": [1]}]})
        equal(result["status"], "completed", f"{name}: completed")
        equal(len(starts(effect_id, "P1")), 2, f"{name}: started twice")
        recalled = [line["value"] for line in stack.run_log(effect_id, "recall")]
        equal(recalled, [{"n": 1}, {"n": 1}], f"{name}: the checkpoint was there the second time")
        steps = stack.query("SELECT attempt FROM holdfast.step WHERE task = (SELECT task FROM "
                            "holdfast.task WHERE effect_id = %s) AND kind = 'recovery_point' "
                            "ORDER BY place LIMIT 1", (effect_id,))
        equal(steps, [(1,)], f"{name}: no attempt was spent")
        counts["retried"] += 1


def poison():
    """Always dies: ends failed after crash_limit starts; healthy tasks beside it all complete."""
    effect_id, task_id = begin({"P1": [{"stderr": "poison"}, {"signal": 9}]})
    neighbours = [begin({"P1": [{"sleep_ms": 100}]})[1] for _ in range(20)]
    result = client.wait(task_id, 60).result
    equal(result["status"], "failed", "poison: failed")
    executed(result.get("error") or {}, "poison")
    equal(len(starts(effect_id)), 4, "poison: crash_limit starts")
    began = [line["at"] for line in starts(effect_id)]
    gaps = [later - earlier for earlier, later in zip(began, began[1:])]
    check(min(gaps) > 0.01, "poison: not in a tight loop", gaps)
    counts["poison_starts"] = len(began)
    for neighbour in neighbours:
        equal(client.wait(neighbour).result["status"], "completed", "a neighbour of poison")
        counts["neighbours"] += 1


def hangs():
    effect_id, result = run({"P1": [{"grandchild": True}, {"hang": True}]}, "brief")
    equal(result["status"], "failed", "hang: failed")
    equal(len(starts(effect_id)), SHORT["attempts"], "hang: as many starts as attempts")
    told = rig.json.dumps(result)
    check("timed out" in told, "hang: it says so", told)
    for line in stack.run_log(effect_id, "grandchild"):
        until(lambda line=line: rig.process_gone(line["pid"]) and
              rig.process_gone(line["child"]), 20,
              "hang: the process and its child are gone")
    effect_id, result = run({"P1": [{"hang": True, "starts": [1]}]}, "brief")
    equal(result["status"], "completed", "hung once: completed")


def floods():
    """8 MB on stderr: the worker keeps the tail and its size."""
    before = [rig.memory_kib(worker.pid) for worker in stack.workers]
    _, result = run({"P1": [{"flood_bytes": 8 << 20}, {"stderr": "after the flood"},
                            {"exit": 4}]})
    check("after the flood" in text_of(result), "flood: the tail is told", text_of(result)[-300:])
    check(len(text_of(result)) < 64_000, "flood: no more than the tail", len(text_of(result)))
    for worker, kilobytes in zip(stack.workers, before):
        check(rig.memory_kib(worker.pid) - kilobytes < 64_000, "flood: the worker did not grow",
              (kilobytes, rig.memory_kib(worker.pid)))
    _, result = run({"P1": [{"flood_bytes": 1 << 20}]})
    equal(result["status"], "completed", "a flood is no fault")


def data_that_hurts():
    """NUL, bad UTF-8, huge numbers in what the tool says: an outcome, and valid JSON."""
    for name, error in (("NUL", "a\0b"), ("a control character", "a\x01b"), ("long", "x" * 100_000),
                        ("empty", "")):
        _, result = run({"P1": [{"error": error}]})
        check(result["status"] in ("completed", "failed"), f"error text with {name}: an end", result)
    for name, value in (("2^53 + 1", 9007199254740993), ("the largest", 2**63 - 1),
                        ("text with NUL", "a\0b"), ("nested", [[[[[1]]]]])):
        effect_id, result = run({"P1": [{"checkpoint": ["v", value]}, {"recall": "v"}]})
        check(result["status"] in ("completed", "failed"), f"state {name}: an end", result)
        refused = result.get("result", {}).get("isError")  # as FRAMES.md has it: no NUL in texts
        equal(bool(refused), "NUL" in name, f"state {name}: refused by name, or not at all")
        if not refused:
            equal([line["value"] for line in stack.run_log(effect_id, "recall")], [value],
                  f"state {name}: whole")


def holder_of(effect_id, gate):
    parent = stack.at_gate(effect_id, gate)["parent"]
    return next(worker for worker in stack.workers if worker.pid == parent)


def sigterm():
    """Pure work is handed back at once, before it could be taken from a dead one; another worker
    starts it, and no attempt is spent. A machine that stands still is late with one."""
    late = []
    for _ in range(5):
        effect_id, task_id = begin({"P3": [{"gate": "in"}]})
        worker = holder_of(effect_id, "in")
        asked = time.time()
        equal(worker.terminate(), 0, "SIGTERM: exit 0")
        stack.open_gate(effect_id, "in")
        equal(client.wait(task_id).result["status"], "completed", "SIGTERM: completed elsewhere")
        second = starts(effect_id, "P3")[-1]
        late += [second["at"] - asked] * (patience.between(asked, second["at"]) > LEASE_MS / 1000)
        equal([line["attempt"] for line in starts(effect_id, "P3")], [1, 1],
              "SIGTERM: no attempt spent")
        equal([len(starts(effect_id, phase)) for phase in ("P1", "P2")], [1, 1],
              "SIGTERM: no committed phase ran again")
        crashes = stack.query("SELECT count(*) FROM holdfast.event e JOIN holdfast.task t "
                              "USING (week, task) WHERE t.effect_id = %s AND e.kind = 'crash'",
                              (effect_id,))
        equal(crashes, [(0,)], "SIGTERM: no crash is noted")
        worker.start()
        counts["handed_back"] += 1
    check(len(late) <= 1, "SIGTERM: taken over at once", late)


def sigterm_with_a_request():
    """A keyed phase may have a request under way: it is waited for, and its answer is kept."""
    effect_id, task_id = begin({"P2": [{"gate": "in"}, {"post": True}]})
    worker = holder_of(effect_id, "in")
    worker.signal(signal.SIGTERM)
    time.sleep(0.5)
    stack.open_gate(effect_id, "in")
    equal(worker.popen.wait(30), 0, "SIGTERM in a keyed phase: exit 0")
    equal(client.wait(task_id).result["status"], "completed", "SIGTERM in a keyed phase: completed")
    equal(len(starts(effect_id, "P2")), 1, "SIGTERM in a keyed phase: it ended where it was")
    equal(len([line for line in stack.requests("/ledger") if effect_id in line["body"]]), 1,
          "SIGTERM in a keyed phase: one request")
    worker.start()


def sigterm_idle_and_twice():
    worker = stack.workers[0]
    until(lambda: worker.handles(signal.SIGTERM), 20, "the worker has started")
    equal(worker.terminate(10), 0, "SIGTERM, idle: exit 0 at once")
    worker.start()
    effect_id, task_id = begin({"P1": [{"gate": "in"}]})
    worker = holder_of(effect_id, "in")
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGTERM)
    check(worker.popen.wait(10) is not None, "SIGTERM twice: a prompt end")
    stack.open_gate(effect_id, "in")
    equal(client.wait(task_id).result["status"], "completed", "SIGTERM twice: completed elsewhere")
    worker.start()


def zombies():
    """Stopped past its lease in P1, before the POST, after it; woken after another has finished."""
    for phase, post in (("P1", True), ("P2", True), ("P2", False), ("P3", True)) * 2:
        plan = {"P2": [{"post": True}]}
        gates = [{"gate": "in", "starts": [1]}]
        plan[phase] = gates + plan.get(phase, []) if post else plan.get(phase, []) + gates
        effect_id, task_id = begin(plan)
        worker = holder_of(effect_id, "in")
        worker.signal(signal.SIGSTOP)
        until(lambda effect_id=effect_id, phase=phase: len(starts(effect_id, phase)) == 2, 30,
              f"zombie in {phase}: taken over")
        stack.open_gate(effect_id, "in")
        end = client.wait(task_id)
        equal(end.result["status"], "completed", f"zombie in {phase}: completed")
        before = stack.steps(task_id)
        worker.signal(signal.SIGCONT)
        time.sleep(1)
        equal(stack.steps(task_id), before, f"zombie in {phase}: it committed nothing")
        equal(rig.stored_part(client.get(task_id)), rig.stored_part(end),
              f"zombie in {phase}: the result stands")
        check(worker.alive(), f"zombie in {phase}: it lives on")
        counts["zombies"] += 1
        # It has a new incarnation: alone, it takes work again.
        for other in stack.workers:
            if other is not worker:
                other.terminate()
        equal(run({})[1]["status"], "completed", f"zombie in {phase}: it works again")
        for other in stack.workers:
            if other is not worker:
                other.start()
        equal(stack.effects_by_id().get(effect_id), 1, f"zombie in {phase}: one effect")


def progress():
    effect_id, task_id = begin({"P1": [{"progress": [0.43, "chart 3 of 7"]}, {"gate": "in"}]})
    stack.at_gate(effect_id, "in")
    shown = until(lambda: seen(task_id), 20, "progress is shown")
    check(shown, "chart 3 of 7 in the status message")
    stack.open_gate(effect_id, "in")
    equal(client.wait(task_id).result["status"], "completed", "progress: completed")


def seen(task_id):
    result = client.get(task_id).result
    return "chart 3 of 7" in result.get("statusMessage", "")


rig.run(tool_says_no, passing_faults, infrastructure, poison, hangs, floods, data_that_hurts,
        progress, sigterm, sigterm_with_a_request, sigterm_idle_and_twice, zombies)
for worker in stack.workers:
    check(worker.alive(), f"{worker.name} lives")
rig.finish("worker_faults", counts, {"outcomes": 25, "retried": 8, "handed_back": 5, "zombies": 8,
                                     "poison_starts": 4, "neighbours": 20})
