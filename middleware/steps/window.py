"""Windows: joins readings, kills and events of containers to steps.

In: the placed observations of a trial and the start times of its steps.  Out: one `ContainerUse` per container and
step. What this module does not do: decide which step a call opens (`opened.py`) or what a kill means
(`attribution/`).

Counters are cumulative, so a step's share is the difference of the readings at its two edges.  The reading that a
collector takes at a call's start arrives a little after it: the first such reading inside a step is the step's own
opening edge, and the closing edge of the one before.  A share is None when an edge was not readable; a counter that
fell (the container was restarted) counts from its new zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from fairtrial.middleware.core.observations import (
    CgroupReading,
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    ExecEnded,
    ExecStarted,
    HostCounters,
    KernelOomKill,
    OomKill,
)
from fairtrial.middleware.core.records import ContainerUse, PeakKind, PhaseName, Victim
from fairtrial.middleware.steps.placed import Placed

AGENT_COMMS: Final = frozenset({"claude", "codex", "opencode", "gemini", "qwen", "aider", "mini", "goose"})
SHELL_COMMS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "busybox", "timeout"})

OPENING_EDGE_NS: Final = 2_000_000_000
"""A `call_started` reading this long after a step's start at most is that step's opening edge."""


_UNREAD: Final = CgroupReading(container_id="")
_NEWBORN: Final = CgroupReading(
    container_id="",
    memory_max_hits=0,
    memory_high_hits=0,
    oom=0,
    oom_kill=0,
    oom_group_kill=0,
    cpu_used=0.0,
    cpu_throttled=0.0,
    psi_cpu=0.0,
    psi_memory=0.0,
    psi_io=0.0,
    pids_max_hits=0,
    disk_written=0,
    egress_bytes=0,
    ingress_bytes=0,
    tcp_retrans=0,
    tcp_attempt_fails=0,
)


_CONTAINER_VALUES: Final = (
    ContainerSeen,
    ContainerEvent,
    ContainerGone,
    ExecStarted,
    ExecEnded,
    CgroupReading,
    OomKill,
    KernelOomKill,
)
_CONTAINER_TYPES: Final = frozenset[type](_CONTAINER_VALUES)
"""Asked before `isinstance`: one look-up of the type is several times cheaper than a union of eight."""


@dataclass(slots=True)
class ContainerFacts:
    """All that was seen of one container, each list in order of time."""

    id: str
    seen: ContainerSeen | None = None
    seen_ns: int | None = None
    gone_ns: int | None = None
    readings: list[tuple[int, CgroupReading]] = field(default_factory=list[tuple[int, CgroupReading]])
    reading_times: list[int] = field(default_factory=list[int])
    by_step: dict[int | None, list[Placed]] = field(default_factory=dict[int | None, list[Placed]])
    exec_pids: dict[str, int] = field(default_factory=dict[str, int])
    kills_told: bool = False


def container_facts(placed: Iterable[Placed]) -> dict[str, ContainerFacts]:
    """Group observations by container; the key "own" is the command's own cgroup."""
    found: dict[str, ContainerFacts] = {}
    for one in placed:
        value, at_ns = one.value, one.observation.wall_ns
        if type(value) not in _CONTAINER_TYPES or not isinstance(value, _CONTAINER_VALUES):
            continue
        if value.container_id is None:
            continue
        facts = found.get(value.container_id)
        if facts is None:
            facts = found[value.container_id] = ContainerFacts(value.container_id)
        if isinstance(value, CgroupReading):
            if one.phase is PhaseName.VERIFY:
                continue  # what the verifier used is no step's
            facts.readings.append((at_ns, value))
            facts.reading_times.append(at_ns)
            continue
        if isinstance(value, ContainerSeen):
            facts.seen, facts.seen_ns = value, facts.seen_ns or at_ns
            if facts.gone_ns is not None and (value.started_wall_ns or 0) > facts.gone_ns:
                facts.gone_ns = None  # it lives again
        elif isinstance(value, OomKill):
            facts.kills_told = True
        elif isinstance(value, ContainerGone):
            begun = 0 if facts.seen is None else facts.seen.started_wall_ns or 0
            facts.gone_ns = at_ns if begun <= at_ns else None
        elif isinstance(value, ExecStarted) and value.pid is not None:
            facts.exec_pids[value.exec_id] = value.pid
        facts.by_step.setdefault(one.step, []).append(one)
    return found


