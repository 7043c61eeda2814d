"""A whole Holdfast under chaos: rig's stack with claims that are lost after 200 ms, the chaos
tools, the oracle in the store, and on demand the proxy before Postgres."""

import json
import os
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

import psycopg

import pair
import rig
import shapes

HERE = pathlib.Path(__file__).resolve().parent

LEASE_MS = 200
SETTINGS = {"api": {"beat_ms": 50},
            "worker": {"beat_ms": 50, "lease_ms": LEASE_MS, "poll_ms": 50, "cancel_grace_ms": 2000,
                       "slots": 8, "breaker_pause_ms": 100, "breaker_pause_max_ms": 400},
            "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}}
QUERY_S_MAX = 20
ROLES = {"api": "holdfast_api", "worker": "holdfast_worker", "sql": "holdfast_sql",
         "maintain": "holdfast_maintain"}


class Findings:
    """Violations, each said at once and once a rule and text; threads share it."""

    SHOWN_MAX = 40

    def __init__(self):
        self.lock = threading.Lock()
        self.items = []
        self.dropped = 0

    def add(self, rule, text, **more):
        with self.lock:
            if len(self.items) >= self.SHOWN_MAX:
                self.dropped += 1
                return
            self.items.append({"rule": rule, "text": text,
                               **{name: str(value)[:600] for name, value in more.items()}})
            print(f"VIOLATION {rule}: {text} {json.dumps(more, default=str)[:1200]}", flush=True)

    def __len__(self):
        return len(self.items)


class World(rig.Stack):
    CHECKER = None  # what checks it, where that is no plain checker.Checker
    MAY_STAND_STILL = False  # its faults put an older store in place

    def __init__(self, findings, through_proxy=False, workers=3, apis=2, settings=None,
                 environments=None):
        """environments: name of a process -> what it has beside the others."""
        self.findings = findings
        self.stopped = False
        self.environments = environments or {}
        self.through_proxy = through_proxy
        self.proxy = None
        self.tools_folder = tempfile.TemporaryDirectory(prefix="hf-chaos-tools-")
        program = shapes.build(self.tools_folder.name)
        folders = [shapes.make(self.tools_folder.name, tool, program) for tool in shapes.SHAPES]
        self.admin, self.admin_lock = None, threading.Lock()
        # Processes that we ended and not yet started again: any other that ends did so by itself.
        self.downed = set()
        # Answers downstream after which a task may be failed for good.
        self.refusals = 0
        # (pid, from, to) of each SIGSTOP, on the wall clock.
        self.stops = []
        super().__init__(apis=apis, workers=workers, tools=folders, settings=settings or SETTINGS)

    # --- where rig does it otherwise ---

    def write_files(self):
        """A downstream for each kind of phase that asks one."""
        super().write_files()
        self.wheres = {name: (rig.free_port(), self.folder / name)
                       for name in sorted(set(shapes.DOWNSTREAMS.values()))}
        self.write("conf.json", json.dumps({name: f"http://127.0.0.1:{port}"
                                            for name, (port, _) in self.wheres.items()}))
        self.downstreams = {}

    def env(self, **more):
        return super().env(**more) | {
            "HOLDFAST_DOWNSTREAM_URL": f"http://127.0.0.1:{self.wheres['program'][0]}"} | more

    def command(self, *args, **more):
        done = super().command(*args, **more)
        if args[0] == "migrate":
            with self.cluster.connect() as admin:
                admin.execute((HERE / "oracle.sql").read_text())
        return done

    def postgres_socket(self):
        """What the proxy speaks to."""
        return self.cluster.folder / ".s.PGSQL.5432"

    def start_downstream(self):
        if self.through_proxy and self.proxy is None:
            self.proxy_port = rig.free_port()
            self.control_path = str(self.folder / "proxy.sock")
            self.proxy = self.start("pgproxy", [
                sys.executable, HERE / "pgproxy.py", self.proxy_port,
                self.postgres_socket(), self.control_path])
            rig.until(lambda: os.path.exists(self.control_path), 10, "the proxy is up")
        for name, (port, folder) in self.wheres.items():
            self.downstreams[name] = self.start(name, [
                sys.executable, rig.DOWNSTREAM, "--listen", f"127.0.0.1:{port}", "--dir", folder])
        for name in self.wheres:
            rig.until(lambda name=name: self.steered(name) is not None, 10, f"{name} is up")
        return None

    def ledger(self, path=None):
        return [line for _, folder in self.wheres.values()
                for line in rig.read_jsonl(folder / "ledger.jsonl") if path in (None, line["path"])]

    def requests(self, path=None):
        return [line for _, folder in self.wheres.values()
                for line in rig.read_jsonl(folder / "requests.jsonl")
                if path in (None, line["path"])]

    def effects(self):
        """[((task, phase), ledger line)] of all that happened downstream, and the requests for it.
        A request without a key is known by its body."""
        ledger = self.ledger()  # first: each of its lines has its request before it
        requests = [line for line in self.requests()
                    if line["path"] in ("/ledger", "/send") and line["method"] == "POST"]
        places = {}
        for line in requests:
            body = json.loads(line["body"])
            line["place"] = body.get("task") or body["link"], body.get("phase", "mail")
            line["key"] = line["key"] or body.get("ref")
            places[line["key"] or line["sha256"]] = line["place"]
        return [(places[line["key"] or line["sha256"]], line) for line in ledger], requests

    def happened(self, task, phase):
        """How often, as the downstream has it."""
        return sum(place == (task, phase) for place, _ in self.effects()[0])

    def ask_downstream(self, name, method, body=None):
        """Its control, or None while it is away."""
        status, text = rig.http_ask(self.wheres[name][0], "/_control", method,
                                    body and json.dumps(body))
        return json.loads(text) if status == 200 else None

    def steer(self, name, **wanted):
        if self.ask_downstream(name, "PUT", wanted) is None:
            raise RuntimeError(f"{name} cannot be steered")

    def steered(self, name):
        return self.ask_downstream(name, "GET")

    def where(self, _name):
        """How that process reaches Postgres."""
        if self.through_proxy:
            return f"host=127.0.0.1 port={self.proxy_port} sslmode=disable gssencmode=disable"
        return f"host={self.cluster.folder}"

    def start(self, name, argv):
        """Each process has connection strings that name it."""
        where = self.where(name)
        dsns = {f"HOLDFAST_{role.upper()}_DSN":
                f"{where} dbname=holdfast user={user} application_name={name}"
                for role, user in ROLES.items()}
        return super().start(name, argv, **dsns | self.environments.get(name, {}))

    def stop(self):
        if self.admin is not None:
            self.admin.close()
        super().stop()
        self.tools_folder.cleanup()

    # --- the store ---

    def asked(self, sql):
        """What a question of the checker reads in this world."""
        return sql

    def ask(self, sql, parameters=()):
        """Rows over a connection that is kept; none while Postgres is away."""
        with self.admin_lock:
            try:
                if self.admin is None or self.admin.closed:
                    self.admin = self.cluster.connect()
                cursor = self.admin.execute(sql, parameters)
                return cursor.fetchall() if cursor.description else []
            except psycopg.Error:
                if self.admin is not None:
                    self.admin.close()
                self.admin = None
                return []

    def query(self, sql, parameters=()):
        """As rig's; asked again where Postgres ended itself, or was ended, a moment before."""
        end = time.monotonic() + QUERY_S_MAX
        while True:
            try:
                return super().query(sql, parameters)
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def running(self):
        """[(process, step kind, task)] of the claims that are held now."""
        return [(process, shapes.step_of(tool, phase), rig.task_text(task))
                for process, tool, phase, task in self.ask(
            "SELECT i.process, t.name, w.phase, w.task FROM holdfast.work w "
            "JOIN chaos.incarnation i USING (incarnation) JOIN holdfast.tool t ON t.tool = w.queue "
            "WHERE w.state = 'running'")]

    def postgres_up(self, seconds=60):
        end = time.monotonic() + seconds
        while not self.ask("SELECT 1"):
            if time.monotonic() > end:
                raise RuntimeError("Postgres does not come back")
            time.sleep(0.02)

    def kill_postmaster(self):
        pair.crash(self.cluster)
        self.start_postgres()

    def start_postgres(self):
        pair.start(self.cluster)
        self.postgres_up()

    # --- processes ---

    def restart(self, process):
        """kill -9, reaped; started by the caller's own end()."""
        self.downed.add(process)
        process.kill()

    def begin(self, process):
        if self.stopped:
            raise RuntimeError("the run is over")
        process.start()
        self.downed.discard(process)

    def look_for_dead(self):
        """A process that ended by itself is a bug; it is started again."""
        for process in [] if self.stopped else self.processes:
            if process in self.downed or process.alive():
                continue
            lines = process.log().splitlines()
            self.findings.add("alive", f"{process.name} ended by itself: "
                              f"{process.popen.returncode}", log=" | ".join(lines[-3:]))
            process.start()

    def order(self, do, act=None, wait_ms=1000, **more):
        """Orders something of the proxy; what it did, or None."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(self.control_path)
            control.sendall(json.dumps({"do": do, "act": act, "wait_ms": wait_ms, **more}).encode()
                            + b"\n")
            return json.loads(control.makefile().readline() or "{}").get("hit")

    def requests_end(self, name):
        """Where a downstream's own log of requests ends now, for requests_since."""
        try:
            return os.path.getsize(self.wheres[name][1] / "requests.jsonl")
        except FileNotFoundError:
            return 0

    def requests_since(self, name, start):
        with open(self.wheres[name][1] / "requests.jsonl", "rb") as file:
            file.seek(start)
            content = file.read()
        lines = map(json.loads, content[:content.rfind(b"\n") + 1].splitlines())
        return [line for line in lines if line["method"] == "POST"]


def dice(seed, name):
    return random.Random(f"{seed}/{name}")
