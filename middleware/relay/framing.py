"""Where messages begin and end on one connection, in both directions, whatever the cuts of the reads.

In: the bytes of one direction as they were read.  Out: events with the exact bytes (heads raw, body
pieces both as they are on the wire and with the transfer framing taken off, ends).  Sans-IO, a bound on
every buffer.  httptools cannot do this part: it gives no offsets, skips the body of a request with
Upgrade, and swallows what follows the response to a HEAD.

The request side is strict (`BadRequest`); the response side gives up (`Blind`), because its bytes have
already gone to the client when they are looked at.

**Source:** RFC 9112 sections 6 and 7; RFC 9110 section 7.8 (upgrade).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from fairtrial.middleware.relay.heads import (
    MAX_HEAD_BYTES,
    BadHead,
    Body,
    RequestHead,
    ResponseHead,
    could_begin,
    has_bare_line_end,
    read_request_head,
    read_response_head,
)

MAX_CHUNK_LINE_BYTES: Final = 16 * 1024
MAX_TRAILER_BYTES: Final = 64 * 1024
_BARE: Final = "a bare CR or LF in the head"
_LOOSE_END: Final = re.compile(rb"\n\r?\n|\r\r")
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


# The members, looked up once: on the path of every read an enum's attribute is not cheap.
_NONE: Final = Body.NONE
_LENGTH: Final = Body.LENGTH
_CHUNKED: Final = Body.CHUNKED
_UNTIL_CLOSE: Final = Body.UNTIL_CLOSE
_TUNNEL: Final = Body.TUNNEL


class FramingError(ValueError):
    """A chunked body that is none."""


@dataclass(slots=True)
class BodyData:
    """A piece of a body: `wire` as it travels (request side only), `payload` without transfer framing."""

    wire: bytes
    payload: bytes


@dataclass(slots=True)
class MessageEnd:
    """The message is whole (`complete`) or will never be.  `wire_bytes` counts head and body as sent."""

    msg: int
    wire_bytes: int
    complete: bool = True
    how: str = "framed"


@dataclass(slots=True)
class BadRequest:
    """Framing of the request side ends here.  `rest`: every byte that was read and not given out."""

    reason: str
    in_body: bool
    rest: bytes
    fault: Exception | None = None
    """Not the client's doing: framing itself failed."""


@dataclass(slots=True)
class Tunnel:
    """The response opened a tunnel; `rest` (already forwarded) is its first piece."""

    msg: int
    rest: bytes


@dataclass(slots=True)
class Blind:
    """The response side cannot be framed any more."""

    reason: str


@dataclass(slots=True)
class InFlight:
    """A request whose final response has not ended."""

    msg: int
    method: bytes
    may_tunnel: bool = False
    responded: bool = False


RequestEvent: TypeAlias = RequestHead | BodyData | MessageEnd | BadRequest
ResponseEvent: TypeAlias = ResponseHead | BodyData | MessageEnd | Tunnel | Blind


