"""What can be seen of one cgroup, said in words: a source that is not there is a reason, never a zero.

In: the files that could be opened, and why others could not.  Out: `CoverageChanged` per family.
"""

from __future__ import annotations

from typing import Final

from fairtrial.collectors.cgroup_files import CgroupFiles
from fairtrial.collectors.network import NetworkCounters
from fairtrial.middleware.core.observations import CoverageChanged

COVERAGE_SOURCE: Final = "collector.cgroup"
NETWORK_SOURCE: Final = "collector.network"


def coverage(
    files: CgroupFiles,
    *,
    container_id: str,
    no_bell: str | None,
    shared: str | None,
    limit_bytes: int | None,
    looks_at_disks: bool,
) -> list[CoverageChanged]:
    """Memory, CPU and disk.  `no_bell`: why no doorbell rings; `shared`: who else lives in the cgroup."""
    missing = files.missing
    own = container_id == "own"
    limits = [text for text in (no_bell, shared) if text is not None]
    if limit_bytes is None and files.memory_dir is not None:
        limits.append("no memory limit is set")
    no_pids = missing.get("pids.events") or missing.get("pids")
    slow = [] if own or no_pids is None else [f"refused forks are not counted ({no_pids})"]
    full = [] if own or looks_at_disks else ["whether its file systems are full cannot be looked at"]

    def told(family: str, *, on: bool, why: str | None, limits: list[str]) -> CoverageChanged:
        if on:
            text = "partial: " + "; ".join(limits) if limits else None
        else:
            text = why or "its files cannot be read"
        return CoverageChanged(
            source=COVERAGE_SOURCE,
            families=[family],
            state="on" if on else "off",
            why=text,
            container_id=container_id,
        )

    counted = files.kill_counter is not None
    return [
        told("memory", on=counted, why=missing.get("kills") or missing.get("memory"), limits=limits),
        told("cpu", on="cpu.stat" not in missing and "cpu" not in missing, why=missing.get("cpu"), limits=slow),
        told("disk", on="disk" not in missing and "blkio" not in missing, why=missing.get("blkio"), limits=full),
    ]


def network_coverage(network: NetworkCounters | None, container_id: str) -> CoverageChanged:
    """Of the network namespace; None: it could not be looked at."""
    why: str | None = None
    if network is None:
        why = "the network namespace could not be looked at"
    elif network.shared:
        why = "partial: the network namespace is shared with other processes, bytes are not counted"
    return CoverageChanged(
        source=NETWORK_SOURCE,
        families=["network"],
        state="on" if network is not None else "off",
        why=why,
        container_id=container_id,
    )
