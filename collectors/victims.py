"""Joins a victim of the OOM killer to its container, its exec and its parents.

In: `VictimRecord`s of the kernel log, the process tree, what is known of containers and execs.  Out: `kernel.oom_kill`.
The container is found by the victim's cgroup path, which holds the id, or, where the kernel left that line out, by
the cgroup in which the victim was seen; the exec by walking up from the victim to the exec's first process.  Where that
fails and exactly one exec ran, it is named as `only_live_exec`; several: none is.
A record waits a moment for the engine to tell the exec's pid; its times are the kernel's, whenever it is written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from fairtrial.collectors.kernel_log import VictimRecord
from fairtrial.collectors.process_tree import TICKS_PER_S, ProcessTree, Seen
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import KernelOomKill, Subject
from fairtrial.middleware.core.records import Victim
from fairtrial.middleware.core.sink import Source

OWN: Final = "own"
_WAIT_STEP_S: Final = 0.02
_WAITS: Final = 25
_LONG_WAITS: Final = 500
"""An engine that starts many containers at once may take seconds to say whose one is."""
_COMMS: Final = 8
_TWICE_NS: Final = 1_000_000_000

ExecJoin = Literal["process_tree", "only_live_exec", "inferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownExec:
    """An exec as far as it is known; `alive` at the time of asking or a moment before."""

    exec_id: str
    pid: int | None
    settled: bool


class Context(Protocol):
    """What the join asks for."""

    def container_of(self, memcg: str | None) -> str | None:
        """The watched container (or "own") whose memory cgroup this is."""
        ...

    def container_in(self, directory: Path) -> str | None:
        """The watched container (or "own") whose cgroup directory this is."""
        ...

    def container_of_pids(self, pids: list[int]) -> str | None:
        """The container of ours one of whose known first processes is among these."""
        ...

    def undecided(self) -> bool:
        """Whether it is still being judged of some container if it is ours."""
        ...

    def init_pid_of(self, container_id: str) -> int | None:
        """Its first process."""
        ...

    def execs_of(self, container_id: str) -> list[KnownExec]:
        """Execs that run now or ended a moment ago."""
        ...

    def child_pid(self) -> int | None:
        """The command under test."""
        ...


class VictimJoiner:
    """Writes one observation per victim."""

    def __init__(self, source: Source, *, trial_id: str, tree: ProcessTree, context: Context) -> None:
        self._source = source
        self._trial_id = trial_id
        self._tree = tree
        self._context = context
        self._waiting: dict[asyncio.TimerHandle, tuple[VictimRecord, str | None]] = {}
        self._newest: tuple[int, int] | None = None
        self.joined: dict[str, list[int]] = {}
        """container id -> pids of its victims"""
        self.seen = 0
        self.elsewhere = 0
        """Victims that are none of ours."""

    @property
    def unplaced(self) -> int:
        """Victims whose container is still being asked for."""
        return sum(1 for _, container_id in self._waiting.values() if container_id is None)

    @property
    def pending(self) -> int:
        """Victims whose container or exec is still being asked for."""
        return len(self._waiting)

    def take(self, record: VictimRecord) -> None:
        """A victim of any cgroup of this node."""
        self.seen += 1
        if record.named:
            # A group kill names its first victim twice, at the beginning and among the members.
            before, self._newest = self._newest, (record.killed.pid, record.mono_ns)
            if before is not None and before[0] == record.killed.pid and record.mono_ns - before[1] < _TWICE_NS:
                return
        self._settle(record, None, 0)

    def _place(self, record: VictimRecord) -> str | None:
        """By the kernel's word if it names this process, else by where the process was seen, else by its parents."""
        pid = record.killed.pid
        memcg = None if record.verdict is None else record.verdict.task_memcg
        if record.named:
            return self._context.container_of(memcg) or self._ours(pid)
        directory = self._tree.directory_of(pid)
        found = None if directory is None else self._context.container_in(directory)
        if found is None:
            found = self._context.container_of_pids([pid, *(seen.pid for seen in self._tree.chain(pid))])
        return found or self._context.container_of(memcg) or self._ours(pid)

    def _ours(self, pid: int) -> str | None:
        child = self._context.child_pid()
        return OWN if child is not None and self._tree.descends_from(pid, child) else None

    def _settle(self, record: VictimRecord, container_id: str | None, waited: int) -> None:
        if container_id is None:
            container_id = self._place(record)
            if container_id is not None:
                self.joined.setdefault(container_id, []).append(record.killed.pid)
                waited = 0
        if waited < (_LONG_WAITS if container_id is None else _WAITS) and self._early(container_id):
            loop = asyncio.get_running_loop()
            handle: asyncio.TimerHandle | None = None

            def again() -> None:
                if handle is not None:
                    self._waiting.pop(handle, None)
                self._settle(record, container_id, waited + 1)

            handle = loop.call_later(_WAIT_STEP_S, again)
            self._waiting[handle] = (record, container_id)
            return
        if container_id is None:
            self.elsewhere += 1
        self._write(record, container_id)

    def _early(self, container_id: str | None) -> bool:
        """Whether the engine still owes an answer that could place this victim."""
        if container_id is None:
            return self._context.undecided()
        return any(not known.settled for known in self._context.execs_of(container_id))

    def _write(self, record: VictimRecord, container_id: str | None) -> None:
        killed, verdict = record.killed, record.verdict
        chain = self._tree.chain(killed.pid)
        exec_id: str | None = None
        join: ExecJoin | None = None
        role: str | None = None
        if container_id is not None:
            exec_id, join, role = self._exec(killed.pid, container_id, [seen.pid for seen in chain])
        self._source.emit(
            KernelOomKill(
                victim=Victim(comm=killed.comm, pid=killed.pid, rss=killed.rss_bytes, role=role),
                container_id=container_id,
                exec_id=exec_id,
                exec_join=join,
                constraint=None if verdict is None else verdict.constraint,
                oom_memcg=None if verdict is None else verdict.oom_memcg,
                task_memcg=None if verdict is None else verdict.task_memcg,
                parents=[seen.comm for seen in chain[1 : 1 + _COMMS]],
                lived_s=_lived_s(chain[0], record.mono_ns) if chain else None,
            ),
            subject=Subject(trial=self._trial_id, container_id=container_id, exec=exec_id, pid=killed.pid),
            wall_ns=record.wall_ns,
            mono_ns=record.mono_ns,
            uncertainty_s=record.uncertainty_s,
        )

    def _exec(self, pid: int, container_id: str, chain: list[int]) -> tuple[str | None, ExecJoin | None, str | None]:
        if container_id == OWN:
            child = self._context.child_pid()
            if pid == child:
                return None, None, "command"
            inside = None if child is None else self._tree.descends_from(pid, child)
            return None, None, None if inside is None else "descendant" if inside else "outside"
        init = self._context.init_pid_of(container_id)
        if pid == init:
            return None, None, "init"
        execs = self._context.execs_of(container_id)
        for known in execs:
            if known.pid is not None and known.pid == pid:
                return known.exec_id, "process_tree", "exec"
        for known in execs:
            if known.pid is not None and known.pid in chain:
                return known.exec_id, "process_tree", "tool"
        if init is not None and init in chain:
            return None, None, "main"
        if len(execs) == 1:
            return execs[0].exec_id, "only_live_exec", None
        return None, None, None

    def close(self) -> None:
        """Write what still waits, as far as it is known."""
        waiting = dict(self._waiting)
        self._waiting.clear()
        for handle, (record, container_id) in waiting.items():
            handle.cancel()
            self._write(record, container_id)


def _lived_s(seen: Seen, killed_mono_ns: int) -> float | None:
    """None for a process that began after the kill: its pid was given away again."""
    lived_s = (killed_mono_ns + clock.suspended_ns()) / 1e9 - seen.start_ticks / TICKS_PER_S
    return round(lived_s, 2) if lived_s >= 0 else None
