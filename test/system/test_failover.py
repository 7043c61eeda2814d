#!/usr/bin/python3
"""B045: the primary takes no writes any more, by default_transaction_read_only and by a promotion
of its standby while it stays up, and every process finds the one that does, without a restart. Nothing
fails for it, no attempt is spent, each effect happens once; in the gap calls get 503 with
Retry-After, and no process is ready. A connection that saw 25006 is closed."""

import json
import sys
import time

import rig
from pair import Pair, start
from patience import soon
from rig import check, equal, until

counts = {"gaps": 0, "tasks": 0, "writes_again_ms_max": 0}
GAP_S = 5
WRITES_AGAIN_S = 10
RUNNING = 10
ENTRIES = 16  # twice the connections for sql phases of all workers
QUICK = {"worker": {"beat_ms": 200, "lease_ms": 30_000, "poll_ms": 100, "slots": 16},
         "api": {"beat_ms": 200}, "maintain": {"lease_ms": 30_000, "maintain_ms": 200}}
SLOW = json.dumps({"P1": [{"sleep_ms": 1500}], "P2": [{"post": True}]})
POST = json.dumps({"P2": [{"post": True}]})


def sql_tool():
    return rig.make_tool(
        "entry", [{"name": "go", "kind": "sql", "file": "go.sql", "effect": "local"}],
        files={"schema.sql": "CREATE TABLE done (effect_id text NOT NULL);\n", "go.sql":
               "WITH one AS (INSERT INTO done SELECT $1::json ->> 'effect_id' RETURNING effect_id)\n"
               "SELECT json_build_object('id', effect_id, 'rest', pg_sleep(0.1)::text)::text FROM one\n"},
        result={"text": "row", "structured": {"id": {"$from": "/state/go/id"}}})


class Two(rig.Stack):
    def start_downstream(self):
        self.pair = Pair(self.cluster, self.folder / "pg-home-2")
        self.pair.follow()
        return super().start_downstream()

    def env(self, **more):
        return super().env(**{
            "HOLDFAST_DSN": f"{self.pair.where()} dbname=holdfast user=postgres"} | more)

    def start_holdfast(self, name, command, **flags):
        self.monitors = getattr(self, "monitors", {})
        self.monitors[name] = rig.free_port()
        return super().start_holdfast(name, command, **flags, metrics_listen=(
            f"127.0.0.1:{self.monitors[name]}"))

    def stop(self):
        self.pair.stop()
        super().stop()

    def get(self, name, path):
        """(status, body) of a process's own listener."""
        return rig.http_ask(self.monitors[name], path)

    def all_ready(self):
        return all(self.get(name, "/readyz")[0] == 200 for name in self.monitors)

    def none_ready(self):
        return all(self.get(name, "/readyz")[0] == 503 for name in self.monitors)

    def pids(self):
        return [process.pid for process in self.processes if process.alive()]


def fresh():
    return rig.new_id("b045")


def backends(cluster):
    with cluster.connect() as admin:
        return {row[0] for row in admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
            "AND application_name LIKE 'holdfast %'")}


def begin(stack):
    client = stack.client()
    running = []
    for _ in range(RUNNING):
        effect_id = fresh()
        answer = client.call_until_handle("probe", {"effect_id": effect_id, "plan": SLOW})
        running.append((effect_id, answer.task_id))
    until(lambda: len([one for one, _ in running if stack.run_log(one, "start")]) == RUNNING, 30,
          "all run")
    return running


def gap(stack, what):
    """What is told while nothing takes writes."""
    until(stack.none_ready, 10, f"{what}: no process is ready")
    for api in range(len(stack.apis)):
        answer = stack.client(api=api).call("probe", {"effect_id": fresh(), "plan": POST})
        equal(answer.status, 503, f"{what}: a call in the gap")
        check(answer.headers.get("Retry-After"), f"{what}: Retry-After")
        check((answer.data or {}).get("executed") in ("no", "maybe"), f"{what}: executed", answer)
    counts["gaps"] += 1


def write_again(stack, what, began, pids):
    """Each process writes, by its own metrics and by what is accepted and run."""
    until(stack.all_ready, 3 * WRITES_AGAIN_S, f"{what}: every process is ready")
    took = time.monotonic() - began
    soon(began, WRITES_AGAIN_S, f"{what}: within {WRITES_AGAIN_S} s")
    counts["writes_again_ms_max"] = max(counts["writes_again_ms_max"], int(took * 1000))
    for api in range(len(stack.apis)):
        answer = stack.client(api=api).call("probe", {"effect_id": fresh(), "plan": POST})
        check(answer.handle, f"{what}: each API process accepts", answer)
        equal(stack.client().wait(answer.task_id).result["status"], "completed",
              f"{what}: what it accepted")
    equal(stack.pids(), pids, f"{what}: nobody was restarted")


