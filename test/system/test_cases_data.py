#!/usr/bin/python3
"""Public failing cases B025 (NUL) and B026 (what is no UTF-8), and their kind: whatever bytes a
caller, a tool, a downstream or an SQL phase says, in whichever member, the task ends at once and in
one try, the wire carries strict JSON, and no text is cut short without saying so. What is refused
on its way in is not stored and leaves its key free."""

import atexit
import gzip
import json
import pathlib
import shutil
import sys
import tempfile
import time
import uuid

import rig
from rig import check, equal

END_S = 2.0  # from the last word of the handler to the terminal state (B025)
MEBIBYTE = 1 << 20
counts = {"frames": 0, "plain": 0, "steps": 0, "http": 0, "sql": 0, "inbound": 0}

# name -> (bytes, whether they are UTF-8 that a text may hold)
TEXTS = {
    "NUL inside": (b"line1\0line2", False), "NUL first": (b"\0line1line2", False),
    "NUL last": (b"line1line2\0", False), "CP949": (bytes.fromhex("bab8b0edbcad"), False),
    "cut in a character": (b"line1\xeb\xb3\xb4\xea", False), "0xff": (b"line1\xff\xfeline2", False),
    "overlong NUL": (b"line1\xc0\x80line2", False), "overlong slash": (b"\xe0\x80\xaf", False),
    "a surrogate": (b"line1\xed\xa0\x80line2", False), "CESU-8": (b"\xed\xa0\xbd\xed\xb8\x80", False),
    "beyond U+10FFFF": (b"\xf4\x90\x80\x80", False), "lone continuation": (b"a\x80b", False),
    "Latin-1": ("Zürich".encode("latin-1"), False), "UTF-16": ("Zürich".encode("utf-16"), False),
    "a BOM": (b"\xef\xbb\xbfline1", True), "U+2028": ("a\u2028b\u2029c".encode(), True),
    "controls": (b"a\x01\x1b[31m\x7f\r\nb", True), "U+FFFE": ("a\ufffe\uffffb".encode(), True),
    "U+10FFFF": ("a\U0010ffff\U0001f600b".encode(), True), "quotes": (b'a"\\/\\u0000b', True),
    "SSE": (b"ok\n\nevent: message\ndata: {}\n\n", True), "empty": (b"", True),
}


