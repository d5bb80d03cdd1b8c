"""How far a verdict is from turning: for each threshold the nearest value at which the same observations say another.

In: an `Assembly`, thresholds, yardsticks.  Out: `Margin`s.  It judges again and again with one number changed, so it
is asked for on replay and never while a trial is closed.  What this module does not do: say what would turn the verdict
beside our own numbers (`flips_if` does).

How it can be wrong: a number that turns the verdict and back again between two of the values tried is not found; the
values tried lie a quarter apart near the one in force, and the edge between two that differ is halved down to one
percent.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, Thresholds
from fairtrial.middleware.core.records import Verdict
from fairtrial.middleware.core.yardsticks import NO_YARDSTICKS, Yardsticks
from fairtrial.middleware.steps.placed import Assembly

UP: Final = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
DOWN: Final = (0.75, 0.5, 0.25, 0.1, 0.0)
_NEAR: Final = 0.01
_UNWEIGHED: Final = frozenset({"late_evidence_s", "together_p"})
"""Numbers that say when a verdict is final, or what several trials say together: not what one trial's is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """One threshold, its value in force, and where the verdict turns to what."""

    name: str
    value: float
    at: float
    becomes: str
    """Blame and grade, and the cause where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """All that were found; `asked` of `known` thresholds were tried before the time was up."""

    found: tuple[Margin, ...]
    asked: int
    known: int


def margins(
    assembly: Assembly,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    *,
    yardsticks: Yardsticks = NO_YARDSTICKS,
    budget_s: float = 5.0,
) -> Margins:
    """Both directions of every threshold.  `budget_s`: no further threshold is begun after this time."""
    begun = time.monotonic()
    names = [f.name for f in dataclasses.fields(Thresholds) if f.name not in _UNWEIGHED]
    now = _told(judge(assembly, thresholds, yardsticks=yardsticks))
    found: list[Margin] = []
    asked = 0
    for name in names:
        if time.monotonic() - begun > budget_s:
            break
        asked += 1
        found.extend(_turns(assembly, thresholds, yardsticks, name, now))
    return Margins(found=tuple(found), asked=asked, known=len(names))


def _turns(assembly: Assembly, thresholds: Thresholds, yardsticks: Yardsticks, name: str, now: str) -> Iterator[Margin]:
    value = float(getattr(thresholds, name))

    def told(at: float) -> str:
        changed = dataclasses.replace(thresholds, **{name: at})
        return _told(judge(assembly, changed, yardsticks=yardsticks))

    for factors in (UP, DOWN):
        same = value
        for factor in factors:
            at = value * factor
            becomes = told(at)
            if becomes == now:
                same = at
                continue
            while abs(at - same) > _NEAR * max(abs(at), abs(same)):
                middle = (at + same) / 2
                other = told(middle)
                if other == now:
                    same = middle
                else:
                    at, becomes = middle, other
            yield Margin(name=name, value=value, at=at, becomes=becomes)
            break


def _told(verdict: Verdict) -> str:
    grade = f", {verdict.grade.value}" if verdict.grade is not None else ""
    cause = f" ({verdict.cause})" if verdict.cause is not None else ""
    return f"{verdict.blame.value}{grade}{cause}"
