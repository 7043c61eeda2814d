#!/usr/bin/python3
"""What a running task asks of its caller (T4 to T6, rule 8): wait phases with input and
programs that ask, answered, declined, left alone, answered early, twice, in part, badly and by a
stranger, with workers and API processes killed at each step. A task that waits holds no slot."""

import json
import pathlib
import re
import socket
import time

import rig
from rig import check, equal, until

counts = {"asked": 0, "answered": 0, "kills": 0, "polls_compared": 0}

FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
ANY = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
NAME = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}},
        "required": ["name"]}


def form(message, schema=None):
    return {"method": "elicitation/create",
            "params": {"mode": "form", "message": message, "requestedSchema": schema or FORM}}


def accept(**content):
    return {"action": "accept", "content": content}


YES, NO = accept(ok=True), {"action": "decline"}
RETRIES = {"attempts": 3, "timeout_ms": 20_000, "backoff_first_ms": 50, "backoff_max_ms": 200}
PROGRAM = {"kind": "program", "command": ["./probe"], **RETRIES,
           "env": ["RIG_RUN_LOG", "RIG_FOLDER", "HOLDFAST_DOWNSTREAM_URL"]}
POST = {"name": "post", "kind": "http", **RETRIES, "effect": "keyed",
        "key_header": "Idempotency-Key", "key_ttl_ms": 86_400_000,
        "request": {"method": "POST", "url": "{/conf/ledger}/ledger",
                    "json": {"effect_id": {"$from": "/task/effect_id"}}}}
SILENCE_MS = 4_000  # of questions that nobody answers: they must be seen before it is over
PLAIN = """#!/bin/sh
holdfast step first -- sh -c 'echo one >> "$RIG_FOLDER/plain-steps"; echo one' >/dev/null
first=$(holdfast ask who '{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":
  {"type":"object","properties":{"name":{"type":"string"}}}}}') || exit $?
late=$(holdfast ask late '{"method":"elicitation/create","params":{"message":"Late?","requestedSchema":
  {"type":"object","properties":{}}}}' --timeout-ms 4000) || exit $?
printf '{"who": %s, "late": %s}' "$first" "$late"
"""


TOOLS_MD = pathlib.Path(__file__).parents[2] / "deploy" / "TOOLS.md"
AGREED = re.search("```python\n(#!/usr/bin/env python3\n.*?)```", TOOLS_MD.read_text(), re.S)[1]


def wait(requests, **more):
    return {"name": "ask", "kind": "wait", "input": {"requests": requests, **more}}


def tool(name, phases, programs=None, **members):
    return rig.make_tool(
        name, phases, {"plan": rig.TEXT, "file": rig.TEXT},
        programs={**rig.test_program("probe"), **(programs or {})}, **{
            "result": {"text": "done", "structured": {"$from": f"/state/{phases[0]['name']}"}},
            **members})


def tools():
    return [
        tool("confirm", [wait({"sure": form("Delete {/args/file}?")}), POST]),
        tool("agree", [wait({"sure": form("Send?", ANY)}, otherwise="fail"),
                       {"name": "agreed", "kind": "program", "mode": "plain", "command": ["./agreed.py"],
                        "effect": "pure"}, POST], {"agreed.py": AGREED}),
        tool("two", [wait({"name": form("Who?", NAME), "sure": form("Sure?")})]),
        tool("short", [wait({"sure": form("Sure?")}, timeout_ms=SILENCE_MS)]),
        tool("easy", [wait({"sure": form("Sure?"), "more": form("More?")}, timeout_ms=SILENCE_MS,
                           otherwise="continue"), POST]),
        tool("later", [{"name": "first", **PROGRAM, "effect": "pure"}, wait({"sure": form("Sure?")})],
             result={"text": "done", "structured": {"$from": "/state/ask"}}),
        tool("asker", [{"name": "work", **PROGRAM, "effect": "pure"}]),
        tool("unsafe", [{"name": "work", **PROGRAM}]),
        tool("model", [wait({"text": {"method": "sampling/createMessage", "params": {
            "messages": [], "maxTokens": 10}}}, otherwise="continue")]),
        tool("script", [{"name": "work", "kind": "program", "mode": "plain", "command": ["./ask.sh"],
                         "effect": "pure", **RETRIES, "env": ["RIG_FOLDER"]}],
             {"ask.sh": PLAIN}),
        tool("waits", [wait({"sure": form("Sure?")})], answer_window_ms=4000, park_ttl_ms=60_000),
    ]


