"""Edges of main-agent calls: when one begins and ends, told at once, so that collectors can read their counters.

In: exchanges whose request was read, and those that are over.  Out: a call of `on_edge` each.  Good enough for reading
counters in time: `steps/roles.py` decides at the end, seeing all calls.  What this module does not do: keep anything of
a call; of sessions it keeps whether one has tools, of the last 4096.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.passing import Exchange

MAX_SESSIONS: Final = 4096

Edge = Literal["call_started", "call_ended"]


class Edges:
    """Tells `on_edge`, if there is one."""

    def __init__(self, on_edge: Callable[[Edge], None] | None) -> None:
        self._on_edge = on_edge
        self._with_tools: OrderedDict[tuple[str | None, ...], None] = OrderedDict()

    def began(self, exchange: Exchange) -> None:
        """A request was read, and its trial is known."""
        trial = exchange.assigned.trial
        exchange.is_main = self._looks_main(exchange.request, trial)
        if exchange.is_main and trial is not None:
            self._tell("call_started")

    def ended(self, exchange: Exchange) -> None:
        """It is over; only the first word counts."""
        if exchange.is_main and exchange.assigned.trial is not None and not exchange.said_ended:
            exchange.said_ended = True
            self._tell("call_ended")

    def _looks_main(self, request: RequestFacts, trial: str | None) -> bool:
        if request.operation != "chat" or request.max_tokens == 1:
            return False
        key = (trial, request.session_kind, request.session)
        if not request.has_tools:
            return key not in self._with_tools
        self._with_tools[key] = None
        self._with_tools.move_to_end(key)
        if len(self._with_tools) > MAX_SESSIONS:
            self._with_tools.popitem(last=False)
        return True

    def _tell(self, edge: Edge) -> None:
        if self._on_edge is not None:
            self._on_edge(edge)
