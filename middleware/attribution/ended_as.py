"""The mechanism by which a trial came to its end, as far as it can be seen from outside the harness.

In: the case, and the event that ended it, if one did.  Out: an `EndedAs`.  Which limit a harness ran into is known from
the command (`timeout 60 agent`) or from the harness's own result (`harnesses/`, `time_limit.py`); else such an end is
`unknown`, not guessed.
What this module does not do: blame.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.core.records import EndedAs

CRASH_SIGNALS: Final = frozenset({4, 5, 6, 7, 8, 11, 31})
"""SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: a program's own end.  **Source:** signal(7)."""

KILLED_CODES: Final = frozenset({137, 143})
"""128 + SIGKILL and 128 + SIGTERM, as shells and runtimes tell them."""


_LIMITS: Final = frozenset({EndedAs.HARNESS_TIMEOUT, EndedAs.HARNESS_INNER_TIMEOUT, EndedAs.STEP_LIMIT})
"""Ends that only the harness can tell."""


def ended_as(ctx: Context, events: list[Event], ended_by: Event | None) -> EndedAs:
    """`ended_by`: the outside event that terminated the trial."""
    trial = ctx.case.trial
    said = ctx.case.said_ended_as
    if ctx.case.only_imported:
        return said or EndedAs.UNKNOWN
    if ctx.case.ended is None or trial.closed != "normal":
        return EndedAs.UNKNOWN
    if (ctx.never_ran and ended_by is not None) or ctx.case.never_started is not None:
        return EndedAs.NEVER_RAN
    if ctx.limit is not None:
        return EndedAs.HARNESS_TIMEOUT
    if any(e.cause == "harness.inner_timeout" and e.standing is Standing.TERMINAL for e in events):
        return EndedAs.HARNESS_INNER_TIMEOUT
    if trial.signal is not None:
        return EndedAs.AGENT_CRASHED if trial.signal in CRASH_SIGNALS else EndedAs.KILLED
    if trial.exit_code is None:
        return EndedAs.UNKNOWN
    if said is not None and said in _LIMITS:
        return said
    if trial.exit_code in KILLED_CODES or (
        ended_by is not None and ended_by.cause == "operator.cancelled" and ctx.ended_by_signal
    ):
        return EndedAs.KILLED
    if any(e.standing is Standing.TERMINAL and e.ends_call for e in events):
        return EndedAs.AGENT_GAVE_UP
    if ctx.case.finished_in_words:
        return EndedAs.AGENT_FINISHED
    if ended_by is not None and trial.exit_code != 0:
        return EndedAs.AGENT_GAVE_UP
    if ended_by is None and trial.exit_code == 0 and ctx.ever_completed:
        return EndedAs.AGENT_FINISHED
    told = ctx.case.told_ended_as
    if trial.exit_code == 0 and told is not None and told is not EndedAs.NEVER_RAN:
        return told  # of its agent, whatever the harness's own status is
    return EndedAs.UNKNOWN
