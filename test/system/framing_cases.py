"""85 requests and how each must be framed: `answers` is how many keep the connection (1 or 2),
CLOSES for one good answer that ends it, or the status of a refusal. 62 of them could be read in two
ways, or are no HTTP/1.1 at all: all 62 are refused. Where RFC 9112 leaves a choice, `why` says what
was chosen; mostly it is refused, since a proxy in front may have read it the other way.
test_framing.py sends them; only framing is looked at, never what an answer says."""

import dataclasses

CLOSES = "closes"
MUST, MAY, GOOD = "must be refused", "may be refused", "must be taken"


@dataclasses.dataclass
class Row:
    name: str
    data: bytes
    rule: str
    answers: int | str  # a status of 400 and more: refused with it
    why: str = ""

    @property
    def refused(self):
        return isinstance(self.answers, int) and self.answers >= 400


ROWS = []


def row(name, data, rule=MUST, answers=400, why=""):
    assert rule != MUST or answers >= 400
    ROWS.append(Row(name, data, rule, answers, why))


def posted(lines, body=b"", version=b"HTTP/1.1"):
    return b"POST /mcp " + version + b"\r\nHost: a\r\n" + b"".join(
        line + b"\r\n" for line in lines) + b"\r\n" + body


def post(name, *lines, body=b"hello", version=b"HTTP/1.1", **more):
    row(name, posted(lines, body, version), **more)


def chunked(name, body, **more):
    post(name, b"Transfer-Encoding: chunked", body=body, **more)


def got(start=b"GET / HTTP/1.1", host=b"Host: a\r\n", lines=b"", end=b"\r\n"):
    return start + b"\r\n" + host + lines + end


def get(name, start=b"GET / HTTP/1.1", host=b"Host: a\r\n", lines=b"", **more):
    row(name, got(start, host, lines), **more)


TE, CL, LAST = b"Transfer-Encoding: chunked", b"Content-Length: 5", b"0\r\n\r\n"
WHOLE = b"5\r\nhello\r\n" + LAST

# --- well-framed ----------------------------------------------------------------------------------

get("GET", rule=GOOD, answers=1)
post("body by length", CL, rule=GOOD, answers=1)
chunked("body in a chunk", WHOLE, rule=GOOD, answers=1)
chunked("chunk extension", b"5;a=b\r\nhello\r\n" + LAST, rule=GOOD, answers=1)
chunked("trailer", b"5\r\nhello\r\n0\r\nX: y\r\n\r\n", rule=GOOD, answers=1)

# --- where a body ends ----------------------------------------------------------------------------

post("chunked and length", CL, TE, body=LAST)
post("length and chunked", TE, CL, body=LAST)
post("two lengths that differ", CL, b"Content-Length: 6", body=b"hello!")
post("one length twice", CL, CL, rule=MAY, why="one way to say a length")
post("list of lengths that differ", b"Content-Length: 5, 6", body=b"hello!")
post("list of equal lengths", b"Content-Length: 5, 5", rule=MAY, why="one way to say a length")
for value in (b"+5", b"-5", b"0x5", b"5 5"):
    post(f"length {value.decode()}", b"Content-Length: " + value)
post("empty length", b"Content-Length: ", body=b"")
post("length over 64 bits", b"Content-Length: 18446744073709551621")
post("length with 400 zeros first", b"Content-Length: " + b"0" * 400 + b"5", rule=MAY,
     why="19 digits are enough for any body")
post("length with an underscore", b"Content_Length: 5", b"Content-Length: 0", body=b"", rule=MAY,
     answers=1, why="another header's name, that nobody here reads")
post("chunked on two lines", TE, TE, body=LAST)
post("chunked listed twice", TE + b", chunked", body=LAST)
post("identity", b"Transfer-Encoding: identity", CL)
post("xchunked", b"Transfer-Encoding: xchunked", body=LAST)
post("chunked, identity", TE + b", identity", body=LAST)
post("gzip, chunked", b"Transfer-Encoding: gzip, chunked", body=LAST, rule=MAY,
     why="no coding but chunked is known")
post("tab before chunked", b"Transfer-Encoding:\tchunked", body=LAST, rule=MAY, answers=1,
     why="white space like any other")
post("vertical tab before chunked", b"Transfer-Encoding: \x0bchunked", body=LAST)
post("coding, space before the colon", b"Transfer-Encoding : chunked", body=LAST)
post("length, space before the colon", b"Content-Length : 5")
post("quoted chunked", b'Transfer-Encoding: "chunked"', body=LAST)
post("chunked in 1.0", TE, body=LAST, version=b"HTTP/1.0")

