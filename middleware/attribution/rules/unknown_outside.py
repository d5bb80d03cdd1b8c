"""A container's first process was killed by a signal that must have come from outside it, and nothing says from whom.

Recognises: a main container whose first process was ended by SIGKILL, as that process's own wait status tells, in the
agent's time, while the trial used it, with no kill for memory, no request to the runtime (`container_killed.py`) and
no engine that went (`runtime.py`).  The kernel lets no process of a pid namespace kill its first one, so the sender was
outside it; the rule needs that the namespace is the container's own, and that the model's commands ran inside
containers (the text that the model wrote is the text that the engine ran).
Deliberately does not: take exit code 137 for a signal (a process may exit with it); report where the model's commands
ran on the host, from where they can reach every process: that stays nobody's (`rules/model.py`).
How it can be wrong: a command in the container that sets a hard CPU-time limit on the first process (prlimit) has the
kernel kill it, and an agent with a way out of its container can kill it from outside.  So it is `suspected`.
**Source:** pid_namespaces(7), "The namespace init process"; setrlimit(2), RLIMIT_CPU.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import Case, ContainerCase, evidence, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.doings import (
    LATE_DIE_NS,
    asked_for,
    in_time,
    running_at,
    struck_step,
    used_after,
    with_engine,
    with_step,
    works_inside,
)
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.sentences import fill
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import ContainerGone
from fairtrial.middleware.core.records import Blame, Grade
from fairtrial.middleware.steps.placed import Placed

_CAUSE: Final = CAUSES["unknown.outside"]
_SIGKILL: Final = 9


def find(ctx: Context) -> list[Event]:
    """One event per container that was killed so."""
    return [_event(container, *container.gone) for container in struck(ctx.case) if container.gone is not None]


def struck(case: Case) -> list[ContainerCase]:
    """Containers of which somebody outside ended the first process, nobody knows who."""
    found: list[ContainerCase] = []
    for container in case.containers.values():
        if container.gone is None or container.role != "main" or container.seen is None:
            continue
        placed, gone = container.gone
        at = placed.at_ns
        told = (gone.ended_by or "").startswith("runtime_kill") or gone.ended_by == "oom"
        told = told or asked_for(case, container, at) or any(g.container == container.id for g in case.kills)
        told = told or with_engine(case, at)
        alone = gone.init_signal == _SIGKILL and container.seen.own_pid_namespace is True
        used = running_at(container, at, LATE_DIE_NS) or used_after(case, at)
        # All commands up to the death, not only up to the step that it struck: a later one may have come before it.
        if alone and not told and used and in_time(case, placed) and works_inside(case, placed.step):
            found.append(container)
    return found


def _event(container: ContainerCase, placed: Placed, gone: ContainerGone) -> Event:
    step = struck_step(container, placed, LATE_DIE_NS)
    facts = {"container": name_of(container), "at": rfc3339(placed.at_ns)}
    if step is not None:
        facts["step"] = str(step)
    return Event(
        cause=_CAUSE.name,
        blame=Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=Standing.TERMINAL,
        ends_call=False,
        step=step,
        phase=placed.phase,
        at_ns=placed.at_ns,
        happened=yes([placed.id]),
        ended_or_distorted=yes([placed.id]),
        outcome_differs=unknown(),
        sentence=fill(with_step(_CAUSE.template, step), facts),
        advice=fill(_CAUSE.advice, facts),
        flips_if="turns to the model if a command of its own had a way to the host's processes",
        evidence=(evidence(placed, f"its first process was ended by signal {gone.init_signal}"),),
    )