@dataclass(slots=True)
class ChunkedBody:
    """The chunked coding, extensions and trailers included, cut anywhere."""

    _left: int = 0
    _state: int = 0  # 0 size line, 1 data, 2 CRLF behind data, 3 trailer lines
    _line: bytearray = field(default_factory=bytearray)
    _trailer_bytes: int = 0

    def feed(self, data: bytes, pos: int, out: list[bytes]) -> tuple[int, bool]:
        """Take bytes from `pos`, put payload pieces into `out`, give (new position, body is whole).

        Raises `FramingError`.
        """
        end = len(data)
        while pos < end:
            if self._state == 1:
                take = min(self._left, end - pos)
                out.append(data[pos : pos + take])
                pos += take
                self._left -= take
                if not self._left:
                    self._state = 2
                continue
            at = data.find(b"\n", pos)
            if at == -1:
                self._line += data[pos:]
                self._bound()
                return end, False
            line = data[pos : at + 1] if not self._line else bytes(self._line + data[pos : at + 1])
            self._line.clear()
            pos = at + 1
            if self._take_line(line):
                return pos, True
        return pos, False

    def whole(self, data: bytes) -> bytes | None:
        """The payload, if `data` is one chunk from its size line to its last CRLF; else None, nothing taken."""
        if self._state or self._line:
            return None
        match = _CHUNK_LINE.match(data)
        if match is None or not data.endswith(b"\r\n"):
            return None
        start = match.end()
        size = int(match[1], 16)
        if not size or start + size + 2 != len(data) or start > MAX_CHUNK_LINE_BYTES:
            return None
        return data[start:-2]

    def _take_line(self, line: bytes) -> bool:
        if self._state == 0:
            match = _CHUNK_LINE.fullmatch(line)
            if match is None or len(line) > MAX_CHUNK_LINE_BYTES:
                raise FramingError("not a chunk size line")
            self._left = int(match[1], 16)
            self._state = 1 if self._left else 3
        elif self._state == 2:
            if line != b"\r\n":
                raise FramingError("no line end behind a chunk")
            self._state = 0
        else:
            if line == b"\r\n":
                return True
            self._trailer_bytes += len(line)
            # A bare CR ends a line for some servers: then a request could begin within these.
            if not line.endswith(b"\r\n") or line.count(b"\r") > 1 or b":" not in line or line[0] in b" \t:":
                raise FramingError("not a trailer line")
            if self._trailer_bytes > MAX_TRAILER_BYTES:
                raise FramingError("trailers over 64 KiB")
        return False

    def _bound(self) -> None:
        line = self._line
        if self._state == 2 and (len(line) > 1 or line != b"\r"):
            raise FramingError("no line end behind a chunk")
        if self._state == 0 and len(line) > MAX_CHUNK_LINE_BYTES:
            raise FramingError("chunk size line over 16 KiB")
        if self._state == 3 and len(line) + self._trailer_bytes > MAX_TRAILER_BYTES:
            raise FramingError("trailers over 64 KiB")


