#!/usr/bin/python3
"""Postgres manners: every SQLSTATE has its answer, no outage stops a process, the one of several
hosts that takes writes is found, and a poison row halves nobody else's batch. Of the postgres cases
B044 (payloads in NOTIFY), B045 (the primary moved), B046 (40001 and 40P01 while finishing), B051 (a
short outage stops the engine) and B052 (too many connections, disk full)."""

import contextlib
import json
import socket
import threading
import time

import psycopg

import rig
from pair import Node, crash, start
from patience import soon
from relay import Relay
from rig import check, equal, until

counts = {"outages": 0, "cells": 0, "tool_cells": 0, "failovers": 0, "poison": 0, "wakes": 0}
QUICK = {"worker": {"beat_ms": 200, "lease_ms": 3000, "poll_ms": 100, "slots": 16},
         "api": {"beat_ms": 200}, "maintain": {"lease_ms": 3000, "maintain_ms": 200}}
# A lone call gives up after 2 s; one that waited behind another's flight after 4.
GIVE_UP_S = 4.5
WRITES_AGAIN_S = 10

SQL = """WITH moved AS (
    INSERT INTO done (effect_id) SELECT $1::json ->> 'effect_id' RETURNING effect_id),
one AS (UPDATE counter SET n = n + 1 RETURNING n)
SELECT json_build_object('n', one.n, 'id', moved.effect_id,
    'rest', pg_sleep(coalesce(($1::json ->> 'n')::float8, 0))::text)::text FROM one, moved
"""
SCHEMA = """CREATE TABLE IF NOT EXISTS done (effect_id text NOT NULL);
CREATE TABLE IF NOT EXISTS counter (n integer NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT FROM counter);
"""

# Breaks statements at a point of the store, or in the tool's own table: the first `times` of them.
# A sequence counts, since what fails is rolled back.
FAULTS = """
CREATE TABLE public.rig_plan (point text, state text, times integer, owner bigint);
CREATE SEQUENCE public.rig_hits;
CREATE FUNCTION public.rig_fault() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    plan record;
BEGIN
    SELECT * INTO plan FROM public.rig_plan p WHERE p.point = TG_ARGV[0];
    IF NOT FOUND OR nextval('public.rig_hits') > plan.times THEN
        RETURN NULL;
    END IF;
    IF plan.state = '57P01' THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(10);
    ELSIF plan.state = '57014' THEN
        PERFORM pg_cancel_backend(pg_backend_pid());
        PERFORM pg_sleep(10);
    ELSIF plan.state = '01000' THEN
        RAISE WARNING 'rig';
    ELSE
        RAISE EXCEPTION 'rig' USING ERRCODE = plan.state;
    END IF;
    RETURN NULL;
END $$;
"""
POINTS = {"accept": "INSERT ON holdfast.effect", "claim": "UPDATE ON holdfast.work",
          "step": "INSERT ON holdfast.step", "finish": "DELETE ON holdfast.work",
          "beat": "UPDATE ON holdfast.worker"}
FAULTS += "".join(f"CREATE TRIGGER rig_{point} AFTER {act} FOR EACH STATEMENT "
                  f"EXECUTE FUNCTION public.rig_fault('{point}');\n" for point, act in
                  {**POINTS, "tool": "INSERT ON holdfast_tool_entry.done"}.items())
STATES = ("40001", "40P01", "53100", "53200", "55P03", "58030", "25006", "57P01", "57014", "42883",
          "XX000", "08006", "01000")


def sql_tool(**phase):
    return rig.make_tool(
        "entry", [{"name": "go", "kind": "sql", "file": "go.sql", "effect": "local",
                   "attempts": 8, "backoff_first_ms": 20, "backoff_max_ms": 200, **phase}],
        {"n": {"type": "number"}}, {"schema.sql": SCHEMA, "go.sql": SQL},
        result={"text": "row", "structured": {"n": {"$from": "/state/go/n"}}})


POST = json.dumps({"P2": [{"post": True}]})


