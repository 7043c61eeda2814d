"""The primary fails, its synchronous standby takes over, and the old primary comes back (F10): in
the order crash-restart, repeat, fail-over. Half of the times the standby is away during the first
two, so that what the crash left visible on the primary is on no standby: nothing that the fail-over
then takes back may have been told."""

import threading
import time

import pair
import patience
import rig
import world
from load import LOST

SERVING_S_MAX = 5       # from the instant that the new primary takes writes
READY_S_MAX = 10
BEHIND_S = 0.7          # for repeats of what only the old primary has
CALLS = 4
# All that may be asked of a primary that was replaced: on which timeline it is.
ASKED = "pg_walfile_name"
STALE_CONF = """unix_socket_directories = '{folder}'
synchronous_standby_names = '*'
log_statement = 'all'
log_line_prefix = '<%u %a> '
"""


class PairWorld(world.World):
    """Two Postgres. Half of the processes are told the one first, half the other."""

    def start_downstream(self):
        self.pair = pair.Pair(self.cluster, self.folder / "pg-home-2")
        self.pair.follow()
        return super().start_downstream()

    def where(self, name):
        return self.pair.where(turned=name[-1:] in "13579")

    def env(self, **more):
        return super().env(**more) | {
            "HOLDFAST_DSN": f"{self.pair.where()} dbname=holdfast user=postgres"} | more

    def fail_over(self):
        """kill -9 and promote; the wall clock at which the new primary took writes."""
        at = self.pair.fail_over()
        self.cluster = self.pair.primary
        return at

    def tasks_of(self, node):
        """Handles of what is there and stays, whoever was told."""
        with node.connect() as admin:
            return {rig.task_text(task) for task, in admin.execute(
                "SELECT t.task FROM holdfast.task t JOIN holdfast.tool v USING (tool) "
                "WHERE v.name <> 'chaos_brief'")}

    def stop(self):
        self.pair.stop()
        super().stop()


class Calls:
    """Calls of new tasks that are sent until they are told a handle, each to its own API process
    or, without one, to any."""

    def __init__(self, faults, kind, count, api=None):
        self.faults, self.stop = faults, False
        self.tasks = [faults.new_task(kind) for _ in range(count)]
        self.at = {}
        self.threads = [threading.Thread(target=self.call, args=(task, number, api), daemon=True)
                        for number, task in enumerate(self.tasks)]
        for thread in self.threads:
            thread.start()

    def call(self, task, number, api):
        apis = self.faults.stack.apis
        while not self.stop and task.handle is None:
            number += 1
            client = rig.Client(apis[number % len(apis) if api is None else api].port, timeout=10)
            try:
                answer = client.call(task.tool, task.arguments)
                if answer.handle:
                    self.faults.journal.handle(task, answer)
                    self.at[task.effect_id] = time.time()
                elif answer.status not in (429, 503):
                    self.faults.journal.violation("V1", "a call was answered oddly", task,
                                                  answer=answer)
                    return
            except LOST:
                pass
            client.close()
            time.sleep(0.01)

    def end(self, seconds):
        """All told, or given up. Callers see them to their ends."""
        end = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0, end - time.monotonic()))
        self.stop = True
        for task in self.tasks:
            if task.handle is None:
                self.faults.findings.add("F10", f"no handle within {seconds} s",
                                         effect_id=task.effect_id)
            self.faults.hand_over(task)


