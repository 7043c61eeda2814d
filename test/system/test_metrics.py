#!/usr/bin/python3
"""Metrics (V10): each role exposes what the table says, in a format that a strict
parser takes; counters move with what happened; /readyz flips when Postgres goes and the listener
answers all the while; odd, large and slow requests are refused and bounded; the alerts name what there is."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import rig
from patience import soon
from rig import check, equal, until

HEAD_BYTES_MAX, CONNECTIONS_MAX, HEAD_S = 4096, 16, 5
COUNT_EVERY_S = 5
counts = {"scrapes": 0, "series": 0, "names": 0, "odd": 0, "outages": 0, "missed": 0}

# --- the table and the format ---------------------------------------------------------------------

DEF = (rig.ROOT / "runtime" / "metrics.def").read_text()
TABLE = {"holdfast_" + name: {"kind": kind.lower(), "unit": unit, "roles": roles, "label": label,
                              "values": values.split()}
         for name, kind, unit, roles, label, values in re.findall(
             r'^METRIC\((\w+), (COUNTER|GAUGE), (ONE|MS), "(\w+)", "(\w*)", "([^"]*)", ".+"\)$',
             DEF, re.M)}
equal(len(TABLE), DEF.count("\nMETRIC("), "every row of the table was read")
SERIES = re.compile(r'(holdfast_[a-z0-9_]+)(?:\{([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"\})? '
                    r'(-?[0-9]+(?:\.[0-9]{3})?)')


class Broken(Exception):
    pass


def parse(text, role):
    """{(name, label value): number}; raises where the text is not the format or not the table."""
    series, helped, typed, current = {}, set(), {}, None
    if not text.endswith("\n"):
        raise Broken("no line feed at the end")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, about = line[7:].partition(" ")
            if name in helped or not about or re.search(r"\\(?![\\n])", about):
                raise Broken(line)
            helped.add(name)
            current = name
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            if name in typed or name != current or kind != TABLE[name]["kind"]:
                raise Broken(line)
            typed[name] = kind
        else:
            whole = SERIES.fullmatch(line)
            if not whole or whole[1] != current or current not in typed:
                raise Broken(line)
            row, key = TABLE[current], (current, whole[3] or "")
            if key in series or (whole[2] or "") != row["label"]:
                raise Broken(line)
            if ("." in whole[4]) != (row["unit"] == "MS"):
                raise Broken(line)
            series[key] = float(whole[4])
    wanted = {name for name, row in TABLE.items() if role in row["roles"]}
    if helped != wanted or set(typed) != wanted:
        raise Broken(f"names: {sorted(helped ^ wanted)}")
    return series


class Watched:
    """One process and what its listener said so far: counters may only rise."""

    def __init__(self, process, port, role):
        self.process, self.port, self.role = process, port, role
        self.last, self.seen = {}, set()

    def get(self, path):
        """(status, body)."""
        status, body = rig.http_ask(self.port, path)
        return status, body.decode()

    def ready(self):
        return self.get("/readyz")[0] == 200

    def scrape(self):
        began = time.monotonic()
        status, text = self.get("/metrics")
        if not equal(status, 200, f"{self.process.name}: /metrics"):
            return {}
        soon(began, 2, f"{self.process.name}: a scrape is quick")
        try:
            now = parse(text, self.role)
        except (Broken, KeyError, ValueError) as error:
            check(False, f"{self.process.name}: the format", repr(error))
            return {}
        counts["scrapes"] += 1
        counts["series"] += len(now)
        for key, number in now.items():
            if TABLE[key[0]]["kind"] == "counter" and number < self.last.get(key, 0):
                check(False, f"{self.process.name}: {key} fell", [self.last[key], number])
        self.last = now
        self.seen |= {name for name, _ in now}
        return now

    def value(self, name, label=""):
        return self.scrape().get(("holdfast_" + name, label))

    def until(self, name, label, holds, seconds=20):
        return until(lambda: (lambda v: v is not None and holds(v))(self.value(name, label)),
                     seconds, f"{self.process.name}: {name}{{{label}}}", pause=0.1)

    def rises(self, name, label=""):
        """A function that says by how much it rose since."""
        before = self.value(name, label) or 0
        return lambda: (self.value(name, label) or 0) - before


# --- the stack ------------------------------------------------------------------------------------

ports = {role: rig.free_port() for role in ("api", "worker", "maintain")}
beats = {"beat_ms": 200}
stack = rig.Stack(
    apis=1, workers=1, tools=[rig.http_tool(mail=True), rig.probe_tool(), "build_report"],
    settings={"api": {**beats, "metrics_listen": f"127.0.0.1:{ports['api']}"},
              "worker": {**beats, "lease_ms": 4000, "metrics_listen": f"127.0.0.1:{ports['worker']}"},
              "maintain": {"lease_ms": 4000, "maintain_ms": 100,
                           "metrics_listen": f"127.0.0.1:{ports['maintain']}"}})
api = Watched(stack.apis[0], ports["api"], "a")
worker = Watched(stack.workers[0], ports["worker"], "w")
maintain = Watched(stack.maintains[0], ports["maintain"], "m")
everyone = (api, worker, maintain)
client = stack.client()


def new_id():
    return rig.new_id("metrics")


def alerts_name_what_there_is():
    """In deploy/OPERATING.md, with a label where there is one."""
    text = (rig.ROOT / "deploy" / "OPERATING.md").read_text()
    used = re.findall(r"\b(holdfast_[a-z_]+)\b(?:\{([a-z_]+)=\"([a-z_]+)\"\})?",
                      text.partition("\n## What to watch")[2].partition("\n## ")[0])
    check(len(used) >= 15, "there are alerts", used)
    equal({name for name, _, _ in used} - set(TABLE), set(), "no alert is of no metric")
    for name, label, value in used:
        row = TABLE.get(name, {"label": "", "values": []})
        check(not label or (label == row["label"] and value in (row["values"] or [value])),
              "its label and value are there", (name, label, value))


def calls():
    moved = {word: api.rises("calls_total", word) for word in ("new", "same", "conflict")}
    refused = {word: api.rises("calls_refused_total", word) for word in (
        "effect_id_required", "effect_id_invalid", "effect_id_ambiguous", "invalid_arguments",
        "unknown_tool", "nul_in_string")}
    ended = worker.rises("tasks_ended_total", "completed")
    claimed = worker.rises("tasks_claimed_total")
    done = worker.rises("phases_total", "done")
    sent = worker.rises("downstream_calls_total", "answered")
    rows = {act: api.rises("store_rows_total", act) for act in ("accept", "poll", "cancel")}
    first = new_id()
    client.run("deliver", {"effect_id": first})
    client.call("deliver", {"effect_id": first})
    client.call("deliver", {"effect_id": first, "n": 2})
    client.run("build_report", {"effect_id": new_id(), "month": "2015-09"})
    client.call("deliver", {})
    client.call("deliver", {"effect_id": "a b"})
    client.call("deliver", {"effect_id": "a"}, idempotencyKey="b")
    client.call("deliver", {"effect_id": "a", "what": 1})
    client.call("no_such_tool", {"effect_id": "a"})
    client.call("deliver", {"effect_id": "a", "opt": "\0"})
    client.cancel(client.call("deliver", {"effect_id": first}).task_id)
    equal({word: rose() for word, rose in moved.items()}, {"new": 2, "same": 2, "conflict": 1},
          "calls_total")
    equal({word: rose() for word, rose in refused.items()}, dict.fromkeys(refused, 1),
          "calls_refused_total")
    equal((claimed(), ended()), (2, 2), "tasks claimed and ended")
    check(done() >= 4, "phases done", done())
    check(sent() >= 3, "downstream answered", sent())
    equal(rows["accept"](), 5, "rows of accept")
    check(rows["poll"]() >= 2, "rows of poll", rows["poll"]())
    equal(rows["cancel"](), 1, "rows of cancel")
    check(worker.value("versions_served") == 3, "versions served", worker.value("versions_served"))
    check(api.value("http_answers_total", "2xx") > 5, "answers are counted")
    check(worker.value("downstream_answers_total", "2xx") >= 3, "by their class")
    equal(api.value("bound_limit", "connections"), 2000, "a bound")
    check(api.value("bound_used", "connections") >= 1, "and its use")
    equal(worker.value("bound_limit", "slots"), 32, "another")


def troubles():
    """A lost answer, a failed task, a released one, a program's host, a crash."""
    lost = worker.rises("downstream_calls_total", "no_answer")
    retried = worker.rises("tasks_released_total", "retry")
    budget = worker.value("bound_used", "retry_budget")
    equal(budget, 0, "no repeat was needed yet")
    stack.steer(lose_answers=1)
    client.run("deliver", {"effect_id": new_id()})
    equal((lost(), retried()), (1, 1), "a lost answer and its retry")
    failed = worker.rises("tasks_ended_total", "failed")
    started = worker.rises("hosts_started_total")
    crashed = worker.rises("phases_total", "crashed")
    effect_id = new_id()
    plan = json.dumps({"P1": [{"gate": "in"}], "P2": [], "P3": []})
    task = client.call("probe", {"effect_id": effect_id, "plan": plan}).task_id
    line = stack.at_gate(effect_id, "in")
    equal(worker.value("bound_used", "slots"), 1, "a slot is used")
    maintain.until("tasks_open", "running", lambda n: n == 1, 3 * COUNT_EVERY_S)
    os.kill(line["pid"], signal.SIGKILL)
    stack.open_gate(effect_id, "in")
    client.wait(task)
    check(crashed() >= 1 and started() >= 2, "a crash and new hosts", [crashed(), started()])
    equal(failed(), 0, "nothing failed")
    until(lambda: worker.value("bound_used", "slots") == 0, 10, "the slot is free again")


