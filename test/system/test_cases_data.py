#!/usr/bin/python3
"""Public failing cases B025 (NUL) and B026 (what is no UTF-8), and their kind: whatever bytes a
caller, a tool, a downstream or an SQL phase says, in whichever member, the task ends at once and in
one try, the wire carries strict JSON, and no text is cut short without saying so. What is refused
on its way in is not stored and leaves its key free."""

import codecs
import functools
import gzip
import json
import re
import sys
import threading
import time

import rig
from patience import between, soon
from rig import check, equal

LANES = 4
END_S = 2.0  # from the last word of the handler to the terminal state (B025)
MEBIBYTE = 1 << 20
counts = {"frames": 0, "plain": 0, "steps": 0, "http": 0, "sql": 0, "inbound": 0}

# name -> (bytes, whether they are UTF-8 that a text may hold)
TEXTS = {
    "NUL inside": (b"line1\0line2", False), "NUL first": (b"\0line1line2", False),
    "NUL last": (b"line1line2\0", False), "CP949": (bytes.fromhex("bab8b0edbcad"), False),
    "cut in a character": (b"line1\xeb\xb3\xb4\xea", False), "0xff": (b"line1\xff\xfeline2", False),
    "overlong NUL": (b"line1\xc0\x80line2", False), "overlong slash": (b"\xe0\x80\xaf", False),
    "a surrogate": (b"line1\xed\xa0\x80line2", False),
    "CESU-8": (b"\xed\xa0\xbd\xed\xb8\x80", False),
    "beyond U+10FFFF": (b"\xf4\x90\x80\x80", False), "lone continuation": (b"a\x80b", False),
    "Latin-1": ("Zürich".encode("latin-1"), False), "UTF-16": ("Zürich".encode("utf-16"), False),
    "a BOM": (b"\xef\xbb\xbfline1", True), "U+2028": ("a\u2028b\u2029c".encode(), True),
    "controls": (b"a\x01\x1b[31m\x7f\r\nb", True), "U+FFFE": ("a\ufffe\uffffb".encode(), True),
    "U+10FFFF": ("a\U0010ffff\U0001f600b".encode(), True), "quotes": (b'a"\\/\\u0000b', True),
    "SSE": (b"ok\n\nevent: message\ndata: {}\n\n", True), "empty": (b"", True),
}


def plain_tool(name, script, **members):
    """One phase in plain mode, the python script; its folder."""
    return make(name, {"name": "work", "kind": "program", "mode": "plain", "command": ["./work"],
                       "effect": "pure", "timeout_ms": 30_000, "attempts": 4, "backoff_first_ms": 20,
                       "env": ["RIG_FOLDER"]},
                programs={"work": f"#!{sys.executable}\n{script}"}, **members)


def sql_tool(name, statement):
    return make(name, {"name": "work", "kind": "sql", "file": "work.sql", "effect": "local"},
                files={"work.sql": statement})


def make(name, phase, **more):
    return rig.make_tool(name, [phase], {"say": rig.TEXT, "anything": {}}, **{
        "poll_interval_ms": 50,
        "result": {"text": "done", "structured": {"last": {"$from": "/state/work"}}}, **more})


