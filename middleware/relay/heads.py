"""One HTTP/1 head: may it pass, how is its body framed, and which of its bytes must change.

In: the raw bytes of one request or response head, its empty line included.  Out: `RequestHead`,
`ResponseHead`, or `BadHead` with the reason.  llhttp (through httptools) judges the grammar of request
heads; the refusals on top of it are ours.  Pure: no sockets, no clock.  What follows a head is the work
of `framing.py`; what a bad head leads to is decided in `upward.py`.

**Source:** RFC 9112 sections 2.2, 3, 5 and 6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import httptools

MAX_HEAD_BYTES: Final = 64 * 1024
OWN_HEADER: Final = b"x-fairtrial-"
"""Header lines whose name begins so are ours: they are taken out of what goes upstream."""

_VERSIONS: Final = frozenset((b"HTTP/1.1", b"HTTP/1.0"))
_TOKEN: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_STATUSES: Final = {b"HTTP/1.1 %d " % status: status for status in range(100, 600)}
"""The usual beginnings of a response, looked up before the pattern is asked."""
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])[ \r]")
_OWN_LINES: Final = re.compile(rb"\r\n" + OWN_HEADER + rb"[^\r\n]*", re.IGNORECASE)
_DOCKER_STREAM: Final = re.compile(rb"^application/vnd\.docker\.[a-z0-9.-]*-stream", re.IGNORECASE)
_DOCKER_HIJACK: Final = re.compile(rb"/(?:containers/[^/?]+/attach|exec/[^/?]+/start)(?:\?|$)")


class BadHead(ValueError):
    """A request head that we do not vouch for; the message says why, in words fit for a 400."""


class Body(IntEnum):
    """How the end of a message is found (RFC 9112 section 6.3)."""

    NONE = 0
    LENGTH = 1
    CHUNKED = 2
    UNTIL_CLOSE = 3
    TUNNEL = 4


# The members, looked up once: on the path of every head an enum's attribute is not cheap.
_NONE: Final = Body.NONE
_LENGTH: Final = Body.LENGTH
_CHUNKED: Final = Body.CHUNKED
_UNTIL_CLOSE: Final = Body.UNTIL_CLOSE
_TUNNEL: Final = Body.TUNNEL


@dataclass(slots=True)
class RequestHead:
    """A head that passed; spans are offsets into `raw`."""

    raw: bytes
    method: bytes
    target_start: int
    target_end: int
    host_start: int
    host_end: int
    body: Body
    length_bytes: int
    may_tunnel: bool
    """CONNECT, an upgrade, or (Docker) a hijack: what follows belongs to whom the response says."""
    has_own_lines: bool = False
    msg: int = 0
    """Lines of ours are in it, which do not go upstream.  `msg`: its number on the connection, once known."""
    sent: bytes = b""
    """What goes upstream in its place where its body was edited (`editing.py`)."""

    @property
    def target(self) -> bytes:
        """The request target as it was sent, nothing decoded."""
        return self.raw[self.target_start : self.target_end]


@dataclass(slots=True)
class ResponseHead:
    """A response head as far as framing needs it; `msg` is the number of its request, 0 if none is open."""

    raw: bytes
    msg: int
    status: int
    body: Body
    length_bytes: int

    @property
    def interim(self) -> bool:
        """A 1xx other than 101: another head for the same request follows."""
        return self.status < 200 and self.status != 101


class _Silent:
    """The parser's listener: llhttp is asked for its judgement only."""

    __slots__ = ()


_SILENT: Final = _Silent()


def spans(low: bytes, name: bytes) -> list[tuple[int, int]]:
    """Offsets of the values of every line called `name` (lower case) in a lower-cased head."""
    needle = b"\r\n" + name + b":"
    found: list[tuple[int, int]] = []
    at = low.find(needle)
    while at != -1:
        start = at + len(needle)
        end = low.find(b"\r\n", start)
        found.append((start, end))
        at = low.find(needle, end)
    return found


def could_begin(first: int) -> bool:
    """Whether a byte can be the first one of a request line (a TLS hello or an HTTP/0 joke cannot)."""
    return first in _TOKEN


