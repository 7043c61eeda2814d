"""A restore with a lost tail: a backup, work that goes on, Postgres killed, the backup in its place. The
processes stop by themselves and wait; the operator runs `holdfast restored`; the work goes on.

What the tail held is gone for everybody: the journal forgets it too (a client of an asynchronous
store has to), so that handles of the tail are no violation of V2 and ends of it none of V6. Clients
call again with the same effect ID. Downstream forgets nothing: that is what must not happen twice.

Two things no store can promise then, and the checker does not ask for them: an unsafe effect of a task
whose acceptance itself was lost is made again by its repeat; a cancel that was lost has to be asked for
again, and what it had taken back stays taken back if that comes too late."""

import contextlib
import datetime
import json
import pathlib
import shutil
import threading
import time

import checker
import pair
import rig
import shapes
import world

WANTED = {"restore": ("acceptance", "end", "live again", "unknown")}
CI = {"restore": 3}
SOAK = {"restores": [("restore", 50)]}
TAIL_S = (0.8, 1.6)     # how long work goes on after the backup
BEGIN_EVERY_S = 0.12    # while it is taken: a task that is soon to do what cannot be taken back
BEFORE_MS = 600         # that so long before
ASK_S = 20              # for all processes to have noticed
UNKNOWN_S = 3           # for the first task that comes to where it may have been
NAME = "{/task/effect_id}/{/args/n}"


class Checker(checker.Checker):
    def read(self):
        self.stack.names = {name_of(task): task.handle for task in self.journal.tasks.values()
                            if task.handle is not None}
        super().read()
        self.again = {task.handle: task.lost for task in self.tasks if getattr(task, "lost", None)}
        self.uncancelled = {task.handle for task in self.tasks
                            if getattr(task, "lost_cancel", False)}
        recorded = {(by, why) for rows in self.audit.values() for _, by, why in rows}
        self.lost_settles = [one for one in self.operator.settles
                             if (one["by"], one["why"]) not in recorded
                             and one["at"] < self.stack.killed_at]
        for one in self.lost_settles:
            one["acknowledged"] = False
        self.counts["settles lost"] += len(self.lost_settles)
        self.counts["accepted again"] += len(self.again)

    def unsafe(self, handle, phase, count):
        """Once, and again for each 'absent', lost or kept, and for each lost acceptance."""
        mine = {handle, *self.again.get(handle, ())}
        absent = sum(one["verdict"] == "absent" and one["task"] in mine and one["phase"] == phase
                     for one in self.lost_settles)
        may = 1 + self.verdicts(handle, phase).count("absent") + absent + len(mine) - 1
        if count > may:
            self.bad("V7", f"{count} effects of the unsafe {phase}, sent {may} times", handle)
        self.counts["unsafe"] += count

    def truth(self, handle, made, keys):
        if handle not in self.again:
            super().truth(handle, made, keys)

    def undone(self, handle):
        if handle not in self.again and handle not in self.uncancelled:
            super().undone(handle)


def name_of(task):
    """What its requests are known by."""
    return f"{task.effect_id}/{task.arguments['n']}"


class RestoreWorld(world.World):
    """Its tools name the effect to downstream, not the task: a task may be accepted anew."""

    CHECKER = Checker
    MAY_STAND_STILL = True

    def __init__(self, findings, **more):
        self.names = {}
        self.killed_at = 0.0
        self.restores = 0
        super().__init__(findings, **more)

    def command(self, *args, **more):
        if args[:2] == ("tools", "apply"):
            program = shapes.build(self.tools_folder.name, "-DNAME_THE_EFFECT")
            for folder in map(pathlib.Path, args[2:]):
                manifest = folder / "tool.json"
                manifest.write_text(json.dumps(json.loads(
                    manifest.read_text(),
                    object_hook=lambda one: NAME if one == {"$from": "/task/id"} else one), indent=1))
                if (folder / "phase").exists():
                    shutil.copy(program, folder / "phase")
        return super().command(*args, **more)

    def effects(self):
        """By the newest task of each effect."""
        made, requests = super().effects()
        self.names |= {f"{effect_id}/{n}": rig.task_text(task) for task, effect_id, n in self.ask(
            "SELECT task, effect_id, arguments::json ->> 'n' FROM holdfast.task")}
        for line in requests:
            line["place"] = self.newest(line["place"])
        return [(self.newest(place), line) for place, line in made], requests

    def newest(self, place):
        return self.names.get(place[0], place[0]), place[1]

    # --- the restore ---

    def backup(self, meanwhile):
        """Its path, and the time since when it may lack something. It is of the moment at its end."""
        path = self.cluster.folder / f"backup-{self.restores}"
        since = time.time()
        taking = threading.Thread(target=self.cluster.run, args=(
            "pg_basebackup", "-h", self.cluster.folder, "-U", "postgres", "-D", path,
            "--checkpoint=fast", "--no-sync"))
        taking.start()
        while taking.is_alive():
            meanwhile()
            taking.join(BEGIN_EVERY_S)
        return path, since

    def put_back(self, path):
        with self.admin_lock:
            pair.crash(self.cluster)
            self.killed_at = time.time()
            lost = self.cluster.folder / f"lost-{self.restores}"
            self.cluster.data.rename(lost)
            path.rename(self.cluster.data)
        self.restores += 1
        self.start_postgres()
        shutil.rmtree(lost)

    def asks(self):
        """Every API process is not ready, and says why."""
        return all(b"run `holdfast restored`" in rig.http_ask(api.port, "/readyz", seconds=2)[1]
                   for api in self.apis)


WORLD = RestoreWorld


