"""Conversations drawn by hypothesis: every content coding in every framing, whatever the order of the head lines.

Out: `Exchange`s (what the client sends, what must arrive upstream, what comes back and what an observer must see of
it) and the places at which a stream is cut.
"""

from __future__ import annotations

import gzip
import random
import re
from dataclasses import dataclass, replace
from typing import Final

import brotli
import zstandard
from hypothesis import strategies as st

from tests.middleware.relay.rig import TOKEN

SIZES: Final = (0, 1, 2, 17, 900, 5_000, 70_000, 300_000)
CODINGS: Final = ("identity", "gzip", "br", "zstd", "multi-frame zstd")
TARGETS: Final = (
    "/v1/messages",
    "/v1/messages?beta=true",
    "/v1/models/a%3Ab",
    "/v1beta/models/gemini%3AstreamGenerateContent?alt=sse",
    "/v1/%3A/%2F/%25/%00?q=%3A&r=/t/x/",
    "/v1//x/./../y;p=1,2",
    "/v1/models/a:b@c!$&'()*+,;=",
    "/?",
    "/" + "long/" * 500,
)
_WORDS: Final = ("Accept", "Anthropic-Beta", "X-Api-Key", "User-Agent", "Cookie", "X", "Accept-Encoding", "TE", "Via")
_VALUES: Final = ("", "1", "a, b", "tools-2024-04-04", "\xe9\xff", 'W/"x"', "trailers", "host: b", "x" * 3000)


@dataclass(frozen=True)
class Exchange:
    """One request and its response: as sent, as it must arrive, and as the observer must see both bodies."""

    sent: bytes
    arrives: bytes
    request_payload: bytes
    response: bytes
    response_payload: bytes
    complete: bool = True
    framed: bool = True
    """Not close-delimited."""
    end: str = "none"
    """How the upstream ends the connection behind it: none, fin, rst, ragged (TLS: no close_notify)."""

    @property
    def ends_as(self) -> str:
        """How that looks to the client: a ragged end is an error where nothing else tells a cut (DESIGN, Ends)."""
        if self.end == "ragged":
            return "fin" if self.framed else "rst"
        return self.end


