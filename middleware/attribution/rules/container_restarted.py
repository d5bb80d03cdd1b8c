"""A container of the trial began a second life in the middle of the trial.

Recognises: an end and a later start of the same main container in the agent's time, which the trial used before and
after (a command ran in it, or its model was asked again): `container.restarted`; where what it held in a tmpfs went
with the first life, or where the container was removed and another one of the same compose service took its place,
`container.state_lost`.  By whom: asked for at the trial's own Docker door, it is its harness's or its model's, never
infra; a `kill`, a `restart` or a SIGKILL that came past the door has no name and is infra, suspected.
Deliberately does not: blame anybody for a first process that ended by itself and that a restart policy started again
(a command of the trial can end it), it is then only present; explain a restart by an engine that was itself restarted
(`runtime.py`) or by a kill for memory (`container_oom.py`); read what tools say of missing files.
How it can be wrong: an agent that reaches the engine past the door can restart its own container, and a harness may do
so on purpose between two of its stages.  So it is `suspected` at best, and costs one rerun of a trial that the model
failed on its own.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.doings import (
    ENDING,
    LATE_DIE_NS,
    asked_for,
    heir_of,
    in_time,
    running_at,
    used_after,
    with_engine,
    with_step,
)
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.sentences import fill, listed
from fairtrial.middleware.attribution.tool_steps import first_normal_after
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import ContainerGone
from fairtrial.middleware.core.records import Blame, Grade
from fairtrial.middleware.steps.placed import Placed
from fairtrial.middleware.steps.placing import STRUCK_NS

_SIGKILL: Final = 9
_PATIENCE_NS: Final = 11_000_000_000
"""The engine gives a process ten seconds between its signals, if it is not told otherwise."""


def find(ctx: Context) -> list[Event]:
    """At most one event per container: its first end that was followed by another life."""
    found: list[Event] = []
    for container in ctx.case.containers.values():
        if container.role != "main" or any(g.container == container.id for g in ctx.case.kills):
            continue
        for placed, gone in container.ends:
            again = _begins_again(ctx, container, placed.at_ns)
            if again is None or not in_time(ctx.case, placed) or with_engine(ctx.case, placed.at_ns):
                continue
            event = _event(ctx, container, placed, gone, again)
            if event is not None:
                found.append(event)
                break
    return found


def _begins_again(ctx: Context, container: ContainerCase, at_ns: int) -> tuple[Placed, ContainerCase] | None:
    """The start of its next life, or the first sight of the container that took its place."""
    start = next((p for p, v in container.events if v.action == "start" and p.at_ns > at_ns), None)
    if start is not None:
        return start, container
    return heir_of(ctx.case, container, at_ns)


def _first_told(container: ContainerCase, ended_ns: int) -> int:
    """When the engine began to end its life: on a loaded machine a command may die of that long before the engine
    tells of the end itself, and a quick agent has asked its model again by then."""
    since = ended_ns - _PATIENCE_NS
    return min(
        (p.at_ns for p, v in container.events if v.action == "kill" and since <= p.at_ns < ended_ns), default=ended_ns
    )


def _event(
    ctx: Context, container: ContainerCase, placed: Placed, gone: ContainerGone, again: tuple[Placed, ContainerCase]
) -> Event | None:
    at, (start, heir) = placed.at_ns, again
    before = [e for execs in container.execs.values() for e in execs if e.started is not None and e.started.at_ns < at]
    first = _first_told(container, at)
    struck_ns = LATE_DIE_NS if gone.init_signal == _SIGKILL else STRUCK_NS
    running = running_at(container, first) or running_at(container, at, struck_ns)
    if not before or not (used_after(ctx.case, at) or running):
        return None
    own = asked_for(ctx.case, container, at, ENDING)
    outside = (gone.ended_by or "").startswith("runtime_kill") or gone.init_signal == _SIGKILL
    outside = outside or any(v.action == "restart" and p.at_ns >= at for p, v in container.events)
    lost = list(container.seen.tmpfs) if container.seen is not None and heir is container else []
    cause = CAUSES["container.state_lost" if lost or heir is not container else "container.restarted"]
    step = min((one.step for one in running if one.step is not None), default=placed.step)
    later = first_normal_after(ctx.case, heir, step)
    if not own and not outside:
        standing = Standing.RECOVERED
    else:
        standing = Standing.DISTORTING if later is not None else Standing.TERMINAL
    who = "The trial's own side asked for it at its Docker door." if own else "Nothing says who did it."
    what = f"what it held in {listed(path.partition('=')[0] for path in lost[:3])}" if lost else "its files"
    facts = {"container": name_of(container), "what": what}
    if step is not None:
        facts["step"] = str(step)
    ids = [placed.id, start.id]
    return Event(
        cause=cause.name,
        blame=Blame.HARNESS if own else Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=standing,
        ends_call=False,
        step=step,
        phase=placed.phase,
        at_ns=at,
        happened=yes(ids),
        ended_or_distorted=no(ids)
        if standing is Standing.RECOVERED
        else unknown(ids)
        if later is not None
        else yes(ids),
        outcome_differs=unknown(ids),
        sentence=f"{fill(with_step(cause.template, step), facts)} {who}",
        advice="" if own else cause.advice,
        why_present="its first process had ended by itself, which a command of the trial can bring about, and the "
        "engine's restart policy started it again",
        flips_if="turns to the model if a command of its own restarted the container",
        evidence=(
            evidence(placed, f"its first life ended with exit code {gone.exit_code}"),
            evidence(start, "it was started again" if heir is container else "another container took its place"),
        ),
    )
