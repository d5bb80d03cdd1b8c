"""Counters of the node that any user may read: all OOM kills since boot, stolen time, pressure, free memory, load.

In: /proc.  Out: `HostCounters` observations at edges.  A zero delta of `oom_kill` in /proc/vmstat proves that no
process of this node was OOM-killed, whatever else could not be watched.  What it does not do: say whose kill it was.
**Source:** kernel Documentation/filesystems/proc.rst, accounting/psi.rst; oom_kill is in vmstat since 4.13.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from fairtrial.collectors.parse.flat import find_flat
from fairtrial.collectors.parse.proc import parse_busy_ticks, parse_load1, parse_mem_available, parse_steal_ticks
from fairtrial.collectors.parse.psi import parse_pressure
from fairtrial.collectors.readings import Edge
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import CoverageChanged, HostCounters
from fairtrial.middleware.core.sink import Source

COVERAGE_SOURCE: Final = "collector.vmstat"
_READ_BYTES: Final = 65536
T = TypeVar("T")


class HostProbe:
    """Holds the files of one node open."""

    def __init__(self, source: Source, proc: Path) -> None:
        self._source = source
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._fds: dict[str, int] = {}
        self._why: dict[str, str] = {}
        for name in ("vmstat", "stat", "meminfo", "loadavg", "pressure/cpu", "pressure/memory", "pressure/io"):
            try:
                self._fds[name] = os.open(proc / name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                self._why[name] = os.strerror(error.errno or 0)

    def _get(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        fd = self._fds.get(name)
        if fd is None:
            return None
        try:
            return parse(os.pread(fd, _READ_BYTES, 0))
        except (OSError, ValueError, IndexError):
            return None

    def oom_kill(self) -> int | None:
        """All OOM kills of the node since boot."""
        return self._get("vmstat", lambda raw: find_flat(raw, b"oom_kill"))

    def begin(self, at_start: int | None, started: clock.Instant) -> None:
        """The first reading, and what can be watched.

        `at_start`: the count that the run process read before it started the command, at `started`; None: now.  A fast
        command may be in its first tool call before this process is up.
        """
        if at_start is None:
            self.edge("baseline")
            self.cover(clock.now())
            return
        counted = HostCounters(edge="baseline", oom_kill=at_start)
        self._source.emit(counted, wall_ns=started.wall_ns, mono_ns=started.mono_ns)
        self.cover(started)

    def cover(self, since: clock.Instant) -> None:
        """Say what can be watched, and since when."""
        seen = self.oom_kill() is not None
        why = None if seen else f"/proc/vmstat: {self._why.get('vmstat', 'it has no oom_kill line')}"
        self._source.emit(
            CoverageChanged(
                source=COVERAGE_SOURCE, families=["memory", "node"], state="on" if seen else "off", why=why
            ),
            wall_ns=since.wall_ns,
            mono_ns=since.mono_ns,
        )

    def edge(self, edge: Edge) -> None:
        """Write one observation; about 50 µs."""
        steal, busy = self._get("stat", parse_steal_ticks), self._get("stat", parse_busy_ticks)
        self._source.emit(
            HostCounters(
                edge=edge,
                oom_kill=self.oom_kill(),
                memory_available=self._get("meminfo", parse_mem_available),
                steal_s=None if steal is None else steal / self._ticks_per_s,
                psi_cpu=self._pressure("pressure/cpu"),
                psi_memory=self._pressure("pressure/memory"),
                psi_io=self._pressure("pressure/io"),
                cpu_busy_s=None if busy is None else busy / self._ticks_per_s,
                load1=self._get("loadavg", parse_load1),
            )
        )

    def _pressure(self, name: str) -> float | None:
        return self._get(name, lambda raw: parse_pressure(raw).some_us / 1e6)

    def close(self) -> None:
        """Safe to call twice."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
