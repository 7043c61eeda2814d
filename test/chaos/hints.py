"""Wake-ups are lost (F22): on the way to all, or as the connection of each listener was ended a moment
before. A task that is accepted just then begins within the poll interval all the same."""

import time

import patience
import rig
import world

WAYS = ("lost", "listener ended")
WANTED = {"lost_notify": WAYS}
CI = {"lost_notify": 12}
SOAK = {"hints": [("lost_notify", 2_000)]}
WORLD = None
LOST_S = 0.6
POLL_MS = world.SETTINGS["worker"]["poll_ms"]
BEGINS_MS_MAX = POLL_MS + 3_000  # until a slot is free and two cores have come to it
DEFINITION = "SELECT pg_get_functiondef('holdfast.wake_async(text)'::regprocedure)"


class Faults:
    def lost_notify(self):
        way = self.rarest("lost_notify")
        lose = {"lost": self.lose, "listener ended": self.end}[way]
        task = self.new_task("lost_notify", "chaos_one")
        if not lose(lambda: self.hand_over(task)):
            return False
        self.was_hit("lost_notify", task)
        return self.began_in_time(task) and {way}

    def lose(self, do):
        """Sent to a channel that nobody listens to: to each listener it is lost on the way."""
        kept = self.stack.ask(DEFINITION)
        if not kept or "holdfast_wake" not in kept[0][0]:
            return False
        try:
            self.stack.ask(kept[0][0].replace("holdfast_wake", "holdfast_nobody"))
            do()
            time.sleep(LOST_S)
        finally:
            self.stack.postgres_up()
            self.stack.ask(kept[0][0])
        return True

    def end(self, do):
        ended = self.stack.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                               "WHERE query LIKE '%%beat_async%%' AND pid <> pg_backend_pid()")
        do()
        return bool(ended and ended[0][0])

    def began_in_time(self, task):
        rig.until(lambda: task.over, 30, "it ends", 0.01)
        rows = self.stack.ask(
            "SELECT extract(epoch FROM t.accepted)::float8, extract(epoch FROM s.started)::float8 "
            "FROM holdfast.task t JOIN holdfast.step s USING (week, task) "
            "WHERE t.task = %s AND s.place = 65535 AND s.attempt = 1",
            (rig.task_bytes(task.handle),))
        late_ms = int(patience.between(*rows[0]) * 1000) if rows else 0
        if late_ms > BEGINS_MS_MAX:
            self.findings.add("V9", f"began {late_ms} ms after its acceptance", task=task.handle,
                              limit=BEGINS_MS_MAX)
        return bool(rows)
