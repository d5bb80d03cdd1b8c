"""The same ledger for one command: a limit of the harness's for a tool fired, and outside time had filled part of it.

Recognises: in the last tool step, a command that a limit for tools cut short: `timeout N COMMAND` as the exec's own
words (the Docker door hands them over), or the limit for tools that the harness declared, where our clock agrees and
the command ended as cut commands do (124, 137, 143, or its client left).  When outside intervals took at least
`ledger_share` of that limit, the largest is named and nobody is blamed: how long that command needs is not known from
other trials, so no ledger of it can do more.
Deliberately does not: read a `timeout` inside a shell's text (the door keeps its length alone); take the start's delay
for a part of a timer that ran in the box, since it began afterwards; tell of throttling (`slowness.py` does); judge a
command that was cut and after which the agent went on to other tools; speak when the trial's own limit fired as well
(`time_limit.py` then counts the same intervals).
How it can be wrong: a command that ended by itself with 124 just then.  It turns a verdict on the model into an open
one, never into one on the infrastructure.

**Source:** design page VERDICTS.md section 4; timeout(1) of GNU coreutils.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import Case, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.held_up import THROTTLED
from fairtrial.middleware.attribution.ledger import Book, open_book
from fairtrial.middleware.attribution.rules.held_time import cited, word
from fairtrial.middleware.attribution.sentences import seconds
from fairtrial.middleware.attribution.time_limit import EARLY, Limit, timeout_of
from fairtrial.middleware.attribution.tool_steps import TIME_LIMIT_CODES, last_tool_step
from fairtrial.middleware.core.observations import DoorExec
from fairtrial.middleware.core.records import Blame, Grade, PhaseName, Step, Tool

_CLOCKS_S: Final = 1.0
_LATE: Final = 1.25
_LATE_S: Final = 5.0
"""A command that went on much longer than the declared limit was not ended by it."""
_CITED: Final = 3


def find(ctx: Context) -> list[Event]:
    """At most one event: for the first command of the last tool step that a limit cut short."""
    step = last_tool_step(ctx.case)
    if ctx.limit is not None or step is None or step.phase is not PhaseName.AGENT:
        return []
    if any(group.step == step.index for group in ctx.case.kills):
        return []
    for tool in step.tools:
        limit = fired(ctx.case, tool)
        if limit is not None:
            return _weighed(ctx, step, limit)
    return []


def fired(case: Case, tool: Tool) -> Limit | None:
    """The limit that ended a command, with the window in which its timer ran; None where none is known."""
    placed = case.door_execs.get(tool.exec_id or "")
    if placed is None or not isinstance(placed.value, DoorExec):
        return None
    door = placed.value
    if door.started_wall_ns is None or door.duration is None:
        return None
    since, until = door.started_wall_ns, door.started_wall_ns + round(door.duration * 1e9)
    wrapped = timeout_of(tool.command or ())
    if wrapped is not None and tool.exit_code in TIME_LIMIT_CODES:
        began = since + round((door.dispatch_delay or 0.0) * 1e9)
        limit = Limit(
            limit_s=wrapped, since_ns=began, until_ns=until, source="timeout(1) in the command", by=(placed.id,)
        )
        if limit.elapsed_s >= wrapped - min(_CLOCKS_S, wrapped / 10):
            return limit
    declared = case.trial.limits.time.tool
    cut = tool.exit_code in TIME_LIMIT_CODES or tool.timed_out_by is not None or tool.ended_by == "client"
    if declared is None or declared <= 0 or not cut:
        return None
    source = f"as {case.trial.limits.time.source or 'the harness'} says"
    limit = Limit(limit_s=declared, since_ns=since, until_ns=until, source=source, by=(placed.id,))
    in_time = EARLY * declared <= limit.elapsed_s <= _LATE * declared + _LATE_S
    return limit if in_time else None


def _weighed(ctx: Context, step: Step, limit: Limit) -> list[Event]:
    book = open_book(
        ctx.case, ctx.turns, ctx.troubles, thresholds=ctx.thresholds, limit=limit, yardsticks=ctx.yardsticks
    )
    by_cause = book.by_cause
    if not by_cause or book.infra_s < ctx.thresholds.ledger_share * limit.limit_s:
        return []
    largest = max(by_cause, key=lambda c: (by_cause[c], c))
    return [] if largest == THROTTLED else [_event(step, limit, book, largest)]


def _event(step: Step, limit: Limit, book: Book, cause: str) -> Event:
    ids = [*book.ids[cause][:_CITED], *limit.by]
    ids = list(dict.fromkeys(ids))
    return Event(
        cause=cause,
        blame=Blame.FAIRTRIAL if cause.startswith("observer.") else Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=Standing.DISTORTING,
        ends_call=False,
        step=step.index,
        phase=step.phase,
        at_ns=limit.since_ns,
        happened=yes(ids),
        ended_or_distorted=yes(ids),
        outcome_differs=unknown(ids),
        sentence=f"In step {step.index} the time limit of {_s(limit.limit_s)} of a command fired ({limit.source}) "
        f"after outside intervals had taken {_s(book.infra_s)} of it, most of it {word(cause)} "
        f"({_s(book.by_cause[cause])}).",
        advice=f"To decide it, run the trial again with {_s(limit.limit_s + book.infra_s)} for its commands.",
        undecided="Whether the command would have been done in time without that is not known",
        flips_if="turns to infra, suspected, if the same command ends in time without that; to the model if not",
        why_present="the trial did not fail by it",
        evidence=cited(book.held, cause),
    )


def _s(length_s: float) -> str:
    return seconds(length_s) or ""
