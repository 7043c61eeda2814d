"""Requests as bytes, with the one answer that each must get. test_raw.py sends them.

A row is made by case(): its name tells what is odd about it; `data` holds {HOST} and {PATH}, which
stand only in the head. Where the specifications leave a choice, what is pinned here is ours, and
`why` says so. Bases: MUST and SHOULD are of MCP 2026-07-28 or its tasks extension, RFC is of HTTP or
JSON, house is our own rule.
"""

import base64
import dataclasses
import gzip
import json

EMPTY, SAME = object(), object()
VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
TASKS = {"extensions": {META + "tasks": {}}}
NO_TASK = "00000000-0000-4000-8000-000000000000"
CRLF = b"\r\n"


@dataclasses.dataclass
class Case:
    """`status`: of each answer in order. `code`: of the first answer's error; a text is the `type`
    in the structuredContent of an isError result. `effects`: in the ledger under `effect_id`, when
    all is done. `id`: of the first answer, or EMPTY for none. `closes`: by the server, after the
    last answer. `how`: see test_raw.py. `check`: a name there, for what else must hold."""
    number: int
    name: str
    data: bytes
    status: tuple
    code: int | str | None
    effects: int
    basis: str
    why: str
    id: object
    closes: bool
    how: str
    check: str | None
    effect_ids: tuple


CASES = []


def meta(version=VERSION, capabilities=TASKS, info=True, **more):
    whole = {META + "protocolVersion": version}
    if info:
        whole[META + "clientInfo"] = {"name": "rig", "version": "0"}
    if capabilities is not None:
        whole[META + "clientCapabilities"] = capabilities
    return whole | more


