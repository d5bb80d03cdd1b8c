"""How soon the upstream's connection ends after its client has gone, whatever passes at that moment.

`python -m tests.bench aborts`.  One real run per kind of upstream.  Each way is tried several times and the slowest
counts; at the end no connection of the relay may be left.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import uvloop

from tests.bench.messages import request
from tests.bench.observed import Run, Upstreams
from tests.bench.processes import OTHER_CORES, raise_file_limit
from tests.bench.relay_load import Door
from tests.bench.relay_upstream import Api
from tests.bench.rows import Row

BUDGET_S: Final = 0.1
REPEATS: Final = 25
PATIENCE_S: Final = 5.0
UPLOAD_BYTES: Final = 64 << 20
_PIECE: Final = b"x" * 65536


@dataclass(frozen=True, slots=True)
class Way:
    """What passes when the client goes, and how it goes."""

    what: str
    mode: str
    reset: bool = False
    share: float = 1.0
    """Of the repeats: filling all buffers takes its time."""


WAYS: Final = (
    Way("the upstream speaks", "flow"),
    Way("the upstream is silent", "silence"),
    Way("the upload is paused, the client resets", "paused", reset=True, share=0.3),
    Way("the upload is paused, the client closes", "paused", share=0.3),
)


@dataclass(frozen=True, slots=True)
class Left:
    """Sockets after everything has ended, over those before."""

    relay: int
    upstream: int


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budget of DESIGN section 7, plain and TLS."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    repeats = 2 if quick else REPEATS
    took, left = uvloop.run(_measured(repeats))
    for (way, tls), spent_s in took.items():
        yield Row(
            what=f"client abort to upstream closed, {way.what}{', TLS' if tls else ''}",
            value=max(spent_s) * 1e3, unit="ms", budget=BUDGET_S * 1e3, how=f"max of {len(spent_s)}",
        )  # fmt: skip
    yield Row(
        what="connections left in the relay after that", value=sum(one.relay for one in left), unit="", budget=0,
        how=f"sockets of its process over those before; in the upstream {sum(one.upstream for one in left)}",
    )  # fmt: skip


async def _measured(repeats: int) -> tuple[dict[tuple[Way, bool], list[float]], list[Left]]:
    took: dict[tuple[Way, bool], list[float]] = {}
    left: list[Left] = []
    async with Upstreams() as ups:
        for tls in (False, True):
            with ups.run(tls=tls) as run:
                run.ready()
                api, before = ups.behind(tls=tls), run.relay.sockets()
                for way in WAYS:
                    took[way, tls] = await aborted(api, run.door, way, max(1, round(repeats * way.share)))
                left.append(await _left(api, run, before))
    return took, left


async def _left(api: Api, run: Run, before: int) -> Left:
    deadline_s = time.monotonic() + PATIENCE_S
    while (api.open or run.relay.sockets() > before) and time.monotonic() < deadline_s:
        await asyncio.sleep(0.02)
    return Left(relay=max(0, run.relay.sockets() - before), upstream=api.open)


async def aborted(api: Api, door: Door, way: Way, repeats: int) -> list[float]:
    """Seconds from the client's end to the end at the upstream, one per try; the patience once one lasts longer."""
    spent_s: list[float] = []
    room = 0
    for _ in range(repeats):
        sock = await _connected(door.port)
        try:
            seen, gone = api.seen, len(api.gone_s)
            if way.mode == "paused":
                if not way.reset and not room:
                    # As much as can be on the way at all: less of it arrives whole, and so does the end behind it.
                    probe = await _connected(door.port)
                    room = await _upload(probe, door, UPLOAD_BYTES)
                    _reset(probe)
                    await _until(lambda seen=seen, gone=gone: api.seen > seen and len(api.gone_s) > gone)
                    seen, gone = api.seen, len(api.gone_s)
                await _upload(sock, door, UPLOAD_BYTES if way.reset else room - 4 * len(_PIECE))
            else:
                await asyncio.get_running_loop().sock_sendall(sock, door.call(way.mode, stream=True))
            await _until(lambda seen=seen: api.seen > seen)
            await asyncio.sleep(0.02)
            began_s = time.monotonic()
            if way.reset:
                _reset(sock)
            else:
                sock.close()
            if not await _until(lambda gone=gone: len(api.gone_s) > gone):
                return [*spent_s, PATIENCE_S]  # one that does not end will not do so the next time either
            spent_s.append(api.gone_s[-1] - began_s)
        finally:
            sock.close()
    return spent_s


async def _connected(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)  # what waits here, the relay cannot see
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def _upload(sock: socket.socket, door: Door, limit_bytes: int) -> int:
    """Send a head that announces more, and as much of the body as anybody takes, or the limit; how many bytes left."""
    head = request(door.prefix, "paused", b"x" * UPLOAD_BYTES)
    head = head[: head.index(b"\r\n\r\n") + 4]
    await asyncio.get_running_loop().sock_sendall(sock, head)
    sent, moved_s = 0, time.monotonic()
    while sent < limit_bytes and time.monotonic() - moved_s < 0.1:
        try:
            sent += sock.send(_PIECE[: limit_bytes - sent])
            moved_s = time.monotonic()
        except BlockingIOError:
            await asyncio.sleep(0.0005)
        else:
            await asyncio.sleep(0)
    if sent >= limit_bytes:
        await _until(lambda: struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))[0] == 0)
    return sent


async def _until(claim: object) -> bool:
    """Whether it came true within the patience."""
    assert callable(claim)
    deadline_s = time.monotonic() + PATIENCE_S
    while not claim():
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(0.001)
    return True
