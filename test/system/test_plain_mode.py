#!/usr/bin/python3
"""Programs in plain mode and their durable steps, over the whole stack: what was done is never done
again, whoever is killed; each way of ending has its outcome; files that a program leaves reach a
later phase. Wait phases hold no slot and go on where they were."""

import csv
import hashlib
import json
import pathlib
import re
import subprocess
import time

import rig
from patience import soon
from rig import check, equal, until

# Longer than the machine stands still: a worker that loses its claim runs steps again.
LEASE_MS = 4_000
counts = {"reports": 0, "kills": 0, "steps_counted": 0, "endings": 0, "waits": 0}
SETTINGS = {"worker": {"beat_ms": 100, "lease_ms": LEASE_MS, "poll_ms": 50, "slots": 2},
            "maintain": {"lease_ms": LEASE_MS, "maintain_ms": 50}}
TEXT = {"type": "string"}

# Notes a line in the log of its effect ID; what a step does once is seen there.
NOTE = 'note() { echo "$1" >> "$RIG_FOLDER/$HOLDFAST_EFFECT_ID.log"; }\n'


def tool(name, script, *more_phases, shell="/bin/sh", result=None, **phase):
    """A tool whose phase `work` is this script in plain mode; its folder."""
    work = {"name": "work", "kind": "program", "mode": "plain", "command": ["./work"],
            "effect": "pure", "timeout_ms": 30_000, "attempts": 4, "backoff_first_ms": 20,
            "backoff_max_ms": 100, "env": ["RIG_FOLDER", "HOLDFAST_DOWNSTREAM_URL"], **phase}
    phases = ([work] if script is not None else []) + list(more_phases)
    return rig.make_tool(
        name, phases, {"say": TEXT, "at": TEXT, "n": {"type": "integer"}},
        programs={"work": f"#!{shell}\n{script}"} if script is not None else {},
        poll_interval_ms=50, deadline_ms=60_000,
        result={"text": "done", "structured": result or {"$from": f"/state/{phases[-1]['name']}"}})


