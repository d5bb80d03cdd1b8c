"""Open files of a container's processes against the limit of each.

In: process ids, ten times a second while commands run.  Out: `process.fd_limit`, once per process.  The kernel counts
no EMFILE, so this is sampling: one `stat` per process (its size is the number of open files from Linux 6.2 on; before
that the folder is listed), and the limits of those that have many.  A process that was at its limit for less than a
tenth of a second may be missed.  What a process had open at the model's first reply is kept: a server that was there
before may be made to open more, and its limit be lowered.
**Source:** kernel filesystems/proc.rst (3.2 /proc/<pid>/fd), man getrlimit(2).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fairtrial.collectors.parse.proc import parse_open_files_limit, parse_stat
from fairtrial.middleware.core.observations import FdLimit, Subject
from fairtrial.middleware.core.sink import Source

_MOST_PROCESSES: Final = 64
_FEW: Final = 8
"""So few open files are no process's limit."""
_MOST_TOLD: Final = 1000
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Descriptors:
    """One reader for all containers of a trial."""

    def __init__(self, source: Source, proc: Path, *, trial_id: str) -> None:
        self._source = source
        self._proc = proc
        self._trial_id = trial_id
        self._told: set[tuple[int, int]] = set()
        self._before: dict[tuple[int, int], tuple[int, int | None]] = {}

    def remember(self, pids: Iterable[int]) -> None:
        """The model's first reply has just come: what these have open is not its doing."""
        for pid in sorted(pids)[-_MOST_PROCESSES:]:
            folder = self._proc / str(pid)
            with contextlib.suppress(OSError, ValueError, IndexError):
                key = (pid, parse_stat((folder / "stat").read_bytes()).start_ticks)
                limit = parse_open_files_limit((folder / "limits").read_bytes())
                self._before[key] = (_open_files(folder / "fd"), limit)

    def look(self, container_id: str, pids: Iterable[int], first_reply_s: float | None) -> None:
        """`first_reply_s`: when the first reply of a model had passed, s since boot."""
        for pid in sorted(pids)[-_MOST_PROCESSES:]:
            folder = self._proc / str(pid)
            try:
                open_files = _open_files(folder / "fd")
                if open_files < _FEW:
                    continue
                limit = parse_open_files_limit((folder / "limits").read_bytes())
                if limit is None or open_files < limit:
                    continue
                line = parse_stat((folder / "stat").read_bytes())
            except (OSError, ValueError, IndexError):
                continue  # it is gone, or may not be looked at
            key = (pid, line.start_ticks)
            if key in self._told or len(self._told) >= _MOST_TOLD:
                continue
            self._told.add(key)
            open_before, limit_before = self._before.get(key, (None, None))
            started_s = line.start_ticks / _TICKS_PER_S
            self._source.emit(
                FdLimit(
                    container_id=container_id,
                    pid=pid,
                    comm=line.comm,
                    open_files=open_files,
                    limit=limit,
                    open_before=open_before,
                    limit_before=limit_before,
                    since_first_reply=None if first_reply_s is None else started_s >= first_reply_s,
                ),
                subject=Subject(trial=self._trial_id, container_id=container_id, pid=pid),
            )


def _open_files(folder: Path) -> int:
    size = folder.stat().st_size
    return size if size > 0 else len(os.listdir(folder))