# `say` is a list of [stream, hex, pause in ms]; streams: out, err, exit, or a file of artifacts.
SAYS = '''
import json, os, subprocess, sys, time
say = json.loads(json.load(sys.stdin)["say"])
with open(os.environ["RIG_FOLDER"] + "/" + os.environ["HOLDFAST_EFFECT_ID"] + ".log", "a") as log:
    log.write("start\\n")
for stream, text, pause_ms in say:
    data = bytes.fromhex(text)
    if stream == "exit":
        os._exit(int(data))
    if stream == "step":
        got = subprocess.run(["holdfast", "step", b"a", "--", sys.executable, "-c",
            "import os, sys; os.write(1, bytes.fromhex(sys.argv[1]))", text], stdout=-1).stdout
        again = subprocess.run(["holdfast", "step", b"a", "--", "false"], stdout=-1).stdout
        os.write(1, json.dumps({"same": [got == data, again == data]}).encode())
    elif stream == "step name":
        done = subprocess.run(["holdfast", "step", data, "--", "echo", "x"], stdout=-1)
        os.write(1, json.dumps({"status": done.returncode}).encode())
    elif stream == "step progress":
        done = subprocess.run(["holdfast", "step", "--progress", "0.5", data])
        time.sleep(1)
        os.write(1, json.dumps({"status": done.returncode}).encode())
    elif stream.startswith("file "):
        folder = os.fsencode(os.environ["HOLDFAST_ARTIFACTS"])
        with open(folder + b"/" + bytes.fromhex(stream[5:]), "wb") as file:
            file.write(data)
    else:
        while data:
            data = data[os.write({"out": 1, "err": 2}[stream], data):]
    time.sleep(pause_ms / 1000)
'''
# A tool each; what its phase returns.
SQL_TOOLS = {
    "an_escaped_nul": "'{\"a\": \"x\\u0000y\"}'", "a_lone_surrogate": "'{\"a\": \"\\ud800\"}'",
    "a_pair": "'{\"a\": \"\\ud83d\\ude00\"}'", "not_json": "'all is well'", "cut": "'{\"a\": '",
    "null_column": "NULL::text", "nan": "'{\"a\": NaN}'", "twice": "'{\"a\": 1, \"a\": 2}'",
    "controls": "E'{\"a\": \"x\\x01y\"}'", "deep": "repeat('[', 1500) || repeat(']', 1500)",
    "large": "'\"' || repeat('é', 400000) || '\"'",
    "over_a_mib": "'\"' || repeat('é', 700000) || '\"'",
    "big_integer": "'{\"a\": 18446744073709551615}'",
    "nul_made": "chr(length($1) - length($1))", "bytes": "convert_from('\\xff'::bytea, 'UTF8')",
    "jsonb_of_nul": "('{\"a\": \"x\\u0000' || length($1) || '\"}')::jsonb::text",
    "raises": "(1 / (length($1) - length($1)))::text", "no_row": "'{}' WHERE $1 = ''",
    "two_rows": "unnest(array['{}', '{}'])"}
SQL_GOOD = {"a_pair": {"a": "\U0001f600"}, "large": "é" * 400_000,
            "big_integer": {"a": 18446744073709551615}}
stack = rig.Stack(workers=1, tools=[rig.probe_tool(), rig.http_tool(), plain_tool("says", SAYS),
                                    sql_tool("reads", "SELECT json_build_object('got', "
                                             "$1::jsonb -> 'anything')::text"),
                                    *(sql_tool(name, f"SELECT {what}")
                                      for name, what in SQL_TOOLS.items())],
                  settings={"worker": {"beat_ms": 200, "poll_ms": 100}})
local = threading.local()


class Refused(ValueError):
    pass


def own():
    """This thread's client."""
    if not hasattr(local, "client"):
        local.client = stack.client()
    return local.client


def of_each_text(part):
    """All of TEXTS, a few at a time."""
    @functools.wraps(part)
    def whole():
        def lane(number):
            for name, text in list(TEXTS.items())[number::LANES]:
                part(name, *text)

        rig.in_parallel(lane, range(LANES))

    return whole


def pairs(members):
    names = [name for name, _ in members]
    if len(set(names)) != len(names):
        raise Refused(f"a member twice: {names}")
    return dict(members)


def refuse(text):
    raise Refused(text)


def strict(answer, what):
    """The body is strict UTF-8 and strict JSON, without a lone surrogate; its value."""
    try:
        text = answer.body.decode("utf-8", "strict")
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode("utf-8", "strict")
    except ValueError as error:
        check(False, f"{what}: strict JSON", f"{error}: {answer.body[:300]!r}")
        return {}
    check(answer.status == 200, f"{what}: status", repr(answer))
    return value


def finish(answer, what, status="completed"):
    """Waits for the end; the strict task. It must be there soon."""
    if not check(answer.handle, f"{what}: a handle", repr(answer)):
        return {}
    end = own().wait(answer.task_id, 30)
    task = strict(end, what).get("result", {})
    equal(task.get("status"), status, f"{what}: {status}")
    if task.get("status") != status:
        print("   ", json.dumps(task)[:600], flush=True)
    return task


def text_of(task):
    return " ".join(block.get("text", "")
                    for block in (task.get("result") or {}).get("content", []))


def told_whole(data, text):
    """Nothing is cut: what is well-formed on both sides of the bad bytes is there."""
    return all(part in text for part in ("line1", "line2") if part.encode() in data)


def lasted(task):
    """Seconds, less what the machine stood still."""
    return between(*(rig.seconds_of(task[name]) for name in ("createdAt", "lastUpdatedAt")))


