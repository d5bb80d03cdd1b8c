"""Which process listens behind a unix socket: how a restart of the engine is told from a stream that broke.

In: a connected socket.  Out: pid and start time, or None: behind socket activation the listener is the init system,
and an engine in another pid namespace or on another host shows no pid.
**Source:** unix(7), SO_PEERCRED of a connected stream socket: the credentials at the time of listen(2); proc(5), stat.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CREDENTIALS: Final = struct.Struct("=iII")
_INIT: Final = 1
_STARTED_FIELD: Final = 19
"""Of /proc/PID/stat, counted behind the closing parenthesis: `starttime`, ticks since boot."""


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """Two of them are the same process if both fields are equal."""

    pid: int
    started_ticks: int


def listening_process(connected: socket.socket, *, proc: Path = Path("/proc")) -> EngineProcess | None:
    """Who called listen(2), if that process still lives and is no init system."""
    try:
        raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid: int = _CREDENTIALS.unpack(raw)[0]
        if pid <= _INIT:
            return None
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
        return EngineProcess(pid, int(stat.rpartition(")")[2].split()[_STARTED_FIELD]))
    except (OSError, ValueError, IndexError):
        return None
