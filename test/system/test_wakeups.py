#!/usr/bin/python3
"""B043: wake-ups are hints. Work starts within the poll interval and a second however they are lost:
the connection that listens swallowed by the network, ended by Postgres, led through a pooler that
delivers none, or passed by in the moment between an empty look and the wait. In health it starts at
once. Whether they arrive is in the log and a metric."""

import pathlib
import sys
import time

import rig
from patience import soon
from rig import check, equal, until
from relay import Relay

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
import bouncer  # noqa: E402 - a pooler before a cluster

POLL_MS, HEALTHY_MS = 2_000, 200
CALLS, EVERY_S = 14, 0.37        # out of step with the poll
LATE_MAX = 2
counts = {"tasks": 0, "late_ms_max": 0}


class Wakes(rig.Stack):
    """`where` goes before the user of the main DSN, `wake` is the whole of the other, or none."""

    def __init__(self, name, where=None, wake=None):
        self.name, self.where, self.wake = name, where, wake
        self.ports = {}
        super().__init__(apis=1, workers=1, tools=[rig.http_tool(members={"poll_interval_ms": 50})],
                         settings={"worker": {"poll_ms": POLL_MS}})
        for process in (*self.apis, *self.workers):
            until(lambda process=process: "wake-ups arrive" in process.log() or
                  "no wake-ups arrive" in process.log(), 30, f"{name}: it says whether they arrive")

    def start(self, name, argv):
        role = name.partition("-")[0]
        more = {}
        if role in ("api", "worker"):
            self.ports[name] = rig.free_port()
            argv = [*argv, "--metrics-listen", f"127.0.0.1:{self.ports[name]}"]
            user = f"dbname=holdfast user=holdfast_{role}"
            if self.where:
                more[f"HOLDFAST_{role.upper()}_DSN"] = f"{self.where(self)} {user}"
                more["HOLDFAST_SQL_DSN"] = f"{self.where(self)} dbname=holdfast user=holdfast_sql"
            if self.wake:
                more["HOLDFAST_WAKE_DSN"] = f"{self.wake(self)} {user}"
        return super().start(name, argv, **more)

    def said(self, arrive):
        """The last word of log and metric, of both."""
        for process in (*self.apis, *self.workers):
            until(lambda process=process: self.last_word(process) == arrive, 20, f"{self.name}: {process.name} says so")
            equal(rig.metric_of(self.ports[process.name], "wakeups_arrive"), {"": int(arrive)},
                  f"{self.name}: its metric too")

    def last_word(self, process):
        words = [line for line in process.log().splitlines() if "wake-ups arrive" in line]
        return "no wake-ups" not in words[-1] if words else None

    def calls(self, limit_ms, count=CALLS, between=None):
        """One task after the other; how late each was begun, by the store's clock."""
        client = self.client()
        handles = []
        for number in range(count):
            if between:
                between(number)
            answer = client.call("deliver", {"effect_id": f"{self.name.replace(' ', '-')}-{time.time()}"})
            check(answer.handle, f"{self.name}: accepted", repr(answer))
            handles.append(answer.task_id)
            time.sleep(EVERY_S)
        for handle in handles:
            equal(client.wait(handle, 60).result["status"], "completed", f"{self.name}: completed")
        late = [ms for ms, in self.query(
            "SELECT (extract(epoch FROM s.started - t.accepted) * 1000)::int FROM holdfast.task t "
            "JOIN holdfast.step s USING (week, task) WHERE s.place = 65535 AND t.task = ANY (%s)",
            ([rig.task_bytes(handle) for handle in handles],))]
        counts["tasks"] += len(late)
        counts["late_ms_max"] = max(counts["late_ms_max"], *late)
        slow = [ms for ms in late if ms > limit_ms]
        # A loaded machine may be late now and then, as one is that stands still for a while.
        check(len(slow) <= LATE_MAX,
              f"{self.name}: each begins within {limit_ms} ms", late)


def in_health():
    """Every task meets an idle worker between two looks: the wake-up that comes just then counts."""
    stack = Wakes("healthy")
    stack.said(True)
    stack.calls(HEALTHY_MS)
    stack.stop()


def a_listener_that_is_ended():
    stack = Wakes("ended")

    def end(_):
        stack.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                    "application_name LIKE '%%beat' AND pid <> pg_backend_pid()")

    stack.calls(POLL_MS + 1_000, between=end)
    stack.said(True)
    stack.calls(HEALTHY_MS, 6)
    stack.stop()


def a_listener_in_a_black_hole():
    """Nothing comes and nothing is closed; it is replaced within 15 s."""
    relays = []

    def wake(stack):
        relays.append(Relay(stack.cluster))
        return f"host=127.0.0.1 port={relays[-1].port} sslmode=disable gssencmode=disable"

    stack = Wakes("black hole", wake=wake)
    stack.said(True)
    before = [process.log().count('"wake-ups arrive"') for process in (*stack.apis, *stack.workers)]
    for relay in relays:
        relay.swallow()
    began = time.monotonic()
    stack.calls(POLL_MS + 1_000, 2 * CALLS)
    for process, said in zip((*stack.apis, *stack.workers), before):
        until(lambda process=process, said=said: process.log().count('"wake-ups arrive"') > said, 15,
              f"{process.name}: the listener is replaced")
    soon(began, 60, "soon")
    stack.calls(HEALTHY_MS, 6)
    stack.stop()


def through_a_pooler(with_wake_dsn):
    poolers = {}

    def where(stack):
        if stack not in poolers:
            poolers[stack] = bouncer.Pooler(stack.cluster, lambda name, argv: rig.Stack.start(
                stack, name, argv))
        return f"host=127.0.0.1 port={poolers[stack].port}"

    name = "pooler and wake DSN" if with_wake_dsn else "pooler"
    stack = Wakes(name, where=where,
                  wake=(lambda stack: f"host={stack.cluster.folder}") if with_wake_dsn else None)
    stack.said(with_wake_dsn)
    stack.calls(HEALTHY_MS if with_wake_dsn else POLL_MS + 1_000)
    stack.stop()


def a_pooler_without_a_dsn_of_its_own_for_wakeups():
    through_a_pooler(False)


def a_pooler_with_a_dsn_of_its_own_for_wakeups():
    through_a_pooler(True)


if __name__ == "__main__":
    rig.run(in_health, a_listener_that_is_ended, a_listener_in_a_black_hole,
            a_pooler_without_a_dsn_of_its_own_for_wakeups,
            a_pooler_with_a_dsn_of_its_own_for_wakeups)
    rig.finish("wakeups", counts, {"tasks": 80})
