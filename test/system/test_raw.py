#!/usr/bin/python3
"""Each request of raw_cases.py gets its one answer: status, code, id, what becomes of the
connection, and how many effects are in the ledger when all is done. A refusal stores nothing, no
answer is a redirect, and one process serves them all (B001-B004, B007-B010, B013, B027, B028)."""

import json
import socket
import time

import rig
from patience import soon
from raw_cases import CASES, EMPTY
from rig import check, equal

STILL_S = 1.0  # what a refusal must not delay
IDLE_MS = 3000
ANSWER_S_MAX = 30
COUNT = 155

# The slow ones have an API of their own, so that no honest request races its short times.
stack = rig.Stack(apis=2, workers=2, settings={"worker": {"poll_ms": 100}})
stack.apis[1].terminate()
port = stack.apis[0].port
idle_port = stack.apis[1].port
stack.apis[1] = stack.start_holdfast(
    "api-idle", "api", listen=f"127.0.0.1:{idle_port}", tokens_file=stack.folder / "tokens",
    keys_file=stack.folder / "keys", header_timeout_ms=IDLE_MS, body_timeout_ms=IDLE_MS)
stack.apis[1].port = idle_port
rig.until(lambda: stack.ready(stack.apis[1]), 20, "the idle API ready")
pids = [api.pid for api in stack.apis]
old = stack.client()  # one kept connection beside all that is sent
remembered = {}
counts = {"requests": 0, "answers": 0, "effects": 0}


# --- sending --------------------------------------------------------------------------------------

class Reader:
    """Answers off a socket, one by one."""

    def __init__(self, connection, bodyless=False):
        self.connection, self.bodyless = connection, bodyless
        self.got = b""

    def more(self):
        try:
            part = self.connection.recv(65536)
        except ConnectionResetError:
            part = b""
        self.got += part
        return bool(part)

    def take(self, size):
        while len(self.got) < size and self.more():
            pass
        taken, self.got = self.got[:size], self.got[size:]
        return taken

    def line_end(self, mark):
        while mark not in self.got and self.more():
            pass
        part, _, self.got = self.got.partition(mark)
        return part

    def chunks(self):
        body = b""
        while size := int(self.line_end(b"\r\n") or b"0", 16):
            body += self.take(size)
            self.take(2)
        self.take(2)
        return body

    def answer(self):
        """An rig.Answer, or None at the end of the stream."""
        head = self.line_end(b"\r\n\r\n")
        if not head:
            return None
        answer = rig.parse_raw(head + b"\r\n\r\n")
        body = b""
        if answer.headers.get("transfer-encoding") == "chunked":
            body = self.chunks()
        elif answer.status >= 200 and not self.bodyless:
            body = self.take(int(answer.headers["content-length"]))
        return rig.Answer(answer.status, answer.headers, body)


def send(case, connection, data):
    """True when answers are to be read."""
    if case.how == "dribble":
        for byte in data:
            connection.sendall(bytes([byte]))
    elif case.how in ("continue", "head alone"):
        connection.sendall(data[:data.index(b"\r\n\r\n") + 4])
    else:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all of it was sent
    if case.how == "half-close":
        connection.shutdown(socket.SHUT_WR)


def exchange(case):
    """(answers, interim ones, whether the server then closed)."""
    at = idle_port if case.how == "idle" else port
    data = case.data.replace(b"{HOST}", b"127.0.0.1:%d" % at).replace(b"{PATH}", b"/mcp")
    with socket.create_connection(("127.0.0.1", at), timeout=ANSWER_S_MAX) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send(case, connection, data)
        if case.how == "leave":
            return [], [], False
        reader = Reader(connection, bodyless=case.how == "no body")
        interim = []
        if case.how == "continue":
            interim.append(reader.answer())
            connection.sendall(data[data.index(b"\r\n\r\n") + 4:])
        answers = [reader.answer() for _ in case.status]
        return answers, interim, ends(connection, case.closes, reader)


def ends(connection, expected, reader):
    """Waits for the end only where it should come; else looks for a moment."""
    connection.settimeout(ANSWER_S_MAX if expected else 0.01)
    try:
        return not reader.got and not reader.more()
    except TimeoutError:
        return False


# --- what else must hold --------------------------------------------------------------------------

def still_serving():
    for client in (old, stack.client()):
        began = time.monotonic()
        equal(client.request("tools/list", {}).status, 200, "tools/list right after it")
        soon(began, STILL_S, "tools/list right after it: soon")


def handle(answer):
    result = answer.result if isinstance(answer.result, dict) else {}
    return result.get("resultType") == "task" and "task" not in result and "ttlMs" in result and all(
        isinstance(result.get(name), str) for name in ("taskId", "status", "createdAt",
                                                       "lastUpdatedAt"))


