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
    decoder = feed.Decoder()
    while True:
        try:
            records = await _next(link, decoder)
        except (OSError, feed.FeedCorrupt) as error:
            journal.note(RecordIgnored(label="feed", detail=str(error)))
            return False
        if records is None:
            return False
        if await _all_taken(records, journal, take):
            return True
        del records  # the next ones may be hours away, and these hold their bytes
        await asyncio.sleep(0)  # a socket that is never empty does not let anybody else work


async def _next(link: socket.socket, decoder: feed.Decoder) -> list[feed.Record] | None:
    """What came whole with the next bytes; None at the end of the feed."""
    chunk = await asyncio.get_running_loop().sock_recv(link, READ_BYTES)
    return decoder.feed(chunk) if chunk else None


async def _all_taken(
    records: list[feed.Record], journal: Journal, take: Callable[[feed.Record], Awaitable[bool]]
) -> bool:
    """Whether the last of all was among them."""
    last = False
    for record in records:
        try:
            last = await take(record) or last
        except Exception as error:  # noqa: BLE001 - one record of foreign bytes must not end the observer
            journal.note(RecordIgnored(label=str(record.kind), detail=repr(error)))
    return last


async def send(link: socket.socket, journal: Journal, kind: feed.Kind, value: dict[str, object]) -> None:
    """Say something to the relay process; that it is gone is noted."""
    try:
        await asyncio.get_running_loop().sock_sendall(link, feed.encode_json(kind, value))
    except OSError as error:
        journal.note(RecordIgnored(label=kind.name, detail=str(error)))
