"""The account of a connection whose bytes nobody here can read: a tunnel is measured, not copied.

In: the same records as any `Account` gets, after their bytes have passed.  Out: heads as ever; for the tunnel one
TUNNEL_END record before CLOSE:

{up, down, first_up_ns, first_down_ns, last_up_ns, last_down_ns, max_wait_s, max_wait_ns, max_gap_s, max_gap_ns,
upstream_ended, clean}

`max_wait_s`: the longest time from a byte of the client to the next of the upstream; `max_gap_s`: the longest between
two reads of the upstream with no byte of the client between them; each with the moment at which it began.  The first
wait is the TLS handshake's first flight.  `clean`: the last that the upstream said has the shape of TLS's close_notify;
None where it spoke no TLS.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Final

from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.tunnelled import TunnelAccount
from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.tlsrecords import RecordEnds

_UP: Final = int(Kind.TUNNEL_UP)
_DOWN: Final = int(Kind.TUNNEL_DOWN)


class Opaque(TunnelAccount):
    """An account that measures tunnels.  Recording never raises."""

    __slots__ = (
        "_down", "_first_down_ns", "_first_up_ns", "_last_down_ns", "_last_up_ns", "_max_gap", "_max_wait", "_records",
        "_up",
    )  # fmt: skip

    def __init__(self, feed: FeedSender, conn: int) -> None:
        super().__init__(feed, conn)
        self._up = self._down = 0
        self._first_up_ns = self._first_down_ns = self._last_up_ns = self._last_down_ns = 0
        self._max_wait = self._max_gap = (0, 0)
        """Length and begin, ns."""
        self._records: RecordEnds | None = RecordEnds()

    def record(self, kind: int, payload: bytes, msg: int = 0, flags: int = 0, t_ns: int = 0) -> None:
        """As `Account.record`; what belongs to a tunnel is measured."""
        if kind == _DOWN:
            self._take_down(payload, t_ns or monotonic_ns())
        elif kind == _UP:
            self._up += len(payload)
            self._last_up_ns = t_ns = t_ns or monotonic_ns()
            self._first_up_ns = self._first_up_ns or t_ns
        else:
            super().record(kind, payload, msg, flags, t_ns)

    def _take_down(self, data: bytes, t_ns: int) -> None:
        self._down += len(data)
        if self._last_up_ns > self._last_down_ns:
            self._max_wait = max(self._max_wait, (t_ns - self._last_up_ns, self._last_up_ns))
        elif self._last_down_ns:
            self._max_gap = max(self._max_gap, (t_ns - self._last_down_ns, self._last_down_ns))
        self._last_down_ns = t_ns
        self._first_down_ns = self._first_down_ns or t_ns
        if self._records is not None:
            try:
                self._records.feed(data)
            except Exception:  # noqa: BLE001 - observing fails open
                self._records = None
                self._feed.stats.swallowed += 1

    def _measured(self) -> dict[str, object]:
        return {
            "up": self._up,
            "down": self._down,
            "first_up_ns": self._first_up_ns or None,
            "first_down_ns": self._first_down_ns or None,
            "last_up_ns": self._last_up_ns or None,
            "last_down_ns": self._last_down_ns or None,
            "max_wait_s": self._max_wait[0] / 1e9 if self._max_wait[1] else None,
            "max_wait_ns": self._max_wait[1] or None,
            "max_gap_s": self._max_gap[0] / 1e9 if self._max_gap[1] else None,
            "max_gap_ns": self._max_gap[1] or None,
            "clean": None if self._records is None else self._records.closed,
        }
