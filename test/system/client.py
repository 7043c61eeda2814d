"""An MCP client of 2026-07-28 as the tests need one: it declares Tasks, never sends twice, and can be
left, cut off and read byte by byte."""

import http.client
import json
import re
import select
import socket
import struct
import time

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
TASKS = META + "tasks"
EFFECT_META = "dev.holdfast/effect"
TERMINAL = ("completed", "failed", "cancelled")


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        try:
            self.json = json.loads(body) if body else None
        except ValueError:
            self.json = None
        message = self.json if isinstance(self.json, dict) else {}
        self.result = message.get("result")
        self.error = message.get("error")
        self.id = message.get("id")
        self.code = self.error.get("code") if isinstance(self.error, dict) else None
        self.data = self.error.get("data") if isinstance(self.error, dict) else None

    @property
    def task_id(self):
        result = self.result if isinstance(self.result, dict) else {}
        return result.get("taskId")

    @property
    def handle(self):
        """Whether this is a CreateTaskResult."""
        return isinstance(self.result, dict) and self.result.get("resultType") == "task"

    @property
    def structured(self):
        """structuredContent of an isError result, or {}."""
        result = self.result if isinstance(self.result, dict) else {}
        return (result.get("structuredContent") or {}) if result.get("isError") else {}

    def __repr__(self):
        return f"{self.status} {self.body[:600]!r}"


def meta(declare=True, **more):
    capabilities = {"extensions": {TASKS: {}}} if declare else {}
    return {META + "protocolVersion": VERSION, META + "clientCapabilities": capabilities,
            META + "clientInfo": {"name": "rig", "version": "0"}, **more}


class Client:
    """An MCP 2026-07-28 client over one keep-alive connection; one thread each."""

    def __init__(self, port, token="rig-alice", timeout=30):
        self.port, self.token, self.timeout = port, token, timeout
        self.connection = None
        self.number = 0

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def headers(self, method, name, more=None):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json",
                   "Accept": "application/json, text/event-stream",
                   "MCP-Protocol-Version": VERSION, "Mcp-Method": method}
        if name is not None:
            headers["Mcp-Name"] = name
        headers |= more or {}
        return {header: value for header, value in headers.items() if value is not None}

    def post(self, body, headers, path="/mcp"):
        """Raises OSError or HTTPException when the connection is lost; never sends twice."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                         timeout=self.timeout)
        try:
            self.connection.request("POST", path, body, headers)
            answer = self.connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def request(self, method, params, name=None, headers=None, declare=True, extra_meta=None):
        self.number += 1
        params = dict(params)
        params.setdefault("_meta", meta(declare, **(extra_meta or {})))
        body = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method,
                           "params": params})
        return self.post(body, self.headers(method, name, headers))

    def body(self, tool, arguments, **params):
        """The bytes of a tools/call, for those who send it in their own way. `arguments` may be their
        very text."""
        self.number += 1
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return json.dumps({"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": {
            "arguments": 0, "name": tool, "_meta": meta(), **params}}).replace(
                '"arguments": 0', f'"arguments": {text}', 1).encode()

    def call_bytes(self, tool, arguments, **params):
        """All of its bytes."""
        return request_bytes(self.headers("tools/call", tool), self.body(tool, arguments, **params))

    def call(self, tool, arguments, headers=None, declare=True, extra_meta=None, **params):
        return self.request("tools/call", {"name": tool, "arguments": arguments, **params}, tool,
                            headers, declare, extra_meta)

    def get(self, task_id, **more):
        return self.request("tasks/get", {"taskId": task_id}, task_id, **more)

    def cancel(self, task_id, **more):
        return self.request("tasks/cancel", {"taskId": task_id}, task_id, **more)

    def update(self, task_id, answers, **more):
        return self.request("tasks/update", {"taskId": task_id, "inputResponses": answers}, task_id,
                            **more)

    def call_until_handle(self, tool, arguments, seconds=30):
        """As a client does whose connection may break at any time: the same effect ID again."""
        end = time.monotonic() + seconds
        while True:
            try:
                answer = self.call(tool, arguments)
                if answer.status not in (429, 503):
                    return answer
            except (OSError, http.client.HTTPException) as error:
                answer = error
            if time.monotonic() > end:
                raise RuntimeError(f"no handle within {seconds} s: {answer!r}")
            time.sleep(0.05)

    def wait(self, task_id, seconds=60, pause=0.05):
        """Polls to the end; rides over broken connections and 503. The last tasks/get answer."""
        end = time.monotonic() + seconds
        answer = None
        while time.monotonic() < end:
            try:
                answer = self.get(task_id)
                if answer.status == 200 and (answer.error is not None or
                                             answer.result["status"] in TERMINAL):
                    return answer
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(pause)
        raise RuntimeError(f"{task_id} not terminal within {seconds} s: {answer!r}")

    def run(self, tool, arguments, seconds=60):
        """Call and wait: (handle answer, last tasks/get answer)."""
        answer = self.call(tool, arguments)
        if not answer.handle:
            raise RuntimeError(f"no handle: {answer!r}")
        return answer, self.wait(answer.task_id, seconds)


class HeldCall:
    """A tools/call on a connection of its own that is read as it comes and can be left."""

    def __init__(self, port, params, headers, timeout=30):
        self.port = port
        self.began = time.monotonic()
        body = json.dumps({"jsonrpc": "2.0", "id": "q", "method": "tools/call", "params": params})
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        self.send(headers, body)
        self.got = b""
        self.closed = False

    def send(self, headers, body):
        self.socket.sendall(request_bytes(headers, body.encode()))

    def hear(self, seconds=0.0):
        """What comes in that time, or nothing more once the stream has ended."""
        if not self.closed and select.select([self.socket], [], [], seconds)[0]:
            try:
                part = self.socket.recv(65536)
            except ConnectionError:
                part = b""
            self.closed = not part
            self.got += part

    @property
    def head(self):
        return self.got.partition(b"\r\n\r\n")[0].decode().lower()

    @property
    def streams(self):
        return "content-type: text/event-stream" in self.head

    def body(self):
        """(decoded so far, whole)"""
        head, found, rest = self.got.partition(b"\r\n\r\n")
        if not found:
            return b"", False
        if b"transfer-encoding: chunked" not in head.lower():
            return rest, complete(self.got)
        out = b""
        while True:
            size, found, rest = rest.partition(b"\r\n")
            if not found:
                return out, False
            size = int(size, 16)
            if size == 0:
                return out, rest == b"\r\n"
            if len(rest) < size + 2:
                return out, False
            out, rest = out + rest[:size], rest[size + 2:]

    def messages(self):
        if not self.streams:
            text = self.body()[0]
            return [json.loads(text)] if text else []
        events = self.body()[0].decode().split("\r\n\r\n")
        return [json.loads(event.partition("data: ")[2]) for event in events
                if event.startswith("event: message\r\n")]

    def answer(self, seconds=30):
        """The message that answers, once all has come; else None. Its time is in `took`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.closed and not self.body()[1]:
            self.hear(0.05)
        self.took = time.monotonic() - self.began
        messages = self.messages() if self.body()[1] else []
        return messages[-1] if messages and messages[-1].get("id") == "q" else None

    def result(self, seconds=30):
        return (self.answer(seconds) or {}).get("result") or {}

    def leave(self, way="fin"):
        if way == "half":
            self.socket.shutdown(socket.SHUT_WR)
        elif way == "reset":
            reset_close(self.socket)
        else:
            self.socket.close()


