#!/usr/bin/python3
"""The demo downstream: a report store that honours idempotency keys, and a mailbox that takes none.

A program of its own, so that what really happened outside Holdfast can be counted outside it. In
its folder it keeps
  ledger.jsonl    a line per *effect*: key, path, sha256 (of the request body), at
  requests.jsonl  a line per request, whatever came of it
  reports/        the stored files
Both files are on the disk before anything is answered, so `kill -9` loses no effect that somebody
was told of. At start the ledger is read back; a torn last line belonged to nobody and is cut off.

  PUT  /reports/NAME   stores the body                     201 {"url": ...}
  GET  /reports/NAME   the stored body
  POST /ledger         an effect and nothing more          201 {"effect": ..., "key": ...}
  POST /send           {"ref", "link"}: one message each   201 {"id": ...}
  GET  /messages?ref=  reads the mailbox back              {"items": [{"id", "ref", "link"}]}
  GET  /ledger         counts                              {"effects", "requests", "keys"}
  PUT  /_control       steers it; GET shows it:
    mode            "honour": one effect per Idempotency-Key; "ignore": one per request
    lose_answers    the next N effects are made, then the connection is closed without an answer
    script          files with raw answers, for the next requests that would make an effect, in
                    order. A 2xx makes the effect; a file that does not begin with HTTP/ is a reset.
                    {DATE+3s} in a file is an HTTP date in 3 s, {OTHER} is the member "other"
    delay_before_ms, delay_after_ms   wait before an effect, and between effect and answer
    visible_after_ms   a message is answered at once and stands in the mailbox only after this

The same key with another request is 422; a key whose first request is still being worked on, 409.
"""

import argparse
import asyncio
import contextlib
import email.utils
import hashlib
import json
import os
import re
import signal
import socket
import struct
import sys
import time
import urllib.parse

HEAD_BYTES_MAX = 64 << 10
BODY_BYTES_MAX = 64 << 20
BODY_LOGGED_BYTES_MAX = 4 << 10
IDLE_SECONDS = 120
NAME = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$")
REASONS = {200: "OK", 201: "Created", 204: "No Content", 400: "Bad Request", 404: "Not Found",
           405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large",
           422: "Unprocessable Content", 431: "Request Header Fields Too Large",
           501: "Not Implemented"}


class Refused(Exception):
    """The request cannot be read; the connection ends after this answer."""

    def __init__(self, status):
        super().__init__(status)
        self.status = status


class Request:
    def __init__(self, method, target, headers, body):
        self.method = method
        parts = urllib.parse.urlsplit(target)
        self.path = parts.path
        self.query = urllib.parse.parse_qs(parts.query)
        self.headers = headers
        self.body = body
        self.sha256 = hashlib.sha256(body).hexdigest()
        self.key = headers.get("idempotency-key")

    def makes_effect(self):
        if self.method == "PUT":
            return self.path.startswith("/reports/")
        return self.method == "POST" and self.path in ("/ledger", "/send")


class Journal:
    """Lines to two files; everything that arrives during one fsync shares the next."""

    def __init__(self, ledger_path, requests_path):
        self.files = [open(requests_path, "ab", buffering=0), open(ledger_path, "ab", buffering=0)]
        self.pending = [[], []]
        self.waiters = []
        self.flushing = None

    async def write(self, request_line, effect_line=None):
        self.pending[0].append(request_line)
        if effect_line is not None:
            self.pending[1].append(effect_line)
        done = asyncio.get_running_loop().create_future()
        self.waiters.append(done)
        if self.flushing is None:
            self.flushing = asyncio.create_task(self.flush())
        await done

    async def flush(self):
        loop = asyncio.get_running_loop()
        while self.waiters:
            lines, self.pending = self.pending, [[], []]
            waiters, self.waiters = self.waiters, []
            await loop.run_in_executor(None, self.store, lines)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        self.flushing = None

    def store(self, lines):
        for file, new in zip(self.files, lines):
            if new:
                file.write("".join(json.dumps(line) + "\n" for line in new).encode())
                os.fsync(file.fileno())


