"""What is kept of a container and its execs while they live, and what their life asks of the other collectors.

In: nothing.  Out: two records that `docker_events.py` and its neighbours change, the protocol `Watch`, and the
observation of a container as the engine tells of it.  Nothing here asks, writes or judges.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, Protocol

from fairtrial.collectors.membership import Join
from fairtrial.collectors.parse.docker import TRIAL_LABEL, ContainerFacts, EventFacts, ExecFacts
from fairtrial.collectors.readings import Bucket
from fairtrial.collectors.victims import KnownExec
from fairtrial.middleware.core.observations import ContainerSeen

_RECENT_NS: Final = 1_000_000_000
_OOM_EVENTS_PER_S: Final = 10


class Watch(Protocol):
    """What the containers' life asks of the rest of the collectors."""

    def watch(self, facts: ContainerFacts, seen: ContainerSeen) -> ContainerSeen:
        """Begin to watch its cgroup; gives the record with what was found of it."""
        ...

    def ring(self, container_id: str) -> None:
        """The runtime says that memory ran out."""
        ...

    def settle(self, container_id: str) -> bool:
        """Read what is left; whether its cgroup is gone or was never watched."""
        ...

    def kills_counted(self, container_id: str) -> int:
        """Kills that the counter of its cgroup has shown."""
        ...

    def victims_named(self, container_id: str) -> list[int]:
        """Pids that the kernel log named."""
        ...

    def release(self, container_id: str) -> None:
        """It is over: keep its count of kills, let go of the rest."""
        ...

    def unexplained_kills(self) -> int | None:
        """Kills of the node since our start that no counter and no kernel record explains."""
        ...


@dataclass(slots=True)
class ExecState:
    """One exec of a container of ours."""

    exec_id: str
    command: str | None = None
    started_ns: int | None = None
    facts: ExecFacts | None = None
    settled: bool = False
    written: bool = False
    plumbing: bool | None = None
    ended: EventFacts | None = None
    ended_mono_ns: int | None = None


@dataclass(slots=True)
class ContainerState:
    """One container of the engine that was heard of since the trial's start.  Times are the engine's wall clock."""

    container_id: str
    join: Join | None = None
    refused: str | None = None
    judging: bool = False
    waiting: list[EventFacts] = field(default_factory=list[EventFacts])
    facts: ContainerFacts | None = None
    seen: ContainerSeen | None = None
    alive: bool = False
    ending: bool = False
    starting: bool = False
    over: bool = False
    """Its end was written and no later start was told."""
    ended_ns: int | None = None
    kill: tuple[int | None, int] | None = None
    oom_ns: int | None = None
    kill_counted_ns: int | None = None
    kills_written: int = 0
    execs: dict[str, ExecState] = field(default_factory=dict[str, ExecState])
    oom_events: Bucket = field(default_factory=lambda: Bucket(per_s=_OOM_EVENTS_PER_S, burst=3))

    def begun_after(self, at_ns: int) -> bool:
        """Whether the life that is watched began only then, so that what is told of `at_ns` was of an earlier one."""
        return self.alive and self.facts is not None and (self.facts.started_ns or 0) > at_ns

    def live_execs(self) -> list[str]:
        """Execs without an end."""
        return [x.exec_id for x in self.execs.values() if x.ended is None]

    def recent_execs(self) -> list[KnownExec]:
        """Execs that run now or ended within the last second."""
        since_ns = time.monotonic_ns() - _RECENT_NS
        return [
            KnownExec(exec_id=x.exec_id, pid=None if x.facts is None else x.facts.pid, settled=x.settled)
            for x in self.execs.values()
            if x.started_ns is not None and (x.ended_mono_ns is None or x.ended_mono_ns >= since_ns)
        ]

    def first_pids(self) -> set[int]:
        """Host pids of its first process and of the first process of each exec, as far as they are known."""
        known = {x.facts.pid for x in self.execs.values() if x.facts is not None}
        known.add(None if self.facts is None else self.facts.init_pid)
        return {pid for pid in known if pid is not None}


def container_seen(facts: ContainerFacts, *, join: str | None, role: str = "main") -> ContainerSeen:
    """What the engine says of a container, before its cgroup was looked at."""
    return ContainerSeen(
        container_id=facts.id,
        name=facts.name,
        image=facts.image,
        image_digest=facts.image_digest,
        role="service" if role == "service" else "main",
        labels=dict(facts.labels),
        init_pid=facts.init_pid,
        memory_limit=facts.memory_limit,
        memory_reservation=facts.memory_reservation,
        memory_swap_limit=facts.memory_swap_limit,
        oom_kill_disabled=facts.oom_kill_disabled or None,
        cpu_limit=facts.cpu_limit,
        pids_limit=facts.pids_limit,
        tmpfs=list(facts.tmpfs),
        started_wall_ns=facts.started_ns,
        network_mode=facts.network_mode,
        restarts=facts.restarts,
        own_pid_namespace=facts.own_pid_namespace,
        trial_mark=facts.trial_in_env or facts.labels.get(TRIAL_LABEL),
        join=join,
    )
