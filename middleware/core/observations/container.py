"""Containers as their runtime tells of them.

What all of them share is said in the package. In: nothing.  Out: typed values, one struct an observation kind.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from fairtrial.middleware.core.observations.base import Value


class ContainerSeen(Value, frozen=True, kw_only=True):
    """A container of the trial was found; limits as the runtime reports them."""

    kind: ClassVar[str] = "container.seen"
    container_id: str
    name: str | None = None
    image: str | None = None
    image_digest: str | None = None
    role: Literal["main", "service", "verifier", "own"] = "main"
    labels: dict[str, str] = {}
    init_pid: int | None = None
    cgroup: str | None = None
    cgroup_version: Literal["v1", "v2", "hybrid"] | None = None
    memory_limit: int | None = None
    memory_reservation: int | None = None
    memory_swap_limit: int | None = None
    oom_group: bool | None = None
    oom_kill_disabled: bool | None = None
    """cgroup v1: at the limit processes are refused or wait, and none is killed."""
    cpu_limit: float | None = None
    pids_limit: int | None = None
    tmpfs: list[str] = []
    started_wall_ns: int | None = None
    network_mode: str | None = None
    strangers: int | None = None
    """Role "own": processes in the same cgroup that belong neither to the command nor to fairtrial."""
    trial_mark: str | None = None
    """`FAIRTRIAL_TRIAL` or the label that it was created with: whoever created it called its trial so."""
    restarts: int | None = None
    """How often the engine's restart policy had started it again by then."""
    own_pid_namespace: bool | None = None
    """False: a process of the host or of another container that it shares its namespace with can kill its first one."""
    join: str | None = None
    """How it was tied to this trial: started_after | label | env | only_trial | own."""


class ContainerEvent(Value, frozen=True, kw_only=True):
    """One event of the runtime, as it said it."""

    kind: ClassVar[str] = "container.event"
    container_id: str
    action: str
    """create | start | oom | die | kill | stop | restart | pause | unpause | destroy | health_status"""
    exit_code: int | None = None
    signal: int | None = None
    oom_killed_flag: bool | None = None
    daemon_wall_ns: int | None = None


class ExecStarted(Value, frozen=True, kw_only=True):
    """A process was started in a running container through the runtime."""

    kind: ClassVar[str] = "exec.started"
    container_id: str
    exec_id: str
    pid: int | None = None
    text_digest: str | None = None
    """blake2b-128 hex of the last argument of the command (the shell text), to join with a tool call."""
    plumbing: bool | None = None


class ExecEnded(Value, frozen=True, kw_only=True):
    """It ended; an unknown exit code is None, never 0."""

    kind: ClassVar[str] = "exec.ended"
    container_id: str
    exec_id: str
    exit_code: int | None = None
    started_wall_ns: int | None = None
    bytes_out: int | None = None


class ContainerGone(Value, frozen=True, kw_only=True):
    """A container or its cgroup vanished; the last readable counters were written before."""

    kind: ClassVar[str] = "container.gone"
    container_id: str
    exit_code: int | None = None
    oom_killed_flag: bool | None = None
    error: str | None = None
    ended_by: str | None = None
    """exit | oom | runtime_kill:<signal> | unknown: what the runtime's events say ended it."""
    init_signal: int | None = None
    """The signal that ended its first process by that process's own wait status, 0: it exited; None: the kernel did not
    tell (before 6.15, or a remote engine)."""


class RuntimeState(Value, frozen=True, kw_only=True):
    """The engine's event stream opened, broke off or came back."""

    kind: ClassVar[str] = "runtime.state"
    state: Literal["up", "lost", "back"]
    why: str | None = None
    version: str | None = None
    api_version: str | None = None
    restarted: bool | None = None
    """Of `back`: whether the engine is another process than before; None: that cannot be told."""
