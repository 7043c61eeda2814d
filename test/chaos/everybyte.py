"""F17: the client is gone at every byte of its request and of its answer, by FIN and by RST, for
requests of every kind. Afterwards the API processes have no more files open and no more memory than
before, one effect ID is still one task with one effect, and whoever comes back has his result.
tools/call that begins a task, of both kinds of client, is swept by test/system/test_experiment_2.py
in the same way; here is what else there is to ask."""

import collections
import itertools
import json
import os
import socket
import time

import rig
import world
from checker import Checker
from load import Caller, Journal, Task
from settler import Operator

PROCESSES = 2
THREADS = 6
WAYS = ("fin", "rst")
FDS_MORE_MAX = 8
RSS_MORE_KIB_MAX = 8 << 10
WARM_UP = 40            # of each kind, before anything is measured


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class EveryByte:
    def __init__(self, seed):
        self.findings = world.Findings()
        self.seed = seed
        self.stack = world.World(self.findings)
        self.journal = Journal(self.stack.folder / "journal.jsonl", self.findings)
        self.caller = Caller(self.stack, self.journal, seed, 0)
        self.operator = Operator(self.stack, self.journal, self.findings, seed)
        self.numbers = itertools.count(1)

    def task(self, tool, **more):
        number = next(self.numbers)
        return self.journal.add(Task(tool, {"effect_id": f"every-{number}", "n": number, "ms": 0,
                                            "slow_ms": 0, **more}))

    def ended(self, tool):
        task = self.task(tool)
        while not task.over:
            self.caller.poll(task) if task.handle else self.caller.call(task)
        return task

    # --- the requests ---

    def post(self, body, method=None, name=None, **more):
        headers = rig.Client(self.stack.apis[0].port).headers(method or body["method"], name, more)
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        return rig.request_bytes(headers, data)

    def message(self, method, declare=True, **params):
        return {"jsonrpc": "2.0", "id": 1, "method": method,
                "params": {**params, "_meta": rig.meta(declare)}}

    def call(self, task, declare=True, **more):
        arguments = task.arguments | more
        return self.post(self.message("tools/call", declare, name=task.tool, arguments=arguments),
                         name=task.tool)

    def about(self, method, handle):
        return self.post(self.message(method, taskId=handle), name=handle)

    def companion(self, name, task):
        return self.post(self.message("tools/call", False, name=name,
                                      arguments={"task_id": task.handle}), name=name)

    def kinds(self):
        """Name -> bytes. None of them begins a task that is not there."""
        done, error = self.ended("chaos_three"), self.ended("chaos_error")
        open_task = self.task("chaos_cancel", slow_ms=600_000)
        while open_task.handle is None:
            self.caller.call(open_task)
        self.open_task = open_task
        self.known = (done, error)
        get = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        chunked = self.call(done).replace(b"Content-Length", b"X-Length").replace(
            b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n", 1)
        head, _, body = chunked.partition(b"\r\n\r\n")
        chunked = head + b"\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
        return {
            "repeat of an ended task": self.call(done),
            "repeat in chunks": chunked,
            "repeat of an error": self.call(error),
            "repeat of an open task": self.call(open_task),
            "plain repeat": self.call(done, declare=False),
            "plain repeat of an error": self.call(error, declare=False),
            "other arguments": self.call(done, n=-1),
            "get, ended": self.about("tasks/get", done.handle),
            "get, open": self.about("tasks/get", open_task.handle),
            "get, unknown": self.about("tasks/get", done.handle[:-4] + "AAAA"),
            "cancel, ended": self.about("tasks/cancel", done.handle),
            "task_status": self.companion("task_status", done),
            "task_result": self.companion("task_result", done),
            "tools/list": self.post(self.message("tools/list")),
            "discover": self.post(self.message("server/discover")),
            "no such method": self.post(self.message("no/such")),
            "no such tool": self.post(self.message("tools/call", name="none", arguments={}),
                                      name="none"),
            "no JSON": self.post(b'{"jsonrpc": "2.0", "id": 1, "method"', method="tools/list"),
            "not known": self.post(self.message("tools/list"), Authorization="Bearer nobody"),
            "healthz": get.format("/healthz").encode(),
            "readyz": get.format("/readyz").encode(),
        }

    # --- the cuts ---

    def cuts(self, kinds):
        """(kind, way, bytes sent, bytes read) for every byte."""
        for name, data in kinds.items():
            # Alive, it takes all and answers all.
            answer = rig.raw_exchange(self.stack.apis[0].port, data, seconds=10)
            self.lengths[name] = len(data), len(answer)
            if not answer.startswith(b"HTTP/1.1 "):
                self.findings.add("wire", f"{name} has no answer", answer=answer)
            for way in WAYS:
                yield from ((name, way, sent, 0) for sent in range(len(data) + 1))
                yield from ((name, way, len(data), read) for read in range(1, len(answer) + 1))

    def cut(self, port, data, way, sent, read):
        """Whether it went as it was meant: so much was read, or all there was. What is open reads
        shorter for a moment whenever a worker takes it up again."""
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
            if way == "rst":
                rig.reset_when_closed(peer)
            peer.sendall(data[:sent])
            got = b""
            while len(got) < read and not rig.complete(got) and (part := peer.recv(read - len(got))):
                got += part
            return len(got) == read or rig.complete(got)

    def some(self, kinds, cuts):
        """In a process of its own, by some threads; how many there were, and how many fell short."""
        ports = [api.port for api in self.stack.apis]
        counts = collections.Counter()

        def share(start):
            for number, (name, way, sent, read) in enumerate(cuts[start::THREADS]):
                whole = self.cut(ports[number % len(ports)], kinds[name], way, sent, read)
                counts["cuts" if whole else "short"] += 1

        rig.in_parallel(share, list(range(THREADS)))
        return counts

    def sweep(self, kinds, cuts):
        """Forked, as one interpreter has one thread at a time."""
        children = []
        for number in range(PROCESSES):
            here, there = os.pipe()
            pid = os.fork()
            if pid == 0:
                counts = collections.Counter(failed=1)
                try:
                    counts = self.some(kinds, cuts[number::PROCESSES])
                except BaseException as error:  # noqa: BLE001 - told, and the child ends here
                    print(f"note: {error!r}", flush=True)
                os.write(there, json.dumps(counts).encode())
                os._exit(0)
            os.close(there)
            children.append((pid, here))
        counts = collections.Counter()
        for pid, here in children:
            with os.fdopen(here, "rb") as pipe:
                counts.update(json.loads(pipe.read() or '{"failed": 1}'))
            os.waitpid(pid, 0)
        return counts

    # --- before and after ---

    def measure(self):
        return {api.name: (fds(api.pid), rig.memory_kib(api.pid)) for api in self.stack.apis}

    def settle_down(self, before):
        """What was closed is noticed within a moment."""
        end = time.monotonic() + 20
        now = self.measure()
        while time.monotonic() < end and any(now[name][0] > before[name][0] + FDS_MORE_MAX
                                             for name in now):
            time.sleep(0.1)
            now = self.measure()
        return now

    def run(self):
        began = time.monotonic()
        self.lengths = {}
        self.operator.start()
        kinds = self.kinds()
        cuts = list(self.cuts(kinds))
        world.dice(self.seed, "every byte").shuffle(cuts)
        self.sweep(kinds, cuts[:WARM_UP * len(kinds)])
        time.sleep(0.5)
        pids = [api.pid for api in self.stack.apis]
        before = self.measure()
        counts = self.sweep(kinds, cuts)
        after = self.settle_down(before)
        if pids != [api.pid for api in self.stack.apis if api.alive()]:
            self.findings.add("alive", "an API process ended")
        for name, (files, kib) in after.items():
            if files > before[name][0] + FDS_MORE_MAX:
                self.findings.add("growth", f"{name} has {files} files open, had {before[name][0]}")
            if kib > before[name][1] + RSS_MORE_KIB_MAX:
                self.findings.add("growth", f"{name} has {kib} KiB, had {before[name][1]}")
        if counts["short"] or counts["failed"]:
            self.findings.add("wire", "answers fell short", counts=dict(counts))
        self.come_back(kinds)
        checked = self.check()
        self.stack.stop()
        return {"test": "chaos_every_byte", "passed": counts["cuts"], "failed": len(self.findings),
                "seed": self.seed, "kinds": len(kinds), "cuts": counts["cuts"],
                "bytes": self.lengths, "files": {n: [before[n][0], after[n][0]] for n in after},
                "rss_kib": {n: [before[n][1], after[n][1]] for n in after}, "counts": checked,
                "seconds": round(time.monotonic() - began, 1),
                "violations": self.findings.items, "unhit": []}

    def come_back(self, kinds):
        """The same requests, whole: the same tasks, the same results."""
        for task in self.known:
            self.caller.call(task, "repeat")
            self.caller.poll(task)
        while not self.open_task.cancelled:
            self.caller.cancel(self.open_task)
        end = time.monotonic() + 20
        while not self.open_task.over and time.monotonic() < end:
            self.caller.poll(self.open_task)
        for name, data in kinds.items():
            if not rig.raw_exchange(self.stack.apis[1].port, data, 10).startswith(b"HTTP/1.1 "):
                self.findings.add("wire", f"{name} has no answer any more")

    def check(self):
        self.operator.stopping = True
        self.operator.join(20)
        tasks = self.stack.query("SELECT count(*) FROM holdfast.task")[0][0]
        if tasks != len(self.journal.tasks):
            self.findings.add("V1", f"{tasks} tasks of {len(self.journal.tasks)} effect IDs")
        checker = Checker(self.stack, self.journal, self.findings, self.operator)
        checker.read()
        checker.oracle()
        checker.one_task_an_effect()
        checker.effects()
        checker.logs()
        self.journal.file.close()
        return dict(checker.counts)


def run(seed):
    return EveryByte(seed).run()
