"""Who is whose parent: a map of the processes of watched cgroups, kept after they died.

In: `cgroup.procs` files and /proc/PID/stat.  Out: the chain from a process up to the first one of its exec.
The first parent seen is kept, because orphans are handed to PID 1.  It is scanned at 10 Hz while execs live and at
every ring of a doorbell, when a victim still has about a millisecond to live; a process that was born and gone between
two scans is unknown, and nothing is guessed for it.  Pids are those of our own pid namespace.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.collectors.parse.proc import parse_stat

_MAX_KNOWN: Final = 20_000
_MAX_NEW_PER_SCAN: Final = 500
_MAX_DEPTH: Final = 64
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
        """(start in seconds since boot, number of threads) of each process of a cgroup now; None when it is gone."""
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
            found.append((line.start_ticks / TICKS_PER_S, line.threads))
        return found
