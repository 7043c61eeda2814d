#!/usr/bin/python3
"""Case B052, too many connections and a disk that is full. Six processes share too few connections:
none takes more than deploy/OPERATING.md says, none ends or hammers, each says whether it is ready,
and all work completes when there is room. Then Postgres on 64 MiB that fill up while tasks save what
they did: they stay at their last committed phase, calls are refused and leave nothing, and with room
again everything completes, with one effect each under one key."""

import collections
import http.client
import json
import secrets
import threading
import time

import disk
import pair
import rig
from patience import soon
from rig import check, equal, until

counts = {"connections_max": 0, "samples": 0, "starved_tasks": 0, "saved_late": 0, "refused": 0}
QUICK = {"worker": {"beat_ms": 200, "lease_ms": 3000, "poll_ms": 100},
         "api": {"beat_ms": 200}, "maintain": {"lease_ms": 3000, "maintain_ms": 200}}
# The formula of deploy/OPERATING.md, Connections.
SQL_CONNECTIONS = 4
TAKES = {"api": 3, "worker": 3 + SQL_CONNECTIONS, "maintain": 1}
ROOM = 20
RESERVED = 3            # of them for superusers, by Postgres's default
STARVE_S = 6
AGAIN_S = 60
POST = json.dumps({"P2": [{"post": True}]})

DISK_BYTES = 64 << 20
FULL_S = 8
SAVED_BYTES = 400_000   # of each task's second phase: no table has that left
SAVERS = 6
HELD_MIN = 4            # of them: one may find what Postgres itself has just freed
REFUSED_MIN, CALLS_MAX = 2, 6
GIVE_UP_S, TOLD_S = 1.9, 8  # a call that took less than the first was told what is certain
LAST_CRASH_S = 1        # after there is room: whoever found none has ended Postgres by then
# Failed statements of one process: a burst, then with backoff.
TRIES_FIRST, TRIES_PER_S = 20, 4


def http_ready(port):
    """What /readyz says, or None where nobody answers."""
    status, _ = rig.http_ask(port, "/readyz", seconds=5)
    return status == 200 if status else None


class Named(rig.Stack):
    """Each process says in its connections who it is, and has a listener for operators."""

    admin = None

    def make_cluster(self, folder, settings):
        return disk.LoggedCluster(folder, settings)

    def watch(self):
        """Before it gets crowded: who asks for a connection is counted until it is refused."""
        self.admin = self.cluster.connect()

    def start(self, name, argv):
        more, port = {}, rig.free_port()
        if name.split("-")[0] in TAKES:
            more["HOLDFAST_DSN"] = f"{self.cluster.dsn()} application_name={name}"
            argv = [*argv, "--metrics-listen", f"127.0.0.1:{port}"]
        process = super().start(name, argv, **more)
        process.ops_port = port
        return process

    def ours(self):
        return [*self.apis, *self.workers, *self.maintains]

    def connections(self):
        """Process -> connections that it has now."""
        return collections.Counter(dict(self.admin.execute(
            "SELECT application_name, count(*) FROM pg_stat_activity "
            "WHERE starts_with(usename, 'holdfast_') GROUP BY 1").fetchall()))


def takes(processes):
    return {process.name: TAKES[process.name.split("-")[0]] for process in processes}


class Load(threading.Thread):
    """Calls, one after the other, each until it has its handle."""

    def __init__(self, stack, number):
        super().__init__(daemon=True)
        self.stack, self.number = stack, number
        self.begun, self.over, self.error = {}, False, None

    def run(self):
        count = 0
        while not self.over:
            count += 1
            effect_id = f"load-{self.number}-{count}"
            try:
                self.begun[effect_id] = self.one(effect_id)
            except Exception as error:  # noqa: BLE001 - checked below
                self.error = error
                return
            time.sleep(0.05)

    def one(self, effect_id):
        """The handle; asked of both API processes in turn for as long as it takes."""
        end = time.monotonic() + STARVE_S + AGAIN_S + 60
        while time.monotonic() < end:
            for api in self.stack.apis:
                client = rig.Client(api.port)
                try:
                    answer = client.call("probe", {"effect_id": effect_id, "plan": POST})
                except (OSError, http.client.HTTPException):
                    continue
                finally:
                    client.close()
                if answer.handle:
                    return answer.task_id
                if answer.status not in (429, 503):
                    raise RuntimeError(f"answered oddly: {answer!r}")
                time.sleep(0.05)
        raise RuntimeError(f"{effect_id} was never accepted")


# --- connections ---------------------------------------------------------------------------------

def within(stack, wanted, seconds):
    """Looks again and again: nobody has more than its share."""
    end, most = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        has = stack.connections()
        more = {name: count for name, count in has.items() if count > wanted.get(name, 0)}
        check(not more, "connections within the formula", {"more": more, "formula": wanted})
        most = max(most, has.total())
        counts["samples"] += 1
        time.sleep(0.05)
    counts["connections_max"] = max(counts["connections_max"], most)
    return most


