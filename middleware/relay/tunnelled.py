"""What the accounts share that measure tunnels instead of copying them.

In: the same records as any `Account` gets, after their bytes have passed.  Out: one TUNNEL_END record before CLOSE,
with whatever the account measured.  Whether the upstream ended its side is remembered, also where it was second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from fairtrial.middleware.relay.account import Account, First
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.wire.feed import Kind


class TunnelAccount(Account, ABC):
    """An account of a connection that becomes a tunnel.  Recording never raises."""

    __slots__ = ("_upstream_ended",)

    def __init__(self, feed: FeedSender, conn: int) -> None:
        super().__init__(feed, conn)
        self._upstream_ended = False

    @abstractmethod
    def _measured(self) -> dict[str, object]:
        """The payload of TUNNEL_END, but for `upstream_ended`."""

    def note_first(self, first: First, how: str, code: int | None, text: str | None) -> None:
        """As `Account.note_first`."""
        if first == "upstream":
            self._upstream_ended = True
        super().note_first(first, how, code, text)

    def close(self, messages: int, tunnel: int = 0) -> None:
        """As `Account.close`, behind the measures of `tunnel`, the message that became one."""
        if tunnel:
            self.json(Kind.TUNNEL_END, {**self._measured(), "upstream_ended": self._upstream_ended}, tunnel)
        super().close(messages, tunnel)
