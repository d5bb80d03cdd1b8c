"""Other processes as the benches see them: on which core they run, and what CPU, memory and descriptors they take.

In: a pid.  Out: figures from /proc, so that nothing is added to what is measured.  The proxy that is measured has one
core to itself; client, upstream, observer and collector share the others.  With one core all share it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ALLOWED: Final = sorted(os.sched_getaffinity(0))
PROXY_CORE: Final = frozenset(_ALLOWED[:1])
OTHER_CORES: Final = frozenset(_ALLOWED[1:] or _ALLOWED)
_QUIET_S: Final = 0.03
_QUIET_SHARE: Final = 0.2


@contextlib.contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """What is started within runs on these cores from its first instruction: children inherit from this thread."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def raise_file_limit() -> None:
    """Hundreds of streams have both their ends among our processes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


def until(claim: Callable[[], object], what: str, deadline_s: float = 30.0) -> None:
    """Poll until the claim holds; `RuntimeError` with `what` after the deadline."""
    end_s = time.monotonic() + deadline_s
    while not claim():
        if time.monotonic() > end_s:
            raise RuntimeError(f"{what} (not within {deadline_s:g} s)")
        time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Process:
    """A living process, by its pid."""

    pid: int

    @property
    def place(self) -> Path:
        """Its folder in /proc."""
        return Path(f"/proc/{self.pid}")

    def alive(self) -> bool:
        """Whether it is there and no zombie."""
        try:
            return (self.place / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def pin(self, cores: frozenset[int]) -> None:
        """Move all its threads; those that they start later follow."""
        for task in (self.place / "task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)

    def cpu_s(self) -> float:
        """CPU seconds of its living threads, of its own and not of its children, in nanoseconds' steps."""
        total_ns = 0
        for task in (self.place / "task").iterdir():
            with contextlib.suppress(OSError):
                total_ns += int((task / "schedstat").read_text().split()[0])
        return total_ns / 1e9

    def rss_mb(self) -> float:
        """Resident megabytes, pages that are shared with other processes included."""
        lines = (self.place / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def threads(self) -> int:
        """How many."""
        return len(list((self.place / "task").iterdir()))

    def descriptors(self) -> list[str]:
        """What its open descriptors lead to, such as `socket:[123]`."""
        found: list[str] = []
        for name in os.listdir(self.place / "fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(self.place / "fd" / name))
        return found

    def sockets(self) -> int:
        """How many of its descriptors are sockets."""
        return sum(1 for target in self.descriptors() if target.startswith("socket:"))

    def children(self) -> list[int]:
        """Pids of its children, whichever thread started them."""
        found: list[int] = []
        for task in (self.place / "task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return found

    def command_line(self) -> list[str]:
        """Its words."""
        return (self.place / "cmdline").read_bytes().decode(errors="replace").split("\0")


def settle(processes: list[Process], deadline_s: float = 20.0) -> bool:
    """Wait until they have nothing left to do, so that none disturbs what is measured next; False: still busy."""
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        before_s = sum(process.cpu_s() for process in processes)
        time.sleep(_QUIET_S)
        if sum(process.cpu_s() for process in processes) - before_s < _QUIET_S * _QUIET_SHARE:
            return True
    return False
