#!/usr/bin/python3
"""deploy/watch, what `deploy/up --watch` ends in: a tool that is edited while everything runs is
in force within seconds, however the editor saves; what is broken is told and the version before
stays; a task that runs keeps the version it began with."""

import shutil
import signal
import time

import rig
from rig import check, equal, until

counts = {"edits": 0, "faults": 0}
SECONDS = 30  # a call sees an edit within; the rest of the machine may be busy
SLOW = '''if [ "$HOLDFAST_EFFECT_ID" = slow ]; then
    touch "$RIG_FOLDER/began"
    while [ ! -e "$RIG_FOLDER/open/slow" ]; do sleep 0.05; done
fi
'''


def script(word):
    return f"#!/bin/sh\ncat > /dev/null\n{SLOW}printf '{{\"word\": \"{word}\"}}'\n"


def make_tool(name):
    return rig.make_tool(
        name, [{"name": "work", "kind": "program", "mode": "plain", "command": ["./work"],
                "effect": "pure", "timeout_ms": 90_000, "attempts": 1, "env": ["RIG_FOLDER"]}],
        programs={"work": script("first")}, poll_interval_ms=50, deadline_ms=120_000,
        result={"text": "done", "structured": {"$from": "/state/work"}})


def word_of(answer):
    """What the ended task's program said."""
    result = (answer.result or {}).get("result") or {}
    return (result.get("structuredContent") or {}).get("word")


class Author:
    """Who edits a tool, and calls it."""

    def __init__(self, stack, folder, watch):
        self.stack, self.folder, self.watch = stack, folder, watch
        self.client = stack.client()
        self.calls = 0

    def word(self, name="written"):
        self.calls += 1
        answer = self.client.call(name, {"effect_id": f"w-{self.calls}"})
        if not answer.handle:
            return None
        return word_of(self.client.wait(answer.task_id))

    def sees(self, word, how):
        counts["edits"] += 1
        until(lambda: self.word() == word, SECONDS, how, pause=0.2)
        equal(self.word(), word, how)

    def told(self, text, how, since):
        until(lambda: text in self.watch.log()[since:], SECONDS, f"{how}: {text!r} is told")


def save_by_rename(path, text):
    """As editors do it: the old file aside, a new one in place, the old one away."""
    mode = path.stat().st_mode
    backup = path.with_name(path.name + "~")
    path.rename(backup)
    path.with_name(".new").write_text(text)
    path.with_name(".new").chmod(mode)
    path.with_name(".new").rename(path)
    backup.unlink()


def cpu_ticks(pid):
    fields = rig.proc_stat(pid)
    return int(fields[11]) + int(fields[12])


def edits(author):
    work, manifest = author.folder / "work", author.folder / "tool.json"
    author.sees("first", "what is there at the start is applied")
    work.write_text(script("second"))
    author.sees("second", "a file written in place")
    save_by_rename(work, script("third"))
    author.sees("third", "a file saved by rename")
    # A new folder with a file in it, and the program that needs it.
    (author.folder / "data").mkdir()
    (author.folder / "data" / "word").write_text("fourth")
    work.write_text('#!/bin/sh\ncat > /dev/null\nprintf \'{"word": "%s"}\' "$(cat "${0%/*}/data/word")"\n')
    author.sees("fourth", "a new folder")
    (author.folder / "data" / "word").write_text("fifth")
    author.sees("fifth", "a file in a folder that came later")
    faults(author, manifest)
    work.write_text(script("sixth"))
    shutil.rmtree(author.folder / "data")
    author.sees("sixth", "a deleted folder")
    # Taken away whole, and put back as another.
    aside = author.folder.with_name("aside")
    author.folder.rename(aside)
    (aside / "work").write_text(script("seventh"))
    time.sleep(0.5)
    aside.rename(author.folder)
    author.sees("seventh", "a folder put in place anew")


def faults(author, manifest):
    good = manifest.read_text()
    for broken, told in ((good.replace('"attempts": 1', '"attempts": "one"'),
                          ("tool.json#/phases/0/attempts", "stays in force")),
                         (good[:-20], ("tool.json", "stays in force"))):
        since = len(author.watch.log())
        save_by_rename(manifest, broken)
        for text in told:
            author.told(text, "a broken edit", since)
        equal(author.word(), "fifth", "a broken edit leaves the version before in force")
        counts["faults"] += 1
    since = len(author.watch.log())
    manifest.unlink()
    author.told("stays in force", "a deleted manifest", since)
    equal(author.word(), "fifth", "without a manifest the version before stays in force")
    counts["faults"] += 1
    manifest.write_text(good)
    author.sees("fifth", "mended")


def running_task(author):
    """It began with the version of then, and ends with it."""
    work = author.folder / "work"
    work.write_text(script("old"))
    author.sees("old", "an edit before a long task")
    answer = author.client.call("written", {"effect_id": "slow"})
    until((author.stack.folder / "began").exists, 20, "it runs")
    work.write_text(script("new"))
    author.sees("new", "a call beside a running task")
    (author.stack.folder / "open" / "slow").touch()
    equal(word_of(author.client.wait(answer.task_id)), "old",
          "a task ends with the version it began with")


def main():
    stack = rig.Stack(workers=1, tools=(), settings={"worker": {"poll_ms": 50}})
    folder, other, broken = map(make_tool, ("written", "other", "broken"))
    (broken / "tool.json").write_text("{")
    watch = stack.start("watch", [rig.ROOT / "deploy" / "watch", rig.HOLDFAST, folder, other, broken])
    author = Author(stack, folder, watch)
    edits(author)
    running_task(author)
    equal(author.word("other"), "first", "the other folder is as it was")
    equal([line for line in watch.log().splitlines() if line.startswith(f"{broken}: ")],
          [f"{broken}: not applied"], "of a tool that never was there, no version before is told")
    equal(watch.log().count("other: version"), 1, "who edits one folder applies one")
    time.sleep(1)
    began = cpu_ticks(watch.pid)
    time.sleep(3)
    check(cpu_ticks(watch.pid) - began <= 2, "nothing to do costs nothing")
    watch.signal(signal.SIGINT)
    equal(watch.popen.wait(10), 0, "Ctrl-C ends it cleanly")
    check("Traceback" not in watch.log(), "it never fell over", watch.log()[-600:])
    rig.finish("watch", counts, {"edits": 8, "faults": 3})


main()
