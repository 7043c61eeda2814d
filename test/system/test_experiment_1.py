#!/usr/bin/python3
"""Experiment 1: a response is lost, the client re-issues the call with a new JSON-RPC id.

Two API processes, a downstream that ignores keys (each request that reaches it is an effect), and
the answer lost in turn by: closing at once, with a reset, after a millisecond, after the first byte,
and after the whole answer (a proxy that drops it). Half the repeats come when the task has ended,
half while it runs. First alone, then with 64 repeats at once, a quarter of which hang up too.
Counted in the downstream's ledger: exactly one effect per effect ID; one handle, one result."""

import argparse
import random
import socket
import threading
import time

import rig
from rig import check, equal

CONCURRENT = 64
WAYS = ("close at once", "reset at once", "close after 1 ms", "close after the first byte",
        "answer dropped")

parser = argparse.ArgumentParser()
parser.add_argument("--runs", type=int, default=200)
parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
options = parser.parse_args()
dice = random.Random(options.seed)
counts = {"seed": options.seed, "alone": 0, "concurrent": 0, "lost": dict.fromkeys(WAYS, 0),
          "calls": 0, "repeats_after_end": 0, "repeats_while_open": 0, "hung_up_in_storm": 0}
stack = rig.Stack(apis=2, workers=2, tools=[rig.http_tool()])
stack.steer(mode="ignore")


def lose(port, client, arguments, way):
    """Sends the call and loses its answer; what was in it where the "proxy" has seen it."""
    data = client.call_bytes("deliver", arguments)
    if way == "answer dropped":
        return rig.parse_raw(rig.raw_exchange(port, data, 15)).task_id
    connection = socket.create_connection(("127.0.0.1", port), timeout=15)
    connection.sendall(data)
    if way == "close after 1 ms":
        time.sleep(0.001)
    elif way == "close after the first byte":
        connection.recv(1)
    if way == "reset at once":
        rig.reset_close(connection)
    else:
        connection.close()
    return None


def lane_clients():
    return [stack.client(api=number) for number in range(2)]


def judge(effect_id, handles, results, seen):
    check(len(handles) == 1, f"{effect_id}: one handle", sorted(map(str, handles)))
    check(seen is None or {seen} == handles, f"{effect_id}: the handle that was lost", seen)
    check(len(results) == 1 and None not in results, f"{effect_id}: one result",
          sorted(map(str, results)))


def alone(number, clients):
    effect_id = f"alone-{options.seed}-{number}"
    arguments = {"effect_id": effect_id, "month": "2015-09"}
    way = WAYS[number % len(WAYS)]
    first = dice.randrange(2)
    seen = lose(stack.apis[first].port, clients[first], arguments, way)
    counts["lost"][way] += 1
    after_end = number % 2 == 0
    if after_end and seen:
        clients[first].wait(seen, 30, 0.01)
    handles, results = set(), set()
    for repeat in range(3):
        client = clients[(first + 1 + repeat) % 2]
        answer = client.call_until_handle("deliver", arguments)
        handles.add(answer.task_id)
        results.add(rig.stored_part(client.wait(answer.task_id, 30, 0.01)))
        counts["calls"] += 1
        counts["repeats_after_end" if after_end or repeat else "repeats_while_open"] += 1
    judge(effect_id, handles, results, seen)
    counts["alone"] += 1


class Storm:
    """64 threads that live for all runs, each with a connection to both API processes."""

    def __init__(self):
        self.start, self.end = (threading.Barrier(CONCURRENT + 1) for _ in range(2))
        self.arguments = None
        self.answers = []
        self.errors = []
        self.threads = [threading.Thread(target=self.lane, args=(lane,), daemon=True)
                        for lane in range(CONCURRENT)]
        for thread in self.threads:
            thread.start()

    def lane(self, lane):
        clients = lane_clients()
        own = random.Random(options.seed + lane)
        while True:
            self.start.wait()
            if self.arguments is None:
                return
            try:
                self.one(clients[lane % 2], lane, own)
            except Exception as error:  # noqa: BLE001 - told by the run
                self.errors.append(repr(error))
            self.end.wait()

    def one(self, client, lane, own):
        if lane % 4 == 3:
            lose(client.port, client, self.arguments, own.choice(WAYS[:-1]))
            self.answers.append((None, None))
            return
        answer = client.call_until_handle("deliver", self.arguments)
        self.answers.append((answer.task_id,
                             rig.stored_part(client.wait(answer.task_id, 60, 0.05))))

    def run(self, arguments):
        self.answers, self.arguments = [], arguments
        self.start.wait()
        self.end.wait()
        return self.answers

    def stop(self):
        self.arguments = None
        self.start.wait()
        for thread in self.threads:
            thread.join()


def concurrent(number, storm, clients):
    effect_id = f"storm-{options.seed}-{number}"
    arguments = {"effect_id": effect_id, "month": "2015-09"}
    way = WAYS[number % len(WAYS)]
    seen = lose(stack.apis[0].port, clients[0], arguments, way)
    counts["lost"][way] += 1
    if number % 2 == 0 and seen:
        clients[0].wait(seen, 30, 0.01)
    answers = storm.run(arguments)
    counts["calls"] += len(answers)
    counts["hung_up_in_storm"] += answers.count((None, None))
    told = [answer for answer in answers if answer != (None, None)]
    judge(effect_id, {task for task, _ in told}, {result for _, result in told}, seen)
    counts["concurrent"] += 1


clients = lane_clients()
for number in range(options.runs):
    alone(number, clients)
storm = Storm()
for number in range(options.runs):
    concurrent(number, storm, clients)
storm.stop()
equal(storm.errors, [], "no error in the storm")
effects = stack.effects_by_id()
wrong = {name: count for name, count in effects.items() if count != 1}
equal(wrong, {}, "exactly one effect per effect ID")
equal(len(effects), 2 * options.runs, "an effect for each run")
equal(len(stack.ledger()), 2 * options.runs, "and none beside them")
equal(stack.query("SELECT count(*) FROM holdfast.task")[0][0], 2 * options.runs, "one task each")
counts["effects"] = len(stack.ledger())
for way, count in counts["lost"].items():
    check(count >= 2 * options.runs // len(WAYS), f"way {way} was used", count)
rig.finish("experiment_1", counts, {"alone": options.runs, "concurrent": options.runs,
                                    "calls": options.runs * (CONCURRENT + 3)})
