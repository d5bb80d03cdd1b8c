"""Room on the file systems of one container: its root, its tmpfs, its volumes.

In: the pid of a process in it.  Out: `disk.full` when one of them has no room left (or no inode).
The kernel counts no ENOSPC, so this is sampling: a file system that was full for less than a second may be missed.
Paths are walked without following links, from the container's own root on: what the agent makes of its folders leads
nowhere else.  What it does not do: judge whose bytes they are, or look into volumes and layers of many files.
**Source:** man statvfs(3), proc(5) /proc/PID/root and mountinfo; kernel filesystems/overlayfs.rst (upperdir).
"""

from __future__ import annotations

import os
import time
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


@dataclass(slots=True)
class _Mounted:
    mount: Mount
    used_at_start: int | None = None
    full: bool = False
    looked: bool = False


class DiskProbe:
    """The mounts that a container had when it was first looked at."""

    def __init__(self, source: Source, subject: Subject, container_id: str, *, proc: Path, pid: int) -> None:
        """Raises OSError when the process is gone or may not be looked at."""
        self._source, self._subject, self._container_id = source, subject, container_id
        self._dir = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._mounts = [_Mounted(mount) for mount in _chosen(parse_mountinfo(self._read("mountinfo")))]
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
                layer_bytes=used if mounted.mount.fs_type == "tmpfs" else _layer_bytes(mounted.mount),
                at_start=first,
                edge=edge,
            ),
            subject=self._subject,
        )

    def _statvfs(self, mount_point: str) -> os.statvfs_result:
        at = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._dir)
        try:
            for part in mount_point.split("/"):
                if part:
                    below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                    os.close(at)
                    at = below
            return os.fstatvfs(at)
        finally:
            os.close(at)

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
        if mount.fs_type in _FILE_SYSTEMS and not theirs:
            found[point] = mount
    return list(found.values())[:_MOST_MOUNTS]


def _layer_bytes(mount: Mount) -> int | None:
    """What a container's own layer holds; None when it has none here, or counting takes too long."""
    upper = next((o.removeprefix("upperdir=") for o in mount.super_options if o.startswith("upperdir=")), None)
    if mount.mount_point != "/" or upper is None:
        return None
    until_s = time.monotonic() + _COUNT_S
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
