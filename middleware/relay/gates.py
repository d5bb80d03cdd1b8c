"""Clients that were accepted and may not come in yet: their door asks somebody whose they are.

In: accepted sockets of doors that have a `Gate`.  Out: those that are admitted, to the relay, with the container that
they are in; the others are reset.  Not a byte of a client is read before.  A gate that fails admits: the door asks for
a token all the same.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fairtrial.middleware.relay.route import Admission, Gate, Route
from fairtrial.middleware.relay.settings import Counters

_MOST: Final = 256
"""So many wait at once; who comes then is turned away."""
_RST: Final = struct.pack("ii", 1, 0)

Begin = Callable[[socket.socket, Route, str, str | None], None]
"""Socket, door, peer (`address:port`), container."""


class Gates:
    """All that wait, whatever their door."""

    def __init__(self, counters: Counters, begin: Begin, swallow: Callable[[Exception], None]) -> None:
        self._counters = counters
        self._begin = begin
        self._swallow = swallow
        self._waiting: dict[asyncio.Task[None], socket.socket] = {}

    def ask(self, sock: socket.socket, route: Route, gate: Gate, peer: str) -> None:
        """Let this client wait for its gate."""
        if len(self._waiting) >= _MOST:
            self._turn_away(sock)
            return
        task = asyncio.get_running_loop().create_task(self._pass(sock, route, gate, peer), name="fairtrial-gate")
        self._waiting[task] = sock
        task.add_done_callback(self._waiting.pop)

    def close(self) -> None:
        """Nobody comes in any more."""
        for task, sock in tuple(self._waiting.items()):
            task.cancel()
            sock.close()

    async def _pass(self, sock: socket.socket, route: Route, gate: Gate, peer: str) -> None:
        try:
            admission = await gate(peer.rpartition(":")[0])
        except Exception as error:  # noqa: BLE001 - no fault of ours keeps a client out
            self._swallow(error)
            admission = Admission(admitted=True)
        if admission.admitted:
            self._begin(sock, route, peer, admission.container)
        else:
            self._turn_away(sock)

    def _turn_away(self, sock: socket.socket) -> None:
        self._counters.turned_away += 1
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        sock.close()