class RequestFramer:
    """The request side of a connection.

    After a request that may open a tunnel it *holds*: what comes is kept (the caller bounds it by pausing,
    see `held_bytes`) until `release_to_tunnel` or `release_to_http`.
    """

    __slots__ = (
        "_body", "_carry", "_chunked", "_docker", "_head", "_left", "_patient", "_wire_bytes", "dead",
        "holding", "msg", "ready",
    )  # fmt: skip

    def __init__(self, *, docker: bool = False, patient: bool = False) -> None:
        """`patient`: a head whose lines end otherwise than they should is waited for, since it will pass anyway."""
        self.msg = 0
        self.dead = False
        self.holding = False
        self.ready = True
        """A request may begin with the next byte: nothing is half read, held or given up."""
        self._docker = docker
        self._patient = patient
        self._carry = bytearray()
        self._body = _NONE
        self._head: RequestHead | None = None
        self._left = 0
        self._chunked: ChunkedBody | None = None
        self._wire_bytes = 0

    @property
    def at_boundary(self) -> bool:
        """No message is half read."""
        return self._body is _NONE and not self._carry

    @property
    def head_pending(self) -> bool:
        """A head has begun and is not whole."""
        return self._body is _NONE and bool(self._carry) and not self.holding

    @property
    def held_bytes(self) -> int:
        """How much is kept back."""
        return len(self._carry)

    def take_whole(self, data: bytes) -> RequestHead | None:
        """The short path: if one read is exactly one good request, its head; the body is all behind it.

        None, and nothing taken, in every other case: then `feed` it.
        """
        if not self.ready:
            return None
        end = data.find(b"\r\n\r\n") + 4
        if end == 3:
            return None
        try:
            head = read_request_head(data if end == len(data) else data[:end], docker=self._docker)
        except BadHead:
            return None
        if head.may_tunnel or head.body is _CHUNKED or head.length_bytes != len(data) - end:
            return None
        self.msg += 1
        self._head = head
        return head

    def feed(self, data: bytes) -> list[RequestEvent]:
        """Take what was read, give what it means.  After a `BadRequest` this framer is dead."""
        events: list[RequestEvent] = []
        if self.holding:
            self._carry += data
            return events
        unsaid = bytes(self._carry) + data if self._carry else data
        in_body = self._body is not _NONE
        self.ready = False
        try:
            self._feed(data, events)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost a byte: it is given out what was taken
            events.append(self._failed(error, unsaid, events, in_body))
        self.ready = self._body is _NONE and not self._carry and not self.holding and not self.dead
        return events

    def _failed(self, error: Exception, unsaid: bytes, events: list[RequestEvent], in_body: bool) -> BadRequest:
        """Every byte of `unsaid` that is in none of the events."""
        self.dead = True
        self._carry.clear()
        said = 0
        for event in events:
            if isinstance(event, RequestHead):
                said += len(event.raw)
                in_body = event.body is not _NONE
            elif isinstance(event, BodyData):
                said += len(event.wire)
            else:
                in_body = False
        return BadRequest(f"a fault of fairtrial's in framing: {type(error).__name__}", in_body, unsaid[said:], error)

    def _feed(self, data: bytes, events: list[RequestEvent]) -> None:
        pos = 0
        while pos < len(data):
            if self._body is _LENGTH:
                pos = self._length(data, pos, events)
            elif self._body is _CHUNKED:
                start = pos
                payload: list[bytes] = []
                assert self._chunked is not None
                try:
                    pos, done = self._chunked.feed(data, pos, payload)
                except FramingError as error:
                    self.dead = True
                    events.append(BadRequest(str(error), True, data[start:]))
                    return
                self._wire_bytes += pos - start
                events.append(BodyData(data if pos - start == len(data) else data[start:pos], b"".join(payload)))
                if done:
                    self._end(events)
            elif self._holds():
                self._carry += data[pos:]
                return
            else:
                if self._carry:
                    self._carry += data[pos:] if pos else data
                    data = bytes(self._carry)
                    self._carry.clear()
                    pos = 0
                pos = self._head_at(data, pos, events)
                if self.dead:
                    return

    def no_tunnel(self) -> None:
        """The last request's final response opened no tunnel: nothing is held behind its body."""
        if self._head is not None:
            self._head.may_tunnel = False

    def release_to_tunnel(self) -> bytes:
        """The held bytes belong to the tunnel; this framer is done."""
        self.dead = True
        self.ready = False
        held = bytes(self._carry)
        self._carry.clear()
        self.holding = False
        return held

    def release_to_http(self) -> list[RequestEvent]:
        """No tunnel came of it: the held bytes are requests like any other."""
        self.holding = False
        held = bytes(self._carry)
        self._carry.clear()
        return self.feed(held)

    def _holds(self) -> bool:
        return self.holding

    def _length(self, data: bytes, pos: int, events: list[RequestEvent]) -> int:
        take = min(self._left, len(data) - pos)
        piece = data if take == len(data) else data[pos : pos + take]
        events.append(BodyData(piece, piece))
        self._left -= take
        self._wire_bytes += take
        if not self._left:
            self._end(events)
        return pos + take

    def _end(self, events: list[RequestEvent]) -> None:
        self._body = _NONE
        self._chunked = None
        events.append(MessageEnd(self.msg, self._wire_bytes))
        if self._head is not None and self._head.may_tunnel:
            self.holding = True

    def _head_at(self, data: bytes, pos: int, events: list[RequestEvent]) -> int:
        start = pos
        while data.startswith(b"\r\n", start):
            start += 2
        end = data.find(b"\r\n\r\n", start)
        if end == -1:
            reason = _hopeless(data, pos, start)
            if reason is None or (self._patient and reason is _BARE and _goes_on(data, start)):
                self._carry += data[pos:]
                return len(data)
            self.dead = True
            events.append(BadRequest(reason, False, data[pos:]))
            return len(data)
        try:
            head = read_request_head(data[pos : end + 4], docker=self._docker)
        except BadHead as error:
            self.dead = True
            events.append(BadRequest(str(error), False, data[pos:]))
            return len(data)
        self.msg += 1
        self._head = head
        self._wire_bytes = end + 4 - pos
        events.append(head)
        self._body = head.body
        self._left = head.length_bytes
        if head.body is _CHUNKED:
            self._chunked = ChunkedBody()
        elif head.body is _NONE:
            self._end(events)
        return end + 4


