"""Network counters of a process's namespace: bytes in and out, retransmits, failed connections.

In: a pid.  Out: cumulative counters since the namespace's birth, or None once the process is gone.  The descriptor
held is that of /proc/PID, which keeps nothing of the namespace alive (an open /proc/PID/net/dev would) and cannot
come to mean another process when the pid is reused.  Bytes are wire bytes with headers, loopback left out.
A namespace that is also ours carries other processes' traffic: `shared` says so and its bytes are not given.
**Source:** man proc(5) /proc/PID/net, RFC 4022 (tcpRetransSegs, tcpAttemptFails).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fairtrial.collectors.parse.proc import TcpCounters, Traffic, parse_net_dev, parse_tcp

_READ_BYTES: Final = 32768


class NetworkCounters:
    """Counters of one namespace, seen through one process in it."""

    def __init__(self, proc: Path, pid: int) -> None:
        """Raises OSError when the process is gone or may not be looked at."""
        self._dir = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.namespace: int | None = os.stat("ns/net", dir_fd=self._dir).st_ino
        except OSError:
            self.namespace = None
        try:
            ours: int | None = os.stat(proc / "self" / "ns" / "net").st_ino
        except OSError:
            ours = None
        self.shared = self.namespace is not None and self.namespace == ours

    def _read(self, name: str) -> bytes | None:
        if self._dir < 0:
            return None
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._dir)
        except OSError:
            return None
        try:
            return os.read(fd, _READ_BYTES)
        except OSError:
            return None
        finally:
            os.close(fd)

    def traffic(self) -> Traffic | None:
        """Bytes of all interfaces but loopback; None for a shared namespace."""
        raw = None if self.shared else self._read("net/dev")
        try:
            return None if raw is None else parse_net_dev(raw)
        except (ValueError, IndexError):
            return None

    def tcp(self) -> TcpCounters | None:
        """TCP trouble of the namespace, also of a shared one."""
        raw = self._read("net/snmp")
        try:
            return None if raw is None else parse_tcp(raw)
        except ValueError:
            return None

    def close(self) -> None:
        """Safe to call twice."""
        if self._dir >= 0:
            os.close(self._dir)
            self._dir = -1
