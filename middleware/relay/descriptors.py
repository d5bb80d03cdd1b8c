"""How many more descriptors this process may open, and who waits for one.

In: the process's own limit (RLIMIT_NOFILE) and table.  Out: how many connections may be accepted now, and a place to
wait until one is free.  A call that comes through a door needs two descriptors here where it needs one without us, so
at the limit a direct call would still work: ours must wait, not fail.

Each accepted connection has a second descriptor promised for its upstream, and a few are kept spare for what the
process itself opens (a resolver's sockets, the addresses of a name tried side by side, the record of `--json`).  Far
from the limit nothing is counted: reading the table costs some 0.2 ms for a thousand descriptors.

How this can be wrong: the whole machine may be out of files (ENFILE) while we are not; then waiting is all there is.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

OUT_OF_ROOM: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
"""Errors of accept and socket that pass when somebody closes something."""

SPARE: Final = 12
"""Never promised to a connection."""
_NEAR: Final = 128
"""So close to the limit the table is read instead of guessed."""
_POLL_S: Final = 0.1
"""What frees a descriptor need not be a connection of ours, so a waiter also looks by itself."""

_T = TypeVar("_T")


class Descriptors:
    """The room of one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[object] = []
        self._freed = asyncio.Event()

    def connections(self, open_now: int, connected: Callable[[], int], most: int) -> int:
        """How many connections may be accepted now, at most `most`; 0 while somebody waits for a descriptor.

        `open_now` are open already, `connected()` of them have their upstream.  One is let in whatever the limit.
        """
        if self._waiting:
            return 0
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY or 2 * (open_now + most) + _NEAR <= limit:
            return most
        try:
            taken = len(os.listdir("/proc/self/fd")) - 1
        except OSError:
            taken = limit  # there was none left to read the table with
        room = (limit - taken - (open_now - connected()) - SPARE) // 2
        return min(most, max(room, 0 if open_now else 1))

    async def take(self, make: Callable[[], _T], limit_s: float) -> _T:
        """What `make` opens, as soon as there is a descriptor for it, in the order of asking.

        Raises what `make` raised when there was none within the limit, or when it failed for another reason.
        """
        failed = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if not self._waiting:
            try:
                return make()
            except OSError as error:
                if error.errno not in OUT_OF_ROOM:
                    raise
                failed = error
        deadline = self._loop.time() + limit_s
        mine = object()
        self._waiting.append(mine)
        try:
            while (left_s := deadline - self._loop.time()) > 0:
                self._freed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_POLL_S, left_s)):
                        await self._freed.wait()
                if self._waiting[0] is not mine:
                    continue
                try:
                    return make()
                except OSError as error:
                    if error.errno not in OUT_OF_ROOM:
                        raise
                    failed = error
            raise failed
        finally:
            self._waiting.remove(mine)
            self.freed()

    def freed(self) -> None:
        """A descriptor was closed: the first in the row tries again."""
        if self._waiting:
            self._freed.set()
