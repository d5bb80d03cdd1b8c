"""A command was slow because the CPU or the disk was not to be had, and a limit of time then ended it.

Recognises, in the last tool step of a trial whose command a limit of time cut short: `container.cpu_throttled` (time at
the container's CPU quota), `container.disk_slow` (its processes waited for the disk), `node.contention` (they waited
for a core that others used, or that the hypervisor took) and `node.pressure` (they stood still for memory below their
own limit, while the node did as well).  The time lost is told when it is more than `slow_share` of the command's time;
the largest loss is told, the others are not added to it.  Nobody is blamed: whether the command would have ended in
time without the loss is known only from a rerun or from how long other trials of this task need.  Throttling in steps
that ended by themselves is present.

Deliberately does not: charge throttling to the infrastructure because there was some (an endless loop at its quota
loses as much as an honest build); take `cpu.stat`'s sum over cores for time (it is cut to what PSI and the clock say);
take a container that waits for its own processes for a neighbour's doing.

How it can be wrong: a loss that came before the part of the command that mattered is counted.  An exit code 124 that
the command made up turns a verdict on the model into an open one, never into one on the infrastructure.

**Source:** kernel scheduler/sched-bwc.rst, accounting/psi.rst, filesystems/proc.rst (stat); taxonomy.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.sentences import fill, seconds
from fairtrial.middleware.attribution.tool_steps import CutShort, cut_short, work_window
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import HostCounters
from fairtrial.middleware.core.records import Blame, ContainerUse, Grade, PhaseName
from fairtrial.middleware.steps.placed import Placed

_WORTH_TELLING_S: Final = 1.0
_EDGE_NS: Final = 2_000_000_000
"""A reading of the node this long after a moment at most stands for it."""
_BUSY: Final = 0.5
"""Neighbours that used less than this part of all cores did not keep a command from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """Time that a container's processes did not have."""

    cause: str
    lost_s: float
    claim: str
    ids: tuple[str, ...] = ()


def find(ctx: Context) -> list[Event]:
    """At most one event for the step that was cut short, and what was slow and ended all the same."""
    cut = cut_short(ctx.case)
    found: list[Event] = []
    if cut is not None and cut.step.phase is PhaseName.AGENT:
        event = _largest(ctx, cut)
        if event is not None:
            found.append(event)
    found.extend(_throttled_elsewhere(ctx, cut.step.index if cut is not None else None))
    return found


def _largest(ctx: Context, cut: CutShort) -> Event | None:
    losses: list[tuple[float, str, _Loss, ContainerCase]] = []
    for use in cut.step.containers:
        container = ctx.case.containers.get(use.id)
        if container is None or use.role == "verifier":
            continue
        losses.extend(
            (-loss.lost_s, loss.cause, loss, container)
            for loss in _losses(ctx, cut, use)
            if loss.lost_s >= ctx.thresholds.slow_share * cut.tool_s
        )
    if not losses:
        return None
    _, _, loss, container = min(losses, key=lambda row: row[:2])
    cause = CAUSES[loss.cause]
    places = _readings(container, cut.step.index)
    ids = [*(p.id for p in places), *loss.ids, *cut.ids]
    facts = {
        "container": name_of(container),
        "step": str(cut.step.index),
        "lost": seconds(loss.lost_s) or "",
        "length": seconds(cut.tool_s) or "",
    }
    return Event(
        cause=cause.name,
        blame=Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=Standing.TERMINAL,
        ends_call=False,
        step=cut.step.index,
        phase=cut.step.phase,
        at_ns=cut.since_ns,
        happened=yes(ids),
        ended_or_distorted=yes(ids),
        outcome_differs=unknown(ids),
        sentence=f"{fill(cause.template, facts)} Whether it would have ended in time without that is not known.",
        advice=cause.advice,
        flips_if="turns to infra, proved, if the same command ends in time without the loss; to the model if not",
        undecided="",
        evidence=tuple(evidence(p, loss.claim) for p in places[-1:]),
    )


def _losses(ctx: Context, cut: CutShort, use: ContainerUse) -> Iterator[_Loss]:
    """What one container lost in the step, each cut to the command's own time."""
    throttled_s = _throttled_s(use, cut.tool_s)
    if use.role != "own":
        yield _Loss(
            cause="container.cpu_throttled",
            lost_s=throttled_s,
            claim=f"it stood still at its CPU limit for {seconds(throttled_s)} in this step",
        )
        disk_s = min(use.psi_io or 0.0, cut.tool_s)
        yield _Loss(
            cause="container.disk_slow",
            lost_s=disk_s,
            claim=f"its processes waited for the disk for {seconds(disk_s)} in this step",
        )
        if not use.memory_high_hits and use.memory_max_hits == 0:
            pressed_s = min(use.psi_memory or 0.0, cut.tool_s, _host_delta(ctx, cut, "psi_memory")[0] or 0.0)
            yield _Loss(
                cause="node.pressure",
                lost_s=pressed_s,
                claim=f"its processes stood still for memory for {seconds(pressed_s)}, and its own limit was not hit",
            )
    yield from _contention(ctx, cut, use, throttled_s)


