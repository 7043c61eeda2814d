#!/usr/bin/python3
"""R3.5: each error says in a structured field whether the work was executed, and each lost client is
in the log with how it was lost. One row for each way to be refused or to fail, provoked for real."""

import json
import socket
import time

import rig
from rig import META, check, equal, until

counts = {"refusals": 0, "failures": 0, "losses": 0}
LEAVES_MAX = 5
TEXT = {"type": "string"}
FAST = {"attempts": 2, "backoff_first_ms": 10, "backoff_max_ms": 20, "timeout_ms": 20_000}
PHASES = {"P1": FAST, "P2": FAST, "P3": FAST}
stack = rig.Stack(workers=1, tools=[
    rig.probe_tool(phases=PHASES, answer_window_ms=2_500),
    rig.probe_tool("brittle", phases=PHASES, crash_limit=1),
    rig.probe_tool("hasty", phases=PHASES, deadline_ms=700),
    rig.probe_tool("forgetful", phases=PHASES, result_ttl_ms=1),
    rig.probe_tool("marked", phases=PHASES, inputSchema={
        "type": "object", "required": ["effect_id"], "properties": {
            "effect_id": TEXT, "region": {**TEXT, "x-mcp-header": "Region"}}}),
    rig.http_tool(attempts=1, backoff_first_ms=10),
], settings={"worker": {"beat_ms": 200}, "maintain": {"maintain_ms": 100}})
client = stack.client()
port = stack.apis[0].port


def executed_of(answer):
    """Where a client looks: data of an error, structuredContent of a result, the body of a refusal
    below JSON-RPC, or what tasks/get tells of the task."""
    if isinstance(answer.error, dict):
        return (answer.data or {}).get("executed")
    result = answer.result or {}
    if "error" in result:
        return result["error"].get("data", {}).get("executed")
    inner = result.get("result") or result
    if inner.get("isError"):
        return inner.get("structuredContent", {}).get("executed")
    return (answer.json or {}).get("executed")


def new_id():
    return rig.new_id("executed")


def row(what, answer, executed, code=None, kind=None):
    """`code`: of a JSON-RPC error, or of the task's; `kind`: the type that is told."""
    equal(executed_of(answer), executed, f"{what}: executed")
    error = answer.error if isinstance(answer.error, dict) else (answer.result or {}).get("error")
    if code is not None:
        equal((error or {}).get("code"), code, f"{what}: code")
    if kind is not None:
        inner = (answer.result or {}).get("result") or answer.result or {}
        data = (error or {}).get("data") or inner.get("structuredContent") or {}
        equal(data.get("type"), kind, f"{what}: type")
    counts["refusals" if executed == "no" else "failures"] += 1


def raw(head, body=b""):
    lines = [head, "Host: localhost", *(f"{name}: {value}" for name, value in
             client.headers("tools/call", "probe").items()), f"Content-Length: {len(body)}", "", ""]
    return rig.parse_raw(rig.raw_exchange(port, "\r\n".join(lines).encode() + body, 5))


def message(**more):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", **more})


def refused_on_the_ladder():
    call = message(params={"name": "probe", "arguments": {}, "_meta": rig.meta()})
    headers = client.headers("tools/call", "probe")
    old = json.loads(call)
    old["params"]["_meta"][META + "protocolVersion"] = "2020-01-01"
    for what, answer, code in (
            ("no JSON", client.post("{", headers), -32700),
            ("a batch", client.post("[]", headers), -32600),
            ("a response", client.post('{"jsonrpc":"2.0","id":1,"result":{}}', headers), -32600),
            ("params no object", client.post(message(params=[]), headers), -32602),
            ("no _meta", client.post(message(params={"name": "probe"}), headers), -32602),
            ("another method", client.post(call, {**headers, "Mcp-Method": "x"}), -32020),
            ("another name", client.post(call, {**headers, "Mcp-Name": "x"}), -32020),
            ("another version", client.post(json.dumps(old), {
                **headers, "MCP-Protocol-Version": "2020-01-01"}), -32022),
            ("unknown method", client.request("x/y", {}), -32601),
            ("no capability", client.request("tasks/get", {"taskId": "x"}, "x", declare=False),
             -32021),
            ("no token", client.post(call, {**headers, "Authorization": "Basic x"}), -32600),
            ("unknown token", client.post(call, {**headers, "Authorization": "Bearer x"}), -32600),
            ("content type", client.post(call, {**headers, "Content-Type": "text/html"}), -32600),
            ("accept", client.post(call, {**headers, "Accept": "text/html"}), -32600),
            ("host", client.post(call, {**headers, "Host": "evil.example"}), -32600),
            ("origin", client.post(call, {**headers, "Origin": "http://evil.example"}), -32600),
            ("verb", raw("GET /mcp HTTP/1.1"), -32600),
            ("cursor", client.request("tools/list", {"cursor": "x"}), -32602)):
        row(what, answer, "no", code)
    row("too large", raw("POST /mcp HTTP/1.1\r\nContent-Length: 99999999"), "no")
    row("no HTTP", rig.parse_raw(rig.raw_exchange(port, b"POST /mcp HTTP/1.1\r\n\r\n", 5)), "no")