def text(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def rpc(method, params=None, id=1, **more):
    """`params` come before _meta; EMPTY as id makes a notification."""
    message = {"jsonrpc": "2.0"}
    if id is not EMPTY:
        message["id"] = id
    message |= {"method": method, "params": {**(params or {}), "_meta": meta(), **more}}
    return text(message)


def arguments(effect_id, **more):
    return {"effect_id": effect_id, "month": "2026-09", **more}


def tool_call(effect_id=None, tool="rig_report", id=1, args=None, between=None, **more):
    args = arguments(effect_id) if args is None else args
    return rpc("tools/call", {"name": tool, "arguments": args, **(between or {})}, id, **more)


def head(method="tools/list", name=None, length=SAME, body=b"", line="POST {PATH} HTTP/1.1",
         drop=(), put=None, first=None, extra=(), end=CRLF):
    """`put`: header -> value in its usual place; `first`: header -> line, before all others but in
    their stead; `extra`: lines behind them; `drop`: headers left out."""
    fields = {"Host": "{HOST}", "Authorization": "Bearer rig-alice",
              "Content-Type": "application/json",
              "Accept": "application/json, text/event-stream",
              "MCP-Protocol-Version": VERSION, "Mcp-Method": method, "Mcp-Name": name}
    fields |= put or {}
    lines = [line, *(first or ())]
    lines += [f"{field}: {value}" for field, value in fields.items()
              if value is not None and field not in drop]
    lines += extra
    if length is SAME:
        lines.append(f"Content-Length: {len(body)}")
    elif length is not None:
        lines.append(f"Content-Length: {length}")
    return b"".join((one if isinstance(one, bytes) else one.encode("latin-1")) + end
                    for one in lines) + end


def whole(body, method="tools/list", name=None, **more):
    return head(method, name, body=body, **more) + body


def call_whole(effect_id, **more):
    return whole(tool_call(effect_id), "tools/call", "rig_report", **more)


def case(number, name, data, status=200, code=None, effects=0, basis="MUST", why="", id=1,
         closes=False, how="send", check=None, effect_ids=None):
    statuses = status if isinstance(status, tuple) else (status,)
    assert number == len(CASES) + 1
    CASES.append(Case(number, name, data, statuses, code, effects, basis, why, id, closes, how,
                      check, tuple(effect_ids or (f"eff-raw-{number:03}",))))


def refused(number, name, data, status, basis="RFC", why="", **more):
    """By the HTTP layer: no JSON-RPC answer, and the end of the connection."""
    case(number, name, data, status, None, 0, basis, why, id=EMPTY, closes=True, **more)


def call_case(number, name, status=200, code=None, effects=None, basis="RFC", why="", check=None,
              id=1, **more):
    """A tools/call whose oddity is in its head; `more` goes to head()."""
    effects = (1 if status == 200 and code is None else 0) if effects is None else effects
    check = check or ("handle" if effects else None)
    if status not in (200, 400):
        id = EMPTY
    case(number, name, call_whole(f"eff-raw-{number:03}", **more), status, code, effects, basis, why,
         id=id, check=check)


def list_case(number, name, status=200, code=None, basis="MUST", why="", body=SAME, id=1,
              check=None, closes=False, **more):
    body = rpc("tools/list") if body is SAME else body
    case(number, name, whole(body, **more), status, code, 0, basis, why, id=id, check=check,
         closes=closes)


def body_case(number, name, body, status=200, code=None, effects=0, basis="RFC", why="", **more):
    """A tools/call whose oddity is in its body."""
    case(number, name, whole(body, "tools/call", "rig_report"), status, code, effects, basis, why,
         **more)


def task_case(number, name, status=200, code=-32602, basis="MUST", why="", method="tasks/get",
              task=NO_TASK, header=SAME, **more):
    header = task if header is SAME else header
    case(number, name, whole(rpc(method, {"taskId": task}, **more), method, header), status, code, 0,
         basis, why)


def in_arguments(number, member, raw):
    """Arguments with bytes that no encoder makes; `member`: "month", or "n" behind it."""
    args = b'{"effect_id":"eff-raw-%03d","month":%s}' % (
        number, raw if member == "month" else b'"2026-09","n":' + raw)
    return tool_call(args={"x": 0}).replace(b'{"x":0}', args)


def chunks(*pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def sentinel(value, marker="base64"):
    return f"=?{marker}?{base64.b64encode(value.encode()).decode()}?="


# --- the protocol's own ---------------------------------------------------------------------------

case(1, "discover", whole(rpc("server/discover"), "server/discover"), check="discover")
list_case(2, "tools/list", check="tools_list")
call_case(3, "call", basis="MUST")
case(4, "call without tasks", whole(tool_call("eff-raw-004", _meta=meta(capabilities={})),
                                    "tools/call", "rig_report"),
     effects=1, check="plain", why="run to its end within the answer window, never a task")
case(5, "unknown tool", whole(tool_call("eff-raw-005", "no_such_tool"), "tools/call",
                              "no_such_tool"),
     code=-32602, basis="spec text", why="a protocol error in-band: clients show 200 bodies")
body_case(6, "no effect ID", tool_call(args={"month": "2026-09"}), code="effect_id_required",
          basis="house", why="as a result, so that a model can act on it")
call_case(7, "type with charset", put={"Content-Type": "application/json; charset=utf-8"})
call_case(8, "type in capitals, quoted parameter",
          put={"Content-Type": 'Application/JSON;Charset="UTF-8"'})
call_case(9, "text/plain", 415, -32600, basis="house", put={"Content-Type": "text/plain"})
call_case(10, "no type", 415, -32600, basis="house", why="nothing is guessed",
          drop=("Content-Type",))
call_case(11, "type that begins alike", 415, -32600, put={"Content-Type": "application/json-seq"})
call_case(12, "form", 415, -32600, basis="house",
          put={"Content-Type": "application/x-www-form-urlencoded"})
call_case(13, "Accept JSON alone", why="calls of task clients are answered in JSON anyhow",
          basis="house", put={"Accept": "application/json"})
call_case(14, "Accept anything", put={"Accept": "*/*"})
call_case(15, "Accept reversed, weighted",
          put={"Accept": "text/event-stream;q=0.5,application/json;q=0.9"})
call_case(16, "Accept on two lines", drop=("Accept",),
          extra=("Accept: application/json", "Accept: text/event-stream"))
call_case(17, "Accept HTML", 406, -32600, basis="house", put={"Accept": "text/html"})
call_case(18, "no Accept", basis="house", why="absent means anything (RFC 9110)", drop=("Accept",))
call_case(19, "Accept events alone", 406, -32600, basis="house",
          why="a handle is never sent as an event: a cut stream hangs clients",
          put={"Accept": "text/event-stream"})
call_case(20, "no version header", 400, -32020, basis="MUST", drop=("MCP-Protocol-Version",))
call_case(21, "version header differs", 400, -32020, basis="MUST",
          put={"MCP-Protocol-Version": "2025-11-25"})
list_case(22, "unknown version", 400, -32022, check="unsupported",
          body=rpc("tools/list", _meta=meta("1900-01-01")),
          put={"MCP-Protocol-Version": "1900-01-01"})
list_case(23, "no _meta", 400, -32602, id=7, why="_meta before headers",
          body=text({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}))
list_case(24, "no capabilities", 400, -32602, id=7,
          body=rpc("tools/list", id=7, _meta=meta(capabilities=None, info=False)))
list_case(25, "no clientInfo", body=rpc("tools/list", _meta=meta(capabilities={}, info=False)))
call_case(26, "no Mcp-Method", 400, -32020, basis="MUST", drop=("Mcp-Method",))
call_case(27, "Mcp-Method differs", 400, -32020, basis="MUST", put={"Mcp-Method": "tools/list"})
call_case(28, "Mcp-Method in other case", 400, -32020, basis="MUST",
          put={"Mcp-Method": "Tools/Call"})
case(29, "header names in any case", whole(tool_call("eff-raw-029"), drop=(
    "Host", "Authorization", "Content-Type", "Accept", "MCP-Protocol-Version", "Mcp-Method"), first=(
        "hOST: {HOST}", "AUTHORIZATION: Bearer rig-alice", "content-type: application/json",
        "ACCEPT: application/json, text/event-stream", f"mcp-PROTOCOL-version: {VERSION}",
        "mCP-mETHOD: tools/call", "MCP-NAME: rig_report")), effects=1, check="handle")
case(30, "padded header values", whole(tool_call("eff-raw-030"), drop=(
    "Host", "Authorization", "Content-Type", "Accept", "MCP-Protocol-Version", "Mcp-Method"), first=[
        f"{name}:   \t{value} \t " for name, value in (
            ("Authorization", "Bearer rig-alice"), ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"), ("MCP-Protocol-Version", VERSION),
            ("Mcp-Method", "tools/call"), ("Mcp-Name", "rig_report"))] + ["Host: {HOST}"]),
     effects=1, basis="RFC", check="handle")
call_case(31, "no Mcp-Name", 400, -32020, basis="MUST", drop=("Mcp-Name",))
call_case(32, "Mcp-Name of another tool", 400, -32020, basis="MUST", put={"Mcp-Name": "rig_other"})
call_case(33, "Mcp-Name in base64", basis="MUST", put={"Mcp-Name": sentinel("rig_report")})
call_case(34, "Mcp-Name in broken base64", 400, -32020, basis="MUST",
          put={"Mcp-Name": "=?base64?cmlnX3JlcG9yd@==?="})
call_case(35, "marker in capitals", 400, -32020, basis="MUST",
          put={"Mcp-Name": sentinel("rig_report", "BASE64")})
call_case(36, "Mcp-Name twice", 400, -32020, basis="house", why="two readers could differ",
          extra=("Mcp-Name: rig_other",))
case(37, "Mcp-Name in raw UTF-8", whole(
    tool_call("eff-raw-037", "rapport_\u00e9t\u00e9"), "tools/call",
    "rapport_\u00e9t\u00e9".encode().decode("latin-1")), 400, -32020)
call_case(38, "legacy headers", basis="SHOULD", check="no_session", extra=(
    "Mcp-Session-Id: 1868a90c-5f4e-4c1a-9d2b-7f3e1c0a9b44", "Last-Event-ID: 42"))
task_case(39, "unknown task")
task_case(40, "unknown task, no Mcp-Name", basis="house", why="two real clients never send it",
          header=None)
task_case(41, "unknown task, Mcp-Name differs", 400, -32020,
          header="11111111" + NO_TASK[8:])
task_case(42, "unknown task, Mcp-Name in base64", header=sentinel(NO_TASK))
task_case(43, "tasks not declared", 400, -32021, _meta=meta(capabilities={}))
task_case(44, "task ID a number", basis="house", task=12, header="12")
task_case(45, "task ID like SQL", basis="house", task="x' OR '1'='1")
task_case(46, "tasks/result", 404, -32601, method="tasks/result")
case(47, "tasks/list", whole(rpc("tasks/list"), "tasks/list"), 404, -32601)
task_case(48, "cancel of an unknown task", basis="SHOULD", method="tasks/cancel")
body_case(49, "params.task", tool_call("eff-raw-049", between={"task": {"ttl": 1}}), effects=1,
          basis="MUST", check="handle")
case(50, "unknown method", whole(rpc("no/such", id="abc"), "no/such"), 404, -32601, id="abc")
case(51, "ping", whole(rpc("ping"), "ping"), 404, -32601)
case(52, "initialize of an older revision", whole(text({
    "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"}}}), None, put={"MCP-Protocol-Version": None}),
     400, -32022, check="unsupported_legacy", why="only 2026-07-28 is served")