# --- header lines ---------------------------------------------------------------------------------

post("folded header", b"X: a", b" b", b"Content-Length: 0", body=b"")
post("folded coding", b"Transfer-Encoding:", b" chunked", body=LAST)
row("space before the first header", b"POST / HTTP/1.1\r\n Host: a\r\nContent-Length: 0\r\n\r\n")
row("lines ended by LF", b"GET / HTTP/1.1\nHost: a\n\n", MAY, why="one way to end a line")
get("CR in a value", lines=b"X: a\rb\r\n")
row("CR for an end of line", b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n")
get("NUL in a value", lines=b"X: a\0b\r\n")
get("NUL in a name", lines=b"X\0: a\r\n")
get("control in a value", lines=b"X: a\x01b\r\n")
get("space in a name", lines=b"X Y: a\r\n")
get("no colon", lines=b"foo\r\n")
get("no name", lines=b": a\r\n")
get("bracket in a name", lines=b"X(: a\r\n")

# --- chunks ---------------------------------------------------------------------------------------

for size in (b"0x5", b"+5"):
    chunked(f"chunk size {size.decode()}", size + b"\r\nhello\r\n" + LAST)
chunked("chunk size -0", b"-0\r\n\r\n")
chunked("no chunk size", b"\r\n\r\n")
chunked("chunk size 2^64", b"10000000000000000\r\n\r\n")
chunked("chunk size 2^64 + 5", b"10000000000000005\r\nhello\r\n" + LAST)
chunked("space behind a chunk size", b"5 \r\nhello\r\n" + LAST)
chunked("space before a chunk size", b" 5\r\nhello\r\n" + LAST)
chunked("chunk lines ended by LF", b"5\nhello\n0\n\n")
chunked("chunk without its end", b"5\r\nhello" + LAST)
chunked("chunk with another end", b"5\r\nhelloXX" + LAST)
for name, extension in (("LF", b"a\nhello"), ("CR", b"a\rX\r\nhello"), ("NUL", b"a\0\r\nhello")):
    chunked(f"{name} in a chunk extension", b"5;" + extension + b"\r\n" + LAST)
chunked("semicolon behind a chunk size", b"5;\r\nhello\r\n" + LAST, rule=MAY,
        why="an extension has a name")

# --- request lines --------------------------------------------------------------------------------

get("no Host", host=b"")
get("two Hosts", lines=b"Host: b\r\n")
get("space in Host", host=b"Host: a b\r\n")
get("version 1.2", b"GET / HTTP/1.2", rule=MAY, answers=505, why="1.0 and 1.1 are spoken")
get("version 11.1", b"GET / HTTP/11.1")
get("version 2.0", b"GET / HTTP/2.0", answers=505)
get("version in lower case", b"GET / http/1.1")
get("version with a tail", b"GET / HTTP/1.1x")
row("0.9", b"GET /\r\n\r\n")
get("three parts", b"GET / x HTTP/1.1")
get("two spaces", b"GET  / HTTP/1.1", rule=MAY, why="one space between two parts")
get("tabs between parts", b"GET\t/\tHTTP/1.1")
get("NUL in the target", b"GET /\0 HTTP/1.1")
get("byte 0xff in the target", b"GET /\xff HTTP/1.1")
get("DEL in the target", b"GET /\x7f HTTP/1.1")
get("method in lower case", b"get / HTTP/1.1", rule=MAY, answers=501,
    why="methods are case-sensitive: an unknown one")
get("bracket in the method", b"GE(T / HTTP/1.1")
get("no method", b" / HTTP/1.1")
row("blank line first", b"\r\n" + got(), MAY, 1, "RFC 9112 2.2: SHOULD ignore one")
row("CR first", b"\r" + got())

# --- what stands behind ---------------------------------------------------------------------------

chunked("coding in a trailer", b"0\r\nTransfer-Encoding: chunked\r\n\r\n", rule=MAY,
        why="a trailer must not frame")
chunked("length in a trailer", b"0\r\nContent-Length: 9\r\n\r\n", rule=MAY,
        why="a trailer must not frame")
row("GET with a body", got(lines=CL + b"\r\n") + b"hello", MAY, 1, "framed like any other")
row("two, pipelined", got() + got(b"GET /2 HTTP/1.1"), GOOD, 2)
row("a request behind the last", got(lines=b"Connection: close\r\n") + got(b"GET /2 HTTP/1.1"), MAY,
    CLOSES, "the client said that nothing follows")
get("upgrade to h2c", lines=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", rule=MAY, answers=1, why="a wish: ignored")
