#!/usr/bin/python3
"""For clients that re-send without a key (R1.9), off by default and per tool: equal calls within the
intent window are one; the member of _meta that a tool names is a key where no other came."""

import time
import uuid

import rig
from rig import check, equal, in_parallel, until

WINDOW_MS = 1_500
FALLBACK = "claudecode/toolUseId"
TRIES_MAX = 10  # for what has to be within a window; who stands still meanwhile tries again
counts = {"merged": 0, "apart": 0, "races": 0, "edges": 0, "fallbacks": 0}

OPTIONAL = {"effect_id": "optional", "inputSchema": {
    "type": "object", "properties": {"effect_id": {"type": "string"}, "n": {"type": "number"},
                                     "opt": {"type": "string"}}}}
stack = rig.Stack(apis=2, workers=1, tools=[
    rig.http_tool("windowed", members={"intent_window_ms": WINDOW_MS}),
    rig.http_tool("windowed_too", members={"intent_window_ms": WINDOW_MS}),
    rig.http_tool("free", members={**OPTIONAL}),
    rig.http_tool("hosted", members={"effect_id_fallback": FALLBACK}),
    rig.http_tool("both", members={"effect_id_fallback": FALLBACK, "intent_window_ms": 60_000}),
    rig.http_tool("strict")], settings={"api": {"log_level": "info"}})
clients = [stack.client(), stack.client(api=1)]
client = clients[0]


def effect_of(answer, what="a handle"):
    check(answer.status == 200 and answer.handle, what, repr(answer))
    return ((answer.result or {}).get("_meta") or {}).get(rig.EFFECT_META) or {}


def n():
    return uuid.uuid4().int % 10**9


def equal_calls():
    """A number, the first call with it, two that spell it in their own way, and a plain one."""
    for _ in range(TRIES_MAX):
        number, began = n(), time.monotonic()
        first = effect_of(client.call("windowed", {"n": number}))
        again = [effect_of(stack.client(api=api).call("windowed", {"n": spelled}))
                 for spelled, api in ((number, 1), (float(number), 0))]
        plain = client.call("windowed", {"n": number}, declare=False)
        if time.monotonic() - began < WINDOW_MS / 1000:
            break
    return number, first, again, plain


def merges():
    number, first, repeats, plain = equal_calls()
    equal(first["replayed"], False, "the first is no repeat")
    for again in repeats:
        equal((again["taskId"], again["effectId"], again["replayed"]),
              (first["taskId"], first["effectId"], True), "an equal call joins the first")
        counts["merged"] += 1
    equal(plain.result["_meta"][rig.EFFECT_META]["taskId"], first["taskId"], "a plain one, too")
    by_name = effect_of(client.call("windowed", {"n": number, "effect_id": first["effectId"]}))
    equal(by_name["taskId"], first["taskId"], "its effect ID is one like any other")
    counts["merged"] += 2

    for what, answer in (
            ("other arguments", client.call("windowed", {"n": number + 1})),
            ("one more member", client.call("windowed", {"n": number, "opt": "x"})),
            ("another tool", client.call("windowed_too", {"n": number})),
            ("another owner", stack.client("rig-bob").call("windowed", {"n": number})),
            ("a sibling in the tenant", stack.client("rig-anna").call("windowed", {"n": number})),
            ("an effect ID", client.call("windowed", {"n": number, "effect_id": f"own-{number}"}))):
        apart = effect_of(answer, what)
        check(apart["taskId"] != first["taskId"], f"{what}: another task", apart)
        equal(apart["replayed"], False, f"{what}: no repeat")
        counts["apart"] += 1


def off_by_default():
    refused = client.call("strict", {"n": 1})
    equal(refused.structured.get("type"), "effect_id_required", "no window: an ID is needed")
    number = n()
    two = [effect_of(client.call("free", {"n": number}))["taskId"] for _ in range(2)]
    check(two[0] != two[1], "no window: equal calls are two")
    refused = client.call("strict", {"n": 1}, extra_meta={FALLBACK: "toolu_1"})
    equal(refused.structured.get("type"), "effect_id_required", "no fallback: an ID is needed")


def at_its_end():
    """A window has no buckets: what counts is the time since its first call, and repeats do not make
    it longer. So a call before the end joins, wherever the clock stands, and one behind it is new,
    with a window of its own."""
    for lead in (0, 0.4, 0.9):
        time.sleep(lead)
        number = n()
        sent = time.monotonic()
        first = effect_of(client.call("windowed", {"n": number}))
        begun = time.monotonic()  # the window began between these two
        tasks = []
        while len({task for _, _, task in tasks}) < 2 and time.monotonic() - begun < 60:
            before = time.monotonic()
            task = effect_of(clients[len(tasks) % 2].call("windowed", {"n": number}))["taskId"]
            tasks.append((before - begun, time.monotonic() - sent, task))
            time.sleep(0.02)
        for earliest, latest, task in tasks:
            if latest < WINDOW_MS / 1000:
                equal(task, first["taskId"], f"{latest:.3f} s after the first: joins")
            if earliest > WINDOW_MS / 1000:
                check(task != first["taskId"], f"{earliest:.3f} s after the first: new", task)
        equal(len({task for _, _, task in tasks}), 2, "one window, and the next one")
        counts["edges"] += 1


