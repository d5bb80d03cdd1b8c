"""Where requests begin and end on one connection, whatever the cuts of the reads.

In: what the client has sent, as it was read.  Out: events (`messages.py`).  Sans-IO, a bound on every buffer.  Strict:
what cannot be vouched for is a `BadRequest` with every byte that was read and not given out.

**Source:** RFC 9112 section 6; RFC 9110 section 7.8 (upgrade).
"""

from __future__ import annotations

import re
from typing import Final

from fairtrial.middleware.relay.chunked import ChunkedBody, FramingError
from fairtrial.middleware.relay.heads import (
    MAX_HEAD_BYTES,
    BadHead,
    Body,
    RequestHead,
    could_begin,
    goes_on_plainly,
    has_bare_line_end,
    read_request_head,
)
from fairtrial.middleware.relay.messages import BadRequest, BodyData, MessageEnd, RequestEvent

_BARE: Final = "a bare CR or LF in the head"
_LOOSE_END: Final = re.compile(rb"\n\r?\n|\r\r")

# The members, looked up once: on the path of every read an enum's attribute is not cheap.
_NONE: Final = Body.NONE
_LENGTH: Final = Body.LENGTH
_CHUNKED: Final = Body.CHUNKED


class RequestFramer:
    """The request side of a connection.

    After a request that may open a tunnel it *holds*: what comes is kept (the caller bounds it by pausing,
    see `held_bytes`) until `release_to_tunnel` or `release_to_http`.
    """

    __slots__ = (
        "_begun", "_body", "_carry", "_chunked", "_docker", "_head", "_left", "_patient", "_wire_bytes", "dead",
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
        self._begun = False
        """What is carried is the good beginning of a head."""
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
        if self._begun and goes_on_plainly(self._carry, data):
            self._carry += data
            return events
        self._begun = False
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
                self._begun = reason is None and start < len(data) and could_begin(data[start])
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


_EMPTY_BYTES: Final = 64
"""Empty lines before a head: RFC 9112 section 2.2 asks for one to be ignored."""


def _hopeless(data: bytes, pos: int, start: int) -> str | None:
    """Why the unfinished head at `pos` (`start`: behind its empty lines) will never become a good one, or None."""
    if len(data) - pos > MAX_HEAD_BYTES:
        return "head over 64 KiB"
    if start - pos > _EMPTY_BYTES:  # each read looks at them anew
        return "empty lines in place of a head"
    if start < len(data) and not could_begin(data[start]) and data[start:] != b"\r":
        return "not HTTP/1"
    if has_bare_line_end(data[start:]):
        return _BARE
    return None
