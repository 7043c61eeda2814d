#!/usr/bin/python3
"""Experiment 6: the same key with other arguments, for another tenant or principal, on another
tool, after retention, and after the tombstone. The database's clock is moved by replacing its one
function, as everything that expires reads it; maintain runs all the while."""

import json

import rig
from rig import check, equal, until

DAY_MS = 86_400_000
counts = {"conflicts": 0, "own_tasks": 0, "foreign_looks": 0, "expired": 0, "new_after": 0}
stack = rig.Stack(workers=1, tools=[rig.http_tool(), rig.http_tool("other"), rig.probe_tool()],
                  settings={"maintain": {"maintain_ms": 100}})
client = stack.client()


def keys_of(effect_id):
    return [line["key"] for line in stack.requests("/ledger")
            if json.loads(line["body"])["effect_id"] == effect_id]


def conflict(call, what):
    """Once in the argument, once in params.idempotencyKey: each its own form of the answer."""
    before = stack.query("SELECT count(*) FROM holdfast.task")
    answer = call()
    shown = answer.structured
    equal((answer.status, shown.get("type"), shown.get("executed")),
          (200, "idempotency_key_conflict", "no"), f"{what}: as an isError result")
    check(answer.task_id is None, f"{what}: no handle")
    check("2015-09" not in answer.body.decode(), f"{what}: the first arguments are not told")
    equal(stack.query("SELECT count(*) FROM holdfast.task"), before, f"{what}: nothing stored")
    counts["conflicts"] += 1


def other_arguments():
    effect_id = rig.new_id("arguments")
    first = client.call("deliver", {"effect_id": effect_id, "month": "2015-09"})
    others = [{"month": "2015-10"}, {"month": "2015-09", "n": 1}, {}, {"month": "2015-09 "},
              {"n": 1}, {"month": ""}, {"month": "2015-09", "opt": ""}]
    for when in ("while it may run", "after the end"):
        for other in others:
            conflict(lambda other=other: client.call("deliver", {"effect_id": effect_id, **other}),
                     f"{other} {when}")
        client.wait(first.task_id)
    answer = client.call("deliver", {"month": "2015-10"}, idempotencyKey=effect_id)
    data = answer.data if isinstance(answer.data, dict) else {}
    equal((answer.status, answer.code, data.get("type"), data.get("executed")),
          (200, 1409, "idempotency_key_conflict", "no"), "in params.idempotencyKey: 1409")
    counts["conflicts"] += 1
    held = rig.new_id("held")
    open_one = client.call("probe", {"effect_id": held, "plan": '{"P1": [{"gate": "in"}]}'})
    stack.at_gate(held, "in")
    conflict(lambda: client.call("probe", {"effect_id": held, "plan": "{}"}), "while it runs")
    stack.open_gate(held, "in")
    equal(client.wait(open_one.task_id).result["status"], "completed", "the first goes on")
    many_at_once()
    equal(stack.effects_by_id()[effect_id], 1, "one effect")


def many_at_once():
    """20 callers, 20 payloads, one key: one wins."""
    effect_id = rig.new_id("many")

    def one(number):
        own = stack.client()
        answer = own.call("deliver", {"effect_id": effect_id, "n": number})
        own.close()
        return answer

    answers = rig.in_parallel(one, list(range(20)))
    won = [answer for answer in answers if answer.handle]
    lost = [answer for answer in answers
            if answer.structured.get("type") == "idempotency_key_conflict"]
    equal((len(won), len(lost)), (1, 19), "20 payloads at once")
    client.wait(won[0].task_id)
    equal(stack.effects_by_id()[effect_id], 1, "20 payloads at once: one effect")
    counts["conflicts"] += len(lost)


def other_owners():
    """Another tenant, another principal of the tenant: tasks of their own, and no look at ours."""
    effect_id = rig.new_id("owner")
    unknown = "tsk_" + "A" * 32
    tasks = {}
    for token in rig.TOKENS:
        answer = stack.client(token).call("deliver", {"effect_id": effect_id, "month": "2015-09"})
        check(answer.handle, f"{token}: a handle", repr(answer))
        equal(answer.result["_meta"][rig.EFFECT_META]["replayed"], False, f"{token}: is first")
        tasks[token] = answer.task_id
    equal(len(set(tasks.values())), len(tasks), "a task for each owner")
    counts["own_tasks"] += len(tasks)
    for token in tasks:
        own = stack.client(token)
        equal(own.wait(tasks[token]).result["status"], "completed", f"{token}: completed")
        for other in tasks:
            if other != token:
                foreign, absent = own.get(tasks[other]), own.get(unknown)
                equal((foreign.status, foreign.error), (absent.status, absent.error),
                      f"{token} looks at the task of {other}")
                counts["foreign_looks"] += 1
    equal(len(set(keys_of(effect_id))), len(tasks), "derived keys differ")
    equal(stack.effects_by_id()[effect_id], len(tasks), "an effect for each owner")
    # Other arguments under another owner's key are no conflict either.
    second = rig.new_id("owner")
    client.call("deliver", {"effect_id": second, "month": "2015-09"})
    answer = stack.client("rig-bob").call("deliver", {"effect_id": second, "month": "2015-10"})
    check(answer.handle, "bob, same key, other arguments: his own", repr(answer))


