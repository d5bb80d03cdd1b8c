"""Whether a server of this machine still listens, asked of the kernel as a connection to it has ended.

In: the two ends of a connection.  Out: True, False, or None where the far end is another machine's, where it cannot be
asked, or nobody may ask.  One look-up of some 10 us by netlink, of the listening socket alone: nothing is dialled.
A gateway or a model server of this machine can be ended by any command of the agent's; then it listens no more, as one
that only cut a connection does.  What it does not do: look at IPv6, or say who ended it.

How it can be wrong: one that was started again at once, or whose worker alone was ended, listens still.

**Source:** sock_diag(7): without an established socket of those ends the kernel answers with the one that listens.
"""

from __future__ import annotations

import struct
from typing import Final

from fairtrial.middleware.relay.sock_diag import BODY_AT, BY_FAMILY, ERROR, Address, asked, kind_of, opened

_LISTEN: Final = 10
_ENOENT: Final = -2


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
        with opened() as netlink:
            answer = asked(netlink, far, ("127.0.0.1", 1))
        if kind_of(answer) == ERROR:
            return False if struct.unpack_from("=i", answer, BODY_AT)[0] == _ENOENT else None
        return kind_of(answer) == BY_FAMILY and answer[BODY_AT + 1] == _LISTEN
    except (AttributeError, OSError, struct.error, IndexError):
        return None
