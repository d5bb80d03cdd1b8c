"""A box that stays full: what an earlier step had written to tmpfs or locked is still charged when the next begins.

In: the readings of one container, in the order of steps.  Out: whether it was full when a step's tools began, and since
which step; the event of the step that wrote, with the steps that it left without memory.
What this module does not do: say that a kill happened (`container_oom.py`).
**Source:** kernel doc cgroup-v2 (memory.stat, shmem); reference page container.md section 2.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, KillGroup, evidence, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event
from fairtrial.middleware.attribution.rules.oom_readings import placed_in
from fairtrial.middleware.attribution.sentences import size, steps
from fairtrial.middleware.steps.placed import Placed

OPEN: Final = "Whose demand it was is open."
"""The last words of a sentence that leaves it so."""

_CITED: Final = 5
"""Spoiled steps of which the evidence is cited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """The first moment at which undying pages filled a container to the brim."""

    writer: int | None
    shmem: int
    seen: Placed


class Levels:
    """What stayed charged in one container over time: shmem at readings and kills, in the order of steps."""

    def __init__(self, ctx: Context, container: ContainerCase, limit: int | None) -> None:
        samples: list[tuple[int, bool, int, int, Placed]] = []
        for placed, reading in container.readings:
            if reading.memory_shmem is not None:
                late = reading.edge not in {"baseline", "call_started", "call_ended"}
                samples.append((placed.step or 0, late, placed.at_ns, reading.memory_shmem, placed))
        for group in ctx.case.kills:
            if group.container == container.id:
                samples.extend(
                    (group.step or 0, True, p.at_ns, v.memory_shmem, p)
                    for p, v in group.counted
                    if v.memory_shmem is not None
                )
        self._samples = sorted(samples, key=lambda s: s[:4])
        brim = None if limit is None else limit * ctx.thresholds.box_full_share
        self._full_since: list[int | None] = []
        """For each sample the first of the unbroken row of full ones that it ends, None when it is not full."""
        for n, sample in enumerate(self._samples):
            if brim is None or sample[3] < brim:
                self._full_since.append(None)
            else:
                self._full_since.append(n if n == 0 or self._full_since[-1] is None else self._full_since[-1])

    def full_at_start(self, step: int | None) -> Fill | None:
        """Whether undying pages already filled the box when the step's tools began, and which step had written them."""
        if step is None:
            return None
        n = bisect_left(self._samples, (step, True), key=lambda s: s[:2]) - 1
        first = self._full_since[n] if n >= 0 else None
        if first is None:
            return None
        since, now = self._samples[first], self._samples[n]
        writer = since[0] if since[1] else since[0] - 1
        return Fill(writer=writer if writer > 0 else None, shmem=now[3], seen=now[4])


def with_spoiled(event: Event, later: list[tuple[KillGroup, Fill]]) -> Event:
    """The writer's event with the steps that it left without memory; each is counted, the first few are cited."""
    numbers = [group.step for group, _ in later if group.step is not None]
    said = f"What it had written stayed charged, so {steps(numbers)} ran in a box without memory, their commands lost."
    if event.sentence.endswith(OPEN):
        text = f"{event.sentence.removesuffix(OPEN)}{said} {OPEN}"
    else:
        text = f"{event.sentence} {said}"
    cited = [
        evidence(p, f"killed again: {size(full.shmem)} written before stayed charged")
        for group, full in later[:_CITED]
        for p in placed_in(group)[:1]
    ]
    return replace(
        event,
        sentence=text,
        happened=yes([*event.happened.by, *(e.id for e in cited)]),
        evidence=(*event.evidence, *cited),
    )
