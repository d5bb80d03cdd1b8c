"""When the OOM kills were that a cgroup's counter told of late.

In: a trial's observations, in order.  Out: records of the kernel log tied to the container that their path names; and
for a counter's rise the moment of its kill, where the kernel log or the runtime has one for every kill that the counter
counted.  On a loaded machine a container's counter is first read when the container is a second old, and its kill then
lies some steps back; the kernel's own record does not.  Where the two differ in number (a log that was not read, a
cgroup that was made anew, a runtime that tells of a parent's limit) the counter stays where it was read: but for one
whose first reading in a step came, within a second, before any tool of that step can have begun.  The time between the
readings then reaches back into the step before, whose tool it struck.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import structs

from fairtrial.middleware.core.observations import (
    CgroupReading,
    ContainerEvent,
    KernelOomKill,
    Observation,
    OomKill,
    Value,
)

_ID: Final = re.compile(r"[0-9a-f]{64}")

_MOMENT_NS: Final = 1_000_000_000

Moment = tuple[int, int]
"""Wall time and its uncertainty, ns."""


def by_path(value: KernelOomKill, ours: Collection[str]) -> KernelOomKill:
    """The record with its container, if it bears none and the killed process's cgroup is below one of `ours`.

    The log is read at once; a container is found a moment later.
    """
    if value.container_id is not None:
        return value
    named = [one for one in _ID.findall(value.task_memcg or "") if one in ours]
    return structs.replace(value, container_id=named[0]) if named else value


def moments(
    own: Iterable[tuple[Observation, Value]], turns: Sequence[tuple[int, int | None]] = ()
) -> dict[str, Moment]:
    """Id of a counter's observation → when the last kill that it counts was.

    `turns`: of each step, ascending, when its first call began and when a tool of it can have begun, wall ns.
    """
    counted: dict[str, list[tuple[Observation, OomKill]]] = {}
    records: dict[str, list[Moment]] = {}
    events: dict[str, list[Moment]] = {}
    read: dict[str, int] = {}
    guessed: dict[str, dict[str, Moment]] = {}
    for observation, value in own:
        if isinstance(value, CgroupReading):
            if value.oom_kill is not None:
                read[value.container_id] = observation.wall_ns
            continue
        moment = observation.wall_ns, round(observation.uncertainty_s * 1e9)
        if isinstance(value, OomKill):
            counted.setdefault(value.container_id, []).append((observation, value))
            begun_ns = _waiting_since(observation.wall_ns, turns)
            if begun_ns is not None and read.get(value.container_id, begun_ns) < begun_ns:
                guessed.setdefault(value.container_id, {})[observation.id] = begun_ns - 1, 0
            read[value.container_id] = observation.wall_ns
        elif isinstance(value, KernelOomKill) and value.container_id is not None:
            records.setdefault(value.container_id, []).append(moment)
        elif isinstance(value, ContainerEvent) and value.action == "oom":
            events.setdefault(value.container_id, []).append(moment)
    found: dict[str, Moment] = {}
    for container, rises in counted.items():
        exact = [told for told in (records.get(container), events.get(container)) if told]
        pairs = next(filter(None, (_paired(rises, told) for told in exact)), {})
        found |= pairs if exact else guessed.get(container, {})
    return found


def _waiting_since(at_ns: int, turns: Sequence[tuple[int, int | None]]) -> int | None:
    """When the step began, a moment ago, of which no tool can have begun by then; None elsewhere, and of the first."""
    index = bisect_right(turns, at_ns, key=lambda turn: turn[0]) - 1
    if index < 1:
        return None
    begun_ns, acted_ns = turns[index]
    idle = acted_ns is None or at_ns < acted_ns
    return begun_ns if idle and at_ns - begun_ns <= _MOMENT_NS else None


def _paired(rises: Sequence[tuple[Observation, OomKill]], told: Sequence[Moment]) -> dict[str, Moment]:
    totals = [value.total for _, value in rises]
    if None in totals or max(total or 0 for total in totals) != len(told):
        return {}
    return {
        observation.id: told[value.total - 1]
        for observation, value in rises
        if value.total and told[value.total - 1][0] < observation.wall_ns
    }