class Hosts(rig.Stack):
    """Every process reads the DSN that `where` makes of the cluster."""

    where = None
    before = {}  # process -> host part of its own, past `where`

    def start(self, name, argv):
        where = self.before.get(name) or (self.where and self.where(self.cluster))
        more = {"HOLDFAST_DSN": f"{where} dbname=holdfast user=postgres"} if where else {}
        return super().start(name, argv, **more)


def ready(stack):
    return all(stack.ready(api) for api in stack.apis)


def not_ready(stack):
    return all(rig.http_ask(api.port, "/readyz")[0] == 503 for api in stack.apis)


def all_alive(stack, what):
    for process in (*stack.apis, *stack.workers, *stack.maintains):
        check(process.alive(), f"{what}: {process.name} is alive")


def fresh(name="pg"):
    return rig.new_id(name)


def begin(client, tool="probe", plan=POST, **more):
    effect_id = fresh()
    arguments = {"effect_id": effect_id, **more}
    if tool == "probe":
        arguments["plan"] = plan
    return effect_id, client.call_until_handle(tool, arguments).task_id


def completed(client, task_id, what, seconds=60):
    try:
        result = client.wait(task_id, seconds).result
    except RuntimeError as error:
        return check(False, what, str(error))
    return equal(result and result["status"], "completed", what)


def attempts(stack, task_id):
    return {row[3] for row in stack.steps(task_id) if row[1] == "recovery_point"}


def starts_once(stack, effect_id, what):
    got = [line["phase"] for line in stack.run_log(effect_id, "start")]
    equal(sorted(got), ["P1", "P2", "P3"], f"{what}: each handler was entered once")


# --- SQLSTATEs -----------------------------------------------------------------------------------

def plan_fault(stack, point, state, times):
    with stack.cluster.connect() as admin:
        admin.execute("TRUNCATE public.rig_plan")
        admin.execute("SELECT setval('public.rig_hits', 1, false)")
        if state:
            admin.execute("INSERT INTO public.rig_plan VALUES (%s, %s, %s)", (point, state, times))


def hits(stack):
    return stack.query("SELECT CASE WHEN is_called THEN last_value ELSE 0 END "
                       "FROM public.rig_hits")[0][0]


def every_state(stack):
    """Each at each act, a few times in a row: the act is done, nothing ran twice, no attempt was
    spent on it."""
    client = stack.client()
    for state in STATES:
        tasks = []
        for point in POINTS:
            plan_fault(stack, point, state, 2)
            begun = [("probe", *begin(client)), ("entry", *begin(client, "entry"))]
            for tool, effect_id, task_id in begun:
                what = f"{state} at {point}, {tool}"
                completed(client, task_id, what)
                equal(attempts(stack, task_id), {1}, f"{what}: no attempt spent")
                if tool == "probe":
                    starts_once(stack, effect_id, what)
            if point == "beat":
                until(lambda: hits(stack) >= 2, 10, f"{state} at beat: met")
            check(hits(stack) >= 2, f"{state} at {point}: was met", hits(stack))
            tasks += begun
            counts["cells"] += 1
        plan_fault(stack, None, None, 0)
        rows = dict(stack.query("SELECT effect_id, count(*) FROM holdfast_tool_entry.done GROUP BY 1"))
        effects = stack.effects_by_id()
        for tool, effect_id, _ in tasks:
            equal((rows if tool == "entry" else effects).get(effect_id), 1,
                  f"{state}: one effect of {tool}")
    all_alive(stack, "every state")


