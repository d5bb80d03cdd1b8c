"""Reading the feed: to the last record, past what cannot be handled, and without shutting anybody out."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Iterator

import pytest

from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.observer.feeding import read_feed, send
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.feed import Kind

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def journal() -> Iterator[Journal]:
    with open(os.devnull, "w") as nowhere:
        yield Journal(nowhere)


async def test_it_reads_to_the_last_record_and_says_so(pair: Pair, journal: Journal) -> None:
    ours, theirs = pair
    seen: list[int] = []

    async def take(record: feed.Record) -> bool:
        seen.append(record.kind)
        if record.kind == Kind.LAG:
            raise ValueError("cannot be handled")
        return record.kind == Kind.BYE

    theirs.sendall(b"".join(feed.encode(kind, b"{}") for kind in (Kind.HELLO, Kind.LAG, Kind.NOTE, Kind.BYE)))
    assert await read_feed(ours, journal, take)
    assert seen == [Kind.HELLO, Kind.LAG, Kind.NOTE, Kind.BYE]
    assert sum(journal.counts.values()) == 1


@pytest.mark.parametrize("last", [b"", b"\xff" * 24], ids=["end", "no feed"])
async def test_an_end_without_the_last_record_is_told(pair: Pair, journal: Journal, last: bytes) -> None:
    ours, theirs = pair

    async def take(record: feed.Record) -> bool:
        return False

    theirs.sendall(feed.encode(Kind.HELLO, b"{}") + last)
    theirs.shutdown(socket.SHUT_WR)
    assert not await read_feed(ours, journal, take)


async def test_a_feed_that_never_pauses_lets_others_work(pair: Pair, journal: Journal) -> None:
    ours, theirs = pair
    worked = 0
    read = 0

    async def work() -> None:
        nonlocal worked
        while True:
            worked += 1
            await asyncio.sleep(0)

    async def take(record: feed.Record) -> bool:
        nonlocal read
        read += 1
        if read < 500:
            theirs.sendall(feed.encode(Kind.NOTE, b"{}"))  # there is always more
            return False
        return True

    worker = asyncio.get_running_loop().create_task(work(), name="work")
    theirs.sendall(feed.encode(Kind.NOTE, b"{}"))
    assert await read_feed(ours, journal, take)
    worker.cancel()
    assert worked > 400


async def test_no_record_is_kept_while_it_waits_for_the_next(pair: Pair, journal: Journal) -> None:
    ours, theirs = pair
    read = 0

    async def take(record: feed.Record) -> bool:
        nonlocal read
        read += 1
        return record.kind == Kind.BYE

    reading = asyncio.get_running_loop().create_task(read_feed(ours, journal, take), name="reading")
    theirs.sendall(b"".join(feed.encode(Kind.NOTE, b"{}", conn=4711) for _ in range(100)))
    while read < 100:
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not [each for each in gc.get_objects() if isinstance(each, feed.Record) and each.conn == 4711]
    theirs.sendall(feed.encode(Kind.BYE, b"{}"))
    assert await reading


async def test_a_relay_that_is_gone_is_noted_not_raised(pair: Pair, journal: Journal) -> None:
    ours, theirs = pair
    await send(ours, journal, Kind.READY, {"pid": 1})
    assert feed.Decoder().feed(theirs.recv(100))[0].json() == {"pid": 1}
    theirs.close()
    await send(ours, journal, Kind.READY, {"pid": 1})
    assert sum(journal.counts.values()) == 1