def unharmed(stack, what, running):
    client = stack.client()
    for effect_id, task_id in running:
        equal(client.wait(task_id).result["status"], "completed", f"{what}: ran through the gap")
        equal({row[3] for row in stack.steps(task_id) if row[1] == "recovery_point"}, {1},
              f"{what}: no attempt spent")
        equal(sorted(line["phase"] for line in stack.run_log(effect_id, "start")),
              ["P1", "P2", "P3"], f"{what}: each phase was begun once")
        equal(stack.effects_by_id().get(effect_id), 1, f"{what}: one effect")
    counts["tasks"] += len(running)


def read_only(stack):
    """The primary stays, is told to write nothing, and later to write again."""
    what = "read-only"
    running, pids = begin(stack), stack.pids()
    before = backends(stack.cluster)
    with stack.cluster.connect() as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        gap(stack, what)
        # What saw 25006 is closed. Who only reads or listens may keep its connection.
        closed = until(lambda: len(before - backends(stack.cluster)) >= 5, 10,
                       f"{what}: connections that saw 25006 are closed")
        check(closed, f"{what}: closed")
        time.sleep(GAP_S)
        admin.execute("SET default_transaction_read_only = off")
        admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
        admin.execute("SELECT pg_reload_conf()")
    write_again(stack, what, time.monotonic(), pids)
    unharmed(stack, what, running)


def demoted(stack):
    """A real promotion: the old primary is told to write nothing and stays up; 5 s later its
    standby is promoted. All writes go there, and all reads."""
    what = "promotion"
    running, pids = begin(stack), stack.pids()
    old = stack.cluster
    with old.connect() as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
    gap(stack, what)
    time.sleep(GAP_S)
    stack.pair.promote()
    stack.cluster = stack.pair.primary
    began = time.monotonic()
    check(not old.connect().execute("SELECT pg_is_in_recovery()").fetchone()[0],
          f"{what}: the old primary is up, and no standby")
    write_again(stack, what, began, pids)
    unharmed(stack, what, running)
    # Now it would take writes again, on its old timeline.
    with old.connect() as admin:
        admin.execute("SET default_transaction_read_only = off")
        admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
        admin.execute("SELECT pg_reload_conf()")
    with stack.cluster.connect() as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                      "WHERE application_name LIKE 'holdfast %'")
    time.sleep(0.2)
    write_again(stack, "beside the old primary", time.monotonic(), pids)
    entries(stack, old)
    old.stop()
    stack.pair.follow()
    write_again(stack, "with a standby again", time.monotonic(), pids)


def entries(stack, old):
    """sql phases, by connections that lay idle since before: none at the old primary."""
    client = stack.client()
    tasks = [client.call_until_handle("entry", {"effect_id": fresh()}).task_id
             for _ in range(ENTRIES)]
    for task in tasks:
        equal(client.wait(task).result["status"], "completed", "an sql phase beside the old primary")
    rows = "SELECT count(*) FROM holdfast_tool_entry.done"
    equal(stack.query(rows), [(ENTRIES,)], "sql phases commit at the new primary")
    with old.connect() as admin:
        equal(admin.execute(rows).fetchall(), [(0,)], "and none at the old one")


def killed(stack):
    """kill -9 and promote, with tasks that run."""
    what = "kill -9"
    running, pids = begin(stack), stack.pids()
    postmaster_gone = time.monotonic()
    stack.pair.fail_over()
    stack.cluster = stack.pair.primary
    write_again(stack, what, postmaster_gone, pids)
    unharmed(stack, what, running)
    start(stack.pair.standby)
    stack.pair.standby.stop()


def no_cancel():
    """A cancel request during COMMIT would make it a success that no standby has: there is none."""
    binary = rig.HOLDFAST.read_bytes()
    check(b"PQconnectPoll" in binary and b"PQcancel" not in binary and
          b"PQgetCancel" not in binary, "no cancel request is ever sent")


def main():
    no_cancel()
    stack = Two(apis=2, workers=2, tools=[rig.probe_tool(), sql_tool()], settings=QUICK)
    rig.run(*((part, stack) for part in (read_only, demoted, killed)))
    stack.stop()
    rig.finish("failover", counts, {"gaps": 2, "tasks": 3 * RUNNING})


if __name__ == "__main__":
    sys.exit(main())
