"""Where responses begin and end on one connection, whatever the cuts of the reads.

In: what the upstream has sent, as it was read and already passed on.  Out: events (`messages.py`).  Sans-IO, a bound on
every buffer.  It gives up (`Blind`) where it cannot tell, because its bytes have gone to the client already.

**Source:** RFC 9112 section 6; RFC 9110 section 7.8 (upgrade).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from fairtrial.middleware.relay.chunked import ChunkedBody, FramingError
from fairtrial.middleware.relay.heads import (
    MAX_HEAD_BYTES,
    BadHead,
    Body,
    ResponseHead,
    goes_on_plainly,
    has_bare_line_end,
    read_response_head,
)
from fairtrial.middleware.relay.messages import Blind, BodyData, InFlight, MessageEnd, ResponseEvent, Tunnel

# The members, looked up once: on the path of every read an enum's attribute is not cheap.
_NONE: Final = Body.NONE
_LENGTH: Final = Body.LENGTH
_CHUNKED: Final = Body.CHUNKED
_UNTIL_CLOSE: Final = Body.UNTIL_CLOSE
_TUNNEL: Final = Body.TUNNEL


class ResponseFramer:
    """The response side, with the FIFO of requests that still wait for their final response."""

    __slots__ = (
        "_begun", "_body", "_carry", "_docker", "_head", "_known", "_known_bytes", "_known_for", "_left",
        "_wire_bytes", "chunked", "fifo",
    )  # fmt: skip

    def __init__(self, *, docker: bool = False) -> None:
        self.fifo: deque[InFlight] = deque()
        self._docker = docker
        self._begun = False
        """What is carried is the good beginning of a head."""
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
        if self._begun and goes_on_plainly(self._carry, data):
            self._carry += data
            return events
        self._begun = False
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
                self._begun = len(part) >= len(b"HTTP/1.")
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