def read_lines(path):
    """The complete lines of a file; a torn last one is cut off."""
    if not os.path.exists(path):
        return []
    with open(path, "r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
        return [json.loads(line) for line in content[:whole].splitlines()]


def now_text():
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def store_file(path, content):
    temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Downstream:
    def __init__(self, folder):
        self.reports = os.path.join(folder, "reports")
        os.makedirs(self.reports, exist_ok=True)
        ledger, requests = (os.path.join(folder, n) for n in ("ledger.jsonl", "requests.jsonl"))
        self.url = None
        self.keys = {}  # key -> (method, path, sha256), or None while the first is being worked on
        self.messages = []
        self.effects = 0
        for line in read_lines(ledger):
            self.remember(line)
        self.requests = len(read_lines(requests))
        self.journal = Journal(ledger, requests)
        self.control = {"mode": "honour", "lose_answers": 0, "script": [], "other": "",
                        "delay_before_ms": 0, "delay_after_ms": 0, "visible_after_ms": 0}
        self.visible_at = {}  # message ID -> monotonic time, where it is not there at once

    def remember(self, line):
        self.effects += 1
        if line["path"] == "/send":
            self.messages.append({name: line[name] for name in ("id", "ref", "link")})
        elif line["key"] is not None:
            self.keys[line["key"]] = (line["method"], line["path"], line["sha256"])

    # --- one request: (status, content type, body), or bytes to send raw, or None to hang up ------

    async def answer(self, request):
        if request.path == "/_control":
            return self.steer(request)
        self.requests += 1
        if request.makes_effect():
            return await self.answer_effect(request)
        reply = self.read(request)
        await self.log(request, f"{reply[0]}")
        return reply

    async def log(self, request, outcome, effect=None):
        line = {"at": now_text(), "method": request.method, "path": request.path,
                "query": request.query, "key": request.key, "sha256": request.sha256,
                "bytes": len(request.body), "outcome": outcome}
        if len(request.body) <= BODY_LOGGED_BYTES_MAX:
            line["body"] = request.body.decode("utf-8", "backslashreplace")
        for name in ("traceparent", "tracestate", "baggage"):
            if name in request.headers:
                line[name] = request.headers[name]
        await self.journal.write(line, effect)

    def steer(self, request):
        if request.method == "PUT":
            try:
                wanted = json.loads(request.body)
                self.check_control(wanted)
            except (ValueError, TypeError) as error:
                return json_reply(400, {"error": str(error)})
            self.control.update(wanted)
        elif request.method != "GET":
            return json_reply(405, {"error": "PUT or GET"})
        return json_reply(200, self.control | {"effects": self.effects, "requests": self.requests})

    def check_control(self, wanted):
        if not isinstance(wanted, dict):
            raise ValueError("an object is wanted")
        for name, value in wanted.items():
            if name not in self.control:
                raise ValueError(f"unknown member {name!r}")
            if type(value) is not type(self.control[name]):
                raise ValueError(f"{name}: wrong type")
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{name}: below 0")
        if wanted.get("mode", "honour") not in ("honour", "ignore"):
            raise ValueError('mode: "honour" or "ignore"')
        for path in wanted.get("script", []):
            if not isinstance(path, str) or not os.path.isfile(path):
                raise ValueError(f"script: no file {path!r}")

    def read(self, request):
        if request.method not in ("GET", "HEAD"):
            return json_reply(404 if request.method in ("POST", "PUT") else 405, {})
        if request.path == "/healthz":
            return json_reply(200, {"ok": True})
        if request.path == "/ledger":
            return json_reply(200, {"effects": self.effects, "requests": self.requests,
                                    "keys": sorted(self.keys)})
        if request.path == "/messages":
            wanted = request.query.get("ref")
            now = time.monotonic()
            return json_reply(200, {"items": [message for message in self.messages
                                              if (not wanted or message["ref"] == wanted[0])
                                              and self.visible_at.get(message["id"], now) <= now]})
        path = self.report_path(request.path)
        if path is None or not os.path.isfile(path):
            return json_reply(404, {"error": "there is no such thing"})
        with open(path, "rb") as file:
            kind = "application/pdf" if path.endswith(".pdf") else "application/octet-stream"
            return 200, kind, file.read()

    def report_path(self, path):
        folder, _, name = path.rpartition("/")
        if folder != "/reports" or not NAME.match(name):
            return None
        return os.path.join(self.reports, name)

    async def answer_effect(self, request):
        scripted = self.next_scripted()
        if scripted is not None and not re.search(rb"^HTTP/1\.[01] 2", scripted, re.MULTILINE):
            await self.log(request, "scripted")
            return scripted if scripted.startswith(b"HTTP/") else None
        problem = self.check_effect(request)
        if problem is not None:
            await self.log(request, f"{problem[0]}")
            return problem
        # Mail has no key, and with keys ignored nobody looks at one.
        keyed = request.key is not None and request.path != "/send" and \
            self.control["mode"] == "honour"
        if keyed and request.key in self.keys:
            return await self.answer_known_key(request)
        if keyed:
            self.keys[request.key] = None
        try:
            lose, reply = await self.make_effect(request, keyed)
        finally:
            if keyed and self.keys[request.key] is None:  # the disk said no
                del self.keys[request.key]
        if lose:
            return None
        return reply if scripted is None else scripted

    def next_scripted(self):
        if not self.control["script"]:
            return None
        with open(self.control["script"].pop(0), "rb") as file:
            raw = file.read()
        raw = raw.replace(b"{OTHER}", self.control["other"].encode())
        return re.sub(rb"\{DATE\+(\d+)s\}", lambda found: email.utils.formatdate(
            time.time() + int(found[1]), usegmt=True).encode(), raw)

    def check_effect(self, request):
        if request.path.startswith("/reports/") and self.report_path(request.path) is None:
            return json_reply(404, {"error": "not a name for a report"})
        if request.path == "/send":
            try:
                message = json.loads(request.body)
                if not all(isinstance(message[name], str) for name in ("ref", "link")):
                    raise ValueError
            except (ValueError, TypeError, KeyError):
                return json_reply(400, {"error": "a message has the strings ref and link"})
        return None

    async def answer_known_key(self, request):
        first = self.keys[request.key]
        if first is None:
            await self.log(request, "409")
            return json_reply(409, {"type": "idempotency_in_progress"}, "Retry-After: 1\r\n")
        if first != (request.method, request.path, request.sha256):
            await self.log(request, "422")
            return json_reply(422, {"type": "idempotency_key_reused"})
        await self.log(request, "repeat")
        return self.effect_reply(request)

    async def make_effect(self, request, keyed):
        lose = self.control["lose_answers"] > 0
        if lose:
            self.control["lose_answers"] -= 1
        await asyncio.sleep(self.control["delay_before_ms"] / 1000)
        line = {"key": request.key, "path": request.path, "sha256": request.sha256,
                "at": now_text(), "method": request.method}
        if request.path == "/send":
            message = json.loads(request.body)
            line |= {"key": request.key or message["ref"], "id": f"msg-{len(self.messages) + 1}",
                     "ref": message["ref"], "link": message["link"]}
        elif request.method == "PUT":
            await asyncio.get_running_loop().run_in_executor(
                None, store_file, self.report_path(request.path), request.body)
        # In the mailbox from here on: a message that can be read back exists, answered or not.
        after = self.control["delay_after_ms"]
        if request.path == "/send" and self.control["visible_after_ms"]:
            self.visible_at[line["id"]] = (time.monotonic()
                                           + self.control["visible_after_ms"] / 1000)
        if not keyed or request.path == "/send":
            self.remember(line)
        await self.log(request, "effect, answer lost" if lose else "effect", line)
        if keyed:
            self.remember(line)
        await asyncio.sleep(after / 1000)
        return lose, self.effect_reply(request, line.get("id"))

    def effect_reply(self, request, message_id=None):
        """A pure function of the request, so that a repeat gets the same bytes."""
        if request.path == "/send":
            return json_reply(201, {"id": message_id})
        if request.method == "PUT":
            return json_reply(201, {"url": self.url + request.path})
        return json_reply(201, {"effect": request.sha256[:16], "key": request.key})

    # --- the wire --------------------------------------------------------------------------------

    async def serve(self, reader, writer):
        try:
            while True:
                request, keep = await read_request(reader, writer)
                if request is None:
                    break
                reply = await self.answer(request)
                if reply is None:
                    reset(writer)
                    break
                if not write_reply(writer, request, reply, keep):
                    break
                await writer.drain()
        except Refused as refused:
            write_reply(writer, None, json_reply(refused.status, {}), False)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def json_reply(status, value, extra=""):
    return status, "application/json", json.dumps(value).encode(), extra


def write_reply(writer, request, reply, keep):
    """Whether the connection goes on."""
    if isinstance(reply, bytes):
        writer.write(reply)
        return False
    status, kind, body, *extra = reply
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n" \
           f"Content-Length: {len(body)}\r\n{''.join(extra)}"
    head += "\r\n" if keep else "Connection: close\r\n\r\n"
    writer.write(head.encode() + (b"" if request and request.method == "HEAD" else body))
    return keep


def reset(writer):
    """RST instead of FIN: what a crashed server does."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read_request(reader, writer):
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), IDLE_SECONDS)
    except asyncio.LimitOverrunError:
        raise Refused(431) from None
    except (asyncio.IncompleteReadError, asyncio.TimeoutError):
        return None, False
    lines = head.decode("latin-1").split("\r\n")
    try:
        method, target, version = lines[0].split(" ")
        headers = {}
        for line in lines[1:-2]:
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip(" \t")
    except ValueError:
        raise Refused(400) from None
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await read_body(reader, headers)
    keep = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return Request(method, target, headers, body), keep


async def read_body(reader, headers):
    coding = headers.get("transfer-encoding")
    if coding is None:
        length = headers.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,12}", length):
            raise Refused(400)
        if int(length) > BODY_BYTES_MAX:
            raise Refused(413)
        return await reader.readexactly(int(length))
    if coding.lower() != "chunked" or "content-length" in headers:
        raise Refused(400)
    body = b""
    while True:
        size = (await reader.readuntil(b"\r\n"))[:-2].split(b";")[0].strip()
        if not re.fullmatch(b"[0-9a-fA-F]{1,8}", size):
            raise Refused(400)
        if int(size, 16) == 0:
            break
        body += await reader.readexactly(int(size, 16))
        if len(body) > BODY_BYTES_MAX:
            raise Refused(413)
        if await reader.readexactly(2) != b"\r\n":
            raise Refused(400)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return body


async def run(options):
    downstream = Downstream(options.dir)
    host, _, port = options.listen.rpartition(":")
    server = await asyncio.start_server(downstream.serve, host, int(port), limit=HEAD_BYTES_MAX,
                                        backlog=1024, reuse_address=True)
    address = server.sockets[0].getsockname()
    downstream.url = options.url or f"http://{address[0]}:{address[1]}"
    print(json.dumps({"time": now_text(), "level": "info", "role": "downstream",
                      "msg": "listening", "url": downstream.url,
                      "effects": downstream.effects}), file=sys.stderr, flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    server.close()


def main():
    parser = argparse.ArgumentParser(description="Holdfast's demo downstream")
    parser.add_argument("--listen", default="127.0.0.1:8081", help="address and port")
    parser.add_argument("--dir", required=True, help="folder of ledger.jsonl and the rest")
    parser.add_argument("--url", help="its address in answers; default: made from --listen")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
