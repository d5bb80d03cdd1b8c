"""Shared words of the collectors: the edges at which a reading is written, and a bound on how often.

`edge` names are those of `CgroupReading.edge` and `HostCounters.edge`.
"""

from __future__ import annotations

import time
from typing import Literal

Edge = Literal["baseline", "call_started", "call_ended", "change", "exec", "end", "last"]


class Bucket:
    """A token bucket: short bursts pass whole, a storm is thinned to `per_s`."""

    def __init__(self, *, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at_ns = time.monotonic_ns()

    def take(self) -> bool:
        """Whether one more may happen now."""
        at_ns = time.monotonic_ns()
        self._tokens = min(self._burst, self._tokens + (at_ns - self._at_ns) / 1e9 * self._per_s)
        self._at_ns = at_ns
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self) -> float:
        """How long until `take` can succeed."""
        return max(0.0, (1.0 - self._tokens) / self._per_s)