STEPS = NOTE + '''
set -eu
for n in 1 2 3 4 5 6; do
    out=$(holdfast step "part $n" -- sh -c 'echo "$0" >> "$RIG_FOLDER/$HOLDFAST_EFFECT_ID.log"
        sleep 0.4; echo "out $0"' "$n")
    all="${all:-}$out,"
    note "has $n"
done
printf '{"all": "%s"}' "$all"
'''
# What `say` says is what it does.
ENDINGS = '''
set -eu
args=$(cat)
echo start >> "$RIG_FOLDER/$HOLDFAST_EFFECT_ID.log"
case $args in
*garbage*) echo "all is well" ;;
*nothing*) ;;
*number*) echo " 42 " ;;
*exit-3*) echo '{}'; echo "it broke here" >&2; exit 3 ;;
*always-75*) exit 75 ;;
*once-75*) [ "$HOLDFAST_ATTEMPT" -gt 2 ] || exit 75; echo "{\\"attempt\\": $HOLDFAST_ATTEMPT}" ;;
*signal*) [ "$HOLDFAST_ATTEMPT" -gt 1 ] || kill -9 $$; echo '{}' ;;
*hang*) sleep 600 & echo $! > "$RIG_FOLDER/$HOLDFAST_EFFECT_ID.pid"; sleep 600 ;;
*flood*) yes ;;
*loud*) head -c 8000000 /dev/zero | tr '\\0' x >&2; echo '{}' ;;
*no-step*) holdfast step a -- false || echo "{\\"status\\": $?}" ;;
*none-such*) holdfast step a -- /none/such || echo "{\\"status\\": $?}" ;;
*killed-step*) holdfast step a -- sh -c 'kill -9 $$' || echo "{\\"status\\": $?}" ;;
*too-much*) holdfast step a -- head -c 300000 /dev/zero || echo "{\\"status\\": $?}" ;;
*binary*) holdfast step a -- printf '\\377\\000\\001ab' > one
    holdfast step a -- echo other > two
    cmp one two && echo "{\\"size\\": $(wc -c < two)}" ;;
*empty*) holdfast step a -- true > one; holdfast step a -- echo other > two
    echo "{\\"size\\": $(wc -c < two)}" ;;
*nested*) a=$(holdfast step a -- sh -c 'holdfast step b -- echo inner; echo outer')
    echo "{\\"a\\": \\"$(echo $a)\\", \\"b\\": \\"$(holdfast step b -- echo other)\\"}" ;;
*keys*) [ "$(holdfast step --key 0)" = "$HOLDFAST_KEY" ] || exit 4
    [ "$(holdfast step --key 1)" != "$HOLDFAST_KEY" ] || exit 5
    echo '{}' ;;
*place*) echo x > here; [ "$PWD" = "$HOME" ] || exit 6
    [ $(($(date +%s%3N) + HOLDFAST_DEADLINE_MS + 2000)) -gt "$HOLDFAST_DEADLINE" ] || exit 7
    printf '{"states": %s, "args": %s}' "$(cat "$HOLDFAST_STATE_FILE")" "$args" ;;
esac
'''
# Twenty steps in the background at once, and two of one name.
CROWD = NOTE + '''
set -eu
for n in $(seq 20); do
    holdfast step "part $n" -- sh -c 'echo "$0" >> "$RIG_FOLDER/$HOLDFAST_EFFECT_ID.log"
        sleep 0.3; echo "out $0"' "$n" > "out.$n" &
done
for n in 1 2; do
    holdfast step same -- sh -c 'sleep 0.2; echo "$0"' "$n" > "same.$n" &
done
wait
cmp same.1 same.2
cat $(for n in $(seq 20); do echo "out.$n"; done) > "$HOLDFAST_ARTIFACTS/all.txt"
[ "$HOLDFAST_ATTEMPT" -gt 1 ] || { note again; exit 75; }
printf '{"lines": %d, "same": %d}' "$(wc -l < "$HOLDFAST_ARTIFACTS/all.txt")" "$(cat same.1)"
'''
THREADS = '''
import concurrent.futures, json, os, subprocess, sys
json.load(sys.stdin)
def step(n):
    return subprocess.run(["holdfast", "step", f"n{n}", "--", sys.executable, "-c", f"print({n} ** 2)"],
                          stdout=subprocess.PIPE, close_fds=True, check=True).stdout
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(json.dumps({"sum": sum(map(int, pool.map(step, range(12))))}))
'''
POST = '''
import json, os, sys, time, urllib.request
given = json.load(sys.stdin)
request = urllib.request.Request(
    os.environ["HOLDFAST_DOWNSTREAM_URL"] + "/ledger",
    json.dumps({"effect_id": os.environ["HOLDFAST_EFFECT_ID"]}).encode(),
    {"Idempotency-Key": os.environ["HOLDFAST_KEY"], "Content-Type": "application/json"})
with urllib.request.urlopen(request) as answer:
    status = answer.status
log = os.path.join(os.environ["RIG_FOLDER"], os.environ["HOLDFAST_EFFECT_ID"] + ".log")
with open(log, "a") as file:
    file.write("posted\\n")
while not os.path.exists(log + ".open"):
    time.sleep(0.02)
print(json.dumps({"status": status, "key": os.environ["HOLDFAST_KEY"]}))
'''
LEAVE = '''
set -eu
seq 200000 > "$HOLDFAST_ARTIFACTS/numbers.csv"
echo '{"file": "numbers.csv"}'
'''
PUT = {"name": "put", "kind": "http", "effect": "keyed", "key_header": "Idempotency-Key",
       "key_ttl_ms": 86_400_000, "attempts": 8, "request": {
           "method": "PUT", "url": "{/conf/store}/reports/{/key}.csv",
           "body_artifact": {"$from": "/state/work/file"}}}
WAIT_MS = 10_000
WAIT = {"name": "rest", "kind": "wait", "ms": WAIT_MS}

