#!/usr/bin/python3
"""The ladder of checks (protocol A7) over raw sockets: each rung's status and code, the first
failure wins, the id comes back, nothing refused is stored, and the process goes on."""

import base64
import json

import rig
from rig import check, equal

stack = rig.Stack(workers=1, tools=[rig.http_tool()])
port = stack.apis[0].port
pid = stack.apis[0].pid
counts = {"requests": 0, "rungs": 0, "pairs": 0}
DROP = object()
BASE = {"Host": f"127.0.0.1:{port}", "Authorization": "Bearer rig-alice",
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": rig.VERSION}


def sentinel(text):
    return "=?base64?" + base64.b64encode(text.encode()).decode() + "?="


def message(method="server/discover", params=None, **members):
    params = {} if params is None else params
    if isinstance(params, dict):
        params = {"_meta": rig.meta(), **params}
        params = {name: value for name, value in params.items() if value is not DROP}
    whole = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **members}
    return {name: value for name, value in whole.items() if value is not DROP}


def call(tool="deliver", arguments=None, **members):
    return message("tools/call", {"name": tool, "arguments": arguments or
                                  {"effect_id": "ladder"}, **members})


def send(body, verb="POST", target="/mcp", headers=(), name=None, **more):
    """One request on a fresh connection. `headers`: pairs that replace or, with DROP, remove."""
    method = body.get("method") if isinstance(body, dict) else None
    if name is None and isinstance(body, dict) and isinstance(body.get("params"), dict):
        name = body["params"].get("taskId" if str(method).startswith("tasks/") else "name")
    whole = dict(BASE)
    if isinstance(method, str):
        whole["Mcp-Method"] = method
    if isinstance(name, str):
        whole["Mcp-Name"] = name
    lines = []
    for header, value in dict(headers).items():
        whole[header] = value
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    for header, value in whole.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not DROP:
                lines.append(f"{header}: {one}")
    if verb == "POST" or raw:
        lines.append(f"Content-Length: {more.get('length', len(raw))}")
    head = f"{verb} {target} HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n"
    counts["requests"] += 1
    return rig.parse_raw(rig.raw_exchange(port, head.encode("utf-8") + raw, more.get("seconds", 5)))


def rung(what, answer, status, code=None, id_back=True):
    counts["rungs"] += 1
    statuses = status if isinstance(status, tuple) else (status,)
    check(answer.status in statuses, f"{what}: status", {"got": repr(answer), "wanted": status})
    if code is not None:
        equal(answer.code, code, f"{what}: code")
        check(isinstance(answer.error, dict) and isinstance(answer.error.get("message"), str),
              f"{what}: an error has a message", repr(answer))
        missing = (answer.data or {}).get("type") == "task_not_found"
        equal((answer.data or {}).get("executed"), "maybe" if missing else "no",
              f"{what}: executed")
        if id_back:
            equal(answer.id, 7, f"{what}: id comes back")
        else:
            check(answer.id is None, f"{what}: no id", repr(answer))
    check(not 300 <= answer.status < 400, f"{what}: never a redirect")
    return answer


