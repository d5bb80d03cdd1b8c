"""Trials of one machine that share a container engine know of each other: who is there, and how many.

In: the engine's address and a trial's id.  Out: a socket that is held as long as the trial runs, and a count; the same
for a container that one of them made.  An abstract unix socket leaves no file behind, and the kernel takes it away with
its process.  The *run* process binds a trial's before it starts the command, so whoever sees a container of another
trial can also see that trial.

What it cannot see: a trial in another network namespace, or one that reaches the engine by another address.  A stranger
that fakes a name only makes us more careful.  **Source:** unix(7), abstract sockets; proc(5), /proc/net/unix.
"""

from __future__ import annotations

import os
import socket
import zlib
from pathlib import Path
from typing import Final

_PREFIX: Final = "fairtrial-run"
_CLAIM_PREFIX: Final = "fairtrial-container"


def _group(engine: str) -> str:
    scheme, _, path = engine.partition("://")
    same = f"unix://{os.path.realpath(path)}" if scheme == "unix" else engine
    # No digest of hashlib: that would load OpenSSL, 3 MB, and two engines of one name only make us more careful.
    return f"{_PREFIX}/{zlib.crc32(same.encode()):08x}{zlib.adler32(same.encode()):08x}/"


def _claims(engine: str) -> str:
    return f"{_CLAIM_PREFIX}{_group(engine).removeprefix(_PREFIX)}"


def announce(engine: str, trial: str) -> socket.socket | None:
    """Say that a trial uses this engine, until the socket is closed; None when that cannot be said."""
    return _hold(f"{_group(engine)}{trial}")


def claim(engine: str, container_id: str) -> socket.socket | None:
    """Say that a container was made by this trial, until the socket is closed; None when that cannot be said."""
    return _hold(f"{_claims(engine)}{container_id}")


def _hold(name: str) -> socket.socket | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.bind(f"\0{name}")
    except OSError:
        sock.close()
        return None
    return sock


def is_claimed(engine: str, container_id: str, *, proc: Path = Path("/proc")) -> bool:
    """Whether some trial has said that it made this container; False where /proc does not tell."""
    try:
        return f"@{_claims(engine)}{container_id}\n".encode() in (proc / "self/net/unix").read_bytes()
    except OSError:
        return False


def others(engine: str, trial: str, *, proc: Path = Path("/proc")) -> int:
    """How many other trials use this engine now; 0 where /proc does not tell."""
    try:
        raw = (proc / "self/net/unix").read_bytes()
    except OSError:
        return 0
    group = f"@{_group(engine)}"
    names = {os.fsdecode(line.rpartition(b" ")[2]) for line in raw.splitlines()}
    return sum(1 for name in names if name.startswith(group) and name != f"{group}{trial}")