def probe(plan, what, status="completed"):
    effect_id = rig.new_id("data")
    answer = own().call("probe", {"effect_id": effect_id, "plan": json.dumps(plan)})
    task = finish(answer, what, status)
    starts = stack.run_log(effect_id, "start")
    last = starts[-1]["phase"] if starts else None
    equal(len([line for line in starts if line["phase"] == last]), 1, f"{what}: one try")
    if task:
        check(lasted(task) < END_S, f"{what}: soon", task)
    counts["frames"] += 1
    return task


def refused_by_name(task, what):
    check((task.get("result") or {}).get("isError") is True and text_of(task),
          f"{what}: isError that says why", task)


@of_each_text
def b025_b026_in_a_result_of_frames(name, data, good):
    odd = {"$text": data.hex()}
    for place, value in (("value", odd), ("a member", {"a": [1, odd]}),
                         ("long", {"a": {"$text": (b"x" * 70_000 + data).hex()}})):
        what = f"B025/B026 frames, result, {place}: {name}"
        task = probe({"P3": [{"say": {"t": "result", "value": value}}]}, what)
        if b"\0" in data:
            refused_by_name(task, what)
            continue
        # Its work is done: what is no text in it is replaced, the rest of it stands.
        equal(task["result"]["isError"], False, f"{what}: no error")
        wanted = ("x" * 70_000 if place == "long" else "") + data.decode("utf-8", "replace")
        got = task["result"]["structuredContent"]["last"]
        got = got if place == "value" else got["a"]
        got = got[1] if place == "a member" else got
        marks = [re.sub("\ufffd+", "\ufffd", text) for text in (got, wanted)]
        equal(got if good else marks[0], wanted if good else marks[1], f"{what}: whole")


@of_each_text
def b025_b026_in_other_words_of_frames(name, data, good):
    odd = {"$text": data.hex()}
    what = f"B025/B026 frames, error: {name}"
    task = probe({"P1": [{"say": {"t": "error", "text": odd}}]}, what)
    refused_by_name(task, what)
    check(told_whole(data, text_of(task)), f"{what}: not cut", text_of(task))
    if good and name != "controls":  # other than line ends they come as ?
        check(data.decode() in text_of(task), f"{what}: whole", text_of(task))
    what = f"B025/B026 frames, progress: {name}"
    task = probe({"P1": [{"say": {"t": "progress", "fraction": 0.5, "text": odd}},
                         {"sleep_ms": 300}]}, what)
    what = f"B025/B026 frames, checkpoint: {name}"
    task = probe({"P1": [{"say": {"t": "checkpoint", "name": "c", "value": odd}}]}, what)
    if b"\0" in data:
        refused_by_name(task, what)
    binary = {"$bytes": data.hex()}
    for place, frame in (
            ("checkpoint's name", {"t": "checkpoint", "name": odd, "value": 1}),
            ("recalled name", {"t": "recall", "name": odd}),
            ("artifact's name", {"t": "artifact", "name": odd, "media_type": "text/plain",
                                 "data": {"$bytes": "00ff"}}),
            ("media type", {"t": "artifact", "name": "a", "media_type": odd,
                            "data": {"$bytes": "00ff"}}),
            ("artifact", {"t": "artifact", "name": "a", "media_type": "text/plain",
                          "data": binary})):
        what = f"B025/B026 frames, {place}: {name}"
        task = probe({"P1": [{"say": frame}]}, what)
        if place != "artifact" and (not good or not data or name in ("controls", "SSE")):
            refused_by_name(task, what)
        else:
            equal(task.get("result", {}).get("isError"), False, f"{what}: taken")


def says(say, what):
    effect_id = rig.new_id("data")
    began = time.monotonic()
    answer = own().call("says", {"effect_id": effect_id, "say": json.dumps(say)})
    task = finish(answer, what)
    soon(began, 10, f"{what}: soon")
    started = (stack.folder / f"{effect_id}.log").read_text().count("start")
    equal(started, 1, f"{what}: one try")
    counts["plain"] += 1
    return task


def last(task):
    return ((task.get("result") or {}).get("structuredContent") or {}).get("last")


