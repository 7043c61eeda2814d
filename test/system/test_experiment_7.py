#!/usr/bin/python3
"""Experiment 7: three tools as in the public re-send measurement, `poke` (no hints), `peek` (read-only)
and `nudge` (idempotent): arrivals at the server against effects made, for a client that re-sends.

The client loses its connection in several ways and sends the same call again under a new JSON-RPC id,
with what real clients have to be known by: an effect ID of its own; the host's own number of the tool
use, which it repeats by itself; nothing at all, on a tool that has an intent window; and nothing on a
tool that has none, which is the control: there every arrival is an effect, as it is without Holdfast.
Effects are counted in the downstream's ledger, arrivals in the API's log."""

import json
import socket
import time
import uuid

import rig
from rig import check, equal, until

FALLBACK = "claudecode/toolUseId"
HINTS = {"poke": None, "peek": {"readOnlyHint": True}, "nudge": {"idempotentHint": True}}
KEYS = ("effect ID", "tool use", "window", "none")
WAYS = ("answered", "answer lost", "reset", "both at once", "cut in the body")
ROUNDS = 2
counts = {"runs": 0, "arrivals": 0, "effects": 0, "control_effects": 0}


def tool(name, hints, opts):
    number = {"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer"}, "effect_id": {"type": "string"}}}
    request = ({"method": "GET", "url": "{/conf/ledger}/ledger?n={/args/n}"} if "peek" in name else
               {"method": "POST", "url": "{/conf/ledger}/ledger", "json": {
                   "effect_id": {"$from": "/args/n"}, "tool": {"$from": "/task/tool"}}})
    effect = ({"effect": "pure"} if "peek" in name else
              {"effect": "keyed", "key_header": "Idempotency-Key", "key_ttl_ms": 86_400_000})
    return rig.http_tool(name, members={
        "effect_id": "optional", "inputSchema": number, **opts,
        **({"annotations": hints} if hints else {}),
        "phases": [{"name": "do", "kind": "http", "attempts": 8, "timeout_ms": 10_000,
                    "backoff_first_ms": 50, "backoff_max_ms": 200, **effect, "request": request}],
        "result": {"text": "done {/args/n}", "structured": {"n": {"$from": "/args/n"}}}})


stack = rig.Stack(apis=2, workers=2, tools=[
    *(tool(name, hints, {"effect_id_fallback": FALLBACK}) for name, hints in HINTS.items()),
    *(tool(f"{name}_window", hints, {"intent_window_ms": 60_000}) for name, hints in HINTS.items()),
    *(tool(f"{name}_bare", hints, {}) for name, hints in HINTS.items())])
numbers = iter(range(1, 10**6))


def bytes_of(name, number, key, declare):
    """One sending of the call; each has an id of its own."""
    client = stack.client()
    whole = json.loads(client.body(name, {"n": number} | (
        {"effect_id": f"e7-{number}"} if key == "effect ID" else {})))
    whole["id"] = uuid.uuid4().hex
    whole["params"]["_meta"] = rig.meta(declare, **(
        {FALLBACK: f"toolu_{number}"} if key == "tool use" else {}))
    body = json.dumps(whole).encode()
    return rig.request_bytes(client.headers("tools/call", name), body)


def accepted(number):
    return len(stack.query("SELECT 1 FROM holdfast.task WHERE arguments::json ->> 'n' = %s",
                           (str(number),)))


def send_and_lose(way, data, api, number):
    """False: it never arrived as a whole."""
    before = arrivals(number)
    with socket.create_connection(("127.0.0.1", stack.apis[api].port)) as connection:
        if way == "cut in the body":
            connection.sendall(data[:-7])
            return False
        connection.sendall(data)
        if way != "both at once":
            until(lambda: arrivals(number) > before, 10, f"{way}: arrived")
        if way == "reset":
            rig.reset_close(connection)
    return True


def tasks_of(number):
    return {rig.task_text(row[0]) for row in stack.query(
        "SELECT task FROM holdfast.task WHERE arguments::json ->> 'n' = %s", (str(number),))}


def arrivals(number):
    tasks = tasks_of(number)
    # Without the one that is just being written.
    lines = [json.loads(line) for api in stack.apis for line in api.log().split("\n")[:-1]
             if '"msg":"call ' in line]
    return sum(line["task_id"] in tasks for line in lines)


def read(api, data):
    """An answer as JSON or as a stream; the last message."""
    got = rig.raw_exchange(stack.apis[api].port, data, 30)
    answer = rig.parse_raw(got)
    return answer.result or {}


