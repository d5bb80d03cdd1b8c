"""What the step assembler hands on: the trial as assembled, and every observation with its place in it.

Shapes only.  `assembler.py` makes them, `attribution/` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairtrial.middleware.core.observations import Observation, Value
from fairtrial.middleware.core.records import PhaseName, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One observation with its decoded value, the step it fell into (None: before the first, or none) and its phase."""

    observation: Observation
    value: Value
    step: int | None
    phase: PhaseName

    @property
    def id(self) -> str:
        """The observation's id, the thing that a verdict cites."""
        return self.observation.id

    @property
    def at_ns(self) -> int:
        """Wall time, ns since the epoch."""
        return self.observation.wall_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A trial (verdict still None) and its observations in order of time, duplicates gone."""

    trial: Trial
    placed: tuple[Placed, ...]
    attempt_call: dict[str, str]
    """attempt id -> id of the call it was folded into."""
