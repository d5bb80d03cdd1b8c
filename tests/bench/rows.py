"""What a measurement looks like: a figure, its budget, and how it was taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of `make bench`.  `value` None: it could not be measured here, and `how` says why."""

    what: str
    value: float | None
    unit: str
    budget: float | None = None
    sense: Literal["at most", "at least"] = "at most"
    how: str

    @property
    def held(self) -> bool | None:
        """Whether the budget holds; None where there is none, or no figure."""
        if self.value is None or self.budget is None:
            return None
        return self.value <= self.budget if self.sense == "at most" else self.value >= self.budget
