#!/usr/bin/python3
"""Public failing cases about effect IDs: B031 (an honest retry is never a conflict, another call
always is), B032 (keys have a scope), B033 (a conflict is a conflict in whatever state the first
is), B034 (what was refused left the key free), and their kinds."""

import base64
import http.client
import itertools
import json
import os
import resource
import select
import signal
import socket
import threading
import time
import unicodedata

import rig
from patience import soon
from rig import check, equal, until

ANY = {"type": "object", "required": ["effect_id"], "additionalProperties": False,
       "properties": {"effect_id": {"type": "string", "minLength": 1, "maxLength": 255},
                      "month": {"type": "string"}, "n": {}, "opt": {}, "memo": {}}}
counts = {"same": 0, "differ": 0, "orders": 0, "scopes": 0, "conflicts": 0, "refused": 0}
rig.TOKENS |= {"rig-alice-b": ("alice", "B"), "rig-Alice": ("Alice", "A"), "rig-ab": ("ab", "c"),
               "rig-a": ("a", "bc"), "rig-swapped": ("A", "alice")}
stack = rig.Stack(
    apis=2, workers=2,
    tools=[rig.http_tool(members={"inputSchema": ANY}), rig.http_tool("deliver_x"),
           rig.http_tool("de"), rig.http_tool("Deliver"), rig.http_tool("lost", attempts=1),
           rig.probe_tool(crash_limit=1)],
    settings={"api": {"beat_ms": 200, "connections_per_address_max": 2000},
              "worker": {"beat_ms": 200, "poll_ms": 100}})
stack.steer(mode="ignore")  # an effect for each request: a second one is seen
client = stack.client()


all_ids = []  # each has one effect in the end
GIVE_UP_S = 2.0      # so long does a call wait for the store
ACCEPTS_MAX = 1024  # of one principal, on their way to the store in one API process


def raw_call(arguments, tool="deliver", headers=None, params=None, own=None):
    """A tools/call whose arguments are these very bytes."""
    own = own or client
    return own.post(own.body(tool, arguments, **(params or {})),
                    own.headers("tools/call", tool, headers))


def conflicts(answer, what):
    shown = answer.structured or (answer.data if isinstance(answer.data, dict) else {})
    equal((answer.status, shown.get("type"), shown.get("executed")),
          (200, "idempotency_key_conflict", "no"), f"{what}: a conflict")
    check(not answer.handle and not answer.task_id, f"{what}: no handle", repr(answer))
    return shown


# --- B031 ----------------------------------------------------------------------------------------