def _contention(ctx: Context, cut: CutShort, use: ContainerUse, throttled_s: float) -> Iterator[_Loss]:
    cores = ctx.case.trial.environment.cores
    if not cores:
        return
    room_s = cores * cut.tool_s
    stolen_s, ids = _host_delta(ctx, cut, "steal_s")
    if stolen_s:
        lost_s = min(stolen_s / cores, cut.tool_s)
        yield _Loss(
            cause="node.contention",
            lost_s=lost_s,
            claim=f"the hypervisor took {seconds(stolen_s)} of its cores",
            ids=ids,
        )
    busy_s, ids = _host_delta(ctx, cut, "cpu_busy_s")
    if busy_s is None or use.psi_cpu is None:
        return
    ours_s = sum(other.cpu_used or 0.0 for other in cut.step.containers)
    if busy_s - ours_s < _BUSY * room_s:
        return
    waited_s = max(0.0, min(use.psi_cpu, cut.tool_s) - throttled_s)
    yield _Loss(
        cause="node.contention",
        lost_s=waited_s,
        claim=f"its processes waited for a core for {seconds(waited_s)}, while others used {seconds(busy_s - ours_s)}",
        ids=ids,
    )


def _throttled_s(use: ContainerUse, tool_s: float) -> float:
    """Time at the quota: the kernel sums it over cores, so no more than PSI saw and than the command ran."""
    known = [s for s in (use.cpu_throttled, use.psi_cpu, tool_s) if s is not None]
    return min(known) if use.cpu_throttled is not None else 0.0


def _host_delta(ctx: Context, cut: CutShort, name: str) -> tuple[float | None, tuple[str, ...]]:
    """How far a counter of the node moved while the command ran, with the readings; None without one near each end."""
    known: list[tuple[Placed, float]] = []
    for placed, value in ctx.case.host:
        number = _number(value, name)
        if number is not None:
            known.append((placed, number))
    before = [(p, n) for p, n in known if p.at_ns <= cut.since_ns + _EDGE_NS]
    after = [(p, n) for p, n in known if p.at_ns > cut.since_ns + _EDGE_NS and p.at_ns <= cut.until_ns + _EDGE_NS]
    if not before or not after or before[-1][0].at_ns < cut.since_ns - _EDGE_NS:
        return None, ()
    return after[-1][1] - before[-1][1], (before[-1][0].id, after[-1][0].id)


def _number(value: HostCounters, name: str) -> float | None:
    found = {"steal_s": value.steal_s, "cpu_busy_s": value.cpu_busy_s, "psi_memory": value.psi_memory}
    return found[name]


def _readings(container: ContainerCase, step: int) -> list[Placed]:
    inside = [p for p, _ in container.readings if p.step == step]
    return (inside or [p for p, _ in container.readings])[-2:]


def _throttled_elsewhere(ctx: Context, cut_step: int | None) -> Iterator[Event]:
    """Steps that lost much of their time at the CPU limit and ended by themselves."""
    cause = CAUSES["container.cpu_throttled"]
    for step in ctx.case.trial.steps:
        window = work_window(ctx.case, step.index)
        if step.index == cut_step or not step.tools or step.phase is not PhaseName.AGENT or window is None:
            continue
        tool_s = (window[1] - window[0]) / 1e9
        for use in step.containers:
            container = ctx.case.containers.get(use.id)
            lost_s = _throttled_s(use, tool_s)
            if container is None or use.role in {"own", "verifier"} or lost_s < _WORTH_TELLING_S:
                continue
            if lost_s < ctx.thresholds.slow_share * tool_s:
                continue
            places = _readings(container, step.index)
            ids = [p.id for p in places]
            facts = {
                "container": name_of(container),
                "step": str(step.index),
                "lost": seconds(lost_s) or "",
                "length": seconds(tool_s) or "",
            }
            yield Event(
                cause=cause.name,
                blame=Blame.INFRA,
                best=Grade.SUSPECTED,
                standing=Standing.RECOVERED,
                ends_call=False,
                step=step.index,
                phase=step.phase,
                at_ns=window[0],
                happened=yes(ids),
                ended_or_distorted=no(ids),
                outcome_differs=no(),
                sentence=fill(cause.template, facts),
                advice=cause.advice,
                why_present="no limit of time ended the step",
                evidence=tuple(
                    evidence(p, f"it stood still at its CPU limit for {seconds(lost_s)} in this step")
                    for p in places[-1:]
                ),
            )
