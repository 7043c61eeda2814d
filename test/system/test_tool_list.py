#!/usr/bin/python3
"""tools/list by pages (A15, A16), what a tool says of its effects, and Mcp-Param-* headers (A4, A5)
on a real server: a refusal is a plain 400, and nothing was accepted."""

import base64
import json
import time

import rig
from rig import check, equal, until

PAGE = 3
APPLIED = 10
COMPANIONS = ["task_status", "task_result", "task_cancel"]
counts = {"pages": 0, "cursors_refused": 0, "headers_taken": 0, "headers_refused": 0}

TEXT = {"type": "string"}
MARKED = {"type": "object", "required": ["effect_id"], "properties": {
    "effect_id": {**TEXT, "minLength": 1, "maxLength": 255},
    "region": {**TEXT, "x-mcp-header": "Region"},
    "where": {"type": "object", "properties": {
        "shelf": {"type": "object", "properties": {
            "n": {"type": "integer", "x-mcp-header": "Shelf-N"}}},
        "locked": {"type": "boolean", "x-mcp-header": "Locked"}}}}}


def waiting(name, **members):
    return rig.http_tool(name, members={
        "phases": [{"name": "w", "kind": "wait", "ms": 1}],
        "result": {"text": "waited"}, **members})


names = ["marked"] + [f"tool_{letter}" for letter in "zyxwvut"]
stack = rig.Stack(workers=1, apis=2, tools=[
    waiting("marked", inputSchema=MARKED), *(waiting(name) for name in names[1:])],
    settings={"api": {"list_page": PAGE}})
client = stack.client()


def page(cursor=None, api=0, **params):
    if cursor is not None:
        params["cursor"] = cursor
    answer = stack.client(api=api).request("tools/list", params)
    equal(answer.status, 200, "a page: status")
    return answer


def all_names():
    return all_pages()[0]


def all_pages():
    """From both API processes in turn; each cursor is another one."""
    seen, cursors, answer = [], [], page()
    while True:
        counts["pages"] += 1
        result = answer.result
        equal((result["ttlMs"] > 0, result["cacheScope"], result["resultType"]),
              (True, "private", "complete"), "a page: the same hints on each")
        listed = [tool["name"] for tool in result["tools"]]
        check(len(listed) <= PAGE + (0 if seen else len(COMPANIONS)), "a page: its size", listed)
        seen += listed
        if "nextCursor" not in result:
            return seen, cursors
        cursors.append(result["nextCursor"])
        answer = page(result["nextCursor"], api=len(cursors) % 2)


def pages():
    seen, cursors = all_pages()
    equal(seen, COMPANIONS + sorted(names), "all of it, once, in order")
    equal(len(set(cursors)), 2, "two cursors, no two the same")
    check(not any(name in cursor for cursor in cursors for name in names), "opaque", cursors)
    equal(all_pages(), (seen, cursors), "the same again")
    first = page().result["tools"][0]["name"]
    answer = client.call(first, {}, declare=False)
    check(answer.status == 200 and answer.error is None, "the first one answers at once",
          repr(answer))

    for cursor in ("", "x", "tool_t", cursors[0][:-1], cursors[0] + "0", "00" + cursors[0][2:],
                   cursors[0][:-1] + ("0" if cursors[0][-1] != "0" else "1"), 7, None, {}, []):
        answer = client.request("tools/list", {"cursor": cursor})
        equal((answer.status, answer.code, (answer.data or {}).get("executed")),
              (200, -32602, "no"), f"cursor {cursor!r}: refused")
        counts["cursors_refused"] += 1


def goes_on_when_the_list_changes():
    """A tool that comes in front of the cursor is not missed behind it, and none is told twice."""
    before = page().result
    cursor = before["nextCursor"]
    # Each is a version of the catalog: where the last one is seen, so is the other.
    stack.command("tools", "apply", str(waiting("tool_z2")), str(waiting("aaa_first")))
    until(lambda: "aaa_first" in [t["name"] for t in page().result["tools"]], 10, "applied")
    rest, answer = [], page(cursor)
    while True:
        rest += [tool["name"] for tool in answer.result["tools"]]
        if "nextCursor" not in answer.result:
            break
        answer = page(answer.result["nextCursor"])
    told = [tool["name"] for tool in before["tools"]]
    equal(sorted(told + rest), sorted(COMPANIONS + names + ["tool_z2"]), "nothing twice or missed")


def what_a_tool_says():
    tools = {tool["name"]: tool for tool in page().result["tools"]}
    marked = stack.query("SELECT doc FROM holdfast.tool WHERE name = 'marked'")[0][0]
    equal(tools["marked"]["inputSchema"], json.loads(marked)["inputSchema"],
          "the annotation stays in inputSchema")
    equal(tools["marked"]["_meta"]["dev.holdfast/effects"],
          {"effectId": "required", "retentionMs": 604800000, "tombstoneMs": 7776000000},
          "its effects")
    found = client.request("server/discover", {}).result["capabilities"]["extensions"]
    equal(found["dev.holdfast/effects"], {
        "retentionMs": 604800000, "tombstoneMs": 7776000000,
        "carriers": ["params.idempotencyKey", 'params._meta["dev.holdfast/effect-id"]',
                     "arguments.effect_id", "Idempotency-Key"]}, "the extension")


def wrapped(text):
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def call(arguments, lines, declare=True):
    """Header lines as they are, so that one may stand twice."""
    effect_id = rig.new_id("list")
    body = client.body("marked", {"effect_id": effect_id, **arguments}, _meta=rig.meta(declare))
    headers = [f"{name}: {value}" for name, value in
               client.headers("tools/call", "marked").items()]
    head = "\r\n".join(["POST /mcp HTTP/1.1", "Host: localhost", *headers, *lines,
                        f"Content-Length: {len(body)}", "", ""])
    answer = rig.parse_raw(rig.raw_exchange(stack.apis[0].port, head.encode() + body, 10))
    return effect_id, answer


