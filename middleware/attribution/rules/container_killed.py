"""Somebody outside stopped a container of the trial while the trial still used it.

Recognises: a kill or stop that the runtime reports (so it came through the runtime, from outside the container), in the
agent's time, of a container in which a command was running or that the agent went on to use.
Deliberately does not: take exit code 137 alone for a kill from outside (PID 1 may exit with 137, and a process of the
trial may stop its own container); explain anything by the harness's own teardown (the assembler puts a stop after the
agent's last work into the teardown phase); say who it was.
A stop that the trial's own Docker door saw asked for is the harness's or the model's: `harness.killed`, never infra.
How it can be wrong: a harness that stops the container past the door because its own time limit fired is seen as
somebody outside while a command was still running; so it stays `suspected`.  An agent with access to the runtime can
stop its own container.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, ExecSeen, evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.sentences import fill, signal_name
from fairtrial.middleware.attribution.tool_steps import first_normal_after
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import ContainerEvent, DoorContainer
from fairtrial.middleware.core.records import Blame, Grade, PhaseName
from fairtrial.middleware.steps.assembler import STRUCK_NS
from fairtrial.middleware.steps.placed import Placed

_STOPS: Final = frozenset({"kill", "stop"})
_ASKED: Final = frozenset({"kill", "stop", "restart", "remove"})
_BEFORE_NS: Final = 1_000_000_000
"""The runtime's clock and ours may differ by so much."""
_AFTER_NS: Final = 11_000_000_000
"""A stop whose client has left is still carried out: 10 s of patience are the runtime's default."""


def find(ctx: Context) -> list[Event]:
    """At most one event per container: the first stop that struck the trial."""
    found: list[Event] = []
    for container in ctx.case.containers.values():
        if container.role not in {"main", "service"} or container.gone is None:
            continue
        stops = [(p, v) for p, v in container.events if v.action in _STOPS and _in_time(ctx, p)]
        ends = container.gone[1].ended_by or ""
        if stops and ends != "oom" and not any(g.container == container.id for g in ctx.case.kills):
            outside = [stop for stop in stops if not _asked_for(ctx, container, stop[0].at_ns)]
            event = _event(ctx, container, *outside[0]) if outside else _event(ctx, container, *stops[0], own=True)
            if event is not None:
                found.append(event)
    return found


def _in_time(ctx: Context, placed: Placed) -> bool:
    before_end = ctx.case.ended_ns is None or placed.at_ns < ctx.case.ended_ns
    return placed.phase in {PhaseName.AGENT, PhaseName.SETUP} and before_end


def _asked_for(ctx: Context, container: ContainerCase, at_ns: int) -> bool:
    """Whether the trial's own client asked for it at the Docker door, by id, the beginning of it, or name."""
    return any(
        one.action in _ASKED
        and (one.status is None or one.status < 400)  # a client may leave before the answer: the stop is carried out
        and one.started_wall_ns is not None
        and -_BEFORE_NS <= at_ns - one.started_wall_ns <= round((one.duration or 0.0) * 1e9) + _AFTER_NS
        and _names(container, one)
        for one in ctx.case.asked_of_containers
    )


def _names(container: ContainerCase, asked: DoorContainer) -> bool:
    called = asked.container_id or asked.container_named
    name = container.seen.name if container.seen is not None else None
    return called is not None and (container.id.startswith(called) or called == (name or "").lstrip("/"))


def _runs_until(one: ExecSeen, at_ns: int) -> bool:
    """Still running then, or struck by it: the runtime may tell of a death a moment before the kill itself."""
    if one.ended is None or one.ended.at_ns >= at_ns:
        return True
    return one.exit_code == 137 and at_ns - one.ended.at_ns <= STRUCK_NS


def _event(
    ctx: Context, container: ContainerCase, placed: Placed, stop: ContainerEvent, *, own: bool = False
) -> Event | None:
    at = placed.at_ns
    running = [
        e
        for execs in container.execs.values()
        for e in execs
        if e.started is not None and e.started.at_ns <= at and _runs_until(e, at)
    ]
    went_on = [c for c in ctx.case.main_calls if c.started_ns > at]
    if not running and not went_on:
        return None
    later = first_normal_after(ctx.case, container, placed.step)
    ids = [placed.id, *(e.started.id for e in running if e.started is not None)]
    cause = CAUSES["harness.killed" if own else "container.killed"]
    signal = signal_name(stop.signal)
    facts = {"container": name_of(container), "at": rfc3339(at)}
    if placed.step is not None:
        facts["step"] = str(placed.step)
    if signal is not None:
        facts["signal"] = signal
    sentence = fill(cause.template, facts) + " Nothing says who did."
    if own:
        sentence = (
            f"The trial's own side stopped {name_of(container)} through its Docker door"
            f"{f' in step {placed.step}' if placed.step is not None else ''} while it was still using it: its harness "
            "did, or a command of the model's."
        )
    return Event(
        cause=cause.name,
        blame=Blame.HARNESS if own else Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=Standing.RECOVERED if later is not None else Standing.TERMINAL,
        ends_call=False,
        step=placed.step,
        phase=placed.phase,
        at_ns=at,
        happened=yes([placed.id]),
        ended_or_distorted=no(later[1]) if later is not None else yes(ids),
        outcome_differs=no() if later is not None else unknown(ids),
        sentence=sentence,
        advice="" if own else fill(cause.advice, facts),
        why_present="a later step ended normally in the same container",
        flips_if="turns to the model if a command of its own stopped the container"
        if own
        else "turns to the harness if its own time limit stopped the container",
        evidence=(evidence(placed, f"the runtime was told to {stop.action} the container"),),
    )