def refused_before_acceptance():
    one = new_id()
    for what, answer, code, kind in (
            ("no effect ID", client.call("probe", {}), None, "effect_id_required"),
            ("bad argument", client.call("probe", {"effect_id": "a b"}), None,
             "effect_id_invalid"),
            ("bad param", client.call("probe", {}, idempotencyKey="a b"), -32602,
             "effect_id_invalid"),
            ("bad meta", client.call("probe", {}, extra_meta={"dev.holdfast/effect-id": 7}),
             -32602, "effect_id_invalid"),
            ("bad header", client.call("probe", {}, {"Idempotency-Key": '"'}), -32602,
             "effect_id_invalid"),
            ("two IDs", client.call("probe", {"effect_id": one}, idempotencyKey="b"), -32602,
             "effect_id_ambiguous"),
            ("NUL", client.call("probe", {"effect_id": one, "plan": "\0"}), -32602,
             "nul_in_string"),
            ("bad arguments", client.call("probe", {"effect_id": one, "x": 1}), None,
             "invalid_arguments"),
            ("unknown tool", client.call("nobody", {"effect_id": one}), -32602, None),
            ("no name", client.request("tools/call", {"arguments": {}}), -32602, None),
            ("arguments no object", client.request(
                "tools/call", {"name": "probe", "arguments": []}, "probe"), -32602, None),
            ("no Mcp-Param", client.call("marked", {"effect_id": one, "region": "eu"}), -32020,
             None),
            ("status of nothing", client.call("task_status", {}), None, "task_id_required"),
            ("status badly asked", client.call("task_status", {"x": 1}), None,
             "invalid_arguments")):
        row(what, answer, "no", code, kind)
    equal(stack.task_rows(one), [], "nothing of it was stored")
    client.run("probe", {"effect_id": one})
    row("conflict, argument", client.call("probe", {"effect_id": one, "n": 1}), "no", None,
        "idempotency_key_conflict")
    row("conflict, param", client.call("probe", {"n": 1}, idempotencyKey=one), "no", 1409,
        "idempotency_key_conflict")


def seen_by_all(what, tool, plan, executed, kind, code=-32603, act=None):
    """What became of a task, to a task client and to plain clients with the key in each form."""
    effect_id = new_id()
    arguments = {"plan": json.dumps(plan)} if plan is not None else {}
    handle = client.call(tool, {"effect_id": effect_id, **arguments})
    if not check(handle.handle, f"{what}: a handle", repr(handle)):
        return None
    if act:
        act(effect_id, handle.task_id)
    last = client.wait(handle.task_id)
    if "error" in last.result or last.result.get("result", {}).get("isError"):
        row(f"{what}: tasks/get", last, executed, code, kind)
    row(f"{what}: argument", client.call(tool, {"effect_id": effect_id, **arguments},
                                         declare=False), executed, None, kind)
    row(f"{what}: param", client.call(tool, arguments, declare=False, idempotencyKey=effect_id),
        executed, code, kind)
    row(f"{what}: companion", client.call("task_result", {"task_id": handle.task_id}), executed,
        None, kind)
    return effect_id


