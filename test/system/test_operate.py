#!/usr/bin/python3
"""What operators do, with real processes: retry (successors, new keys), pause and resume of a task, a
tool and a tenant, filters, cancel, `holdfast task why` and `task list`. Effects are counted downstream."""

import datetime
import json
import signal
import time

import rig
from rig import check, equal, until

counts = {"successors": 0, "refused": 0, "paused": 0, "whys": 0, "lists": 0}
STEPS = rig.http_tool("steps", attempts=2, backoff_first_ms=20, backoff_max_ms=50)
BLIND = rig.http_tool("blind", attempts=1)
manifest = json.loads((BLIND / "tool.json").read_text())
manifest["phases"][0] |= {"effect": "unsafe"}
for member in ("key_header", "key_ttl_ms"):
    del manifest["phases"][0][member]
(BLIND / "tool.json").write_text(json.dumps(manifest))
SLOW = rig.http_tool("slow", attempts=5, backoff_first_ms=3_600_000, backoff_max_ms=3_600_000)
VERSIONS = rig.http_tool("versions")
BLANK = rig.http_tool("blank", members={"result": {"text": "{/state/post/nothing}"}})
TRIP = rig.http_tool("trip", backoff_first_ms=20, backoff_max_ms=50)
manifest = json.loads((TRIP / "tool.json").read_text())
manifest["phases"] = [manifest["phases"][0], {**manifest["phases"][0], "name": "room"},
                      {"name": "hold", "kind": "wait", "ms": 600_000}]
manifest["phases"][1]["undo"] = {key: value for key, value in manifest["phases"][0].items() if key != "name"}
(TRIP / "tool.json").write_text(json.dumps(manifest))
UNMADE = {"args": {"json": {"n": {"$from": "/args/n"}}}, "text": {"json": {"n": "{/args/tags}"}},
          "conf": {"url": "{/conf/legder}/ledger"}, "host": {"url": "http://nobody.example/"}}
for name, request in UNMADE.items():
    folder = rig.http_tool(f"unmade_{name}")
    manifest = json.loads((folder / "tool.json").read_text())
    manifest["inputSchema"]["properties"]["tags"] = {"type": "array"}
    manifest["phases"][0]["request"] |= request
    (folder / "tool.json").write_text(json.dumps(manifest))
    UNMADE[name] = folder
for name, program in (("program", {"command": ["nobody-has-this"]}), ("interpreter", {"command": ["./x"]})):
    UNMADE[name] = rig.make_tool(f"unmade_{name}", [
        {"name": "work", "kind": "program", "mode": "plain", "effect": "pure", **program}],
        {"tags": {"type": "array"}}, programs={"x": "#!/usr/bin/nobody-has-this\n"}, crash_limit=1)
BY = ("--by", "ann", "--why", "because of the test")

stack = rig.Stack(workers=1, tools=[rig.probe_tool(crash_limit=2), STEPS, BLIND, SLOW, VERSIONS,
                                BLANK, TRIP, *UNMADE.values()],
                  settings={"worker": {"beat_ms": 200, "lease_ms": 3000},
                            "maintain": {"lease_ms": 3000, "maintain_ms": 100}})
client = stack.client()
bob = stack.client("rig-bob")


