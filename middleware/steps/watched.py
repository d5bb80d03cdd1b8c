"""Coverage: what was watched during a trial, by family of causes, and what was not.

In: the placed observations and the folded calls.  Out: the trial's `Coverage`.  What this module does not do: decide
what a gap costs a verdict (`attribution/coverage.py`).

A family is *full* when one source that can see it was on from the first model call (or the first observation) to the
end without a gap; *partial* when a source was on for a part; *none* else.  `model_api` also needs a call that came
through the door and could be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import CoverageChanged, DoorState, GapSeen
from fairtrial.middleware.core.records import FAMILIES, Coverage, FamilyCoverage, Gap
from fairtrial.middleware.steps.attempts import FoldedCall
from fairtrial.middleware.steps.placed import Placed

_RANK: Final = {"none": 0, "partial": 1, "full": 2}

_TYPES: Final = frozenset({CoverageChanged, DoorState, GapSeen})

END_GRACE_NS: Final = 1_000_000
"""A source that goes off this shortly before the command's end was there to the end (clocks are read apart)."""


@dataclass(slots=True)
class _Source:
    families: set[str] = field(default_factory=set[str])
    state: str = "on"
    on_since_ns: int | None = None
    trouble: str | None = None
    """Why this source did not see everything, the first reason."""


def coverage(placed: Sequence[Placed], calls: Sequence[FoldedCall], ended_ns: int | None) -> Coverage:
    """Sum up what was watched; `ended_ns` is the command's end, wall ns."""
    sources: dict[str, _Source] = {}
    gaps: list[Gap] = []
    dropped: int | None = None
    for one in placed:
        value = one.value
        if type(value) not in _TYPES:
            continue
        if isinstance(value, CoverageChanged):
            _change(sources.setdefault(value.source, _Source()), value, one.at_ns, ended_ns)
        elif isinstance(value, DoorState):
            name = _door_name(value)
            source = sources.setdefault(name, _Source())
            if value.door == "model":
                source.families.add("model_api")
            if value.ok:
                source.on_since_ns = source.on_since_ns or one.at_ns
            else:
                source.state = source.trouble = f"lost: {value.why or 'not bound'}"
        elif isinstance(value, GapSeen):
            gaps.append(
                Gap(
                    source=value.source,
                    since=None if value.since_ns is None else rfc3339(value.since_ns),
                    until=None if value.until_ns is None else rfc3339(value.until_ns),
                    why=value.why,
                )
            )
            if value.lost_records is not None:
                dropped = (dropped or 0) + value.lost_records
            _gap(sources, value)
    if dropped is None and any(name.startswith("door.") for name in sources):
        dropped = 0
    first_ns = calls[0].started_wall_ns if calls else None
    return Coverage(
        doors={n.removeprefix("door."): s.state for n, s in sorted(sources.items()) if n.startswith("door.")},
        collectors={
            n.removeprefix("collector."): s.state for n, s in sorted(sources.items()) if not n.startswith("door.")
        },
        families={family: _family(family, sources, calls, first_ns) for family in FAMILIES},
        gaps=gaps,
        dropped=dropped,
    )


def _door_name(value: DoorState) -> str:
    return f"door.{value.door}.{value.name}" if value.name else f"door.{value.door}"


def _change(source: _Source, value: CoverageChanged, at_ns: int, ended_ns: int | None) -> None:
    source.families.update(value.families)
    if value.state == "on":
        if source.on_since_ns is None:
            source.on_since_ns = at_ns
        source.state = "on"
        return
    if value.state == "off" and ended_ns is not None and at_ns >= ended_ns - END_GRACE_NS:
        # Put away after the command's end: it saw all there was.
        return
    if value.state == "off" and value.container_id is not None and value.why is None:
        # One container is gone; the source itself goes on.
        return
    text = f"{value.state}: {value.why}" if value.why else value.state
    source.trouble = source.trouble or text
    if value.container_id is None:
        source.state = text


def _gap(sources: dict[str, _Source], value: GapSeen) -> None:
    why = f"gap: {value.why}" if value.why else "gap"
    source = sources.get(value.source)
    if source is not None:
        source.trouble = source.trouble or why
    for other in sources.values():
        if other.families.intersection(value.families) and (value.source in {"observer", "feed"} or source is None):
            other.trouble = other.trouble or why


def _family(
    family: str, sources: dict[str, _Source], calls: Sequence[FoldedCall], first_ns: int | None
) -> FamilyCoverage:
    best = FamilyCoverage(level="none", why="no source watched")
    for name, source in sorted(sources.items()):
        if family not in source.families:
            continue
        found = _level(name, source, first_ns)
        if _RANK[found.level] > _RANK[best.level] or (best.why == "no source watched" and found.level == "none"):
            best = found
    if family == "model_api" and best.level != "none":
        return _calls_seen(best, calls)
    return best


def _level(name: str, source: _Source, first_ns: int | None) -> FamilyCoverage:
    if source.on_since_ns is None:
        return FamilyCoverage(level="none", why=f"{name} {source.trouble or 'was never on'}")
    if source.trouble is not None:
        return FamilyCoverage(level="partial", why=f"{name} {source.trouble}")
    if first_ns is not None and source.on_since_ns > first_ns:
        return FamilyCoverage(level="partial", why=f"{name} came on after the first call")
    return FamilyCoverage(level="full")


def _calls_seen(best: FamilyCoverage, calls: Iterable[FoldedCall]) -> FamilyCoverage:
    attempts = [attempt for call in calls for attempt in call.attempts]
    if not any(a.request.operation != "hello" for a in attempts):
        return FamilyCoverage(level="none", why="no call came through the door")
    # A HEAD or a model list tells nothing that a verdict needs; a request in an unknown dialect may be the agent's.
    unread = sum(1 for a in attempts if a.facts.parse != "full" and a.request.operation in {"chat", "other"})
    if unread and best.level == "full":
        return FamilyCoverage(level="partial", why=f"{unread} of {len(attempts)} attempts could not be read whole")
    return best