def failed():
    again = [{"exit": 75}]
    for what, plan, executed, kind in (
            ("pure attempts spent", {"P1": again}, "no", "attempts_exhausted"),
            ("attempts spent after an effect", {"P2": [{"post": True}], "P3": again}, "yes",
             "attempts_exhausted")):
        seen_by_all(what, "probe", plan, executed, kind)
    seen_by_all("the tool says no at first", "probe", {"P1": [{"error": "no"}]}, "no",
                "tool_error", None)
    seen_by_all("the tool says no after an effect", "probe",
                {"P2": [{"post": True}], "P3": [{"error": "no"}]}, "yes", "tool_error", None)
    seen_by_all("crashed in pure work", "brittle", {"P1": [{"signal": 9}]}, "no", "crash_limit")
    seen_by_all("crashed in keyed work", "brittle", {"P2": [{"signal": 9}]}, "maybe", "crash_limit")
    seen_by_all("deadline in pure work", "hasty", {"P1": [{"hang": True}]}, "no", "deadline")
    answer = stack.folder / "answer-400"
    answer.write_bytes(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    stack.steer(script=[str(answer)])
    seen_by_all("refused downstream", "deliver", None, "no", "phase_failed")


def cancelled():
    def act(effect_id, task_id):
        stack.at_gate(effect_id, "in")
        client.cancel(task_id)
    seen_by_all("cancelled", "probe", {"P1": [{"gate": "in"}]}, "maybe", "cancelled", 1001, act)


def unknown():
    stack.steer(lose_answers=1)
    effect_id = new_id()
    task_id = client.call("deliver", {"effect_id": effect_id}).task_id
    until(lambda: stack.state(task_id) == "unknown", 30, "unknown")
    row("unknown: argument", client.call("deliver", {"effect_id": effect_id}, declare=False),
        "maybe", None, "outcome_unknown")
    row("unknown: param", client.call("deliver", {}, declare=False, idempotencyKey=effect_id),
        "maybe", 1500, "outcome_unknown")
    stack.command("settle", task_id, "fail", "--by", "ann", "--why", "test")
    row("settled as failed", client.wait(task_id), "maybe", None, "outcome_unknown")


def expired():
    effect_id = new_id()
    client.call("forgetful", {"effect_id": effect_id})
    until(lambda: client.call("forgetful", {"effect_id": effect_id}).structured, 20, "expired")
    row("expired: argument", client.call("forgetful", {"effect_id": effect_id}), "yes", None,
        "effect_expired")
    row("expired: param", client.call("forgetful", {}, idempotencyKey=effect_id), "yes", 1410,
        "effect_expired")


def not_found():
    absent = "tsk_" + "A" * 32
    said = []
    for task_id in (absent, "x", ""):
        for method in ("tasks/get", "tasks/cancel"):
            answer = client.request(method, {"taskId": task_id}, task_id)
            row(f"{method} of {task_id!r}", answer, "maybe", -32602, "task_not_found")
            said.append(json.dumps(answer.error))
        row(f"task_result of {task_id!r}", client.call(
            "task_result", {"task_id": task_id or "y"}), "maybe", None, "task_not_found")
    equal(len(set(said)), 1, "malformed and unknown are told alike (V8)")


def still_running():
    def ends():
        return causes("answered while it runs").count("deadline")

    for key in ("argument", "param"):
        effect_id, before = new_id(), ends()
        arguments = {"plan": json.dumps({"P1": [{"gate": "in"}]})}
        more = {"idempotencyKey": effect_id} if key == "param" else {}
        if key == "argument":
            arguments["effect_id"] = effect_id
        headers = {"Accept": "application/json"}
        answer = client.call("probe", arguments, headers, declare=False, **more)
        row(f"still running, {key}", answer, "maybe", 1425 if key == "param" else None,
            "idempotency_key_in_progress" if key == "param" else "still_running")
        stack.open_gate(effect_id, "in")
        until(lambda: ends() > before, 5, f"{key}: the end of the window is in the log")


# --- lost clients ---

def told(part):
    return [line for line in (json.loads(text) for text in stack.apis[0].log().splitlines()
                              if text.startswith("{")) if part in line["msg"]]


def causes(part="client left"):
    return [line["cause"] for line in told(part)]


def leave(seconds, effect_id):
    """A plain call on a socket of its own, given up after that time."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(client.call_bytes("probe", {
            "effect_id": effect_id, "plan": json.dumps({"P1": [{"gate": "in"}]})},
            _meta=rig.meta(False)))
        stack.at_gate(effect_id, "in")
        time.sleep(seconds)


def left_after(seconds):
    """The causes that are told of a plain call that was given up after that time."""
    effect_id, before = new_id(), len(causes())
    leave(seconds, effect_id)
    until(lambda: len(causes()) > before, 5, f"left after {seconds} s: logged")
    until(lambda: stack.state_of(effect_id) == "parked", 5, "parked")
    return causes()[before:]


def lost():
    for seconds, cause in ((0.1, "connection_closed_midcall"), (1.5, "stream_closed")):
        for _ in range(LEAVES_MAX):  # a stream opens after 1 s: who stood still meanwhile, again
            said = left_after(seconds)
            if said == [cause]:
                break
        equal(said, [cause], f"left after {seconds} s: its cause")
        counts["losses"] += 1
    session = {"Mcp-Session-Id": "s-1"}
    for what, answer in (
            ("GET", rig.parse_raw(rig.raw_exchange(port, (
                "GET /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: s-1\r\n"
                "Accept: text/event-stream\r\n\r\n").encode(), 5))),
            ("POST", client.post(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}), {
                **client.headers("tools/list", None), "MCP-Protocol-Version": "2025-11-25",
                **session}))):
        check(answer.status in (400, 405), f"{what} with a session: refused", repr(answer))
        counts["losses"] += 1
    equal(causes("session"), ["session_not_found"] * 2, "sessions that are not there")
    client.request("tools/list", {}, headers=session)
    equal(len(causes("session")), 2, "on this revision a session means nothing (A1.9)")


def store_away():
    task_id = client.run("probe", {"effect_id": new_id()})[0].task_id
    stack.cluster.stop()
    def one(wanted):
        what, executed, ask = wanted
        row(f"store away: {what}", ask(stack.client()), executed, -32603)

    rig.in_parallel(one, [
        ("call", "no", lambda c: c.call("probe", {"effect_id": new_id()})),
        ("plain", "no", lambda c: c.call("probe", {"effect_id": new_id()}, declare=False)),
        ("get", "maybe", lambda c: c.get(task_id)),
        ("cancel", "maybe", lambda c: c.cancel(task_id)),
        ("companion", "maybe", lambda c: c.call("task_result", {"task_id": task_id}))])
    stack.cluster.start()


rig.run(refused_on_the_ladder, refused_before_acceptance, failed, cancelled, unknown, expired,
        not_found, still_running, lost, store_away)
rig.finish("executed", counts, {"refusals": 52, "failures": 30, "losses": 4})
