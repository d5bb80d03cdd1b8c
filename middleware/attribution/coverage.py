"""Coverage as the rules need it: what could have been seen in which window, and what could not.

In: a `Case`.  Out: gaps of the model door, whether an OOM kill could have been missed, which families nobody watched,
and whether the observer or its store was tampered with.  Absence is evidence only under coverage.
What this module does not do: sum coverage up for people (`steps/watched.py` did that).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.case import Case, ContainerCase
from fairtrial.middleware.attribution.sentences import clean
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.core.observations import GapSeen, KernelOomKill
from fairtrial.middleware.core.records import PhaseName
from fairtrial.middleware.steps.placed import Placed
from fairtrial.middleware.steps.watched import RECORDED_ONLY

FOREVER: Final = 1 << 63

JUDGED_FAMILIES: Final = ("model_api", "memory", "cpu", "disk", "network", "node")
"""Families of the agent's time; the verifier's is judged on its own."""

_OBSERVER: Final = frozenset({"observer", "store"})
_CONTAINERS: Final = "collector.docker_events"
_OTHER_CONTAINER: Final = re.compile(r"[0-9a-f]{64}")
"""A cgroup of a container: one of the trial's would have been joined, or told to be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blind:
    """A window, wall ns, in which a source did not see."""

    source: str
    families: frozenset[str]
    since_ns: int
    until_ns: int
    id: str
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWatch:
    """Whether every OOM kill of the trial would have been seen, and by what."""

    seen: bool
    by: tuple[str, ...]
    why_not: str | None = None
    remedy: str = "Let fairtrial read the host's counters or the container's cgroup (see `fairtrial doctor`)."


class Watch:
    """Answers what was watched."""

    def __init__(self, case: Case, thresholds: Thresholds) -> None:
        self._case = case
        self._grace_ns = round(thresholds.end_grace_s * 1e9)
        self.blind: list[Blind] = _blind(case, self._grace_ns)

    @property
    def tampered(self) -> Blind | None:
        """The observer was killed or its store changed: what the agent could do to hide something."""
        return next((b for b in self.blind if b.source in _OBSERVER), None)

    def door_gap(self, since_ns: int) -> Blind | None:
        """A window after `since_ns`, before the end, in which the model door may have missed a call."""
        return next((b for b in self.blind if "model_api" in b.families and b.until_ns > since_ns), None)

    @property
    def door_watched(self) -> bool:
        """A model door was on, and a call came through it."""
        level = self._case.trial.coverage.families.get("model_api")
        return level is not None and level.level != "none"

    @property
    def unwatched(self) -> list[str]:
        """Families that no source watched at all."""
        families = self._case.trial.coverage.families
        return [f for f in JUDGED_FAMILIES if f not in families or families[f].level == "none"]

    @property
    def partly(self) -> list[str]:
        """Families watched with a gap; the model API and memory have exact tests of their own."""
        families = self._case.trial.coverage.families
        return [
            f
            for f in JUDGED_FAMILIES[2:]
            if f in families and families[f].level == "partial" and families[f].why != RECORDED_ONLY
        ]

    @property
    def recorded_only(self) -> list[str]:
        """Families that were recorded and that no rule judges yet."""
        families = self._case.trial.coverage.families
        return [f for f in JUDGED_FAMILIES if f in families and families[f].why == RECORDED_ONLY]

    def memory(self) -> MemoryWatch:
        """An OOM kill is observable by each container's own counter, or by a zero delta of the host's.

        Counters count for ever, so a gap does not matter if a reading lies after it.
        """
        whole_host = self._host_delta()
        if whole_host is not None and whole_host[0] == 0:
            return MemoryWatch(seen=True, by=whole_host[1])
        missed = [p.id for p, change in self._case.coverage_changes if change.containers_missed]
        told = [c.why for _, c in self._case.coverage_changes if c.containers_missed and c.why]
        if missed:
            why = (
                "the kernel killed a process of this host for memory"
                if whole_host
                else "no counter of the host was read"
            )
            return MemoryWatch(
                seen=False,
                by=tuple(missed[:1]),
                why_not=f"{why}, and a container that may be the trial's was not watched"
                + (f" ({clean(told[0], 200)})" if told else ""),
                remedy="Start the container with `-e FAIRTRIAL_TRIAL` (docker run), so that it can be told apart.",
            )
        hole = self._events_hole()
        if hole is not None and not (whole_host is not None and self._explains(whole_host[0])):
            return MemoryWatch(
                seen=False,
                by=(hole[0].id,),
                why_not="a container that lived while the engine's events were not seen may not have been watched "
                f"({clean(hole[1].why or 'no reason told', 200)})",
                remedy="Run the trial again.",
            )
        stray = self._stray_kill()
        if stray is not None:
            return MemoryWatch(
                seen=False,
                by=(stray[0].id,),
                why_not=f"the kernel killed {clean(stray[1].victim.comm or 'a process', 20)} for memory in a cgroup "
                "that was not watched, and nothing says whose it was",
            )
        by: list[str] = []
        watched = [c for c in self._case.containers.values() if c.role != "verifier"]
        for container in watched:
            ids = self._own_counter(container, all_explained=whole_host is not None and self._explains(whole_host[0]))
            if ids is None:
                return MemoryWatch(
                    seen=False, by=(), why_not=f"the kill counter of {_name(container)} was not read in time"
                )
            by.extend(ids)
        if watched:
            return MemoryWatch(seen=True, by=tuple(by))
        if whole_host is None:
            return MemoryWatch(seen=False, by=(), why_not=self._no_count())
        return MemoryWatch(
            seen=False, by=whole_host[1], why_not="the kernel killed a process for memory and nothing says which"
        )

    def _events_hole(self) -> tuple[Placed, GapSeen] | None:
        """A gap in the word of containers before the command's end."""
        end = self._case.ended_ns
        return next(
            (
                (placed, gap)
                for placed, gap in self._case.gaps
                if gap.source == _CONTAINERS and (end is None or gap.since_ns is None or gap.since_ns < end)
            ),
            None,
        )

    def _no_count(self) -> str:
        if any(v.oom_kill is not None for _, v in self._case.host):
            return "the host's count of kills was not read from before the first tool's work to the end"
        return "no counter of OOM kills was read"

    def _host_delta(self) -> tuple[int, tuple[str, ...]] | None:
        """How far the host's own count of OOM kills moved from before the first tool's work to the end."""
        counted = [(p, v.oom_kill) for p, v in self._case.host if v.oom_kill is not None]
        if len(counted) < 2:
            return None
        (first, before), (last, after) = counted[0], counted[-1]
        begin = self._first_work_ns()
        if begin is not None and first.at_ns > begin:
            return None
        end = self._case.ended_ns
        if end is not None and last.at_ns < end - self._grace_ns:
            return None
        return after - before, (first.id, last.id)

    def _stray_kill(self) -> tuple[Placed, KernelOomKill] | None:
        """A kill in the trial's time that no watched container had; one in another container is another's."""
        end = self._case.ended_ns
        for placed, value in self._case.unplaced_records:
            if placed.phase is PhaseName.TEARDOWN or (end is not None and placed.at_ns > end):
                continue
            if not _OTHER_CONTAINER.search(value.task_memcg or ""):
                return placed, value
        return None

    def _first_work_ns(self) -> int | None:
        """When the first tool may have begun to work."""
        calls = self._case.main_calls
        return calls[0].ended_ns or calls[0].started_ns if calls else None

    def _explains(self, delta: int) -> bool:
        """Whether every kill that the host counted has a place: in other containers, or in those that were watched."""
        others = sum(1 for _, v in self._case.unplaced_records if _OTHER_CONTAINER.search(v.task_memcg or ""))
        ours = sum(v.delta for group in self._case.kills for _, v in group.counted)
        return others + ours >= delta

    def _own_counter(self, container: ContainerCase, *, all_explained: bool) -> list[str] | None:
        """Ids of the readings of the container's own count of kills, or None if a kill could have been missed.

        `all_explained`: each kill of the host is known to have been elsewhere, or to be counted.
        """
        counted = [p for p, v in container.readings if v.oom_kill is not None]
        if not counted:
            return None
        last = counted[-1]
        end = container.gone[0].at_ns if container.gone is not None else self._case.ended_ns
        if end is not None and last.at_ns < end - self._grace_ns:
            return None
        if container.id == "own":
            # It is older than the trial, and what began in it may have gone elsewhere: it must have been read in time.
            begin = self._first_work_ns()
            late = begin is not None and counted[0].at_ns > begin
            if len(counted) < 2 or (late and not all_explained):
                return None
        return [counted[0].id, last.id] if len(counted) > 1 else [last.id]


