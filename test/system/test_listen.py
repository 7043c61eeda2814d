#!/usr/bin/python3
"""subscriptions/listen (A14, T10) with real processes: the acknowledgement first and the state of
each task right behind it, every change up to the end, tools that changed, across API processes,
kills of a worker, an API's end and Postgres's; caps, slow readers, who hangs up; and what a process
full of quiet streams costs."""

import json
import os
import select
import signal
import socket
import time

import rig
from rig import check, equal, until

ID = rig.META + "subscriptionId"
ACK = "notifications/subscriptions/acknowledged"
TASK = "notifications/tasks"
TOOLS = "notifications/tools/list_changed"
MANY = 200
ROUNDS = 16
BIG_BYTES = 300_000
BIG_TASKS = 40
PING_S = 15
SETTLE_MS = 3000 # for the others to have looked for tools, each second
LEASE_MS = 5000  # longer than the machine stands still: nothing runs twice for that

counts = {"streams": 0, "tasks": 0, "ended": 0, "left": 0, "many": 0, "kills": 0}
BIG = {"structured": {"plan": {"$from": "/args/plan"}}, "text": "done"}
stack = rig.Stack(apis=2, workers=2,
                  tools=[rig.probe_tool(), rig.probe_tool("big", phases={"P1": {}}, result=BIG)],
                  postgres={"track_functions": "all"},
                  settings={"worker": {"beat_ms": 200, "lease_ms": LEASE_MS},
                            "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 100}})
GATED = {"P1": [{"gate": "in"}], "P2": [{"post": True}], "P3": []}


def new_task(plan=None, token="rig-alice", api=0, tool="probe"):
    effect_id = rig.new_id("listen")
    client = stack.client(token, api)
    answer = client.call_until_handle(tool, {"effect_id": effect_id,
                                             "plan": json.dumps(plan or {"P1": []})})
    client.close()
    check(answer.handle, "a handle", repr(answer))
    counts["tasks"] += 1
    return effect_id, answer.task_id


def get(task_id, token="rig-alice", api=0):
    client = stack.client(token, api)
    answer = client.get(task_id)
    client.close()
    return answer


class Stream:
    """A subscriptions/listen on a connection of its own; frames as they come."""

    def __init__(self, notifications, api=None, ident=1, token="rig-alice", declare=True,
                 narrow=False, version=b"HTTP/1.1", headers=None):
        api = api or stack.apis[0]
        self.raw_id = json.dumps(ident)
        body = json.dumps({"jsonrpc": "2.0", "id": ident, "method": "subscriptions/listen",
                           "params": {"notifications": notifications,
                                      "_meta": rig.meta(declare)}}).encode()
        self.socket = socket.socket()
        if narrow:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", api.port))
        lines = rig.Client(0, token).headers("subscriptions/listen", None, headers)
        self.socket.sendall(rig.request_bytes(lines, body).replace(b"HTTP/1.1", version, 1))
        self.rest, self.head, self.frames, self.times = b"", None, [], []
        self.pings, self.closed, self.whole, self.chunked = 0, False, False, True
        self.body = b""
        counts["streams"] += 1

    def hear(self, seconds=0.0):
        """Reads what comes in that time; False when nothing did."""
        if self.closed or not select.select([self.socket], [], [], seconds)[0]:
            return False
        try:
            part = self.socket.recv(1 << 20)
        except ConnectionError:
            part = b""
        self.closed = not part
        self.rest += part
        self.read_head()
        self.read_chunks()
        self.read_events()
        return True

    def read_head(self):
        if self.head is None and b"\r\n\r\n" in self.rest:
            head, _, self.rest = self.rest.partition(b"\r\n\r\n")
            self.head = head.decode()
            self.chunked = "transfer-encoding: chunked" in self.head.lower()

    def read_chunks(self):
        if self.head is None:
            return
        if not self.chunked:
            self.body, self.rest = self.body + self.rest, b""
            return
        while b"\r\n" in self.rest:
            size, _, after = self.rest.partition(b"\r\n")
            size = int(size, 16)
            if len(after) < size + 2:
                return
            self.body, self.rest = self.body + after[:size], after[size + 2:]
            self.whole = self.whole or size == 0

    def read_events(self):
        while self.head is not None and "event-stream" in self.head and b"\r\n\r\n" in self.body:
            event, _, self.body = self.body.partition(b"\r\n\r\n")
            if event == b": ping":
                self.pings += 1
                continue
            check(event.startswith(b"event: message\r\ndata: "), "an event's form", repr(event))
            self.frames.append(json.loads(event.partition(b"data: ")[2]))
            self.times.append(time.monotonic())

    def until(self, condition, seconds=15, what="frames"):
        end = time.monotonic() + seconds
        while not condition(self) and not self.closed and time.monotonic() < end:
            self.hear(0.05)
        self.hear(0)
        return check(condition(self), f"{what} within {seconds} s",
                     {"head": self.head, "frames": self.frames[-3:], "body": repr(self.body[:300])})

    def refusal(self, seconds=10):
        """(status, code) of an answer that is no stream."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.closed:
            self.hear(0.05)
            if self.head and not self.chunked:
                answer = rig.parse_raw(self.head.encode() + b"\r\n\r\n" + self.body)
                if answer.json is not None:
                    self.leave()
                    return answer.status, answer.code
        return None, self.head

    def told(self, task_id=None, method=TASK):
        return [frame["params"] for frame in self.frames if frame.get("method") == method and
                task_id in (None, frame["params"].get("taskId"))]

    def statuses(self, task_id):
        return [params["status"] for params in self.told(task_id)]

    def texts(self, task_id):
        return [params.get("statusMessage") for params in self.told(task_id)]

    @property
    def acked(self):
        return self.frames and self.frames[0].get("method") == ACK

    @property
    def ended(self):
        return bool(self.frames) and "result" in self.frames[-1]

    def sound(self, what):
        """What holds of every stream: the ack first, once; the id in each frame; nothing behind the
        result."""
        check(self.acked, f"{what}: the ack first", self.frames[:1])
        equal(sum(frame.get("method") == ACK for frame in self.frames), 1, f"{what}: one ack")
        for frame in self.frames:
            part = frame.get("params") or frame.get("result") or {}
            equal(json.dumps(part.get("_meta", {}).get(ID)), self.raw_id, f"{what}: the id")
            check(("id" in frame) == ("result" in frame), f"{what}: an id only there", frame)
        check(not any("result" in frame for frame in self.frames[:-1]), f"{what}: the end last")
        if self.ended:
            equal(json.dumps(self.frames[-1]["id"]), self.raw_id, f"{what}: the answer's id")
            equal(self.frames[-1]["result"]["resultType"], "complete", f"{what}: complete")
            counts["ended"] += 1

    def leave(self, way="fin"):
        if way == "half":
            self.socket.shutdown(socket.SHUT_WR)
            return
        if way == "reset":
            rig.reset_close(self.socket)
        else:
            self.socket.close()
        self.closed = True


def resources(api):
    """(open descriptors, resident kB)"""
    return len(os.listdir(f"/proc/{api.pid}/fd")), rig.memory_kib(api.pid)


# --- what is said ---------------------------------------------------------------------------------

def honoured():
    """The subset alone; unknown, malformed and foreign IDs are left out, all alike."""
    client = stack.client()
    equal(client.request("server/discover", {}).result["capabilities"]["tools"],
          {"listChanged": True}, "advertised")
    client.close()
    effect_id, mine = new_task(GATED)
    _, foreign = new_task(GATED, token="rig-bob")
    _, sibling = new_task(GATED, token="rig-anna")
    unknown = mine[:-4] + ("AAAA" if mine[-4:] != "AAAA" else "BBBB")
    stream = Stream({"toolsListChanged": True, "promptsListChanged": True,
                     "resourcesListChanged": True, "resourceSubscriptions": ["file:///x"],
                     "taskIds": [foreign, mine, unknown, "tsk_", "", sibling, mine], "more": 1},
                    ident="s1")
    stream.until(lambda s: s.told(mine), what="honoured")
    equal(stream.frames[0]["params"]["notifications"],
          {"toolsListChanged": True, "taskIds": [mine]}, "honoured: the subset")
    for line in ("content-type: text/event-stream", "cache-control: no-cache, no-transform",
                 "x-accel-buffering: no"):
        check(line in stream.head.lower(), f"honoured: {line}", stream.head)
    stack.open_gate(effect_id, "in")
    stream.until(lambda s: "completed" in s.statuses(mine), what="honoured: the end")
    stream.hear(0.7)
    check(not stream.ended and not stream.closed, "honoured: it stays open for tools")
    equal({params["taskId"] for params in stream.told()}, {mine}, "honoured: no other task")
    stream.sound("honoured")
    stream.leave()
    for filters, name in (({"taskIds": [foreign, unknown]}, "foreign alone"), ({}, "nothing"),
                          ({"promptsListChanged": True}, "not served"), ({"taskIds": []}, "empty")):
        stream = Stream(filters)
        stream.until(lambda s: s.whole, what=name)
        equal(stream.frames[0]["params"]["notifications"],
              {"taskIds": []} if "taskIds" in filters else {}, f"{name}: the ack")
        equal(len(stream.frames), 2, f"{name}: ack and end")
        stream.sound(name)
        stream.leave()


def as_get_says():
    """What is pushed is what tasks/get says, open and over; each with an id of another kind."""
    effect_id, task_id = new_task(GATED)
    stack.at_gate(effect_id, "in")
    # The beat has said where it stands, so nothing more changes.
    until(lambda: get(task_id).result.get("statusMessage") == "P1", 10, "runs")
    for ident in (0, "", 1, -7, "text é", 2**63 + 1):
        stream = Stream({"taskIds": [task_id]}, ident=ident)
        stream.until(lambda s: s.told(task_id), what=f"id {ident!r}")
        equal([frame.get("method") for frame in stream.frames[:2]], [ACK, TASK], "state behind ack")
        same(stream.told(task_id)[0], get(task_id).result, "open")
        stream.sound(f"id {ident!r}")
        stream.leave()
    stack.open_gate(effect_id, "in")
    until(lambda: get(task_id).result["status"] == "completed", 10, "completed")
    for ident in (0, "", "x"):
        stream = Stream({"taskIds": [task_id]}, ident=ident)
        stream.until(lambda s: s.whole, what="over")
        equal([frame.get("method") for frame in stream.frames], [ACK, TASK, None], "over: frames")
        same(stream.told(task_id)[0], get(task_id).result, "over")
        stream.sound("over")
        stream.leave()
    old = Stream({"taskIds": [task_id]}, version=b"HTTP/1.0")
    old.until(lambda s: s.closed, what="HTTP/1.0")
    check(not old.chunked and old.ended, "HTTP/1.0: up to the end of the connection", old.head)


def same(pushed, got, what):
    pushed, got = json.loads(json.dumps(pushed)), dict(got)
    pushed["_meta"].pop(ID)
    equal(got.pop("resultType"), "complete", f"{what}: tasks/get")
    equal(pushed, got, f"{what}: as tasks/get says it")


def changes():
    """Progress texts, a failure, a cancel: each as it comes; accepted here, listened to there. Each
    text stands until both have heard of it, so that none is passed over."""
    texts = [f"P1: step {n}" for n in range(4)]
    plan = {"P1": [{"gate": "in"}] + [action for text in texts for action in
                                      ({"progress": [0.1, text[4:]]}, {"gate": text[-1]})]}
    effect_id, task_id = new_task(plan)
    failing_effect, failing = new_task({"P1": [{"gate": "in"}, {"error": "no such month"}]})
    cancelled_effect, cancelled = new_task({"P1": [{"gate": "in"}, {"sleep_ms": 30_000}]})
    ids = [task_id, failing, cancelled]
    streams = [Stream({"taskIds": ids}, api=api, ident=n) for n, api in enumerate(stack.apis)]
    for stream in streams:
        stream.until(lambda s: {params["taskId"] for params in s.told()} == set(ids), what="all")
        equal(stream.frames[0]["params"]["notifications"]["taskIds"], ids, "in the order given")
    for effect in (effect_id, failing_effect, cancelled_effect):
        stack.at_gate(effect, "in")
        stack.open_gate(effect, "in")
    client = stack.client(api=1)
    client.cancel(cancelled)
    client.close()
    for text in texts:
        for stream in streams:
            stream.until(lambda s, text=text: text in s.texts(task_id), what=f"changes: {text}")
        stack.open_gate(effect_id, text[-1])
    for stream in streams:
        stream.until(lambda s: s.whole, 30, "changes: the end")
        said = stream.texts(task_id)
        check(all(text in said for text in texts), "changes: each text", said)
        equal([s for s in said if s in texts], texts, "changes: in order, each once")
        for ident, status in ((task_id, "completed"), (failing, "completed"),
                              (cancelled, "cancelled")):
            statuses = stream.statuses(ident)
            equal((statuses[-1], set(statuses[:-1])), (status, {"working"}), "changes: statuses")
            same(stream.told(ident)[-1], get(ident).result, "changes: the last")
        for ident in ids:
            stamps = [params["lastUpdatedAt"] for params in stream.told(ident)]
            equal(stamps, sorted(stamps), "changes: time goes on")
        check(stream.told(failing)[-1].get("result", {}).get("isError"), "changes: its error")
        stream.sound("changes")
        stream.leave()


def nothing_is_lost():
    """A change between tasks/get and the listen."""
    for n in range(10):
        effect_id, task_id = new_task(GATED, api=n % 2)
        equal(get(task_id).result["status"], "working", "between: get")
        stack.at_gate(effect_id, "in")
        stack.open_gate(effect_id, "in")
        time.sleep(0.02 * n)
        stream = Stream({"taskIds": [task_id]}, api=stack.apis[(n + 1) % 2])
        stream.until(lambda s: s.whole, what="between")
        equal(stream.statuses(task_id)[-1], "completed", "between: the end is told")
        stream.sound("between")
        stream.leave()


def a_worker_dies():
    """kill -9 in between: the stream goes on to the end; one effect."""
    for _ in range(2):
        plan = {"P1": [], "P2": [{"post": True}, {"gate": "in"}], "P3": []}
        effect_id, task_id = new_task(plan)
        stream = Stream({"taskIds": [task_id]}, api=stack.apis[1])
        parent = stack.at_gate(effect_id, "in")["parent"]
        worker = next(w for w in stack.workers if w.alive() and in_tree(parent, w.pid))
        worker.kill()
        counts["kills"] += 1
        worker.start()
        stack.open_gate(effect_id, "in")
        stream.until(lambda s: s.whole, 30, "a killed worker")
        equal(stream.statuses(task_id)[-1], "completed", "a killed worker: completed")
        equal(stack.effects_by_id().get(effect_id), 1, "a killed worker: one effect")
        stream.sound("a killed worker")
        stream.leave()


def in_tree(pid, ancestor):
    while pid > 1 and pid != ancestor:
        stat = rig.proc_stat(pid)
        pid = int(stat[1]) if stat else 0
    return pid == ancestor


def tools_change():
    """After `tools apply` every process tells it, and whoever is asked then knows the tools."""
    apis = [stack.another_api("api-early", listen_settle_ms=SETTLE_MS)]
    time.sleep(0.5)  # they look for tools at other times than each other
    apis.append(stack.another_api("api-late", listen_settle_ms=SETTLE_MS))
    wanting = [Stream({"toolsListChanged": True}, api=api, declare=False, ident=f"t{n}")
               for n, api in enumerate(apis)]
    _, task_id = new_task(GATED)
    other = Stream({"toolsListChanged": False, "taskIds": [task_id]})
    for stream in [*wanting, other]:
        stream.until(lambda s: s.acked, what="tools: ack")
    for stream in wanting:
        stream.hear(SETTLE_MS / 1000 + 0.5)
        equal(stream.told(method=TOOLS), [], "tools: what a process finds as it starts is no change")
    stack.command("tools", "apply", str(rig.probe_tool("fresh")))
    end = time.monotonic() + 20
    heard = None
    while heard is None and time.monotonic() < end:
        for stream in wanting:
            stream.hear(0.01)
        heard = next((stream for stream in wanting if stream.told(method=TOOLS)), None)
    for api in [*apis, *stack.apis]:  # at once, all
        client = rig.Client(api.port)
        names = [tool["name"] for tool in client.request("tools/list", {}).result["tools"]]
        client.close()
        check("fresh" in names, "tools: whoever is asked has it", names)
    for stream in wanting:
        stream.until(lambda s: s.told(method=TOOLS), what="tools: told")
        stream.hear(0.5)
        equal(len(stream.told(method=TOOLS)), 1, "tools: once")
        equal(set(stream.told(method=TOOLS)[0]), {"_meta"}, "tools: no params but _meta")
        stream.sound("tools")
        stream.leave()
    other.hear(0.2)
    equal(other.told(method=TOOLS), [], "tools: not told who did not ask")
    other.leave()
    for api in apis:
        api.terminate()


def refusals():
    own = {"taskIds": ["tsk_x"]}
    json_only = {"Accept": "application/json"}
    table = [
        ("Accept without events", Stream({}, headers=json_only), (406, -32600)),
        ("Accept before capability", Stream(own, declare=False, headers=json_only), (406, -32600)),
        ("events excluded", Stream({}, headers={"Accept": "*/*, text/event-stream;q=0"}),
         (406, -32600)),
        ("not declared", Stream(own, declare=False), (400, -32021)),
        ("not declared, empty", Stream({"taskIds": []}, declare=False), (400, -32021)),
        ("no object", Stream([]), (200, -32602)),
        ("no boolean", Stream({"toolsListChanged": "yes"}), (200, -32602)),
        ("too many tasks", Stream({"taskIds": ["tsk_x"] * 65}), (200, -32602)),
        ("large", Stream({"resourceSubscriptions": ["x" * 40_000]}), (413, -32600)),
        ("no token", Stream({}, headers={"Authorization": None}), (401, -32600)),
        ("another method named", Stream({}, headers={"Mcp-Method": "tasks/get"}), (400, -32020)),
    ]
    for name, stream, wanted in table:
        equal(stream.refusal(), wanted, f"refused: {name}")
    stream = Stream({}, headers={"Accept": "text/event-stream, */*;q=0.1"})
    stream.until(lambda s: s.whole, what="any Accept")
    stream.leave()


# --- ends and limits ------------------------------------------------------------------------------

def caps_and_life():
    """Each cap refuses with a time to come back; a stream's time ends it with its result; SIGTERM
    too, and the process leaves."""
    _, task_id = new_task(GATED)
    api = stack.another_api("api-caps", listens_max=5, listens_per_owner_max=3)
    open_ones = [Stream({"taskIds": [task_id]}, api=api) for _ in range(3)]
    for stream in open_ones:
        stream.until(lambda s: s.told(task_id), what="caps: open")
    over = Stream({"toolsListChanged": True}, api=api)
    equal(over.refusal(), (429, -32603), "caps: of an owner")
    check(b'"executed":"no"' in over.body, "caps: and nothing was done", over.body)
    check("retry-after:" in over.head.lower(), "caps: when to come back", over.head)
    open_ones += [Stream({"toolsListChanged": True}, api=api, token="rig-bob") for _ in range(2)]
    for stream in open_ones:
        stream.until(lambda s: s.acked, what="caps: open")
    equal(Stream({"toolsListChanged": True}, api=api, token="rig-bob").refusal(), (503, -32603),
          "caps: of the process")
    open_ones.pop(0).leave()
    until(lambda: enters(api, open_ones), 5, "caps: a place is free again")
    api.signal(signal.SIGTERM)
    for stream in open_ones:
        stream.until(lambda s: s.closed, what="SIGTERM")
        check(stream.ended and stream.whole, "SIGTERM: ends with its result", stream.frames[-1:])
        stream.sound("SIGTERM")
        stream.leave()
    equal(api.popen.wait(15), 0, "SIGTERM: leaves")

    api = stack.another_api("api-life", listen_ms=700)
    for filters in ({"taskIds": [task_id]}, {"toolsListChanged": True}):
        opened = time.monotonic()
        stream = Stream(filters, api=api)
        stream.until(lambda s: s.whole, 15, "its time")
        check(stream.times[-1] - opened > 0.69, "its time: not before", (opened, stream.times))
        stream.sound("its time")
        stream.leave()
    api.terminate()


def enters(api, streams):
    stream = Stream({"toolsListChanged": True}, api=api)
    while not stream.acked:
        if stream.refusal(0.1)[0] is not None or stream.closed:
            return False
    streams.append(stream)
    return True


def slow_readers():
    """Much at once reaches who reads, in pieces; who does not is cut off and costs a bounded
    buffer."""
    pad = "x" * BIG_BYTES
    effects = rig.in_parallel(
        lambda _: new_task({"P1": [], "pad": pad}, tool="big")[1], list(range(BIG_TASKS)))
    client = stack.client()
    for task_id in effects:
        equal(client.wait(task_id).result["status"], "completed", "a big one runs")
    client.close()
    api = stack.another_api("api-slow", write_timeout_ms=5000)
    warm = Stream({"taskIds": effects[:1]}, api=api)
    warm.until(lambda s: s.whole, what="warm")
    warm.leave()
    before = resources(api)
    deaf = [Stream({"taskIds": effects}, api=api, narrow=True) for _ in range(8)]
    keen = Stream({"taskIds": effects}, api=api)
    keen.until(lambda s: s.whole, 40, "a reader gets all of it")
    equal({p["taskId"] for p in keen.told() if p["status"] == "completed"}, set(effects),
          "a reader: each task")
    check(all(len(p["result"]["structuredContent"]["plan"]) > BIG_BYTES for p in keen.told()),
          "a reader: each result whole")
    equal(len(keen.told()), BIG_TASKS, "a reader: each once")
    keen.sound("a reader")
    keen.leave()
    until(lambda: resources(api)[0] <= before[0], 20, "who does not read is cut off")
    for stream in deaf:
        stream.leave()
    grown = rig.memory_kib(api.pid, "VmHWM") - before[1]
    counts["slow_peak_kb"] = grown
    # Nine times 12 MB are asked for. Each may hold one result over its bound, and what the store
    # brings at once is bounded, too.
    check(grown < 40_000, "slow readers: a bounded buffer", grown)
    check(api.alive(), "slow readers: it lives")
    api.terminate()


def many():
    """200 at once: each hears all; what they cost the store while nothing changes; then they hang
    up, and nothing of them is left."""
    api = stack.apis[1]
    effect_id, task_id = new_task(GATED)
    stack.at_gate(effect_id, "in")
    before = resources(api)
    streams = [Stream({"taskIds": [task_id]}, api=api, ident=n) for n in range(MANY)]
    for stream in streams:
        stream.until(lambda s: s.told(task_id), 20, "many: the state")
    looks = looks_per_s(4)
    counts["looks_per_s"] = round(looks, 1)
    check(1 <= looks <= 3, "many: two looks a second while nothing changes", looks)
    stack.open_gate(effect_id, "in")
    for stream in streams:
        stream.until(lambda s: s.whole, 20, "many: the end")
        equal(stream.statuses(task_id)[-1], "completed", "many: completed")
        counts["many"] += 1
    first = min(stream.times[-1] for stream in streams)
    counts["spread_ms"] = round(1000 * (max(stream.times[-1] for stream in streams) - first))
    for stream in streams:
        stream.leave()
    until(lambda: resources(api)[0] <= before[0], 10, "many: descriptors are free")

    effect_id, task_id = new_task(GATED)
    sizes = []
    for _ in range(ROUNDS):
        streams = [Stream({"taskIds": [task_id], "toolsListChanged": True}, api=api, ident=n)
                   for n in range(MANY)]
        for n, stream in enumerate(streams):
            if n % 4:  # some leave before the first frame
                stream.until(lambda s: s.acked, 20, "leaving: ack")
            stream.leave(("fin", "half", "reset")[n % 3])
            counts["left"] += 1
        until(lambda: resources(api)[0] <= before[0], 10, "leaving: descriptors are free")
        for stream in streams:
            stream.socket.close()
        sizes.append(resources(api)[1])
    # At first the allocator takes its share.
    counts["left_grown_kb"] = sizes[-1] - sizes[ROUNDS // 2]
    check(counts["left_grown_kb"] < 1000, "leaving: no growth", sizes)


def one_look_for_all():
    """However many streams follow a task, its row is read once a tick; no row, for an ID that no task
    can have yet."""
    port = rig.free_port()
    api = stack.another_api("api-rows", metrics_listen=f"127.0.0.1:{port}")

    def rows():
        return rig.metric_of(port, "store_rows_total")['act="poll"']

    effect_id, task_id = new_task(GATED)
    stack.at_gate(effect_id, "in")
    streams = [Stream({"taskIds": [task_id]}, api=api, ident=n) for n in range(20)]
    for stream in streams:
        stream.until(lambda s: s.told(task_id), 20, "rows: the state")
    before, began = rows(), time.monotonic()
    time.sleep(3)
    looks, seconds = rows() - before, time.monotonic() - began
    check(2 <= looks <= 4 * seconds, "rows: two ticks a second", (looks, seconds))
    streams.pop().leave()  # in the middle of whatever look
    stack.open_gate(effect_id, "in")
    for stream in streams:
        stream.until(lambda s: s.whole, 20, "rows: the end")
        equal(stream.statuses(task_id)[-1], "completed", "rows: all hear of it")

    until(lambda: rows() == rows(), 10, "rows: quiet")
    before = rows()
    head = rig.task_bytes(task_id)[:2]
    for years in (1, 50, 1000):
        ms = int((time.time() + years * 31_557_600) * 1000)
        ident = rig.task_text(head + ms.to_bytes(6, "big") + os.urandom(16))
        stream = Stream({"taskIds": [ident]}, api=api)
        stream.until(lambda s: s.whole, what="rows: of the future")
        equal(stream.told(ident), [], "rows: nothing is told of it")
        stream.sound("rows: of the future")
    equal(rows(), before, "rows: nor looked at")
    api.terminate()


def looks_per_s(seconds):
    """How often the store was asked for tasks, however many each time."""
    def asked():
        with stack.cluster.connect() as connection:
            # Backends tell their counts at the end of a statement, once a second at most.
            time.sleep(2)
            return connection.execute("SELECT calls FROM pg_stat_user_functions "
                                      "WHERE funcname = 'poll_task'").fetchone()[0]
    start, at = asked(), time.monotonic()
    time.sleep(seconds - 2)
    return (asked() - start) / (time.monotonic() - at)


def the_store_goes_away():
    """Open streams ride over it; who asks meanwhile is told to come back."""
    effect_id, task_id = new_task(GATED)
    stream = Stream({"taskIds": [task_id], "toolsListChanged": True})
    stream.until(lambda s: s.told(task_id), what="store: before")
    stack.at_gate(effect_id, "in")
    stack.cluster.stop()
    stack.open_gate(effect_id, "in")
    equal(Stream({"taskIds": [task_id]}).refusal(15), (503, -32603), "store: away")
    stack.cluster.start()
    stream.until(lambda s: "completed" in s.statuses(task_id), 40, "store: after")
    check(not stream.closed, "store: rode over it")
    stream.sound("store")
    stream.leave()


def main():
    quiet = Stream({"toolsListChanged": True})
    quiet.until(lambda s: s.acked, what="quiet")
    opened = time.monotonic()
    honoured()
    as_get_says()
    changes()
    nothing_is_lost()
    a_worker_dies()
    refusals()
    caps_and_life()
    slow_readers()
    many()
    one_look_for_all()
    quiet.until(lambda s: time.monotonic() > opened + PING_S + 1, 60, "quiet")
    heard = int((time.monotonic() - opened) / PING_S)
    check(abs(quiet.pings - heard) <= 1 and quiet.pings > 0, "quiet: comments",
          (quiet.pings, heard))
    quiet.leave()
    tools_change()
    the_store_goes_away()
    for api in stack.apis:
        check(api.alive(), f"{api.name} lives")
        equal(api.terminate(), 0, f"{api.name} leaves")
    rig.finish("listen", counts, {"streams": 3000, "many": MANY, "left": ROUNDS * MANY, "kills": 2,
                                  "ended": 25})


main()
