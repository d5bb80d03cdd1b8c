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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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
    room = UPLOAD_BYTES
    for _ in range(repeats):
        sock, gone = await _connected(door.port), len(api.gone_s)
        try:
            if way.mode != "paused":
                await asyncio.get_running_loop().sock_sendall(sock, door.call(way.mode, stream=True))
            elif way.reset:
                await _upload(sock, door, UPLOAD_BYTES)
            else:
                sock, room = await _almost_full(api, sock, door, room)
                gone = len(api.gone_s)
            await _until(lambda: api.seen > len(api.gone_s))
            await asyncio.sleep(0.02)
            if len(api.gone_s) > gone:
                raise RuntimeError(f"{way.what}: the upstream's connection ended before its client went")
            began_s = time.monotonic()
            if way.reset:
                _reset(sock)
            else:
                sock.close()
            if not await _until(partial(_more, api.gone_s, gone)):
                return [*spent_s, PATIENCE_S]  # one that does not end will not do so the next time either
            spent_s.append(api.gone_s[-1] - began_s)
        finally:
            sock.close()
    return spent_s


async def _almost_full(api: Api, sock: socket.socket, door: Door, room: int) -> tuple[socket.socket, int]:
    """A client whose upload is paused, yet of which all has reached the relay's socket: only then can its end do so.

    The kernel decides anew each time how much it takes, so a little less is tried until nothing is left on our side.
    """
    while True:
        gone = len(api.gone_s)
        sent = await _upload(sock, door, room)
        if await _until(partial(_all_sent, sock), 0.2):
            return sock, sent
        _reset(sock)
        await _until(partial(_more, api.gone_s, gone))
        sock, room = await _connected(door.port), int(sent * 0.95) - len(_PIECE)


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
    return sent


def _all_sent(sock: socket.socket) -> bool:
    """Whether the kernel holds nothing more on our side."""
    return not any(fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))


def _more(counts: list[float], than: int) -> bool:
    return len(counts) > than


async def _until(claim: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Whether it came true in time."""
    deadline_s = time.monotonic() + patience_s
    while not claim():
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(0.001)
    return True
