#!/usr/bin/python3
"""What may have happened (R2.5, V7): unsafe effects with an intent, undo steps after
a cancel, and effects that are accepted first and seen later. Counted in the downstream's ledger."""

import json
import signal
import time

import rig
from rig import check, equal, until

counts = {"unsafe": 0, "unknown": 0, "undone": 0, "unverified": 0, "kills": 0}

RETRIES = {"attempts": 8, "timeout_ms": 10_000, "backoff_first_ms": 50, "backoff_max_ms": 300}
HTTP = {"kind": "http", **RETRIES}
KEYED = {**HTTP, "effect": "keyed", "key_header": "Idempotency-Key", "key_ttl_ms": 86_400_000}
REF = {"$from": "/task/effect_id"}


def send(ref=None):
    return {"method": "POST", "url": "{/conf/mail}/send", "json": {"ref": ref or REF, "link": REF}}


def post(what):
    return {"method": "POST", "url": "{/conf/ledger}/ledger", "json": {"effect_id": REF, "what": what}}


def verify(within_ms, **more):
    return {"request": {"method": "GET", "url": "{/conf/mail}/messages?ref={/task/effect_id}"
                                                "&id={/state/order/id}"},
            "done_when": "/items/0/id", "within_ms": within_ms, "every_ms": 100, **more}


def tool(name, phases, files=None, **members):
    return rig.make_tool(name, phases, {"plan": rig.TEXT}, files, rig.test_program("probe"), **members)


def program(name, **more):
    return {"name": name, "kind": "program", "command": ["./probe"], **RETRIES,
            "env": ["RIG_RUN_LOG", "RIG_FOLDER", "HOLDFAST_DOWNSTREAM_URL"], **more}


HASTY_MS = 5_000
SQL = {"schema.sql": "CREATE TABLE IF NOT EXISTS booking (effect_id text PRIMARY KEY);",
       "book.sql": "INSERT INTO booking VALUES ($1::json ->> 'effect_id') RETURNING '{}'",
       "unbook.sql": "WITH gone AS (DELETE FROM booking WHERE effect_id = $1::json ->> 'effect_id' "
                     "RETURNING 1) SELECT json_build_object('n', count(*))::text FROM gone"}

TOOLS = [
    tool("pay", [{"name": "pay", **HTTP, "attempts": 1000, "effect": "unsafe", "request": send()}]),
    tool("marked", [{"name": "pay", **HTTP, "effect": "unsafe", "request": send({"$from": "/key"})}]),
    # Without a class a program is unsafe.
    tool("charge", [program("charge")]),
    tool("hasty", [program("charge")], deadline_ms=HASTY_MS),
    tool("trip", [
        {"name": "book", "kind": "sql", "file": "book.sql",
         "undo": {"kind": "sql", "file": "unbook.sql"}},
        {"name": "hotel", **KEYED, "request": post("hotel"),
         "undo": {**KEYED, "request": post("no hotel")}},
        {"name": "flight", **KEYED, "request": post("flight"),
         "undo": {**KEYED, "attempts": 3, "request": {
             "method": "POST", "url": "{/conf/ledger}/ledger",
             "json": {"effect_id": REF, "what": "no flight", "was": {"$from": "/state/flight/key"}}}}},
        program("pack", effect="pure")], SQL),
    tool("rash", [{"name": "only", **KEYED, "request": post("only"),
                   "undo": {**HTTP, "request": send()}},
                  program("pack", effect="pure")]),
    tool("late", [{"name": "only", **KEYED, "request": post("only"),
                   "undo": {**KEYED, "request": post("no only")}}]),
    tool("order", [{"name": "order", **HTTP, "effect": "unsafe", "request": send(),
                    "verify": verify(60_000), "undo": {**KEYED, "request": post("no order")}},
                   {"name": "post", **KEYED, "request": post("after")}]),
    tool("strict", [{"name": "order", **HTTP, "effect": "unsafe", "request": send(),
                     "verify": verify(600)}]),
    tool("easy", [{"name": "order", **HTTP, "effect": "unsafe", "request": send(),
                   "verify": verify(600, otherwise="continue")}]),
]

