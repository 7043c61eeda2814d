#!/usr/bin/python3
"""A keys file that is not the others' (V5): a worker or an API process with another secret under a
version that the store knows is refused before it claims, sends or serves, also where it starts while
Postgres is away and where it is told on a later connection; a further version joins, and keeps out
whoever has another one. Effects are counted downstream, where a second key would be a second effect."""

import os
import secrets

import rig
from rig import check, equal, until

REFUSED = 2  # as any other setting that is wrong
SAID = "keys file: version {} is not the secret that this store was started with"
counts = {"refused": 0, "resumed": 0, "effects": 0}
stack = rig.Stack(apis=1, workers=1, tools=[rig.http_tool("patient", attempts=50, backoff_max_ms=200)],
                  settings={"worker": {"beat_ms": 100, "lease_ms": 2000},
                            "maintain": {"lease_ms": 2000, "maintain_ms": 100}})
client = stack.client()
keys = stack.folder / "keys"


def line(version):
    return f"{version} {secrets.token_hex(32)}\n"


def worker(name, text):
    """Beside the others, with a keys file of its own."""
    stack.write(f"{name}-keys", text)
    state = stack.folder / name
    state.mkdir()
    return stack.start_holdfast(name, "worker", keys_file=stack.folder / f"{name}-keys",
                                conf_file=stack.folder / "conf.json", state_dir=state)


def api(name, text):
    stack.write(f"{name}-keys", text)
    process = stack.start_holdfast(name, "api", listen=f"127.0.0.1:{rig.free_port()}",
                                   tokens_file=stack.folder / "tokens",
                                   keys_file=stack.folder / f"{name}-keys")
    process.port = int(process.argv[process.argv.index("--listen") + 1].rpartition(":")[2])
    return process


def refused(process, version=1):
    ended = until(lambda: not process.alive(), 30, f"{process.name} ends")
    equal(process.popen.poll(), REFUSED, f"{process.name}: exit code")
    check(SAID.format(version) in process.log(), f"{process.name} says why", process.log())
    check("incarnation registered" not in process.log(), f"{process.name} never registered", process.log())
    counts["refused"] += ended
    if not ended:
        process.kill()


def workers_known():
    return stack.query("SELECT count(*) FROM holdfast.worker WHERE role = 'worker'")[0][0]


def sends(effect_id):
    return [each for each in stack.requests("/ledger") if effect_id in each.get("body", "")]


def another_secret_sends_nothing():
    """Downstream made the effect and its answer was lost: the next worker asks again under the same key,
    and one that would ask under another does not get that far."""
    # It is lost late, when its worker is dead: that worker's next request would be answered.
    stack.steer(script=[], lose_answers=1000, delay_after_ms=9_000)
    effect_id = rig.new_id("other")
    handle = client.call("patient", {"effect_id": effect_id})
    until(lambda: stack.effects_by_id().get(effect_id), 30, "its effect was made", 0.01)
    stack.workers[0].kill()
    stack.steer(lose_answers=0, delay_after_ms=0)
    until(lambda: workers_known() == 0, 30, "the dead worker is known to be dead")
    before = len(sends(effect_id))
    other = worker("other", line(1))
    refused(other)
    equal(len(sends(effect_id)), before, "it sent nothing")
    equal(workers_known(), 0, "nor was it ever known as a worker")
    refused(api("other-api", line(1)))
    stack.workers[0].start()
    equal(client.wait(handle.task_id, 60).result["status"], "completed", "the right one goes on")
    check(len(sends(effect_id)) > before, "by asking again")
    equal(len({each["key"] for each in sends(effect_id)}), 1, "under one key")
    equal(stack.effects_by_id()[effect_id], 1, "one effect")
    counts["effects"] += 1


def who_starts_while_postgres_is_away_waits():
    stack.cluster.stop()
    wrong = [worker("early", line(1)), api("early-api", line(1))]
    right = worker("early-right", keys.read_text())
    for process in (*wrong, right):
        until(lambda process=process: "connection to Postgres lost" in process.log(), 30,
              f"{process.name} has met no Postgres")
        check(process.alive(), f"{process.name} waits")
    equal(rig.http_ask(wrong[1].port, "/readyz", seconds=5)[0], 503, "the API is not ready")
    stack.cluster.start()
    for process in wrong:
        refused(process)
    until(lambda: "incarnation registered" in right.log(), 30, "the right one works")
    counts["resumed"] += right.alive()
    right.terminate()


def a_further_version_joins():
    """As in a rotation; the line of before may go, and whoever has another new one stays out."""
    both, old = keys.read_text() + line(2), keys.read_text()
    first = worker("both", both)
    until(lambda: "incarnation registered" in first.log(), 30, "a worker with a new version works")
    check(stack.workers[0].alive(), "so does one that does not know it yet")
    refused(worker("both-other", old + line(2)), 2)
    refused(worker("both-more", old + line(2) + line(3)), 2)
    equal(stack.query("SELECT version FROM holdfast.key_mark ORDER BY 1"), [(1,), (2,)],
          "who is refused leaves nothing behind")
    newest = api("newest-api", both.partition("\n")[2])
    until(lambda: stack.ready(newest), 30, "an API with the new version alone is ready")
    for process in (first, newest):
        process.terminate()
    stored = stack.query("SELECT string_agg(encode(mark, 'hex'), ' ') FROM holdfast.key_mark")[0][0]
    for secret in both.split():
        check(len(secret) < 64 or secret not in stored, "no secret is in the store")


def a_running_process_is_told_on_its_next_connection():
    """The store was put back to where somebody else came first."""
    late = worker("late", keys.read_text())
    until(lambda: "incarnation registered" in late.log(), 30, "it works")
    stack.workers[0].kill()
    stack.query("UPDATE holdfast.key_mark SET mark = %s WHERE version = 1 RETURNING 1", (os.urandom(32),))
    stack.cluster.stop()
    stack.cluster.start()
    for process in (late, stack.apis[0]):
        until(lambda process=process: not process.alive(), 30, f"{process.name} ends")
        equal(process.popen.poll(), REFUSED, f"{process.name}: exit code")
        check(SAID.format(1) in process.log(), f"{process.name} says why", process.log())
        counts["refused"] += 1
    stack.query("DELETE FROM holdfast.key_mark RETURNING 1")
    for process in (stack.workers[0], stack.apis[0]):
        process.start()
    until(lambda: stack.ready(stack.apis[0]), 30, "once the row is gone, all start as before")
    effect_id = rig.new_id("again")
    anew = stack.client()
    handle = anew.call("patient", {"effect_id": effect_id})
    equal(anew.wait(handle.task_id, 60).result["status"], "completed", "and work")
    equal(stack.effects_by_id()[effect_id], 1, "one effect")
    counts["effects"] += 1


rig.run(another_secret_sends_nothing, who_starts_while_postgres_is_away_waits, a_further_version_joins,
        a_running_process_is_told_on_its_next_connection)
rig.finish("keys_file", counts, {"refused": 8, "resumed": 1, "effects": 2})
