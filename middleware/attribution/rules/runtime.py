"""A container engine that failed under the trial.

Recognises, as `runtime.exec_lost`, an exec whose stream the engine ended without the command having ended
(`steps/tools.py`: the connection was reset, or it ended as a process's does while the engine's events broke off and no
exit code was ever told); as `runtime.daemon_fault` an engine that went, or came back as another process, while the
trial used it and no command of its own was running, and an engine that answered a request of the trial's with 5xx for
a reason of its own (its runtime, a timeout, its network), and nothing worked in a container afterwards.
Deliberately does not: take a command without an exit code for a lost one, or a client that left, or a stream of events
that only broke and was repeated whole; say why the engine stopped; take a 5xx for the engine's fault whose words are of
a full disk, a taken port or a missing command, which the trial can bring about.
How it can be wrong: an agent with access to the engine, or to its host, can end it, so this is `suspected`; it costs
one rerun of a trial whose agent did.  A later command with an exit code shows that the engine came back, and the event
is then only present.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.doings import engine_losses, in_time, went_on, with_step, works_inside
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.sentences import fill
from fairtrial.middleware.attribution.tool_steps import NOT_NORMAL
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import DoorExec, RuntimeState
from fairtrial.middleware.core.records import Blame, Grade, PhaseName
from fairtrial.middleware.steps.placed import Placed

_CAUSE: Final = CAUSES["runtime.exec_lost"]
_FAULT: Final = CAUSES["runtime.daemon_fault"]
_ITS_OWN: Final = frozenset({"runtime_gone", "timeout", "no_network"})
"""Kinds of refusal (`wire/docker_errors.py`) that no request by itself brings about."""


def find(ctx: Context) -> list[Event]:
    """The last command that the engine broke off, else the last fault of the engine itself: at most one event."""
    lost = _exec_lost(ctx)
    return lost or _daemon_fault(ctx)


def _exec_lost(ctx: Context) -> list[Event]:
    for step in reversed(ctx.case.trial.steps):
        for tool in reversed(step.tools):
            if tool.ended_by == "engine" and tool.exec_id in ctx.case.door_execs:
                return [_lost_event(ctx, step.index, tool.exec_id)]
    return []


def _lost_event(ctx: Context, step: int, exec_id: str) -> Event:
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


def _daemon_fault(ctx: Context) -> list[Event]:
    case = ctx.case
    boxes = [c for c in case.containers.values() if c.role == "main" and c.execs]
    told: list[tuple[Placed, str, str]] = []
    for lost, back in engine_losses(case):
        if boxes and in_time(case, lost) and not case.near_end(lost.at_ns, ctx.thresholds.end_grace_s):
            told.append((lost, _how(back), "the engine's event stream broke off"))
    for placed, what, error, status in _answers(ctx):
        if error in _ITS_OWN and (status or 0) >= 500 and in_time(case, placed):
            told.append((placed, f"refused to {what}", f"the engine answered HTTP {status} ({error})"))
    if not told:
        return []
    return [_fault_event(ctx, boxes, *max(told, key=lambda one: one[0].at_ns))]


def _how(back: Placed | None) -> str:
    if back is None:
        return "went"
    restarted = isinstance(back.value, RuntimeState) and back.value.restarted
    return "was restarted" if restarted else "was away, and what it told meanwhile is lost,"


def _answers(ctx: Context) -> list[tuple[Placed, str, str | None, int | None]]:
    """The engine's answers to requests that make something run."""
    found = [
        (p, f"{v.action} a container", v.error, v.status)
        for p, v in ctx.case.asked_of_containers
        if v.action in {"create", "start"}
    ]
    found += [
        (placed, "run a command", placed.value.error, placed.value.status)
        for placed in ctx.case.door_execs.values()
        if isinstance(placed.value, DoorExec) and placed.value.plumbing is not True
    ]
    return found


def _fault_event(ctx: Context, boxes: list[ContainerCase], placed: Placed, what: str, claim: str) -> Event:
    at = placed.at_ns
    again = next(
        (
            one.ended
            for box in boxes
            for execs in box.execs.values()
            for one in execs
            if one.ended is not None and one.ended.at_ns > at
            if one.exit_code is not None and one.exit_code not in NOT_NORMAL
        ),
        None,
    )
    # An agent whose own commands run on the host may have worked on without any container; the step itself does not
    # tell, since nothing could be run in a container any more.
    beside = again is None and went_on(ctx.case, at) and not works_inside(ctx.case, (placed.step or 1) - 1)
    facts = {"what": what, "at": rfc3339(at)}
    if placed.step is not None:
        facts["step"] = str(placed.step)
    return Event(
        cause=_FAULT.name,
        blame=Blame.INFRA,
        best=Grade.SUSPECTED,
        fact=Grade.SUSPECTED,
        standing=Standing.RECOVERED if again is not None else Standing.DISTORTING if beside else Standing.TERMINAL,
        ends_call=False,
        step=placed.step,
        phase=placed.phase,
        at_ns=at,
        happened=yes([placed.id]),
        ended_or_distorted=no([again.id]) if again is not None else unknown() if beside else yes([placed.id]),
        outcome_differs=no() if again is not None else unknown(),
        sentence=fill(with_step(_FAULT.template, placed.step), facts),
        advice=fill(_FAULT.advice, facts),
        why_present="a later command ended normally",
        flips_if="turns to the model if the agent itself ended the engine",
        evidence=(evidence(placed, claim),),
    )
