"""What the tests of the store's functions stand on: sessions that call them by name, a second one that
is seen to wait, a bench with a migrated store."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import psycopg

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import rig  # noqa: E402
from rig import check, equal  # noqa: E402


def digest(text):
    return hashlib.sha256(text.encode()).digest()


class Store:
    """One session of the API's, one of the worker's; calls by name with Python values."""

    def __init__(self, cluster, role="postgres"):
        self.conn = psycopg.connect(cluster.dsn(user=role), autocommit=True)
        self.conn.execute("SET search_path = holdfast")

    def rows(self, sql, *values):
        return self.conn.execute(sql, values).fetchall()

    def one(self, sql, *values):
        return self.rows(sql, *values)[0][0]

    def accept(self, *calls, api=None, number=None):
        """calls: (owner, tool, effect ID, arguments); an API and a number make them plain."""
        n = len(calls)
        rows = self.rows(
            "SELECT ord, outcome, task, state FROM accept_bounded(true, %s::bigint[], %s::int[], %s::bytea[],"
            " %s::text[], %s::bytea[], %s::text[], %s::text[], %s::int[], %s::text[], %s::int[], %s::uuid[], %s::bigint[],"
            " %s::bytea[])",
            [c[0] for c in calls], [c[1] for c in calls],
            [digest(f"{c[0]}/{c[1]}/{c[2]}")[:16] for c in calls], [c[2] for c in calls],
            [digest(c[3]) for c in calls], [c[3] for c in calls], [None] * n, [0] * n, [None] * n, [1] * n, [api] * n, [number] * n,
            [os.urandom(16) for _ in calls])
        return [row[1:] for row in sorted(rows)]

    def claim(self, incarnation, tool, most=1):
        return self.rows("SELECT task, token, phase, attempt, crashes, places FROM"
                         " claim(%s, %s, %s, gen_random_uuid())", incarnation, [tool], most)

    def beat(self, incarnation, fresh=False):
        return self.rows("SELECT * FROM beat_async(%s, %s, 'worker', 4, 0, '{}', '{}', '{}', '{}')",
                         incarnation, fresh)

    def step(self, *steps):
        """steps: (task, token, phase)."""
        n = len(steps)
        rows = self.rows(
            "SELECT ord, fence, state FROM step(%s, %s::bytea[], %s::uuid[], %s::text[], %s::int[],"
            " %s::int[], %s::text[], %s::bytea[], %s::text[], %s::text[], %s::int[], %s::bigint[])",
            week_of(steps[0][0]), [s[0] for s in steps], [s[1] for s in steps],
            ["recovery_point"] * n, [s[2] * 65536 + 65535 for s in steps], [s[2] for s in steps],
            [f"p{s[2]}" for s in steps], [b"\x80"] * n, [None] * n, [None] * n, [1] * n, [1] * n)
        return [row[1] for row in sorted(rows)]

    def finish(self, *claims, state="completed"):
        n = len(claims)
        rows = self.rows(
            "SELECT ord, fence FROM finish(%s, %s::bytea[], %s::uuid[], %s::text[], %s::text[],"
            " %s::text[], %s::text[], %s::int[], %s::int[], %s::text[], %s::bytea[], %s::text[],"
            " %s::text[], %s::bigint[])",
            week_of(claims[0][0]), [c[0] for c in claims], [c[1] for c in claims], [state] * n,
            ['{"content":[]}'] * n, [None] * n, [None] * n, [1] * n, [None] * n, [None] * n,
            [None] * n, [None] * n, [None] * n, [None] * n)
        return [row[1] for row in sorted(rows)]

    def release(self, how, *claims, delay=0, sent=False):
        n = len(claims)
        rows = self.rows("SELECT ord, fence FROM release(%s::bytea[], %s::uuid[], %s::text[],"
                         " %s::bigint[], %s::bool[], %s::text[])",
                         [c[0] for c in claims], [c[1] for c in claims], [how] * n, [delay] * n,
                         [sent] * n, ["why"] * n)
        return [row[1] for row in sorted(rows)]

    def cancel(self, owner, task):
        return self.rows("SELECT found, flagged FROM cancel(%s, %s, %s)", week_of(task), [owner],
                         [task])[0]

    def detach(self, task, api, number, park=True):
        return self.rows("SELECT ours, phase, running FROM detach(%s::bytea[], %s::uuid[],"
                         " %s::bigint[], %s)", [task], [api], [number], [park])[0]

    def attach(self, owner, task, api, number):
        return self.one("SELECT attach(%s, %s::bytea[], %s::uuid[], %s)", [owner], [task], [api],
                        [number])

    def poll(self, owner, task):
        rows = self.rows("SELECT state FROM poll_task(%s, %s, %s)", week_of(task), [owner], [task])
        return rows[0][0] if rows else None

    def retry(self, task, phase=None, new_key=False):
        """(answer, successor)."""
        return self.rows("SELECT answer, successor FROM retry(%s, %s, %s, %s, 'ann', 'why', %s)",
                         week_of(task), task, phase, new_key, os.urandom(16))[0]

    def settle(self, task, verdict, name="p0"):
        return self.one("SELECT settle(%s, %s, %s, 'ann', 'saw it', '\\x80', %s, 0, true)", week_of(task),
                        task, verdict, name)

    def act(self, act, task):
        return self.one(f"SELECT {act}_task(%s, 'ann', 'why')", task)

    def fail(self, claim, error_type="phase_failed", maybe="no"):
        """Ends a claim failed, as a worker says it; True where it was held."""
        error = json.dumps({"code": -32603, "message": "no", "data": {
            "type": error_type, "phase_executed": maybe, "executed": "maybe"}})
        return self.rows(
            "SELECT fence FROM finish(%s, ARRAY[%s::bytea], ARRAY[%s::uuid], '{failed}', '{NULL}',"
            " ARRAY[%s], '{because}', '{1}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}',"
            " '{NULL}')", week_of(claim[0]), claim[0], claim[1], error) == [("held",)]


def week_of(task):
    return int.from_bytes(task[2:8], "big") // 604_800_000


def new_incarnation():
    return str(uuid.uuid4())


class Late(threading.Thread):
    """A second session's call, to be seen blocked and then to be joined for its value."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.value, self.error = work, None, None
        self.start()

    def run(self):
        try:
            self.value = self.work()
        except Exception as error:  # noqa: BLE001 - told by ended()
            self.error = error

    def blocked(self):
        time.sleep(0.15)
        return self.is_alive()

    def ended(self):
        self.join(20)
        if self.error:
            raise self.error
        return self.value


