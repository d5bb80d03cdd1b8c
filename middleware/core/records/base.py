"""The base of every record, and the closed sets of words that records use.

In: nothing.  Out: `Record`, enums and literals.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every persisted record: frozen, keyword-only, unknown fields of newer writers are skipped."""


class Blame(StrEnum):
    """Who a failure is put on."""

    INFRA = "infra"
    MODEL = "model"
    HARNESS = "harness"
    OPERATOR = "operator"
    TASK = "task"
    FAIRTRIAL = "fairtrial"
    NONE = "none"
    INDETERMINATE = "indeterminate"


class Grade(StrEnum):
    """How well a blame is supported."""

    PROVED = "proved"
    SUSPECTED = "suspected"


class Answer(StrEnum):
    """An answer to one of the three questions, or to retry / grade / reward-valid."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Trust(StrEnum):
    """Who could have forged an observation."""

    HOST = "host"
    SAME_UID = "same_uid"
    INSIDE = "inside"


class Outcome(StrEnum):
    """What was booked for the trial."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNKNOWN = "unknown"


class PhaseName(StrEnum):
    """The part of a trial that an observation belongs to."""

    BUILD = "build"
    SETUP = "setup"
    AGENT = "agent"
    VERIFY = "verify"
    TEARDOWN = "teardown"


class EndedAs(StrEnum):
    """The mechanism by which the trial came to its end."""

    AGENT_FINISHED = "agent.finished"
    AGENT_GAVE_UP = "agent.gave_up"
    AGENT_CRASHED = "agent.crashed"
    STEP_LIMIT = "step_limit"
    HARNESS_TIMEOUT = "harness.timeout"
    HARNESS_INNER_TIMEOUT = "harness.inner_timeout"
    HARNESS_KILLED = "harness.killed"
    HARNESS_CRASHED = "harness.crashed"
    KILLED = "killed"
    NEVER_RAN = "never_ran"
    UNKNOWN = "unknown"


Closed = Literal["normal", "recovered", "incomplete"]
CallOutcome = Literal["ok", "error", "truncated", "client_disconnect", "proxy_shutdown"]
CallRole = Literal["step", "title", "compaction", "probe", "subagent"]
PeakKind = Literal["exact", "rose_in_step", "at_most", "sampled", "shared"]
ContainerRole = Literal["main", "service", "verifier", "own"]
Level = Literal["full", "partial", "none"]
ClosedBy = Literal["client", "upstream", "fairtrial"]
