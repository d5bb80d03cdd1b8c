"""Coverage: what was watched during a trial, by family of causes, and what was not.

In: the placed observations and the folded calls.  Out: the trial's `Coverage`.  What this module does not do: decide
what a gap costs a verdict (`attribution/coverage.py`).

A family is *full* when one source that can see it was on from the first model call (or the first observation) to the
end without a gap, and a rule judges it; *partial* when a source was on for a part, when any source of it has a gap
(what it would have told of, a container above all, the others may not have watched), or when no rule judges it yet;
*none* else.  `model_api` also needs a call that came through the door and could be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import CoverageChanged, DoorState, GapSeen
from fairtrial.middleware.core.records import FAMILIES, Coverage, FamilyCoverage, Gap
from fairtrial.middleware.steps.attempts import FoldedCall
from fairtrial.middleware.steps.placed import Placed

_RANK: Final = {"none": 0, "partial": 1, "full": 2}

_TYPES: Final = frozenset({CoverageChanged, DoorState, GapSeen})

RECORDED_ONLY: Final = "recorded, not judged yet"
"""Why a family is not full although its counters were: no cause of it is built, so a fault of it would not be named."""

_PARTIAL: Final = "partial: "
"""How a source begins what it says of its own limits; a reader has the level beside it, and needs the word once."""

OPAQUE: Final = "--via connect: connections are measured, calls are not read"

_JUDGED: Final = frozenset(cause.family for cause in CAUSES.values() if cause.built)

END_GRACE_NS: Final = 1_000_000
"""A source that goes off this shortly before the command's end was there to the end (clocks are read apart)."""


@dataclass(slots=True)
class _Watch:
    """One source's view of one family, of one container or (None) of all."""

    on_since_ns: int | None = None
    trouble: str | None = None
    """Why it did not see everything, the first reason."""
    limit: str | None = None
    """What it never sees, by its own word."""


@dataclass(slots=True)
class _Source:
    state: str | None = None
    watches: dict[tuple[str, str | None], _Watch] = field(default_factory=dict[tuple[str, str | None], _Watch])
    """By family and container."""

    def watch(self, family: str, container: str | None = None) -> _Watch:
        return self.watches.setdefault((family, container), _Watch())

    def of(self, family: str) -> list[tuple[str | None, _Watch]]:
        return [(container, watch) for (name, container), watch in self.watches.items() if name == family]


def coverage(placed: Sequence[Placed], calls: Sequence[FoldedCall], ended_ns: int | None) -> Coverage:
    """Sum up what was watched; `ended_ns` is the command's end, wall ns."""
    sources: dict[str, _Source] = {}
    missed: str | None = None
    holes: dict[str, str] = {}
    gaps: list[Gap] = []
    dropped: int | None = None
    for one in placed:
        value = one.value
        if type(value) not in _TYPES:
            continue
        if isinstance(value, CoverageChanged):
            if value.containers_missed:
                missed = missed or _said_once(value.why) or "a container that may be the trial's was not watched"
            _change(sources.setdefault(value.source, _Source()), value, one.at_ns, ended_ns)
        elif isinstance(value, DoorState):
            source = sources.setdefault(_door_name(value), _Source())
            watch = source.watch("model_api" if value.door == "model" else value.door)
            if value.ok:
                source.state = source.state or "on"
                watch.on_since_ns = watch.on_since_ns or one.at_ns
            else:
                source.state = watch.trouble = f"lost: {value.why or 'not bound'}"
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
            if ended_ns is None or value.since_ns is None or value.since_ns < ended_ns:
                for family in value.families:
                    holes.setdefault(family, f"{value.source} {_gap_why(value)}")
    if dropped is None and any(name.startswith("door.") for name in sources):
        dropped = 0
    first_ns = calls[0].started_wall_ns if calls else None
    opaque = any(name.startswith("door.egress") for name in sources)
    return Coverage(
        doors={n.removeprefix("door."): s.state or "off" for n, s in sorted(sources.items()) if n.startswith("door.")},
        collectors={
            n.removeprefix("collector."): s.state or "off"
            for n, s in sorted(sources.items())
            if not n.startswith("door.")
        },
        families={
            family: FamilyCoverage(level="none", why=OPAQUE)
            if opaque and family == "model_api"
            else _holed(_missing(family, _family(family, sources, calls, first_ns), missed), holes.get(family))
            for family in FAMILIES
        },
        gaps=gaps,
        dropped=dropped,
    )


def _door_name(value: DoorState) -> str:
    return f"door.{value.door}.{value.name}" if value.name else f"door.{value.door}"