class Bench:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-sql-"))
        os.chmod(self.folder, 0o711)
        (self.folder / "pg").mkdir()
        self.cluster = rig.Cluster(self.folder / "pg")
        self.a, self.b = None, None
        self.names = 0

    def migrate(self):
        environment = {**os.environ, "HOLDFAST_DSN": self.cluster.dsn()}
        runs = [subprocess.Popen([rig.HOLDFAST, "migrate"], env=environment, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                for _ in range(5)]
        said = [run.communicate(timeout=120)[0] for run in runs]
        check(all(run.returncode == 0 for run in runs), "five migrations at once all succeed", said)
        equal(sum(not re.search(r"\b0 migrations", text) for text in said), 1, "one of five applies")
        self.a, self.b = Store(self.cluster), Store(self.cluster)
        again = subprocess.run([rig.HOLDFAST, "migrate"], env=environment, check=False,
                               capture_output=True, text=True)
        check(re.search(r"\b0 migrations", again.stdout), "a second migrate changes nothing", again.stdout)
        self.owner = self.a.one("SELECT principal_owner('static', 'alice', 'A')")
        self.other = self.a.one("SELECT principal_owner('static', 'bob', 'B')")
        self.tool = self.new_tool("t")

    def begin(self):
        """What every test finds."""
        self.migrate()

    def fresh(self):
        self.names += 1
        return f"effect-{self.names}"

    def new_tool(self, name=None, version="a" * 64, **doc):
        """A version that is current now; of three phases where `doc` has none."""
        return self.a.one(
            "INSERT INTO tool (name, version, doc, result_ttl_ms, tombstone_ttl_ms, deadline_ms,"
            " phases, crash_limit) VALUES (%s, %s, %s, 604800000, 7776000000, 3600000, %s, 3) RETURNING tool",
            name or self.fresh(), version, json.dumps(doc), len(doc["phases"]) if "phases" in doc else 3)

    def new_worker(self):
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        return incarnation

    def clear(self):
        """No task is open any more."""
        self.a.conn.execute("DELETE FROM work")

    def new_task(self, store=None):
        return (store or self.a).accept((self.owner, self.tool, self.fresh(), "{}"))[0][1]

    def claimed(self, incarnation):
        self.new_task()
        claim = self.a.claim(incarnation, self.tool)[0]
        return claim[0], claim[1]

    def stop(self):
        self.cluster.stop()
        subprocess.run(["rm", "-rf", str(self.folder)], check=False)

    def move_clock(self, by):
        self.a.conn.execute(
            "CREATE OR REPLACE FUNCTION holdfast.now_() RETURNS timestamptz LANGUAGE sql VOLATILE"
            f" AS $$ SELECT clock_timestamp() + interval '{by}' $$")

    def make_week(self):
        week = self.a.one("SELECT week_of(to_ms(now_()))")
        for table in ("task", "step", "event", "artifact", "intent"):
            self.a.conn.execute(f"CREATE TABLE IF NOT EXISTS {table}_w{week} PARTITION OF {table}"
                                f" FOR VALUES FROM ({week}) TO ({week + 1})")
        self.a.conn.execute("INSERT INTO week (week) VALUES (%s) ON CONFLICT DO NOTHING", (week,))

    def writes_no_wal(self, call, what):
        """Checks it of many, and gives back the bytes of one: the least of some tries, as autovacuum
        and Postgres itself write at times; what a call wrote would show each time."""
        times, tries = 200, []
        while len(tries) < 3 and (not tries or tries[-1] >= 1):
            before = self.a.one("SELECT pg_current_wal_insert_lsn()")
            for _ in range(times):
                call()
            tries.append(float(self.a.one("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)",
                                          before)) / times)
        check(tries[-1] < 1, what, tries)
        return tries[-1]

    # --- intents and undo steps (V7, rule 9) ---

    def intend(self, task, token, phase=0, store=None):
        return (store or self.a).one("SELECT intent_put(%s, %s, %s, %s, 'p0')", week_of(task), task,
                                     token, phase)

    def kinds(self, incarnation):
        """What a new claim of the one task is told of its steps."""
        self.a.rows("UPDATE work SET due = clock_timestamp() RETURNING 1")
        return self.a.rows("SELECT kinds FROM claim(%s, %s, 1, gen_random_uuid())", incarnation,
                           [self.tool])[0][0] or []

    # --- an operator's acts ---

    OPERATED = ("keyed", "pure", "lookup", "unsafe", "local")

    def operated(self, phases=OPERATED):
        """A tool with these effects, a worker's incarnation."""
        tool = self.new_tool(phases=[{"name": f"p{i}", "kind": "http", "effect": effect}
                                     for i, effect in enumerate(phases)])
        return tool, self.new_worker()

    def failed(self, tool, incarnation, phases_done, error_type="phase_failed", maybe="no",
               checkpoint=False):
        """(task, its call), failed behind so many phases."""
        call = (self.owner, tool, self.fresh(), "{}")
        task = self.a.accept(call)[0][1]
        claim = self.a.claim(incarnation, tool)[0][:2]
        for phase in range(phases_done):
            self.a.step((*claim, phase))
        if checkpoint:
            self.a.rows("INSERT INTO step (week, task, place, kind, name, state, attempt, hash, at)"
                        " VALUES (%s, %s, %s, 'checkpoint', 'c', 'x', 1, 'x', now_()) RETURNING 1",
                        week_of(task), task, phases_done * 65536 + 1)
        check(claim[0] == task and self.a.fail(claim, error_type, maybe), "failed")
        return task, call

    def tombstoned(self, count):
        """So many calls in one batch whose tombstones are past their time; their digests."""
        calls = [(self.owner, self.tool, self.fresh(), "{}") for _ in range(count)]
        equal({got[0] for got in self.a.accept(*calls)}, {"new"}, "accepted")
        digests = [digest("/".join(map(str, call[:3])))[:16] for call in calls]
        equal(self.a.one("WITH gone AS (DELETE FROM work w USING effect e WHERE e.task = w.task AND e.digest"
                         " = ANY (%s) RETURNING 1), past AS (UPDATE effect e SET tombstone_until = now_()"
                         " - interval '1 minute' WHERE e.digest = ANY (%s) RETURNING 1)"
                         " SELECT count(*) FROM past", digests, digests), count, "tombstones")
        return calls, digests

    def run(self):
        """Every test of the class, in its order, each with no task open; what it inherits is no test."""
        try:
            self.begin()
            for test in filter(callable, list(vars(type(self)).values())):
                rig.run((test, self))
                self.clear()
        finally:
            self.stop()