def readiness(stack):
    """Each that lacks a connection of its store says so, where two looks agree about what it has."""
    before = stack.connections()
    said = {process.name: http_ready(process.ops_port) for process in stack.ours()}
    after = stack.connections()
    for name, ready in said.items():
        kind = name.split("-")[0]
        if before[name] == after[name] and after[name] < min(3, TAKES[kind]):
            check(ready is False, f"{name} lacks connections and is not ready", after[name])
    return said


def starved():
    """Six processes that want 28 connections, and 17 are to be had."""
    stack = Named(apis=1, workers=0, maintain=False, tools=[rig.probe_tool()], settings=QUICK,
                  postgres={"max_connections": str(ROOM)})
    stack.apis.pop().terminate()
    stack.processes = [one for one in stack.processes if one.name != "api-1"]
    stack.watch()
    start = stack.cluster.log_end()
    stack.apis = [stack.start_api(f"api-{n}", rig.free_port()) for n in (1, 2)]
    stack.workers = [stack.start_worker(f"worker-{n}") for n in (1, 2, 3)]
    stack.maintains = [stack.start_holdfast("maintain-1", "maintain")]
    wanted = takes(stack.ours())
    loads = [Load(stack, number) for number in range(3)]
    for load in loads:
        load.start()
    until(lambda: any("53300" in line or "connection slots" in line or "too many clients" in line
                      for line in stack.cluster.log(start)), 20, "connections run out")
    began, start = time.monotonic(), stack.cluster.log_end()
    most = within(stack, wanted, STARVE_S / 2)
    said = readiness(stack)
    check(not all(said.values()), "not all are ready", said)
    most = max(most, within(stack, wanted, STARVE_S / 2))
    check(most <= ROOM - RESERVED, "no more than there are", most)
    seconds = time.monotonic() - began
    tries = sum("FATAL" in line for line in stack.cluster.log(start))
    lacking = sum(wanted.values()) - (ROOM - RESERVED)
    # Each waits up to 2 s between two tries, 1 on average.
    check(lacking < tries < 3 * lacking * seconds, "tries, with backoff", (tries, seconds))
    for process in stack.ours():
        check(process.alive(), f"starved: {process.name} is alive")
    room_again(stack, loads)
    stack.stop()


def room_again(stack, loads):
    """Two workers go: what is left fits, and everything completes."""
    for worker in [stack.workers.pop(), stack.workers.pop()]:
        equal(worker.terminate(), 0, f"{worker.name} stops when told")
    until(lambda: all(http_ready(one.ops_port) for one in stack.ours()), AGAIN_S, "room: all ready",
          0.1)
    wanted = takes(stack.ours())
    until(lambda: stack.connections() == wanted, AGAIN_S, "room: the formula exactly")
    for load in loads:
        load.over = True
    for load in loads:
        load.join(120)
        check(load.error is None and not load.is_alive(), "a client's load", repr(load.error))
    client, begun = stack.client(), {}
    for load in loads:
        begun |= load.begun
    check(begun, "there was load")
    for task in begun.values():
        equal(client.wait(task, 120).result["status"], "completed", "room: completed")
    effects = stack.effects_by_id()
    for effect_id in begun:
        equal(effects.get(effect_id), 1, "room: one effect")
    counts["starved_tasks"] = len(begun)


# --- the disk ------------------------------------------------------------------------------------

class Small(Named):
    def __init__(self, **more):
        self.disk = disk.SmallDisk(DISK_BYTES)
        super().__init__(**more)

    def make_cluster(self, folder, _):
        return disk.SmallCluster(folder, self.disk, settings={"max_wal_size": "6MB"})

    def stop(self):
        self.disk.empty()
        super().stop()
        self.disk.close()

    def answers(self):
        try:
            return self.query("SELECT 1") == [(1,)]
        except rig.psycopg.Error:
            return False


