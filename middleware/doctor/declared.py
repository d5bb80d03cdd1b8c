"""What a file declares for one task, service, container or job, and what is wrong with that for a fair trial.

In: floor, ceiling, swap, limits in time, as a kind of file read them.  Out: `Declared` with its flags.  A floor is
what is guaranteed, a ceiling is where the kernel kills (memory) or throttles (CPU).  No file is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fairtrial.middleware.report.words import seconds, size


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One thing to know before a score is believed, and what to write instead."""

    text: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Sizes in bytes, CPU in cores, limits in seconds by name; None is *not declared*.

    `swap`: what may be used beyond `memory_ceiling`; -1 is without limit.  `limited`: whether this kind of file can
    declare memory at all (a job of a CI service takes its machine as it is).  `flags`: of the kind's own, before the
    ones that all kinds share.
    """

    name: str
    memory_floor: int | None = None
    memory_ceiling: int | None = None
    swap: int | None = None
    cpu_floor: float | None = None
    cpu_ceiling: float | None = None
    times: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    limited: bool = True
    raises: str = "the ceiling"
    """How this kind of file spells a higher ceiling."""
    flags: tuple[Flag, ...] = ()


def headroom(floor: float | None, ceiling: float | None) -> float | None:
    """Ceiling ÷ floor; None where one of them is not declared."""
    return None if not floor or ceiling is None else ceiling / floor


def all_flags(declared: Declared) -> Iterator[Flag]:
    """The kind's own, then those that every kind can have."""
    yield from declared.flags
    if declared.limited:
        yield from _memory_flags(declared)
        yield from _cpu_flags(declared)
    for name, limit in declared.times.items():
        if limit is None:
            yield Flag(text=f"no time limit ({name}): a silent API or a hung tool ends it only when somebody notices")


def _memory_flags(declared: Declared) -> Iterator[Flag]:
    floor, ceiling = declared.memory_floor, declared.memory_ceiling
    if ceiling is None:
        text = "no memory limit: the ceiling is what the node has left, another one on each machine"
        yield Flag(text=text, remedy=f"set {declared.raises} to the floor times the headroom that you publish")
    elif floor is not None and ceiling <= floor:
        text = f"memory: floor = ceiling = {size(ceiling)}, no headroom: any spike above the guaranteed is a kill"
        yield Flag(text=text, remedy=f"set {declared.raises} to {size(floor * 3)} (3 x), or publish that it is 1 x")
    if ceiling is not None and declared.swap == -1:
        yield Flag(text="swap without limit: above the ceiling it gets slow instead of being killed")
    elif ceiling is not None and declared.swap:
        text = (
            f"swap: up to {size(declared.swap)} more where the host has swap, so the ceiling is {size(ceiling)} on one "
        )
        text += f"host and {size(ceiling + declared.swap)}, slowly, on another"
        yield Flag(text=text, remedy="set memory and memory-plus-swap to the same size")


def _cpu_flags(declared: Declared) -> Iterator[Flag]:
    floor, ceiling = declared.cpu_floor, declared.cpu_ceiling
    if ceiling is None:
        yield Flag(text="no CPU limit: how fast it is depends on who else runs on the node")
    elif floor is not None and ceiling <= floor:
        yield Flag(text=f"CPU: floor = ceiling = {ceiling:g}: bursts are throttled against the time limits")


def summary(declared: Declared) -> str:
    """Floor, ceiling, headroom and limits in time, in one line."""
    parts: list[str] = []
    if declared.limited:
        parts.append(_range("memory", declared.memory_floor, declared.memory_ceiling, _bytes))
        parts.append(_range("CPU", declared.cpu_floor, declared.cpu_ceiling, _cores))
    parts += [f"{name} {seconds(limit)}" for name, limit in declared.times.items() if limit is not None]
    return "; ".join(parts) if parts else "nothing is declared"


def _range(what: str, floor: float | None, ceiling: float | None, shown: Callable[[float], str]) -> str:
    low = "not guaranteed" if floor is None else shown(floor)
    high = "no limit" if ceiling is None else shown(ceiling)
    factor = headroom(floor, ceiling)
    times = "" if factor is None else f", headroom {factor:.3g} x"
    return f"{what}: floor {low}, ceiling {high}{times}"


def _bytes(value: float) -> str:
    return size(round(value))


def _cores(value: float) -> str:
    return f"{value:g}"