def meta(**capabilities):
    whole = rig.meta()
    whole[rig.META + "clientCapabilities"] |= capabilities
    return whole


def start(tool_name, client=None, capabilities=None, **arguments):
    """Calls under a fresh effect ID; the task's ID."""
    arguments.setdefault("effect_id", rig.new_id(tool_name))
    answer = (client or alice).call(tool_name, arguments, _meta=meta(
        **({"elicitation": {}} if capabilities is None else capabilities)))
    counts["asked"] += 1
    if not answer.task_id:
        raise RuntimeError(f"no handle: {answer!r}")
    return answer.task_id


def asked(task, keys, client=None, seconds=20):
    """Waits until the task asks exactly these; its requests."""
    def look():
        got = (client or alice).get(task).result or {}
        return got if got.get("status") == "input_required" and \
            sorted(got.get("inputRequests", {})) == sorted(keys) else None
    got = until(look, seconds, f"{task} asks {keys}")
    return got["inputRequests"] if got else {}


def answer(task, answers, client=None):
    got = (client or alice).update(task, answers)
    counts["answered"] += 1
    check(got.status == 200 and (got.result or {}).get("resultType") == "complete",
          "an update is acked", got)
    check(not {"taskId", "status", "inputRequests"} & set(got.result or {}), "the ack is bare",
          got.result)


def outcome(task, client=None, seconds=30):
    return (client or alice).wait(task, seconds).result


def structured(task):
    got = outcome(task)
    return (got.get("result") or {}).get("structuredContent"), got.get("statusMessage")


def rows(task):
    return stack.query("SELECT key, how, phase FROM holdfast.inbox WHERE task = %s ORDER BY key",
                       (rig.task_bytes(task),))


def state_of(task):
    got = stack.query("SELECT state, token IS NULL, attempt FROM holdfast.work WHERE task = %s",
                      (rig.task_bytes(task),))
    return got[0] if got else None


def plan(*actions):
    return json.dumps({"work": list(actions), "first": list(actions)})


# --- one question ---------------------------------------------------------------------------------

def accepted_and_declined():
    task = start("confirm", file="a.txt")
    requests = asked(task, ["sure"])
    equal(requests.get("sure"), form("Delete a.txt?"), "the request is the tool's, rendered")
    got = alice.get(task).result
    check("Delete a.txt?" in got["statusMessage"], "the status says what is asked",
          got["statusMessage"])
    check("result" not in got and "requestState" not in got, "no result and no requestState", got)
    equal(state_of(task)[:2], ("waiting", True), "nobody runs a task that waits")
    answer(task, {"sure": YES})
    equal(structured(task)[0], {"sure": YES}, "the answer is the state of the phase")
    equal(len(stack.ledger("/ledger")), 1, "what follows happens once")
    for action in ("decline", "cancel"):
        task = start("confirm", file="b.txt")
        asked(task, ["sure"])
        answer(task, {"sure": {"action": action}})
        equal(structured(task)[0], {"sure": {"action": action}}, f"{action} is an answer")


def the_approval_of_the_manual_stops_at_a_no():
    before = len(stack.ledger("/ledger"))
    for reply in (NO, {"action": "cancel"}, accept(ok=False), accept()):
        task = start("agree")
        asked(task, ["sure"])
        answer(task, {"sure": reply})
        result = outcome(task)["result"]
        check(result["isError"] and "not agreed to, so nothing was sent" in result["content"][0]["text"],
              f"{reply} stops it", result)
    equal(len(stack.ledger("/ledger")), before, "and nothing was sent")
    task = start("agree")
    asked(task, ["sure"])
    answer(task, {"sure": YES})
    equal(outcome(task)["result"]["isError"], False, "a yes does not")
    equal(len(stack.ledger("/ledger")), before + 1, "it was sent")