def tool_states(stack):
    """In the tool's own statement: what passes is run again without an attempt, a time-out costs
    one, and what is the tool's fault ends it."""
    client = stack.client()
    for state, times, status, spent in (
            ("40001", 3, "completed", 1), ("40P01", 3, "completed", 1), ("53100", 3, "completed", 1),
            ("25006", 3, "completed", 1), ("57P01", 3, "completed", 1), ("XX000", 3, "completed", 1),
            ("57014", 2, "completed", 3), ("55P03", 1, "completed", 2),
            ("40001", 6, "completed", 2), ("22012", 99, "failed", None), ("P0001", 99, "failed", None),
            ("42501", 99, "failed", None)):
        plan_fault(stack, "tool", state, times)
        effect_id, task_id = begin(client, "entry")
        result = client.wait(task_id).result
        what = f"{state} x {times} in the tool's statement"
        equal(result["status"], status, what)
        rows = stack.query("SELECT count(*) FROM holdfast_tool_entry.done WHERE effect_id = %s",
                           (effect_id,))
        equal(rows, [(1 if spent else 0,)], f"{what}: rows")
        if spent:
            equal(attempts(stack, task_id), {spent}, f"{what}: attempts")
        else:
            equal(hits(stack), 1, f"{what}: run once")
            equal((result.get("error") or {}).get("data", {}).get("executed"), "no",
                  f"{what}: it says so")
        counts["tool_cells"] += 1
    plan_fault(stack, None, None, 0)


def disk_full(stack):
    """53100 for as long as it lasts: 503 with executed "no", for it was rolled back; nothing
    stored."""
    client = stack.client()
    plan_fault(stack, "accept", "53100", 1_000_000)
    effect_id = fresh()
    for asked in range(1, 6):
        began = time.monotonic()
        answer = client.call("probe", {"effect_id": effect_id, "plan": POST})
        soon(began, GIVE_UP_S, "disk full: told in time")
        executed = (answer.data or {}).get("executed")
        if executed != "maybe":  # a try was on its way in the very moment in which its time was over
            break
    equal((answer.status, executed), (503, "no"), "disk full: 503, no")
    check(answer.headers.get("Retry-After"), "disk full: Retry-After")
    check(hits(stack) < 30 * asked, "disk full: no tight loop", hits(stack))
    plan_fault(stack, None, None, 0)
    equal(stack.task_rows(effect_id), [], "disk full: nothing was stored")
    answer = client.call_until_handle("probe", {"effect_id": effect_id, "plan": POST})
    completed(client, answer.task_id, "after a full disk")
    equal(stack.effects_by_id().get(effect_id), 1, "after a full disk: one effect")


def too_many_connections(stack):
    """53300: no process ends, none hammers, and they come back by themselves."""
    client = stack.client()
    roles = ("holdfast_api", "holdfast_worker", "holdfast_sql", "holdfast_maintain")
    log = stack.cluster.folder / "postgres.log"
    with stack.cluster.connect() as admin:
        for role in roles:
            admin.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                      "WHERE usename LIKE 'holdfast\\_%'")
        until(lambda: not_ready(stack), 10, "no connections: not ready")
        before = log.read_text(errors="replace").count("too many connections")
        time.sleep(5)
        tries = log.read_text(errors="replace").count("too many connections") - before
        # 2 APIs x 3 lanes, 2 workers x (3 lanes + 4), maintain: each waits up to 2 s, 1 on average.
        check(10 < tries < 5 * 21 * 3, "no connections: tries, with backoff", tries)
        answer = client.call("probe", {"effect_id": fresh(), "plan": POST})
        equal((answer.status, (answer.data or {}).get("executed")), (503, "no"),
              "no connections: 503, no")
        for role in roles:
            admin.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
    until(lambda: ready(stack), WRITES_AGAIN_S, "connections again: ready")
    completed(client, begin(client)[1], "connections again")
    all_alive(stack, "no connections")


