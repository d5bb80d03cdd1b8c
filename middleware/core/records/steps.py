"""One step: its model calls, the tools that ran for it, and what each container did meanwhile.

In: nothing.  Out: shapes only.  The calls themselves are in `calls.py`.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import Literal

from fairtrial.middleware.core.records.base import ContainerRole, PeakKind, PhaseName, Record
from fairtrial.middleware.core.records.calls import Call


class Tool(Record, frozen=True, kw_only=True):
    """One tool call of a step."""

    name: str | None = None
    call_id: str | None = None
    started: str | None = None
    ended: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    timed_out_by: str | None = None
    exec_id: str | None = None
    exec_via: Literal["docker", "kubernetes", "harness", "inferred"] | None = None
    join: str | None = None
    """text: the command's text is the same; time: nothing else ran meanwhile; inferred: no exec was found."""
    dispatch_delay: float | None = None
    """From the start request to the engine's answer, as the Docker door saw it; without a door from the reply's end to
    the start that the runtime tells."""
    bytes_out: int | None = None
    """What the command wrote, stderr included."""
    bytes_err: int | None = None
    bytes_in: int | None = None
    exec_duration: float | None = None
    """From the start request to the end of its stream."""
    ended_by: Literal["process", "client", "engine", "fairtrial"] | None = None
    """Who ended its stream: the command itself, a client that left, an engine that broke off, or we."""
    container_id: str | None = None
    """Of a `docker run`: the container that it was."""
    command: list[str] | None = None
    """What ran, as the Docker door saw it: secrets masked, free text as its length unless `privacy.content`."""


class Victim(Record, frozen=True, kw_only=True):
    """A process that the kernel's OOM killer took."""

    comm: str | None = None
    pid: int | None = None
    rss: int | None = None
    role: str | None = None


class ContainerUse(Record, frozen=True, kw_only=True):
    """What one container (or the command's own cgroup) did during one step."""

    id: str
    name: str | None = None
    role: ContainerRole = "main"
    memory_peak: int | None = None
    memory_peak_kind: PeakKind | None = None
    memory_limit: int | None = None
    memory_anon: int | None = None
    memory_shmem: int | None = None
    memory_file: int | None = None
    swap_peak: int | None = None
    memory_max_hits: int | None = None
    memory_high_hits: int | None = None
    memory_ooms: int | None = None
    """cgroup v2: how often its limit left no way but to kill or to refuse; a kill follows most of them."""
    oom_kills: int | None = None
    oom_group_kill: int | None = None
    oom_victims: list[Victim] = []
    cpu_used: float | None = None
    cpu_throttled: float | None = None
    psi_cpu: float | None = None
    psi_memory: float | None = None
    psi_io: float | None = None
    steal: float | None = None
    pids_max_hits: int | None = None
    disk_written: int | None = None
    egress_bytes: int | None = None
    ingress_bytes: int | None = None
    egress_rate_max: float | None = None
    tcp_retrans: int | None = None
    tcp_attempt_fails: int | None = None
    exit_code: int | None = None
    ended_by: str | None = None


class Step(Record, frozen=True, kw_only=True):
    """One completed main-agent model call and the tool work until the next one; indexes count from 1.

    A call that never completed opens the step that it would have become.
    """

    index: int
    phase: PhaseName = PhaseName.AGENT
    started: str | None = None
    ended: str | None = None
    calls: list[Call] = []
    tools: list[Tool] = []
    containers: list[ContainerUse] = []
