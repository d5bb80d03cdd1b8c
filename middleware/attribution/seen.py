"""What was seen of a trial, as shapes: attempts, calls, kills, commands, containers.

In: nothing.  Out: the shapes that `case.py` sorts observations into and that the rules read.
What this module does not do: sort (`case.py`, `calls_seen.py`) or judge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    CgroupReading,
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    DiskFull,
    FdLimit,
    KernelOomKill,
    OomKill,
    PidsHit,
    RequestFacts,
)
from fairtrial.middleware.core.records import CallRole, PhaseName
from fairtrial.middleware.steps.placed import Placed

MAIN_ROLES: Final = frozenset({"step", "subagent", "compaction"})
"""Calls that the trial cannot do without; titles and probes can fail without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSeen:
    """One attempt whose end was seen; times are wall ns of the relay's host."""

    placed: Placed
    value: AttemptEnded
    started_ns: int
    ended_ns: int
    whole: bool
    """A reply that is not an error and came whole, as the door read it; or one cut behind its stop reason that the
    client took all the same, as a later request of the conversation shows."""

    @property
    def length_s(self) -> float:
        return max(0, self.ended_ns - self.started_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSeen:
    """One logical model call: its attempts whose ends were seen, in order of start."""

    id: str
    role: CallRole
    step: int | None
    phase: PhaseName
    attempts: tuple[AttemptSeen, ...]
    open_attempts: tuple[Placed, ...]
    """Attempts that began and whose end nobody saw."""
    fell_back: frozenset[str]
    started_ns: int
    ended_ns: int | None
    completed: bool
    read_whole: bool
    """Completed, and nothing of the reply was hidden from the door."""

    @property
    def main(self) -> bool:
        return self.role in MAIN_ROLES

    @property
    def last(self) -> AttemptSeen | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def request(self) -> RequestFacts:
        if self.attempts:
            return self.attempts[-1].value.request
        first = self.open_attempts[0].value
        return first.request if isinstance(first, AttemptStarted) else RequestFacts()

    @property
    def ids(self) -> list[str]:
        return [a.placed.id for a in self.attempts] + [p.id for p in self.open_attempts]


@dataclass(slots=True, kw_only=True)
class KillGroup:
    """The OOM kills of one container in one step: one event, however many observations tell of it."""

    container: str
    step: int | None
    phase: PhaseName
    at_ns: int
    counted: list[tuple[Placed, OomKill]] = field(default_factory=list[tuple[Placed, OomKill]])
    records: list[tuple[Placed, KernelOomKill]] = field(default_factory=list[tuple[Placed, KernelOomKill]])
    told: list[Placed] = field(default_factory=list[Placed])
    """Runtime events and readings that say so."""

    @property
    def ids(self) -> list[str]:
        return [p.id for p, _ in self.counted] + [p.id for p, _ in self.records] + [p.id for p in self.told[:3]]

    @property
    def kills(self) -> int | None:
        return sum(v.delta for _, v in self.counted) or (len(self.records) or None)


@dataclass(slots=True, kw_only=True)
class ExecSeen:
    """One command run in a container through the runtime."""

    container: str
    exec_id: str
    step: int | None
    started: Placed | None = None
    ended: Placed | None = None
    exit_code: int | None = None
    plumbing: bool = False


@dataclass(slots=True)
class ContainerCase:
    """What was seen of one container; "own" is the command's own cgroup."""

    id: str
    seen: ContainerSeen | None = None
    seen_at: Placed | None = None
    seen_first: ContainerSeen | None = None
    """As it was told when it was first seen; a command may have it changed and started again."""
    gone: tuple[Placed, ContainerGone] | None = None
    """The end of its last life; None while it lives again."""
    ends: list[tuple[Placed, ContainerGone]] = field(default_factory=list[tuple[Placed, ContainerGone]])
    """The ends of all its lives."""
    readings: list[tuple[Placed, CgroupReading]] = field(default_factory=list[tuple[Placed, CgroupReading]])
    pids_hits: list[tuple[Placed, PidsHit]] = field(default_factory=list[tuple[Placed, PidsHit]])
    fd_limits: list[tuple[Placed, FdLimit]] = field(default_factory=list[tuple[Placed, FdLimit]])
    full_disks: list[tuple[Placed, DiskFull]] = field(default_factory=list[tuple[Placed, DiskFull]])
    events: list[tuple[Placed, ContainerEvent]] = field(default_factory=list[tuple[Placed, ContainerEvent]])
    execs: dict[int | None, list[ExecSeen]] = field(default_factory=dict[int | None, list[ExecSeen]])
    """Commands run through the runtime by step, the harness's own plumbing left out."""

    def begins(self, placed: Placed, seen: ContainerSeen) -> None:
        """It was seen; with a start after its end it lives again."""
        if self.gone is not None and (seen.started_wall_ns or 0) > self.gone[0].at_ns:
            self.gone = None
        self.seen_first = self.seen_first or seen
        self.seen, self.seen_at = seen, self.seen_at or placed

    def ended(self, placed: Placed, gone: ContainerGone) -> None:
        """A life of it ended; one that began later is not over by that."""
        self.ends.append((placed, gone))
        if self.seen is None or (self.seen.started_wall_ns or 0) <= placed.at_ns:
            self.gone = placed, gone

    @property
    def role(self) -> str:
        if self.seen is not None:
            return self.seen.role
        return "own" if self.id == "own" else "main"