stack = rig.Stack(workers=2, settings=SETTINGS, tools=[
    "shell_report", "python_report", tool("steps", STEPS), tool("endings", ENDINGS),
    tool("brief", ENDINGS, timeout_ms=2_000, attempts=2), tool("crowd", CROWD),
    tool("threads", THREADS, shell="/usr/bin/python3"), tool("leave", LEAVE, PUT),
    tool("post", POST, shell="/usr/bin/python3", effect="keyed", key_ttl_ms=86_400_000),
    tool("waits", NOTE + "note before; echo '{}'", WAIT),
    tool("blind", "cat > /dev/null; echo '{\"words\": 1}'", {"name": "rest", "kind": "wait", "ms": 0},
         result={"n": {"$from": "/state/work/letters"}}),
    tool("astray", "cat > /dev/null; echo '{\"words\": 1}'", {
        **PUT, "request": {"method": "PUT", "url": "{/conf/store}/reports/{/state/work/letters}", "json": {}}}),
    tool("until", None, {"name": "rest", "kind": "wait", "until": {"$from": "/args/at"}}),
    tool("noughts", None, *({"name": f"w{n}", "kind": "wait", "ms": 0} for n in range(3)))])
client = stack.client()


def begin(name, **arguments):
    effect_id = rig.new_id("plain")
    answer = client.call(name, {"effect_id": effect_id, **arguments})
    check(answer.handle, f"{name}: a handle", repr(answer))
    return effect_id, answer.task_id


def finish(task_id, seconds=60):
    return client.wait(task_id, seconds).result


def run(name, **arguments):
    effect_id, task_id = begin(name, **arguments)
    return effect_id, finish(task_id)


def structured(result):
    return result.get("result", {}).get("structuredContent")


def text_of(result):
    return " ".join(block.get("text", "") for block in result.get("result", {}).get("content", []))


def noted(effect_id):
    path = stack.folder / f"{effect_id}.log"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def completed(result, what):
    return check(result["status"] == "completed" and not result["result"].get("isError"),
                 f"{what}: completed", result)


def checkpoints(task_id):
    return [step[2] for step in stack.steps(task_id) if step[1] == "checkpoint"]


def restart(worker):
    worker.kill()
    counts["kills"] += 1
    worker.start()


def holder_of(effect_id):
    """The worker whose process carries this effect ID; None: nobody's does just now."""
    for environ in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = environ.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"HOLDFAST_EFFECT_ID={effect_id}".encode() in variables:
            for worker in stack.workers:
                mark = f"HOLDFAST_RUN_DIR={stack.folder}/{worker.name}/run/worker-{worker.pid}-"
                if any(variable.startswith(mark.encode()) for variable in variables):
                    return worker
    return None


def kill_who_runs(effect_id):
    worker = until(lambda: holder_of(effect_id), 20, "somebody runs it", 0.002)
    restart(worker)


def shell_report():
    with open(rig.EXAMPLES / "shell_report" / "sales.csv", encoding="ascii") as file:
        rows = [row for row in csv.DictReader(file) if row["month"] == "2025-03"]
    total = sum(int(row["sold"]) for row in rows)
    _, result = run("shell_report", month="2025-03")
    if completed(result, "shell_report"):
        equal(structured(result)["total"], total, "shell_report: the total")
        check(f"{total} sold in 2025-03: north " in text_of(result), "shell_report: its text", result)
    _, result = run("shell_report", month="2019-03")
    equal(result.get("result", {}).get("isError"), True, "shell_report: no such month is an error")
    check("no sales of 2019-03" in text_of(result), "shell_report: which says why", result)
    counts["reports"] += 2
    # Killed in the middle: the regions that were counted are not counted again.
    effect_id, task_id = begin("shell_report", month="2025-03", pace_s=2)
    until(lambda: len(checkpoints(task_id)) >= 2, 20, "two regions are counted")
    shown = until(lambda: "count: " in client.get(task_id).result.get("statusMessage", ""), 5,
                  "progress is shown")
    check(shown, "shell_report: a region in the status message")
    before = [step for step in stack.steps(task_id) if step[1] == "checkpoint"]
    kill_who_runs(effect_id)
    result = finish(task_id)
    completed(result, "shell_report, killed")
    equal(structured(result)["total"], total, "shell_report, killed: the total")
    after = [step for step in stack.steps(task_id) if step[1] == "checkpoint"]
    equal(after[:len(before)], before, "shell_report, killed: the first regions stand")
    equal([step[2] for step in after], ["north", "east", "south", "west"],
          "shell_report, killed: each region once")
    counts["reports"] += 1