def stored_part(answer):
    """What must be the same on every repeat: the stored part of a tasks/get answer's result, as
    the bytes stand in the answer where the order of members allows it."""
    result = (answer.result or {}).get("result")
    if not isinstance(result, dict):
        return None
    kept = {name: value for name, value in result.items() if name not in ("resultType", "_meta")}
    return json.dumps(kept, ensure_ascii=False)


def request_bytes(headers, body, host="localhost"):
    """A POST to /mcp."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return (f"POST /mcp HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
            ).encode() + body


def http_ask(port, path, method="GET", body=None, seconds=10):
    """(status, body) on a connection of its own; (0, b"") without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def metric_of(port, name):
    """Labels as they stand there, without their braces -> number."""
    text = http_ask(port, "/metrics")[1].decode()
    return {labels: float(number) for labels, number in
            re.findall(rf"^holdfast_{name}(?:{{(.*)}})? (\S+)$", text, re.M)}


def raw_exchange(port, data, seconds=5):
    """Sends bytes, reads until the peer closes, the answer is complete, or the time is over."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        got = b""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not complete(got):
            try:
                part = connection.recv(65536)
            except (TimeoutError, OSError):
                break
            if not part:
                break
            got += part
        return got


def complete(got):
    head, found, body = got.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return False


def parse_raw(got):
    """An Answer from raw bytes; status 0 when there was none."""
    head, found, body = got.partition(b"\r\n\r\n")
    if not found or not head.startswith(b"HTTP/1."):
        return Answer(0, {}, got)
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Answer(int(lines[0].split(" ")[1]), headers, body)


def reset_when_closed(connection):
    """It ends with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def reset_close(connection):
    reset_when_closed(connection)
    connection.close()
