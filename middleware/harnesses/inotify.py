"""The kernel's notices about folders, for a thread that waits for them.

In: folders.  Out: (folder, name, mask) as they happen.  Python's standard library has no inotify and the packages that
do put queues and threads between the notice and the reader; here a file must be opened before it is deleted again.
**Source:** inotify(7), inotify_add_watch(2).
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CREATE: Final = 0x100
MOVED_TO: Final = 0x80
DELETE: Final = 0x200
DELETE_SELF: Final = 0x400
IS_DIR: Final = 0x40000000
OVERFLOW: Final = 0x4000
_ONLY_DIR: Final = 0x01000000
_DONT_FOLLOW: Final = 0x02000000
_WANTED: Final = CREATE | MOVED_TO | DELETE | DELETE_SELF | _ONLY_DIR | _DONT_FOLLOW
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 1 << 16


class Notices:
    """Watches folders, not what lies below them.  Raises `OSError` where the kernel gives none."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = int(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._folders: dict[int, Path] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def add(self, folder: Path) -> bool:
        """Watch a folder from now on; False when it cannot be (gone, a link, too many watches)."""
        number = int(self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _WANTED))
        if number < 0:
            return False
        self._folders[number] = folder
        return True

    def wait(self, timeout_s: float) -> Iterator[tuple[Path | None, str, int]]:
        """The notices that came within the time; `folder` None with `OVERFLOW`: some were lost."""
        ready, _, _ = select.select([self._fd, self._wake_read], [], [], timeout_s)
        if self._fd not in ready:
            return
        try:
            content = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at + _EVENT.size <= len(content):
            number, mask, _, length = _EVENT.unpack_from(content, at)
            name = content[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            if mask & OVERFLOW:
                yield None, "", mask
            elif number in self._folders:
                yield self._folders[number], os.fsdecode(name), mask

    def wake(self) -> None:
        """End a `wait` of another thread."""
        try:
            os.write(self._wake_write, b"x")
        except OSError:
            return  # closed, or a wake-up is waiting already

    def close(self) -> None:
        """Give everything back."""
        for fd in (self._fd, self._wake_read, self._wake_write):
            os.close(fd)
