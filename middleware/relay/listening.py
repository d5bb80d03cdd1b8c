"""Whether a server of this machine still listens, asked of the kernel as a connection to it has ended.

In: the two ends of a connection.  Out: True, False, or None where the far end is another machine's, where it cannot be
asked, or nobody may ask.  One look-up of some 10 us by netlink, of the listening socket alone: nothing is dialled.
A gateway or a model server of this machine can be ended by any command of the agent's; then it listens no more, as one
that only cut a connection does.  What it does not do: look at IPv6, or say who ended it.

How it can be wrong: one that was started again at once, or whose worker alone was ended, listens still.

**Source:** sock_diag(7): without an established socket of those ends the kernel answers with the one that listens.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ERROR: Final = 2
_ANY_STATE: Final = 0xFFFFFFFF
_NO_COOKIE: Final = 0xFFFFFFFF
_LISTEN: Final = 10

Address = tuple[str, int]


def of_this_machine(far: object, own: object) -> Address | None:
    """The far end's address, if it is one of this machine's own; of an IPv4 socket."""
    if not (isinstance(far, tuple) and isinstance(own, tuple) and len(far) == len(own) == 2):
        return None
    host, port = far
    same = isinstance(host, str) and isinstance(port, int) and (host == own[0] or host.startswith("127."))
    return (host, port) if same else None


def listens(far: Address) -> bool | None:
    """Never raises."""
    try:
        ends = struct.pack(">HH", far[1], 1)
        ends += socket.inet_aton(far[0]) + bytes(12) + socket.inet_aton("127.0.0.1") + bytes(12)
        ends += struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
        asked = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + ends
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG) as netlink:
            netlink.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
            answer = netlink.recv(4096)  # the kernel answers within `send`
        answered = struct.unpack_from("=H", answer, 4)[0]
        if answered == _ERROR:
            return False if struct.unpack_from("=i", answer, 16)[0] == -2 else None  # ENOENT
        return answered == _BY_FAMILY and answer[17] == _LISTEN
    except (AttributeError, OSError, struct.error, IndexError):
        return None
