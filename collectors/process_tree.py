"""Who is whose parent: a map of the processes of watched cgroups, kept after they died.

In: `cgroup.procs` files and /proc/PID/stat.  Out: the chain from a process up to the first one of its exec.
The first parent seen is kept, because orphans are handed to PID 1.  It is scanned at 10 Hz while execs live and at
every ring of a doorbell, when a victim still has about a millisecond to live; a process that was born and gone between
two scans is unknown, and nothing is guessed for it.  Pids are those of our own pid namespace.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.collectors.parse.proc import ProcessLine, parse_stat

_MAX_KNOWN: Final = 20_000
_MAX_NEW_PER_SCAN: Final = 500
_MAX_DEPTH: Final = 64
_MOST_THREADS: Final = 64
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
"""Of `start_ticks`: since boot, the time in which the machine was suspended counted."""


@dataclass(slots=True)
class Seen:
    """A process as first seen; `comm` is the newest name (a fork is renamed by its exec)."""

    pid: int
    comm: str
    ppid: int
    start_ticks: int
    directory: Path | None = None
    """The cgroup in which it was last seen."""


class ProcessTree:
    """Bounded; the oldest entries go first."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._known: OrderedDict[int, Seen] = OrderedDict()
        self._alive: dict[Path, frozenset[int]] = {}

    def scan(self, directory: Path) -> int:
        """Look at the processes of a cgroup directory; gives how many are in it (0 when it is gone)."""
        try:
            raw = (directory / "cgroup.procs").read_bytes()
        except OSError:
            self._alive.pop(directory, None)
            return 0
        pids = frozenset(int(pid) for pid in raw.split())
        fresh = pids - self._alive.get(directory, frozenset())
        if len(fresh) > _MAX_NEW_PER_SCAN:
            # Somebody else's big cgroup; the newest pids are the likeliest to be ours.
            fresh = frozenset(sorted(fresh)[-_MAX_NEW_PER_SCAN:])
        for pid in fresh:
            seen = self.look(pid)
            if seen is not None:
                seen.directory = directory
        self._alive[directory] = pids
        return len(pids)

    def alive(self, directory: Path) -> frozenset[int]:
        """Who was in a cgroup directory at its newest scan."""
        return self._alive.get(directory, frozenset())

    def forget(self, directory: Path) -> None:
        """A cgroup is gone; its processes stay known."""
        self._alive.pop(directory, None)

    def look(self, pid: int) -> Seen | None:
        """Read one process now; an already known one keeps its first parent."""
        try:
            line = parse_stat((self._proc / str(pid) / "stat").read_bytes())
        except (OSError, ValueError):
            return self._known.get(pid)
        known = self._known.get(pid)
        if known is not None and known.start_ticks == line.start_ticks:
            known.comm = line.comm
            return known
        seen = Seen(pid=line.pid, comm=line.comm, ppid=line.ppid, start_ticks=line.start_ticks)
        self._known[pid] = seen
        self._known.move_to_end(pid)
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return seen

    def chain(self, pid: int) -> list[Seen]:
        """The process and its parents, nearest first, as far as they were seen; empty when it never was."""
        out: list[Seen] = []
        at = self._known.get(pid)
        while at is not None and len(out) < _MAX_DEPTH:
            out.append(at)
            if at.ppid == 0 or any(seen.pid == at.ppid for seen in out):
                break
            at = self._known.get(at.ppid) or self.look(at.ppid)
        for seen in out[1:]:
            self.look(seen.pid)
        return out

    def directory_of(self, pid: int) -> Path | None:
        """The watched cgroup in which the process was seen."""
        seen = self._known.get(pid)
        return None if seen is None else seen.directory

    def descends_from(self, pid: int, ancestor: int) -> bool | None:
        """Whether it does; None when the process was never seen."""
        chain = self.chain(pid)
        if not chain:
            return True if pid == ancestor else None
        return any(seen.pid == ancestor for seen in chain)

    def outsiders(self, directory: Path, family: int) -> int:
        """How many processes of a cgroup do not descend from `family`."""
        self.scan(directory)
        pids = self._alive.get(directory, frozenset())
        return sum(1 for pid in pids if self.descends_from(pid, family) is False)

    def census(self, directory: Path) -> list[tuple[float, int]] | None:
        """(start in seconds since boot, number of tasks) of the processes of a cgroup and of their threads now; None
        when it is gone.  A thread has a start of its own: a server that was there before may be made to start many."""
        try:
            pids = (directory / "cgroup.procs").read_bytes().split()
        except OSError:
            return None
        found: list[tuple[float, int]] = []
        for pid in pids[:_MAX_KNOWN]:
            try:
                line = parse_stat((self._proc / pid.decode() / "stat").read_bytes())
            except (OSError, ValueError):
                continue
            if line.threads > 1:
                found.extend(self._threads(pid.decode(), line))
            else:
                found.append((line.start_ticks / TICKS_PER_S, line.threads))
        return found

    def _threads(self, pid: str, line: ProcessLine) -> list[tuple[float, int]]:
        """Of a process with very many threads some stand for those beside them: ids are given in order of time."""
        folder = self._proc / pid / "task"
        try:
            known = sorted(int(name) for name in os.listdir(folder))
        except (OSError, ValueError):
            known = []
        starts: list[int] = []
        shown = known[:: max(1, -(-len(known) // _MOST_THREADS))]
        for tid in shown:
            with contextlib.suppress(OSError, ValueError):
                starts.append(parse_stat((folder / str(tid) / "stat").read_bytes()).start_ticks)
        if not starts:
            return [(line.start_ticks / TICKS_PER_S, line.threads)]
        each, over = divmod(line.threads, len(starts))
        return [(ticks / TICKS_PER_S, each + (n < over)) for n, ticks in enumerate(starts)]
