"""The store's functions on a real Postgres: what each promises, its races with two real sessions at
controlled points, and each rule of the design with the experiment that broke it."""

import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

import psycopg

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import rig  # noqa: E402
from rig import check, equal  # noqa: E402

counts = {"races": 0, "storm_calls": 0}
DEADLOCK_ROUNDS = 60
RACE_ROUNDS = 300
ROWS_READ_MAX = 200  # of one table by one call, with a million in it


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
    return str(__import__("uuid").uuid4())


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
        self.tool = self.a.one(
            "INSERT INTO tool (name, version, doc, result_ttl_ms, tombstone_ttl_ms, deadline_ms,"
            " phases, crash_limit) VALUES ('t', repeat('a', 64), '{}', 604800000, 7776000000,"
            " 3600000, 3, 3) RETURNING tool")

    def fresh(self):
        self.names += 1
        return f"effect-{self.names}"

    def new_task(self, store=None):
        return (store or self.a).accept((self.owner, self.tool, self.fresh(), "{}"))[0][1]

    def claimed(self, incarnation):
        self.new_task()
        claim = self.a.claim(incarnation, self.tool)[0]
        return claim[0], claim[1]

    def stop(self):
        self.cluster.stop()
        subprocess.run(["rm", "-rf", str(self.folder)], check=False)

    # --- acceptance (rule 3, traps 1) ---

    def equal_keys_in_one_batch_make_one_task(self):
        effect = self.fresh()
        call = (self.owner, self.tool, effect, "{}")
        other = (self.owner, self.tool, effect, '{"a":1}')
        got = self.a.accept(call, call, other, call)
        equal([row[0] for row in got], ["new", "same", "conflict", "same"], "equal keys in a batch")
        equal(len({row[1] for row in got if row[1]}), 1, "equal keys name one task")
        task = got[0][1]
        for table in ("task", "work", "effect"):
            equal(self.a.one(f"SELECT count(*) FROM {table} WHERE task = %s", task), 1,
                  f"one row in {table}")

    def a_repeat_waits_for_its_rival_and_gets_its_task(self):
        for commits in (True, False):
            call = (self.owner, self.tool, self.fresh(), "{}")
            with self.a.conn.transaction(force_rollback=not commits):
                first = self.a.accept(call)[0]
                late = Late(lambda call=call: self.b.accept(call)[0])
                check(late.blocked(), "an uncommitted accept holds its rival")
            second = late.ended()
            counts["races"] += 1
            equal((second[0], second[1] == first[1]), ("same", True) if commits else ("new", False),
                  f"the rival of an accept that {'commits' if commits else 'rolls back'}")

    def a_storm_of_duplicates_gets_one_task_each(self):
        """Trap 1 of reliability: a one-statement upsert gave 748 of 960 callers no row."""
        stores = [Store(self.cluster) for _ in range(24)]
        for _ in range(40):
            call = (self.owner, self.tool, self.fresh(), "{}")
            got = rig.in_parallel(lambda store, call=call: store.accept(call)[0], stores)
            counts["storm_calls"] += len(got)
            equal((len({row[1] for row in got}), [row[0] for row in got].count("new")), (1, 1),
                  "a storm names one task and one first")

    def a_repeat_writes_nothing(self):
        call = (self.owner, self.tool, self.fresh(), "{}")
        self.a.accept(call)
        before = self.a.one("SELECT pg_current_wal_insert_lsn()")
        for _ in range(200):
            self.a.accept(call)
        grown = self.a.one("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", before)
        counts["wal_bytes_per_repeat"] = float(grown) / 200
        check(grown / 200 < 1, "a repeat writes no WAL", float(grown) / 200)

    def a_call_that_joins_a_window_writes_nothing(self):
        ask = "SELECT intent_window(%s, %s, 60000)"
        digest = os.urandom(16)
        first = self.a.one(ask, digest, self.fresh())
        before = self.a.one("SELECT pg_current_wal_insert_lsn()")
        for _ in range(200):
            equal(self.a.one(ask, digest, self.fresh()), first, "it joins")
        grown = self.a.one("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", before)
        check(grown / 200 < 1, "who joins writes no WAL", float(grown) / 200)

    def retention_and_tombstones(self):
        """R1.7, rule 15: live, expired, swept, forgotten."""
        call = (self.owner, self.tool, self.fresh(), "{}")
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        self.a.rows("DELETE FROM work RETURNING 1")
        task = self.a.accept(call)[0][1]
        claim = self.a.claim(incarnation, self.tool)[0]
        self.a.finish(claim[:2])
        week = week_of(task)
        self.move_clock("6 days")
        equal(self.a.accept(call)[0][0], "same", "within retention a repeat is answered")
        equal(self.a.poll(self.owner, task), "completed", "and a poll too")
        self.move_clock("8 days")
        equal(self.a.accept(call)[0][0], "expired", "expired and unswept is a tombstone")
        equal(self.a.poll(self.owner, task), None, "and the task is gone")
        check(self.a.one("SELECT sweep(%s, 1000)", week) > 0, "the sweep takes it")
        equal(self.a.one("SELECT count(*) FROM step WHERE task = %s", task), 0, "its steps are gone")
        equal(self.a.accept(call)[0][0], "expired", "swept is a tombstone")
        conflict = self.a.accept((self.owner, self.tool, call[2], '{"a":1}'))[0][0]
        equal(conflict, "conflict", "other arguments stay a conflict")
        self.move_clock("98 days")
        self.make_week()
        again = self.a.accept(call)[0]
        equal((again[0], again[1] != task), ("new", True), "past the tombstone it is a new task")
        self.move_clock("0 days")

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

    # --- claims and the fence (rules 1, 2) ---

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

    def tombstones_go_in_the_order_of_their_digests(self):
        """Who meets tombstones past their time locks them as the sweep does: no two wait for each other."""
        for _ in range(4):
            calls, digests = self.tombstoned(2)
            pairs = sorted(zip(digests, calls), reverse=True)
            with self.a.conn.transaction():
                self.a.rows("SELECT 1 FROM effect WHERE digest = %s FOR UPDATE", pairs[1][0])
                late = Late(lambda p=pairs: self.b.accept(*(call for _, call in p)))
                check(late.blocked(), "the call waits for the smaller digest")
                self.a.rows("SELECT 1 FROM effect WHERE digest = %s FOR UPDATE NOWAIT", pairs[0][0])
            equal([got[0] for got in late.ended()], ["new", "new"], "and holds no other meanwhile")
            counts["races"] += 1

    def the_sweep_of_tombstones_waits_for_nobody(self):
        """By pages it meets them in another order than a call, which goes by their digests."""
        calls, digests = self.tombstoned(8)
        parts = {int(name.rsplit("_", 1)[1]): found for name, found in self.a.rows(
            "SELECT tableoid::regclass::text, array_agg(digest) FROM effect WHERE digest = ANY (%s)"
            " GROUP BY 1", digests)}
        with self.a.conn.transaction():
            held = self.a.one("SELECT digest FROM effect WHERE digest = ANY (%s) LIMIT 1 FOR UPDATE",
                              digests)
            with self.b.conn.transaction():
                self.b.conn.execute("SET LOCAL lock_timeout = '2s'")
                for part in parts:
                    equal(self.b.one("SELECT sweep_tombstones(%s, 0, 100000)", part), 0, "swept")
        equal(self.a.rows("SELECT digest FROM effect WHERE digest = ANY (%s)", digests), [(held,)],
              "what another holds is for the next time")
        for part in parts:
            self.a.one("SELECT sweep_tombstones(%s, 0, 100000)", part)
        equal(self.a.rows("SELECT digest FROM effect WHERE digest = ANY (%s)", digests), [],
              "which takes it")
        equal({got[0] for got in self.a.accept(*calls)}, {"new"}, "and the calls are new ones")

    def a_claim_sees_every_step_of_its_task(self):
        """Experiment e10: claiming and reading steps in one statement ran a phase again."""
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        self.a.rows("DELETE FROM work RETURNING 1")
        for _ in range(4):
            self.new_task()
        stores = [Store(self.cluster) for _ in range(4)]
        blind = []

        def run(store):
            for _ in range(RACE_ROUNDS // 4):
                for task, token, phase, _, _, places in store.claim(incarnation, self.tool):
                    counts["races"] += 1
                    if len(places or []) != phase:
                        blind.append((phase, places))
                    if phase == 60:  # no tool has as many
                        store.finish((task, token))
                        self.new_task(store)
                        continue
                    store.step((task, token, phase))
                    store.release("back", (task, token))

        rig.in_parallel(run, stores)
        equal(blind, [], "a claim shows as many recovery points as phases are done")

    def a_stale_claim_waits_for_the_reclaim_and_writes_nothing(self):
        """Compared without a lock, or under FOR KEY SHARE, a stale writer got in."""
        self.a.rows("DELETE FROM work RETURNING 1")
        for write in ("step", "finish", "release", "artifact"):
            incarnation = new_incarnation()
            self.a.beat(incarnation, True)
            task, token = self.claimed(incarnation)
            check(self.a.one("SELECT declare_dead(%s, 1)", incarnation), "declared dead")
            with self.a.conn.transaction():
                check(self.a.one("SELECT reclaim(100)") >= 1, "reclaimed")
                late = Late({
                    "step": lambda: self.b.step((task, token, 0)),
                    "finish": lambda: self.b.finish((task, token)),
                    "release": lambda: self.b.release("retry", (task, token)),
                    "artifact": lambda: [self.b.one(
                        "SELECT artifact_put(%s, %s, %s, 0, 'a', 'b', 'c')", week_of(task), task,
                        token)]}[write])
                check(late.blocked(), f"a stale {write} waits for the reclaim")
            counts["races"] += 1
            equal(late.ended(), ["lost"], f"a stale {write} is fenced out")
            equal(self.a.one("SELECT count(*) FROM step WHERE task = %s", task), 0,
                  f"a stale {write} left no step")
            equal(self.a.poll(self.owner, task), "ready", "the task goes on")
            self.a.rows("DELETE FROM work RETURNING 1")

    def a_beat_in_time_is_not_buried(self):
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        self.a.beat(incarnation)
        check(not self.a.one("SELECT declare_dead(%s, 1)", incarnation), "a counter that moved lives")
        check(self.a.one("SELECT declare_dead(%s, 2)", incarnation), "one that stood still is dead")
        equal(self.a.beat(incarnation)[0][0], False, "and is told so at its next beat")
        self.new_task()
        equal(self.a.claim(incarnation, self.tool), [], "the dead are given nothing")
        self.a.rows("DELETE FROM work RETURNING 1")

    def a_lost_answer_is_asked_again(self):
        """Rule 11: the same statement again says what happened, and moves the task once."""
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        task, token = self.claimed(incarnation)
        equal(self.a.step((task, token, 0)), ["held"], "a step")
        equal(self.a.step((task, token, 0)), ["held"], "the same step again")
        equal(self.a.one("SELECT phase FROM work WHERE task = %s", task), 1, "one phase further")
        equal(self.a.finish((task, token)), ["held"], "an outcome")
        equal(self.a.finish((task, token)), ["held"], "the same outcome again")
        equal(self.a.finish((task, new_incarnation())), ["lost"], "another's outcome is lost")

    def crashes_are_not_attempts_and_are_bounded(self):
        incarnation = None
        task = self.new_task()
        for crash in range(1, 4):
            incarnation = new_incarnation()
            self.a.beat(incarnation, True)
            claim = self.a.claim(incarnation, self.tool)
            equal((claim[0][3], claim[0][4]), (1, crash - 1), "attempt and crashes at a claim")
            self.a.one("SELECT declare_dead(%s, 1)", incarnation)
            self.a.one("SELECT reclaim(100)")
        equal(self.a.poll(self.owner, task), "ready", "a worker ends it past the limit")
        self.a.rows("DELETE FROM work RETURNING 1")

    def a_claim_whose_answer_was_lost_is_given_again(self):
        """V9, rule 11: asked again by the same call it is the same claim; nothing stays behind."""
        incarnation, call = new_incarnation(), new_incarnation()
        self.a.beat(incarnation, True)
        for _ in range(6):
            self.new_task()
        sql = "SELECT task, token FROM claim(%s, %s, 4, %s)"
        first = self.a.rows(sql, incarnation, [self.tool], call)
        equal(len(first), 4, "a claim of four")
        equal(sorted(self.a.rows(sql, incarnation, [self.tool], call)), sorted(first),
              "the same call again: the same claims")
        equal(len(self.a.rows(sql, incarnation, [self.tool], new_incarnation())), 2,
              "another call: what is left")
        self.a.rows("DELETE FROM work RETURNING 1")

    def what_may_have_been_sent_is_settled_before_it_ends(self):
        """V7: a cancel, a deadline or the end of parking between two attempts denies nothing."""
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        for sent in (True, False):
            task, token = self.claimed(incarnation)
            self.a.release("retry", (task, token), delay=60_000, sent=sent)
            equal(self.a.cancel(self.owner, task), (True, False), "a cancel between two attempts")
            equal(self.a.poll(self.owner, task), "ready" if sent else "cancelled",
                  "a worker settles what may have been sent")
            self.a.rows("DELETE FROM work RETURNING 1")
            task, token = self.claimed(incarnation)
            self.a.release("retry", (task, token), delay=60_000, sent=sent)
            self.move_clock("2 hours")
            self.a.one("SELECT expire_deadlines(100)")
            equal(self.a.poll(self.owner, task), "ready" if sent else "failed", "and so does a deadline")
            self.move_clock("0 days")
            self.a.rows("DELETE FROM work RETURNING 1")

    # --- intents and undo steps (V7, rule 9) ---

    def intend(self, task, token, phase=0, store=None):
        return (store or self.a).one("SELECT intent_put(%s, %s, %s, %s, 'p0')", week_of(task), task,
                                     token, phase)

    def kinds(self, incarnation):
        """What a new claim of the one task is told of its steps."""
        self.a.rows("UPDATE work SET due = clock_timestamp() RETURNING 1")
        return self.a.rows("SELECT kinds FROM claim(%s, %s, 1, gen_random_uuid())", incarnation,
                           [self.tool])[0][0] or []

    def an_intent_stands_until_it_provably_never_left(self):
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        for how, sent, wanted in (("retry", False, []), ("back", False, []), ("retry", True, ["intent"]),
                                  ("crash", True, ["intent"]), ("unverified", True, ["intent"])):
            task, token = self.claimed(incarnation)
            equal((self.intend(task, token), self.intend(task, token)), ("held", "held"),
                  "an intent, and the same again")
            equal(self.intend(task, new_incarnation()), "lost", "a foreign claim intends nothing")
            equal(self.intend(task, token, 1), "lost", "nor does a phase that is not at hand")
            equal(self.a.release(how, (task, token), sent=sent), ["held"], how)
            equal(self.kinds(incarnation), wanted, f"{how}, sent {sent}: what the next claim is told")
            self.a.rows("DELETE FROM work RETURNING 1")

    def a_stale_intent_waits_for_the_reclaim_and_is_fenced_out(self):
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        task, token = self.claimed(incarnation)
        self.a.one("SELECT declare_dead(%s, 1)", incarnation)
        with self.a.conn.transaction():
            check(self.a.one("SELECT reclaim(100)") >= 1, "reclaimed")
            late = Late(lambda: self.intend(task, token, store=self.b))
            check(late.blocked(), "it waits")
        equal(late.ended(), "lost", "and intends nothing")
        equal(self.a.one("SELECT count(*) FROM intent WHERE task = %s", task), 0, "no row")
        counts["races"] += 1
        self.a.rows("DELETE FROM work RETURNING 1")

    def settled_as_absent_nothing_stands_in_the_way(self):
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        for verdict, left in (("absent", []), ("done", ["recovery_point"])):
            task, token = self.claimed(incarnation)
            self.intend(task, token)
            self.a.release("unknown", (task, token), sent=True)
            equal(self.a.one("SELECT settle(%s, %s, %s, 'ann', 'saw it', '\\x80', 'p0', 0, false)",
                             week_of(task), task, verdict), "settled", verdict)
            equal(self.kinds(incarnation), left, f"{verdict}: what the next claim is told")
            self.a.rows("DELETE FROM work RETURNING 1")

    def a_cancel_hands_what_can_be_undone_to_a_worker(self):
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        self.a.rows("UPDATE holdfast.tool SET undos = '{0}' RETURNING 1")
        for phases, wanted in ((0, "cancelled"), (1, "ready")):
            task, token = self.claimed(incarnation)
            for phase in range(phases):
                self.a.step((task, token, phase))
            self.a.release("retry", (task, token), delay=60_000)
            equal(self.a.cancel(self.owner, task)[0], True, "acknowledged")
            equal(self.a.poll(self.owner, task), wanted, f"{phases} phases done")
        self.move_clock("2 hours")
        self.a.one("SELECT expire_deadlines(100)")
        equal(self.a.poll(self.owner, task), "ready", "a deadline does not come before its undo steps")
        self.move_clock("0 days")
        claim = self.a.claim(incarnation, self.tool)[0]
        self.a.rows("UPDATE work SET crashes = 3 RETURNING 1")
        equal(self.a.release("undo", claim[:2]), ["held"], "its undo steps begin")
        claim = self.a.claim(incarnation, self.tool)[0]
        equal(claim[2:5], (127, 1, 0), "as a phase after all others, from its first attempt")
        equal(self.intend(task, claim[1], 127), "held", "the store knows which one: it may be unsafe")
        self.a.release("retry", claim[:2], delay=60_000)
        equal(self.a.poll(self.owner, task), "scheduled", "a wait between two attempts is kept")
        self.move_clock("2 hours")
        self.a.one("SELECT expire_deadlines(100)")
        equal(self.a.poll(self.owner, task), "scheduled", "and no deadline ends it")
        self.move_clock("0 days")
        self.a.rows("UPDATE holdfast.tool SET undos = '{}' RETURNING 1")
        self.a.rows("DELETE FROM work RETURNING 1")

    def undo_steps_are_numbered_by_the_store(self):
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        self.a.rows("UPDATE holdfast.tool SET undos = '{0,2}' RETURNING 1")
        task, token = self.claimed(incarnation)
        for phase in range(3):
            self.a.step((task, token, phase))
        self.a.cancel(self.owner, task)
        self.a.release("undo", (task, token))
        for wanted, settled in ((125, False), (127, True)):
            claim = self.a.claim(incarnation, self.tool)[0]
            equal(claim[2], wanted, "in reverse, past what has none")
            if not settled:
                equal(self.a.step((task, claim[1], wanted)), ["held"], "it is done")
                equal(self.a.one("SELECT phase FROM work WHERE task = %s", task), 127, "the next is known")
                equal(self.a.one("SELECT attempt FROM work WHERE task = %s", task), 1, "with attempts of its own")
                self.a.release("back", claim[:2])
            else:
                self.a.release("unknown", claim[:2], sent=True)
                equal(self.a.one("SELECT settle(%s, %s, 'done', 'ann', 'saw it', '\\x80', 'undo:p0', 0, false)",
                                 week_of(task), task), "settled", "an unknown one can be settled")
                equal(self.a.one("SELECT phase FROM work WHERE task = %s", task), 128, "and none is left")
        self.a.rows("UPDATE holdfast.tool SET undos = '{}' RETURNING 1")
        self.a.rows("DELETE FROM work RETURNING 1")

    def a_claim_that_comes_twice_takes_nothing_new(self):
        """V9, rule 11: a flight that was given up for lost arrives behind the one sent in its place, when
        all that this one took is over."""
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        for _ in range(3):
            self.new_task()

        def claim(number, mark="aa"):
            call = mark * 8 + f"{number:016x}"
            return self.a.rows("SELECT task, token FROM claim(%s, %s, 1, %s::uuid)", incarnation, [self.tool], call)

        first = claim(1)
        equal((len(first), claim(1)), (1, first), "a claim, and the same again")
        self.a.finish(first[0])
        equal(claim(1), [], "again once its task is over: nothing that nobody knows of")
        equal(len(claim(2, "bb")), 1, "the next one")
        equal(claim(1), [], "one that was overtaken takes nothing")
        equal(self.a.one("SELECT count(*) FROM work WHERE state = 'running'"), 1, "one claim stands")
        equal(len(self.a.rows("SELECT task FROM claim(%s, %s, 1, gen_random_uuid())", incarnation,
                              [self.tool])), 1, "a worker of the release before is given what it asks")
        self.a.rows("DELETE FROM work RETURNING 1")

    # --- finish against cancel (rule 9), both orders ---

    def finish_and_cancel_meet_in_both_orders(self):
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        task, token = self.claimed(incarnation)
        with self.a.conn.transaction():
            self.a.finish((task, token))
            late = Late(lambda: self.b.cancel(self.owner, task))
            check(late.blocked(), "a cancel waits for a finish")
        equal(late.ended(), (True, False), "a cancel after the end is acknowledged")
        equal(self.a.poll(self.owner, task), "completed", "and changes nothing")

        task, token = self.claimed(incarnation)
        with self.a.conn.transaction():
            equal(self.a.cancel(self.owner, task), (True, True), "a running task is flagged")
            late = Late(lambda: self.b.finish((task, token)))
            check(late.blocked(), "a finish waits for a cancel")
        equal(late.ended(), ["held"], "and then completes anyway")
        equal(self.a.poll(self.owner, task), "completed", "which is the truth")
        counts["races"] += 2

        task = self.new_task()
        equal(self.a.cancel(self.other, task), (False, False), "a foreign cancel finds nothing (V8)")
        equal(self.a.poll(self.other, task), None, "a foreign poll finds nothing (V8)")
        equal(self.a.cancel(self.owner, task), (True, False), "a waiting task ends here and now")
        equal(self.a.poll(self.owner, task), "cancelled", "as cancelled")

    # --- plain calls (design, Parking) ---

    def a_late_hang_up_does_not_stop_the_next_call(self):
        one, two = new_incarnation(), new_incarnation()
        call = (self.owner, self.tool, self.fresh(), "{}")
        task = self.a.accept(call, api=one, number=1)[0][1]
        self.a.accept(call, api=two, number=1)
        equal(self.a.detach(task, one, 1)[0], False, "whoever came before hangs up: nothing")
        equal(self.a.poll(self.owner, task), "ready", "work goes on")
        equal(self.a.detach(task, two, 1), (True, 1, False), "the last one hangs up")
        equal(self.a.poll(self.owner, task), "parked", "work is parked")
        equal(self.a.accept(call, api=one, number=2)[0][2], "ready", "the same effect ID takes it up")
        equal(self.a.detach(task, one, 2, park=False)[0], True, "an answer is no hang-up")
        equal(self.a.poll(self.owner, task), "ready", "work goes on")
        equal(self.a.detach(task, one, 2)[0], False, "and nobody is attached any more")
        self.a.accept(call, api=one, number=3)
        self.a.accept(call)
        equal(self.a.detach(task, one, 3)[0], False, "a client that declares Tasks holds it")
        self.a.accept(call, api=one, number=4)
        equal(self.a.detach(task, one, 4)[0], False, "for good")
        self.a.rows("DELETE FROM work RETURNING 1")

    def a_running_task_is_asked_to_park(self):
        api, incarnation = new_incarnation(), new_incarnation()
        self.a.beat(incarnation, True)
        call = (self.owner, self.tool, self.fresh(), "{}")
        self.a.accept(call, api=api, number=1)
        task, token = self.a.claim(incarnation, self.tool)[0][:2]
        equal(self.a.detach(task, api, 1), (True, 1, True), "its worker is to be woken")
        equal([row[3] for row in self.a.beat(incarnation)], [1], "the next beat says park")
        equal(self.a.release("back", (task, token)), ["held"], "the worker gives it back")
        equal(self.a.poll(self.owner, task), "parked", "and it is parked")
        equal(self.a.attach(self.owner, task, api, 2), 1, "one that still waits takes it up")
        token = self.a.claim(incarnation, self.tool)[0][1]
        self.a.detach(task, api, 2)
        self.a.accept(call, api=api, number=3)
        equal(self.a.release("back", (task, token)), ["held"], "joined before it was given back")
        equal(self.a.poll(self.owner, task), "ready", "it is not parked")
        equal(self.a.attach(self.other, task, api, 4), 0, "nobody attaches to a foreign task (V8)")
        self.a.rows("DELETE FROM work RETURNING 1")

    def a_hang_up_meets_the_next_call_in_both_orders(self):
        api = new_incarnation()
        for call_first in (True, False):
            call = (self.owner, self.tool, self.fresh(), "{}")
            task = self.a.accept(call, api=api, number=1)[0][1]
            with self.a.conn.transaction():
                if call_first:
                    self.a.accept(call, api=api, number=2)
                    late = Late(lambda task=task: self.b.detach(task, api, 1)[0])
                else:
                    self.a.detach(task, api, 1)
                    late = Late(lambda call=call: self.b.accept(call, api=api, number=2)[0][2])
                check(late.blocked(), "the second waits for the first")
            counts["races"] += 1
            equal(late.ended(), False if call_first else "ready", "and sees what it did")
            equal(self.a.poll(self.owner, task), "ready", "the new call's task goes on")
        self.a.rows("DELETE FROM work RETURNING 1")

    def what_nobody_waits_for_is_parked_and_ends(self):
        api = new_incarnation()
        call = (self.owner, self.tool, self.fresh(), "{}")
        self.a.beat(api, True)
        task = self.a.accept(call, api=api, number=1)[0][1]
        equal(self.a.one("SELECT park_orphans(100)"), 0, "a live API's calls are let alone")
        self.a.one("SELECT declare_dead(%s, 1)", api)
        equal(self.a.one("SELECT park_orphans(100)"), 1, "a dead API's calls are parked")
        equal(self.a.poll(self.owner, task), "parked", "as if they had hung up")
        equal(self.a.one("SELECT expire_parked(100)"), 0, "for as long as the tool allows")
        self.move_clock("25 hours")
        equal(self.a.one("SELECT expire_parked(100)"), 1, "then it ends")
        equal(self.a.poll(self.owner, task), "cancelled", "as cancelled")
        self.move_clock("0 days")

    def batches_in_any_order_do_not_deadlock(self):
        """With FOR SHARE, or unsorted, re-sent finishes deadlocked (rules 2 and 6)."""
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        stores = [Store(self.cluster) for _ in range(4)]
        errors = []
        for _ in range(DEADLOCK_ROUNDS):
            for _ in range(12):
                self.new_task()
            claims = [row[:2] for row in self.a.claim(incarnation, self.tool, 12)]

            def run(store, claims=claims):
                mine = claims[:]
                random.shuffle(mine)
                try:
                    store.step(*[(task, token, 0) for task, token in mine])
                    store.finish(*mine)
                except psycopg.Error as error:
                    errors.append(error.sqlstate)

            rig.in_parallel(run, stores)
            counts["races"] += 4
        equal(errors, [], "no deadlock in shuffled batches of four sessions")

    # --- commits, roles, plans ---

    def only_async_functions_commit_without_the_disk(self):
        """Rule 5: a function-level SET has no effect on the commit; a name says which ones do."""
        calls = {
            "wake_async": "SELECT wake_async('w')",
            "beat_async": f"SELECT beat_async('{new_incarnation()}', true, 'worker', 1, 0, '{{}}',"
                          " '{}', '{}', '{}')",
            "claim": f"SELECT claim('{new_incarnation()}', '{{1}}', 1, gen_random_uuid())",
            "accept_bounded": "SELECT accept_bounded(true" + ", '{}'" * 13 + ")",
            "cancel": "SELECT cancel(1, '{}', '{}')",
            "step": "SELECT step(1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
            "finish": "SELECT finish(1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',"
                      " '{}', '{}', '{}')",
            "release": "SELECT release('{}', '{}', '{}', '{}', '{}', '{}')",
            "barrier": "SELECT barrier()",
        }
        for name, sql in calls.items():
            with self.a.conn.transaction():
                self.a.conn.execute(sql)
                equal(self.a.one("SHOW synchronous_commit"),
                      "off" if name.endswith("_async") else "on", f"synchronous_commit of {name}")

    def roles_execute_theirs_and_touch_no_table(self):
        for role in ("holdfast_api", "holdfast_worker", "holdfast_sql"):
            session = Store(self.cluster, role)
            for table in ("task", "work", "effect", "principal"):
                try:
                    session.rows(f"SELECT * FROM {table}")
                    check(False, f"{role} reads {table}")
                except psycopg.errors.InsufficientPrivilege:
                    check(True, "")
            try:
                session.rows("SELECT declare_dead(%s, 1)", new_incarnation())
                check(False, f"{role} may maintain")
            except psycopg.errors.InsufficientPrivilege:
                check(True, "")
            session.conn.close()
        bad = self.a.rows(
            "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'holdfast' AND (has_function_privilege('holdfast_api', p.oid,"
            " 'EXECUTE') OR has_function_privilege('holdfast_worker', p.oid, 'EXECUTE') OR"
            " has_function_privilege('holdfast_sql', p.oid, 'EXECUTE'))"
            " AND NOT (p.prosecdef AND p.provolatile = 'v' AND p.proconfig::text LIKE '%%search_path%%')")
        equal(bad, [], "what roles may call is SECURITY DEFINER, VOLATILE, with a search_path")


    # --- an operator's acts (design, retry by an operator) ---

    OPERATED = ("keyed", "pure", "lookup", "unsafe", "local")

    def operated(self, phases=OPERATED):
        """A tool with these effects, a worker's incarnation."""
        doc = json.dumps({"phases": [{"name": f"p{i}", "kind": "http", "effect": effect}
                                     for i, effect in enumerate(phases)]})
        tool = self.a.one(
            "INSERT INTO tool (name, version, doc, result_ttl_ms, tombstone_ttl_ms, deadline_ms,"
            " phases, crash_limit) VALUES (%s, repeat('b', 64), %s, 604800000, 7776000000,"
            " 3600000, %s, 3) RETURNING tool", self.fresh(), doc, len(phases))
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        return tool, incarnation

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

    def a_retry_makes_one_successor_with_what_was_done(self):
        tool, incarnation = self.operated()
        task, call = self.failed(tool, incarnation, 2)
        before = self.a.rows("SELECT place, name, error, message, hash, at FROM step WHERE task = %s"
                             " ORDER BY place", task)
        self.a.rows("INSERT INTO artifact (week, task, phase, name, media_type, sha256, content, at)"
                    " SELECT %s, %s, p, 'a' || p, 'text/plain', 'x', 'y', now_()"
                    " FROM generate_series(0, 2) p RETURNING 1", week_of(task), task)
        answer, successor = self.a.retry(task)
        equal(answer, "retried", "a failed task is retried")
        check(successor and successor != task, "under a handle of its own")
        equal(self.a.rows("SELECT place, name, error, message, hash, at FROM step WHERE task = %s"
                          " ORDER BY place", task), before, "the old outcome is as it was (V6)")
        equal(self.a.poll(self.owner, task), "failed", "the old handle stays failed")
        equal(self.a.rows("SELECT v.successor FROM poll_task(%s, %s, %s) v", week_of(task),
                          [self.owner], [task]), [(successor,)], "and names its successor")
        equal(self.a.accept(call)[0][:2], ("same", successor), "the effect ID answers with it")
        equal(self.a.rows("SELECT place, origin, token FROM step WHERE task = %s ORDER BY place",
                          successor), [(65535, task, None), (131071, task, None)],
              "the recovery points came along, with their origin")
        equal(self.a.one("SELECT count(*) FROM artifact WHERE task = %s", successor), 2,
              "and the artifacts of the phases that are done")
        equal(self.a.rows("SELECT retry_of, generations, tried FROM task WHERE task = %s", successor),
              [(task, None, None)], "retry_of")
        equal(self.a.rows("SELECT act, by FROM audit WHERE task = %s", task), [("retry", "ann")],
              "an audit row")
        equal(self.a.retry(task), ("successor", successor), "a second retry is told of the first")
        claim = self.a.claim(incarnation, tool)[0]
        equal((claim[0], claim[2], claim[3], claim[5]), (successor, 2, 1, [65535, 131071]),
              "a worker goes on behind them")
        self.a.fail(claim[:2])
        third = self.a.retry(successor)[1]
        equal(self.a.rows("SELECT DISTINCT origin FROM step WHERE task = %s", third), [(task,)],
              "a copy of a copy knows where it comes from")
        equal(self.a.rows("SELECT v.successor FROM poll_task(%s, %s, %s) v", week_of(third),
                          [self.owner], [third]), [(third,)], "the newest names itself")
        self.a.rows("DELETE FROM work RETURNING 1")

    def a_retry_knows_what_it_must_not_do(self):
        tool, incarnation = self.operated(("pure", "keyed", "pure", "unsafe"))
        for done, phase, error, maybe, new_key, wanted in (
                (1, None, "phase_failed", "no", True, "retried"),
                (1, 1, "phase_failed", "no", True, "retried"),
                (1, None, "attempts_exhausted", "no", True, "not_refused"),
                (1, None, "phase_failed", "maybe", True, "not_refused"),
                (1, 0, "phase_failed", "no", True, "not_refused"),
                (2, None, "phase_failed", "no", True, "not_refused"),
                (1, 0, "phase_failed", "no", False, "retried"),
                (1, 0, "phase_failed", "maybe", False, "maybe"),
                (1, 2, "phase_failed", "no", False, "ahead"),
                (2, 1, "phase_failed", "no", False, "done"),
                (3, 2, "phase_failed", "no", False, "retried"),
                (3, 0, "phase_failed", "no", False, "done"),
                (4, None, "result", "no", False, "retried")):
            task, _ = self.failed(tool, incarnation, done, error, maybe)
            equal(self.a.retry(task, phase, new_key)[0], wanted,
                  f"{done} done, from {phase}, {error}, {maybe}, new key {new_key}")
            self.a.rows("DELETE FROM work RETURNING 1")
        for state in ("completed", "cancelled"):
            self.a.accept((self.owner, tool, self.fresh(), "{}"))
            claim = self.a.claim(incarnation, tool)[0][:2]
            self.a.finish(claim, state=state)
            equal(self.a.retry(claim[0])[0], state, f"{state} is final")
        equal(self.a.retry(os.urandom(24))[0], "missing", "no such task")

    def a_new_key_is_the_next_generation_for_good(self):
        tool, incarnation = self.operated(("pure", "keyed", "pure"))
        task, _ = self.failed(tool, incarnation, 1)
        for generation in (1, 2):
            task = self.a.retry(task, None, True)[1]
            claim = self.a.rows("SELECT task, token, places, kinds, names FROM"
                                " claim(%s, %s, 1, gen_random_uuid())", incarnation, [tool])[0]
            equal([row for row in zip(*claim[2:]) if row[1] == "generation"],
                  [(65536, "generation", str(generation))], "the worker is told")
            check(f"key generation {generation}" in self.a.one(
                "SELECT detail FROM audit ORDER BY at DESC LIMIT 1"), "the audit row says so")
            if generation == 1:
                self.a.fail(claim[:2])
        self.a.step((claim[0], claim[1], 1))
        equal(self.a.rows("SELECT place / 65536, generation FROM step WHERE task = %s ORDER BY 1",
                          task), [(0, 0), (1, 2)], "and so does the step")
        self.a.fail(claim[:2], "attempts_exhausted")
        successor = self.a.retry(task)[1]
        equal(self.a.one("SELECT generations FROM task WHERE task = %s", successor), [0, 2, 0],
              "a retry without a new key keeps it")
        self.a.rows("UPDATE work SET state = 'unknown', phase = 1, generations = '{0,2,0}' WHERE task = %s"
                    " RETURNING 1", successor)
        self.a.rows("DELETE FROM step WHERE task = %s AND place / 65536 = 1 RETURNING 1", successor)
        equal(self.a.one("SELECT settle(%s, %s, 'done', 'ann', 'saw it', '\\x80', 'p1', 0, false)",
                         week_of(successor), successor), "settled", "settled as done")
        equal(self.a.rows("SELECT generation FROM step WHERE task = %s AND place / 65536 = 1", successor),
              [(2,)], "and what a person settles is of the generation that was sent")
        self.a.rows("DELETE FROM work RETURNING 1")

    def what_may_have_happened_is_still_open_in_the_successor(self):
        """V7: the next worker must not believe that nobody has started the phase before."""
        tool, incarnation = self.operated(("keyed", "unsafe", "lookup"))
        for done, maybe, checkpoint in ((0, "maybe", False), (1, "maybe", True), (2, "maybe", False),
                                        (1, "no", True), (0, "no", False)):
            task, _ = self.failed(tool, incarnation, done, "crash_limit", maybe, checkpoint)
            for _ in range(2):
                successor = self.a.retry(task)[1]
                row = self.a.rows("SELECT w.first_try, w.sent, (SELECT count(*) FROM intent i WHERE"
                                  " i.task = w.task AND i.phase = w.phase) FROM work w"
                                  " WHERE w.task = %s", successor)[0]
                origin = self.a.one("SELECT min(t.accepted) FROM task t WHERE t.effect_id = (SELECT"
                                    " effect_id FROM task WHERE task = %s)", successor)
                ended = self.a.one("SELECT at FROM step WHERE task = %s AND kind = 'outcome'", task)
                if maybe == "no":
                    equal(row, (None, None, 0), "what was refused starts anew")
                else:
                    check(row[0] and origin <= row[0] <= ended and row[1] == ended and row[2] == 1,
                          f"phase {done} may have been sent", row)
                    if done == 0:
                        equal(row[0], origin, "its key's window counts from the first task")
                equal(self.a.one("SELECT count(*) FROM step WHERE task = %s AND kind = 'checkpoint'",
                                 successor), int(checkpoint), "its checkpoints came along")
                task = successor
                self.a.fail(self.a.claim(incarnation, tool)[0][:2], "crash_limit", maybe)
        # Settled as failed, by a person who could not tell either.
        self.a.accept((self.owner, tool, self.fresh(), "{}"))
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.step((*claim, 0))
        self.a.release("unknown", claim, sent=True)
        self.a.one("SELECT settle(%s, %s, 'fail', 'ann', 'why', NULL, 'p1', 0, false)",
                   week_of(claim[0]), claim[0])
        equal(self.a.one("SELECT count(*) FROM intent WHERE task = %s", self.a.retry(claim[0])[1]), 1,
              "what was settled as failed may have happened")
        self.a.rows("DELETE FROM work RETURNING 1")
        tool, incarnation = self.operated(("pure",))
        for phase, kept in ((None, 1), (0, 0)):
            task, _ = self.failed(tool, incarnation, 0, checkpoint=True)
            equal(self.a.one("SELECT count(*) FROM step WHERE task = %s", self.a.retry(task, phase)[1]),
                  kept, "a pure phase asked for by name begins without its checkpoints")
            self.a.rows("DELETE FROM work RETURNING 1")

    def open_tasks_are_retried_in_place(self):
        tool, incarnation = self.operated()
        self.a.accept((self.owner, tool, self.fresh(), "{}"))
        claim = self.a.claim(incarnation, tool)[0][:2]
        equal(self.a.retry(claim[0])[0], "running", "what runs is not touched")
        self.a.step((*claim, 0))
        self.a.release("retry", claim, delay=3_600_000, sent=True)
        equal(self.a.retry(claim[0], 0)[0], "place", "a place with a recovery point is over (V3)")
        equal(self.a.retry(claim[0], 1, True)[0], "not_refused", "and its key stays")
        first = self.a.rows("SELECT first_try, sent FROM work WHERE task = %s", claim[0])
        equal(self.a.retry(claim[0], 1), ("due", None), "what backs off is due")
        equal(self.a.rows("SELECT first_try, sent FROM work WHERE task = %s", claim[0]), first,
              "and keeps what it knows of its request")
        equal(self.a.retry(claim[0])[0], "ready", "once")
        again = self.a.claim(incarnation, tool)[0]
        equal((again[0], again[2], again[3]), (claim[0], 1, 2), "it goes on at its phase")
        self.a.release("unknown", again[:2], sent=True)
        equal(self.a.retry(claim[0])[0], "unknown", "unknown goes on by settle alone")
        self.a.rows("DELETE FROM work RETURNING 1")

    def two_retries_make_one_successor(self):
        tool, incarnation = self.operated()
        for commits in (True, False):
            task, call = self.failed(tool, incarnation, 1)
            with self.a.conn.transaction(force_rollback=not commits):
                first = self.a.retry(task)
                equal(self.b.accept(call)[0][1], task, "a repeat meanwhile gets the old task")
                late = Late(lambda task=task: self.b.retry(task))
                check(late.blocked(), "the second waits")
            counts["races"] += 1
            second = late.ended()
            if commits:
                equal(second, ("successor", first[1]), "and is told of the first")
            else:
                equal(second[0], "retried", "and is the first, where that came to nothing")
            equal(self.a.one("SELECT count(*) FROM work w JOIN task t ON t.task = w.task"
                             " WHERE t.effect_id = %s", call[2]), 1, "one live task (V1)")
            self.a.rows("DELETE FROM work RETURNING 1")
        stores = [Store(self.cluster) for _ in range(8)]
        for _ in range(RACE_ROUNDS // 10):
            task, call = self.failed(tool, incarnation, 1)
            got = rig.in_parallel(lambda store, task=task: store.retry(task), stores[:4])
            told = rig.in_parallel(lambda store, call=call: store.accept(call)[0], stores)
            counts["races"] += 1
            equal((sorted(row[0] for row in got), len({row[1] for row in got})),
                  (["retried"] + ["successor"] * 3, 1), "four at once make one successor")
            equal({row[:2] for row in told}, {("same", got[0][1])}, "which repeats get")
            self.a.rows("DELETE FROM work RETURNING 1")

    def a_retry_and_a_repeat_meet(self):
        """Whatever comes first, a repeat gets the old task or the new one, and makes none."""
        tool, incarnation = self.operated()
        stores = [Store(self.cluster) for _ in range(5)]
        for _ in range(RACE_ROUNDS // 10):
            task, call = self.failed(tool, incarnation, 1)
            got = rig.in_parallel(
                lambda work, task=task, call=call: work[1].retry(task) if work[0] == 2
                else work[1].accept(call)[0], list(enumerate(stores)))
            counts["races"] += 1
            successor = got[2][1]
            check(all(row[0] == "same" and row[1] in (task, successor)
                      for i, row in enumerate(got) if i != 2), "old or new", got)
            equal(self.a.accept(call)[0][1], successor, "and from then on the new one")
            self.a.rows("DELETE FROM work RETURNING 1")

    def retries_of_many_lock_as_the_sweep_does(self):
        """Effects by their digests over the whole batch, however the tasks stand in it."""
        tool, incarnation = self.operated()
        for _ in range(6):
            tasks = [self.failed(tool, incarnation, 0) for _ in range(2)]
            pairs = sorted((digest("/".join(map(str, call[:3])))[:16], task) for task, call in tasks)
            with self.a.conn.transaction():
                self.a.rows("SELECT 1 FROM effect WHERE digest = %s FOR NO KEY UPDATE", pairs[0][0])
                late = Late(lambda p=pairs: self.b.rows("SELECT answer, number FROM operate('retry', %s,"
                                                        " 'ann', 'why')", [task for _, task in p]))
                check(late.blocked(), "the retries wait for the smaller digest")
                self.a.rows("SELECT 1 FROM effect WHERE digest = %s FOR NO KEY UPDATE NOWAIT", pairs[1][0])
            equal(late.ended(), [("retried", 2)], "and hold no other meanwhile")
            counts["races"] += 1
            self.a.rows("DELETE FROM work RETURNING 1")

    def a_retry_and_the_sweep_meet(self):
        tool, incarnation = self.operated()
        self.a.rows("DELETE FROM work RETURNING 1")
        # The sweep first: nothing is left to retry.
        task, call = self.failed(tool, incarnation, 1)
        week = week_of(task)
        self.move_clock("8 days")
        self.make_week()
        equal(self.a.retry(task)[0], "missing", "past its retention it is over, swept or not")
        with self.a.conn.transaction():
            self.a.one("SELECT sweep(%s, 1000)", week)
            late = Late(lambda: self.b.retry(task))
            check(late.blocked(), "a retry waits for the sweep")
        counts["races"] += 1
        equal(late.ended()[0], "missing", "and finds nothing")
        equal(self.a.accept(call)[0][0], "expired", "the tombstone stands")
        self.move_clock("0 days")
        # The retry first: the old one is swept, the effect stays with the successor.
        task, call = self.failed(tool, incarnation, 1)
        with self.a.conn.transaction():
            successor = self.a.retry(task)[1]
            late = Late(lambda: self.b.one("SELECT sweep(%s, 1000)", week))
            check(late.blocked(), "a sweep waits for the retry")
        late.ended()
        counts["races"] += 1
        equal(self.a.accept(call)[0][:2], ("same", successor), "the successor is live")
        self.move_clock("8 days")
        while self.a.one("SELECT sweep(%s, 1000)", week):
            pass
        equal(self.a.one("SELECT count(*) FROM task WHERE task = %s", task), 0, "the old is swept")
        equal(self.a.accept(call)[0][:2], ("same", successor), "its effect is no tombstone")
        equal(self.a.one("SELECT tombstone_until FROM effect WHERE task = %s", successor), None,
              "not even a hidden one")
        self.a.finish(self.a.claim(incarnation, tool)[0][:2])
        self.move_clock("16 days")
        while self.a.one("SELECT sweep(%s, 1000)", week_of(successor)):
            pass
        equal(self.a.accept(call)[0][0], "expired", "the successor's end makes the tombstone")
        self.move_clock("0 days")

    def a_pause_stops_a_task_at_its_next_place(self):
        tool, incarnation = self.operated()
        task = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0][1]
        equal([self.a.act("pause", task) for _ in range(2)], ["paused", "paused"], "a ready one at once")
        equal(self.a.one("SELECT count(*) FROM audit WHERE task = %s", task), 1, "one act, one row")
        equal(self.a.claim(incarnation, tool), [], "and it is not claimed")
        equal(self.a.poll(self.owner, task), "paused", "which is told")
        equal([self.a.act("resume", task) for _ in range(2)], ["resumed", "not_paused"], "resumed")
        claim = self.a.claim(incarnation, tool)[0][:2]
        equal([self.a.act("pause", task) for _ in range(2)], ["asked", "asked"], "a running one is asked")
        equal(self.a.rows("SELECT wish FROM beat_async(%s, false, 'worker', 4, 0, '{}', '{}', '{}',"
                          " '{}')", incarnation), [(1,)], "as for a park, at the next beat")
        equal(self.a.step((*claim, 0)), ["held"], "what it did is kept")
        self.a.release("back", claim)
        equal(self.a.rows("SELECT state, park, pause, phase, message FROM work WHERE task = %s", task),
              [("paused", False, "task", 1, None)], "then it is paused, not parked")
        equal(self.a.retry(task)[0], "due", "a retry lets it go on too")
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.act("pause", task)
        equal(self.a.act("resume", task), "resumed", "taken back before it stopped")
        self.a.release("back", claim)
        equal(self.a.poll(self.owner, task), "ready", "it goes on")
        # A pause outlives the worker's death, a hang-up and a plain client that comes back.
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.act("pause", task)
        equal(self.a.one("SELECT declare_dead(%s, (SELECT beat FROM worker WHERE incarnation = %s))",
                         incarnation, incarnation), True, "its worker dies")
        self.a.one("SELECT reclaim(10)")
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.release("back", claim)
        equal(self.a.poll(self.owner, task), "paused", "the next one is asked as well")
        equal(self.a.cancel(self.owner, task)[0], True, "it can be cancelled")
        equal(self.a.rows("SELECT state, cancel, pause FROM work WHERE task = %s", task),
              [("ready", True, None)], "and a worker settles what the dead one may have sent")
        equal(self.a.act("pause", task), "ending", "which no pause stops")
        self.a.rows("DELETE FROM work RETURNING 1")
        api = new_incarnation()
        call = (self.owner, tool, self.fresh(), "{}")
        task = self.a.accept(call, api=api, number=1)[0][1]
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.act("pause", task)
        self.a.accept(call, api=api, number=2)
        self.a.detach(task, api, 2, park=False)
        self.a.release("back", claim)
        equal(self.a.poll(self.owner, task), "paused", "a repeat does not take the wish away")
        self.a.accept(call, api=api, number=3)
        self.a.detach(task, api, 3)
        equal(self.a.poll(self.owner, task), "paused", "nor is it parked by a hang-up")
        self.a.rows("DELETE FROM work RETURNING 1")

    def what_was_answered_is_kept_and_a_pause_outlives_a_question(self):
        tool, incarnation = self.operated(("pure", "pure"))

        def ask(claim, phase, key):
            return self.a.one("SELECT ask(%s, %s, %s, %s, %s, NULL, false, 'asks')",
                              week_of(claim[0]), claim[0], claim[1], phase,
                              json.dumps([{"key": key, "request": {}}]))

        def keys(task):
            return self.a.rows("SELECT key, how FROM inbox WHERE task = %s ORDER BY key", task)

        task = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0][1]
        for phase, key in ((0, "a"), (1, "b")):
            claim = self.a.claim(incarnation, tool)[0][:2]
            equal(ask(claim, phase, key), "waiting", "it waits")
            self.a.rows("SELECT * FROM answer(%s, %s, %s, %s)", week_of(task), self.owner, task,
                        json.dumps({key: 1}))
            if phase == 0:
                claim = self.a.claim(incarnation, tool)[0][:2]
                self.a.step((*claim, 0))
                self.a.release("back", claim)
        self.a.fail(self.a.claim(incarnation, tool)[0][:2])
        task = self.a.retry(task)[1]
        equal(keys(task), [("a", "answer"), ("b", "answer")], "answers came along")
        self.a.fail(self.a.claim(incarnation, tool)[0][:2])
        task = self.a.retry(task, 1)[1]
        equal(keys(task), [("a", "answer")], "a phase from its beginning asks again")
        claim = self.a.claim(incarnation, tool)[0][:2]
        self.a.act("pause", task)
        ask(claim, 1, "b")
        equal(self.a.rows("SELECT state, pause, park FROM work WHERE task = %s", task),
              [("paused", "task", False)], "paused, with its question open")
        self.a.rows("SELECT * FROM answer(%s, %s, %s, %s)", week_of(task), self.owner, task, '{"b":2}')
        equal(self.a.poll(self.owner, task), "paused", "an answer does not resume it")
        self.a.act("resume", task)
        equal(self.a.claim(incarnation, tool)[0][0], task, "its operator does")
        self.a.rows("DELETE FROM work RETURNING 1")

    def a_paused_tool_is_not_claimed_for(self):
        tool, incarnation = self.operated()
        other, _ = self.operated()
        name = self.a.one("SELECT name FROM tool WHERE tool = %s", tool)
        equal(self.a.one("SELECT pause_all('tool', 'nobody', 'ann', 'why')"), "missing", "no such tool")
        equal([self.a.one("SELECT pause_all('tool', %s, 'ann', 'why')", name) for _ in range(2)],
              ["paused", "already"], "paused once")
        got = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0]
        self.a.accept((self.owner, other, self.fresh(), "{}"))
        equal(got[0], "new", "calls are accepted")
        equal(self.a.rows("SELECT state, message FROM poll_task(%s, %s, %s)", week_of(got[1]),
                          [self.owner], [got[1]]), [("paused", "all work of this tool")], "and told")
        claims = self.a.rows("SELECT tool FROM claim(%s, %s, 9, gen_random_uuid())", incarnation,
                             [tool, other])
        equal(claims, [(other,)], "the other tool's work goes on")
        equal(self.a.one("SELECT serves FROM worker WHERE incarnation = %s", incarnation),
              [tool, other], "the worker's row says what it serves")
        self.a.one("SELECT resume_all('tool', %s, 'ann', 'why')", name)
        equal(self.a.claim(incarnation, tool)[0][0], got[1], "resumed")
        self.a.rows("DELETE FROM work RETURNING 1")

    def a_paused_tenant_is_set_aside_and_nobody_starves(self):
        tool, incarnation = self.operated()
        self.a.rows("DELETE FROM work RETURNING 1")
        bobs = [self.a.accept((self.other, tool, self.fresh(), "{}"))[0][1] for _ in range(30)]
        equal(self.a.one("SELECT pause_all('tenant', 'B', 'ann', 'why')"), "paused", "paused")
        alices = self.a.accept((self.owner, tool, self.fresh(), "{}"))[0][1]
        equal(self.a.poll(self.other, bobs[0]), "paused", "told at once")
        equal([row[0] for row in self.a.claim(incarnation, tool, 5)], [alices],
              "behind thirty of a paused tenant another's is found")
        page = 0
        while page := self.a.one("SELECT pause_pages(%s, 8)", page):
            pass
        equal(self.a.one("SELECT count(*) FROM work WHERE state = 'paused' AND pause = 'tenant'"), 30,
              "all are set aside")
        equal(self.a.act("resume", bobs[0]), "tenant", "one of them alone is not resumed")
        # A claim that has set one aside and not committed holds the resume, which then finds it.
        late_one = self.a.accept((self.other, tool, self.fresh(), "{}"))[0][1]
        with self.a.conn.transaction():
            equal(self.a.claim(incarnation, tool, 5), [], "nothing is claimed")
            late = Late(lambda: self.b.one("SELECT resume_all('tenant', 'B', 'ann', 'why')"))
            check(late.blocked(), "a resume waits for a claim that is setting aside")
        counts["races"] += 1
        equal(late.ended(), "resumed", "resumed")
        while self.a.one("SELECT resume_tenant('B', 7)"):
            pass
        got = {row[0] for row in self.a.claim(incarnation, tool, 100)}
        equal(got, {*bobs, late_one}, "all of them are due again")
        self.a.rows("DELETE FROM work RETURNING 1")

    def filters_find_what_they_say(self):
        tool, incarnation = self.operated()
        name = self.a.one("SELECT name FROM tool WHERE tool = %s", tool)
        tasks = [self.failed(tool, incarnation, 1)[0] for _ in range(5)]
        pick = "SELECT p FROM pick(%s, %s, %s, %s, %s, %s) p"

        def found(state="failed", tenant=None, older=0, after=b"", most=100):
            return [row[0] for row in self.a.rows(pick, state, name, tenant, older, after, most)]

        equal(found(), tasks, "the failed ones, in order")
        equal(found(most=2), tasks[:2], "some of them")
        equal(found(after=tasks[1]), tasks[2:], "behind one")
        equal(found(tenant="B"), [], "of a tenant")
        equal(found(older=3_600_000), [], "none is older")
        equal(self.a.rows("SELECT * FROM operate('retry', %s, 'ann', 'why')", tasks[:3]),
              [("retried", 3)], "three are retried")
        equal(found(), tasks[3:], "what has a successor is over")
        ready = found("ready")
        equal(len(ready), 3, "their successors are ready")
        equal(self.a.rows("SELECT * FROM operate('pause', %s, 'ann', 'why')", [*ready, tasks[4]]),
              [("paused", 3), ("missing", 1)], "paused")
        equal(found("paused"), ready, "and found as such")
        equal(self.a.rows("SELECT * FROM operate('cancel', %s, 'ann', 'why')", ready),
              [("cancelled", 3)], "cancelled")
        self.a.rows("DELETE FROM work RETURNING 1")

    def phases_update_in_place(self):
        """HOT: no index and no predicate on what a phase changes (design, the store)."""
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        self.a.rows("DELETE FROM work RETURNING 1")
        claims = [self.claimed(incarnation) for _ in range(20)]
        self.b.one("SELECT pg_stat_force_next_flush()")
        time.sleep(1.2)
        self.a.one("SELECT pg_stat_force_next_flush()")
        hot = "SELECT n_tup_hot_upd FROM pg_stat_all_tables WHERE relname = 'work'"
        before = self.b.one(hot)
        for phase in range(3):
            equal(self.a.step(*[(task, token, phase) for task, token in claims]), ["held"] * 20,
                  "twenty steps")
        self.a.one("SELECT pg_stat_force_next_flush()")
        time.sleep(0.3)
        updated = self.b.one(hot) - before
        counts["hot_of_60"] = updated
        check(updated >= 54, "nine of ten phase updates are HOT", updated)

    def plans_hold_at_a_million_rows(self):
        """Statistics from empty, a million rows, a held snapshot: no sequential scan of what grows,
        and no relation lock outside the fast path."""
        self.a.rows("DELETE FROM work RETURNING 1")
        self.a.conn.execute("ALTER TABLE work SET (autovacuum_enabled = off); ANALYZE work")
        held = psycopg.connect(self.cluster.dsn())
        held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        incarnation = new_incarnation()
        self.a.beat(incarnation, True)
        self.a.conn.execute(
            "INSERT INTO work (task, week, owner, queue, state, due, deadline, updated)"
            " SELECT '\\x01'::bytea || set_byte('\\x00'::bytea, 0, 1) ||"
            " substring(int8send(to_ms(now_())) FROM 3) || uuid_send(gen_random_uuid()), 1,"
            " %s, %s, CASE WHEN i %% 2 = 0 THEN 'scheduled' ELSE 'ready' END,"
            " now_() + interval '1 day', now_() + interval '2 days', now_()"
            " FROM generate_series(1, 1000000) i", (self.owner, self.tool + 1))
        counts["rows"] = self.a.one("SELECT count(*) FROM work")
        task, token = self.claimed(incarnation)
        for _ in range(5):
            ready = self.new_task()

        def read():
            """Rows read from what grows, by scan and by index: a whole walk shows in either."""
            self.a.one("SELECT pg_stat_force_next_flush()")
            time.sleep(0.2)
            return dict(self.b.rows(
                "SELECT t.relname, t.seq_tup_read + (SELECT sum(i.idx_tup_read)"
                " FROM pg_stat_all_indexes i WHERE i.relid = t.relid) FROM pg_stat_all_tables t"
                " WHERE t.schemaname = 'holdfast' AND (t.relname = 'work' OR t.relname LIKE"
                " 'effect_%%' OR t.relname LIKE 'step_w%%' OR t.relname LIKE 'task_w%%')"))

        for name, call in {
            "claim": lambda: self.a.claim(incarnation, self.tool, 10),
            "step": lambda: self.a.step((task, token, 0)),
            "release": lambda: self.a.release("retry", (task, new_incarnation())),
            "accept": lambda: self.a.accept((self.owner, self.tool, self.fresh(), "{}")),
            "poll": lambda: self.a.poll(self.owner, task),
            "poll_task": lambda: self.a.rows("SELECT state FROM poll_task(%s, %s, %s)",
                                             week_of(ready), [self.owner], [ready]),
            "artifact_of": lambda: self.a.rows("SELECT * FROM artifact_of(%s, %s, %s, 'report.pdf', 1)",
                                               week_of(task), self.owner, task),
            "shelf": lambda: self.a.rows("SELECT number FROM shelf(0)"),
            "beat_async": lambda: self.a.beat(incarnation),
            "answer": lambda: self.a.rows("SELECT * FROM answer(%s, %s, %s, '{\"k\":1}')", week_of(task),
                                          self.owner, task),
            "ask": lambda: self.a.one("SELECT ask(%s, %s, %s, 0, '[]', NULL, false, '')",
                                      week_of(task), task, new_incarnation()),
            "poll_asking": lambda: self.a.rows("SELECT * FROM poll_asking(%s, %s, %s)", week_of(task),
                                               self.owner, task),
            "finish": lambda: self.a.finish((task, token)),
            "gauges": lambda: self.a.rows("SELECT * FROM gauges()"),
            "count_work": lambda: self.a.rows("SELECT * FROM count_work(7, 1)"),
        }.items():
            # Statistics of other sessions may come late; a walk of ours would show each time.
            for _ in range(3):
                before = read()
                began = time.monotonic()
                with self.a.conn.transaction():
                    call()
                    slow = self.a.rows(
                        "SELECT relation::regclass FROM pg_locks WHERE locktype = 'relation'"
                        " AND NOT fastpath AND relation > 16384 AND pid = pg_backend_pid()")
                counts[f"{name}_ms"] = round((time.monotonic() - began) * 1000, 1)
                walked = {k: int(v - before.get(k, 0)) for k, v in read().items()
                          if v - before.get(k, 0) > ROWS_READ_MAX}
                if not walked:
                    break
            equal(walked, {}, f"{name} walks nothing that grows")
            if name in ("step", "poll", "poll_task", "release", "beat_async", "answer", "ask"):
                equal(slow, [], f"{name} takes no lock outside the fast path")
        held.close()


def main():
    bench = Bench()
    try:
        bench.migrate()
        for name, test in vars(Bench).items():
            if not callable(test) or name in ("__init__", "migrate", "fresh", "new_task", "claimed", "stop", "move_clock",
                        "make_week", "intend", "kinds", "operated", "failed", "tombstoned"):
                continue
            began = time.monotonic()
            test(bench)
            print(f"{name} {time.monotonic() - began:.1f} s", flush=True)
    finally:
        bench.stop()
    rig.finish("sql", counts, {"races": RACE_ROUNDS, "storm_calls": 960, "rows": 1_000_000})


if __name__ == "__main__":
    main()
