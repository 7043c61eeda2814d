#!/usr/bin/python3
"""The demo downstream counts what it should: it is the oracle of the other tests, so it is tested
first: keys, modes, lost answers, scripted answers, concurrency, kill -9."""

import http.client
import json
import pathlib
import sys
import tempfile
import threading

import rig

folder = pathlib.Path(tempfile.mkdtemp(prefix="hf-downstream-"))
port = rig.free_port()
ledger = folder / "ledger.jsonl"
processes = []
KILLS, ANSWERED_BETWEEN = 5, 10


def start():
    process = rig.Process("downstream", [sys.executable, str(rig.DOWNSTREAM), "--listen",
                                         f"127.0.0.1:{port}", "--dir", str(folder)],
                          {"PATH": "/usr/bin:/bin"}, str(folder / "log"))
    processes.append(process)
    rig.until(lambda: ask("GET", "/healthz")[0] == 200, 10, "downstream up")
    return process


def ask(method, path, body=None, key=None, connection=None):
    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, {"Idempotency-Key": key} if key else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""


def effects(path="/ledger"):
    return [line for line in rig.read_jsonl(ledger) if line["path"] == path]


def steer(**wanted):
    rig.equal(ask("PUT", "/_control", json.dumps(wanted))[0], 200, f"control {wanted}")


def keys():
    first = ask("POST", "/ledger", "one", "k1")
    rig.equal(first[0], 201, "an effect is 201")
    rig.equal(ask("POST", "/ledger", "one", "k1"), first, "a repeat gets the same bytes")
    rig.equal(ask("POST", "/ledger", "two", "k1")[0], 422, "same key, other body")
    rig.equal(ask("PUT", "/reports/a.pdf", "one", "k1")[0], 422, "same key, other path")
    rig.equal(len(effects()), 1, "one effect per key")
    rig.equal(sorted(effects()[0])[:2] + ["path", "sha256"],
              ["at", "key", "path", "sha256"], "members of a ledger line")
    ask("POST", "/ledger", "one")
    ask("POST", "/ledger", "one")
    rig.equal(len(effects()), 3, "without a key each request is an effect")
    steer(mode="ignore")
    ask("POST", "/ledger", "one", "k1")
    rig.equal(len(effects()), 4, "mode ignore: each request is an effect")
    steer(mode="honour")


def reports():
    status, body = ask("PUT", "/reports/r1.pdf", "%PDF-1", "r1")
    rig.equal(status, 201, "a report is stored")
    rig.equal(json.loads(body)["url"], f"http://127.0.0.1:{port}/reports/r1.pdf", "its address")
    rig.equal(ask("GET", "/reports/r1.pdf"), (200, b"%PDF-1"), "and served")
    for name in ("../x", "a/b", ".x", ""):
        rig.equal(ask("PUT", f"/reports/{name}", "x", "rx")[0], 404, f"name {name!r} refused")
    rig.equal(ask("GET", "/reports/none.pdf")[0], 404, "unknown report")


def mailbox():
    for _ in range(2):
        rig.equal(ask("POST", "/send", '{"ref":"m1","link":"l"}', "ignored")[0], 201, "sent")
    rig.equal(ask("POST", "/send", '{"ref":1}')[0], 400, "a message needs ref and link")
    rig.equal(len(effects("/send")), 2, "mail takes no key")
    items = json.loads(ask("GET", "/messages?ref=m1")[1])["items"]
    rig.equal([item["ref"] for item in items], ["m1", "m1"], "mail is read back")
    rig.equal(len({item["id"] for item in items}), 2, "each message has an id")
    rig.equal(json.loads(ask("GET", "/messages?ref=none")[1])["items"], [], "absent is empty")


def faults():
    before = len(effects())
    steer(lose_answers=2)
    rig.equal(ask("POST", "/ledger", "x", "lost-1")[0], 0, "answer lost")
    rig.equal(ask("POST", "/ledger", "x", "lost-2")[0], 0, "answer lost again")
    rig.equal(ask("POST", "/ledger", "x", "lost-1")[0], 201, "the repeat is answered")
    rig.equal(len(effects()), before + 2, "the effects stand")
    retry = folder / "retry.http"
    retry.write_bytes(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: {DATE+3s}\r\n"
                      b"Content-Length: 0\r\n\r\n")
    reset = folder / "reset"
    reset.write_bytes(b"(reset)")
    early = folder / "early.http"
    early.write_bytes(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    steer(script=[str(retry), str(reset), str(early)])
    rig.equal(ask("POST", "/ledger", "x", "s1")[0], 503, "scripted refusal")
    rig.equal(ask("POST", "/ledger", "x", "s1")[0], 0, "scripted reset")
    rig.equal(len(effects()), before + 2, "neither makes an effect")
    rig.equal(ask("POST", "/ledger", "x", "s1"), (200, b"{}"), "scripted success")
    rig.equal(len(effects()), before + 3, "which makes one")
    rig.equal(ask("PUT", "/_control", '{"mode":"other"}')[0], 400, "unknown mode refused")
    rig.equal(ask("PUT", "/_control", '{"modes":"honour"}')[0], 400, "unknown member refused")


def storm():
    before = len(effects())
    steer(delay_before_ms=100)
    answers = rig.in_parallel(lambda n: ask("POST", "/ledger", "s", f"storm-{n % 4}")[0],
                              list(range(64)))
    steer(delay_before_ms=0)
    rig.equal(len(effects()) - before, 4, "64 at once under 4 keys: 4 effects")
    rig.check(answers.count(409) > 0 and set(answers) <= {201, 409}, "in progress is 409", answers)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    codes = {ask("POST", "/ledger", "ka", f"ka-{n}", connection)[0] for n in range(50)}
    rig.equal(codes, {201}, "keep-alive")


def killed(process):
    """Kill it again and again amid requests: every answered effect is in the ledger, once."""
    answered = []
    stop = threading.Event()

    def send(lane):
        number = 0
        while not stop.is_set():
            key = f"kill-{lane}-{number}"
            if ask("POST", "/ledger", key, key)[0] == 201:
                answered.append(key)
                number += 1

    threads = [threading.Thread(target=send, args=(lane,)) for lane in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        enough = len(answered) + ANSWERED_BETWEEN
        rig.time.sleep(0.3)
        rig.until(lambda enough=enough: len(answered) >= enough, 60, "effects are answered")
        process.kill()
        process = start()
    stop.set()
    for thread in threads:
        thread.join()
    stored = [line["key"] for line in effects() if str(line["key"]).startswith("kill-")]
    rig.equal(len(stored), len(set(stored)), "no effect twice across kills")
    rig.check(set(answered) <= set(stored), "no answered effect lost")
    return len(answered)


process = start()
try:
    keys()
    reports()
    mailbox()
    faults()
    storm()
    known = ask("POST", "/ledger", "one", "k1")
    process.kill()
    with open(ledger, "ab") as file:
        file.write(b'{"key": "torn')
    process = start()
    rig.equal(ask("POST", "/ledger", "one", "k1"), known, "a key survives kill -9")
    rig.equal(len(json.loads(ask("GET", "/messages?ref=m1")[1])["items"]), 2, "so does mail")
    answered_across_kills = killed(process)
finally:
    for one in processes:
        one.kill()
    rig.shutil.rmtree(folder, ignore_errors=True)
rig.finish("downstream", {"effects_answered_across_5_kills": answered_across_kills},
           {"effects_answered_across_5_kills": KILLS * ANSWERED_BETWEEN})