def python_report():
    rows = '<lamp> & co, 12.5\nchair,-3\n"table",7'
    for pace_ms in (0, 1_500):
        effect_id, task_id = begin("python_report", title="Sold <now>", csv=rows, pace_ms=pace_ms)
        if pace_ms:
            until(lambda task_id=task_id: checkpoints(task_id), 20, "the figures are there")
            kill_who_runs(effect_id)
        result = finish(task_id)
        if not completed(result, "python_report"):
            continue
        got = structured(result)
        equal((got["figures"]["count"], got["figures"]["total"], got["figures"]["median"]),
              (3, 16.5, 7), "python_report: the figures")
        status, page = stack.http("GET", got["url"].removeprefix(stack.downstream_url))
        equal(status, 200, "python_report: the page is stored")
        check(b"<svg" in page and b"Sold &lt;now&gt;" in page and b"&lt;lamp&gt; &amp; co" in page,
              "python_report: the page is whole", page[:300].decode())
        puts = [line for line in stack.ledger() if got["url"].endswith(line["path"])]
        equal(len(puts), 1, "python_report: stored once")
        equal(checkpoints(task_id), ["figures", "chart", "page"], "python_report: its steps")
        counts["reports"] += 1
    _, result = run("python_report", title="none", csv="lamp,12\nchair,many")
    check("line 2 of csv is not label,value" in text_of(result), "python_report: says what is wrong",
          result)


def killed_in_mid_report():
    """Whatever is killed and when: a step that is stored is never run again."""
    for kills in (1, 2, 3, 1, 2, 3):
        effect_id, task_id = begin("steps")
        for number in range(kills):
            until(lambda n=number: len(checkpoints(task_id)) > n, 20, "a further step is stored")
            time.sleep(0.07 * number)
            stored = checkpoints(task_id)
            ran = noted(effect_id)
            kill_who_runs(effect_id)
            until(lambda ran=ran: len(noted(effect_id)) > len(ran), 20, "it goes on")
            again = noted(effect_id)[len(ran):]
            for name in stored:
                check(name.split()[1] not in again, f"{name}: stored, and not run again", again)
                counts["steps_counted"] += 1
        result = finish(task_id)
        completed(result, "killed in mid-report")
        equal(structured(result), {"all": "".join(f"out {n}," for n in range(1, 7))},
              "killed in mid-report: the result")
        lines = noted(effect_id)
        extra = len([line for line in lines if line.isdigit()]) - 6
        check(extra <= kills, "killed in mid-report: at most one step a kill is run again", lines)
        equal(checkpoints(task_id), [f"part {n}" for n in range(1, 7)], "each stored once")


def ending(say, name="endings"):
    counts["endings"] += 1
    return run(name, say=say)


def listed(effect_id):
    lines = stack.command("task", "list", "--limit", "1000").stdout.splitlines()
    return next(line for line in lines if line.endswith(f"  {effect_id}"))