class Faults:
    def failover(self):
        cell = self.rarest("failover", ("standby behind", "standby follows"))
        stack, both = self.stack, self.stack.pair
        self.let_work(0.3)
        running = stack.running()
        hit = {cell} | {f"{step} running" for _, step, _ in running}
        self.was_hit("failover", *(task for _, _, task in running))
        if cell == "standby behind":
            both.standby_gone()
        calls = Calls(self, "failover", CALLS)
        self.wait_for_commit(cell)
        stack.kill_postmaster()
        seen = self.repeat(cell)
        probes = [Calls(self, f"probe{number}", 1, number) for number in range(len(stack.apis))]
        self.serving(stack.fail_over(), probes)
        calls.end(30)
        lost = seen - stack.tasks_of(both.primary)
        self.must_not_be_told(lost)
        self.old_comes_back()
        both.follow()
        self.let_work(0.1)
        # Only where the crash left something that no standby had was it the harder half.
        return hit if lost or cell == "standby follows" else False

    def wait_for_commit(self, cell):
        """Something is being accepted, and without a standby waits for it."""
        waits = "wait_event = 'SyncRep'" if cell == "standby behind" else "state <> 'idle'"
        end = time.monotonic() + 2
        while time.monotonic() < end and not self.stack.ask(
                f"SELECT 1 FROM pg_stat_activity WHERE usename = 'holdfast_api' AND {waits} "
                "AND query LIKE '%%accept_bounded%%'"):
            time.sleep(0.005)

    def repeat(self, cell):
        """Time for repeats at the primary that has crashed and is back; what is seen there."""
        if cell == "standby follows":
            self.stack.pair.wait_sync()
            self.let_work(0.2)
            return set()
        time.sleep(BEHIND_S)
        return self.stack.tasks_of(self.stack.pair.primary)

    def must_not_be_told(self, lost):
        told = {task.handle: task for task in list(self.journal.tasks.values()) if task.handle}
        for handle in lost & set(told):
            self.journal.violation("V2", "told, and no standby had it", told[handle])

    def serving(self, writable_at, probes):
        """From the first write that is possible to a call accepted at each API process, and to
        the first step of a worker."""
        for probe in probes:
            probe.end(30)
        accepted = max((at for probe in probes for at in probe.at.values()), default=writable_at)
        rows = rig.until(lambda: self.stack.ask(
            "SELECT extract(epoch FROM min(at))::float8 FROM holdfast.step "
            "WHERE token IS NOT NULL AND at > to_timestamp(%s) HAVING count(*) > 0",
            (writable_at,)), 30, "a worker steps at the new primary", 0.01)
        for what, at in (("accepting", accepted), ("stepping", rows[0][0] if rows else 0)):
            took = round(patience.between(writable_at, at), 3)
            self.measure(f"{what}_s_max", took)
            if took > SERVING_S_MAX:
                self.findings.add("F10", f"{what} {took} s after the new primary took writes")

    def old_comes_back(self):
        """It takes writes, on its old timeline, and thinks that it has a standby."""
        stack, old = self.stack, self.stack.pair.standby
        log = old.folder / "postgres.log"
        old.write("postgresql.auto.conf", STALE_CONF.format(folder=old.folder) + pair.REWINDABLE)
        size = log.stat().st_size
        pair.start(old)
        for process in (self.dice.choice(stack.workers), self.dice.choice(stack.apis)):
            stack.restart(process)
            stack.begin(process)
        # But who is just asking which one is the newer: it would find the old one alone.
        stack.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                  "WHERE usename LIKE 'holdfast\\_%%' AND query <> '' "
                  f"AND query NOT LIKE '%%{ASKED}%%'")
        began = time.monotonic()
        time.sleep(0.2)
        rig.until(lambda: all(map(stack.ready, stack.apis)), READY_S_MAX, "ready at the new one")
        self.measure("ready_beside_the_old_s_max", round(time.monotonic() - began, 3))
        if stack.command("task", "list", check_code=None).returncode != 0:
            self.findings.add("F10", "the command line does not find the new primary")
        self.let_work(0.3)
        old.stop()
        for line in log.read_bytes()[size:].decode(errors="replace").splitlines():
            asks = any(f"LOG:  {word}" in line for word in ("statement:", "execute"))
            if line.startswith("<holdfast_") and asks and ASKED not in line:
                self.findings.add("F10", "a primary that was replaced was asked", line=line)


WANTED = {"failover": ("standby behind", "standby follows")}
CI = {"failover": 10}
SOAK = {"failovers": [("failover", 200)]}
WORLD = PairWorld
