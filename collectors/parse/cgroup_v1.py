"""Files of a cgroup v1 controller directory.

In: the bytes of one file.  Out: records in bytes, nanoseconds and counts, cumulative since the cgroup's birth.
**Source:** kernel Documentation/admin-guide/cgroup-v1/*.rst, scheduler/sched-bwc.rst.
The counterpart for the unified hierarchy is `cgroup_v2.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairtrial.collectors.parse.flat import parse_count, parse_flat

_NO_LIMIT = 1 << 62
"""v1 writes "no limit" as the largest multiple of the page size below 2^63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomControl:
    """`memory.oom_control`.  `oom_kill` is None before kernel 4.13."""

    kill_disabled: bool
    under_oom: bool
    oom_kill: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """What memory consists of, bytes, children included.  `file_bytes`: page cache without tmpfs and shared memory.

    `slab_bytes`: objects of the kernel; v1 does not tell them in memory.stat, see `memory.kmem.usage_in_bytes`.
    """

    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    inactive_file_bytes: int | None = None
    slab_bytes: int | None = None
    swap_bytes: int | None = None
    hierarchical_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """CFS bandwidth control: how often and how long the group stood still at its quota."""

    periods: int | None = None
    throttled_periods: int | None = None
    throttled_ns: int | None = None


def parse_limit(raw: bytes) -> int | None:
    """`memory.limit_in_bytes` and its like; None is "no limit"."""
    value = parse_count(raw)
    return None if value >= _NO_LIMIT else value


def parse_oom_control(raw: bytes) -> OomControl:
    """Raises ValueError when the file holds none of its keys."""
    keys = parse_flat(raw)
    if "under_oom" not in keys:
        raise ValueError("memory.oom_control without under_oom")
    return OomControl(
        kill_disabled=keys.get("oom_kill_disable") == 1,
        under_oom=keys["under_oom"] == 1,
        oom_kill=keys.get("oom_kill"),
    )


def parse_memory_stat(raw: bytes) -> MemoryParts:
    """`memory.stat`; the `total_` lines, which include children."""
    keys = parse_flat(raw)
    shmem = keys.get("total_shmem")
    cache = keys.get("total_cache")
    limit = keys.get("hierarchical_memory_limit")
    return MemoryParts(
        anon_bytes=keys.get("total_rss"),
        file_bytes=cache - shmem if cache is not None and shmem is not None else None,
        shmem_bytes=shmem,
        inactive_file_bytes=keys.get("total_inactive_file"),
        swap_bytes=keys.get("total_swap"),
        hierarchical_limit_bytes=None if limit is None or limit >= _NO_LIMIT else limit,
    )


def parse_cpu_stat(raw: bytes) -> Throttling:
    """`cpu.stat`; `throttled_time` is in nanoseconds here (in v2 it is microseconds)."""
    keys = parse_flat(raw)
    return Throttling(
        periods=keys.get("nr_periods"),
        throttled_periods=keys.get("nr_throttled"),
        throttled_ns=keys.get("throttled_time"),
    )


def parse_blkio_written(raw: bytes) -> int | None:
    """Bytes written, summed over devices, of `blkio.throttle.io_service_bytes`; None when no device reported yet."""
    total: int | None = None
    for line in raw.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] == b"Write":
            total = (total or 0) + int(fields[2])
    return total