def _change(source: _Source, value: CoverageChanged, at_ns: int, ended_ns: int | None) -> None:
    container = value.container_id
    if value.state == "on":
        for family in value.families:
            watch = source.watch(family, container)
            watch.on_since_ns = watch.on_since_ns if watch.on_since_ns is not None else at_ns
            if value.why is not None:
                # On, but with a limit that the source itself names.
                watch.limit = watch.limit or _said_once(value.why)
        source.state = "on" if container is None or source.state is None else source.state
        return
    if value.state == "off" and ended_ns is not None and at_ns >= ended_ns - END_GRACE_NS:
        # Put away after the command's end: it saw all there was.
        return
    if value.state == "off" and container is not None and value.why is None:
        # One container is gone; the source itself goes on.
        return
    text = f"{value.state}: {value.why}" if value.why else value.state
    for family in value.families:
        watch = source.watch(family, container)
        watch.trouble = watch.trouble or text
    if container is None:
        source.state = text


def _gap(sources: dict[str, _Source], value: GapSeen) -> None:
    """A gap of a source lies on its own watches of the families; one of the observer or the feed on everybody's."""
    why = _gap_why(value)
    named = sources.get(value.source)
    for source in [named] if named is not None and value.source != "observer" else sources.values():
        for (family, _), watch in source.watches.items():
            if family in value.families or (named is not None and not value.families):
                watch.trouble = watch.trouble or why


def _gap_why(value: GapSeen) -> str:
    return f"gap: {value.why}" if value.why else "gap"


def _holed(found: FamilyCoverage, hole: str | None) -> FamilyCoverage:
    return found if hole is None or found.level != "full" else FamilyCoverage(level="partial", why=hole)


def _family(
    family: str, sources: dict[str, _Source], calls: Sequence[FoldedCall], first_ns: int | None
) -> FamilyCoverage:
    best = FamilyCoverage(level="none", why="no source watched")
    for name, source in sorted(sources.items()):
        watches = source.of(family)
        if not watches:
            continue
        found = _level(name, watches, first_ns)
        if _RANK[found.level] > _RANK[best.level] or (best.why == "no source watched" and found.level == "none"):
            best = found
    if family == "model_api" and best.level != "none":
        return _calls_seen(best, calls)
    if best.level == "full" and family not in _JUDGED:
        return FamilyCoverage(level="partial", why=RECORDED_ONLY)
    return best


def _missing(family: str, found: FamilyCoverage, missed: str | None) -> FamilyCoverage:
    """A container that may be the trial's and that nobody watches may hide a kill."""
    if missed is None or family not in {"memory", "node"} or found.level != "full":
        return found
    return FamilyCoverage(level="partial", why=missed)


def _level(name: str, watches: list[tuple[str | None, _Watch]], first_ns: int | None) -> FamilyCoverage:
    """How well one source watched a family: as well as its worst watched container."""
    whys = [f"{name}{why}" for container, watch in watches if (why := _flaw(container, watch, first_ns)) is not None]
    if not any(watch.on_since_ns is not None for _, watch in watches):
        return FamilyCoverage(level="none", why=whys[0])
    return FamilyCoverage(level="partial", why=whys[0]) if whys else FamilyCoverage(level="full")


def _flaw(container: str | None, watch: _Watch, first_ns: int | None) -> str | None:
    """What follows the source's name."""
    if watch.trouble is not None:
        return f" {watch.trouble}"
    if watch.on_since_ns is None:
        return " was never on"
    if watch.limit is not None:
        return f": {watch.limit}"
    # A container may be born at any time; what watches everything must have been there from the first call.
    if container is None and first_ns is not None and watch.on_since_ns > first_ns:
        return " came on after the first call"
    return None


def _said_once(why: str | None) -> str | None:
    return why if why is None else why.removeprefix(_PARTIAL)


def _calls_seen(best: FamilyCoverage, calls: Iterable[FoldedCall]) -> FamilyCoverage:
    attempts = [attempt for call in calls for attempt in call.attempts]
    if not any(a.request.operation != "hello" for a in attempts):
        return FamilyCoverage(level="none", why="no call came through the door")
    if best.level == "full" and any(300 <= (a.reply.status or 0) < 400 for a in attempts):
        return FamilyCoverage(level="partial", why="a redirect led past the door")
    # A HEAD or a model list tells nothing that a verdict needs; a request in an unknown dialect may be the agent's.
    unread = sum(1 for a in attempts if a.facts.parse != "full" and a.request.operation in {"chat", "other"})
    if unread and best.level == "full":
        return FamilyCoverage(level="partial", why=f"{unread} of {len(attempts)} attempts could not be read whole")
    return best
