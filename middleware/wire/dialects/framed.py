"""A reply that is a stream of JSON values in another framing than SSE: lines, or the elements of an array.

In: a `Framer` and decoded body pieces.  Out: each value, given to the dialect's `_value`, and the counts of the tally.
What this module does not do: know an API (a dialect inherits), or read event streams (`base.SseReply` does).

A value that is not what the API promises is counted in `unread_frames`.  Where the framer skipped a value that was too
long, the terminator may have been in it, and its absence says nothing.
"""

from __future__ import annotations

from typing import Protocol

from fairtrial.middleware.wire.dialects import base
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText


class Framer(Protocol):
    """Bytes in, values out."""

    skipped: int

    @property
    def pending(self) -> bool:
        """Whether a value is half there."""
        ...

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take bytes, give the values that they complete."""
        ...

    def finish(self) -> list[bytes]:
        """The end of the body."""
        ...


class FramedReply:
    """Frames, counts, and gives each value to `_value`; dialects fill in that and `_close`."""

    def __init__(self, tally: Tally, framer: Framer) -> None:
        self.tally = tally
        tally.events = 0
        tally.pings = 0
        tally.terminator = False
        self._framer = framer
        self._head = b""
        self._text = ReplyText()

    def feed(self, piece: bytes, t_ns: int) -> bool:
        """Frame and read; every value speaks, since these framings know no pings."""
        if not self.tally.events and len(self._head) < 16:
            self._head += piece[:16]
            if self._head.lstrip().lower().startswith((b"<!doctype", b"<html")):
                self.tally.html = True
        for value in self._framer.feed(piece):
            self._read(value, t_ns, whole=True)
        return True

    def finish(self, *, whole: bool) -> None:
        """Read the last value; close what is open."""
        for value in self._framer.finish():
            self._read(value, 0, whole=whole)
        tally = self.tally
        tally.unread_frames += self._framer.skipped
        self._text.note(tally)
        if not tally.terminator and not tally.error_in_stream and self._framer.skipped:
            tally.terminator = None
        self._close()

    def _read(self, value: bytes, t_ns: int, *, whole: bool) -> None:
        self.tally.events = (self.tally.events or 0) + 1
        try:
            self._value(value, t_ns)
        except base.UNREADABLE:
            # Half a value at a cut is expected.
            self.tally.unread_frames += whole

    def _spoke(self, t_ns: int) -> None:
        """Content came: the first of it is the first token."""
        self.tally.started_content = True
        if self.tally.first_token_ns is None and t_ns:
            self.tally.first_token_ns = t_ns

    def _value(self, value: bytes, t_ns: int) -> None:
        """Read one value.  May raise `msgspec.DecodeError`."""
        raise NotImplementedError

    def _close(self) -> None:
        """Count what is still open."""