def plain():
    ended, gone, parked = (api.rises("plain_calls_total", "outcome"),
                           api.rises("plain_calls_total", "gone"), api.rises("parked_total"))
    answer = client.call("deliver", {"effect_id": new_id()}, declare=False)
    equal(answer.status, 200, "a plain call")
    equal(ended(), 1, "ended with its outcome")
    effect_id = new_id()
    with socket.create_connection(("127.0.0.1", stack.apis[0].port)) as caller:
        caller.sendall(client.call_bytes("probe", {
            "effect_id": effect_id, "plan": json.dumps({"P1": [{"gate": "in"}]})},
            _meta=rig.meta(False)))
        stack.at_gate(effect_id, "in")
        api.until("streams_open", "", lambda n: n == 1)
        equal(api.value("plain_calls_open"), 1, "it waits")
        equal(api.value("bound_used", "plain_calls_per_principal"), 1, "and counts for its owner")
    until(lambda: parked() == 1, 10, "its task is parked")
    equal((gone(), api.value("streams_open")), (1, 0), "its client is gone")
    maintain.until("tasks_open", "parked", lambda n: n == 1, 3 * COUNT_EVERY_S)
    task = stack.task_rows(effect_id)[0][0]
    stack.query("UPDATE holdfast.work SET due = now() - interval '1 hour' WHERE task = %s", (task,))
    maintain.until("maintained_total", "parked_expired", lambda n: n == 1)


