#!/usr/bin/python3
"""Plain calls, of clients that do not declare Tasks (R3.2): answered at once, in a
stream, or with "still running"; a client that hangs up parks its task, and the same effect ID takes
it up at its last recovery point; the companions; and the two tests of the page that the product
answers (seed 001), with curl."""

import json
import shutil
import signal
import subprocess
import threading
import time

import rig
from patience import soon
from rig import check, equal, until

QUICK_S = 1.0
QUICK_TRIES_MAX = EARLY_AGAIN_MAX = 10
WINDOW_S = 8.0
WAYS = ("fin", "half", "reset")
LEASE_MS = 5000  # longer than the machine stands still: nothing runs twice for that

counts = {"answers": 0, "streams": 0, "windows": 0, "parked": 0, "went_on": 0, "orders": 0,
          "held": 0, "orphans": 0, "companions": 0, "page": 0, "early": 0,
          "connection_closed_midcall": 0, "stream_closed": 0}
WINDOW_MS = int(WINDOW_S * 1000)
stack = rig.Stack(
    apis=2, workers=2,
    tools=[rig.probe_tool(answer_window_ms=WINDOW_MS,
                          phases={"P1": {}, "P2": {}, "P3": {"attempts": 1}}),
           rig.probe_tool("onward", answer_window_ms=WINDOW_MS, on_disconnect="continue"),
           rig.probe_tool("patient", answer_window_ms=60_000), "build_report"],
    settings={"api": {"beat_ms": 200}, "worker": {"beat_ms": 200, "lease_ms": LEASE_MS},
              "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 100}})


def new_id(what="plain"):
    return rig.new_id(what)


class Held(rig.HeldCall):
    """One of the probe tools, by a carrier of the effect ID."""

    def __init__(self, effect_id, plan, api=0, tool="probe", key="argument", progress=None,
                 accept="application/json, text/event-stream", token="rig-alice"):
        self.effect_id = effect_id
        arguments = {"plan": json.dumps(plan)} if plan is not None else {}
        params = {"name": tool, "arguments": arguments, "_meta": rig.meta(False)}
        port = stack.apis[api].port
        headers = rig.Client(port, token).headers("tools/call", tool, {"Accept": accept})
        if key == "argument":
            arguments["effect_id"] = effect_id
        elif key == "param":
            params["idempotencyKey"] = effect_id
        elif key == "meta":
            params["_meta"]["dev.holdfast/effect-id"] = effect_id
        elif key == "header":
            headers["Idempotency-Key"] = effect_id
        if progress is not None:
            params["_meta"]["progressToken"] = progress
        super().__init__(port, params, headers)


def kept(result):
    return json.dumps({name: value for name, value in (result or {}).items()
                       if name not in ("resultType", "_meta")})


def attached(effect_id):
    rows = stack.query("SELECT w.attached::text, w.attached_no FROM holdfast.task t "
                       "JOIN holdfast.work w USING (task) WHERE t.effect_id = %s", (effect_id,))
    return rows[0] if rows else None


def starts(effect_id):
    return [line["phase"] for line in stack.run_log(effect_id, "start")]


def logged(effect_id=None, task_id=None, part=" closed)"):
    """Lines of all API logs about that task whose message holds the part."""
    if task_id is None:
        task_id = stack.task_of(effect_id)
    lines = [json.loads(line) for api in stack.apis for line in api.log().splitlines()
             if line.startswith("{")]
    return [line for line in lines if line.get("task_id") == task_id and part in line["msg"]]


def parked(effect_id, what, seconds=8):
    if until(lambda: stack.state_of(effect_id) == "parked", seconds, f"{what}: parked"):
        counts["parked"] += 1


# P3 is pure, so it is killed at once; P2 makes the one effect.
GATED = {"P1": [], "P2": [{"post": True}], "P3": [{"gate": "in"}]}


def quick():
    """Plain JSON, by each carrier; a repeat has the same stored bytes."""
    for key in ("argument", "param", "meta", "header"):
        for _ in range(QUICK_TRIES_MAX):  # a machine that is busy just then: again, with another
            effect_id = new_id()
            both = [Held(effect_id, {"P1": []}, api=api, key=key) for api in (0, 1)]
            results = [held.result() for held in both]
            if all(held.took < QUICK_S for held in both):
                break
        for held in both:
            check("content-type: application/json" in held.head, f"{key}: plain JSON", held.head)
            check(held.took < QUICK_S, f"{key}: at once", held.took)
        third = Held(effect_id, {"P1": []}, key=key)
        results.append(third.result())
        equal([kept(result) for result in results], [kept(results[0])] * 3, f"{key}: same bytes")
        equal(results[0].get("isError"), False, f"{key}: a good result")
        equal(results[2]["_meta"]["dev.holdfast/effect"]["replayed"], True, f"{key}: replayed")
        equal(results[2]["_meta"]["dev.holdfast/effect"]["taskId"], stack.task_of(effect_id),
              f"{key}: names the task")
        equal(starts(effect_id), ["P1", "P2", "P3"], f"{key}: ran once")
        counts["answers"] += 3
    refused = Held(new_id(), {"P1": []}, key=None).result()
    equal(refused.get("structuredContent", {}).get("type"), "effect_id_required", "no ID: refused")
    check("UUID" in refused["content"][0]["text"], "no ID: told how to mint one", refused)


def slow():
    """Each gate opens when what was said before it has come, so that nothing is passed over."""
    plan = {"P1": [{"progress": [0.2, "one"]}, {"gate": "one"}, {"progress": [0.5, "two"]},
                   {"gate": "two"}], "P2": [{"progress": [0.1, "again"]}]}
    for token in ("p7", 7, None):
        effect_id = new_id()
        held = Held(effect_id, plan, progress=token, tool="patient")
        for text in ("one", "two"):
            stack.at_gate(effect_id, text)
            until(lambda text=text: held.hear() or held.streams and (
                token is None or text in str(held.messages())), 30, f"slow: {text} is told")
            stack.open_gate(effect_id, text)
        result = held.result()
        equal(result.get("isError"), False, "slow: the result")
        for line in ("content-type: text/event-stream", "cache-control: no-cache, no-transform",
                     "x-accel-buffering: no", "transfer-encoding: chunked"):
            check(line in held.head, f"slow: {line}", held.head)
        text = held.body()[0].decode()
        check(text.startswith(": "), "slow: a comment first", text[:40])
        names = {line.partition(":")[0] for line in text.split("\r\n") if line}
        check(names <= {"", "event", "data"}, "slow: no id, no retry", sorted(names))
        told = [message["params"] for message in held.messages()[:-1]]
        check(all(message["method"] == "notifications/progress"
                  for message in held.messages()[:-1]), "slow: only progress", held.messages())
        values = [params["progress"] for params in told]
        check(all(a < b for a, b in zip(values, values[1:])), "slow: it rises", values)
        check(all(0 < value < 1 for value in values), "slow: below the end", values)
        equal({json.dumps(params["progressToken"]) for params in told},
              set() if token is None else {json.dumps(token)}, "slow: the token as it came")
        if token is not None:
            check(len(values) >= 2, "slow: two notifications", told)
            check(any("two" in params["message"] for params in told), "slow: its text", told)
        held.got = b""
        held.send(rig.Client(0).headers("tools/list", None),
                  json.dumps({"jsonrpc": "2.0", "id": "q", "method": "tools/list",
                              "params": {"_meta": rig.meta(False)}}))
        check("tools" in held.result(), "slow: the connection lives on", held.got[:200])
        held.leave()
        counts["streams"] += 1
    held = Held(new_id(), {"P1": [{"sleep_ms": 1300}]}, accept="application/json", progress=1)
    equal(held.result().get("isError"), False, "JSON alone: the result")
    check("content-type: application/json" in held.head, "JSON alone: as JSON", held.head)
    counts["answers"] += 1


def keep_alive():
    """A quiet stream of over 15 s has a second comment, and of less than 30 no third; the tool's
    window lets it live."""
    held = Held(new_id(), {"P1": [{"sleep_ms": 24_000}]}, tool="patient")
    equal(held.result(40).get("isError"), False, "patient: the result")
    comments = held.body()[0].decode().count(": ping\r\n\r\n")
    equal(comments, 2, "patient: comments in 24 s")
    counts["streams"] += 1


def ends_are_told():
    """However long it has waited: the end is told at once, by the hint, not by the next look. A
    machine that stands still is late with one or two of them."""
    plan = {"P1": [{"gate": "in"}], "P2": [], "P3": []}
    ids = [new_id("told") for _ in range(8)]
    calls = [Held(effect_id, plan, tool="patient") for effect_id in ids]
    for effect_id in ids:
        stack.at_gate(effect_id, "in")
    time.sleep(3)
    late = []
    for effect_id, held in zip(ids, calls):
        time.sleep(0.13)
        stack.open_gate(effect_id, "in")
        equal(held.result().get("isError"), False, "told: the result")
        ended = stack.run_log(effect_id, "end")[-1]["at"]
        late += [time.time() - ended] * (time.time() - ended > 0.25)
        held.leave()
    check(len(late) <= len(ids) // 4, "told: at once", late)
    counts["streams"] += len(ids)


def window():
    for key in ("argument", "meta", "param"):
        effect_id = new_id()
        held = Held(effect_id, GATED, key=key)
        stack.at_gate(effect_id, "in")
        answer = held.answer()
        soon(held.began, WINDOW_S + 4, f"{key}: soon after the window")
        check(held.took > WINDOW_S - 0.1, f"{key}: not before the window", held.took)
        task_id = stack.task_of(effect_id)
        if key == "param":
            data = (answer.get("error") or {}).get("data") or {}
            equal(answer.get("error", {}).get("code"), 1425, "param: code")
            equal((data.get("type"), data.get("idempotencyKey"), data.get("executed")),
                  ("idempotency_key_in_progress", effect_id, "maybe"), "param: data")
            check(data.get("retryAfterMs", 0) > 0, "param: when to come back", data)
        else:
            said = answer["result"]["structuredContent"]
            equal(answer["result"]["isError"], True, f"{key}: isError")
            check(said.pop("retry_after_ms") > 0, f"{key}: when to come back")
            equal(said, {"type": "still_running", "effect_id": effect_id, "task_id": task_id,
                         "status": "working", "executed": "maybe"}, f"{key}: still running")
            check(task_id in answer["result"]["content"][0]["text"], f"{key}: text for a model")
        until(lambda: attached(effect_id) == (None, None), 5, f"{key}: detached")
        held.leave()
        time.sleep(0.5)
        equal(stack.state_of(effect_id), "running", f"{key}: work goes on")
        again = Held(effect_id, GATED, api=1, key=key)
        time.sleep(0.3)
        stack.open_gate(effect_id, "in")
        equal(again.result().get("isError"), False, f"{key}: the same ID has the result")
        equal(again.result()["_meta"]["dev.holdfast/effect"]["replayed"], True, f"{key}: replayed")
        equal(starts(effect_id), ["P1", "P2", "P3"], f"{key}: ran once")
        equal(logged(effect_id), [], f"{key}: nobody hung up")
        counts["windows"] += 1


def hang_up(way, wait, tool="probe"):
    what = f"{tool}: {way} after {wait} s"
    effect_id = new_id()
    held = Held(effect_id, GATED, tool=tool)
    line = stack.at_gate(effect_id, "in")
    end = held.began + wait
    while time.monotonic() < end:
        held.hear(0.02)
    check(held.streams or not held.got, f"{what}: a stream or nothing yet")
    if wait > QUICK_S and not held.streams:
        until(lambda: held.hear(0.1) or held.streams, 20, f"{what}: a stream")
    before, streams = len(held.got), held.streams
    held.leave(way)
    until(lambda: logged(effect_id), 5, f"{what}: logged")
    if way == "half":
        while not held.closed:
            held.hear(5)
    entry = logged(effect_id)[0]
    # A slow machine may open the stream before it sees that a caller hung up early.
    if way == "half" and streams == (entry["cause"] == "stream_closed"):
        equal(len(held.got), before, f"{what}: nothing more is sent")
    how = "stream" if wait > QUICK_S or entry["cause"] == "stream_closed" else "connection"
    cause = {"stream": "stream_closed", "connection": "connection_closed_midcall"}[how]
    equal([(entry["msg"], entry["level"]) for entry in logged(effect_id)],
          [(f"{tool} cancelled at step 3 ({how} closed)" if tool == "probe" else
            f"{tool} goes on ({how} closed)", "info")], f"{what}: one line")
    counts[cause] += 1
    equal((entry["step"], entry["cause"]), (3, cause), f"{what}: its fields")
    return effect_id, line, what


def hang_up_parks():
    for way in WAYS:
        early = counts["connection_closed_midcall"]
        for wait in (0.5, 1.5, *[0.5] * EARLY_AGAIN_MAX):
            if wait < QUICK_S and counts["connection_closed_midcall"] > early:
                continue
            effect_id, line, what = hang_up(way, wait)
            parked(effect_id, what)
            until(lambda line=line: rig.process_gone(line["pid"]), 10, f"{what}: program gone")
            time.sleep(0.4)
            equal(starts(effect_id), ["P1", "P2", "P3"], f"{what}: nothing starts")
            equal(stack.effects_by_id().get(effect_id), 1, f"{what}: one effect so far")
            stack.open_gate(effect_id, "in")
            again = Held(effect_id, GATED, api=1)
            equal(again.result().get("isError"), False, f"{what}: taken up")
            equal(starts(effect_id), ["P1", "P2", "P3", "P3"], f"{what}: at its recovery point")
            equal(stack.effects_by_id().get(effect_id), 1, f"{what}: one effect")
            again.leave()


def hang_up_goes_on():
    for way in WAYS:
        effect_id, line, what = hang_up(way, 1.5, "onward")
        time.sleep(0.5)
        check(not rig.process_gone(line["pid"]), f"{what}: the program lives")
        stack.open_gate(effect_id, "in")
        until(lambda: stack.state_of(effect_id) == "over", 10, f"{what}: ends without anybody")
        equal(Held(effect_id, GATED, tool="onward").result().get("isError"), False,
              f"{what}: the result")
        equal(starts(effect_id), ["P1", "P2", "P3"], f"{what}: ran once")
        counts["went_on"] += 1


def orders():
    """Two plain clients on one effect ID: on two processes or on one, joining and leaving in any
    order, one staying to the end or both leaving."""
    cases = [(apis, leaver, stays) for apis in ((0, 1), (1, 0), (0, 0)) for leaver in (0, 1)
             for stays in (True, False)]
    for number, (apis, leaver, stays) in enumerate(cases):
        what = f"order {apis} {leaver} {stays}"
        effect_id = new_id("order")
        both = [Held(effect_id, GATED, api=apis[0])]
        stack.at_gate(effect_id, "in")
        before = attached(effect_id)
        both.append(Held(effect_id, GATED, api=apis[1]))
        until(lambda: attached(effect_id) != before, 5, f"{what}: joined")
        both[leaver].leave(WAYS[number % 3])
        other = both[1 - leaver]
        if apis[0] == apis[1]:
            time.sleep(0.6)
            equal(logged(effect_id), [], f"{what}: the other of this process still waits")
            equal(starts(effect_id), ["P1", "P2", "P3"], f"{what}: runs on")
        elif leaver == 1:
            until(lambda: logged(effect_id), 5, f"{what}: the last to join parks")
            until(lambda: len(starts(effect_id)) == 4, 10, f"{what}: the other takes it up")
        else:
            time.sleep(0.6)
            equal(logged(effect_id), [], f"{what}: it was not the last to join")
        if stays:
            time.sleep(0.2)
            stack.open_gate(effect_id, "in")
            equal(other.result().get("isError"), False, f"{what}: the other has the result")
        else:
            lines = len(logged(effect_id))
            other.leave(WAYS[(number + 1) % 3])
            until(lambda: len(logged(effect_id)) == lines + 1, 5, f"{what}: now it is left")
            parked(effect_id, what)
            stack.open_gate(effect_id, "in")
            equal(Held(effect_id, GATED).result().get("isError"), False, f"{what}: the result")
        equal(stack.effects_by_id().get(effect_id), 1, f"{what}: one effect")
        equal(len(stack.task_rows(effect_id)), 1, f"{what}: one task")
        counts["orders"] += 1


def all_at_once():
    """Sixteen on both processes, leaving together: parked; then one has the result."""
    for way in WAYS:
        effect_id = new_id("crowd")
        crowd = rig.in_parallel(lambda n, e=effect_id: Held(e, GATED, api=n % 2), list(range(16)))
        stack.at_gate(effect_id, "in")
        time.sleep(0.3)
        rig.in_parallel(lambda held, w=way: held.leave(w), crowd)
        time.sleep(1)
        parked(effect_id, f"crowd {way}")
        time.sleep(0.7)
        equal(stack.state_of(effect_id), "parked", f"crowd {way}: stays parked")
        stack.open_gate(effect_id, "in")
        equal(Held(effect_id, GATED).result().get("isError"), False, f"crowd {way}: the result")
        equal(stack.effects_by_id().get(effect_id), 1, f"crowd {way}: one effect")
        counts["orders"] += 1


def hang_up_early():
    """Before the accept is answered, or even read: nothing is left running."""
    ids = [new_id("early") for _ in range(60)]
    plan = {"P1": [{"gate": "never"}]}
    for number, effect_id in enumerate(ids):
        held = Held(effect_id, plan, api=number % 2)
        time.sleep((number // 6) * 0.0007)
        held.leave(WAYS[number % 3])
    until(lambda: all(stack.state_of(effect_id) in (None, "parked") for effect_id in ids), 15,
          "early: parked or never accepted")
    equal({attached(effect_id) for effect_id in ids} - {None}, {(None, None)}, "early: all left")
    counts["early"] += len(ids)


def held_by_tasks():
    client = stack.client(api=1)
    for plain_first in (True, False):
        effect_id = new_id("held")
        arguments = {"effect_id": effect_id, "plan": json.dumps(GATED)}
        if not plain_first:
            check(client.call("probe", arguments).handle, "held: a handle")
        held = Held(effect_id, GATED)
        stack.at_gate(effect_id, "in")
        if plain_first:
            check(client.call("probe", arguments).handle, "held: a handle for the same ID")
        time.sleep(0.2)
        held.leave("reset")
        time.sleep(1)
        equal((stack.state_of(effect_id), logged(effect_id)), ("running", []), "held: runs on")
        stack.open_gate(effect_id, "in")
        equal(client.wait(stack.task_of(effect_id)).result["status"], "completed", "held: completed")
        equal(starts(effect_id), ["P1", "P2", "P3"], "held: ran once")
        counts["held"] += 1
    client.close()


def process_dies():
    """kill -9 of the API: maintenance parks what it had attached, after its lease."""
    ids = [new_id("orphan") for _ in range(3)]
    calls = [Held(effect_id, GATED, api=1, tool="patient") for effect_id in ids]
    for effect_id in ids:
        stack.at_gate(effect_id, "in")
    stack.apis[1].kill()
    for effect_id, held in zip(ids, calls):
        parked(effect_id, "orphan", LEASE_MS / 1000 + 8)
        stack.open_gate(effect_id, "in")
        equal(Held(effect_id, GATED, tool="patient").result().get("isError"), False,
              "orphan: the same ID has the result")
        equal(starts(effect_id), ["P1", "P2", "P3", "P3"], "orphan: at its recovery point")
        counts["orphans"] += 1
        held.leave()
    stack.apis[1].start()
    until(lambda: stack.ready(stack.apis[1]), 20, "the API is back")


def process_stalls():
    """A stop past the lease: declared dead, its work parked; woken, it goes on as another, attaches
    again and takes the work up. The client has noticed nothing."""
    effect_id = new_id("stalled")
    held = Held(effect_id, GATED, api=1, tool="patient")
    stack.at_gate(effect_id, "in")
    stack.apis[1].signal(signal.SIGSTOP)
    parked(effect_id, "stalled", LEASE_MS / 1000 + 8)
    stack.apis[1].signal(signal.SIGCONT)
    until(lambda: stack.state_of(effect_id) == "running", 8, "stalled: taken up")
    stack.open_gate(effect_id, "in")
    equal(held.result().get("isError"), False, "stalled: the result")
    held.leave()
    counts["orphans"] += 1


def drain():
    """SIGTERM: those who wait hear that it still runs; the work goes on."""
    ids = [new_id("drain") for _ in range(2)]
    early = Held(ids[0], GATED, api=1, tool="patient")
    stack.at_gate(ids[0], "in")
    until(lambda: early.hear(0.05) or early.streams, 20, "drain: a stream")
    late = Held(ids[1], GATED, api=1, tool="patient")
    stack.at_gate(ids[1], "in")
    looking = rig.HeldCall(stack.apis[1].port, {
        "name": "task_status", "_meta": rig.meta(False),
        "arguments": {"task_id": stack.task_of(ids[0]), "wait_ms": 20_000}},
        rig.Client(0).headers("tools/call", "task_status"))
    until(lambda: stack.ready(stack.apis[1]), 10, "drain: who asks later is answered")
    time.sleep(0.2)
    began = time.monotonic()
    equal(stack.apis[1].terminate(), 0, "drain: exit code")
    soon(began, 8, "drain: soon")
    equal(looking.result().get("structuredContent", {}).get("status"), "working",
          "drain: task_status is answered")
    counts["companions"] += 1
    equal((early.streams, late.result().get("structuredContent", {}).get("type")),
          (True, "still_running"), "drain: JSON")
    equal(early.result().get("structuredContent", {}).get("type"), "still_running",
          "drain: the stream")
    for effect_id in ids:
        equal((stack.state_of(effect_id), attached(effect_id)), ("running", (None, None)),
              "drain: goes on")
        stack.open_gate(effect_id, "in")
        equal(Held(effect_id, GATED, tool="patient").result().get("isError"), False,
              "drain: the result")
        counts["windows"] += 1
    equal(stack.query("SELECT count(*) FROM holdfast.worker WHERE role = 'api'")[0][0], 1,
          "drain: its row is gone")
    stack.apis[1].start()
    until(lambda: stack.ready(stack.apis[1]), 20, "the API is back")


def companion(client, name, arguments, declare=False):
    answer = client.call(name, arguments, declare=declare)
    counts["companions"] += 1
    check(answer.status == 200 and answer.result is not None, f"{name}: a result", repr(answer))
    return answer.result or {}


def companions():
    client = stack.client()
    listed = client.request("tools/list", {}, declare=False).result["tools"]
    equal([tool["name"] for tool in listed[:3]], ["task_status", "task_result", "task_cancel"],
          "companions: listed first")
    for name in ("task_status", "task_result", "task_cancel"):
        for declare in (False, True):
            result = companion(client, name, {}, declare)
            equal((result.get("isError"), result["structuredContent"]["type"]),
                  (True, "task_id_required"), f"{name}: without arguments")
        for wrong in ({"task_id": 5}, {"other": 1}, {"effect_id": ""}):
            equal(companion(client, name, wrong)["structuredContent"]["type"],
                  "invalid_arguments", f"{name} {wrong}")
        for absent in ({"task_id": "x"}, {"task_id": "tsk_" + "A" * 32},
                       {"effect_id": "never", "tool": "probe"}):
            equal(companion(client, name, absent)["structuredContent"]["type"], "task_not_found",
                  f"{name} {absent}")
        mismatch = client.request("tools/call", {"name": name, "arguments": {}}, "probe")
        equal((mismatch.status, mismatch.code), (400, -32020), f"{name}: Mcp-Name is checked")
        body = client.request("tools/call", {"name": name, "arguments": []}, name)
        equal(body.code, -32602, f"{name}: arguments are an object")

    effect_id = new_id("companion")
    held = Held(effect_id, GATED, tool="patient")
    stack.at_gate(effect_id, "in")
    task_id = stack.task_of(effect_id)
    by_effect = {"effect_id": effect_id, "tool": "patient"}
    for named in ({"task_id": task_id}, by_effect):
        began = time.monotonic()
        result = companion(client, "task_status", {**named, "wait_ms": 0})
        soon(began, 5, "status: at once")
        equal((result["structuredContent"]["status"], result["structuredContent"]["task_id"],
               result["isError"]), ("working", task_id, False), "status: working")
        began = time.monotonic()
        companion(client, "task_status", {**named, "wait_ms": 700})
        check(0.65 < time.monotonic() - began < 10, "status: waits", time.monotonic() - began)
        said = companion(client, "task_result", named)
        equal((said["isError"], said["structuredContent"]["type"],
               said["structuredContent"]["effect_id"]), (True, "still_running", effect_id),
              "result: still running")
    for token in ("rig-bob", "rig-anna"):
        other = stack.client(token)
        for name in ("task_status", "task_result", "task_cancel"):
            for named in ({"task_id": task_id}, by_effect):
                equal(companion(other, name, named)["structuredContent"]["type"],
                      "task_not_found", f"{name}: {token} learns nothing")
        other.close()
    began = time.monotonic()
    threading.Timer(0.8, stack.open_gate, (effect_id, "in")).start()
    result = companion(client, "task_status", {"task_id": task_id})
    check(0.7 < time.monotonic() - began < 10, "status: ends with the task",
          time.monotonic() - began)
    equal((result["structuredContent"]["status"], result["structuredContent"]["finished"]),
          ("completed", True), "status: completed")
    stored = [held.result(), companion(client, "task_result", by_effect),
              companion(client, "task_result", {"task_id": task_id}, True)]
    equal([kept(result) for result in stored], [kept(stored[0])] * 3, "result: as the tool's own")
    result = companion(client, "task_cancel", by_effect)
    equal(result["structuredContent"]["status"], "completed", "cancel: too late")
    client.close()


def companions_cancel():
    client = stack.client()
    forms = {"argument": None, "param": None, "meta": None}
    for key in forms:
        effect_id = new_id("cancel")
        held = Held(effect_id, GATED, key=key)
        line = stack.at_gate(effect_id, "in")
        companion(client, "task_cancel", {"effect_id": effect_id, "tool": "probe"})
        for answer in (held.answer(), Held(effect_id, GATED, key=key).answer()):
            data = (answer["error"] if key != "argument" else answer["result"])
            data = data["data"] if key != "argument" else data["structuredContent"]
            equal((data["type"], data["idempotencyKey"], data["executed"]),
                  ("cancelled", effect_id, "maybe"), f"cancelled, {key}: data")
            if key != "argument":
                equal(answer["error"]["code"], 1001, f"cancelled, {key}: code")
        until(lambda line=line: rig.process_gone(line["pid"]), 10, "cancelled: program gone")
        told = companion(client, "task_result", {"effect_id": effect_id, "tool": "probe"})
        equal(told["structuredContent"]["type"], "cancelled", "cancelled: task_result")
    # Parked: its status says how to go on, at once; and a cancel ends it.
    effect_id, _, _ = hang_up("fin", 0.5)
    parked(effect_id, "companions")
    began = time.monotonic()
    result = companion(client, "task_status", {"effect_id": effect_id, "tool": "probe"})
    soon(began, 1, "parked: told at once")
    check("parked" in result["structuredContent"]["message"], "parked: says so", result)
    result = companion(client, "task_cancel", {"effect_id": effect_id, "tool": "probe"})
    equal(result["structuredContent"]["status"], "cancelled", "parked: cancelled")
    # Failed: the infrastructure's end.
    for key in ("argument", "param"):
        effect_id = new_id("failed")
        answer = Held(effect_id, {"P3": [{"exit": 75}]}, key=key).answer()
        if key == "argument":
            equal(answer.get("result", {}).get("isError"), True, "failed, argument: isError")
            check("executed" in answer["result"]["structuredContent"], "failed: executed", answer)
        else:
            error = answer.get("error") or {}
            equal(error.get("code"), -32603, "failed, param: code")
            check("executed" in (error.get("data") or {}), "failed: executed", answer)
    client.close()


def unknown():
    """What cannot be told is said to plain callers, and stays so."""
    for key in ("argument", "meta"):
        effect_id = new_id("unknown")
        held = Held(effect_id, GATED, key=key)
        stack.at_gate(effect_id, "in")
        # No tool of the tests leaves this behind, so the store is told.
        stack.query("UPDATE holdfast.work w SET state = 'unknown', token = NULL, incarnation = NULL"
                    " FROM holdfast.task t WHERE t.task = w.task AND t.effect_id = %s",
                    (effect_id,))
        for answer in (held.answer(), Held(effect_id, GATED, key=key).answer()):
            if key == "argument":
                data = answer["result"]["structuredContent"]
            else:
                equal(answer["error"]["code"], 1500, "unknown: code")
                data = answer["error"]["data"]
            equal((data["type"], data["executed"]), ("outcome_unknown", "maybe"), "unknown: data")
        until(lambda: attached(effect_id) == (None, None), 5, "unknown: detached")


# --- the page's two tests ---

META = {"io.modelcontextprotocol/protocolVersion": rig.VERSION,
        "io.modelcontextprotocol/clientCapabilities": {}}


def curl(method, params, *more):
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    return subprocess.Popen(
        ["curl", "-sS", "-N", stack.url() + "/mcp", "-H", "Content-Type: application/json",
         "-H", "Accept: application/json, text/event-stream",
         "-H", f"MCP-Protocol-Version: {rig.VERSION}", "-H", "Authorization: Bearer rig-alice",
         "-H", f"Mcp-Method: {method}", *more, "-d", body, "-w", "\nHTTP %{http_code}\n"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report(effect_id, *more):
    arguments = {"month": "2015-09", "pace_ms": 700}
    if effect_id:
        arguments["effect_id"] = effect_id
    return curl("tools/call", {"name": "build_report", "arguments": arguments,
                               "_meta": META | {"progressToken": "p7"}},
                "-H", "Mcp-Name: build_report", *more)


def the_page():
    if not shutil.which("curl"):
        check(False, "curl is here")
        return
    effect_id = rig.new_id("id")
    process = report(effect_id)
    lines = []
    while len([line for line in lines if "notifications/progress" in line]) < 2:
        line = process.stdout.readline()
        if not check(line, "page: progress events", lines):
            return
        lines.append(line)
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=10)[0]
    until(lambda: logged(effect_id), 5, "page: the log line")
    equal([line["msg"] for line in logged(effect_id)],
          ["build_report cancelled at step 2 (stream closed)"], "page: the log line")
    check('"result"' not in rest, "page: no result", rest)
    parked(effect_id, "page")
    sent = len(stack.requests())
    time.sleep(2)
    equal((len(stack.requests()), stack.state_of(effect_id)), (sent, "parked"), "page: nothing more")
    out = report(effect_id).communicate(timeout=60)[0]
    check('"isError":false' in out and "HTTP 200" in out, "page: the same ID has the report", out)
    equal(len(stack.effects_by_id("/send")), 1, "page: mailed once")
    counts["page"] += 1

    out = report(None).communicate(timeout=20)[0]
    check("effect_id_required" in out and "UUID" in out and "HTTP 200" in out,
          "page: without the ID it tells how to mint one", out)
    counts["page"] += 1

    with_id, without = (curl("tools/list", {"_meta": META}, *more).communicate(timeout=20)[0]
                        for more in (("-H", "Last-Event-ID: 42"), ()))
    equal(with_id, without, "page: Last-Event-ID replays nothing")
    check("HTTP 200" in with_id and '"build_report"' in with_id, "page: tools/list", with_id)
    counts["page"] += 1


rig.run(quick, slow, ends_are_told, window, hang_up_parks, hang_up_goes_on, orders, all_at_once,
        hang_up_early, held_by_tasks, process_dies, process_stalls, drain, companions,
        companions_cancel, unknown, the_page, keep_alive)
for one in stack.apis:
    check(one.alive(), f"{one.name} lives", one.log()[-2000:])
rig.finish("plain", counts, {
    "answers": 13, "streams": 12, "windows": 5, "parked": 21, "went_on": 3, "orders": 15, "held": 2,
    "orphans": 4, "companions": 55, "page": 3, "early": 60, "connection_closed_midcall": 3})