def endings():
    for say, wanted in (("nothing", {}), ("once-75", {"attempt": 3}), ("signal", {}),
                        ("no-step", {"status": 1}), ("none-such", {"status": 127}),
                        ("killed-step", {"status": 137}), ("too-much", {"status": 1}),
                        ("binary", {"size": 5}), ("empty", {"size": 0}), ("keys", {}),
                        ("nested", {"a": "inner outer", "b": "inner"}), ("loud", {})):
        _, result = ending(say)
        completed(result, say)
        equal(structured(result), wanted, f"{say}: its result")
    effect_id, result = ending("place")
    equal(structured(result), {"states": {}, "args": {"effect_id": effect_id, "say": "place"}},
          "arguments and states are as they are")
    # `(error)` is of a tool that said no, and of nothing else.
    shown = stack.command("task", "show", effect_id).stdout
    check("\nstate      completed\n" in shown, "place: its head says completed alone", shown)
    check("  completed  " in listed(effect_id), "place: so does the list", listed(effect_id))
    for say, told in (
            ("garbage", "work exited with 0, but its stdout is not one JSON value (byte 0: a value was due); stdout is "
                        'the result alone, logs go to stderr. Its stdout began: "all is well". Its stderr is empty'),
            ("exit-3", 'work failed (exit 3). Its stdout began: "{}". Its last output: it broke here'),
            ("flood", "over 1048576 bytes")):
        effect_id, result = ending(say)
        equal((result["status"], result.get("result", {}).get("isError")), ("completed", True),
              f"{say}: an error of the tool")
        check(told in text_of(result), f"{say}: told", result)
        equal(noted(effect_id), ["start"], f"{say}: not run again")
        shown = stack.command("task", "show", effect_id).stdout
        check(re.search(r"^ +[0-9.]+ m?s  work +the tool said no, attempt 1\n +[0-9.]+ m?s  completed\n", shown,
                        re.MULTILINE), f"{say}: task show names the phase", shown)
        check("\nstate      completed (error)\n" in shown, f"{say}: its head says how it ended", shown)
        row = listed(effect_id)
        check("  completed (error)  " in row, f"{say}: so does the list", row)
    effect_id, result = ending("always-75", "brief")
    equal((result["status"], len(noted(effect_id))), ("failed", 2), "always 75: failed")
    check("  failed  " in listed(effect_id), "always 75: so says the list", listed(effect_id))
    check(re.search(r" work +failed, attempt 2", stack.command("task", "show", effect_id).stdout),
          "always 75: task show names the phase that failed")
    effect_id, result = ending("hang", "brief")
    equal((result["status"], len(noted(effect_id))), ("failed", 2), "hang: failed")
    check("timed out after" in json.dumps(result), "hang: it says so", result)
    pid = int((stack.folder / f"{effect_id}.pid").read_text())
    until(lambda: rig.process_gone(pid), 10, "hang: its child is gone")
    for worker in stack.workers:
        check(worker.alive(), f"{worker.name} lives")


def blind():
    """What reads what no state has: where it stands and what is there, and no word of another phase."""
    effect_id, result = ending("", "blind")
    equal((result["status"], result["error"]["message"]),
          ("failed", "tool.json#/result/structured: /state/work/letters: there is no such value; /state/work has words"),
          "a result without its value")
    _, astray = ending("", "astray")
    equal((astray["status"], astray["error"]["message"]),
          ("failed", "put: url: /state/work/letters: there is no such value; /state/work has words"),
          "a URL without its value")
    check("the tool said no" not in stack.command("task", "show", effect_id).stdout, "no tool said no")


def checked():
    """What `tools check` and `apply` say of a phase that nobody called unsafe, and of a program that won't start."""
    for effect in (None, "unsafe"):
        folder = tool("undeclared", "cat", effect=effect)
        manifest = json.loads((folder / "tool.json").read_text())
        if effect is None:
            del manifest["phases"][0]["effect"]
        (folder / "tool.json").write_text(json.dumps(manifest))
        for act in ("check", "apply"):
            told = stack.command("tools", act, folder).stdout
            equal("\n  phase work declares no effect, so it is unsafe: after a crash in it a person has to say "
                  "whether it happened\n" in told, effect is None, f"{act}: {told}")
    (folder / "work").write_text("import json")
    told = stack.command("tools", "check", folder, check_code=1).stderr
    equal(told, f"holdfast tools: {folder}/tool.json#/phases/0/command/0: ./work is neither ELF nor begins with #!\n",
          "no program")


def at_once():
    """Steps in the background; none of them runs a second time in the next attempt."""
    effect_id, result = run("crowd")
    completed(result, "steps at once")
    equal(structured(result)["lines"], 20, "steps at once: each gave its line")
    equal(sorted(noted(effect_id)), sorted([*map(str, range(1, 21)), "again"]),
          "steps at once: each ran once")
    counts["steps_counted"] += 20
    _, result = run("threads")
    equal(structured(result), {"sum": sum(n ** 2 for n in range(12))}, "steps of threads")


def keyed():
    """A program that posts under HOLDFAST_KEY: killed after its post, it posts again, once counts."""
    effect_id, task_id = begin("post")
    until(lambda: noted(effect_id) == ["posted"], 20, "it has posted")
    kill_who_runs(effect_id)
    (stack.folder / f"{effect_id}.log.open").touch()
    result = finish(task_id)
    completed(result, "keyed")
    equal(noted(effect_id), ["posted", "posted"], "keyed: it ran twice")
    equal(stack.effects_by_id().get(effect_id), 1, "keyed: one effect")
    key = structured(result)["key"]
    equal([line["key"] for line in stack.ledger("/ledger") if line["key"] == key], [key],
          "keyed: under its derived key")


