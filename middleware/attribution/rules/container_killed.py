"""Somebody outside stopped, or held up, a container of the trial while the trial still used it.

Recognises: a kill, a stop or a pause that the runtime reports (so it came through the runtime, from outside the
container), in the agent's time, of a main container in which a command was running or that the agent went on to use.
By whom: what the trial's own Docker door saw asked for is the harness's or the model's (`harness.killed`, never
infra); what went past the door has no name.
Deliberately does not: take exit code 137 alone for a kill from outside (`unknown_outside.py`); explain anything by the
harness's own teardown (the assembler puts a stop after the agent's last work into the teardown phase); tell of a
container that was started again (`container_restarted.py`) or of a service (`service_died.py`).
How it can be wrong: a harness that stops the container past the door because its own time limit fired is seen as
somebody outside while a command was still running; so it stays `suspected`.  An agent with access to the runtime can
stop its own container past the door.  The cost is one rerun of a trial that the model failed.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.doings import (
    ENDING,
    after_last_word,
    asked_for,
    heir_of,
    in_time,
    running_at,
    struck_step,
    used_after,
    with_step,
)
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.sentences import fill, signal_name
from fairtrial.middleware.attribution.tool_steps import first_normal_after
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import ContainerEvent
from fairtrial.middleware.core.records import Blame, Grade
from fairtrial.middleware.steps.placed import Placed

_STOPS: Final = frozenset({"kill", "stop"})


def find(ctx: Context) -> list[Event]:
    """At most one event per container: the first stop, or the first pause, that struck the trial."""
    found: list[Event] = []
    for container in ctx.case.containers.values():
        if container.role != "main":
            continue
        told = [(p, v) for p, v in container.events if in_time(ctx.case, p)]
        # One that was taken back is no end: a commit pauses as well.
        back = max((p.at_ns for p, v in told if v.action == "unpause"), default=0)
        pauses = [(p, v) for p, v in told if v.action == "pause" and p.at_ns > back]
        stops = [(p, v) for p, v in told if v.action in _STOPS] if container.gone is not None else []
        ends = container.gone[1].ended_by or "" if container.gone is not None else ""
        for_memory = ends == "oom" or any(g.container == container.id for g in ctx.case.kills)
        if for_memory or (stops and heir_of(ctx.case, container, stops[0][0].at_ns) is not None):
            stops = []  # told as a kill for memory, or as the loss of what it held
        started = max((p.at_ns for p, v in told if v.action == "start"), default=0)
        stops = [(p, v) for p, v in stops if p.at_ns > started]  # what began again after it is told as a restart
        for kind, asked in ((stops, ENDING), (pauses, frozenset({"pause"}))):
            outside = [one for one in kind if not asked_for(ctx.case, container, one[0].at_ns, asked)]
            if not kind:
                continue
            event = _event(ctx, container, *(outside or kind)[0], own=not outside)
            if event is not None:
                found.append(event)
                break
    return found


def _event(
    ctx: Context, container: ContainerCase, placed: Placed, stop: ContainerEvent, *, own: bool = False
) -> Event | None:
    at = placed.at_ns
    running = running_at(container, at)
    if own and after_last_word(ctx.case, at):
        return None
    if not running and not used_after(ctx.case, at):
        return None
    step = struck_step(container, placed)
    later = first_normal_after(ctx.case, container, step)
    ids = [placed.id, *(e.started.id for e in running if e.started is not None)]
    cause = CAUSES["harness.killed" if own else "container.killed"]
    signal = signal_name(stop.signal)
    did = "paused" if stop.action == "pause" else f"stopped ({signal})" if signal else "stopped"
    facts = {"container": name_of(container), "at": rfc3339(at), "did": did}
    if step is not None:
        facts["step"] = str(step)
    sentence = fill(with_step(cause.template, step), facts) + " Nothing says who did."
    if own:
        sentence = (
            f"The trial's own side {did} {name_of(container)} through its Docker door"
            f"{f' in step {step}' if step is not None else ''} while it was still using it: its harness "
            "did, or a command of the model's."
        )
    return Event(
        cause=cause.name,
        blame=Blame.HARNESS if own else Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=Standing.RECOVERED if later is not None else Standing.TERMINAL,
        ends_call=False,
        step=step,
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
