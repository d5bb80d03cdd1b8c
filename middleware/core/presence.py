"""Trials of one machine that share a container engine know of each other: who is there, and how many.

In: the engine's address and a trial's id.  Out: a socket that is held as long as the trial runs, and a count.  An
abstract unix socket per trial leaves no file behind, and the kernel takes it away with its process.  The *run* process
binds it before it starts the command, so whoever sees a container of another trial can also see that trial.

What it cannot see: a trial in another network namespace, or one that reaches the engine by another address.  A stranger
that fakes a name only makes us more careful.  **Source:** unix(7), abstract sockets; proc(5), /proc/net/unix.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Final

_PREFIX: Final = "fairtrial-run"


def _group(engine: str) -> str:
    scheme, _, path = engine.partition("://")
    same = f"unix://{os.path.realpath(path)}" if scheme == "unix" else engine
    return f"{_PREFIX}/{hashlib.blake2b(same.encode(), digest_size=8).hexdigest()}/"


def announce(engine: str, trial: str) -> socket.socket | None:
    """Say that a trial uses this engine, until the socket is closed; None when that cannot be said."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.bind(f"\0{_group(engine)}{trial}")
    except OSError:
        sock.close()
        return None
    return sock


def others(engine: str, trial: str, *, proc: Path = Path("/proc")) -> int:
    """How many other trials use this engine now; 0 where /proc does not tell."""
    try:
        raw = (proc / "self/net/unix").read_bytes()
    except OSError:
        return 0
    group = f"@{_group(engine)}"
    names = {os.fsdecode(line.rpartition(b" ")[2]) for line in raw.splitlines()}
    return sum(1 for name in names if name.startswith(group) and name != f"{group}{trial}")