# Texts of one value: every pair is the same call.
SAME = {
    "one": ["1", "1.0", "1e0", "1E0", "10e-1", "0.1e1", "1.000000000000000000000000000000",
            "1E+00", "100e-2", "0.00000000000000000001e20"],
    "nought": ["0", "-0", "0.0", "-0.0", "0e5", "-0E-7", "0e999999999", "0.000"],
    "2^53 + 1": ["9007199254740993", "9007199254740993.0", "9.007199254740993e15",
                 "9007199254740993e0", "90071992547409930e-1"],
    "2^64 - 1": ["18446744073709551615", "1.8446744073709551615e19"],
    "1e400": ["1e400", "10e399", "0.1e401", "1" + "0" * 400], "1e-400": ["1e-400", "0.1e-399"],
    "a tenth": ["0.1", "0.10", "1e-1", "1.0E-1"], "minus": ["-1.5", "-15e-1", "-1.50"],
    "A": ['"A"', '"\\u0041"'], "a slash": ['"a/b"', '"a\\/b"', '"a\\u002fb"', '"a\\u002Fb"'],
    "e acute": ['"\u00e9"', '"\\u00e9"', '"\\u00E9"'],
    "an emoji": ['"\U0001f600"', '"\\ud83d\\ude00"', '"\\uD83D\\uDE00"'],
    "controls": ['"\\n\\t\\b\\f\\r"', '"\\u000a\\u0009\\u0008\\u000c\\u000d"',
                 '"\\u000A\\t\\b\\f\\r"'],
    "DEL": ['"\x7f"', '"\\u007f"'], "U+2028": ['"\u2028"', '"\\u2028"'],
    "a quote": ['"\\""', '"\\u0022"'], "a backslash": ['"\\\\"', '"\\u005c"'],
    "an empty object": ["{}", "{ }", "{\n\t\r }"], "an empty array": ["[]", "[ \t\r\n]"],
    "spaces": ['{"a":[1,{"b":null}]}', '{ "a" : [ 1 , { "b" : null } ] }',
               '\n{\r\n\t"a":\n[1.0,\n{"b"\t:null}]\n}\n'],
    "nested order": ['{"a":{"b":1,"c":[{"d":1,"e":2}]},"f":3}',
                     '{"f":3,"a":{"c":[{"e":2,"d":1}],"b":1}}'],
    "names by escape": ['{"opt":1,"a":2}', '{"\\u0061":2,"\\u006fpt":1.0}'],
    # Order by code unit and by code point differ here; and by locale.
    "names beyond the BMP": ['{"\ue000":1,"\U00010000":2}', '{"\U00010000":2,"\ue000":1}',
                             '{"\\ud800\\udc00":2,"\\ue000":1}'],
    "names that locales sort": ['{"I":1,"i":2,"\u0131":3,"\u00e4":4,"z":5,"Z":6,"_":7}',
                                '{"_":7,"Z":6,"z":5,"\u00e4":4,"\u0131":3,"i":2,"I":1}'],
    "an empty name": ['{"":1,"a":2}', '{"a":2,"":1}'],
    "names of digits": ['{"10":1,"9":2,"1":3}', '{"1":3,"9":2,"10":1}'],
}
# Each is another call than each other of its row.
DIFFER = {
    "nothing": [None, "null", '""', "{}", "[]", "false", "0", '"null"'],
    "one": ["1", '"1"', "[1]", '{"1":1}', "true", "-1", "1.0000000000000000000000000000000001"],
    "2^53": ["9007199254740992", "9007199254740993", "9007199254740991", "-9007199254740993"],
    "2^64": ["18446744073709551615", "18446744073709551616", "18446744073709551617"],
    "2^100": [str(2**100), str(2**100 + 1), str(-2**100)],
    "beyond doubles": ["1e400", "1e401", "-1e400", "1e-400", "0", "1e-401"],
    "a tenth": ["0.1", "0.1000000000000000055511151231257827", "0.10000000000000001"],
    "truth": ["true", "false", '"true"'],
    "order": ["[1,2]", "[2,1]", "[1,2,2]", "[[1,2]]", "[1,[2]]"],
    "forms": ['"caf\u00e9"', '"' + unicodedata.normalize("NFD", "caf\u00e9") + '"', '"cafe"'],
    "compatible": ['"\ufb01"', '"fi"', '"FI"', '"\uff46\uff49"'],
    "Angstrom": ['"\u00c5"', '"\u212b"', '"A\u030a"'],
    "spaces": ['"a b"', '"a  b"', '"a b "', '"a\u00a0b"'],
    "unseen": ['"ab"', '"a\u200bb"', '"\ufeffab"', '"a\u00adb"'],
    "members": ['{"a":null}', "{}", '{"a":{}}', '{"A":null}', '{"a":null,"b":null}', '{"":null}'],
    "where it ends": ['{"a":"b","c":"d"}', '{"a":"bc","":"d"}', '{"a":"b\\",\\"c\\":\\"d"}',
                      '["a","b","c","d"]'],
    "escapes of escapes": ['"\\\\u0041"', '"A"', '"\\\\\\\\u0041"'],
}


def with_opt(effect_id, text):
    opt = "" if text is None else f'"opt":{text},'
    return '{"month":"2015-01",' + opt + f'"effect_id":"{effect_id}"' + "}"


def first_calls(table, most=None):
    """(name, texts, the one that came first, its effect ID, its task) for so many of each row."""
    for name, texts in table.items():
        for first in texts[:most]:
            effect_id = rig.new_id("b031")
            all_ids.append(effect_id)
            task = raw_call(with_opt(effect_id, first))
            if check(task.handle, f"B031 {name}, {str(first)[:40]}: a handle", repr(task)):
                yield name, texts, first, effect_id, task.task_id