def races():
    """Many at once, when no window is open and when one has just ended, on two processes."""
    for _ in range(10):
        for _ in range(TRIES_MAX):
            number = n()
            races_of_it = [race(number) for _ in range(2)]
            if all(took < WINDOW_MS / 1000 for _, took in races_of_it):
                break
        for what, (tasks, _) in zip(("none open", "just ended"), races_of_it):
            equal(len(set(tasks)), 1, f"{what}: one task")
            counts["races"] += 1
    client.wait(tasks[0])


def race(number):
    """Its tasks, and how long it took; the window has ended then."""
    began = time.monotonic()
    tasks = in_parallel(lambda api: effect_of(stack.client(api=api).call(
        "windowed", {"n": number}))["taskId"], [0, 1] * 6)
    took = time.monotonic() - began
    stack.query("UPDATE holdfast.intent_window SET opened = opened - interval '1 minute'")
    return tasks, took


def effects():
    """What came of it downstream, by its own ledger."""
    until(lambda: stack.query("SELECT count(*) FROM holdfast.work")[0][0] == 0, 30, "all done")
    tasks = stack.query("SELECT count(*) FROM holdfast.task")[0][0]
    equal(len(stack.ledger("/ledger")), tasks, "one effect for each task")
    equal(len({line["key"] for line in stack.ledger("/ledger")}), tasks, "each under its own key")


def fallback():
    use = f"toolu_{uuid.uuid4().hex}"
    first = effect_of(client.call("hosted", {"n": 1}, extra_meta={FALLBACK: use}))
    equal(first["effectId"], use, "the fallback is the effect ID")
    again = effect_of(clients[1].call("hosted", {"n": 1}, extra_meta={FALLBACK: use}))
    equal((again["taskId"], again["replayed"]), (first["taskId"], True), "sent again: the same")
    conflict = client.call("hosted", {"n": 2}, extra_meta={FALLBACK: use})
    equal((conflict.code, conflict.data["executed"]), (1409, "no"), "other arguments: a conflict")
    other = effect_of(stack.client("rig-bob").call("hosted", {"n": 1}, extra_meta={FALLBACK: use}))
    check(other["taskId"] != first["taskId"], "scoped to the caller")
    own = effect_of(client.call("hosted", {"n": 1, "effect_id": f"own-{use}"},
                                extra_meta={FALLBACK: use}))
    equal(own["effectId"], f"own-{use}", "a real carrier comes first, and is no contradiction")
    for bad in ("a b", "", 7, "x" * 256):
        answer = client.call("hosted", {"n": 1}, extra_meta={FALLBACK: bad})
        equal((answer.code, (answer.data or {}).get("type"), (answer.data or {}).get("executed")),
              (-32602, "effect_id_invalid", "no"), f"fallback {bad!r}: refused")
    none = client.call("hosted", {"n": 1})
    equal(none.structured.get("type"), "effect_id_required", "neither: refused")
    number = n()
    a, b = (effect_of(client.call("both", {"n": number}, extra_meta={FALLBACK: use + x}))
            for x in "ab")
    check(a["taskId"] != b["taskId"], "two fallbacks: two calls, window or not")
    c, d = (effect_of(client.call("both", {"n": number})) for _ in range(2))
    equal(c["taskId"], d["taskId"], "without any: the window")
    counts["fallbacks"] += 12


def published():
    tools = {tool["name"]: tool for tool in client.request("tools/list", {}).result["tools"]}
    equal(tools["both"]["_meta"]["dev.holdfast/effects"]["fallback"], FALLBACK, "told: fallback")
    equal(tools["windowed"]["_meta"]["dev.holdfast/effects"]["intentWindowMs"], WINDOW_MS,
          "told: window")
    check("without effect_id" in tools["windowed"]["description"], "told to models",
          tools["windowed"]["description"])
    check("without effect_id" not in tools["strict"]["description"], "others say nothing of it")


def swept():
    with stack.cluster.connect(autocommit=False) as owner:  # maintenance sees none of it meanwhile
        owner.execute("UPDATE holdfast.intent_window SET opened = opened - interval '25 hours'")
        owner.execute("SET ROLE holdfast_owner")
        equal(owner.execute("SELECT holdfast.sweep_windows(5)").fetchone()[0], 5, "in batches")
        while owner.execute("SELECT holdfast.sweep_windows(200)").fetchone()[0]:
            pass
    equal(stack.query("SELECT count(*) FROM holdfast.intent_window"), [(0,)], "nothing is left")


rig.run(merges, off_by_default, at_its_end, races, fallback, published, effects, swept)
rig.finish("intent_window", counts, {"merged": 4, "apart": 6, "races": 20, "edges": 3,
                                     "fallbacks": 12})