def http_rungs():
    ok = message()
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:80"):
        rung(f"Host {host}", send(ok, headers=[("Host", host)]), 403)
    for origin in ("http://evil.example", "http://localhost.evil.example", "null",
                   f"http://127.0.0.1:{port}.evil.example"):
        rung(f"Origin {origin}", send(ok, headers=[("Origin", origin)]), 403)
    for verb in ("GET", "DELETE", "PUT", "HEAD", "PATCH", "OPTIONS"):
        answer = rung(verb, send(b"", verb, headers=[("Content-Type", DROP)]), 405)
        equal(answer.headers.get("allow"), "POST", f"{verb}: Allow")
    for kind in ("text/plain", "application/json-seq", "application/x-www-form-urlencoded",
                 "application/jsonp", DROP):
        rung(f"Content-Type {kind}", send(ok, headers=[("Content-Type", kind)]), 415)
    for kind in ("application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'):
        rung(f"Content-Type {kind}", send(ok, headers=[("Content-Type", kind)]), 200)
    rung("Accept text/html", send(ok, headers=[("Accept", "text/html")]), 406)
    for accept in ("*/*", "application/*", "text/event-stream;q=0.5, application/json;q=1", DROP,
                   "application/json", ["application/json", "text/event-stream"]):
        answer = rung(f"Accept {accept}", send(ok, headers=[("Accept", accept)]), 200)
        equal(answer.headers.get("content-type", "").split(";")[0], "application/json",
              f"Accept {accept}: JSON comes back")
    rung("5 MiB announced", send(b"", headers=[("Mcp-Method", "tools/list")], length=5 << 20), 413)
    for path in ("/", "/mcp2", "/mcp/../mcp", "/mcp%00"):
        rung(f"path {path}", send(ok, target=path), (400, 404))
    rung("a query", send(ok, target="/mcp?a=1"), 200)


def auth_rungs():
    for name, value in {"none": DROP, "unknown": "Bearer nobody", "empty": "Bearer ",
                        "Basic": "Basic cmlnLWFsaWNl", "prefix": "Bearer rig-alic",
                        "longer": "Bearer rig-alicex", "case": "Bearer RIG-ALICE"}.items():
        answer = rung(f"token {name}", send(call(), headers=[("Authorization", value)]),
                      (400, 401) if name in ("Basic", "empty") else 401)
        if answer.status == 401:
            check(answer.headers.get("www-authenticate", "").startswith("Bearer"),
                  f"token {name}: WWW-Authenticate", repr(answer))
    rung("token in the query", send(message(), target="/mcp?access_token=rig-alice",
                                    headers=[("Authorization", DROP)]), 401)
    rung("bearer in any case", send(message(), headers=[("Authorization", "bearer rig-alice")]), 200)


def json_rungs():
    text = json.dumps(message()).encode()
    bad = {"cut short": text[:-1], "empty": b"", "trailing bytes": text + b"x",
           "two values": text + text, "UTF-16": text.decode().encode("utf-16"),
           "bad UTF-8": text.replace(b"server/discover", b"server/\xff\xfe"),
           "overlong UTF-8": text.replace(b"server/discover", b"server\xc0\xafdiscover"),
           "a surrogate in UTF-8": text.replace(b"server/discover", b"\xed\xa0\x80"),
           "a lone surrogate": text.replace(b"server/discover", b"\\ud800"),
           "a control character": text.replace(b"server/discover", b"server/\tdiscover"),
           "a NUL byte": text.replace(b"server/discover", b"server/\0discover"),
           "leading zero": text.replace(b'"id": 7', b'"id": 07'),
           "NaN": text.replace(b'"id": 7', b'"id": NaN'), "single quotes": b"{'a':1}",
           "a comment": b"/**/" + text, "depth 100,000": b"[" * 100_000,
           "closed depth 100,000": b"[" * 100_000 + b"]" * 100_000}
    for name, body in bad.items():
        answer = rung(name, send(body, headers=[("Mcp-Method", "server/discover")]), (400, 413))
        check(answer.code in (-32700, -32600), f"{name}: code", repr(answer))
        check(answer.id is None, f"{name}: no id", repr(answer))


def envelope_rungs():
    for name, body in {
            "an array": [message()], "an empty array": [], "a string": "x", "null": None,
            "no jsonrpc": message(jsonrpc=DROP), "jsonrpc 1.0": message(jsonrpc="1.0"),
            "jsonrpc a number": message(jsonrpc=2.0),
            "a response": {"jsonrpc": "2.0", "id": 7, "result": {}},
            "an error": {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "x"}},
            "no method": message(DROP)}.items():
        answer = send(json.dumps(body).encode(), headers=[("Mcp-Method", "server/discover")])
        rung(name, answer, 400)
        equal(answer.code, -32600, f"{name}: code")
    for value in (None, 1.5, True, {}, [], [1]):
        answer = send(json.dumps(message(id=value)).encode(),
                      headers=[("Mcp-Method", "server/discover")])
        rung(f"id {value!r}", answer, 400, -32600, id_back=False)
    for value in (0, -1, "0", "", "abc", 9007199254740993, 2**63 - 1, "\u00e9\U0001f600"):
        answer = rung(f"id {value!r}", send(message(id=value)), 200)
        check(answer.id == value and type(answer.id) is type(value), f"id {value!r} comes back",
              repr(answer))
    for method in ("notifications/cancelled", "notifications/unknown", "tools/call"):
        body = message(method, {"name": "deliver", "arguments": {"effect_id": "note"}}, id=DROP)
        answer = rung(f"notification {method}", send(body), (202, 400))
        check(answer.result is None, f"notification {method}: no result", repr(answer))
        if answer.status == 202:
            equal(answer.body, b"", f"notification {method}: no body")


