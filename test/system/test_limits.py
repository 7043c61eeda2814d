#!/usr/bin/python3
"""Limits of tools with real processes, as the tool itself sees them: each start and end of a program is
noted with the kernel's clock and the worker's pid, and a program that lives is looked for in /proc. How
many run at once, in all and of a tenant, while workers are killed; what the dead give back; who waits
behind whom; refused calls; and `holdfast task why`."""

import json
import time

import rig
from rig import check, equal, until

counts = {"tasks": 0, "kills": 0, "looks": 0, "most_at_once": 0, "refused": 0, "whys": 0}
RUNNING, PER_TENANT = 4, 2
BACKLOG = 6
KILLS = 6
LEASE_MS = 4_000  # long, so that one that stalls is not taken over while its programs live
STORM_TASKS = 10  # of each of two tenants, whenever there are no more than may run
PHASE = {"P1": {"attempts": 5}}


def tool(name, **limits):
    return rig.probe_tool(name, PHASE, limits=limits, crash_limit=100)


stack = rig.Stack(workers=3, tools=[
    tool("narrow", running=RUNNING, running_per_tenant=PER_TENANT),
    tool("single", running=1), tool("queue", running=1, backlog=BACKLOG), tool("open"), tool("other")],
    settings={"worker": {"beat_ms": 100, "lease_ms": LEASE_MS, "slots": 6, "poll_ms": 200},
              "api": {"beat_ms": 200},
              "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 100,
                           "metrics_listen": f"127.0.0.1:{(port := rig.free_port())}"}})
alice, bob = stack.client(), stack.client("rig-bob")


def fresh(name):
    counts["tasks"] += 1
    return rig.new_id(name)


def call(client, name, *actions, effect_id=None):
    """Accepted: (effect ID, task)."""
    effect_id = effect_id or fresh(name)
    answer = client.call_until_handle(name, {"effect_id": effect_id, "plan": json.dumps({"P1": actions})})
    return effect_id, answer.task_id


def why(task, *words):
    done = stack.command("task", "why", task, check_code=None)
    counts["whys"] += 1
    return check(all(word in done.stdout for word in words), f"why says {words}",
                 done.stdout + done.stderr)


def running(tool_name):
    """What the store says is claimed, by tenant."""
    return dict(stack.query(
        "SELECT p.tenant, count(*) FROM holdfast.work w JOIN holdfast.tool t ON t.tool = w.queue"
        " JOIN holdfast.principal p ON p.owner = w.owner WHERE t.name = %s AND"
        " w.incarnation IS NOT NULL GROUP BY p.tenant", (tool_name,)))


def at_gates(ids, gate="in"):
    """Of these, those whose program stands at the gate, by the run log."""
    seen = {line["effect_id"] for line in stack.run_log(what="gate") if line["gate"] == gate}
    return [effect_id for effect_id in ids if effect_id in seen]


def wait_all(client, tasks, seconds=120):
    for task in tasks:
        equal(client.wait(task, seconds).result["status"], "completed", "it completes")


def metric(name, label):
    return rig.metric_of(port, name).get(f'tool="{label}"')


# --- never more at once --------------------------------------------------------------------------

def as_many_as_may_run_do_and_no_more():
    ids = {client: [call(client, "narrow", {"gate": "in"}) for _ in range(5)] for client in (alice, bob)}
    of = {client: [effect_id for effect_id, _ in ids[client]] for client in ids}
    until(lambda: len(at_gates(of[alice] + of[bob])) == RUNNING, 30, "as many as may run stand at the gate")
    time.sleep(1)
    equal([len(at_gates(of[client])) for client in (alice, bob)], [PER_TENANT, PER_TENANT],
          "two of each tenant, and no more")
    until(lambda: metric("tool_running", "narrow") == RUNNING, 20, "the gauge says so", 0.2)
    equal([metric(name, "narrow") for name in ("tool_running_limit", "tool_tenant_running",
                                               "tool_tenant_running_limit")],
          [RUNNING, PER_TENANT, PER_TENANT], "use and bounds in /metrics")
    waits = next(task for effect_id, task in reversed(ids[alice]) if not at_gates([effect_id]))
    until(lambda: stack.query("SELECT due = 'infinity' FROM holdfast.work WHERE task = %s",
                              (rig.task_bytes(waits),)) == [(True,)], 20, "it is set aside")
    why(waits, "limit reached: running 2 of 2", "narrow", "tenant A")
    told = alice.get(waits).result
    check(told["status"] == "working" and "turn" in told["statusMessage"], "its client is told", told)
    stack.command("task", "show", waits)
    # The next of a tenant comes in only behind one of its own.
    stack.open_gate(at_gates(of[bob])[0], "in")
    until(lambda: len(at_gates(of[bob])) == PER_TENANT + 1, 20, "bob's next one")
    time.sleep(0.5)
    equal(len(at_gates(of[alice])), PER_TENANT, "and none of alice's")
    for effect_id in of[alice] + of[bob]:
        stack.open_gate(effect_id, "in")
    for client, pairs in ids.items():
        wait_all(client, [task for _, task in pairs])


