"""What every rule is given: the case, what was watched, what became of the model calls, and the thresholds.

In: an `Assembly` and thresholds.  Out: a `Context`, built once per verdict.  What this module does not do: judge.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairtrial.middleware.attribution.calls import Trouble, Turn, troubles_of, turns_of
from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.coverage import MemoryWatch, Watch
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.steps.placed import Assembly


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The whole of what a rule may look at."""

    case: Case
    watch: Watch
    memory: MemoryWatch
    turns: tuple[Turn, ...]
    troubles: tuple[Trouble, ...]
    thresholds: Thresholds

    @classmethod
    def of(cls, assembly: Assembly, thresholds: Thresholds) -> Context:
        case = Case(assembly)
        watch = Watch(case, thresholds)
        turns = turns_of(case)
        return cls(
            case=case,
            watch=watch,
            memory=watch.memory(),
            turns=tuple(turns),
            troubles=tuple(troubles_of(case, turns, watch, thresholds)),
            thresholds=thresholds,
        )

    @property
    def ever_completed(self) -> bool:
        """Whether any main call brought a whole reply."""
        return any(turn.completed for turn in self.turns)
