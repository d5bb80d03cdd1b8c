"""The kernel's counters: of a cgroup, of limits that were hit, and of the host.

What all of them share is said in the package. In: nothing.  Out: typed values, one struct an observation kind.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from fairtrial.middleware.core.observations.base import Value
from fairtrial.middleware.core.records import Victim


class CgroupReading(Value, frozen=True, kw_only=True):
    """Counters of one cgroup at one moment; all cumulative counters count from the cgroup's birth.

    Written at edges (start, before and after each model call, end) and when a counter of harm moved, never per sample.
    """

    kind: ClassVar[str] = "cgroup.reading"
    container_id: str
    """Container id, or "own" for the command's own cgroup."""
    edge: Literal["baseline", "call_started", "call_ended", "change", "exec", "end", "last"] = "change"
    memory_current: int | None = None
    memory_peak: int | None = None
    """High-water mark since the last reading (`peak_kind` exact) or since the cgroup's birth (at_most)."""
    memory_peak_kind: Literal["exact", "rose_in_step", "at_most", "sampled", "shared"] | None = None
    memory_sampled_peak: int | None = None
    memory_limit: int | None = None
    memory_anon: int | None = None
    memory_file: int | None = None
    memory_shmem: int | None = None
    memory_inactive_file: int | None = None
    memory_slab: int | None = None
    """Objects of the kernel; on cgroup v1, which does not split it, all memory of the kernel."""
    memory_max_hits: int | None = None
    memory_high_hits: int | None = None
    memory_under_oom: bool | None = None
    """cgroup v1: processes wait for memory that nobody frees, because the OOM killer is switched off."""
    swap_current: int | None = None
    oom_kill: int | None = None
    oom: int | None = None
    oom_group_kill: int | None = None
    cpu_used: float | None = None
    cpu_throttled: float | None = None
    cpu_throttled_periods: int | None = None
    psi_cpu: float | None = None
    psi_memory: float | None = None
    psi_memory_full: float | None = None
    psi_io: float | None = None
    pids_current: int | None = None
    pids_limit: int | None = None
    pids_max_hits: int | None = None
    disk_written: int | None = None
    egress_bytes: int | None = None
    ingress_bytes: int | None = None
    egress_rate_max: float | None = None
    """Highest rate between two samples since the last reading, bytes/s."""
    tcp_retrans: int | None = None
    tcp_attempt_fails: int | None = None
    populated: bool | None = None


class OomKill(Value, frozen=True, kw_only=True):
    """The cgroup's own kill counter rose: that a kill *happened* is proved by this, who died is not."""

    kind: ClassVar[str] = "cgroup.oom_kill"
    container_id: str
    delta: int
    total: int | None = None
    group_delta: int | None = None
    memory_limit: int | None = None
    memory_peak: int | None = None
    memory_shmem: int | None = None
    memory_anon: int | None = None
    swap_current: int | None = None
    parent_limit_hit: bool | None = None
    source_file: str | None = None
    exec_candidates: list[str] = []
    live_execs: list[str] = []


class PidsHit(Value, frozen=True, kw_only=True):
    """A fork was refused by the cgroup's limit of tasks: how many there were a moment later, and since when.

    The two shares count tasks (threads too) of processes that started after the first, and after the newest, reply of a
    model had passed; `None` while no reply had.  A process that came and went between two looks is in neither.
    """

    kind: ClassVar[str] = "cgroup.pids_hit"
    container_id: str
    hits: int | None = None
    limit: int | None = None
    tasks: int | None = None
    since_first_reply: int | None = None
    since_last_reply: int | None = None


class DiskFull(Value, frozen=True, kw_only=True):
    """A file system of a container has no room left: less than 1/32 of it (tmpfs: 1/100) and 4 MiB, or no inode.

    Written once when it becomes so and again when it had room in between; `at_start`: it was so when the container was
    first looked at.  `layer_bytes` is what the container itself holds there: its own layer for the root file system,
    all of a tmpfs; None where that is not known (a volume, a layer too large to count).  `other_ways`: more of its
    mounts lead to a file system of that size (a volume, a bound folder), and what it wrote there is not in
    `layer_bytes`.
    """

    kind: ClassVar[str] = "disk.full"
    container_id: str
    mount: str
    fs_type: str | None = None
    size: int | None = None
    free: int | None = None
    inodes_free: int | None = None
    used_at_start: int | None = None
    used: int | None = None
    layer_bytes: int | None = None
    other_ways: bool | None = None
    at_start: bool = False
    edge: str | None = None
    """The edge at which it was looked at, as in `CgroupReading`; None: between two."""


class FdLimit(Value, frozen=True, kw_only=True):
    """A process of a container was seen with as many open files as its own limit allows; sampled, so a short one is
    missed.  `since_first_reply`: it started after a model's first reply had passed; None: no reply had.  `open_before`
    and `limit_before`: as it stood at that reply, where it was looked at."""

    kind: ClassVar[str] = "process.fd_limit"
    container_id: str
    pid: int | None = None
    comm: str | None = None
    open_files: int | None = None
    limit: int | None = None
    open_before: int | None = None
    limit_before: int | None = None
    since_first_reply: bool | None = None


class KernelOomKill(Value, frozen=True, kw_only=True):
    """One victim record of the kernel log: says *who* and *which limit*."""

    kind: ClassVar[str] = "kernel.oom_kill"
    victim: Victim
    container_id: str | None = None
    exec_id: str | None = None
    exec_join: Literal["process_tree", "only_live_exec", "inferred"] | None = None
    constraint: str | None = None
    """CONSTRAINT_MEMCG | CONSTRAINT_NONE | …; NONE is a node-wide kill."""
    oom_memcg: str | None = None
    task_memcg: str | None = None
    parents: list[str] = []
    """comm of the victim's parent chain, nearest first."""
    lived_s: float | None = None
    """How long it had lived when it was killed, by the start that /proc told (hundredths of a second); None: it was
    never seen alive.  A process keeps its start when it becomes another program (execve)."""


class HostCounters(Value, frozen=True, kw_only=True):
    """Counters of the node that anyone may read."""

    kind: ClassVar[str] = "host.counters"
    edge: Literal["baseline", "call_started", "call_ended", "change", "exec", "end", "last"] = "change"
    oom_kill: int | None = None
    """/proc/vmstat oom_kill, all kills of the node since boot."""
    memory_available: int | None = None
    steal_s: float | None = None
    psi_cpu: float | None = None
    psi_memory: float | None = None
    psi_io: float | None = None
    cpu_busy_s: float | None = None
    """Time that all cores together have worked since boot, for whomever; without waiting and stolen time."""
    load1: float | None = None
