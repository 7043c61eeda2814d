#!/usr/bin/python3
"""A proxy between our processes and Postgres that understands the framing of protocol 3: it knows
which act a flight holds and where its commit is answered, and can break exactly there.

  pgproxy.py PORT SOCKET CONTROL   listens on 127.0.0.1:PORT, speaks to Postgres at SOCKET, and
                                   takes orders on the Unix socket CONTROL: a JSON line each way.

An order is {"do": MODE, "act": ACT or null for any, "wait_ms": N} and is answered once, when it was
carried out on the next flight that holds the act: {"hit": {"act", "mode", "process"}} or {}.

  swallow    the act is sent, its commit awaited, and the connection reset: nothing of the answer
             passes                                                        (a lost COMMIT answer)
  rows       the same, but its rows pass; only the end of the act does not
  before     reset when the act is whole, and nothing of it has left
  half       the same, but half of its bytes have left
  fragments  the act leaves in pieces of one byte, and so does its answer
  delay      the act waits for "ms" before it leaves
  duplicate  the client's end is reset when the act is whole; the server's end stays, and the act
             leaves there after "ms": by then the client may have sent it again on a new connection

{"do": "deepest"} asks how many acts any connection ever had open at once.
"""

import asyncio
import collections
import contextlib
import json
import socket
import struct
import sys

ACTS = [(b"holdfast.accept_bounded(", "accept"), (b"holdfast.claim(", "claim"), (b"holdfast.step(", "step"),
        (b"holdfast.finish(", "finish"), (b"holdfast.release(", "release"),
        (b"holdfast.cancel(", "cancel"), (b"holdfast.sql_fence(", "sql"),
        (b"holdfast.beat_async(", "beat"), (b"holdfast.poll_task(", "poll")]
SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
TERMINATE = b"X\0\0\0\4"
GHOST_S_MAX = 10    # a late act may wait for a lock
PIECES_MAX = 4096  # bytes of an act or an answer that travel alone


class Order:
    def __init__(self, wanted):
        self.mode, self.act = wanted["do"], wanted.get("act")
        self.ms = wanted.get("ms", 0)
        self.done = asyncio.get_running_loop().create_future()

    def hit(self, act, process):
        if not self.done.done():
            self.done.set_result({"act": act, "mode": self.mode, "process": process})


class Broken(Exception):
    """Both ends are reset."""


class Messages:
    """Whole messages out of a stream of bytes."""

    def __init__(self):
        self.data = bytearray()

    def add(self, data):
        self.data += data
        while len(self.data) >= 5:
            size = 1 + struct.unpack_from(">I", self.data, 1)[0]
            if len(self.data) < size:
                return
            message = bytes(self.data[:size])
            del self.data[:size]
            yield message


