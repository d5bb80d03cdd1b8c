"""Counts what a container's process wrote, from the engine's multiplexed stream; nothing is kept, nothing re-framed.

In: bytes of a hijacked attach or exec connection, cut anywhere.  Out: sums per stream.  Without a terminal the engine
frames its output: stream number (0 stdin, 1 stdout, 2 stderr), three zero bytes, length as u32 big endian.  With a
terminal the bytes are raw and only their sum is known; the caller knows which from the `Tty` of the create request,
because engines before API 1.42 name both the same content type.

An engine that cannot start the process answers with unframed text where frames were promised: from the first byte that
is no frame on, `framed` is False and bytes count as raw.

**Source:** Docker Engine API v1.41, `ContainerAttach`, "Stream format"; the unframed error as seen on Engine 20.10.
"""

from __future__ import annotations

import struct
from typing import Final

_HEAD_BYTES: Final = 8
_STREAMS: Final = 3
_FIRST_WORDS: Final = frozenset(stream << 24 for stream in range(_STREAMS))
_STDERR: Final = 2 << 24
_unpack: Final = struct.Struct(">II").unpack_from


class FrameCounter:
    """`stdout`, `stderr`, `raw`: payload bytes so far.  The carry is at most seven bytes."""

    __slots__ = ("_carry", "_left", "_stream", "framed", "raw", "stderr", "stdout")

    def __init__(self, *, tty: bool = False) -> None:
        self.framed = not tty
        self.stdout = 0
        self.stderr = 0
        self.raw = 0
        self._carry = b""
        self._left = 0
        self._stream = 0

    @property
    def out(self) -> int:
        """All bytes that the process wrote, framing taken off."""
        return self.stdout + self.stderr + self.raw

    @property
    def whole(self) -> bool:
        """No frame is cut off at this point."""
        return not self.framed or (self._left == 0 and not self._carry)

    def feed(self, data: bytes) -> None:
        """Count the next bytes."""
        if not self.framed:
            self.raw += len(data)
            return
        at, end = 0, len(data)
        if self._carry:
            missing = _HEAD_BYTES - len(self._carry)
            head = self._carry + data[:missing]
            if not self._plausible(head):
                self._give_up(len(self._carry) + end)
                return
            if len(head) < _HEAD_BYTES:
                self._carry = head
                return
            self._carry = b""
            self._begin(head)
            at = missing
        at = self._skip(data, at)
        while end - at >= _HEAD_BYTES:  # many small frames may lie in one read: nothing is called here
            word, size = _unpack(data, at)
            if word not in _FIRST_WORDS:
                self._give_up(end - at)
                return
            at += _HEAD_BYTES
            self._stream = word >> 24
            if size > end - at:
                self._left = size
                at = self._skip(data, at)
                return
            at += size
            if word == _STDERR:
                self.stderr += size
            else:
                self.stdout += size
        if at < end:
            head = data[at:]
            if self._plausible(head):
                self._carry = head
            else:
                self._give_up(end - at)

    def _skip(self, data: bytes, at: int) -> int:
        """Count the rest of the frame that is open; where it ends in `data`."""
        taken = min(self._left, len(data) - at)
        self._left -= taken
        if self._stream == 2:
            self.stderr += taken
        else:
            self.stdout += taken
        return at + taken

    @staticmethod
    def _plausible(head: bytes) -> bool:
        return head[0] < _STREAMS and not any(head[1:4])

    def _begin(self, head: bytes) -> None:
        self._stream = head[0]
        self._left = int.from_bytes(head[4:], "big")

    def _give_up(self, rest: int) -> None:
        self.framed = False
        self._carry = b""
        self.raw += rest
