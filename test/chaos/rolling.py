"""A rolling deploy (F20): the release before and this one run together, API, workers and
maintenance, on one store. All begins with the release before; this one migrates under load; then
each process is killed, or told to end, in turn, and started with the other's program, forth and
back. The release before is that of previous.py."""

import signal

import previous
import rig
import world

ROLES = ("api", "worker", "maintain")
MOVES = tuple(f"{role} {way} by {how}" for role in ROLES for way in ("forth", "back")
              for how in ("kill -9", "SIGTERM"))
MIGRATE = "migrate"
WANTED = {"rolling": (MIGRATE, *MOVES)}
CI = {"rolling": 26}
# Each time a world of its own, which is migrated.
SOAK = {"rolling": [("rolling", 3 * len(MOVES))] * 20}
DRAIN_S = 20
# A maintenance that led and was killed is followed when its own lease is over: lease_ms() of
# runtime/maintain.c.
MAINTAIN_LEASE_S = 5.2
# Flags that the release before does not know.
NEW_FLAGS = ("breaker_pause_ms", "breaker_pause_max_ms")
SETTINGS = {command: {name: value for name, value in flags.items() if name not in NEW_FLAGS}
            for command, flags in world.SETTINGS.items()}


class Rolling(world.World):
    def __init__(self, findings, **more):
        self.old, self.new = previous.holdfast(), rig.HOLDFAST
        self.migrated = False
        rig.HOLDFAST = self.old
        super().__init__(findings, settings=SETTINGS, **more)
        self.maintains.append(self.start_holdfast("maintain-2", "maintain"))

    def migrate(self):
        """By this release, under load; from then on the operator has its program, too."""
        rig.HOLDFAST = self.new
        rig.Stack.command(self, "migrate")
        self.migrated = True

    def stop(self):
        rig.HOLDFAST = self.new
        super().stop()

    def of(self, role):
        return {"api": self.apis, "worker": self.workers, "maintain": self.maintains}[role]

    def is_old(self, process):
        return process.argv[0] == str(self.old)


WORLD = Rolling


class Faults:
    def rolling(self):
        stack = self.stack
        running = stack.running()
        self.was_hit("rolling", *(task for _, _, task in running))
        if not stack.migrated:
            stack.migrate()
            self.let_work(0.1)
            return {MIGRATE}
        cell = self.rarest("rolling", [move for move in MOVES if self.movable(move)])
        process = self.dice.choice(self.movable(cell))
        stack.downed.add(process)
        if cell.endswith("kill -9"):
            process.kill()
            if process in stack.maintains:
                self.lingers(MAINTAIN_LEASE_S)
        elif self.ended_badly(process):
            return False
        process.argv[0] = str(stack.new if stack.is_old(process) else stack.old)
        stack.begin(process)
        if process in stack.apis:
            rig.until(lambda: stack.ready(process) or not process.alive(), 20,
                      "the API is up again", 0.005)
        self.let_work(0.1)
        return {cell} | {f"{step} under both" for _, step, _ in running}

    def movable(self, move):
        """Who can make that move."""
        role, way, *_ = move.split()
        return [process for process in self.stack.of(role)
                if self.stack.is_old(process) == (way == "forth")]

    def ended_badly(self, process):
        rig.until(lambda: process.handles(signal.SIGTERM), 10, "it has started", 0.005)
        code = process.terminate(DRAIN_S)
        if code != 0:
            self.findings.add("alive", f"{process.name} was told to end: {code}")
        return code != 0