def alive(log):
    """Starts whose program has neither said its end nor died."""
    ended = {(line["effect_id"], line["pid"]) for line in log if line["what"] == "end"}
    return [line for line in log if line["what"] == "start"
            and (line["effect_id"], line["pid"]) not in ended and not rig.process_gone(line["pid"])]


def never_more_while_workers_are_killed():
    """Calls keep coming until the kills have fallen, so that their number is no matter of how fast the
    machine is: each falls on a worker while as many as may run do."""
    began = len(stack.run_log())
    mine = {}  # effect ID -> (its client, its task)

    def more():
        for client in (alice, bob):
            for _ in range(STORM_TASKS):
                effect_id, task = call(client, "narrow", {"sleep_ms": 400})
                mine[effect_id] = client, task

    def look():
        """How many lived at once, now."""
        by_store = running("narrow")
        check(sum(by_store.values()) <= RUNNING and max(by_store.values(), default=0) <= PER_TENANT,
              "never more are claimed", by_store)
        lives = [line for line in alive(stack.run_log()[began:]) if line["effect_id"] in mine]
        of = [sum(mine[line["effect_id"]][0] is client for line in lives) for client in (alice, bob)]
        counts["looks"] += 1
        counts["most_at_once"] = max(counts["most_at_once"], sum(of))
        check(sum(of) <= RUNNING and max(of) <= PER_TENANT, "never more of them live", of)
        return sum(of)

    def left():
        return stack.query("SELECT count(*) FROM holdfast.work")[0][0]

    for kill in range(KILLS):
        end = time.monotonic() + 60
        while look() < RUNNING and time.monotonic() < end:
            if left() <= RUNNING:
                more()
            time.sleep(0.03)
        worker = stack.workers[kill % len(stack.workers)]
        worker.kill()
        counts["kills"] += 1
        worker.start()
        after = time.monotonic() + 1.5
        while time.monotonic() < after:
            look()
            time.sleep(0.03)
    end = time.monotonic() + 120
    while left() and time.monotonic() < end:
        look()
        time.sleep(0.03)
    for client, task in mine.values():
        equal(client.wait(task).result["status"], "completed", "it completes")
    until(lambda: not stack.query("SELECT 1 FROM holdfast.limit_use"), 20, "nothing leaks")


def a_dead_workers_share_comes_back():
    held, task = call(alice, "single", {"gate": "in"})
    pid = stack.at_gate(held, "in")["pid"]
    next_id, next_task = call(bob, "single", {"gate": "in"})
    time.sleep(0.7)
    equal(at_gates([next_id]), [], "one at a time")
    why(next_task, "limit reached: running 1 of 1", "tool single")
    for worker in stack.workers:
        worker.kill()
    counts["kills"] += len(stack.workers)
    until(lambda: rig.process_gone(pid), 20, "its program dies with its worker")
    for worker in stack.workers:
        worker.start()
    began = time.monotonic()
    stack.at_gate(next_id, "in")
    counts["share_back_s"] = round(time.monotonic() - began, 1)
    equal(running("single"), {"B": 1}, "the dead one's task is behind it now")
    stack.open_gate(next_id, "in")
    stack.open_gate(held, "in")
    wait_all(bob, [next_task])
    wait_all(alice, [task])


# --- who waits behind whom -----------------------------------------------------------------------

def a_flood_of_a_tenant_holds_up_nobody_else():
    flood = [call(alice, "narrow", {"sleep_ms": 2_000}) for _ in range(24)]
    waits = []
    for _ in range(4):
        began = time.monotonic()
        _, task = call(bob, "narrow", {"sleep_ms": 1})
        wait_all(bob, [task])
        waits.append(time.monotonic() - began)
    left = sum(alice.get(task).result["status"] == "working" for _, task in flood)
    counts["tenant_waits_s"] = [round(wait, 2) for wait in waits]
    check(left > 0, "while the flood waits", left)
    stack.command("cancel", "--tool", "narrow", "--state", "ready", "--yes", "--by", "ann", "--why", "test")
    for _, task in flood:
        alice.wait(task)


