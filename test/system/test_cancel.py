#!/usr/bin/python3
"""Cancel (R2.7, rule 9, tasks T7): at once where nothing foreign is in flight; what has left is
waited for and told; after the end it changes nothing; nobody else's cancel does anything."""

import time

import rig
from patience import soon
from rig import check, equal, until

counts = {"cancelled": 0, "too_late": 0, "refused": 0, "processes_gone": 0}
stack = rig.Stack(workers=1, tools=[rig.probe_tool(), rig.http_tool()],
                  settings={"worker": {"beat_ms": 200}, "maintain": {"maintain_ms": 100}})
client = stack.client()


def begin(plan=None, tool="probe"):
    effect_id = rig.new_id("cancel")
    arguments = {"effect_id": effect_id}
    if plan is not None:
        arguments["plan"] = rig.json.dumps(plan)
    answer = client.call(tool, arguments)
    check(answer.handle, "a handle", repr(answer))
    return effect_id, arguments, answer.task_id


def cancel(task_id, what):
    answer = client.cancel(task_id)
    equal(answer.status, 200, f"{what}: status")
    result = dict(answer.result or {"none": repr(answer)})
    result.pop("_meta", None)
    equal(result, {"resultType": "complete"}, f"{what}: an empty acknowledgement")


def ends(task_id, status, seconds, what):
    began = time.monotonic()
    answer = client.wait(task_id, 30)
    soon(began, seconds, f"{what}: within {seconds} s")
    equal(answer.result["status"], status, f"{what}: status")
    return answer.result


def in_a_pure_phase():
    """Five times: the program, and what it started, are killed at once."""
    for _ in range(5):
        effect_id, arguments, task_id = begin({"P1": [{"grandchild": True}, {"gate": "in"}]})
        line = stack.at_gate(effect_id, "in")
        grandchild = stack.run_log(effect_id, "grandchild")[0]["child"]
        cancel(task_id, "in P1")
        result = ends(task_id, "cancelled", 3, "in P1")
        check("result" not in result and "error" not in result, "cancelled has neither", result)
        for pid in (line["pid"], grandchild):
            if until(lambda pid=pid: rig.process_gone(pid), 10, f"process {pid} gone"):
                counts["processes_gone"] += 1
        equal(len(stack.run_log(effect_id, "start")), 1, "no phase started after it")
        repeat = client.call("probe", arguments)
        equal((repeat.task_id, repeat.result["status"]), (task_id, "cancelled"),
              "the effect ID answers with the cancelled handle")
        counts["cancelled"] += 1


def between_phases():
    """P1 is done and stays done; the message says so."""
    effect_id, _, task_id = begin({"P1": [], "P2": [{"gate": "in"}]})
    stack.at_gate(effect_id, "in")
    cancel(task_id, "in P2 before its request")
    time.sleep(0.3)
    stack.open_gate(effect_id, "in")
    result = ends(task_id, "cancelled", 15, "in P2")
    check("P1" in result.get("statusMessage", ""), "it says which phases ran", result)
    equal(stack.run_log(effect_id, "start")[-1]["phase"], "P2", "P3 never started")
    equal([step[2] for step in stack.steps(task_id) if step[1] == "recovery_point"][:1], ["P1"],
          "the recovery point of P1 stands")
    counts["cancelled"] += 1


def with_a_request_in_flight():
    """A keyed request that has left is waited for, its recovery point committed, then cancelled;
    or it was the last phase, and the task is completed. Never an effect that nobody knows of."""
    stack.steer(delay_after_ms=1500)
    for _ in range(3):
        before = len(stack.ledger())
        effect_id, _, task_id = begin(tool="deliver")
        until(lambda: len(stack.ledger()) > before, 10, "the request is downstream")
        cancel(task_id, "request in flight")
        result = client.wait(task_id, 30).result
        check(result["status"] in ("completed", "cancelled"), "request in flight: the end", result)
        steps = [step[2] for step in stack.steps(task_id) if step[1] == "recovery_point"]
        equal(steps, ["post"], "its answer is kept")
        if result["status"] == "cancelled":
            check("post" in result.get("statusMessage", ""), "it says that post ran", result)
        equal(stack.effects_by_id().get(effect_id), 1, "one effect")
        counts["cancelled"] += 1
    stack.steer(delay_after_ms=0)


def not_yet_claimed():
    """No worker lives: the store writes the outcome itself."""
    worker = stack.workers[0]
    equal(worker.terminate(), 0, "a worker stops with 0")
    _, _, task_id = begin({"P1": []})
    cancel(task_id, "not claimed")
    ends(task_id, "cancelled", 1, "not claimed")
    worker.start()
    counts["cancelled"] += 1


def too_late():
    effect_id, arguments, task_id = begin({"P1": []})
    end = client.wait(task_id)
    equal(end.result["status"], "completed", "completed first")
    for _ in range(3):
        cancel(task_id, "after the end")
        counts["too_late"] += 1
    again = client.get(task_id)
    equal(again.body.replace(b'"id":%d' % again.id, b""),
          end.body.replace(b'"id":%d' % end.id, b""), "nothing has changed")
    equal(client.call("probe", arguments).task_id, task_id, "nor for a repeat")


def twice():
    effect_id, _, task_id = begin({"P1": [{"gate": "in"}]})
    stack.at_gate(effect_id, "in")
    rig.in_parallel(lambda _: cancel_alone(task_id), range(16))
    ends(task_id, "cancelled", 3, "16 cancels at once")
    cancel(task_id, "and one more")
    outcomes = [step for step in stack.steps(task_id) if step[1] == "outcome"]
    equal(len(outcomes), 1, "one outcome")
    counts["cancelled"] += 1


def cancel_alone(task_id):
    own = stack.client()
    equal(own.cancel(task_id).status, 200, "one of many cancels")
    own.close()


def by_others():
    effect_id, _, task_id = begin({"P1": [{"gate": "in"}]})
    stack.at_gate(effect_id, "in")
    unknown = "tsk_" + "A" * 32
    for token in ("rig-bob", "rig-anna"):
        other = stack.client(token)
        for method in ("tasks/cancel", "tasks/get"):
            foreign = other.request(method, {"taskId": task_id}, task_id)
            absent = other.request(method, {"taskId": unknown}, unknown)
            equal(foreign.code, -32602, f"{token} {method}: code")
            equal((foreign.status, foreign.error), (absent.status, absent.error),
                  f"{token} {method}: as if there were none")
            counts["refused"] += 1
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": 1, "taskId": task_id, "_meta": rig.meta()}}
    client.post(rig.json.dumps(note), client.headers("notifications/cancelled", None))
    time.sleep(1)
    equal(client.get(task_id).result["status"], "working", "still working")
    stack.open_gate(effect_id, "in")
    ends(task_id, "completed", 10, "after others tried")


rig.run(in_a_pure_phase, between_phases, with_a_request_in_flight, not_yet_claimed, too_late, twice,
        by_others)
rig.finish("cancel", counts, {"cancelled": 11, "too_late": 3, "refused": 4, "processes_gone": 10})