def holds(name, case, answers):
    """Whether the named check holds of the answers."""
    answer = answers[0] if answers else None
    name, _, detail = name.partition(":")
    if name == "still_serving":
        still_serving()
        return True
    if name == "remember":
        remembered[detail] = answer.task_id
        return handle(answer)
    if name in ("same", "other"):
        return handle(answer) and (answer.task_id == remembered[detail]) == (name == "same")
    if name == "digits":
        return handle(answer) and digits(case.effect_ids[0], answer.task_id, detail)
    if name == "repeat":
        return repeat(case)
    headers = answer.headers
    result = answer.result or {}
    data = answer.data or {}
    return {
        "handle": lambda: handle(answer),
        "discover": lambda: result["resultType"] == "complete" and
        rig.VERSION in result["supportedVersions"] and "ttlMs" in result and "cacheScope" in result,
        "tools_list": lambda: "rig_report" in [tool["name"] for tool in result["tools"]] and
        old.request("tools/list", {}).result == result,
        "plain": lambda: result["resultType"] == "complete" and result["content"] and
        not result.get("isError"),
        "unsupported": lambda: rig.VERSION in data["supported"] and
        data["requested"] == "1900-01-01",
        "unsupported_legacy": lambda: rig.VERSION in data["supported"] and
        data["requested"] == "2025-11-25",
        "no_session": lambda: handle(answer) and "mcp-session-id" not in headers and
        b"\nid:" not in answer.body,
        "empty": lambda: answer.body == b"",
        "unchunked": lambda: "transfer-encoding" not in headers,
        "says_codings": lambda: headers.get("accept-encoding") == "identity",
        "uncoded": lambda: handle(answer) and "content-encoding" not in headers,
        "allow": lambda: headers.get("allow") == "POST",
        "no_cors": lambda: "access-control-allow-origin" not in headers,
        "challenge": lambda: headers.get("www-authenticate", "").startswith("Bearer"),
        "second": lambda: answers[1].id == "p2" and answers[1].result is not None,
    }[name]()


def digits(effect_id, task_id, text):
    """The same digits in the row, at the tool and so in the ledger's request."""
    old.wait(task_id)
    stored = stack.query("SELECT arguments FROM holdfast.task WHERE effect_id = %s", (effect_id,))
    sent = [line["body"] for line in stack.requests("/ledger") if effect_id in line["body"]]
    return (text in str(stored[0][0]) if isinstance(stored[0][0], str)
            else text.encode() in bytes(stored[0][0])) and text in sent[0]


def repeat(case):
    """The client is gone, the task is not: each repeat is given the same handle."""
    again = [old.call("rig_report", {"effect_id": case.effect_ids[0], "month": "2026-09"})
             for _ in range(3)]
    return all(handle(answer) and answer.task_id == again[0].task_id for answer in again)


# --- the table ------------------------------------------------------------------------------------

def look(case, answers, interim, closed):
    what = f"{case.number:03} {case.name}"
    if not equal([answer and answer.status for answer in answers], list(case.status),
                 f"{what}: status"):
        return
    equal([(one.status, dict(one.headers)) for one in interim],
          [(100, {})] if case.how == "continue" else [], f"{what}: interim answers")
    equal(closed, case.closes, f"{what}: closed behind it")
    if answers:
        first = answers[0]
        got = first.structured.get("type") if isinstance(case.code, str) else first.code
        equal(got, case.code, f"{what}: code")
        wanted = None if case.id is EMPTY else case.id
        check(first.id == wanted and type(first.id) is type(wanted), f"{what}: id", repr(first))
        check(case.id is not EMPTY or not isinstance(first.json, dict) or "id" not in first.json,
              f"{what}: no id member", repr(first))
        if case.code is not None and isinstance(case.code, str):
            equal(first.structured.get("executed"), "no", f"{what}: executed")
    # All of them can be answered in JSON, also those that would take a stream (B004).
    equal({answer.headers.get("content-type") for answer in answers
           if answer.body or case.how == "no body"} - {"application/json"}, set(),
          f"{what}: type of the answer")
    check(not any(300 <= answer.status < 400 for answer in answers), f"{what}: never a redirect")
    check(not case.check or holds(case.check, case, answers), f"{what}: {case.check}",
          [repr(answer) for answer in answers])


def settled():
    """Every task has ended."""
    return stack.query("SELECT count(*) FROM holdfast.work")[0][0] == 0


def main():
    equal(len(CASES), COUNT, "requests in the table")
    for case in CASES:
        answers, interim, closed = exchange(case)
        counts["requests"] += 1
        counts["answers"] += len(answers)
        try:
            look(case, answers, interim, closed)
        except (KeyError, TypeError, IndexError) as error:
            check(False, f"{case.number:03} {case.name}: {case.check}",
                  f"{error!r} {[repr(answer) for answer in answers]}")
    rig.until(settled, 60, "all tasks end")
    effects = stack.effects_by_id()
    for case in CASES:
        got = sum(effects.get(effect_id, 0) for effect_id in case.effect_ids)
        equal(got, case.effects, f"{case.number:03} {case.name}: effects")
        rows = sum(len(stack.task_rows(effect_id)) for effect_id in case.effect_ids
                   if "\0" not in effect_id)
        equal(rows, case.effects, f"{case.number:03} {case.name}: tasks")
        counts["effects"] += got
    # Pairs share their effects; nothing beyond the table was accepted.
    whole = {effect_id: case.effects for case in CASES for effect_id in case.effect_ids
             if case.effects}
    equal(len(stack.ledger()), sum(whole.values()), "effects in the ledger")
    equal({line["tool"] for line in map(body_of, stack.requests("/ledger"))}, {"rig_report"},
          "no other tool ran")
    equal([api.alive() and api.pid for api in stack.apis], pids, "the same processes throughout")
    rig.finish("raw", counts, {"requests": COUNT, "effects": 32})


def body_of(line):
    return json.loads(line["body"])


main()
