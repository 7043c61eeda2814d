"""The synchronous standby goes away while commits wait for it (F11). Postgres answers a backend
whose wait is cancelled as if all were well, with a WARNING, and everybody sees its rows; one whose
wait is terminated just ends. What such a commit did may not be told before the standby has it: half
of the times the standby takes over without it."""

import time

from failover import Calls, PairWorld

CALLS = 4
AGAIN_S = 0.8           # in which an API process would ask again for what it was warned of
WAITS_SQL = """SELECT pid FROM pg_stat_activity WHERE usename = 'holdfast_api'
    AND wait_event = 'SyncRep' AND (query LIKE '%%accept_bounded(%%' OR query LIKE '%%barrier()%%')"""


class GoneWorld(PairWorld):
    """One API process: that another, which was not warned, reads the same rows is not its fault,
    and no reader can know of it."""

    def __init__(self, findings, **more):
        super().__init__(findings, apis=1, **more)


class Faults:
    def standby_gone(self):
        cell = self.rarest("standby_gone")
        both = self.stack.pair
        self.was_hit("standby_gone", *(task for _, _, task in self.stack.running()))
        both.standby_gone()
        calls = Calls(self, "gone", CALLS)
        pid = self.waiting()
        bare = set()
        if pid is not None:
            bare = self.disturb(cell, pid, self.stack.tasks_of(both.primary))
            self.must_not_be_told(bare)
        if cell.endswith("fail over"):
            bare -= self.fail_over_without()
        else:
            self.back()
        calls.end(30)
        if cell.endswith("back"):
            self.must_stay(bare)
        self.let_work(0.1)
        return {cell} if bare or pid and cell == "back, cancel" else False

    def waiting(self):
        """A backend that waits for the standby with an acceptance."""
        end = time.monotonic() + 5
        while time.monotonic() < end:
            rows = self.stack.ask(WAITS_SQL)
            if rows:
                return rows[0][0]
            time.sleep(0.01)
        return None

    def disturb(self, cell, pid, before):
        """Handles that can be seen now, and are on no standby."""
        if cell == "back, cancel":
            self.back()
        act = "terminate" if cell.startswith("terminate") else "cancel"
        self.stack.ask(f"SELECT pg_{act}_backend(%s)", (pid,))
        if cell == "back, cancel":
            return set()
        # Whoever asks again for what it was warned of waits behind others, who are cancelled too.
        end = time.monotonic() + AGAIN_S
        while time.monotonic() < end:
            self.stack.ask(f"SELECT pg_{act}_backend(pid) FROM ({WAITS_SQL}) waits")
            time.sleep(0.02)
        return self.stack.tasks_of(self.stack.pair.primary) - before

    def back(self):
        self.stack.pair.standby_back()
        self.stack.pair.wait_sync()

    def fail_over_without(self):
        """What the new primary has."""
        self.stack.fail_over()
        kept = self.stack.tasks_of(self.stack.pair.primary)
        self.stack.pair.follow()
        return kept

    def must_stay(self, bare):
        gone = bare - self.stack.tasks_of(self.stack.pair.primary)
        if gone:
            self.findings.add("V9", "gone, though the standby came back", tasks=sorted(gone)[:3])


WANTED = {"standby_gone": ("cancel, fail over", "terminate, fail over", "cancel, back",
                           "back, cancel")}
CI = {"standby_gone": 8}
SOAK = {"standby_gone": [("standby_gone", 200)]}
WORLD = GoneWorld
