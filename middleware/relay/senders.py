"""Which process is at the other end of a connection: the witness of who sent a request.

In: a client's address and the address of the door that it came to.  Out: {pid, start_ticks, parents} for the feed;
pid 0 where it is none of the processes that descend from this one; None where nobody looked.  The kernel is asked for
the inode of the client's socket (netlink, one look-up of some 10 us, whatever the number of sockets); the descriptors
of our own descendants tell who holds it.  The relay asks after the request was passed on and before a byte of the
answer is, so the client still waits and the connection is open: there is no race to lose.
What it deliberately does not do: hold up a byte of a request, look at clients of other machines or network namespaces
(a container's), look more often than `PER_SECOND` or for longer than `MOST_S`, or guess.

How it can be wrong: a socket that two processes share (inherited over a fork) is the first one's that is found.

**Source:** sock_diag(7); man proc(5) (task/TID/children).
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Final, TypeGuard

from fairtrial.middleware.relay.sock_diag import BODY_AT, BY_FAMILY, Address, asked, kind_of, opened

PER_SECOND: Final = 20.0
"""Looks a second at most; in a burst as many at once."""
MOST_S: Final = 0.002
"""A look is given up after so much CPU time; with an agent and its tool it takes 0.1 ms."""
NOBODY_OF_OURS: Final[dict[str, object]] = {"pid": 0, "start_ticks": 0, "parents": []}
_MOST_PARENTS: Final = 32
_KEPT: Final = 8
_INODE_AT: Final = BODY_AT + 4 + 48 + 16
"""nlmsghdr, the first four bytes of inet_diag_msg, inet_diag_sockid, then expires, rqueue, wqueue and uid."""

_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Senders:
    """Looks up one client after another.  Never raises."""

    def __init__(self, *, proc: str = "/proc", clock: Callable[[], float] = monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._room = PER_SECOND
        self._at = clock()
        self._off = False
        self._known: list[int] = []
        """Who held connections before, the newest last: agents come again."""

    def stop(self) -> None:
        """Nobody is looked up from now on."""
        self._off = True

    def of(self, client: object, door: object) -> dict[str, object] | None:
        """`client` and `door`: the two ends as the socket names them; only IPv4 loopback addresses are looked at."""
        if self._off or not (_is_loopback(client) and _is_loopback(door)) or not self._may_look():
            return None
        try:
            inode = self._inode(client, door)
            return None if not inode else self._holder(f"socket:[{inode}]")
        except Exception:  # noqa: BLE001 - whatever is wrong with /proc must not end a connection
            return None

    def _may_look(self) -> bool:
        now = self._clock()
        self._room = min(PER_SECOND, self._room + (now - self._at) * PER_SECOND)
        self._at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def _inode(self, client: Address, door: Address) -> int | None:
        try:
            netlink = opened()
        except AttributeError:  # not Linux
            self._off = True
            return None
        except OSError as error:
            self._off = error.errno not in _PASSING  # else forbidden here
            return None
        with netlink:
            answer = asked(netlink, client, door)
        if kind_of(answer) != BY_FAMILY:
            return None
        return int(struct.unpack_from("=I", answer, _INODE_AT)[0])

    def _holder(self, wanted: str) -> dict[str, object] | None:
        until = thread_time() + MOST_S
        for pid in reversed(self._known):
            if self._holds(pid, wanted) and (line := self._line(pid)):
                return self._told(pid, line)
        parents: dict[int, int] = {}
        found = [os.getpid()]
        for parent in found:  # it grows meanwhile
            if thread_time() > until:
                return None
            for child in self._children(parent):
                if child not in parents:
                    parents[child] = parent
                    found.append(child)
        for pid in reversed(found[1:]):  # a tool is younger than most
            if thread_time() > until:
                return None
            if self._holds(pid, wanted):
                self._known = [*(k for k in self._known if k != pid), pid][-_KEPT:]
                return self._told(pid, _upward(pid, parents))
        return NOBODY_OF_OURS if parents else None

    def _line(self, pid: int) -> list[int] | None:
        """Its parents up to this process; None where it is not among them."""
        line: list[int] = []
        at, own = pid, os.getpid()
        while at != own and len(line) < _MOST_PARENTS:
            at = int(self._stat(at)[1])
            if at <= 1:
                return None
            line.append(at)
        return line if at == own else None

    def _children(self, pid: int) -> list[int]:
        children: list[int] = []
        folder = f"{self._proc}/{pid}/task"
        try:
            for thread in os.listdir(folder):
                with open(f"{folder}/{thread}/children", "rb", buffering=0) as file:
                    children += map(int, file.read(65536).split())
        except OSError:  # gone meanwhile, or a kernel without these files
            pass
        return children

    def _holds(self, pid: int, wanted: str) -> bool:
        folder = f"{self._proc}/{pid}/fd"
        try:
            return any(os.readlink(f"{folder}/{name}") == wanted for name in os.listdir(folder))
        except OSError:  # gone, or one of its descriptors is: it does not wait for an answer, then
            return False

    def _told(self, pid: int, parents: list[int]) -> dict[str, object]:
        return {"pid": pid, "start_ticks": int(self._stat(pid)[19]), "parents": parents}

    def _stat(self, pid: int) -> list[bytes]:
        """The fields of /proc/PID/stat behind the name: state, ppid, …"""
        with open(f"{self._proc}/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].split()


def _upward(pid: int, parents: dict[int, int]) -> list[int]:
    line: list[int] = []
    while (parent := parents.get(pid)) is not None and len(line) < _MOST_PARENTS:
        line.append(parent)
        pid = parent
    return line


def _is_loopback(address: object) -> TypeGuard[Address]:
    return isinstance(address, tuple) and len(address) == 2 and str(address[0]).startswith("127.")
