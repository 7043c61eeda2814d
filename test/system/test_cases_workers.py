#!/usr/bin/python3
"""Public failing cases B037 (work longer than its lease runs once), B038 (who is stale, worker or
sweeper, changes nothing) and B040 (who was killed is replaced within seconds, by default settings),
and their kinds."""

import json
import os
import random
import signal
import sys
import time

import rig
from patience import between
from rig import check, equal, until

# Longer than a machine mostly stands still: nothing runs twice for that. And over before a worker
# gives up the connection of its beats, and makes another (BEAT_ANSWER_MS).
LEASE_MS = 2500
LONG_MS = 3 * LEASE_MS
SQL_S = 3.0       # of an SQL phase that is under way when others come to theirs
NOTICED_S = 10.0  # by default settings, from the kill to the reaper's word
BUSY_S = 5.0      # for a busy machine to start the phase again after it
counts = {"long": 0, "stale_acts": 0, "sweeper_stops": 0, "taken_over": 0}


def tool(name, phase, programs):
    return rig.make_tool(name, [{"name": "work", **phase}], {"plan": rig.TEXT}, programs=programs,
                         poll_interval_ms=50, result={
                             "text": "done", "structured": {"last": {"$from": "/state/work"}}})


PLAIN = {"kind": "program", "mode": "plain", "command": ["./work"], "effect": "pure",
         "timeout_ms": 60_000, "attempts": 5, "backoff_first_ms": 20,
         "env": ["RIG_FOLDER", "RIG_RUN_LOG"]}
# Notes its start as the probe does; `plan`: {"burn_ms"} or {"step_ms"}, or a gate before a step.
WORK = f"#!{sys.executable}\n" + '''
import json, os, subprocess, sys, time
plan = json.loads(json.load(sys.stdin).get("plan", "{}"))
effect_id = os.environ["HOLDFAST_EFFECT_ID"]
def note(what, **more):
    with open(os.environ["RIG_RUN_LOG"], "a") as log:
        log.write(json.dumps({"task": os.environ["HOLDFAST_TASK"], "effect_id": effect_id,
                              "phase": "work", "what": what,
                              "attempt": int(os.environ["HOLDFAST_ATTEMPT"]), "pid": os.getpid(),
                              "at": time.time(), **more}) + "\\n")
with open(os.environ["RIG_RUN_LOG"]) as log:
    first = not any(effect_id in line and '"start"' in line for line in log)
note("start")
end = time.monotonic() + plan.get("burn_ms", 0) / 1000
while time.monotonic() < end:
    pass
if "gate" in plan and first:
    note("gate", gate=plan["gate"])
    while not os.path.exists(f"{os.environ['RIG_FOLDER']}/open/{effect_id}.{plan['gate']}"):
        time.sleep(0.01)
name = "stale" if first else "fresh"
out = subprocess.run(["holdfast", "step", "s", "--", "sh", "-c", "sleep $0; echo $1",
                      str(plan.get("step_ms", 0) / 1000), name], stdout=subprocess.PIPE).stdout
note("end")
print(json.dumps({"said": out.decode().strip()}))
'''
SQL = {"kind": "sql", "file": "work.sql", "effect": "local"}
SQL_FILES = {
    "schema.sql": "CREATE TABLE done (effect_id text, at timestamptz);\n"
                  "CREATE FUNCTION work(args json) RETURNS text LANGUAGE plpgsql AS $$\n"
                  "BEGIN\n"
                  "  INSERT INTO done VALUES (args ->> 'effect_id', clock_timestamp());\n"
                  "  PERFORM pg_sleep((args ->> 'plan')::float);\n"
                  "  RETURN '{}';\n"
                  "END $$;\n",
    "work.sql": "SELECT work($1::json)\n"}


def starts(stack, effect_id, phase=None):
    return [line for line in stack.run_log(effect_id, "start") if phase in (None, line["phase"])]


def begin(client, tool_name, plan, word):
    effect_id = rig.new_id(word)
    arguments = {"effect_id": effect_id}
    if plan is not None:
        arguments["plan"] = plan if isinstance(plan, str) else json.dumps(plan)
    answer = client.call_until_handle(tool_name, arguments)
    check(answer.handle, f"{word}: a handle", repr(answer))
    return effect_id, answer.task_id


