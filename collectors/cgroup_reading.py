"""The observation of one reading: counters of a cgroup's files and of its network namespace in one row.

In: what was read, and what the watcher knows of the window that ends here (its peak, its kills, its highest rate).
Out: a `CgroupReading`; what was not read is None in it.  What it does not do: read, or decide when.
"""

from __future__ import annotations

from fairtrial.collectors.cgroup_files import Counters
from fairtrial.collectors.parse.proc import Traffic
from fairtrial.collectors.readings import Edge
from fairtrial.middleware.core.observations import CgroupReading
from fairtrial.middleware.core.records import PeakKind


def reading(
    counters: Counters,
    *,
    container_id: str,
    edge: Edge,
    peak: tuple[int | None, PeakKind | None],
    sampled_peak: int | None,
    kills: int | None,
    traffic: Traffic | None,
    rate: float | None,
    tcp: tuple[int | None, int | None],
) -> CgroupReading:
    """`peak` with how it is known; `rate` in bytes/s; `tcp`: segments sent again, failed attempts."""
    return CgroupReading(
        container_id=container_id,
        edge=edge,
        memory_current=counters.usage_bytes,
        memory_peak=peak[0],
        memory_peak_kind=peak[1],
        memory_sampled_peak=sampled_peak,
        memory_limit=counters.limit_bytes,
        memory_anon=counters.parts.anon_bytes,
        memory_file=counters.parts.file_bytes,
        memory_shmem=counters.parts.shmem_bytes,
        memory_inactive_file=counters.parts.inactive_file_bytes,
        memory_slab=counters.parts.slab_bytes,
        memory_max_hits=counters.limit_hits,
        memory_high_hits=counters.high_hits,
        memory_under_oom=counters.under_oom,
        swap_current=counters.swap_bytes,
        oom_kill=kills,
        oom=counters.oom,
        oom_group_kill=counters.oom_group_kill,
        cpu_used=counters.cpu_used_s,
        cpu_throttled=counters.cpu_throttled_s,
        cpu_throttled_periods=counters.cpu_throttled_periods,
        psi_cpu=counters.psi_cpu_s,
        psi_memory=counters.psi_memory_s,
        psi_memory_full=counters.psi_memory_full_s,
        psi_io=counters.psi_io_s,
        pids_current=counters.pids_current,
        pids_limit=counters.pids_limit,
        pids_max_hits=counters.pids_max_hits,
        disk_written=counters.disk_written_bytes,
        egress_bytes=None if traffic is None else traffic.sent_bytes,
        ingress_bytes=None if traffic is None else traffic.received_bytes,
        egress_rate_max=None if rate is None else round(rate, 1),
        tcp_retrans=tcp[0],
        tcp_attempt_fails=tcp[1],
        populated=counters.populated,
    )