def content(size: int, seed: int) -> bytes:
    """Half words, half noise, so that a coding has something to do and something that it cannot do."""
    rng = random.Random(seed)
    words = b'data: {"type":"content_block_delta","text":"hello"}\n\n' * (size // 106 + 1)
    return words[: size // 2] + rng.randbytes(size - size // 2)


def encode(coding: str, body: bytes) -> bytes:
    """The body in a content coding."""
    if coding == "gzip":
        return gzip.compress(body, 1, mtime=0)
    if coding == "br":
        return bytes(brotli.compress(body, quality=1))
    if coding == "zstd":
        return zstandard.ZstdCompressor(level=1).compress(body)
    if coding == "multi-frame zstd":
        half = len(body) // 2
        return b"".join(zstandard.ZstdCompressor(level=1).compress(part) for part in (body[:half], body[half:], b"end"))
    return body


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """A coding, and a body in it."""
    coding = draw(st.sampled_from(CODINGS))
    return coding, encode(coding, content(draw(st.sampled_from(SIZES)), draw(st.integers(0, 7))))


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    """The chunked coding with what RFC 9112 section 7.1 allows: extensions, upper case, leading zeros, trailers."""
    sizes = draw(st.lists(st.sampled_from((1, 2, 3, 16, 500, 9_000, 65_536)), min_size=1, max_size=6))
    last = max(sizes[-1], len(body) // 20)
    out, pos = bytearray(), 0
    while pos < len(body):
        size = min(sizes.pop(0) if sizes else last, len(body) - pos)
        number = draw(st.sampled_from((f"{size:x}", f"{size:X}", f"000{size:x}")))
        extension = draw(st.sampled_from(("", ";a=b", ';quoted="x y;z"', " ;spaced", ";only", ";a=1;b=2")))
        out += f"{number}{extension}\r\n".encode() + body[pos : pos + size] + b"\r\n"
        pos += size
    trailers = draw(st.sampled_from((b"", b"X-Trailer: 1\r\nx-trailer:2\r\n", b"Digest: sha-256=: two words\r\n")))
    return bytes(out) + draw(st.sampled_from((b"0", b"000", b"0;last"))) + b"\r\n" + trailers + b"\r\n"


def _cased(name: str, how: int) -> str:
    return (name, name.lower(), name.upper(), name.swapcase())[how]


@st.composite
def head_lines(draw: st.DrawFn, *required: str) -> list[bytes]:
    """Some lines, doubles among them, and the required ones, in any order and case and with any white space."""
    free = draw(st.lists(st.tuples(st.sampled_from(_WORDS), st.sampled_from(_VALUES)), max_size=6))
    lines = [f"{name}: {value}" for name, value in free] + list(required)
    spelt: list[bytes] = []
    for line in draw(st.permutations(lines)):
        name, _, value = line.partition(":")
        white = draw(st.sampled_from((" ", "", "\t ", "  ")))
        tail = draw(st.sampled_from(("", "", " ", "\t")))
        if line == "Transfer-Encoding: chunked":
            tail = tail.strip("\t")  # llhttp takes no tab there: such a head is one of those that nobody vouches for
        spelt.append(f"{_cased(name, draw(st.integers(0, 3)))}:{white}{value.strip(' ')}{tail}".encode("latin-1"))
    return spelt


def _joined(first: bytes, lines: list[bytes]) -> bytes:
    return b"\r\n".join((first, *lines)) + b"\r\n\r\n"


@st.composite
def exchanges(draw: st.DrawFn, base: str, authority: str, *, last: bool, tls: bool = False) -> Exchange:
    """One request with its response; the last one of a connection may also end it, and may be cut anywhere."""
    method = draw(st.sampled_from(("GET", "POST", "POST", "PUT", "HEAD", "DELETE")))
    target = draw(st.sampled_from(TARGETS))
    coding, payload = draw(bodies()) if method in ("POST", "PUT") else ("identity", b"")
    required = ["Host: DOOR"]
    if coding != "identity":
        required.append(f"Content-Encoding: {coding.removeprefix('multi-frame ')}")
    wire = payload
    if payload and draw(st.booleans()):
        required.append("Transfer-Encoding: chunked")
        wire = draw(chunked(payload))
    elif payload or draw(st.booleans()):
        required.append(f"Content-Length: {len(payload)}")
    lines = draw(head_lines(*required))
    ours = [b"X-Fairtrial-Note: mine"] if draw(st.booleans()) else []
    at = draw(st.integers(0, len(lines)))
    sent = [line.replace(b"DOOR", b"127.0.0.1:1") for line in lines]
    arrives = [line.replace(b"DOOR", authority.encode()) for line in lines]
    door = f"/t/{TOKEN}{target}"
    head_sent = _joined(f"{method} {door} HTTP/1.1".encode(), [*sent[:at], *ours, *sent[at:]])
    head_arrives = _joined(f"{method} {base}{target} HTTP/1.1".encode(), arrives)
    answer, body, complete, framed, end = draw(responses(method, last=last, tls=tls))
    return Exchange(head_sent + wire, head_arrives + wire, payload, answer, body, complete, framed, end)


_LENGTH_LINE: Final = re.compile(rb"(\r\ncontent-length:[ \t]*)[0-9]+", re.IGNORECASE)


@st.composite
def said_again(draw: st.DrawFn, before: Exchange, *, last: bool, tls: bool) -> Exchange:
    """The request before, byte for byte, but for a body of another length: what an SDK does all day.

    One without a Content-Length is said again as it was.
    """
    method = before.sent.split(b" ", 1)[0].decode()
    answer, body, complete, framed, end = draw(responses(method, last=last, tls=tls))
    heads = [wire.partition(b"\r\n\r\n")[0] for wire in (before.sent, before.arrives)]
    if method not in ("POST", "PUT") or _LENGTH_LINE.search(heads[0]) is None:
        return replace(before, response=answer, response_payload=body, complete=complete, framed=framed, end=end)
    payload = content(draw(st.sampled_from((1, 2, 9, 10, 99, 900, 5_000, 70_000))), draw(st.integers(0, 7)))
    sent, arrives = (
        _LENGTH_LINE.sub(rb"\g<1>%d" % len(payload), head, count=1) + b"\r\n\r\n" + payload for head in heads
    )
    return Exchange(sent, arrives, payload, answer, body, complete, framed, end)


@st.composite
def responses(draw: st.DrawFn, method: str, *, last: bool, tls: bool) -> tuple[bytes, bytes, bool, bool, str]:
    """A response (interim ones before it), its payload, is it whole, is it framed, how the upstream ends behind it."""
    kinds = ["length", "length", "chunked", "chunked", "none", "empty"]
    kind = draw(st.sampled_from(kinds + (["close", "close", "cut", "cut"] if last else [])))
    interims = draw(
        st.lists(
            st.sampled_from(
                (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nlink: </b>\r\n\r\n")
            ),
            max_size=2,
        )
    )
    before = b"".join(interims)
    end = draw(st.sampled_from(("none", "fin", "rst", "ragged") if tls else ("none", "fin", "rst"))) if last else "none"
    if method == "HEAD":
        framing = draw(st.sampled_from(("Content-Length: 4242", "Transfer-Encoding: chunked", "X: y")))
        return before + _joined(b"HTTP/1.1 200 OK", draw(head_lines(framing))), b"", True, True, end
    if kind == "none":
        status = draw(st.sampled_from((b"204 No Content", b"304 Not Modified")))
        return before + _joined(b"HTTP/1.1 " + status, draw(head_lines("Content-Length: 9"))), b"", True, True, end
    if kind == "empty":
        return before + _joined(b"HTTP/1.1 529 ", draw(head_lines("Content-Length: 0"))), b"", True, True, end
    coding, body = draw(bodies())
    required = [] if coding == "identity" else [f"Content-Encoding: {coding.removeprefix('multi-frame ')}"]
    status = draw(st.sampled_from((b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.1 429 Too Many Requests")))
    if kind == "close":
        version = draw(st.sampled_from((status, b"HTTP/1.0 200 OK")))
        end = "fin" if end == "none" else end
        return before + _joined(version, draw(head_lines(*required))) + body, body, end == "fin", False, end
    if kind == "cut":
        body = body + b"?"
        keep = draw(st.integers(0, len(body) - 1))
        if draw(st.booleans()):
            head = _joined(status, draw(head_lines(*required, f"Content-Length: {len(body)}")))
            wire = head + body[:keep]
        else:
            head = _joined(status, draw(head_lines(*required, "Transfer-Encoding: chunked")))
            size = b"%x\r\n" % len(body)
            wire = head + (size + body[:keep] if keep else size[: draw(st.integers(0, len(size)))])
        return before + wire, body[:keep], False, True, "fin" if end == "none" else end
    if kind == "length":
        return (
            before + _joined(status, draw(head_lines(*required, f"Content-Length: {len(body)}"))) + body,
            body,
            True,
            True,
            end,
        )
    framing = draw(st.sampled_from(("Transfer-Encoding: chunked", "Transfer-Encoding: gzip, Chunked")))
    return before + _joined(status, draw(head_lines(*required, framing))) + draw(chunked(body)), body, True, True, end


@st.composite
def cuts(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """The stream in pieces: cut anywhere, and around line ends, where framing is most easily wrong."""
    anywhere = draw(st.lists(st.integers(0, max(0, len(stream) - 1)), max_size=6))
    line_ends = [at for at in range(min(len(stream), 4000)) if stream.startswith(b"\r\n", at)][:60]
    near = draw(st.lists(st.tuples(st.sampled_from(line_ends or [0]), st.integers(-2, 5)), max_size=6))
    points = sorted({0, *anywhere, *(min(max(0, at + by), len(stream)) for at, by in near)})
    return [piece for a, b in zip(points, [*points[1:], len(stream)], strict=True) if (piece := stream[a:b])]
