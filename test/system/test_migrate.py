#!/usr/bin/python3
"""Migration while others live (B050): five processes start at once on an empty and on an older
schema, through PgBouncer in transaction mode, one is killed in the middle; under live load of the
release before nobody waits for a lock, also where a long transaction stands in the way; and a
program that meets a newer schema says so and goes on."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import psycopg

import rig
from patience import between, soon
from rig import check, equal, until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
import bouncer  # noqa: E402
import previous  # noqa: E402

OLD, NEW = previous.holdfast(), rig.HOLDFAST
STARTERS = 5
UP_S_MAX = 30
LOCK_WAIT_S_MAX = 3.0  # it is some 0.6 s
CALLERS = 4
GIVE_UP_S = 2.0  # so long does a call wait for the store
NEWER = 1_000_000
ROLES = {"api": "holdfast_api", "worker": "holdfast_worker", "sql": "holdfast_sql",
         "maintain": "holdfast_maintain"}
# So that there is a middle to be killed in: each statement of a migration takes a while.
SLOW = """CREATE FUNCTION public.slow() RETURNS event_trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(0.004); END $$;
CREATE EVENT TRIGGER slow ON ddl_command_end EXECUTE FUNCTION public.slow()"""
# What a schema is, as far as a migration that was broken off could have changed it.
STATE = """SELECT md5(coalesce(string_agg(line, chr(10) ORDER BY line), '')) FROM (
    SELECT 'f ' || p.oid::regprocedure || md5(p.prosrc) AS line FROM pg_proc p
    WHERE p.pronamespace = to_regnamespace('holdfast')
    UNION ALL SELECT 'c ' || a.attrelid::regclass || a.attname FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = to_regnamespace('holdfast')) x"""
counts = {"starts": 0, "killed_in_the_middle": 0, "calls": 0, "looks": 0, "newer": 0}


# --- five at once --------------------------------------------------------------------------------

class Starts:
    def __init__(self, stack, pooler, name, old):
        self.stack, self.pooler, self.name, self.old = stack, pooler, name, old
        with stack.cluster.connect("postgres") as admin:
            admin.execute(f"CREATE DATABASE {name}")
        if old:
            self.migrate(OLD, stack.cluster.dsn(database=name))
        with stack.cluster.connect(name) as admin:
            admin.execute(SLOW)
            self.before = admin.execute(STATE).fetchone()[0]
        self.ports = [rig.free_port() for _ in range(STARTERS)]

    def migrate(self, binary, dsn):
        subprocess.run([str(binary), "migrate"], env=self.stack.env(HOLDFAST_DSN=dsn), check=True,
                       capture_output=True)

    def query(self, sql):
        with self.stack.cluster.connect(self.name) as admin:
            return admin.execute(sql).fetchall()

    def start(self, number):
        """Migrates, again where a lock was held, and then serves, as a pod does: API processes, and the last a worker."""
        counts["starts"] += 1
        folder = self.stack.folder
        worker = number == STARTERS - 1
        flags = (["worker", "--state-dir", str(folder / f"state-{self.name}"), "--conf-file",
                  str(folder / "conf.json")] if worker else
                 ["api", "--listen", f"127.0.0.1:{self.ports[number]}", "--tokens-file",
                  str(folder / "tokens")])
        flags += ["--keys-file", str(folder / "keys"), "--beat-ms", "100"]
        dsns = {f"HOLDFAST_{role.upper()}_DSN": self.pooler.dsn(user, self.name)
                for role, user in ROLES.items()}
        return rig.Process(f"{self.name}-{number}", [
            "/bin/sh", "-c", 'until "$0" migrate; do sleep 0.2; done; exec "$0" "$@"', str(NEW), *flags],
            self.stack.env(HOLDFAST_DSN=self.pooler.dsn(database=self.name), **dsns),
            str(self.stack.logs / f"{self.name}-{number}.log"))

    def holder(self):
        """Whether somebody's migration is under way, past its first statements."""
        return self.query("SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
                          "WHERE l.locktype = 'advisory' AND l.granted AND a.datname = "
                          "current_database() AND a.xact_start < clock_timestamp() - "
                          "interval '0.15 s'")

    def kill_in_the_middle(self, processes):
        """Of the one that migrates; who that is, only its end tells: all at once, and one again."""
        until(self.holder, UP_S_MAX, "a migration is under way", 0.002)
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.popen.wait()
        until(lambda: not self.query(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'holdfast migrate' AND "
            "datname = current_database() AND state <> 'idle'"), 10, "its transaction is over")
        same = self.query(STATE)[0][0] == self.before
        check(same, f"{self.name}: what a killed migration did is undone")
        counts["killed_in_the_middle"] += same

    def up(self, number):
        if number == STARTERS - 1:
            return self.query("SELECT 1 FROM holdfast.worker WHERE role = 'worker'")
        return rig.http_ask(self.ports[number], "/readyz", seconds=2)[0] == 200

    def run(self):
        # The winner of the lock is killed with its rivals, then once alone among them.
        self.kill_in_the_middle([self.start(0)])
        began = time.monotonic()
        processes = [self.start(number) for number in range(STARTERS)]
        until(self.holder, UP_S_MAX, "a migration is under way", 0.002)
        os.killpg(processes[1].pid, signal.SIGKILL)
        processes[1].popen.wait()
        processes[1] = self.start(1)
        for number in range(STARTERS):
            until(lambda number=number: self.up(number), UP_S_MAX, f"{self.name}: {number} is up")
        soon(began, UP_S_MAX, f"{self.name}: all are up within {UP_S_MAX} s")
        self.clean()
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.popen.wait()

    def clean(self):
        rows = self.query("SELECT version FROM holdfast.schema_version ORDER BY 1")
        equal([row[0] for row in rows], list(range(1, len(rows) + 1)), "each migration once")
        equal(len(rows), newest(), f"{self.name}: the schema is this release's")
        equal(self.query("SELECT l.mode FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
                         "WHERE l.locktype = 'advisory' AND d.datname = current_database()"), [],
              f"{self.name}: no lock is left")
        equal(self.query("SELECT c.relname FROM pg_class c WHERE c.relnamespace = "
                         "'holdfast'::regnamespace AND pg_get_userbyid(c.relowner) <> "
                         "'holdfast_owner'"), [], f"{self.name}: all of it is the owner's")