def has_bare_line_end(part: bytes | bytearray) -> bool:
    """Whether a (possibly unfinished) head holds an LF without its CR."""
    return part.count(b"\n") != part.count(b"\r\n")


def goes_on_plainly(begun: bytearray, data: bytes) -> bool:
    """Whether a head that has begun well only goes on with `data`, so that nothing new can be said of it.

    Looks at the new bytes alone: a head that comes byte by byte would else be searched whole for each of them.
    """
    before = bytes(begun[-3:])
    return (
        len(begun) + len(data) <= MAX_HEAD_BYTES
        and b"\r\n\r\n" not in before + data
        and not has_bare_line_end(before[-1:] + data if before[-1:] == b"\r" else data)
    )


def judge_grammar(raw: bytes, low: bytes, *, mask: bool) -> None:
    """Let llhttp read the head.  The Upgrade name is masked: with it llhttp would skip a request body.

    Raises `BadHead`.
    """
    shown = raw
    at = low.find(b"\r\nupgrade:") if mask else -1
    while at != -1:
        shown = shown[: at + 2] + b"X-grade" + shown[at + 9 :]
        at = low.find(b"\r\nupgrade:", at + 9)
    try:
        httptools.HttpRequestParser(_SILENT).feed_data(shown)
    except httptools.HttpParserUpgrade:
        pass  # CONNECT: llhttp stops after the head, as we do
    except httptools.HttpParserError as error:
        raise BadHead(f"llhttp: {error}") from None


def read_request_head(raw: bytes, *, docker: bool = False) -> RequestHead:
    """Judge one whole request head and say how its body is framed.

    `raw` may begin with empty lines (RFC 9112 section 2.2).  `docker` marks attach and exec-start as
    requests that a stream may follow.  Raises `BadHead`.
    """
    if len(raw) > MAX_HEAD_BYTES:
        raise BadHead("head over 64 KiB")
    lead = 0
    while raw.startswith(b"\r\n", lead):
        lead += 2
    line_ends = raw.count(b"\r\n")
    if raw.count(b"\n") != line_ends or raw.count(b"\r") != line_ends:
        raise BadHead("a bare CR or LF in the head")
    if b"\r\n " in raw or b"\r\n\t" in raw:
        raise BadHead("a folded header line")
    parts = raw[lead : raw.find(b"\r\n", lead)].split(b" ")
    if len(parts) != 3 or parts[2] not in _VERSIONS:
        raise BadHead("not an HTTP/1 request line")
    method, target, version = parts
    low = raw.lower()
    upgrade = b"\r\nupgrade:" in low
    judge_grammar(raw, low, mask=upgrade)
    host_start = host_end = -1
    at = low.find(b"\r\nhost:")
    if at != -1:
        if low.find(b"\r\nhost:", at + 7) != -1:
            raise BadHead("two Host lines")
        host_start, host_end = _trim(raw, at + 7, raw.find(b"\r\n", at + 7))
    elif version == b"HTTP/1.1":
        raise BadHead("no Host line")
    body, length = _request_body(raw, low, version)
    may_tunnel = method == b"CONNECT"
    if upgrade:
        may_tunnel = may_tunnel or any(b"upgrade" in low[a:b] for a, b in spans(low, b"connection"))
    if docker and method == b"POST":
        may_tunnel = may_tunnel or _DOCKER_HIJACK.search(target) is not None
    start = lead + len(method) + 1
    own = b"\r\n" + OWN_HEADER in low
    return RequestHead(
        raw, method, start, start + len(target), host_start, host_end, body, length, may_tunnel, own
    )  # fmt: skip


def _request_body(raw: bytes, low: bytes, version: bytes) -> tuple[Body, int]:
    at = low.find(b"\r\ncontent-length:")
    if b"\r\ntransfer-encoding:" in low:
        codings = spans(low, b"transfer-encoding")
        if version == b"HTTP/1.0":
            raise BadHead("Transfer-Encoding in an HTTP/1.0 request")
        if at != -1:
            raise BadHead("Content-Length and Transfer-Encoding")
        start, end = codings[0]
        if len(codings) > 1 or low[start:end].strip(b" \t") != b"chunked":
            raise BadHead("Transfer-Encoding other than one chunked")
        return _CHUNKED, 0
    if at == -1:
        return _NONE, 0
    if low.find(b"\r\ncontent-length:", at + 17) != -1:
        raise BadHead("two Content-Length lines")
    value = raw[at + 17 : raw.find(b"\r\n", at + 17)].strip(b" \t")
    if not value.isdigit() or len(value) > 18:
        raise BadHead("Content-Length is not a number")
    length = int(value)
    return (_LENGTH, length) if length else (_NONE, 0)