# --- JSON-RPC -------------------------------------------------------------------------------------

for number, name, value in ((53, "null", None), (54, "a fraction", 1.5), (55, "true", True),
                            (56, "an object", {"a": 1})):
    list_case(number, f"id {name}", 400, -32600, body=rpc("tools/list", id=value), id=EMPTY)
for number, value in ((57, 0), (58, "0"), (59, "")):
    list_case(number, f"id {value!r}", body=rpc("tools/list", id=value), id=value)
body_case(60, "call as notification", tool_call("eff-raw-060", id=EMPTY), 202, id=EMPTY,
          basis="house", why="dropped like every notification: nobody could learn the handle",
          check="empty")
list_case(61, "unknown notification", 202, id=EMPTY, check="empty", method="notifications/nothing",
          body=text({"jsonrpc": "2.0", "method": "notifications/nothing"}))
list_case(62, "notifications/cancelled", 202, id=EMPTY, check="empty",
          method="notifications/cancelled", why="ids are the client's: it would cancel others'",
          body=text({"jsonrpc": "2.0", "method": "notifications/cancelled",
                     "params": {"requestId": 1, "reason": "x"}}))
body_case(63, "batch", b"[" + tool_call("eff-raw-063") + b"," + tool_call("eff-raw-063b", id=2) + b"]",
          400, -32600, id=EMPTY, basis="MUST", effect_ids=("eff-raw-063", "eff-raw-063b"))