def meta_rungs():
    rung("no _meta", send(message(params={"_meta": DROP})), 400, -32602)
    rung("no params", send(message(params=None) | {"params": {}}), 400, -32602)
    for name in ("protocolVersion", "clientCapabilities"):
        without = rig.meta()
        del without[rig.META + name]
        rung(f"no {name}", send(message(params={"_meta": without})), 400, -32602)
        for value in (None, 5, [], True):
            wrong = rig.meta(**{rig.META + name: value})
            rung(f"{name} {value!r}", send(message(params={"_meta": wrong})), 400, -32602)
    without = rig.meta()
    del without[rig.META + "clientInfo"]
    rung("clientInfo is optional", send(message(params={"_meta": without})), 200)
    rung("logLevel and progressToken do no harm", send(message(params={"_meta": rig.meta(
        progressToken=0, **{rig.META + "logLevel": "debug"})})), 200)
    rung("params an array", send(message() | {"params": []}), 400)


def header_rungs():
    old = rig.meta(**{rig.META + "protocolVersion": "1900-01-01"})
    rung("version header missing", send(message(), headers=[("MCP-Protocol-Version", DROP)]),
         400, -32020)
    rung("version header differs", send(message(), headers=[("MCP-Protocol-Version",
                                                             "2025-11-25")]), 400, -32020)
    rung("version body differs", send(message(params={"_meta": old})), 400, -32020)
    rung("version header twice", send(message(), headers=[(
        "MCP-Protocol-Version", [rig.VERSION, "2025-11-25"])]), 400, -32020)
    answer = rung("version unknown", send(message(params={"_meta": old}), headers=[(
        "MCP-Protocol-Version", "1900-01-01")]), 400, -32022)
    data = answer.data if isinstance(answer.data, dict) else {}
    equal(data.get("requested"), "1900-01-01", "what was requested")
    check(rig.VERSION in data.get("supported", []), "what is supported", repr(answer))
    for value in (DROP, "tools/list", "SERVER/DISCOVER", "server/discover2", ["server/discover"] * 2,
                  sentinel("server/discover")):
        rung(f"Mcp-Method {value}", send(message(), headers=[("Mcp-Method", value)]), 400, -32020)
    rung("Mcp-Method padded", send(message(), headers=[("Mcp-Method", "  server/discover\t")]), 200)
    name = sentinel("deliver")
    for value in (DROP, "deliver2", "Deliver", ["deliver", "deliver2"], ["deliver"] * 2, name[:-1],
                  name.replace("=?base64?", "=?BASE64?"), "=?base64?ZGVsaXZl!!!cg==?=",
                  "=?base64?ZGVsaXZlcg?=", "=?base64?ZGVsaXZlch==?=", "d\u00e9liver"):
        rung(f"Mcp-Name {value}", send(call(), headers=[("Mcp-Name", value)]), 400, -32020)
    equal(stack.ledger(), [], "no tool ran under a wrong name")
    unknown = "tsk_" + "A" * 32
    get = message("tasks/get", {"taskId": unknown})
    rung("tasks/get without Mcp-Name", send(get, headers=[("Mcp-Name", DROP)]), 200, -32602)
    rung("tasks/get, Mcp-Name in base64", send(get, headers=[("Mcp-Name", sentinel(unknown))]),
         200, -32602)
    rung("tasks/get, Mcp-Name differs", send(get, headers=[("Mcp-Name", unknown + "B")]), 400,
         -32020)
    lower = {name.lower(): value for name, value in BASE.items()}
    rung("header names in any case", send(message(), headers=[
        *((name, DROP) for name in BASE), *lower.items()]), 200)