# Where a worker that only stalls must not lose its lease: what it had sent would be unknown.
LEASE_MS = 3_000
stack = rig.Stack(workers=1, tools=TOOLS,
                  settings={"worker": {"beat_ms": 100, "lease_ms": LEASE_MS,
                                       "cancel_grace_ms": 1500},
                            "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}})
client = stack.client()
calm = {"mode": "honour", "lose_answers": 0, "script": [], "delay_before_ms": 0,
        "delay_after_ms": 0, "visible_after_ms": 0}
by = ("--by", "ann", "--why", "looked for it downstream")


def begin(name, plan=None):
    effect_id = rig.new_id(name)
    arguments = {"effect_id": effect_id}
    if plan is not None:
        arguments["plan"] = json.dumps(plan)
    return effect_id, client.call(name, arguments).task_id


def sent(effect_id):
    """Messages with that reference, as the mailbox counts them."""
    return sum(line["key"] == effect_id for line in stack.ledger("/send"))


def posted(effect_id):
    """What was posted for it, each effect once, in order; and the keys."""
    keys = {line["key"] for line in stack.ledger("/ledger")}
    done = {}
    for line in stack.requests("/ledger"):
        body = json.loads(line.get("body") or "{}")
        if body.get("effect_id") == effect_id and line["key"] in keys:
            done.setdefault(line["key"], body["what"])
    return list(done.values()), list(done)


def arrived():
    """Requests that downstream has begun with; its files know them only once they are answered."""
    return json.loads(stack.http("GET", "/_control")[1])["requests"]


def intents(task):
    return stack.query("SELECT count(*) FROM holdfast.intent WHERE task = %s",
                       (rig.task_bytes(task),))[0][0]


def becomes(task, wanted, what):
    until(lambda: stack.state(task) == wanted, 30, f"{what}: {wanted}, is {stack.state(task)}")


def is_unknown(task, what):
    becomes(task, "unknown", what)
    counts["unknown"] += 1
    told = client.get(task).result
    equal(told["status"], "working", f"{what}: working to its client, never failed (V7)")
    return told.get("statusMessage", "")


def settle(task, verdict, *more):
    equal(stack.command("settle", task, verdict, *by, *more).returncode, 0, f"settle {verdict}")


def shown(task):
    return stack.command("task", "show", task).stdout


def kill_worker():
    stack.workers[0].kill()
    counts["kills"] += 1
    stack.workers[0].start()


# --- unsafe ---------------------------------------------------------------------------------------

def unsafe_is_sent_once():
    effect_id, task = begin("pay")
    equal(client.wait(task).result["status"], "completed", "an unsafe phase completes")
    equal((sent(effect_id), intents(task)), (1, 1), "one effect, and the intent that came before it")
    check("intent" in shown(task), "task show names the intent", shown(task))
    counts["unsafe"] += 1


def not_sent_is_tried_again():
    stack.downstream.kill()
    effect_id, task = begin("pay")
    until(lambda: "retry" in shown(task), 20, "an attempt that could not connect")
    equal(intents(task), 0, "what never left leaves no intent")
    stack.downstream.start()
    equal(client.wait(task).result["status"], "completed", "and the next attempt sends it")
    equal(sent(effect_id), 1, "once")
    counts["unsafe"] += 1


def lost_answer_is_unknown():
    for verdict in ("done", "absent", "fail"):
        stack.steer(**calm | {"lose_answers": 1})
        effect_id, task = begin("pay")
        message = is_unknown(task, f"answer lost, {verdict}")
        check("pay" in message, "it names the phase", message)
        check("it bears no key: look for its effect ID" in message, "and what to look for", message)
        equal((sent(effect_id), intents(task)), (1, 1), "the intent stands")
        time.sleep(1.5)
        equal((stack.state(task), sent(effect_id)), ("unknown", 1), "and nothing is sent again by itself")
        if verdict == "absent":
            early = stack.command("settle", task, "absent", *by, check_code=None)
            equal(early.returncode, 0, "without visible_within_ms absent is never too early")
        else:
            settle(task, verdict)
        ended = client.wait(task).result
        equal(ended["status"], "failed" if verdict == "fail" else "completed", f"settled as {verdict}")
        # Absent was a lie: a person said so, and it is sent anew.
        equal(sent(effect_id), 2 if verdict == "absent" else 1, f"effects after {verdict}")
        check("settled" in shown(task) and "ann" in shown(task), "task show names who", shown(task))
        equal(shown(task).count(" intent"), sent(effect_id), "and tells when each was sent")
        counts["unsafe"] += 1


def unknown_names_the_key_that_it_bears():
    stack.steer(**calm | {"lose_answers": 1})
    _, task = begin("marked")
    message = is_unknown(task, "answer lost, its body bears the key")
    key = message.partition("its key is ")[2].split()[0:1]
    check(key and sent(key[0]) == 1, "the message names the key that downstream has", message)
    settle(task, "done")
    counts["unsafe"] += 1


def killed_in_flight_is_unknown():
    for _ in range(5):
        stack.steer(**calm | {"delay_before_ms": 700})
        before = arrived()
        effect_id, task = begin("pay")
        until(lambda: arrived() > before, 20, "its request is on the wire", 0.005)
        equal(intents(task), 1, "its intent stands by then")
        kill_worker()
        is_unknown(task, "worker killed in flight")
        equal(sent(effect_id), 1, "the request had left, and no second one did")
        counts["unsafe"] += 1
    stack.steer(**calm)


def broken_off_and_paused_says_when_it_can_be_settled():
    stack.steer(**calm | {"delay_before_ms": 700})
    before = arrived()
    _, task = begin("pay")
    until(lambda: arrived() > before, 20, "its request is on the wire", 0.005)
    stack.command("pause", "--tool", "pay", *by)
    kill_worker()
    becomes(task, "ready", "given back, and paused")
    check("its request may have left" in shown(task), "and task show does not say that it goes on", shown(task))
    want = ("pay was broken off", "becomes unknown", "not before `holdfast resume --tool pay`")
    for words in (("task", "why", task), ("settle", task, "done", *by)):
        done = stack.command(*words, check_code=None)
        said = done.stdout + done.stderr
        check(all(word in said for word in want), f"{words[0]} says so", said)
    stack.steer(**calm)
    stack.command("resume", "--tool", "pay", *by)
    is_unknown(task, "resumed")
    settle(task, "done")
    counts["unsafe"] += 1


def cancel_waits_for_its_answer():
    stack.steer(**calm | {"delay_after_ms": 500})
    effect_id, task = begin("pay")
    until(lambda: sent(effect_id), 20, "sent")
    client.cancel(task)
    equal(client.wait(task).result["status"], "completed", "completed anyway")
    stack.steer(**calm | {"delay_after_ms": 5000})
    effect_id, task = begin("pay")
    until(lambda: sent(effect_id), 20, "sent")
    client.cancel(task)
    message = is_unknown(task, "cancelled, and no answer within the grace")
    check("pay" in message, "it says what may have happened", message)
    stack.steer(**calm)
    settle(task, "done")
    equal(client.wait(task).result["status"], "completed", "it was the last phase: completed anyway")
    counts["unsafe"] += 2


def unsafe_program():
    crash, again, slow = ([{"signal": signal.SIGKILL}], [{"exit": 75, "starts": [1, 2]}],
                          [{"gate": "in"}])
    effect_id, task = begin("charge", {"charge": crash})
    is_unknown(task, "an unsafe program that was killed")
    equal(len(stack.run_log(effect_id, "start")), 1, "is not started again")
    effect_id, task = begin("charge", {"charge": again})
    equal(client.wait(task).result["status"], "completed", "one that asks for a retry gets it")
    equal(len(stack.run_log(effect_id, "start")), 3, "as often as it asks")
    effect_id, task = begin("charge", {"charge": slow})
    stack.at_gate(effect_id, "in")
    kill_worker()
    is_unknown(task, "an unsafe program whose worker was killed")
    key = stack.run_log(effect_id, "start")[0]["key"]
    check(key in shown(task), "task show has the key to look for", shown(task))
    check(key in stack.command("task", "why", task, check_code=None).stdout, "and task why", key)
    check(key in client.get(task).result["statusMessage"], "and its client is told", key)
    equal(len(stack.run_log(effect_id, "start")), 1, "is not started again")
    counts["unsafe"] += 3


def a_deadline_does_not_deny_what_a_dead_worker_left():
    effect_id, task = begin("hasty", {"charge": [{"gate": "in"}]})
    accepted = time.monotonic()
    stack.at_gate(effect_id, "in")
    stack.workers[0].kill()
    counts["kills"] += 1
    time.sleep(max(accepted + HASTY_MS / 1000 + 1 - time.monotonic(), 0))
    stack.workers[0].start()
    is_unknown(task, "an unsafe program that no worker saw end before its deadline")
    equal(len(stack.run_log(effect_id, "start")), 1, "is not started again")
    counts["unsafe"] += 1


def a_pause_waits_for_an_unsafe_program():
    effect_id, task = begin("charge", {"charge": [{"gate": "in"}]})
    stack.at_gate(effect_id, "in")
    stack.command("pause", task, *by)
    time.sleep(3)  # twice what a cancel would wait
    equal(stack.state(task), "running", "a pause does not break off what has left")
    stack.open_gate(effect_id, "in")
    equal(client.wait(task).result["status"], "completed", "it is done when it says so")
    equal(len(stack.run_log(effect_id, "start")), 1, "once")
    counts["unsafe"] += 1


# --- undo -----------------------------------------------------------------------------------------

def gone_trip(plan=None, at="in"):
    """A trip that stands in its last phase."""
    effect_id, task = begin("trip", plan or {"pack": [{"gate": at}]})
    stack.at_gate(effect_id, at)
    return effect_id, task


def booked(effect_id):
    return stack.query("SELECT count(*) FROM holdfast_tool_trip.booking WHERE effect_id = %s",
                       (effect_id,))[0][0]


ALL_UNDONE = ["hotel", "flight", "no flight", "no hotel"]


def is_undone(effect_id, task, what):
    ended = client.wait(task).result
    equal(ended["status"], "cancelled", f"{what}: cancelled")
    message = ended.get("statusMessage", "")
    check("undone: flight, hotel, book" in message, f"{what}: says what was undone", message)
    effects, keys = posted(effect_id)
    equal(effects, ALL_UNDONE, f"{what}: each once, in reverse")
    equal((len(set(keys)), booked(effect_id)), (4, 0), f"{what}: under keys of their own")
    counts["undone"] += 1


def undo_in_reverse():
    effect_id, task = gone_trip()
    equal(booked(effect_id), 1, "booked before")
    client.cancel(task)
    is_undone(effect_id, task, "cancel in the last phase")
    check("undo:flight" in shown(task), "task show names the undo steps", shown(task))
    client.cancel(task)
    equal(client.get(task).result["status"], "cancelled", "a second cancel changes nothing")


def completed_is_not_undone():
    effect_id, task = begin("trip", {})
    equal(client.wait(task).result["status"], "completed", "a trip that nobody cancels")
    client.cancel(task)
    time.sleep(0.5)
    equal((posted(effect_id)[0], booked(effect_id)), (["hotel", "flight"], 1), "is not undone")


def undo_survives(what, fault):
    effect_id, task = gone_trip()
    fault(task)
    is_undone(effect_id, task, what)
    stack.steer(**calm)


def lost_answers(task):
    stack.steer(**calm | {"lose_answers": 2})
    client.cancel(task)


def killed(task):
    """Each kill falls in the midst of a request, of whoever has taken it over by then."""
    stack.steer(**calm | {"delay_after_ms": 400})
    client.cancel(task)
    for _ in range(4):
        held = claim_of(task)
        time.sleep(0.25)
        kill_worker()
        until(lambda held=held: claim_of(task) not in ([(None,)], held or None), 30,
              "it is taken over, or at its end")


def claim_of(task):
    return stack.query("SELECT token FROM holdfast.work WHERE task = %s", (rig.task_bytes(task),))


def cancelled_between_attempts():
    """Nobody runs it: a worker is needed for the undo all the same."""
    effect_id, task = begin("trip", {"pack": [{"exit": 75}]})
    until(lambda: stack.state(task) == "scheduled", 20, "between two attempts", 0.002)
    client.cancel(task)
    is_undone(effect_id, task, "cancel between attempts")


def undo_refused():
    effect_id, task = gone_trip()
    refusal = stack.folder / "refusal"
    refusal.write_bytes(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    stack.steer(**calm | {"script": [str(refusal)]})
    client.cancel(task)
    ended = client.wait(task).result
    stack.steer(**calm)
    equal(ended["status"], "failed", "an undo step that is refused: failed, not cancelled")
    check("undo:flight" in ended["error"]["message"], "it says which", ended)
    equal(ended["error"]["data"]["executed"], "yes", "and that effects stand")
    equal(posted(effect_id)[0], ["hotel", "flight"], "none was undone behind it")


def unsafe_undo():
    for verdict in (None, "done", "absent"):
        effect_id, task = begin("rash", {"pack": [{"gate": "in"}]})
        stack.at_gate(effect_id, "in")
        stack.steer(**calm | {"lose_answers": 1 if verdict else 0})
        client.cancel(task)
        if verdict:
            is_unknown(task, "an undo step without an answer")
            equal(intents(task), 1, "behind an intent of its own")
            settle(task, verdict)
        ended = client.wait(task).result
        equal((ended["status"], sent(effect_id)), ("cancelled", 2 if verdict == "absent" else 1),
              f"an unsafe undo step, {verdict}")
        check("undone: only" in ended.get("statusMessage", ""), "it says so", ended)
        counts["undone"] += 1


def last_phase_is_undone():
    stack.steer(**calm | {"delay_after_ms": 600})
    effect_id, task = begin("late")
    until(lambda: posted(effect_id)[0], 20, "the effect", 0.01)
    client.cancel(task)
    stack.steer(**calm)
    ended = client.wait(task).result
    equal((ended["status"], posted(effect_id)[0]), ("cancelled", ["only", "no only"]),
          "a last phase that was done while cancel was asked for is undone")
    counts["undone"] += 1


# --- accepted, seen later --------------------------------------------------------------------------

def seen_later():
    stack.steer(**calm | {"visible_after_ms": 4000})
    effect_id, task = begin("order")
    becomes(task, "unverified", "accepted, not seen")
    told = client.get(task).result
    equal((told["status"], posted(effect_id)[0]), ("working", []), "the task does not go on")
    check("not yet seen" in told.get("statusMessage", ""), "and says so", told)
    ended = client.wait(task).result
    equal((ended["status"], sent(effect_id), posted(effect_id)[0]), ("completed", 1, ["after"]),
          "once it is seen it does, and it was sent once")
    counts["unverified"] += 1


def unverified_survives_a_kill():
    for _ in range(3):
        stack.steer(**calm | {"visible_after_ms": 3000})
        effect_id, task = begin("order")
        becomes(task, "unverified", "accepted, not seen")
        kill_worker()
        equal(client.wait(task).result["status"], "completed", "after a kill")
        equal(sent(effect_id), 1, "what was accepted is not sent again")
        counts["unverified"] += 1


def never_seen():
    stack.steer(**calm | {"visible_after_ms": 600_000})
    effect_id, task = begin("strict")
    is_unknown(task, "never seen")
    equal(sent(effect_id), 1, "sent once")
    stack.steer(**calm)
    settle(task, "absent")
    equal((client.wait(task).result["status"], sent(effect_id)), ("completed", 2),
          "settled as absent it is sent anew, and seen")
    stack.steer(**calm | {"visible_after_ms": 600_000})
    effect_id, task = begin("easy")
    equal((client.wait(task).result["status"], sent(effect_id)), ("completed", 1),
          "it goes on where the tool says so")
    stack.steer(**calm)
    counts["unverified"] += 2


def cancelled_unverified():
    stack.steer(**calm | {"visible_after_ms": 600_000})
    effect_id, task = begin("order")
    becomes(task, "unverified", "accepted, not seen")
    client.cancel(task)
    ended = client.wait(task).result
    equal((ended["status"], sent(effect_id), posted(effect_id)[0]),
          ("cancelled", 1, ["no order"]), "what was accepted is undone, seen or not")
    check("done before: order; undone: order" in ended.get("statusMessage", ""), "and says so", ended)
    stack.steer(**calm)
    counts["unverified"] += 1
    counts["undone"] += 1


rig.run(unsafe_is_sent_once, not_sent_is_tried_again, lost_answer_is_unknown,
        unknown_names_the_key_that_it_bears, killed_in_flight_is_unknown,
        broken_off_and_paused_says_when_it_can_be_settled, cancel_waits_for_its_answer,
        unsafe_program, a_deadline_does_not_deny_what_a_dead_worker_left,
        a_pause_waits_for_an_unsafe_program, undo_in_reverse, completed_is_not_undone,
        (undo_survives, "answers of undo steps lost", lost_answers),
        (undo_survives, "workers killed while undoing", killed), cancelled_between_attempts,
        undo_refused, unsafe_undo, last_phase_is_undone, seen_later, unverified_survives_a_kill,
        never_seen, cancelled_unverified)
rig.finish("unsafe", counts, {"unsafe": 18, "unknown": 16, "undone": 9, "unverified": 7, "kills": 15})