HELLO = "Hello, 世界"
TAKEN = (
    ({}, []),
    ({}, ["Mcp-Param-Other: x"]),
    ({"region": "eu-1"}, ["Mcp-Param-Region: eu-1"]),
    ({"region": "eu-1"}, ["mcp-param-REGION:  eu-1\t"]),
    ({"region": "eu-1"}, ["Mcp-Param-Region: " + wrapped("eu-1")]),
    ({"region": HELLO}, ["Mcp-Param-Region: =?base64?SGVsbG8sIOS4lueVjA==?="]),
    ({"region": " padded "}, ["Mcp-Param-Region: =?base64?IHBhZGRlZCA=?="]),
    ({"region": "line1\nline2"}, ["Mcp-Param-Region: =?base64?bGluZTEKbGluZTI=?="]),
    ({"region": "=?base64?literal?="}, ["Mcp-Param-Region: =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="]),
    ({"region": "=?base64?abc"}, ["Mcp-Param-Region: =?base64?abc"]),
    ({"region": "abc?="}, ["Mcp-Param-Region: abc?="]),
    ({"where": {"shelf": {"n": 42}, "locked": True}},
     ["Mcp-Param-Shelf-N: 42.0", "Mcp-Param-Locked: true"]),
    ({"where": {"shelf": {"n": 42.0}, "locked": False}},
     ["Mcp-Param-Shelf-N: 42", "Mcp-Param-Locked: false"]),
    ({"where": {"shelf": {"n": -9007199254740991}}}, ["Mcp-Param-Shelf-N: -9007199254740991"]),
)
REFUSED = (
    ({"region": "eu-1"}, []),
    ({"region": "eu-1"}, ["Mcp-Param-Region: eu-2"]),
    ({"region": "eu-1"}, ["Mcp-Param-Region: EU-1"]),
    ({"region": "eu-1"}, ["Mcp-Param-Region: eu-1", "Mcp-Param-Region: eu-1"]),
    ({"region": "eu-1"}, ["Mcp-Param-Region: eu-1, eu-1"]),
    ({"region": ""}, []),
    ({}, ["Mcp-Param-Region: eu-1"]),
    ({"region": None}, ["Mcp-Param-Region: null"]),
    ({"where": None}, ["Mcp-Param-Locked: true"]),
    ({"region": "Hello"}, ["Mcp-Param-Region: =?base64?SGVsbG8?="]),
    ({"region": "Hello"}, ["Mcp-Param-Region: =?base64?SGVs!!!bG8=?="]),
    ({"region": HELLO}, ["Mcp-Param-Region: " + HELLO]),
    ({"where": {"shelf": {"n": 42}}}, []),
    ({"where": {"shelf": {"n": 42}}}, ["Mcp-Param-Shelf-N: 43"]),
    ({"where": {"shelf": {"n": 42}}}, ["Mcp-Param-Shelf-N: 4.2e1"]),
    ({"where": {"locked": True}}, ["Mcp-Param-Locked: 1"]),
)


def param_headers():
    for arguments, lines in TAKEN:
        effect_id, answer = call(arguments, lines)
        check(answer.status == 200 and answer.handle, f"{arguments} {lines}: taken", repr(answer))
        counts["headers_taken"] += 1
    for arguments, lines in REFUSED:
        for declare in (True, False):
            effect_id, answer = call(arguments, lines, declare)
            equal((answer.status, answer.code, (answer.data or {}).get("executed")),
                  (400, -32020, "no"), f"{arguments} {lines} {declare}: refused")
            check("application/json" in str(answer.headers.get("content-type")),
                  f"{arguments} {lines}: plain JSON", repr(answer))
            equal(stack.task_rows(effect_id), [], f"{arguments} {lines}: nothing was stored")
            counts["headers_refused"] += 1


def an_unknown_tool_is_named():
    for name, told in (("prims", 'Unknown tool "prims";'), ("sch\u00f6n", 'Unknown tool "sch\u00f6n";'),
                       ("x" * 128, f'Unknown tool "{"x" * 128}";'), ("x" * 129, "Unknown tool;"),
                       ("a\u0007b", "Unknown tool;"), ("", 'Unknown tool "";')):
        answer = client.request("tools/call", {"name": name, "arguments": {}}, wrapped(name))
        equal(answer.code, -32602, f"{name[:9]!r}: code")
        check(answer.error["message"].startswith(told), f"{name[:9]!r}: named where it can be", answer)


def a_version_runs_as_soon_as_it_is_applied():
    """A worker that is woken and finds nothing looks for new versions, and not only every 5 s."""
    soon = 0
    for i in range(APPLIED):
        stack.command("tools", "apply", str(waiting(f"fresh_{i}")))
        until(lambda i=i: f"fresh_{i}" in all_names(), 10, "applied")
        began = time.monotonic()
        task = client.call(f"fresh_{i}", {"effect_id": rig.new_id("id")}).task_id
        equal(client.wait(task).result["status"], "completed", "a fresh tool: it runs")
        soon += time.monotonic() - began < 2.5
    counts["soon"] = soon
    check(soon >= APPLIED - 3, "a fresh tool: it runs soon", soon)


rig.run(pages, what_a_tool_says, an_unknown_tool_is_named, param_headers,
        goes_on_when_the_list_changes, a_version_runs_as_soon_as_it_is_applied)
rig.finish("tool_list", counts, {"pages": 6, "cursors_refused": 11, "headers_taken": 14,
                                 "headers_refused": 32})
