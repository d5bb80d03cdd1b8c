"""Memory was refused, or not to be had in time, without a kill.

Recognises: `container.memory_denied`, a step in which the cgroup's count of exhausted limits (`oom`, cgroup v2) rose
further than its kills, or in which processes waited at a limit whose killer is switched off (v1); and
`container.memory_stall`, a command that a limit of time cut short while its container stood still for memory for more
than `slow_share` of that time, at its own limit (`memory.high` or the hard one was hit in the step).

Deliberately does not: take exit code 134, "MemoryError", "Killed" or "heap out of memory" for a refusal (a command can
say that by itself, and `ulimit -v` moves no counter); take hits of the hard limit alone for trouble: writing a large
file hits it thousands of times and costs nothing; blame anybody for a stall, because what the command would have
needed without it is not measured.

How it can be wrong: a refusal that the command did not care for, in the last tool step of a failed trial, is taken for
what ended it.  The cost is a `suspected` and one replay.  Whose demand it was stays as open as after a kill.

**Source:** kernel cgroup-v2.rst (memory.events, memory.high), cgroup-v1/memory.rst section 10, accounting/psi.rst.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairtrial.middleware.attribution.case import ContainerCase, evidence, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.rules.limit import limit_event
from fairtrial.middleware.attribution.sentences import fill, seconds, size
from fairtrial.middleware.attribution.tool_steps import cut_short, step_of_work
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import CgroupReading
from fairtrial.middleware.core.records import Blame, ContainerUse, Grade, PhaseName, Step
from fairtrial.middleware.steps.placed import Placed

Read = tuple[Placed, CgroupReading]


def find(ctx: Context) -> list[Event]:
    """Refusals by container and step, and at most one stall."""
    found: list[Event] = []
    read = {each.id: _by_step(ctx, each) for each in ctx.case.containers.values()}
    for step in ctx.case.trial.steps:
        for use in step.containers:
            container = ctx.case.containers.get(use.id)
            if container is None or step.phase is not PhaseName.AGENT or container.role in {"own", "verifier"}:
                continue
            places = _refused(container, read[container.id].get(step.index, []), use)
            if places and not ctx.case.killed_in(container.id, step.index):
                found.append(_denied(ctx, container, step, use, places))
    return [*found, *_stalled(ctx)]


def _by_step(ctx: Context, container: ContainerCase) -> dict[int | None, list[Read]]:
    """A container's readings by the step whose tools they tell of."""
    found: dict[int | None, list[Read]] = {}
    for placed, value in container.readings:
        found.setdefault(step_of_work(ctx.case, placed, value.edge), []).append((placed, value))
    return found


def _refused(container: ContainerCase, inside: Sequence[Read], use: ContainerUse) -> list[Placed]:
    """Readings that show it; `inside`: those of the step."""
    waiting = [p for p, v in inside if v.memory_under_oom]
    if waiting:
        return waiting
    if container.seen is not None and container.seen.oom_kill_disabled and use.memory_max_hits:
        return [p for p, v in inside if v.memory_max_hits] or [p for p, v in container.readings if v.memory_max_hits][
            :1
        ]
    if (use.memory_ooms or 0) > (use.oom_kills or 0):
        return [p for p, v in inside if v.oom] or [p for p, v in container.readings if v.oom][:1]
    return []


def _denied(ctx: Context, container: ContainerCase, step: Step, use: ContainerUse, places: list[Placed]) -> Event:
    cause = CAUSES["container.memory_denied"]
    ids = [p.id for p in places[:3]]
    limit = size(use.memory_limit)
    reached = f"its limit of {limit or 'unknown size'} was reached without a kill"
    facts = {"container": name_of(container), "step": str(step.index), "limit": limit or ""}
    k = ctx.thresholds.headroom_k
    more = None if use.memory_limit is None else size(round(use.memory_limit * k))
    return limit_event(
        ctx,
        container,
        step,
        cause.name,
        (Blame.INFRA, False),
        at_ns=places[0].at_ns,
        ids=ids,
        sentence=f"{fill(cause.template, facts)} Whose demand it was is open.",
        flips_if=f"turns to infra, proved, if the command, run again, passes with {more or 'a higher ceiling'}; to the "
        "model if it is refused there as well",
        evidence=[evidence(p, reached) for p in places[:2]],
    )


def _stalled(ctx: Context) -> list[Event]:
    cut = cut_short(ctx.case)
    if cut is None or cut.step.phase is not PhaseName.AGENT:
        return []
    for use in cut.step.containers:
        container = ctx.case.containers.get(use.id)
        stalled_s = min(use.psi_memory or 0.0, cut.tool_s)
        hit = bool(use.memory_high_hits or use.memory_max_hits)
        if container is None or use.role in {"own", "verifier"} or not hit:
            continue
        if stalled_s < ctx.thresholds.slow_share * cut.tool_s:
            continue
        places = [p for p, v in container.readings if v.psi_memory is not None and p.step == cut.step.index][-2:]
        if not places:
            continue
        cause = CAUSES["container.memory_stall"]
        ids = [*(p.id for p in places), *cut.ids]
        facts = {
            "container": name_of(container),
            "step": str(cut.step.index),
            "lost": seconds(stalled_s) or "",
            "length": seconds(cut.tool_s) or "",
        }
        return [
            Event(
                cause=cause.name,
                blame=Blame.INFRA,
                best=Grade.SUSPECTED,
                standing=Standing.TERMINAL,
                ends_call=False,
                step=cut.step.index,
                phase=cut.step.phase,
                at_ns=places[0].at_ns,
                happened=yes(ids),
                ended_or_distorted=yes(ids),
                outcome_differs=unknown(ids),
                sentence=fill(cause.template, facts),
                advice=cause.advice,
                flips_if="turns to infra, proved, if the command, run again with a higher ceiling, ends in time; to "
                "the model if it does not",
                undecided="",
                limit_hit=True,
                evidence=tuple(
                    evidence(p, f"its processes stood still for memory for {seconds(stalled_s)} in this step")
                    for p in places[-1:]
                ),
            )
        ]
    return []