class Connection:
    def __init__(self, proxy, reader, writer):
        self.proxy, self.reader, self.writer = proxy, reader, writer
        self.server_reader = self.server_writer = None
        self.process = "?"
        # An entry for each ReadyForQuery to come: the order for that act, or None; its act.
        self.expected = collections.deque([(None, None)])
        self.pieces = False  # the next answer travels byte by byte

    async def serve(self):
        pumps = []
        try:
            await self.start()
            pumps = [asyncio.create_task(self.requests()), asyncio.create_task(self.answers())]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            broken = any(pump.done() and isinstance(pump.exception(), Broken) for pump in pumps)
        except (OSError, EOFError, asyncio.IncompleteReadError):
            broken = True
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for writer in (self.writer, self.server_writer):
            if writer is not None:
                close(writer, broken)

    async def start(self):
        while True:
            size, code = struct.unpack(">II", await self.reader.readexactly(8))
            rest = await self.reader.readexactly(size - 8)
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            self.writer.write(b"N")
        names = rest.split(b"\0")
        if b"application_name" in names:
            self.process = names[names.index(b"application_name") + 1].decode()
        self.server_reader, self.server_writer = await asyncio.open_unix_connection(
            self.proxy.socket_path)
        self.server_writer.write(struct.pack(">II", size, code) + rest)

    # --- from the client ---

    async def requests(self):
        messages = Messages()
        act, group, order = None, [], None
        while data := await self.reader.read(65536):
            out = b""
            for message in messages.add(data):
                if message[:1] in b"PQ":
                    found = next((name for text, name in ACTS if text in message), None)
                    act = found or act
                    order = order or self.proxy.order_for(found)
                group.append(message)
                if order is None:
                    out += b"".join(group)
                    group = []
                if message[:1] not in b"SQ":
                    continue
                if order is not None:
                    self.server_writer.write(out)
                    out = b""
                    await self.carry_out(order, act, b"".join(group))
                    group = []
                else:
                    self.expected.append((None, act))
                self.proxy.deepest = max(self.proxy.deepest, len(self.expected))
                act, order = None, None
            self.server_writer.write(out)
            await self.server_writer.drain()

    async def carry_out(self, order, act, data):
        """The act is whole, and none of it has left."""
        if order.mode in ("swallow", "rows"):
            self.expected.append((order, act))
            self.server_writer.write(data)
            return
        order.hit(act, self.process)
        if order.mode == "duplicate":
            self.proxy.late(self.server_reader, self.server_writer, data, order.ms / 1000)
            self.server_reader = self.server_writer = None
            raise Broken
        if order.mode in ("before", "half"):
            self.server_writer.write(data[:len(data) // 2] if order.mode == "half" else b"")
            await asyncio.sleep(0.001)
            raise Broken
        self.expected.append((None, act))
        if order.mode == "delay":
            await asyncio.sleep(order.ms / 1000)
            self.server_writer.write(data)
            return
        self.pieces = True
        await in_pieces(self.server_writer, data)

    # --- from the server ---

    async def answers(self):
        messages, reader = Messages(), self.server_reader
        held, failed = [], False
        while data := await reader.read(65536):
            out = b""
            for message in messages.add(data):
                order, act = self.expected[0] if self.expected else (None, None)
                kind = message[:1]
                failed = failed or kind == b"E"
                if order is None or (order.mode == "rows" and kind != b"Z"):
                    out += message
                else:
                    held.append(message)
                if kind != b"Z":
                    continue
                self.expected.popleft()
                if order is not None and not failed:
                    self.writer.write(out)
                    order.hit(act, self.process)
                    await asyncio.sleep(0)
                    raise Broken
                out += b"".join(held)
                if order is not None:
                    self.proxy.order_again(order)
                held, failed = [], False
            if self.pieces and out:
                self.pieces = False
                await in_pieces(self.writer, out)
            else:
                self.writer.write(out)
            await self.writer.drain()


async def in_pieces(writer, data):
    sock = writer.get_extra_info("socket")
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(min(len(data), PIECES_MAX)):
        writer.write(data[at:at + 1])
        if at % 16 == 0:
            await asyncio.sleep(0)
    writer.write(data[PIECES_MAX:])
    await writer.drain()


def close(writer, broken):
    """RST instead of FIN where it broke."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        if broken and sock.family == socket.AF_INET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if broken:
        writer.transport.abort()
    else:
        writer.close()


class Proxy:
    def __init__(self, port, socket_path, control_path):
        self.port, self.socket_path, self.control_path = port, socket_path, control_path
        self.orders = []
        self.deepest = 0
        self.ghosts = set()

    def late(self, reader, writer, data, seconds):
        """What is left of a connection whose client is gone already."""
        async def ghost():
            await asyncio.sleep(seconds + 0.01)  # its own reader is gone by then
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                writer.write(data + TERMINATE)
                while await asyncio.wait_for(reader.read(65536), GHOST_S_MAX):
                    pass
            writer.close()

        task = asyncio.create_task(ghost())
        self.ghosts.add(task)
        task.add_done_callback(self.ghosts.discard)

    def order_for(self, act):
        """Takes the order that waits for this act."""
        for order in self.orders:
            if act is not None and order.act in (None, act):
                self.orders.remove(order)
                return order
        return None

    def order_again(self, order):
        """The act failed in the store, so nothing was lost."""
        if not order.done.done():
            self.orders.append(order)

    async def control(self, reader, writer):
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                wanted = json.loads(line)
                if wanted["do"] == "deepest":
                    writer.write(json.dumps({"hit": self.deepest}).encode() + b"\n")
                    continue
                order = Order(wanted)
                self.orders.append(order)
                done, _ = await asyncio.wait([order.done], timeout=wanted["wait_ms"] / 1000)
                hit = order.done.result() if done else None
                if not done:
                    order.done.cancel()
                    if order in self.orders:
                        self.orders.remove(order)
                writer.write(json.dumps({"hit": hit} if hit else {}).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def run(self):
        async def accepted(reader, writer):
            await Connection(self, reader, writer).serve()

        await asyncio.start_unix_server(self.control, self.control_path)
        server = await asyncio.start_server(accepted, "127.0.0.1", self.port)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(Proxy(int(sys.argv[1]), sys.argv[2], sys.argv[3]).run())