def the_first_answer_wins():
    task = start("confirm", file="c.txt")
    asked(task, ["sure"])
    clients = [stack.client(api=n % 2) for n in range(6)]
    answers = [accept(ok=n % 2 == 0) if n else NO for n in range(6)]
    rig.in_parallel(lambda n: answer(task, {"sure": answers[n]}, clients[n]), range(6))
    won = structured(task)[0]["sure"]
    check(won in answers, "one of them is the answer", won)
    answer(task, {"sure": {"action": "cancel"}})
    equal(structured(task)[0], {"sure": won}, "a later one changes nothing, and is acked")
    equal(len(stack.query("SELECT 1 FROM holdfast.inbox WHERE task = %s",
                          (rig.task_bytes(task),))), 1, "one row a key")


def parts_and_strangers():
    task = start("two")
    asked(task, ["name", "sure"])
    answer(task, {"nothing": YES, "name.7": YES})
    asked(task, ["name", "sure"])
    answer(task, {"name": accept(name="Ann"), "other": YES})
    left = asked(task, ["sure"])
    equal(left.get("sure"), form("Sure?"), "what is left stands as it was")
    answer(task, {"name": accept(name="Bob"), "sure": YES})
    equal(structured(task)[0], {"name": accept(name="Ann"), "sure": YES}, "parts add up")

    task = start("two")
    asked(task, ["name", "sure"])
    bob = stack.client("rig-bob")
    for made in (bob.update(task, {"sure": YES}), bob.update("tsk_" + "A" * 32, {}),
                 alice.update("nonsense", {})):
        equal((made.status, made.code), (200, -32602), "foreign, unknown and ill-formed are one")
    equal(bob.get(task).code, -32602, "a stranger sees no question")
    asked(task, ["name", "sure"])
    wrong = alice.request("tasks/update", {"taskId": task, "inputResponses": ["sure"]}, task)
    equal((wrong.status, wrong.code), (200, -32602), "inputResponses must be an object")
    wrong = alice.request("tasks/update", {"taskId": task}, task)
    equal(wrong.code, -32602, "and be there")
    wrong = alice.request("tasks/update", {"taskId": task, "inputResponses": {}}, task,
                          declare=False)
    equal((wrong.status, wrong.code), (400, -32021), "only who declares Tasks answers")
    wrong = alice.request("tasks/update", {"taskId": task, "inputResponses": {}}, "tsk_other")
    equal((wrong.status, wrong.code), (400, -32020), "Mcp-Name is the task's")
    wrong = alice.update(task, {"sure": accept(ok="x" * 300_000)})
    equal(wrong.code, -32602, "an answer has a bound")
    for odd in ('{"\\ud800": 1}', '{"sure": {"action": "\\ud800"}}', '{"a": 1, "a": 2}', '{"a\\u0000": 1}',
                '{"sure": {"action": "\\u0000"}}', '{"\\ud83d\\ude00": {}}'):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/update", "params": {
            "taskId": task, "inputResponses": "ODD", "_meta": rig.meta()}}).replace('"ODD"', odd)
        got = alice.post(body.encode(), alice.headers("tasks/update", task))
        check(got.code in (-32602, -32700, -32600, None) and got.status in (200, 400),
              f"odd answers are refused or passed by: {odd}", got)
    alice.cancel(task)
    equal(outcome(task)["status"], "cancelled", "a task that waits can be cancelled")
    answer(task, {"sure": YES})
    equal(outcome(task)["status"], "cancelled", "an update of a task that is over is acked")


def misfits_are_asked_again():
    task = start("two")
    asked(task, ["name", "sure"])
    answer(task, {"name": accept(name=""), "sure": accept(ok="yes")})
    again = asked(task, ["name.2", "sure.2"])
    equal(again.get("sure.2"), form("Sure?"), "the same is asked again")
    answer(task, {"name.2": 7, "sure.2": NO, "sure": YES})
    asked(task, ["name.3"])
    answer(task, {"name.3": accept(name="Ann")})
    equal(structured(task)[0], {"name": accept(name="Ann"), "sure": NO}, "until they fit")

    task = start("confirm", file="d")
    for n in range(1, 9):
        key = "sure" if n == 1 else f"sure.{n}"
        asked(task, [key])
        answer(task, {key: accept(ok=n)})
    got = outcome(task)
    equal(got["status"], "failed", "and not for ever")
    check("8 times" in got["error"]["message"], "which it says", got["error"])


