"""The power goes: Postgres stops at one instant with all that it had not made durable, and comes
back from what had reached the disk (disk.PowerDisk). Everything that a client was told by then must
be there, unchanged, and work goes on by itself.

test/chaos/powercut_controls shows that the disk forgets what was not synced."""

import contextlib
import os
import pathlib
import signal
import subprocess
import threading
import time

import psycopg

import disk
import rig
import world
from checker import OUTCOME_PLACE

WANTED = {"power_cut": ("at an answer", "in a checkpoint", "at random")}
CI = {"power_cut": 5}
SOAK = {"power": [("power_cut", 100)]}

START_TRIES = 5
WORK_AGAIN_S = 30
TOLD_BETWEEN = 20       # handles between two cuts, if they come within TOLD_BETWEEN_S
TOLD_BETWEEN_S = 3


class Unbootable(RuntimeError):
    """Postgres does not start from what was on the disk."""


class PowerWorld(world.World):
    # As `deploy/up` runs it: all that counts for durability is Postgres's default.
    postgres = {"fsync": "on"}

    def __init__(self, findings, **more):
        self.disk = disk.PowerDisk()
        super().__init__(findings, **more)
        self.disk.sync()  # initdb was told not to

    def make_cluster(self, folder, _):
        self.link()
        return rig.Cluster(folder, self.postgres)

    @property
    def home(self):
        return self.folder / "pg-home"

    def link(self):
        """Where the cluster looks for its data."""
        data = self.disk.where / "data"
        if not data.exists():
            data.mkdir(mode=0o700)
            rig.shutil.chown(data, "postgres", "postgres")
        new = self.home / "pg.new"
        new.symlink_to(data)
        new.rename(self.home / "pg")

    def stop(self):
        super().stop()
        self.disk.close()

    # --- the cut ---

    def freeze_postgres(self):
        """Stops it whole: nothing is answered any more that the disk might not have. Its
        processes, the first before those that it could start."""
        parent = int((self.cluster.data / "postmaster.pid").read_text().split()[0])
        os.kill(parent, signal.SIGSTOP)
        end = time.monotonic() + 10
        while (rig.proc_stat(parent) or "Z")[0] not in "TZ" and time.monotonic() < end:
            pass
        pids = [parent, *(int(path.name) for path in pathlib.Path("/proc").iterdir()
                          if path.name.isdigit()
                          and (rig.proc_stat(path.name) or "ZZ")[1] == str(parent))]
        for pid in pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return pids

    def cut_power(self, told):
        """`told` is asked for what clients know by then, which it gives back."""
        pids = self.freeze_postgres()
        self.disk.cut()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while not all(map(rig.process_gone, pids)) and time.monotonic() < end:
            time.sleep(0.002)
        known = told()
        self.disk.go_on()
        self.link()
        # On a machine that comes up nobody has the old number; here it may wait to be reaped.
        for lock in (self.cluster.data / "postmaster.pid", self.home / ".s.PGSQL.5432.lock"):
            lock.unlink(missing_ok=True)
        self.boot()
        return known

    def boot(self):
        for left in range(START_TRIES, 0, -1):
            try:
                self.cluster.start()
                break
            except subprocess.CalledProcessError:
                if left == 1:
                    log = (self.home / "postgres.log").read_text(errors="replace").splitlines()
                    raise Unbootable(" | ".join(log[-4:])) from None
                time.sleep(0.2)
        try:
            self.postgres_up()
        except RuntimeError as error:
            raise Unbootable(f"it is up and answers nobody: {error}") from error


class Faults:
    def power_cut(self):
        cell = self.rarest("power_cut")
        running = self.stack.running()
        self.was_hit("power_cut", *(task for _, _, task in running))
        self.await_moment(cell)
        try:
            told = self.stack.cut_power(self.told)
            self.all_there(told)
        except (Unbootable, psycopg.Error) as error:
            self.findings.add("V2", f"nothing came back: {error}")
            raise Unbootable(str(error)) from error
        self.work_goes_on()
        return {cell} | {step for _, step, _ in running}

    def await_moment(self, cell):
        if cell == "at an answer":
            end, asked = time.monotonic() + 1.5, time.monotonic()
            while self.journal.accepted_at < asked and time.monotonic() < end:
                time.sleep(0.001)
            return
        if cell == "in a checkpoint":
            threading.Thread(target=self.checkpoint, daemon=True).start()
        time.sleep(self.dice.random() * 0.3)

    def checkpoint(self):
        with contextlib.suppress(psycopg.Error), self.stack.cluster.connect() as admin:
            admin.execute("CHECKPOINT")

    def told(self):
        """[(task, status or None)] that clients have been told."""
        with self.journal.lock:
            return [(task, task.statuses[-1] if task.end is not None else None)
                    for task in self.journal.tasks.values()
                    if task.handle is not None and not task.may_be_gone()]

    def all_there(self, told):
        """V2, V6, at once: what is repaired by the time of the checker must not have been lost."""
        known = {rig.task_text(task) for task, in self.stack.query("SELECT task FROM holdfast.task")}
        ends = {rig.task_text(task): name for task, name in self.stack.query(
            "SELECT task, name FROM holdfast.step WHERE place = %s", (OUTCOME_PLACE,))}
        for task, status in told:
            if task.handle not in known:
                self.journal.violation("V2", "an answered handle was lost with the power", task)
            elif status is not None and ends.get(task.handle) != status:
                self.journal.violation("V6", "a told end was lost with the power", task,
                                       now=ends.get(task.handle))

    def work_goes_on(self):
        if not self.work_again(WORK_AGAIN_S, "the power"):
            return
        before, end = self.handles(), time.monotonic() + TOLD_BETWEEN_S
        while self.handles() < before + TOLD_BETWEEN and time.monotonic() < end:
            time.sleep(0.01)

    def handles(self):
        return sum(task.handle is not None for task in list(self.journal.tasks.values()))


WORLD = PowerWorld