def newest():
    return len(list((rig.ROOT / "sql" / "migrations").glob("0*.sql")))


# --- under load ----------------------------------------------------------------------------------

class Load:
    def __init__(self, stack):
        self.stack, self.stopping, self.failed, self.waits = stack, False, [], []
        self.threads = [threading.Thread(target=self.call, args=(number,), daemon=True)
                        for number in range(CALLERS)]
        self.threads.append(threading.Thread(target=self.watch, daemon=True))
        for thread in self.threads:
            thread.start()

    def call(self, caller):
        client, number = self.stack.client(), 0
        while not self.stopping:
            number += 1
            answer = self.told(client, {"effect_id": f"m-{caller}-{number}"})
            if not answer.handle:
                self.failed.append(repr(answer))
            counts["calls"] += 1
            time.sleep(0.005)

    @staticmethod
    def told(client, arguments):
        """Asked again where the time that a call has was over: a machine that stands still or is
        slow, and a wait for a lock that is not too long yet, take that once, and not twice."""
        asked = time.monotonic()
        answer = client.call("deliver", arguments)
        if answer.status == 503 and time.monotonic() - asked >= GIVE_UP_S:
            answer = client.call("deliver", arguments)
        return answer

    def watch(self):
        """Who of ours waits for a lock, and since when."""
        with self.stack.cluster.connect() as admin:
            while not self.stopping:
                self.waits += admin.execute(
                    "SELECT extract(epoch FROM l.waitstart)::float8, extract(epoch FROM "
                    "clock_timestamp())::float8, a.usename, left(a.query, 60) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE "
                    "NOT l.granted AND a.usename LIKE 'holdfast%' AND l.waitstart IS NOT NULL"
                ).fetchall()
                counts["looks"] += 1
                time.sleep(0.01)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(30)


def under_load(stack):
    load = Load(stack)
    until(lambda: counts["calls"] > 20, 30, "the load is up")
    # Something like a backup: whoever waits behind a migration that waits for it, waits as long.
    long = psycopg.connect(stack.cluster.dsn())
    long.execute("SELECT count(*) FROM holdfast.work, holdfast.tool")
    ender = threading.Timer(4, long.close)
    ender.start()
    rig.HOLDFAST = NEW
    rig.in_parallel(lambda _: until(
        lambda: stack.command("migrate", check_code=None).returncode == 0, 2 * UP_S_MAX,
        "migrated, by one that comes again when it was told that a lock is held"), [1, 2, 3])
    ender.join()
    equal(stack.query("SELECT max(version) FROM holdfast.schema_version")[0][0], newest(),
          "migrated under load")
    time.sleep(0.5)
    load.stop()
    equal(load.failed[:3], [], "no call fails while the schema is migrated")
    longest = max(((between(since, seen), *who) for since, seen, *who in load.waits), default=(0,))
    check(longest[0] < LOCK_WAIT_S_MAX, f"nobody waits {LOCK_WAIT_S_MAX} s for a lock", longest)
    counts["longest_wait_ms"] = int(longest[0] * 1000)


# --- a newer schema ------------------------------------------------------------------------------

def newer(stack):
    before = stack.query(STATE)[0][0]
    stack.query("INSERT INTO holdfast.schema_version (version, oldest_binary) VALUES (%s, '0.1.0')",
                (NEWER,))
    told = stack.command("migrate").stdout
    check("newer" in told, "migrate says that the schema is newer", told)
    equal(stack.query(STATE)[0][0], before, "and leaves it as it is")
    process = stack.another_api("api-new")  # this release runs on a newer schema
    check("the schema is newer than this binary" in process.log(), "and says so", process.log())
    answer = rig.Client(process.port).call("deliver", {"effect_id": "on-a-newer-one"})
    check(answer.handle, "and takes calls", repr(answer))
    counts["newer"] += 1


def main():
    rig.HOLDFAST = OLD
    stack = rig.Stack(apis=1, workers=1, tools=[rig.http_tool()],
                      settings={"worker": {"beat_ms": 200}, "api": {"beat_ms": 200}})
    pooler = bouncer.Pooler(stack.cluster, stack.start)
    try:
        for name, old in (("made_anew", False), ("made_before", True)):
            Starts(stack, pooler, name, old).run()
        under_load(stack)
        newer(stack)
    finally:
        stack.stop()
    rig.finish("migrate", counts, {"starts": 14, "killed_in_the_middle": 2, "calls": 100,
                                   "looks": 50, "newer": 1})


main()
