#!/usr/bin/python3
"""What a downstream can do to a call: answers lost after the effect, resets, 409, 422, 429, 503,
redirects, interim answers. Keyed: the same key until it is answered. Lookup: read back, never sent
again when it had happened. What was refused is not repeated (R2.5, V5, V7; cases B055-B057)."""

import pathlib
import time
import uuid

import rig
from rig import check, equal

counts = {"scripted": 0, "lost_answers": 0, "read_back": 0}
stack = rig.Stack(workers=2, tools=[rig.http_tool(), rig.http_tool("letter", mail=True)],
                  settings={"worker": {"beat_ms": 200, "lease_ms": 3000, "poll_ms": 100}})
client = stack.client()
scripts = pathlib.Path(stack.folder / "scripts")
scripts.mkdir()


def answer(status, *headers, body=b""):
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers, b"",
                         body])


def run(script, tool="deliver"):
    """The raw answers come first; then the downstream is itself again."""
    paths = []
    for number, raw in enumerate(script):
        path = scripts / f"{uuid.uuid4()}-{number}"
        path.write_bytes(raw)
        paths.append(str(path))
    stack.steer(script=paths)
    effect_id = f"down-{uuid.uuid4()}"
    _, end = client.run(tool, {"effect_id": effect_id}, 60)
    counts["scripted"] += 1
    return effect_id, end.result, sends_of(effect_id)


def sends_of(effect_id):
    return [line for line in stack.requests("/ledger") if effect_id in line.get("body", "")]


def seconds(line):
    whole, part = line["at"].rstrip("Z").split(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + int(part) / 1000


def passing():
    """Sent again under the same key, not before it was asked for; then one effect."""
    for name, script, least, most in (
            ("503", [answer(b"503 Service Unavailable")], 0, 5),
            ("500 twice", [answer(b"500 Oops")] * 2, 0, 8),
            ("429, Retry-After 2", [answer(b"429 Slow", b"Retry-After: 2")], 2, 6),
            ("503, an HTTP date", [answer(b"503 Busy", b"Retry-After: {DATE+3s}")], 2, 7),
            ("429, negative", [answer(b"429 Slow", b"Retry-After: -5")], 0.0, 5),
            ("429, junk", [answer(b"429 Slow", b"Retry-After: 120junk")], 0.0, 5),
            ("429, a past date", [answer(b"429 Slow",
                                         b"Retry-After: Wed, 21 Oct 2015 07:28:00 GMT")], 0, 5),
            ("409 in progress", [answer(b"409 Conflict", b"Retry-After: 1")], 0.9, 6),
            ("reset", [b"(reset)"], 0, 5), ("reset twice", [b"(reset)"] * 2, 0, 8)):
        effect_id, result, sends = run(script)
        equal(result["status"], "completed", f"{name}: completed")
        equal(len(sends), len(script) + 1, f"{name}: sends")
        equal(len({line["key"] for line in sends}), 1, f"{name}: one key")
        equal(stack.effects_by_id().get(effect_id), 1, f"{name}: one effect")
        waited = seconds(sends[1]) - seconds(sends[0])
        check(least <= waited <= most, f"{name}: waited", waited)


def definitive():
    """Not repeated, and the task says what happened."""
    for name, raw in (("422", answer(b"422 Unprocessable Content", body=b"{}")),
                      ("400", answer(b"400 Bad Request")), ("404", answer(b"404 Not Found")),
                      ("307", answer(b"307 Temporary Redirect", b"Location: {OTHER}/steal")),
                      ("302", answer(b"302 Found", b"Location: /ledger2")),
                      ("308", answer(b"308 Permanent Redirect", b"Location: //{OTHER}/steal"))):
        stack.steer(other=f"127.0.0.1:{stack.downstream_port}")
        effect_id, result, sends = run([raw])
        equal(result["status"], "failed", f"{name}: failed")
        data = (result.get("error") or {}).get("data") or {}
        check(data.get("executed") in ("no", "maybe"), f"{name}: says whether it executed", result)
        equal(len(sends), 1, f"{name}: sent once")
        check(stack.effects_by_id().get(effect_id) is None, f"{name}: no effect")
    equal([line for line in stack.requests() if line["path"] in ("/steal", "/ledger2")], [],
          "no redirect was followed")


def odd_successes():
    for name, raw in (("100, then 200", b"HTTP/1.1 100 Continue\r\n\r\n" + answer(
            b"200 OK", b"Content-Type: application/json", body=b'{"ok":true}')),
                      ("204", b"HTTP/1.1 204 No Content\r\n\r\n")):
        effect_id, result, sends = run([raw])
        equal(result["status"], "completed", f"{name}: completed")
        equal(len(sends), 1, f"{name}: sent once")


def lost_answers():
    """The effect is made, the connection dropped: by key there is one, by reading back too."""
    for lost in (1, 2, 3):
        stack.steer(script=[], lose_answers=lost)
        effect_id, result, sends = run([])
        equal(result["status"], "completed", f"{lost} answers lost: completed")
        equal(stack.effects_by_id().get(effect_id), 1, f"{lost} answers lost: one effect")
        check(len(sends) >= 2, f"{lost} answers lost: sent again", len(sends))
        equal(len({line["key"] for line in sends}), 1, f"{lost} answers lost: one key")
        counts["lost_answers"] += 1
        stack.steer(lose_answers=0)


def read_back():
    """A letter whose answer is lost is looked for, found, and not sent again."""
    for number in range(5):
        before = len(stack.ledger("/send"))
        stack.steer(lose_answers=2 if number % 2 else 0)
        if number % 2 == 0:
            # Only the mail's answer: the post is answered before it.
            stack.steer(delay_after_ms=300)
        effect_id = f"letter-{uuid.uuid4()}"
        handle = client.call("letter", {"effect_id": effect_id})
        if number % 2 == 0:
            rig.until(lambda: stack.effects_by_id().get(effect_id), 10, "posted", 0.005)
            stack.steer(lose_answers=1)
        end = client.wait(handle.task_id, 60)
        stack.steer(lose_answers=0, delay_after_ms=0)
        equal(end.result["status"], "completed", "letter: completed")
        equal(len(stack.ledger("/send")) - before, 1, "letter: one message")
        looked = [line for line in stack.requests("/messages") if line["method"] == "GET"]
        check(len(looked) > counts["read_back"], "letter: it was read back")
        counts["read_back"] += 1


def gone_for_a_while():
    """Nothing listens: not sent, so tried again; no effect is made up, none is lost."""
    stack.downstream.kill()
    effect_id = f"gone-{uuid.uuid4()}"
    handle = client.call("deliver", {"effect_id": effect_id})
    time.sleep(0.7)
    equal(client.get(handle.task_id).result["status"], "working", "no downstream: working")
    stack.downstream.start()
    equal(client.wait(handle.task_id, 60).result["status"], "completed", "it is back: completed")
    equal(stack.effects_by_id().get(effect_id), 1, "one effect")


for part in (passing, definitive, odd_successes, lost_answers, read_back, gone_for_a_while):
    part()
rig.finish("downstream_faults", counts, {"scripted": 20, "lost_answers": 3, "read_back": 5})
