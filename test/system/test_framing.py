#!/usr/bin/python3
"""HTTP framing of a running API, seen from outside: what is well-framed gets one answer and leaves
the connection usable, what is ambiguous gets one refusal and the end of the connection. Each case is
sent whole, cut at every byte, byte by byte, and with a probe pipelined behind it: the number of
answers tells whether the server and we agree on where requests end. Beside the cases here, which
take REFUSALS for an answer, the 85 of framing_cases.py each have one pinned answer.

    test_framing.py [HOST:PORT [PATH]]      default: a stack of its own, /healthz

GET PATH must answer without closing; only framing is looked at, never what an answer says.
"""
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from framing_cases import CLOSES, MUST, ROWS

ROWS_COUNT, ROWS_REFUSED_COUNT = 85, 62
ANSWER_S_MAX = 10
CLIENTS = 8  # at a time, below any sane limit per address
REFUSALS = {400, 413, 414, 415, 417, 431, 501, 505}


def get(path, *lines, version="HTTP/1.1", host="Host: a\r\n"):
    head = f"GET {path} {version}\r\n{host}" + "".join(line + "\r\n" for line in lines)
    return (head + "\r\n").encode("latin-1")


def post(path, *lines, body=b"", version="HTTP/1.1"):
    head = f"POST {path} {version}\r\nHost: a\r\n" + "".join(line + "\r\n" for line in lines)
    return (head + "\r\n").encode("latin-1") + body


def chunked(path, body):
    return post(path, "Transfer-Encoding: chunked", body=body)


