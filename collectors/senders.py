"""Which process opened a connection to a door of ours: the witness of who sent a request.

In: the client's address as the relay saw it, at once after it was accepted.  Out: a `Sender`: the process, when it
began, and its parents, nearest first.  The kernel's table of TCP sockets gives the socket's inode, the file descriptors
of the processes tell who holds it.  It is read beside the traffic, in the observer: the relay waits for nothing.
What it deliberately does not do: look at connections of other machines or of other network namespaces (a container's),
guess for a connection that was closed before it was looked at, or look more often than it may (`PER_SECOND`): an agent
that opens a connection for each call must not keep the observer from reading.  Such a sender is None: not observed.

How it can be wrong: a port that was closed and given to another process within the moment of the look.

**Source:** kernel networking/proc_net_tcp; man proc(5).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from fairtrial.collectors.parse.proc import parse_stat
from fairtrial.middleware.core.observations import Sender

PER_SECOND: Final = 40.0
"""Looks a second at most; in a burst as many at once."""
_ESTABLISHED: Final = (b"01", b"02", b"04", b"05", b"08")
"""States of a socket that its client may still hold: ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT."""
_KEPT: Final = 16
_MAX_PARENTS: Final = 32
_MAX_PROCESSES: Final = 4_000


class Senders:
    """Looks up one client after another; remembers who was found, since agents come again."""

    def __init__(self, proc: Path = Path("/proc"), *, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._room = PER_SECOND
        self._at = clock()
        self._found: OrderedDict[int, None] = OrderedDict()
        """Pids that held a connection before, the newest last."""

    def of(self, peer: str) -> Sender | None:
        """`peer`: "127.0.0.1:PORT".  None: not looked at, or gone before it was."""
        if not self._may_look():
            return None
        with suppress(OSError, ValueError):
            host, _, port = peer.rpartition(":")
            inode = self._inode(socket.inet_aton(host), int(port))
            pid = None if inode is None else self._holder(inode)
            if pid is not None:
                self._found[pid] = None
                self._found.move_to_end(pid)
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)
                return self._sender(pid)
        return None

    def _may_look(self) -> bool:
        now = self._clock()
        self._room = min(PER_SECOND, self._room + (now - self._at) * PER_SECOND)
        self._at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def _inode(self, address: bytes, port: int) -> bytes | None:
        """Of the socket whose own end is this address."""
        # The kernel writes the address as one number of its own byte order.
        wanted = b"%08X:%04X" % (struct.unpack("=I", address)[0], port)
        for line in (self._proc / "net" / "tcp").read_bytes().splitlines()[1:]:
            fields = line.split(maxsplit=10)
            if len(fields) > 9 and fields[1] == wanted and fields[3] in _ESTABLISHED and fields[9] != b"0":
                return fields[9]
        return None

    def _holder(self, inode: bytes) -> int | None:
        wanted = f"socket:[{inode.decode('ascii')}]"
        return next((pid for pid in self._pids() if self._holds(pid, wanted)), None)

    def _pids(self) -> Iterator[int]:
        """Who was found before, then the newest processes first: a tool is younger than most."""
        known = list(reversed(self._found))
        yield from known
        pids = sorted((int(name) for name in os.listdir(self._proc) if name.isdecimal()), reverse=True)
        yield from (pid for pid in pids[:_MAX_PROCESSES] if pid not in known and pid != os.getpid())

    def _holds(self, pid: int, wanted: str) -> bool:
        folder = f"{self._proc}/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:  # gone, or another user's
            return False
        for name in names:
            with suppress(OSError):
                if os.readlink(f"{folder}/{name}") == wanted:
                    return True
        return False

    def _sender(self, pid: int) -> Sender | None:
        parents: list[int] = []
        begun: int | None = None
        at = pid
        while len(parents) < _MAX_PARENTS:
            try:
                line = parse_stat((self._proc / str(at) / "stat").read_bytes())
            except (OSError, ValueError):
                break
            if at == pid:
                begun = line.start_ticks
            if line.ppid == 0:
                break
            parents.append(line.ppid)
            at = line.ppid
        return None if begun is None else Sender(pid=pid, start_ticks=begun, parents=parents)
