"""What the observer asks of the machine, and how it writes a file: small things that no other room needs.

In: paths.  Out: facts, None where the system does not tell.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path


def start_ticks(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Start time of a process in clock ticks since boot, which with the boot id tells a pid from its reuse."""
    try:
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


@functools.cache
def cpu_model(path: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's name as the kernel gives it."""
    try:
        with path.open() as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        return None
    return None


def write_whole(path: Path, content: bytes) -> None:
    """Write beside, then rename, so that a reader never sees half a record.

    A link is followed to its file, never replaced, and what is no regular file (a pipe, a device) is written as it is:
    renaming over `/dev/stdout` would take it away from the whole machine.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
