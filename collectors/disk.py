"""Room on the file systems of one container: its root, its tmpfs, its volumes.

In: the pid of a process in it.  Out: `disk.full` when one of them has no room left (or no inode).
The kernel counts no ENOSPC, so this is sampling: a file system that was full for less than a second may be missed.
Paths are walked without following links, from the container's own root on: what the agent makes of its folders leads
nowhere else.  What cannot be written to is full as it is meant to be.  A file that was removed while a process has it
open is still the container's.  What it does not do: judge whose bytes they are, or look into volumes and layers of many
files; it tells that there are other ways to the same file system.
**Source:** man statvfs(3), proc(5) /proc/PID/root and mountinfo; kernel filesystems/overlayfs.rst (upperdir).
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.collectors.parse.proc import Mount, parse_mountinfo
from fairtrial.collectors.readings import Edge
from fairtrial.middleware.core.observations import DiskFull, Subject
from fairtrial.middleware.core.sink import Source

_FILE_SYSTEMS: Final = frozenset(
    {"overlay", "fuse.fuse-overlayfs", "ext4", "ext3", "ext2", "xfs", "btrfs", "zfs", "f2fs", "tmpfs"}
)
_NOT_OURS: Final = ("/proc", "/sys", "/dev")
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a mount point that is looked at, not written to
_MOST_MOUNTS: Final = 16
_COUNT_S: Final = 0.1
_FULL_PARTS: Final = {"tmpfs": 100}
_FULL_PARTS_ELSE: Final = 32
_FULL_BYTES: Final = 4 << 20
"""ext4 refuses a write of 1 MiB while it tells of up to 1 MiB still free (measured: 96 MiB, kernel 6.18, 0.3 to 0.6 MiB
left), for it takes room for a whole folio at once; tmpfs gives its last page.  On a large disk a part says nothing."""
_SMALL_FILE: Final = 1 << 20
"""A file that is mounted by itself (/etc/hosts) and smaller than this holds none of what filled a disk."""
_MOST_PROCESSES: Final = 256


@dataclass(slots=True)
class _Mounted:
    mount: Mount
    used_at_start: int | None = None
    full: bool = False
    looked: bool = False


class DiskProbe:
    """The mounts that a container had when it was first looked at."""

    def __init__(
        self,
        source: Source,
        subject: Subject,
        container_id: str,
        *,
        proc: Path,
        pid: int,
        pids: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """`pids`: all processes of the container now.  Raises OSError when the process is gone or may not be looked
        at."""
        self._source, self._subject, self._container_id = source, subject, container_id
        self._proc, self._pids = proc, pids
        self._dir = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            chosen = _chosen(parse_mountinfo(self._read("mountinfo")))
            self._mounts = [_Mounted(mount) for mount in chosen[:_MOST_MOUNTS]]
            self._more = len(chosen) > _MOST_MOUNTS
            os.stat("root", dir_fd=self._dir)
        except OSError:
            self.close()
            raise

    def _read(self, name: str) -> bytes:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._dir)
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def look(self, edge: Edge | None = None) -> None:
        """Some microseconds per mount; writes what became full."""
        if self._dir < 0:
            return
        for mounted in self._mounts:
            try:
                room = self._statvfs(mounted.mount.mount_point)
            except OSError:
                continue  # the process or the mount is gone
            self._judge(mounted, room, edge)

    def _judge(self, mounted: _Mounted, room: os.statvfs_result, edge: Edge | None) -> None:
        size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
        used = (room.f_blocks - room.f_bfree) * room.f_frsize
        first = not mounted.looked
        mounted.looked = True
        if first:
            mounted.used_at_start = used
        needed = min(size // _FULL_PARTS.get(mounted.mount.fs_type, _FULL_PARTS_ELSE), _FULL_BYTES)
        full = size > 0 and (free < needed or (room.f_files > 0 and room.f_favail == 0))
        was, mounted.full = mounted.full, full
        if not full or was:
            return
        self._source.emit(
            DiskFull(
                container_id=self._container_id,
                mount=mounted.mount.mount_point,
                fs_type=mounted.mount.fs_type,
                size=size,
                free=free,
                inodes_free=room.f_favail if room.f_files > 0 else None,
                used_at_start=mounted.used_at_start,
                used=used,
                layer_bytes=used if mounted.mount.fs_type == "tmpfs" else self._layer_bytes(mounted.mount),
                other_ways=self._other_ways(mounted.mount, room),
                at_start=first,
                edge=edge,
            ),
            subject=self._subject,
        )

    def _other_ways(self, mount: Mount, room: os.statvfs_result) -> bool:
        """Whether another of its mounts leads to what seems to be the same file system: a volume, a bound folder."""
        size = (room.f_blocks * room.f_frsize, room.f_files)
        for other in self._mounts:
            if other.mount.mount_point == mount.mount_point:
                continue
            try:
                theirs = self._statvfs(other.mount.mount_point)
            except NotADirectoryError:
                if self._file_bytes(other.mount.mount_point) < _SMALL_FILE:
                    continue
                return True
            except OSError:
                continue
            if (theirs.f_blocks * theirs.f_frsize, theirs.f_files) == size:
                return True
        return self._more

    def _layer_bytes(self, mount: Mount) -> int | None:
        """What a container's own layer holds; None when it has none here, or counting takes too long."""
        until_s = time.monotonic() + _COUNT_S
        layer = _layer_bytes(mount, until_s)
        removed = None if layer is None else self._removed_bytes(until_s)
        return None if layer is None or removed is None else layer + removed

    def _removed_bytes(self, until_s: float) -> int | None:
        """What files hold that its processes have open and that have no name any more; None when there is too much to
        look at.  Shared memory is no file of a disk."""
        at = os.stat("root", dir_fd=self._dir).st_dev
        found: dict[tuple[int, int], int] = {}
        for n, pid in enumerate(self._pids()):
            folder = self._proc / str(pid) / "fd"
            if n >= _MOST_PROCESSES or time.monotonic() > until_s:
                return None
            try:
                for entry in os.scandir(folder):
                    with contextlib.suppress(OSError):
                        told = os.stat(entry.path)
                        if stat.S_ISREG(told.st_mode) and told.st_nlink == 0 and told.st_dev == at:
                            found[told.st_dev, told.st_ino] = told.st_blocks * 512
            except OSError:
                continue  # it is gone, or may not be looked at
        return sum(found.values())

    def _statvfs(self, mount_point: str) -> os.statvfs_result:
        at = self._opened(mount_point, os.O_DIRECTORY)
        try:
            return os.fstatvfs(at)
        finally:
            os.close(at)

    def _file_bytes(self, mount_point: str) -> int:
        try:
            at = self._opened(mount_point, 0)
        except OSError:
            return 0
        try:
            return os.fstat(at).st_blocks * 512
        finally:
            os.close(at)

    def _opened(self, mount_point: str, last: int) -> int:
        """A descriptor of what stands there, no link followed on the way; `last`: what it has to be."""
        parts = [part for part in mount_point.split("/") if part]
        at = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._dir)
        for n, part in enumerate(parts, 1):
            kind = os.O_DIRECTORY if n < len(parts) else last
            try:
                below = os.open(part, os.O_PATH | kind | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            finally:
                os.close(at)
            at = below
        return at

    def close(self) -> None:
        """Safe to call twice."""
        if self._dir >= 0:
            os.close(self._dir)
            self._dir = -1


def _chosen(mounts: tuple[Mount, ...]) -> list[Mount]:
    """Those that a command writes to; the last of several on one point is the one that is seen."""
    found: dict[str, Mount] = {}
    for mount in mounts:
        point = mount.mount_point
        theirs = any(point == top or point.startswith(top + "/") for top in _NOT_OURS) and point != _SHARED_MEMORY
        if mount.fs_type in _FILE_SYSTEMS and mount.writable and not theirs:
            found[point] = mount
    return list(found.values())


def _layer_bytes(mount: Mount, until_s: float) -> int | None:
    upper = next((o.removeprefix("upperdir=") for o in mount.super_options if o.startswith("upperdir=")), None)
    if mount.mount_point != "/" or upper is None:
        return None
    total = 0
    waiting = [upper]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError:
            return None
        if time.monotonic() > until_s:
            return None
    return total
