"""An outside event as a rule reports it: the three answers, what it did to the trial, and what to say about it.

In: nothing.  Out: shapes only, and the grade that follows from the three answers.
What this module does not do: recognise events (`rules/`) or choose between them (`ruling.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fairtrial.middleware.core.records import Answer, Blame, Evidence, Grade, PhaseName, Present, Question


class Standing(Enum):
    """What an event did to the trial, a fact without a threshold of ours."""

    TERMINAL = "terminal"
    """After it no further step ended normally."""
    DISTORTING = "distorting"
    """Later steps ended normally, but on what it left behind."""
    RECOVERED = "recovered"
    """A later step ended normally as if it had not happened."""


OUTSIDE: frozenset[Blame] = frozenset({Blame.INFRA, Blame.OPERATOR, Blame.FAIRTRIAL, Blame.TASK})
"""Whose doings are *outside* in the sense of `terminated_by`; the harness's and the model's own are not."""


OUTSIDE_CAUSES: tuple[str, ...] = ("container.oom", "node.")
"""A kill is the kernel's whoever's demand it was (VERDICTS section 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One outside event; `sentence` says what happened, `advice` what to do next."""

    cause: str
    blame: Blame
    best: Grade
    """The best grade that this event's own evidence allows."""
    standing: Standing
    ends_call: bool
    """It kept a model call from completing: nothing can follow such an end."""
    step: int | None
    phase: PhaseName
    at_ns: int
    happened: Question
    ended_or_distorted: Question
    outcome_differs: Question
    sentence: str
    advice: str
    why_present: str = "a later step ended normally"
    flips_if: str | None = None
    fact: Grade = Grade.PROVED
    """How well it is known that this happened and came from outside, whoever's demand or doing it answers."""
    undecided: str | None = None
    """Why nobody can say whose it was, although it happened and weighs: the trial is then indeterminate.  Empty where
    `sentence` and `advice` say it."""
    needs_door: bool = True
    """Whether it rests on no later model call having been made: a gap of the door after it then decides nothing."""
    limit_hit: bool = False
    """A limit that was set from outside was reached: an outside event, whoever's demand reached it."""
    evidence: tuple[Evidence, ...] = ()
    against: tuple[Evidence, ...] = ()

    @property
    def answers(self) -> tuple[Answer, Answer, Answer]:
        return (self.happened.answer, self.ended_or_distorted.answer, self.outcome_differs.answer)

    @property
    def proved(self) -> bool:
        return self.best is Grade.PROVED and all(answer is Answer.YES for answer in self.answers)

    @property
    def outside(self) -> bool:
        """Whether it came from outside the harness and the model, whoever's demand or doing answers for it."""
        return self.blame in OUTSIDE or self.limit_hit or self.cause.startswith(OUTSIDE_CAUSES)

    @property
    def strength(self) -> int:
        """Sum of the three answers: yes 2, unknown 1, no 0."""
        worth = {Answer.YES: 2, Answer.UNKNOWN: 1, Answer.NO: 0}
        return sum(worth[answer] for answer in self.answers)

    def as_present(self, why: str | None = None) -> Present:
        """The row for an event that happened and did not matter."""
        return Present(cause=self.cause, step=self.step, why=why or self.why_present)
