"""What a trial ran under: its phases, its machine, its limits, what fairtrial changed, and how well it was watched.

In: nothing.  Out: shapes only.  What the trial did is in `steps.py`, what it came to in `verdict.py`.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.records.base import Level, PhaseName, Record


class Phase(Record, frozen=True, kw_only=True):
    """One phase with its limits in time."""

    name: PhaseName
    started: str | None = None
    ended: str | None = None
    outcome: str | None = None
    source: str | None = None


class Environment(Record, frozen=True, kw_only=True):
    """Where the trial ran."""

    runtime: str | None = None
    node: str | None = None
    node_boot_id: str | None = None
    namespace: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container_ids: list[str] = []
    image_digest: str | None = None
    qos_class: str | None = None
    region: str | None = None
    cpu_model: str | None = None
    cores: int | None = None
    kernel: str | None = None
    cgroup: str | None = None
    concurrency_at_start: int | None = None
    hour_of_week: int | None = None


class MemoryLimits(Record, frozen=True, kw_only=True):
    """Bytes; floor is guaranteed, ceiling kills."""

    declared: int | None = None
    floor: int | None = None
    ceiling: int | None = None
    swap: int | None = None
    oom_group: bool | None = None
    floor_guaranteed: bool | None = None


class CpuLimits(Record, frozen=True, kw_only=True):
    """Cores."""

    declared: float | None = None
    floor: float | None = None
    ceiling: float | None = None


class TimeLimits(Record, frozen=True, kw_only=True):
    """Seconds, as the harness declared them."""

    agent: float | None = None
    tool: float | None = None
    verifier: float | None = None
    setup: float | None = None
    multiplier: float | None = None
    source: str | None = None


class Limits(Record, frozen=True, kw_only=True):
    """What the trial was allowed."""

    memory: MemoryLimits = MemoryLimits()
    cpu: CpuLimits = CpuLimits()
    pids: int | None = None
    disk: int | None = None
    egress_rate: float | None = None
    time: TimeLimits = TimeLimits()
    headroom: float | None = None
    enforced_by: str | None = None


class Mutation(Record, frozen=True, kw_only=True):
    """Something that fairtrial changed in the experiment."""

    what: str
    old: str | None = None
    new: str | None = None
    why: str | None = None
    side_effects: str | None = None


class FamilyCoverage(Record, frozen=True, kw_only=True):
    """How well one family of causes was watched."""

    level: Level = "none"
    why: str | None = None


class Gap(Record, frozen=True, kw_only=True):
    """A time in which a source did not see."""

    source: str
    since: str | None = None
    until: str | None = None
    why: str | None = None


FAMILIES: Final = ("model_api", "memory", "cpu", "disk", "network", "node", "verifier")


class Coverage(Record, frozen=True, kw_only=True):
    """What was watched.  `doors` and `collectors` map a name to on | off | lost: why."""

    doors: dict[str, str] = {}
    collectors: dict[str, str] = {}
    families: dict[str, FamilyCoverage] = {}
    gaps: list[Gap] = []
    dropped: int | None = None
