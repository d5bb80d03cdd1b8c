"""The time of a trial by one clock that nobody sets: where the wall clock was set while it ran, what was told by it is
moved to where it belongs.

In: observations of a trial and the one that began it.  Out: the same, with `wall_ns` carried over from the beginning by
CLOCK_MONOTONIC.  The doors tell their times so themselves; collectors and the engine go by the wall clock, and a step
of it (a `date -s` of the agent's, a correction of NTP's) would put a kill into another step, or an error behind the
success that mended it.  The same holds for a machine that slept, which CLOCK_MONOTONIC does not count.
What this module does not do: touch other hosts and boots, or what a harness's files say of times.

How it can be wrong: a time *inside* a value (when a container was started) is taken for one of the same clock as its
observation's; of a container that was started before the clock was set and first seen after it, it is not.  An event of
the engine's that is told just as the clock is set may be placed by the length of that step too early.
**Source:** clock_gettime(2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from fairtrial.middleware.core.observations import HarnessOutcome, Observation, TrialStarted

_LEAST_NS: Final = 10_000_000
"""Both clocks are read apart by less than this, unless a process is stopped in between."""
_INSIDE: Final = ("started_wall_ns", "created_wall_ns", "daemon_wall_ns", "since_ns", "until_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Of one host and boot: what is to be added to CLOCK_MONOTONIC, ns."""

    boot_id: str
    offset_ns: int
    begun_ns: int
    """CLOCK_MONOTONIC at the beginning; what has a time before it was not read from that clock."""

    @classmethod
    def of(cls, observations: Iterable[Observation], trial_id: str) -> Clock | None:
        """By the trial's beginning; None where that was not seen, or not on which boot."""
        begun = [o for o in observations if o.kind == TrialStarted.kind and o.subject.trial == trial_id]
        first = min(begun, key=lambda o: (o.mono_ns, o.source_id, o.seq), default=None)
        return None if first is None else cls.begun_by(first)

    @classmethod
    def begun_by(cls, first: Observation) -> Clock | None:
        if first.host.boot_id is None:
            return None
        return cls(boot_id=first.host.boot_id, offset_ns=first.wall_ns - first.mono_ns, begun_ns=first.mono_ns)

    def steadied(self, observation: Observation) -> Observation:
        """The observation at its steady time."""
        if observation.host.boot_id != self.boot_id or observation.kind == HarnessOutcome.kind:
            return observation
        moved_ns = observation.mono_ns + self.offset_ns - observation.wall_ns
        if abs(moved_ns) < _LEAST_NS or observation.mono_ns < self.begun_ns:
            return observation
        told = observation.value
        inside = {
            name: at_ns + moved_ns
            for name in _INSIDE
            if isinstance(at_ns := told.get(name), int) and 0 < at_ns <= observation.wall_ns + _LEAST_NS
        }
        wall_ns = observation.wall_ns + moved_ns
        return structs.replace(observation, wall_ns=wall_ns, value={**told, **inside} if inside else told)
