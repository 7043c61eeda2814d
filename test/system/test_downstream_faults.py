#!/usr/bin/python3
"""What a downstream can do to a call: answers lost after the effect, resets, 409, 422, 429, 503,
redirects, interim answers, bombs, waves. Keyed: the same key until it is answered. Lookup: read
back, never sent again when it had happened. What was refused is not repeated. Waits are those that
were asked for, within bounds, and hold no slot. Nothing is sent to whom nobody allowed, nor to a
server whose certificate does not hold (R2.5, V5, V7; cases B055-B058)."""

import gzip
import json
import pathlib
import secrets
import socket
import ssl
import subprocess
import threading
import time
import uuid

import rig
from patience import between, soon
from rig import check, equal

RETRY_AFTER_SECONDS_MAX = 3600
SLOTS = 2 * 32


def edited(folder, change):
    """The tool with its first phase changed."""
    path = folder / "tool.json"
    manifest = json.loads(path.read_text())
    change(manifest["phases"][0])
    path.write_text(json.dumps(manifest))
    return folder


def with_secrets(phase):
    phase["request"]["headers"] = {"Authorization": "Bearer secret-1", "X-Api-Key": "secret-2"}


class Other:
    """A listener that nothing should come to, or nothing but a TLS hello: counts connections, and
    the bytes that came out of TLS."""

    def __init__(self, context=None):
        self.connections = self.got = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.context = context
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            self.connections += 1
            try:
                with connection:
                    connection.settimeout(5)
                    if self.context:
                        with self.context.wrap_socket(connection, server_side=True) as tls:
                            self.got += len(tls.recv(4096))
            except OSError:
                pass


counts = {"scripted": 0, "lost_answers": 0, "read_back": 0, "waited": 0, "wave": 0}
other = Other()
stack = rig.Stack(workers=2, tools=[
    rig.http_tool(), rig.http_tool("letter", mail=True),
    # As tool.json's defaults have it: 500 ms, 60 s.
    rig.http_tool("patient", backoff_first_ms=500, backoff_max_ms=60_000),
    rig.http_tool("once", attempts=1),
    rig.http_tool("wave", backoff_first_ms=1000, backoff_max_ms=60_000),
    edited(rig.http_tool("secretive"), with_secrets),
    edited(rig.http_tool("stray"), lambda phase: phase["request"].update(
        url=f"http://127.0.0.1:{other.port}/steal")),
    edited(rig.http_tool("tls", attempts=2), lambda phase: phase["request"].update(
        url="{/conf/tls}/ledger"))],
                  # What each task does by itself; the breaker has a test of its own.
                  settings={"worker": {"beat_ms": 200, "lease_ms": 3000, "poll_ms": 100,
                                       "breaker_failures": 1_000_000, "breaker_pause_ms": 10,
                                       "breaker_pause_max_ms": 10}})
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
    effect_id = rig.new_id("down")
    _, end = client.run(tool, {"effect_id": effect_id}, 60)
    counts["scripted"] += 1
    return effect_id, end.result, sends_of(effect_id)


def sends_of(effect_id):
    return [line for line in stack.requests("/ledger") if effect_id in line.get("body", "")]


def waited(sends, least, most, what):
    """Between the first two: not less than was asked for, and not for long once it was over."""
    first, second = (rig.seconds_of(line["at"]) for line in sends[:2])
    took = second - first
    if took > most:
        took = between(first, second)
    check(second - first >= least and took <= most, f"{what}: waited", (second - first, took))


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
        waited(sends, least, most, name)


