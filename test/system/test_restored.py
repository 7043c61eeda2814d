#!/usr/bin/python3
"""After a restore: an older state of the store is put in its place while its processes run, and what
was done since is lost. They stop by themselves and ask for `holdfast restored`; after it nothing
happens twice, and what nobody can know is unknown. Asked for after: an old copy on the same timeline,
an asynchronous standby that was promoted, another system identifier. Not asked for after: a crash, a
fail-over without loss."""

import datetime
import json
import shutil
import signal
import subprocess
import time

import pair
import rig
from rig import check, equal, until

counts = {"asked": 0, "not_asked": 0, "treated": 0, "copies": 0, "refused": 0}
LEASE_MS = 3_000
SETTINGS = {"worker": {"beat_ms": 200, "lease_ms": LEASE_MS, "poll_ms": 100},
            "api": {"beat_ms": 200}, "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 200}}
WAITS = "restored store: run `holdfast restored`"
BY = ("--by", "ann", "--why", "the disk is gone")
KEYED = {"effect": "keyed", "key_header": "Idempotency-Key", "key_ttl_ms": 86_400_000}


def post(name, **more):
    return {"name": name, "kind": "http", "attempts": 8, "timeout_ms": 10_000, "backoff_first_ms": 50,
            "backoff_max_ms": 300, "request": {
                "method": "POST", "url": "{/conf/ledger}/ledger",
                "json": {"effect_id": {"$from": "/task/effect_id"}, "phase": name}}, **more}


def mail(name="mail"):
    return {"name": name, "kind": "http", "effect": "lookup", "visible_within_ms": 300, "attempts": 8,
            "backoff_first_ms": 50, "backoff_max_ms": 300,
            "request": {"method": "POST", "url": "{/conf/mail}/send",
                        "json": {"ref": {"$from": "/key"}, "link": {"$from": "/task/effect_id"}}},
            "reconcile": {"request": {"method": "GET", "url": "{/conf/mail}/messages?ref={/key}"},
                          "done_when": "/items/0/id", "absent_when_empty": "/items"}}


def rest(name="rest", ms=1):
    return {"name": name, "kind": "wait", "ms": ms}


PHASES = {
    "r_unsafe": [post("once", effect="unsafe")],
    "r_later": [rest(), post("once", effect="unsafe"), post("after", **KEYED)],
    "r_keyed": [post("post", **KEYED)],
    "r_lookup": [mail()],
    "r_quiet": [mail()],
    "r_local": [rest()],
    "r_undo": [post("book", **KEYED, undo=post("undo", **KEYED)), rest("hold", 1_800_000)],
}
for _phase in PHASES["r_undo"]:
    _phase.get("undo", {}).pop("name", None)


# --- several Postgres ----------------------------------------------------------------------------

class Places(rig.Stack):
    """Each process knows all of HOSTS from the start."""

    HOSTS = ("standby-1", "standby-2", "backup")

    def write_files(self):
        super().write_files()
        self.home = self.cluster
        self.places = {name: pair.Node(self.folder / name, self.home) for name in self.HOSTS}

    def env(self, **more):
        hosts = ",".join(str(host.folder) for host in (self.home, *self.places.values()))
        where = f"host={hosts} dbname=holdfast user=postgres target_session_attrs=read-write"
        return super().env(**more) | {"HOLDFAST_DSN": where}

    def stop(self):
        for host in (self.home, *self.places.values()):
            if host.data.exists():
                host.stop()
        super().stop()


def why_not_ready(api):
    status, body = rig.http_ask(api.port, "/readyz", seconds=5)
    if status == 200:
        return None
    return json.loads(body)["status"] if status else "no answer"


def asked(stack, what, processes=None):
    """All stop by themselves, say so, and take nothing."""
    for api in stack.apis:
        until(lambda api=api: why_not_ready(api) == WAITS, 30, f"{what}: /readyz asks for it")
    for process in processes or (*stack.apis, *stack.workers, *stack.maintains):
        until(lambda one=process: WAITS in one.log(), 30, f"{what}: {process.name} says so")
        check(process.alive(), f"{what}: {process.name} lives on")
    answer = stack.client().call("r_keyed", {"effect_id": f"refused-{time.monotonic_ns()}"})
    equal((answer.status, (answer.data or {}).get("executed")), (503, "no"), f"{what}: 503, no")
    before = work(stack)
    time.sleep(1)
    equal(work(stack), before, f"{what}: nothing is claimed")
    counts["asked"] += 1


def not_asked(stack, what):
    until(lambda: all(why_not_ready(api) is None for api in stack.apis), 30, f"{what}: ready again")
    equal(stack.query("SELECT held, restored FROM holdfast.cluster"), [(None, None)],
          f"{what}: nobody asks")
    counts["not_asked"] += 1


def goes_on(stack, what):
    until(lambda: all(why_not_ready(api) is None for api in stack.apis), 30, f"{what}: ready again")
    effect_id = f"on-{time.monotonic_ns()}"
    client = stack.client()
    task = client.call_until_handle("r_keyed", {"effect_id": effect_id}, 30).task_id
    equal(client.wait(task, 60).result["status"], "completed", f"{what}: work goes on")
    equal(effects(stack, effect_id), 1, f"{what}: one effect")


def work(stack):
    return stack.query("SELECT task, state, phase, attempt FROM holdfast.work ORDER BY task")


def of_effect(lines, effect_id, phase=None):
    found = []
    for line in lines:
        body = json.loads(line.get("body") or "{}")
        if effect_id in (body.get("effect_id"), body.get("link")) and \
                phase in (None, body.get("phase")):
            found.append(line)
    return found


def requests(stack, effect_id, phase=None):
    """Those that would make an effect."""
    return [line for line in of_effect(stack.requests(), effect_id, phase)
            if line["method"] == "POST"]


def effects(stack, effect_id, phase=None):
    """By the body: what is sent without a key is known by that alone."""
    bodies = {line["sha256"] for line in requests(stack, effect_id, phase)}
    return sum(line["sha256"] in bodies for line in stack.ledger())


def looks(stack, key):
    return sum(line["method"] == "GET" and line.get("query", {}).get("ref") == [key]
               for line in stack.requests("/messages"))


def now_text():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace(
        "+00:00", "Z")


def restored(stack, *words, code=0):
    done = stack.command("restored", *words, check_code=None)
    equal(done.returncode, code, f"restored {' '.join(words)}: {done.stdout}{done.stderr}")
    counts["refused"] += code != 0
    return done.stdout + done.stderr


def why(stack, task, text):
    done = stack.command("task", "why", task, check_code=None)
    check(done.returncode == 5 and text in done.stdout, f"task why: {text}", done.stdout)


# --- an old copy in its place --------------------------------------------------------------------

class Old:
    """What stands at the time of the backup, and what becomes of it in the tail."""

    def __init__(self, stack):
        self.stack, self.client = stack, stack.client()
        self.tasks = {}

    def accept(self, name, effect_id=None):
        effect_id = effect_id or f"{name}-1"
        self.tasks[effect_id] = self.client.call_until_handle(name, {"effect_id": effect_id}).task_id
        return self.tasks[effect_id]

    def ended(self, effect_id, status="completed"):
        got = self.client.wait(self.tasks[effect_id], 60).result
        return equal(got["status"], status, f"{effect_id}: {status}")

    def until_state(self, effect_id, wanted):
        until(lambda: self.stack.state(self.tasks[effect_id]) == wanted, 30,
              f"{effect_id} is {wanted}")


def stopped_claim(stack, old):
    """A worker holds a claim, and stands still from before the backup until after the restore."""
    task = old.client.call_until_handle("probe", {
        "effect_id": "stale", "plan": json.dumps({"P1": [{"gate": "in"}]})}).task_id
    old.tasks["stale"] = task
    stack.at_gate("stale", "in")
    stack.workers[0].signal(signal.SIGSTOP)
    stack.open_gate("stale", "in")
    return stack.query("SELECT token FROM holdfast.work WHERE task = %s",
                       (rig.task_bytes(task),))[0][0]


def tail(stack, old):
    """Everything that stands at the backup ends, but for one that is paused; more is accepted."""
    stack.command("pause", "--tool", "r_quiet", *BY)
    stack.workers.append(stack.start_worker("worker-2"))
    for effect_id in ("r_unsafe-1", "r_later-1", "r_keyed-1", "r_lookup-1", "r_local-1", "stale"):
        old.ended(effect_id)
    until(lambda: requests(stack, "r_undo-1", "book"), 20, "booked")
    stack.command("cancel", old.tasks["r_undo-1"], *BY)
    old.ended("r_undo-1", "cancelled")
    for name in ("r_keyed", "r_lookup"):
        old.accept(name, f"{name}-tail")
        old.ended(f"{name}-tail")


def swap(cluster, backup):
    """The old copy stands where the new state was."""
    pair.crash(cluster)
    cluster.data.rename(cluster.folder / "lost")
    backup.data.rename(cluster.data)
    conf = cluster.data / "postgresql.conf"
    conf.write_text(conf.read_text() + f"unix_socket_directories = '{cluster.folder}'\n")
    pair.start(cluster)


def counts_first(stack, since):
    """Without --yes nothing happens; nothing happens in the wrong form."""
    before = work(stack)
    said = restored(stack, "--since", since)
    for text in ("2 open tasks are at keyed phases", "1 open tasks are at unsafe phases",
                 "2 open tasks are at lookup phases", "of them are claimed", "--yes does it"):
        check(text in said, f"shown first: {text}", said)
    restored(stack, "--since", since, "--yes", code=2)
    restored(stack, "--since", "yesterday", code=2)
    restored(stack, "--since", "2999-01-01T00:00:00Z", "--yes", *BY, code=2)
    restored(stack, "--since", since, "--intact", *BY, code=2)
    restored(stack, "--copy", "--yes", *BY, code=2)
    restored(stack, "--confirm", *BY, code=1)
    equal(work(stack), before, "nothing was done")


def each_class(stack, old):
    """What is promised of each, where all of it had happened in the tail."""
    old.until_state("r_unsafe-1", "unknown")
    old.until_state("r_later-1", "unknown")
    for effect_id in ("r_keyed-1", "r_lookup-1", "r_quiet-1", "r_local-1", "stale"):
        old.ended(effect_id)
    for effect_id in ("r_unsafe-1", "r_later-1"):
        told = old.client.get(old.tasks[effect_id]).result
        check("once" in (told.get("statusMessage") or ""), f"{effect_id}: says which phase", told)
        equal(effects(stack, effect_id, "once"), 1, f"{effect_id}: not sent again")
        equal(len(requests(stack, effect_id, "once")), 1, f"{effect_id}: not even asked for")
    keys = [line["key"] for line in requests(stack, "r_keyed-1")]
    equal((len(keys), len(set(keys))), (2, 1), "keyed: the same key again")
    equal(effects(stack, "r_keyed-1"), 1, "keyed: one effect")
    equal(len(requests(stack, "r_lookup-1")), 1, "lookup: found, and not sent again")
    equal(len(requests(stack, "r_quiet-1")), 1, "lookup: not found, and sent")
    for effect_id in ("r_lookup-1", "r_quiet-1"):
        key = json.loads(requests(stack, effect_id)[0]["body"])["ref"]
        check(looks(stack, key) >= 1, f"{effect_id}: looked for")
    counts["treated"] += 7


def undo_again(stack, old):
    """It was undone in the tail. Booked under the same key, undone under the same key."""
    until(lambda: len(requests(stack, "r_undo-1", "book")) == 2, 20, "booked again, by its key")
    stack.command("cancel", old.tasks["r_undo-1"], *BY)
    old.ended("r_undo-1", "cancelled")
    for phase in ("book", "undo"):
        keys = {line["key"] for line in requests(stack, "r_undo-1", phase)}
        equal((len(keys), effects(stack, "r_undo-1", phase)), (1, 1), f"{phase}: one key, one effect")
    counts["treated"] += 1


def settled(stack, old):
    """'done' goes on carefully, 'absent' is sent."""
    stack.command("settle", old.tasks["r_later-1"], "done", *BY)
    old.ended("r_later-1")
    equal((effects(stack, "r_later-1", "once"), effects(stack, "r_later-1", "after")), (1, 1),
          "what follows is sent with the same key")
    stack.command("settle", old.tasks["r_unsafe-1"], "absent", *BY)
    old.ended("r_unsafe-1")
    equal(effects(stack, "r_unsafe-1", "once"), 2, "absent: it is sent once more, as was ordered")


def lost_tasks(stack, old):
    """Handles of the tail are gone. The same effect ID is the same to downstream."""
    for name in ("r_keyed", "r_lookup"):
        effect_id = f"{name}-tail"
        equal(old.client.get(old.tasks[effect_id]).code, -32602, f"{effect_id}: the handle is gone")
        before = old.tasks[effect_id]
        check(old.accept(name, effect_id) != before, f"{effect_id}: accepted anew")
        old.ended(effect_id)
        equal(effects(stack, effect_id), 1, f"{effect_id}: one effect all the same")
        counts["treated"] += 1
    equal(len(requests(stack, "r_lookup-tail")), 1, "it was looked for before it was sent")


def stale_worker(stack, old, token):
    """It wakes with a claim of before, which is in the store that it finds, and changes nothing."""
    steps = [row[1:4] for row in stack.steps(old.tasks["stale"])]
    written = "SELECT count(*) FROM holdfast.step WHERE token = %s"
    equal(stack.query(written, (token,)), [(0,)], "nothing stands under the old claim")
    stack.workers[0].signal(signal.SIGCONT)
    until(lambda: "incarnation lost" in stack.workers[0].log(), 20, "it learns that its claim is void")
    time.sleep(0.5)
    equal(stack.query(written, (token,)), [(0,)], "and has written nothing")
    equal([row[1:4] for row in stack.steps(old.tasks["stale"])], steps, "its task stands as it was")
    check(stack.workers[0].alive(), "it lives on")
    counts["treated"] += 1


def old_copy(stack):
    old = Old(stack)
    token = stopped_claim(stack, old)
    for name in PHASES:
        old.accept(name)
    backup = stack.places["backup"]
    since = now_text()
    pair.copy(backup, stack.cluster)
    tail(stack, old)
    swap(stack.cluster, backup)
    asked(stack, "an old copy", (stack.apis[0], stack.workers[1], stack.maintains[0]))
    why(stack, old.tasks["r_keyed-1"], "`holdfast restored`")
    counts_first(stack, since)
    restored(stack, "--since", since, "--yes", *BY, "--lease-ms", str(LEASE_MS))
    equal(stack.query("SELECT count(*) FROM holdfast.work WHERE token = %s", (token,)), [(0,)],
          "the claims of before are void")
    each_class(stack, old)
    before = stack.query("SELECT restored, incarnation FROM holdfast.cluster"), stack.state(
        old.tasks["r_unsafe-1"])
    check("already" in restored(stack, "--since", since, "--yes", *BY), "twice is once")
    equal((stack.query("SELECT restored, incarnation FROM holdfast.cluster"),
           stack.state(old.tasks["r_unsafe-1"])), before, "twice is once")
    equal([row for row in stack.query("SELECT act, by FROM holdfast.audit WHERE act = 'restored'")],
          [("restored", "ann")], "the record names who")
    stale_worker(stack, old, token)
    undo_again(stack, old)
    settled(stack, old)
    lost_tasks(stack, old)
    goes_on(stack, "an old copy")


# --- crashes and fail-overs ----------------------------------------------------------------------

def busy(stack):
    client = stack.client()
    for number in range(5):
        effect_id = f"busy-{time.monotonic_ns()}-{number}"
        client.wait(client.call_until_handle("r_keyed", {"effect_id": effect_id}).task_id, 30)


def crash(stack):
    for _ in range(2):
        busy(stack)
        pair.crash(stack.cluster)
        pair.start(stack.cluster)
        not_asked(stack, "a crash")
        goes_on_quietly(stack, "a crash")


def goes_on_quietly(stack, what):
    busy(stack)
    equal(stack.query("SELECT held, restored FROM holdfast.cluster"), [(None, None)],
          f"{what}: nobody asks")


def caught_up(primary):
    with primary.connect() as admin:
        until(lambda: admin.execute("SELECT count(*) FROM pg_stat_replication "
                                    "WHERE sync_state = 'sync'").fetchone()[0], 20, "it follows")


def failover(stack):
    """A synchronous standby has all that was acknowledged, whatever else it lacks."""
    standby = stack.places["standby-1"]
    standby.follow(stack.cluster)
    with stack.cluster.connect() as admin:
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        admin.execute("SELECT pg_reload_conf()")
    caught_up(stack.cluster)
    busy(stack)
    pair.crash(stack.cluster)
    standby.promote()
    stack.cluster = standby
    with standby.connect() as admin:
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        admin.execute("SELECT pg_reload_conf()")
    not_asked(stack, "a fail-over without loss")
    goes_on_quietly(stack, "a fail-over without loss")


def lossy_failover(stack):
    """An asynchronous standby that lagged is promoted."""
    standby = stack.places["standby-2"]
    standby.follow(stack.cluster)
    busy(stack)
    since = now_text()
    time.sleep(0.5)
    standby.stop("fast")
    busy(stack)
    pair.crash(stack.cluster)
    standby.start()
    standby.promote()
    stack.cluster = standby
    asked(stack, "a fail-over with loss")
    restored(stack, "--since", since, "--yes", *BY, "--lease-ms", str(LEASE_MS))
    goes_on(stack, "a fail-over with loss")


# --- a copy --------------------------------------------------------------------------------------

def dump_into(source, target):
    """Another cluster, with another system identifier."""
    dump = subprocess.run([rig.POSTGRES_BIN / "pg_dumpall", "-h", source.folder, "-U", "postgres"],
                          capture_output=True, check=True).stdout
    with target.connect("postgres") as admin:
        admin.execute("DROP DATABASE holdfast")
    done = subprocess.run([rig.POSTGRES_BIN / "psql", "-h", target.folder, "-U", "postgres", "-q", "-d",
                           "postgres"], input=dump, capture_output=True, check=False)
    check(done.returncode == 0, "the dump is read", done.stderr.decode()[-500:])


class Copy(rig.Stack):
    """Its own API and worker over a store that is a dump of another's."""

    def __init__(self, original):
        self.original = original
        super().__init__(apis=0, workers=0, maintain=False, tools=(), settings=SETTINGS)

    def command(self, *args, **more):
        if args[0] == "migrate":
            dump_into(self.original.cluster, self.cluster)
            shutil.copy(self.original.folder / "keys", self.folder / "keys")
            return None
        return super().command(*args, **more)

    def start_all(self):
        self.apis = [self.start_api("api-1", rig.free_port())]
        self.workers = [self.start_worker("worker-1")]
        self.maintains = [self.start_holdfast("maintain-1", "maintain")]


def copy(stack):
    old = Old(stack)
    stack.workers[0].terminate()
    stack.workers[1].terminate()
    for name in ("r_keyed", "r_unsafe", "r_local", "r_later"):
        old.accept(name, f"{name}-copy")
    since = now_text()
    twin = Copy(stack)
    twin.start_all()
    asked(twin, "another system identifier")
    equal(requests(twin, "r_keyed-copy"), [], "nothing was sent by the copy")
    restored(twin, "--since", since, "--copy", "--yes", *BY, "--lease-ms", str(LEASE_MS))
    # Again for another time, and not called a copy: it stays one.
    restored(twin, "--since", "2020-01-01T00:00:00Z", "--yes", *BY, "--lease-ms", "100")
    until(lambda: why_not_ready(twin.apis[0]) is None, 30, "the copy is ready")
    twins = Old(twin)
    twins.tasks = dict(old.tasks)
    twins.ended("r_local-copy")
    twins.accept("r_keyed", "r_keyed-new")
    twins.until_state("r_unsafe-copy", "unknown")
    until(lambda: twin.query("SELECT count(*) FROM holdfast.work WHERE phase = 1 AND task = %s", (
        rig.task_bytes(old.tasks["r_later-copy"]),)) == [(1,)], 20, "its local phase went on")
    time.sleep(6)  # longer than what is put off waits for
    equal([line for line in twin.requests() if line["method"] == "POST"], [],
          "nothing foreign runs before somebody confirms it")
    check(twin.state(twins.tasks["r_keyed-new"]) != "running", "what is foreign waits")
    why(twin, twins.tasks["r_keyed-new"], "--confirm")
    restored(twin, "--confirm", *BY)
    twins.ended("r_keyed-new")
    twins.until_state("r_keyed-copy", "unknown")
    twins.until_state("r_later-copy", "unknown")
    # The original goes on with its own.
    stack.workers.append(stack.start_worker("worker-3"))
    old.ended("r_keyed-copy")
    old.accept("r_keyed", "r_keyed-new")
    old.ended("r_keyed-new")
    keys = [{line["key"] for line in requests(one, "r_keyed-new")} for one in (stack, twin)]
    check(all(len(some) == 1 for some in keys) and keys[0] != keys[1], "the copy's keys are others",
          [sorted(some) for some in keys])
    for effect_id in ("r_keyed-copy", "r_later-copy"):
        equal([line for line in twin.requests() if line in requests(twin, effect_id)], [],
              f"{effect_id}: what the original may have done the copy does not")
    twin.command("settle", twins.tasks["r_keyed-copy"], "absent", "--force", *BY)
    twins.ended("r_keyed-copy")
    keys = [{line["key"] for line in requests(one, "r_keyed-copy")} for one in (stack, twin)]
    check(all(len(some) == 1 for some in keys) and keys[0] != keys[1], "also of tasks of before", keys)
    counts["copies"] += 1
    twin.stop()


def intact(stack):
    """The same identifier change, but nothing is missing: it goes on as it is."""
    twin = Copy(stack)
    twin.start_all()
    asked(twin, "a dump of a store at rest")
    restored(twin, "--intact", *BY)
    goes_on(twin, "a dump of a store at rest")
    twin.stop()


def main():
    folders = [rig.make_tool(name, phases) for name, phases in PHASES.items()]
    stack = Places(apis=1, workers=1, tools=[*folders, rig.probe_tool()], settings=SETTINGS)
    crash(stack)
    failover(stack)
    old_copy(stack)
    lossy_failover(stack)
    copy(stack)
    intact(stack)
    stack.stop()
    rig.finish("restored", counts, {"asked": 4, "not_asked": 3, "treated": 11, "copies": 1, "refused": 6})


main()
