"""A sink for tests: keeps what is emitted and finds it again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from fairtrial.middleware.core.observations import Host, Observation, Value, decode
from fairtrial.middleware.core.sink import Source

V = TypeVar("V", bound=Value)


class Kept:
    """Observations in the order of their writing."""

    def __init__(self) -> None:
        self.all: list[Observation] = []

    def source(self, name: str) -> Source:
        """A source that writes here."""
        return Source(name, self.all.append, host=Host(), trial="t")

    def of(self, kind: type[V]) -> list[V]:
        """Typed values of one kind."""
        return [v for v in (decode(o) for o in self.all if o.kind == kind.kind) if isinstance(v, kind)]

    def when(self, kind: type[Value]) -> list[Observation]:
        """The envelopes of one kind."""
        return [o for o in self.all if o.kind == kind.kind]


async def eventually(claim: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Poll until the claim is true; an AssertionError names the deadline otherwise."""
    deadline_s = time.monotonic() + within_s
    while not claim():
        assert time.monotonic() < deadline_s, f"not so within {within_s} s"
        await asyncio.sleep(0.01)
