"""The persisted records: `fairtrial.trial/1`, `fairtrial.run/1` and everything inside them.

What comes in: values that `steps/` and `attribution/` computed.  What goes out: JSON by `msgspec`.
This package holds shapes only, no rules.  The facts they are computed from are in `observations/`, the
closed set of causes in `causes/`.

Times are RFC 3339 UTC with microseconds (`str`), durations are seconds, sizes bytes.  `None` means *not
observed*, never 0 or "".  Fields may be added within a schema number, never changed or removed.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from fairtrial.middleware.core.records.base import (
    Answer,
    Blame,
    CallOutcome,
    CallRole,
    Closed,
    ClosedBy,
    ContainerRole,
    EndedAs,
    Grade,
    Level,
    Outcome,
    PeakKind,
    PhaseName,
    Record,
    Trust,
)
from fairtrial.middleware.core.records.calls import Attempt, Call, Connection
from fairtrial.middleware.core.records.conditions import (
    FAMILIES,
    Coverage,
    CpuLimits,
    Environment,
    FamilyCoverage,
    Gap,
    Limits,
    MemoryLimits,
    Mutation,
    Phase,
    TimeLimits,
)
from fairtrial.middleware.core.records.steps import ContainerUse, Step, Tool, Victim
from fairtrial.middleware.core.records.trial import RULESET, RUN_SCHEMA, TRIAL_SCHEMA, Booked, Mark, Run, Trial
from fairtrial.middleware.core.records.verdict import (
    Answers,
    Evidence,
    Ledger,
    Present,
    Question,
    Questions,
    TerminatedBy,
    Verdict,
)

__all__ = [
    "FAMILIES",
    "RULESET",
    "RUN_SCHEMA",
    "TRIAL_SCHEMA",
    "Answer",
    "Answers",
    "Attempt",
    "Blame",
    "Booked",
    "Call",
    "CallOutcome",
    "CallRole",
    "Closed",
    "ClosedBy",
    "Connection",
    "ContainerRole",
    "ContainerUse",
    "Coverage",
    "CpuLimits",
    "EndedAs",
    "Environment",
    "Evidence",
    "FamilyCoverage",
    "Gap",
    "Grade",
    "Ledger",
    "Level",
    "Limits",
    "Mark",
    "MemoryLimits",
    "Mutation",
    "Outcome",
    "PeakKind",
    "Phase",
    "PhaseName",
    "Present",
    "Question",
    "Questions",
    "Record",
    "Run",
    "Step",
    "TerminatedBy",
    "TimeLimits",
    "Tool",
    "Trial",
    "Trust",
    "Verdict",
    "Victim",
]