def read_only(stack):
    """25006: the connection is dropped, another is looked for, and nothing fails for it."""
    client = stack.client()
    running = [begin(client, plan=json.dumps({"P1": [{"sleep_ms": 1500}], "P2": [{"post": True}]}))
               for _ in range(10)]
    with stack.cluster.connect() as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        until(lambda: not_ready(stack), 10, "read-only: not ready")
        answer = client.call("probe", {"effect_id": fresh(), "plan": POST})
        equal(answer.status, 503, "read-only: 503")
        check(answer.headers.get("Retry-After"), "read-only: Retry-After")
        time.sleep(2)
        admin.execute("SET default_transaction_read_only = off")
        admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
        admin.execute("SELECT pg_reload_conf()")
    until(lambda: ready(stack), WRITES_AGAIN_S, "writable: ready")
    for effect_id, task_id in running:
        completed(client, task_id, "ran while read-only")
        equal(attempts(stack, task_id), {1}, "ran while read-only: no attempt spent")
        equal(stack.effects_by_id().get(effect_id), 1, "ran while read-only: one effect")
    all_alive(stack, "read-only")


# --- outages -------------------------------------------------------------------------------------

def outage(stack, seconds, mode):
    client = stack.client()
    what = f"outage of {seconds} s ({mode})"
    pids = [process.pid for process in (*stack.apis, *stack.workers, *stack.maintains)]
    running = [begin(client, plan=json.dumps({"P1": [{"sleep_ms": 800}], "P2": [{"post": True}]}))
               for _ in range(10)]
    stack.cluster.stop(mode)
    began = time.monotonic()
    until(lambda: not_ready(stack), 10, f"{what}: not ready")
    for api in stack.apis:
        status, body = rig.http_ask(api.port, "/readyz")
        check(status == 503 and json.loads(body).get("status"), f"{what}: readyz says why", body)
        equal(rig.http_ask(api.port, "/healthz")[0], 200, f"{what}: alive")
    asked = time.monotonic()
    effect_id = fresh()
    answer = client.call("probe", {"effect_id": effect_id, "plan": POST})
    equal(answer.status, 503, f"{what}: a call")
    check(answer.headers.get("Retry-After"), f"{what}: Retry-After")
    check((answer.data or {}).get("executed") in ("no", "maybe"), f"{what}: executed", repr(answer))
    answer = client.get(running[0][1])
    equal(answer.status, 503, f"{what}: a poll")
    check(answer.code != -32602, f"{what}: the task is not called unknown", repr(answer))
    soon(asked, 2 * GIVE_UP_S, f"{what}: told in time")
    time.sleep(max(0, seconds - (time.monotonic() - began)))
    all_alive(stack, what)
    stack.cluster.start()
    until(lambda: ready(stack), WRITES_AGAIN_S, f"{what}: ready again")
    running.append(begin(client))
    for effect, task_id in running:
        completed(client, task_id, f"{what}: completed")
    effects = stack.effects_by_id()
    for effect, _ in running:
        equal(effects.get(effect), 1, f"{what}: one effect")
    equal([process.pid for process in (*stack.apis, *stack.workers, *stack.maintains)
           if process.alive()], pids, f"{what}: nobody was restarted")
    counts["outages"] += 1


def silence(stack, proxy):
    """Postgres takes connections and never answers: 503 in time, not ready, and back by itself."""
    client = stack.client()
    proxy.open.clear()
    asked = time.monotonic()
    answer = client.call("probe", {"effect_id": fresh(), "plan": POST})
    # It may have been sent and committed: nobody knows.
    equal((answer.status, (answer.data or {}).get("executed")), (503, "maybe"), "silence: 503, maybe")
    soon(asked, GIVE_UP_S, "silence: told in time")
    until(lambda: not_ready(stack), 10, "silence: not ready")
    proxy.open.set()
    until(lambda: ready(stack), WRITES_AGAIN_S, "silence: ready again")
    completed(client, begin(client)[1], "silence is over")
    all_alive(stack, "silence")
    counts["outages"] += 1


# --- batches, wake-ups ---------------------------------------------------------------------------

