"""What a measurement looks like: a figure, its budget, and how it was taken."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of `make bench`.  `value` None: it could not be measured here, and `how` says why."""

    what: str
    value: float | None
    unit: str
    budget: float | None = None
    sense: Literal["at most", "at least"] = "at most"
    noise: float = 0.0
    """How far the figure moves by itself from round to round, in its own unit."""
    how: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the budget holds, or is missed by no more than the noise; None where there is none, or no figure."""
        if self.value is None or self.budget is None:
            return None
        if self.sense == "at most":
            return self.value - self.noise <= self.budget
        return self.value + self.noise >= self.budget

    @property
    def only_within_noise(self) -> bool:
        """The figure misses the budget, but by less than it moves by itself: neither kept nor broken is shown."""
        return bool(self.held and self.noise and replace(self, noise=0.0).held is False)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Median, and half the distance of the quartiles: what the machine adds by itself."""
    if len(values) < 2:
        return values[0], 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return statistics.median(values), (high - low) / 2


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of all values are."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
