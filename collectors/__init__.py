"""What the host, the kernel and the container runtime say, as observations. One file per source, parsers in `parse/`.

A collector states its cost and the privileges it needs, and says when it cannot watch: absence is evidence only
under coverage.  The composition root uses `facade.py`, which starts all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorEntry:
    """`target` is module:class; `families` what it can see; `privileges` what it needs to see it whole."""

    target: str
    families: tuple[str, ...]
    privileges: str
    cost: str


COLLECTORS: Final[dict[str, CollectorEntry]] = {
    "collector.cgroup": CollectorEntry(
        target="fairtrial.collectors.cgroup:CgroupWatcher",
        families=("memory", "cpu", "disk"),
        privileges="none to read; root for the v1 doorbell and the v1 peak of each step",
        cost="10 Hz, two reads per cgroup and tick; about 0.3 ms per edge",
    ),
    "collector.network": CollectorEntry(
        target="fairtrial.collectors.network:NetworkCounters",
        families=("network",),
        privileges="the uid of the container's processes, or root",
        cost="2 Hz, one read per container",
    ),
    "collector.docker_events": CollectorEntry(
        target="fairtrial.collectors.docker_events:DockerEvents",
        families=("memory", "node"),
        privileges="the engine's socket",
        cost="one event stream, one inspect per container start and end, one to three per exec, a list every 15 s; one "
        "descriptor per container (pidfd of its first process)",
    ),
    "collector.kernel_log": CollectorEntry(
        target="fairtrial.collectors.kernel_log:KernelLog",
        families=("memory", "node"),
        privileges="CAP_SYSLOG where kernel.dmesg_restrict is 1",
        cost="one read per kernel record; a scan of the processes of a cgroup at 10 Hz while execs run in it",
    ),
    "collector.vmstat": CollectorEntry(
        target="fairtrial.collectors.host:HostProbe",
        families=("memory", "node"),
        privileges="none",
        cost="about 50 µs per edge",
    ),
}
"""Coverage source -> what stands behind it."""
