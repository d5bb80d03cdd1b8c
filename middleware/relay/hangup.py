"""One epoll, itself watched by the loop, that tells when a socket has lost its peer.

It watches all sockets for HUP and ERR, and the paused ones for FIN: the loops do not notice a dead peer while reading
is paused.  It is needed for the read ones too: at EPOLLERR libuv calls a reader once and never again, whatever is left
to read.

**Source:** epoll(7).
"""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress
from typing import Protocol


class Watched(Protocol):
    """What is told."""

    def hung_up(self, events: int) -> None:
        """The watch saw something on its socket."""


class HangupWatch:
    """The epoll.  One-shot."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._links: dict[int, Watched] = {}
        loop.add_reader(self._epoll.fileno(), self._ready)

    def arm(self, fd: int, link: Watched, *, fin: bool = False) -> None:
        """Tell `link` of HUP and ERR on `fd`, once; with `fin` also of the peer's FIN."""
        events = select.EPOLLONESHOT | (select.EPOLLRDHUP if fin else 0)
        if fd in self._links:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._links[fd] = link

    def remove(self, fd: int) -> None:
        """Stop watching; must come before the fd is closed."""
        if self._links.pop(fd, None) is not None:
            with suppress(OSError):
                self._epoll.unregister(fd)

    def _ready(self) -> None:
        for fd, events in self._epoll.poll(0, 256):
            link = self._links.get(fd)
            if link is not None:
                link.hung_up(events)

    def close(self) -> None:
        """Let the epoll go."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._links.clear()
