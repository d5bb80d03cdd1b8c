"""The verdict: what ended the trial, whose doing it was, what speaks for and against it, and what a harness may do.

In: nothing.  Out: shapes only.  What fills them is `attribution/`.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from fairtrial.middleware.core.records.base import Answer, Blame, EndedAs, Grade, PhaseName, Record, Trust


class TerminatedBy(Record, frozen=True, kw_only=True):
    """The outside event after which no further step ended normally; holds no threshold of ours."""

    cause: str
    grade: Grade
    step: int | None = None
    phase: PhaseName | None = None


class Question(Record, frozen=True, kw_only=True):
    """One answered question with the observations it rests on."""

    answer: Answer = Answer.UNKNOWN
    by: list[str] = []


class Questions(Record, frozen=True, kw_only=True):
    """Did it happen; did it end or distort a step; would the outcome differ without it."""

    happened: Question = Question()
    ended_or_distorted: Question = Question()
    outcome_differs: Question = Question()


class Evidence(Record, frozen=True, kw_only=True):
    """One claim and where it comes from."""

    id: str
    at: str | None = None
    step: int | None = None
    phase: PhaseName | None = None
    source: str
    trust: Trust
    claim: str


class Present(Record, frozen=True, kw_only=True):
    """An outside event that happened and did not matter."""

    cause: str
    step: int | None = None
    why: str


class Ledger(Record, frozen=True, kw_only=True):
    """Time taken by outside intervals against the limit that fired, seconds; the union, never the sum."""

    limit: float | None = None
    elapsed: float | None = None
    need: float | None = None
    infra_seconds: float | None = None
    by_cause: dict[str, float] = {}
    calls_seconds: float | None = None
    """The time that model calls filled."""
    reference: str | None = None
    """By what whole calls were measured; None: by nothing, so what they took was not charged."""
    calls_without_reference: int | None = None
    """Whole calls that were not charged, because the reference knows none of their kind."""
    undecided_seconds: float | None = None
    """The part of `infra_seconds` that only intervals fill of which the trial's own processes may be the reason
    (throttling; an engine that was slow to answer about a busy box).  Nobody is blamed for them.  None: there
    is none."""


class Answers(Record, frozen=True, kw_only=True):
    """What a harness asks: retry? grade? is the reward valid?"""

    retry: Answer = Answer.UNKNOWN
    grade: Answer = Answer.UNKNOWN
    reward_valid: Answer = Answer.UNKNOWN


class Verdict(Record, frozen=True, kw_only=True):
    """What the observations add up to."""

    blame: Blame
    grade: Grade | None = None
    cause: str | None = None
    step: int | None = None
    phase: PhaseName | None = None
    sentence: str
    terminated_by: TerminatedBy | None = None
    ended_as: EndedAs = EndedAs.UNKNOWN
    questions: Questions = Questions()
    evidence: list[Evidence] = []
    against: list[Evidence] = []
    present: list[Present] = []
    ledger: Ledger = Ledger()
    thresholds: dict[str, float] = {}
    flips_if: str | None = None
    answers: Answers = Answers()
    revision: int = 1
    final_after: str | None = None