def poison(stack):
    """An owner whose rows are refused rides alone: its next refusals halve nobody's batch."""
    rounds, crowd = 20, 12
    bob = stack.client("rig-bob")
    completed(bob, begin(bob)[1], "bob is known")
    owner = stack.query("SELECT owner FROM holdfast.principal WHERE subject = 'bob'")[0][0]
    with stack.cluster.connect() as admin:
        admin.execute(f"""
            CREATE SEQUENCE public.rig_refused; CREATE SEQUENCE public.rig_mixed;
            CREATE FUNCTION public.rig_poison() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
            AS $$ BEGIN
                IF EXISTS (SELECT FROM fresh WHERE owner = {owner}) THEN
                    PERFORM nextval('public.rig_refused');
                    IF (SELECT count(*) FROM fresh) > 1 THEN
                        PERFORM nextval('public.rig_mixed');
                    END IF;
                    RAISE EXCEPTION 'poison' USING ERRCODE = '22000';
                END IF;
                RETURN NULL;
            END $$;
            CREATE TRIGGER poison AFTER INSERT ON holdfast.task REFERENCING NEW TABLE AS fresh
                FOR EACH STATEMENT EXECUTE FUNCTION public.rig_poison()""")
    stop = threading.Event()
    slow, done = [], []

    def alice():
        client = stack.client()
        while not stop.is_set():
            began = time.monotonic()
            answer = client.call("entry", {"effect_id": fresh("crowd")})
            slow.append(time.monotonic() - began)
            done.append(answer.handle)

    threads = [threading.Thread(target=alice) for _ in range(crowd)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    told = [bob.call("entry", {"effect_id": fresh("poison")}) for _ in range(rounds)]
    stop.set()
    for thread in threads:
        thread.join()
    refused, mixed = (stack.query(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END "
                                  f"FROM public.{name}")[0][0] for name in ("rig_refused", "rig_mixed"))
    with stack.cluster.connect() as admin:
        admin.execute("DROP TRIGGER poison ON holdfast.task")
    check(all(done) and len(done) > 5 * rounds, "poison: the others are all accepted", len(done))
    equal({(answer.status, (answer.data or {}).get("executed")) for answer in told}, {(200, "no")},
          "poison: it is told, executed no")
    # One row's way from a full batch to itself: log2(13) halvings, and as many again, since a half that
    # went well doubles the next. Who shared batches for good would be refused that often in each round.
    check(mixed <= 8, "poison: it shared no batch after its first refusal", mixed)
    check(rounds <= refused <= rounds + 8, "poison: one refusal each", refused)
    counts["poison"] += refused


def wakes(stack):
    """No payload of ours is a payload: large arguments, many tasks, a listener that is stuck."""
    client = stack.client()
    listener = psycopg.connect(stack.cluster.dsn(), autocommit=True)
    payloads = []
    listener.add_notify_handler(lambda notify: payloads.append(notify.payload))
    listener.execute("LISTEN holdfast_wake")
    stuck = psycopg.connect(stack.cluster.dsn(), autocommit=True)
    stuck.execute("LISTEN holdfast_wake")
    stuck.execute("BEGIN")
    stuck.execute("SELECT 1")
    tasks = [begin(client, plan=json.dumps({"P1": [{"stderr": "x" * size}]}))[1]
             for size in (1, 7_999, 9_000, 900_000)]
    crowd = rig.in_parallel(lambda _: [begin(each, "entry")[1] for each in [stack.client()]
                                       for _ in range(25)], range(8))
    for task_id in tasks + sum(crowd, []):
        completed(client, task_id, "a task with a wake-up")
    for _ in range(20):
        listener.execute("SELECT 1")
        time.sleep(0.05)
    usage = stack.query("SELECT pg_notification_queue_usage()")[0][0]
    check(payloads, "wake-ups were sent")
    check(max(map(len, payloads), default=0) <= 64, "a wake-up is at most 64 bytes",
          sorted(set(payloads))[:5])
    # Of each task its acceptance, its hand-overs and its end say something; often one for many.
    check(len(payloads) < 5 * (len(tasks) + 200), "wake-ups are bounded by what happens", len(payloads))
    check(usage < 0.01, "the queue of notifications stays short", usage)
    stuck.close()
    listener.close()
    counts["wakes"] += len(payloads)


# --- hosts ---------------------------------------------------------------------------------------

def accepted_by(cluster):
    with cluster.connect() as admin:
        return {row[0] for row in admin.execute("SELECT effect_id FROM holdfast.task")}


def failover():
    """kill -9 of the primary, its synchronous standby promoted: all that was accepted goes on. The
    old primary comes back as it was: nobody writes to it any more."""
    class Two(Hosts):
        standby = None

        def where(self, cluster):  # the standby stands first: it must be passed by
            if not self.standby:
                self.primary, self.standby = cluster, Node(self.folder / "standby", cluster)
            return f"host={self.standby.folder},{self.primary.folder}"

        def stop(self):
            for node in (self.standby, self.primary):
                node.stop()
            super().stop()

    stack = Two(tools=[rig.probe_tool(), sql_tool()], apis=2, settings=QUICK)
    primary, standby = stack.primary, stack.standby
    client = stack.client()
    completed(client, begin(client)[1], "a host is down from the start")
    standby.follow(primary)
    with primary.connect() as admin:
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        admin.execute("SELECT pg_reload_conf()")
        until(lambda: admin.execute("SELECT count(*) FROM pg_stat_replication WHERE sync_state = "
                                    "'sync'").fetchone()[0], 30, "the standby follows")
    told, stop = [], threading.Event()

    def caller(number):
        mine = stack.client(api=number % 2)
        while not stop.is_set():
            effect_id = fresh("fail-over")
            with contextlib.suppress(RuntimeError):
                answer = mine.call_until_handle("probe" if number else "entry", {
                    "effect_id": effect_id, **({"plan": POST} if number else {})}, 40)
                told.append((effect_id, answer.task_id, number))
            time.sleep(0.05)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    crash(primary)
    before = len(told)
    until(lambda: not_ready(stack), 10, "fail-over: not ready")
    time.sleep(1)
    standby.promote()
    stack.cluster = standby
    until(lambda: ready(stack), WRITES_AGAIN_S, "fail-over: ready within 10 s of a writable host")
    until(lambda: len(told) > before + 8, 20, "fail-over: accepts again")
    stop.set()
    for thread in threads:
        thread.join()
    for effect_id, task_id, number in told:
        completed(client, task_id, "accepted across the fail-over", 90)
    effects = stack.effects_by_id()
    rows = dict(stack.query("SELECT effect_id, count(*) FROM holdfast_tool_entry.done GROUP BY 1"))
    for effect_id, _, number in told:
        equal((effects if number else rows).get(effect_id), 1, "fail-over: one effect")
    counts["failovers"] += 1
    all_alive(stack, "fail-over")
    stale(stack, primary, standby, client)
    stack.stop()


def stale(stack, primary, standby, client):
    """The old primary is back, on its old timeline and writable."""
    primary.write("postgresql.auto.conf", "")
    start(primary)
    before = accepted_by(primary)
    with standby.connect() as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                      "WHERE usename LIKE 'holdfast\\_%'")
    time.sleep(1)
    until(lambda: ready(stack), WRITES_AGAIN_S, "stale: ready, on the new one")
    # A process that has seen nothing takes the newer of the two, in whatever order they stand.
    stack.before = {"worker-new": f"host={primary.folder},{standby.folder}",
                    "api-new": f"host={primary.folder},{standby.folder}"}
    newcomer = stack.another_api("api-new")
    newcomer_client = rig.Client(newcomer.port)
    completed(newcomer_client, begin(newcomer_client)[1], "stale: a new process accepts")
    standby.stop("fast")
    until(lambda: not_ready(stack), 10, "stale: only the old one answers: not ready")
    time.sleep(4)
    check(not_ready(stack), "stale: the old one is refused")
    equal(client.call("probe", {"effect_id": fresh(), "plan": POST}).status, 503, "stale: 503")
    check("its timeline is older" in stack.apis[0].log() or
          "was replaced is refused" in stack.apis[0].log(), "stale: the log says so")
    equal(accepted_by(primary) - before, set(), "stale: nothing was accepted by the old one")
    standby.start()
    until(lambda: ready(stack), WRITES_AGAIN_S, "stale: the new one is back: ready")
    completed(client, begin(client)[1], "stale: goes on")