def b031_another_spelling_of_the_same_call_is_no_conflict():
    for name, spellings, first, effect_id, task in first_calls(SAME, 2):
        for other in spellings:
            answer = raw_call(with_opt(effect_id, other))
            check(answer.task_id == task, f"B031 {name}: {first[:40]} is {other[:40]}",
                  repr(answer)[:500])
            counts["same"] += 1


def b031_another_value_is_always_a_conflict():
    for name, texts, first, effect_id, task in first_calls(DIFFER):
        for other in texts:
            if other != first:
                conflicts(raw_call(with_opt(effect_id, other)), f"B031 {name}: {first}, {other}")
                counts["differ"] += 1
        equal(raw_call(with_opt(effect_id, first)).task_id, task, f"B031 {name}: {first}")


def b031_member_order_and_white_space_make_no_conflict():
    """Every order of the four members, in each carrier of the effect ID, with another JSON-RPC id,
    _meta and progress token each time, over both APIs, restarted in other locales."""
    effect_id = rig.new_id("b031-order")
    members = {"month": '"2015-01"', "opt": '{"a":1,"b":[2.50,"\u00fc"]}', "n": "7", "memo": "null"}
    other = {"month": '"\\u0032015-01"', "opt": ' { "b" : [25e-1, "\\u00fc"] , "a" : 1.0 } ',
             "n": "7e0", "memo": " null\n"}
    tasks = set()
    clients = [stack.client(api=0), stack.client(api=1)]
    for number, order in enumerate(itertools.permutations(members)):
        if number in (8, 16):
            locale = ("de_DE.UTF-8", "tr_TR")[number // 8 - 1]
            for api in stack.apis:
                api.terminate()
                api.env |= {"LANG": locale, "LC_ALL": locale}
                api.start()
                until(lambda api=api: stack.ready(api), 20, "API ready")
            for own in clients:
                own.close()
        texts = (members, other)[number % 2]
        names = [f'"{name}"' for name in order]
        if number % 3 == 0:
            names = [name.replace("o", "\\u006f") for name in names]
        parts = [f"{name}:{texts[word]}" for name, word in zip(names, order)]
        carrier = number % 4
        headers, params = {}, {"_meta": rig.meta(progressToken=number, **{"x.example/n": number})}
        if carrier == 0:
            parts.insert(number % 5, f'"effect_id" : "{effect_id}"')
        elif carrier == 1:
            headers = {"Idempotency-Key": effect_id}
        elif carrier == 2:
            params["idempotencyKey"] = effect_id
        else:
            params["_meta"]["dev.holdfast/effect-id"] = effect_id
        answer = raw_call("{" + (",", " ,\n")[number % 2].join(parts) + "}", headers=headers,
                          params=params, own=clients[number % 2])
        check(answer.handle, f"B031 order {order}, carrier {carrier}", repr(answer))
        tasks.add(answer.task_id)
        counts["orders"] += 1
    equal(len(tasks), 1, "B031 all orders: one task")
    equal(len(stack.task_rows(effect_id)), 1, "B031 all orders: one row")
    client.close()
    all_ids.append(effect_id)


def b031_a_member_twice_is_refused():
    effect_id = rig.new_id("b031")
    for text in ('{"opt":1,"opt":1,%s}', '{"opt":1,"\\u006fpt":2,%s}', '{"opt":{"a":1,"a":1},%s}'):
        answer = raw_call(text % f'"effect_id":"{effect_id}"')
        check(answer.code in (-32700, -32600, -32602), f"B031 twice: refused: {text}", repr(answer))
    equal(stack.task_rows(effect_id), [], "B031 twice: nothing stored")


# --- B032 ----------------------------------------------------------------------------------------

def b032_a_key_is_its_owners_and_its_tools_alone():
    """Every caller and tool that could be mixed up, with one key, the same arguments and others:
    tasks, effects and derived keys of their own."""
    effect_id = rig.new_id("b032")
    scopes = [(token, "deliver") for token in rig.TOKENS] + [
        ("rig-alice", tool) for tool in ("deliver_x", "de", "Deliver")]
    tasks, keys = {}, set()
    for number, (token, tool) in enumerate(scopes):
        own = stack.client(token)
        answer = own.call(tool, {"effect_id": effect_id, "month": f"2015-{number % 2 + 1:02}"})
        check(answer.handle, f"B032 {token} {tool}: a handle", repr(answer))
        equal(answer.result["_meta"][rig.EFFECT_META]["replayed"], False,
              f"B032 {token} {tool}: first")
        tasks[token, tool] = answer.task_id
        own.close()
    equal(len(set(tasks.values())), len(scopes), "B032 a task for each")
    for (token, tool), task in tasks.items():
        own = stack.client(token)
        end = own.wait(task).result
        equal((end["status"], end["result"]["isError"]), ("completed", False),
              f"B032 {token} {tool}")
        keys.add(next(step[4] for step in stack.steps(task) if step[2] == "post"))
        for other in tasks.values():
            check(other == task or other not in json.dumps(end), f"B032 {token}: nothing of others")
        own.close()
        counts["scopes"] += 1
    equal(len(keys), len(scopes), "B032 derived keys differ")
    equal(len([line for line in stack.ledger("/ledger") if line["key"] in
               {line["key"] for line in stack.requests("/ledger") if effect_id in line["body"]}]),
          len(scopes), "B032 an effect for each")
    # Lengths count: the parts of one key joined are those of another joined.
    pairs = [("de", "liver" + effect_id), ("deliver", effect_id)]
    glued = {tool: client.call(tool, {"effect_id": name}).task_id for tool, name in pairs}
    equal(len(set(glued.values())), 2, "B032 joined names are not joined keys")
    for name in ("DELIVER", "deliver ", "deliver\u200b", "d\u0435liver"):
        before = stack.query("SELECT count(*) FROM holdfast.task")
        said = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
        answer = client.request("tools/call", {"name": name, "arguments": {"effect_id": effect_id}},
                                said)
        equal(answer.code, -32602, f"B032 {ascii(name)} is no tool")
        equal(stack.query("SELECT count(*) FROM holdfast.task"), before, "B032 and stores nothing")


def b032_without_authentication():
    """Loopback only, said at the start; the bearer is the name, so it is a scope all the same."""
    port = rig.free_port()
    api = stack.start("api-dev", [rig.HOLDFAST, "api", "--listen", f"127.0.0.1:{port}",
                                  "--keys-file", stack.folder / "keys", "--insecure-dev"])
    api.port = port
    until(lambda: stack.ready(api), 20, "B032 the API without authentication is ready")
    check("insecure" in api.log().lower() or "without auth" in api.log().lower(),
          "B032 it warns at its start", api.log()[:600])
    effect_id, tasks = rig.new_id("b032"), set()
    for token in ("dev-one", "dev-two"):
        own = rig.Client(port, token)
        answer = own.call("deliver", {"effect_id": effect_id})
        check(answer.handle, f"B032 {token}: a handle", repr(answer))
        equal(own.call("deliver", {"effect_id": effect_id}).task_id, answer.task_id,
              f"B032 {token}: and again")
        tasks.add(answer.task_id)
        for other in tasks - {answer.task_id}:
            equal(own.get(other).code, -32602, "B032 the other's is not there")
        equal(client.get(answer.task_id).code, -32602, "B032 nor for who has a token")
        own.close()
    equal(len(tasks), 2, "B032 a scope for each name")
    equal(rig.Client(port, None).request("tools/list", {}, headers={"Authorization": None}).status,
          401, "B032 nobody is nobody")
    api.terminate()
    counts["scopes"] += 2


# --- B033 ----------------------------------------------------------------------------------------

def in_state(state):
    """(effect ID, its tool, its arguments) of a task that is in that state."""
    effect_id = rig.new_id("b033-" + state.replace(" ", "-"))
    gate = {"P1": [{"gate": "in"}]}
    plan = {"running": gate, "parked": gate, "cancelled": gate, "completed": {},
            "isError": {"P1": [{"error": "no"}]}, "failed": {"P1": [{"signal": 9}]},
            "backing off": {"P1": [{"error": "x", "retry": True, "starts": [1]}, {"gate": "in"}]}}
    if state == "unknown":
        stack.steer(lose_answers=1)
        client.call("lost", {"effect_id": effect_id, "month": "2015-01"})
        until(lambda: stack.state_of(effect_id) == "unknown", 20, "B033 unknown")
        return effect_id, "lost", {"month": "2015-01"}
    arguments = {"plan": json.dumps(plan[state]), "month": "2015-01"}
    if state == "parked":
        hang_up({"effect_id": effect_id, **arguments})
        until(lambda: stack.state_of(effect_id) == "parked", 10, "B033 parked")
        return effect_id, "probe", arguments
    task = client.call("probe", {"effect_id": effect_id, **arguments}).task_id
    if state in ("running", "cancelled", "backing off"):
        stack.at_gate(effect_id, "in")
    if state == "cancelled":
        client.cancel(task)
    if state in ("cancelled", "completed", "isError", "failed"):
        client.wait(task)
    return effect_id, "probe", arguments


def hang_up(arguments):
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        connection.sendall(client.call_bytes("probe", arguments, _meta=rig.meta(False)))
        stack.at_gate(arguments["effect_id"], "in")


def b033_another_payload_is_a_conflict_in_every_state():
    """Never busy, never the first result, and the first goes on as it was."""
    for state in ("running", "backing off", "completed", "isError", "failed", "cancelled",
                  "unknown",
                  "parked"):
        effect_id, tool, arguments = in_state(state)
        before = (stack.state_of(effect_id), len(stack.run_log(effect_id, "start")))
        mine = stack.task_of(effect_id)
        for number, other in enumerate(({}, {"month": "2015-02"}, {**arguments, "n": 1})):
            for declare in (True, False):
                what = f"B033 {state}, {other}, {'Tasks' if declare else 'plain'}"
                began = time.monotonic()
                answer = client.call(tool, {"effect_id": effect_id, **other}, declare=declare)
                soon(began, 2, f"{what}: at once")
                shown = conflicts(answer, what)
                equal(shown.get("idempotencyKey"), effect_id, f"{what}: names the effect ID")
                answer = client.call(tool, other, declare=declare, idempotencyKey=effect_id)
                equal(answer.code, 1409, f"{what}: in params.idempotencyKey")
                conflicts(answer, f"{what}: in params.idempotencyKey")
                counts["conflicts"] += 2
        equal((stack.state_of(effect_id), len(stack.run_log(effect_id, "start"))), before,
              f"B033 {state}: the first is as it was")
        again = client.call(tool, {"effect_id": effect_id, **arguments})
        equal(again.task_id, mine, f"B033 {state}: the same payload gets its task")
        if state in ("running", "parked", "backing off"):
            stack.open_gate(effect_id, "in")
            equal(client.wait(mine).result["status"], "completed", f"B033 {state}: completes")


def b033_of_many_payloads_at_once_one_wins():
    """20 callers with 20 payloads at one barrier, over two APIs, while the winner runs long."""
    effect_id = rig.new_id("b033-many")
    barrier = threading.Barrier(20)

    def one(number):
        own = stack.client(api=number % 2)
        own.get("tsk_x")
        barrier.wait()
        answer = own.call("probe", {"effect_id": effect_id, "n": number, "plan": json.dumps(
            {"P1": [{"gate": "in"}], "P2": [{"post": True}]})})
        own.close()
        return answer

    answers = rig.in_parallel(one, list(range(20)))
    won = [answer for answer in answers if answer.handle]
    equal(len(won), 1, "B033 one payload wins")
    for answer in answers:
        if not answer.handle:
            conflicts(answer, "B033 the other 19")
    stack.at_gate(effect_id, "in")
    stack.open_gate(effect_id, "in")
    equal(client.wait(won[0].task_id).result["status"], "completed", "B033 the winner completes")
    equal(stack.effects_by_id().get(effect_id), 1, "B033 one effect")


# --- B034 ----------------------------------------------------------------------------------------

def b034_what_was_refused_left_the_key_free():
    """Each refusal with a key of its own, in each carrier; then the corrected call runs."""
    evil = {"Origin": "http://evil.example"}
    bad_meta = {**rig.meta(), rig.META + "protocolVersion": "1900-01-01"}
    refusals = {
        "schema: a type": {"arguments": {"month": 5}},
        "schema: a member": {"arguments": {"other": 1}},
        "unknown tool": {"tool": "no_such_tool"}, "no token": {"headers": {"Authorization": None}},
        "a wrong token": {"headers": {"Authorization": "Bearer nobody"}},
        "Origin": {"headers": evil},
        "Host": {"headers": {"Host": "evil.example"}},
        "Content-Type": {"headers": {"Content-Type": "text/plain"}},
        "Accept": {"headers": {"Accept": "text/html"}},
        "Mcp-Name": {"headers": {"Mcp-Name": "other"}},
        "Mcp-Method": {"headers": {"Mcp-Method": "x"}},
        "version in the header": {"headers": {"MCP-Protocol-Version": "1900-01-01"}},
        "version": {"headers": {"MCP-Protocol-Version": "1900-01-01"},
                    "params": {"_meta": bad_meta}},
        "no _meta": {"params": {"_meta": {}}}, "arguments are an array": {"arguments": []},
        "two keys": {"params": {"idempotencyKey": "another-key"}},
        "an ill-formed key beside": {"params": {"idempotencyKey": "a b"}},
        "5 MiB": {"arguments": {"memo": "x" * (5 << 20)}},
        "too deep": {"arguments": {"memo": json.loads("[" * 80 + "]" * 80)}},
        "NUL": {"arguments": {"memo": "a\0b"}},
    }
    for name, wrong in refusals.items():
        effect_id = rig.new_id("b034")
        tool = wrong.get("tool", "deliver")
        arguments = wrong.get("arguments", {"month": "2015-01"})
        if isinstance(arguments, dict):
            arguments = {"effect_id": effect_id, **arguments}
        own = stack.client()
        params = {"name": tool, "arguments": arguments, **wrong.get("params", {})}
        try:
            answer = own.request("tools/call", params, tool, wrong.get("headers"))
            check(not answer.handle, f"B034 {name}: refused", repr(answer))
            shown = answer.structured or answer.data or {}
            if answer.status == 200:
                check(answer.structured or answer.error, f"B034 {name}: an error", repr(answer))
                equal(shown.get("executed"), "no", f"B034 {name}: executed no")
        except (OSError, http.client.HTTPException):
            check(name == "5 MiB", f"B034 {name}: an answer")
        own.close()
        corrected(effect_id, f"B034 {name}")


def corrected(effect_id, what, tool="deliver", arguments=None):
    equal(stack.task_rows(effect_id), [], f"{what}: nothing stored")
    arguments = {"effect_id": effect_id, **(arguments or {"month": "2015-01"})}
    answer = client.call_until_handle(tool, arguments)
    check(answer.handle, f"{what}: the corrected call is taken", repr(answer))
    equal(answer.result["_meta"][rig.EFFECT_META]["replayed"], False, f"{what}: as the first")
    equal(client.wait(answer.task_id).result["status"], "completed", f"{what}: it completes")
    if tool == "deliver":
        equal(stack.effects_by_id().get(effect_id), 1, f"{what}: one effect")
    counts["refused"] += 1


def b034_overloaded():
    """More calls of one principal at once than are taken: 429 to the rest, nothing of them stored,
    and each of those keys works when the crowd has gone. The store's answers are held back, so
    that they do come together."""
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    ids = [rig.new_id("b034-full") for _ in range(ACCEPTS_MAX + 20)]
    backends = [row[0] for row in stack.query(
        "SELECT pid FROM pg_stat_activity WHERE usename = 'holdfast_api'")]
    crowd = [socket.create_connection(("127.0.0.1", client.port), timeout=30) for _ in ids]
    calls = [client.call_bytes("deliver", {"effect_id": effect_id, "n": 1}) for effect_id in ids]
    for backend in backends:
        os.kill(backend, signal.SIGSTOP)
    began = time.monotonic()
    try:
        for connection, call in zip(crowd, calls):
            connection.sendall(call)
        answered = select.poll()
        for connection in crowd:
            answered.register(connection, select.POLLIN)
        until(lambda: len(answered.poll(0)) >= 20, 10,
              "B034 overloaded: some are refused at once", 0.1)
    finally:
        for backend in backends:
            os.kill(backend, signal.SIGCONT)
    answers = [rig.parse_raw(receive(connection)) for connection in crowd]
    late = time.monotonic() - began > GIVE_UP_S  # a slow machine: the store did not answer in time
    refused = 0
    for effect_id, answer in zip(ids, answers):
        if late and answer.status == 503:
            answer = client.call_until_handle("deliver", {"effect_id": effect_id, "n": 1})
        if answer.status == 429:
            check(answer.headers.get("retry-after"), "B034 overloaded: Retry-After", repr(answer))
            equal((answer.data or {}).get("executed"), "no", "B034 overloaded: executed no")
            corrected(effect_id, "B034 overloaded", arguments={"n": 1})
            refused += 1
        else:
            check(answer.handle, "B034 overloaded: the others are taken", repr(answer))
    check(refused >= 20, "B034 overloaded: 429", refused)


def receive(connection):
    got = b""
    with connection:
        while not rig.complete(got):
            part = connection.recv(65536)
            if not part:
                break
            got += part
    return got


def b034_database_down():
    effect_id = rig.new_id("b034-down")
    stack.cluster.stop()
    answer = until(lambda: refusal(effect_id), 20, "B034 no database: refused", 0.1)
    if answer:
        shown = answer.data or answer.structured
        check(answer.headers.get("retry-after"), "B034 no database: Retry-After", repr(answer))
        equal(shown.get("executed"), "no", "B034 no database: executed no")
    stack.cluster.start()
    client.close()
    until(lambda: stack.ready(stack.apis[0]), 30, "B034 the API is ready again")
    corrected(effect_id, "B034 no database")


def refusal(effect_id):
    try:
        answer = client.call("deliver", {"effect_id": effect_id, "month": "2015-01"})
        check(not answer.handle, "B034 no database: no handle", repr(answer))
        return answer if answer.status in (429, 503) else None
    except (OSError, http.client.HTTPException):
        return None


def b034_a_failure_after_the_start_is_stored():
    for name, plan in (("isError", {"P1": [{"error": "no"}]}), ("exit 3", {"P2": [{"exit": 3}]}),
                       ("dies", {"P1": [{"signal": 9}]})):
        effect_id = rig.new_id("b034-stored")
        arguments = {"effect_id": effect_id, "plan": json.dumps(plan)}
        task = client.call("probe", arguments).task_id
        first = client.wait(task)
        starts = len(stack.run_log(effect_id, "start"))
        for _ in range(3):
            equal(client.call("probe", arguments).task_id, task, f"B034 {name}: the same task")
        again = client.get(task)
        equal((again.result.get("result"), again.result.get("error")),
              (first.result.get("result"), first.result.get("error")), f"B034 {name}: the same end")
        time.sleep(0.2)
        equal(len(stack.run_log(effect_id, "start")), starts, f"B034 {name}: no second run")


def one_effect_each(ids):
    until(lambda: not stack.query("SELECT 1 FROM holdfast.work w JOIN holdfast.task t USING (task) "
                                  "WHERE t.effect_id = ANY(%s)", (ids,)), 60, "B031 all have ended")
    effects = stack.effects_by_id()
    equal([effects.get(effect_id) for effect_id in ids], [1] * len(ids), "B031 one effect each")


rig.run(b031_another_spelling_of_the_same_call_is_no_conflict,
        b031_another_value_is_always_a_conflict,
        b031_member_order_and_white_space_make_no_conflict, b031_a_member_twice_is_refused,
        b032_a_key_is_its_owners_and_its_tools_alone, b032_without_authentication,
        b033_another_payload_is_a_conflict_in_every_state,
        b033_of_many_payloads_at_once_one_wins, b034_what_was_refused_left_the_key_free,
        b034_overloaded, b034_a_failure_after_the_start_is_stored, b034_database_down)
one_effect_each(all_ids)
rig.finish("cases_keys", counts, {"same": 150, "differ": 200, "orders": 24, "scopes": 12,
                                  "conflicts": 90, "refused": 41})
