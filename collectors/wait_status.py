"""How the first process of a container ended, by its own wait status: an exit with code 137 and a SIGKILL look the same
to the engine, and only one of them needs somebody outside.

In: a host pid while the process lives; the caller has found it in the container's own cgroup, so it is no other
process.  Out: the signal that ended it, 0 for an exit, None where the kernel does not tell.  A process may hold a pidfd
of any other one; it costs one descriptor per container and no privilege.
**Source:** pidfd_open(2); `PIDFD_GET_INFO` with `PIDFD_INFO_EXIT`, kernel 6.15, include/uapi/linux/pidfd.h.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Final

_SIZE: Final = 64
_EXIT: Final = 1 << 3
_GET_INFO: Final = (3 << 30) | (_SIZE << 16) | (0xFF << 8) | 11
"""_IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info) for its first published size."""
_SHAPE: Final = struct.Struct("=QQ11Ii")
"""mask, cgroupid, eleven ids, exit_code."""
_MOST: Final = 512


class InitWatch:
    """Holds one pidfd per container; at most 512, later ones are not known."""

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}

    def begin(self, container_id: str, pid: int) -> None:
        """Its first process lives; a later life replaces the one before."""
        self._drop(container_id)
        if len(self._fds) >= _MOST:
            return
        try:
            self._fds[container_id] = os.pidfd_open(pid)
        except OSError:
            return  # over already, in another pid namespace, or an old kernel

    def take(self, container_id: str) -> int | None:
        """The signal that ended it, 0 when it exited, None when the kernel does not tell; forgets it."""
        fd = self._fds.get(container_id)
        if fd is None:
            return None
        try:
            return ending_signal(fd)
        finally:
            self._drop(container_id)

    def _drop(self, container_id: str) -> None:
        fd = self._fds.pop(container_id, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Let go of all; safe to call twice."""
        for container_id in list(self._fds):
            self._drop(container_id)


def ending_signal(pidfd: int) -> int | None:
    """Signal number, 0 for an exit; None while it lives, before its parent has waited for it, or on an old kernel."""
    asked = bytearray(_SHAPE.pack(_EXIT, 0, *([0] * 11), 0).ljust(_SIZE, b"\0"))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, asked)
    except OSError:
        return None
    mask, *_, status = _SHAPE.unpack(bytes(asked[: _SHAPE.size]))
    return status & 0x7F if mask & _EXIT else None
