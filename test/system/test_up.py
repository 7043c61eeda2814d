#!/usr/bin/python3
"""What README says of its two first commands, done in a clone of this checkout: `deploy/up` starts
everything and makes a report through a task handle, what it says to try comes out as it says, README's
own tool runs, `deploy/up` again is the same report, `deploy/down` leaves no process, and `--wipe` no
data. Zig and its cache are this checkout's. In a network of its own: the ports are those of README,
and a Holdfast that runs here notices nothing."""

import atexit
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import rig
from rig import check, equal

counts = {"ups": 0, "tried": 0, "readme_commands": 0}
BUILD_S, REPORT_S = 500, 200
KILLS_MAX = 5
folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-up-"))
clone, state = folder / "holdfast", folder / "holdfast" / ".holdfast"


def others():
    """Who else lives in our network: what deploy/up left running."""
    ours, found = os.readlink("/proc/self/ns/net"), {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns/net") == ours and int(process.name) != os.getpid():
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:  # gone meanwhile
            continue
    return found


def clean():
    for pid in others():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    shutil.rmtree(folder)


def shell(text, seconds=REPORT_S):
    """In the clone, as somebody would type it; its exit code, what it said, and all that it said."""
    with open(folder / "said", "w+", encoding="utf-8") as said:
        # Into a file: what runs on would hold a pipe open.
        done = subprocess.run(["timeout", str(seconds), "bash", "-c", text], cwd=clone,
                              env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=said, text=True, check=False)
        said.seek(0)
        return done.returncode, done.stdout, done.stdout + said.read()


def up(*more, seconds=REPORT_S):
    code, out, said = shell(" ".join(["./deploy/up", *more]), seconds)
    equal(code, 0, f"deploy/up {' '.join(more)}: {said[-1500:]}")
    counts["ups"] += 1
    return out, said


def make_clone():
    """What is committed, and what is changed since: it is tried before it is committed."""
    # As root also of a checkout that is another's, which a flag does not tell to clone's other half.
    (folder / "gitconfig").write_text("[safe]\n\tdirectory = *\n")

    def git(*words, **more):
        return subprocess.run(["git", *words], check=True, stdout=subprocess.PIPE, **more, env={
            **os.environ, "GIT_CONFIG_GLOBAL": str(folder / "gitconfig")}).stdout

    git("clone", "--quiet", rig.ROOT, clone)
    git("apply", "--allow-empty", cwd=clone, input=git("diff", "--binary", "HEAD", cwd=rig.ROOT))
    state.mkdir()
    (state / "zig").symlink_to((rig.ROOT / ".holdfast/zig").resolve())
    (clone / ".zig-cache").symlink_to((rig.ROOT / ".zig-cache").resolve())


def made():
    """The report, through a task handle; gives what it says to try, and what a repeat must say."""
    out, said = up(seconds=BUILD_S)
    handle = re.search(r"^task +(tsk_\S+)$", said, re.M)
    pdf = re.search(r"^The PDF: (\S+) \((\d+) bytes\)$", out, re.M)
    effect = re.search(r"effect ID (\S+)\)", said)
    if not check(handle and pdf and effect, "it tells handle, PDF and effect ID", said):
        rig.finish("up", counts)
    content = (clone / pdf[1]).read_bytes()
    check(content.startswith(b"%PDF-") and len(content) == int(pdf[2]) > 5000, "a PDF", len(content))
    check("API http://127.0.0.1:8080," in said, "where README says", said)
    tried = re.findall(r"^(\d)\. [^\n]*\n((?:   [^\n]*\n)*)", out, re.M)
    equal([number for number, _ in tried], ["1", "2", "3", "4"], "four things to try")
    texts = [text[max(text.find("   . .holdfast/env"), 0):] for _, text in tried]
    return handle[1], effect[1], pdf[1], texts


def the_same(handle, text):
    """1: a repeat, raw and by the program, is the same handle; nothing runs twice."""
    code, out, said = shell(text)
    equal(code, 0, f"the repeat: {said[-1500:]}")
    answers = [json.loads(line) for line in out.splitlines()]
    equal(answers[0]["result"]["taskId"], handle, "the raw repeat has the same handle")
    equal(answers[1]["task_id"], handle, "the repeat by the program has the same handle")
    counts["tried"] += 1


def workers_killed(text):
    """2: both workers die in mid-report. When they died before or after it on a machine that stood
    still, once more."""
    for number in range(KILLS_MAX):
        _, out, said = shell(text.replace("kill-me", f"kill-me-{number}"))
        before, crash, after = out.partition("worker died")
        if crash and "checkpoint chart-" in before:
            break
    check(crash and "checkpoint chart-" in before, "they died in mid-report", said[-1500:])
    charts = re.findall(r"checkpoint (chart-\d+),", out)
    check(len(charts) >= 5 and len(charts) == len(set(charts)), "no chart is drawn twice", charts)
    check(re.search(r" s  completed$", after, re.M), "it went on to the end", said[-1500:])
    equal(len([line for line in rig.read_jsonl(state / "downstream" / "ledger.jsonl")
               if line["path"] == "/send"]), number + 2, "one mail for each report")
    counts["tried"] += 1


def plain_client(text):
    """4: a client that knows no tasks hangs up in the middle and calls again."""
    _, out, said = shell(text, 5)
    if "notifications/progress" not in out:
        _, out, said = shell(text, 30)
    check("notifications/progress" in out, "it sees progress", said[-1500:])
    effect = re.search(r'"effect_id":"(plain-[^"]+)"', text)[1]
    for _ in range(KILLS_MAX):
        _, out, said = shell(text)
        if '"structuredContent"' in out:
            break
    check('"structuredContent":{"url"' in out, "called again it has the result", said[-1500:])
    _, out, _ = shell(f". .holdfast/env; holdfast task show {effect}")
    charts = re.findall(r"checkpoint (chart-\d+),", out)
    check(charts and len(charts) == len(set(charts)), "it went on where it stopped", out)
    counts["tried"] += 1


def readme_tool():
    """README's "Write a tool", word for word."""
    text = (clone / "README.md").read_text(encoding="utf-8")
    part = text.partition("\n## Write a tool\n")[2].partition("\n## ")[0]
    blocks = dict(re.findall(r"```(\w*)\n(.*?)```", part, re.S))
    tool = clone / "count_words"
    tool.mkdir()
    (tool / "tool.json").write_text(blocks["json"], encoding="utf-8")
    (tool / "count").write_text(blocks["python"], encoding="utf-8")
    (tool / "count").chmod(0o755)
    commands = [line[2:] for line in blocks[""].splitlines() if line.startswith("$ ")]
    told = [line for line in blocks[""].splitlines() if not line.startswith("$ ")]
    # "API and workers take it up within a second", of a machine that does not stand still.
    commands.insert(-1, "sleep 3")
    code, out, said = shell("set -e\n" + "\n".join(commands))
    equal(code, 0, f"README's commands: {said[-1500:]}")
    equal(out.splitlines()[-len(told):], told, "they print what README says")
    counts["readme_commands"] += len(commands) - 1


def again(handle, effect, pdf):
    reports = sorted(path.name for path in (state / "downstream/reports").iterdir())
    out, said = up()
    check(f"effect ID {effect})" in said and handle in said, "the same effect ID and handle", said)
    check(f"The PDF: {pdf} (" in out, "the same PDF", out)
    equal(sorted(path.name for path in (state / "downstream/reports").iterdir()), reports,
          "no other report")


def down(*more):
    code, _, said = shell(" ".join(["./deploy/down", *more]))
    equal(code, 0, f"deploy/down: {said[-1500:]}")
    end = time.monotonic() + 30
    while others() and time.monotonic() < end:  # the killed take a moment
        time.sleep(0.1)
    equal(others(), {}, "deploy/down leaves no process")


rig.own_network()
atexit.register(clean)
environment = {name: value for name, value in os.environ.items()
               if not name.lower().endswith("_proxy") and not name.startswith("HOLDFAST_")}
make_clone()
the_handle, the_effect, the_pdf, to_try = made()
the_same(the_handle, to_try[0])
workers_killed(to_try[1])
plain_client(to_try[3])
readme_tool()
again(the_handle, the_effect, the_pdf)
down()
again(the_handle, the_effect, the_pdf)
down("--wipe")
equal(os.listdir(state), ["zig"], "--wipe leaves Zig alone")
up("--no-demo")
equal(rig.read_jsonl(state / "downstream" / "ledger.jsonl"), [], "after --wipe it begins anew")
down("--wipe")
rig.finish("up", counts, {"ups": 4, "tried": 3, "readme_commands": 4})