@of_each_text
def b025_b026_in_the_output_of_a_plain_program(name, data, good):
    what = f"B025/B026 plain, stderr: {name}"
    task = says([["err", data.hex(), 0], ["exit", b"3".hex(), 0]], what)
    refused_by_name(task, what)
    check(told_whole(data, text_of(task)), f"{what}: not cut", text_of(task))
    what = f"B025/B026 plain, stdout in a string: {name}"
    escaped = data
    if good:
        escaped = json.dumps(data.decode(), ensure_ascii=False).encode()[1:-1]
    task = says([["out", (b'{"a": "' + escaped + b'"}').hex(), 0]], what)
    if good:
        equal(last(task), {"a": data.decode()}, f"{what}: whole")
    else:
        refused_by_name(task, what)
    what = f"B025/B026 plain, bare stdout: {name}"
    task = says([["out", data.hex(), 0]], what)
    if name != "empty":
        refused_by_name(task, what)


def b026_output_in_many_pieces():
    whole = json.dumps({"a": "ü€\U0001f600" * 3}, ensure_ascii=False).encode()
    pieces = [["out", whole[n:n + 1].hex(), 2] for n in range(len(whole))]
    equal(last(says(pieces, "B026 plain, byte by byte")), json.loads(whole), "B026 put together")
    errors = [["err", byte.hex(), 2] for byte in (b"ab\xe2", b"\x82", b"\xac cd")]
    task = says([*errors, ["exit", b"1".hex(), 0]], "B026 plain, stderr in pieces")
    check("ab€ cd" in text_of(task), "B026 plain, stderr in pieces: put together", text_of(task))
    task = says([["err", (b"\xff\0\xe2\x82" * 500_000).hex(), 0], ["err", b"the end".hex(), 0],
                 ["exit", b"1".hex(), 0]], "B026 plain, 2 MB of bad bytes on stderr")
    check("the end" in text_of(task), "B026 plain, the end of 2 MB", text_of(task)[-100:])
    for bytes_n, good in ((1_000_000, True), (MEBIBYTE + 1, False)):
        text = b'"' + "ü".encode() * ((bytes_n - 2) // 2) + b"x" * (bytes_n % 2) + b'"'
        task = says([["out", text[:700_001].hex(), 5], ["out", text[700_001:].hex(), 0]],
                    f"B026 plain, {bytes_n} bytes of stdout")
        if good:
            kept = json.dumps(task.get("result", {}))
            check(not task["result"].get("isError"), "B026 plain, a MB: taken", kept[:300])
        else:
            refused_by_name(task, "B026 plain, over a MiB")


@of_each_text
def b025_b026_in_steps_and_files(name, data, good):
    what = f"B025/B026 step's output: {name}"
    equal(last(says([["step", data.hex(), 0]], what)), {"same": [True, True]}, what)
    task = says([["file " + b"a.txt".hex(), data.hex(), 0], ["out", b"{}".hex(), 0]],
                f"B025/B026 artifact: {name}")
    counts["steps"] += 1
    if b"\0" in data:
        return
    if data:
        says([["step name", data.hex(), 0]], f"B026 step's name: {name}")
        says([["step progress", data.hex(), 0]], f"B026 step's progress: {name}")
    if data and b"/" not in data:
        says([["file " + data.hex(), b"x".hex(), 0], ["out", b"{}".hex(), 0]],
             f"B026 artifact's name: {name}")


def answer(status, *headers, body=b""):
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers, b"",
                         body])


def chunked(*chunks):
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
        b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def http(raw, what, sends_max=1):
    path = stack.folder / rig.new_id("script")
    path.write_bytes(raw)
    stack.steer(script=[str(path)])
    effect_id = rig.new_id("data")
    handle = own().call("deliver", {"effect_id": effect_id})
    end = own().wait(handle.task_id, 30)
    task = strict(end, what).get("result", {})
    sends = [line for line in stack.requests("/ledger") if effect_id in line.get("body", "")]
    check(1 <= len(sends) <= sends_max, f"{what}: sends", len(sends))
    equal(len({line["key"] for line in sends}), 1, f"{what}: one key")
    counts["http"] += 1
    return task


def got_from(task):
    return ((task.get("result") or {}).get("structuredContent") or {}).get("answer")


def replaced(data):
    """What a text becomes whose bytes are not all text: a ? for each that is none."""
    return data.replace(b"\0", b"?").decode("utf-8", "hf_question")


codecs.register_error("hf_question", lambda error: ("?" * (error.end - error.start), error.end))


