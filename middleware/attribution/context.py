"""What every rule is given: the case, what was watched, what became of the model calls, and the thresholds.

In: an `Assembly`, thresholds and yardsticks.  Out: a `Context`, built once per verdict.
What this module does not do: judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.calls import Trouble, Turn, troubles_of, turns_of
from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.coverage import MemoryWatch, Watch
from fairtrial.middleware.attribution.ledger import Book, open_book
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.attribution.time_limit import Limit, fired
from fairtrial.middleware.core.records import EndedAs
from fairtrial.middleware.core.yardsticks import NO_YARDSTICKS, Yardsticks
from fairtrial.middleware.steps.placed import Assembly

ENDING_SIGNALS: Final = frozenset({1, 2, 3, 15})
"""SIGHUP, SIGINT, SIGQUIT, SIGTERM: what people and schedulers send to end a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The whole of what a rule may look at."""

    case: Case
    watch: Watch
    memory: MemoryWatch
    turns: tuple[Turn, ...]
    troubles: tuple[Trouble, ...]
    thresholds: Thresholds
    yardsticks: Yardsticks
    limit: Limit | None
    """The time limit that fired."""
    book: Book

    @classmethod
    def of(cls, assembly: Assembly, thresholds: Thresholds, yardsticks: Yardsticks = NO_YARDSTICKS) -> Context:
        case = Case(assembly)
        watch = Watch(case, thresholds)
        turns = turns_of(case)
        troubles = troubles_of(case, turns, watch, thresholds)
        limit = fired(case)
        return cls(
            case=case,
            watch=watch,
            memory=watch.memory(),
            turns=tuple(turns),
            troubles=tuple(troubles),
            thresholds=thresholds,
            yardsticks=yardsticks,
            limit=limit,
            book=open_book(case, turns, troubles, thresholds=thresholds, limit=limit, yardsticks=yardsticks),
        )

    @property
    def sent_signals(self) -> list[int]:
        """Signals sent to fairtrial from outside that the command ended by; empty when it ended well or by itself."""
        if self.case.ended is None:
            return []
        value = self.case.ended[1]
        if value.exit_code == 0 and value.signal is None:
            return []
        return [s for s in (*value.forwarded_signals, *value.keyboard_signals) if s in ENDING_SIGNALS]

    @property
    def typed_signals(self) -> list[int]:
        """Those of them that were typed at the terminal."""
        typed = self.case.ended[1].keyboard_signals if self.case.ended is not None else []
        return [s for s in self.sent_signals if s in typed]

    @property
    def ended_by_signal(self) -> bool:
        """The command died by a signal that was sent, or told so as shells do."""
        trial = self.case.trial
        return any(trial.signal == s or trial.exit_code == 128 + s for s in self.sent_signals)

    @property
    def ever_completed(self) -> bool:
        """Whether any main call brought a whole reply."""
        return any(turn.completed for turn in self.turns)

    @property
    def never_ran(self) -> bool:
        """No step and not a token: what happened outside kept the trial from starting."""
        if self.case.past_door or self.case.unread_answered:
            return False
        if not self.case.calls and self.case.told_ended_as is EndedAs.AGENT_FINISHED:
            return False  # an agent that asks no model, such as an oracle
        replies = [a.value.reply for turn in self.turns for a in turn.attempts]
        return not self.ever_completed and not any(r.started_content or r.output_tokens for r in replies)