def crashes(stack, task):
    return stack.query("SELECT count(*) FROM holdfast.event WHERE task = %s AND kind = 'crash'",
                       (rig.task_bytes(task),))[0][0]


# --- B037 ----------------------------------------------------------------------------------------

def small_stack():
    return rig.Stack(
        workers=3,
        tools=[rig.probe_tool(), rig.http_tool(timeout_ms=30_000),
               tool("plain", PLAIN, {"work": WORK}), tool("slow_sql", SQL, SQL_FILES)],
        settings={"worker": {"beat_ms": 150, "lease_ms": LEASE_MS, "poll_ms": 50,
                             "sql_connections": 8},
                  "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}})


BEATS = "SELECT incarnation, beat FROM holdfast.worker WHERE role = 'worker'"


def b037_work_longer_than_its_lease_runs_once(stack):
    """Asleep, without a pause for breath, in SQL, in a request, in a step: entered once, sent once
    to a downstream that ignores keys; the heartbeat went on."""
    client = stack.client()
    stack.steer(mode="ignore", delay_after_ms=LONG_MS)
    long = [("probe", {"P1": [{"sleep_ms": LONG_MS}]}), ("probe", {"P2": [{"sleep_ms": LONG_MS}]}),
            ("probe", {"P1": [{"burn_ms": LONG_MS}]}), ("probe", {"P2": [{"post": True}]}),
            ("plain", {"burn_ms": LONG_MS}), ("plain", {"step_ms": LONG_MS}),
            ("slow_sql", str(LONG_MS / 1000)), ("deliver", None)]
    tasks = [begin(client, name, plan, "b037") for name, plan in long]
    beats = dict(stack.query(BEATS))
    for (name, plan), (effect_id, task) in zip(long, tasks):
        what = f"B037 {name} {plan}"
        equal(client.wait(task, 60).result["status"], "completed", f"{what}: completed")
        for phase in {line["phase"] for line in starts(stack, effect_id)}:
            equal(len(starts(stack, effect_id, phase)), 1, f"{what}: {phase} entered once")
        equal(crashes(stack, task), 0, f"{what}: no crash is noted")
        equal({step[3] for step in stack.steps(task) if step[1] == "recovery_point"}, {1},
              f"{what}: one attempt")
        if name == "deliver" or "post" in str(plan):
            equal(len([line for line in stack.requests("/ledger") if effect_id in line["body"]]), 1,
                  f"{what}: sent once")
        if name == "slow_sql":
            equal(sql_rows(stack, effect_id), 1, f"{what}: one row")
        counts["long"] += 1
    for incarnation, beat in stack.query(BEATS):
        check(beat - beats.get(incarnation, 0) >= 10, "B037 the heartbeat went on",
              beat - beats.get(incarnation, 0))
    stack.steer(mode="honour", delay_after_ms=0)
    client.close()


def sql_rows(stack, effect_id):
    return stack.query("SELECT count(*) FROM holdfast_tool_slow_sql.done WHERE effect_id = %s",
                       (effect_id,))[0][0]


def b037_who_cannot_beat_stops_its_work_before_another_starts_it(stack):
    """The workers' own backends stand still, so no heartbeat is answered: what they run is ended
    before its lease is, and only then starts anew."""
    client = stack.client()
    for phase in ("P1", "P2"):
        effect_id, task = begin(client, "probe", {
            phase: [{"gate": "in", "starts": [1]}], "P3": [{"post": True}]}, "b037")
        pid = stack.at_gate(effect_id, "in")["pid"]
        backends = [row[0] for row in stack.query(
            "SELECT pid FROM pg_stat_activity "
            "WHERE usename IN ('holdfast_worker', 'holdfast_sql')")]
        stop_between_statements(stack, backends)
        began = time.time()  # no beat is answered from here on
        gone = until(lambda pid=pid: rig.process_gone(pid) and time.time(), 10, "B037 it is ended")
        for backend in backends:
            os.kill(backend, signal.SIGCONT)
        check(gone and between(began, gone) < LEASE_MS / 1000 + 0.3,
              f"B037 {phase}: within the lease", gone and gone - began)
        stack.open_gate(effect_id, "in")
        equal(client.wait(task, 60).result["status"], "completed", f"B037 {phase}: completed")
        again = starts(stack, effect_id, phase)
        check(len(again) <= 2 and (len(again) < 2 or again[1]["at"] >= gone - 0.1),
              f"B037 {phase}: not started anew before", (again, gone))
        equal(stack.effects_by_id().get(effect_id), 1, f"B037 {phase}: one effect")
        counts["long"] += 1
    client.close()


# --- B038 ----------------------------------------------------------------------------------------

def once(action, start):
    return {**action, "starts": [start]}


def stale(*first, second=(), phase="P1"):
    """In its first start at a gate, then these; in its second at another, then those."""
    return {"P3": [{"recall": "c"}]} | {
        phase: [once({"gate": "in"}, 1), *(once(action, 1) for action in first),
                once({"gate": "again"}, 2), *(once(action, 2) for action in second)]}


def say_artifact(text):
    return {"say": {"t": "artifact", "name": "a", "media_type": "text/plain",
                    "data": {"$bytes": text.encode().hex()}}}


# What a worker that was stopped past its lease finds said when it wakes.
ACTS = {
    "checkpoint": ("probe", stale({"checkpoint": ["c", "stale"]},
                                  second=[{"checkpoint": ["c", "fresh"]}])),
    "artifact": ("probe", stale(say_artifact("stale"), second=[say_artifact("fresh")])),
    "progress": ("probe", stale({"progress": [0.9, "stale"]})),
    "recovery point": ("probe", stale({"say": {"t": "result", "value": "stale"}},
                                      second=[{"say": {"t": "result", "value": "fresh"}}])),
    "of a keyed phase": ("probe", stale({"post": True}, second=[{"post": True}], phase="P2")),
    "outcome": ("probe", stale({"say": {"t": "result", "value": "stale"}},
                               second=[{"say": {"t": "result", "value": "fresh"}}], phase="P3")),
    "failure": ("probe", stale({"error": "stale"})),
    "retry": ("probe", stale({"error": "stale", "retry": True})),
    "crash": ("probe", stale({"signal": 9})), "exit 75": ("probe", stale({"exit": 75})),
    "garbage": ("probe", stale({"garbage": True})),
    "step of a shell": ("plain", {"gate": "in"}),
    "sql": ("slow_sql", str(SQL_S)), "request": ("deliver", None),
}


def snapshot(stack, tasks):
    ids = [rig.task_bytes(task) for task in tasks]
    return [stack.query(f"SELECT * FROM holdfast.{table} WHERE task = ANY(%s) ORDER BY {order}",
                        (ids,))
            for table, order in (("step", "task, place"), ("event", "task, place"),
                                 ("artifact", "task, phase, name"), ("work", "task"))]


def settled(stack, tasks):
    """Their rows, once the second's beat has said where each stands."""
    for _ in range(20):
        rows = snapshot(stack, tasks)
        time.sleep(0.5)
        if snapshot(stack, tasks) == rows:
            break
    return rows


def b038_a_stale_worker_changes_nothing(stack, how):
    """All acts at once: worker 1 holds them, is stopped past its lease, worker 2 ends them all, and
    worker 1 wakes (or wakes to a SIGTERM) with everything its programs said meanwhile."""
    client = stack.client()
    first, *others = stack.workers
    for worker in others:
        worker.terminate()
    stack.steer(delay_after_ms=1000)
    held = {name: begin(client, tool_name, plan, "b038") for name, (tool_name, plan)
            in ACTS.items()}
    for name, (effect_id, _) in held.items():
        if ACTS[name][0] in ("probe", "plain"):
            stack.at_gate(effect_id, "in")
    asks = held["request"][0]
    until(lambda: [line for line in stack.requests("/ledger") if asks in line["body"]],
          10, "B038 the request is on its way")
    time.sleep(0.3)
    first.signal(signal.SIGSTOP)
    stack.steer(delay_after_ms=0)
    for effect_id, _ in held.values():
        stack.open_gate(effect_id, "in")
    others[0].start()

    def wake():
        if how == "SIGTERM":
            first.signal(signal.SIGTERM)
        first.signal(signal.SIGCONT)

    ends = wake_beside_the_second(stack, client, held, wake, f"B038 {how}")
    for name in held:
        ended_by_the_second(stack, client, f"B038 {how}, {name}", name, held[name], ends[name])
    artifact = stack.query("SELECT content FROM holdfast.artifact WHERE task = %s",
                           (rig.task_bytes(held["artifact"][1]),))
    equal([bytes(row[0]) for row in artifact], [b"fresh"],
          f"B038 {how}: the artifact is the second's")
    if how == "SIGTERM":
        equal(first.popen.wait(15), 0, "B038 SIGTERM: exit 0")
        first.start()
    for worker in others[1:]:
        worker.start()
    client.close()


def b038_a_stale_statement_changes_nothing(stack):
    """A worker for each act, which sends its statement in time, to a backend that stands still; the
    statement comes to be run when another worker has ended the task. Only the store can refuse it."""
    client = stack.client()
    for worker in stack.workers:
        worker.terminate()
    stack.steer(delay_after_ms=500)
    crowd = []
    for number in range(len(ACTS)):
        name = f"stale-{number}"
        (stack.folder / name).mkdir(exist_ok=True)
        crowd.append(stack.start_holdfast(
            name, "worker", keys_file=stack.folder / "keys", conf_file=stack.folder / "conf.json",
            state_dir=stack.folder / name, slots=1))
    held = {name: begin(client, tool_name, plan, "b038") for name, (tool_name, plan)
            in ACTS.items() if ACTS[name][0] in ("probe", "plain")}
    for effect_id, _ in held.values():
        stack.at_gate(effect_id, "in")
    held |= {name: begin(client, tool_name, plan, "b038") for name, (tool_name, plan)
             in ACTS.items() if name not in held}
    asks = held["request"][0]
    until(lambda: [line for line in stack.requests("/ledger") if asks in line["body"]],
          10, "B038 the request is on its way")
    until(lambda: stack.query("SELECT count(*) FROM pg_stat_activity WHERE usename = 'holdfast_sql' "
                              "AND wait_event = 'PgSleep'") == [(1,)], 5, "B038 the SQL runs")
    backends = [row[0] for row in stack.query(
        "SELECT pid FROM pg_stat_activity WHERE usename IN ('holdfast_worker', 'holdfast_sql') "
        "ORDER BY usename = 'holdfast_sql'")]
    stop_between_statements(stack, backends)
    for effect_id, _ in held.values():
        stack.open_gate(effect_id, "in")
    time.sleep(LEASE_MS / 1000)
    stack.steer(delay_after_ms=0)
    stack.workers[0].start()

    def wake():
        for backend in backends:
            os.kill(backend, signal.SIGCONT)

    ends = wake_beside_the_second(stack, client, held, wake, "B038 statement")
    for name, (effect_id, task) in held.items():
        ended_by_the_second(stack, client, f"B038 statement, {name}", name, held[name], ends[name])
    for worker in crowd:
        worker.kill()
    for worker in stack.workers[1:]:
        worker.start()
    client.close()


def stop_between_statements(stack, backends):
    """None of them with a lock in hand that others wait for, but the one that sleeps in SQL."""
    left = backends
    while left:
        for backend in left:
            os.kill(backend, signal.SIGSTOP)
        time.sleep(0.02)
        left = [row[0] for row in stack.query(
            "SELECT DISTINCT pid FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE pid = ANY(%s) AND usename = 'holdfast_worker'", (backends,))]
        for backend in left:
            os.kill(backend, signal.SIGCONT)
        time.sleep(0.005)


def wake_beside_the_second(stack, client, held, wake, what):
    """The first wakes while the second stands in the middle of its work, or has ended it; then the
    second goes on. The ends."""
    try:
        for name, (effect_id, task) in held.items():
            if ACTS[name][0] == "probe":
                stack.at_gate(effect_id, "again")
            else:
                client.wait(task, 30)
        tasks = [task for _, task in held.values()]
        before = settled(stack, tasks)
    finally:
        wake()
    time.sleep(1)
    equal(snapshot(stack, tasks), before, f"{what}: no row of theirs has changed")
    for effect_id, _ in held.values():
        stack.open_gate(effect_id, "again")
    return {name: client.wait(task, 60) for name, (_, task) in held.items()}


def ended_by_the_second(stack, client, what, name, held, end):
    effect_id, task = held
    equal(end.result["status"], "completed", f"{what}: completed by the second")
    again = client.get(task)
    equal(rig.stored_part(again), rig.stored_part(end), f"{what}: its result stands")
    check("stale" not in json.dumps(again.result) and not again.result["result"]["isError"],
          f"{what}: nothing of the first is in it", again.result)
    if ACTS[name][0] == "slow_sql":
        equal(sql_rows(stack, effect_id), 1, f"{what}: its SQL counts once")
    if name in ("request", "of a keyed phase"):
        equal(stack.effects_by_id().get(effect_id), 1, f"{what}: one effect")
    counts["stale_acts"] += 1


def b038_a_stale_sweeper_takes_nothing_from_the_living(stack):
    """Two maintenances; one or the other, or its backend in Postgres, stands still for as long as
    it likes. No worker died, so nothing is handed on, and what is over stays over."""
    client = stack.client()
    stack.maintains.append(stack.start_holdfast("maintain-2", "maintain"))
    until(lambda: stack.maintains[1].handles(signal.SIGTERM), 10, "B038 a second maintenance")
    long = [begin(client, "probe", {"P1": [{"gate": "in"}]}, "b038-sweep") for _ in range(6)]
    for effect_id, _ in long:
        stack.at_gate(effect_id, "in")
    short = []
    chance = random.Random(38)
    for number in range(10):
        victims = [stack.maintains[number % 2].pid]
        if number % 3 == 2:
            victims = [row[0] for row in stack.query(
                "SELECT pid FROM pg_stat_activity WHERE usename = 'holdfast_maintain'")]
        for pid in victims:
            os.kill(pid, signal.SIGSTOP)
        end = time.monotonic() + chance.choice((0.1, 0.3, LEASE_MS / 1000 + 0.3))
        while time.monotonic() < end:
            short.append(begin(client, "probe", {"P2": [{"post": True}]}, "b038-sweep"))
            time.sleep(0.05)
        for pid in victims:
            os.kill(pid, signal.SIGCONT)
        counts["sweeper_stops"] += 1
        time.sleep(0.1)
    for effect_id, _ in long:
        stack.open_gate(effect_id, "in")
    for effect_id, task in long + short:
        equal(client.wait(task).result["status"], "completed", "B038 sweeper: completed")
        equal([len(starts(stack, effect_id, phase)) for phase in ("P1", "P2", "P3")], [1, 1, 1],
              "B038 sweeper: each phase once")
        equal(crashes(stack, task), 0, "B038 sweeper: nobody was declared dead")
    tasks = [task for _, task in long + short]
    before = snapshot(stack, tasks)
    equal(before[3], [], "B038 sweeper: nothing is open")
    time.sleep(LEASE_MS / 1000 + 0.5)
    equal(snapshot(stack, tasks), before, "B038 sweeper: what is over stays over")
    effects = stack.effects_by_id()
    equal({effects.get(effect_id) for effect_id, _ in short}, {1}, "B038 sweeper: one effect each")
    client.close()


# --- B040 ----------------------------------------------------------------------------------------

GATES = ({"P1": [once({"gate": "in"}, 1)]}, {"P2": [once({"gate": "in"}, 1), {"post": True}]},
         {"P2": [{"post": True}, once({"gate": "in"}, 1)]}, {"P3": [once({"gate": "in"}, 1)]})


def b040_round(stack, what, kill, bring_back):
    """20 tasks in all phases; `kill`s some processes; how long each of theirs waited for the next
    start of the phase it was in."""
    client = stack.client()
    tasks = []
    for number in range(20):
        plan = {"P2": [{"post": True}], **GATES[number % 4]}
        tasks.append((*begin(client, "probe", plan, "b040"), plan))
    gates = {effect_id: stack.at_gate(effect_id, "in") for effect_id, _, _ in tasks}
    time.sleep(random.Random(len(what)).uniform(0, 2))
    dead = kill(stack)
    killed = time.time()
    bring_back(stack)
    for effect_id, _, _ in tasks:
        if gates[effect_id]["parent"] not in dead:
            stack.open_gate(effect_id, "in")
    lost = [effect_id for effect_id in gates if gates[effect_id]["parent"] in dead]
    waits = []
    for effect_id in lost:
        phase = gates[effect_id]["phase"]
        again = until(lambda e=effect_id, p=phase: (starts(stack, e, p) + [None, None])[1], 40,
                      f"B040 {what}: taken over")
        if again:
            waits.append(between(killed, again["at"]))
    check(lost, f"B040 {what}: the dead held something")
    if waits:
        print(f"B040 {what}: taken over after {min(waits):.2f} to {max(waits):.2f} s", flush=True)
        noticed = until(lambda: [between(killed, at) for at in declared_dead(stack) if at > killed],
                        NOTICED_S, f"B040 {what}: maintenance says so")
        check(noticed and max(noticed) <= NOTICED_S, f"B040 {what}: noticed in time", noticed)
        check(max(waits) <= NOTICED_S + BUSY_S, f"B040 {what}: taken over in time", max(waits))
        counts["taken_over"] += len(waits)
    client.close()
    effects = None
    for effect_id, task, _ in tasks:
        equal(client.wait(task, 60).result["status"], "completed", f"B040 {what}: completed")
        phase = gates[effect_id]["phase"]
        for name in ("P1", "P2", "P3"):
            wanted = 2 if name == phase and effect_id in lost else 1
            equal(len(starts(stack, effect_id, name)), wanted, f"B040 {what}: starts of {name}")
        effects = effects or stack.effects_by_id()
        equal(stack.effects_by_id().get(effect_id), 1, f"B040 {what}: one effect")
    equal(stack.query("SELECT count(*) FROM holdfast.work"), [(0,)], f"B040 {what}: no row is left")
    client.close()


def declared_dead(stack):
    lines = [line for maintain in stack.maintains for line in maintain.log().splitlines()
             if "declared dead" in line]
    return [rig.seconds_of(json.loads(line)["time"]) for line in lines]


def holder(stack):
    """A worker that runs something: on a slow machine the first to be up may run all of it."""
    parent = stack.run_log(what="gate")[-1]["parent"]
    return next(worker for worker in stack.workers if worker.pid == parent)


def kill_all(processes):
    pids = {process.pid for process in processes}
    for process in processes:
        process.kill()
    return pids


def start_all(processes):
    for process in processes:
        if not process.alive():
            process.start()


def b040_the_killed_are_replaced_within_seconds():
    """By default settings."""
    stack = rig.Stack(apis=2, workers=2, tools=[rig.probe_tool()])
    b040_round(stack, "one of two workers", lambda s: kill_all([holder(s)]), lambda s: None)
    b040_round(stack, "all workers, an API, maintenance",
               lambda s: kill_all(s.workers + s.apis[1:] + s.maintains),
               lambda s: start_all(s.workers[:1] + s.apis + s.maintains))

    def everything(s):
        dead = kill_all(s.workers + s.apis + s.maintains)
        s.cluster.stop()
        s.cluster.start()
        return dead

    def back(s):
        start_all(s.workers + s.apis + s.maintains)
        until(lambda: s.ready(s.apis[0]), 20, "B040 the API is back")

    start_all(stack.workers)
    b040_round(stack, "everything", everything, back)
    stack.stop()


rig.run(b040_the_killed_are_replaced_within_seconds)
small = small_stack()
rig.run((b037_work_longer_than_its_lease_runs_once, small),
        (b037_who_cannot_beat_stops_its_work_before_another_starts_it, small),
        (b038_a_stale_worker_changes_nothing, small, "woken"),
        (b038_a_stale_worker_changes_nothing, small, "SIGTERM"),
        (b038_a_stale_statement_changes_nothing, small),
        (b038_a_stale_sweeper_takes_nothing_from_the_living, small))
for one in small.workers:
    check(one.alive(), f"{one.name} lives")
rig.finish("cases_workers", counts, {"long": 10, "stale_acts": 3 * len(ACTS), "sweeper_stops": 10,
                                     "taken_over": 35})