def waits():
    """B056 by the default backoff: what is asked for is waited for, anything else is as if nothing
    had been said, and nothing follows at once. A date in 3 s, of whole seconds, is 2 to 3 away."""
    for name, raw, least, most in (
            ("2 s", b"Retry-After: 2", 2, 4), ("a date in 3 s", b"Retry-After: {DATE+3s}", 2, 6),
            ("negative", b"Retry-After: -5", 0.5, 4), ("junk", b"Retry-After: 120junk", 0.5, 4),
            ("past", b"Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", 0.5, 4),
            ("zero", b"Retry-After: 0", 0.5, 4), ("none", b"X-None: 1", 0.5, 4),
            ("empty", b"Retry-After:", 0.5, 4), ("fraction", b"Retry-After: 1.5", 0.5, 4)):
        for status in (b"429 Slow", b"503 Busy"):
            _, result, sends = run([answer(status, raw)], "patient")
            equal(result["status"], "completed", f"{name}: completed")
            equal(len(sends), 2, f"{name}: sends")
            equal(len({line["key"] for line in sends}), 1, f"{name}: one key")
            waited(sends, least, most, f"Retry-After {name}")
            counts["waited"] += 1


def long_waits():
    """A wait far ahead is cut to the cap, said to the client, holds no slot, and can be cancelled
    at once."""
    tasks = []
    for number in range(SLOTS + 6):
        raw = (b"Retry-After: 99999999999999999999", b"Retry-After: Sun Nov  6 08:49:37 2044")
        path = scripts / f"long-{number}"
        path.write_bytes(answer(b"429 Slow", raw[number % 2]))
        tasks.append((rig.new_id("long"), path))
    stack.steer(script=[str(path) for _, path in tasks])
    handles = [client.call("patient", {"effect_id": effect_id}).task_id for effect_id, _ in tasks]
    told = f"Retry-After: {RETRY_AFTER_SECONDS_MAX} s"
    for task in handles:
        message = rig.until(lambda task=task: told in (client.get(task).result.get(
            "statusMessage") or ""), 20, f"long wait: told {told}")
        check(message, "long wait: shown", client.get(task).result)
    effect_id, result, sends = run([], "deliver")
    equal((result["status"], len(sends)), ("completed", 1), "long wait: slots are free")
    for task in handles:
        begun = time.monotonic()
        client.cancel(task)
        equal(client.wait(task, 10).result["status"], "cancelled", "long wait: cancelled")
        soon(begun, 3, "long wait: cancelled at once")
    for effect_id, _ in tasks:
        equal(len(sends_of(effect_id)), 1, "long wait: sent once")


def attempts_are_recorded():
    """B055: each request on the wire is an attempt that the store knows of."""
    for resets in (0, 1, 3):
        effect_id, result, sends = run([b"(reset)"] * resets, "deliver")
        equal(result["status"], "completed", f"{resets} resets: completed")
        equal(len(sends), resets + 1, f"{resets} resets: sends")
        steps = stack.query("SELECT s.attempt FROM holdfast.step s JOIN holdfast.task t "
                            "USING (task) WHERE t.effect_id = %s AND s.name = 'post'",
                            (effect_id,))
        equal(steps, [(resets + 1,)], f"{resets} resets: the attempt of the recovery point")
    # Not to be tried again: one request, and nobody says that it failed.
    path = scripts / "once"
    path.write_bytes(b"(reset)")
    stack.steer(script=[str(path)])
    effect_id = rig.new_id("once")
    handle = client.call("once", {"effect_id": effect_id})
    told = rig.until(lambda: "nobody can tell" in (client.get(handle.task_id).result.get(
        "statusMessage") or ""), 10, "once: unknown")
    check(told, "once: says so", client.get(handle.task_id).result)
    time.sleep(1.5)
    equal(client.get(handle.task_id).result["status"], "working", "once: not failed")
    equal(len(sends_of(effect_id)), 1, "once: sent once")