class Windows:
    """Answers what each container did in each step; `starts` are the steps' start times, ns, ascending."""

    def __init__(self, starts: Sequence[int], containers: dict[str, ContainerFacts], placed: Iterable[Placed]) -> None:
        self._starts = starts
        self._containers = [c for c in containers.values() if c.seen or c.readings or c.by_step]
        self._edges = {c.id: [_opening_edge(c, starts, i) for i in range(len(starts))] for c in self._containers}
        self._host = [(p.observation.wall_ns, p.value) for p in placed if isinstance(p.value, HostCounters)]
        self._host_times = [at for at, _ in self._host]

    def uses(self, step: int) -> list[ContainerUse]:
        """One row for each container that lived during the step (index from 1)."""
        begin = self._starts[step - 1]
        end = self._starts[step] if step < len(self._starts) else None
        rows: list[ContainerUse] = []
        for container in self._containers:
            born = container.seen_ns if container.seen_ns is not None else _first_time(container)
            if end is not None and born is not None and born >= end and step not in container.by_step:
                continue
            if container.gone_ns is not None and container.gone_ns < begin:
                continue
            rows.append(self._use(container, step, begin, end))
        return rows

    def _use(self, container: ContainerFacts, step: int, begin: int, end: int | None) -> ContainerUse:
        edges = self._edges[container.id]
        first = edges[step - 1]
        last = edges[step] if step < len(edges) else len(container.readings) - 1
        opening = -1 if first is None else first
        closing = -1 if last is None else last
        inside = [reading for _, reading in container.readings[opening + 1 : closing + 1]]
        before = container.readings[opening][1] if opening >= 0 else _baseline(container, inside, begin)
        after = inside[-1] if inside else _UNREAD
        events = container.by_step.get(step, [])
        peak, kind = _peak(*_in_one_cgroup(container, before, inside))
        seen = container.seen
        return ContainerUse(
            id=container.id,
            name=seen.name if seen else None,
            role=seen.role if seen else ("own" if container.id == "own" else "main"),
            memory_peak=peak,
            memory_peak_kind=kind,
            memory_limit=_last(inside, "memory_limit") or (seen.memory_limit if seen else None),
            memory_anon=_last(inside, "memory_anon"),
            memory_shmem=_last(inside, "memory_shmem"),
            memory_file=_last(inside, "memory_file"),
            swap_peak=max((r.swap_current for r in inside if r.swap_current is not None), default=None),
            memory_max_hits=_delta(before.memory_max_hits, after.memory_max_hits),
            memory_high_hits=_delta(before.memory_high_hits, after.memory_high_hits),
            memory_ooms=_delta(before.oom, after.oom),
            oom_kills=_kills(container, before, after, events),
            oom_group_kill=_group_kills(before, after, events),
            oom_victims=_victims(container, events),
            cpu_used=_spent(before.cpu_used, after.cpu_used),
            cpu_throttled=_spent(before.cpu_throttled, after.cpu_throttled),
            psi_cpu=_spent(before.psi_cpu, after.psi_cpu),
            psi_memory=_spent(before.psi_memory, after.psi_memory),
            psi_io=_spent(before.psi_io, after.psi_io),
            steal=self._steal(begin, end),
            pids_max_hits=_delta(before.pids_max_hits, after.pids_max_hits),
            disk_written=_delta(before.disk_written, after.disk_written),
            egress_bytes=_delta(before.egress_bytes, after.egress_bytes),
            ingress_bytes=_delta(before.ingress_bytes, after.ingress_bytes),
            egress_rate_max=max((r.egress_rate_max for r in inside if r.egress_rate_max is not None), default=None),
            tcp_retrans=_delta(before.tcp_retrans, after.tcp_retrans),
            tcp_attempt_fails=_delta(before.tcp_attempt_fails, after.tcp_attempt_fails),
            exit_code=_exit_code(events),
            ended_by=next((e.value.ended_by for e in events if isinstance(e.value, ContainerGone)), None),
        )

    def _steal(self, begin: int, end: int | None) -> float | None:
        first = bisect_right(self._host_times, begin) - 1
        last = len(self._host) - 1 if end is None else bisect_right(self._host_times, end) - 1
        if first < 0 or last <= first:
            return None
        return _spent(self._host[first][1].steal_s, self._host[last][1].steal_s)


def _first_time(container: ContainerFacts) -> int | None:
    times = [p.at_ns for events in container.by_step.values() for p in events[:1]]
    if container.reading_times:
        times.append(container.reading_times[0])
    return min(times, default=None)


def _opening_edge(container: ContainerFacts, starts: Sequence[int], step: int) -> int | None:
    """Index of the reading that stands for the container's state when the step began; None when there was none."""
    begin = starts[step]
    end = starts[step + 1] if step + 1 < len(starts) else None
    times = container.reading_times
    i = bisect_right(times, begin)
    limit = begin + OPENING_EDGE_NS if end is None else min(end, begin + OPENING_EDGE_NS)
    j = i
    while j < len(times) and times[j] < limit:
        edge = container.readings[j][1].edge
        if edge == "call_started":
            return j
        if edge == "call_ended":
            break
        j += 1
    return i - 1 if i > 0 else None


