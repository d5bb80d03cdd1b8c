"""A container engine that broke off while a command of the trial was running in it.

Recognises: an exec whose stream the engine ended without the command having ended (`steps/tools.py`: the connection was
reset, or it ended as a process's does while the engine's events broke off and no exit code was ever told).
Deliberately does not: take a command without an exit code for a lost one, or a client that left; say why the engine
stopped.
How it can be wrong: an agent with access to the engine, or to its host, can end it, so this is `suspected` at best.  A
later command with an exit code shows that the engine came back, and the event is then only present.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.sentences import fill
from fairtrial.middleware.attribution.tool_steps import NOT_NORMAL
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade, PhaseName

_CAUSE: Final = CAUSES["runtime.exec_lost"]


def find(ctx: Context) -> list[Event]:
    """The last command that the engine broke off, at most one event."""
    for step in reversed(ctx.case.trial.steps):
        for tool in reversed(step.tools):
            if tool.ended_by == "engine" and tool.exec_id in ctx.case.door_execs:
                return [_event(ctx, step.index, tool.exec_id)]
    return []


def _event(ctx: Context, step: int, exec_id: str) -> Event:
    placed = ctx.case.door_execs[exec_id]
    later = [tool for one in ctx.case.trial.steps[step:] for tool in one.tools]
    again = any(t.exec_via == "docker" and t.exit_code is not None and t.exit_code not in NOT_NORMAL for t in later)
    standing = Standing.RECOVERED if again else Standing.DISTORTING if later else Standing.TERMINAL
    struck = no([placed.id]) if again else yes([placed.id])
    return Event(
        cause=_CAUSE.name,
        blame=Blame.INFRA,
        best=Grade.SUSPECTED,
        fact=Grade.SUSPECTED,
        standing=standing,
        ends_call=False,
        step=step,
        phase=PhaseName.AGENT,
        at_ns=placed.at_ns,
        happened=yes([placed.id]),
        ended_or_distorted=struck,
        outcome_differs=no() if again else unknown(),
        sentence=fill(_CAUSE.template, {"step": str(step)}),
        advice=_CAUSE.advice,
        why_present="a later command ended normally",
        flips_if="turns to the model if the agent itself ended the engine",
        evidence=(evidence(placed, f"step {step}: the engine ended the stream of a running command"),),
    )
