"""Clients that know no tasks: a plain tools/call that waits on its JSON or its stream, is cut off or
hangs up half way, and comes back with the same effect ID, to whichever API process, until it has
its result. It checks what the table of deploy/OPERATING.md promises such a client: one task, the
stored result byte for byte, "still running" past the window, and companions that say the same."""

import collections
import json
import time

import rig
import shapes
from load import LOST, Asker, Task

HANG_UP = 0.45          # share of calls that are left before their answer
WAYS = ("fin", "half", "reset")
ANSWER_S = 20
# Types of isError results that are no end of the task.
NOT_THE_END = ("still_running", "outcome_unknown", "idempotency_key_conflict", "effect_expired")


def kept(result):
    """The stored part: what no repeat may change."""
    return json.dumps({name: value for name, value in result.items()
                       if name not in ("resultType", "_meta")}, ensure_ascii=False)


class PlainCaller(Asker):
    """Hangs up now and then while it accepts new tasks."""

    OPEN_MAX = 5

    def __init__(self, stack, journal, seed, number):
        super().__init__("plain", stack, journal, seed, number)
        self.counts = collections.Counter()

    # --- one call ---

    def call(self, task, hang_up_s=None):
        """The message that answers, or None: left, cut off, or refused for now."""
        api = self.dice.randrange(len(self.stack.apis))
        accept = "application/json" + (", text/event-stream" if self.dice.random() < 0.85 else "")
        port = self.stack.apis[api].port
        headers = rig.Client(port, task.token).headers("tools/call", task.tool, {"Accept": accept})
        params = {"name": task.tool, "arguments": task.arguments, "_meta": rig.meta(False)}
        if self.dice.random() < 0.3:
            params["_meta"]["progressToken"] = "p"
        self.doing = (api, "plain", task)
        self.counts["calls"] += 1
        self.counts["came_back"] += task.calls > 0
        task.calls += 1
        if not self.accepting:
            task.returned_at = task.returned_at or time.time()
        held = None
        try:
            held = rig.HeldCall(port, params, headers, timeout=10)
            if hang_up_s is not None:
                end = time.monotonic() + hang_up_s
                while time.monotonic() < end and not held.closed and not held.body()[1]:
                    held.hear(0.01)
                if not held.body()[1]:
                    way = self.dice.choice(WAYS)
                    self.journal.told(task, "hung up", way=way, read=len(held.got))
                    self.counts["hung_up"] += 1
                    held.leave(way)
                    return None
            answer = held.answer(ANSWER_S)
            self.counts["streams" if held.streams else "answers"] += answer is not None
            if answer is None:
                self.counts["cut_off"] += 1
            return answer
        except LOST:
            self.counts["cut_off"] += 1
            time.sleep(0.01)
            return None
        finally:
            self.doing = None
            if held is not None:
                held.socket.close()

    def judge(self, task, answer):
        """What an answer says of its task."""
        error, result = answer.get("error"), answer.get("result") or {}
        data = (error or {}).get("data") or {}
        said = (result.get("structuredContent") or {}) if result.get("isError") else data
        self.journal.told(task, "plain", type=said.get("type"), error=error and error.get("code"))
        if error is not None and data.get("executed") in ("no", "maybe") and \
                error.get("code") == -32603 and data.get("type") not in ("phase_failed", "deadline"):
            time.sleep(0.02)  # 503 and the like: nothing is known of a task
            return
        effect = result.get("_meta", {}).get(rig.EFFECT_META, {})
        name = effect.get("taskId") or said.get("task_id")
        if name is not None:
            self.journal.named(task, name, effect.get("replayed"))
        if said.get("type") == "outcome_unknown":
            task.unknown = True
            if said.get("executed") != "maybe":
                self.journal.violation("V7", "unknown, and not maybe executed", task, answer=answer)
        elif said.get("type") == "still_running":
            self.counts["windows"] += 1
            if self.dice.random() < 0.5:
                self.companions(task)
        elif said.get("type") in NOT_THE_END:
            self.journal.violation("V1", "a plain call was answered oddly", task, answer=answer)
            task.gone = True
        else:
            end = kept(result) if error is None else json.dumps(error, ensure_ascii=False)
            self.ends(task, end, "a plain result changed")

    def ends(self, task, end, wrong):
        if task.plain_end is None:
            task.plain_end = end
        elif task.plain_end != end:
            self.journal.violation("V6", wrong, task, now=end, first=task.plain_end)

    def companions(self, task):
        """task_status waits a little, task_result tells what the call itself would tell."""
        client = rig.Client(self.stack.apis[self.dice.randrange(len(self.stack.apis))].port,
                            task.token, timeout=10)
        about = {"task_id": task.handle} if self.dice.random() < 0.5 else \
            {"effect_id": task.effect_id, "tool": task.tool}
        try:
            status = client.call("task_status", about | {"wait_ms": 300}, declare=False)
            result = client.call("task_result", about, declare=False)
        except LOST:
            return
        finally:
            client.close()
        self.counts["companions"] += 1
        if 200 not in (status.status, result.status):
            return
        for answer in (status, result):
            if answer.structured.get("type") in ("task_not_found", "not_found"):
                self.journal.violation("V2", "a companion does not find the task", task,
                                       answer=answer)
        if result.result and not result.structured.get("type") in NOT_THE_END and \
                result.status == 200:
            self.ends(task, kept(result.result), "task_result tells another result")

    # --- the life of such a client ---

    def begin(self):
        self.count += 1
        tools = shapes.PLAIN_WEIGHTS
        tool = self.dice.choices(list(tools), list(tools.values()))[0]
        token = self.dice.choice(["rig-alice", "rig-alice", "rig-bob"])
        # Slower than the API waits with its answer before it begins a stream, now and then.
        slow = self.dice.randint(900, 1600) if self.dice.random() < 0.3 else \
            self.dice.randrange(300)
        task = Task(tool, {"effect_id": f"p{self.number}-{self.count}", "n": self.count,
                           "ms": self.dice.randrange(20), "slow_ms": slow}, token)
        task.plain = True
        self.open.append(self.journal.add(task))

    def turn(self):
        task = self.due()
        if not task:
            time.sleep(0.005)
        elif not self.stopping:
            leaves = self.accepting and self.dice.random() < HANG_UP
            answer = self.call(task, self.dice.random() * 0.7 if leaves else None)
            if answer is not None:
                self.judge(task, answer)
            away = self.dice.random() * 0.8 if self.accepting and leaves else 0.02
            task.next_at = time.monotonic() + away
        if self.ended and self.accepting and self.dice.random() < 0.1:
            task = self.dice.choice(self.ended)
            answer = None if task.gone else self.call(task)
            if answer is not None:
                self.counts["repeats"] += 1
                self.judge(task, answer)
        self.put_away()
