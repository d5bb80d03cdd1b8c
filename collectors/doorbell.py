"""Doorbells of the kernel: a wake-up within milliseconds when memory runs out in a cgroup, or another limit is hit.

In: the directory or an open file of a cgroup.  Out: a call on the event loop for each ring.  A ring is a reason to
*read*, never a count: one kill rings several times, and v1 rings before the kill and once more when the cgroup goes.

v1: an eventfd registered with `cgroup.event_control`.  v2: EPOLLPRI on `memory.events`, which asyncio's selectors do
not know, so all such files share one epoll whose own descriptor is watched.  `pids.events` rings in v2 (in v1 it can be
watched and stays silent: refused forks are seen by sampling there).
PSI: a trigger written into a `*.pressure` file rings at most once a window in which processes stood still for longer
than a threshold; hybrid hosts have these files too.  It needs CAP_SYS_RESOURCE, or Linux 6.4 and a longer window.
Asking whether a trigger fired takes the news away, and the loop's own poll asks through our epoll: so which one it was
is lost, and each wake-up rings all of them.
**Source:** kernel Documentation/admin-guide/cgroup-v1/memory.rst section 9, cgroup-v2.rst "memory.events"; kernfs poll
stays ready until the file was read through its own offset (pread does not re-arm it); accounting/psi.rst.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

Ring = Callable[[], None]

_READ_BYTES: Final = 4096
STALL_US: Final = 100_000
WINDOW_US: Final = 1_000_000
_PLAIN_WINDOW_US: Final = 2_000_000


class Bell(Protocol):
    """An armed doorbell."""

    def close(self) -> None:
        """Disarm it; safe to call twice."""
        ...


class EventfdBell:
    """v1: rings when the OOM killer is about to act in the cgroup, and when the cgroup is removed."""

    def __init__(self, directory: Path, ring: Ring, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError when `cgroup.event_control` cannot be written (it needs root)."""
        self._loop = loop
        self._ring = ring
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            watched = os.open(directory / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                control = os.open(directory / "cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(control, f"{self._fd} {watched}".encode())
                finally:
                    os.close(control)
            finally:
                os.close(watched)
        except OSError:
            os.close(self._fd)
            self._fd = -1
            raise
        loop.add_reader(self._fd, self._on_readable)

    def _on_readable(self) -> None:
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return
        self._ring()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


class PollBell:
    """v2: one file of a `PollBells`."""

    def __init__(self, owner: PollBells, fd: int) -> None:
        self._owner = owner
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            self._owner.drop(self._fd)
            os.close(self._fd)
            self._fd = -1


class PollBells:
    """v2: all watched `memory.events` files behind one descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None
        self._rings: dict[int, Ring] = {}
        self._pressed: set[int] = set()

    def arm(self, file: Path, ring: Ring) -> PollBell:
        """Raises OSError when the file cannot be polled (EPERM: it is no cgroup file)."""
        return self._register(os.open(file, os.O_RDONLY | os.O_CLOEXEC), ring)

    def arm_pressure(self, file: Path, ring: Ring) -> PollBell:
        """Rings while processes of the cgroup stand still for more than `STALL_US` of `WINDOW_US`.

        Raises OSError when the kernel takes no trigger (no such file, no PSI, no privilege).
        """
        fd = os.open(file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Nothing is written into what is no kernel file: an ordinary one cannot be polled.
            self._poller.register(fd, select.EPOLLPRI)
            self._poller.unregister(fd)
            try:
                os.write(fd, f"some {STALL_US} {WINDOW_US}\0".encode())
            except OSError:
                # Without CAP_SYS_RESOURCE newer kernels take windows of whole two seconds only.
                os.write(fd, f"some {STALL_US} {_PLAIN_WINDOW_US}\0".encode())
        except OSError:
            os.close(fd)
            raise
        bell = self._register(fd, ring)
        self._pressed.add(fd)
        return bell

    @property
    def _poller(self) -> select.epoll:
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._on_readable)
        return self._epoll

    def _register(self, fd: int, ring: Ring) -> PollBell:
        try:
            os.read(fd, _READ_BYTES)
            self._poller.register(fd, select.EPOLLPRI | select.EPOLLERR)
        except OSError:
            os.close(fd)
            raise
        self._rings[fd] = ring
        return PollBell(self, fd)

    def drop(self, fd: int) -> None:
        """Stop watching a descriptor; the bell closes it."""
        self._rings.pop(fd, None)
        self._pressed.discard(fd)
        if self._epoll is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass  # its cgroup is gone and the kernel dropped it first

    def _on_readable(self) -> None:
        if self._epoll is None:
            return
        for fd, _ in self._epoll.poll(0):
            ring = self._rings.get(fd)
            if ring is None:
                continue
            try:
                os.lseek(fd, 0, os.SEEK_SET)
                os.read(fd, _READ_BYTES)  # re-arms
            except OSError:
                self.drop(fd)  # removed: it would ring for ever
            if fd not in self._pressed:
                ring()
        for fd in tuple(self._pressed):
            pressed = self._rings.get(fd)
            if pressed is not None:
                pressed()

    def close(self) -> None:
        """Disarm what is left."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._rings.clear()