def _trim(raw: bytes, start: int, end: int) -> tuple[int, int]:
    while start < end and raw[start] in b" \t":
        start += 1
    while end > start and raw[end - 1] in b" \t":
        end -= 1
    return start, end


def rewrite(head: RequestHead, target: bytes, host: bytes, extra: bytes = b"") -> bytes:
    """The head with another target, another Host value, and our own lines taken out; all else verbatim.

    `extra` holds whole header lines (each with its CRLF) that a proxy towards the upstream asks for; they
    go right behind the request line.
    """
    raw = head.raw
    line_end = raw.find(b"\r\n", head.target_end) + 2 if extra else head.target_end
    new = raw[: head.target_start] + target + raw[head.target_end : line_end] + extra
    if head.host_start >= 0:
        new += raw[line_end : head.host_start] + host + raw[head.host_end :]
    else:
        new += raw[line_end:]
    return _OWN_LINES.sub(b"", new) if head.has_own_lines else new


def with_length(head: RequestHead, length_bytes: int) -> bytes:
    """The head with one Content-Length, this one, where its framing stood; all else verbatim."""
    raw, low = head.raw, head.raw.lower()
    name = b"\r\ncontent-length:" if head.body is _LENGTH else b"\r\ntransfer-encoding:"
    start = low.find(name)
    end = low.find(b"\r\n", start + 2)
    return raw[:start] + b"\r\nContent-Length: %d" % length_bytes + raw[end:]


def read_response_head(raw: bytes, msg: int, method: bytes, *, docker: bool = False) -> ResponseHead:
    """How the body behind a response head ends (RFC 9112 section 6.3); `method` is b"" if nobody asked.

    Raises `BadHead` when it cannot be told; the caller then stops looking, it does not stop the bytes.
    """
    status = _STATUSES.get(raw[:13], 0)
    if not status:
        match = _STATUS_LINE.match(raw)
        if match is None:
            raise BadHead("not an HTTP/1 status line")
        status = int(match[1])
    if status == 101 or (method == b"CONNECT" and 200 <= status < 300):
        return ResponseHead(raw, msg, status, _TUNNEL, 0)
    if status < 200 or status in (204, 304) or method == b"HEAD":
        return ResponseHead(raw, msg, status, _NONE, 0)
    low = raw.lower()
    if b"\r\ntransfer-encoding:" in low:
        codings = spans(low, b"transfer-encoding")
        last = b",".join(low[a:b] for a, b in codings).rsplit(b",", 1)[-1].strip(b" \t")
        return ResponseHead(raw, msg, status, _CHUNKED if last == b"chunked" else _UNTIL_CLOSE, 0)
    at = low.find(b"\r\ncontent-length:")
    if at != -1:
        value = raw[at + 17 : raw.find(b"\r\n", at + 17)].strip(b" \t")
        if value.isdigit() and len(value) <= 18 and low.find(b"\r\ncontent-length:", at + 17) == -1:
            length = int(value)
            return ResponseHead(raw, msg, status, _LENGTH if length else _NONE, length)
        lengths = spans(low, b"content-length")
        values = {part.strip(b" \t") for a, b in lengths for part in raw[a:b].split(b",")}
        value = values.pop()
        if values or not value.isdigit() or len(value) > 18:
            raise BadHead("Content-Length is not one number")
        length = int(value)
        return ResponseHead(raw, msg, status, _LENGTH if length else _NONE, length)
    if docker and status == 200:
        types = spans(low, b"content-type")
        if types and _DOCKER_STREAM.match(raw[slice(*types[0])].strip(b" \t")):
            return ResponseHead(raw, msg, status, _TUNNEL, 0)
    return ResponseHead(raw, msg, status, _UNTIL_CLOSE, 0)
