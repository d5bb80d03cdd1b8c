"""What systemd and a service say to each other, by hand: sockets that were opened for us, and words about our state.

In: `$LISTEN_FDS`, `$LISTEN_PID`, `$LISTEN_FDNAMES`, `$NOTIFY_SOCKET`, `$WATCHDOG_USEC`.  Out: sockets with their names;
one datagram per word.  Without systemd nothing is found and nothing is said.

A socket that systemd holds outlives us: connections wait in its backlog while one process ends and the next begins.

**Source:** sd_listen_fds_with_names(3), sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

from fairtrial.middleware.core.errors import ConfigError

FIRST_DESCRIPTOR: Final = 3
_LISTEN: Final = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


def inherited(environ: Mapping[str, str]) -> list[tuple[str, socket.socket]]:
    """Name and socket of each that was opened for this very process; none of them is inherited any further.

    Raises `ConfigError` for one that is no listening stream socket.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()) or not environ.get("LISTEN_FDS", "").isdecimal():
        return []
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    found: list[tuple[str, socket.socket]] = []
    for index in range(min(int(environ["LISTEN_FDS"]), 256)):
        descriptor = FIRST_DESCRIPTOR + index
        name = names[index] if index < len(names) else ""
        try:
            os.set_inheritable(descriptor, False)
            sock = socket.socket(fileno=descriptor)
            listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError:
            listens, sock = 0, None
        if sock is None or not listens or sock.type != socket.SOCK_STREAM:
            raise ConfigError(
                f"Descriptor {descriptor} ({name or 'without a name'}), which $LISTEN_FDS announces, is no listening "
                "stream socket.",
                remedy="In the socket unit use ListenStream= and Accept=no.",
                source="LISTEN_FDS",
            )
        found.append((name, sock))
    return found


def without_sockets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for processes that we start: these words are meant for us alone."""
    return {name: value for name, value in environ.items() if name not in (*_LISTEN, "NOTIFY_SOCKET", "WATCHDOG_USEC")}


def watchdog_s(environ: Mapping[str, str]) -> float | None:
    """How often we must say `WATCHDOG=1`, in seconds (half of what systemd waits); None: nobody waits."""
    usec = environ.get("WATCHDOG_USEC", "")
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not usec.isdecimal() or int(usec) == 0:
        return None
    return int(usec) / 2e6


class Notifier:
    """Says how we are to whoever started us.  A word that cannot be delivered is dropped."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._sock: socket.socket | None = None
        if self._address.startswith(("/", "\0")):
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def say(self, *words: str) -> None:
        """Such as `READY=1`, `STATUS=serving`."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.sendto("\n".join(words).encode(), self._address)

    def close(self) -> None:
        """Nothing more is said."""
        if self._sock is not None:
            self._sock.close()
