#!/usr/bin/python3
"""The whole product as a person uses it: `holdfast call build_report --wait --json` makes a real
report once; asked again, the same; with both workers killed in the middle, still once."""

import base64
import hashlib
import json
import subprocess
import threading
import time
import urllib.request

import rig
from rig import check, equal, until

counts = {"reports": 0, "repeats": 0, "killed_in_mid_report": 0}
stack = rig.Stack(workers=2, tools=["build_report"],
                  settings={"worker": {"beat_ms": 200, "lease_ms": 4000, "poll_ms": 200},
                            "maintain": {"lease_ms": 4000, "maintain_ms": 100}})
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(month, effect_id, *more, code=0):
    done = stack.command("call", "build_report", "--arg", f"month={month}", "--arg", "pace_ms:=20",
                         "--effect-id", effect_id, "--wait", "--json", *more, check_code=None)
    equal(done.returncode, code, f"{effect_id}: exit code")
    lines = done.stdout.splitlines()
    equal(len(lines), 1, f"{effect_id}: one line of JSON")
    return json.loads(lines[0]) if lines else {}, done.stdout


def made(month="2015-09"):
    effect_id = rig.new_id("demo")
    told, raw = call(month, effect_id)
    equal(told["status"], "completed", "a report: completed")
    check(told["task_id"].startswith("tsk_"), "a report: a handle", told)
    result = told["result"]
    equal(result.get("isError", False), False, "a report: no error")
    texts = [block["text"] for block in result["content"] if block["type"] == "text"]
    check(any(month in text for text in texts), "the text names the month", texts)
    links = [block["uri"] for block in result["content"] if block["type"] == "resource_link"]
    url = result["structuredContent"]["url"]
    kept = f"holdfast://tasks/{told['task_id']}/artifacts/report-{month}.pdf"
    equal(links, [url, kept], "links to the report, and to the artifact that it was made from")
    check(result["structuredContent"]["pages"] >= 2, "pages", result["structuredContent"])
    with direct.open(url) as answer:
        pdf = answer.read()
    check(pdf.startswith(b"%PDF-") and len(pdf) > 5000, "the link leads to a PDF", len(pdf))
    stored = stack.ledger("/reports/" + url.rpartition("/")[2])
    equal([line["sha256"] for line in stored], [hashlib.sha256(pdf).hexdigest()],
          "stored once, these bytes")
    read = stack.client().request("resources/read", {"uri": kept}, kept).result["contents"][0]
    equal((read["mimeType"], base64.b64decode(read["blob"])), ("application/pdf", pdf),
          "the artifact is the same PDF, as a resource of its owner")
    mails = [line for line in stack.ledger("/send") if line["link"] == url]
    equal(len(mails), 1, "mailed once")
    counts["reports"] += 1
    return effect_id, told, raw, pdf


def repeats():
    effect_id, told, raw, _ = made()
    before = len(stack.ledger())
    for _ in range(3):
        again, raw_again = call("2015-09", effect_id)
        equal(raw_again[raw_again.index('"result"'):], raw[raw.index('"result"'):],
              "asked again: the result, byte for byte")
        equal(again["task_id"], told["task_id"], "asked again: the same handle")
        counts["repeats"] += 1
    equal(len(stack.ledger()), before, "asked again: nothing happened downstream")
    equal(stack.command("call", "build_report", "--arg", "month=2015-10", "--effect-id", effect_id,
                        "--wait", check_code=None).returncode, 1, "other arguments: refused")
    shown = stack.command("task", "show", effect_id).stdout
    for phase in ("collect", "render", "publish", "notify"):
        check(phase in shown, f"task show tells of {phase}", shown)
    as_json = json.loads(stack.command("task", "show", told["task_id"], "--json").stdout)
    check(as_json, "task show --json is JSON")


def same_bytes():
    """Rendering is pure: the same month gives the same PDF under another effect ID."""
    equal(made("2013-03")[3], made("2013-03")[3], "the same month, the same PDF")


