#!/usr/bin/python3
"""The effect ID on its way in: absent, mistyped, empty, too long, with NUL, look-alikes,
in each carrier, in two that agree and two that differ. What is refused stores nothing."""

import itertools
import uuid

import rig
from rig import check, equal

counts = {"refused": 0, "accepted": 0, "carriers": 0, "pairs": 0}
stack = rig.Stack(workers=1, tools=[rig.http_tool()])
stack.steer(mode="ignore")
client = stack.client()
# As they are named to clients.
CARRIERS = {"params.idempotencyKey": "params.idempotencyKey",
            "_meta": 'params._meta["dev.holdfast/effect-id"]', "argument": "arguments.effect_id",
            "header": "Idempotency-Key"}


def rows():
    return stack.query("SELECT (SELECT count(*) FROM holdfast.task), "
                       "(SELECT count(*) FROM holdfast.effect)")[0]


def send(carried, month="2015-01"):
    """`carried`: carrier -> value."""
    arguments = {"month": month}
    more, headers, extra = {}, {}, {}
    for carrier, value in carried.items():
        if carrier == "argument":
            arguments["effect_id"] = value
        elif carrier == "header":
            headers["Idempotency-Key"] = value
        elif carrier == "_meta":
            extra["dev.holdfast/effect-id"] = value
        else:
            more["idempotencyKey"] = value
    return client.call("deliver", arguments, headers=headers, extra_meta=extra, **more)


def refused(carried, wanted_type, what):
    before = rows()
    answer = send(carried)
    in_argument = not carried or set(carried) == {"argument"}
    types = (wanted_type,) if isinstance(wanted_type, str) else wanted_type
    if in_argument:
        shown = answer.structured
        equal(answer.status, 200, f"{what}: status")
        text = " ".join(block.get("text", "") for block in (answer.result or {}).get("content", []))
        check("effect_id" in text and "UUID" in text.upper(),
              f"{what}: the text says how to mint one", text)
    else:
        shown = answer.data if isinstance(answer.data, dict) else {}
        equal(answer.code, -32602, f"{what}: code")
    check(shown.get("type") in types, f"{what}: type", repr(answer))
    equal(shown.get("executed"), "no", f"{what}: executed")
    equal(rows(), before, f"{what}: nothing stored")
    counts["refused"] += 1


def accepted(carried, what, **more):
    answer = send(carried, **more)
    check(answer.handle, f"{what}: a handle", repr(answer))
    counts["accepted"] += 1
    return answer


def absent():
    refused({}, "effect_id_required", "absent everywhere")
    answer = client.request("tools/call", {"name": "deliver"}, "deliver")
    equal(answer.structured.get("type"), "effect_id_required", "without arguments at all")
    refused({"argument": None}, ("effect_id_required", "effect_id_invalid"), "argument null")


def ill_formed():
    bad = {"empty": "", "256 long": "x" * 256, "20,000 long": "x" * 20_000, "a space": "a b",
           "a space at the end": "ab ", "NUL": "a\0b", "NUL first": "\0", "a line break": "a\nb",
           "DEL": "a\x7f", "an accent": "caf\u00e9", "Cyrillic a": "p\u0430y-1",
           "a full-width letter": "\uff41bc", "a zero-width space": "ab\u200bc",
           "a no-break space": "a\u00a0b", "an emoji": "\U0001f600"}
    for name, value in bad.items():
        refused({"argument": value}, "effect_id_invalid", f"argument with {name}")
        refused({"params.idempotencyKey": value}, "effect_id_invalid", f"idempotencyKey with {name}")
        refused({"_meta": value}, "effect_id_invalid", f"_meta with {name}")
    for value in (5, 5.5, True, [], {}, ["x"]):
        refused({"argument": value}, "effect_id_invalid", f"argument {value!r}")
        refused({"params.idempotencyKey": value}, "effect_id_invalid", f"idempotencyKey {value!r}")
        refused({"_meta": value}, "effect_id_invalid", f"_meta {value!r}")
    for name in ("empty", "256 long", "a space"):
        refused({"header": bad[name]}, "effect_id_invalid", f"header with {name}")


