"""The account of a Docker door's connection: tunnels are counted, not copied, and bodies are copied in part.

In: the same records as any `Account` gets, after their bytes have passed.  Out: heads and the first 64 KiB of each
body; for a tunnel one TUNNEL_END record before CLOSE: {stdin, stdout, stderr, raw, framed, whole, upstream_ended}.
An exec's 20 MB, a build's context or `logs -f` would otherwise fill the feed, and it is one queue for all doors: what
the model door says would be dropped.

`stdin` is what the client sent, the others what the process wrote (`wire/dockerstream.py`); null where the counting
itself failed.  `upstream_ended`: the engine ended its side, so that a client that only half-closed, as every
exec without stdin does, can be told from one that left.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.tunnelled import TunnelAccount
from fairtrial.middleware.wire.dockerstream import FrameCounter
from fairtrial.middleware.wire.feed import Kind

BODY_BYTES: Final = 64 * 1024
"""So much of each body is copied: an engine's requests and answers of interest are far smaller."""

_UP: Final = int(Kind.TUNNEL_UP)
_DOWN: Final = int(Kind.TUNNEL_DOWN)
_BODIES: Final = (int(Kind.REQUEST_DATA), int(Kind.RESPONSE_DATA))


class Tally(TunnelAccount):
    """An account that sums up tunnels.  Recording never raises."""

    __slots__ = ("_copied", "_counter", "_stdin")

    def __init__(self, feed: FeedSender, conn: int) -> None:
        super().__init__(feed, conn)
        self._counter: FrameCounter | None = FrameCounter()
        self._stdin = 0
        self._copied: dict[int, tuple[int, int]] = {}
        """Per direction: the message, and how much of its body was copied."""

    def record(self, kind: int, payload: bytes, msg: int = 0, flags: int = 0, t_ns: int = 0) -> None:
        """As `Account.record`; what belongs to a tunnel is counted, what a body has too much is left out."""
        if kind == _DOWN:
            self._count(payload)
        elif kind == _UP:
            self._stdin += len(payload)
        else:
            if kind in _BODIES:
                of, copied = self._copied.get(kind, (msg, 0))
                payload = payload[: max(0, BODY_BYTES - (copied if of == msg else 0))]
                if not payload:
                    return
                self._copied[kind] = msg, len(payload) + (copied if of == msg else 0)
            super().record(kind, payload, msg, flags, t_ns)

    def _count(self, data: bytes) -> None:
        if self._counter is not None:
            try:
                self._counter.feed(data)
            except Exception:  # noqa: BLE001 - observing fails open
                self._counter = None
                self._feed.stats.swallowed += 1

    def _measured(self) -> dict[str, object]:
        said: dict[str, object] = {"stdin": self._stdin}
        for name in ("stdout", "stderr", "raw", "framed", "whole"):
            said[name] = None if self._counter is None else getattr(self._counter, name)
        return said