def stored(result):
    return {name: value for name, value in result.items() if name not in ("_meta", "resultType")}


def is_done(number):
    """Nothing of it is under way; what a plain client left for good stays parked."""
    return not stack.query("SELECT 1 FROM holdfast.work w JOIN holdfast.task t USING (task) "
                           "WHERE t.arguments::json ->> 'n' = %s AND w.state <> 'parked'",
                           (str(number),))


def run(name, key, way, declare):
    """The call, lost in that way, and sent again, twice."""
    number = next(numbers)
    what = f"{name}, {key}, {way}, {'tasks' if declare else 'plain'}"
    whole = 0
    if way == "answered":
        read(0, bytes_of(name, number, key, declare))
        whole = 1
    else:
        whole += send_and_lose(way, bytes_of(name, number, key, declare), 0, number)
    results = [read(api, bytes_of(name, number, key, declare)) for api in (1, 0)]
    whole += 2
    # A client that is gone before its call was accepted is dropped, and its call never arrived.
    least = whole - (way == "both at once" and not declare)
    until(lambda: arrivals(number) >= least, 10, f"{what}: all arrived")
    if declare:
        handles = {result.get("taskId") for result in results}
        results = [stack.client().wait(handle).result["result"] for handle in handles]
    until(lambda: is_done(number), 30, f"{what}: done")
    for result in results:
        equal(stored(result), {"content": [{"type": "text", "text": f"done {number}"}],
                               "structuredContent": {"n": number}, "isError": False},
              f"{what}: the result")
    counts["runs"] += 1
    return number, arrivals(number), accepted(number), (least, whole)


def measure(key):
    """tool -> [arrivals, effects]"""
    table = {}
    for name in HINTS:
        tool_name = name + {"none": "_bare", "window": "_window"}.get(key, "")
        sums = [0, 0]
        for way in WAYS:
            for turn in range(ROUNDS):
                declare = turn % 2 == 0
                number, arrived, tasks, bounds = run(tool_name, key, way, declare)
                effects = stack.effects_by_id().get(number, 0)
                sums = [sums[0] + arrived, sums[1] + effects]
                what = f"{tool_name}, {key}, {way}"
                check(bounds[0] <= arrived <= bounds[1], f"{what}: arrivals", [arrived, bounds])
                wanted = 0 if name == "peek" else 1
                if key == "none":
                    equal(tasks, arrived, f"{what}: the control runs each arrival")
                else:
                    equal(tasks, 1, f"{what}: one task")
                    equal(effects, wanted, f"{what}: effects")
        table[name] = sums
    return table


def published():
    tools = {entry["name"]: entry for entry in stack.client().request(
        "tools/list", {}).result["tools"]}
    for name, hints in HINTS.items():
        equal(tools[name].get("annotations"), hints, f"{name}: its hints as they are")


def by_hints():
    """As a host that re-sends only what its hints allow: a call without any is sent once, and what
    is sent again is one effect all the same."""
    tools = {entry["name"]: entry for entry in stack.client().request(
        "tools/list", {}).result["tools"]}
    for name in HINTS:
        hints = tools[name].get("annotations") or {}
        number = next(numbers)
        again = hints.get("readOnlyHint") or hints.get("idempotentHint")
        send_and_lose("answer lost", bytes_of(name, number, "tool use", True), 0, number)
        if again:
            read(1, bytes_of(name, number, "tool use", True))
        until(lambda: is_done(number), 30, f"{name}: done")
        equal(arrivals(number), 2 if again else 1, f"{name}: re-sent where the hints allow")
        equal(stack.effects_by_id().get(number, 0), 0 if name == "peek" else 1, f"{name}: effects")


published()
tables = {}
for key in KEYS:
    began = time.monotonic()
    tables[key] = measure(key)
    print(f"{key}: {json.dumps(tables[key])} arrivals, effects; {time.monotonic() - began:.1f} s",
          flush=True)
by_hints()
counts["arrivals"] = sum(cell[0] for key in KEYS[:3] for cell in tables[key].values())
counts["effects"] = sum(cell[1] for key in KEYS[:3] for cell in tables[key].values())
counts["control_effects"] = tables["none"]["poke"][1]
per_cell = len(WAYS) * ROUNDS
equal(counts["effects"], 3 * 2 * per_cell, "one effect for each poke and nudge, none for a peek")
check(tables["none"]["poke"][1] > per_cell, "the control doubles: the measurement can tell")
rig.finish("experiment_7", counts, {"runs": 4 * 3 * per_cell, "arrivals": 3 * 3 * per_cell * 2,
                                    "control_effects": per_cell + 1})
