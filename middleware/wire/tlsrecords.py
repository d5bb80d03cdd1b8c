"""Whether a stream of TLS ended as TLS ends: how a cut is told from an end without reading anything.

In: bytes of one direction, cut anywhere.  Out: `whole` (it stands between two records) and `closed` (the last one has
the shape of close_notify).  Only the five bytes before each record are looked at: in TLS 1.2 an alert is told by its
type, in 1.3 by its length (an alert, its type and the tag make 19 bytes).

How it can be wrong: two bytes of data in a record of their own look like close_notify.
**Source:** RFC 8446 sections 5.1, 5.2 and 6.1.
"""

from __future__ import annotations

from typing import Final

_HEAD_BYTES: Final = 5
_MAX_RECORD_BYTES: Final = (1 << 14) + 2048
_TYPES: Final = frozenset({20, 21, 22, 23, 24})
_ALERT: Final = 21
_DATA: Final = 23
_SEALED_ALERT_BYTES: Final = 2 + 1 + 16


class RecordEnds:
    """Follows the records of one direction."""

    __slots__ = ("_head", "_last", "_left", "_seen", "_tls")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._last = (0, 0)
        """Type and length of the record that began last."""
        self._seen = False
        self._tls = True

    @property
    def whole(self) -> bool | None:
        """Whether it stands at the end of a record; None before the first, and for what is no TLS."""
        if not self._tls or not self._seen:
            return None
        return not self._left and not self._head

    @property
    def closed(self) -> bool | None:
        """Whether it stands behind what looks like close_notify; None where `whole` is."""
        if not self.whole:
            return self.whole
        return self._last[0] == _ALERT or self._last == (_DATA, _SEALED_ALERT_BYTES)

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
            self._last = self._head[0], length
            self._left, self._head, self._seen = length, b"", True