def early_answers_are_kept():
    effect_id = rig.new_id("later")
    task = start("later", effect_id=effect_id, plan=plan({"gate": "go"}))
    stack.at_gate(effect_id, "go")
    answer(task, {"sure": YES, "unknown": YES})
    equal(rows(task), [("sure", "answer", None)], "a declared key is kept before it is asked")
    answer(task, {"sure": NO})
    stack.open_gate(effect_id, "go")
    equal(structured(task)[0], {"sure": YES}, "the first one counts")

    effect_id = rig.new_id("later")
    task = start("later", effect_id=effect_id, plan=plan({"gate": "go"}))
    stack.at_gate(effect_id, "go")
    answer(task, {"sure": accept(ok="maybe")})
    stack.open_gate(effect_id, "go")
    asked(task, ["sure.2"])
    answer(task, {"sure.2": YES})
    equal(structured(task)[0], {"sure": YES}, "one that does not fit is asked for")


def time_outs():
    task = start("short")
    asked(task, ["sure"])
    got = outcome(task)
    equal((got["status"], got["error"]["data"]["executed"]), ("failed", "no"), "silence fails")
    check("no answer" in got["error"]["message"], "which it says", got["error"])
    answer(task, {"sure": YES})

    before = len(stack.ledger("/ledger"))
    task = start("easy")
    asked(task, ["sure", "more"])
    answer(task, {"more": NO})
    equal(structured(task)[0], {"sure": None, "more": NO}, "or is null, where the tool goes on")
    equal(len(stack.ledger("/ledger")), before + 1, "and what follows happens")
    equal([row[:2] for row in rows(task)], [("more", "answer"), ("sure", "silence")],
          "the store tells them apart")


def capabilities():
    task = start("confirm", capabilities={}, file="e")
    got = outcome(task)
    equal(got["status"], "failed", "who cannot be asked")
    check('"elicitation"' in got["error"]["message"], "is told what to declare", got["error"])
    task = start("model")
    equal(structured(task)[0], {"text": None}, "null, where the tool goes on")
    task = start("model", capabilities={"sampling": {}})
    asked(task, ["text"])
    answer(task, {"text": {"role": "assistant", "model": "m",
                           "content": {"type": "text", "text": "hi"}}})
    equal(structured(task)[0]["text"]["content"]["text"], "hi", "sampling")
    task = start("confirm", capabilities={"elicitation": {"url": {}}}, file="e")
    equal(outcome(task)["status"], "failed", "URLs alone are no forms")


def polls_are_stable():
    tasks = [start("two"), start("confirm", file='"ü\n\u2028 \\ {}')]
    for task, keys in zip(tasks, (["name", "sure"], ["sure"])):
        asked(task, keys)
        seen = set()
        for n in range(20):
            body = (alice, other)[n % 2].get(task).body
            seen.add(body[body.index(b'"inputRequests"'):body.index(b',"_meta"')])
            counts["polls_compared"] += 1
        equal(len(seen), 1, "requests are the same bytes in each poll of each API")
        alice.cancel(task)


# --- programs -------------------------------------------------------------------------------------

def programs_ask():
    effect_id = rig.new_id("asker")
    task = start("asker", effect_id=effect_id, plan=plan(
        {"checkpoint": ["half", 1]}, {"ask": ["who", form("Who?", NAME), None]},
        {"ask": ["sure", form("Sure?"), None]}, {"ask": ["who", form("ignored"), None]},
        {"ask": ["silent", form("Anybody?"), 300]}))
    equal(asked(task, ["who"]).get("who"), form("Who?", NAME), "a program's request")
    pid = stack.run_log(effect_id, "start")[-1]["pid"]
    check(rig.process_gone(pid), "its process is gone", pid)
    equal(state_of(task), ("waiting", True, 0), "nobody runs it, and no attempt is spent")
    answer(task, {"who": accept(name="Ann")})
    asked(task, ["sure"])
    answer(task, {"sure": NO})
    got = structured(task)[0]
    equal((got["who"], got["sure"], got["silent"]), (accept(name="Ann"), NO, None),
          "a program that asks twice, and once in vain")
    equal(got["attempt"], 1, "no attempt was spent")
    equal(len(stack.run_log(effect_id, "start")), 4, "it starts anew for each")
    equal(len(stack.run_log(effect_id, "checkpoint")), 4, "and finds its checkpoints")

    effect_id = rig.new_id("unsafe")
    task = start("unsafe", effect_id=effect_id, plan=plan(
        {"ask": ["sure", form("Sure?"), None]}, {"post": True}))
    asked(task, ["sure"])
    equal(stack.query("SELECT count(*) FROM holdfast.intent WHERE task = %s",
                      (rig.task_bytes(task),))[0][0], 0, "an unsafe program that asks sent nothing")
    answer(task, {"sure": YES})
    equal(outcome(task)["status"], "completed", "and sends when it was answered")
    equal(stack.effects_by_id()[effect_id], 1, "once")

    for wrong, says in (({"method": "tools/list"}, "method"), (form("Sure?") | {"more": 1}, "more")):
        task = start("asker", plan=plan({"ask": ["sure", wrong, None]}))
        got = outcome(task)
        check(got["status"] == "failed" and says in got["error"]["message"],
              "a bad request ends the phase", got)
    task = start("asker", plan=plan({"ask": ["sure.2", form("Sure?"), None]}))
    check("key" in outcome(task)["error"]["message"], "a bad key ends it too")