list_case(64, "empty batch", 400, -32600, body=b"[]", id=EMPTY)
list_case(65, "a response", 400, -32600, body=text({"jsonrpc": "2.0", "id": 1, "result": {}}))
list_case(66, "no jsonrpc", 400, -32600, basis="JSON-RPC",
          body=text({"id": 1, "method": "tools/list", "params": {"_meta": meta()}}))
list_case(67, "jsonrpc 1.0", 400, -32600, basis="JSON-RPC",
          body=rpc("tools/list").replace(b'"2.0"', b'"1.0"'))
list_case(68, "method a number", 400, -32600, basis="JSON-RPC", method="5", body=rpc(5),
          why="the envelope before the headers")
list_case(69, "params an array", 400, -32602, basis="JSON-RPC", why="an envelope, but no parameters",
          body=text({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}))
body_case(70, "arguments a string", tool_call(args="effect_id=1"), code=-32602, basis="MUST",
          check="still_serving")
body_case(71, "arguments an array", tool_call(args=[1, 2]), code=-32602, basis="MUST",
          check="still_serving")
body_case(72, "arguments null", tool_call().replace(text(arguments(None)), b"null"), code=-32602,
          basis="house", why="null is no object", check="still_serving")
body_case(73, "effect ID a number", tool_call(5), code="effect_id_invalid", basis="house",
          why="never made a string", check="still_serving", effect_ids=("5",))
body_case(74, "effect ID empty", tool_call(""), code="effect_id_invalid", basis="house",
          check="still_serving")
body_case(75, "effect ID of 20,000", tool_call("k" * 20_000), code="effect_id_invalid",
          basis="house", check="still_serving", effect_ids=("k" * 20_000,))
body_case(76, "progress token 0", tool_call("eff-raw-076", _meta=meta(progressToken=0)), effects=1,
          basis="MUST", check="handle")
body_case(77, "progress token an object",
          tool_call("eff-raw-077", _meta=meta(progressToken={"a": 1})), effects=1, basis="MUST",
          check="handle", why="no token, so nothing is told under it; never echoed")

# --- JSON -----------------------------------------------------------------------------------------