def b025_b026_in_answers_of_a_downstream():
    """An answer of success is a success, whatever bytes it holds: it happened. As JSON where it is
    that, else as text with what is no text replaced, nothing cut."""
    for name, (data, good) in TEXTS.items():
        escaped = json.dumps(data.decode(), ensure_ascii=False).encode()[1:-1] if good else data
        body = b'{"a": "' + escaped + b'"}'
        for form, raw in (("plain", answer(b"200 OK", body=body)),
                          ("chunked", chunked(*(body[n:n + 1] for n in range(len(body))))),
                          ("by the name of Latin-1", answer(
                              b"201 Created", b"Content-Type: text/plain; charset=iso-8859-1",
                              body=body)),
                          ("until it closes", b"HTTP/1.0 200 OK\r\n\r\n" + body)):
            what = f"B025/B026 downstream, {form}: {name}"
            task = http(raw, what)
            equal(task.get("status"), "completed", f"{what}: completed")
            got = got_from(task)
            if good:
                equal(got, {"a": data.decode()}, f"{what}: whole")
            else:
                equal(squeeze(got["text"]), squeeze(replaced(body)), f"{what}: replaced, not cut")
        what = f"B025/B026 downstream, not JSON: {name}"
        got = got_from(http(answer(b"200 OK", b"Content-Type: image/png", body=data), what))
        if data and name != "controls":
            equal(squeeze(got["text"]), squeeze(replaced(data)), f"{what}: as text")
        what = f"B025/B026 downstream, refusal: {name}"
        task = http(answer(b"422 No", body=data), what)
        equal(task.get("status"), "failed", f"{what}: failed")
        line = data.replace(b"\n", b"").replace(b"\r", b"")
        # No HTTP client reads a head with NUL: that is no answer, and the same is asked again.
        sends_max = 2 if b"\0" in data else 1
        for form, raw in (("a header", answer(b"200 OK", b"X-Odd: a" + line, body=b"{}")),
                          ("the reason", answer(b"422 " + line, body=b"{}"))):
            http(raw, f"B025/B026 downstream, {form}: {name}", sends_max)
        what = f"B026 downstream, compressed unasked: {name}"
        task = http(answer(b"200 OK", b"Content-Encoding: gzip", body=gzip.compress(body)), what)
        equal(task.get("error", {}).get("data", {}).get("executed"), "maybe", f"{what}: said so")


def squeeze(text):
    """One mark for a run of bad bytes: how many is the decoder's affair."""
    return re.sub(r"\?+", "?", text)


