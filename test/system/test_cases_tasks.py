#!/usr/bin/python3
"""Public failing cases about tasks: B019 (retention counts from the end), B020 (what is not there
is one answer), B021 (nobody reaches the task of another), B022 (results are results, errors are
errors), and their kinds."""

import base64
import json
import socket
import threading
import time

import rig
from patience import soon
from rig import check, equal, until

TTL_MS = 2500
TOMBSTONE_MS = 7000  # as the TTL from the end: in between a repeat is told that it ran
WORK_MS = 4000
LEASE_MS = 5000  # longer than the machine stands still: nothing runs twice for that
counts = {"polls": 0, "kept_open": 0, "one_answer": 0, "denied": 0, "shapes": 0, "ids": 0}
rig.TOKENS |= {"rig-alice-b": ("alice", "B"), "rig-Alice": ("Alice", "A"),
               "rig-b-alice": ("b", "alice")}
SHORT = {"result_ttl_ms": TTL_MS, "tombstone_ttl_ms": TOMBSTONE_MS}
BACKOFF = {"backoff_first_ms": 3000, "backoff_max_ms": 3000}
stack = rig.Stack(
    apis=2, workers=2,
    tools=[rig.probe_tool(crash_limit=2),
           rig.probe_tool("brief", {"P1": {}, "P3": {**BACKOFF}}, **SHORT),
           rig.http_tool("lost", attempts=1, key_ttl_ms=1000, members=SHORT)],
    settings={"api": {"beat_ms": 200},
              "worker": {"beat_ms": 200, "lease_ms": LEASE_MS, "poll_ms": 100},
              "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 100}})
UNKNOWN = "tsk_" + "A" * 32


def call(client, tool, effect_id, plan):
    return client.call(tool, {"effect_id": effect_id, "plan": json.dumps(plan)})


# --- B019 ----------------------------------------------------------------------------------------

def b019_retention_counts_from_the_end():
    client = stack.client()
    effect_id = rig.new_id("b019")
    plan = {"P1": [{"post": True}, {"progress": [0.1, "begun"]}, {"sleep_ms": WORK_MS}]}
    task = call(client, "brief", effect_id, plan).task_id
    ended, gone = None, 0.0
    while True:
        answer = client.get(task)
        equal(answer.status, 200, "B019 every poll is 200")
        counts["polls"] += 1
        if answer.code == -32602:
            gone = time.time()
            break
        status = answer.result["status"]
        if status == "completed":
            ended = ended or time.monotonic()
            gone_from = rig.seconds_of(answer.result["lastUpdatedAt"]) + TTL_MS / 1000
            ttl = answer.result["ttlMs"]
            check(WORK_MS + TTL_MS <= ttl < 4 * WORK_MS, "B019 ttlMs: to the end, then retention",
                  ttl)
            again = call(client, "brief", effect_id, plan)
            check(again.task_id == task or again.structured.get("type") == "effect_expired",
                  "B019 a repeat within retention: the same task", repr(again))
        else:
            equal(status, "working", "B019 working until the end")
            equal(answer.result["ttlMs"], None, "B019 no end of an open task")
        if not check(counts["polls"] < 1000, "B019 the polls come to an end"):
            break
        time.sleep(0.1)
    if not check(ended, "B019 it completed though it worked longer than its TTL"):
        return
    check(gone >= gone_from, "B019 readable for its retention", gone - gone_from)
    soon(ended, TTL_MS / 1000 + 2, "B019 and no longer")
    repeats = b019_tombstone(client, effect_id, plan, task)
    check(repeats, "B019 the tombstone was met")
    equal(stack.effects_by_id().get(effect_id), 1, "B019 one effect")
    equal(len(stack.task_rows(effect_id)), 1, "B019 after all, one row")
    client.close()


def b019_tombstone(client, effect_id, plan, first):
    """A late repeat is told that it ran; when the tombstone is over, it is a new task, whole."""
    repeats, end = 0, time.monotonic() + 20
    while time.monotonic() < end:
        answer = call(client, "brief", effect_id, plan)
        if answer.handle:
            check(answer.task_id != first, "B019 after the tombstone: a new handle")
            equal(client.wait(answer.task_id).result["status"], "completed", "B019 which completes")
            equal(client.get(first).code, -32602, "B019 the old handle stays gone")
            return repeats
        equal((answer.structured.get("type"), answer.structured.get("executed")),
              ("effect_expired", "yes"), "B019 expired: it ran, its result is gone")
        equal(len(stack.run_log(effect_id, "start")), 2, "B019 expired: nothing ran")
        repeats += 1
        time.sleep(0.1)
    check(False, "B019 the tombstone never ends")
    return repeats


def b019_no_open_task_is_ever_swept():
    """Parked, backing off, standing at a gate, unknown: each for several times its TTL."""
    client = stack.client()
    gate, backing, parked, lost = (rig.new_id("open") for _ in range(4))
    held = {gate: call(client, "brief", gate, {"P1": [{"gate": "in"}]}).task_id}
    held[backing] = call(client, "brief", backing,
                         {"P3": [{"error": "x", "retry": True, "starts": [1, 2]}]}).task_id
    stack.steer(lose_answers=1)
    held[lost] = client.call("lost", {"effect_id": lost}).task_id
    until(lambda: stack.state(held[lost]) == "unknown", 20, "B019 unknown")
    leaver = threading.Thread(target=hang_up, args=(parked, {"P1": [{"gate": "in"}]}))
    leaver.start()
    leaver.join()
    held[parked] = until(lambda: stack.task_of(parked), 10, "B019 parked: there")
    until(lambda: stack.state(held[parked]) == "parked", 10, "B019 parked")
    end = time.monotonic() + 3 * TTL_MS / 1000
    while time.monotonic() < end:
        for effect_id, task in held.items():
            answer = client.get(task)
            status = (answer.result or {}).get("status")
            check(status == "working" or effect_id == backing and ended_p3(backing),
                  "B019 open: working", repr(answer))
        time.sleep(0.25)
    for effect_id in (gate, parked):
        stack.open_gate(effect_id, "in")
    again = call(client, "brief", parked, {"P1": [{"gate": "in"}]})
    equal(again.task_id, held[parked], "B019 parked: the same effect ID takes it up")
    equal(stack.state(held[lost]), "unknown", "B019 unknown stays, past its TTL")
    for effect_id in (gate, backing, parked):
        equal(end_of(client, effect_id, held), "completed", "B019 open: completed in the end")
        counts["kept_open"] += 1
    counts["kept_open"] += 1
    client.close()


def ended_p3(effect_id):
    return any(line["phase"] == "P3" for line in stack.run_log(effect_id, "end"))


def end_of(client, effect_id, held):
    answer = client.wait(held[effect_id], 30)
    if answer.code == -32602:  # it ended, and was kept as long as it should
        return "completed" if stack.run_log(effect_id, "end") else "gone"
    return answer.result["status"]


def hang_up(effect_id, plan):
    """A plain client that leaves while its program stands at the gate."""
    client = rig.Client(stack.apis[0].port)
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        connection.sendall(client.call_bytes("brief", {
            "effect_id": effect_id, "plan": json.dumps(plan)}, _meta=rig.meta(False)))
        stack.at_gate(effect_id, "in")


# --- B020, B021 ----------------------------------------------------------------------------------

def bytes_of(client, method, task_id, **more):
    """Status and body under one JSON-RPC id, so that answers can be compared byte for byte."""
    client.number = 76
    params = {"taskId": task_id, **({"inputResponses": {}} if method == "tasks/update" else {})}
    name = task_id if task_id.isascii() and task_id.isprintable() and task_id.strip() == task_id \
        and 0 < len(task_id) < 8000 else None
    answer = client.request(method, params, name, **more)
    return answer.status, answer.body


METHODS = ("tasks/get", "tasks/cancel", "tasks/update")


def malformed(real):
    turned = real[:-1] + ("A" if real[-1] != "A" else "B")
    return ["", " ", "x", "tsk_", "TSK_" + real[4:], real[4:], real[:-1], real + "A", real + "=",
            real + " ", " " + real, real + "\n", real.replace("_", "-", 1), turned,
            "tsk_" + "_" * 32, "tsk_" + "=" * 32, "tsk_" + "/" * 32, "tsk_" + "\u0410" * 32,
            "tsk_" + "A" * 10_000, "null", "../" + real, "%74sk_" + real[4:], real.swapcase(),
            "tsk_" + base64.urlsafe_b64encode(b"\xff" * 24).decode()]


def b020_what_is_not_there_is_one_answer():
    """Unknown, malformed, expired, foreign: byte for byte the same, before and after a restart of
    all; the running one is working throughout."""
    gone, client, bob = gone_task(), stack.client(), stack.client("rig-bob")
    effect_id = rig.new_id("b020")
    task = call(client, "probe", effect_id, {"P1": [{"gate": "in"}]}).task_id
    theirs = call(bob, "probe", rig.new_id("b020"), {"P1": []}).task_id
    stack.at_gate(effect_id, "in")
    bob.wait(theirs)
    for when in ("before", "after"):
        for method in METHODS:
            wanted = bytes_of(client, method, UNKNOWN)
            if method != "tasks/update":  # comes with input_required
                error = json.loads(wanted[1])["error"]
                equal((wanted[0], error["code"]), (200, -32602), f"B020 {method}: code")
                check("not found" in error["message"] or "expired" in error["message"],
                      f"B020 {method}: the message says so", error)
            for other in [gone, theirs, *malformed(task)]:
                got = bytes_of(client, method, other)
                equal(got, wanted, f"B020 {method} {ascii(other)[:50]}, {when} a restart")
                counts["one_answer"] += 1
            equal(client.request(method, {"taskId": task + "\0"}).code, -32602,
                  f"B020 {method}: an ID with NUL")
        if when == "before":
            restart_under_polls(task)
            client.close()
    equal(client.get(task).result["status"], "working", "B020 the running one is working")
    stack.open_gate(effect_id, "in")
    equal(client.wait(task).result["status"], "completed", "B020 and completes")
    client.close()
    bob.close()


def restart_under_polls(task):
    for number, api in enumerate(stack.apis):
        other = stack.client(api=1 - number)
        api.kill()
        for worker in stack.workers[number:number + 1]:
            worker.kill()
            worker.start()
        api.start()
        while not stack.ready(api):
            answer = other.get(task)
            equal((answer.result or {}).get("status"), "working", "B020 working while all restart")
            time.sleep(0.05)
        other.close()


def b021_nobody_reaches_the_task_of_another():
    """Sibling, other tenant, same name in another tenant, other spelling: as if it were not there;
    without a right token 401, whatever the ID. The task goes on."""
    client = stack.client()
    effect_id = rig.new_id("b021")
    task = call(client, "probe", effect_id, {"P1": [{"gate": "in"}]}).task_id
    stack.at_gate(effect_id, "in")
    before = stack.query("SELECT state, token, cancel, held FROM holdfast.work WHERE task = %s",
                         (rig.task_bytes(task),))
    for token in rig.TOKENS:
        if token == "rig-alice":
            continue
        other = stack.client(token)
        for method in METHODS:
            equal(bytes_of(other, method, task), bytes_of(other, method, UNKNOWN),
                  f"B021 {token} {method}: as an unknown ID")
            counts["denied"] += 1
        for name in ("task_status", "task_result", "task_cancel"):
            for known, absent in (({"task_id": task}, {"task_id": UNKNOWN}),
                                  ({"effect_id": effect_id, "tool": "probe"},
                                   {"effect_id": rig.new_id("none"), "tool": "probe"})):
                got = companion(other, name, known)
                equal(got["structuredContent"]["type"], "task_not_found", f"B021 {token} {name}")
                check(task not in json.dumps(got) or "task_id" in known,
                      f"B021 {token} {name}: the ID is not told", got)
                equal(scrubbed(got, known), scrubbed(companion(other, name, absent), absent),
                      f"B021 {token} {name}: as an unknown one")
                counts["denied"] += 1
        other.close()
    for token in ("nobody", "rig-alic", "rig-alice2", "RIG-ALICE", ""):
        other = stack.client(token)
        for method in METHODS:
            known, absent = bytes_of(other, method, task), bytes_of(other, method, UNKNOWN)
            equal(known, absent, f"B021 token {token!r} {method}: the ID makes no difference")
            check(known[0] in (400, 401), f"B021 token {token!r}: refused", known)
            counts["denied"] += 1
        other.close()
    equal(stack.query("SELECT state, token, cancel, held FROM holdfast.work WHERE task = %s",
                      (rig.task_bytes(task),)), before, "B021 the task is as it was")
    stack.open_gate(effect_id, "in")
    equal(client.wait(task).result["status"], "completed", "B021 it goes on")
    for token in ("rig-bob", "rig-anna", "rig-alice-b"):
        other = stack.client(token)
        for method in METHODS:
            equal(bytes_of(other, method, task), bytes_of(other, method, UNKNOWN),
                  f"B021 {token} {method}, finished: as an unknown ID")
            counts["denied"] += 1
        other.close()
    client.close()


def companion(client, name, arguments):
    if name == "task_status":
        arguments = {**arguments, "wait_ms": 0}
    return client.call(name, arguments, declare=False).result or {}


def scrubbed(result, named):
    """Without what the caller said itself."""
    text = json.dumps(result)
    for value in named.values():
        text = text.replace(value, "?")
    return text


def b021_ids_cannot_be_guessed():
    """At least 122 bits of each ID are random: over many, each of them is set in about half."""
    client = stack.client()
    for _ in range(200):
        call(client, "probe", rig.new_id("b021"), {})
    rows = [bytes(row[0]) for row in stack.query("SELECT task FROM holdfast.task")]
    tails = [int.from_bytes(task[-16:], "big") for task in rows]
    equal(len(set(tails)), len(tails), "B021 no two are alike")
    random_bits = sum(0.3 < sum(tail >> bit & 1 for tail in tails) / len(tails) < 0.7
                      for bit in range(128))
    check(random_bits >= 122, "B021 random bits", random_bits)
    shared = max(bin(a ^ b).count("1") for a, b in zip(tails, tails[1:]))
    check(shared > 40, "B021 neighbours have nothing in common", shared)
    counts["ids"] = len(rows)
    client.close()


# --- B022 ----------------------------------------------------------------------------------------

ENDS = {
    "ok": ({}, "completed", False),
    "isError": ({"P1": [{"error": "no such month"}]}, "completed", True),
    "isError with stderr": ({"P1": [{"stderr": "it broke"}, {"exit": 3}]}, "completed", True),
    "isError of no words": ({"P1": [{"error": ""}]}, "completed", True),
    "isError after an effect": ({"P2": [{"post": True}, {"error": "and then not"}]}, "completed",
                                True),
    "an empty result": ({"P3": [{"say": {"t": "result", "value": ""}}]}, "completed", False),
    "a null result": ({"P3": [{"say": {"t": "result", "value": None}}]}, "completed", False),
    "an empty map": ({"P3": [{"say": {"t": "result", "value": {}}}]}, "completed", False),
    "a result like a task": ({"P3": [{"say": {"t": "result", "value": {
        "taskId": UNKNOWN, "status": "failed", "resultType": "task", "error": {"code": 1}}}}]},
        "completed", False),
    "a result like an error": ({"P3": [{"say": {"t": "result", "value": {"isError": True}}}]},
                               "completed", False),
    "a handler that dies": ({"P1": [{"signal": 11}]}, "failed", None),
    "one that dies late": ({"P2": [{"post": True}], "P3": [{"signal": 6}]}, "failed", None),
}


def b022_results_are_results_and_errors_are_errors(name):
    plan, status, is_error = ENDS[name]
    client = stack.client()
    effect_id = rig.new_id("b022")
    handle = call(client, "probe", effect_id, plan)
    equal((handle.result or {}).get("resultType"), "task", f"B022 {name}: the handle is a task")
    for member in ("task", "result", "error", "inputRequests", "requestState", "ttl",
                   "pollInterval"):
        check(member not in handle.result, f"B022 {name}: no {member} in the handle", handle.result)
    task = client.wait(handle.task_id).result
    equal((task["resultType"], task["status"]), ("complete", status), f"B022 {name}: tasks/get")
    again = call(client, "probe", effect_id, plan)
    equal((again.result["resultType"], again.result["status"], again.task_id,
           "result" in again.result),
          ("task", status, handle.task_id, False), f"B022 {name}: the handle of what is over")
    plain = client.call("probe", {"effect_id": effect_id, "plan": json.dumps(plan)}, declare=False)
    counts["shapes"] += 1
    if status == "failed":
        check("result" not in task, f"B022 {name}: no result beside the error", task)
        check(isinstance(task["error"].get("code"), int) and task["error"].get("message"),
              f"B022 {name}: an error", task)
        check((task["error"].get("data") or {}).get("executed") in ("no", "maybe", "yes"),
              f"B022 {name}: executed", task)
        equal((plain.result or {}).get("isError"), True, f"B022 {name}: plain, an error too")
        client.close()
        return
    check("error" not in task, f"B022 {name}: no error beside the result", task)
    result = task["result"]
    equal((result["resultType"], result["isError"]), ("complete", is_error),
          f"B022 {name}: isError")
    check(result["content"] and all(block["type"] == "text" for block in result["content"]),
          f"B022 {name}: content", result)
    message = task.get("statusMessage")
    check(not message or all(block["text"] != message for block in result["content"]),
          f"B022 {name}: the message is not the result", task)
    ours = {key: value for key, value in result.items() if key != "_meta"}
    theirs = {key: value for key, value in plain.result.items() if key != "_meta"}
    equal(theirs, ours, f"B022 {name}: as the plain call has it")
    fresh = client.call("probe", {"effect_id": rig.new_id("b022"), "plan": json.dumps(plan)},
                        declare=False)
    theirs = {key: value for key, value in fresh.result.items() if key != "_meta"}
    if name != "isError with stderr":
        equal(theirs, ours, f"B022 {name}: as a plain call first has it")
    client.close()


def gone_task():
    """One that completed and was swept."""
    client = stack.client()
    effect_id = rig.new_id("gone")
    task = call(client, "brief", effect_id, {}).task_id
    client.wait(task)
    until(lambda: not stack.task_rows(effect_id), 20, "B020 expired and swept")
    client.close()
    return task


rig.in_parallel(rig.run, [b019_retention_counts_from_the_end, b019_no_open_task_is_ever_swept])
rig.run(b020_what_is_not_there_is_one_answer, b021_nobody_reaches_the_task_of_another,
        b021_ids_cannot_be_guessed)
rig.in_parallel(rig.run, [(b022_results_are_results_and_errors_are_errors, name) for name in ENDS])
rig.finish("cases_tasks", counts, {"polls": 20, "kept_open": 4, "one_answer": 150, "denied": 50,
                                   "shapes": len(ENDS), "ids": 200})