def _goes_on(data: bytes, start: int) -> bool:
    """Whether more lines must follow a request line that was ended by a bare LF (none do in HTTP/0.9)."""
    return b" HTTP/1." in data[start : data.find(b"\n", start)] and _LOOSE_END.search(data, start) is None


def _hopeless(data: bytes, pos: int, start: int) -> str | None:
    """Why the unfinished head at `pos` (`start`: behind its empty lines) will never become a good one, or None."""
    if len(data) - pos > MAX_HEAD_BYTES:
        return "head over 64 KiB"
    if start < len(data) and not could_begin(data[start]) and data[start:] != b"\r":
        return "not HTTP/1"
    if has_bare_line_end(data[start:]):
        return _BARE
    return None


class ResponseFramer:
    """The response side, with the FIFO of requests that still wait for their final response."""

    __slots__ = (
        "_body", "_carry", "_docker", "_head", "_known", "_known_bytes", "_known_for", "_left", "_wire_bytes",
        "chunked", "fifo",
    )  # fmt: skip

    def __init__(self, *, docker: bool = False) -> None:
        self.fifo: deque[InFlight] = deque()
        self._docker = docker
        self._carry = bytearray()
        self._body = _NONE
        self._head: ResponseHead | None = None
        self._left = 0
        self.chunked: ChunkedBody | None = None
        """The body that is being read, if it is chunked."""
        self._wire_bytes = 0
        self._known = b""
        self._known_for = b""
        self._known_bytes = 0

    @property
    def idle(self) -> bool:
        """Nothing is in flight and no response is half read."""
        return not self.fifo and self._body is _NONE and not self._carry

    @property
    def until_close(self) -> bool:
        """The response being read ends with the connection."""
        return self._body is _UNTIL_CLOSE

    @property
    def wire_bytes(self) -> int:
        """Bytes of the current response so far: head, body, and what of a head was read."""
        return self._wire_bytes + len(self._carry)

    def take_whole(self, data: bytes) -> int:
        """The short path: if a read is exactly one whole final response, the bytes of its head; else 0.

        That answers the first of `fifo`, which is taken out.
        """
        if self._body is not _NONE or self._carry or not self.fifo:
            return 0
        method = self.fifo[0].method
        if len(data) == self._known_bytes and method == self._known_for and data.startswith(self._known):
            self.fifo.popleft()  # the very head that was judged before, and as much behind it
            return len(self._known)
        end = data.find(b"\r\n\r\n") + 4
        if end == 3:
            return 0
        raw = data[:end]
        if raw.count(b"\n") != raw.count(b"\r\n"):
            return 0
        try:
            head = read_response_head(raw, 0, method, docker=self._docker)
        except BadHead:
            return 0
        body = head.body
        if (body is not _LENGTH and body is not _NONE) or head.length_bytes != len(data) - end or head.interim:
            return 0
        self._known, self._known_for, self._known_bytes = raw, method, len(data)
        self.fifo.popleft()
        return end

    def take_chunk(self, data: bytes) -> bytes | None:
        """The short path of streams, while `chunked`: if one read is exactly one chunk (an event), its payload.

        Nothing is taken where the answer is None.
        """
        chunked = self.chunked
        payload = chunked.whole(data) if chunked is not None else None
        if payload is not None:
            self._wire_bytes += len(data)
        return payload

    def feed(self, data: bytes) -> list[ResponseEvent]:
        """Take what was read and already passed on.  After `Tunnel` or `Blind` feed nothing more."""
        events: list[ResponseEvent] = []
        pos = 0
        while pos < len(data):
            if self._body is _UNTIL_CLOSE:
                piece = data[pos:] if pos else data
                self._wire_bytes += len(piece)
                events.append(BodyData(piece, piece))
                return events
            if self._body is _LENGTH:
                take = min(self._left, len(data) - pos)
                piece = data if take == len(data) else data[pos : pos + take]
                self._left -= take
                self._wire_bytes += take
                pos += take
                events.append(BodyData(piece, piece))
                if not self._left:
                    self._end(events)
            elif self._body is _CHUNKED:
                payload: list[bytes] = []
                assert self.chunked is not None
                start = pos
                try:
                    pos, done = self.chunked.feed(data, pos, payload)
                except FramingError as error:
                    if payload:
                        events.append(BodyData(b"", b"".join(payload)))
                    events.append(Blind(str(error)))
                    return events
                self._wire_bytes += pos - start
                if payload:
                    events.append(BodyData(b"", payload[0] if len(payload) == 1 else b"".join(payload)))
                if done:
                    self._end(events)
            else:
                if self._carry:
                    self._carry += data[pos:] if pos else data
                    data = bytes(self._carry)
                    self._carry.clear()
                    pos = 0
                pos = self._head_at(data, pos, events)
                if events and isinstance(events[-1], Tunnel | Blind):
                    return events
        return events

    def eof(self) -> MessageEnd | None:
        """The upstream ended cleanly: what that means for the response being read, if any."""
        if self._body is _UNTIL_CLOSE:
            events: list[ResponseEvent] = []
            self._end(events)
            end = events[0]
            assert isinstance(end, MessageEnd)
            end.how = "close_delimited"
            return end
        return None

    def _end(self, events: list[ResponseEvent]) -> None:
        self._body = _NONE
        self.chunked = None
        msg = self._head.msg if self._head is not None else 0
        if self.fifo and self.fifo[0].msg == msg:
            self.fifo.popleft()
        events.append(MessageEnd(msg, self._wire_bytes))
        self._wire_bytes = 0

    def _head_at(self, data: bytes, pos: int, events: list[ResponseEvent]) -> int:
        end = data.find(b"\r\n\r\n", pos)
        if end == -1:
            part = data[pos:]
            if len(part) > MAX_HEAD_BYTES:
                events.append(Blind("response head over 64 KiB"))
            elif not b"HTTP/1.".startswith(part[:7]):
                events.append(Blind("not HTTP/1"))
            elif has_bare_line_end(part):
                events.append(Blind("a bare LF in the head"))
            else:
                self._carry += part
            return len(data)
        waiting = self.fifo[0] if self.fifo else None
        raw = data[pos : end + 4]
        try:
            if len(raw) > MAX_HEAD_BYTES:
                raise BadHead("response head over 64 KiB")
            if has_bare_line_end(raw):
                raise BadHead("a bare LF in the head")
            head = read_response_head(
                raw,
                waiting.msg if waiting is not None else 0,
                waiting.method if waiting is not None else b"",
                docker=self._docker,
            )
        except BadHead as error:
            events.append(Blind(str(error)))
            return len(data)
        if waiting is not None:
            waiting.responded = True
        self._head = head
        self._wire_bytes += len(raw)
        events.append(head)
        if head.body is _TUNNEL:
            if waiting is not None:
                self.fifo.popleft()
            events.append(Tunnel(head.msg, data[end + 4 :]))
        elif not head.interim:
            self._body = head.body
            self._left = head.length_bytes
            if head.body is _CHUNKED:
                self.chunked = ChunkedBody()
            elif head.body is _NONE:
                self._end(events)
        return end + 4