def plain_programs_ask():
    task = start("script")
    asked(task, ["who"])
    answer(task, {"who": accept(name="Ann")})
    asked(task, ["late"])
    equal(structured(task)[0], {"who": accept(name="Ann"), "late": None}, "plain mode asks")
    equal((stack.folder / "plain-steps").read_text(), "one\n", "its steps stand")
    text = stack.command("task", "show", task).stdout
    for word in ("asks who", "is told who", "gets no answer late", "Who?"):
        check(word in text, f"task show says {word!r}", text)


# --- slots, plain clients, kills ------------------------------------------------------------------

def the_slot_is_free():
    """One worker with one slot: three tasks wait, a fourth runs."""
    tasks = [start("confirm", file=f"{n}") for n in range(3)]
    for task in tasks:
        asked(task, ["sure"])
    task = start("asker", plan=plan({"progress": [0.5, "half"]}))
    equal(outcome(task)["status"], "completed", "another task runs meanwhile")
    for task in tasks:
        equal(state_of(task)[0], "waiting", "while they wait")
        answer(task, {"sure": YES})
        equal(outcome(task)["status"], "completed", "each goes on")


def plain_clients_wait():
    effect_id = rig.new_id("waits")
    plain = stack.client()
    arguments = {"effect_id": effect_id}
    capable = meta(elicitation={})
    del capable[rig.META + "clientCapabilities"]["extensions"]
    got = plain.call("waits", arguments, _meta=capable, headers={"Accept": "application/json"})
    equal(got.structured.get("type"), "still_running", "a plain call is told")
    text = got.result["content"][0]["text"] if got.result else got.body.decode()
    check("input" in text and "Sure?" in text, "that input is awaited", text)
    equal(got.structured.get("status"), "input_required", "in data too")
    task = got.structured["task_id"]
    status = plain.call("task_status", {"task_id": task}, declare=False)
    text = status.result["content"][0]["text"]
    check("input" in text and "Sure?" in text, "task_status says so", text)
    # Hung up: parked; answered meanwhile; taken up again.
    sock = socket.create_connection(("127.0.0.1", stack.apis[0].port))
    sock.sendall(plain.call_bytes("waits", arguments, _meta=capable))
    until(lambda: stack.query("SELECT 1 FROM holdfast.work WHERE task = %s AND attached IS NOT NULL",
                              (rig.task_bytes(task),)), 10, "attached")
    rig.reset_close(sock)
    until(lambda: state_of(task)[0] == "parked", 10, "a waiting task is parked")
    answer(task, {"sure": YES})
    equal(state_of(task)[0], "parked", "an answer is kept for it")
    equal(start("waits", effect_id=effect_id), task, "the same task")
    equal(structured(task)[0], {"sure": YES}, "taken up, it finds the answer")

    # Taken up before anybody has answered, it asks the same again.
    effect_id = rig.new_id("waits")
    got = plain.call("waits", {"effect_id": effect_id}, _meta=capable,
                     headers={"Accept": "application/json"})
    task = got.structured["task_id"]
    stack.query("UPDATE holdfast.work SET state = 'parked', due = now() + interval '1 hour'"
                " WHERE task = %s", (rig.task_bytes(task),))
    equal(start("waits", effect_id=effect_id), task, "taken up")
    asked(task, ["sure"])
    answer(task, {"sure": NO})
    equal(structured(task)[0], {"sure": NO}, "and answered")


