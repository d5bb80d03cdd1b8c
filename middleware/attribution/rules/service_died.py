"""A service container of the task (a database beside the agent's box) died while the agent still worked.

Recognises: the end of a container with role `service` that was there before the model had said anything, in the
agent's time, without a later life and before the agent's last call or while its last tool ran, that came from
outside it: a kill or stop through the runtime, or a SIGKILL that its first process did not send itself.  By whom: asked
for at the trial's own Docker door, it is the harness's or the model's.
Deliberately does not: look at a service that a command of the model's may have started; blame anybody for a service
that exited by itself, since a request of the agent's can bring that about: with a code other than 0 that is said, and
keeps the model from being blamed alone (`rules/model.py`), with 0 it is a one-shot service that was done.  Kills for
memory are `container_oom.py`'s, an engine that went is `runtime.py`'s.
How it can be wrong: an agent that reaches the engine past the door can stop its services; a service that nobody needed
is taken for what failed the trial.  So it is `suspected`, never proved, and costs one rerun.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import Case, ContainerCase, evidence, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.doings import asked_for, in_time, there_before, went_on, with_engine, with_step
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.sentences import fill
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import ContainerGone
from fairtrial.middleware.core.records import Blame, Grade
from fairtrial.middleware.steps.placed import Placed

_CAUSE: Final = CAUSES["container.service_died"]
_SIGKILL: Final = 9


def find(ctx: Context) -> list[Event]:
    """One event per service that somebody ended from outside it."""
    found: list[Event] = []
    for container, placed, gone in dead_services(ctx.case):
        killed = (gone.ended_by or "").startswith("runtime_kill")
        struck = gone.init_signal == _SIGKILL and container.seen is not None and container.seen.own_pid_namespace
        if killed or struck:
            found.append(_event(ctx, container, placed, gone))
    return found


def dead_services(case: Case) -> list[tuple[ContainerCase, Placed, ContainerGone]]:
    """Services that ended while the agent still worked, not for memory and not with their engine."""
    found: list[tuple[ContainerCase, Placed, ContainerGone]] = []
    for container in case.containers.values():
        if container.role != "service" or container.gone is None:
            continue
        placed, gone = container.gone
        at = placed.at_ns
        for_memory = gone.ended_by == "oom" or any(g.container == container.id for g in case.kills)
        working = went_on(case, at) or (case.waiting_for is not None and not case.near_end(at, 1.0))
        if (
            there_before(case, container)
            and in_time(case, placed)
            and working
            and not with_engine(case, at)
            and not for_memory
        ):
            found.append((container, placed, gone))
    return found


def _event(ctx: Context, container: ContainerCase, placed: Placed, gone: ContainerGone) -> Event:
    own = asked_for(ctx.case, container, placed.at_ns)
    facts = {"container": name_of(container)}
    if placed.step is not None:
        facts["step"] = str(placed.step)
    how = (gone.ended_by or "").removeprefix("runtime_kill").removeprefix(":")
    said = fill(with_step(_CAUSE.template, placed.step), facts)
    who = (
        "The trial's own side asked for it at its Docker door: its harness did, or a command of the model's."
        if own
        else "Somebody outside ended it, and nothing says who."
    )
    through = f"through the runtime{f', signal {how}' if how else ''}" if gone.init_signal is None or how else "SIGKILL"
    later = [call.ids[0] for call in ctx.case.main_calls if call.started_ns > placed.at_ns]
    return Event(
        cause=_CAUSE.name,
        blame=Blame.HARNESS if own else Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=Standing.DISTORTING,
        ends_call=False,
        step=placed.step,
        phase=placed.phase,
        at_ns=placed.at_ns,
        happened=yes([placed.id]),
        ended_or_distorted=unknown([placed.id, *later[:1]]),
        outcome_differs=unknown(),
        sentence=f"{said} {who}",
        advice="" if own else _CAUSE.advice,
        flips_if="turns to the model if a command of its own ended the service, or if the task does not need it",
        evidence=(evidence(placed, f"the service ended ({through}), exit code {gone.exit_code}"),),
    )
