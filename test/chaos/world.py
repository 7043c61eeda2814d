"""A whole Holdfast under chaos: rig's stack with claims that are lost after 200 ms, the chaos
tools, the oracle in the store, and on demand the proxy before Postgres."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import psycopg

import rig
import shapes

HERE = pathlib.Path(__file__).resolve().parent

LEASE_MS = 200
SETTINGS = {"worker": {"beat_ms": 50, "lease_ms": LEASE_MS, "poll_ms": 50, "cancel_grace_ms": 2000,
                       "slots": 8},
            "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}}
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
    def __init__(self, findings, through_proxy=False, workers=3):
        self.findings = findings
        self.through_proxy = through_proxy
        self.proxy = None
        self.tools_folder = tempfile.TemporaryDirectory(prefix="hf-chaos-tools-")
        program = shapes.build(self.tools_folder.name)
        folders = [shapes.make(self.tools_folder.name, tool, program) for tool in shapes.SHAPES]
        self.admin = None
        # Processes that we ended and not yet started again: any other that ends did so by itself.
        self.downed = set()
        # (pid, from, to) of each SIGSTOP, on the wall clock.
        self.stops = []
        super().__init__(apis=2, workers=workers, tools=folders, settings=SETTINGS)

    # --- where rig does it otherwise ---

    def command(self, *args, **more):
        done = super().command(*args, **more)
        if args[0] == "migrate":
            with self.cluster.connect() as admin:
                admin.execute((HERE / "oracle.sql").read_text())
        return done

    def start_downstream(self):
        if self.through_proxy and self.proxy is None:
            self.proxy_port = rig.free_port()
            self.control_path = str(self.folder / "proxy.sock")
            self.proxy = self.start("pgproxy", [
                sys.executable, HERE / "pgproxy.py", self.proxy_port,
                self.cluster.folder / ".s.PGSQL.5432", self.control_path])
            rig.until(lambda: os.path.exists(self.control_path), 10, "the proxy is up")
        return super().start_downstream()

    def start(self, name, argv):
        """Each process has connection strings that name it."""
        where = f"host={self.cluster.folder}"
        if self.through_proxy:
            where = f"host=127.0.0.1 port={self.proxy_port} sslmode=disable gssencmode=disable"
        dsns = {f"HOLDFAST_{role.upper()}_DSN":
                f"{where} dbname=holdfast user={user} application_name={name}"
                for role, user in ROLES.items()}
        process = rig.Process(name, [str(arg) for arg in argv], self.env(**dsns),
                              str(self.logs / f"{name}.log"))
        self.processes.append(process)
        return process

    def stop(self):
        if self.admin is not None:
            self.admin.close()
        super().stop()
        self.tools_folder.cleanup()

    # --- the store ---

    def ask(self, sql, parameters=()):
        """Rows over a connection that is kept; none while Postgres is away."""
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

    def running(self):
        """[(process, step kind)] of the claims that are held now."""
        return [(process, shapes.step_of(tool, phase)) for process, tool, phase in self.ask(
            "SELECT i.process, t.name, w.phase FROM holdfast.work w "
            "JOIN chaos.incarnation i USING (incarnation) JOIN holdfast.tool t ON t.tool = w.queue "
            "WHERE w.state = 'running'")]

    def postgres_up(self, seconds=60):
        end = time.monotonic() + seconds
        while not self.ask("SELECT 1"):
            if time.monotonic() > end:
                raise RuntimeError("Postgres does not come back")
            time.sleep(0.02)

    def kill_postmaster(self):
        pid = int((self.cluster.data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        rig.until(lambda: rig.process_gone(pid), 10, "the postmaster is gone", 0.005)
        self.start_postgres()

    def start_postgres(self):
        """Its orphans end on their own; until then a new one refuses to start."""
        for _ in range(100):
            try:
                self.cluster.start()
                break
            except subprocess.CalledProcessError:
                time.sleep(0.1)
        self.postgres_up()

    # --- processes ---

    def restart(self, process):
        """kill -9, reaped; started by the caller's own end()."""
        self.downed.add(process)
        process.kill()

    def begin(self, process):
        process.start()
        self.downed.discard(process)

    def look_for_dead(self):
        """A process that ended by itself is a bug; it is started again."""
        for process in self.processes:
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

    def steered(self):
        status, text = self.http("GET", "/_control")
        return json.loads(text) if status == 200 else None


def dice(seed, name):
    return random.Random(f"{seed}/{name}")
