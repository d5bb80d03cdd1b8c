"""What was read of a container's kills for memory in one step: the limit, the peak, and the evidence that cites them.

In: a `KillGroup` and its container.  Out: bytes, None where nobody read them, and rows of evidence.
What this module does not do: say who was killed (`oom_victims.py`) or whose demand it was (`oom_demand.py`).
**Source:** kernel doc cgroup-v2 (memory.events, memory.peak).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, KillGroup, evidence
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.sentences import clean, size
from fairtrial.middleware.core.records import Evidence
from fairtrial.middleware.steps.placed import Placed

_LOWERED: Final = 0.95
"""Limits are rounded to pages."""


def placed_in(group: KillGroup) -> list[Placed]:
    """Every observation that tells of the kills."""
    return [*(p for p, _ in group.counted), *(p for p, _ in group.records), *group.told]


def limit_of(container: ContainerCase, group: KillGroup) -> int | None:
    """The limit that was in force, bytes; None where nobody read one."""
    told = [v.memory_limit for _, v in group.counted if v.memory_limit]
    told += [v.memory_limit for _, v in reversed(container.readings) if v.memory_limit][:1]
    if container.seen is not None and container.seen.memory_limit:
        told.append(container.seen.memory_limit)
    return told[0] if told else None


def lowered_from(container: ContainerCase, limit: int | None) -> int | None:
    """The limit that the container had when it was first seen, bytes, if the one in force was set lower since: a
    command that reaches the engine, or the cgroup's files, can do that.  Not of the command's own cgroup, which it may
    have left."""
    first = None if container.seen_first is None else container.seen_first.memory_limit
    if container.id == "own" or not first or limit is None:
        return None
    return first if limit < first * _LOWERED else None


def peak_of(ctx: Context, group: KillGroup) -> int | None:
    """The highest use that was read up to the kill, bytes; None where nobody read one."""
    told = [v.memory_peak for _, v in group.counted if v.memory_peak is not None]
    if told:
        return max(told)
    if group.step is None or group.step > len(ctx.case.trial.steps):
        return None
    uses = ctx.case.trial.steps[group.step - 1].containers
    return next((use.memory_peak for use in uses if use.id == group.container), None)


def hidden_by(container: ContainerCase, group: KillGroup) -> str:
    """The command that was struck and still ended with 0."""
    codes = [e.exit_code for e in container.execs.get(group.step, ()) if e.exit_code is not None]
    if codes and all(code == 0 for code in codes):
        return "Its command hid it and ended with exit code 0."
    return ""


def evidence_of(group: KillGroup, limit: int | None, peak: int | None) -> list[Evidence]:
    """The counter's rises and the kernel's records, three of each at most, else the runtime's word."""
    found = [
        evidence(
            p,
            f"the kill counter of its own cgroup rose by {v.delta} (limit {size(limit) or 'unknown'}, "
            f"peak {size(peak) or 'unknown'})",
        )
        for p, v in group.counted[:3]
    ]
    found += [
        evidence(p, f"the kernel names the victim: {clean(v.victim.comm or 'unknown', 20)}, pid {v.victim.pid}")
        for p, v in group.records[:3]
    ]
    if not found:
        found = [evidence(p, "the container runtime reported an OOM kill") for p in group.told[:1]]
    return found