def redirects_with_secrets():
    """B057: the other place sees no connection, let alone a secret."""
    for status, place in ((b"307 Temporary Redirect", b"http://{OTHER}/steal"),
                          (b"302 Found", b"http://{OTHER}/steal"), (b"302 Found", b"/ledger2"),
                          (b"303 See Other", b"http://{OTHER}/steal"),
                          (b"308 Permanent Redirect", b"//{OTHER}/steal")):
        stack.steer(other=f"127.0.0.1:{other.port}")
        _, result, sends = run([answer(status, b"Location: " + place)], "secretive")
        equal(result["status"], "failed", f"{status}: failed")
        message = (result.get("error") or {}).get("message") or ""
        check("redirect refused" in message, f"{status}: named", message)
        equal(len(sends), 1, f"{status}: sent once")
    equal(other.connections, 0, "redirects: nobody came to the other place")


def a_refusal_is_told_to_the_operator():
    """What a body says of it: in the worker's log, and nowhere that a caller sees."""
    _, result, _ = run([answer(b"400 Bad Request", body=b'{"why": "sorry\x01"}' + b"x" * 300)])
    equal(result["status"], "failed", "refused")
    check("sorry" not in json.dumps(result), "the caller is not told", result)
    lines = [json.loads(line) for worker in stack.workers for line in worker.log().splitlines()
             if '"refused downstream"' in line]
    bodies = [line["body"] for line in lines if "sorry" in line["body"]]
    check(len(bodies) == 1 and bodies[0].startswith('{"why": "sorry?"}x') and bodies[0].endswith("x…"),
          "the log has its beginning", lines)
    equal([len(body.encode()) for body in bodies], [200], "and no more")


def not_allowed():
    _, result, _ = run([], "stray")
    message = (result.get("error") or {}).get("message") or ""
    equal(result["status"], "failed", "a host that is not on the list: failed")
    check("host not allowed" in message, "a host that is not on the list: named", message)
    equal((result.get("error") or {}).get("data", {}).get("executed"), "no", "not executed")
    equal(other.connections, 0, "a host that is not on the list: no connection")


def memory_kib():
    return max(rig.memory_kib(worker.pid, "VmHWM") for worker in stack.workers)


