"""The clients: a steady load of tasks, and a journal of everything that a client was told.

A caller keeps some tasks open. It asks either API process, rides over broken connections and 503
as a client does, and checks what it is told while it is told it: one handle an effect ID, a status
that never leaves its end, the same bytes whenever a finished task is seen, nothing of another
owner."""

import http.client
import itertools
import json
import re
import threading
import time

import rig
import shapes
import world

PAUSE_S = 0.004         # between two requests of a caller
UNKNOWN_TEXT = "it cannot be told whether"
BETWEEN_TEXT = "waiting for"    # a worker, or the next attempt
NOT_FOUND = -32602
LOST = (OSError, http.client.HTTPException)


class Task:
    """One effect ID and all that was told about it."""

    def __init__(self, tool, arguments, token="rig-alice"):
        self.tool, self.arguments, self.token = tool, arguments, token
        self.effect_id = arguments["effect_id"]
        self.began = time.time()
        self.handle = None
        self.firsts = 0         # answers that said "not a repeat"
        self.message = ""       # the last that was told
        self.statuses = []      # in order, each once in a row
        self.end = None         # bytes of the first terminal answer, without its id
        self.result = None      # its parsed result
        self.cancel_at = None   # when to cancel
        self.cancelled = False  # a cancel was acknowledged
        self.plain = False      # begun by a client that knows no tasks
        self.plain_end = None   # the stored part of the first result that such a client got
        self.calls = 0          # of such clients
        self.returned_at = 0.0  # wall clock: when such a client came back for it in the drain
        self.yardstick = False  # begun to measure what work takes without a fault
        self.next_at = 0.0
        self.gone = False       # past its retention
        self.gone_at = None     # wall clock: when it was first told as gone
        self.unknown = False    # has been told as unknown; an operator settles it

    @property
    def over(self):
        return self.end is not None or self.plain_end is not None or self.gone

    def may_be_gone(self):
        """Its end need not have been seen; the checker knows when that was."""
        return self.tool == "chaos_brief"

    def told_gone(self):
        self.gone = True
        self.gone_at = self.gone_at or time.time()


class Journal:
    """All tasks, and a file with each thing that was told."""

    def __init__(self, path, findings):
        self.lock = threading.Lock()
        self.tasks = {}
        self.lines = 0
        self.accepted_at = 0.0  # when a handle was answered last that was none before
        self.file = open(path, "a", encoding="utf-8")
        self.findings = findings

    def add(self, task):
        with self.lock:
            self.tasks[(task.token, task.effect_id)] = task
        return task

    def told(self, task, what, **more):
        self.line(task.handle, what, effect_id=task.effect_id, **more)

    def line(self, _handle, what, **more):
        with self.lock:
            self.lines += 1
            self.file.write(json.dumps({"effect_id": None, **more, "at": round(time.time(), 4),
                                        "task": _handle, "what": what}) + "\n")

    def violation(self, rule, text, task, **more):
        self.told(task, "VIOLATION", rule=rule, text=text)
        self.findings.add(rule, text, tool=task.tool, effect_id=task.effect_id, task=task.handle,
                          statuses=task.statuses, **more)

    # --- what an answer says ---

    def handle(self, task, answer, what="call"):
        """A CreateTaskResult for this task."""
        effect = answer.result.get("_meta", {}).get(rig.EFFECT_META, {})
        self.told(task, what, handle=answer.task_id, replayed=effect.get("replayed"))
        self.named(task, answer.task_id, effect.get("replayed"))
        if effect.get("effectId") != task.effect_id:
            self.violation("V1", "a handle names another effect ID", task, answer=answer.body)

    def named(self, task, handle, replayed):
        """An answer named the task of this effect ID."""
        with self.lock:
            first = task.handle is None
            task.firsts += replayed is False
            firsts = task.firsts
            if first:
                task.handle = handle
                self.accepted_at = time.monotonic()
        if not first and handle != task.handle:
            self.violation("V1", "two handles of one effect ID", task, second=handle)
        if firsts > 1:
            self.violation("V1", "accepted as new twice", task)

    def seen(self, task, answer):
        """An answer to tasks/get of its owner."""
        if answer.error is not None:
            if task.may_be_gone() and answer.code == NOT_FOUND:
                task.told_gone()
                self.told(task, "gone")
            else:
                self.violation("V2", "a handle does not resolve", task, answer=answer.body)
                task.gone = True
            return
        status, message = answer.result["status"], answer.result.get("statusMessage", "")
        task.message = message
        body = re.sub(rb'"id":\d+', b'"id":0', answer.body, count=1)
        with self.lock:
            changed = not task.statuses or task.statuses[-1] != status
            before = task.statuses[-1] if task.statuses else None
            if changed:
                task.statuses.append(status)
            end = task.end
            if end is None and status in rig.TERMINAL:
                task.end, task.result = body, answer.result
        if changed:
            self.told(task, "status", status=status, message=message)
        if before in rig.TERMINAL and changed:
            self.violation("V6", f"{before} became {status}", task)
        elif end is not None and end != body:
            self.violation("V6", "a finished task reads otherwise", task, first=end, now=body)
        if task.cancel_at is not None and BETWEEN_TEXT in message:
            task.cancel_at = 0.0  # now, while nobody runs it
        if not task.unknown and status == "working" and UNKNOWN_TEXT in message:
            task.unknown = True
            self.told(task, "unknown", message=message)