def kills():
    """kill -9 of the worker or an API at each step of the way; one answer, one effect."""
    before = len(stack.ledger("/ledger"))
    for step in range(8):
        task = start("confirm", file=f"kill {step}")
        if step in (0, 1):
            stack.workers[0].kill()
            stack.workers[0].start()
            counts["kills"] += 1
        asked(task, ["sure"])
        victim = {2: stack.workers, 3: stack.apis, 6: stack.workers}.get(step)
        if victim:
            victim[0].kill()
            counts["kills"] += 1
            if step == 6:
                equal(asked(task, ["sure"], other).get("sure"), form(f"Delete kill {step}?"),
                      "it asks with no worker at all")
            victim[0].start()
        client = other if step == 3 else alice
        answer(task, {"sure": YES}, client)
        if step in (4, 5):
            (stack.workers if step == 4 else stack.apis)[0].kill()
            counts["kills"] += 1
            (stack.workers if step == 4 else stack.apis)[0].start()
        equal(outcome(task, other, 60)["status"], "completed", f"kill at step {step}")
        until(lambda: stack.ready(stack.apis[0]), 20, "the API is back")
        alice.close()
    equal(len(stack.ledger("/ledger")), before + 8, "eight effects of eight tasks")
    # A program, killed with its worker right before it asks, and right after.
    effect_id = rig.new_id("asker")
    task = start("asker", effect_id=effect_id,
                 plan=plan({"gate": "ask"}, {"ask": ["sure", form("Sure?"), None]},
                           {"gate": "end"}))
    stack.at_gate(effect_id, "ask")
    stack.workers[0].kill()
    stack.open_gate(effect_id, "ask")
    stack.workers[0].start()
    asked(task, ["sure"])
    answer(task, {"sure": YES})
    stack.at_gate(effect_id, "end")
    stack.workers[0].kill()
    stack.workers[0].start()
    stack.open_gate(effect_id, "end")
    equal(structured(task)[0]["sure"], YES, "the answer outlives the program that read it")
    equal(len(rows(task)), 1, "it was asked once")
    counts["kills"] += 2


def first_line_with(output, text):
    """All up to that line, or to the end."""
    said = ""
    while text not in said and (line := output.readline()):
        said += line
    return said


def the_command_line_asks():
    effect_id = rig.new_id("confirm")
    answer_task = start("confirm", effect_id=effect_id, file="cli")
    asked(answer_task, ["sure"])
    import subprocess
    run = subprocess.Popen([str(rig.HOLDFAST), "call", "confirm", "--arg", "file=cli", "--effect-id",
                            effect_id, "--wait"], env=stack.env(HOLDFAST_URL=stack.url(),
                                                                HOLDFAST_TOKEN="rig-alice"),
                           text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = first_line_with(run.stdout, "Delete cli?")
    answer(answer_task, {"sure": YES})
    said += run.stdout.read()
    equal(run.wait(30), 0, "holdfast call --wait")
    check("sure" in said and "Delete cli?" in said, "prints the question", said)
    equal(said.count("Delete cli?") <= 2, True, "and not in each poll")


# Long enough for a worker that only stalls: starts of programs are counted.
LEASE_MS = 3_000
stack = rig.Stack(apis=2, workers=1, tools=tools(),
                  settings={"worker": {"slots": 1, "beat_ms": 100, "lease_ms": LEASE_MS},
                            "api": {"beat_ms": 100},
                            "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}})
alice, other = stack.client(), stack.client(api=1)
rig.run(accepted_and_declined, the_approval_of_the_manual_stops_at_a_no, the_first_answer_wins,
        parts_and_strangers, misfits_are_asked_again, early_answers_are_kept, time_outs, capabilities, polls_are_stable, programs_ask,
        plain_programs_ask, the_slot_is_free, plain_clients_wait, kills, the_command_line_asks)
for task in stack.query("SELECT count(*) FROM holdfast.event WHERE kind = 'overlooked'"):
    equal(task[0], 0, "nothing had to be woken by the backstop")
for process in stack.apis + stack.workers + stack.maintains:
    check(process.alive(), f"{process.name} lives to the end")
rig.finish("input", counts, {"asked": 30, "answered": 40, "kills": 8, "polls_compared": 40})
