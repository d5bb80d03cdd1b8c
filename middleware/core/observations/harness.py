"""A harness's own records: what it booked for a trial.

What all of them share is said in the package. In: nothing.  Out: typed values, one struct an observation kind.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from fairtrial.middleware.core.observations.base import Value
from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName, Record, TimeLimits


class BookedPhase(Record, frozen=True, kw_only=True):
    """One part of a trial as the harness timed it; wall ns of the harness's clock.  `step`: the harness's own word for
    a part of the task that has several."""

    name: PhaseName
    started_ns: int | None = None
    ended_ns: int | None = None
    outcome: str | None = None
    step: str | None = None


class BookedError(Record, frozen=True, kw_only=True):
    """A failure as the harness named it.  Its text is not kept: it may hold what the agent printed.

    The three answers are the harness's policy for this name: try again, run the verifier, count the reward.
    """

    type: str
    at_ns: int | None = None
    exit_code: int | None = None
    step: str | None = None
    should_retry: bool | None = None
    should_grade: bool | None = None
    reward_valid: bool | None = None


class HarnessOutcome(Value, frozen=True, kw_only=True):
    """What a harness booked for one trial, as read from its own files (`middleware/harnesses/`).

    Many may tell of one trial: several harnesses, or one file before and after it was whole.
    """

    kind: ClassVar[str] = "harness.outcome"
    harness: str
    harness_version: str | None = None
    identity: str
    """What the harness calls the trial, as a digest: the same trial has the same one in every file."""
    label: str
    """The same for people: its trial name, instance or sample."""
    about: str | None = None
    """Of a word of the control API: the name of the trial that it was said of; None: of the run's own."""
    task: str | None = None
    run: str | None = None
    """fairtrial's run that it was imported into."""
    job: str | None = None
    try_: int | None = msgspec.field(default=None, name="try")
    retried: bool = False
    """The harness gave this attempt up and tried again: it counts in no score."""
    outcome: Outcome = Outcome.UNKNOWN
    scored: bool = False
    """A verifier or scorer said so.  False: an exit status, or the agent program's own word."""
    reward: float | None = None
    rewards: dict[str, float] = {}
    reward_valid: bool | None = None
    exit_status: str | None = None
    ended_as: EndedAs | None = None
    errors: list[BookedError] = []
    marks: list[str] = []
    """Known sentences of the harness's log, by name: terminal_gone."""
    started_ns: int | None = None
    ended_ns: int | None = None
    phases: list[BookedPhase] = []
    time: TimeLimits = TimeLimits()
    memory_declared: int | None = None
    cpus_declared: float | None = None
    concurrency: int | None = None
    """Trials that the harness may run at once."""
    agent: str | None = None
    model: str | None = None
    model_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    complete: bool = True
    """Every file that tells of it could be read whole."""
    files: list[str] = []
    """Names of the files that it was read from, below the path that was given."""
    joined_by: str | None = None
    """How it was tied to its trial: trial_id | request_id | response_id | tool_call | call_key | session | label | name
    | time | before; None: to none, it stands alone."""
    part_of: str | None = None
    """A trial that was observed as a whole and holds several of these: which part of it was this one's is not known."""
    imported_ns: int | None = None