def store_gauges():
    maintain.until("lease_held", "", lambda n: n == 1)  # the last one could not give it back
    maintain.until("weeks_ahead", "", lambda n: n == 5)
    for role in ("api", "worker"):
        maintain.until("incarnations", role, lambda n: n == 1)  # who beats
    equal(maintain.value("retention_stopped"), 0, "retention goes on")
    maintain.until("tasks_counted_age_seconds", "", lambda n: n < 2 * COUNT_EVERY_S)
    worker.process.signal(signal.SIGSTOP)
    stack.client().call("deliver", {"effect_id": new_id()})
    maintain.until("tasks_open", "ready", lambda n: n == 1, 3 * COUNT_EVERY_S)
    maintain.until("oldest_ready_seconds", "deliver", lambda n: n > 1, 3 * COUNT_EVERY_S)
    maintain.until("maintained_total", "declared_dead", lambda n: n >= 1)
    worker.process.signal(signal.SIGCONT)
    until(lambda: worker.value("incarnations_lost_total", "dead") +
          worker.value("incarnations_lost_total", "lease") >= 1, 20, "it has lost its incarnation")
    maintain.until("tasks_open", "ready", lambda n: n == 0, 20)


def many_rows():
    """The count of a table of many pages is made in parts, and is whole in the end."""
    rows = 60_000
    stack.query("""INSERT INTO holdfast.work (task, week, owner, queue, state, due, deadline, updated,
        message) SELECT decode('ff' || lpad(to_hex(n), 46, '0'), 'hex'), 1, 1, 1, 'paused',
        now() + interval '1 day', now() + interval '1 day', now(), repeat('x', 300)
        FROM generate_series(1, %s) n""", (rows,))
    pages = stack.query("SELECT pg_relation_size('holdfast.work') / 8192")[0][0]
    check(pages > 4000, "more pages than two looks", pages)
    maintain.until("tasks_open", "paused", lambda n: n == rows, 60)
    began = time.monotonic()
    page = stack.query("SELECT number FROM holdfast.count_work(0, 2000) WHERE state IS NULL")
    equal(page[0][0], 2000, "it goes on from there")
    soon(began, 2, "a look at 2,000 pages is quick")
    plan = stack.query("""EXPLAIN SELECT state, count(*) FROM holdfast.work
        WHERE ctid >= '(0,0)'::tid AND ctid < '(2000,0)'::tid GROUP BY state""")
    check("Tid Range Scan" in str(plan), "and reads no more than those", plan)
    stack.query("DELETE FROM holdfast.work WHERE state = 'paused'")