def black_holes():
    """Hosts that say nothing, that do not exist, that refuse: the one behind them is found, and no
    loop waits for a name."""
    hole = socket.create_server(("127.0.0.1", 0))

    class Many(Hosts):
        def where(self, cluster):
            self.proxy = self.proxy or Relay(cluster)
            refused = rig.free_port()
            return (f"host=127.0.0.1,no-such-host.invalid,localhost,localhost "
                    f"port={hole.getsockname()[1]},5432,{refused},{self.proxy.port} "
                    f"sslmode=disable gssencmode=disable")
        proxy = None

    stack = Many(apis=1, workers=1, tools=[rig.probe_tool(), sql_tool()], settings=QUICK)
    client = stack.client()
    completed(client, begin(client)[1], "behind black holes")
    backends = "SELECT pid FROM pg_stat_activity WHERE usename = 'holdfast_api'"
    old = set(stack.query(backends))
    stack.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE starts_with(usename, 'holdfast_')")
    began = time.monotonic()
    until(lambda: set(stack.query(backends)) - old and ready(stack), 30, "ended: ready again")
    soon(began, 4, "the host that answered last is asked first")
    silence(stack, stack.proxy)
    soon(began, 60, "black holes: no long wait")
    stack.stop()
    hole.close()


def default_settings():
    """As installed: what a worker that vanished had locked is free within 10 s, and its tasks are
    another's as soon."""
    class Frozen(Hosts):
        def start(self, name, argv):
            if name == "worker-1":
                self.proxy = Relay(self.cluster)
                self.before = {"worker-1": f"host=127.0.0.1 port={self.proxy.port} "
                                           f"sslmode=disable gssencmode=disable"}
            return super().start(name, argv)

    stack = Frozen(apis=1, workers=1, tools=[rig.probe_tool(), sql_tool()])
    client = stack.client()
    effect_id, task_id = begin(client, "entry", n=1.5)
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    until(lambda: stack.query(asleep)[0][0], 10, "the statement runs")
    stack.proxy.open.clear()
    began = time.monotonic()
    second = stack.start_worker("worker-2")

    def is_free():
        try:
            stack.query("SELECT n FROM holdfast_tool_entry.counter FOR UPDATE NOWAIT")
            return True
        except psycopg.Error:
            return False

    check(not is_free(), "the row is locked")
    until(is_free, 20, "the row is free", 0.1)
    counts["lock_free_ms"] = int((time.monotonic() - began) * 1000)
    soon(began, 10, "a black-holed worker's row lock is free within 10 s")
    until(lambda: "incarnation declared dead" in stack.maintains[0].log(), 20, "declared dead")
    counts["dead_ms"] = int((time.monotonic() - began) * 1000)
    soon(began, 10, "a dead worker is noticed within 10 s")
    completed(client, task_id, "another worker took it")
    equal(stack.query("SELECT count(*) FROM holdfast_tool_entry.done WHERE effect_id = %s",
                      (effect_id,)), [(1,)], "one row")
    stack.proxy.open.set()
    check(second.alive(), "the second worker is alive")
    stack.stop()


def one_cluster():
    stack = rig.Stack(apis=2, tools=[rig.probe_tool(), sql_tool()], settings=QUICK)
    with stack.cluster.connect() as admin:
        admin.execute(FAULTS)
    rig.run(*((part, stack) for part in (every_state, tool_states, disk_full, too_many_connections,
                                         read_only, poison, wakes)),
            (outage, stack, 1, "fast"), (outage, stack, 32, "immediate"))
    stack.stop()


def main():
    one_cluster()
    rig.run(failover, black_holes, default_settings)
    rig.finish("postgres", counts, {
        "outages": 3, "cells": len(STATES) * len(POINTS), "tool_cells": 12, "failovers": 1,
        "poison": 20, "wakes": 1})


if __name__ == "__main__":
    main()
