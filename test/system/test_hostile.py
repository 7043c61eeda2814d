#!/usr/bin/python3
"""Slow and hostile peers: every time-out and every cap is seen to act, frees its socket, says what it
may say, and stores nothing; many slow peers at once do not slow an honest one; and the lists of Host
and Origin hold against the spellings by which a page of another site could reach this server."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import rig
from patience import since, soon
from rig import check, equal

HEADER_MS, BODY_MS, WRITE_MS, IDLE_MS = 3000, 4000, 3000, 5000
LATE_S = 2.0  # for a busy machine
FREE_S = 20  # until a socket is seen to come or go, below the time that would end it anyway
NEVER_MS = 120_000
CONNECTIONS, PER_ADDRESS = 20, 8
FLOOD_MS = 10_000
SLOW_PEERS, ADDRESSES = 600, 6
SLOW = "--slow"  # and a port: this program as the slow peers of the flood
HONEST_S = 4.0
SLACK_S = 0.1  # of two cores that others use as well
RSS_KIB_MAX = 128 << 10
ESTABLISHED = 1  # in TCP_INFO


def request(effect_id, port, host=None, method="tools/call", extra="", body=None):
    """A whole call on the wire."""
    if body is None:
        body = rig.Client(0).body("rig_report", {"effect_id": effect_id})
    lines = "".join(f"{name}: {value}\r\n" for name, value in
                    rig.Client(0).headers(method, "rig_report").items())
    head = (f"POST /mcp HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\n{lines}{extra}"
            f"Content-Length: {len(body)}\r\n\r\n")
    return head.encode() + body


def list_request(port):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": rig.meta()}}
    return request(None, port, method="tools/list", body=json.dumps(body).encode())


def connect(port, address="127.0.0.1", small=False):
    connection = socket.socket()
    if small:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.bind((address, 0))
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


# --- the slow ones of the flood, a process of their own -------------------------------------------

def slow_main(port):
    """Opens SLOW_PEERS, says "open", feeds each a byte at a time; says how many the server ended."""
    whole = request("flood", port)
    head_len = whole.index(b"\r\n\r\n") + 4
    flooding = list_request(port) * 200  # each answer is some kilobytes
    peers = []
    for number in range(SLOW_PEERS):
        kind = number % 3
        peer = connect(port, f"127.0.0.{2 + number % ADDRESSES}", small=kind == 2)
        peer.setblocking(False)
        # From where to go on, in bytes that end neither head nor body.
        sent = peer.send((whole[:1], whole[:head_len], flooding)[kind])
        peers.append([peer, kind, sent])
    print("open", flush=True)
    ended, began = 0, time.monotonic()
    while peers and time.monotonic() - began < FLOOD_MS / 1000 + 10:
        left = []
        for entry in peers:
            if feed(entry, whole, flooding):
                left.append(entry)
            else:
                ended += 1
        peers = left
        time.sleep(0.2)
    print(json.dumps({"ended": ended, "seconds": since(began)}), flush=True)


def feed(entry, whole, flooding):
    """False once the server has ended it."""
    peer, kind, at = entry
    try:
        if kind == 2:  # asks on and reads nothing, so only the kernel tells
            if peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
                return False
            entry[2] += peer.send(flooding[entry[2] % len(flooding):])
            return True
        peer.send(whole[at:at + 1])
        entry[2] += 1
        return not peer.recv(4096)  # an answer is the end
    except BlockingIOError:
        return True
    except OSError:
        return False


if sys.argv[1:2] == [SLOW]:
    slow_main(int(sys.argv[2]))
    sys.exit(0)

counts = {"timeouts": 0, "turned_away": 0, "slow_peers": 0, "hosts": 0, "origins": 0}
stack = rig.Stack(workers=1, tools=["rig_report"])


def sockets_of(api):
    """Connections of its clients: sockets that have its port."""
    port = f":{api.port:04X}"
    lines = pathlib.Path("/proc", str(api.pid), "net", "tcp").read_text().splitlines()[1:]
    inodes = {line.split()[9] for line in lines
              if line.split()[1].endswith(port) and line.split()[3] != "0A"}
    mine = set()
    for fd in pathlib.Path("/proc", str(api.pid), "fd").iterdir():
        try:
            mine.add(os.readlink(fd))
        except OSError:
            continue
    return sum(f"socket:[{inode}]" in mine for inode in inodes)


def stored():
    return stack.query("SELECT count(*) FROM holdfast.task")[0][0]


# --- time-outs ------------------------------------------------------------------------------------

def drip(connection, data, every=0.1):
    """A byte at a time until the server has enough; what it then says."""
    connection.settimeout(every)
    for byte in data:
        try:
            connection.sendall(bytes([byte]))
            got = connection.recv(4096)
            if not got or not got.startswith(b"HTTP/1.1 100"):
                return got
        except TimeoutError:
            continue
        except ConnectionError:
            return b""
    return listen(connection)


def listen(connection):
    connection.settimeout(20)
    got = b""
    try:
        while part := connection.recv(65536):
            got += part
            if not got.startswith(b"HTTP/1.1 100") and rig.complete(got):
                break
    except ConnectionError:
        pass
    return got


def never_reads(connection, port):
    """Asks more and more and takes nothing; returns once it was reset."""
    asks = list_request(port)
    connection.settimeout(0.2)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            connection.sendall(asks)
        except TimeoutError:
            continue
        except ConnectionError:
            return b""
    return b"never ended"


def kept(connection, port):
    """After one good answer."""
    connection.sendall(list_request(port))
    equal(rig.parse_raw(listen_once(connection)).status, 200, "a good one first")


def listen_once(connection):
    got = b""
    while not rig.complete(got) and (part := connection.recv(65536)):
        got += part
    return got


def timeouts(api):
    whole = request("slow", api.port)
    head, body = whole[:whole.index(b"\r\n\r\n") + 4], whole[whole.index(b"\r\n\r\n") + 4:]
    coded = head[:head.index(b"Content-Length")] + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(body), body)
    expecting = head[:-2] + b"Expect: 100-continue\r\n\r\n"

    def silent(start=b"", after=None):
        def act(connection):
            if after:
                after(connection, api.port)
            connection.sendall(start)
            return listen(connection)
        return act

    def dripping(start, rest, after=None):
        def act(connection):
            if after:
                after(connection, api.port)
            connection.sendall(start)
            return drip(connection, rest)
        return act

    cases = [  # what, how, status (0: closed without a word), the time-out
        ("nothing at all", silent(), 0, HEADER_MS),
        ("half a request line", silent(b"POST /m"), 408, HEADER_MS),
        ("half a head", silent(head[:60]), 408, HEADER_MS),
        ("a head without its end", silent(head[:-2]), 408, HEADER_MS),
        ("a dripping head", dripping(b"", head), 408, HEADER_MS),
        ("endless headers", dripping(head[:-2], b"X-A: y\r\n" * 100), 408, HEADER_MS),
        ("no body", silent(head), 408, BODY_MS),
        ("half a body", silent(whole[:-9]), 408, BODY_MS),
        ("a dripping body", dripping(head, body), 408, BODY_MS),
        ("no chunk", silent(coded), 408, BODY_MS),
        ("half a chunk size", silent(coded + b"1"), 408, BODY_MS),
        ("no last chunk", silent(coded + chunk), 408, BODY_MS),
        ("dripping chunks", dripping(coded, b"1\r\n{\r\n" * 100), 408, BODY_MS),
        ("dripping extensions", dripping(coded + b"1;", b"a" * 200), 408, BODY_MS),
        ("dripping trailers", dripping(coded + chunk + b"0\r\n", b"X: y\r\n" * 50), 408, BODY_MS),
        ("expects, then nothing", silent(expecting), 408, BODY_MS),
        ("a kept connection", silent(after=kept), 0, IDLE_MS),
        ("a kept one, dripping", dripping(b"", head, after=kept), 408, HEADER_MS),
        ("a blank line, then nothing", silent(b"\r\n"), 0, HEADER_MS),
        ("one that never reads", lambda connection: never_reads(connection, api.port), 0, WRITE_MS),
    ]

    def one(case):
        what, act, status, after_ms = case
        began = time.monotonic()  # the server's time does not begin before
        with connect(api.port, small=what.endswith("reads")) as connection:
            got = act(connection)
            took = time.monotonic() - began
            soon(began, after_ms / 1000 + LATE_S + 1, f"{what}: ended soon after")
            if got.startswith(b"HTTP/1.1 100"):
                got = got.partition(b"\r\n\r\n")[2]
            answer = rig.parse_raw(got)
            equal(answer.status, status, f"{what}: status")
            check(took >= after_ms / 1000 - 0.1, f"{what}: ended after its time", took)
            if status:
                equal((answer.headers.get("connection"), (answer.json or {}).get("executed")),
                      ("close", "no"), f"{what}: the last answer, and nothing ran")
                connection.settimeout(20)
                check(connection.recv(1) == b"", f"{what}: closed behind it")
            else:
                equal(got, b"", f"{what}: without a word")
            counts["timeouts"] += 1

    before = stored()
    rig.in_parallel(one, cases)
    rig.until(lambda: sockets_of(api) == 0, FREE_S, "every socket is free again")
    equal(stored(), before, "slow ones: nothing stored")


# --- caps -----------------------------------------------------------------------------------------

def turned_away(api, address, what):
    """A whole call from there is told to come back, and not stored."""
    with connect(api.port, address) as connection:
        try:
            connection.sendall(request("turned-away", api.port))
        except ConnectionError:
            pass
        answer = rig.parse_raw(listen(connection))
    equal(answer.status, 503, f"{what}: status")
    check(int(answer.headers.get("retry-after", "0")) >= 1, f"{what}: Retry-After", repr(answer))
    equal((answer.headers.get("connection"), (answer.json or {}).get("executed")), ("close", "no"),
          f"{what}: the last answer, and nothing ran")
    counts["turned_away"] += 1


def served(api, address, what):
    with connect(api.port, address) as connection:
        kept(connection, api.port)
    rig.until(lambda: sockets_of(api) == len(held), FREE_S, f"{what}: its socket is free again")


held = []


def caps(api):
    before = stored()
    held.extend(connect(api.port) for _ in range(PER_ADDRESS))
    rig.until(lambda: sockets_of(api) == len(held), FREE_S, "all of one address are in")
    for _ in range(5):
        turned_away(api, "127.0.0.1", "one more of that address")
    served(api, "127.0.0.2", "another address")
    held.pop().close()
    rig.until(lambda: sockets_of(api) == len(held), FREE_S, "one left")
    served(api, "127.0.0.1", "the address again")
    for number in range(CONNECTIONS - len(held)):
        held.append(connect(api.port, f"127.0.0.{2 + number // PER_ADDRESS}"))
    rig.until(lambda: sockets_of(api) == CONNECTIONS, FREE_S, "all are in")
    for _ in range(5):
        turned_away(api, "127.0.0.9", "one more of all")
    rig.in_parallel(lambda number: turned_away(api, f"127.0.0.{10 + number}", "a crowd"),
                    list(range(60)))
    rig.until(lambda: sockets_of(api) == CONNECTIONS, FREE_S, "those turned away are gone")
    while held:
        held.pop().close()
    rig.until(lambda: sockets_of(api) == 0, FREE_S, "all left")
    served(api, "127.0.0.9", "after all left")
    equal(stored(), before, "caps: nothing stored")


# --- many slow ones beside an honest one ----------------------------------------------------------

def honest(api, what):
    """Seconds of each answer: polls, lists and calls, as quickly as they come."""
    client = rig.Client(api.port)
    task = client.call("rig_report", {"effect_id": f"honest-{what}"}).task_id
    took, end = [], time.monotonic() + HONEST_S
    while time.monotonic() < end:
        for ask in (lambda: client.get(task), lambda: client.request("tools/list", {}),
                    lambda: client.call("rig_report", {"effect_id": f"honest-{what}"})):
            began = time.monotonic()
            equal(ask().status, 200, f"honest beside {what}")
            seconds = time.monotonic() - began
            took.append(since(began) if seconds >= SLACK_S else seconds)
            time.sleep(0.002)
    return sorted(took)


def at(took, share):
    return took[int(len(took) * share)]


def flood(api):
    alone = honest(api, "none")
    slow = subprocess.Popen([sys.executable, __file__, SLOW, str(api.port)], stdout=subprocess.PIPE,
                            text=True)
    try:
        equal(slow.stdout.readline().strip(), "open", "the slow ones are there")
        rig.until(lambda: sockets_of(api) >= SLOW_PEERS, FLOOD_MS / 2000, "all slow ones are in")
        beside = honest(api, "slow ones")
        memory = rig.memory_kib(api.pid)
        told = json.loads(slow.communicate(timeout=60)[0])
    finally:
        slow.kill()
        slow.wait()
    counts["slow_peers"] = told["ended"]
    counts["p99_alone_ms"] = round(at(alone, 0.99) * 1000, 1)
    counts["p99_beside_ms"] = round(at(beside, 0.99) * 1000, 1)
    check(at(beside, 0.99) <= max(2 * at(alone, 0.99), at(alone, 0.99) + SLACK_S),
          "an honest one beside slow ones: p99", (at(alone, 0.99), at(beside, 0.99)))
    equal(told["ended"], SLOW_PEERS, "slow peers that were ended")
    check(told["seconds"] <= FLOOD_MS / 1000 + LATE_S + 2, "all slow ones gone", told)
    rig.until(lambda: sockets_of(api) == 0, FREE_S, "their sockets are free")
    check(memory <= RSS_KIB_MAX, "memory beside them in KiB", memory)
    equal(stack.query("SELECT count(*) FROM holdfast.task WHERE effect_id = 'flood'"), [(0,)],
          "slow ones: nothing stored")


# --- Host and Origin ------------------------------------------------------------------------------

HOSTS = "api.example,localhost,[::1]"
ORIGINS = "https://console.example,http://localhost:3000"

HOST_ROWS = {
    "api.example": True, "API.Example": True, "api.example:80": True, "api.example:65535": True,
    "localhost": True, "localhost:1": True, "[::1]": True, "[::1]:8080": True, "api.example:": True,
    "127.0.0.1": False, "evil.example": False, "evil.example:80": False, "api.example.": False,
    "api.example.evil.example": False, "evil-api.example": False, "xapi.example": False,
    "localhost.evil.example": False, "[::2]": False, "[::ffff:127.0.0.1]": False, "::1": False,
    "api.example:80:80": False, "api.example, localhost": False, "api.example@evil.example": False,
    "evil.example#api.example": False, "api.example/": False, "0x7f000001": False, "0": False,
    "2130706433": False, "": False, "*": False, "[::1": False, "api.example:99999999": False,
}

# Origin -> (Host, taken)
ORIGIN_ROWS = [
    ("https://console.example", "api.example", True), ("http://localhost:3000", "localhost", True),
    # A page of this server itself.
    ("http://api.example", "api.example", True), ("https://api.example:8443", "api.example:8443", True),
    ("http://localhost:8080", "localhost:8080", True), ("http://[::1]:80", "[::1]:80", True),
    ("null", "api.example", False), ("", "api.example", False), ("*", "api.example", False),
    ("http://console.example", "api.example", False), ("https://console.example:443", "api.example", False),
    ("https://console.example/", "api.example", False), ("https://Console.example", "api.example", False),
    ("HTTPS://console.example", "api.example", False), ("https://console.example.", "api.example", False),
    ("https://sub.console.example", "api.example", False),
    ("https://console.example.evil.example", "api.example", False),
    ("https://evilconsole.example", "api.example", False),
    ("https://console.example@evil.example", "api.example", False),
    ("https://console.example,http://localhost:3000", "api.example", False),
    ("https://console.example http://localhost:3000", "api.example", False),
    ("console.example", "api.example", False), ("//console.example", "api.example", False),
    ("http://localhost", "api.example", False), ("http://localhost:3001", "api.example", False),
    ("http://localhost:30000", "api.example", False), ("file://", "api.example", False),
    ("http://api.example:81", "api.example", False), ("ftp://api.example", "api.example", False),
    ("https://evil.example", "api.example", False), ("http://127.0.0.1", "localhost", False),
    # The name was rebound to us: Host and Origin agree, and are not ours.
    ("http://evil.example", "evil.example", False), ("http://evil.example:8080", "evil.example:8080", False),
]


def gate_answer(api, effect_id, host, extra=""):
    return rig.parse_raw(rig.raw_exchange(api.port, request(effect_id, api.port, host, extra=extra)))


def gate(api):
    for number, (host, taken) in enumerate(HOST_ROWS.items()):
        effect_id = f"host-{number}"
        whole = request(effect_id, api.port, "@").replace(b"Host: @", f"Host: {host}".encode())
        answer = rig.parse_raw(rig.raw_exchange(api.port, whole))
        wanted = {200} if taken else {400, 403}
        check(answer.status in wanted, f"Host {host!r}", repr(answer))
        equal(len(stack.task_rows(effect_id)), int(taken), f"Host {host!r}: stored or not")
        counts["hosts"] += 1
    for number, (origin, host, taken) in enumerate(ORIGIN_ROWS):
        effect_id = f"origin-{number}"
        answer = gate_answer(api, effect_id, host, f"Origin: {origin}\r\n")
        equal(answer.status, 200 if taken else 403, f"Origin {origin!r} at {host!r}")
        check("access-control-allow-origin" not in answer.headers or taken,
              f"Origin {origin!r}: not let in", repr(answer))
        equal(len(stack.task_rows(effect_id)), int(taken), f"Origin {origin!r}: stored or not")
        counts["origins"] += 1
    twice = "Origin: https://console.example\r\n" * 2
    equal(gate_answer(api, "origin-twice", "api.example", twice).status, 403, "Origin twice")
    equal(stack.task_rows("origin-twice"), [], "Origin twice: nothing stored")


def main():
    rig.run((timeouts, stack.another_api("api-times", header_timeout_ms=HEADER_MS,
                                         body_timeout_ms=BODY_MS, write_timeout_ms=WRITE_MS,
                                         idle_timeout_ms=IDLE_MS)),
            (caps, stack.another_api("api-caps", header_timeout_ms=NEVER_MS,
                                     idle_timeout_ms=NEVER_MS, connections_max=CONNECTIONS,
                                     connections_per_address_max=PER_ADDRESS)),
            (gate, stack.another_api("api-gate", allowed_hosts=HOSTS, allowed_origins=ORIGINS)),
            (flood, stack.another_api("api-flood", header_timeout_ms=FLOOD_MS,
                                      body_timeout_ms=FLOOD_MS, write_timeout_ms=FLOOD_MS)))
    check(all(process.alive() for process in stack.processes), "every process lives")
    rig.finish("hostile", counts, {"timeouts": 20, "turned_away": 70, "slow_peers": SLOW_PEERS,
                                   "hosts": len(HOST_ROWS), "origins": len(ORIGIN_ROWS)})


main()
