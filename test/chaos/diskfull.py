"""The disk is full under Postgres: of its data (statements fail with 53100, it lives) or of its WAL
(it panics, and stays down until there is room again). Small file systems of their own, which a
ballast file fills to the last page while tasks run.

Meanwhile a call is refused with 503 that is right about what was done, nobody hammers, and nothing
that a client was told is lost. When there is room again everything goes on; Postgres itself is
started by the harness where it gave up, as an operator's service manager does."""

import contextlib
import secrets
import threading
import time

import disk
import rig
import world
from load import LOST

WANTED = {"disk_full": ("data", "wal")}
CI = {"disk_full": 5}
SOAK = {"disk_full": [("disk_full", 50)]}

DATA_BYTES = 128 << 20
WAL_BYTES = 64 << 20
SEEN_S = 20             # until Postgres notices
FULL_S = 1.5            # it stays so at least
REFILL_S = 0.02
PROBES = 4              # calls at once in that time
PROBE_ROUNDS = 8        # until one of them was refused: a table may have pages left
ROOM_AGAIN_S = 60
# What is stored with a call, and is more than a page that others left unfilled.
BAGGAGE_BYTES = 6_000
GIVE_UP_S = 1.9         # a call that took less was told what is certain
# Failed statements of one process in that time: a handful at once, then with backoff. Each of its
# lanes, acts and connections tries by itself; so many a second of them all is no hammering.
TRIES_FIRST, TRIES_PER_S = 100, 15


class FullWorld(world.World):
    def __init__(self, findings, **more):
        self.disks = {"data": disk.SmallDisk(DATA_BYTES), "wal": disk.SmallDisk(WAL_BYTES)}
        super().__init__(findings, **more)

    def make_cluster(self, folder, _):
        return disk.SmallCluster(folder, self.disks["data"], self.disks["wal"],
                                 {"max_wal_size": "16MB"})

    def stop(self):
        for small in self.disks.values():
            small.empty()
        super().stop()
        for small in self.disks.values():
            small.close()

    @contextlib.contextmanager
    def full(self, name):
        """Whatever becomes free there is taken at once."""
        over = threading.Event()

        def keep():
            while not over.is_set():
                self.disks[name].fill()
                over.wait(REFILL_S)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.disks[name].empty()

    def back(self):
        """Whether Postgres is; it is started where it had given up."""
        end = time.monotonic() + ROOM_AGAIN_S
        while not self.ask("SELECT 1"):
            if time.monotonic() > end:
                return False
            if self.cluster.gone():
                self.start_postgres()
            time.sleep(0.05)
        return True


class Faults:
    def disk_full(self):
        cell = self.rarest("disk_full")
        running = self.stack.running()
        self.was_hit("disk_full", *(task for _, _, task in running))
        start = self.stack.cluster.log_end()
        with self.stack.full(cell):
            if not self.await_full(cell, start):
                return False
            began = time.monotonic()
            refused = self.probe(cell, start)
            time.sleep(max(0.0, FULL_S - (time.monotonic() - began)))
            seconds = time.monotonic() - began
        self.no_hammering(start, seconds)
        if not self.stack.back():
            self.findings.add("V9", "there is room again, and Postgres is not back")
            return False
        for task in refused:
            self.not_stored(task)
            self.hand_over(task)
        if self.work_again(ROOM_AGAIN_S, "room on the disk"):
            time.sleep(self.dice.random() * 0.3)
        return {cell} | {step for _, step, _ in running} | ({"refused"} if refused else set())

    def await_full(self, cell, start):
        end = time.monotonic() + SEEN_S
        while time.monotonic() < end:
            text = "\n".join(self.stack.cluster.log(start))
            if cell == "wal":
                # Segments that were made before are used up first.
                self.stack.ask("SELECT pg_logical_emit_message(true, 'full', 'x'), pg_switch_wal()")
                if "PANIC" in text and self.stack.cluster.gone():
                    return True
            elif "No space left on device" in text:
                return True
            time.sleep(0.01)
        return False

    def probe(self, cell, start):
        """Calls while there is no room: those that were refused."""
        refused = []
        for _ in range(PROBE_ROUNDS):
            tasks = [self.new_task("full") for _ in range(PROBES)]
            answers = rig.in_parallel(self.one_call, list(enumerate(tasks)))
            crashed = cell == "data" and any("PANIC" in line
                                             for line in self.stack.cluster.log(start))
            for task, answer in zip(tasks, answers):
                if self.judge_full(cell, task, *answer, crashed):
                    refused.append(task)
            if refused:
                break
        return refused

    def one_call(self, pair):
        """(its answer, seconds)"""
        number, task = pair
        api = self.stack.apis[number % len(self.stack.apis)]
        client = rig.Client(api.port, timeout=20)
        began = time.monotonic()
        try:
            answer = client.call(task.tool, task.arguments, extra_meta={
                "traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01",
                "baggage": f"full={secrets.token_hex(BAGGAGE_BYTES // 2)}"})
            return answer, time.monotonic() - began
        except LOST:
            return None, time.monotonic() - began
        finally:
            client.close()

    def judge_full(self, cell, task, answer, took, crashed):
        """Whether it was refused, and for certain. What found room, or may have, a caller sees to
        its end."""
        if answer is not None and answer.handle and cell == "data":
            self.journal.handle(task, answer, "call while full")
        elif answer is None or answer.status != 503:
            self.journal.violation("wire", "a call was answered oddly while the disk was full", task,
                                   answer=answer)
        else:
            executed = (answer.data or {}).get("executed")
            if not answer.headers.get("Retry-After"):
                self.journal.violation("wire", "503 without Retry-After", task, answer=answer)
            if executed == "no":
                return True
            # "maybe" is right where the call was in flight when its time was over.
            if executed != "maybe" or not (crashed or took > GIVE_UP_S):
                self.journal.violation("V7", f"executed {executed} where nothing was", task,
                                       answer=answer)
        self.hand_over(task)
        return False

    def not_stored(self, task):
        if self.stack.query("SELECT 1 FROM holdfast.task WHERE effect_id = %s", (task.effect_id,)):
            self.journal.violation("V7", "executed no, and it was stored", task)

    def no_hammering(self, start, seconds):
        tries = self.stack.cluster.refused(start)
        for name in {process.name for process in self.stack.processes} & set(tries):
            if tries[name] > TRIES_FIRST + TRIES_PER_S * seconds:
                self.findings.add("V10", f"{name}: {tries[name]} failed statements in "
                                  f"{seconds:.1f} s of a full disk")


WORLD = FullWorld