BROKEN = {"status": 400, "code": -32700, "id": EMPTY}
body_case(78, "cut short", tool_call("eff-raw-078")[:-9], **BROKEN)
list_case(79, "empty body", body=b"", basis="JSON-RPC", **BROKEN)
body_case(80, "bytes behind", tool_call("eff-raw-080") + b"xyz", **BROKEN)
body_case(81, "two values", tool_call("eff-raw-081") + tool_call("eff-raw-081b"), **BROKEN,
          effect_ids=("eff-raw-081", "eff-raw-081b"))
list_case(82, "byte order mark", body=b"\xef\xbb\xbf" + rpc("tools/list"), basis="RFC", **BROKEN,
          why="may be refused (RFC 8259 8.1)")
list_case(83, "UTF-16", body=b"\xff\xfe" + rpc("tools/list").decode().encode("utf-16-le"),
          basis="RFC", **BROKEN)
body_case(84, "invalid UTF-8", in_arguments(84, "month", b'"\xff\xfe"'), **BROKEN)
body_case(85, "overlong UTF-8", in_arguments(85, "month", b'"\xc0\x80"'), **BROKEN)
body_case(86, "control character", in_arguments(86, "month", b'"a\x01b"'), **BROKEN)
body_case(87, "NUL byte", in_arguments(87, "month", b'"a\0b"'), **BROKEN)
body_case(88, "NUL escape in a value", in_arguments(88, "month", rb'"a\u0000b"'), code=-32602,
          basis="house", why="the store has no NUL in texts: refused by name, never cut")
body_case(89, "NUL escape in the effect ID",
          in_arguments(89, "month", b'"2026-09"').replace(b"eff-raw-089", rb"eff-raw\u0000-a"),
          code="effect_id_invalid", basis="house", effect_ids=("eff-raw", "eff-raw\\u0000-a"))
body_case(90, "leading zero", in_arguments(90, "n", b"01"), **BROKEN)
body_case(91, "2^53 + 1", in_arguments(91, "n", b"9007199254740993"), effects=1, basis="house",
          check="digits:9007199254740993")
body_case(92, "19 digits", in_arguments(92, "n", b"1491926160718000001"), effects=1, basis="house",
          check="digits:1491926160718000001")
for number, depth in ((93, 900), (94, 2000), (95, 100_000)):
    body_case(number, f"depth {depth}", in_arguments(number, "n", b"[" * depth + b"]" * depth),
              basis="house", why="64 levels are read", **BROKEN)
list_case(96, "depth 100,000, never closed", body=b"[" * 100_000, basis="house", **BROKEN)

# --- pairs: in this order on one store ------------------------------------------------------------

body_case(97, "pair: order, first", tool_call(args={
    "effect_id": "eff-pair-order", "month": "2026-09", "opt": {"a": 1, "b": 2}}), effects=1,
          basis="house", check="remember:order", effect_ids=("eff-pair-order",))
body_case(98, "pair: order, other members and spaces", tool_call(args={"x": 0}, id=2).replace(
    b'{"x":0}', b'{ "opt" : { "b":2, "a":1 },\n "month":"2026-09", "effect_id":"eff-pair-order" }'),
          effects=1, basis="house", check="same:order", id=2, effect_ids=("eff-pair-order",))
body_case(99, "pair: conflict, first", tool_call("eff-pair-diff"), effects=1, basis="house",
          check="handle", effect_ids=("eff-pair-diff",))
body_case(100, "pair: conflict, other arguments", tool_call(args={
    "effect_id": "eff-pair-diff", "month": "2026-10"}, id=2), code="idempotency_key_conflict",
          effects=1, basis="house", id=2, effect_ids=("eff-pair-diff",),
          why="the key came as an argument, so a result that a model can act on")
body_case(101, "pair: tenants, alice", tool_call("eff-pair-tenant"), effects=2, basis="house",
          check="remember:tenant", effect_ids=("eff-pair-tenant",))
case(102, "pair: tenants, bob", whole(tool_call(args={
    "effect_id": "eff-pair-tenant", "month": "2026-10"}), "tools/call", "rig_report",
    put={"Authorization": "Bearer rig-bob"}), effects=2, basis="house", check="other:tenant",
     effect_ids=("eff-pair-tenant",))

# --- HTTP: bodies ---------------------------------------------------------------------------------

CHUNKED = {"length": None, "extra": ("Transfer-Encoding: chunked",)}