def artifacts():
    _, result = run("leave")
    completed(result, "artifacts")
    url = structured(result)["url"]
    status, content = stack.http("GET", url.removeprefix(stack.downstream_url))
    wanted = "".join(f"{n}\n" for n in range(1, 200_001)).encode()
    equal((status, hashlib.sha256(content).hexdigest()), (200, hashlib.sha256(wanted).hexdigest()),
          "artifacts: what was left is what was put")


def waits():
    """Six waits at once on four slots, and other work meanwhile: nothing stands in the way."""
    began = time.monotonic()
    waiting = [begin("waits") for _ in range(6)]
    until(lambda: all(noted(effect_id) for effect_id, _ in waiting), 10, "all of them wait")
    for _ in range(4):
        completed(run("endings", say="nothing")[1], "beside the waits")
    soon(began, WAIT_MS / 1000, "the waits held no slot")
    shown = client.get(waiting[0][1]).result
    check("rest waits until 20" in shown.get("statusMessage", ""), "a wait says so", shown)
    for worker in stack.workers:
        restart(worker)
    for effect_id, task_id in waiting:
        result = finish(task_id)
        completed(result, "a wait")
        waited = structured(result)["waited_ms"]
        check(WAIT_MS <= waited < WAIT_MS + 10_000, "a wait: as long as it should", waited)
        equal(noted(effect_id), ["before"], "a wait: the phase before ran once")
        counts["waits"] += 1
    soon(began, 4 * WAIT_MS / 1000, "waits: they passed together")


def at(offset_s):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + offset_s))


def waits_until():
    for offset_s, least, most in ((-3600, 0, 5), (2, 1, 15)):
        began = time.monotonic()  # its time, of whole seconds, is up to one second less from here
        time_text = at(offset_s)
        completed(run("until", at=time_text)[1], time_text)
        took = time.monotonic() - began
        check(least <= took <= most, f"until {time_text}: at that time", took)
        counts["waits"] += 1
    for given, told in (({"at": "tomorrow"}, "no RFC 3339 time"), ({}, "no time to wait for"),
                        ({"at": at(3600)}, "past the deadline")):
        _, result = run("until", **given)
        equal(result.get("result", {}).get("isError"), True, f"until {given}: an error")
        check(told in text_of(result), f"until {given}: told", result)
    _, task_id = begin("until", at=at(30))
    until(lambda: "waits until" in client.get(task_id).result.get("statusMessage", ""), 5, "it waits")
    client.cancel(task_id)
    began = time.monotonic()
    equal(finish(task_id)["status"], "cancelled", "a wait is cancelled")
    soon(began, 2, "a wait is cancelled at once")
    _, task_id = begin("noughts")
    completed(finish(task_id), "three waits of nothing")
    equal([step[1] for step in stack.steps(task_id)], ["recovery_point"] * 3 + ["outcome"],
          "three waits of nothing: each a recovery point")
    counts["waits"] += 3


def outside():
    for args, code in ((("a", "--", "true"), 2), (("--progress", "0.5", "x"), 2), (("--key", "0"), 2),
                       (("a",), 2), (("", "--", "true"), 2)):
        done = subprocess.run([str(rig.HOLDFAST), "step", *args], capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin"}, check=False)
        equal(done.returncode, code, f"step {args} outside of a task")
        check("holdfast step: " in done.stderr, f"step {args} says why", done.stderr)


def leftovers():
    for worker in stack.workers:
        equal(worker.terminate(), 0, f"{worker.name}: exit 0")
        equal(list((stack.folder / worker.name / "run").iterdir()), [], f"{worker.name}: no files")


rig.run(shell_report, python_report, killed_in_mid_report, endings, blind, checked, at_once, keyed,
        artifacts, waits, waits_until, outside, leftovers)
rig.finish("plain_mode", counts, {"reports": 5, "kills": 12, "steps_counted": 40, "endings": 18,
                                  "waits": 11})