def turning():
    """maintain answers while a statement of its own waits, and ends on SIGTERM even then."""
    backend = stack.query("SELECT pid FROM pg_stat_activity WHERE application_name = "
                          "'holdfast maintain'")[0][0]
    os.kill(backend, signal.SIGSTOP)
    try:
        until(lambda: (maintain.value("round_age_seconds") or 0) > 1, 10, "its round stands")
        for _ in range(5):
            began = time.monotonic()
            equal(maintain.get("/healthz")[0], 200, "it answers meanwhile")
            soon(began, 1, "and at once")
        until(lambda: "no round in time" in maintain.get("/readyz")[1], 15, "and says so")
        began = time.monotonic()
        maintain.process.signal(signal.SIGTERM)
        try:
            code = maintain.process.popen.wait(15)
        except subprocess.TimeoutExpired:
            code = None
        equal(code, 0, "SIGTERM ends it")
        soon(began, 8, "soon")
    finally:
        os.kill(backend, signal.SIGCONT)
    maintain.process.start()
    maintain.last = {}
    until(maintain.ready, 20, "it is back")


def outage():
    resent = {seen: seen.rises("store_resent_total", "beat") for seen in (api, worker)}
    connects = {seen: seen.rises("store_connects_total", lane) for seen, lane in
                ((api, "write"), (worker, "read"), (maintain, "maintain"))}
    for seen in everyone:
        check(until(seen.ready, 20, f"{seen.process.name} ready"), "ready before")
        equal(seen.value("ready"), 1, "and says so")
    with stack.cluster.connect(autocommit=False) as blocker:
        blocker.execute("LOCK TABLE holdfast.worker IN ACCESS EXCLUSIVE MODE")
        for seen in (api, worker):
            seen.until("beat_age_seconds", "", lambda n: n > 1)  # one is in flight
        stack.cluster.stop()
        blocker.close()
    counts["outages"] += 1
    for seen in everyone:
        until(lambda seen=seen: seen.get("/readyz")[0] == 503, 15, f"{seen.process.name} not ready")
        check("store away" in seen.get("/readyz")[1], "and why", seen.get("/readyz")[1])
    answer = client.call("deliver", {"effect_id": new_id()})
    equal(answer.status, 503, "a call is refused")
    check(api.value("calls_refused_total", "unavailable") >= 1, "and counted")
    end = time.monotonic() + 4
    while time.monotonic() < end:
        for seen in everyone:
            equal(seen.get("/healthz")[0], 200, "it lives")
            equal(seen.scrape().get(("holdfast_ready", "")), 0, "it is not ready")
        time.sleep(0.3)
    equal(api.value("store_connected", "write"), 0, "its connection is away")
    equal(maintain.value("lease_held"), 0, "nobody leads")
    equal([key for key in maintain.scrape() if key[0] in (
        "holdfast_tasks_open", "holdfast_weeks_ahead", "holdfast_incarnations")], [],
          "what is not known is not told")
    check(maintain.value("store_losses_total", "maintain") >= 1, "tries are counted")
    check(maintain.value("rounds_total", "failed") >= 1, "rounds too")
    stack.cluster.start()
    for seen in everyone:
        until(seen.ready, 30, f"{seen.process.name} ready again")
    for seen, rose in connects.items():
        equal(rose(), 1, f"{seen.process.name}: connected once more")
    for seen, rose in resent.items():
        check(rose() >= 1, f"{seen.process.name}: the beat in flight was sent again", rose())
    client.run("deliver", {"effect_id": new_id()})