def chunked(body, **more):
    return head("tools/call", "rig_report", **{**CHUNKED, **more}) + body


body = tool_call("eff-raw-103")
case(103, "chunked", chunked(chunks(body[:7], body[7:100], body[100:])), effects=1, basis="RFC",
     check="handle")
body = tool_call("eff-raw-104")
case(104, "chunk extension, trailer", chunked(
    b"%X;foo=bar\r\n%s\r\n0;last\r\nX-Trailer: 1\r\n\r\n" % (len(body), body),
    extra=("Transfer-Encoding: Chunked",)), effects=1, basis="RFC", check="handle")
case(105, "chunks of a byte, a byte at a time", chunked(chunks(
    *(bytes([byte]) for byte in tool_call("eff-raw-105")))), effects=1, basis="RFC", how="dribble",
     check="handle")
refused(106, "chunk size zz", chunked(b"zz\r\n" + tool_call("eff-raw-106") + b"\r\n0\r\n\r\n"), 400)
refused(107, "chunk size beyond 64 bits",
        chunked(b"f" * 17 + b"\r\n" + tool_call("eff-raw-107")), 400,
        why="more than 15 digits are no size")
case(108, "expect, then the body", call_whole("eff-raw-108", extra=("Expect: 100-continue",)),
     effects=1, basis="RFC", how="continue", check="handle")
refused(109, "expect, refused early", head(
    "tools/call", "rig_report", 50_000_000, drop=("Authorization",),
    extra=("Expect: 100-continue",)) + tool_call("eff-raw-109"), 413, how="head alone",
        why="the length alone is enough")
refused(110, "expect something else", whole(rpc("tools/list"), extra=("Expect: x-nonsense",)), 417)
list_case(111, "HTTP/1.0", line="POST {PATH} HTTP/1.0", basis="RFC", closes=True, check="unchunked")
list_case(112, "HTTP/1.0 without Host", line="POST {PATH} HTTP/1.0", drop=("Host",), basis="RFC",
          closes=True, check="unchunked", why="no browser comes without Host")
