"""The two ends that the relay bench puts a proxy between: a model API that answers at once, and its clients.

In: a port.  Out: seconds per call, delays per event, seconds from an abort to its arrival.  Raw asyncio protocols
on purpose: neither end may be what is measured.  Everything is on loopback and bounded in time.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import cast

TOKEN = "0" * 32
STREAMS, EVENTS, EVENT_INTERVAL_S = 50, 200, 0.005
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000
BODY = b'{"model":"m","messages":[]}' + b" " * 8000
REQUEST = (
    b"POST /t/%s/v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
    b"Accept-Encoding: gzip, deflate\r\n"
    b"User-Agent: bench/1\r\nX-Api-Key: k\r\nAnthropic-Version: 2023-06-01\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % (TOKEN.encode(), len(BODY)) + BODY
)
STREAM = b"GET /t/%s/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % TOKEN.encode()
HELD = b"GET /t/%s/held HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % TOKEN.encode()
SILENCE = b"GET /t/%s/silence HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % TOKEN.encode()
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT_BYTES = 120


class Answering(asyncio.Protocol):
    """The upstream: a whole reply, a stream of stamped events (or its first one), or silence.

    `gone` gets 0 when silence begins, then the time of its end.
    """

    def __init__(self, gone: list[float]) -> None:
        self.gone = gone
        self.left = 0
        self.silent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET "):
            if b"/stream " in data[:60]:
                self.transport.write(STREAM_HEAD)
                self.event(EVENTS)
            elif b"/held " in data[:60]:
                self.transport.write(STREAM_HEAD + self.stamped())
            else:
                self.silent = True
                self.gone.append(0.0)
            return
        if not self.left:
            self.left = len(BODY) + data.index(b"\r\n\r\n") + 4
        self.left -= len(data)
        if not self.left:
            self.transport.write(REPLY)

    def stamped(self) -> bytes:
        stamp = b"data: %020d " % time.perf_counter_ns()
        return b"%x\r\n" % EVENT_BYTES + stamp.ljust(EVENT_BYTES, b".") + b"\r\n"

    def event(self, left: int) -> None:
        self.transport.write(self.stamped())
        if left > 1:
            asyncio.get_running_loop().call_later(EVENT_INTERVAL_S, self.event, left - 1)
        else:
            self.transport.write(b"0\r\n\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.silent:
            self.gone.append(time.perf_counter())


class Asking(asyncio.Protocol):
    """Asks again as soon as it is answered, until the time is over (`until` 0: asks once)."""

    def __init__(self, until: float, times_s: list[float]) -> None:
        self.until = until
        self.times_s = times_s
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = 0
        self.began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.left = -1
        self.began = time.perf_counter()
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        if self.left < 0:  # a proxy may add head lines
            if not data.startswith(b"HTTP/1.1 200 "):
                self.done.set_exception(RuntimeError(f"answered: {data[:60]!r}"))
                self.transport.abort()
                return
            self.left = 2000 + data.index(b"\r\n\r\n") + 4
        self.left -= len(data)
        if not self.left:
            now = time.perf_counter()
            self.times_s.append(now - self.began)
            if now < self.until:
                self.ask()
            else:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Listening(asyncio.Protocol):
    """Takes the delay of every stamped event of one stream; `first` is set with the first."""

    def __init__(self, ask: bytes, delays_s: list[float]) -> None:
        self.ask = ask
        self.delays_s = delays_s
        self.carry = b""
        self.first = asyncio.Event()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.transport = transport
        transport.write(self.ask)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        data = self.carry + data
        pieces = data.split(b"data: ")
        for piece in pieces[1:]:
            if len(piece) >= 20:
                self.delays_s.append((now - int(piece[:20])) / 1e9)
                self.first.set()
        self.carry = b"" if len(pieces[-1]) >= 20 else b"data: " + pieces[-1]
        if data.endswith(b"0\r\n\r\n"):
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.first.set()
        self.done.set_result(None)


async def serve(gone: list[float], tls: ssl.SSLContext | None = None) -> tuple[asyncio.Server, int]:
    """The upstream and its port."""
    server = await asyncio.get_running_loop().create_server(lambda: Answering(gone), "127.0.0.1", 0, ssl=tls)
    return server, server.sockets[0].getsockname()[1]


async def load(port: int, connections: int, seconds: float) -> list[float]:
    """Seconds per call over so many connections."""
    times_s: list[float] = []
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    made = [await loop.create_connection(lambda: Asking(until, times_s), "127.0.0.1", port) for _ in range(connections)]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    return times_s


async def fresh(port: int, seconds: float) -> list[float]:
    """Seconds per call, connecting included, with a new connection for each."""
    spent_s: list[float] = []
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        _, protocol = await loop.create_connection(lambda: Asking(0, []), "127.0.0.1", port)
        await protocol.done
        spent_s.append(time.perf_counter() - began)
    return spent_s


async def stream(port: int) -> list[float]:
    """Delay of each event over all streams."""
    delays_s: list[float] = []
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Listening(STREAM, delays_s), "127.0.0.1", port) for _ in range(STREAMS)
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    return delays_s


async def hold(port: int, count: int) -> list[asyncio.BaseTransport]:
    """So many streams, each with its first event and open since; the caller closes them."""
    delays_s: list[float] = []
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: Listening(HELD, delays_s), "127.0.0.1", port) for _ in range(count)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(protocol.first.wait() for _, protocol in made))
    if len(delays_s) != count:
        raise RuntimeError(f"{len(delays_s)} of {count} streams began")
    return [transport for transport, _ in made]


async def abort(port: int, gone: list[float]) -> list[float]:
    """Seconds from the client's close to the end of the silent upstream connection."""
    spent_s: list[float] = []
    for _ in range(50):
        gone.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(SILENCE)
        while not gone:  # the upstream has the request
            await asyncio.sleep(0.001)
        began = time.perf_counter()
        writer.close()
        while len(gone) < 2 and time.perf_counter() - began < 5:
            await asyncio.sleep(0.0005)
        if len(gone) < 2:  # a proxy that does not pass it on will not do so 49 times more
            return [*spent_s, 5.0]
        spent_s.append(gone[1] - began)
    return spent_s
