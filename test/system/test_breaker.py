#!/usr/bin/python3
"""The breaker: a downstream that is down, with hundreds of tasks waiting for it, is asked a bounded
number of times; nothing is spent meanwhile, `task why` says so, its neighbour is served; and once it
is back all of them complete, each once, in a bounded time."""

import collections
import http.server
import json
import re
import threading
import time

import rig
from patience import soon
from rig import check, equal, until

TASKS, MAILS, HEALTHY = 200, 40, 20
WORKERS, SLOTS = 2, 8
FAILURES, PAUSE_MS, PAUSE_MAX_MS = 5, 300, 1_000
DOWN_S = 6
BACK_S = 30  # pauses of a second at most; the rest is the work of a loaded machine
counts = {"tasks": 0, "healthy": 0, "requests_while_down": 0, "opens": 0}


class Sick(http.server.ThreadingHTTPServer):
    """Stands where the downstream was: counts who asks, answers 503, and cuts off who sends mail."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port):
        self.lock, self.asked = threading.Lock(), collections.Counter()
        super().__init__(("127.0.0.1", port), SickHandler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def end(self):
        self.shutdown()
        self.server_close()


class SickHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # noqa: N802 - the name that the base class wants
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            self.server.asked[f"{self.command} {self.path.partition('?')[0]}"] += 1
        self.close_connection = True
        if self.path != "/send":
            self.send_response(503, "Sick")
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_GET = do_POST

    def log_message(self, *_):
        pass


class Stack(rig.Stack):
    """With a second downstream, and workers that tell their numbers."""

    def write_files(self):
        super().write_files()
        self.other_port = rig.free_port()
        self.metrics = {}
        self.write("conf.json", json.dumps({"ledger": self.downstream_url,
                                            "mail": self.downstream_url,
                                            "other": f"http://127.0.0.1:{self.other_port}"}))

    def start_downstream(self):
        self.start("other", [rig.sys.executable, rig.DOWNSTREAM, "--listen",
                             f"127.0.0.1:{self.other_port}", "--dir", self.folder / "other"])
        return super().start_downstream()

    def start_worker(self, name):
        self.metrics[name] = rig.free_port()
        self.settings["worker"]["metrics_listen"] = f"127.0.0.1:{self.metrics[name]}"
        return super().start_worker(name)

    def numbers(self, metric):
        """Of all workers: label -> sum."""
        sums = collections.Counter()
        for port in self.metrics.values():
            sums.update(rig.metric_of(port, metric))
        return sums


def other_tool():
    folder = rig.http_tool("other")
    manifest = (folder / "tool.json").read_text().replace("{/conf/ledger}", "{/conf/other}")
    (folder / "tool.json").write_text(manifest)
    return folder


def mail_tool():
    """Its lookup phase alone."""
    folder = rig.http_tool("mail", mail=True)
    manifest = json.loads((folder / "tool.json").read_text())
    manifest["phases"] = manifest["phases"][1:]
    manifest["result"] = {"text": "sent"}
    (folder / "tool.json").write_text(json.dumps(manifest))
    return folder


stack = Stack(workers=WORKERS, tools=[rig.http_tool(), other_tool(), mail_tool()],
              settings={"worker": {"slots": SLOTS, "poll_ms": 100, "beat_ms": 500,
                                   "breaker_failures": FAILURES, "breaker_pause_ms": PAUSE_MS,
                                   "breaker_pause_max_ms": PAUSE_MAX_MS},
                        "maintain": {"maintain_ms": 100}})
HOST = f"127.0.0.1:{stack.downstream_port}"


def begin(tool, count):
    def one(number):
        client = stack.client()
        answer = client.call(tool, {"effect_id": rig.new_id(f"{tool}-{number}")})
        client.close()
        check(answer.handle, "a handle", repr(answer))
        return answer.task_id

    return [task for part in range(0, count, 20)
            for task in rig.in_parallel(one, list(range(part, min(part + 20, count))))]


def why_of_one():
    """What `task why` says of a task that waits for the breaker."""
    rows = stack.query("SELECT task FROM holdfast.work WHERE state = 'scheduled' "
                       "AND strpos(message, 'breaker open') > 0 ORDER BY due DESC LIMIT 1")
    if not rows:
        return None
    done = stack.command("task", "why", rig.task_text(rows[0][0]), check_code=None)
    return done.stdout if "breaker open" in done.stdout else None


def while_down(sick, began):
    said = until(why_of_one, 20, "a task says that it waits for the breaker", 0.1) or ""
    check(re.search(rf"not sent: breaker open: {HOST}, probe in \d+ s", said), "task why", said)
    check("last: 503 Sick" in said or "last: " in said, "task why: the last answer", said)
    until(lambda: stack.numbers("breaker_open").get(f'host="{HOST}"'), 20, "the gauge says so", 0.05)
    client = stack.client()
    for _ in range(HEALTHY):
        asked = time.monotonic()
        _, end = client.run("other", {"effect_id": rig.new_id("healthy")})
        equal(end.result["status"], "completed", "the neighbour is served")
        soon(asked, 5, "and soon")
        counts["healthy"] += 1
    time.sleep(max(0, began + DOWN_S - time.monotonic()))
    down_s = time.monotonic() - began
    asked = sum(sick.asked.values())
    # Of each worker: what was on its way when the breaker learned of it, and one a pause.
    most = WORKERS * (FAILURES + SLOTS + down_s * 1000 / PAUSE_MS + 1)
    least = WORKERS * (FAILURES + 1)
    check(least <= asked <= most, "requests while it was down", (dict(sick.asked), most, down_s))
    counts["requests_while_down"] = asked
    return asked


def nothing_is_spent(asked):
    """An attempt is a request that was made: what was not sent cost none."""
    spent, open_tasks = stack.query("SELECT coalesce(sum(attempt), 0), count(*) FROM holdfast.work "
                                    "WHERE state <> 'running'")[0]
    check(spent <= asked + WORKERS * SLOTS, "attempts spent", (spent, asked))
    check(open_tasks >= TASKS + MAILS - WORKERS * SLOTS, "all of them wait", open_tasks)
    bad = stack.query("SELECT count(*) FROM holdfast.work WHERE state = 'unknown'")
    equal(bad, [(0,)], "none is unknown")


def outage():
    stack.downstream.kill()
    sick = Sick(stack.downstream_port)
    began = time.monotonic()
    tasks = begin("deliver", TASKS) + begin("mail", MAILS)
    nothing_is_spent(while_down(sick, began))
    opens = stack.numbers("breaker_opens_total")
    counts["opens"] = int(sum(opens.values()))
    check(opens['because="row"'] >= WORKERS, "each worker's opened", dict(opens))
    check(opens['because="probe"'] >= WORKERS, "and stayed open after probes", dict(opens))
    check(stack.numbers("downstream_calls_total")['fate="breaker"'] > 0, "calls that stayed at home")
    sick.end()
    back = time.monotonic()
    stack.downstream.start()
    client = stack.client()
    for task in tasks:
        if equal(client.wait(task, BACK_S + 30).result["status"], "completed", "after the outage"):
            counts["tasks"] += 1
    took = time.monotonic() - back
    soon(back, BACK_S, "all are done soon after it is back")
    print(f"down {back - began:.1f} s, {counts['requests_while_down']} requests of {len(tasks)} "
          f"tasks; done {took:.1f} s after", flush=True)
    equal(sorted(collections.Counter(stack.effects_by_id().values()).items()), [(1, TASKS)],
          "one effect each")
    equal(sorted(collections.Counter(stack.effects_by_id("/send").values()).items()), [(1, MAILS)],
          "one mail each")


outage()
until(lambda: not stack.numbers("breaker_open"), 20, "the gauge is away", 0.1)
logs = "".join(worker.log() for worker in stack.workers)
check('"msg":"breaker opens"' in logs and '"msg":"breaker closes"' in logs, "both are logged")
rig.finish("breaker", counts, {"tasks": TASKS + MAILS, "healthy": HEALTHY, "opens": 2 * WORKERS,
                               "requests_while_down": 2 * FAILURES})