refused(113, "HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)
refused(114, "TLS hello", b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03" + bytes(64), 400, "house")
body = tool_call("eff-raw-115")
refused(115, "length and chunked", chunked(chunks(body), length="5"), 400)
refused(116, "two lengths", head("tools/call", "rig_report", extra=("Content-Length: 3",),
                                 length=len(body)) + tool_call("eff-raw-116"), 400)
for number, name, value in ((117, "negative length", "-1"), (118, "signed length", f"+{len(body)}"),
                            (119, "hex length", hex(len(body)))):
    refused(number, name, head("tools/call", "rig_report", value) +
            tool_call(f"eff-raw-{number:03}"), 400)
case(120, "length too short", head("tools/call", "rig_report", 20) + tool_call("eff-raw-120"),
     (400, 400), -32700, basis="RFC", id=EMPTY, closes=True,
     why="a well-framed bad body, then what is no request")
refused(121, "length too long, then the end", head("tools/call", "rig_report", 100_000) +
        tool_call("eff-raw-121"), 400, how="half-close")
refused(122, "coding gzip", head("tools/call", "rig_report", None,
                                 extra=("Transfer-Encoding: gzip, chunked",)) + b"0\r\n\r\n", 400,
        why="any coding but chunked alone is ambiguous")
packed = gzip.compress(tool_call("eff-raw-123"), mtime=0)
refused(123, "gzip body", whole(packed, "tools/call", "rig_report",
                                extra=("Content-Encoding: gzip",)), 415, check="says_codings")
call_case(124, "client takes codings", extra=("Accept-Encoding: gzip, br",), check="uncoded")

# --- HTTP: heads ----------------------------------------------------------------------------------

refused(125, "folded header", call_whole("eff-raw-125", put={
    "Accept": "application/json,\r\n text/event-stream"}), 400)
refused(126, "space before the colon", call_whole("eff-raw-126").replace(
    b"Content-Type:", b"Content-Type :"), 400)
refused(127, "lines ended by LF", whole(rpc("tools/list"), end=b"\n"), 400,
        why="one reading of a line's end")
refused(128, "NUL in a header", whole(rpc("tools/list"), extra=(b"X-A: a\0b",)), 400)
refused(129, "no Host", whole(rpc("tools/list"), drop=("Host",)), 400)
refused(130, "two Hosts", whole(rpc("tools/list"), extra=("Host: {HOST}",)), 400)
list_case(131, "absolute form", line="POST http://{HOST}{PATH} HTTP/1.1", basis="RFC")
call_case(132, "trailing slash", 404, -32601, line="POST {PATH}/ HTTP/1.1", basis="house",
          why="one spelling of the path, never a redirect")
call_case(133, "double slash", 404, -32601, line="POST /{PATH} HTTP/1.1", basis="house")
list_case(134, "query", line="POST {PATH}?v=1 HTTP/1.1", basis="house", why="ignored")
call_case(135, "other path", 404, -32601, line="POST /nowhere HTTP/1.1", basis="house")
call_case(136, "dots in the path", 404, -32601, line="POST /a/../..{PATH} HTTP/1.1", basis="house",
          why="paths are compared, never walked")
for number, verb, kept in ((137, "GET", ("Authorization", "Accept", "MCP-Protocol-Version")),
                           (138, "DELETE", ("Authorization", "MCP-Protocol-Version")),
                           (139, "HEAD", ())):
    case(number, verb, head(
        None, None, None, line=f"{verb} {{PATH}} HTTP/1.1", put={"Accept": "text/event-stream"},
        drop={"Authorization", "Content-Type", "Accept", "MCP-Protocol-Version"} - set(kept)), 405,
         -32600 if verb != "HEAD" else None, basis="SHOULD" if verb != "HEAD" else "house",
         id=EMPTY, check="allow", how="no body" if verb == "HEAD" else "send")
call_case(140, "PUT", 405, -32600, line="PUT {PATH} HTTP/1.1", basis="house", check="allow")
refused(141, "method in lower case", call_whole("eff-raw-141", line="post {PATH} HTTP/1.1"), 501,
        why="methods are case-sensitive: an unknown one")
case(142, "preflight from elsewhere", head(
    None, None, None, line="OPTIONS {PATH} HTTP/1.1",
    drop=("Authorization", "Content-Type", "Accept", "MCP-Protocol-Version"), extra=(
        "Origin: https://evil.example", "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: content-type,mcp-method,mcp-name")), 403, -32600,
     basis="house", id=EMPTY, check="no_cors", why="Origin before the verb")
call_case(143, "Origin from elsewhere", 403, -32600, basis="MUST", check="no_cors",
          extra=("Origin: https://evil.example",))
call_case(144, "Origin that begins alike", 403, -32600, basis="MUST", check="no_cors",
          extra=("Origin: http://localhost.evil.example",))
list_case(145, "upgrade to h2c", basis="RFC", why="ignored", extra=(
    "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"))
second = whole(rpc("tools/list", id="p2"))
case(146, "two, pipelined", whole(rpc("tools/list", id="p1")) + second, (200, 200), basis="RFC",
     id="p1", check="second")
case(147, "a bad one, then a good one", whole(b"{") + second, (400, 200), -32700, basis="RFC",
     id=EMPTY, check="second", why="framing was right, so the connection goes on")
refused(148, "100 kB in a header", whole(rpc("tools/list"), extra=("X-Pad: " + "a" * 100_000,)), 431)
refused(149, "2,000 headers", whole(rpc("tools/list"), extra=[f"X-{n}: 1" for n in range(2000)]), 431)
refused(150, "100 kB of target", whole(rpc("tools/list"),
                                       line="POST {PATH}?" + "a" * 100_000 + " HTTP/1.1"), 414)
call_case(151, "no token", 401, -32600, basis="MUST", drop=("Authorization",), check="challenge")
refused(152, "garbage for a token", call_whole("eff-raw-152", put={
    "Authorization": "Basic \x7f\x7f"}), 400, "house", why="control characters end it before auth")
refused(153, "half a head, then silence", head(
    None, None, None, drop=("Authorization", "Content-Type", "Accept", "MCP-Protocol-Version"),
    extra=("X-A: 1",))[:-4], 408, "house", how="idle")
refused(154, "half a body, then silence", head(
    "tools/call", "rig_report", len(tool_call("eff-raw-154"))) + tool_call("eff-raw-154")[:40], 408,
        "house", how="idle")
case(155, "a call, then the client is gone", call_whole("eff-raw-155"), (), None, 1, "house",
     how="leave", check="repeat")
