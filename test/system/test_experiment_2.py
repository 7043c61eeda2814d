"""Experiment 2, the closed lid: the connection is closed at every byte offset of the request and of
the response's head, by FIN and by RST, for a client that declares Tasks and for a plain one.
Afterwards each effect ID has one task at most and one effect at most, and the result is to be had."""

import itertools
import json
import socket

import rig
from rig import check, equal

THREADS = 8
counts = {"request_offsets": 0, "response_offsets": 0, "fin": 0, "rst": 0, "tasks_client": 0,
          "plain_client": 0, "accepted_before": 0, "results": 0, "effects": 0}

stack = rig.Stack(apis=2, workers=2, tools=[rig.http_tool(name="deliver")])


def request_bytes(effect_id, declare):
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "deliver", "arguments": {"effect_id": effect_id}, "_meta": rig.meta(declare)}}).encode()
    return rig.request_bytes(stack.client().headers("tools/call", "deliver"), body)


def cut(effect_id, declare, way, sent, read):
    """Sends `sent` bytes (None: all), reads `read` bytes of the answer, and is gone."""
    data = request_bytes(effect_id, declare)
    port = stack.apis[hash(effect_id) % 2].port
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(data if sent is None else data[:sent])
    left = read
    while left > 0:
        got = connection.recv(left)
        if not got:
            break
        left -= len(got)
    if way == "rst":
        rig.reset_close(connection)
    else:
        connection.close()


def head_length(declare):
    """Of the response of such a call, read whole once."""
    with socket.create_connection(("127.0.0.1", stack.apis[0].port), timeout=30) as connection:
        connection.sendall(request_bytes(f"probe-{declare}", declare))
        with connection.makefile("rb") as answer:
            return len(b"".join(itertools.takewhile(bytes.strip, answer))) + 2


def plan():
    cuts = []
    for declare in (True, False):
        kind = "tasks" if declare else "plain"
        length = len(request_bytes(f"{kind}-q-0000-fin", declare))
        for way in ("fin", "rst"):
            cuts += [(f"{kind}-q-{n:04}-{way}", declare, way, n, 0) for n in range(length + 1)]
            cuts += [(f"{kind}-a-{n:04}-{way}", declare, way, None, n)
                     for n in range(head_length(declare) + 1)]
    return cuts


def share(work, items):
    def some(start):
        return [work(item) for item in items[start::THREADS]]
    return [one for part in rig.in_parallel(some, list(range(THREADS))) for one in part]


def afterwards(item):
    """A client of the same principal comes back with the same effect ID."""
    client = stack.client(api=len(item[0]) % 2)
    answer = client.call_until_handle("deliver", {"effect_id": item[0]})
    ended = client.wait(answer.task_id)
    client.close()
    return ended.result["status"] == "completed"


cuts = plan()
share(lambda item: cut(*item), cuts)
for name, declare, way, sent, _ in cuts:
    counts["request_offsets" if sent is not None else "response_offsets"] += 1
    counts[way] += 1
    counts["tasks_client" if declare else "plain_client"] += 1
names = [item[0] for item in cuts]
tasks = dict(stack.query("SELECT effect_id, count(*) FROM holdfast.task WHERE effect_id = ANY (%s)"
                         " GROUP BY 1", (names,)))
counts["accepted_before"] = len(tasks)
equal({name: n for name, n in tasks.items() if n > 1}, {}, "one task at most")
whole = [item[0] for item in cuts if item[4] > 0]
check(len([name for name in whole if name in tasks]) == len(whole), "who read an answer had a task")

done = share(afterwards, cuts)
counts["results"] = sum(done)
equal(len(done) - sum(done), 0, "the result is to be had for every one")
tasks = dict(stack.query("SELECT effect_id, count(*) FROM holdfast.task WHERE effect_id = ANY (%s)"
                         " GROUP BY 1", (names,)))
equal({name: n for name, n in tasks.items() if n != 1}, {}, "one task each")
effects = stack.effects_by_id()
equal({name: effects.get(name, 0) for name in names if effects.get(name, 0) != 1}, {}, "one effect each")
counts["effects"] = sum(effects.get(name, 0) for name in names)

rig.finish("experiment_2", counts, {"request_offsets": 2_000, "response_offsets": 400, "fin": 1_200,
                                    "rst": 1_200, "tasks_client": 1_200, "plain_client": 1_200,
                                    "results": 2_400})
