"""The clients that the relay benches put before a proxy: raw asyncio protocols, since they may not be what is measured.

In: a port and the path before `/v1/messages` (a door's token).  Out: seconds per call, delays per event.  What is asked
of the stand-in upstream (`relay_upstream.py`) is in the query.  Everything is on loopback and bounded in time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final, cast

from tests.bench.messages import STAMP, call_body, request

STREAMS: Final = 50
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Door:
    """Where the calls go."""

    port: int
    prefix: str = "/t/" + "0" * 32

    def call(self, mode: str, *, stream: bool = False) -> bytes:
        """A call of 8 KB (JSON) or of a short prompt (streamed)."""
        body = call_body(400, stream=True) if stream else call_body()
        return request(self.prefix, mode, body)


class Asking(asyncio.Protocol):
    """Asks again as soon as it is answered, until the time is over (`until_s` 0: asks once).

    With `park` it asks once and then waits, connected, for `go`.
    """

    def __init__(self, ask: bytes, until_s: float, times_s: list[float], *, park: bool = False) -> None:
        self.request = ask
        self.parked: asyncio.Future[None] | None = asyncio.get_running_loop().create_future() if park else None
        self.until_s = until_s
        self.times_s = times_s
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = 0
        self.began_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.ask()

    def ask(self) -> None:
        self.left = -1
        self.began_s = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if self.left < 0:  # a proxy may add head lines
            if not data.startswith(b"HTTP/1.1 200 "):
                self.done.set_exception(RuntimeError(f"answered: {data[:60]!r}"))
                self.transport.abort()
                return
            self.left = 2000 + data.index(b"\r\n\r\n") + 4
        self.left -= len(data)
        if not self.left:
            now_s = time.perf_counter()
            self.times_s.append(now_s - self.began_s)
            if self.parked is not None and not self.parked.done():
                self.parked.set_result(None)
            elif now_s < self.until_s:
                self.ask()
            else:
                self.transport.close()

    def go(self, until_s: float, times_s: list[float]) -> None:
        """Ask from now on, until the time is over."""
        self.until_s, self.times_s = until_s, times_s
        self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.parked is not None and not self.parked.done():
            self.parked.set_exception(RuntimeError(f"lost before it began ({exc!r})"))
        if not self.done.done():
            if self.left:
                self.done.set_exception(RuntimeError(f"cut within an answer ({exc!r})"))
            else:
                self.done.set_result(None)


@dataclass(slots=True)
class Heard:
    """What came of streams."""

    delays_s: list[float] = field(default_factory=list[float])
    """Of each event: from its stamp to its arrival."""
    first_s: list[float] = field(default_factory=list[float])
    """Of each stream: from the request to its first event (TTFT)."""


class Listening(asyncio.Protocol):
    """Takes every stamped event of streams, one after the other on a connection; `first` is set with the first."""

    def __init__(self, ask: bytes, heard: Heard, streams: int = 1) -> None:
        self.request = ask
        self.heard = heard
        self.streams = streams
        self.carry = b""
        self.waiting = True
        self.first = asyncio.Event()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.ask()

    def ask(self) -> None:
        self.waiting = True
        self.began_ns = time.monotonic_ns()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        data = self.carry + data
        pieces = data.split(STAMP)
        for piece in pieces[1:]:
            if len(piece) >= 20:
                self.heard.delays_s.append((now_ns - int(piece[:20])) / 1e9)
        if len(pieces) > 1 and self.waiting:
            self.waiting = False
            self.heard.first_s.append((now_ns - self.began_ns) / 1e9)
            self.first.set()
        last = pieces[-1]
        if data.endswith(b"0\r\n\r\n"):
            self.carry = b""
            self.streams -= 1
            if self.streams:
                self.ask()
            else:
                self.transport.close()
        elif len(pieces) > 1 and len(last) < 20:
            self.carry = STAMP + last
        else:
            self.carry = last[-len(STAMP) + 1 :]

    def connection_lost(self, exc: Exception | None) -> None:
        self.first.set()
        if not self.done.done():
            if self.streams:
                self.done.set_exception(RuntimeError(f"cut within a stream ({exc!r})"))
            else:
                self.done.set_result(None)


async def connected(door: Door, connections: int) -> list[Asking]:
    """So many connections, each with one answered call: what a connection costs is over (`fresh` measures that)."""
    loop = asyncio.get_running_loop()
    ask = door.call("")
    made: list[Asking] = []
    for _ in range(connections):
        _, protocol = await loop.create_connection(lambda: Asking(ask, 0, [], park=True), "127.0.0.1", door.port)
        made.append(protocol)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(protocol.parked for protocol in made if protocol.parked is not None))
    return made


async def load(crowd: list[Asking], seconds: float) -> list[float]:
    """Seconds per call over these connections, which end with it."""
    times_s: list[float] = []
    until_s = time.perf_counter() + seconds
    for protocol in crowd:
        protocol.go(until_s, times_s)
    async with asyncio.timeout(seconds + PATIENCE_S):
        await asyncio.gather(*(protocol.done for protocol in crowd))
    return times_s


async def fresh(door: Door, seconds: float) -> list[float]:
    """Seconds per call, connecting included, with a new connection for each."""
    spent_s: list[float] = []
    loop = asyncio.get_running_loop()
    ask = door.call("")
    until_s = time.perf_counter() + seconds
    while (began_s := time.perf_counter()) < until_s:
        _, protocol = await loop.create_connection(lambda: Asking(ask, 0, []), "127.0.0.1", door.port)
        await protocol.done
        spent_s.append(time.perf_counter() - began_s)
    return spent_s


async def streams(door: Door, mode: str, connections: int = STREAMS, each: int = 1) -> Heard:
    """So many connections with `each` streams, to their ends."""
    heard = Heard()
    loop = asyncio.get_running_loop()
    ask = door.call(mode, stream=True)
    made = [
        await loop.create_connection(lambda: Listening(ask, heard, each), "127.0.0.1", door.port)
        for _ in range(connections)
    ]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(protocol.done for _, protocol in made))
    return heard


async def hold(door: Door, count: int, mode: str = "held") -> list[asyncio.Transport]:
    """So many streams, each with its first event and open since; the caller closes them."""
    heard = Heard()
    loop = asyncio.get_running_loop()
    ask = door.call(mode, stream=True)
    made: list[Listening] = []
    for _ in range(count):
        _, protocol = await loop.create_connection(lambda: Listening(ask, heard), "127.0.0.1", door.port)
        protocol.done.add_done_callback(lambda done: done.exception())  # that it is cut is what the caller wants
        made.append(protocol)
        if len(made) % 50 == 0:  # no flood of handshakes: an agent's streams begin one after the other
            await asyncio.wait_for(protocol.first.wait(), PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(protocol.first.wait() for protocol in made))
    if len(heard.first_s) != count:
        raise RuntimeError(f"{len(heard.first_s)} of {count} streams began")
    return [protocol.transport for protocol in made]