def a_flood_of_a_tool_holds_up_no_other():
    """One slot in all, and a flood in front: a single call of another tool is the next or the one
    after, since what gave last stands last."""
    for worker in stack.workers:
        worker.terminate()
    stack.settings["worker"]["slots"] = 1
    stack.workers = [stack.start_worker("worker-slot")]
    flood = [call(alice, "open", {"sleep_ms": 150}) for _ in range(40)]
    until(lambda: stack.run_log(flood[0][0], "start"), 30, "the flood has begun")
    for _ in range(3):
        ids = call(bob, "other", {"sleep_ms": 1})
        before = [line["effect_id"] for line in stack.run_log(what="start")]
        wait_all(bob, [ids[1]])
        since = [line["effect_id"] for line in stack.run_log(what="start")[len(before):]]
        behind = 0 if ids[0] in before else since.index(ids[0])
        counts["overtaken"] = max(counts.get("overtaken", 0), behind)
        check(behind <= 3, "few of the flood come before it", behind)
    check(any(alice.get(task).result["status"] == "working" for _, task in flood), "while the flood waits")
    stack.command("cancel", "--tool", "open", "--state", "ready", "--yes", "--by", "ann", "--why", "test")
    for _, task in flood:
        alice.wait(task)
    stack.workers[0].terminate()
    stack.settings["worker"]["slots"] = 6
    stack.workers = [stack.start_worker(f"worker-{n}") for n in (1, 2, 3)]


# --- backlogs ------------------------------------------------------------------------------------

def a_full_backlog_refuses_before_anything_is_stored():
    held, running_task = call(alice, "queue", {"gate": "in"})
    stack.at_gate(held, "in")
    waiting = [call(alice, "queue", {"sleep_ms": 1}) for _ in range(BACKLOG)]
    for declare in (True, False):
        effect_id = fresh("refused")
        arguments = {"effect_id": effect_id, "plan": "{}"}
        for headers in ({}, {"Idempotency-Key": effect_id}):
            answer = bob.call("queue", arguments, declare=declare, headers=headers)
            counts["refused"] += 1
            equal((answer.status, answer.code, answer.data),
                  (429, -32603, {"type": "backlog_full", "executed": "no"}),
                  f"refused, {'a task' if declare else 'a plain'} call")
            check(int(answer.headers["Retry-After"]) > 0, "and told when to come again")
        equal(stack.task_rows(effect_id), [], "nothing was stored")
    equal(stack.query("SELECT count(*) FROM holdfast.effect e JOIN holdfast.tool t USING (tool)"
                      " WHERE t.name = 'queue'"), [(BACKLOG + 1,)], "no effect either")
    again = alice.call("queue", {"effect_id": held, "plan": json.dumps({"P1": [{"gate": "in"}]})})
    equal(again.task_id, running_task, "a repeat is answered")
    equal(alice.call("open", {"effect_id": fresh("open"), "plan": "{}"}).handle, True, "others go on")
    until(lambda: metric("tool_backlog", "queue") == BACKLOG, 20, "the gauge says so", 0.2)
    equal(metric("tool_backlog_limit", "queue"), BACKLOG, "and its bound")
    stack.open_gate(held, "in")
    answer = until(lambda: (got := bob.call("queue", arguments)).handle and got, 30, "and then there is room")
    wait_all(bob, [answer.task_id])
    wait_all(alice, [running_task, *(task for _, task in waiting)])


# --- by a new version ----------------------------------------------------------------------------

def a_new_version_changes_the_limits():
    pairs = [call(alice, "single", {"gate": "in"}) for _ in range(6)]
    ids = [effect_id for effect_id, _ in pairs]
    until(lambda: len(at_gates(ids)) == 1, 30, "one")
    for limits, wanted in (({"running": 3}, 3), ({}, 6)):
        stack.command("tools", "apply", tool("single", **limits))
        until(lambda wanted=wanted: len(at_gates(ids)) == wanted, 30, f"{wanted} with {limits}")
        time.sleep(0.5)
        equal(len(at_gates(ids)), wanted, f"and no more with {limits}")
    for effect_id in ids:
        stack.open_gate(effect_id, "in")
    wait_all(alice, [task for _, task in pairs])


rig.run(as_many_as_may_run_do_and_no_more, never_more_while_workers_are_killed,
        a_dead_workers_share_comes_back, a_flood_of_a_tenant_holds_up_nobody_else,
        a_flood_of_a_tool_holds_up_no_other, a_full_backlog_refuses_before_anything_is_stored,
        a_new_version_changes_the_limits)

check(counts["most_at_once"] <= RUNNING, "never more than may run", counts)
rig.finish("limits", counts, {"most_at_once": RUNNING, "kills": KILLS + 3, "looks": 25, "refused": 4, "whys": 2})