def begin_savers(stack):
    """Tasks that have made their effect and are about to save it; effect ID -> task."""
    client, begun = stack.client(), {}
    for number in range(SAVERS):
        effect_id = f"saver-{number}"
        plan = json.dumps({"P2": [{"post": True}, {"gate": "save"}, {"say": {
            "t": "result", "value": {"blob": secrets.token_hex(SAVED_BYTES // 2)}}}]})
        begun[effect_id] = client.call_until_handle("probe", {"effect_id": effect_id,
                                                              "plan": plan}).task_id
    for effect_id in begun:
        stack.at_gate(effect_id, "save")
    return begun


def committed(stack, begun):
    """The phases that each has committed; None where Postgres is not there: it ends itself, and
    begins again, whenever it has no room for its WAL, also between two questions."""
    try:
        return [[row[2] for row in stack.steps(task)] for task in begun.values()]
    except rig.psycopg.Error:
        return None


def keep_full(stack, over):
    while not over.is_set():
        stack.disk.fill()
        over.wait(0.02)


def refused(stack, start):
    """A call while there is no room: its effect ID where it was refused for certain."""
    effect_id = f"refused-{secrets.token_hex(8)}"
    plan = json.dumps({"P1": [{"sleep_ms": 0}], "rest": secrets.token_hex(SAVED_BYTES // 2)})
    asked = time.monotonic()
    answer = stack.client().call("probe", {"effect_id": effect_id, "plan": plan})
    took = time.monotonic() - asked
    equal(answer.status, 503, "full: a call")
    check(answer.headers.get("Retry-After"), "full: Retry-After")
    soon(asked, TOLD_S, "full: told in time")
    crashed = any("PANIC" in line for line in stack.cluster.log(start))
    executed = (answer.data or {}).get("executed")
    # "maybe" is right where the call was in flight when its time was over.
    check(executed == "no" or (executed == "maybe" and (crashed or took > GIVE_UP_S)),
          "full: executed", (took, repr(answer)))
    counts["refused"] += executed == "no"
    return effect_id if executed == "no" else None


def full_disk():
    stack = Small(apis=1, workers=2, tools=[rig.probe_tool()], settings=QUICK)
    pids = [process.pid for process in stack.ours()]
    begun = begin_savers(stack)
    start = stack.cluster.log_end()
    over = threading.Event()
    filler = threading.Thread(target=keep_full, args=(stack, over), daemon=True)
    filler.start()
    until(lambda: stack.disk.free() == 0, 10, "the disk is full")
    began = time.monotonic()
    for effect_id in begun:
        stack.open_gate(effect_id, "save")
    until(lambda: any("No space left" in line for line in stack.cluster.log(start)), 20,
          "Postgres notices")
    never = []
    while len(never) < CALLS_MAX and counts["refused"] < REFUSED_MIN:
        never.append(refused(stack, start))
    at = committed(stack, begun)
    check(at is None or at.count(["P1"]) >= HELD_MIN, "full: at their last committed phase", at)
    time.sleep(max(0.0, FULL_S - (time.monotonic() - began)))
    no_tight_loop(stack, start, began)
    room_at = time.time()
    over.set()
    filler.join()
    stack.disk.empty()
    time.sleep(LAST_CRASH_S)
    until(lambda: stack.answers() or stack.cluster.gone(), 30, "Postgres is back, or has given up")
    if stack.cluster.gone():
        pair.start(stack.cluster)  # as a service manager does
    until(lambda: stack.ready(stack.apis[0]), AGAIN_S, "room: ready")
    room_on_disk(stack, begun, [one for one in never if one], room_at)
    equal([process.pid for process in stack.ours() if process.alive()], pids,
          "nobody was restarted")
    stack.stop()


def no_tight_loop(stack, start, began):
    log, tries = stack.cluster.log(start), stack.cluster.refused(start)
    seconds = time.monotonic() - began
    tries = {name: tries[name] for name in takes(stack.ours()) if tries[name]}
    for name, count in tries.items():
        check(count <= TRIES_FIRST + TRIES_PER_S * seconds, f"full: {name} does not hammer",
              (count, seconds))
    # Whoever came first may have ended Postgres, for good.
    check(tries or any("PANIC" in line for line in log), "full: somebody tried")
    counts["tries"] = tries


def room_on_disk(stack, begun, never, room_at):
    for effect_id in never:
        equal(stack.task_rows(effect_id), [], "full: nothing was stored of what was refused")
    client = stack.client()
    for task in begun.values():
        equal(client.wait(task, 90).result["status"], "completed", "room: completed")
        saved = stack.query("SELECT extract(epoch FROM at)::float8 FROM holdfast.step "
                            "WHERE task = %s AND name = 'P2'", (rig.task_bytes(task),))
        counts["saved_late"] += bool(saved and saved[0][0] > room_at)
    for effect_id in never[:1]:
        begun[effect_id] = client.call_until_handle("probe", {"effect_id": effect_id,
                                                              "plan": POST}).task_id
        equal(client.wait(begun[effect_id], 90).result["status"], "completed", "room: as if new")
    effects, keys = stack.effects_by_id(), collections.defaultdict(set)
    for line in stack.requests("/ledger"):
        keys[json.loads(line["body"])["effect_id"]].add(line["key"])
    for effect_id in begun:
        equal(effects.get(effect_id), 1, "room: one effect")
        equal(len(keys[effect_id]), 1, "room: under one key")


def main():
    starved()
    full_disk()
    rig.finish("full", counts, {"samples": 5, "starved_tasks": 5, "saved_late": HELD_MIN,
                             "refused": REFUSED_MIN})


main()
