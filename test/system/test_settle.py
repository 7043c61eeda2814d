"""Unknown outcomes (R2.5, V7): a request that took effect and whose answer was lost in its only
attempt is `unknown`, is never called failed and never sent again, until a person settles it by name."""

import json

import rig
from rig import check, equal, until

counts = {"unknown": 0, "settled": 0, "refused": 0}

stack = rig.Stack(workers=1, tools=[rig.http_tool(attempts=1, members={
    "result": {"text": "entry {/state/post/effect}", "structured": {"answer": {"$from": "/state/post"}}}})])
client = stack.client()


def unknown_task(effect_id):
    """A task whose one request took effect and whose answer was lost."""
    stack.steer(mode="honour", lose_answers=1)
    task = client.call("deliver", {"effect_id": effect_id}).task_id
    until(lambda: stack.state(task) == "unknown", 30, "the task is unknown")
    counts["unknown"] += 1
    return task


def settle(*words, code=0):
    done = stack.command("settle", *words, check_code=None)
    equal(done.returncode, code, f"settle {' '.join(words[1:])}")
    counts["settled" if code == 0 else "refused"] += 1
    return done.stderr + done.stdout


def audit(task):
    return stack.query("SELECT act, by, detail FROM holdfast.audit WHERE task = %s",
                       (rig.task_bytes(task),))


def effects(effect_id):
    return stack.effects_by_id().get(effect_id, 0)


by = ("--by", "ann", "--why", "looked for its key downstream")

task = unknown_task("lost-done")
told = client.get(task).result
equal(told["status"], "working", "an unknown task is working to its client")
check("post" in (told.get("statusMessage") or ""), "and says which phase", told)
shown = json.loads(stack.command("task", "show", task, "--json").stdout.splitlines()[0])
equal(shown["state"], "unknown", "task show tells the truth")
settle(task, "done", code=2)
faults = {settle(task, "perhaps", *by, code=2), settle(task, *by, code=2),
          settle(task[:-4] + "AAAA", "done", *by, code=1), settle("nobody", "done", *by, code=1)}
equal(len(faults), 4, "each fault has its own text")
settle(task, "done", *by, "--state", "{", code=1)
check("/state/post" in settle(task, "done", *by, code=1), "done: what the tool reads must be told")
check("/state/post/effect, which" in settle(task, "done", *by, "--state", '{"efect":"4711"}', code=1),
      "done: at the place where the tool reads it")
check("behind" in settle("lost-done", "done", *by, "--state", '{"effect":"4711"}'),
      "by its effect ID; what comes next is told")
ended = client.wait(task).result
equal((ended["status"], ended["result"]["structuredContent"]), ("completed", {"answer": {"effect": "4711"}}),
      "done: it goes on with the state that was given")
equal(effects("lost-done"), 1, "and nothing was sent again")
equal(audit(task), [("settle done", "ann", "looked for its key downstream")], "the record names who")
check("it is completed since" in settle(task, "fail", *by, code=1), "what has ended says what it is")
equal(client.get(task).result["status"], "completed", "terminal is final (V6)")

task = unknown_task("lost-cancelled")
client.cancel(task)
check("ends cancelled" in settle(task, "absent", *by), "a cancel that was asked for is told")
equal(client.wait(task).result["status"], "cancelled", "and so it ends")

task = unknown_task("lost-paused")
stack.command("pause", "--tool", "deliver", *by)
check("`holdfast resume`" in settle(task, "absent", *by), "and a pause of its tool")
equal(stack.state(task), "ready", "it waits")
stack.command("resume", "--tool", "deliver", *by)
equal(client.wait(task).result["status"], "completed", "resumed, it goes on")

task = unknown_task("lost-absent")
check("goes on there" in settle(task, "absent", *by), "what comes next is told")
equal(client.wait(task).result["status"], "completed", "absent: it is sent anew")
equal(effects("lost-absent"), 1, "under the same key, so it is one effect all the same")

task = unknown_task("lost-fail")
check("ended failed" in settle(task, "fail", *by), "what came of it is told")
error = client.wait(task).result["error"]
equal((error["code"], error["data"]["executed"]), (1500, "maybe"), "fail says that it may have happened")
equal(effects("lost-fail"), 1, "and nothing was sent again")

rig.finish("settle", counts, {"unknown": 5, "settled": 5, "refused": 8})