# --- the listener ---------------------------------------------------------------------------------

def raw(port, data, seconds=10):
    """(status, head, body)."""
    got = rig.raw_exchange(port, data, seconds)
    parsed = rig.parse_raw(got)
    return parsed.status, parsed.headers, parsed.body


def request(line="GET /healthz HTTP/1.1", *headers, host="Host: localhost:1"):
    return "".join(f"{part}\r\n" for part in (line, *([host] if host else []), *headers)) + "\r\n"


def odd_requests():
    fits = HEAD_BYTES_MAX - len(request("GET /healthz HTTP/1.1", "X: "))
    rows = [
        (request(), 200), (request("HEAD /metrics HTTP/1.1"), 200),
        (request("GET /readyz?x=1 HTTP/1.0", host=None), 200),
        (request("GET /healthz HTTP/1.1", host="host:127.9.8.7:80"), 200),
        (request("GET /healthz HTTP/1.1", host="HOST: [::1]"), 200),
        (request("GET /healthz HTTP/1.1", "Content-Length: 0"), 200),
        (request("GET /healthz HTTP/1.1", "X: " + "y" * fits), 200),
        (request("GET /healthz HTTP/1.1", "X: " + "y" * (fits + 1)), 431),
        ("GET /" + "y" * 2 * HEAD_BYTES_MAX, 431),
        (request("GET / HTTP/1.1"), 404), (request("GET /metrics/ HTTP/1.1"), 404),
        (request("GET /mcp HTTP/1.1"), 404), (request("GET http://a/metrics HTTP/1.1"), 404),
        (request("POST /metrics HTTP/1.1"), 405), (request("get /metrics HTTP/1.1"), 405),
        (request("DELETE /metrics HTTP/1.1"), 405),
        (request("GET /healthz HTTP/1.1", "Content-Length: 1") + "x", 413),
        (request("GET /healthz HTTP/1.1", "Transfer-Encoding: chunked") + "0\r\n\r\n", 413),
        (request("GET /healthz HTTP/1.1", host=None), 400),
        (request("GET /healthz HTTP/1.1", "Host: localhost"), 400),
        (request("GET /healthz HTTP/1.1", "no colon"), 400),
        (request("GET /healthz HTTP/1.1", " folded: x"), 400),
        (request("GET /healthz HTTP/1.1", "a b: x"), 400),
        (request("GET /healthz HTTP/1.1", ": x"), 400),
        (request("GET /healthz HTTP/1.1", "X: a\0b"), 400),
        (request("GET /healthz HTTP/1.1", "X: a\rb"), 400),
        (request("GET /healthz HTTP/1.1", "X: a\nb"), 400),
        (request("GET  /healthz HTTP/1.1"), 400), (request("GET /healthz"), 400),
        (request("GET /a b HTTP/1.1"), 400), ("\r\n\r\n", 400), (request(" /healthz HTTP/1.1"), 400),
        (request("GET /healthz HTTP/2.0"), 505), ("PRI * HTTP/2.0\r\n\r\n", 505),
        (request("GET /healthz HTTP/1.1", host="Host: evil.example"), 421),
        (request("GET /healthz HTTP/1.1", host="Host: 127.0.0.1.evil.example"), 421),
        (request("GET /healthz HTTP/1.1", host="Host: localhost.evil.example:1"), 421),
        (request("GET /healthz HTTP/1.1", host="Host:"), 421),
        (request("GET /healthz HTTP/1.1", host="Host: 8.8.8.8"), 421),
    ]
    for seen in everyone:
        for data, status in rows:
            got, headers, body = raw(seen.port, data.encode("latin-1"))
            equal(got, status, f"{seen.process.name}: {data[:90]!r}")
            equal(headers.get("connection"), "close", "one request a connection")
            counts["odd"] += 1
        _, headers, body = raw(seen.port, request("HEAD /metrics HTTP/1.1").encode())
        check(int(headers["content-length"]) > 1000 and not body, "HEAD has no body", body[:80])
        _, headers, _ = raw(seen.port, request("GET /metrics HTTP/1.1").encode())
        equal(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8", "its type")
        # In pieces, and with more behind it than is wanted.
        with socket.create_connection(("127.0.0.1", seen.port), timeout=5) as caller:
            for byte in request().encode():
                caller.sendall(bytes([byte]))
            check(caller.recv(100).startswith(b"HTTP/1.1 200 "), "byte by byte")
        got, _, _ = raw(seen.port, request().encode() + b"x" * 20_000)
        equal(got, 200, "what follows is dropped")
    equal(stack.client().post(b"{}", {}, "/metrics").status, 404, "clients of the API see none of it")
    equal(rig.http_ask(stack.apis[0].port, "/metrics")[0], 404, "nor do they with GET")


def slow_requests():
    """More idle connections than there is room for, on each listener: scrapes go on; they end."""
    for seen in everyone:
        refused = seen.rises("bound_refused_total", "monitor_connections")
        idle = [socket.create_connection(("127.0.0.1", seen.port), timeout=HEAD_S + 10)
                for _ in range(3 * CONNECTIONS_MAX)]
        for caller in idle:
            try:
                caller.sendall(b"GET /metrics HTTP/1.1\r\nHost: local")
            except OSError:
                pass  # it made room already
        began = time.monotonic()
        equal(seen.get("/healthz")[0], 200, f"{seen.process.name}: answers beside them")
        used = seen.value("bound_used", "monitor_connections")
        check(used <= CONNECTIONS_MAX, "no more than there may be", used)
        check(refused() >= 2 * CONNECTIONS_MAX, "those who made room are counted", refused())
        answered = 0
        for caller in idle:
            try:
                answered += caller.recv(4096).startswith(b"HTTP/1.1 408 ")
                while caller.recv(4096):
                    pass
            except OSError:
                pass
            caller.close()
        check(answered >= 1, "the last are told why", answered)
        soon(began, HEAD_S + 4, "all end in time")
        until(lambda seen=seen: seen.value("bound_used", "monitor_connections") == 1, 10,
              f"{seen.process.name}: only the scrape is left")


def not_read():
    """Callers that do not take their answer, or reset, hold nothing up for long."""
    for seen in everyone:
        for _ in range(50):
            caller = socket.create_connection(("127.0.0.1", seen.port))
            caller.sendall(request("GET /metrics HTTP/1.1").encode())
            rig.reset_close(caller)
        equal(seen.get("/healthz")[0], 200, f"{seen.process.name} lives on")


def listeners():
    taken = stack.start_holdfast("maintain-2", "maintain")
    equal(taken.popen.wait(20), 1, "a port in use is refused")
    check("metrics_listen" in taken.log(), "and said so", taken.log())
    name, extra = "worker-quiet", rig.free_port()
    del stack.settings["worker"]["metrics_listen"]
    quiet = stack.start_worker(name)
    until(lambda: "worker started" in quiet.log(), 20, "a worker without a listener")
    sockets = subprocess.run(["sh", "-c", f"ls -l /proc/{quiet.pid}/fd"], capture_output=True,
                             text=True, check=False).stdout
    inodes = set(re.findall(r"socket:\[(\d+)\]", sockets))
    listening = {line.split()[9] for line in open("/proc/net/tcp", encoding="ascii")
                 if line.split()[3] == "0A"}
    equal(inodes & listening, set(), "it listens nowhere")
    equal(quiet.terminate(), 0, "and ends well")
    stack.settings["worker"]["metrics_listen"] = f"127.0.0.1:{extra}x"
    wrong = stack.start_worker("worker-wrong")
    equal(wrong.popen.wait(20), 2, "an address that is none is wrong use")


def missed_wakeups():
    """Rule 8's bug metric: 0 while wake-ups work, more when nobody sends them any longer."""
    equal(worker.value("missed_wakeups_total", "poll"), 0, "none was missed so far")
    before = worker.rises("missed_wakeups_total", "poll")
    [(body,)] = stack.query("SELECT pg_get_functiondef('holdfast.wake_async'::regproc)")
    stack.query(body.replace("pg_notify(", "coalesce("))
    for _ in range(12):
        time.sleep(1.3)  # the poll is slow again
        task = client.call("deliver", {"effect_id": new_id()}).task_id
        client.wait(task)
    counts["missed"] = int(before())
    stack.query(body)


def everything_was_seen():
    for seen in everyone:
        seen.scrape()
        wanted = {name for name, row in TABLE.items() if seen.role in row["roles"]}
        # What nothing has happened for has no series where its label's values come as they occur.
        equal(wanted - seen.seen - {"holdfast_tasks_failed_total", "holdfast_breaker_open"}, set(),
              f"{seen.process.name} exposed all of its names")
        counts["names"] += len(wanted)
        equal([key for key in seen.last if key[1] == "other"], [], "no word that the table lacks")
        for name, row in TABLE.items():
            missing = [value for value in row["values"] if row["kind"] == "counter" and
                       seen.role in row["roles"] and (name, value) not in seen.last]
            equal(missing, [], f"{seen.process.name} {name}: its listed values are there from 0 on")


def main():
    for seen in everyone:
        until(seen.ready, 20, f"{seen.process.name} ready")
    alerts_name_what_there_is()
    calls()
    troubles()
    plain()
    odd_requests()
    slow_requests()
    not_read()
    missed_wakeups()
    outage()
    turning()
    store_gauges()
    many_rows()
    everything_was_seen()
    listeners()
    stack.stop()
    rig.finish("metrics", counts, {"scrapes": 100, "names": 70, "odd": 100, "outages": 1,
                                   "missed": 2})


main()
