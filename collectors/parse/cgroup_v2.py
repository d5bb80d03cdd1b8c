"""Files of a cgroup v2 directory.

In: the bytes of one file.  Out: records in bytes, nanoseconds and counts, cumulative since the cgroup's birth.
**Source:** kernel Documentation/admin-guide/cgroup-v2.rst.  The records that both versions share are in `cgroup_v1.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairtrial.collectors.parse.cgroup_v1 import MemoryParts, Throttling
from fairtrial.collectors.parse.flat import parse_flat


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvents:
    """`memory.events` (children included) or `memory.events.local` (without).

    `high`: processes were throttled and made to reclaim, over `memory.high`.  `oom`: the limit was hit and a kill
    considered; `oom_kill`: processes killed by any OOM killer, but with `memory.oom.group` the victim counts twice, so
    it is no number of processes.  `oom_group_kill` is None before 5.17.
    """

    max: int | None = None
    high: int | None = None
    oom: int | None = None
    oom_kill: int | None = None
    oom_group_kill: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuStat:
    """`cpu.stat`; the bandwidth part is absent while the cpu controller is not enabled."""

    used_ns: int | None
    throttling: Throttling


def parse_memory_events(raw: bytes) -> MemoryEvents:
    """Raises ValueError when no `oom_kill` line is there (kernel before 4.13, or another file)."""
    keys = parse_flat(raw)
    if "oom_kill" not in keys:
        raise ValueError("memory.events without oom_kill")
    return MemoryEvents(
        max=keys.get("max"),
        high=keys.get("high"),
        oom=keys.get("oom"),
        oom_kill=keys["oom_kill"],
        oom_group_kill=keys.get("oom_group_kill"),
    )


def parse_memory_stat(raw: bytes) -> MemoryParts:
    """`memory.stat`; the kernel's `file` includes tmpfs and shared memory, `file_bytes` does not."""
    keys = parse_flat(raw)
    shmem = keys.get("shmem")
    file = keys.get("file")
    return MemoryParts(
        anon_bytes=keys.get("anon"),
        file_bytes=file - shmem if file is not None and shmem is not None else None,
        shmem_bytes=shmem,
        inactive_file_bytes=keys.get("inactive_file"),
        slab_bytes=keys.get("slab"),
    )


def parse_cpu_stat(raw: bytes) -> CpuStat:
    """`cpu.stat`; microseconds become nanoseconds."""
    keys = parse_flat(raw)
    used = keys.get("usage_usec")
    throttled = keys.get("throttled_usec")
    return CpuStat(
        used_ns=None if used is None else used * 1000,
        throttling=Throttling(
            periods=keys.get("nr_periods"),
            throttled_periods=keys.get("nr_throttled"),
            throttled_ns=None if throttled is None else throttled * 1000,
        ),
    )


def parse_io_written(raw: bytes) -> int | None:
    """Bytes written, summed over devices, of `io.stat`; None when no device reported yet."""
    total: int | None = None
    for line in raw.splitlines():
        for field in line.split()[1:]:
            key, _, value = field.partition(b"=")
            if key == b"wbytes":
                total = (total or 0) + int(value)
    return total
