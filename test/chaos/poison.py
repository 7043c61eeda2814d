"""Poison (F21): a task that dies each time it is started, by its own hand, by the kernel for its
memory, or with its worker. It is started as often as its crash limit says and ends failed with the
reason, while the others go on."""

import contextlib
import itertools
import time

import poisoning
import rig
import shapes
import world
from load import LOST

LIMIT = 3
END_S = 40          # a poisoned task has ended by then
# A claim that is lost before the tool was started is a crash without a start, so that a worker which
# stands still for less than this loses none.
LEASE_MS = 1_000
SETTINGS = {command: flags | ({"lease_ms": LEASE_MS} if "lease_ms" in flags else {})
            for command, flags in world.SETTINGS.items()}
WAYS = {"abort": "abort", "out of memory": "memory", "kills its worker": "worker"}

WANTED = {"poison": tuple(WAYS)}
CI = {"poison": 6}
SOAK = {"poison": [("poison", 300)]}


class PoisonWorld(world.World):
    def __init__(self, *args, **more):
        self.cgroup = poisoning.cgroup()
        super().__init__(*args, settings=SETTINGS, **more)
        self.command("tools", "apply", str(poisoning.tool("chaos_poison", LIMIT)))
        shapes.SHAPES["chaos_poison"] = ["pure die"]  # no caller calls it, the checker knows it

    def stop(self):
        super().stop()
        shapes.SHAPES.pop("chaos_poison", None)

    def supervise(self):
        """Starts again which workers were killed; how many."""
        killed = [worker for worker in self.workers if not worker.alive()]
        for worker in killed:
            self.downed.add(worker)
            self.begin(worker)
        return len(killed)


WORLD = PoisonWorld


class Faults:
    poison_ids = itertools.count(1)

    def poison(self):
        """The one that kills its worker alone: it would be the others' crash, too."""
        cell = self.rarest("poison")
        cells = [cell] if cell == "kills its worker" else ["abort", "out of memory"]
        client = self.stack.client(api=self.dice.randrange(len(self.stack.apis)))
        self.stack.refusals += len(cells)  # they are to end failed
        before = self.others_ended()
        begun = [(cell, *self.begin_poison(client, cell)) for cell in cells]
        kills = self.until_terminal(client, [handle for _, _, handle in begun])
        for cell, effect_id, handle in begun:
            self.judge_poison(cell, effect_id, handle, rig.until(
                lambda handle=handle: self.poison_told(client, handle), END_S, "what became of poison"))
        wanted = LIMIT if cell == "kills its worker" else 0
        if kills != wanted:
            self.findings.add("alive", f"poison ({cells}): {kills} workers died")
        if self.others_ended() <= before:
            self.findings.add("V9", "nobody made progress beside poison", task=begun[0][2])
        client.close()
        return set(cells)

    def begin_poison(self, client, cell):
        effect_id = f"poison-{next(self.poison_ids)}"
        answer = client.call_until_handle("chaos_poison", {
            "effect_id": effect_id, "how": WAYS[cell], "cgroup": str(self.stack.cgroup.path)})
        return effect_id, answer.task_id

    def others_ended(self):
        rows = self.stack.ask("SELECT count(*) FROM chaos.ended e JOIN holdfast.task t USING (task) "
                              "JOIN holdfast.tool v USING (tool) WHERE v.name <> 'chaos_poison'")
        return rows[0][0] if rows else 0

    @staticmethod
    def poison_told(client, handle):
        """What tasks/get tells of it; {} where it was refused for now."""
        with contextlib.suppress(*LOST):
            return client.get(handle).result or {}
        return {}

    def until_terminal(self, client, handles):
        """How many workers were killed on the way."""
        kills, left = 0, list(handles)
        end = time.monotonic() + END_S
        while left and time.monotonic() < end:
            kills += self.stack.supervise()
            left = [handle for handle in left
                    if self.poison_told(client, handle).get("status") not in rig.TERMINAL]
            time.sleep(0.02)
        return kills + self.stack.supervise()

    def judge_poison(self, cell, effect_id, handle, result):
        starts = len(poisoning.starts(self.stack, effect_id))
        message = (result.get("error") or {}).get("message", "")
        if result["status"] != "failed" or "worker died" not in message:
            self.findings.add("V10", f"poison ({cell}) is {result['status']}", task=handle,
                              message=message, starts=starts)
        if starts != LIMIT:
            self.findings.add("V10", f"poison ({cell}) was started {starts} times", task=handle)
