"""Whether a stream of TLS ended between two records: how a cut is told from an end without reading anything.

In: bytes of one direction, cut anywhere.  Out: `whole`.  Only the five bytes before each record are looked at.
**Source:** RFC 8446 section 5.1.
"""

from __future__ import annotations

from typing import Final

_HEAD_BYTES: Final = 5
_MAX_RECORD_BYTES: Final = (1 << 14) + 2048
_TYPES: Final = frozenset({20, 21, 22, 23, 24})


class RecordEnds:
    """Follows the records of one direction."""

    __slots__ = ("_head", "_left", "_seen", "_tls")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._seen = False
        self._tls = True

    @property
    def whole(self) -> bool | None:
        """Whether it stands at the end of a record; None before the first, and for what is no TLS."""
        if not self._tls or not self._seen:
            return None
        return not self._left and not self._head

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        at, end = 0, len(data)
        while self._tls and at < end:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                at += step
                continue
            need = _HEAD_BYTES - len(self._head)
            self._head += data[at : at + need]
            at += need
            if len(self._head) < _HEAD_BYTES:
                return
            length = int.from_bytes(self._head[3:5])
            self._tls = self._head[0] in _TYPES and self._head[1] == 3 and length <= _MAX_RECORD_BYTES
            self._left, self._head, self._seen = length, b"", True