def good_cases(p):
    return {
        "plain": get(p),
        "blank line first": b"\r\n" + get(p),
        "odd but legal header": get(p, "X-A:\tb\xe9 \t", "x-b:"),
        "query": get(p + "?a=b&c=%20"),
        "absolute form": get("http://a" + p),
        "body by length": post(p, "Content-Length: 4", body=b"{}\r\n"),
        "empty body": post(p, "Content-Length: 0"),
        "no body": post(p),
        "one chunk": chunked(p, b"2\r\n{}\r\n0\r\n\r\n"),
        "chunks that look like ends": chunked(p, b"5\r\n0\r\n\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
        "extension": chunked(p, b"2;a=b;c\r\n{}\r\n0;d\r\n\r\n"),
        "trailer": chunked(p, b"2\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n"),
        "a request in a body": post(p, "Content-Length: 27", body=b"GET /no HTTP/1.1\r\nHost:a\r\n\r"),
        "upgrade is ignored": get(p, "Connection: Upgrade", "Upgrade: h2c"),
        "GET with a body": get(p, "Content-Length: 3") + b"abc",
    }


def bad_cases(p):
    te, cl = "Transfer-Encoding: chunked", "Content-Length: 2"
    end = b"0\r\n\r\n"
    lines = {
        "length and chunked": (cl, te),
        "chunked and length": (te, cl),
        "two lengths": (cl, "Content-Length: 3"),
        "a length twice": (cl, cl),
        "list of lengths": ("Content-Length: 2, 2",),
        "signed length": ("Content-Length: +2",),
        "negative length": ("Content-Length: -2",),
        "hex length": ("Content-Length: 0x2",),
        "empty length": ("Content-Length:",),
        "length over 2^64": ("Content-Length: 18446744073709551618",),
        "length with a tail": ("Content-Length: 2 2",),
        "space before colon": ("Content-Length : 2",),
        "tab before colon": ("Transfer-Encoding\t: chunked",),
        "chunked twice": (te, te),
        "chunked listed twice": ("Transfer-Encoding: chunked, chunked",),
        "identity": ("Transfer-Encoding: identity",),
        "gzip, chunked": ("Transfer-Encoding: gzip, chunked",),
        "chunked, gzip": ("Transfer-Encoding: chunked, gzip",),
        "quoted chunked": ('Transfer-Encoding: "chunked"',),
        "vertical tab": ("Transfer-Encoding: \x0bchunked",),
        "folded value": ("X: a\r\n b", cl),
        "folded coding": ("Transfer-Encoding:\r\n chunked",),
        "bare CR": ("X: a\rb", cl),
        "bare LF": ("X: a\nTransfer-Encoding: chunked", cl),
        "NUL in a value": ("X: a\0b", cl),
        "NUL in a name": ("X\0: a", cl),
        "control in a value": ("X: a\x02b", cl),
        "space in a name": ("X Y: a", cl),
        "no colon": ("XY", cl),
        "no name": (": a", cl),
        "unknown expectation": ("Expect: x", cl),
        "coded content": ("Content-Encoding: gzip", cl),
        "second Host": ("Host: b", cl),
        "too large a body": ("Content-Length: 99999999999",),
        "too many headers": tuple(f"X-{i}: y" for i in range(101)),
        "too long a header": ("X: " + "y" * 9000,),
    }
    cases = {name: post(p, *head, body=b"{}") for name, head in lines.items()}
    for size in (b"", b"x", b"0x2", b"+2", b"-2", b" 2", b"2 ", b"2;", b"2;a\n", b"2;a\rb",
                 b"2;\0", b"10000000000000002", b"00000000000000002", b"2;" + b"a" * 300):
        name = f"chunk size {size[:20]!r}"
        cases[name] = chunked(p, size + b"\r\n{}\r\n" + end)
    cases |= {
        "chunk lines with LF": chunked(p, b"2\n{}\n0\n\n"),
        "chunk too short": chunked(p, b"3\r\n{}\r\n" + end),
        "chunk too long": chunked(p, b"1\r\n{}\r\n" + end),
        "chunk without its end": chunked(p, b"2\r\n{}" + end),
        "length in a trailer": chunked(p, b"0\r\nContent-Length: 2\r\n\r\n"),
        "coding in a trailer": chunked(p, b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "folded trailer": chunked(p, b"0\r\n X: y\r\n\r\n"),
        "chunked in 1.0": post(p, te, body=end, version="HTTP/1.0"),
        "no Host": get(p, host=""),
        "empty Host": get(p, host="Host:\r\n"),
        "odd Host": get(p, host="Host: a b\r\n"),
        "space first": get(p, host=" Host: a\r\n"),
        "0.9": f"GET {p}\r\n\r\n".encode(),
        "two spaces": get(" " + p),
        "three parts": get(p + " x"),
        "tabs": f"GET\t{p}\tHTTP/1.1\r\nHost: a\r\n\r\n".encode(),
        "lower case version": get(p, version="http/1.1"),
        "version 1.10": get(p, version="HTTP/1.10"),
        "version 2.0": get(p, version="HTTP/2.0"),
        "h2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "TLS": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        "only LF": f"GET {p} HTTP/1.1\nHost: a\n\n".encode(),
        "NUL in the target": get(p + "\0"),
        "non-ASCII target": get(p + "\xff"),
        "DEL in the target": get(p + "\x7f"),
        "fragment": get(p + "#x"),
        "target of another host": get("http://b" + p),
        "target without a slash": get("x"),
        "long target": get(p + "?" + "x" * 9000),
        "CONNECT": b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        "unknown method": b"FROB / HTTP/1.1\r\nHost: a\r\n\r\n",
        "odd method": b"GE(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "CR first": b"\r" + get(p),
        "two blank lines first": b"\r\n\r\n" + get(p),
        # Answered at once: without an end of line nothing more would come.
        "what was left of a body": b'":"x"}',
        "a word without an end": b"A" * 33,
    }
    return cases


class Framing(Exception):
    pass


class Client:
    """A connection that counts answers."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.bytes = b""

    def send(self, data):
        """False when the server had closed before all was sent."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        except TimeoutError as error:
            raise Framing("no answer in time") from error
        self.bytes += data
        return bool(data)

    def answer(self):
        """(status, closes), or None at the end of the stream."""
        while b"\r\n\r\n" not in self.bytes:
            if not self.more():
                if self.bytes:
                    raise Framing(f"half an answer: {self.bytes[:80]!r}")
                return None
        head, _, self.bytes = self.bytes.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:])
        length = int(fields["content-length"])
        while len(self.bytes) < length:
            if not self.more():
                raise Framing("half a body")
        self.bytes = self.bytes[length:]
        return int(lines[0].split(" ")[1]), fields.get("connection") == "close"

    def expect_kept(self, what):
        got = self.answer()
        if got is None or got[1]:
            raise Framing(f"{what}: {got or 'closed'}, not an answer that keeps the connection")
        return got[0]

    def expect_refused(self, what, statuses=REFUSALS):
        got = self.answer()
        if got is None or not got[1] or got[0] not in statuses:
            raise Framing(f"{what}: {got or 'closed'}, not a refusal with {statuses}")
        if self.answer() is not None:
            raise Framing(f"{what}: answers after a refusal")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class Suite:
    def __init__(self, address, path):
        self.address = address
        self.good = good_cases(path)
        self.bad = bad_cases(path)
        self.probe = get(path)
        with Client(address) as client:
            client.send(self.probe)
            self.probe_status = client.expect_kept("the probe")

    def expect_probe(self, client, what):
        if client.expect_kept(what) != self.probe_status:
            raise Framing(f"{what}: the probe behind it was read as something else")

    def pieces(self, data, cut):
        if cut is None:
            return [data]
        if cut == 0:
            return [data[i:i + 1] for i in range(len(data))]
        return [data[:cut], data[cut:]]

    def send_in_pieces(self, client, data, cut):
        for number, piece in enumerate(self.pieces(data, cut)):
            if number:
                time.sleep(0.0005)
            if not client.send(piece):
                break

    def one(self, name, data, cut, is_good):
        with Client(self.address) as client:
            self.send_in_pieces(client, data, cut)
            if is_good:
                client.expect_kept(name)
                client.send(self.probe)
                self.expect_probe(client, name)
            else:
                client.expect_refused(name)

    def whole(self, cases, is_good):
        return [(n, lambda n=n, d=d: self.one(n, d, None, is_good)) for n, d in cases.items()]

    def spots(self, data):
        """Where to cut; 0 is at each byte. Long cases are long in one place only; their first and
        last bytes tell enough."""
        spots = [c for c in range(len(data)) if c < 300 or c > len(data) - 50]
        return spots[1::20] if len(data) > 2000 else spots

    def cut(self, cases, is_good):
        return [(f"{name}, cut at {c or 'each byte'}",
                 lambda n=name, d=data, c=c: self.one(n, d, c, is_good))
                for name, data in cases.items() for c in self.spots(data)]

    def row(self, row, cut=None, behind=b""):
        """One of framing_cases.py; `behind`: the probe, in the same write as the row."""
        with Client(self.address) as client:
            self.send_in_pieces(client, row.data + behind, cut)
            if row.refused:
                client.expect_refused(row.name, {row.answers})
                return
            if row.answers == CLOSES:
                got = client.answer()
                if got is None or not got[1] or client.answer() is not None:
                    raise Framing(f"{row.name}: {got or 'closed'}, not one answer and the end")
                return
            for _ in range(row.answers):
                client.expect_kept(row.name)
            if not behind:
                client.send(self.probe)
            self.expect_probe(client, row.name)

    def rows(self):
        return [(row.name, lambda row=row: self.row(row)) for row in ROWS]

    def rows_cut(self):
        return [(f"{row.name}, cut at {c or 'each byte'}", lambda row=row, c=c: self.row(row, c))
                for row in ROWS for c in self.spots(row.data)]

    def rows_pipelined(self):
        return [(f"{row.name} + probe", lambda row=row: self.row(row, behind=self.probe))
                for row in ROWS]

    def pair(self, first, second, second_is_good):
        name = f"{first} + {second}"
        with Client(self.address) as client:
            data = self.good[first] + (self.good if second_is_good else self.bad)[second]
            client.send(data + self.probe)
            client.expect_kept(name)
            if second_is_good:
                client.expect_kept(name)
                self.expect_probe(client, name)
            else:
                client.expect_refused(name)

    def pairs(self):
        out = [(f"{a} + {b}", lambda a=a, b=b: self.pair(a, b, True))
               for a in self.good for b in self.good]
        return out + [(f"plain + {b}", lambda b=b: self.pair("plain", b, False)) for b in self.bad]

    def behind_bad(self):
        def run(name):
            with Client(self.address) as client:
                client.send(self.bad[name] + self.probe)
                client.expect_refused(name)
        return [(f"{n} + probe", lambda n=n: run(n)) for n in self.bad]

    def prefix(self, name, length):
        """Half a request is never taken for a whole one, also when the client then closes."""
        with Client(self.address) as client:
            client.send(self.good[name][:length])
            client.socket.shutdown(socket.SHUT_WR)
            got = client.answer()
            if got is not None and not (got[1] and got[0] in REFUSALS):
                raise Framing(f"{name}: half of it was answered with {got}")

    def prefixes(self):
        return [(f"{n}, first {i} bytes", lambda n=n, i=i: self.prefix(n, i))
                for n, d in self.good.items() for i in range(1, len(d))]

    def run(self, title, cases):
        failed = []

        def act(case):
            try:
                case[1]()
            except (Framing, OSError, KeyError, ValueError) as error:
                failed.append(f"  {case[0]}: {error}")

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(act, cases))
        print(f"{title}: {len(cases) - len(failed)} of {len(cases)}", flush=True)
        print("\n".join(failed[:20]), end="\n" if failed else "")
        return len(cases) - len(failed), len(failed)


