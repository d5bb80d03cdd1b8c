"""A relay that can be drained: it ends in the order that lets no client fare worse than it must.

In: a running relay.  Out: the same with no connection left.  Listeners go first, after what had connected already was
taken in; a connection that never spoke gets a moment, since its request may be on its way; an idle one is closed; what
is in flight ends by itself, or is cut at the deadline as fairtrial's doing.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from time import monotonic_ns
from typing import Final

from fairtrial.middleware.relay.relay import Relay
from fairtrial.middleware.wire.feed import Kind, encode_json

FRESH_S: Final = 2.0
"""How long a connection without a byte may still send its first request."""
MAX_INTRODUCED: Final = 1000
_LOOK_S: Final = 0.02
CUT: Final = "fairtrial was shut down"


class DrainingRelay(Relay):
    """See the module."""

    async def drain(self, grace_s: float, *, fresh_s: float = FRESH_S) -> int:
        """Take no new connection, let open ones end for `grace_s` seconds; how many had to be cut."""
        for door in self.doors:
            before = -1
            while self.counters.connections != before:  # a crowd: each look takes a batch
                before = self.counters.connections
                self._accept(door.listener, door)
        self.stop_listening()
        began_ns = monotonic_ns()
        while self._pairs and monotonic_ns() - began_ns < grace_s * 1e9:
            fresh = monotonic_ns() - began_ns < fresh_s * 1e9
            for pair in tuple(self._pairs.values()):
                if pair.idle and not (fresh and pair.account.client_last_ns is None):
                    pair.close_idle()
            await asyncio.sleep(_LOOK_S)
        cut = len(self._pairs)
        await self.close(0.0)
        return cut

    def introduction(self) -> bytes:
        """Records that name the doors of the open connections, for an observer that did not see them open."""
        return b"".join(
            encode_json(
                Kind.OPEN,
                {
                    "door": pair._route.label,  # noqa: SLF001 - the engine's owner
                    "upstream": pair._route.upstream.url,  # noqa: SLF001
                    "peer": pair.peer,
                },
                conn=pair.conn,
                t_ns=monotonic_ns(),
            )
            for pair in islice(self._pairs.values(), MAX_INTRODUCED)
        )

    def stop_listening(self) -> None:
        """Close our end of the listening sockets; one that was inherited stays open with whoever gave it."""
        doors, self.doors = self.doors, []
        for door in doors:
            self.loop.remove_reader(door.listener.fileno())
            door.listener.close()

    def cut_all(self) -> None:
        """End all that is open now."""
        for pair in tuple(self._pairs.values()):
            pair.abort(CUT)