def _name(container: ContainerCase) -> str:
    return "the command's own cgroup" if container.id == "own" else f"container {container.id[:12]}"


def _blind(case: Case, grace_ns: int) -> list[Blind]:
    end = case.ended_ns
    found: list[Blind] = []
    for placed, gap in case.gaps:
        since = gap.since_ns if gap.since_ns is not None else placed.at_ns
        open_ended = FOREVER if gap.since_ns is not None else max(placed.at_ns, since)
        until = gap.until_ns if gap.until_ns is not None else open_ended
        if end is not None and since >= end and gap.source not in _OBSERVER:
            continue
        found.append(
            Blind(
                source=gap.source,
                families=_families(gap.source, gap.families),
                since_ns=since,
                until_ns=until,
                id=placed.id,
                why=gap.why,
            )
        )
    went: dict[tuple[str, str | None], Blind] = {}
    for placed, change in case.coverage_changes:
        key = (change.source, change.container_id)
        if change.state == "on":
            open_blind = went.pop(key, None)
            if open_blind is not None:
                found.append(
                    Blind(
                        source=open_blind.source,
                        families=open_blind.families,
                        since_ns=open_blind.since_ns,
                        until_ns=placed.at_ns,
                        id=open_blind.id,
                        why=open_blind.why,
                    )
                )
            continue
        at_end = placed.phase is PhaseName.TEARDOWN or (end is not None and placed.at_ns >= end - grace_ns)
        if change.state == "off" and (at_end or change.container_id is not None):
            continue
        if end is not None and placed.at_ns >= end:
            continue
        went.setdefault(
            key,
            Blind(
                source=change.source,
                families=_families(change.source, change.families),
                since_ns=placed.at_ns,
                until_ns=FOREVER,
                id=placed.id,
                why=change.why,
            ),
        )
    found.extend(went.values())
    return sorted(found, key=lambda b: (b.since_ns, b.source))


def _families(source: str, told: list[str]) -> frozenset[str]:
    if told:
        return frozenset(told)
    if source.startswith(("door.model", "feed")) or source in _OBSERVER:
        return frozenset(JUDGED_FAMILIES)
    return frozenset()
