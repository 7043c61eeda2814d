"""The operator: looks at each task that is unknown with `holdfast task show`, asks the downstream's
own ledger what became of its phase, and says so with `holdfast settle`. Sometimes he ends it as
failed instead, and now and then he errs in the form, which must be refused."""

import json
import threading
import time

import psycopg

import rig
import shapes
import world

# A request that nobody waits for any more may still be on its way for so long.
QUIET_S = (shapes.SLOW_BEFORE_MS + 300) / 1000
PAUSE_S = 0.05
FAILS = 0.25            # share that he gives up
EXIT_DATABASE_CODES = (1, 3, 4)  # Postgres was away: asked again


class Operator(threading.Thread):
    def __init__(self, stack, journal, findings, seed, quiet_s=QUIET_S):
        super().__init__(name="operator", daemon=True)
        self.stack, self.journal, self.findings = stack, journal, findings
        self.dice = world.dice(seed, "operator")
        self.quiet_s = quiet_s
        self.connection = None
        self.settles = []       # {"task", "verdict", "by", "why", "acknowledged", "phase"}
        self.looked = 0         # at an unknown task, with `task show`
        self.refused = 0        # orders in the wrong form, which were
        self.busy = False
        self.stopping = False
        self.error = None

    def unknown(self):
        """[(task, tool, phase number)] that have been so for long enough."""
        if self.connection is None or self.connection.closed:
            self.connection = self.stack.cluster.connect()
        self.busy = self.connection.execute(
            "SELECT EXISTS (SELECT FROM holdfast.work WHERE state = 'unknown')").fetchone()[0]
        return [(rig.task_text(task), tool, phase) for task, tool, phase in self.connection.execute(
            "SELECT w.task, t.name, w.phase FROM holdfast.work w "
            "JOIN holdfast.tool t ON t.tool = w.queue WHERE w.state = 'unknown'"
            " AND greatest(w.updated, w.sent) < clock_timestamp() - make_interval(secs => %s)",
            (self.quiet_s,)).fetchall()]

    def holdfast(self, *words):
        return self.stack.command(*words, check_code=None)

    def show(self, task, phase):
        """What the operator reads must say what is unknown, and which key to look for."""
        done = self.holdfast("task", "show", task, "--json")
        if done.returncode != 0:
            return False
        story = json.loads(done.stdout.splitlines()[0])
        now = story.get("now") or {}
        if story["state"] != "unknown":
            return False  # somebody was faster
        self.looked += 1
        if (now.get("state"), now.get("phase")) != ("unknown", phase):
            self.findings.add("show", "an unknown task is shown otherwise", task=task, now=now)
        if phase not in (now.get("message") or ""):
            self.findings.add("show", "it does not say which phase is unknown", task=task, now=now)
        return True

    def said(self, task, phase):
        """His last word on it, which a restore may have lost, and a client been told: he stays with
        it."""
        return next((one for one in reversed(self.settles)
                     if (one["task"], one["phase"]) == (task, phase) and one["acknowledged"]
                     and one["verdict"] != "absent"), None)

    def settle(self, task, tool, number):
        _, phase, _ = shapes.split(shapes.SHAPES[tool][number])
        if not self.show(task, phase):
            return
        happened = self.stack.happened(task, phase)
        verdict = "done" if happened else "absent"
        if self.dice.random() < FAILS:
            verdict = "fail"
        number = len(self.settles) + 1
        said = self.said(task, phase)
        if said:
            verdict, number = said["verdict"], said["number"]
        one = {"task": task, "verdict": verdict, "by": f"op-{len(self.settles) + 1}",
               "why": f"the ledger has {happened}", "acknowledged": False, "phase": phase,
               "happened": happened, "number": number, "at": time.time()}
        self.settles.append(one)
        state = ["--state", json.dumps({"settled": number})] if verdict == "done" else []
        done = self.holdfast("settle", task, verdict, "--by", one["by"], "--why", one["why"], *state)
        if done.returncode == 0:
            one["acknowledged"] = True
            # Twice is refused: there is nothing unknown any more, unless it became so again.
            if verdict != "absent" and self.dice.random() < 0.3:
                self.must_refuse("settle", task, verdict, "--by", "twice", "--why", "twice")
        elif done.returncode not in EXIT_DATABASE_CODES:
            self.findings.add("settle", f"settle {verdict} of an unknown task: exit "
                              f"{done.returncode}", task=task, stderr=done.stderr)
        self.journal.line(task, "settled", **{name: value for name, value in one.items()
                                              if name not in ("task", "at")})

    def must_refuse(self, *words):
        if self.holdfast(*words).returncode == 0:
            self.findings.add("settle", f"{' '.join(words)} was not refused")
        self.refused += 1

    def run(self):
        try:
            while not self.stopping:
                try:
                    for task, tool, phase in self.unknown():
                        if self.dice.random() < 0.2:
                            self.must_refuse("settle", task, "done", "--by", "nobody")
                        self.settle(task, tool, phase)
                except psycopg.Error:
                    if self.connection is not None:
                        self.connection.close()
                time.sleep(PAUSE_S)
        except Exception as error:  # noqa: BLE001 - the run fails for it, with its text
            self.error = error
            raise
        finally:
            if self.connection is not None:
                self.connection.close()