def operate(*words, code=0):
    done = stack.command(*words, *BY, check_code=None)
    equal(done.returncode, code, f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    counts["refused"] += code != 0
    return done.stdout + done.stderr


def why(task, code, *words):
    done = stack.command("task", "why", task, check_code=None)
    counts["whys"] += 1
    check(done.returncode == code and all(word in done.stdout for word in words),
          f"why says {words}, exit {code}", {"exit": done.returncode, "said": done.stdout + done.stderr})
    return done.stdout


def effect(answer):
    return answer.result["_meta"][rig.EFFECT_META]


def refuse(times, status="422 Unprocessable Content"):
    """The next requests that would make an effect are answered so, without one."""
    path = stack.folder / f"answer-{status[:3]}"
    path.write_text(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}")
    stack.steer(mode="honour", script=[str(path)] * times)


def keys(effect_id):
    return [line["key"] for line in stack.requests("/ledger")
            if json.loads(line.get("body") or "{}").get("effect_id") == effect_id]


def a_failed_task_goes_on_as_its_successor():
    refuse(1)
    effect_id = rig.new_id("refused")
    arguments = {"effect_id": effect_id}
    first, ended = client.run("steps", arguments)
    equal(ended.result["status"], "failed", "refused for good")
    before = json.dumps(ended.result["error"], sort_keys=True)
    why(first.task_id, 5, "it failed", "refused downstream", "retry")
    successor = operate("retry", first.task_id).split()[-1]
    counts["successors"] += 1
    done = client.wait(successor)
    equal(done.result["status"], "completed", "the successor completes")
    equal(len(set(keys(effect_id))), 1, "asked with the same key")
    equal(stack.effects_by_id().get(effect_id), 1, "one effect")
    old = client.get(first.task_id)
    equal((old.result["status"], json.dumps(old.result["error"], sort_keys=True)),
          ("failed", before), "the old handle stays failed (V6)")
    equal(effect(old).get("successor"), successor, "and names its successor")
    check(successor in old.result["statusMessage"], "in words too", old.result["statusMessage"])
    repeat = client.call("steps", arguments)
    equal((repeat.task_id, repeat.result["status"]), (successor, "completed"),
          "the effect ID answers with the successor")
    plain = client.call("steps", arguments, declare=False)
    equal((plain.result.get("isError"), effect(plain)["taskId"], effect(plain).get("successor")),
          (False, successor, successor), "and so it does to a plain client")
    why(first.task_id, 0, "it failed", successor)
    why(successor, 0, "completed")
    check(successor in operate("retry", first.task_id, code=1), "a second retry names it")
    operate("retry", successor, code=1)
    shown = json.loads(stack.command("task", "show", first.task_id, "--json").stdout)
    equal(shown["successor"], successor, "task show names it")


def a_new_key_only_after_a_refusal():
    refuse(2)
    effect_id = rig.new_id("new-key")
    first, _ = client.run("steps", {"effect_id": effect_id})
    second = operate("retry", first.task_id).split()[-1]
    client.wait(second)
    third = operate("retry", second, "--new-key").split()[-1]
    counts["successors"] += 2
    equal(client.wait(third).result["status"], "completed", "completed under a new key")
    asked = keys(effect_id)
    equal((len(asked), asked[0] == asked[1], asked[1] == asked[2]), (3, True, False),
          "the retry kept the key, --new-key changed it")
    row = stack.query("SELECT generation, derived_key FROM holdfast.step WHERE task = %s AND"
                      " kind = 'recovery_point'", (rig.task_bytes(third),))
    equal(row, [(1, asked[2])], "the step says so")
    stack.downstream.kill()
    effect_id = rig.new_id("unreachable")
    first, ended = client.run("steps", {"effect_id": effect_id})
    equal(ended.result["error"]["data"]["type"], "attempts_exhausted", "nobody answered")
    operate("retry", first.task_id, "--new-key", code=1)
    stack.downstream.start()
    until(lambda: stack.http("GET", "/healthz")[0] == 200, 20, "downstream is back")
    successor = operate("retry", first.task_id, "--from", "post").split()[-1]
    counts["successors"] += 1
    equal(client.wait(successor).result["status"], "completed", "an outage is over")
    equal(stack.effects_by_id().get(effect_id), 1, "one effect")


def what_is_done_is_not_done_again():
    effect_id = rig.new_id("phases")
    plan = {"P3": [{"signal": 9, "starts": [1, 2, 3]}], "P2": [{"post": True}]}
    first, ended = client.run("probe", {"effect_id": effect_id, "plan": json.dumps(plan)})
    equal((ended.result["status"], ended.result["error"]["data"]["type"]),
          ("failed", "crash_limit"), "its last phase kills its worker's program")
    check(operate("retry", first.task_id, "--from", "P2", code=1).endswith("happen again: P2\n"), "it is named")
    check("no phase `P9`, but: P1, P2, P3" in operate("retry", first.task_id, "--from", "P9", code=1),
          "and so are those that it has")
    check("no such task" in operate("retry", first.task_id[:-4] + "AAAA", "--from", "P9", code=1), "nor is it")
    before = len(stack.run_log(effect_id, "start"))
    successor = first.task_id
    while client.wait(successor).result["status"] == "failed" and counts["successors"] < 9:
        successor = operate("retry", successor).split()[-1]
        counts["successors"] += 1
    starts = stack.run_log(effect_id, "start")
    equal({line["phase"] for line in starts[before:]}, {"P3"}, "only the phase that failed ran again")
    equal(sum(line["phase"] == "P2" for line in starts), 1, "V3 in the whole chain")
    shown = json.loads(stack.command("task", "show", successor, "--json").stdout)
    equal([entry["origin"] for entry in shown["history"] if entry["what"] == "recovery_point"][:2],
          [first.task_id] * 2, "its recovery points say whose they are")


def backing_off_and_unknown():
    stack.downstream.kill()
    effect_id = rig.new_id("back-off")
    task = client.call("slow", {"effect_id": effect_id}).task_id
    until(lambda: stack.state(task) == "scheduled", 20, "it backs off")
    why(task, 0, "backs off until", "post", "attempt 1")
    stack.downstream.start()
    until(lambda: stack.http("GET", "/healthz")[0] == 200, 20, "downstream is back")
    operate("retry", task)
    equal(client.wait(task).result["status"], "completed", "retried in place, an hour early")
    equal(stack.effects_by_id().get(effect_id), 1, "one effect")


def what_may_have_happened_is_asked_for_first():
    """V7: what was settled as failed may have happened: the successor does not send it again."""
    effect_id = rig.new_id("maybe")
    stack.steer(mode="honour", lose_answers=1)
    task = client.call("blind", {"effect_id": effect_id}).task_id
    until(lambda: stack.state(task) == "unknown", 20, "unknown")
    why(task, 5, "nobody can tell", "post", "settle")
    operate("retry", task, code=1)
    stack.command("settle", task, "fail", *BY)
    successor = operate("retry", task).split()[-1]
    counts["successors"] += 1
    until(lambda: stack.state(successor) == "unknown", 20, "the successor is unknown, too")
    equal(len(stack.requests("/ledger")) - before_blind(effect_id), 1, "nothing was sent again")
    stack.command("settle", successor, "done", "--state", "{}", *BY)
    equal(client.wait(successor).result["status"], "completed", "a person said that it happened")
    equal(len(stack.requests("/ledger")) - before_blind(effect_id), 1, "and still nothing")


def before_blind(effect_id):
    return sum(json.loads(line.get("body") or "{}").get("effect_id") != effect_id
               for line in stack.requests("/ledger"))


def a_task_is_paused():
    effect_id = rig.new_id("pause")
    stack.steer(mode="honour", delay_after_ms=5_000)
    plan = {"P1": [{"gate": "in"}], "P2": [{"post": True}]}
    task = client.call("probe", {"effect_id": effect_id, "plan": json.dumps(plan)}).task_id
    stack.at_gate(effect_id, "in")
    why(task, 0, "it runs", "P1", "attempt 1")
    stack.open_gate(effect_id, "in")
    until(lambda: stack.effects_by_id().get(effect_id), 20, "its request is on the wire")
    said = operate("pause", task)
    check("paused" in said, "asked, or paused", said)
    until(lambda: stack.state(task) == "paused", 30, "paused")
    counts["paused"] += 1
    stack.steer(mode="honour", delay_after_ms=0)
    equal([step[2] for step in stack.steps(task)], ["P1", "P2"], "what was in flight is committed")
    told = client.get(task).result
    check(told["status"] == "working" and "paused" in told["statusMessage"], "and told", told)
    why(task, 5, "paused by ann", "because of the test")
    check(len(stack.run_log(effect_id, "start")) == 2, "P3 has not begun")
    equal(operate("resume", task), "resumed; due now\n", "resumed")
    operate("resume", task, code=1)
    equal(client.wait(task).result["status"], "completed", "resumed")
    equal(stack.effects_by_id().get(effect_id), 1, "one effect")


def a_pause_outlives_what_nobody_can_tell():
    effect_id = rig.new_id("pause-unknown")

    def sent():
        return sum(json.loads(line.get("body") or "{}").get("effect_id") == effect_id
                   for line in stack.requests("/ledger"))
    stack.steer(mode="honour", lose_answers=1, delay_after_ms=5_000)
    task = client.call("blind", {"effect_id": effect_id}).task_id
    until(sent, 20, "its request is on the wire")
    check("asked" in operate("pause", task), "a pause is asked for")
    until(lambda: stack.state(task) == "unknown", 30, "it is unknown")
    stack.steer(mode="honour", lose_answers=0, delay_after_ms=0)
    shown = stack.command("task", "show", task).stdout
    check("unknown" in shown and "due in" not in shown, "what is unknown is not due", shown)
    said = stack.command("settle", task, "absent", "--force", *BY).stdout
    check("is paused again" in said, "settled, it is paused again", said)
    equal(client.run("steps", {"effect_id": rig.new_id("beside")})[1].result["status"], "completed",
          "other work goes on")
    equal((stack.state(task), sent()), ("paused", 1), "it stays paused, and is not sent")
    counts["paused"] += 1
    why(task, 5, "paused by ann", "because of the test")
    operate("resume", task)
    equal((client.wait(task).result["status"], sent()), ("completed", 2), "resumed, it is sent anew")


def an_act_takes_an_effect_id():
    """Where one task alone bears it; of several each is named and none is touched."""
    effect_id = rig.new_id("shared")
    refuse(2)
    tasks = [caller.run("steps", {"effect_id": effect_id})[0].task_id for caller in (client, bob)]
    said = operate("retry", effect_id, code=1)
    check(all(word in said for word in (*tasks, "2 tasks", "alice", "bob", "nothing was done")),
          "both are named", said)
    equal(stack.query("SELECT count(*) FROM holdfast.tasks WHERE effect_id = %s", (effect_id,))[0][0], 2,
          "and none is retried")
    check("no task has" in operate("retry", rig.new_id("nobody"), code=1), "none bears it")
    stack.downstream.kill()
    effect_id = rig.new_id("alone")
    task = client.call("slow", {"effect_id": effect_id}).task_id
    until(lambda: stack.state(task) == "scheduled", 20, "it backs off")
    operate("pause", effect_id)
    equal(stack.state(task), "paused", "paused by its effect ID")
    operate("resume", "--task", effect_id)
    until(lambda: stack.state(task) == "scheduled", 20, "resumed; it backs off again")
    check("due now" in operate("retry", effect_id), "retried")
    operate("cancel", effect_id)
    equal(client.wait(task).result["status"], "cancelled", "cancelled")
    stack.downstream.start()
    until(lambda: stack.http("GET", "/healthz")[0] == 200, 20, "downstream is back")


def a_retry_says_its_version():
    refuse(1)
    effect_id = rig.new_id("old")
    task, _ = client.run("versions", {"effect_id": effect_id})
    check("version" not in why(task.task_id, 5, f"`holdfast retry {task.task_id}` runs it on"),
          "its version is the current one")
    mended = json.loads((VERSIONS / "tool.json").read_text())
    mended["description"] += " Mended."
    (VERSIONS / "tool.json").write_text(json.dumps(mended))
    stack.command("tools", "apply", str(VERSIONS))
    old, new = (version[:12] for version, in stack.query(
        "SELECT version FROM holdfast.tool WHERE name = 'versions' ORDER BY current"))
    why(task.task_id, 5, old, new, "new effect ID")
    said = operate("retry", effect_id)
    check(f"version {old}" in said and new in said and "new effect ID" in said, "retry says so, too", said)
    successor = said.split()[-1]
    counts["successors"] += 1
    equal(client.wait(successor).result["status"], "completed", "the last word is the successor")
    equal(stack.query("SELECT left(version, 12) FROM holdfast.tasks WHERE task_id = %s", (successor,)),
          [(old,)], "of the old version")


def a_result_that_cannot_be_made():
    task, ended = client.run("blank", {"effect_id": rig.new_id("blank")})
    equal(ended.result["error"]["data"]["type"], "result", "failed at its result")
    check("retry`" not in why(task.task_id, 5, "would make it of the same", "new effect ID"),
          "why recommends no retry")


def a_request_that_cannot_be_made():
    """A retry is recommended where what is missing is an operator's to give, and nowhere else."""
    for name, told in (("args", "/args/n: there is no such value"), ("text", "array cannot stand in a text"),
                       ("conf", "/conf/legder: there is no such value"), ("host", "allowed: --allow-hosts"),
                       ("program", "no program nobody-has-this"), ("interpreter", "could not be started here")):
        task, ended = client.run(f"unmade_{name}", {"effect_id": rig.new_id(name), "tags": []})
        check(told in ended.result["error"]["message"], f"{name}: failed", ended.result)
        said = why(task.task_id, 5, told)
        again = name not in ("args", "text")
        equal("retry`" not in said and "mend the tool" in said, not again, f"{name}: {said}")
        equal(f"mend the settings of the workers or the machine, then `holdfast retry {task.task_id}`" in said,
              again, f"{name}: {said}")


def a_cancel_that_was_not_undone_is_not_retried():
    effect_id = rig.new_id("left")
    task = client.call("trip", {"effect_id": effect_id}).task_id
    until(lambda: stack.state(task) == "scheduled", 20, "both phases are done")
    refuse(1)
    client.cancel(task)
    ended = client.wait(task).result
    equal(ended["status"], "failed", "its undo step fails")
    said = why(task, 5, "it was cancelled", "still standing: post, room.", "undo by hand")
    check("holdfast retry" not in said, "why offers no retry", said)
    equal(operate("retry", task, code=1), said, "retry says the same")
    equal(client.get(task).result["status"], "failed", "and does nothing")


def an_act_on_what_has_ended_says_what_it_is():
    refuse(1)
    task = client.run("steps", {"effect_id": rig.new_id("ended")})[0].task_id
    for act in ("pause", "resume", "cancel"):
        said = operate(act, task, code=1)
        check("it failed" in said and f"`holdfast retry {task}`" in said, f"{act} says so", said)
    task = client.run("steps", {"effect_id": rig.new_id("ended")})[0].task_id
    check("it is completed since" in operate("pause", task, code=1), "and of a completed one")


def lists():
    """What ran yesterday, of whom: the words of the acts, and --since."""
    def listed(*words):
        counts["lists"] += 1
        lines = stack.command("task", "list", "--json", "--limit", "1000", *words).stdout.splitlines()
        return [json.loads(line) for line in lines]
    every = listed()
    check(len(every) > 20, "many tasks", len(every))
    for member, word, name in (("tool", "--tool", "slow"), ("tenant", "--tenant", "B"),
                               ("state", "--state", "cancelled")):
        equal(listed(word, name), [row for row in every if row[member] == name], f"{word} {name}")
    equal(listed("--since", "1h"), every, "all since an hour ago")
    equal(listed("--older-than", "1h"), [], "none of before")
    middle = every[len(every) // 2]["accepted"]
    behind = (datetime.datetime.fromisoformat(middle) + datetime.timedelta(milliseconds=1)).isoformat()
    newer = [row for row in every if row["accepted"] > middle]
    check(0 < len(newer) < len(every), "some are newer", len(newer))
    equal(listed("--since", behind), newer, "since a time")
    equal(listed("--since", behind, "--tool", "slow"), [row for row in newer if row["tool"] == "slow"],
          "both")
    time.sleep(1.1)
    equal(listed("--since", "1s"), [], "since a second ago")
    equal(listed("--since", "1h", "--older-than", "1s"), every, "between two")
    for words in (("--since", "yesterday"), ("--older-than", "1m"), ("--since", "")):
        stack.command("task", "list", *words, check_code=2)
    stack.command("task", "show", "x", "--tool", "y", check_code=2)


def a_tool_and_a_tenant_are_paused():
    operate("pause", "--tool", "nobody", code=1)
    for scope, name, caller in (("tool", "steps", client), ("tenant", "B", bob)):
        operate("pause", f"--{scope}", name)
        effect_id = rig.new_id(scope)
        task = caller.call("steps", {"effect_id": effect_id}).task_id
        check(task, "a call is accepted")
        other = client.call("probe" if scope == "tool" else "steps", {"effect_id": rig.new_id("other")})
        equal(client.wait(other.task_id).result["status"], "completed", "other work goes on")
        told = caller.get(task).result
        check("paused" in told["statusMessage"], "statusMessage says paused", told)
        why(task, 5, f"all work of the {scope} {name}", "paused by ann", "because of the test")
        equal(stack.effects_by_id().get(effect_id), None, "nothing ran")
        counts["paused"] += 1
        operate("resume", f"--{scope}", name)
        operate("resume", f"--{scope}", name, code=1)
        equal(caller.wait(task).result["status"], "completed", "resumed")
    equal(stack.query("SELECT act FROM holdfast.audit WHERE task IS NULL ORDER BY at"),
          [("pause tool steps",), ("resume tool steps",), ("pause tenant B",), ("resume tenant B",)],
          "each act has its audit row")


def filters_count_first():
    refuse(6)
    tasks = [client.run("steps", {"effect_id": rig.new_id("bulk")})[0].task_id]
    one = stack.command("retry", "--tool", "steps").stdout
    check("1 task is failed\n" in one, "one", one)
    tasks += [client.run("steps", {"effect_id": rig.new_id("bulk")})[0].task_id for _ in range(2)]
    plain = stack.command("retry", "--tool", "steps").stdout
    check("3 tasks are failed" in plain and "--yes" in plain, "the count is shown, nothing is done", plain)
    equal(client.get(tasks[0]).result["_meta"][rig.EFFECT_META].get("successor"), None, "nothing")
    stack.command("retry", "--tool", "steps", "--yes", check_code=2)
    said = stack.command("pause", "--state", "failed", check_code=2).stderr
    check("`failed`, but to: ready, scheduled" in said, "the states that it has a use for", said)
    said = stack.command("cancel", "--older-than", "2h", check_code=2).stderr
    check("--state: one of ready, scheduled" in said, "the states are named", said)
    stack.command("retry", "--older-than", "1m", check_code=2)
    check("0 tasks are failed" in stack.command("retry", "--tool", "steps", "--older-than", "1h").stdout,
          "none is an hour old")
    stack.steer(mode="honour", script=[])
    said = operate("retry", "--tool", "steps", "--yes")
    check("3: retried" in said, "three are retried", said)
    for task in tasks:
        successor = effect(client.get(task)).get("successor")
        counts["successors"] += 1
        equal(client.wait(successor).result["status"], "completed", "each completes")
    stack.downstream.kill()
    tasks = [client.call("slow", {"effect_id": rig.new_id("many")}).task_id for _ in range(5)]
    for task in tasks:
        until(lambda task=task: stack.state(task) == "scheduled", 20, "backs off")
    check("5: paused" in operate("pause", "--state", "scheduled", "--tool", "slow", "--yes"), "paused")
    equal({stack.state(task) for task in tasks}, {"paused"}, "all five")
    check("4: " not in operate("resume", "--state", "paused", "--tool", "slow", "--yes"), "resumed")
    for task in tasks:
        until(lambda task=task: stack.state(task) == "scheduled", 20, "backs off again")
    operate("cancel", tasks[0])
    equal(client.wait(tasks[0]).result["status"], "cancelled", "an operator's cancel")
    check("4: " in operate("cancel", "--state", "scheduled", "--yes"), "and one by filter")
    equal({client.wait(task).result["status"] for task in tasks}, {"cancelled"}, "all are cancelled")
    why(tasks[0], 0, "cancelled")
    stack.downstream.start()
    until(lambda: stack.http("GET", "/healthz")[0] == 200, 20, "downstream is back")


def why_nobody_runs_it():
    worker = stack.workers[0]
    effect_id = rig.new_id("stall")
    plan = {"P1": [{"gate": "in"}]}
    task = client.call("probe", {"effect_id": effect_id, "plan": json.dumps(plan)}).task_id
    stack.at_gate(effect_id, "in")
    stack.maintains[0].kill()
    worker.signal(signal.SIGSTOP)
    time.sleep(5.5)
    why(task, 5, "stalls", "no maintenance leads")
    worker.kill()
    stack.maintains[0].start()
    until(lambda: stack.state(task) == "ready", 30, "taken back")
    why(task, 5, "no worker is running")
    # One that knows no version of this tool.
    stack.query("INSERT INTO holdfast.worker (incarnation, role, serves, started, seen) SELECT"
                " gen_random_uuid(), 'worker', array_agg(tool), now(), now() FROM holdfast.tool"
                " WHERE name <> 'probe'")
    why(task, 5, "no worker serves version", "probe", "none")
    stack.open_gate(effect_id, "in")
    stack.workers.append(stack.start_worker("worker-2"))
    equal(client.wait(task).result["status"], "completed", "a worker that does takes it")
    stack.command("task", "why", "nobody", check_code=1)
    stack.command("task", "why", check_code=2)


def wrong_use():
    for words in (("retry",), ("pause",), ("pause", "--tool", "steps"),
                  ("pause", "--tool", "steps", "--tenant", "B", *BY), ("cancel", "--tool", "x"),
                  ("retry", "--state", "unknown"), ("retry", "--tool", "steps", "--new-key"),
                  ("resume", "--task", "x", "--tool", "y", *BY), ("pause", "--tool", "", *BY)):
        stack.command(*words, check_code=2)
        counts["refused"] += 1


rig.run(a_failed_task_goes_on_as_its_successor, a_new_key_only_after_a_refusal,
        what_is_done_is_not_done_again, backing_off_and_unknown,
        what_may_have_happened_is_asked_for_first, a_task_is_paused, a_pause_outlives_what_nobody_can_tell, a_tool_and_a_tenant_are_paused,
        filters_count_first, an_act_takes_an_effect_id, a_retry_says_its_version,
        a_cancel_that_was_not_undone_is_not_retried, an_act_on_what_has_ended_says_what_it_is,
        a_result_that_cannot_be_made, a_request_that_cannot_be_made, lists, why_nobody_runs_it, wrong_use)

rig.finish("operate", counts, {"successors": 12, "refused": 20, "paused": 4, "whys": 16, "lists": 10})