def method_rungs():
    for method in ("ping", "tasks/list", "tasks/result", "tools/none", "prompts/none", "x", "",
                   "resources/subscribe", "resources/unsubscribe", "Tools/list", "logging/setLevel"):
        rung(f"method {method}", send(message(method), name="x"), 404, -32601)
    plain = rig.meta(declare=False)
    legacy = plain | {rig.META + "clientCapabilities": {"tasks": {}}}
    wrong = plain | {rig.META + "clientCapabilities": {"extensions": {rig.TASKS: True}}}
    for body in (message(method, {"taskId": "x", "_meta": declared})
                 for method in ("tasks/get", "tasks/cancel") for declared in (plain, legacy, wrong)):
        answer = rung(f"{body['method']} undeclared", send(body), 400, -32021)
        data = answer.data if isinstance(answer.data, dict) else {}
        equal(data.get("requiredCapabilities"), {"extensions": {rig.TASKS: {}}},
              "what would be required")
    for params in ({}, {"name": 5}, {"name": "deliver", "arguments": "text"},
                   {"name": "deliver", "arguments": []}, {"name": "none", "arguments": {}}):
        answer = send(message("tools/call", params))
        rung(f"tools/call {params}", answer, (200, 400), -32602)
    for task in ("tsk_" + "A" * 32, "x", "", "' OR 1=1 --", "tsk_" + "A" * 31, "a" * 5000):
        for method in ("tasks/get", "tasks/cancel"):
            answer = send(message(method, {"taskId": task}))
            rung(f"{method} {task[:20]}", answer, 200, -32602)
            equal((answer.error or {}).get("message"), "Task not found or expired",
                  "one answer for all")
    for task in (5, None, ["x"], DROP):
        answer = send(message("tasks/get", {"taskId": task}))
        rung(f"tasks/get {task!r}", answer, (200, 400), -32602)
    rung("unknown cursor", send(message("tools/list", {"cursor": "none"})), (200, 400), -32602)


def first_failure_wins():
    """Two faults in one request: the earlier rung answers."""
    bad_meta = {"_meta": DROP}
    cases = [
        ("Origin before verb", send(b"", "GET", headers=[("Origin", "http://evil.example")]), 403, None),
        ("verb before type", send(b"", "PUT", headers=[("Content-Type", "text/plain")]), 405, None),
        ("type before token", send(message(), headers=[("Content-Type", "text/plain"),
                                                       ("Authorization", DROP)]), 415, None),
        ("token before JSON", send(b"{", headers=[("Authorization", DROP)]), 401, None),
        ("JSON before envelope", send(b"[1,"), 400, -32700),
        ("envelope before _meta", send(message(params=bad_meta, jsonrpc="1.0")), 400, -32600),
        ("_meta before headers", send(message(params=bad_meta),
                                      headers=[("Mcp-Method", "x")]), 400, -32602),
        ("headers before method", send(message("none"), headers=[("Mcp-Method", "x")]), 400, -32020),
        ("version pair before Mcp-Method", send(message(), headers=[
            ("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Method", "x")]), 400, -32020),
        ("version before method", send(message("none", {"_meta": rig.meta(
            **{rig.META + "protocolVersion": "1900-01-01"})}),
            headers=[("MCP-Protocol-Version", "1900-01-01")]), 400, -32022),
        ("method before capability", send(message("none", {"_meta": rig.meta(False)})), 404, -32601),
        ("capability before params", send(message("tasks/get", {"taskId": 5,
                                                                "_meta": rig.meta(False)})), 400, -32021),
    ]
    for what, answer, status, code in cases:
        equal((answer.status, answer.code if code else None), (status, code), what)
        counts["pairs"] += 1


