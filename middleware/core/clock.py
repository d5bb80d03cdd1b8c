"""Time, read in one place: the wall clock and the monotonic clock, taken together.

Out: `Instant`s (integers of ns).  Dates come from `wall_ns`, durations only from `mono_ns`: the wall clock may
jump.  `suspended_ns` tells how long the machine slept, which CLOCK_MONOTONIC does not count.
What this module does not do: format dates, sleep, or convert times of another host.

**Source:** clock_gettime(2): CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks of this host, in ns."""

    wall_ns: int
    mono_ns: int

    def wall_at(self, mono_ns: int) -> int:
        """The wall time (ns) of another monotonic reading of the same boot, carried over from this pair."""
        return self.wall_ns + (mono_ns - self.mono_ns)

    def since_s(self, earlier: Instant) -> float:
        """Seconds from `earlier` to this, by the monotonic clock."""
        return (self.mono_ns - earlier.mono_ns) / 1e9


def now() -> Instant:
    """Both clocks, read back to back (well under 1 µs apart)."""
    return Instant(time.time_ns(), time.monotonic_ns())


def mono_ns() -> int:
    """CLOCK_MONOTONIC in ns, for deadlines and durations."""
    return time.monotonic_ns()


def boot_ns() -> int:
    """CLOCK_BOOTTIME in ns: as CLOCK_MONOTONIC, and counting while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def suspended_ns() -> int:
    """How long this machine was suspended since boot, in ns; the difference of two readings is a suspend gap."""
    mono = time.monotonic_ns()  # read first, so that the time between the readings never makes it negative
    return boot_ns() - mono


def rfc3339(wall_ns: int) -> str:
    """A wall time as RFC 3339 UTC with microseconds, the form of every record."""
    seconds, below_ns = divmod(wall_ns, 1_000_000_000)
    moment = time.gmtime(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{below_ns // 1000:06d}Z"


def wall_ns_of(text: str | None) -> int | None:
    """The reverse of `rfc3339`, None for None.  Raises `ValueError` for a text that is no date."""
    if text is None:
        return None
    from datetime import UTC, datetime  # late: the relay process counts its start in milliseconds

    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