def no_data():
    told, _ = call("2019-01", rig.new_id("demo"), code=1)
    equal(told["status"], "completed", "a month without data: completed")
    equal((told["result"] or {}).get("isError"), True, "a month without data: isError")
    check("2019-01" in json.dumps(told["result"]), "it names the month", told)


def bad_arguments():
    before = stack.query("SELECT count(*) FROM holdfast.task")
    told = stack.command("call", "build_report", "--arg", "month=September", "--effect-id", "bad",
                         "--wait", "--json", check_code=None)
    equal(told.returncode, 1, "a bad month: exit 1")
    equal(stack.query("SELECT count(*) FROM holdfast.task"), before, "a bad month: nothing stored")


def human_output():
    done = stack.command("call", "build_report", "--arg", "month=2014-07", "--arg", "pace_ms:=0",
                         "--effect-id", "human", "--wait")
    check("/reports/" in done.stdout, "without --json: the address is printed", done.stdout)


def killed():
    """Both workers die while it renders; the report goes on from its last chart."""
    effect_id = rig.new_id("demo")
    arguments = {"month": "2012-12", "pace_ms": 300, "effect_id": effect_id}
    client = stack.client()
    handle = client.call("build_report", arguments)
    place = 65536  # checkpoints of the second phase lie above
    until(lambda: len(stack.query(
        "SELECT 1 FROM holdfast.step WHERE task = %s AND kind = 'checkpoint' AND place > %s",
        (rig.task_bytes(handle.task_id), place))) >= 2, 20, "two charts are drawn")
    for worker in stack.workers:
        worker.kill()
    for worker in stack.workers:
        worker.start()
    end = client.wait(handle.task_id, 60)
    equal(end.result["status"], "completed", "workers killed: completed")
    url = end.result["result"]["structuredContent"]["url"]
    path = "/reports/" + url.rpartition("/")[2]
    equal(len(stack.ledger(path)), 1, "workers killed: stored once")
    equal(len([line for line in stack.ledger("/send") if line["link"] == url]), 1, "mailed once")
    names = [step[2] for step in stack.steps(handle.task_id) if step[1] == "checkpoint"]
    equal(len(names), len(set(names)), "no chart was committed twice")
    counts["killed_in_mid_report"] += 1


def api_gone_during_wait():
    """`holdfast call --wait` rides over an API that is killed and comes back."""
    effect_id = rig.new_id("demo")
    results = []
    thread = threading.Thread(target=lambda: results.append(stack.command(
        "call", "build_report", "--arg", "month=2012-01", "--arg", "pace_ms:=200", "--effect-id",
        effect_id, "--wait", "--json", check_code=None)))
    thread.start()
    until(lambda: stack.task_rows(effect_id), 20, "accepted")
    stack.apis[0].kill()
    time.sleep(0.3)
    stack.apis[0].start()
    thread.join()
    equal(results[0].returncode, 0, "API killed under --wait: exit 0")
    equal(json.loads(results[0].stdout)["status"], "completed", "API killed under --wait: completed")


def help_and_usage():
    for command in ("api", "worker", "maintain", "migrate", "tools", "call", "task", "up", "down",
                    "version", "help"):
        done = subprocess.run([str(rig.HOLDFAST), *(["help"] if command == "help" else
                                                    [command, "--help"])],
                              capture_output=True, text=True, check=False)
        if command in ("up", "down", "version"):
            continue
        equal(done.returncode, 0, f"{command} --help: exit 0")
        check(len(done.stdout) > 200, f"{command} --help says something", done.stdout)
    equal(stack.command("none", check_code=None).returncode, 2, "an unknown command: exit 2")
    equal(stack.command("call", "x", "--none", check_code=None).returncode, 2,
          "an unknown flag: exit 2")


rig.run(repeats, same_bytes, no_data, bad_arguments, human_output, killed, api_gone_during_wait,
        help_and_usage)
rig.finish("demo", counts, {"reports": 3, "repeats": 3, "killed_in_mid_report": 1})
