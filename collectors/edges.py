"""Edges of the trial, thinned: a storm of model calls must not become a storm of readings.

In: an edge for each call's start and end.  Out: at most 20 a second, the last one of a storm always among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

from fairtrial.collectors.readings import Bucket

_PER_S: Final = 20
_BURST: Final = 20

CallEdge = Literal["call_started", "call_ended"]


class Edges:
    """`on_edge` is called at once, or a moment later."""

    def __init__(self, on_edge: Callable[[CallEdge], None]) -> None:
        self._on_edge = on_edge
        self._bucket = Bucket(per_s=_PER_S, burst=_BURST)
        self._late: asyncio.TimerHandle | None = None
        self._late_name: CallEdge = "call_ended"

    def take(self, name: CallEdge) -> None:
        """An edge of a call."""
        if self._bucket.take():
            self._on_edge(name)
            return
        self._late_name = name
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(self._bucket.wait_s(), self._later)

    def _later(self) -> None:
        self._late = None
        self._bucket.take()
        self._on_edge(self._late_name)

    def close(self) -> None:
        """An edge that waits is dropped: the end has its own."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