def plain_tool(name, script, **members):
    """One phase in plain mode, the python script; its folder."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-tool-")) / name
    atexit.register(shutil.rmtree, folder.parent, True)
    folder.mkdir()
    (folder / "work").write_text(f"#!{sys.executable}\n{script}")
    (folder / "work").chmod(0o755)
    return manifest(folder, [{"name": "work", "kind": "program", "mode": "plain",
                              "command": ["./work"], "effect": "pure", "timeout_ms": 30_000,
                              "attempts": 4, "backoff_first_ms": 20, "env": ["RIG_FOLDER"]}],
                    **members)


def sql_tool(name, statement):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-tool-")) / name
    atexit.register(shutil.rmtree, folder.parent, True)
    folder.mkdir()
    (folder / "work.sql").write_text(statement)
    (folder / "schema.sql").write_text("CREATE TABLE ran (effect_id text);\n")
    return manifest(folder, [{"name": "work", "kind": "sql", "file": "work.sql",
                              "effect": "local"}])


def manifest(folder, phases, **members):
    text = {"type": "string"}
    (folder / "tool.json").write_text(json.dumps({
        "name": folder.name, "description": "A tool of the tests.",
        "inputSchema": {"type": "object", "required": ["effect_id"], "additionalProperties": False,
                        "properties": {"effect_id": {**text, "minLength": 1}, "say": text,
                                       "anything": {}}},
        "poll_interval_ms": 50, "phases": phases,
        "result": {"text": "done", "structured": {"last": {"$from": "/state/work"}}}, **members}))
    return folder


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
# The argument `say` is evaluated, so that one tool says anything.
SQL_SAYS = '''
WITH noted AS (INSERT INTO ran SELECT $1::json ->> 'effect_id')
SELECT say_it($1::json ->> 'say')
'''
stack = rig.Stack(workers=1, tools=[rig.probe_tool(), rig.http_tool(), plain_tool("says", SAYS),
                                    sql_tool("reads", "SELECT json_build_object('got', "
                                             "$1::jsonb -> 'anything')::text")],
                  settings={"worker": {"beat_ms": 200, "lease_ms": 2000, "poll_ms": 100}})
client = stack.client()


class Refused(ValueError):
    pass


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
    end = client.wait(answer.task_id, 30)
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


def ms_between(task):
    def at(name):
        whole, _, part = task[name].rstrip("Z").partition(".")
        return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * 1000 + int(part or 0)
    return at("lastUpdatedAt") - at("createdAt")


def probe(plan, what, status="completed"):
    effect_id = f"data-{uuid.uuid4()}"
    answer = client.call("probe", {"effect_id": effect_id, "plan": json.dumps(plan)})
    task = finish(answer, what, status)
    starts = stack.run_log(effect_id, "start")
    last = starts[-1]["phase"] if starts else None
    equal(len([line for line in starts if line["phase"] == last]), 1, f"{what}: one try")
    if task:
        check(ms_between(task) < END_S * 1000, f"{what}: soon", task)
    counts["frames"] += 1
    return task


def refused_by_name(task, what):
    check((task.get("result") or {}).get("isError") is True and text_of(task),
          f"{what}: isError that says why", task)


def b025_b026_in_a_result_of_frames():
    for name, (data, good) in TEXTS.items():
        odd = {"$text": data.hex()}
        for place, value in (("value", odd), ("a member", {"a": [1, odd]}),
                             ("long", {"a": {"$text": (b"x" * 70_000 + data).hex()}})):
            what = f"B025/B026 frames, result, {place}: {name}"
            task = probe({"P3": [{"say": {"t": "result", "value": value}}]}, what)
            if not good:
                refused_by_name(task, what)
                continue
            wanted = ("x" * 70_000 if place == "long" else "") + data.decode()
            got = task["result"]["structuredContent"]["last"]
            got = got if place == "value" else got["a"]
            got = got[1] if place == "a member" else got
            equal(got, wanted, f"{what}: whole")


def b025_b026_in_other_words_of_frames():
    for name, (data, good) in TEXTS.items():
        odd = {"$text": data.hex()}
        what = f"B025/B026 frames, error: {name}"
        task = probe({"P1": [{"say": {"t": "error", "text": odd}}]}, what)
        refused_by_name(task, what)
        check(told_whole(data, text_of(task)), f"{what}: not cut", text_of(task))
        if good:
            check(data.decode() in text_of(task), f"{what}: whole", text_of(task))
        what = f"B025/B026 frames, progress: {name}"
        task = probe({"P1": [{"say": {"t": "progress", "fraction": 0.5, "text": odd}},
                             {"sleep_ms": 300}]}, what)
        what = f"B025/B026 frames, checkpoint: {name}"
        task = probe({"P1": [{"say": {"t": "checkpoint", "name": "c", "value": odd}}]}, what)
        if not good:
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
            if place != "artifact" and (not good or not data):
                refused_by_name(task, what)
            else:
                equal(task.get("result", {}).get("isError"), False, f"{what}: taken")


def says(say, what, status="completed", tries=1, anything=None):
    effect_id = f"data-{uuid.uuid4()}"
    began = time.monotonic()
    answer = client.call("says", {"effect_id": effect_id, "say": json.dumps(say)})
    task = finish(answer, what, status)
    check(time.monotonic() - began < 10, f"{what}: soon", time.monotonic() - began)
    started = (stack.folder / f"{effect_id}.log").read_text().count("start")
    equal(started, tries, f"{what}: tries")
    counts["plain"] += 1
    return task


def last(task):
    return ((task.get("result") or {}).get("structuredContent") or {}).get("last")


def b025_b026_in_the_output_of_a_plain_program():
    for name, (data, good) in TEXTS.items():
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
    for bytes_n, good in ((MEBIBYTE, True), (MEBIBYTE + 1, False)):
        text = b'"' + "ü".encode() * ((bytes_n - 2) // 2) + b"x" * (bytes_n % 2) + b'"'
        task = says([["out", text[:700_001].hex(), 5], ["out", text[700_001:].hex(), 0]],
                    f"B026 plain, {bytes_n} bytes of stdout")
        if good:
            kept = json.dumps(task.get("result", {}))
            check(not task["result"].get("isError"), "B026 plain, a MiB: taken", kept[:300])
        else:
            refused_by_name(task, "B026 plain, over a MiB")


def b025_b026_in_steps_and_files():
    for name, (data, good) in TEXTS.items():
        what = f"B025/B026 step's output: {name}"
        equal(last(says([["step", data.hex(), 0]], what)), {"same": [True, True]}, what)
        task = says([["file " + b"a.txt".hex(), data.hex(), 0], ["out", b"{}".hex(), 0]],
                    f"B025/B026 artifact: {name}")
        counts["steps"] += 1
        if b"\0" in data:
            continue
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


def http(raw, what):
    path = stack.folder / f"script-{uuid.uuid4()}"
    path.write_bytes(raw)
    stack.steer(script=[str(path)])
    effect_id = f"data-{uuid.uuid4()}"
    handle = client.call("deliver", {"effect_id": effect_id})
    end = client.wait(handle.task_id, 30)
    task = strict(end, what).get("result", {})
    sends = [line for line in stack.requests("/ledger") if effect_id in line.get("body", "")]
    equal(len(sends), 1, f"{what}: sent once")
    counts["http"] += 1
    return task


def b025_b026_in_answers_of_a_downstream():
    for name, (data, good) in TEXTS.items():
        escaped = json.dumps(data.decode(), ensure_ascii=False).encode()[1:-1] if good else data
        body = b'{"a": "' + escaped + b'"}'
        half = len(body) // 2
        for form, raw in (("plain", answer(b"200 OK", body=body)),
                          ("chunked", chunked(*(body[n:n + 1] for n in range(len(body))))),
                          ("gzip", answer(b"200 OK", b"Content-Encoding: gzip",
                                          body=gzip.compress(body))),
                          ("Latin-1 by name", answer(
                              b"200 OK", b"Content-Type: application/json; charset=iso-8859-1",
                              body=body)),
                          ("no text", answer(b"200 OK", b"Content-Type: image/png", body=data)),
                          ("422", answer(b"422 No", b"Content-Type: text/plain", body=data)),
                          ("a header", answer(b"200 OK", b"X-Odd: a" + data.replace(b"\n", b"")
                                              .replace(b"\r", b""), body=b"{}")),
                          ("the reason", answer(b"422 " + data.replace(b"\n", b"").replace(
                              b"\r", b""), body=b"{}"))):
            what = f"B025/B026 downstream, {form}: {name}"
            task = http(raw, what)
            print(what, task.get("status"), json.dumps(task.get("error") or
                  (task.get("result") or {}).get("structuredContent"))[:200], flush=True)


for part in (b025_b026_in_a_result_of_frames, b025_b026_in_other_words_of_frames,
             b025_b026_in_the_output_of_a_plain_program, b026_output_in_many_pieces,
             b025_b026_in_steps_and_files, b025_b026_in_answers_of_a_downstream):
    part_began = time.monotonic()
    part()
    print(f"{part.__name__}: {time.monotonic() - part_began:.1f} s", flush=True)
rig.finish("cases_data", counts)
