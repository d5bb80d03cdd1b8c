"""One question to the kernel about one IPv4 TCP socket, by netlink: some 10 us; nothing is dialled, /proc is not read.

In: the socket's own end and its far end.  Out: the kernel's message as it came.  What this module does not do: read
more of it than what kind it is (`senders.py`, `listening.py`).

**Source:** sock_diag(7).
"""

from __future__ import annotations

import socket
import struct
from typing import Final

Address = tuple[str, int]

BY_FAMILY: Final = 20
"""The message is a socket."""
ERROR: Final = 2
BODY_AT: Final = 16
"""Behind nlmsghdr."""

_SOCK_DIAG: Final = 4
_REQUEST: Final = 1
_ANY_STATE: Final = 0xFFFFFFFF
_NO_COOKIE: Final = 0xFFFFFFFF


def opened() -> socket.socket:
    """A socket to ask by.  Raises OSError where that is forbidden, AttributeError where this is not Linux."""
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    return socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG)


def asked(netlink: socket.socket, own: Address, far: Address) -> bytes:
    """The answer about the socket of these ends; where none is connected so, about the one that listens at `own`."""
    ends = struct.pack(">HH", own[1], far[1])
    ends += socket.inet_aton(own[0]) + bytes(12) + socket.inet_aton(far[0]) + bytes(12)
    ends += struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    about = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + ends
    netlink.send(struct.pack("=IHHII", BODY_AT + len(about), BY_FAMILY, _REQUEST, 1, 0) + about)
    return netlink.recv(4096)  # the kernel answers within `send`


def kind_of(answer: bytes) -> int:
    """`BY_FAMILY`, `ERROR` or another."""
    return int(struct.unpack_from("=H", answer, 4)[0])
