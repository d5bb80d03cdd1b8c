"""`fairtrial.trial/1` and `fairtrial.run/1` themselves, and what others told of a trial: harnesses, and its programs.

In: nothing.  Out: shapes only.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fairtrial.middleware.core.records.base import Closed, Outcome, Record
from fairtrial.middleware.core.records.calls import Call, Connection
from fairtrial.middleware.core.records.conditions import Coverage, Environment, Limits, Mutation, Phase
from fairtrial.middleware.core.records.steps import Step
from fairtrial.middleware.core.records.verdict import Verdict

TRIAL_SCHEMA: Final = "fairtrial.trial/1"
RUN_SCHEMA: Final = "fairtrial.run/1"
RULESET: Final = "2026.11"


class Booked(Record, frozen=True, kw_only=True):
    """What one harness booked for the trial, beside the verdict and never changed by it."""

    harness: str
    label: str
    """What the harness calls the trial."""
    job: str | None = None
    outcome: Outcome = Outcome.UNKNOWN
    scored: bool = False
    """A verifier or scorer said so; else an exit status or the agent program's own word."""
    reward: float | None = None
    reward_valid: bool | None = None
    """The harness's own word on whether the reward counts."""
    exit_status: str | None = None
    error: str | None = None
    """The first failure, by the harness's name for it."""
    marks: list[str] = []
    retried: bool = False
    """An attempt that the harness gave up and tried again: in no score."""
    part_of: str | None = None
    """The observed trial that holds it beside others."""
    joined_by: str | None = None
    """How it was tied to the observed trial; None: to none."""
    complete: bool = True
    """Every file that tells of it could be read whole."""
    model_calls: int | None = None
    inside: bool = False
    """The agent could have written it itself: it counts for nothing."""


class Mark(Record, frozen=True, kw_only=True):
    """A moment that a program of the trial told through the control API: it counts for nothing (trust inside)."""

    at: str
    """When it was, as it said; else when it said so."""
    told: str
    """When it said so, by our clock."""
    name: str
    text: str | None = None
    about: str | None = None
    """What it called the trial; None: by the run's own id."""
    step: int | None = None


class Trial(Record, frozen=True, kw_only=True):
    """`fairtrial.trial/1`: one attempt at one task, as observed."""

    schema: str = TRIAL_SCHEMA
    trial: str
    name: str | None = None
    run: str | None = None
    harness: str | None = None
    task: str | None = None
    try_: int | None = msgspec.field(default=None, name="try")
    started: str | None = None
    ended: str | None = None
    closed: Closed = "incomplete"
    trace_id: str | None = None
    fairtrial_version: str | None = None
    ruleset: str = RULESET
    command: list[str] = []
    exit_code: int | None = None
    signal: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    outcome_source: str | None = None
    booked: list[Booked] = []
    """By harnesses whose own records were imported, the one that counts first."""
    marks: list[Mark] = []
    """Told from inside through the control API, in order of their moments."""
    phases: list[Phase] = []
    environment: Environment = Environment()
    limits: Limits = Limits()
    mutations: list[Mutation] = []
    verdict: Verdict | None = None
    steps: list[Step] = []
    side_calls: list[Call] = []
    connections: list[Connection] = []
    """Of `--via connect`."""
    unassigned: dict[str, int] = {}
    coverage: Coverage = Coverage()


class Run(Record, frozen=True, kw_only=True):
    """`fairtrial.run/1`: trials under one configuration."""

    schema: str = RUN_SCHEMA
    run: str | None = None
    command: list[str] = []
    exit_code: int | None = None
    counts: dict[str, int] = {}
    coverage: Coverage = Coverage()
    trials: list[Trial] = []
    unassigned: dict[str, int] = {}