class Asker(threading.Thread):
    """Keeps some tasks open until they are over, turn by turn."""

    OPEN_MAX = 6            # at once

    def __init__(self, name, stack, journal, seed, number):
        super().__init__(name=f"{name}-{number}", daemon=True)
        self.stack, self.journal, self.number = stack, journal, number
        self.dice = world.dice(seed, self.name)
        self.open, self.inbox, self.ended = [], [], []
        self.count = 0
        self.accepting = True   # false: only what is open goes on
        self.stopping = False
        self.doing = None       # (number of the API process, what, task) in flight
        self.error = None

    def due(self):
        """The task whose turn it is, or None."""
        while self.inbox:
            self.open.append(self.inbox.pop())
        if self.accepting and len(self.open) < self.OPEN_MAX:
            self.begin()
        due = [task for task in self.open if task.next_at <= time.monotonic()]
        return min(due, key=lambda task: task.next_at, default=None)

    def put_away(self):
        for task in [task for task in self.open if task.over]:
            self.open.remove(task)
            self.ended.append(task)

    def run(self):
        try:
            while not self.stopping:
                self.turn()
        except Exception as error:  # noqa: BLE001 - the run fails for it, with its text
            self.error = error
            raise


class Caller(Asker):
    def __init__(self, stack, journal, seed, number):
        super().__init__("caller", stack, journal, seed, number)
        self.clients = {token: [rig.Client(api.port, token, timeout=10) for api in stack.apis]
                        for token in rig.TOKENS}

    # --- requests ---

    def ask(self, what, task, send, token=None):
        """send(client) to one API process; its answer, or None when there was none."""
        api = self.dice.randrange(len(self.stack.apis))
        self.doing = (api, what, task)
        try:
            answer = send(self.clients[token or task.token][api])
        except LOST:
            time.sleep(0.01)
            return None
        finally:
            self.doing = None
        if answer.status in (429, 503):
            executed = (answer.data or {}).get("executed")
            if executed not in (None, "no", "maybe"):
                self.journal.findings.add("wire", "503 with a strange executed", answer=answer)
            time.sleep(0.02)
            return None
        return answer

    def call(self, task, what="call"):
        answer = self.ask(what, task, lambda client: client.call(task.tool, task.arguments))
        if answer is None:
            return
        if answer.handle:
            self.journal.handle(task, answer, what)
        elif answer.structured.get("type") == "effect_expired" and task.may_be_gone():
            task.told_gone()
        else:
            self.journal.violation("V1", f"a {what} was answered oddly", task, answer=answer)
            task.gone = True

    def poll(self, task):
        answer = self.ask("get", task, lambda client: client.get(task.handle))
        if answer is not None and answer.status == 200:
            self.journal.seen(task, answer)
        elif answer is not None:
            self.journal.violation("wire", "tasks/get was answered oddly", task, answer=answer)

    def cancel(self, task):
        answer = self.ask("cancel", task, lambda client: client.cancel(task.handle))
        if answer is None:
            return
        task.cancel_at = None
        if answer.error is not None:
            self.journal.violation("V2", "a cancel does not find its task", task, answer=answer)
            return
        task.cancelled = True
        self.journal.told(task, "cancel acknowledged")

    def conflict(self, task):
        """The same effect ID with other arguments is refused, whatever became of the first."""
        other = task.arguments | {"n": task.arguments["n"] + 1}
        answer = self.ask("conflict", task, lambda client: client.call(task.tool, other))
        wanted = ("idempotency_key_conflict",) + (("effect_expired",) if task.may_be_gone() else ())
        if answer is not None and answer.structured.get("type") not in wanted:
            self.journal.violation("I9", "other arguments were not refused", task, answer=answer)

    def foreign(self, task):
        """Neither another owner nor a sibling of the tenant learns that the task exists."""
        token = self.dice.choice([name for name in rig.TOKENS if name != task.token])
        answer = self.ask("foreign", task, lambda client: client.get(task.handle), token)
        if answer is not None and answer.code != NOT_FOUND:
            self.journal.violation("V8", f"{token} reads a task of {task.token}", task,
                                   answer=answer)

    # --- the life of a caller ---

    def begin(self):
        self.count += 1
        tool = self.dice.choices(list(shapes.WEIGHTS), list(shapes.WEIGHTS.values()))[0]
        token = self.dice.choice(["rig-alice", "rig-alice", "rig-bob"])
        # Two owners use the same effect IDs.
        effect_id = f"c{self.number}-{self.count if token == 'rig-alice' else self.count - 1}"
        slow = shapes.BRIEF_SLOW_MS if tool == "chaos_brief" else (0, 250)
        if (token, effect_id) in self.journal.tasks:
            return
        task = Task(tool, {"effect_id": effect_id, "n": self.count, "ms": self.dice.randrange(20),
                           "slow_ms": self.dice.randint(*slow)}, token)
        if tool in shapes.CANCELLED and (tool == "chaos_cancel" or self.dice.random() < 0.5):
            task.cancel_at = time.monotonic() + self.dice.random() * 0.25
        self.open.append(self.journal.add(task))

    def step(self, task):
        now = time.monotonic()
        chance = self.dice.random()
        if task.handle is None:
            self.call(task)
        elif task.cancel_at is not None and now >= task.cancel_at:
            self.cancel(task)
        elif chance < 0.04:
            self.call(task, "repeat")
        elif chance < 0.06:
            self.conflict(task)
        elif chance < 0.08:
            self.foreign(task)
        else:
            self.poll(task)
        task.next_at = time.monotonic() + 0.02

    def again(self):
        """Something that ended is asked for once more."""
        task = self.dice.choice(self.ended)
        if task.gone or task.handle is None:
            return
        self.dice.choice([self.poll, self.poll, self.conflict, self.foreign,
                          lambda one: self.call(one, "repeat")])(task)

    def turn(self):
        task = self.due()
        if task:
            self.step(task)
        elif self.ended and self.accepting and self.dice.random() < 0.2:
            self.again()
        self.put_away()
        time.sleep(PAUSE_S)

    def run(self):
        try:
            super().run()
        finally:
            for client in itertools.chain(*self.clients.values()):
                client.close()
