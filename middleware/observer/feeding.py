"""Reads the feed of a relay process to its end.

In: our end of the socket.  Out: each record, handed to `take` in order.  A record that cannot be handled is counted and
skipped; the reading ends with the feed, with a fault of its framing, or when `take` says that the last record came.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from fairtrial.middleware.core.selfevents import Journal, RecordIgnored
from fairtrial.middleware.wire import feed

READ_BYTES: Final = 1 << 18


def open_link(descriptor: int) -> socket.socket:
    """The socket that the relay process left us; and the agent's folder is not ours to keep busy."""
    os.chdir("/")
    link = socket.socket(fileno=descriptor)
    link.setblocking(False)
    return link


async def read_feed(link: socket.socket, journal: Journal, take: Callable[[feed.Record], Awaitable[bool]]) -> bool:
    """Read until `take` answers True (the BYE); False when the feed ended without: the relay process was killed."""
    loop = asyncio.get_running_loop()
    decoder = feed.Decoder()
    while True:
        try:
            chunk = await loop.sock_recv(link, READ_BYTES)
            records = decoder.feed(chunk)
        except (OSError, feed.FeedCorrupt) as error:
            journal.note(RecordIgnored(label="feed", detail=str(error)))
            return False
        if not chunk:
            return False
        last = False
        for record in records:
            try:
                last = await take(record) or last
            except Exception as error:  # noqa: BLE001 - one record of foreign bytes must not end the observer
                journal.note(RecordIgnored(label=str(record.kind), detail=repr(error)))
        if last:
            return True
        await asyncio.sleep(0)  # a socket that is never empty does not let anybody else work


async def send(link: socket.socket, journal: Journal, kind: feed.Kind, value: dict[str, object]) -> None:
    """Say something to the relay process; that it is gone is noted."""
    try:
        await asyncio.get_running_loop().sock_sendall(link, feed.encode_json(kind, value))
    except OSError as error:
        journal.note(RecordIgnored(label=kind.name, detail=str(error)))