def bombs():
    """A small answer that would be a large one, and a large one: neither is kept."""
    small = gzip.compress(bytes(256 << 20))
    before = memory_kib()
    for name, raw in (
            ("gzip", answer(b"200 OK", b"Content-Encoding: gzip", body=small)),
            ("gzip on the way", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n" + small),
            ("large", answer(b"200 OK", body=bytes(64 << 20)))):
        effect_id, result, sends = run([raw])
        equal(result["status"], "failed", f"{name} bomb: failed")
        equal((result.get("error") or {}).get("data", {}).get("executed"), "maybe",
              f"{name} bomb: its effect may stand")
        equal(len(sends), 1, f"{name} bomb: sent once")
    check(memory_kib() - before < 24 << 10, "bombs: memory in KiB", memory_kib() - before)


def wave():
    """B058: who failed together comes back apart. Each wait counts from its own failure, as if all
    had failed at the same moment."""
    tasks, window, most_share = 600, 0.05, 0.1
    path = scripts / "wave"
    path.write_bytes(answer(b"503 Busy"))
    stack.steer(script=[str(path)] * tasks)
    mark = rig.new_id("wave")
    clients = [stack.client() for _ in range(4)]

    def call(lane):
        return [clients[lane].call("wave", {"effect_id": f"{mark}-{lane}-{n}"}).task_id
                for n in range(tasks // 4)]

    handles = [task for lane in rig.in_parallel(call, [0, 1, 2, 3]) for task in lane]
    for task in handles:
        equal(client.wait(task, 60).result["status"], "completed", "wave: completed")
    first, delays = {}, []
    for line in sends_of(mark):
        name = json.loads(line["body"])["effect_id"]
        if name in first:
            delays.append(rig.seconds_of(line["at"]) - first[name])
        else:
            first[name] = rig.seconds_of(line["at"])
    equal((len(first), len(delays)), (tasks, tasks), "wave: each came back once")
    check(min(delays) >= 0.99, "wave: not before the floor", min(delays))
    fullest = max(sum(begin <= wait < begin + window for wait in delays) for begin in delays)
    check(fullest <= tasks * most_share, "wave: the fullest 50 ms hold", fullest)
    counts["wave"] = len(delays)
    counts["wave_fullest_50_ms"] = fullest


def false_certificate():
    """Nothing is said to a server that cannot show who it is."""
    pair = stack.folder / "tls.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=127.0.0.1", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-days", "2", "-keyout", pair, "-out", pair],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    server = Other(context)
    conf = json.loads((stack.folder / "conf.json").read_text())
    stack.write("conf.json", json.dumps(conf | {"tls": f"https://127.0.0.1:{server.port}"}))
    for worker in stack.workers:
        worker.terminate()
        worker.start()
    _, result, _ = run([], "tls")
    message = (result.get("error") or {}).get("message") or ""
    equal(result["status"], "failed", "false certificate: failed")
    check("certificate" in message, "false certificate: named", message)
    equal((result.get("error") or {}).get("data", {}).get("executed"), "no", "not executed")
    equal((server.connections, server.got), (2, 0), "false certificate: tried, nothing said")


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
            # Only the mail's answer: the post's is on its way for so long that this is told in time.
            stack.steer(delay_after_ms=2000)
        effect_id = rig.new_id("letter")
        handle = client.call("letter", {"effect_id": effect_id})
        if number % 2 == 0:
            rig.until(lambda: stack.effects_by_id().get(effect_id), 10, "posted", 0.005)
            stack.steer(lose_answers=1, delay_after_ms=0)
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
    effect_id = rig.new_id("gone")
    handle = client.call("deliver", {"effect_id": effect_id})
    time.sleep(0.7)
    equal(client.get(handle.task_id).result["status"], "working", "no downstream: working")
    stack.downstream.start()
    equal(client.wait(handle.task_id, 60).result["status"], "completed", "it is back: completed")
    equal(stack.effects_by_id().get(effect_id), 1, "one effect")


def a_rotated_secret_changes_no_key():
    """A request whose answer was lost is asked for again by processes that know a newer secret: under
    the key of the secret that its task was accepted under, which the newer one makes only for new tasks."""
    versions = "SELECT key_version, count(*) FROM holdfast.task WHERE key_version > 1 GROUP BY 1"
    equal(stack.query(versions), [], "rotation: all tasks are of the first secret")
    stack.steer(script=[], lose_answers=1000)
    effect_id = rig.new_id("rotated")
    handle = client.call("patient", {"effect_id": effect_id})
    rig.until(lambda: stack.effects_by_id().get(effect_id), 20, "its effect was made", 0.01)
    for process in (*stack.workers, *stack.apis):
        process.kill()
    before = len(sends_of(effect_id))
    stack.steer(lose_answers=0)
    keys = stack.folder / "keys"
    stack.write("keys", f"{keys.read_text().rstrip()}\n2 {secrets.token_hex(32)}\n")
    for process in (*stack.workers, *stack.apis):
        process.start()
    rig.until(lambda: all(stack.ready(api) for api in stack.apis), 30, "up with the new secret")
    equal(client.wait(handle.task_id, 90).result["status"], "completed", "rotation: completed")
    sends = sends_of(effect_id)
    check(len(sends) > before, "rotation: sent again by the new processes", (before, len(sends)))
    equal(len({line["key"] for line in sends}), 1, "rotation: one key")
    equal(stack.effects_by_id().get(effect_id), 1, "rotation: one effect")
    run([])
    equal(stack.query(versions), [(2, 1)], "rotation: the next task is of the new secret")


rig.run(passing, waits, long_waits, attempts_are_recorded, definitive, redirects_with_secrets,
        a_refusal_is_told_to_the_operator, not_allowed, odd_successes, bombs, lost_answers, read_back,
        gone_for_a_while, wave, false_certificate, a_rotated_secret_changes_no_key)
rig.finish("downstream_faults", counts, {"scripted": 50, "lost_answers": 3, "read_back": 5,
                                         "waited": 18, "wave": 600})