class Faults:
    """Mixed into faults.Faults."""

    gates = None

    def gate(self):
        """While a restore is on, no client judges an answer; what was asked before it counts for
        nothing after."""
        self.gates = []
        for caller in self.callers:
            gate = threading.Lock()
            self.gates.append(gate)
            plain = not hasattr(caller, "poll")
            if plain:
                self.forgets(caller)
            self.behind(caller, "judge" if plain else "turn", gate)

    @staticmethod
    def behind(caller, name, gate):
        inner = getattr(caller, name)

        def gated(*args):
            with gate:
                return inner(*args)

        setattr(caller, name, gated)

    def forgets(self, caller):
        call, judge, stack = caller.call, caller.judge, self.stack
        asked = threading.local()

        def ask(*args):
            asked.at = stack.restores
            return call(*args)

        def tell(*args):
            if getattr(asked, "at", None) == stack.restores:
                judge(*args)

        caller.call, caller.judge = ask, tell

    def restore(self):
        if self.gates is None:
            self.gate()
        path, since = self.stack.backup(self.begin_unsafe)
        self.let_work(self.dice.uniform(*TAIL_S))
        with contextlib.ExitStack() as held:
            for gate in self.gates:
                held.enter_context(gate)
            self.was_hit("restore", *(task for _, _, task in self.stack.running()))
            self.stack.put_back(path)
            rig.until(self.stack.asks, ASK_S, "the processes notice", 0.05)
            if not self.stack.asks():
                self.findings.add("restore", "a lost tail was not noticed")
            claimed = self.stack.ask("SELECT count(*) FROM holdfast.work WHERE state = 'running'")
            hit = self.forget(since)
        self.operate(since, claimed)
        unknown = ("SELECT 1 FROM holdfast.event WHERE kind = 'unknown' AND at > to_timestamp(%s) "
                   "LIMIT 1")
        end = time.monotonic() + UNKNOWN_S
        while not self.stack.ask(unknown, (self.stack.killed_at,)) and time.monotonic() < end:
            time.sleep(0.05)
        return hit | ({"unknown"} if self.stack.ask(unknown, (self.stack.killed_at,)) else set())

    def begin_unsafe(self):
        """Its first phase ends in the tail."""
        task = self.new_task("tail", "chaos_unsafe")
        task.arguments["ms"] = BEFORE_MS
        self.hand_over(task)

    def operate(self, since, claimed):
        """The operator: what would be done, then that it be done, now and then twice."""
        text = datetime.datetime.fromtimestamp(since, datetime.timezone.utc).isoformat(
            timespec="milliseconds").replace("+00:00", "Z")
        words = ("restored", "--since", text)
        shown = self.stack.command(*words).stdout
        if "--yes does it" not in shown:
            self.findings.add("restore", "nothing is shown first", text=shown)
        now = self.stack.ask("SELECT count(*) FROM holdfast.work WHERE state = 'running'")
        if now > claimed:
            self.findings.add("restore", "claimed before `restored`", before=claimed, now=now)
        words += ("--yes", "--by", "restorer", "--why", "chaos", "--lease-ms", world.LEASE_MS)
        for _ in range(1 + (self.dice.random() < 0.5)):
            self.stack.command(*words)
        for api in self.stack.apis:
            rig.until(lambda api=api: self.stack.ready(api), 20, "the API goes on", 0.02)

    def forget(self, since):
        """What the tail held the clients were never told; what is hit is what it held."""
        # An end after the restore is another one: an operator may be as quick as we are.
        kept = {rig.task_text(task): ended for task, ended in self.stack.ask(
            "SELECT t.task, w.task IS NULL AND coalesce(o.at < to_timestamp(%s), true) "
            "FROM holdfast.task t LEFT JOIN holdfast.work w USING (task) LEFT JOIN holdfast.step o "
            "ON o.week = t.week AND o.task = t.task AND o.place = 2147483647",
            (self.stack.killed_at,))}
        # What was swept before the backup was whole is not lost: its tombstone stands.
        accepted = {rig.task_text(task) for task, in self.stack.ask("SELECT task FROM holdfast.effect")}
        effects = {place for place, _ in self.stack.effects()[0]}
        hit = set()
        with self.journal.lock:
            for task in list(self.journal.tasks.values()):
                handle = task.handle
                if handle is None:
                    continue
                if handle not in accepted:
                    if accepted_at(handle) < since - 0.01:
                        self.journal.findings.add("V2", "lost though accepted before", task=handle)
                    hit.add("acceptance")
                    task.lost = [*getattr(task, "lost", []), handle]
                    task.handle, task.firsts = None, 0
                    unsee(task)
                elif handle not in kept:
                    continue
                elif not kept[handle] or task.may_be_gone():
                    if task.over:
                        hit.add("end")
                    if any((handle, phase) in effects for phase in
                           shapes.names_of(task.tool, *shapes.EFFECTFUL)):
                        hit.add("live again")
                    unsee(task)
        self.take_up()
        return hit

    def take_up(self):
        """Who called for it sees it to its end once more."""
        for caller in self.callers:
            for task in [task for task in list(caller.ended) if not task.over]:
                caller.ended.remove(task)
                caller.inbox.append(task)


def accepted_at(handle):
    return int.from_bytes(rig.task_bytes(handle)[2:8], "big") / 1000


def unsee(task):
    task.statuses, task.end, task.result, task.plain_end = [], None, None, None
    task.gone, task.gone_at = False, None
    if task.cancelled:
        task.cancelled, task.lost_cancel = False, True
        task.cancel_at = time.monotonic()
