"""An observer that only reads, for the rows that show the relay process alone: it keeps up, or it is saturated.

`standin_observer.py keeps-up|saturated --feed-fd N`, started by the relay process in place of the real observer.
The saturated one takes some 3 MB/s, so that the feed overflows and drops; it does not burn a core.
Run as a driver, `standin_observer.py drive keeps-up|saturated run …`, it is `fairtrial run` with that observer.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path


def observe(feed_fd: int, how: str) -> None:
    """Read to the end."""
    link = socket.socket(fileno=feed_fd)
    piece = 1 << 16 if how == "saturated" else 1 << 20
    while link.recv(piece):
        if how == "saturated":
            time.sleep(0.02)


def drive(how: str, arguments: list[str]) -> None:
    """`fairtrial run` whose other end of the feed is this file."""
    from fairtrial.middleware.relay import supervise

    supervise.main(arguments, observer_command=(sys.executable, "-P", str(Path(__file__).resolve()), how))


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        drive(sys.argv[2], sys.argv[3:])
    else:
        observe(int(sys.argv[3]), sys.argv[1])