def well_formed():
    every = "".join(chr(code) for code in range(0x21, 0x7F))
    for value in ("x", "x" * 255, every, "0", "-", '"', "\\u0000", "%00", "null", str(uuid.uuid4())):
        answer = accepted({"argument": value}, f"{value[:40]!r}")
        effect = answer.result["_meta"][rig.EFFECT_META]
        equal(effect["effectId"], value, "it comes back unchanged")
        equal(effect["taskId"], answer.task_id, "with the task's ID")
        equal(effect["replayed"], False, "a first call is not replayed")
        equal(send({"argument": value}).task_id, answer.task_id, f"{value[:40]!r} again")


def look_alikes():
    """Never trimmed, folded, cut or compared by value: each is an ID of its own."""
    alike = ["look-1", "look-l", "look-I", "LOOK-1", "Look-1", "look-1.", "look-01", "look_1",
             "look-1\\", "1", "1.0", "01", "1e0", "true", "x" * 254, "x" * 253 + "X"]
    tasks = {accepted({"argument": value}, f"look-alike {value[:20]}").task_id for value in alike}
    equal(len(tasks), len(alike), "look-alikes are tasks of their own")


def carriers():
    for carrier in CARRIERS:
        value = rig.new_id("carrier")
        answer = accepted({carrier: value}, f"carried by {carrier}")
        for other in CARRIERS:
            equal(send({other: value}).task_id, answer.task_id, f"{carrier}, then {other}")
            counts["carriers"] += 1
        end = client.wait(answer.task_id)
        equal((end.result or {}).get("status"), "completed", f"carried by {carrier}: completed")
    quoted = rig.new_id("quoted")
    first = accepted({"header": f'"{quoted}"'}, "a quoted header (RFC 8941)")
    equal(send({"argument": quoted}).task_id, first.task_id, "is the ID without its quotes")


def pairs():
    for one, other in itertools.combinations(CARRIERS, 2):
        value = rig.new_id("pair")
        accepted({one: value, other: value}, f"{one} and {other} agree")
        before = rows()
        answer = send({one: value + "-1", other: value + "-2"})
        equal(answer.code, -32602, f"{one} and {other} differ: code")
        data = answer.data if isinstance(answer.data, dict) else {}
        equal(data.get("type"), "effect_id_ambiguous", f"{one} and {other} differ: type")
        check(f"in {CARRIERS[one]} and in {CARRIERS[other]};" in answer.error["message"],
              f"{one} and {other} differ: both are named", answer)
        equal(rows(), before, f"{one} and {other} differ: nothing stored")
        counts["pairs"] += 1


def corrected():
    """A refusal is not stored: the corrected call with the same ID runs (R1.6)."""
    value = rig.new_id("corrected")
    for arguments in ({"effect_id": value, "month": 5}, {"effect_id": value, "other": 1}):
        answer = client.call("deliver", arguments)
        check((answer.result or {}).get("isError") is True, "bad arguments are an isError result",
              repr(answer))
        equal(answer.structured.get("executed"), "no", "which ran nothing")
    answer = accepted({"argument": value}, "the corrected call")
    equal(client.wait(answer.task_id).result["status"], "completed", "and it completes")


def spelling():
    """Arguments are compared by value: order, white space, escapes, number spelling (R1.5)."""
    value = rig.new_id("spelling")
    first = client.call("deliver", {"effect_id": value, "month": "2015-01", "n": 1})
    for text in ('{"n":1.0,"month":"2015-01","effect_id":"%s"}', '{"effect_id":"%s", "n": 1e0,\n'
                 ' "month":"\\u0032015-01"}', '{"month":"2015-01","effect_id":"%s","n":10E-1}'):
        answer = client.post(client.body("deliver", text % value),
                             client.headers("tools/call", "deliver"))
        equal(answer.task_id, first.task_id, f"the same arguments as {text}")


rig.run(absent, ill_formed, well_formed, look_alikes, carriers, pairs, corrected, spelling)
for (task,) in stack.query("SELECT encode(task, 'hex') FROM holdfast.work"):
    rig.until(lambda task=task: not stack.query(
        "SELECT 1 FROM holdfast.work WHERE encode(task, 'hex') = %s", (task,)), 20, f"{task} ends")
check(all(count == 1 for count in stack.effects_by_id().values()), "one effect per ID")
counts["effects"] = len(stack.effects_by_id())
equal(counts["effects"], rows()[0], "and one for each task")
rig.finish("effect_id", counts, {"refused": 60, "accepted": 35, "carriers": 16, "pairs": 6})
