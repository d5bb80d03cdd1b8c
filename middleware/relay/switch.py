"""What a client has sent for another upstream than the one its connection leads to now (plain egress proxy).

In: request events in their order, from `request_framing.py`.  Out: the run of them that may pass to the upstream in
use, and the dialler of the one that must come next.  Nothing here touches a socket; when the change may happen is
decided in `switching.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.framing import BadRequest, BodyData, RequestEvent
from fairtrial.middleware.relay.heads import RequestHead


class Queue:
    """Requests by the upstream that each names; the same upstream is the same `Dialler` object."""

    def __init__(self, lead: Callable[[RequestHead], Dialler]) -> None:
        self._lead = lead
        self._waiting: deque[tuple[RequestEvent, int]] = deque()
        self.in_use: Dialler | None = None
        """Where the connection leads; None before its first request."""
        self.waiting_for: Dialler | None = None
        """Where the first request that waits leads; None: nothing waits."""
        self.held_bytes = 0

    @property
    def framing_ended(self) -> bool:
        """The last of what waits cannot be framed: nothing more can be put behind it."""
        return bool(self._waiting) and isinstance(self._waiting[-1][0], BadRequest)

    def put(self, events: list[RequestEvent], t_ns: int) -> None:
        """Behind everything that waits; `t_ns`: when they were read."""
        self._waiting.extend((event, t_ns) for event in events)
        self.held_bytes += sum(len(wire_of(event)) for event in events)

    def run(self) -> list[tuple[RequestEvent, int]]:
        """Take what may pass to the upstream in use now, up to the first head that names another."""
        taken: list[tuple[RequestEvent, int]] = []
        self.waiting_for = None
        while self._waiting:
            event, _ = self._waiting[0]
            if isinstance(event, RequestHead):
                dialler = self._lead(event)
                if dialler is not self.in_use:
                    self.waiting_for = dialler
                    break
            taken.append(self._waiting.popleft())
            self.held_bytes -= len(wire_of(event))
        return taken

    def give_up(self) -> bytes:
        """The bytes of all that waits, as they were sent: they turned out to belong to a tunnel."""
        wire = b"".join(wire_of(event) for event, _ in self._waiting)
        self._waiting.clear()
        self.held_bytes = 0
        self.waiting_for = None
        return wire


def wire_of(event: RequestEvent) -> bytes:
    """The bytes of an event as they were sent."""
    if isinstance(event, RequestHead):
        return event.raw
    if isinstance(event, BodyData):
        return event.wire
    return event.rest if isinstance(event, BadRequest) else b""
