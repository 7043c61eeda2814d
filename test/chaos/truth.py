"""What `holdfast task show` tells, against what is known from elsewhere: of tasks that each kind of
fault hit, the store's own rows, the journal of the clients, the keys that downstream was sent and
the crashes that the oracle's triggers saw."""

import collections
import itertools
import json

import rig
import shapes
from checker import OUTCOME_PLACE

TOLD_MAX = 6            # tasks a kind of fault
OPEN_STATES = ("ready", "scheduled", "running", "parked", "unknown", "unverified")


def show(stack, handle, *more):
    """(story or None, what else was printed)."""
    done = stack.command("task", "show", handle, *more, check_code=None)
    return done.stdout if done.returncode == 0 else None


def look_at_open(stack, findings):
    """One open task, in the middle of it all: done, at work and to come are its whole shape, and
    its crashes are those of its history."""
    rows = stack.ask("SELECT w.task FROM holdfast.work w ORDER BY random() LIMIT 1")
    text = rows and show(stack, rig.task_text(rows[0][0]), "--json")
    if not text:
        return
    story = json.loads(text.splitlines()[0])
    now = story["now"]
    if now is None:
        return
    names = [entry["phase"] for entry in story["history"] if entry["what"] == "recovery_point"]
    whole = [*names, now["phase"], *story["to_come"]]
    wanted = shapes.names_of(story["tool"], *shapes.ANY_KIND)
    # Counted anew on the way back, and once settled: see release() and settle() in sql/functions.
    crashes = list(itertools.takewhile(
        lambda what: what not in ("undo", "settled"),
        reversed([entry["what"] for entry in story["history"]]))).count("crash")
    undoing = any((entry["phase"] or "").startswith("undo:") or entry["what"] == "undo"
                  for entry in story["history"])
    if whole != wanted and now["phase"] is not None and not undoing:
        findings.add("show", f"phases {whole}", task=story["task_id"], tool=story["tool"])
    if now["state"] not in OPEN_STATES or now["state"] != story["state"]:
        findings.add("show", f"state {story['state']}, now {now['state']}", task=story["task_id"])
    if crashes != now["crashes"]:
        findings.add("show", f"{crashes} crashes told, {now['crashes']} counted",
                     task=story["task_id"])


class Truth:
    def __init__(self, checker):
        self.checker, self.stack = checker, checker.stack
        self.keys = checker.keys

    def check(self, hits, dice):
        """Kind of fault -> how many of the tasks that it hit were shown and are told truly."""
        shown = {}
        for kind, tasks in sorted(hits.items()):
            handles = sorted({task if isinstance(task, str) else task.handle for task in tasks
                              if not isinstance(task, str) or task} - {None})
            known = [handle for handle in handles if handle in self.checker.rows and
                     handle in self.checker.by_handle and
                     not self.checker.by_handle[handle].may_be_gone()]
            # Those with the longest history first: a fault left something there to be told.
            dice.shuffle(known)
            known.sort(key=lambda handle: -self.checker.events[handle].total())
            shown[kind] = sum(self.one(kind, handle) for handle in known[:TOLD_MAX])
            if known and not shown[kind]:
                self.checker.bad("show", f"no task that {kind} hit is shown")
        return shown

    def one(self, kind, handle):
        text, told = show(self.stack, handle, "--json"), show(self.stack, handle)
        if text is None or told is None:
            self.checker.bad("show", f"a task that {kind} hit is not shown", handle)
            return 0
        story = json.loads(text.splitlines()[0])
        wrong = self.wrong(handle, story) + self.wrong_text(story, told)
        for what in wrong:
            self.checker.bad("show", f"hit by {kind}: {what}", handle)
        return 1

    def wrong(self, handle, story):
        """What the story says that is not so."""
        task, steps = self.checker.by_handle[handle], self.checker.steps[handle]
        outcome = steps.get(OUTCOME_PLACE)
        subject, tenant = rig.TOKENS[task.token]
        told = "completed" if task.plain_end is not None else None
        history = story["history"]
        points = [(entry["name"], entry["attempt"], entry["derived_key"]) for entry in history
                  if entry["what"] == "recovery_point"]
        kept = [(name, attempt, key) for place, (kind, name, attempt, key, *_) in
                sorted(steps.items()) if kind == "recovery_point"]
        ends = [entry for entry in history if entry["what"] == "outcome"]
        pairs = [
            ("tool", story["tool"], task.tool),
            ("effect ID", story["effect_id"], task.effect_id),
            ("owner", (story["owner"]["subject"], story["owner"]["tenant"]), (subject, tenant)),
            ("arguments", story["arguments"], task.arguments),
            ("state", story["state"], outcome and outcome[1]),
            ("state to the client", story["state"], (task.statuses or [told])[-1]),
            ("recovery points", points, kept),
            ("outcomes", [entry["name"] for entry in ends], [outcome and outcome[1]]),
            ("now", story["now"], None),
            ("events", self.counted(history), self.checker.events[handle]),
            ("crashes", sum(entry["what"] == "crash" for entry in history),
             self.checker.crashes[handle]),
            ("settled", sorted(entry["text"] for entry in history if entry["what"] == "settled"),
             sorted(f"{act.removeprefix('settle ')} by {by}: {why}" for act, by, why in
                    self.checker.audit[handle])),
        ]
        wrong = [f"{what} {got!r}, and it is {is_!r}" for what, got, is_ in pairs if got != is_]
        wrong += [f"the key of {name} was never sent" for name, _, key in points
                  if key is not None and key not in self.keys[handle, name]
                  and (handle, name) in self.keys]
        return wrong + self.wrong_end(task, ends)

    @staticmethod
    def counted(history):
        counts = collections.Counter(entry["what"] for entry in history)
        for kind in ("recovery_point", "checkpoint", "outcome", "intent"):
            counts.pop(kind, None)
        return counts

    @staticmethod
    def wrong_end(task, ends):
        if not ends or task.result is None:
            return []
        end, told = ends[0], task.result
        result = {name: value for name, value in (told.get("result") or {}).items()
                  if name not in ("resultType", "_meta")}
        pairs = [("result", end["result"] or {}, result), ("error", end["error"], told.get("error"))]
        if told["status"] != "completed":
            pairs.append(("message", end["message"], told.get("statusMessage")))
        return [f"{what} {got!r}, and the client was told {is_!r}" for what, got, is_ in pairs
                if got != is_]

    @staticmethod
    def wrong_text(story, told):
        """The same for people: everything that counts is in the text."""
        wanted = [story["task_id"], story["effect_id"], f"state      {story['state']}"]
        for entry in story["history"]:
            wanted += [entry.get("derived_key"), entry.get("phase")]
            if entry["what"] in ("crash", "settled", "cancel_asked", "hung_up", "unknown"):
                wanted.append(entry["what"])
            if entry["what"] == "settled":
                wanted.append(entry["text"])
        return [f"the text does not have {want}" for want in wanted if want and want not in told]