def other_tool():
    effect_id = rig.new_id("tool")
    tasks = {tool: client.call(tool, {"effect_id": effect_id}).task_id
             for tool in ("deliver", "other")}
    equal(len(set(tasks.values())), 2, "a task for each tool")
    for task in tasks.values():
        equal(client.wait(task).result["status"], "completed", "completed")
    equal(len(set(keys_of(effect_id))), 2, "derived keys differ by tool")
    equal(stack.effects_by_id()[effect_id], 2, "an effect for each tool")
    counts["own_tasks"] += 2


def move_clock(days):
    """All who look at a clock of their own are started anew, as after a long stop."""
    stack.query(f"""CREATE OR REPLACE FUNCTION holdfast.now_() RETURNS timestamptz
        LANGUAGE sql VOLATILE
        AS $$ SELECT clock_timestamp() + interval '{days} days' $$""")
    for process in stack.maintains:
        process.terminate()
        process.start()


def restart_all():
    for process in stack.apis + stack.workers:
        process.terminate()
        process.start()
    until(lambda: stack.ready(stack.apis[0]), 20, "API ready again")
    client.close()


def after_retention():
    effect_id, still_open = rig.new_id("retention"), rig.new_id("open")
    arguments = {"effect_id": effect_id, "month": "2015-09"}
    first, end = client.run("deliver", arguments)
    ttl = end.result["ttlMs"]
    check(7 * DAY_MS <= ttl < 7 * DAY_MS + 60_000, "ttlMs: to the end and 7 days on", ttl)
    open_task = client.call("probe", {"effect_id": still_open,
                                      "plan": '{"P1": [{"gate": "in"}]}'}).task_id
    stack.at_gate(still_open, "in")
    key = keys_of(effect_id)[0]

    move_clock(6.9)
    again = client.call("deliver", arguments)
    equal((again.task_id, again.result["status"]), (first.task_id, "completed"),
          "a moment before: the same handle")
    equal(rig.stored_part(client.get(first.task_id)), rig.stored_part(end), "and the same result")

    move_clock(7.1)
    expired(first.task_id, arguments, "unswept or not")
    until(lambda: not stack.task_rows(effect_id), 30, "maintain removes the task")
    expired(first.task_id, arguments, "swept")
    restart_all()
    expired(first.task_id, arguments, "after a restart of all")
    answer = client.get(open_task)
    check((answer.result or {}).get("status") in ("working", "failed"),
          "retention never ends an open task", repr(answer))
    equal(len(stack.task_rows(still_open)), 1, "its row stands")
    stack.open_gate(still_open, "in")

    move_clock(89)
    expired(first.task_id, arguments, "a day before the tombstone's end")
    equal(stack.effects_by_id()[effect_id], 1, "still one effect")
    move_clock(91)
    answer = until(lambda: handle_of(client.call_until_handle("deliver", arguments)), 30,
                   "after the tombstone: accepted as new", 0.2)
    if answer:
        check(answer.task_id != first.task_id, "with a new handle")
        equal(client.wait(answer.task_id).result["status"], "completed", "which completes")
        equal(set(keys_of(effect_id)), {key}, "asking downstream under the same key")
        equal(len(keys_of(effect_id)), 2, "twice in all")
        equal(stack.effects_by_id()[effect_id], 1, "so that it is still one effect there")
        equal(client.get(first.task_id).code, -32602, "the old handle stays gone")
        counts["new_after"] += 1


def handle_of(answer):
    return answer if answer.handle else None


def expired(task_id, arguments, what):
    """It ran, the result is gone: told as such, in both forms, and it never runs again."""
    answer = client.get(task_id)
    equal((answer.status, answer.code), (200, -32602), f"{what}: tasks/get")
    repeat = client.call_until_handle("deliver", arguments)
    shown = repeat.structured
    equal((repeat.status, shown.get("type"), shown.get("executed")), (200, "effect_expired", "yes"),
          f"{what}: the repeat")
    other = client.call("deliver", {"month": arguments["month"]},
                        idempotencyKey=arguments["effect_id"])
    data = other.data if isinstance(other.data, dict) else {}
    equal((other.status, other.code, data.get("type")), (200, 1410, "effect_expired"),
          f"{what}: the repeat by params.idempotencyKey")
    equal(len(keys_of(arguments["effect_id"])), 1, f"{what}: nothing was sent")
    counts["expired"] += 2


rig.run(other_arguments, other_owners, other_tool, after_retention)
rig.finish("experiment_6", counts, {"conflicts": 35, "own_tasks": 5, "foreign_looks": 6,
                                    "expired": 8, "new_after": 1})