def main(args):
    if args:
        host, _, port = args[0].rpartition(":")
    else:
        import rig  # only here: against a running server the script stands alone
        host, port = "127.0.0.1", rig.Stack(workers=0, maintain=False, tools=[]).apis[0].port
    suite = Suite((host.strip("[]"), int(port)), args[1] if len(args) > 1 else "/healthz")
    counts = [
        suite.run("well-framed", suite.whole(suite.good, True)),
        suite.run("ambiguous", suite.whole(suite.bad, False)),
        suite.run("ambiguous with a request behind", suite.behind_bad()),
        suite.run("pipelined pairs", suite.pairs()),
        suite.run("prefixes", suite.prefixes()),
        suite.run("85 pinned", suite.rows()),
        suite.run("85 pinned, cut", suite.rows_cut()),
        suite.run("85 pinned with a request behind", suite.rows_pipelined()),
        suite.run("well-framed, cut", suite.cut(suite.good, True)),
        suite.run("ambiguous, cut", suite.cut(suite.bad, False)),
    ]
    passed, failed = (sum(column) for column in zip(*counts))
    must = [row for row in ROWS if row.rule == MUST]
    if (len(ROWS), len(must)) != (ROWS_COUNT, ROWS_REFUSED_COUNT):
        failed += 1
    print(json.dumps({"test": "framing", "passed": passed, "failed": failed,
                      "good_cases": len(suite.good), "bad_cases": len(suite.bad),
                      "pinned": len(ROWS), "must_be_refused": len(must)}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