def b025_b026_in_json_of_a_downstream():
    """Strict JSON or text; a spelling that is not JSON never reaches the client as JSON."""
    for name, body, wanted in (
            ("an escaped NUL", b'{"a": "x\\u0000y"}', None),
            ("BOM before", b'\xef\xbb\xbf{"a": 1}', None),
            ("a lone surrogate", b'{"a": "\\ud800"}', None),
            ("a surrogate pair", b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
            ("turned surrogates", b'{"a": "\\ude00\\ud83d"}', None),
            ("NUL in a name", b'{"a\\u0000b": 1}', None), ("NaN", b'{"a": NaN}', None),
            ("twice", b'{"a": 1, "a": 2}', None), ("cut", b'{"a": "x', None),
            ("deep", b"[" * 1500 + b"]" * 1500, None), ("two", b"{} {}", None),
            ("2^53 + 1", b'{"a": 9007199254740993}', {"a": 9007199254740993}),
            ("2^64 - 1", b'{"a": 18446744073709551615}', {"a": 18446744073709551615}),
            ("2^70", b'{"a": 1180591620717411303424}', {"a": 1180591620717411303424}),
            ("a bare text", '"é"'.encode(), "é"), ("null", b"null", "null"),
            ("600 kB", json.dumps({"a": "é" * 300_000}, ensure_ascii=False).encode(), "whole")):
        what = f"B025/B026 downstream, JSON: {name}"
        task = http(answer(b"200 OK", b"Content-Type: application/json", body=body), what)
        got = got_from(task)
        if name == "600 kB":
            check(task.get("status") == "completed", f"{what}: completed", task.get("error"))
        elif name == "null":
            equal((task.get("status"), got), ("completed", None), what)
        elif wanted is not None:
            equal(got, wanted, f"{what}: whole")
        else:
            equal(squeeze(got["text"]), squeeze(body.decode()), f"{what}: as text, whole")


def b025_b026_in_sql_phases():
    """What an SQL phase returns, and what it makes of arguments that Postgres cannot hold."""
    for tool, wanted in SQL_TOOLS.items():
        what = f"B025/B026 sql, {tool}"
        effect_id = rig.new_id("data")
        handle = own().call(tool, {"effect_id": effect_id})
        if not check(handle.handle, f"{what}: a handle", repr(handle)):
            continue
        began = time.monotonic()
        task = strict(own().wait(handle.task_id, 30), what).get("result", {})
        soon(began, 5, f"{what}: soon")
        got = (last(task) if task.get("status") == "completed"
               else (task.get("error") or {}).get("message", ""))
        if tool in SQL_GOOD:
            equal(got, SQL_GOOD[tool], f"{what}: whole")
        else:
            equal(task.get("status"), "failed", f"{what}: failed, as the tool's author erred")
            check(any(word in got for word in ("returned no JSON", "must return one row",
                                               "SQLSTATE",
                                               "is over")), f"{what}: says why", got)
        counts["sql"] += 1
    for value in ("a\0b", {"a\0": 1}, ["\0"], "\ufffe", "\U0010ffff", "x" * 1_000_000):
        what = f"B025/B026 sql, argument {ascii(value)[:20]}"
        effect_id = rig.new_id("data")
        handle = own().call("reads", {"effect_id": effect_id, "anything": value})
        if not handle.handle:
            refused_in_full(handle, what)
            continue
        task = strict(own().wait(handle.task_id, 30), what).get("result", {})
        equal(last(task), {"got": value}, f"{what}: whole")
        counts["sql"] += 1


def refused_in_full(answer_, what):
    shown = answer_.structured or answer_.data or {}
    equal(shown.get("executed"), "no", f"{what}: refused, executed no")


def b025_b026_on_their_way_in():
    """Refused before anything is stored: the key stays free, the connection's next call works."""
    for name, (data, good) in TEXTS.items():
        if good and name not in ("controls", "SSE", "quotes"):
            continue
        for place, text in (("a value", b'"anything": "' + data + b'"'),
                            ("a name", b'"anything": {"' + data + b'": 1}'),
                            ("deep", b'"anything": [[{"a": ["' + data + b'"]}]]')):
            inbound(f"{name} in {place}", text, (400, -32700))
    for name, text, wanted in (
            ("a lone surrogate", b'"anything": "\\ud800"', (400, -32700)),
            ("turned surrogates", b'"anything": "\\ude00\\ud83d"', (400, -32700)),
            ("a lone surrogate in a name", b'"anything": {"\\udfff": 1}', (400, -32700)),
            ("an escaped NUL", b'"anything": "a\\u0000b"', None),
            ("an escaped NUL in a name", b'"anything": {"a\\u0000b": 1}', None)):
        inbound(name, text, wanted)
    body = own().body("says", {"effect_id": "x"}).replace(b'"x"', b'"eff\\u0000-a"')
    got = own().post(body, own().headers("tools/call", "says"))
    equal(got.structured.get("type"), "effect_id_invalid", "B025 NUL in the effect ID: refused")


def inbound(name, text, wanted):
    what = f"B025/B026 inbound, {name}"
    effect_id = rig.new_id("data")
    arguments = b'{"effect_id": "' + effect_id.encode() + b'", "say": "[]", ' + text + b"}"
    body = own().body("says", 0).replace(b'"arguments": 0', b'"arguments": ' + arguments)
    got = own().post(body, own().headers("tools/call", "says"))
    if wanted is None and got.handle:
        strict(own().wait(got.task_id), what)
        equal(stack.query("SELECT count(*) FROM holdfast.task WHERE effect_id = %s",
                          (effect_id,)), [(1,)], f"{what}: one row")
    else:
        if wanted:
            equal((got.status, got.code), wanted, f"{what}: refused")
        else:
            refused_in_full(got, what)
        equal(stack.task_rows(effect_id), [], f"{what}: nothing stored")
        task = finish(own().call("says", {"effect_id": effect_id, "say": "[]"}),
                      f"B034 {what}, corrected")
        check(task.get("result", {}).get("isError") is False,
              f"B034 {what}: the corrected call runs")
    counts["inbound"] += 1


rig.run(b025_b026_in_a_result_of_frames, b025_b026_in_other_words_of_frames,
        b025_b026_in_the_output_of_a_plain_program, b025_b026_in_steps_and_files,
        b026_output_in_many_pieces, b025_b026_in_answers_of_a_downstream,
        b025_b026_in_json_of_a_downstream, b025_b026_in_sql_phases, b025_b026_on_their_way_in)
for worker in stack.workers:
    check(worker.alive(), "B026 the worker lives")
rig.finish("cases_data", counts, {"frames": 240, "plain": 160, "steps": 22, "http": 210, "sql": 22,
                                  "inbound": 55})