def _baseline(container: ContainerFacts, inside: list[CgroupReading], begin: int) -> CgroupReading:
    """What to count from when nothing was read before the step: zero for a container born in it, else its first
    reading."""
    started = container.seen.started_wall_ns if container.seen is not None else None
    if container.id != "own" and started is not None and started >= begin:
        return _NEWBORN
    return inside[0] if inside else _UNREAD


def _delta(before: int | None, after: int | None) -> int | None:
    if before is None or after is None:
        return None
    return after - before if after >= before else after


def _spent(before_s: float | None, after_s: float | None) -> float | None:
    if before_s is None or after_s is None:
        return None
    return round(after_s - before_s if after_s >= before_s else after_s, 6)


def _last(
    readings: list[CgroupReading],
    name: Literal["memory_limit", "memory_anon", "memory_shmem", "memory_file"],
) -> int | None:
    for reading in reversed(readings):
        value = getattr(reading, name)
        if isinstance(value, int):
            return value
    return None


def _in_one_cgroup(
    container: ContainerFacts, before: CgroupReading, inside: list[CgroupReading]
) -> tuple[CgroupReading, list[CgroupReading]]:
    """The command may move out of the cgroup in which it was started: then only what was read of the last one counts,
    told by its limit, for the peak of the one beside the limit of the other is neither's."""
    limit = _last(inside, "memory_limit")
    if container.id != "own" or limit is None:
        return before, inside
    return (
        before if before.memory_limit == limit else _UNREAD,
        [reading for reading in inside if reading.memory_limit == limit],
    )


def _peak(before: CgroupReading, inside: list[CgroupReading]) -> tuple[int | None, PeakKind | None]:
    """The highest use seen and how it is known: best first exact, risen in this step, an upper bound, sampled."""
    by_kind: dict[str, int] = {}
    previous = before.memory_peak
    for reading in inside:
        peak, kind = reading.memory_peak, reading.memory_peak_kind
        if peak is not None and kind is not None:
            if kind == "at_most" and previous is not None and peak > previous:
                kind = "rose_in_step"
            by_kind[kind] = max(by_kind.get(kind, 0), peak)
            previous = peak
        if reading.memory_sampled_peak is not None:
            by_kind["sampled"] = max(by_kind.get("sampled", 0), reading.memory_sampled_peak)
    order: tuple[PeakKind, ...] = ("shared", "exact", "rose_in_step", "at_most", "sampled")
    for kind in order:
        if kind in by_kind:
            return by_kind[kind], kind
    return None, None


def _kills(container: ContainerFacts, before: CgroupReading, after: CgroupReading, events: list[Placed]) -> int | None:
    told = sum(e.value.delta for e in events if isinstance(e.value, OomKill))
    if told or container.kills_told:
        # The observation of the kill and the readings come from one counter; the observation is placed more exactly.
        return told if told or after.oom_kill is not None else None
    return _delta(before.oom_kill, after.oom_kill)


def _group_kills(before: CgroupReading, after: CgroupReading, events: list[Placed]) -> int | None:
    told = [e.value.group_delta for e in events if isinstance(e.value, OomKill) and e.value.group_delta is not None]
    if told:
        return sum(told)
    return _delta(before.oom_group_kill, after.oom_group_kill)


def _exit_code(events: list[Placed]) -> int | None:
    for one in reversed(events):
        value = one.value
        if isinstance(value, ContainerGone) and value.exit_code is not None:
            return value.exit_code
        if isinstance(value, ContainerEvent) and value.action == "die" and value.exit_code is not None:
            return value.exit_code
    return None


def _victims(container: ContainerFacts, events: list[Placed]) -> list[Victim]:
    victims: list[Victim] = []
    for one in events:
        if isinstance(one.value, KernelOomKill):
            victim = one.value.victim
            role = victim.role if victim.role == "outside" else victim_role(container, one.value) or victim.role
            victims.append(Victim(comm=victim.comm, pid=victim.pid, rss=victim.rss, role=role))
    return victims


def victim_role(container: ContainerFacts, kill: KernelOomKill) -> str | None:
    """What the killed process was: agent CLI, tmux, main process, exec shell, tool child, or None.

    The collector's own word (`Victim.role`) says where it stood in the tree of processes, not what it was for.
    Judged by pid where the runtime told it, else by the kernel's `comm`, which a process can set for itself: a role
    suggests and never proves.
    """
    comm, pid = kill.victim.comm or "", kill.victim.pid
    if comm in AGENT_COMMS:
        return "agent CLI"
    if comm.startswith("tmux"):
        return "tmux"
    if pid is not None and container.seen is not None and pid == container.seen.init_pid:
        return "main process"
    if kill.exec_id is not None:
        is_root = pid is not None and container.exec_pids.get(kill.exec_id) == pid
        return "exec shell" if is_root and comm in SHELL_COMMS else "tool child"
    if any(parent in AGENT_COMMS or parent in SHELL_COMMS for parent in kill.parents):
        return "tool child"
    return None