def right_answers():
    answer = rung("server/discover", send(message()), 200)
    result = answer.result
    equal(result["resultType"], "complete", "discover: resultType")
    check(rig.VERSION in result["supportedVersions"], "discover: versions")
    equal(result["capabilities"]["extensions"][rig.TASKS], {}, "discover: exactly {}")
    check("tasks" not in result["capabilities"], "discover: no legacy tasks capability")
    check("dev.holdfast/effects" in result["capabilities"]["extensions"], "discover: our extension")
    check("serverInfo" not in result, "discover: serverInfo is in _meta")
    listed = rung("tools/list", send(message("tools/list")), 200).result
    for name, shown in (("discover", result), ("tools/list", listed)):
        check(isinstance(shown["ttlMs"], int) and shown["ttlMs"] >= 0, f"{name}: ttlMs")
        check(shown["cacheScope"] in ("public", "private"), f"{name}: cacheScope")
        info = shown["_meta"][rig.META + "serverInfo"]
        check(info["name"] == "holdfast" and info["version"], f"{name}: serverInfo")
    names = [tool["name"] for tool in listed["tools"]]
    equal((names.count("deliver"), len(set(names))), (1, len(names)), "tools/list: each tool once")
    tool = listed["tools"][names.index("deliver")]
    check("effect_id" in tool["inputSchema"]["required"], "the effect ID is published as required")
    check("nextCursor" not in listed, "one page has no next")
    rung("Mcp-Name in base64", send(call(arguments={"effect_id": "b64"}),
                                    name=sentinel("deliver")), 200)
    equal([send(message("tools/list")).body for _ in range(3)],
          [send(message("tools/list")).body] * 3, "tools/list is the same every time")
    answer = rung("a call", send(call()), 200)
    handle = answer.result
    equal(handle.get("resultType"), "task", "call: resultType")
    for name in ("taskId", "status", "createdAt", "lastUpdatedAt"):
        check(isinstance(handle.get(name), str), f"call: {name}", repr(answer))
    check("ttlMs" in handle, "call: ttlMs is there even if null")
    for name in ("task", "result", "error", "inputRequests", "requestState", "ttl", "pollInterval"):
        check(name not in handle, f"call: no {name}")
    end = stack.client().wait(handle["taskId"]).result
    equal((end["resultType"], end["status"]), ("complete", "completed"), "get: at the end")
    equal(end["result"]["resultType"], "complete", "get: the inlined result has its own")
    check(end["result"]["content"], "get: content is not empty")
    check(isinstance(end["ttlMs"], int), "get: ttlMs at the end", end["ttlMs"])
    got = send(message("tasks/get", {"taskId": handle["taskId"]}), name=sentinel(handle["taskId"]))
    equal(got.result, end, "get: the same with Mcp-Name in base64")
    # Who does not declare Tasks never gets one: an ordinary result, or the code that says so.
    for name, declared in (("undeclared", {}), ("the legacy capability", {"tasks": {}}),
                           ("not an object", {"extensions": {rig.TASKS: True}})):
        plain = send(call(arguments={"effect_id": f"plain-{name.replace(' ', '-')}"},
                          _meta=rig.meta(False) | {rig.META + "clientCapabilities": declared}),
                     seconds=30)
        check(not plain.handle and ((plain.status, plain.code) == (400, -32021) or
                                    plain.status == 200 and b'"content"' in plain.body),
              f"a plain call, {name}: no task", repr(plain))
    # `params.task` is a thing of an older revision.
    old = rung("params.task ignored", send(call(arguments={"effect_id": "old"},
                                                task={"ttl": 1})), 200)
    check(old.handle and old.result["ttlMs"] is None, "params.task: its ttl is not applied",
          repr(old))
    initialize = send({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x",
                                                                            "version": "0"}}},
        headers=[("MCP-Protocol-Version", DROP), ("Mcp-Method", DROP)])
    rung("initialize of 2025-11-25", initialize, (200, 400))
    check(initialize.status == 200 or rig.VERSION.encode() in initialize.body,
          "which names the supported versions", repr(initialize))


before = stack.query("SELECT count(*) FROM holdfast.task")
rig.run(http_rungs, auth_rungs, json_rungs, envelope_rungs, meta_rungs, header_rungs, method_rungs,
        first_failure_wins)
equal(stack.query("SELECT count(*) FROM holdfast.task"), before, "nothing stored")
equal(stack.client().request("tools/list", {}).status, 200, "still serving")
right_answers()
equal(stack.apis[0].alive() and stack.apis[0].pid, pid, "one process throughout")
rig.finish("ladder", counts, {"rungs": 150, "pairs": 12})
